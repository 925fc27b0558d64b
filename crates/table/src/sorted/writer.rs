//! The writer of a table: takes versions in order, and makes a durable file.
//!
//! The versions go through the [`Packer`], which makes blocks; [`Partitions`], which groups blocks into
//! partitions and writes each partition's metadata page after its data; and [`Output`], which seals and
//! writes pages. Range deletes, which are added separately, top level and properties follow, all of it
//! twice, and two footers end the file.
//!
//! Memory is bounded and charged (I10). Buffers and one block take about 1.6 MiB, a mebibyte more in a
//! table with bins, whatever the table's size. An entry over 32 KiB takes four times its length while it
//! is added, or is not compressed. The top level grows by about 20 bytes per partition of about a hundred
//! pages. Range deletes take at most twice their length in the file.

use std::sync::Arc;

use base::limits::{KEY_BYTES_MAX, PAGE_BYTES, VALUE_BYTES_MAX};
use base::{
    Account, Codec, DictionaryId, EntryKind, Error, KeyForm, KeyspaceId, PageSeed, Result, Seqno,
    StoreId, TableId, Trailer, invariant,
};
use media::{Medium, Purpose};

use super::filter::FILTER_BITS_MAX;
use super::hot::HotPages;
use super::layout::{HASH_BYTES, Layout};
use super::leave::Leave;
use super::output::{BUFFER_PAGES, OUTPUT_BYTES, Output, PageSink, Writes};
use super::pack::Packer;
use super::partitions::Partitions;
use super::properties::{CodecField, HashKeyField, Properties};
use super::raw_block::RawBlock;
use super::summary::Summary;
use crate::Bounds;
use crate::codec::{BlockEngine, Compressor};
use crate::dictionary::Dictionary;
use crate::name::file_name;
use crate::pointer::Pointer;

/// Memory of the packer, the current partition and the other parts of fixed size, bytes.
const PARTS_BYTES: u64 = 512 << 10;

/// Memory that a table with bins needs in addition to [`PARTS_BYTES`]. Its index is small, so a metadata page
/// has room for the filter of many keys, whose hashes are collected in memory.
const BINS_PARTS_BYTES: u64 = 1 << 20;

/// Specification of a table.
#[derive(Clone, Debug)]
pub struct Spec {
    /// The store the table belongs to.
    pub store: StoreId,
    /// The table's id, never used before.
    pub table: TableId,
    /// The keyspace its keys belong to.
    pub keyspace: KeyspaceId,
    /// The codec for blocks.
    pub codec: Codec,
    /// The level of zstd (-100 to 22) or DEFLATE (1 to 9); ignored for other codecs.
    pub level: i32,
    /// The dictionary; only for zstd.
    pub dictionary: Option<Arc<Dictionary>>,
    /// Bits of the filter's values, at most [`FILTER_BITS_MAX`]. The false positive rate is 1 in 2^bits,
    /// and each key takes 1.04 times as many bits (more if a partition has few keys). 0: no filter.
    /// [`FILTER_BITS_DEFAULT`](super::FILTER_BITS_DEFAULT) suits most tables.
    pub filter_bits: u8,
    /// How data pages are cut and indexed. With bins, every key begins with a uniform hash of
    /// [`HASH_BYTES`] bytes.
    pub layout: Layout,
    /// The purpose of the writes.
    pub purpose: Purpose,
    /// Free space that the writes leave on the device.
    pub leave: Leave,
}

/// Writes one table. If dropped before it is finished, it removes the file, as far as it can.
pub struct Writer {
    medium: Arc<dyn Medium>,
    name: String,
    codec: Codec,
    level: i32,
    layout: Layout,
    dictionary: Option<DictionaryId>,
    packer: Packer,
    partitions: Partitions,
    last_key: Vec<u8>,
    last_trailer: Trailer,
    /// The first error, after which the file cannot become a table.
    failed: Option<Error>,
    finished: bool,
}

/// A compressor with the dictionary or, if memory for its digest is short, without: such a table is
/// larger but correct.
fn compressor(
    codec: Codec,
    level: i32,
    dictionary: Option<Arc<Dictionary>>,
    account: &Account,
) -> Result<Compressor> {
    match Compressor::new(codec, level, dictionary.clone(), account) {
        Err(error) if error.is_retryable() && dictionary.is_some() => {
            Compressor::new(codec, level, None, account)
        }
        made => made,
    }
}

