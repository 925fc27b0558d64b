//! Packages of Debian 12, unpacked below the folder of build results: programs and sources that tests use.
//!
//! Nothing is installed, and no rights are needed: apt works in a folder of its own. Without apt, Debian's
//! keys or a network this is an error; callers then leave out what needs the packages, and say so.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command;
use crate::{Result, workspace};

/// Below the repository.
const WORK: &str = "target/debian";
const KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
const ARCHIVE: &str = "http://deb.debian.org/debian bookworm main";

/// The folder with the programs of `packages`, each as a script that finds the libraries beside it. Their
/// dependencies are not followed.
pub(crate) fn programs(packages: &[&str]) -> Result<PathBuf> {
    let folder = workspace::root().join(WORK).join(packages.join("+"));
    let scripts = folder.join("scripts");
    // It is made last.
    if scripts.exists() {
        return Ok(scripts);
    }
    let downloads = download(&folder, &["download"], packages)?;
    let root = folder.join("root");
    for package in files(&downloads, "")? {
        let mut unpack = Command::new("dpkg-deb");
        unpack.arg("-x").arg(package).arg(&root);
        command::run(unpack)?;
    }
    let libraries = files(&root.join("usr/lib"), "-linux-gnu")?;
    let libraries = libraries.first().map(|it| it.display().to_string()).unwrap_or_default();
    let tcl = root.join("usr/share/tcltk/tcl8.6");
    let made = folder.join("scripts.new");
    fs::create_dir_all(&made)?;
    for program in files(&root.join("usr/bin"), "")? {
        let script = made.join(program.file_name().unwrap_or_default());
        let text = format!(
            "#!/bin/sh\nexport LD_LIBRARY_PATH='{libraries}' TCL_LIBRARY='{}'\nexec '{}' \"$@\"\n",
            tcl.display(),
            program.display()
        );
        fs::write(&script, text)?;
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
    }
    fs::rename(made, &scripts)?;
    Ok(scripts)
}

/// The folder with the unpacked source of `package`, without Debian's changes.
pub(crate) fn source(package: &str) -> Result<PathBuf> {
    let folder = workspace::root().join(WORK).join(format!("{package}-source"));
    let unpacked = folder.join("unpacked");
    if !unpacked.exists() {
        let downloads = download(&folder, &["source", "--download-only"], &[package])?;
        let archive = files(&downloads, ".orig.tar.gz")?;
        let archive = archive.first().ok_or_else(|| format!("{package} has no .orig.tar.gz"))?;
        let made = folder.join("unpacked.new");
        fs::create_dir_all(&made)?;
        let mut unpack = Command::new("tar");
        unpack.arg("-xzf").arg(archive).args(["--strip-components", "1", "-C"]).arg(&made);
        command::run(unpack)?;
        fs::rename(made, &unpacked)?;
    }
    Ok(unpacked)
}

/// Downloads packages into a folder of `folder`, which is returned.
fn download(folder: &Path, task: &[&str], packages: &[&str]) -> Result<PathBuf> {
    let state = workspace::root().join(WORK).join("apt");
    for part in ["state/lists/partial", "cache/archives/partial"] {
        fs::create_dir_all(state.join(part))?;
    }
    let sources = state.join("sources.list");
    let archive = format!("[signed-by={KEYS}] {ARCHIVE}");
    fs::write(&sources, format!("deb {archive}\ndeb-src {archive}\n"))?;
    let apt = |task: &[&str]| {
        let mut command = Command::new("apt-get");
        command.arg("-qq");
        for (name, path) in [
            ("Dir::Etc::SourceList", sources.clone()),
            ("Dir::Etc::SourceParts", "/dev/null".into()),
            ("Dir::State", state.join("state")),
            ("Dir::State::status", "/dev/null".into()),
            ("Dir::Cache", state.join("cache")),
        ] {
            command.arg("-o").arg(format!("{name}={}", path.display()));
        }
        // Another user of apt's need not be able to read these folders.
        command.args(["-o", "APT::Sandbox::User=root", "-o", "Debug::NoLocking=1"]);
        command.args(["-o", "Acquire::http::Timeout=20", "-o", "Acquire::Retries=1"]);
        command.args(task);
        command
    };
    command::run(apt(&["update"]))?;
    let downloads = folder.join("downloads");
    let _ = fs::remove_dir_all(&downloads);
    fs::create_dir_all(&downloads)?;
    let mut fetch = apt(task);
    fetch.args(packages);
    command::run_in(&downloads, fetch)?;
    Ok(downloads)
}

/// The entries of `folder` whose names end with `end`, in order.
fn files(folder: &Path, end: &str) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry?;
        if entry.file_name().to_string_lossy().ends_with(end) {
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}
