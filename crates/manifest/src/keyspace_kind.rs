//! The kind of a keyspace, and its stored form: docs/format/manifest.md.

use std::fmt;

use base::limits::OPERATOR_NAME_BYTES_MAX;
use base::{Cursor, Discard, Error, HashKey, HashedPolicy, KeyForm, Result, put_bytes, put_varint};

use crate::edit::name;

/// The kind of a keyspace. It never changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyspaceKind {
    /// Keys in their order: point reads, range scans, snapshots.
    Ordered,
    /// Keys in the order of a keyed hash: point reads at less memory a key.
    Hashed {
        /// The secret of the hash.
        hash_key: HashKey,
        /// How long entries are kept.
        policy: HashedPolicy,
        /// Filter bits of the base of a keyspace that keeps everything, at most
        /// [`BASE_FILTER_BITS_MAX`]; 0: it has no filter.
        base_filter_bits: u8,
    },
}

/// Most filter bits of a base.
pub const BASE_FILTER_BITS_MAX: u8 = 10;

const ORDERED: u8 = 1;
const HASHED: u8 = 2;

const KEEP: u8 = 1;
const WINDOW: u8 = 2;
/// `KEEP`, followed by the filter bits per entry of the base, the oldest run.
const KEEP_FILTERED: u8 = 3;
const RESIDENT: u8 = 4;

const FIFO: u8 = 1;
const CLOCK: u8 = 2;
const PRIORITY: u8 = 3;

impl KeyspaceKind {
    /// How the keyspace stores its keys.
    #[must_use]
    pub const fn key_form(&self) -> KeyForm {
        match self {
            Self::Ordered => KeyForm::Plain,
            Self::Hashed { hash_key, .. } => KeyForm::Hashed(*hash_key),
        }
    }

    /// The policy of a hashed keyspace.
    #[must_use]
    pub const fn policy(&self) -> Option<&HashedPolicy> {
        match self {
            Self::Ordered => None,
            Self::Hashed { policy, .. } => Some(policy),
        }
    }

    /// Whether the keyspace keeps only its newest entries.
    #[must_use]
    pub const fn is_window(&self) -> bool {
        matches!(self.policy(), Some(HashedPolicy::Window { .. }))
    }

    /// Whether the keyspace's entries stay in the log.
    #[must_use]
    pub const fn is_resident(&self) -> bool {
        matches!(self.policy(), Some(HashedPolicy::Resident))
    }

    /// Filter bits of the base of a hashed keyspace; 0: it has no filter.
    #[must_use]
    pub const fn base_filter_bits(&self) -> u8 {
        match self {
            Self::Ordered => 0,
            Self::Hashed { base_filter_bits, .. } => *base_filter_bits,
        }
    }

