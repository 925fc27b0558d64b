//! The fuzz targets in `fuzz/fuzz_targets`, one for every parser of untrusted bytes.

use std::fs;

use crate::command::{self, cargo_nightly, succeeds};
use crate::{Result, workspace};

/// Default time of a target, seconds.
const SECONDS: &str = "60";

/// Runs one target, or each in turn: `[TARGET] [SECONDS]`, both optional.
pub(crate) fn run(arguments: &[&str]) -> Result {
    let (chosen, seconds) = match arguments {
        [] => (None, SECONDS),
        [only] if only.parse::<u32>().is_ok() => (None, *only),
        [target] => (Some(*target), SECONDS),
        [target, seconds] if seconds.parse::<u32>().is_ok() => (Some(*target), *seconds),
        other => {
            return Err(format!("usage: fuzz [TARGET] [SECONDS], got: {}", other.join(" ")).into());
        }
    };
    let mut targets = targets()?;
    if let Some(chosen) = chosen {
        if !targets.iter().any(|target| target == chosen) {
            let known = targets.join(", ");
            return Err(format!("no fuzz target {chosen}; there are: {known}").into());
        }
        targets.retain(|target| target == chosen);
    }
    if let Some(missing) = missing_tools() {
        return Err(missing.into());
    }
    targets.iter().try_for_each(|target| run_target(target, seconds))
}

/// Runs one target. The tools must be there.
pub(crate) fn run_target(target: &str, seconds: &str) -> Result {
    let most = format!("-max_total_time={seconds}");
    command::run(cargo_nightly(["fuzz", "run", target, "--", &most]))
}

/// The tools that are missing, and how to get them.
pub(crate) fn missing_tools() -> Option<&'static str> {
    let missing = "fuzzing needs a nightly toolchain and cargo-fuzz: \
                   rustup toolchain install nightly --profile minimal; \
                   cargo install --locked cargo-fuzz";
    (!succeeds(cargo_nightly(["fuzz", "--version"]))).then_some(missing)
}

/// The names of all targets.
pub(crate) fn targets() -> Result<Vec<String>> {
    let folder = workspace::root().join("fuzz/fuzz_targets");
    let entries = fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut targets = Vec::new();
    for entry in entries {
        let name = entry?.file_name().to_string_lossy().into_owned();
        targets.extend(name.strip_suffix(".rs").map(str::to_owned));
    }
    targets.sort();
    Ok(targets)
}
