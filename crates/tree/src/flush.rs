//! A flush writes one sealed memtable to one table, and its long values to a value file.
//!
//! Order of steps: the files are written and synced. One manifest record then names them and raises the
//! keyspace's flushed seqno (I3). Then the table replaces the memtable in the view. Then the log may free the
//! segments that the memtable needed (I7). Versions that no reader can see any more are left out, among them
//! those that a range delete of a newer memtable covers: on a full device, deleting everything must not need
//! space for the deleted values. The newer write is in the log, which is synced before the record.
//!
//! In a resident keyspace the memtable becomes a part of the index instead ([`ResidentFlush`]).
//!
//! A job runs in bounded steps on a background thread. A failed job leaves nothing behind but a used table
//! id, and the memtable stays.

use std::sync::Arc;

use base::limits::VALUE_APART_BYTES;
use base::{
    AFTER_EVERY_KEY, Codec, EntryKind, KeyRange, Result, Seqno, TableId, Trailer, broken_invariant,
    invariant,
};
use bytes::Bytes;
use compact::{Horizon, OlderRanges, RetainedVersion, Retention, RetentionRules, ValueSeparator};
use manifest::{Edit, TableEntry, ValuesEntry};
use media::Purpose;
use table::{
    Dictionaries, Dictionary, Fragment, Leave, RangeDeletes, Spec, Summary, Table, ValuesSpec,
    ValuesSummary, Writer,
};

use crate::resident::ResidentFlush;
use crate::training::{Samples, is_worth_adopting, is_worth_training};
use crate::write_through::WriteThrough;
use crate::{Memtable, Tree, TreeContext};

/// A flush in progress.
pub struct FlushJob {
    tree: Arc<Tree>,
    memtable: Arc<Memtable>,
    /// Every write to the keyspace below this seqno is in the memtable or in tables.
    below: Seqno,
    cursor: arena::Cursor,
    /// The memtable's range deletes.
    ranges: RangeDeletes,
    /// The first key after everything that they may delete; `None` if that has no end.
    deletable_end: Option<Bytes>,
    newer: NewerMemtables,
    /// The range deletes over the present key, newest first.
    covering: Vec<Seqno>,
    /// The time by which versions are dropped as expired, Unix milliseconds.
    now_ms: u64,
    /// Whether the memtable has versions that expire, so that `now_ms` mattered.
    has_expiries: bool,
    retention: Retention,
    output: Output,
    /// Instead of all that, in a resident keyspace.
    resident: Option<ResidentFlush>,
}

/// The memtables newer than the flushed one. Their writes may supersede its versions.
struct NewerMemtables {
    /// Only memtables without unlogged writes. A crash loses unlogged writes but keeps the flushed table, so
    /// they must not drop its versions.
    memtables: Vec<Arc<Memtable>>,
    /// The newest visible seqno. Readers may not see later writes.
    at: Seqno,
    /// Whether puts and deletes count, and not range deletes only: two lookups for each key.
    counts_entries: bool,
}

impl NewerMemtables {
    fn of(tree: &Tree, flushed: &Memtable, horizon: &Horizon) -> Self {
        let view = tree.view();
        let is_newer = |it: &&Arc<Memtable>| it.first() > flushed.first() && !it.has_unlogged();
        let memtables = view.memtables().filter(is_newer).cloned().collect();
        let at = horizon.seqnos().last().copied().unwrap_or(Seqno::ZERO);
        Self { memtables, at, counts_entries: false }
    }

    /// The seqno of the newest write that hides every version of `key` in the flushed memtable.
    fn hiding(&self, key: &[u8]) -> Option<Seqno> {
        let hiding = |memtable: &Arc<Memtable>| {
            let range = memtable.deleted().newest_covering(key, self.at);
            let entry = match self.counts_entries {
                true => memtable.map().get(key, Trailer::seek(self.at)),
                false => None,
            };
            let hides = |(trailer, _): &(Trailer, &[u8])| {
                use EntryKind::{Delete, Put, PutExpiring};
                matches!(trailer.kind(), Ok(Put | PutExpiring | Delete))
            };
            range.max(entry.filter(hides).map(|(trailer, _)| trailer.seqno()))
        };
        self.memtables.iter().filter_map(hiding).max()
    }
}

