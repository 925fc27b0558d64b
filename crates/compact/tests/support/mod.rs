//! Shared by the job tests: in-memory stores with random tables, and readers of tables.

#![allow(dead_code, reason = "each test file uses a part of it")]

use std::sync::Arc;

use base::limits::PAGE_BYTES;
use base::{
    Account, Codec, EntryKind, KeyspaceId, PageSeed, Rng, Seqno, StoreId, TableId, Trailer,
};
use bytes::Bytes;
use media::{Buf, File, Medium, Purpose};
use table::{
    Layout, NoDictionaries, Pages, RangeDelete, RangeDeletes, Spec, Step, Summary, Table,
    TableCursor, Writer, verify_page,
};
use terrace_compact::job::{Input, InputRun, Job, Output};
use terrace_compact::{Env, Horizon, KeyRange, MergeOperator, Operators};

pub const STORE: StoreId = StoreId(0x7e55);
pub const KEYSPACE: KeyspaceId = KeyspaceId(3);
pub const NOW: u64 = 1_000_000;

/// The first output id; inputs have smaller ones.
pub const OUTPUTS: u64 = 1000;

/// Key, trailer and value of a version.
pub type Version = (Vec<u8>, Trailer, Vec<u8>);

/// Adds operands as one-byte numbers.
#[derive(Debug)]
pub struct Add;

impl MergeOperator for Add {
    fn name(&self) -> &str {
        "add.1"
    }

    fn merge(&self, _key: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Option<Vec<u8>> {
        let all = base.iter().chain(operands);
        let sum = all.map(|it| it.first().copied().unwrap_or(0)).fold(0u8, u8::wrapping_add);
        Some(vec![sum])
    }

    fn combine(&self, key: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
        self.merge(key, None, operands)
    }
}

pub fn env(medium: &Arc<dyn Medium>) -> Env {
    env_charging(medium, Account::unlimited("test"))
}

pub fn env_charging(medium: &Arc<dyn Medium>, account: Account) -> Env {
    let mut operators = Operators::new();
    operators.add(Arc::new(Add)).unwrap();
    Env {
        medium: Arc::clone(medium),
        dictionaries: Arc::new(NoDictionaries),
        operators: Arc::new(operators),
        tables: account.clone(),
        account,
        read_bytes: 8 << 20,
        value_bytes_max: base::limits::VALUE_BYTES_MAX,
        engine: None,
        sums_entries: true,
    }
}

/// The tables of each run, newest run first, and all their versions and range deletes.
#[derive(Default)]
pub struct Content {
    pub runs: Vec<InputRun>,
    pub versions: Vec<Version>,
    pub range_deletes: Vec<RangeDelete>,
}

pub struct ContentSpec {
    pub runs: u64,
    pub keys: u64,
    pub entries: u64,
    pub tables: u64,
    /// Most bytes of a value; a few values are longer.
    pub value_bytes: u64,
    /// Only puts and a few tombstones.
    pub puts_only: bool,
    /// Each run has its own key range, which overlaps the next one a little.
    pub disjoint: bool,
}

pub fn key(number: u64) -> Vec<u8> {
    format!("key{number:08}").into_bytes()
}

fn random_version(rng: &mut Rng, spec: &ContentSpec, seqno: u64) -> (EntryKind, Vec<u8>) {
    let length = if rng.one_in(400) { 40_000 } else { rng.below(spec.value_bytes.max(1)) };
    let mut value = vec![0; length as usize];
    let noise = value.len() / 2;
    rng.fill(&mut value[..noise]);
    match rng.below(if spec.puts_only { 6 } else { 10 }) {
        0 if !spec.puts_only || rng.one_in(100) => (EntryKind::Delete, Vec::new()),
        0..6 => (EntryKind::Put, value),
        6..8 => (EntryKind::Merge, vec![seqno as u8]),
        _ => {
            let expiry = [1, NOW, NOW + 1][rng.below(3) as usize];
            (EntryKind::PutExpiring, [&u64::to_le_bytes(expiry)[..], &value].concat())
        }
    }
}

impl Content {
    /// Writes random runs to `medium`; the first run is the newest (I4).
    pub fn random(rng: &mut Rng, medium: &Arc<dyn Medium>, spec: &ContentSpec) -> Self {
        let mut content = Self::default();
        let mut id = 1;
        for run in (0..spec.runs).rev() {
            let (mut versions, mut deletes) = (Vec::new(), Vec::new());
            for entry in 0..spec.entries {
                let seqno = 1 + run * spec.entries + entry;
                if !spec.puts_only && rng.one_in(spec.entries.max(20) / 10) {
                    let start = rng.below(spec.keys);
                    let end = start + 1 + rng.below(spec.keys / 10 + 1);
                    let (start, end) = (key(start).into(), key(end).into());
                    deletes.push(RangeDelete { start, end, seqno: Seqno::new(seqno) });
                    continue;
                }
                let (kind, value) = random_version(rng, spec, seqno);
                let trailer = Trailer::new(Seqno::new(seqno), kind);
                let part = (spec.keys / spec.runs).max(1);
                let number = match spec.disjoint {
                    true => run * part + rng.below(part + part / 8),
                    false => rng.below(spec.keys),
                };
                versions.push((key(number), trailer, value));
            }
            versions.sort_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));
            let mut tables = Vec::new();
            let mut cuts: Vec<_> = (1..spec.tables).map(|_| rng.below(spec.keys)).collect();
            cuts.extend([0, u64::MAX]);
            cuts.sort_unstable();
            cuts.dedup();
            for pair in cuts.windows(2) {
                let end = (pair[1] < u64::MAX).then(|| key(pair[1]));
                let range = KeyRange::new(&key(pair[0]), end.as_deref());
                let inside: Vec<_> =
                    versions.iter().filter(|it| range.holds(&it.0)).cloned().collect();
                let fragments =
                    RangeDeletes::build(deletes.clone()).clipped(&table::Bounds::from(&range));
                if let Some(input) = write(medium, TableId(id), &inside, &fragments) {
                    id += 1;
                    tables.push(input);
                }
            }
            content.runs.push(InputRun { tables });
            content.versions.append(&mut versions);
            content.range_deletes.append(&mut deletes);
        }
        content.versions.sort_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));
        content
    }

    /// A job that merges all runs.
    pub fn job(&self, readers: &[u64]) -> Job {
        let newest = self.versions.iter().map(|it| it.1.seqno().get()).max().unwrap_or(1) + 1000;
        let readers = readers.iter().chain([&newest]).map(|seqno| Seqno::new(*seqno));
        Job {
            id: 7,
            epoch: 1,
            part: 0,
            store: STORE,
            keyspace: KEYSPACE,
            inputs: self.runs.clone(),
            bounds: KeyRange::all(),
            horizon: Horizon::new(readers.collect()),
            now_ms: NOW,
            older: Vec::new(),
            output: Output {
                codec: Codec::Lz4,
                level: 0,
                dictionary: None,
                filter_bits: 8,
                layout: Layout::Sorted,
                table_bytes_max: 64 << 10,
                ids: TableId(OUTPUTS)..TableId(OUTPUTS + 1000),
            },
            operator: Some("add.1".to_owned()),
            hot: Vec::new(),
            values: Default::default(),
        }
    }
}

