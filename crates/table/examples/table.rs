//! Measures tables: `cargo run --release -p terrace-table --example table`.
//!
//! For each value size, with values of which half is noise, reports: fill of the data pages,
//! compressions per block, size of the metadata, speed of the writer, and the cost of a point read with
//! its pages in memory. Times are processor time of this thread; the medium is memory.

use std::hint::black_box;
use std::sync::Arc;

use arena::Frame;
use base::limits::PAGE_BYTES;
use base::{
    Account, Codec, EntryKind, KeyspaceId, PageSeed, Result, Rng, Seqno, StoreId, TableId, Trailer,
    key_hash,
};
use media::{Buf, Medium, MemoryMedium, Purpose};
use rustix::time::{ClockId, clock_gettime};
use terrace_table::{
    FILTER_BITS_DEFAULT, Layout, NoDictionaries, PAYLOAD_BYTES, Pages, PointRead, Properties, Span,
    Spec, Step, Table, TableCursor, Writer, verify_page,
};

const STORE: StoreId = StoreId(1);
const TABLE: TableId = TableId(1);
/// Raw bytes per table.
const TABLE_BYTES: u64 = 48 << 20;
const READS: u64 = 200_000;

/// Processor time of this thread, nanoseconds.
fn now() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

fn key(number: u64) -> [u8; 16] {
    let mut key = *b"0000000000000000";
    let mut rest = number;
    for digit in key.iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    key
}

/// Keys step by two, so odd numbers are missing. Seqnos are those of a shuffled fill.
fn write(codec: Codec, value_bytes: usize) -> Result<(Arc<Table>, f64)> {
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new());
    let account = Account::unlimited("example");
    let (store, table, purpose) = (STORE, TABLE, Purpose::Flush);
    let spec = Spec {
        store,
        table,
        keyspace: KeyspaceId(1),
        codec,
        level: 1,
        dictionary: None,
        filter_bits: FILTER_BITS_DEFAULT,
        layout: Layout::Sorted,
        purpose,
        leave: terrace_table::Leave::Nothing,
    };
    let mut rng = Rng::new(1);
    let entries = (TABLE_BYTES / (16 + value_bytes as u64)).min(1_000_000);
    let mut writer = Writer::create(&medium, spec, &account)?;
    let mut elapsed = 0.0;
    let mut batch = vec![(Trailer::from_word(0), vec![b'x'; value_bytes]); 1000];
    for first in (0..entries).step_by(batch.len()) {
        for (trailer, value) in &mut batch {
            *trailer = Trailer::new(Seqno::new(1 + rng.below(entries)), EntryKind::Put);
            let (noise, _) = value.split_at_mut(value_bytes / 2);
            rng.fill(noise);
        }
        let start = now();
        for (number, (trailer, value)) in (first..entries).zip(&batch) {
            writer.add(&key(2 * number), *trailer, value)?;
        }
        elapsed += now() - start;
    }
    let start = now();
    let summary = writer.finish()?;
    elapsed += now() - start;
    let table =
        Table::open(&*medium, STORE, TABLE, None, None, Arc::new(NoDictionaries), &account)?;
    Ok((table, summary.properties.raw_bytes as f64 * 1e3 / elapsed))
}

fn fetch(table: &Table, account: &Account, span: Span) -> Result<Vec<Frame>> {
    let at = u64::from(span.first) * PAGE_BYTES as u64;
    let (buf, result) = table.file().read(at, Buf::pages(span.pages as usize), Purpose::Data);
    result?;
    let (pages, _) = buf.as_chunks::<PAGE_BYTES>();
    Ok(pages.iter().map(|page| Frame::heap(account, page)).collect())
}

fn supply(frames: &[Frame]) -> Pages {
    match frames {
        [one] => Pages::Frame(one.clone()),
        many => Pages::Frames(many.to_vec()),
    }
}

