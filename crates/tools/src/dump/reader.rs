//! Reads a dump, and verifies it.

use std::collections::BTreeSet;
use std::fmt;
use std::io::Read;

use base::limits::KEYSPACES_MAX;
use base::{Cursor, Error, ErrorKind, Result};

use super::DumpedKeyspace;
use super::frame::{
    self, CHECKSUM_BYTES, FrameKind, HEADER_BYTES, PAYLOAD_BYTES_MAX, PREFIX_BYTES,
};

/// A part of a dump, in the order of the stream.
#[derive(Debug)]
pub enum DumpItem<'a> {
    /// A keyspace begins. Its entries follow.
    Keyspace(DumpedKeyspace),
    /// An entry of the last keyspace.
    Entry {
        /// The key.
        key: &'a [u8],
        /// The value, operands merged.
        value: &'a [u8],
        /// When it expires, Unix milliseconds; 0: never.
        expiry_unix_ms: u64,
    },
}

/// The place in the sequence of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Within {
    Dump,
    Keyspace,
    Ended,
    /// After an error.
    Failed,
}

/// Reads a dump front to back. It returns an entry only after the checksum of its frame was verified, and the
/// end only after all counts agree; an input that ends early is `Corrupt`.
pub struct DumpReader<R> {
    input: R,
    within: Within,
    /// The number of the next frame.
    frame: u64,
    /// The entries of the last frame, and how far they were read.
    payload: Vec<u8>,
    at: usize,
    names: BTreeSet<String>,
    /// Entries of the open keyspace, and of those before it.
    entries: u64,
    entries_total: u64,
    /// Bytes read.
    bytes: u64,
}

impl<R: Read> DumpReader<R> {
    /// Whether `begin`, the first bytes of an input, are those of a dump.
    #[must_use]
    pub fn is_dump(begin: &[u8]) -> bool {
        begin.starts_with(&frame::MAGIC)
    }

    /// Reads the header.
    ///
    /// # Errors
    /// `Invalid` if the input is no dump, or one of a newer version; `Corrupt` if it is damaged; `Io` if it
    /// cannot be read.
    pub fn new(input: R) -> Result<Self> {
        let mut reader = Self {
            input,
            within: Within::Dump,
            frame: 0,
            payload: Vec::new(),
            at: 0,
            names: BTreeSet::new(),
            entries: 0,
            entries_total: 0,
            bytes: 0,
        };
        let mut header = Vec::new();
        let read = reader.read(HEADER_BYTES, &mut header);
        frame::check_magic(&header)?;
        read?;
        frame::check_header(&header)?;
        Ok(reader)
    }

