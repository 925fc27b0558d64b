//! The comparison with other engines: the program `peers`, which is a workspace of its own.

use crate::Result;
use crate::command::{self, cargo};

/// Builds `peers` and runs it with `arguments`.
pub(crate) fn run(arguments: &[&str]) -> Result {
    let mut command = cargo(["--config", "peers/.cargo/config.toml", "run", "--release"]);
    command.args(["--manifest-path", "peers/Cargo.toml", "--"]).args(arguments);
    command::run(command)
}
