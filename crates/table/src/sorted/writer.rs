//! Writing a table: versions in order in, a durable file out.
//!
//! The stream goes through the [`Packer`], which cuts it into blocks; the [`Partitions`], which cut
//! the blocks into partitions and write each partition's metadata page after its data; and the
//! [`Output`], which seals pages and writes them. Top level, properties and footer end the file.
//!
//! Memory is bounded and charged (I10): buffers and one block, about 1.6 MiB, whatever the table's
//! size; an entry over 32 KiB takes four times its length while it is added; the top level grows
//! by about 20 bytes for each partition, some hundred pages.

use std::sync::Arc;

use base::limits::{KEY_BYTES_MAX, PAGE_BYTES, VALUE_BYTES_MAX};
use base::{
    Account, Charge, Codec, EntryKind, Error, PageSeed, Result, Seqno, StoreId, TableId, Trailer,
};
use media::{Access, Medium, Purpose};

use super::footer::{FORMAT_VERSION, Footer};
use super::meta::MetaBuilder;
use super::output::{OUTPUT_BYTES, Output, Section};
use super::pack::{Packed, Packer};
use super::properties::{CodecField, Properties};
use super::separator::{Separator, SeparatorsBuilder, Width};
use super::top::encode_top;
use crate::codec::zstd;
use crate::dictionary::Dictionary;
use crate::name::file_name;
use crate::page::{PAYLOAD_BYTES, PageKind, run_pages};

/// Packer, partition and the other fixed parts of a writer.
const PARTS_BYTES: u64 = 512 << 10;

/// The top level is charged in steps of this.
const TOP_STEP_BYTES: u64 = 64 << 10;

/// What to write, and how.
#[derive(Clone, Debug)]
pub struct Spec {
    /// The store the table belongs to.
    pub store: StoreId,
    /// The table's id, never used before.
    pub table: TableId,
    /// How blocks are compressed.
    pub codec: Codec,
    /// The level of zstd; no meaning for other codecs.
    pub level: i32,
    /// The dictionary; zstd only.
    pub dictionary: Option<Arc<Dictionary>>,
    /// What the writes are for.
    pub purpose: Purpose,
}

/// What became of a table: what the manifest records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// The table.
    pub table: TableId,
    /// The length of its file.
    pub file_bytes: u64,
    /// The pages of its file.
    pub pages: u32,
    /// The hash of the checksums of all pages before the footer.
    pub digest: u64,
    /// What the table says about itself.
    pub properties: Properties,
}

/// Writes one table. Dropped before it finished, it removes the file again, as far as it can.
pub struct Writer {
    medium: Arc<dyn Medium>,
    name: String,
    packer: Packer,
    partitions: Partitions,
    last_key: Vec<u8>,
    last_trailer: Trailer,
    /// The first error: what was written is not a table and never will be.
    failed: Option<Error>,
    finished: bool,
    account: Account,
}

impl Writer {
    /// Creates the file of `spec.table`.
    ///
    /// # Errors
    /// `Retry` where memory is short, `Invalid` where the file exists or the specification makes no
    /// sense or asks for what this build lacks; otherwise as the medium's.
    pub fn create(medium: &Arc<dyn Medium>, spec: Spec, account: &Account) -> Result<Self> {
        if spec.dictionary.is_some() && spec.codec != Codec::Zstd {
            return Err(Error::invalid("dictionary")
                .expected("codec zstd")
                .got(format_args!("codec {:?}", spec.codec)));
        }
        let charge = account.charge(OUTPUT_BYTES + PARTS_BYTES)?;
        let mut properties = Properties {
            codec: CodecField(spec.codec),
            written_for: spec.purpose.name().to_owned(),
            seqno_min: Seqno::MAX,
            ..Properties::default()
        };
        let packer = match spec.codec {
            Codec::None => Packer::stored(),
            Codec::Lz4 => Packer::lz4(),
            Codec::Zstd => {
                properties.level = spec.level;
                properties.dictionaries = spec.dictionary.iter().map(|it| it.id()).collect();
                Packer::zstd(zstd::Compressor::new(spec.level, spec.dictionary, account)?)
            }
        };
        let name = file_name(spec.table);
        let file = medium.create(&name, Access::Direct, 0)?;
        let seed = PageSeed::new(spec.store, spec.table);
        let output = Output::new(&**medium, file, seed, spec.purpose).inspect_err(|_| {
            // Nobody names the file yet; recovery removes what stays behind.
            let _ = medium.remove(&name);
        })?;
        Ok(Self {
            medium: Arc::clone(medium),
            name,
            packer,
            partitions: Partitions {
                store: spec.store,
                table: spec.table,
                output,
                meta: MetaBuilder::new(),
                top: SeparatorsBuilder::new(Width::Top),
                metas: Vec::new(),
                boundary: None,
                scratch: Vec::new(),
                properties,
                charge,
                top_charged: 0,
            },
            last_key: Vec::new(),
            last_trailer: Trailer::from_word(0),
            failed: None,
            finished: false,
            account: account.clone(),
        })
    }

