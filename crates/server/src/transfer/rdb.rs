//! The dump file of Redis (RDB), versions 1 to 11: strings, lists, sets, sorted sets and hashes in all their
//! encodings. Streams are read past and counted; functions too. A file with objects of modules is refused.
//!
//! The file is read once, front to back; memory is bounded by its largest string. Its checksum is verified at
//! the end: keys before damage that no length shows are added by then, and the import fails.

use std::io::Read;

use terracedb::Db;

use super::importer::{Importer, Tally};
use super::packed;
use super::sink::{STRING_BYTES_MAX, Sink, SourceKey};
use super::stopped::Stopped;
use crate::value::Kind;

/// Adds the keys of a dump file to `db`. Calls `progress` with the bytes that were read.
///
/// # Errors
/// That the file is damaged, of a newer version, or has objects of modules; those of the store.
pub fn import_rdb(
    db: Db,
    file: impl Read,
    progress: impl FnMut(u64) -> terracedb::Result<()>,
) -> Result<Tally, Stopped> {
    let mut importer = Importer::new(db, progress)?;
    parse(file, &mut importer)?;
    importer.finish()
}

/// Reads a dump file into `sink`.
///
/// # Errors
/// As [`import_rdb`].
pub(crate) fn parse(file: impl Read, sink: &mut impl Sink) -> Result<(), Stopped> {
    let mut reader = Reader { file, at: 0, checksum: 0 };
    let parsed = Parser { reader: &mut reader, sink, database: 0 }.run();
    parsed.map_err(|stopped| stopped.at(format_args!("byte {}", reader.at)))
}

/// Strings are read in pieces of this length, so that a wrong length takes no memory.
const PIECE: usize = 64 << 10;

struct Reader<R> {
    file: R,
    at: u64,
    checksum: u64,
}

/// The CRC-64 of Redis (Jones), a byte at a time.
fn crc64(mut sum: u64, bytes: &[u8]) -> u64 {
    static TABLE: std::sync::LazyLock<[u64; 256]> = std::sync::LazyLock::new(|| {
        std::array::from_fn(|byte| {
            (0..8).fold(byte as u64, |sum, _| match sum & 1 {
                1 => sum >> 1 ^ 0x95ac_9329_ac4b_c9b5,
                _ => sum >> 1,
            })
        })
    });
    for byte in bytes {
        let place = usize::from(u8::try_from(sum & 0xff).unwrap_or(0) ^ byte);
        sum = TABLE.get(place).copied().unwrap_or(0) ^ sum >> 8;
    }
    sum
}

fn broken<T>(text: impl std::fmt::Display) -> Result<T, Stopped> {
    Err(Stopped::new(format!("the dump file is damaged: {text}")))
}

impl<R: Read> Reader<R> {
    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), Stopped> {
        match self.file.read_exact(bytes) {
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                return broken("it is cut off");
            }
            read => read?,
        }
        self.at += bytes.len() as u64;
        self.checksum = crc64(self.checksum, bytes);
        Ok(())
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Stopped> {
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    fn byte(&mut self) -> Result<u8, Stopped> {
        let [byte] = self.array()?;
        Ok(byte)
    }

    fn bytes(&mut self, length: u64) -> Result<Vec<u8>, Stopped> {
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if length > STRING_BYTES_MAX {
            return Err(Stopped::new(format!(
                "a string has {length} bytes, and this store takes {STRING_BYTES_MAX}"
            )));
        }
        let mut bytes = Vec::new();
        while bytes.len() < length {
            let start = bytes.len();
            bytes.resize(length.min(start + PIECE), 0);
            self.fill(bytes.get_mut(start..).unwrap_or_default())?;
        }
        Ok(bytes)
    }

    /// A length, or the number of a special encoding.
    fn length_or_encoding(&mut self) -> Result<Result<u64, u8>, Stopped> {
        let head = self.byte()?;
        Ok(Ok(match head >> 6 {
            0 => u64::from(head & 0x3f),
            1 => u64::from(head & 0x3f) << 8 | u64::from(self.byte()?),
            2 if head == 0x80 => u64::from(u32::from_be_bytes(self.array()?)),
            2 if head == 0x81 => u64::from_be_bytes(self.array()?),
            2 => return broken("a length has an unknown form"),
            _ => return Ok(Err(head & 0x3f)),
        }))
    }

    fn length(&mut self) -> Result<u64, Stopped> {
        self.length_or_encoding()?.or_else(|_| broken("a length is none"))
    }

    fn string(&mut self) -> Result<Vec<u8>, Stopped> {
        match self.length_or_encoding()? {
            Ok(length) => self.bytes(length),
            Err(0) => Ok(i8::from_le_bytes(self.array()?).to_string().into_bytes()),
            Err(1) => Ok(i16::from_le_bytes(self.array()?).to_string().into_bytes()),
            Err(2) => Ok(i32::from_le_bytes(self.array()?).to_string().into_bytes()),
            Err(3) => {
                let (packed, length) = (self.length()?, self.length()?);
                let packed = self.bytes(packed)?;
                let length =
                    usize::try_from(length).ok().filter(|length| *length <= STRING_BYTES_MAX);
                let Some(length) = length else { return broken("a compressed string is too long") };
                packed::unpack_lzf(&packed, length).or_else(broken)
            }
            Err(_) => broken("a string has an unknown encoding"),
        }
    }

    /// The score of a sorted set before version 8: its text.
    fn text_score(&mut self) -> Result<f64, Stopped> {
        let length = self.byte()?;
        match length {
            253 => Ok(f64::NAN),
            254 => Ok(f64::INFINITY),
            255 => Ok(f64::NEG_INFINITY),
            length => {
                let text = self.bytes(u64::from(length))?;
                parse_score(&text)
            }
        }
    }
}

