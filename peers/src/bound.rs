//! A bound on the memory of a child process, its share of the page cache included: a memory control group of
//! version 1 or 2 below that of this process, if the system allows one.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A control group with a memory bound. Dropping it removes the group.
#[derive(Debug)]
pub(crate) struct Bound {
    folder: PathBuf,
    version: u8,
}

impl Bound {
    /// Makes a group that holds its processes to `bytes`, or returns the reason why none could be made.
    pub(crate) fn new(bytes: u64) -> Result<Self, String> {
        let own = fs::read_to_string("/proc/self/cgroup").map_err(|e| e.to_string())?;
        let mut reasons = Vec::new();
        for (version, parent) in candidates(&own) {
            match Self::below(&parent, version, bytes) {
                Ok(bound) => return Ok(bound),
                Err(reason) => reasons.push(format!("v{version}: {reason}")),
            }
        }
        Err(if reasons.is_empty() { "no memory controller".to_owned() } else { reasons.join("; ") })
    }

    fn below(parent: &Path, version: u8, bytes: u64) -> Result<Self, String> {
        let folder = parent.join(format!("terrace-peers-{}", std::process::id()));
        match fs::create_dir(&folder) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                return Err(error.to_string());
            }
            _ => {}
        }
        let bound = Self { folder, version };
        let limit = if version == 1 { "memory.limit_in_bytes" } else { "memory.max" };
        fs::write(bound.folder.join(limit), bytes.to_string())
            .map_err(|e| format!("{limit}: {e}"))?;
        Ok(bound)
    }

    /// The version, for people.
    pub(crate) fn describe(&self) -> String {
        format!("a memory control group (version {})", self.version)
    }

    /// A command that runs `program` inside the group: a shell joins the group and then executes the program.
    pub(crate) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("/bin/sh");
        let join = "echo $$ > \"$0\" && exec \"$@\"";
        command.arg("-c").arg(join).arg(self.folder.join("cgroup.procs")).arg(program);
        command
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        // The processes have ended; their pages in the page cache move to the parent group.
        let _one_that_stays_is_empty = fs::remove_dir(&self.folder);
    }
}

/// Version and parent directory for a new group.
fn candidates(own: &str) -> Vec<(u8, PathBuf)> {
    let mut candidates = Vec::new();
    for line in own.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(id), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next())
        else {
            continue;
        };
        let path = path.trim_start_matches('/');
        if controllers.split(',').any(|controller| controller == "memory") {
            candidates.push((1, Path::new("/sys/fs/cgroup/memory").join(path)));
        } else if id == "0" && controllers.is_empty() {
            candidates.push((2, Path::new("/sys/fs/cgroup").join(path)));
        }
    }
    candidates
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_are_found() {
        let own = "9:name=systemd:/\n4:memory:/a/b\n1:cpu,cpuacct:/\n0::/c\n";
        let expected = [
            (1, PathBuf::from("/sys/fs/cgroup/memory/a/b")),
            (2, PathBuf::from("/sys/fs/cgroup/c")),
        ];
        assert_eq!(candidates(own), expected);
        assert_eq!(candidates("junk\n"), []);
    }
}
