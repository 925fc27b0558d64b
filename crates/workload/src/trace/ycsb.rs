//! YCSB's core workload, generated from its property file: the load phase, then the mix of reads, updates,
//! inserts, scans and read-modify-writes.
//!
//! As in YCSB, a key is `user` and the FNV-1a hash of its record number (or the number itself if
//! `insertorder=ordered`), so hashed inserts spread over the key space. The zipfian law covers the records
//! expected at the end, so inserts do not move the hot set. `latest` follows the inserts. A record is one
//! value as large as all its fields, and an update replaces the whole value.

use base::limits::VALUE_BYTES_MAX;
use base::{Error, Result, Rng};

use super::access::{Access, Op, Position, Trace};
use super::input::Input;
use super::properties::Properties;
use crate::{Distribution, KEY_NUMBER_MAX, Sampler, ZIPFIAN_THETA};

/// Sizes of a workload that override those in its file.
#[derive(Clone, Copy, Debug, Default)]
pub struct YcsbSize {
    /// Records of the load phase.
    pub records: Option<u64>,
    /// Operations of the run.
    pub operations: Option<u64>,
}

pub(super) struct Ycsb {
    mix: Mix,
    keys: RecordKeys,
    value_bytes: u64,
    records: u64,
    operations: u64,
    loaded: u64,
    done: u64,
    /// Records that exist: those of the load phase and the inserts so far.
    inserted: u64,
    request: Request,
    scan: ScanLength,
    rng: Rng,
}

/// The shares of the operations, each as the upper end of its interval of `0.0..1.0`.
struct Mix {
    read: f64,
    update: f64,
    insert: f64,
    scan: f64,
}

enum Request {
    Drawn(Sampler),
    Latest,
}

enum ScanLength {
    Uniform(u64),
    Zipfian(crate::Zipf),
}

struct RecordKeys {
    hashed: bool,
    digits: usize,
}

impl Ycsb {
    pub(super) fn new(mut input: Input, size: YcsbSize, seed: u64) -> Result<Self> {
        let properties = Properties::read(&mut input)?;
        let records = match size.records {
            Some(records) => records,
            None => properties.get("recordcount", 1000u64)?,
        };
        let operations = match size.operations {
            Some(operations) => operations,
            None => properties.get("operationcount", 1000u64)?,
        };
        for (name, count) in [("recordcount", records), ("operationcount", operations)] {
            if !(1..=KEY_NUMBER_MAX / 4).contains(&count) {
                return Err(Error::invalid("workload property")
                    .at(name)
                    .expected(format_args!("1..={}", KEY_NUMBER_MAX / 4))
                    .got(count));
            }
        }
        let (mix, insert_part) = Mix::read(&properties)?;
        // Twice the expected inserts, so that the range of the law hardly ever ends before the inserts do.
        let expected = records + (operations as f64 * insert_part * 2.0) as u64;
        let request =
            match properties.choice("requestdistribution", &["uniform", "zipfian", "latest"])? {
                "latest" => Request::Latest,
                "zipfian" => {
                    let law = Distribution::Zipfian { theta: ZIPFIAN_THETA };
                    Request::Drawn(Sampler::new(law, expected, seed)?)
                }
                _ => Request::Drawn(Sampler::new(Distribution::Uniform, expected, seed)?),
            };
        Ok(Self {
            mix,
            keys: RecordKeys::read(&properties)?,
            value_bytes: value_bytes(&properties)?,
            records,
            operations,
            loaded: 0,
            done: 0,
            inserted: records,
            request,
            scan: ScanLength::read(&properties)?,
            rng: Rng::new(seed),
        })
    }

    /// Draws a record that exists, by the workload's distribution.
    fn draw(&mut self) -> Result<u64> {
        let Request::Drawn(sampler) = &self.request else {
            return Ok(Sampler::new(Distribution::Latest, self.inserted, 0)?.draw(&mut self.rng));
        };
        // The law covers records that are not inserted yet. The existing ones are at least a third of its
        // range, unless inserts far outnumber them; after 64 misses, any existing record is drawn uniformly.
        for _ in 0..64 {
            let number = sampler.draw(&mut self.rng);
            if number < self.inserted {
                return Ok(number);
            }
        }
        Ok(self.rng.below(self.inserted))
    }
}