    /// Adds a version. Keys ascend, and trailers descend within a key.
    ///
    /// # Errors
    /// `Invalid` where the version is out of order or bounds, and nothing is added; `Retry` where a
    /// large value finds no memory, and nothing is added; otherwise as the medium's, and the writer
    /// is of no more use.
    pub fn add(&mut self, key: &[u8], trailer: Trailer, value: &[u8]) -> Result<()> {
        self.check_usable()?;
        let new_key = self.check(key, trailer, value)?;
        let _charge = match Packer::memory_for(key, value) {
            0 => None,
            bytes => Some(self.account.charge(bytes)?),
        };
        let partitions = &mut self.partitions;
        let added = self.packer.add(key, trailer, value, &mut |packed| partitions.put(packed));
        if let Err(error) = added {
            return Err(self.fail(error));
        }
        self.partitions.count(key, trailer, value, new_key);
        if new_key {
            self.last_key.clear();
            self.last_key.extend_from_slice(key);
        }
        self.last_trailer = trailer;
        Ok(())
    }

    /// Whether `key` differs from the last; an error where the version does not belong here.
    fn check(&self, key: &[u8], trailer: Trailer, value: &[u8]) -> Result<bool> {
        if key.is_empty() || key.len() > KEY_BYTES_MAX || value.len() > VALUE_BYTES_MAX {
            return Err(Error::invalid("key and value length, bytes")
                .expected(format_args!("1..={KEY_BYTES_MAX} and at most {VALUE_BYTES_MAX}"))
                .got(format_args!("{} and {}", key.len(), value.len())));
        }
        match trailer.kind()? {
            EntryKind::Put => {}
            EntryKind::Delete if value.is_empty() => {}
            kind => {
                return Err(Error::invalid("version for a table")
                    .expected("a put, or a delete without a value")
                    .got(format_args!("{kind:?} with {} bytes", value.len())));
            }
        }
        let first = self.partitions.properties.entries == 0;
        let order = key.cmp(&self.last_key);
        let in_order = first || order.is_gt() || (order.is_eq() && trailer < self.last_trailer);
        if !in_order {
            return Err(Error::invalid("order of versions")
                .expected(format_args!(
                    "one after `{}` {:?}",
                    self.last_key.escape_ascii(),
                    self.last_trailer
                ))
                .got(format_args!("`{}` {trailer:?}", key.escape_ascii())));
        }
        Ok(first || order.is_gt())
    }

    fn check_usable(&self) -> Result<()> {
        match &self.failed {
            Some(first) => Err(Error::poisoned_by("table writer", first)),
            None => Ok(()),
        }
    }

    fn fail(&mut self, error: Error) -> Error {
        self.failed = Some(error.clone());
        error
    }

    /// The bytes of the file so far: what is packed and sealed, written or not.
    #[must_use]
    pub fn file_bytes(&self) -> u64 {
        u64::from(self.partitions.output.pages()) * PAGE_BYTES as u64
    }

    /// Versions added.
    #[must_use]
    pub const fn entries(&self) -> u64 {
        self.partitions.properties.entries
    }

    /// Ends the table and makes its content durable; the caller makes its name durable.
    ///
    /// # Errors
    /// `Invalid` where no version was added; otherwise as the medium's. The file is then removed.
    pub fn finish(mut self) -> Result<Summary> {
        self.check_usable()?;
        if self.entries() == 0 {
            return Err(Error::invalid("table").expected("at least one version").got("none"));
        }
        let partitions = &mut self.partitions;
        self.packer.finish(&mut |packed| partitions.put(packed))?;
        let properties = &mut partitions.properties;
        properties.last_key = std::mem::take(&mut self.last_key);
        properties.padding_bytes = self.packer.padding().bytes;
        properties.compressions = self.packer.compressions();
        let summary = self.partitions.finish()?;
        self.finished = true;
        Ok(summary)
    }

    /// Gives the table up and removes its file.
    ///
    /// # Errors
    /// As the medium's; what is left is a file that nobody names.
    pub fn abort(mut self) -> Result<()> {
        self.finished = true;
        self.medium.remove(&self.name)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if !self.finished {
            // Nobody names the file; recovery removes what stays behind.
            let _ = self.medium.remove(&self.name);
        }
    }
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Writer({}, {} entries)", self.name, self.entries())
    }
}

