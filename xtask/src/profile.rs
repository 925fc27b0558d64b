//! Where the time of a case goes: one command from a case of the comparison to a flame graph, or to
//! annotated instructions.
//!
//! The case runs on this engine alone under `perf record`. A flame graph shows every stack that was
//! sampled; the annotation shows the hottest functions and, instruction by instruction, what they
//! cost.

mod flame;
mod stacks;

use std::fs::{self, File};
use std::process::{Command, Stdio};

use crate::command::{self, cargo, succeeds};
use crate::{Result, workspace};

/// Samples a second; no round number, so as to keep out of step with timers. A sample for a flame graph
/// takes a copy of the stack, which someone has to unwind.
const RATE: &str = "997";
const STACK_RATE: &str = "199";
const STACKS: &str = "dwarf,8192";

/// Functions that are annotated.
const FUNCTIONS: usize = 5;

/// The lines of a function's annotation that are shown: the hottest.
const LINES: usize = 25;

/// A line of the annotation below this part of its function's samples, per cent, is left out.
const LINE_PERCENT_MIN: f64 = 1.0;

/// Profiles `CASE [--full] [--flame | --annotate]`.
pub(crate) fn run(arguments: &[&str]) -> Result {
    let usage = "profile CASE [--full] [--flame | --annotate]; without a case: the cases";
    let (case, options) = match arguments.split_first() {
        None => return command::run(case_command(&[])),
        Some((case, options)) if !case.starts_with('-') => (*case, options),
        Some(_) => return Err(usage.into()),
    };
    if options.iter().any(|option| !["--full", "--flame", "--annotate"].contains(option)) {
        return Err(usage.into());
    }
    if !succeeds(perf(&["--version"])) {
        return Err("profiling needs perf: apt-get install linux-perf".into());
    }
    let scale = if options.contains(&"--full") { "full" } else { "quick" };
    let folder = workspace::root().join("target/profile");
    fs::create_dir_all(&folder)?;
    let data = folder.join(format!("{case}.perf"));
    let data = data.to_str().ok_or("a path that is no text")?;
    let mut build = cargo(["build", "--release", "--package", "terrace-workload"]);
    build.args(["--example", "case"]);
    command::run(build)?;
    let is_annotation = options.contains(&"--annotate");
    let rate = if is_annotation { RATE } else { STACK_RATE };
    let mut record = perf(&["record", "--quiet", "--freq", rate, "--output", data]);
    if !is_annotation {
        // Frame pointers are not there in release builds; what unwinds is the stack's copy.
        record.args(["--call-graph", STACKS]);
    }
    record.args(["--", "target/release/examples/case", case, scale]);
    command::run(record)?;
    if is_annotation {
        return annotate(data);
    }
    let script = folder.join(format!("{case}.stacks"));
    let mut command = perf(&["script", "--input", data, "--fields", "comm,ip,sym", "--no-inline"]);
    command.stdout(Stdio::from(File::create(&script)?)).stderr(Stdio::null());
    command::run(command)?;
    let stacks = stacks::fold(&fs::read_to_string(&script)?);
    let graph = folder.join(format!("{case}.svg"));
    fs::write(&graph, flame::draw(case, &stacks))?;
    println!("{}", graph.display());
    Ok(())
}

/// Prints the hottest functions, and the hottest instructions of each.
fn annotate(data: &str) -> Result {
    let report = output(perf(&[
        "report",
        "--input",
        data,
        "--no-children",
        "--stdio",
        "--call-graph",
        "none",
        "--percent-limit",
        "0.5",
        "--fields",
        "overhead,symbol",
    ]))?;
    println!("{report}");
    for symbol in symbols(&report).into_iter().take(FUNCTIONS) {
        let annotation = output(perf(&[
            "annotate",
            "--input",
            data,
            "--stdio",
            "--symbol",
            symbol,
            "--no-source",
        ]));
        println!("== {symbol}");
        for line in hottest(&annotation.unwrap_or_default()) {
            println!("{line}");
        }
    }
    Ok(())
}

/// The functions a report names, hottest first; the kernel's have no instructions to show.
fn symbols(report: &str) -> Vec<&str> {
    report
        .lines()
        .filter_map(|line| line.split_once("[.] "))
        .map(|(_, symbol)| symbol.trim())
        .collect()
}

/// The lines of an annotation that cost most, in the order of the code.
fn hottest(annotation: &str) -> Vec<&str> {
    let percent = |line: &str| line.trim_start().split(' ').next()?.parse::<f64>().ok();
    let mut lines: Vec<(usize, &str, f64)> = annotation
        .lines()
        .enumerate()
        .filter_map(|(at, line)| Some((at, line, percent(line)?)))
        .filter(|(_, _, percent)| *percent >= LINE_PERCENT_MIN)
        .collect();
    lines.sort_by(|a, b| b.2.total_cmp(&a.2));
    lines.truncate(LINES);
    lines.sort_by_key(|(at, ..)| *at);
    lines.into_iter().map(|(_, line, _)| line).collect()
}

fn case_command(arguments: &[&str]) -> Command {
    let mut command = cargo(["run", "--release", "--package", "terrace-workload"]);
    command.args(["--example", "case", "--"]).args(arguments);
    command
}

fn perf(arguments: &[&str]) -> Command {
    let mut command = Command::new("perf");
    command.args(arguments);
    command
}

/// What a command prints.
fn output(mut command: Command) -> Result<String> {
    let output = command.current_dir(workspace::root()).stderr(Stdio::null()).output()?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_and_instructions_are_found_in_reports() {
        let report = "# Overhead  Symbol\n    40.10%  [.] table::find\n    30.00%  [k] clear_page\n\
                      \n     9.00%  [.] <base::Key as Ord>::cmp\n";
        assert_eq!(symbols(report), ["table::find", "<base::Key as Ord>::cmp"]);
        let annotation = " Percent |\n    0.50 :  10: mov\n   60.25 :  20: cmp\n    2.00 :  30: jne\n\
                               : 40: nothing\n";
        assert_eq!(hottest(annotation), ["   60.25 :  20: cmp", "    2.00 :  30: jne"]);
    }
}
