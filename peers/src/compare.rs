//! The comparison: every run of every store is a process of its own, and the stores rotate (A B A B), so that
//! a disturbance of the machine affects all of them.
//!
//! Kept loads lie under `load`, one directory per store; a case that changes its load works on a copy. All
//! other directories are made for each run and removed after it.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use base::{Error, Result};
use workload::cases::{Case, Scale};

use crate::bound::Bound;
use crate::child::{Line, Task};
use crate::measured::{CaseResult, StoreResult};
use crate::stores::Kind;
use crate::{device, floor, machine};

/// A process may exceed its memory by this fraction (1/8), because the system also counts page tables,
/// buffers of reads in flight and allocator slack. A process that exceeds it is killed.
const BOUND_SLACK: u64 = 8;

/// A file system in memory.
pub(crate) const MEMORY: &str = "/dev/shm";

/// A comparison: cases, stores and directories.
#[derive(Clone, Debug)]
pub(crate) struct Comparison {
    /// The cases.
    pub(crate) cases: Vec<&'static Case>,
    /// The stores, if not those of the case.
    pub(crate) stores: Option<Vec<Kind>>,
    /// Runs per store.
    pub(crate) runs: usize,
    /// The scale.
    pub(crate) scale: Scale,
    /// The directory of the stores.
    pub(crate) data: PathBuf,
    /// The directory of the results.
    pub(crate) results: PathBuf,
    /// The arguments of the command.
    pub(crate) command: String,
}

impl Comparison {
    /// Runs all cases, and writes a file of results after each.
    ///
    /// # Errors
    /// `Retry` if another comparison uses the same data directory; errors of the file system.
    pub(crate) fn run(&self) -> Result<()> {
        let _lock = lock(&self.data)?;
        for case in &self.cases {
            let result = self.case(case)?;
            let path = result_path(&self.results, case.name, self.scale);
            let text = serde_json::to_string_pretty(&result);
            let text = text.map_err(|error| Error::invalid("results").caused_by(error))?;
            write(&path, &(text + "\n"))?;
            eprintln!("+ {}", path.display());
            remove(&memory_dir())?;
        }
        Ok(())
    }

    fn case(&self, case: &'static Case) -> Result<CaseResult> {
        let kinds = self.stores.clone().unwrap_or_else(|| Kind::of_case(case.name));
        let mut bound = "not needed: the data fits in memory".to_owned();
        let mut stores: Vec<(String, StoreResult)> =
            kinds.iter().map(|kind| (kind.name().to_owned(), StoreResult::default())).collect();
        let mut floor = StoreResult::default();
        for run in 0..self.runs {
            for (kind, (_, result)) in kinds.iter().zip(&mut stores) {
                eprintln!("+ {} {} run {} of {}", case.name, kind.name(), run + 1, self.runs);
                let task =
                    Task { case, kind: *kind, scale: self.scale, seed: run as u64, is_load: false };
                match self.one(&task, result) {
                    Ok(Some(how)) => bound = how,
                    Ok(None) => {}
                    Err(error) => {
                        eprintln!("! {}: {error}", kind.name());
                        result.failures.push(format!("run {}: {error}", run + 1));
                    }
                }
            }
            if case.has_floor
                && let Some(first) = kinds.first()
                && let Err(error) =
                    floor::measure(&self.load_dir(case, *first), self.scale, &mut floor)
            {
                floor.failures.push(format!("run {}: {error}", run + 1));
            }
        }
        if !floor.steps.is_empty() || !floor.failures.is_empty() {
            stores.push(("fio".to_owned(), floor));
        }
        Ok(CaseResult {
            case: case.name.to_owned(),
            summary: case.summary.to_owned(),
            scale: self.scale.name().to_owned(),
            command: self.command.clone(),
            date: machine::date(),
            commit: machine::commit(),
            machine: machine::describe(),
            bound,
            steps: case.labels().map(str::to_owned).collect(),
            stores,
        })
    }

    /// One run of one store. Returns the kind of memory bound, if the case asks for one.
    fn one(&self, task: &Task, result: &mut StoreResult) -> Result<Option<String>> {
        let Task { case, kind, scale, .. } = task;
        // Cases in memory have no kept load.
        let data = if case.is_in_memory { memory_dir() } else { self.data.clone() };
        let scratch = data.join("run").join(kind.name());
        remove(&scratch)?;
        let dir = match case.has_load() {
            false => scratch.clone(),
            true => {
                let kept = self.kept(task)?;
                if case.changes_load() {
                    copy(&kept, &scratch)?;
                    scratch.clone()
                } else {
                    kept
                }
            }
        };
        let (bound, how) = if case.is_held {
            // Each run starts with an empty page cache, if the system allows emptying it.
            let emptied = device::empty_page_cache();
            let memory = case.memory(*scale, kind.is_own());
            let emulated = kind.emulated_bytes(case.data_bytes(*scale));
            let bound = Bound::new(memory + memory / BOUND_SLACK + emulated);
            let how = match &bound {
                Ok(bound) => {
                    format!("{}; page cache emptied before each run: {emptied}", bound.describe())
                }
                Err(reason) => format!("none ({reason})"),
            };
            (bound.ok(), Some(how))
        } else {
            (None, None)
        };
        let outcome = spawn(task, &dir, bound.as_ref(), result);
        remove(&scratch)?;
        outcome.map(|()| how)
    }

