//! One entry for every habit of the project: `cargo xtask HABIT`.
//!
//! A habit is a sequence of the commands anyone could type, echoed before they run, stopped at the
//! first failure. Of tests all are run, whatever fails ([`suite`]). What no off-the-shelf tool checks lives
//! here: [`layering`] (crates depend downward) and [`tidy`] (files, formats and documents keep their shape).
//! Both also run as ordinary tests, so that `cargo test` alone holds them.

mod bench;
mod check;
mod command;
mod fuzz;
mod layering;
mod metadata;
mod peers;
mod profile;
mod sim;
mod suite;
mod tally;
mod test;
mod tidy;
mod workspace;

use std::process::ExitCode;

use suite::Suite;

/// What every step of a habit returns; the error is for people.
type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

const HELP: &str = "\
usage: cargo xtask HABIT

  check                     formatting, lints, layering, tidiness, documentation, dependencies
  test [ARGS]               the default tests; ARGS go to `cargo test --workspace`. All are run whatever
                            fails; the last lines tell what passed, what failed, and what took longest
  ci                        check, test, a minute of sim, with one seed: what must pass before a merge. All
                            three are run whatever fails; the last lines are those of test
  long [ARGS]               every test, the long ones too, optimised, with assertions on
  miri [ARGS]               the tests of unsafe code under Miri, which finds undefined behaviour
  bench [ARGS]              the standard benchmarks, or `terrace bench ARGS`
  peers [ARGS]              the comparison with other engines: --case, --quick, --list; needs a C++ compiler
  profile CASE [ARGS]       where a case's time goes: --flame (default) or --annotate, --full
  sim [ARGS]                simulations of crashes and faults: --hours H, --seed S, --all
  fuzz [TARGET] [SECONDS]   one fuzz target, or each in turn (default: 60 seconds a target)
";

/// What is random in what must pass before a merge follows from this.
const SEED: &str = "1";

/// All of it, whatever fails: one run tells everything that is wrong.
fn ci() -> Result {
    let mut suite = Suite::new();
    suite.step("check", check::run());
    let is_built = test::run_fixed(&mut suite, SEED)?;
    // The simulator is built with the tests.
    if is_built {
        suite.step("sim", sim::run_briefly(SEED));
    }
    suite.end("ci")
}

fn run(arguments: &[&str]) -> Result {
    match arguments {
        ["check"] => check::run(),
        ["test", rest @ ..] => test::run(rest),
        ["ci"] => ci(),
        ["long", rest @ ..] => test::run_long(rest),
        ["miri", rest @ ..] => test::run_miri(rest),
        ["bench", rest @ ..] => bench::run(rest),
        ["peers", rest @ ..] => peers::run(rest),
        ["profile", rest @ ..] => profile::run(rest),
        ["sim", rest @ ..] => sim::run(rest),
        ["fuzz", rest @ ..] => fuzz::run(rest),
        [] | ["help" | "--help" | "-h"] => {
            print!("{HELP}");
            Ok(())
        }
        unknown => Err(format!("no such habit: {}\n\n{HELP}", unknown.join(" ")).into()),
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
