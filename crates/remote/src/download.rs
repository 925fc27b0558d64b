//! Download: a file that is an object, read by ranges.
//!
//! Reads that follow one another are merged: a range is asked for ahead, twice as long each time. Others ask
//! for exactly their bytes, at once: they wait for no other read. Memory: one range a file until it is read
//! to its end, charged if there is memory (I10), and the bytes of each other read.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use base::limits::PAGE_BYTES;
use base::{Charge, Error, ErrorKind, Result};
use media::{Buf, File, Purpose};
use parking_lot::Mutex;

use crate::manifest::ObjectEntry;
use crate::objects;
use crate::shared::Shared;

/// A complete object. See the module.
pub(crate) struct ObjectFile {
    shared: Arc<Shared>,
    name: String,
    key: String,
    len: u64,
    ahead: Mutex<Ahead>,
}

/// Bytes that were asked for ahead.
#[derive(Default)]
struct Ahead {
    at: u64,
    bytes: Vec<u8>,
    charge: Option<Charge>,
    /// The end of the last read.
    read_to: u64,
    /// Length of the next range.
    range: u64,
}

impl Ahead {
    /// The bytes from `at` on that are here.
    fn have(&self, at: u64) -> &[u8] {
        let skip = at.checked_sub(self.at).and_then(|skip| usize::try_from(skip).ok());
        skip.and_then(|skip| self.bytes.get(skip..)).unwrap_or_default()
    }

    /// The end of the bytes that are here.
    fn end(&self) -> u64 {
        self.at + self.bytes.len() as u64
    }

    /// Whether a read at `at` goes on where another one ended. A file that was just opened is read from its
    /// start on more often than not.
    fn follows(&self, at: u64) -> bool {
        at == self.read_to || at == self.end() || !self.have(at).is_empty()
    }
}

impl ObjectFile {
    pub(crate) fn new(shared: &Arc<Shared>, name: &str, entry: &ObjectEntry) -> Self {
        let key = shared.client.location().key(&entry.key);
        let ahead = Mutex::default();
        Self { shared: Arc::clone(shared), name: name.to_owned(), key, len: entry.len, ahead }
    }

    fn fill(&self, at: u64, buf: &mut Buf) -> Result<()> {
        let (page, wanted) = (PAGE_BYTES as u64, buf.len() as u64);
        if !at.is_multiple_of(page) || !wanted.is_multiple_of(page) {
            let error = Error::invalid("unaligned operation").at(&self.name);
            return Err(error.got(format_args!("{wanted} bytes at offset {at}")));
        }
        let held = self.len.saturating_sub(at).min(wanted);
        if held.next_multiple_of(page) < wanted {
            return Err(Error::corrupt("file is too short")
                .at(&self.name)
                .expected(format_args!("{wanted} bytes at offset {at}"))
                .got(format_args!("a length of {}", self.len)));
        }
        let mut ahead = self.ahead.lock();
        if !ahead.follows(at) && held <= self.shared.range_bytes_max {
            (ahead.read_to, ahead.range) = (at + held, held);
            drop(ahead);
            let _charge = self.shared.account.charge(held)?;
            let bytes = self.get(at, held)?;
            buf.iter_mut().zip(bytes).for_each(|(to, byte)| *to = byte);
            buf.iter_mut().skip(held as usize).for_each(|byte| *byte = 0);
            return Ok(());
        }
        let ahead = &mut *ahead;
        let mut done = 0;
        while done < held {
            let from = at + done;
            let mut have = ahead.have(from);
            if have.is_empty() {
                self.fetch(ahead, from, held - done)?;
                have = ahead.have(from);
            }
            let (skip, count) = (done as usize, have.len().min((held - done) as usize));
            if count == 0 {
                return Err(Error::corrupt("range of an object").at(&self.name).got("no bytes"));
            }
            for (to, byte) in buf.iter_mut().skip(skip).zip(have.iter().take(count)) {
                *to = *byte;
            }
            done += count as u64;
        }
        buf.iter_mut().skip(held as usize).for_each(|byte| *byte = 0);
        ahead.read_to = at + held;
        if ahead.read_to == ahead.end() {
            (ahead.bytes, ahead.charge) = (Vec::new(), None);
            ahead.at = ahead.read_to;
        }
        Ok(())
    }

    fn get(&self, at: u64, len: u64) -> Result<Vec<u8>> {
        let bytes = objects::get_range(&self.shared.reads, &self.key, at, len as usize);
        bytes.map_err(|error| match error.kind() {
            // A refusal is no damage: a check must end instead of reporting it.
            ErrorKind::Invalid => Error::retry("read of an object").never_heals().caused_by(error),
            _ => error,
        })
    }

    /// Asks for at least `least` bytes at `at`, unless that is more than the longest range.
    fn fetch(&self, ahead: &mut Ahead, at: u64, least: u64) -> Result<()> {
        let longest = self.shared.range_bytes_max;
        ahead.range = match ahead.follows(at) {
            true => (ahead.range * 2).clamp(least, longest.max(least)),
            false => least,
        };
        let mut range = ahead.range.min(longest).min(self.len - at);
        (ahead.bytes, ahead.charge) = (Vec::new(), None);
        let account = &self.shared.account;
        ahead.charge = match account.try_charge(range) {
            Some(charge) => Some(charge),
            None => {
                range = range.min(least.min(PAGE_BYTES as u64));
                Some(account.charge(range)?)
            }
        };
        ahead.bytes = self.get(at, range)?;
        ahead.at = at;
        Ok(())
    }
}

impl File for ObjectFile {
    fn name(&self) -> &str {
        &self.name
    }

    fn size(&self) -> Result<u64> {
        Ok(self.len)
    }

    fn read(&self, at: u64, mut buf: Buf, _purpose: Purpose) -> (Buf, Result<()>) {
        let result = self.fill(at, &mut buf).map_err(|error| error.at(&self.name));
        (buf, result)
    }

    fn write(&self, _at: u64, buf: Buf, _purpose: Purpose) -> (Buf, Result<()>) {
        (buf, Err(Error::invalid("write to a complete object").at(&self.name)))
    }

    fn store(&self, _at: u64, _bytes: &[u8], _purpose: Purpose) -> Result<()> {
        Err(Error::invalid("write to a complete object").at(&self.name))
    }

    fn sync(&self, _purpose: Purpose) -> Result<()> {
        Ok(())
    }

    fn set_len(&self, _len: u64) -> Result<()> {
        Err(Error::invalid("length of a complete object").at(&self.name))
    }

    fn undecorated(&self) -> &dyn Any {
        self
    }
}

impl fmt::Debug for ObjectFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ObjectFile({})", self.name)
    }
}