    fn load_dir(&self, case: &Case, kind: Kind) -> PathBuf {
        let load = case.load.map_or(case.name, |load| load.name());
        let codec = format!("{:?}", case.compression).to_lowercase();
        let bytes = case.value_bytes.map_or_else(|| "own".to_owned(), |bytes| bytes.to_string());
        let name = format!("{load}-{}x{bytes}-{codec}", case.keys(self.scale));
        self.data.join("load").join(name).join(kind.loader().name())
    }

    /// The directory of the kept load of the case, made if missing.
    fn kept(&self, task: &Task) -> Result<PathBuf> {
        let dir = self.load_dir(task.case, task.kind);
        let done = dir.with_extension("done");
        if !done.exists() {
            eprintln!("+ loading {}", dir.display());
            remove(&dir)?;
            let load = Task { kind: task.kind.loader(), is_load: true, seed: 0, ..task.clone() };
            spawn(&load, &dir, None, &mut StoreResult::default())?;
            write(&done, "")?;
        }
        Ok(dir)
    }
}

/// The directory for stores that lie in memory, of this process.
fn memory_dir() -> PathBuf {
    PathBuf::from(MEMORY).join(format!("terrace-peers-{}", std::process::id()))
}

/// The results file of a case.
fn result_path(results: &Path, case: &str, scale: Scale) -> PathBuf {
    match scale {
        Scale::Full => results.join(format!("{case}.json")),
        scale => results.join(scale.name()).join(format!("{case}.json")),
    }
}

/// Runs `task` as a process and collects its messages.
fn spawn(task: &Task, dir: &Path, bound: Option<&Bound>, result: &mut StoreResult) -> Result<()> {
    let io = |error| Error::io("run", "a child", error);
    let program = std::env::current_exe().map_err(io)?;
    let mut command = bound.map_or_else(|| Command::new(&program), |bound| bound.command(&program));
    command.arg(if task.is_load { "load" } else { "run" });
    command.args([task.case.name, task.kind.name(), task.scale.name(), &task.seed.to_string()]);
    let mut child = command.arg(dir).stdout(Stdio::piped()).spawn().map_err(io)?;
    let lines = child.stdout.take().map(|out| BufReader::new(out).lines());
    let mut steps = Vec::new();
    for line in lines.into_iter().flatten() {
        let line = line.map_err(io)?;
        match serde_json::from_str(&line) {
            Ok(Line::Options(options)) => result.options = options,
            Ok(Line::Step(label, measured)) => steps.push((label, *measured)),
            Err(error) => return Err(Error::invalid("a child's line").caused_by(error)),
        }
    }
    let status = child.wait().map_err(io)?;
    if !status.success() {
        return Err(Error::invalid("a child").expected("success").got(status));
    }
    for (label, measured) in steps {
        if measured.wrong > 0 {
            let failure = format!("{label}: {} answers wrong", measured.wrong);
            result.failures.push(failure);
        }
        result.steps.entry(label).or_default().push(measured);
    }
    Ok(())
}

/// Locks the data directory for this process, because two comparisons in one directory would use each other's
/// stores.
fn lock(data: &Path) -> Result<fs::File> {
    let io = |error| Error::io("lock", data.display(), error);
    fs::create_dir_all(data).map_err(io)?;
    let file = fs::File::create(data.join("LOCK")).map_err(io)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(fs::TryLockError::WouldBlock) => {
            Err(Error::retry("data").at(data.display()).expected("no other comparison"))
        }
        Err(fs::TryLockError::Error(error)) => Err(io(error)),
    }
}

fn remove(dir: &Path) -> Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::io("remove", dir.display(), error))
        }
        _ => Ok(()),
    }
}

/// Copies a directory, and keeps holes in its files.
fn copy(from: &Path, to: &Path) -> Result<()> {
    let io = |error| Error::io("copy", from.display(), error);
    fs::create_dir_all(to.parent().unwrap_or(to)).map_err(io)?;
    let mut command = Command::new("cp");
    command.args(["--recursive", "--reflink=auto", "--sparse=auto"]).args([from, to]);
    let status = command.status().map_err(io)?;
    if status.success() {
        return Ok(());
    }
    Err(Error::invalid("cp").at(from.display()).expected("success").got(status))
}

/// Writes a file, and makes its directory.
fn write(path: &Path, text: &str) -> Result<()> {
    let io = |error| Error::io("write", path.display(), error);
    fs::create_dir_all(path.parent().unwrap_or(path)).map_err(io)?;
    fs::write(path, text).map_err(io)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_comparison_at_a_time_has_the_data() {
        let data = std::env::temp_dir().join(format!("peers-lock-{}", std::process::id()));
        let held = lock(&data).unwrap();
        assert!(lock(&data).unwrap_err().is_retryable());
        drop(held);
        lock(&data).unwrap();
        remove(&data).unwrap();
    }

    #[test]
    fn quick_results_do_not_replace_full_ones() {
        let path = |scale| result_path(Path::new("results"), "cold", scale);
        assert_eq!(path(Scale::Full), Path::new("results/cold.json"));
        assert_eq!(path(Scale::Quick), Path::new("results/quick/cold.json"));
    }
}
