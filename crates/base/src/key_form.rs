//! The stored form of a keyspace's keys: memtables, log, tables and caches hold stored keys only.
//!
//! The public API turns a user key into a stored key once, when a call begins, and turns stored keys back
//! where entries are returned. An ordered keyspace stores keys as they are. A hashed keyspace stores
//! `hash(key) as big-endian u64 || key`, so that the order of stored keys is the order of hashes.

use smallvec::SmallVec;

use crate::limits::KEY_BYTES_MAX;
use crate::{Cursor, Error, HashKey, Key, Result};

/// Length of the hash before the user key, bytes.
pub const KEY_HASH_BYTES: usize = 8;

/// The longest user key of a hashed keyspace, bytes.
pub const HASHED_KEY_BYTES_MAX: usize = KEY_BYTES_MAX - KEY_HASH_BYTES;

/// Stored keys up to this length, bytes, need no allocation.
const INLINE_BYTES: usize = 96;

/// How a keyspace stores its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyForm {
    /// As they are.
    Plain,
    /// Behind their hash.
    Hashed(HashKey),
}

/// The stored form of one user key; its bytes are a valid [`Key`].
#[derive(Clone, Debug)]
pub struct StoredKey<'a>(Form<'a>);

/// The stored forms of several user keys. In an ordered keyspace it holds nothing but the caller's slice.
#[derive(Clone, Debug)]
pub struct StoredKeys<'a, K>(Forms<'a, K>);

#[derive(Clone, Debug)]
enum Forms<'a, K> {
    Plain(&'a [K]),
    /// The keys back to back, and the end of each.
    Hashed(Vec<u8>, Vec<usize>),
}

#[derive(Clone, Debug)]
enum Form<'a> {
    Plain(&'a [u8]),
    Hashed(SmallVec<[u8; INLINE_BYTES]>),
}

impl KeyForm {
    /// The stored form of the user key `key`.
    ///
    /// # Errors
    /// `Invalid` if the key is empty or longer than the keyspace's keys may be.
    pub fn stored<'a>(&self, key: &'a [u8]) -> Result<StoredKey<'a>> {
        match self {
            Self::Plain => Key::new(key).map(|key| StoredKey(Form::Plain(key.bytes()))),
            Self::Hashed(hash_key) => {
                if key.is_empty() || key.len() > HASHED_KEY_BYTES_MAX {
                    return Err(Error::invalid("key length in a hashed keyspace, bytes")
                        .expected(format_args!("1..={HASHED_KEY_BYTES_MAX}"))
                        .got(key.len()));
                }
                let mut stored = SmallVec::with_capacity(KEY_HASH_BYTES + key.len());
                stored.extend_from_slice(&hash_key.hash(key).to_be_bytes());
                stored.extend_from_slice(key);
                Ok(StoredKey(Form::Hashed(stored)))
            }
        }
    }

    /// The stored forms of `keys`.
    ///
    /// # Errors
    /// As [`KeyForm::stored`], for the first key that is out of bounds.
    pub fn stored_all<'a, K: AsRef<[u8]>>(&self, keys: &'a [K]) -> Result<StoredKeys<'a, K>> {
        match self {
            Self::Plain => {
                keys.iter().try_for_each(|key| Key::new(key.as_ref()).map(drop))?;
                Ok(StoredKeys(Forms::Plain(keys)))
            }
            Self::Hashed(_) => {
                let (mut bytes, mut ends) = (Vec::new(), Vec::with_capacity(keys.len()));
                for key in keys {
                    bytes.extend_from_slice(self.stored(key.as_ref())?.bytes());
                    ends.push(bytes.len());
                }
                Ok(StoredKeys(Forms::Hashed(bytes, ends)))
            }
        }
    }

    /// The user key of a stored key.
    ///
    /// # Errors
    /// `Corrupt` if the hash before the user key is not its hash: a stored key comes from the device.
    pub fn user<'a>(&self, stored: &'a [u8]) -> Result<&'a [u8]> {
        let Self::Hashed(hash_key) = self else { return Ok(stored) };
        let mut cursor = Cursor::new("key of a hashed keyspace", stored);
        let hash = cursor.u64()?.swap_bytes();
        let key = cursor.rest();
        let expected = hash_key.hash(key);
        if key.is_empty() || hash != expected {
            return Err(Error::corrupt("hash of a key")
                .at(format_args!("`{}`", key.escape_ascii()))
                .expected(format_args!("{expected:016x}"))
                .got(format_args!("{hash:016x}")));
        }
        Ok(key)
    }
}

