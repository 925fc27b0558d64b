//! One store in one case: a process of its own, so that memory and processor time are its own.
//!
//! It prints a line of JSON for the options, and one for each step that is measured.

use std::path::Path;
use std::thread;
use std::time::Duration;

use base::{Error, Result};
use serde::{Deserialize, Serialize};
use workload::cases::{Case, Progress, Scale};

use crate::device;
use crate::measured::Measured;
use crate::stores::{Kind, Setup};

/// What a child tells its parent, a line each.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Line {
    /// The options of the store.
    Options(Vec<String>),
    /// A step, with its label.
    Step(String, Box<Measured>),
}

/// What a child does.
#[derive(Clone, Debug)]
pub(crate) struct Task {
    /// The case.
    pub(crate) case: &'static Case,
    /// The store.
    pub(crate) kind: Kind,
    /// The scale.
    pub(crate) scale: Scale,
    /// Chooses the keys.
    pub(crate) seed: u64,
    /// Whether to make what the case keeps, instead of running it.
    pub(crate) is_load: bool,
}

/// How long after the last step its space is looked at: files that nobody needs go in the background.
const SPACE_AFTER: Duration = Duration::from_secs(3);

/// Does it, in `dir`.
pub(crate) fn run(task: &Task, dir: &Path) -> Result<()> {
    let Task { case, kind, scale, seed, is_load } = task;
    let setup = Setup {
        dir,
        memory_bytes: case.memory(*scale, kind.is_own()),
        data_bytes: case.data_bytes(*scale),
        compression: case.compression,
    };
    std::fs::create_dir_all(dir).map_err(|error| Error::io("create", dir.display(), error))?;
    let opened = kind.open(&setup)?;
    print(&Line::Options(opened.options))?;
    if *is_load {
        return case.load(&*opened.store, *scale, *seed).map(drop);
    }
    let last = case.steps.iter().rfind(|step| step.is_measured()).map(|step| step.label);
    let (mut reads, mut written, mut wrong) = (0, 0, 0);
    let mut printed = Ok(());
    case.run(&*opened.store, *scale, *seed, &mut |progress| match progress {
        Progress::Begins(_) => reads = device::reads(dir),
        Progress::Ended(step, report) if step.is_measured() => {
            let reads = device::reads(dir).saturating_sub(reads);
            if Some(step.label) == last {
                thread::sleep(SPACE_AFTER);
            }
            let measured = Measured::new(report, reads, device::space(dir), written);
            eprintln!("{:<13} {}: {report}", kind.name(), step.label);
            if printed.is_ok() {
                printed = print(&Line::Step(step.label.to_owned(), Box::new(measured)));
            }
        }
        // What prepares or checks is told only where it finds something.
        Progress::Ended(_, report) => {
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
