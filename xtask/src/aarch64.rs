//! Workers on an Arm, as in a DPU: `terrace worker` is built for it, and the process tests of workers run
//! with it under an emulator, with hosts of this machine's processor.

use std::process::Command;

use crate::command::{self, cargo, output, succeeds};
use crate::{Result, workspace};

const TARGET: &str = "aarch64-unknown-linux-gnu";
/// Debian's cross compiler, for C code and as the linker, and its emulator of one process.
const COMPILER: &str = "aarch64-linux-gnu-gcc";
const EMULATOR: &str = "qemu-aarch64";
/// The C library of the target.
const LIBRARY: &str = "/usr/aarch64-linux-gnu";

/// Process tests of workers; those of the benchmark start their workers themselves.
const TESTS: [&str; 2] = ["worker::", "worker_kills::"];
const NOT_TESTS: [&str; 2] = ["--skip", "worker::offload_benchmark"];

/// Says how to get the tools, if one is missing.
pub(crate) fn missing_tools() -> Option<&'static str> {
    let mut rustc = Command::new("rustc");
    rustc.args(["--print", "target-libdir", "--target", TARGET]);
    let has_target = output(rustc).is_ok_and(|path| {
        std::path::Path::new(path.trim()).read_dir().is_ok_and(|mut files| files.next().is_some())
    });
    let runs = |program: &str| {
        let mut command = Command::new(program);
        command.arg("--version");
        succeeds(command)
    };
    let missing = "this needs an Arm toolchain and emulator: apt-get install gcc-aarch64-linux-gnu \
                   libc6-dev-arm64-cross qemu-user; rustup target add aarch64-unknown-linux-gnu";
    (!has_target || !runs(COMPILER) || !runs(EMULATOR)).then_some(missing)
}

/// Builds the program for the Arm, and runs the tests with it.
pub(crate) fn run() -> Result {
    let mut build = cargo(["build", "--package", "terrace", "--target", TARGET]);
    build.env("CC_aarch64_unknown_linux_gnu", COMPILER);
    build.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", COMPILER);
    command::run(build)?;
    let built = workspace::root().join("target").join(TARGET).join("debug/terrace");
    let worker = format!("{EMULATOR} -L {LIBRARY} {}", built.display());
    let mut tests = cargo(["test", "--package", "terrace", "--test", "cli", "--"]);
    tests.args(TESTS).args(NOT_TESTS).env("TERRACE_WORKER_PROGRAM", worker);
    command::run(tests)
}
