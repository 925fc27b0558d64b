//! Compares this engine with others: all run the same cases with the same keys, values, driver and
//! verification.
//!
//! `cargo xtask peers` builds and runs this. It measures cases ([`workload::cases`]): each run of a store in
//! a process of its own ([`child`]), with the stores in rotation ([`compare`]). It keeps every run in
//! `results`; `cargo xtask generate` writes tables and charts from them.

mod bound;
mod child;
mod compare;
mod device;
mod floor;
mod machine;
mod measured;
mod stores;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use base::{Error, Result};
use workload::cases::{CASES, Case, Scale};

use child::Task;
use compare::Comparison;
use stores::Kind;

const HELP: &str = "\
usage: cargo xtask peers [--no-default-features] [--features berkeleydb] [--case NAME[,NAME..]]
                         [--store NAME[,NAME..]] [--runs N] [--quick | --tiny] [--data DIR]
       cargo xtask peers --list

  --no-default-features
               leaves out RocksDB, which takes ten minutes to compile; must come first
  --features   builds the comparison with Berkeley DB, which the case wan needs; must come next
  --case       cases to run (default: all)
  --store      stores to run (default: those of each case)
  --runs       runs of each store in each case (default: 5; quick: 1)
  --quick      a look: an eighth of large data and of its memory, a fifth of the time
  --tiny       a few thousand keys: whether everything runs
  --data       where stores lie; some 60 GB for all (default: peers-data)
  --list       show cases and stores
";

const RESULTS: &str = "results";

/// The command that reproduces the results, without the path of the data directory.
fn shown(arguments: &[&str]) -> String {
    let mut words = vec!["cargo xtask peers"];
    if !cfg!(feature = "rocksdb") {
        words.push("--no-default-features");
    }
    if cfg!(feature = "berkeleydb") {
        words.push("--features berkeleydb");
    }
    let is_place =
        |at: usize| at.checked_sub(1).and_then(|before| arguments.get(before)) == Some(&"--data");
    words.extend(
        arguments.iter().enumerate().map(|(at, word)| if is_place(at) { "DIR" } else { *word }),
    );
    words.join(" ")
}

fn run(arguments: &[&str]) -> Result<()> {
    match arguments {
        ["run" | "load", case, kind, scale, seed, dir] => {
            let task = Task {
                case: Case::named(case)?,
                kind: Kind::named(kind)?,
                scale: Scale::named(scale)?,
                seed: seed.parse().map_err(|_| Error::invalid("seed").got(seed))?,
                is_load: arguments.first() == Some(&"load"),
            };
            child::run(&task, Path::new(dir))
        }
        ["--list"] => {
            for case in CASES {
                let stores: Vec<_> =
                    Kind::of_case(case.name).iter().map(|kind| kind.name()).collect();
                println!("{:<17} {}\n{:18}{}", case.name, case.summary, "", stores.join(", "));
            }
            Ok(())
        }
        ["--help" | "-h" | "help"] => {
            print!("{HELP}");
            Ok(())
        }
        _ => comparison(arguments)?.run(),
    }
}

/// The comparison that the arguments ask for.
fn comparison(arguments: &[&str]) -> Result<Comparison> {
    let mut comparison = Comparison {
        cases: CASES.iter().collect(),
        stores: None,
        runs: 0,
        scale: Scale::Full,
        data: PathBuf::from("peers-data"),
        results: PathBuf::from(RESULTS),
        command: shown(arguments),
    };
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        let mut value = || {
            let none = || Error::invalid("argument").at(argument).expected("a value");
            arguments.next().ok_or_else(none)
        };
        match *argument {
            "--case" => {
                let named: Result<_> = value()?.split(',').map(Case::named).collect();
                comparison.cases = named?;
            }
            "--store" => {
                let named: Result<_> = value()?.split(',').map(Kind::named).collect();
                comparison.stores = Some(named?);
            }
            "--runs" => {
                let runs = value()?;
                comparison.runs = runs.parse().map_err(|_| Error::invalid("runs").got(runs))?;
            }
            "--quick" => comparison.scale = Scale::Quick,
            "--tiny" => comparison.scale = Scale::Tiny,
            "--data" => comparison.data = PathBuf::from(value()?),
            other => return Err(Error::invalid("argument").expected(HELP).got(other)),
        }
    }
    if comparison.runs == 0 {
        comparison.runs = if comparison.scale == Scale::Full { 5 } else { 1 };
    }
    Ok(comparison)
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("peers: {error}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_say_what_to_compare() {
        let arguments = ["--case", "cold,fill-1", "--store", "terrace,lmdb", "--quick"];
        let quick = comparison(&arguments).unwrap();
        let names: Vec<_> = quick.cases.iter().map(|case| case.name).collect();
        assert_eq!((names, quick.runs), (vec!["cold", "fill-1"], 1));
        assert_eq!(quick.stores, Some(vec![Kind::Terrace, Kind::Lmdb]));
        assert_eq!(comparison(&[]).unwrap().runs, 5);
        assert_eq!(comparison(&["--tiny", "--runs", "2"]).unwrap().runs, 2);
        for wrong in [&["--case", "x"][..], &["--case"], &["--runs", "x"], &["x"]] {
            assert!(comparison(wrong).is_err(), "{wrong:?}");
        }
    }
}