/// Nanoseconds of the metadata step and of the data step of a point read, and data pages per read.
fn read(table: &Arc<Table>) -> Result<(f64, f64, f64)> {
    let account = Account::unlimited("example");
    let mut rng = Rng::new(2);
    let entries = table.properties().entries;
    // The same thousand keys repeatedly, so that pages come from memory, as on a cache hit.
    let newest = Trailer::seek(Seqno::MAX);
    let mut reads = Vec::new();
    for _ in 0..1000 {
        let key = key(2 * rng.below(entries));
        let mut read = PointRead::new(Arc::clone(table), key, key_hash(&key), newest);
        let Step::Need(meta) = read.step(None)? else { continue };
        let meta_frames = fetch(table, &account, meta)?;
        let Step::Need(data) = read.step(Some(supply(&meta_frames)))? else { continue };
        reads.push((key, meta_frames, fetch(table, &account, data)?));
    }
    let rounds = READS / reads.len() as u64;
    let (mut meta_time, mut data_time) = (0.0, 0.0);
    for _ in 0..rounds {
        for chunk in reads.chunks(50) {
            let start = now();
            let mut waiting = Vec::with_capacity(50);
            for (key, meta, _) in chunk {
                let mut read = PointRead::new(Arc::clone(table), key, key_hash(key), newest);
                read.step(None)?;
                read.step(Some(supply(meta)))?;
                waiting.push(read);
            }
            let middle = now();
            for (read, (_, _, data)) in waiting.iter_mut().zip(chunk) {
                black_box(read.step(Some(supply(data)))?);
            }
            meta_time += middle - start;
            data_time += now() - middle;
        }
    }
    let pages: usize = reads.iter().map(|(_, _, data)| data.len()).sum();
    let total = (rounds * reads.len() as u64) as f64;
    Ok((meta_time / total, data_time / total, pages as f64 / reads.len() as f64))
}

/// Nanoseconds per entry of a forward iteration, including fetching and copying pages.
fn scan(table: &Arc<Table>) -> Result<f64> {
    let account = Account::unlimited("example");
    let mut cursor = TableCursor::new(Arc::clone(table));
    let mut supplied = None;
    cursor.seek_first();
    let start = now();
    loop {
        match cursor.step(supplied.take())? {
            Step::Need(span) => supplied = Some(supply(&fetch(table, &account, span)?)),
            Step::Ready(false) => break,
            Step::Ready(true) => {
                black_box(cursor.value_bytes());
                cursor.next();
            }
        }
    }
    Ok((now() - start) / table.properties().entries as f64)
}

/// The fraction of missing keys that the filters admit.
fn false_positives(table: &Arc<Table>) -> Result<f64> {
    let account = Account::unlimited("example");
    let mut rng = Rng::new(3);
    let tries = 50_000;
    let mut through = 0;
    for _ in 0..tries {
        let key = key(2 * rng.below(table.properties().entries - 1) + 1);
        let newest = Trailer::seek(Seqno::MAX);
        let mut read = PointRead::new(Arc::clone(table), key, key_hash(&key), newest);
        if let Step::Need(meta) = read.step(None)? {
            let step = read.step(Some(supply(&fetch(table, &account, meta)?)))?;
            through += u64::from(matches!(step, Step::Need(_)));
        }
    }
    Ok(through as f64 / f64::from(tries))
}

/// Nanoseconds to verify a page.
fn verify() -> f64 {
    let (seed, mut page) = (PageSeed::new(STORE, TABLE), [7; PAGE_BYTES]);
    let (sum, covered) = page.split_at_mut(8);
    sum.copy_from_slice(&seed.checksum(1, covered).to_le_bytes());
    let start = now();
    for _ in 0..100_000 {
        black_box(verify_page(seed, 1, black_box(&page)).is_ok());
    }
    (now() - start) / 100_000.0
}

fn main() -> Result<()> {
    println!("verify_page: {:.0} ns", verify());
    println!(
        "codec value | padding  guesses/page  meta/data  B/entry  filter b/key  false+ | \
         write MB/s  meta ns  data ns  pages/get  scan ns"
    );
    for codec in [Codec::Lz4, Codec::Zstd, Codec::None] {
        for value_bytes in [16, 64, 100, 256, 400, 512, 1024, 2048, 4096] {
            let (table, rate) = write(codec, value_bytes)?;
            let properties: &Properties = table.properties();
            let (data, keys) = (properties.data_pages as f64, properties.keys as f64);
            let (meta_ns, data_ns, pages) = read(&table)?;
            println!(
                "{:5} {value_bytes:5} | {:6.2}%  {:12.3}  {:8.2}%  {:7.1}  {:12.2}  {:5.2}% | \
                 {rate:10.0}  {meta_ns:7.0}  {data_ns:7.0}  {pages:9.3}  {:7.0}",
                format!("{codec:?}"),
                100.0 * properties.padding_bytes as f64 / (data * PAYLOAD_BYTES as f64),
                properties.compressions as f64 / data,
                100.0 * properties.meta_pages as f64 / data,
                data * PAGE_BYTES as f64 / properties.entries as f64,
                8.0 * properties.filter_bytes as f64 / keys,
                100.0 * false_positives(&table)?,
                scan(&table)?,
            );
        }
    }
    Ok(())
}