/// The writers of the flush's files, created for the first version that is kept.
struct Output {
    tree: Arc<Tree>,
    memtable: Arc<Memtable>,
    writer: Option<(Writer, ValueSeparator)>,
    /// The pages of the table and of the value file, if they are to be cached.
    written: Option<(WriteThrough, WriteThrough)>,
}

/// The result of a flush.
#[derive(Clone, Copy, Debug)]
pub struct Flushed {
    /// Every write to the keyspace below this seqno is in tables now.
    pub below: Seqno,
    /// Bytes of the table; 0 if there is none.
    pub file_bytes: u64,
    /// Bytes of the value file; 0 if there is none.
    pub values_bytes: u64,
}

/// Entries per step: about a millisecond of work.
const STEP_ENTRIES: usize = 2048;

impl FlushJob {
    /// A flush of `memtable`. It and the tables contain every write of `tree` below `below`; the memtable's
    /// own writes are in no table. `horizon` lists the readers that exist; all later ones read at its newest
    /// seqno or above.
    ///
    /// # Errors
    /// `Retry` if there is no memory for the merge of versions.
    pub fn new(
        env: &TreeContext,
        tree: Arc<Tree>,
        (memtable, below): (Arc<Memtable>, Seqno),
        horizon: Horizon,
    ) -> Result<Self> {
        invariant!(below >= memtable.first(), "a memtable ends after its first seqno");
        let newer = NewerMemtables::of(&tree, &memtable, &horizon);
        let mut cursor = memtable.map().cursor();
        cursor.seek_first();
        let ranges = memtable.deleted().all_for(&horizon);
        let now_ms = env.timekeeper.trusted_now();
        let view = tree.view();
        // Merges that run meanwhile replace these tables by others within the same bounds.
        let older: Vec<_> = view.version.pieces().map(|piece| piece.range().clone()).collect();
        let deletable_end = if ranges.is_empty() { None } else { deletable_end(&memtable, &older) };
        let rules = RetentionRules {
            horizon,
            now_ms,
            older: OlderRanges::new(older),
            value_bytes_max: view.read_context.operand_bytes_max() as usize,
            operator: view.read_context.operator().ok().cloned(),
        };
        drop(view);
        let retention = Retention::new(rules, &env.writer_account)?;
        let resident = tree.view().read_context.resident().cloned();
        let log_end = env.log.as_ref().map(|log| log.last().plus(1));
        let resident = resident.map(|it| ResidentFlush::new(&it, &memtable, below, log_end));
        let (writer, written) = (None, None);
        let output =
            Output { tree: Arc::clone(&tree), memtable: Arc::clone(&memtable), writer, written };
        Ok(Self {
            tree,
            memtable,
            below,
            cursor,
            ranges,
            deletable_end,
            newer,
            covering: Vec::new(),
            now_ms,
            has_expiries: false,
            retention,
            output,
            resident,
        })
    }

    /// Also leaves out versions that puts and deletes of newer memtables hide, for a device without space for
    /// all. To be called before the first step.
    #[must_use]
    pub const fn sparing(mut self) -> Self {
        self.newer.counts_entries = true;
        self
    }

    /// The tree of the flushed memtable.
    pub fn tree(&self) -> &Arc<Tree> {
        &self.tree
    }