impl Writer {
    /// Creates the file of `spec.table`.
    ///
    /// # Errors
    /// `Retry` if memory is short, `Invalid` if the file exists, or the specification is inconsistent or
    /// asks for a codec that this build lacks; otherwise the medium's.
    pub fn create(medium: &Arc<dyn Medium>, spec: Spec, account: &Account) -> Result<Self> {
        if spec.dictionary.is_some() && spec.codec != Codec::Zstd {
            return Err(Error::invalid("dictionary")
                .expected("codec zstd")
                .got(format_args!("codec {:?}", spec.codec)));
        }
        if spec.filter_bits > FILTER_BITS_MAX {
            return Err(Error::invalid("bits of a filter")
                .expected(format_args!("at most {FILTER_BITS_MAX}"))
                .got(spec.filter_bits));
        }
        let parts = match spec.layout {
            Layout::Sorted => PARTS_BYTES,
            Layout::Bins(_) => PARTS_BYTES + BINS_PARTS_BYTES,
        };
        let charge = account.charge(OUTPUT_BYTES + parts)?;
        let mut properties = Properties {
            codec: CodecField(spec.codec),
            written_for: spec.purpose.name().to_owned(),
            keyspace: spec.keyspace,
            bin_bits: u64::from(spec.layout.encode()),
            ..Properties::default()
        };
        let mut dictionary = None;
        let mut packer = match spec.codec {
            Codec::None => Packer::stored(account),
            Codec::Lz4 => Packer::lz4(account),
            Codec::Zstd | Codec::Deflate => {
                let compressor = compressor(spec.codec, spec.level, spec.dictionary, account)?;
                dictionary = Some(compressor.dictionary_id()).filter(|id| id.0 > 0);
                properties.level = spec.level;
                properties.dictionaries = dictionary.into_iter().collect();
                Packer::whole(compressor, account)
            }
        };
        if let Layout::Bins(bits) = spec.layout {
            packer.cut_between_bins(bits);
        }
        let name = file_name(spec.table);
        let seed = PageSeed::new(spec.store, spec.table);
        let writes = Writes { purpose: spec.purpose, leave: spec.leave };
        let output = Output::create(medium, &name, seed, writes, BUFFER_PAGES)?;
        Ok(Self {
            medium: Arc::clone(medium),
            name,
            codec: spec.codec,
            level: spec.level,
            layout: spec.layout,
            dictionary,
            packer,
            partitions: Partitions::new(
                (spec.store, spec.table),
                (spec.filter_bits, spec.layout),
                output,
                properties,
                charge,
                account,
            ),
            last_key: Vec::new(),
            last_trailer: Trailer::from_word(0),
            failed: None,
            finished: false,
        })
    }

    /// Charges memory that grows with the table, top level and range deletes, to `account`, and only
    /// memory of fixed size to the writer's own account. Must be called before anything is added.
    #[must_use]
    pub fn growing_on(mut self, account: &Account) -> Self {
        invariant!(self.is_empty(), "a writer's accounts are chosen before anything is added");
        self.partitions.grow_on(account);
        self
    }

    /// Sums the hashes of all entries in the table's properties, so that a merge of it can be checked for
    /// lost, doubled and changed entries. Must be called before anything is added. Cost: about 15 ns an entry
    /// of 100 bytes.
    #[must_use]
    pub fn summing_entries(mut self) -> Self {
        invariant!(self.is_empty(), "a writer sums all entries or none");
        self.partitions.tally.sums_entries = true;
        self
    }

    /// Lets `engine` compress the blocks; `account` is charged with the blocks in flight. Tables with bins or
    /// a dictionary, with other codecs than zstd and DEFLATE, and those for which memory is short are
    /// compressed here. Must be called before anything is added.
    #[must_use]
    pub fn compressing_with(mut self, engine: &dyn BlockEngine, account: &Account) -> Self {
        invariant!(self.is_empty(), "a writer's engine is chosen before anything is added");
        let packer = std::mem::replace(&mut self.packer, Packer::stored(account));
        self.packer = packer.compressing_with(engine, self.level, account);
        self
    }

    /// Shows every page of the file to `sink`. Must be called before anything is added.
    pub fn show_to(&mut self, sink: Box<dyn PageSink>) {
        self.partitions.output.show_to(sink);
    }

    /// Makes the summary list the pages with keys in `ranges`, which ascend and do not overlap. Must be
    /// called before anything is added.
    pub fn set_hot(&mut self, ranges: Arc<[Bounds]>) {
        invariant!(self.is_empty(), "hot ranges are set before anything is added");
        self.partitions.hot = HotPages::new(ranges);
    }

