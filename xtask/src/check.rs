//! The task before every commit: all checks that do not run the store.

use std::process::Command;

use crate::command::{self, cargo, succeeds};
use crate::{Result, layering, licences, reference, tidy, workspace};

/// Checks formatting, layering, tidiness, lints, documentation and dependencies, cheapest first.
pub(crate) fn run() -> Result {
    command::run(cargo(["fmt", "--all", "--", "--check"]))?;
    layering::check()?;
    tidy::check()?;
    locks()?;
    licences::check()?;
    command::run(cargo(["clippy", "--workspace", "--all-targets", "--", "--deny", "warnings"]))?;
    let program = ["clippy", "--package", "terrace", "--all-targets", "--features", "remote"];
    command::run(cargo(program.into_iter().chain(["--", "--deny", "warnings"])))?;
    lint_library("")?;
    reference::check()?;
    let mut doc = cargo(["doc", "--workspace", "--no-deps", "--document-private-items"]);
    doc.env("RUSTDOCFLAGS", "--deny warnings");
    command::run(doc)?;
    deny()
}

/// Lints the library with each set of features that [`run`] leaves out.
pub(crate) fn features() -> Result {
    ["tools", "zstd", "tools,zstd"].into_iter().try_for_each(lint_library)
}

/// Lints the library as its users build it, with these features and without those that the programs of the
/// workspace turn on.
fn lint_library(features: &str) -> Result {
    let library = ["clippy", "--package", "terracedb", "--lib", "--no-default-features"];
    let lints = ["--features", features, "--", "--deny", "warnings"];
    command::run(cargo(library.into_iter().chain(lints)))
}

/// Checks that the lock files of the workspaces apart from this one fit their dependencies: no other build
/// reads them.
fn locks() -> Result {
    for manifest in [
        "bindings/c/Cargo.toml",
        "bindings/python/Cargo.toml",
        "fuzz/Cargo.toml",
        "peers/Cargo.toml",
    ] {
        let metadata =
            ["metadata", "--locked", "--format-version", "1", "--manifest-path", manifest];
        // Without the network first. The crates of these workspaces may not be downloaded yet.
        let found = match lock(cargo(metadata.into_iter().chain(["--offline"])))? {
            Lock::Unknown(_) => lock(cargo(metadata))?,
            found => found,
        };
        match found {
            Lock::Current => {}
            Lock::Stale => {
                return Err(format!(
                    "the lock file beside {manifest} is stale: \
                     cargo update --workspace --manifest-path {manifest}"
                )
                .into());
            }
            Lock::Unknown(error) => {
                eprintln!("! the lock file beside {manifest} is not checked: {error}");
            }
        }
    }
    Ok(())
}

/// Whether a lock file fits the dependencies.
#[derive(Debug, PartialEq)]
enum Lock {
    Current,
    Stale,
    /// Cargo could not find out, as without the network.
    Unknown(String),
}

fn lock(mut metadata: Command) -> Result<Lock> {
    let output = metadata.current_dir(workspace::root()).output()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    Ok(judge(output.status.success(), &errors))
}

/// Judges the outcome of `cargo metadata --locked`.
fn judge(is_success: bool, errors: &str) -> Lock {
    if is_success {
        return Lock::Current;
    }
    let is_stale =
        errors.lines().any(|line| line.contains("lock file") && line.contains("--locked"));
    let first = errors.lines().find(|line| line.starts_with("error")).unwrap_or("no message");
    if is_stale { Lock::Stale } else { Lock::Unknown(first.to_owned()) }
}

/// Checks duplicates and known vulnerabilities of dependencies, if cargo-deny is installed and the database
/// of advisories can be fetched.
fn deny() -> Result {
    if !succeeds(cargo(["deny", "--version"])) {
        eprintln!("! advisories not checked: cargo install --locked cargo-deny");
        return Ok(());
    }
    command::run(cargo(["deny", "check", "bans", "licenses", "sources"]))?;
    if succeeds(cargo(["deny", "fetch", "db"])) {
        return command::run(cargo(["deny", "--offline", "check", "advisories"]));
    }
    eprintln!("! advisories not checked: their database cannot be fetched");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_lock_file_is_told_from_a_missing_network() {
        let stale = "error: cannot update the lock file /a/Cargo.lock because --locked was passed to prevent \
                     this\nhelp: remove the --locked flag and use --offline instead.";
        let offline = "warning: spurious\nerror: failed to download `rocksdb v0.24.0`\n\nCaused by:\n  \
                       attempting to make an HTTP request, but --offline was specified";
        assert_eq!(judge(true, ""), Lock::Current);
        assert_eq!(judge(false, stale), Lock::Stale);
        let first = "error: failed to download `rocksdb v0.24.0`".to_owned();
        assert_eq!(judge(false, offline), Lock::Unknown(first));
    }
}
