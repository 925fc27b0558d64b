//! The measured tables of an Optane module, point by point, against the emulated module in virtual time.
//!
//! The data is the folder `graphs` of github.com/NVSL/OptaneStudy. Without a copy of it, named by
//! `TERRACE_OPTANE_DATA`, there is nothing to compare with, and the test says so. Every point within the
//! range of the model is compared; points that differ by more than a tenth are listed and counted, and their
//! number may not grow.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test")]

use std::fs;
use std::path::PathBuf;

use terrace_media::emulated::{Access, AccessKind, Load, Model, Profile, measure};

const TOLERANCE: f64 = 0.10;

struct Table {
    rows: Vec<(String, Vec<f64>)>,
}

struct Study {
    folder: PathBuf,
    points: usize,
    near: usize,
    far: Vec<String>,
}

impl Study {
    fn table(&self, name: &str) -> Table {
        let text = fs::read_to_string(self.folder.join(name)).unwrap();
        let row = |line: &str| {
            let mut cells = line.split(',');
            let name = cells.next()?.trim().to_owned();
            Some((name, cells.filter_map(|cell| cell.trim().parse().ok()).collect()))
        };
        Table { rows: text.lines().skip(1).filter_map(row).collect() }
    }

    fn compare(&mut self, what: &str, row: &str, measured: f64, ours: f64) {
        self.points += 1;
        let off = ours / measured - 1.0;
        if off.abs() <= TOLERANCE {
            self.near += 1;
        } else {
            self.far.push(format!(
                "{what} {row}: {measured:.3} measured, {ours:.3} ours ({:+.0} %)",
                off * 100.0
            ));
        }
    }
}

fn profile(name: &str) -> &'static Profile {
    Profile::named(name).unwrap()
}

fn load(threads: u32, kind: AccessKind, len: u64) -> Load {
    let write_share = if kind == AccessKind::Read { 0.0 } else { 1.0 };
    let accesses = (20_000 / threads).max(400).min(u32::try_from((1 << 28) / len).unwrap().max(50));
    Load {
        threads,
        write: kind,
        write_share,
        len,
        is_sequential: true,
        is_fenced: false,
        is_dependent: false,
        accesses,
        span: 1 << 32,
    }
}

fn gb(device: &str, load: Load) -> f64 {
    measure(profile(device), &load).gb_per_second
}

fn number(text: &str) -> u64 {
    text.parse().unwrap()
}

/// `04`: in the interleaved file the titles of the store columns are exchanged.
fn threads(study: &mut Study) {
    for (file, device, acts) in [
        (
            "04-bandwidth_thcount_optane_ni.csv",
            "optane-dimm",
            [AccessKind::Read, AccessKind::Store, AccessKind::Flushed],
        ),
        (
            "04-bandwidth_thcount_optane.csv",
            "optane-dimm-x6",
            [AccessKind::Read, AccessKind::Store, AccessKind::Flushed],
        ),
    ] {
        for (row, values) in study.table(file).rows {
            let threads = u32::try_from(number(&row)).unwrap();
            for (kind, value) in acts.into_iter().zip(values) {
                let ours = gb(device, load(threads, kind, 256));
                study.compare(file, &format!("{row} threads {kind:?}"), value, ours);
            }
        }
    }
}

/// `05`: random accesses, at the number of threads with the greatest bandwidth.
fn sizes(study: &mut Study) {
    for (file, device, best) in [
        ("05-bandwidth_accesssize_optane_ni.csv", "optane-dimm", [4, 1, 2]),
        ("05-bandwidth_accesssize_optane.csv", "optane-dimm-x6", [24, 4, 12]),
    ] {
        for (row, values) in study.table(file).rows {
            for ((kind, threads), value) in
                [AccessKind::Read, AccessKind::Store, AccessKind::Flushed]
                    .into_iter()
                    .zip(best)
                    .zip(values)
            {
                let random = Load { is_sequential: false, ..load(threads, kind, number(&row)) };
                let ours = gb(device, random);
                study.compare(file, &format!("{row} B {kind:?}"), value, ours);
            }
        }
    }
}

/// `02`: the Optane column.
fn latencies(study: &mut Study) {
    let file = "02-best_case_latency.csv";
    let lone = |kind, is_sequential| {
        let load = Load { is_dependent: true, is_sequential, ..load(1, kind, 64) };
        measure(profile("optane-dimm"), &load).quantile_ns(0.5)
    };
    let ours = [
        lone(AccessKind::Read, true),
        lone(AccessKind::Read, false),
        lone(AccessKind::Store, true),
        lone(AccessKind::Flushed, true),
    ];
    for ((row, values), ours) in study.table(file).rows.into_iter().zip(ours) {
        study.compare(file, &row, values[2], ours);
    }
}

/// `03`: a writer rewrites a small region; latencies at the 99.99th and 99.999th percentile, and the
/// longest.
fn tails(study: &mut Study) {
    let file = "03-tail_latency.csv";
    for (row, values) in study.table(file).rows {
        let load = Load {
            is_dependent: true,
            accesses: 3_000_000,
            span: number(&row),
            ..load(1, AccessKind::Store, 256)
        };
        let ours = measure(profile("optane-dimm"), &load);
        let quantiles = [0.9999, 0.99999, 1.0].map(|part| ours.quantile_ns(part) / 1000.0);
        for ((name, value), ours) in ["99.99", "99.999", "most"].iter().zip(values).zip(quantiles) {
            study.compare(file, &format!("{row} B {name}"), value, ours);
        }
    }
}