    /// Bytes read so far.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The next part; `None` after the last one, once the whole dump was verified.
    ///
    /// # Errors
    /// `Corrupt` if the dump is damaged or ends early, with the number of the frame; `Io` if it cannot be
    /// read. Every later call fails then.
    pub fn next_item(&mut self) -> Result<Option<DumpItem<'_>>> {
        while self.at >= self.payload.len() {
            if self.within == Within::Ended {
                return Ok(None);
            }
            let (number, at) = (self.frame, self.bytes);
            let begun = self.next_frame().map_err(|error| {
                self.within = Within::Failed;
                error.at(format_args!("frame {number}, at byte {at}"))
            })?;
            if let Some(keyspace) = begun {
                return Ok(Some(DumpItem::Keyspace(keyspace)));
            }
        }
        let Self { payload, at, frame, entries, within, .. } = self;
        let rest = payload.get(*at..).unwrap_or_default();
        let mut cursor = Cursor::new("entry of a dump", rest);
        let entry = frame::decode_entry(&mut cursor).map_err(|error| {
            *within = Within::Failed;
            error.at(format_args!("frame {}", frame.saturating_sub(1)))
        })?;
        *at += cursor.position();
        *entries += 1;
        let frame::DecodedEntry { key, value, expiry_unix_ms } = entry;
        Ok(Some(DumpItem::Entry { key, value, expiry_unix_ms }))
    }

    /// Reads and verifies the next frame. Returns the keyspace that it begins.
    fn next_frame(&mut self) -> Result<Option<DumpedKeyspace>> {
        if self.within == Within::Failed {
            return Err(Error::corrupt("dump").expected("no more reads after an error"));
        }
        (self.at, self.frame) = (0, self.frame + 1);
        let mut payload = std::mem::take(&mut self.payload);
        let kind = self.read_frame(&mut payload)?;
        let out_of_order = |expected: &'static str| {
            Err(Error::corrupt("order of frames").expected(expected).got(format_args!("{kind:?}")))
        };
        match (self.within, kind) {
            (Within::Dump, FrameKind::Keyspace) => {
                let keyspace = frame::decode_keyspace(&payload)?;
                if self.names.len() == KEYSPACES_MAX || !self.names.insert(keyspace.name.clone()) {
                    return Err(Error::corrupt("keyspaces of a dump")
                        .expected(format_args!("at most {KEYSPACES_MAX}, each once"))
                        .got(format_args!("`{}`", keyspace.name.escape_debug())));
                }
                (self.within, self.entries) = (Within::Keyspace, 0);
                return Ok(Some(keyspace));
            }
            (Within::Keyspace, FrameKind::Entries) => self.payload = payload,
            (Within::Keyspace, FrameKind::KeyspaceEnd) => {
                agree("entries of a keyspace", frame::decode_count(&payload)?, self.entries)?;
                self.entries_total += self.entries;
                self.within = Within::Dump;
            }
            (Within::Dump, FrameKind::End) => {
                let (keyspaces, entries) = frame::decode_end(&payload)?;
                agree("keyspaces of a dump", keyspaces, self.names.len() as u64)?;
                agree("entries of a dump", entries, self.entries_total)?;
                if self.input.read(&mut [0]).map_err(failed)? > 0 {
                    return Err(Error::corrupt("dump").expected("its end").got("more bytes"));
                }
                self.within = Within::Ended;
            }
            (Within::Dump, _) => return out_of_order("a keyspace or the end"),
            (Within::Keyspace, _) => return out_of_order("entries or the end of the keyspace"),
            (Within::Ended | Within::Failed, _) => return out_of_order("nothing"),
        }
        Ok(None)
    }

    /// Reads a frame into `payload`, and verifies its checksum.
    fn read_frame(&mut self, payload: &mut Vec<u8>) -> Result<FrameKind> {
        let number = self.frame - 1;
        let mut prefix = Vec::with_capacity(PREFIX_BYTES);
        self.read(PREFIX_BYTES, &mut prefix)?;
        let mut cursor = Cursor::new("frame of a dump", &prefix);
        let len = cursor.u32()? as usize;
        if len > PAYLOAD_BYTES_MAX {
            return Err(Error::corrupt("length of a frame")
                .expected(format_args!("at most {PAYLOAD_BYTES_MAX}"))
                .got(len));
        }
        // Before the checksum: a damaged length or kind is named as such.
        let kind = FrameKind::of(cursor.u8()?)?;
        self.read(len, payload)?;
        let mut stored = Vec::with_capacity(CHECKSUM_BYTES);
        self.read(CHECKSUM_BYTES, &mut stored)?;
        let stored = Cursor::new("checksum of a frame", &stored).u32()?;
        let checksum = frame::checksum(number, &prefix, payload);
        if stored != checksum {
            return Err(Error::corrupt("checksum of a frame")
                .expected(format_args!("{stored:08x}"))
                .got(format_args!("{checksum:08x}")));
        }
        Ok(kind)
    }

    /// Reads `len` bytes into `out`, which grows with the bytes that there are: the length may be damaged.
    fn read(&mut self, len: usize, out: &mut Vec<u8>) -> Result<()> {
        out.clear();
        let read = (&mut self.input).take(len as u64).read_to_end(out).map_err(failed)?;
        self.bytes += read as u64;
        if read < len {
            return Err(Error::corrupt("dump")
                .expected(format_args!("{} more bytes", len - read))
                .got("the end of the input: the dump is not complete"));
        }
        Ok(())
    }
}

fn agree(subject: &'static str, stated: u64, found: u64) -> Result<()> {
    if stated == found {
        return Ok(());
    }
    Err(Error::corrupt(subject).expected(stated).got(found))
}

fn failed(error: std::io::Error) -> Error {
    let unreadable = Error::io("read", "dump", error);
    match unreadable.kind() {
        // A short read is told apart from damage by its text.
        ErrorKind::Corrupt => unreadable.expected("a readable input"),
        _ => unreadable,
    }
}

impl<R> fmt::Debug for DumpReader<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DumpReader(frame {})", self.frame)
    }
}
