//! The tasks of development, each one command: `cargo xtask TASK`.
//!
//! A task prints and runs ordinary commands, and stops at the first failure; the tasks that run tests run
//! all of them even if some fail ([`suite`]). The rules that no other tool checks are here: [`layering`]
//! (crates depend downward) and [`tidy`] (files, modules, formats, documents and language). Both are also
//! tests, so that `cargo test` checks them, too.

mod aarch64;
mod api;
mod bench;
mod bindings;
mod check;
mod command;
mod debian;
mod fuzz;
mod generated;
mod invariants;
mod layering;
mod licences;
mod long;
mod metadata;
mod object_store;
mod peers;
mod profile;
mod redis;
mod reference;
mod results;
mod sim;
mod suite;
mod tally;
mod test;
mod tidy;
mod workspace;

use std::process::ExitCode;

use suite::Suite;

/// The result of a step of a task; the error is a message to the user.
type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

const HELP: &str = "\
usage: cargo xtask TASK

  check                     formatting, lints, layering, tidiness, documentation, dependencies
  test [ARGS]               the default tests; ARGS go to `cargo test --workspace`. All run even if some fail;
                            the last lines list the counts, the failures and the slowest test programs
  ci                        check, test, a minute of sim, bindings and Redis's clients, with a fixed seed:
                            must pass before a merge. All run even if one fails; the last lines are those of
                            test
  bindings                  C: header and example; Python: wheel, tests, documents and type stubs
  object-store              backups in a real S3 server, moto of the Python package index
  long [--hours H | --seconds S] [--fuzz SECONDS] [--only STEP] [-- ARGS]
                            every test, the long ones too, optimised, with assertions on; then Go and
                            sanitizers over the C library, Redis's suite and clients, the workers' tests
                            on an emulated Arm, an hour of sim, a minute of each fuzz target, and Miri; ends
                            with one line for each step
  miri [ARGS]               the tests of unsafe code under Miri, which finds undefined behaviour
  bench [ARGS]              the standard benchmarks, or `terrace bench ARGS`
  bench --compare REV [--pairs N] [--threshold PERCENT] [-- ARGS]
                            this tree beside another revision, by turns; fails if a ratio is worse
  peers [ARGS]              the comparison with other engines: --case, --quick, --list; needs a C++ compiler
  generate                  the generated documents anew; check fails if one is stale
  results --history CASE..  charts of our rate by RocksDB's over commits, in target/history
  profile CASE [ARGS]       a CPU profile of a case: --flame (default) or --annotate, --full
  redis-suite [UNIT..]      Redis's own test suite against `terrace serve`
  redis-bench [PART]        `memory`: beside redis-server; `flash`: beside memcached, data larger than memory;
                            `pauses`: gets while a large value is deleted, a backup runs or all is merged
  redis-clients [NAME..]    redis-py, ioredis, go-redis, Jedis, redis-cli and redis-benchmark against it
  sim [ARGS]                simulations of crashes and faults: --hours H, --seed S, --all
  fuzz [TARGET] [SECONDS]   one fuzz target, or each in turn (default: 60 seconds a target)
";

/// The seed of random tests and of the simulation in `ci`.
const SEED: &str = "1";

/// Checks, tests and simulates, even if a step before failed, so that one run finds every failure.
fn ci() -> Result {
    let mut suite = Suite::new();
    suite.add("check", check::run());
    let is_built = test::run_with_seed(&mut suite, SEED)?;
    // The build of the tests includes the simulator.
    if is_built {
        suite.add("sim", sim::run_briefly(SEED));
        suite.add("bindings", bindings::run());
        suite.add("object store", object_store::run());
        suite.add("redis", redis::run_brief());
    }
    suite.finish("ci")
}

fn run(arguments: &[&str]) -> Result {
    match arguments {
        ["check"] => check::run(),
        ["test", rest @ ..] => test::run(rest),
        ["ci"] => ci(),
        ["bindings"] => bindings::run(),
        ["object-store"] => object_store::run(),
        ["long", rest @ ..] => long::run(rest),
        ["miri", rest @ ..] => test::run_miri(rest),
        ["bench", rest @ ..] => bench::run(rest),
        ["peers", rest @ ..] => peers::run(rest),
        ["generate"] => generated::write().and_then(|()| reference::write()),
        ["results", rest @ ..] => results::run(rest),
        ["profile", rest @ ..] => profile::run(rest),
        ["redis-suite", rest @ ..] => redis::run_suite(&redis::build()?, rest),
        ["redis-bench", rest @ ..] => redis::run_bench(&redis::build_release()?, rest),
        ["redis-clients", rest @ ..] => redis::run_clients(&redis::build()?, rest),
        ["sim", rest @ ..] => sim::run(rest),
        ["fuzz", rest @ ..] => fuzz::run(rest),
        [] | ["help" | "--help" | "-h"] => {
            print!("{HELP}");
            Ok(())
        }
        unknown => Err(format!("no such task: {}\n\n{HELP}", unknown.join(" ")).into()),
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::FAILURE
        }
    }
}
