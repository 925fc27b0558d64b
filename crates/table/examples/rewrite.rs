//! Measures the work of a merge per entry: `cargo run --release -p terrace-table --example rewrite [--
//! VALUE_BYTES]`.
//!
//! Reads a table of 16-byte keys, with values of which half is noise, from end to end and writes it
//! again: entry by entry, and block by block unchanged. Also measures the read and the write of the
//! first kind alone. Reports raw megabytes per second of processor time of this thread. Pages are in
//! memory and written pages are discarded, so device and kernel time do not count.

use std::any::Any;
use std::sync::Arc;

use arena::Frame;
use base::limits::PAGE_BYTES;
use base::{
    Account, Codec, EntryKind, Error, KeyspaceId, Result, Rng, Seqno, StoreId, TableId, Trailer,
};
use media::{
    Access, Buf, Capabilities, Completion, File, Listing, Medium, MemoryMedium, Purpose, Queue,
    Refused, Request, Space,
};
use rustix::time::{ClockId, clock_gettime};
use terrace_table::{
    FILTER_BITS_DEFAULT, Layout, NoDictionaries, Pages, Spec, Step, Summary, Table, TableCursor,
    Writer, verify_page,
};

const STORE: StoreId = StoreId(1);
const TABLE: TableId = TableId(1);
const TABLE_BYTES: u64 = 96 << 20;
const ROUNDS: usize = 3;

/// Processor time of this thread, seconds.
fn now() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// A table with all pages in memory.
struct Written {
    table: Arc<Table>,
    frames: Vec<Frame>,
}

/// A device that discards all writes.
#[derive(Debug)]
struct Sink;

struct SinkQueue(Vec<Completion>);

impl Queue for SinkQueue {
    fn submit(&mut self, request: Request) -> std::result::Result<(), Refused> {
        let Request { op, token, .. } = request;
        self.0.push(Completion { token, buf: op.into_buf(), result: Ok(()) });
        Ok(())
    }

    fn complete(&mut self, _: usize, out: &mut Vec<Completion>) -> Result<()> {
        out.append(&mut self.0);
        Ok(())
    }

    fn in_flight(&self) -> usize {
        self.0.len()
    }

    fn depth(&self) -> usize {
        8
    }
}

impl File for Sink {
    fn name(&self) -> &str {
        "sink"
    }

    fn size(&self) -> Result<u64> {
        Ok(0)
    }

    fn read(&self, _: u64, buf: Buf, _: Purpose) -> (Buf, Result<()>) {
        (buf, Err(Error::corrupt("a sink")))
    }

    fn write(&self, _: u64, buf: Buf, _: Purpose) -> (Buf, Result<()>) {
        (buf, Ok(()))
    }

    fn store(&self, _: u64, _: &[u8], _: Purpose) -> Result<()> {
        Ok(())
    }

    fn sync(&self, _: Purpose) -> Result<()> {
        Ok(())
    }

    fn set_len(&self, _: u64) -> Result<()> {
        Ok(())
    }

    fn undecorated(&self) -> &dyn Any {
        self
    }
}

impl Medium for Sink {
    fn capabilities(&self) -> Capabilities {
        MemoryMedium::new().capabilities()
    }

    fn create(&self, _: &str, _: Access, _: u64) -> Result<Arc<dyn File>> {
        Ok(Arc::new(Self))
    }

    fn open(&self, _: &str, _: Access) -> Result<Arc<dyn File>> {
        Err(Error::corrupt("a sink"))
    }

    fn remove(&self, _: &str) -> Result<()> {
        Ok(())
    }

    fn rename(&self, _: &str, _: &str) -> Result<()> {
        Ok(())
    }

    fn link(&self, _: &str, _: &dyn Medium) -> Result<bool> {
        Ok(false)
    }

    fn list(&self) -> Result<Vec<Listing>> {
        Ok(Vec::new())
    }

    fn space(&self) -> Result<Option<Space>> {
        Ok(None)
    }

    fn sync_names(&self, _names: &[&str]) -> Result<()> {
        Ok(())
    }

    fn lock(&self) -> Result<Box<dyn Any + Send + Sync>> {
        Ok(Box::new(()))
    }

    fn queue(&self, _: usize) -> Result<Box<dyn Queue>> {
        Ok(Box::new(SinkQueue(Vec::new())))
    }

    fn undecorated(&self) -> &dyn Any {
        self
    }
}

