//! Commands that tasks run: printed first, run in the repository root; a failure is an error.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::{Result, workspace};

/// `cargo` with `arguments`, of the toolchain that runs this program.
pub(crate) fn cargo<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments);
    command
}

/// `cargo` of the nightly toolchain, through rustup.
pub(crate) fn cargo_nightly<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Command {
    let mut command = Command::new("rustup");
    command.args(["run", "nightly", "cargo"]).args(arguments);
    // Cargo sets these to the toolchain that runs this program.
    command.env_remove("CARGO").env_remove("RUSTUP_TOOLCHAIN");
    command
}

/// `git` with `arguments`.
pub(crate) fn git<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Command {
    let mut command = Command::new("git");
    command.args(arguments);
    command
}

/// Prints and runs `command`.
pub(crate) fn run(command: Command) -> Result {
    run_in(workspace::root(), command)
}

/// Prints `command` and runs it in `folder`.
pub(crate) fn run_in(folder: &Path, mut command: Command) -> Result {
    let shown = show(&command);
    let status = command
        .current_dir(folder)
        .status()
        .map_err(|error| format!("`{shown}` did not start: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("`{shown}` failed: {status}").into()) }
}

/// Prints and runs `command`; returns its standard output.
pub(crate) fn output(mut command: Command) -> Result<String> {
    let shown = show(&command);
    let output = command
        .current_dir(workspace::root())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("`{shown}` did not start: {error}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(format!("`{shown}` failed: {}", output.status).into()),
    }
}

/// Prints `command`, which is about to run; returns the printed text.
pub(crate) fn show(command: &Command) -> String {
    let shown = shown(command);
    eprintln!("+ {shown}");
    shown
}

/// Whether `command` runs and succeeds. Its output is discarded.
pub(crate) fn succeeds(mut command: Command) -> bool {
    let command = command.current_dir(workspace::root());
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|s| s.success())
}

fn shown(command: &Command) -> String {
    let program = command.get_program().to_string_lossy();
    let program = program.rsplit('/').next().unwrap_or_default();
    let settings = command.get_envs().filter_map(|(name, value)| {
        Some(format!("{}={}", name.to_string_lossy(), value?.to_string_lossy()))
    });
    let words = command.get_args().map(|word| word.to_string_lossy().into_owned());
    settings.chain([program.to_owned()]).chain(words).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_of_a_failed_command_shows_it() {
        run(Command::new("true")).unwrap();
        let mut command = Command::new("/bin/false");
        command.arg("x").env("A", "b");
        let error = run(command).unwrap_err().to_string();
        assert!(error.starts_with("`A=b false x` failed"), "{error}");
        assert!(!succeeds(Command::new("no-such-program")));
    }
}