    /// Does one step. Returns the result with the last one.
    ///
    /// # Errors
    /// An error of the device, the log or the manifest, or `Retry` if memory is short. The job must then be
    /// dropped; the memtable is still there and can be flushed by a new job.
    pub fn step(&mut self, env: &TreeContext) -> Result<Option<Flushed>> {
        if let Some(resident) = &mut self.resident {
            if !resident.step(&mut self.cursor)? {
                return Ok(None);
            }
            self.tree.version_edit().install_flushed(&self.memtable, None);
            return Ok(Some(Flushed { below: self.below, file_bytes: 0, values_bytes: 0 }));
        }
        let Self { tree, cursor, ranges, newer, covering, retention, output, .. } = self;
        let mut keep = |kept: RetainedVersion<'_>| output.add(env, kept);
        for _ in 0..STEP_ENTRIES {
            if !cursor.valid() {
                retention.end_key(&mut keep)?;
                self.add_ranges(env)?;
                return self.finish(env).map(Some);
            }
            let (key, trailer) = (cursor.key(), cursor.trailer());
            self.has_expiries |= matches!(trailer.kind(), Ok(EntryKind::PutExpiring));
            covering.clear();
            covering.extend(newer.hiding(key));
            if let Some(fragment) = ranges.fragment_at(key) {
                covering.extend_from_slice(fragment.seqnos);
            }
            let row = env.row_refresh.prepare(tree.rows(), key);
            retention.version(key, covering, trailer, cursor.value(), &mut keep)?;
            if let Some(hash) = row {
                env.row_refresh.refresh(tree, &env.ring, hash, key, (trailer, cursor.value()));
            }
            cursor.next();
        }
        Ok(None)
    }

    fn add_ranges(&mut self, env: &TreeContext) -> Result<()> {
        let mut kept = Vec::new();
        for Fragment { start, end, seqnos } in self.ranges.iter() {
            // A delete without an end would take a key of 64 KiB in several pages: much on a full device,
            // and much to read.
            let end = match &self.deletable_end {
                Some(least) if **end == AFTER_EVERY_KEY[..] => {
                    // A range delete of no stored key stays: transactions may have read that key.
                    &least.clone().max(Bytes::from([start, &[0][..]].concat()))
                }
                _ => end,
            };
            kept.clear();
            self.retention.range_deletes(start, Some(end), seqnos, &mut kept);
            if !kept.is_empty() {
                self.output.writer(env)?.0.add_range_delete(start, end, &kept)?;
            }
        }
        Ok(())
    }

    fn finish(&mut self, env: &TreeContext) -> Result<Flushed> {
        let keyspace = self.tree.id();
        let mut below = self.below;
        if let Some(log) = &env.log {
            // A table must not outlive the log records before it: otherwise a crash could bring back a part
            // of a batch over several keyspaces.
            // Later writes may get the seqnos of unlogged writes at the end of the log, if a crash loses
            // those; and then replay must not skip them as flushed. Read before the sync: it is then a sync
            // to the last record, and so also of the Gap that covers the seqnos before that.
            let stored = log.stored_below();
            log.sync(stored.before())?;
            below = below.min(stored);
        }
        let mut edits = vec![Edit::Flushed { keyspace, below }];
        if let Some(log) = &env.log {
            // The same record frees the log, and says how far it is durable.
            edits.extend(log.reached().map(|reached| Edit::LogReached { reached }));
            edits.extend(Edit::log_begins(&log.start_once_flushed(keyspace, self.below)));
        }
        if self.has_expiries {
            // Versions were dropped as expired at this time: no reader may see an earlier one.
            edits.extend(env.timekeeper.advance_to(self.now_ms));
        }
        let Some((summary, values)) = self.output.finish(env)? else {
            env.append(edits)?;
            self.tree.version_edit().install_flushed(&self.memtable, None);
            return Ok(Flushed { below: self.below, file_bytes: 0, values_bytes: 0 });
        };
        let id = summary.table;
        let open = || {
            let (medium, bytes) = (&*env.medium, Some(summary.file_bytes));
            let dictionaries = Arc::clone(&env.dictionaries) as Arc<dyn Dictionaries>;
            let accounts = env.output_accounts();
            Table::open(medium, env.store, id, bytes, None, dictionaries, accounts)?.whole()
        };
        let values_name = values.as_ref().map(|values| table::values_file_name(values.file));
        let table_name = table::file_name(id);
        let names: Vec<&str> =
            [&table_name].into_iter().chain(&values_name).map(|it| &**it).collect();
        let opened = env.medium.sync_names(&names).and_then(|()| open());
        if opened.is_ok() {
            self.output.cache(env, &summary, values.as_ref());
        }
        // The chosen run stays valid while the guard is held.
        let guard = self.tree.version_edit();
        invariant!(
            summary.properties.seqno_min >= self.memtable.first()
                && summary.properties.seqno_max < self.below,
            "a flush writes the sequence numbers of its memtable (I9)"
        );
        let mut entry = TableEntry::of(&summary, TableEntry::UNPLACED, 0);
        entry.run = guard.place_newest(&entry.range);
        let entry = Arc::new(entry);
        let added = Edit::TableAdded { keyspace, table: Arc::clone(&entry) };
        let table = opened.and_then(|table| {
            let values = values.map(ValuesEntry::from);
            edits.extend(values.map(|values| Edit::ValuesAdded { keyspace, values }));
            edits.push(added);
            env.append(edits)?;
            Ok(table)
        });
        let table = table.inspect_err(|_| {
            // The record may be on the device although the append failed (I3). Otherwise the files are
            // orphans; one that cannot be removed now is removed at the next open.
            if env.manifest.poisoned().is_none() {
                for name in &names {
                    let _ = env.medium.remove(name);
                }
                env.cache.remove_file(summary.digest, summary.pages);
            }
        })?;
        guard.install_flushed(&self.memtable, Some(env.table_file(Ok(table), entry)));
        debug_assert!(
            env.is_as_recorded(&self.tree),
            "the tables of a keyspace are those that the manifest names (I3)"
        );
        let values_bytes = values.map_or(0, |values| values.file_bytes);
        Ok(Flushed { below: self.below, file_bytes: summary.file_bytes, values_bytes })
    }
}

