//! Verification of a job's outputs before the manifest names them.
//!
//! An outcome is bytes from outside, no matter which process ran the job. Verification reads every page and
//! checks its checksum (I8), and checks that
//! - the digest of each file is the one in the outcome,
//! - the tables point at all values written to the value file,
//! - tables ascend, do not overlap and lie within the job's bounds,
//! - tables have the job's layout, and the keyspace's form of keys if it is known: a table with another hash
//!   key would hide its keys,
//! - every version read was kept or dropped, and none was lost, doubled or changed, if entries were summed
//!   ([`EntrySums`](crate::EntrySums)).
//!
//! Of a worker's outputs a random sample may be read in place of all ([`Verification::sampling`]): near the
//! storage, reading all would move half of the bytes that the worker saves. Everything else is checked.
//!
//! Entries are not decoded: wrong content under valid checksums is found by [`Table::check`], not here.
//!
//! Works in steps of one large read, about 0.2 us of processor time per page.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use base::limits::PAGE_BYTES;
use base::{Account, Error, KeyForm, Result, Rng, broken_invariant, invariant};
use media::Purpose;
use table::{
    Accounts, PageBuffer, PageVisitor, PageWalk, Retries, Summary, Table, Values, ValuesSummary,
};

use crate::{Env, Job, Outcome};

/// A sampled verification does one of this many reads.
const SAMPLE: u64 = 64;

/// An output file that is being read.
struct OpenOutput {
    name: String,
    walk: PageWalk,
    /// The digest in its footer.
    footer_digest: u64,
    /// Remaining ranges of hot pages, ascending.
    hot: VecDeque<Range<u32>>,
    /// The table in this file; `None` for a value file.
    table: Option<Arc<Table>>,
}

/// A verified page of an output.
#[derive(Clone, Copy, Debug)]
pub struct OutputPage<'a> {
    /// The digest of the page's file.
    pub file: u64,
    /// The page number.
    pub number: u32,
    /// The page's bytes, as stored.
    pub bytes: &'a [u8],
    /// Whether it holds keys of a hot range, or is the metadata page of such a page.
    pub is_hot: bool,
}

/// The verification of one outcome, in progress.
#[derive(Debug)]
pub struct Verification {
    env: Env,
    job: Job,
    /// How the keyspace stores its keys, if it is known.
    key_form: Option<KeyForm>,
    /// Charged with the memory that open tables pin and with later reads of their values.
    accounts: Accounts,
    /// Tables to verify, the next one last.
    summaries: Vec<Summary>,
    /// The file that is being read.
    open_output: Option<OpenOutput>,
    /// The value file, if it is not verified yet.
    values: Option<ValuesSummary>,
    /// End key of the tables verified so far.
    end: Vec<u8>,
    tables: Vec<Arc<Table>>,
    /// Chooses the reads that are done; `None`: all are.
    sample: Option<Rng>,
    bytes_read: u64,
    /// The buffer for the next file; `None` while a file is read.
    buffer: Option<PageBuffer>,
}

impl Verification {
    /// Prepares to verify `outcome` against `job`. The memory that opened tables pin is charged to `tables`.
    ///
    /// # Errors
    /// `Invalid` if the outcome belongs to another job or attempt, `Corrupt` if its numbers contradict each
    /// other, `Retry` if memory is short.
    pub fn new(
        job: &Job,
        outcome: Outcome,
        env: &Env,
        tables: impl Into<Accounts>,
    ) -> Result<Self> {
        outcome.expect(job)?;
        let wrong = |what, expected: u64, got: u64| {
            let error = Error::corrupt("outcome").at(format_args!("{what}, job {}", job.id));
            Err(error.expected(expected).got(got))
        };
        let counts = outcome.counts;
        if !counts.is_balanced() {
            return wrong(
                "versions read",
                counts.kept.saturating_add(counts.dropped()),
                counts.read,
            );
        }
        for table in outcome.tables.iter().map(|table| &table.properties) {
            if table.seqno_min > table.seqno_max {
                return wrong("seqnos of a table", table.seqno_min.get(), table.seqno_max.get());
            }
            if table.entries == 0 && table.range_deletes == 0 {
                return wrong("entries of a table", 1, 0);
            }
        }
        if outcome.values.is_some_and(|values| values.values == 0) {
            return wrong("values of a value file", 1, 0);
        }
        let entries = outcome.tables.iter().map(|table| table.properties.entries);
        let entries = entries.fold(0, u64::saturating_add);
        if entries != counts.kept {
            return wrong("versions written", counts.kept, entries);
        }
        outcome.expect_written()?;
        let distinct: BTreeSet<_> = outcome.tables.iter().map(|table| table.table).collect();
        if distinct.len() != outcome.tables.len() {
            return wrong("distinct tables", distinct.len() as u64, outcome.tables.len() as u64);
        }
        let used = outcome.tables.iter().flat_map(|table| &table.properties.values);
        let used = used.filter(|(file, _)| outcome.values.is_some_and(|it| it.file == *file));
        let (used, written) = (
            used.fold(0u64, |sum, (_, bytes)| sum.saturating_add(*bytes)),
            outcome.values.map_or(0, |values| values.value_bytes),
        );
        if used != written {
            return wrong("bytes of values that tables point at", written, used);
        }
        if let Some(values) = outcome.values.filter(|it| !job.values.ids.contains(&it.file)) {
            return wrong("id of a value file", job.values.ids.start.0, values.file.0);
        }
        let mut summaries = outcome.tables;
        summaries.reverse();
        Ok(Self {
            env: env.clone(),
            job: job.clone(),
            key_form: None,
            accounts: tables.into(),
            summaries,
            open_output: None,
            values: outcome.values,
            end: Vec::new(),
            tables: Vec::new(),
            sample: None,
            bytes_read: 0,
            buffer: Some(PageBuffer::new(&env.account)?),
        })
    }

