//! `terrace-sim`: simulates many seeds until one fails.
//!
//! With only a seed, it runs that seed. Otherwise it runs consecutive seeds from the given or a random one,
//! for a minute or the given time. For a failing script it prints the seed and the last events, then shrinks
//! the script and prints the failure again; `--all` continues with the next seed. `--crowded` runs crowded
//! scripts: many keyspaces, long keys and large values, with the smallest memory limit.
//! `TERRACE_TRACE=1` prints each event as it happens.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use base::Rng;
use terrace_sim::{OffloadSums, Script, TierSums, run, shrink, steps};

const HELP: &str = "\
usage: terrace-sim [--seed SEED] [--count SCRIPTS] [--seconds SECONDS | --hours HOURS]
                   [--steps STEPS] [--crowded] [--all]";

/// A script hangs if no step ends during this many one-second checks. Checks are counted instead of time,
/// because a stopped process must not count as hanging; scripts may be slow on a busy machine or while one is
/// shrunk.
const HANGS_AFTER: u64 = 300;

struct Arguments {
    seed: u64,
    count: u64,
    seconds: u64,
    steps: usize,
    /// Whether to continue after a failure.
    all: bool,
    /// Whether to run crowded scripts.
    crowded: bool,
}

fn arguments() -> Result<Arguments, String> {
    let (_, random) = Rng::from_env();
    let (mut seed, mut count, mut seconds, mut steps) = (None, None, None, 500);
    let (mut all, mut crowded) = (false, false);
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        if word == "--all" {
            all = true;
            continue;
        }
        if matches!(word.as_str(), "--help" | "-h") {
            return Err(HELP.to_owned());
        }
        if word == "--crowded" {
            crowded = true;
            continue;
        }
        let number = words.next().and_then(|word| word.parse::<u64>().ok());
        let number = number.ok_or_else(|| format!("{word} takes a number\n{HELP}"))?;
        match word.as_str() {
            "--seed" => seed = Some(number),
            "--count" => count = Some(number),
            "--seconds" => seconds = Some(number),
            "--hours" => seconds = Some(number.saturating_mul(3600)),
            "--steps" => steps = number as usize,
            _ => return Err(HELP.to_owned()),
        }
    }
    let alone = seed.is_some() && count.is_none() && seconds.is_none();
    let count = count.unwrap_or(if alone { 1 } else { u64::MAX });
    let seconds = seconds.unwrap_or(if alone { u64::MAX } else { 60 });
    Ok(Arguments { seed: seed.unwrap_or(random), count, seconds, steps, all, crowded })
}

fn main() -> ExitCode {
    let arguments = match arguments() {
        Ok(arguments) => arguments,
        Err(why) => {
            eprintln!("{why}");
            return ExitCode::FAILURE;
        }
    };
    println!("seeds from {}", arguments.seed);
    let (start, current) = (Instant::now(), Arc::new(AtomicU64::new(arguments.seed)));
    watch(&current);
    // A panic is reported as part of the failure.
    std::panic::set_hook(Box::new(|_| ()));
    let (mut done, mut opens, mut failures, mut tiers) = (0, 0, 0, TierSums::default());
    let mut offload = OffloadSums::default();
    while done < arguments.count && start.elapsed() < Duration::from_secs(arguments.seconds) {
        let seed = arguments.seed.wrapping_add(done);
        current.store(seed, Ordering::Relaxed);
        let script = match arguments.crowded {
            true => Script::crowded(seed, arguments.steps),
            false => Script::new(seed, arguments.steps),
        };
        // Every third script has workers.
        let script = if seed.is_multiple_of(3) { script.with_workers() } else { script };
        match run(&script) {
            Ok(report) => {
                opens += report.opens;
                tiers += report.tiers;
                offload += report.offload;
            }
            Err(failure) => {
                failures += 1;
                println!("{failure}");
                let (short, failure) = shrink(&script, *failure, 600);
                println!("shrunk to {:?}:\n{failure}", short.steps);
                if !arguments.all {
                    return ExitCode::FAILURE;
                }
            }
        }
        done += 1;
    }
    let took = start.elapsed();
    println!(
        "{done} scripts of {} steps, {opens} opens, {failures} failures, {took:.1?}",
        arguments.steps
    );
    println!("{tiers:?}");
    println!("{offload:?}");
    if failures > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Starts a thread that ends the process if a seed hangs, and names the seed.
fn watch(current: &Arc<AtomicU64>) {
    let current = Arc::clone(current);
    std::thread::spawn(move || {
        let (mut last, mut looks) = (0, 0);
        loop {
            std::thread::sleep(Duration::from_secs(1));
            let lived = steps();
            looks = if lived == last { looks + 1 } else { 0 };
            last = lived;
            if looks > HANGS_AFTER {
                let seed = current.load(Ordering::Relaxed);
                eprintln!("seed {seed} hangs: no step ended in {looks} seconds");
                std::process::exit(3);
            }
        }
    });
}