/// The first key after those of `memtable` and of the `older` tables: its range deletes can delete no others.
/// `None` if an older table has no end.
fn deletable_end(memtable: &Memtable, older: &[KeyRange]) -> Option<Bytes> {
    let mut cursor = memtable.map().cursor();
    cursor.seek_last();
    let last = cursor.valid().then(|| KeyRange::through(&[], cursor.key()));
    let ends = older.iter().chain(&last).map(|range| range.end.clone());
    // Without any key there is nothing to delete.
    ends.reduce(|a, b| a.zip(b).map(|(a, b)| a.max(b))).unwrap_or_else(|| Some(Bytes::new()))
}

impl Output {
    /// Adds a version that is kept. A long value goes to the value file.
    fn add(&mut self, env: &TreeContext, kept: RetainedVersion<'_>) -> Result<()> {
        let (table, separator) = self.writer(env)?;
        let placed = separator.separate(kept.key, kept.trailer, kept.value)?;
        kept.add_to(table, placed)
    }

    /// Finishes the files, if any version was kept. The caller then owns them.
    fn finish(&mut self, env: &TreeContext) -> Result<Option<(Summary, Option<ValuesSummary>)>> {
        let Some((table, mut separator)) = self.writer.take() else { return Ok(None) };
        let values = separator.finish()?;
        let table = table.finish().inspect_err(|_| {
            if let Some(values) = &values {
                // No manifest names it. If it cannot be removed, recovery removes it.
                let _ = env.medium.remove(&table::values_file_name(values.file));
            }
        })?;
        Ok(Some((table, values)))
    }

    /// Caches the pages of the finished files.
    fn cache(&self, env: &TreeContext, table: &Summary, values: Option<&ValuesSummary>) {
        let Some((of_table, of_values)) = &self.written else { return };
        of_table.cache(table.digest, &env.cache);
        if let Some(values) = values {
            of_values.cache(values.digest, &env.cache);
        }
    }

    /// The writers of the table and of separated values, created on first use.
    fn writer(&mut self, env: &TreeContext) -> Result<&mut (Writer, ValueSeparator)> {
        if self.writer.is_none() {
            self.writer = Some(self.create(env)?);
        }
        self.writer.as_mut().ok_or_else(|| broken_invariant!("a writer that was created is there"))
    }

