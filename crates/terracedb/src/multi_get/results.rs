//! The results of a multi-get. Short values of many keys share buffers, which are charged.
//!
//! One caller. Memory: a buffer of 256 KiB besides the values; the list of results is charged while the call
//! lasts, and is then the caller's.

use std::ops::Range;

use base::{Account, Charge, Result};
use bytes::Bytes;
use engine::{Components as _, Store};

use super::GROUP_KEYS;

/// Length of a buffer, bytes.
const BUFFER_BYTES: usize = 256 << 10;

/// Values from this length on are returned as they were read: they fill most of their block, or are charged
/// themselves.
const SHARED_BELOW: usize = 8 << 10;

type Found = Result<Option<Bytes>>;

/// See the module.
pub(super) struct Results {
    found: Vec<Found>,
    /// `None` for few keys, whose values are returned as they were read.
    shared: Option<Shared>,
}

/// The buffer being filled.
struct Shared {
    account: Account,
    /// The memory of `found`.
    _list: Charge,
    buffer: Vec<u8>,
    charge: Option<Charge>,
    /// The results whose values are in the buffer, and their place in it.
    members: Vec<(usize, Range<usize>)>,
    /// Bytes of full buffers, which this call holds.
    held_bytes: u64,
    /// More than this is never free for one call.
    most_bytes: u64,
}

/// A full buffer. It is freed with the last value in it.
struct Buffer {
    bytes: Vec<u8>,
    _charge: Charge,
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Results {
    /// Room for the results of `keys` keys.
    ///
    /// # Errors
    /// `Retry` if there is no memory for the list of them.
    pub(super) fn new(store: &Store, keys: usize) -> Result<Self> {
        if keys <= GROUP_KEYS {
            return Ok(Self { found: Vec::new(), shared: None });
        }
        let account = store.resources.account("multi-gets");
        let most_bytes = store.resources.memory_usage().budget;
        let list_bytes = (keys * size_of::<Found>()) as u64;
        let list = account.charge(list_bytes).map_err(|error| {
            if list_bytes > most_bytes / 2 { error.never_heals() } else { error }
        })?;
        let (buffer, members) = (Vec::new(), Vec::new());
        let shared = Shared {
            account,
            _list: list,
            buffer,
            charge: None,
            members,
            held_bytes: list_bytes,
            most_bytes,
        };
        Ok(Self { found: Vec::with_capacity(keys), shared: Some(shared) })
    }

    /// Adds the results of the next keys.
    pub(super) fn extend(&mut self, group: Vec<Found>) {
        let Some(shared) = &mut self.shared else {
            self.found = group;
            return;
        };
        for found in group {
            let at = self.found.len();
            match found {
                Ok(Some(value)) if value.len() < SHARED_BELOW => {
                    if shared.buffer.len() + value.len() > BUFFER_BYTES {
                        shared.seal(&mut self.found);
                    }
                    self.found.push(shared.add(at, &value).map(|()| None));
                }
                found => self.found.push(found),
            }
        }
    }

    /// All results.
    pub(super) fn finish(mut self) -> Vec<Found> {
        if let Some(shared) = &mut self.shared {
            shared.seal(&mut self.found);
        }
        self.found
    }
}

impl Shared {
    /// Copies the value of result `at` to the buffer.
    fn add(&mut self, at: usize, value: &[u8]) -> Result<()> {
        if self.charge.is_none() {
            let charge = self.account.charge(BUFFER_BYTES as u64).map_err(|error| {
                // The other half is for what the rest of the store cannot give back.
                if self.held_bytes > self.most_bytes / 2 { error.never_heals() } else { error }
            })?;
            self.charge = Some(charge);
            self.buffer = Vec::with_capacity(BUFFER_BYTES);
        }
        let start = self.buffer.len();
        self.buffer.extend_from_slice(value);
        self.members.push((at, start..self.buffer.len()));
        Ok(())
    }

    /// Gives the results of the full buffer their values.
    fn seal(&mut self, found: &mut [Found]) {
        let Some(mut charge) = self.charge.take() else { return };
        let mut bytes = std::mem::take(&mut self.buffer);
        bytes.shrink_to_fit();
        charge.shrink_to(bytes.len() as u64);
        self.held_bytes += bytes.len() as u64;
        let bytes = Bytes::from_owner(Buffer { bytes, _charge: charge });
        for (at, range) in self.members.drain(..) {
            let slot = found.get_mut(at);
            base::invariant!(slot.is_some(), "a value in the buffer has its result");
            if let Some(slot) = slot {
                *slot = Ok(Some(bytes.slice(range)));
            }
        }
    }
}
