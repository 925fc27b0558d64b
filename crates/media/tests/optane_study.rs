//! The measured tables of an Optane module, point by point, against the emulated one in virtual time.
//!
//! The data is the folder `graphs` of github.com/NVSL/OptaneStudy; where `TERRACE_OPTANE_DATA` does not
//! name a copy of it there is nothing to compare with, and the test says so. Every point within reach of
//! the model is compared; those that are off by more than a tenth are listed and counted, and may not
//! become more.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test")]

use std::fs;
use std::path::PathBuf;

use terrace_media::emulated::{Access, Act, Load, Model, Profile, measure};

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

fn load(threads: u32, act: Act, len: u64) -> Load {
    let write_share = if act == Act::Read { 0.0 } else { 1.0 };
    let accesses = (20_000 / threads).max(400).min(u32::try_from((1 << 28) / len).unwrap().max(50));
    Load {
        threads,
        write: act,
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

/// `04`: the columns of stores are titled the other way round in the interleaved file.
fn threads(study: &mut Study) {
    for (file, device, acts) in [
        (
            "04-bandwidth_thcount_optane_ni.csv",
            "optane-dimm",
            [Act::Read, Act::Store, Act::Flushed],
        ),
        (
            "04-bandwidth_thcount_optane.csv",
            "optane-dimm-x6",
            [Act::Read, Act::Store, Act::Flushed],
        ),
    ] {
        for (row, values) in study.table(file).rows {
            let threads = u32::try_from(number(&row)).unwrap();
            for (act, value) in acts.into_iter().zip(values) {
                let ours = gb(device, load(threads, act, 256));
                study.compare(file, &format!("{row} threads {act:?}"), value, ours);
            }
        }
    }
}

/// `05`: random, at the number of threads that gave most.
fn sizes(study: &mut Study) {
    for (file, device, best) in [
        ("05-bandwidth_accesssize_optane_ni.csv", "optane-dimm", [4, 1, 2]),
        ("05-bandwidth_accesssize_optane.csv", "optane-dimm-x6", [24, 4, 12]),
    ] {
        for (row, values) in study.table(file).rows {
            for ((act, threads), value) in
                [Act::Read, Act::Store, Act::Flushed].into_iter().zip(best).zip(values)
            {
                let random = Load { is_sequential: false, ..load(threads, act, number(&row)) };
                let ours = gb(device, random);
                study.compare(file, &format!("{row} B {act:?}"), value, ours);
            }
        }
    }
}

/// `02`: the Optane column.
fn latencies(study: &mut Study) {
    let file = "02-best_case_latency.csv";
    let lone = |act, is_sequential| {
        let load = Load { is_dependent: true, is_sequential, ..load(1, act, 64) };
        measure(profile("optane-dimm"), &load).quantile_ns(0.5)
    };
    let ours = [
        lone(Act::Read, true),
        lone(Act::Read, false),
        lone(Act::Store, true),
        lone(Act::Flushed, true),
    ];
    for ((row, values), ours) in study.table(file).rows.into_iter().zip(ours) {
        study.compare(file, &row, values[2], ours);
    }
}

/// `03`: a writer goes through a small region over and over; times of the 99.99th and 99.999th part, and
/// the longest.
fn tails(study: &mut Study) {
    let file = "03-tail_latency.csv";
    for (row, values) in study.table(file).rows {
        let load = Load {
            is_dependent: true,
            accesses: 3_000_000,
            span: number(&row),
            ..load(1, Act::Store, 256)
        };
        let ours = measure(profile("optane-dimm"), &load);
        let quantiles = [0.9999, 0.99999, 1.0].map(|part| ours.quantile_ns(part) / 1000.0);
        for ((name, value), ours) in ["99.99", "99.999", "most"].iter().zip(values).zip(quantiles) {
            study.compare(file, &format!("{row} B {name}"), value, ours);
        }
    }
}

/// `06`: how long a read takes while others write as much as the table says.
fn loaded(study: &mut Study) {
    let file = "06-bandwidth_seqwrite_latency.csv";
    for (row, values) in study.table(file).rows {
        let (latency, bandwidth) = (values[4], values[5]);
        let mut model = Model::new(profile("optane-dimm-x6"));
        let write = |at| Access { act: Act::Store, at, len: 256, is_fenced: false };
        let (mut now, mut at, mut sum, mut reads) = (0.0, 0, 0.0, 0);
        for step in 0..20_000_u32 {
            model.access(now, step % 4, write(at));
            at += 256;
            now += 256.0 / bandwidth;
            if step % 512 == 511 {
                // The model's own clock: what one read in so many writes takes by itself.
                let mut copy = Model::new(profile("optane-dimm-x6"));
                std::mem::swap(&mut copy, &mut model);
                let access = Access { act: Act::Read, at: 1 << 40, len: 64, is_fenced: false };
                let before = copy.queued(now);
                sum += copy.access(now, 9, access).done - now - before;
                reads += 1;
                model = copy;
            }
        }
        // At rest the table's reads are sequential.
        let ours = sum / f64::from(reads) * 164.0 / 305.0;
        study.compare(file, &row, latency, ours);
    }
}

/// `09`: halves of units, all of a region, then the other halves.
fn combining(study: &mut Study) {
    let file = "09-infer_xpbuffer.csv";
    for (row, values) in study.table(file).rows {
        let units = number(&row) / 256;
        let mut model = Model::new(profile("optane-dimm"));
        let rounds = (100_000 / units).max(8) * 2;
        let mut now = 0.0;
        for round in 0..rounds {
            for unit in 0..units {
                // New units each time, or leftovers would meet the other half.
                let at = (round / 2 * units + unit) * 256 + round % 2 * 128;
                let access = Access { act: Act::Store, at, len: 128, is_fenced: false };
                now = model.access(now, 0, access).next;
            }
        }
        let ours = model.units_written() as f64 / (units * rounds) as f64 * 2.0;
        study.compare(file, &format!("{row} B"), values[0], ours);
    }
}

/// `12` and `13`: a fence behind each write.
fn fences(study: &mut Study) {
    let file = "12-flush_instr_lat.csv";
    for (row, values) in study.table(file).rows {
        for (act, value) in [Act::Store, Act::Flushed].into_iter().zip(values) {
            let mut model = Model::new(profile("optane-dimm"));
            let access = Access { act, at: 0, len: number(&row), is_fenced: true };
            study.compare(
                file,
                &format!("{row} B {act:?}"),
                value,
                model.access(0.0, 0, access).done,
            );
        }
    }
    let file = "12-flush_instr_bw.csv";
    for (row, values) in study.table(file).rows {
        for (act, value) in [Act::Store, Act::Flushed].into_iter().zip(values) {
            // Six threads, each with a module of its own.
            let load = Load { is_fenced: true, ..load(1, act, number(&row)) };
            study.compare(file, &format!("{row} B {act:?}"), value, 6.0 * gb("optane-dimm", load));
        }
    }
    let file = "13-sfence_interval.csv";
    for (row, values) in study.table(file).rows {
        let acts = [Act::Flushed, Act::Flushed, Act::Store];
        for ((act, value), column) in acts.into_iter().zip(values).zip(0..) {
            let load = Load { is_fenced: true, ..load(1, act, number(&row)) };
            study.compare(
                file,
                &format!("{row} B {act:?} {column}"),
                value,
                gb("optane-dimm", load),
            );
        }
    }
}

/// `17`, the local columns: what a mix gives over what reads and writes give one after the other, since
/// its pure rates are another set-up's than those of `04`.
fn mixes(study: &mut Study) {
    let file = "17-numa.csv";
    let rows = study.table(file).rows;
    for (column, threads) in [(0, 1), (2, 4)] {
        let (reads, writes) = (rows[0].1[column], rows[5].1[column]);
        let base =
            |share: f64, reads: f64, writes: f64| 1.0 / ((1.0 - share) / reads + share / writes);
        let device = "optane-dimm-x6";
        let own = |share: f64| {
            let load =
                Load { write_share: share, accesses: 20_000, ..load(threads, Act::Store, 256) };
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

/// Points that no curve of the model goes through.
const FAR_MAX: usize = 11;
