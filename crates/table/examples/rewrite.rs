//! Measures what a merge does to each entry:
//! `cargo run --release -p terrace-table --example rewrite [-- VALUE_BYTES]`.
//!
//! A table of 16-byte keys and values half of which is noise is read from end to end and written
//! again: entry by entry, and block by block as they are. Also each half of the first alone. Raw
//! megabytes for each second of processor time of this thread; the medium is memory.

use std::sync::Arc;

use base::limits::PAGE_BYTES;
use base::{Account, Codec, EntryKind, KeyspaceId, Result, Rng, Seqno, StoreId, TableId, Trailer};
use media::{Buf, Medium, MemoryMedium, Purpose};
use rustix::time::{ClockId, clock_gettime};
use terrace_table::{
    FILTER_BITS_DEFAULT, NoDictionaries, Pages, Spec, Step, Summary, Table, TableCursor, Writer,
    verify_page,
};

const STORE: StoreId = StoreId(1);
const TABLE_BYTES: u64 = 96 << 20;
const ROUNDS: usize = 3;

/// Processor time of this thread, seconds.
fn now() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// A table in memory.
struct Written {
    table: Arc<Table>,
}

fn write(
    id: u64,
    codec: Codec,
    fill: impl FnOnce(&mut Writer) -> Result<()>,
) -> Result<(Written, Summary)> {
    let (medium, account) = (Arc::new(MemoryMedium::new()), Account::unlimited("rewrite"));
    let medium: Arc<dyn Medium> = medium;
    let spec = Spec {
        store: STORE,
        table: TableId(id),
        keyspace: KeyspaceId(1),
        codec,
        level: 1,
        dictionary: None,
        filter_bits: FILTER_BITS_DEFAULT,
        purpose: Purpose::Compaction,
    };
    let mut writer = Writer::create(&medium, spec, &account)?;
    fill(&mut writer)?;
    let summary = writer.finish()?;
    let dictionaries = Arc::new(NoDictionaries);
    let table = Table::open(&*medium, STORE, TableId(id), None, None, dictionaries, &account)?;
    Ok((Written { table }, summary))
}

fn source(codec: Codec, value_bytes: usize) -> Result<Written> {
    let mut rng = Rng::new(7);
    let mut value = vec![b'.'; value_bytes];
    let (written, _) = write(1, codec, |writer| {
        for number in 0..TABLE_BYTES / (16 + value_bytes as u64) {
            let key = format!("{number:016}");
            rng.fill(value.get_mut(..value_bytes / 2).unwrap_or_default());
            let seqno = Seqno::new(1_000_000 + rng.below(1 << 20));
            writer.add(key.as_bytes(), Trailer::new(seqno, EntryKind::Put), &value)?;
        }
        Ok(())
    })?;
    Ok(written)
}

/// Steps a cursor, reading a mebibyte at once as a merge does, and verifying each page.
struct Reader<'a> {
    written: &'a Written,
    ahead: Buf,
    first: u32,
}

impl Reader<'_> {
    const AHEAD_PAGES: u32 = 256;

    fn pages(&mut self, first: u32, pages: u32) -> Result<Buf> {
        let held = (self.ahead.len() / PAGE_BYTES) as u32;
        if first < self.first || first + pages > self.first + held {
            let table = &self.written.table;
            let count = Self::AHEAD_PAGES.min(table.footer().pages - first).max(pages);
            let buf = Buf::pages(count as usize);
            let (buf, result) =
                table.file().read(u64::from(first) * PAGE_BYTES as u64, buf, Purpose::Compaction);
            result?;
            (self.ahead, self.first) = (buf, first);
        }
        let mut out = Buf::pages(pages as usize);
        let at = (first - self.first) as usize * PAGE_BYTES;
        let from = self.ahead.get(at..at + out.len()).unwrap_or_default();
        out.copy_from_slice(from);
        for (number, page) in (first..).zip(out.chunks(PAGE_BYTES)) {
            verify_page(self.written.table.seed(), number, page)?;
        }
        Ok(out)
    }

    fn step(&mut self, cursor: &mut TableCursor) -> Result<bool> {
        let mut supplied = None;
        loop {
            match cursor.step(supplied.take())? {
                Step::Ready(valid) => return Ok(valid),
                Step::Need(span) => {
                    supplied = Some(Pages::Run(self.pages(span.first, span.pages)?));
                }
            }
        }
    }
}