impl Trace for Ycsb {
    fn load(&mut self, access: &mut Access) -> Result<bool> {
        if self.loaded == self.records {
            return Ok(false);
        }
        access.op = Op::Put;
        access.value_bytes = Some(self.value_bytes);
        self.keys.write(self.loaded, &mut access.key);
        self.loaded += 1;
        Ok(true)
    }

    fn next(&mut self, access: &mut Access) -> Result<bool> {
        if self.done == self.operations {
            return Ok(false);
        }
        self.done += 1;
        let part = self.rng.unit();
        access.value_bytes = Some(self.value_bytes);
        let number = if (self.mix.update..self.mix.insert).contains(&part) {
            access.op = Op::Put;
            self.inserted += 1;
            self.inserted - 1
        } else {
            access.op = if part < self.mix.read {
                Op::Get
            } else if part < self.mix.update {
                Op::Put
            } else if part < self.mix.scan {
                Op::Scan(self.scan.draw(&mut self.rng))
            } else {
                Op::Update
            };
            self.draw()?
        };
        debug_assert!(number < self.inserted, "an operation is on a record that exists");
        self.keys.write(number, &mut access.key);
        Ok(true)
    }

    fn position(&self) -> Position {
        Position { done: self.loaded + self.done, total: self.records + self.operations }
    }
}

impl Mix {
    /// The mix, and its share of inserts.
    fn read(properties: &Properties) -> Result<(Self, f64)> {
        let defaults = [
            ("readproportion", 0.95),
            ("updateproportion", 0.05),
            ("insertproportion", 0.0),
            ("scanproportion", 0.0),
            ("readmodifywriteproportion", 0.0),
        ];
        let mut parts = [0.0; 5];
        for (part, (name, default)) in parts.iter_mut().zip(defaults) {
            *part = properties.get(name, default)?;
            if !(0.0..=1.0).contains(part) {
                return Err(Error::invalid("workload property")
                    .at(name)
                    .expected("0.0..=1.0")
                    .got(*part));
            }
        }
        let sum: f64 = parts.iter().sum();
        if sum <= 0.0 {
            return Err(Error::invalid("workload proportions").expected("a sum above 0").got(sum));
        }
        let [read, update, insert, scan, _] = parts.map(|part| part / sum);
        let mix = Self {
            read,
            update: read + update,
            insert: read + update + insert,
            scan: read + update + insert + scan,
        };
        Ok((mix, insert))
    }
}

impl ScanLength {
    fn read(properties: &Properties) -> Result<Self> {
        let longest: u32 = properties.get("maxscanlength", 1000)?;
        let longest = u64::from(longest.max(1));
        Ok(match properties.choice("scanlengthdistribution", &["uniform", "zipfian"])? {
            "zipfian" => Self::Zipfian(crate::Zipf::new(longest, ZIPFIAN_THETA)?),
            _ => Self::Uniform(longest),
        })
    }

    fn draw(&self, rng: &mut Rng) -> u32 {
        let length = 1 + match self {
            Self::Uniform(longest) => rng.below(*longest),
            Self::Zipfian(zipf) => zipf.draw(rng),
        };
        u32::try_from(length).unwrap_or(u32::MAX)
    }
}

impl RecordKeys {
    fn read(properties: &Properties) -> Result<Self> {
        let hashed = properties.choice("insertorder", &["hashed", "ordered"])? == "hashed";
        Ok(Self { hashed, digits: properties.get("zeropadding", 1usize)?.min(64) })
    }

    fn write(&self, number: u64, out: &mut Vec<u8>) {
        let number = if self.hashed { fnv(number) } else { number };
        out.clear();
        out.extend_from_slice(format!("user{number:0width$}", width = self.digits).as_bytes());
    }
}

/// YCSB's hash of a record number: FNV-1a over its bytes, least significant first, made positive.
fn fnv(number: u64) -> u64 {
    let hash = number.to_le_bytes().iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    hash.cast_signed().unsigned_abs()
}

fn value_bytes(properties: &Properties) -> Result<u64> {
    let fields: u64 = properties.get("fieldcount", 10)?;
    let length: u64 = properties.get("fieldlength", 100)?;
    fields.checked_mul(length).filter(|bytes| *bytes <= VALUE_BYTES_MAX as u64).ok_or_else(|| {
        Error::invalid("workload record, bytes")
            .expected(format_args!("at most {VALUE_BYTES_MAX}"))
            .got(format_args!("{fields} fields of {length}"))
    })
}
