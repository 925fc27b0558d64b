//! The task before every commit: all checks that do not run the store.

use crate::command::{self, cargo, succeeds};
use crate::{Result, layering, reference, tidy};

/// Checks formatting, layering, tidiness, lints, documentation and dependencies, cheapest first.
pub(crate) fn run() -> Result {
    command::run(cargo(["fmt", "--all", "--", "--check"]))?;
    layering::check()?;
    tidy::check()?;
    locks()?;
    command::run(cargo(["clippy", "--workspace", "--all-targets", "--", "--deny", "warnings"]))?;
    // The library as its users build it: without the features that the programs of the workspace turn on.
    for features in ["", "tools", "zstd", "tools,zstd"] {
        let library = ["clippy", "--package", "terracedb", "--lib", "--no-default-features"];
        let lints = ["--features", features, "--", "--deny", "warnings"];
        command::run(cargo(library.into_iter().chain(lints)))?;
    }
    reference::check()?;
    let mut doc = cargo(["doc", "--workspace", "--no-deps", "--document-private-items"]);
    doc.env("RUSTDOCFLAGS", "--deny warnings");
    command::run(doc)?;
    deny()
}

/// Checks that the lock files of the workspaces apart from this one fit their dependencies: no other build
/// reads them.
fn locks() -> Result {
    for manifest in ["bindings/python/Cargo.toml", "fuzz/Cargo.toml", "peers/Cargo.toml"] {
        let arguments =
            ["metadata", "--locked", "--format-version", "1", "--manifest-path", manifest];
        command::output(cargo(arguments))?;
    }
    Ok(())
}

/// Checks licences, sources and duplicates of dependencies (deny.toml), and known vulnerabilities if the
/// database of advisories can be fetched.
fn deny() -> Result {
    if !succeeds(cargo(["deny", "--version"])) {
        eprintln!(
            "! dependencies not checked: cargo-deny is missing (cargo install --locked cargo-deny)"
        );
        return Ok(());
    }
    command::run(cargo(["deny", "check", "bans", "licenses", "sources"]))?;
    if succeeds(cargo(["deny", "fetch", "db"])) {
        return command::run(cargo(["deny", "--offline", "check", "advisories"]));
    }
    eprintln!("! advisories not checked: their database cannot be fetched");
    Ok(())
}
