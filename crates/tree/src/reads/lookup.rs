//! The search for one key: memtables newest first, then tables newest first, until the key's value is known.

use std::ops::Deref;
use std::sync::Arc;

use base::{EntryKind, Result, Seqno, Trailer, broken_invariant, invariant};
use bytes::Bytes;
use cache::rows::Vacancy;
use read::{PageFile, ReadOp};
use table::{Pages, PointRead, Step, Table, TableCursor, ValueRead};

use super::Probe;
use super::filters_ahead::{Answer, FiltersAhead};
use super::resolver::{Resolution, Resolver, Value};
use crate::keyspace_counters::LookupReads;
use crate::{Memtable, Piece, View};

/// Longer values are not copied out of a memtable but shared, bytes. A shared value keeps the memory of the
/// whole memtable for as long as the caller keeps the value; up to this size a copy is cheap.
const COPY_BYTES_MAX: usize = 64 << 10;

/// A row that may be filled with the result of a lookup.
pub(super) struct RowTarget {
    /// The key's hash, [`Probe::hash`].
    pub(super) hash: u64,
    pub(super) vacancy: Vacancy,
    /// The seqno of the version.
    pub(super) seqno: Seqno,
    /// The read sequence number, at which that version is the newest.
    pub(super) as_of: Seqno,
}

/// Finds the value of a key that is visible at a sequence number.
///
/// `K` is the key, `V` the view: a blocking get borrows both, a queued get owns them. The memtables and
/// tables are searched in order of age, so the first version that is found is the newest (I4).
pub struct Lookup<K, V> {
    key: K,
    view: V,
    /// The read sequence number.
    as_of: Seqno,
    /// The search goes on with versions at or before this one.
    at: Trailer,
    probe: Probe,
    /// Whether a version was found.
    met: bool,
    /// The seqno of the newest version, if a table has it.
    first_in_table: Option<Seqno>,
    memtables_searched: bool,
    /// Index of the next run to search.
    run: usize,
    /// What held filters say about the next runs.
    ahead: FiltersAhead,
    /// The newest range delete that covers the key in the table that is being searched. Older versions are
    /// deleted, so the search ends with this table.
    deleted: Option<Seqno>,
    search: Option<Search<K>>,
    resolver: Resolver,
    /// The read of a separated value. It ends the lookup.
    fetch: Option<Box<ValueRead>>,
    /// Device reads so far.
    reads: LookupReads,
    /// Device reads before the search of the current table.
    reads_before: u32,
}

/// The search of one table.
enum Search<K> {
    /// For the newest version.
    Newest(PointRead<K>),
    /// For the versions below a merge operand.
    Older(Box<TableCursor>),
}

impl<K: AsRef<[u8]> + Clone, V: Deref<Target = Arc<View>>> Lookup<K, V> {
    /// A search for `key` at the seqno `at`. `now` is the time that expiries are compared with, Unix
    /// milliseconds; `None` means the time when it is first needed. `probe` is the key's, taken before the
    /// view.
    pub fn new(key: K, probe: Probe, view: V, at: Seqno, now: Option<u64>) -> Self {
        Self {
            key,
            view,
            as_of: at,
            at: Trailer::seek(at),
            probe,
            met: false,
            first_in_table: None,
            memtables_searched: false,
            run: 0,
            ahead: FiltersAhead::default(),
            deleted: None,
            search: None,
            resolver: Resolver::new(now),
            fetch: None,
            reads: LookupReads::default(),
            reads_before: 0,
        }
    }

    /// Counts the lookup in the counters of its keyspace. It ended, and found a value if `is_hit`.
    #[inline]
    pub fn count(&self, is_hit: bool) {
        self.view.read_context.lookups().ended(self.reads, is_hit);
    }

    /// Searches the memtables. `Some` if they decide the key's value, or that it has none.
    fn search_memtables(&mut self) -> Result<Option<Resolution>> {
        let key = self.key.as_ref();
        for memtable in self.view.memtables() {
            let deleted = memtable.deleted().newest_covering(key, self.at.seqno());
            while let Some((trailer, value)) = version_in(memtable, key, self.at)
                && deleted.is_none_or(|deleted| deleted < trailer.seqno())
            {
                self.met = true;
                let resolution =
                    self.resolver.older(&self.view.read_context, key, trailer, value, None)?;
                if resolution.is_some() {
                    return Ok(resolution);
                }
                self.at = Trailer::seek(trailer.seqno().before());
            }
            if deleted.is_some() {
                return self.resolver.end(&self.view.read_context, key).map(Some);
            }
        }
        Ok(None)
    }