impl StoredKey<'_> {
    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match &self.0 {
            Form::Plain(key) => key,
            Form::Hashed(key) => key,
        }
    }

    /// The bytes as a [`Key`].
    #[must_use]
    pub fn key(&self) -> Key<'_> {
        Key::of_checked(self.bytes())
    }
}

impl<K: AsRef<[u8]>> StoredKeys<'_, K> {
    /// The number of keys.
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.0 {
            Forms::Plain(keys) => keys.len(),
            Forms::Hashed(_, ends) => ends.len(),
        }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Key number `at`.
    #[must_use]
    pub fn get(&self, at: usize) -> Option<Key<'_>> {
        let bytes = match &self.0 {
            Forms::Plain(keys) => keys.get(at)?.as_ref(),
            Forms::Hashed(bytes, ends) => {
                let start =
                    at.checked_sub(1).map_or(Some(0), |before| ends.get(before).copied())?;
                bytes.get(start..*ends.get(at)?)?
            }
        };
        Some(Key::of_checked(bytes))
    }

    /// The keys in the order of the user keys.
    pub fn iter(&self) -> impl Iterator<Item = Key<'_>> {
        (0..self.len()).filter_map(|at| self.get(at))
    }
}

impl AsRef<[u8]> for StoredKey<'_> {
    fn as_ref(&self) -> &[u8] {
        self.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    const HASHED: KeyForm = KeyForm::Hashed(HashKey::new([7; HashKey::BYTES]));

    #[test]
    fn plain_keys_are_stored_as_they_are() {
        let stored = KeyForm::Plain.stored(b"apple").unwrap();
        assert_eq!(stored.bytes(), b"apple");
        assert_eq!(KeyForm::Plain.user(stored.bytes()).unwrap(), b"apple");
    }

    #[test]
    fn hashed_keys_are_stored_behind_their_hash_and_come_back() {
        for length in [1, 8, INLINE_BYTES - 8, INLINE_BYTES - 7, 300, HASHED_KEY_BYTES_MAX] {
            let key = vec![b'k'; length];
            let stored = HASHED.stored(&key).unwrap();
            let KeyForm::Hashed(hash_key) = HASHED else { unreachable!() };
            assert_eq!(stored.bytes()[..8], hash_key.hash(&key).to_be_bytes());
            assert_eq!(stored.bytes()[KEY_HASH_BYTES..], key[..]);
            assert_eq!(stored.key().bytes(), stored.bytes());
            assert_eq!(HASHED.user(stored.bytes()).unwrap(), key);
        }
    }

    #[test]
    fn several_keys_are_stored_in_their_order() {
        let keys = ["a", "bcd", "ef"];
        for form in [KeyForm::Plain, HASHED] {
            let all = form.stored_all(&keys).unwrap();
            assert_eq!((all.len(), all.is_empty(), all.get(3)), (3, false, None));
            for (key, stored) in keys.iter().zip(all.iter()) {
                assert_eq!(stored.bytes(), form.stored(key.as_bytes()).unwrap().bytes());
            }
            assert!(form.stored_all(&["a", ""]).is_err());
            assert!(form.stored_all::<&str>(&[]).unwrap().is_empty());
        }
    }

    #[test]
    fn keys_out_of_bounds_are_refused() {
        let long = vec![0; HASHED_KEY_BYTES_MAX + 1];
        for key in [&b""[..], &long] {
            let error = HASHED.stored(key).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid);
            assert!(error.to_string().contains("1..=65528"), "{error}");
        }
        assert!(KeyForm::Plain.stored(&long).is_ok());
        assert!(KeyForm::Plain.stored(b"").is_err());
    }

    #[test]
    fn a_stored_key_with_a_wrong_hash_is_corrupt() {
        let mut stored = HASHED.stored(b"apple").unwrap().bytes().to_vec();
        for length in 0..=KEY_HASH_BYTES {
            assert_eq!(HASHED.user(&stored[..length]).unwrap_err().kind(), ErrorKind::Corrupt);
        }
        stored[3] ^= 1;
        assert_eq!(HASHED.user(&stored).unwrap_err().kind(), ErrorKind::Corrupt);
    }
}