/// A score that is a text.
pub(crate) fn parse_score(text: &[u8]) -> Result<f64, Stopped> {
    let parsed = std::str::from_utf8(text).ok().and_then(|text| text.trim().parse().ok());
    parsed.ok_or(()).or_else(|()| broken("a score is no number"))
}

struct Parser<'a, R, S> {
    reader: &'a mut Reader<R>,
    sink: &'a mut S,
    database: u8,
}

/// The newest version of the file that is read.
const VERSION_MAX: u32 = 11;

impl<R: Read, S: Sink> Parser<'_, R, S> {
    fn run(mut self) -> Result<(), Stopped> {
        let magic: [u8; 9] = self.reader.array()?;
        let version =
            magic.strip_prefix(b"REDIS").and_then(|digits| std::str::from_utf8(digits).ok());
        let Some(version) = version.and_then(|digits| digits.parse::<u32>().ok()) else {
            return Err(Stopped::new("this is no dump file of Redis (RDB)".to_owned()));
        };
        if !(1..=VERSION_MAX).contains(&version) {
            return Err(Stopped::new(format!(
                "the file has version {version}; versions up to {VERSION_MAX} are read"
            )));
        }
        let mut expiry = 0;
        loop {
            let opcode = self.reader.byte()?;
            match opcode {
                // Remarks about the server that wrote the file.
                0xfa => {
                    self.reader.string()?;
                    self.reader.string()?;
                }
                // Sizes of the tables to come.
                0xfb => {
                    self.reader.length()?;
                    self.reader.length()?;
                }
                0xfc => expiry = u64::from_le_bytes(self.reader.array()?),
                0xfd => expiry = u64::from(u32::from_le_bytes(self.reader.array()?)) * 1000,
                0xfe => {
                    let number = self.reader.length()?;
                    // One that does not exist is refused with its first key.
                    self.database = u8::try_from(number).unwrap_or(u8::MAX);
                }
                // The frequency and the idle time of the next key.
                0xf9 => drop(self.reader.byte()?),
                0xf8 => drop(self.reader.length()?),
                0xf5 => {
                    self.reader.string()?;
                    self.sink.skipped("function");
                }
                0xf7 => return Err(Stopped::new("the file has data of a module".to_owned())),
                0xff => return self.check(version),
                kind => {
                    self.key(kind, std::mem::take(&mut expiry))?;
                    self.sink.progress(self.reader.at);
                }
            }
        }
    }

    /// Checks the checksum behind the end.
    fn check(&mut self, version: u32) -> Result<(), Stopped> {
        if version < 5 {
            return Ok(());
        }
        let computed = self.reader.checksum;
        let stored = u64::from_le_bytes(self.reader.array()?);
        // Zero: the writer was told to compute none.
        if stored != 0 && stored != computed {
            return broken(format_args!(
                "its checksum is {computed:016x} and should be {stored:016x}"
            ));
        }
        Ok(())
    }

    fn key(&mut self, encoding: u8, expiry: u64) -> Result<(), Stopped> {
        let kind = match encoding {
            0 => Kind::String,
            1 | 10 | 14 | 18 => Kind::List,
            2 | 11 | 20 => Kind::Set,
            3 | 5 | 12 | 17 => Kind::SortedSet,
            4 | 9 | 13 | 16 => Kind::Hash,
            15 | 19 | 21 => {
                self.reader.string()?;
                return self.pass_stream(encoding);
            }
            6 | 7 => return Err(Stopped::new("the file has a key of a module's type".to_owned())),
            _ => return broken(format_args!("a key has the unknown type {encoding}")),
        };
        let name = self.reader.string()?;
        self.sink.begin(SourceKey { database: self.database, name, kind, expiry })?;
        match encoding {
            0 => {
                let value = self.reader.string()?;
                self.sink.element(&value, &[])?;
            }
            1 | 2 => {
                for _ in 0..self.reader.length()? {
                    let element = self.reader.string()?;
                    self.sink.element(&element, &[])?;
                }
            }
            3 | 5 => {
                for _ in 0..self.reader.length()? {
                    let member = self.reader.string()?;
                    let score = match encoding {
                        3 => self.reader.text_score()?,
                        _ => f64::from_le_bytes(self.reader.array()?),
                    };
                    self.scored(&member, score)?;
                }
            }
            4 => {
                for _ in 0..self.reader.length()? {
                    let (field, value) = (self.reader.string()?, self.reader.string()?);
                    self.sink.element(&field, &value)?;
                }
            }
            14 | 18 => {
                for _ in 0..self.reader.length()? {
                    let is_plain = encoding == 18 && self.reader.length()? == 1;
                    let node = self.reader.string()?;
                    let elements = match (is_plain, encoding) {
                        (true, _) => Ok(vec![node]),
                        (_, 14) => packed::ziplist(&node),
                        _ => packed::listpack(&node),
                    };
                    for element in elements.or_else(broken)? {
                        self.sink.element(&element, &[])?;
                    }
                }
            }
            _ => self.packed(encoding, kind)?,
        }
        self.sink.end()
    }

    /// A collection in one packed string.
    fn packed(&mut self, encoding: u8, kind: Kind) -> Result<(), Stopped> {
        let packed = self.reader.string()?;
        let entries = match encoding {
            9 => packed::zipmap(&packed),
            11 => packed::intset(&packed),
            10 | 12 | 13 => packed::ziplist(&packed),
            _ => packed::listpack(&packed),
        };
        let entries = entries.or_else(broken)?;
        if matches!(kind, Kind::List | Kind::Set) {
            return entries.iter().try_for_each(|entry| self.sink.element(entry, &[]));
        }
        for pair in entries.chunks(2) {
            let [member, payload] = pair else { return broken("a member has no value") };
            match kind {
                Kind::SortedSet => self.scored(member, parse_score(payload)?)?,
                _ => self.sink.element(member, payload)?,
            }
        }
        Ok(())
    }

    fn scored(&mut self, member: &[u8], score: f64) -> Result<(), Stopped> {
        if score.is_nan() {
            return broken("a score is no number");
        }
        // A score of -0 is 0.
        self.sink.element(member, &(score + 0.0).to_bits().to_le_bytes())
    }

    /// Reads past a stream.
    fn pass_stream(&mut self, encoding: u8) -> Result<(), Stopped> {
        let reader = &mut *self.reader;
        for _ in 0..reader.length()? {
            reader.string()?;
            reader.string()?;
        }
        // Its length, its last entry; since 7.0 its first and last deleted ones, and its entries of all time.
        for _ in 0..if encoding == 15 { 3 } else { 8 } {
            reader.length()?;
        }
        for _ in 0..reader.length()? {
            reader.string()?;
            for _ in 0..if encoding == 15 { 2 } else { 3 } {
                reader.length()?;
            }
            for _ in 0..reader.length()? {
                reader.array::<24>()?;
                reader.length()?;
            }
            for _ in 0..reader.length()? {
                reader.string()?;
                reader.array::<8>()?;
                if encoding == 21 {
                    reader.array::<8>()?;
                }
                for _ in 0..reader.length()? {
                    reader.array::<16>()?;
                }
            }
        }
        self.sink.skipped("stream");
        Ok(())
    }
}