/// `06`: the latency of a read while others write as much as the table says.
fn loaded(study: &mut Study) {
    let file = "06-bandwidth_seqwrite_latency.csv";
    for (row, values) in study.table(file).rows {
        let (latency, bandwidth) = (values[4], values[5]);
        let mut model = Model::new(profile("optane-dimm-x6"));
        let write = |at| Access { kind: AccessKind::Store, at, len: 256, is_fenced: false };
        let (mut now, mut at, mut sum, mut reads) = (0.0, 0, 0.0, 0);
        for step in 0..20_000_u32 {
            model.access(now, step % 4, write(at));
            at += 256;
            now += 256.0 / bandwidth;
            if step % 512 == 511 {
                // The model's own clock: the time that one read in so many writes takes by itself.
                let mut copy = Model::new(profile("optane-dimm-x6"));
                std::mem::swap(&mut copy, &mut model);
                let access =
                    Access { kind: AccessKind::Read, at: 1 << 40, len: 64, is_fenced: false };
                let before = copy.queued(now);
                sum += copy.access(now, 9, access).done - now - before;
                reads += 1;
                model = copy;
            }
        }
        // On an idle device the table's reads are sequential.
        let ours = sum / f64::from(reads) * 164.0 / 305.0;
        study.compare(file, &row, latency, ours);
    }
}

/// `09`: first halves of all units of a region, then the second halves.
fn combining(study: &mut Study) {
    let file = "09-infer_xpbuffer.csv";
    for (row, values) in study.table(file).rows {
        let units = number(&row) / 256;
        let mut model = Model::new(profile("optane-dimm"));
        let rounds = (100_000 / units).max(8) * 2;
        let mut now = 0.0;
        for round in 0..rounds {
            for unit in 0..units {
                // New units each time, so that no leftover completes another half.
                let at = (round / 2 * units + unit) * 256 + round % 2 * 128;
                let access = Access { kind: AccessKind::Store, at, len: 128, is_fenced: false };
                now = model.access(now, 0, access).next;
            }
        }
        let ours = model.units_written() as f64 / (units * rounds) as f64 * 2.0;
        study.compare(file, &format!("{row} B"), values[0], ours);
    }
}

/// `12` and `13`: a fence after each write.
fn fences(study: &mut Study) {
    let file = "12-flush_instr_lat.csv";
    for (row, values) in study.table(file).rows {
        for (kind, value) in [AccessKind::Store, AccessKind::Flushed].into_iter().zip(values) {
            let mut model = Model::new(profile("optane-dimm"));
            let access = Access { kind, at: 0, len: number(&row), is_fenced: true };
            study.compare(
                file,
                &format!("{row} B {kind:?}"),
                value,
                model.access(0.0, 0, access).done,
            );
        }
    }
    let file = "12-flush_instr_bw.csv";
    for (row, values) in study.table(file).rows {
        for (kind, value) in [AccessKind::Store, AccessKind::Flushed].into_iter().zip(values) {
            // Six threads, each with its own module.
            let load = Load { is_fenced: true, ..load(1, kind, number(&row)) };
            study.compare(file, &format!("{row} B {kind:?}"), value, 6.0 * gb("optane-dimm", load));
        }
    }
    let file = "13-sfence_interval.csv";
    for (row, values) in study.table(file).rows {
        let acts = [AccessKind::Flushed, AccessKind::Flushed, AccessKind::Store];
        for ((kind, value), column) in acts.into_iter().zip(values).zip(0..) {
            let load = Load { is_fenced: true, ..load(1, kind, number(&row)) };
            study.compare(
                file,
                &format!("{row} B {kind:?} {column}"),
                value,
                gb("optane-dimm", load),
            );
        }
    }
}

/// `17`, the local columns: the bandwidth of a mix relative to running reads and writes one after the other;
/// its pure rates come from another set-up than those of `04`.
fn mixes(study: &mut Study) {
    let file = "17-numa.csv";
    let rows = study.table(file).rows;
    for (column, threads) in [(0, 1), (2, 4)] {
        let (reads, writes) = (rows[0].1[column], rows[5].1[column]);
        let base =
            |share: f64, reads: f64, writes: f64| 1.0 / ((1.0 - share) / reads + share / writes);
        let device = "optane-dimm-x6";
        let own = |share: f64| {
            let load = Load {
                write_share: share,
                accesses: 20_000,
                ..load(threads, AccessKind::Store, 256)
            };
            gb(device, load)
        };
        let (own_reads, own_writes) = (own(0.0), own(1.0));
        for (row, share) in [(1, 0.2), (2, 0.25), (3, 1.0 / 3.0), (4, 0.5)] {
            let value = rows[row].1[column] / base(share, reads, writes);
            let ours = own(share) / base(share, own_reads, own_writes);
            study.compare(file, &format!("{} at {threads} threads", rows[row].0), value, ours);
        }
    }
}

#[test]
fn the_emulated_module_has_the_tables_of_the_study() {
    let Some(folder) = std::env::var_os("TERRACE_OPTANE_DATA") else {
        eprintln!("skipped: TERRACE_OPTANE_DATA names no copy of OptaneStudy's graphs");
        return;
    };
    let mut study = Study { folder: folder.into(), points: 0, near: 0, far: Vec::new() };
    for part in [threads, sizes, latencies, tails, loaded, combining, fences, mixes] {
        part(&mut study);
    }
    println!("{} of {} points within 10 %", study.near, study.points);
    for line in &study.far {
        println!("  {line}");
    }
    assert!(study.far.len() <= FAR_MAX, "{} points are off", study.far.len());
}

/// Points that no curve of the model can match.
const FAR_MAX: usize = 11;