fn write(
    medium: &Arc<dyn Medium>,
    codec: Codec,
    fill: impl FnOnce(&mut Writer) -> Result<()>,
) -> Result<Summary> {
    let account = Account::unlimited("rewrite");
    let spec = Spec {
        store: STORE,
        table: TABLE,
        keyspace: KeyspaceId(1),
        codec,
        level: 1,
        dictionary: None,
        filter_bits: FILTER_BITS_DEFAULT,
        layout: Layout::Sorted,
        purpose: Purpose::Compaction,
        leave: terrace_table::Leave::Nothing,
    };
    let mut writer = Writer::create(medium, spec, &account)?;
    fill(&mut writer)?;
    writer.finish()
}

fn source(codec: Codec, value_bytes: usize) -> Result<Written> {
    let mut rng = Rng::new(7);
    let mut value = vec![b'.'; value_bytes];
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new());
    write(&medium, codec, |writer| {
        for number in 0..TABLE_BYTES / (16 + value_bytes as u64) {
            let key = format!("{number:016}");
            rng.fill(value.get_mut(..value_bytes / 2).unwrap_or_default());
            let seqno = Seqno::new(1_000_000 + rng.below(1 << 20));
            writer.add(key.as_bytes(), Trailer::new(seqno, EntryKind::Put), &value)?;
        }
        Ok(())
    })?;
    let account = Account::unlimited("rewrite");
    let dictionaries = Arc::new(NoDictionaries);
    let table = Table::open(&*medium, STORE, TABLE, None, None, dictionaries, &account)?;
    let mut frames = Vec::new();
    for page in 0..table.footer().pages {
        let (at, buf) = (u64::from(page) * PAGE_BYTES as u64, Buf::pages(1));
        let (buf, result) = table.file().read(at, buf, Purpose::Data);
        result?;
        frames.extend(buf.as_array().map(|page| Frame::heap(&account, page)));
    }
    Ok(Written { table, frames })
}

/// Steps a cursor, and verifies each page as a merge does.
fn step(written: &Written, cursor: &mut TableCursor) -> Result<bool> {
    let mut supplied = None;
    loop {
        match cursor.step(supplied.take())? {
            Step::Ready(valid) => return Ok(valid),
            Step::Need(span) => {
                let range = span.first as usize..(span.first + span.pages) as usize;
                let frames = written.frames.get(range).unwrap_or_default();
                for (number, page) in (span.first..).zip(frames) {
                    verify_page(written.table.seed(), number, page)?;
                }
                supplied = Some(match frames {
                    [one] => Pages::Frame(one.clone()),
                    many => Pages::Frames(many.to_vec()),
                });
            }
        }
    }
}

fn scan(written: &Written) -> Result<u64> {
    let mut cursor = TableCursor::new(Arc::clone(&written.table));
    let mut bytes = 0;
    cursor.seek_first();
    while step(written, &mut cursor)? {
        bytes += (cursor.key().len() + cursor.value_bytes().len()) as u64;
        cursor.next();
    }
    Ok(bytes)
}

fn rewrite(written: &Written, codec: Codec) -> Result<Summary> {
    write(&sink(), codec, |writer| {
        let mut cursor = TableCursor::new(Arc::clone(&written.table));
        cursor.seek_first();
        while step(written, &mut cursor)? {
            if let Some(trailer) = cursor.trailer() {
                writer.add(cursor.key(), trailer, cursor.value_bytes())?;
            }
            cursor.next();
        }
        Ok(())
    })
}

fn sink() -> Arc<dyn Medium> {
    Arc::new(Sink)
}

/// Adds generated entries: the cost of the writer alone.
fn write_only(written: &Written, codec: Codec, value_bytes: usize) -> Result<Summary> {
    let mut rng = Rng::new(7);
    let noise: Vec<u8> = (0..1 << 20).map(|_| rng.next_u64() as u8).collect();
    let mut value = vec![b'.'; value_bytes];
    let mut key = *b"0000000000000000";
    write(&sink(), codec, |writer| {
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
    })
}

fn pass(written: &Written, codec: Codec) -> Result<Summary> {
    write(&sink(), codec, |writer| {
        let mut cursor = TableCursor::new(Arc::clone(&written.table));
        cursor.keep_stored(true);
        cursor.seek_first();
        while step(written, &mut cursor)? {
            match cursor.raw_block()? {
                Some(block) if writer.accepts(block) => writer.add_block(block)?,
                _ => println!("a block that cannot be copied"),
            }
            cursor.next_block();
        }
        Ok(())
    })
}

/// The best of several rounds, in megabytes per second.
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