/// Writes a table; `None` if it would be empty.
pub fn write(
    medium: &Arc<dyn Medium>,
    table: TableId,
    versions: &[Version],
    range_deletes: &RangeDeletes,
) -> Option<Input> {
    let spec = Spec {
        store: STORE,
        table,
        keyspace: KEYSPACE,
        codec: Codec::Lz4,
        level: 0,
        dictionary: None,
        filter_bits: 8,
        layout: Layout::Sorted,
        purpose: Purpose::Flush,
        leave: table::Leave::Nothing,
    };
    let writer = Writer::create(medium, spec, &Account::unlimited("test")).unwrap();
    let mut writer = writer.summing_entries();
    for (key, trailer, value) in versions {
        writer.add(key, *trailer, value).unwrap();
    }
    for fragment in range_deletes.iter() {
        writer.add_range_delete(fragment.start, fragment.end, fragment.seqnos).unwrap();
    }
    if writer.is_empty() {
        return None;
    }
    let Summary { file_bytes, digest, .. } = writer.finish().unwrap();
    medium.sync_names(&[]).unwrap();
    Some(Input { id: table, file_bytes, digest, bounds: KeyRange::all(), seqno: None })
}

pub fn open(medium: &Arc<dyn Medium>, table: TableId) -> Arc<Table> {
    let account = Account::unlimited("test");
    Table::open(&**medium, STORE, table, None, None, Arc::new(NoDictionaries), &account).unwrap()
}

/// Every version of a table, in order.
pub fn read(table: &Arc<Table>) -> Vec<Version> {
    let (mut versions, mut supplied) = (Vec::new(), None);
    if table.properties().entries == 0 {
        return versions;
    }
    let mut cursor = TableCursor::new(Arc::clone(table));
    cursor.seek_first();
    loop {
        match cursor.step(supplied.take()).unwrap() {
            Step::Need(span) => {
                let at = u64::from(span.first) * PAGE_BYTES as u64;
                let buf = Buf::pages(span.pages as usize);
                let (buf, result) = table.file().read(at, buf, Purpose::Data);
                result.unwrap();
                let seed = PageSeed::new(STORE, table.id());
                for (number, page) in (span.first..).zip(buf.chunks_exact(PAGE_BYTES)) {
                    verify_page(seed, number, page).unwrap();
                }
                supplied = Some(Pages::Run(buf));
            }
            Step::Ready(false) => return versions,
            Step::Ready(true) => {
                let trailer = cursor.trailer().unwrap();
                versions.push((cursor.key().to_vec(), trailer, cursor.value().to_vec()));
                cursor.next();
            }
        }
    }
}

/// The sum of the entries of all inputs of `job`, which are read whole.
pub fn input_sum(job: &Job, medium: &Arc<dyn Medium>) -> u64 {
    let sums = job.pieces().map(|piece| open(medium, piece.id).properties().entry_sum);
    sums.fold(0, u64::wrapping_add)
}

/// Names and contents of all files.
pub fn files(medium: &Arc<dyn Medium>) -> Vec<(String, Bytes)> {
    let content = |name: &str, len: u64| {
        if len == 0 {
            return Bytes::new();
        }
        let file: Arc<dyn File> = medium.open(name, media::Access::Direct).unwrap();
        let (buf, result) =
            file.read(0, Buf::pages((len as usize).div_ceil(PAGE_BYTES)), Purpose::Scrub);
        result.unwrap();
        Bytes::copy_from_slice(&buf)
    };
    let list = medium.list().unwrap();
    list.into_iter().map(|it| (it.name.clone(), content(&it.name, it.len))).collect()
}

/// The ids of all tables on the medium.
pub fn ids(medium: &Arc<dyn Medium>) -> Vec<u64> {
    let names = medium.list().unwrap();
    names.iter().filter_map(|it| table::parse_file_name(&it.name)).map(|id| id.0).collect()
}