fn reader(written: &Written) -> Reader<'_> {
    Reader { written, ahead: Buf::pages(1), first: u32::MAX / 2 }
}

fn scan(written: &Written) -> Result<u64> {
    let mut cursor = TableCursor::new(Arc::clone(&written.table));
    let mut reader = reader(written);
    let mut bytes = 0;
    cursor.seek_first();
    while reader.step(&mut cursor)? {
        bytes += (cursor.key().len() + cursor.value_bytes().len()) as u64;
        cursor.next();
    }
    Ok(bytes)
}

fn rewrite(written: &Written, codec: Codec) -> Result<Summary> {
    let (_, summary) = write(2, codec, |writer| {
        let mut cursor = TableCursor::new(Arc::clone(&written.table));
        let mut reader = reader(written);
        cursor.seek_first();
        while reader.step(&mut cursor)? {
            if let Some(trailer) = cursor.trailer() {
                writer.add(cursor.key(), trailer, cursor.value_bytes())?;
            }
            cursor.next();
        }
        Ok(())
    })?;
    Ok(summary)
}

/// Adds the same entry over and over: what the writer alone takes.
fn write_only(written: &Written, codec: Codec, value_bytes: usize) -> Result<Summary> {
    let mut rng = Rng::new(7);
    let noise: Vec<u8> = (0..1 << 20).map(|_| rng.next_u64() as u8).collect();
    let mut value = vec![b'.'; value_bytes];
    let mut key = *b"0000000000000000";
    let (_, summary) = write(3, codec, |writer| {
        for number in 0..written.table.properties().entries {
            let at = (number as usize * 191) % (noise.len() - value_bytes);
            let half = noise.get(at..at + value_bytes / 2).unwrap_or_default();
            value.get_mut(..half.len()).unwrap_or_default().copy_from_slice(half);
            let mut rest = number;
            for digit in key.iter_mut().rev() {
                *digit = b'0' + (rest % 10) as u8;
                rest /= 10;
            }
            let seqno = Seqno::new(1_000_000 + (number * 7919) % (1 << 20));
            writer.add(&key, Trailer::new(seqno, EntryKind::Put), &value)?;
        }
        Ok(())
    })?;
    Ok(summary)
}

fn pass(written: &Written, codec: Codec) -> Result<Summary> {
    let (_, summary) = write(4, codec, |writer| {
        let mut cursor = TableCursor::new(Arc::clone(&written.table));
        cursor.keep_stored(true);
        let mut reader = reader(written);
        cursor.seek_first();
        while reader.step(&mut cursor)? {
            match cursor.raw_block()? {
                Some(block) if writer.accepts(block) => writer.add_block(block)?,
                _ => println!("a block that cannot be passed"),
            }
            cursor.next_block();
        }
        Ok(())
    })?;
    Ok(summary)
}

/// The best of some rounds, in megabytes for each second.
fn best<T>(bytes: u64, mut work: impl FnMut() -> Result<T>) -> Result<f64> {
    let mut best = f64::MAX;
    for _ in 0..ROUNDS {
        let start = now();
        work()?;
        best = best.min(now() - start);
    }
    Ok(bytes as f64 / best / 1e6)
}

fn main() -> Result<()> {
    let value_bytes = std::env::args().nth(1).and_then(|it| it.parse().ok()).unwrap_or(400);
    let only = std::env::args().nth(2);
    println!("{value_bytes} B values, raw MB per second of processor time");
    for codec in [Codec::None, Codec::Lz4] {
        let written = source(codec, value_bytes)?;
        let bytes = scan(&written)?;
        let run = |name: &str| only.as_deref().is_none_or(|only| only == name);
        if run("scan") {
            println!("{codec:?}: scan {:.0}", best(bytes, || scan(&written))?);
        }
        if run("write") {
            let write = best(bytes, || write_only(&written, codec, value_bytes))?;
            println!("{codec:?}: write {write:.0}");
        }
        if run("rewrite") {
            println!("{codec:?}: rewrite {:.0}", best(bytes, || rewrite(&written, codec))?);
        }
        if run("pass") {
            let passed = pass(&written, codec)?;
            let again = &written.table.properties();
            println!(
                "{codec:?}: pass {:.0}, {} data pages of {}",
                best(bytes, || pass(&written, codec))?,
                passed.properties.data_pages,
                again.data_pages
            );
        }
    }
    Ok(())
}
