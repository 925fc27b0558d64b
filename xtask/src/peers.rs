//! The comparison with other engines: the program `peers`, which is a workspace of its own.

use crate::Result;
use crate::command::{self, cargo};

/// Builds `peers`, with the features that may come first in `arguments`, and runs it with the rest.
/// `--no-default-features` before them leaves out RocksDB, which takes ten minutes to compile.
pub(crate) fn run(arguments: &[&str]) -> Result {
    let mut command = cargo(["--config", "peers/.cargo/config.toml", "run", "--release"]);
    command.args(["--manifest-path", "peers/Cargo.toml"]);
    let arguments = match arguments {
        ["--no-default-features", rest @ ..] => {
            command.arg("--no-default-features");
            rest
        }
        arguments => arguments,
    };
    let rest = match arguments {
        ["--features", features, rest @ ..] => {
            command.args(["--features", features]);
            rest
        }
        rest => rest,
    };
    command.arg("--").args(rest);
    command::run(command)
}