    /// Expects outputs with keys stored as `form`.
    #[must_use]
    pub const fn keys_are(mut self, form: KeyForm) -> Self {
        self.key_form = Some(form);
        self
    }

    /// Does a bounded part of the work. The last step returns the open tables, ascending by key. `visit` is
    /// called with each page that was verified; a sample leaves pages out, but none that is hot.
    ///
    /// # Errors
    /// `Corrupt` if an output is damaged or differs from the outcome; otherwise the errors of
    /// [`Table::open`]. The caller removes the files ([`Job::discard_outputs`]).
    pub fn step(
        &mut self,
        visit: &mut dyn FnMut(OutputPage<'_>),
    ) -> Result<Option<Vec<Arc<Table>>>> {
        if let Some(open_output) = self.open_output.take() {
            self.read(open_output, visit)?;
        } else if let Some(values) = self.values.take() {
            self.open_output = Some(self.open_values(values)?);
        } else if let Some(summary) = self.summaries.pop() {
            let table = self.open(&summary)?;
            self.open_output = Some(OpenOutput {
                name: table::file_name(table.id()),
                walk: PageWalk::new(
                    Arc::clone(table.file()),
                    table.seed(),
                    table.footer().pages,
                    Purpose::Compaction,
                    self.buffer()?,
                ),
                footer_digest: table.footer().digest,
                hot: summary.hot.into(),
                table: Some(table),
            });
        } else {
            invariant!(
                self.tables
                    .is_sorted_by(|a, b| a.properties().end_key() <= b.properties().first_key),
                "verified tables ascend and do not overlap"
            );
            return Ok(Some(std::mem::take(&mut self.tables)));
        }
        Ok(None)
    }

    /// Reads a random sample of the pages, and those that hold hot keys, in place of all. `seed` must not be
    /// known to the worker.
    #[must_use]
    pub fn sampling(mut self, seed: u64) -> Self {
        self.sample = Some(Rng::new(seed));
        self
    }

    /// Bytes of outputs that were read, their footers and indexes aside.
    #[must_use]
    pub const fn bytes_read(&self) -> u64 {
        self.bytes_read
    }

    /// Whether the next read of `output` is left out.
    fn skips(&mut self, output: &OpenOutput) -> bool {
        let Some(rng) = &mut self.sample else { return false };
        let next = output.walk.next_pages();
        let is_hot = output.hot.iter().any(|hot| hot.start < next.end && next.start < hot.end);
        // The first read of a file is done: a table of one read is verified whole.
        !is_hot && next.start > 0 && !rng.one_in(SAMPLE)
    }

    /// Opens a table and compares its footer with the outcome.
    fn open(&mut self, summary: &Summary) -> Result<Arc<Table>> {
        let Summary { table: id, file_bytes, digest, properties, .. } = summary;
        let wrong = |what: &'static str| Error::corrupt(what).at(table::file_name(*id));
        let (job, env) = (&self.job, &self.env);
        if !job.output.ids.contains(id) {
            let ids = &job.output.ids;
            let error = wrong("id of an output");
            return Err(error.expected(format_args!("one of {}..{}", ids.start, ids.end)));
        }
        let (bytes, dictionaries) = (Some(*file_bytes), Arc::clone(&env.dictionaries));
        let (medium, accounts) = (&*env.medium, &self.accounts);
        let table = Table::open(medium, job.store, *id, bytes, None, dictionaries, accounts)?;
        if table.footer().digest != *digest || table.properties() != properties {
            return Err(wrong("output of a job").expected("the table that its outcome describes"));
        }
        let (first, end) = (&*properties.first_key, properties.end_key());
        let is_within = job.bounds.holds(first)
            && job.bounds.end.as_ref().is_none_or(|bound| *end <= **bound)
            && properties.keyspace == job.keyspace;
        if !is_within {
            return Err(wrong("keys of an output")
                .expected(format_args!("keys of keyspace {} in {}", job.keyspace, job.bounds))
                .got(format_args!("`{}` to `{}`", first.escape_ascii(), end.escape_ascii())));
        }
        let form = properties.key_form();
        let layout = job.output.layout;
        if table.layout() != layout || self.key_form.is_some_and(|expected| expected != form) {
            // The debug form of a hash key does not show the secret.
            return Err(wrong("layout and form of keys of an output")
                .expected(format_args!("{layout:?}, {:?}", self.key_form))
                .got(format_args!("{:?}, {form:?}", table.layout())));
        }
        if first < &*self.end || *end <= *first {
            return Err(wrong("order of outputs")
                .expected(format_args!("keys from `{}` on", self.end.escape_ascii()))
                .got(format_args!("`{}` to `{}`", first.escape_ascii(), end.escape_ascii())));
        }
        self.end = end;
        Ok(table)
    }

    /// The buffer, for the next file.
    fn buffer(&mut self) -> Result<PageBuffer> {
        self.buffer
            .take()
            .ok_or_else(|| broken_invariant!("outputs are verified one after another"))
    }

    /// Opens the value file and compares its footer with the outcome.
    fn open_values(&mut self, summary: ValuesSummary) -> Result<OpenOutput> {
        let ValuesSummary { file: id, file_bytes, values, value_bytes, digest } = summary;
        let (store, bytes) = (self.job.store, Some(file_bytes));
        let file = Values::open(&*self.env.medium, store, id, bytes, &self.accounts.values)?;
        let (footer, keyspace) = (file.footer(), self.job.keyspace);
        let found = (footer.values, footer.value_bytes, footer.digest, footer.keyspace);
        let name = table::values_file_name(id);
        if found != (values, value_bytes, digest, keyspace) {
            let error = Error::corrupt("output of a job").at(name);
            return Err(error.expected("the value file that its outcome describes"));
        }
        Ok(OpenOutput {
            name,
            walk: PageWalk::new(
                Arc::clone(file.file()),
                file.seed(),
                footer.pages,
                Purpose::Compaction,
                self.buffer()?,
            ),
            footer_digest: digest,
            hot: VecDeque::new(),
            table: None,
        })
    }

    /// Reads and verifies the next pages of a file.
    fn read(
        &mut self,
        mut open_output: OpenOutput,
        visit: &mut dyn FnMut(OutputPage<'_>),
    ) -> Result<()> {
        if self.skips(&open_output) {
            open_output.walk.skip();
        } else {
            let OpenOutput { name, walk, hot: hot_pages, footer_digest, .. } = &mut open_output;
            let file = *footer_digest;
            let count = walk.step(Retries::None, &mut Verifier { name, file, hot_pages, visit })?;
            self.bytes_read += u64::from(count) * PAGE_BYTES as u64;
        }
        if !open_output.walk.is_done() {
            self.open_output = Some(open_output);
            return Ok(());
        }
        let OpenOutput { name, walk, footer_digest, table, .. } = open_output;
        if self.sample.is_none() && walk.digest() != footer_digest {
            return Err(Error::corrupt("digest of an output")
                .at(name)
                .expected(format_args!("{footer_digest:016x}"))
                .got(format_args!("{:016x}", walk.digest())));
        }
        self.buffer = Some(walk.into_buffer());
        self.tables.extend(table);
        Ok(())
    }
}

/// Passes on the pages of the output `name`, and ends with the first damage.
struct Verifier<'a> {
    name: &'a str,
    /// The digest of the file.
    file: u64,
    hot_pages: &'a mut VecDeque<Range<u32>>,
    visit: &'a mut dyn FnMut(OutputPage<'_>),
}

impl PageVisitor for Verifier<'_> {
    fn page(&mut self, number: u32, bytes: &[u8]) -> Result<()> {
        self.hot_pages.pop_front_if(|pages| pages.end <= number);
        let is_hot = self.hot_pages.front().is_some_and(|pages| pages.contains(&number));
        (self.visit)(OutputPage { file: self.file, number, bytes, is_hot });
        Ok(())
    }

    fn damaged(&mut self, _: Range<u32>, error: Error) -> Result<()> {
        Err(error.at(self.name))
    }
}

impl std::fmt::Debug for OpenOutput {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}, {:?}", self.name, self.walk)
    }
}

/// Verifies a whole outcome; returns its tables, ascending by key.
///
/// # Errors
/// The errors of [`Verification`].
pub fn verify(job: &Job, outcome: Outcome, env: &Env, tables: &Account) -> Result<Vec<Arc<Table>>> {
    let mut verification = Verification::new(job, outcome, env, tables)?;
    loop {
        if let Some(tables) = verification.step(&mut |_| {})? {
            return Ok(tables);
        }
    }
}