    /// Adds a version: a put, a delete without a value, a merge operand, an expiring put (eight bytes of
    /// expiry, little-endian Unix milliseconds over 0, then the value) or a [`Pointer`]. Keys ascend,
    /// and trailers descend within a key.
    ///
    /// # Errors
    /// `Invalid` if the version is out of order, out of bounds, or not of such a form; then nothing is
    /// added. Otherwise the medium's, after which the writer is unusable.
    pub fn add(&mut self, key: &[u8], trailer: Trailer, value: &[u8]) -> Result<()> {
        self.check_usable()?;
        let new_key = self.check(key, trailer, value)?;
        let partitions = &mut self.partitions;
        partitions.tally.add_value(trailer.kind()?, value)?;
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

    /// Adds a version as [`Writer::add`] does. A newer version or range delete at `by` supersedes it
    /// entirely, so only reads from the version's own seqno up to below `by` need it.
    ///
    /// # Errors
    /// As [`Writer::add`]; `Invalid` if `by` is not newer, and then nothing is added.
    pub fn add_superseded(
        &mut self,
        key: &[u8],
        trailer: Trailer,
        value: &[u8],
        by: Seqno,
    ) -> Result<()> {
        let seqno = trailer.seqno();
        if by <= seqno {
            return Err(Error::invalid("what supersedes a version")
                .expected(format_args!("newer than {trailer:?}"))
                .got(by));
        }
        self.add(key, trailer, value)?;
        let apart = match trailer.kind()? {
            EntryKind::PutPointer => Pointer::decode(value)?.bytes,
            _ => 0,
        };
        let bytes = ((key.len() + value.len()) as u64).saturating_add(apart);
        let properties = &mut self.partitions.properties;
        properties.superseded_min = match properties.superseded {
            0 => seqno,
            _ => properties.superseded_min.min(seqno),
        };
        properties.superseding_max = properties.superseding_max.max(by);
        properties.superseded += 1;
        properties.superseded_bytes = properties.superseded_bytes.saturating_add(bytes);
        Ok(())
    }

    /// Whether `key` differs from the last one. An error if the version is out of bounds or out of
    /// order.
    fn check(&self, key: &[u8], trailer: Trailer, value: &[u8]) -> Result<bool> {
        if key.is_empty() || key.len() > KEY_BYTES_MAX || value.len() > VALUE_BYTES_MAX {
            return Err(Error::invalid("key and value length, bytes")
                .expected(format_args!("1..={KEY_BYTES_MAX} and at most {VALUE_BYTES_MAX}"))
                .got(format_args!("{} and {}", key.len(), value.len())));
        }
        if self.layout != Layout::Sorted && key.len() < HASH_BYTES {
            return Err(Error::invalid("length of a key that begins with a hash, bytes")
                .expected(format_args!("at least {HASH_BYTES}"))
                .got(key.len()));
        }
        if let Some((hash_key, (hash, user))) =
            self.partitions.compact_key().zip(key.split_first_chunk())
        {
            // The hash is not stored: a wrong one would change the key.
            let expected = hash_key.hash(user).to_be_bytes();
            if *hash != expected {
                return Err(Error::invalid("hash that begins a key")
                    .expected(format_args!("{:016x}", u64::from_be_bytes(expected)))
                    .got(format_args!("{:016x}", u64::from_be_bytes(*hash))));
            }
        }
        self.check_order(key, trailer)
    }

    /// Whether `key` differs from the last one. An error if the version is out of order.
    fn check_order(&self, key: &[u8], trailer: Trailer) -> Result<bool> {
        let first = self.entries() == 0;
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

    /// Whether [`Writer::add_block`] can take `block`, apart from its position: it needs no dictionary
    /// other than the specification's, and has the specification's codec or none. A table with bins takes
    /// none, because its blocks end where its own bins do.
    #[must_use]
    pub fn accepts(&self, block: &RawBlock) -> bool {
        let dictionary = block.dictionary();
        self.layout == Layout::Sorted
            && (block.codec() == Codec::None || block.codec() == self.codec)
            && (dictionary == DictionaryId(0) || Some(dictionary) == self.dictionary)
    }

    /// Uncompressed length of the block being packed, bytes. If it is not 0, copying a block leaves the
    /// rest of that block's page empty.
    #[must_use]
    pub fn open_bytes(&self) -> usize {
        self.packer.open_bytes()
    }

    /// Adds all versions of a block of another table, unchanged. Ends the block being packed first.
    ///
    /// # Errors
    /// `Invalid` if its first version is out of order, or the writer does not [accept](Writer::accepts)
    /// it; then nothing is added. Otherwise the medium's, after which the writer is unusable.
    pub fn add_block(&mut self, block: &RawBlock) -> Result<()> {
        self.check_usable()?;
        if !self.accepts(block) {
            return Err(Error::invalid("codec and dictionary of a block")
                .expected(format_args!("{:?} and {:?}", self.codec, self.dictionary))
                .got(format_args!("{:?} and {}", block.codec(), block.dictionary())));
        }
        let (key, trailer) = block.first();
        let shares_key = !self.check_order(key, trailer)?;
        let partitions = &mut self.partitions;
        let ended = self.packer.finish(&mut |packed| partitions.put(packed));
        if let Err(error) = ended.and_then(|()| partitions.put_raw(block, shares_key)) {
            return Err(self.fail(error));
        }
        self.packer.add_copied(block.payload().len());
        let (key, trailer) = block.last();
        self.last_key.clear();
        self.last_key.extend_from_slice(key);
        self.last_trailer = trailer;
        Ok(())
    }

    /// Adds a fragment of range deletes: the keys from `start` to before `end` are deleted at each of
    /// `seqnos`, which descend. Fragments ascend and do not overlap. They may be added before, between
    /// or after versions, and may cover the table's own versions.
    ///
    /// # Errors
    /// `Invalid` if the fragment is out of order or the table has too many, `Retry` if memory is short;
    /// then nothing is added.
    pub fn add_range_delete(&mut self, start: &[u8], end: &[u8], seqnos: &[Seqno]) -> Result<()> {
        self.check_usable()?;
        self.partitions.add_range_delete(start, end, seqnos)
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

    /// Length of the file so far, bytes: all sealed pages, written or not, and blocks that an engine has.
    #[must_use]
    pub fn file_bytes(&self) -> u64 {
        let pages =
            u64::from(self.partitions.output.pages()) + self.packer.pages_in_flight() as u64;
        pages * PAGE_BYTES as u64
    }

    /// Number of versions added.
    #[must_use]
    pub const fn entries(&self) -> u64 {
        self.partitions.tally.entries
    }

    /// Whether no version and no range delete was added.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.partitions.is_empty()
    }

    /// Ends the table and makes its content durable; the caller makes its name durable.
    ///
    /// # Errors
    /// `Invalid` if nothing was added; otherwise the medium's. The file is then removed.
    pub fn finish(mut self) -> Result<Summary> {
        self.check_usable()?;
        if self.is_empty() {
            return Err(Error::invalid("table")
                .expected("a version or a range delete")
                .got("none"));
        }
        let partitions = &mut self.partitions;
        self.packer.finish(&mut |packed| partitions.put(packed))?;
        invariant!(self.packer.open_bytes() == 0, "every entry is in a block");
        let properties = &mut partitions.properties;
        properties.last_key = std::mem::take(&mut self.last_key);
        properties.padding_bytes = self.packer.padding().total_bytes();
        properties.compressions = self.packer.compressions();
        invariant!(
            self.partitions.tally.entries == 0
                || self.partitions.properties.first_key <= self.partitions.properties.last_key,
            "the first key of a table is not after its last"
        );
        if self.partitions.tally.deletes == self.partitions.tally.entries {
            self.partitions.output.may_fill_device();
        }
        let summary = self.partitions.finish()?;
        invariant!(
            summary.properties.superseded <= summary.properties.entries,
            "superseded versions are counted among the entries"
        );
        self.finished = true;
        Ok(summary)
    }

    /// Records that all writes up to `seqno` precede the entries, which have no seqnos.
    pub fn written_after(&mut self, seqno: Seqno) {
        self.partitions.properties.written_after = seqno;
    }

    /// States the policy of the table's window, as the manifest stores it, for a repair without a manifest;
    /// empty: the keyspace is no window.
    pub fn window_is(&mut self, policy: &[u8]) {
        self.partitions.properties.window = policy.to_vec();
    }

    /// States how the keyspace stores its keys, also for a repair without a manifest. A table with bins
    /// then has compact blocks, which do not store the hashes of hashed keys. Must be called before
    /// anything is added.
    pub fn keys_are(&mut self, form: &KeyForm) {
        invariant!(self.is_empty(), "a table's form of keys is stated before anything is added");
        let KeyForm::Hashed(hash_key) = form else { return };
        self.partitions.properties.hash_key = HashKeyField(Some(*hash_key));
        if let Some(hash_key) = self.partitions.compact_key() {
            self.packer.compact(hash_key);
        }
    }

    /// Abandons the table and removes its file.
    ///
    /// # Errors
    /// The medium's; the file is then an orphan.
    pub fn abort(mut self) -> Result<()> {
        self.finished = true;
        self.medium.remove(&self.name)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if !self.finished {
            // The file is an orphan; recovery removes it if this does not.
            let _ = self.medium.remove(&self.name);
        }
    }
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Writer({}, {} entries)", self.name, self.entries())
    }
}
