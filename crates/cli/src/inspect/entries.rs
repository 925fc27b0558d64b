//! `terrace inspect table --entries`: every version that can be read of a table, and the keys around each
//! damage.

use std::fmt;
use std::sync::Arc;

use base::{Account, EntryKind, Seqno, StoreId, TableId, expiry};
use media::Medium;
use serde_json::{Value, json};
use table::{Fragment, LostKeys, Pointer, Salvaged, StoreDictionaries, salvage};
use terracedb::tools::inspect_manifest;
use terracedb::{Error, Result};

/// Most bytes of a value that are printed.
const VALUE_BYTES_MAX: usize = 64;

/// A part of a table's content.
#[derive(Debug)]
pub(super) enum Part {
    Version(Version),
    RangeDelete {
        start: Vec<u8>,
        end: Vec<u8>,
        seqnos: Vec<Seqno>,
    },
    /// Pages that cannot be read, and the keys read before and after them.
    Lost(LostKeys),
}

/// A version of a key.
#[derive(Debug)]
pub(super) struct Version {
    key: Vec<u8>,
    pub(super) seqno: Seqno,
    pub(super) kind: EntryKind,
    /// The first bytes of the value, or of the operand.
    value: Vec<u8>,
    /// The length of the value, bytes.
    value_bytes: u64,
    /// When it expires, Unix milliseconds; 0: never.
    expiry: u64,
    /// The value file with the value, and its first page there.
    place: Option<(TableId, u32)>,
}

/// Passes on the content of table `name` in order. `store` is that of the table's footer; without one, that
/// of the newest manifest. Returns whether all of it was read.
///
/// # Errors
/// As [`salvage`]; `Invalid` if `name` is not that of a table; those of `visit`.
pub(super) fn each_part(
    medium: &Arc<dyn Medium>,
    name: &str,
    store: Option<StoreId>,
    visit: &mut dyn FnMut(Part) -> Result<()>,
) -> Result<bool> {
    let Some(table) = table::parse_file_name(name) else {
        return Err(Error::invalid("file to inspect")
            .expected("the name of a table")
            .got(format_args!("`{name}`")));
    };
    let store = match store {
        Some(store) => store,
        None => store_of_manifest(&**medium)?,
    };
    let account = Account::unlimited("inspect");
    let dictionaries = StoreDictionaries::new(Arc::clone(medium), store, account.clone());
    let report = salvage(&**medium, store, table, &dictionaries, None, &account, &mut |found| {
        visit(match found {
            Salvaged::Version { key, trailer, value } => {
                Part::Version(Version::of(key, trailer.seqno(), trailer.kind()?, value))
            }
            Salvaged::RangeDelete(Fragment { start, end, seqnos }) => Part::RangeDelete {
                start: start.to_vec(),
                end: end.to_vec(),
                seqnos: seqnos.to_vec(),
            },
            Salvaged::Lost(lost) => Part::Lost(lost),
        })
    })?;
    Ok(report.lost_pages == 0)
}

/// The store of the newest manifest that can be read.
fn store_of_manifest(medium: &dyn Medium) -> Result<StoreId> {
    let mut names: Vec<_> = medium.list()?.into_iter().map(|file| file.name).collect();
    names.retain(|name| name.starts_with("manifest-"));
    names.sort();
    let read = names.iter().rev().find_map(|name| inspect_manifest(medium, name).ok());
    read.map(|(store, _)| store).ok_or_else(|| {
        Error::corrupt("footer of a table").expected("it, or a manifest, to know the store by")
    })
}