    /// Searches the log through the index of a resident keyspace, which has one version of each key. It may
    /// be newer than the read seqno, but it is visible.
    fn search_log(&mut self) -> Result<Option<Resolution>> {
        let Some(resident) = self.view.read_context.resident() else { return Ok(None) };
        let key = self.key.as_ref();
        let Some(found) = resident.find(key)? else { return Ok(None) };
        self.met = true;
        let trailer = Trailer::new(found.seqno, found.kind);
        self.resolver.older(&self.view.read_context, key, trailer, found.value, None)
    }

    /// The piece that is being searched: of the run before the next one.
    fn piece(&self) -> Option<&Arc<Piece>> {
        let run = self.view.version.runs().get(self.run.checked_sub(1)?)?;
        run.find(self.key.as_ref())
    }

    /// Ends the lookup, or starts the read of a separated value.
    fn end(&mut self, resolution: Resolution) -> Result<Step<Option<Value>>> {
        match resolution {
            Resolution::Value(value) => Ok(Step::Ready(value)),
            Resolution::Separated(read) => {
                self.fetch = Some(read);
                self.fetch(None)
            }
        }
    }

    /// Continues the read of the separated value.
    fn fetch(&mut self, supplied: Option<Pages>) -> Result<Step<Option<Value>>> {
        let Some(read) = &mut self.fetch else {
            return Err(broken_invariant!("a separated value that is read was asked for"));
        };
        let key = self.key.as_ref();
        Ok(match read.step(key, supplied)? {
            Step::Need(span) => Step::Need(span),
            Step::Ready(bytes) => {
                Step::Ready(self.resolver.fetched(&self.view.read_context, key, bytes)?)
            }
        })
    }

    /// Starts the search of the next table that may have the key.
    fn next_table(&mut self) -> Result<Option<Search<K>>> {
        let key = self.key.as_ref();
        self.reads_before = self.reads.all;
        let runs = self.view.version.runs();
        let pinned = self.view.version.filters();
        while self.run < runs.len() {
            let next = pinned.map(|pinned| pinned.next(self.run, key, self.probe.hash));
            let is_admitted = next.is_some_and(|next| next.is_admitted);
            self.run = next.map_or(self.run, |next| next.run);
            let Some(run) = runs.get(self.run) else { break };
            let answer = match is_admitted {
                true => Answer::Admitted(None),
                false => self.ahead.ask(runs, self.run, key, self.probe.hash, self.at),
            };
            let is_absent = answer == Answer::Absent;
            self.run += 1;
            if is_absent && !run.has_range_deletes() {
                continue;
            }
            if let Some(handle) = run.find(key) {
                self.deleted = handle.range_deletes().newest_covering(key, self.at.seqno());
                let table = handle.table()?;
                let answer = match answer {
                    Answer::Unknown => Answer::of(table, key, self.probe.hash, self.at),
                    answer => answer,
                };
                if answer == Answer::Absent && self.deleted.is_none() {
                    continue;
                }
                let table = Arc::clone(table);
                let point = PointRead::new(table, self.key.clone(), self.probe.hash, self.at);
                return Ok(Some(Search::Newest(match answer {
                    Answer::Admitted(partition) => point.admitted(partition),
                    _ => point,
                })));
            }
        }
        Ok(None)
    }
}

impl<K: AsRef<[u8]>, V: Deref<Target = Arc<View>>> Lookup<K, V> {
    pub(super) fn key(&self) -> &[u8] {
        self.key.as_ref()
    }

    pub(super) fn view(&self) -> &View {
        &self.view
    }

    /// The key's probe, if a row of the key may be filled.
    pub(super) fn probe(&self) -> Option<Probe> {
        self.probe.vacancy.map(|_| self.probe)
    }

    /// The row that may be filled with the value: only if one version in a table is the whole value, stored
    /// with its key.
    pub(super) fn row(&self) -> Option<RowTarget> {
        let seqno = self.first_in_table.filter(|_| self.fetch.is_none())?;
        let Self { probe, as_of, .. } = *self;
        invariant!(seqno <= as_of, "a lookup finds versions at or below its read seqno");
        Some(RowTarget { hash: probe.hash, vacancy: probe.vacancy?, seqno, as_of })
    }
}

