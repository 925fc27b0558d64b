//! Writes a dump.

use std::fmt;
use std::io::Write;

use base::{Error, Result, invariant, put_u32, put_varint};

use super::DumpedKeyspace;
use super::frame::{self, FrameKind, PREFIX_BYTES};

/// A frame of entries is written once it has this many bytes.
const FRAME_BYTES: usize = 256 << 10;

/// Writes keyspaces, one after the other, each with its entries. A dump without [`DumpWriter::finish`] is not
/// complete, and readers refuse it.
pub struct DumpWriter<W> {
    out: W,
    /// The number of the next frame.
    frame: u64,
    /// The entries of the next frame, behind the room for the frame's prefix.
    pending: Vec<u8>,
    /// Whether a keyspace has begun and not ended.
    is_open: bool,
    /// Entries of the open keyspace.
    entries: u64,
    keyspaces_total: u64,
    entries_total: u64,
}

impl<W: Write> DumpWriter<W> {
    /// Begins a dump.
    ///
    /// # Errors
    /// `Io` if `out` cannot be written, as in every method here.
    pub fn new(mut out: W) -> Result<Self> {
        out.write_all(&frame::header()).map_err(failed)?;
        Ok(Self {
            out,
            frame: 0,
            pending: empty(),
            is_open: false,
            entries: 0,
            keyspaces_total: 0,
            entries_total: 0,
        })
    }

    /// Begins a keyspace, and ends the one before it.
    ///
    /// # Errors
    /// As [`DumpWriter::new`].
    pub fn keyspace(&mut self, keyspace: &DumpedKeyspace) -> Result<()> {
        invariant!(
            keyspace.options.len() <= frame::OPTIONS_MAX,
            "a dump has room for the options of a keyspace"
        );
        self.end_keyspace()?;
        let mut payload = empty();
        frame::encode_keyspace(keyspace, &mut payload);
        self.write(FrameKind::Keyspace, &mut payload)?;
        self.is_open = true;
        self.keyspaces_total += 1;
        Ok(())
    }

    /// Adds an entry of the keyspace. `expiry_unix_ms` is 0 if it does not expire.
    ///
    /// # Errors
    /// As [`DumpWriter::new`].
    pub fn entry(&mut self, key: &[u8], value: &[u8], expiry_unix_ms: u64) -> Result<()> {
        invariant!(self.is_open, "an entry of a dump is within a keyspace");
        if self.pending.len() + key.len() + value.len() > FRAME_BYTES {
            self.flush()?;
        }
        frame::encode_entry(key, value, expiry_unix_ms, &mut self.pending);
        self.entries += 1;
        Ok(())
    }

    /// Writes the pending entries as a frame.
    fn flush(&mut self) -> Result<()> {
        if self.pending.len() == PREFIX_BYTES {
            return Ok(());
        }
        let mut payload = std::mem::replace(&mut self.pending, empty());
        let written = self.write(FrameKind::Entries, &mut payload);
        // The buffer is kept, unless one long value made it large.
        if payload.capacity() <= 2 * FRAME_BYTES {
            payload.truncate(PREFIX_BYTES);
            self.pending = payload;
        }
        written
    }

    fn end_keyspace(&mut self) -> Result<()> {
        if !std::mem::take(&mut self.is_open) {
            return Ok(());
        }
        self.flush()?;
        let entries = std::mem::take(&mut self.entries);
        self.entries_total += entries;
        let mut payload = empty();
        put_varint(&mut payload, entries);
        self.write(FrameKind::KeyspaceEnd, &mut payload)
    }

    /// Ends the dump, and returns its output, flushed, with the numbers of keyspaces and entries.
    ///
    /// # Errors
    /// As [`DumpWriter::new`].
    pub fn finish(mut self) -> Result<(W, u64, u64)> {
        self.end_keyspace()?;
        let mut payload = empty();
        put_varint(&mut payload, self.keyspaces_total);
        put_varint(&mut payload, self.entries_total);
        self.write(FrameKind::End, &mut payload)?;
        self.out.flush().map_err(failed)?;
        Ok((self.out, self.keyspaces_total, self.entries_total))
    }

    /// Writes a frame. `frame` has room for its prefix, and then the payload.
    fn write(&mut self, kind: FrameKind, frame: &mut Vec<u8>) -> Result<()> {
        let len = frame.len().saturating_sub(PREFIX_BYTES);
        invariant!(len <= frame::PAYLOAD_BYTES_MAX, "a frame of a dump has a bounded length");
        let mut prefix = Vec::with_capacity(PREFIX_BYTES);
        put_u32(&mut prefix, u32::try_from(len).unwrap_or(u32::MAX));
        prefix.push(kind as u8);
        if let Some(room) = frame.get_mut(..PREFIX_BYTES) {
            room.copy_from_slice(&prefix);
        }
        let checksum = {
            let payload = frame.get(PREFIX_BYTES..).unwrap_or_default();
            frame::checksum(self.frame, &prefix, payload)
        };
        put_u32(frame, checksum);
        self.frame += 1;
        self.out.write_all(frame).map_err(failed)
    }
}

/// A frame without payload: the room for its prefix.
fn empty() -> Vec<u8> {
    vec![0; PREFIX_BYTES]
}

fn failed(error: std::io::Error) -> Error {
    Error::io("write", "dump", error)
}

impl<W> fmt::Debug for DumpWriter<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DumpWriter(frame {})", self.frame)
    }
}