impl Version {
    /// The version that is stored so.
    pub(super) fn of(key: &[u8], seqno: Seqno, kind: EntryKind, stored: &[u8]) -> Self {
        let mut version = Self {
            key: key.to_vec(),
            seqno,
            kind,
            value: Vec::new(),
            value_bytes: stored.len() as u64,
            expiry: 0,
            place: None,
        };
        let mut value = stored;
        match kind {
            EntryKind::PutExpiring => {
                // A block that verifies has entries of their form; any other is shown as it is stored.
                if let Ok((at, rest)) = expiry::split(stored) {
                    (version.expiry, value) = (at, rest);
                    version.value_bytes = rest.len() as u64;
                }
            }
            EntryKind::PutPointer => {
                if let Ok(Pointer { file, page, bytes, expiry, .. }) = Pointer::decode(stored) {
                    (version.place, version.expiry) = (Some((file, page)), expiry);
                    (version.value_bytes, value) = (bytes, &[]);
                }
            }
            EntryKind::Delete | EntryKind::Put | EntryKind::DeleteRange | EntryKind::Merge => {}
        }
        version.value = value.get(..VALUE_BYTES_MAX).unwrap_or(value).to_vec();
        version
    }

    /// All but the seqno.
    pub(super) fn fmt_content(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` {}", self.key.escape_ascii(), kind_name(self.kind))?;
        self.fmt_value(f)
    }

    fn fmt_value(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, value, value_bytes, expiry, place, .. } = self;
        if *kind != EntryKind::Delete {
            write!(f, ", {value_bytes} B")?;
        }
        if !value.is_empty() {
            write!(f, " `{}`", value.escape_ascii())?;
        }
        if place.is_none() && value.len() as u64 != *value_bytes {
            f.write_str("...")?;
        }
        if let Some((file, page)) = place {
            write!(f, " in value file {file} at page {page}")?;
        }
        if *expiry > 0 {
            write!(f, ", expires at {expiry} ms")?;
        }
        Ok(())
    }

    pub(super) fn to_json(&self) -> Value {
        let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
        json!({
            "fact": "entry",
            "key": text(&self.key),
            "seqno": self.seqno.get(),
            "kind": kind_name(self.kind),
            "value": text(&self.value),
            "value_bytes": self.value_bytes,
            "expiry_unix_ms": self.expiry,
            "value_file": self.place.map(|(file, _)| file.0),
        })
    }
}

pub(super) fn kind_name(kind: EntryKind) -> &'static str {
    match kind {
        EntryKind::Delete => "delete",
        EntryKind::Put => "put",
        EntryKind::PutPointer => "put-pointer",
        EntryKind::DeleteRange => "delete-range",
        EntryKind::Merge => "merge",
        EntryKind::PutExpiring => "put-expiring",
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, seqno, kind, .. } = self;
        write!(f, "entry: `{}` {} at {seqno}", key.escape_ascii(), kind_name(*kind))?;
        self.fmt_value(f)
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version(version) => version.fmt(f),
            Self::RangeDelete { start, end, seqnos } => write!(
                f,
                "range delete: `{}` to `{}` at {seqnos:?}",
                start.escape_ascii(),
                end.escape_ascii()
            ),
            Self::Lost(LostKeys { pages, after, before, error }) => {
                write!(f, "lost: pages {}..{}, the entries", pages.start, pages.end)?;
                match after {
                    Some(after) => write!(f, " after `{}`", after.escape_ascii())?,
                    None => f.write_str(" from the beginning")?,
                }
                match before {
                    Some(before) => write!(f, " and before `{}`", before.escape_ascii())?,
                    None => f.write_str(" to the end")?,
                }
                write!(f, ": {error}")
            }
        }
    }
}

impl Part {
    pub(super) fn to_json(&self) -> Value {
        let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
        match self {
            Self::Version(version) => version.to_json(),
            Self::RangeDelete { start, end, seqnos } => json!({
                "fact": "range delete",
                "start": text(start),
                "end": text(end),
                "seqnos": seqnos.iter().map(|seqno| seqno.get()).collect::<Vec<u64>>(),
            }),
            Self::Lost(LostKeys { pages, after, before, error }) => json!({
                "fact": "lost",
                "pages": [pages.start, pages.end],
                "after": after.as_deref().map(text),
                "before": before.as_deref().map(text),
                "error": error.to_string(),
            }),
        }
    }
}