/// The newest version of `key` at or before `at`.
fn version_in(memtable: &Memtable, key: &[u8], at: Trailer) -> Option<(Trailer, Bytes)> {
    let (trailer, value) = memtable.map().get(key, at)?;
    if value.len() <= COPY_BYTES_MAX {
        return Some((trailer, Bytes::copy_from_slice(value)));
    }
    let (trailer, value) = memtable.map().get_shared(key, at)?;
    Some((trailer, Bytes::from_owner(value)))
}

impl<K: AsRef<[u8]>> Search<K> {
    /// The next version of `key`, newest first.
    fn step(
        &mut self,
        key: &[u8],
        supplied: Option<Pages>,
    ) -> Result<Step<Option<(Trailer, Bytes)>>> {
        match self {
            Self::Newest(point) => Ok(match point.step(supplied)? {
                Step::Need(span) => Step::Need(span),
                Step::Ready(found) => Step::Ready(found.map(|found| (found.trailer, found.value))),
            }),
            Self::Older(cursor) => Ok(match cursor.step(supplied)? {
                Step::Need(span) => Step::Need(span),
                Step::Ready(_) => {
                    let version = cursor.trailer().filter(|_| cursor.key() == key);
                    Step::Ready(version.map(|trailer| (trailer, cursor.value())))
                }
            }),
        }
    }

    /// Starts the search for the next older version.
    fn go_on(&mut self, key: &[u8], at: Trailer) {
        match self {
            Self::Newest(point) => {
                let mut cursor = TableCursor::new(Arc::clone(point.table()));
                cursor.seek(key, at);
                *self = Self::Older(Box::new(cursor));
            }
            Self::Older(cursor) => cursor.next(),
        }
    }
}

impl<K: AsRef<[u8]> + Clone, V: Deref<Target = Arc<View>>> ReadOp for Lookup<K, V> {
    /// The value, if the key has one.
    type Output = Option<Value>;

    fn step(&mut self, mut supplied: Option<Pages>) -> Result<Step<Option<Value>>> {
        if self.fetch.is_some() {
            return self.fetch(supplied);
        }
        if !self.memtables_searched {
            self.memtables_searched = true;
            if let Some(resolution) = self.search_memtables()? {
                return self.end(resolution);
            }
            if let Some(resolution) = self.search_log()? {
                return self.end(resolution);
            }
        }
        loop {
            if self.search.is_none() {
                self.search = self.next_table()?;
            }
            let key = self.key.as_ref();
            let read_context = &self.view.read_context;
            let Some(search) = &mut self.search else {
                let resolution = self.resolver.end(read_context, key)?;
                return self.end(resolution);
            };
            let deleted = self.deleted;
            match search.step(key, supplied.take())? {
                Step::Need(span) => return Ok(Step::Need(span)),
                Step::Ready(Some((trailer, value)))
                    if deleted.is_none_or(|deleted| deleted < trailer.seqno()) =>
                {
                    let file = match trailer.kind()? {
                        EntryKind::PutPointer => self.piece().map(|piece| Arc::clone(piece.file())),
                        _ => None,
                    };
                    let (key, read_context) = (self.key.as_ref(), &self.view.read_context);
                    if let Some(clock) = read_context.clock() {
                        clock.note_read(key, trailer.seqno());
                    }
                    self.first_in_table = (!self.met).then_some(trailer.seqno());
                    self.met = true;
                    let resolution =
                        self.resolver.older(read_context, key, trailer, value, file.as_ref())?;
                    if let Some(resolution) = resolution {
                        return self.end(resolution);
                    }
                    let Some(search) = &mut self.search else {
                        return Err(broken_invariant!("a version is found by a search"));
                    };
                    self.at = Trailer::seek(trailer.seqno().before());
                    search.go_on(key, self.at);
                }
                Step::Ready(_) if deleted.is_some() => {
                    let resolution = self.resolver.end(read_context, key)?;
                    return self.end(resolution);
                }
                Step::Ready(_) => {
                    if let Some(Search::Newest(point)) = &self.search
                        && point.table().has_filters()
                    {
                        self.reads.useless += self.reads.all - self.reads_before;
                    }
                    self.search = None;
                }
            }
        }
    }

    fn device_read(&mut self) {
        self.reads.all += 1;
    }

    fn file(&self) -> Option<PageFile> {
        if let Some(read) = &self.fetch {
            return Some(read.values().into());
        }
        self.table().map(PageFile::from)
    }

    fn table(&self) -> Option<&Arc<Table>> {
        match self.search.as_ref().filter(|_| self.fetch.is_none())? {
            Search::Newest(point) => Some(point.table()),
            Search::Older(cursor) => Some(cursor.table()),
        }
    }
}