    /// The policy of a window as its tables store it; empty for another kind.
    #[must_use]
    pub fn window_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        if let Some(HashedPolicy::Window { bytes, discard }) = self.policy() {
            encode_window(*bytes, discard, &mut out);
            debug_assert!(
                Self::of_tables(self.key_form(), &out).policy() == self.policy(),
                "a policy that a table states reads back"
            );
        }
        out
    }

    /// The kind of a keyspace by what its tables state: how it stores its keys, and the policy of a window.
    /// Without a readable policy a hashed keyspace keeps everything, which loses nothing.
    #[must_use]
    pub fn of_tables(form: KeyForm, window: &[u8]) -> Self {
        let KeyForm::Hashed(hash_key) = form else { return Self::Ordered };
        let mut cursor = Cursor::new("policy of a window", window);
        let stated = decode_window(&mut cursor).ok().filter(|_| cursor.is_empty());
        let policy = stated.unwrap_or(HashedPolicy::Keep);
        Self::Hashed { hash_key, policy, base_filter_bits: 0 }
    }

    /// The least format version of a manifest that can state the kind.
    pub(crate) const fn format_version(&self) -> u32 {
        match self {
            Self::Ordered => 1,
            // Version 2 has its bytes, but readers from before version 4 cannot evict as it states.
            Self::Hashed { policy: HashedPolicy::Window { discard, .. }, .. } => match discard {
                Discard::Fifo => 2,
                Discard::Clock | Discard::Priority(_) => 4,
            },
            Self::Hashed { policy: HashedPolicy::Resident, .. } => 7,
            Self::Hashed { base_filter_bits: 0, .. } => 2,
            Self::Hashed { .. } => 3,
        }
    }

    pub(crate) const fn number(&self) -> u8 {
        match self {
            Self::Ordered => ORDERED,
            Self::Hashed { .. } => HASHED,
        }
    }

    /// Appends the fields that follow the keyspace's name.
    pub(crate) fn encode_fields(&self, out: &mut Vec<u8>) {
        let Self::Hashed { hash_key, policy, base_filter_bits } = self else { return };
        out.extend_from_slice(hash_key.bytes());
        match policy {
            HashedPolicy::Keep if *base_filter_bits > 0 => {
                out.extend_from_slice(&[KEEP_FILTERED, *base_filter_bits]);
            }
            HashedPolicy::Keep => out.push(KEEP),
            HashedPolicy::Resident => out.push(RESIDENT),
            HashedPolicy::Window { bytes, discard } => {
                out.push(WINDOW);
                encode_window(*bytes, discard, out);
            }
        }
    }

    /// Reads the fields of the kind with this number.
    pub(crate) fn decode(number: u8, cursor: &mut Cursor<'_>) -> Result<Self> {
        match number {
            ORDERED => Ok(Self::Ordered),
            HASHED => {
                let mut hash_key = [0; HashKey::BYTES];
                hash_key.copy_from_slice(cursor.take(HashKey::BYTES)?);
                let (policy, base_filter_bits) = policy(cursor)?;
                let hash_key = HashKey::new(hash_key);
                Ok(Self::Hashed { hash_key, policy, base_filter_bits })
            }
            other => Err(Error::corrupt("keyspace kind")
                .expected("1 (ordered) or 2 (hashed)")
                .got(other)),
        }
    }
}

/// Does not print the hash key, which is a secret.
impl fmt::Display for KeyspaceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ordered => f.write_str("ordered"),
            Self::Hashed { policy, base_filter_bits: 0, .. } => write!(f, "hashed {policy}"),
            Self::Hashed { policy, base_filter_bits, .. } => {
                write!(f, "hashed {policy}, base-filter-bits {base_filter_bits}")
            }
        }
    }
}

/// Appends the length and the discard policy of a window.
fn encode_window(bytes: u64, discard: &Discard, out: &mut Vec<u8>) {
    put_varint(out, bytes);
    match discard {
        Discard::Fifo => out.push(FIFO),
        Discard::Clock => out.push(CLOCK),
        Discard::Priority(name) => {
            out.push(PRIORITY);
            put_bytes(out, name.as_bytes());
        }
    }
}

fn decode_window(cursor: &mut Cursor<'_>) -> Result<HashedPolicy> {
    let bytes = cursor.varint()?;
    let discard = match cursor.u8()? {
        FIFO => Discard::Fifo,
        CLOCK => Discard::Clock,
        PRIORITY => Discard::Priority(name(cursor, OPERATOR_NAME_BYTES_MAX)?),
        other => {
            return Err(Error::corrupt("discard policy of a window")
                .expected("1 (fifo), 2 (clock) or 3 (priority)")
                .got(other));
        }
    };
    Ok(HashedPolicy::Window { bytes, discard })
}

/// The policy, and the filter bits of the base.
fn policy(cursor: &mut Cursor<'_>) -> Result<(HashedPolicy, u8)> {
    match cursor.u8()? {
        KEEP => Ok((HashedPolicy::Keep, 0)),
        KEEP_FILTERED => match cursor.u8()? {
            bits @ 1..=BASE_FILTER_BITS_MAX => Ok((HashedPolicy::Keep, bits)),
            bits => Err(Error::corrupt("filter bits of a base")
                .expected(format_args!("1..={BASE_FILTER_BITS_MAX}"))
                .got(bits)),
        },
        WINDOW => Ok((decode_window(cursor)?, 0)),
        RESIDENT => Ok((HashedPolicy::Resident, 0)),
        other => Err(Error::corrupt("policy of a hashed keyspace")
            .expected("1 (keep), 2 (window), 3 (keep with filters) or 4 (resident)")
            .got(other)),
    }
}
