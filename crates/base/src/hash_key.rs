//! The key of a keyed hash: SipHash-1-3 (Aumasson and Bernstein, 2012).

use std::fmt;

use siphasher::sip::SipHasher13;

use crate::{Error, Result};

/// The secret of one keyspace's hash, 16 bytes. Without it nobody can choose keys that fall into one bin.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct HashKey([u8; Self::BYTES]);

impl HashKey {
    /// Its length, bytes.
    pub const BYTES: usize = 16;

    /// The key with these bytes.
    #[must_use]
    pub const fn new(bytes: [u8; Self::BYTES]) -> Self {
        Self(bytes)
    }

    /// A key from the system's randomness.
    ///
    /// # Errors
    /// `Retry` if the system has no randomness.
    pub fn random() -> Result<Self> {
        let mut bytes = [0; Self::BYTES];
        getrandom::fill(&mut bytes)
            .map_err(|error| Error::retry("randomness for a hash key").caused_by(error))?;
        Ok(Self(bytes))
    }

    /// The key with the stored form `bytes`; `None` if their number is wrong.
    #[must_use]
    pub fn from_slice(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    /// The bytes.
    #[must_use]
    pub const fn bytes(&self) -> &[u8; Self::BYTES] {
        &self.0
    }

    /// The hash of `key`. About 15 ns for a key of 16 bytes.
    #[must_use]
    pub fn hash(&self, key: &[u8]) -> u64 {
        let hash = SipHasher13::new_with_key(&self.0).hash(key);
        #[cfg(any(test, feature = "testing"))]
        return hash & self.kept_bits();
        #[cfg(not(any(test, feature = "testing")))]
        hash
    }

    /// A key whose hashes have only `bits` bits, at most 63, so that many keys share one. For tests: only
    /// builds with the feature `testing` know such keys.
    #[cfg(any(test, feature = "testing"))]
    #[must_use]
    pub const fn weak(bits: u8) -> Self {
        let mut bytes = *b"a weak hash key\0";
        bytes[Self::BYTES - 1] = bits;
        Self(bytes)
    }

    /// The bits of a hash that differ among keys.
    #[cfg(any(test, feature = "testing"))]
    fn kept_bits(&self) -> u64 {
        match self.0.strip_prefix(b"a weak hash key") {
            Some([bits]) => !(u64::MAX >> (bits % 64)),
            _ => u64::MAX,
        }
    }
}

/// Does not print the secret.
impl fmt::Debug for HashKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HashKey(..)")
    }
}

#[cfg(test)]
mod tests {
    use std::hash::{DefaultHasher, Hasher};

    use super::*;

    #[test]
    fn the_hash_is_siphash_1_3() {
        // The first vector of the reference implementation: key 00..0f, no message.
        let key = HashKey::new(std::array::from_fn(|at| at as u8));
        assert_eq!(key.hash(b""), 0xabac_0158_050f_c4dc);
        // The standard library's hasher is another implementation, with a key of zeros.
        let message: Vec<u8> = (0..100).collect();
        for length in 0..message.len() {
            let mut other = DefaultHasher::new();
            other.write(&message[..length]);
            assert_eq!(HashKey::new([0; 16]).hash(&message[..length]), other.finish());
        }
    }

    #[test]
    fn weak_keys_have_the_bits_that_they_state() {
        let hashes = |bits| -> std::collections::BTreeSet<u64> {
            (0..4000u32).map(|number| HashKey::weak(bits).hash(&number.to_le_bytes())).collect()
        };
        assert_eq!((hashes(0).len(), hashes(8).len(), hashes(63).len()), (1, 256, 4000));
        assert!(hashes(8).iter().all(|hash| hash << 8 == 0));
    }

    #[test]
    fn random_keys_differ_and_are_not_printed() {
        let (one, two) = (HashKey::random().unwrap(), HashKey::random().unwrap());
        assert_ne!(one, two);
        assert_eq!(HashKey::from_slice(one.bytes()), Some(one));
        assert_eq!(HashKey::from_slice(&[0; 15]), None);
        assert_eq!(format!("{one:?}"), "HashKey(..)");
    }
}