/// Cuts blocks into partitions and keeps the books.
struct Partitions {
    store: StoreId,
    table: TableId,
    output: Output,
    meta: MetaBuilder,
    /// The separators between partitions, and each partition's metadata page.
    top: SeparatorsBuilder,
    metas: Vec<u32>,
    /// The last entry of the last block.
    boundary: Option<(Vec<u8>, Trailer)>,
    scratch: Vec<u8>,
    properties: Properties,
    charge: Charge,
    top_charged: u64,
}

impl Partitions {
    /// Counts a version.
    fn count(&mut self, key: &[u8], trailer: Trailer, value: &[u8], new_key: bool) {
        let properties = &mut self.properties;
        if properties.entries == 0 {
            properties.first_key = key.to_vec();
        }
        properties.entries += 1;
        properties.keys += u64::from(new_key);
        properties.deletes += u64::from(matches!(trailer.kind(), Ok(EntryKind::Delete)));
        properties.raw_bytes += (key.len() + value.len()) as u64;
        properties.seqno_min = properties.seqno_min.min(trailer.seqno());
        properties.seqno_max = properties.seqno_max.max(trailer.seqno());
    }

    /// Writes a block, after the metadata page of a partition that it does not fit any more.
    fn put(&mut self, packed: Packed<'_>) -> Result<()> {
        let pages = run_pages(packed.payload.len());
        let separator = self.boundary.as_ref().map(|(last_key, last_trailer)| {
            Separator::between((last_key, *last_trailer), packed.first_key)
        });
        let fits = match &separator {
            Some(separator) => self.meta.fits(separator, pages, packed.hashes.len()),
            None => true,
        };
        if fits && !self.meta.is_empty() {
            self.meta.add(separator, pages, packed.hashes);
        } else {
            if let Some(separator) = separator {
                self.end_partition()?;
                self.top.push(separator);
                self.charge_top()?;
            }
            self.meta.start(self.output.pages());
            self.meta.add(None, pages, packed.hashes);
        }
        self.output.put(Section {
            kind: PageKind::Data,
            codec: packed.codec,
            dictionary: packed.dictionary,
            raw_bytes: packed.raw_bytes,
            payload: packed.payload,
        })?;
        self.properties.blocks += 1;
        self.properties.runs += u64::from(pages > 1);
        self.properties.block_bytes += packed.raw_bytes as u64;
        self.properties.data_pages += pages as u64;
        let (last_key, last_trailer) = packed.last;
        let (key, trailer) = self.boundary.get_or_insert_with(|| (Vec::new(), last_trailer));
        key.clear();
        key.extend_from_slice(last_key);
        *trailer = last_trailer;
        Ok(())
    }

    fn end_partition(&mut self) -> Result<()> {
        let size = self.meta.encode(&mut self.scratch)?;
        debug_assert!(size.payload_bytes <= PAYLOAD_BYTES);
        self.metas.push(self.output.put(Section::plain(PageKind::Meta, &self.scratch))?);
        self.properties.meta_pages += 1;
        self.properties.meta_bytes += size.payload_bytes as u64;
        self.properties.filter_bytes += size.filter_bytes as u64;
        Ok(())
    }

    /// Charges what the top level has grown by (I10), before it grows on.
    fn charge_top(&mut self) -> Result<()> {
        let bytes = (self.top.memory_bytes() + self.metas.len() * size_of::<u32>()) as u64;
        if bytes > self.top_charged {
            let step = TOP_STEP_BYTES.max(bytes - self.top_charged);
            self.charge.grow(step)?;
            self.top_charged += step;
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<Summary> {
        self.end_partition()?;
        let top = encode_top(&self.metas, &self.top)?;
        let top = self.output.put(Section::plain(PageKind::Top, &top))?;
        let properties = self.properties.encode();
        let properties = self.output.put(Section::plain(PageKind::Properties, &properties))?;
        let footer = Footer {
            version: FORMAT_VERSION,
            pages: self.output.pages() + 1,
            store: self.store,
            table: self.table,
            top,
            properties,
            digest: self.output.digest(),
        };
        self.output.put(Section::plain(PageKind::Footer, &footer.encode()))?;
        self.output.finish()?;
        Ok(Summary {
            table: self.table,
            file_bytes: u64::from(footer.pages) * PAGE_BYTES as u64,
            pages: footer.pages,
            digest: footer.digest,
            properties: std::mem::take(&mut self.properties),
        })
    }
}
