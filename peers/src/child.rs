//! Runs one case on one store in a process of its own, so that its memory and processor time can be measured.
//!
//! The process prints one line of JSON for the options, and one for each measured step.

use std::path::Path;
use std::thread;
use std::time::Duration;

use base::{Error, Result};
use serde::{Deserialize, Serialize};
use workload::bench::Name;
use workload::cases::{Case, Progress, Scale};
use workload::{WanFigures, run_wan_on};

use crate::device;
use crate::measured::Measured;
use crate::stores::{Kind, Setup};

/// A message from a child to its parent, one line each.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Line {
    /// The options of the store.
    Options(Vec<String>),
    /// The report of a step, with its label.
    Step(String, Box<Measured>),
}

/// The task of a child.
#[derive(Clone, Debug)]
pub(crate) struct Task {
    /// The case.
    pub(crate) case: &'static Case,
    /// The store.
    pub(crate) kind: Kind,
    /// The scale.
    pub(crate) scale: Scale,
    /// The seed of the keys.
    pub(crate) seed: u64,
    /// Whether to make the case's kept load instead of running the case.
    pub(crate) is_load: bool,
}

/// Time between the last step and the measurement of space, in which the store removes obsolete files.
const SPACE_AFTER: Duration = Duration::from_secs(3);

/// The shortest second of a timeline.
const SECOND_MIN: f64 = 0.5;

/// Performs the task in `dir`.
pub(crate) fn run(task: &Task, dir: &Path) -> Result<()> {
    let Task { case, kind, scale, seed, is_load } = task;
    let (data_bytes, memory) = (case.data_bytes(*scale), case.memory(*scale, kind.is_own()));
    let memory_bytes = if *is_load { kind.load_memory(memory, data_bytes) } else { memory };
    let setup = Setup {
        dir,
        memory_bytes,
        data_bytes,
        entry_bytes: data_bytes / case.keys(*scale),
        compression: case.compression,
    };
    std::fs::create_dir_all(dir).map_err(|error| Error::io("create", dir.display(), error))?;
    if *is_load {
        let opened = kind.open(&setup)?;
        return case.load(&*opened.store, *scale, *seed).map(drop);
    }
    let mut opens = 0;
    let mut open = || {
        // The first open follows what the parent did for the whole run.
        if opens > 0 || case.begins_cold() {
            device::empty_page_cache();
        }
        opens += 1;
        let opened = kind.open(&setup)?;
        print(&Line::Options(opened.options))?;
        Ok(opened.store)
    };
    if let Some(options) = case.wan_options(*scale, *seed) {
        let store = open()?;
        let reads = device::reads(dir);
        let wan = run_wan_on(&*store, &options)?;
        let reads = device::reads(dir).saturating_sub(reads);
        let measured = Measured::of_wan(&wan, reads, device::space(dir));
        let WanFigures { insert_us, miss_us, evicted, megabits_per_second, inserts_alone, .. } =
            wan;
        eprintln!(
            "{:<13} {megabits_per_second:.0} Mbit/s, insert mean {:.2} us, miss mean {:.2} us, {evicted} \
             evicted; {} inserts without lookups, mean {:.2} us with the flush, {:.2} bytes written a byte",
            kind.name(),
            insert_us.mean,
            miss_us.mean,
            inserts_alone.count,
            inserts_alone.mean_us,
            inserts_alone.write_amplification.unwrap_or_default()
        );
        let label = case.labels().collect();
        return print(&Line::Step(label, Box::new(measured)));
    }
    let last = case.steps.iter().rfind(|step| step.is_measured()).map(|step| step.label);
    let (mut reads, mut written, mut wrong) = (0, 0, 0);
    let (mut rates, mut printed) = (Vec::new(), Ok(()));
    case.run(&mut open, *scale, *seed, &mut |progress| match progress {
        Progress::Begins(_) => {
            rates.clear();
            reads = device::reads(dir);
        }
        // The last second may be cut short: its rate is then one of few operations.
        Progress::Goes(_, interval) if interval.seconds < SECOND_MIN => {}
        Progress::Goes(_, interval) => rates.push(interval.ops_per_sec),
        Progress::Ended(step, report, store) if step.is_measured() => {
            let reads = device::reads(dir).saturating_sub(reads);
            if Some(step.label) == last {
                thread::sleep(SPACE_AFTER);
            }
            let is_compaction = report.bench == Name::Compact;
            let space = device::space(dir);
            let mut measured = Measured::new(&report.figures, is_compaction, reads, space, written);
            let index_bytes = store.index_bytes().map(|bytes| bytes as f64);
            measured.index_bytes_per_key =
                index_bytes.map(|bytes| bytes / case.keys(*scale) as f64);
            measured.rates = std::mem::take(&mut rates);
            eprintln!("{:<13} {}: {report}", kind.name(), step.label);
            if printed.is_ok() {
                printed = print(&Line::Step(step.label.to_owned(), Box::new(measured)));
            }
        }
        // A step that prepares or verifies is reported only if it finds something wrong.
        Progress::Ended(_, report, _) => {
            written += report.figures.written_bytes;
            wrong += report.figures.wrong;
        }
    })?;
    if wrong > 0 {
        let what = format!("{} in {}", kind.name(), case.name);
        return Err(Error::corrupt("what was written")
            .at(what)
            .got(format_args!("{wrong} wrong answers")));
    }
    printed
}

fn print(line: &Line) -> Result<()> {
    let line = serde_json::to_string(line);
    println!("{}", line.map_err(|error| Error::invalid("line").caused_by(error))?);
    Ok(())
}