    fn create(&mut self, env: &TreeContext) -> Result<(Writer, ValueSeparator)> {
        // First of all: a failed manifest refuses, and then nothing else is tried.
        let ids = env.manifest.reserve_tables(2)?;
        let (table, values) = (ids.start, TableId(ids.start.0 + 1));
        let options = self.tree.options(&*env.options);
        let leave = match &env.log {
            // Deletes wait for this flush.
            Some(log) if log.has_deletes_on_full_device() => Leave::HalfForDeletes,
            _ => Leave::ForDeletes,
        };
        let dictionary = match options.codec {
            // A table without its dictionary is larger but correct, so a shortage is no failure.
            Codec::Zstd => self.dictionary(env, options.level).unwrap_or(None),
            _ => None,
        };
        let spec = Spec {
            store: env.store,
            table,
            keyspace: self.tree.id(),
            codec: options.codec,
            level: options.level,
            dictionary,
            filter_bits: self.tree.flush_filter_bits(self.memtable.bytes()),
            layout: self.tree.layout(self.memtable.bytes(), &KeyRange::all()),
            purpose: Purpose::Flush,
            leave,
        };
        let values = ValuesSpec {
            store: spec.store,
            file: values,
            keyspace: spec.keyspace,
            codec: spec.codec,
            level: spec.level,
            purpose: spec.purpose,
            leave,
        };
        let (least, account) = (VALUE_APART_BYTES as u64, &env.writer_account);
        let of_file = || WriteThrough::new(&env.cache);
        self.written = options.write_through.then(|| (of_file(), of_file()));
        let separator = ValueSeparator::new(&env.medium, Some(values), least, Vec::new(), account);
        let separator = separator.showing_to(self.written.as_ref().map(|(_, it)| it.sink()));
        let mut table = Writer::create(&env.medium, spec, account)?;
        self.written.iter().for_each(|(it, _)| table.show_to(it.sink()));
        table.keys_are(self.tree.key_form());
        table.window_is(&self.tree.kind().window_bytes());
        let table = if env.sums_entries { table.summing_entries() } else { table };
        // The flush's own memory does not grow with the memtable. Metadata of the table is charged as it
        // would be for the open table.
        Ok((table.growing_on(&env.output_accounts().pinned), separator))
    }

    /// The keyspace's dictionary: the current one, or a new one if that compresses this memtable clearly
    /// better.
    fn dictionary(&self, env: &TreeContext, level: i32) -> Result<Option<Arc<Dictionary>>> {
        let keyspace = self.tree.id();
        let (current, next) = env.manifest.dictionary(keyspace);
        let current = current.map(|id| env.dictionaries.get(id)).transpose()?;
        let account = env.dictionaries.account();
        let samples = match Samples::draw(self.memtable.map(), account) {
            Ok(samples) => samples,
            Err(_) => return Ok(current),
        };
        let gain_of = |dictionary| samples.gain(dictionary, level, account);
        let gain = current.as_ref().map(gain_of).transpose()?;
        if !is_worth_training(self.tree.dictionary_gain(), gain) {
            return Ok(current);
        }
        let candidate = match samples.train(account) {
            Ok(Some(bytes)) => bytes,
            Ok(None) | Err(_) => return Ok(current),
        };
        let trial = Arc::new(Dictionary::new(next, &candidate, account)?);
        let new_gain = gain_of(&trial)?;
        if !is_worth_adopting(gain.unwrap_or(0.0), new_gain) {
            // Training is tried again once the gain falls below this.
            self.tree.set_dictionary_gain(gain.unwrap_or(0.0));
            return Ok(current);
        }
        drop(trial);
        let adopted = env.dictionaries.add(next, &candidate)?;
        let added = Edit::DictionaryAdded { keyspace, dictionary: next };
        env.manifest.append(vec![added]).inspect_err(|_| {
            // As for a table: the record may be on the device although the append failed (I3).
            if env.manifest.poisoned().is_none() {
                env.dictionaries.withdraw(next);
            }
        })?;
        self.tree.set_dictionary_gain(new_gain);
        Ok(Some(adopted))
    }
}
