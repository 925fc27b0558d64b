//! Measures the file medium: random 4 KiB reads by depth and backend, and byte stores.
//!
//! `cargo run --release -p terrace-media --example device -- DIRECTORY [MIB] [SECONDS] [DEPTH]`
//!
//! With a DEPTH, only reads through the medium's own queue at that depth. Keeps its file, `device.read`, for
//! a run of `fio` on the same file; see docs/decisions/013.

use std::sync::Arc;
use std::time::{Duration, Instant};

use base::{Result, Rng};
use rustix::time::{ClockId, clock_gettime};
use terrace_media::{Access, Buf, File, FileMedium, FileOptions, Medium, Op, Purpose, Request};

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().unwrap_or_else(|| ".".to_owned());
    let mut number =
        |default: u64| arguments.next().map_or(Some(default), |text| text.parse().ok());
    let (Some(mib), Some(seconds)) = (number(1024), number(3)) else {
        return Err(base::Error::invalid("arguments").expected("DIRECTORY [MIB] [SECONDS] [DEPTH]"));
    };
    let depth = arguments.next().and_then(|text| text.parse().ok());
    let time = Duration::from_secs(seconds);
    let ring = FileMedium::open(&directory, FileOptions::default())?;
    if let Some(notice) = ring.notice() {
        println!("{notice}");
    }
    let pool = FileOptions { io_uring: false, ..FileOptions::default() };
    let pool = FileMedium::open(&directory, pool)?;
    prepare(&ring, mib)?;
    let pages = mib << 8;
    if let Some(depth) = depth {
        return queued(&ring, pages, depth, time);
    }
    blocking(&ring, pages, time)?;
    for medium in [&ring, &pool] {
        for depth in [1, 32] {
            queued(medium, pages, depth, time)?;
        }
    }
    stores(&ring)
}

/// Writes the file that is read, unless it exists.
fn prepare(medium: &dyn Medium, mib: u64) -> Result<()> {
    if medium.list()?.iter().any(|file| file.name == "device.read" && file.len == mib << 20) {
        return Ok(());
    }
    drop(medium.remove("device.read"));
    let file = medium.create("device.read", Access::Direct, mib << 20)?;
    let (mut rng, mut buf) = (Rng::new(1), Buf::pages(256));
    rng.fill(&mut buf);
    for at in 0..mib {
        let (back, result) = file.write(at << 20, buf, Purpose::Flush);
        result?;
        buf = back;
    }
    file.sync(Purpose::Flush)
}

/// CPU time of the process, microseconds.
fn cpu_micros() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}

fn report(what: &str, reads: u64, start: Instant, cpu: f64) {
    let seconds = start.elapsed().as_secs_f64();
    let cpu = (cpu_micros() - cpu) / reads as f64;
    println!("{what:<28} {:>9.0} reads/s {cpu:>6.2} us CPU/read", reads as f64 / seconds);
}

fn blocking(medium: &dyn Medium, pages: u64, time: Duration) -> Result<()> {
    let file = medium.open("device.read", Access::Direct)?;
    let (mut rng, mut buf, mut reads) = (Rng::new(2), Buf::pages(1), 0);
    let (start, cpu) = (Instant::now(), cpu_micros());
    while start.elapsed() < time {
        let (back, result) = file.read(rng.below(pages) * 4096, buf, Purpose::Data);
        result?;
        (buf, reads) = (back, reads + 1);
    }
    report("blocking pread", reads, start, cpu);
    Ok(())
}

fn queued(medium: &dyn Medium, pages: u64, depth: usize, time: Duration) -> Result<()> {
    let file: Arc<dyn File> = medium.open("device.read", Access::Direct)?;
    let mut queue = medium.queue(depth)?;
    let (mut rng, mut reads, mut out) = (Rng::new(3), 0, Vec::new());
    let mut bufs: Vec<Buf> = (0..depth).map(|_| Buf::pages(1)).collect();
    let (start, cpu) = (Instant::now(), cpu_micros());
    while start.elapsed() < time {
        while let Some(buf) = bufs.pop() {
            let op = Op::Read { at: rng.below(pages) * 4096, buf };
            let request = Request { file: Arc::clone(&file), op, purpose: Purpose::Data, token: 0 };
            if queue.submit(request).is_err() {
                return Err(base::Error::retry("queue is full below its depth"));
            }
        }
        queue.complete(1, &mut out)?;
        for completion in out.drain(..) {
            completion.result?;
            bufs.push(completion.buf);
            reads += 1;
        }
    }
    report(&format!("{}, depth {depth}", medium.capabilities().backend), reads, start, cpu);
    Ok(())
}

/// Sequential records of 150 bytes into a reserved file, mapped and written.
fn stores(medium: &dyn Medium) -> Result<()> {
    const LEN: u64 = 64 << 20;
    let record = [7; 150];
    drop(medium.remove("device.log"));
    let mapped = medium.create("device.log", Access::Bytes, LEN)?;
    let written = medium.open("device.log", Access::Bytes)?;
    for (what, file) in [("store, mapped", mapped), ("store, pwrite", written)] {
        let (start, cpu, count) = (Instant::now(), cpu_micros(), LEN / 150);
        for number in 0..count {
            file.store(number * 150, &record, Purpose::Log)?;
        }
        let nanos = start.elapsed().as_nanos() as f64 / count as f64;
        let cpu = (cpu_micros() - cpu) * 1e3 / count as f64;
        println!("{what:<28} {nanos:>9.0} ns       {cpu:>6.0} ns CPU per 150 B");
        let start = Instant::now();
        file.sync(Purpose::Log)?;
        println!(
            "{:<28} {:>9.1} ms for {} MiB",
            "  sync",
            start.elapsed().as_secs_f64() * 1e3,
            LEN >> 20
        );
    }
    medium.remove("device.log")
}
