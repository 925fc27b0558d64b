//! The comparison with other engines: `peers`, a workspace of its own.

use crate::Result;
use crate::command::{self, cargo};

/// Builds it, and runs it with `arguments`.
pub(crate) fn run(arguments: &[&str]) -> Result {
    let mut command = cargo(["--config", "peers/.cargo/config.toml", "run", "--release"]);
    command.args(["--manifest-path", "peers/Cargo.toml", "--"]).args(arguments);
    command::run(command)
}
