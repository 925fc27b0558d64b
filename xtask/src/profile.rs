//! The CPU profile of a case of the comparison, as a flame graph or as annotated instructions.
//!
//! The case runs on this engine alone under `perf record`. A flame graph shows every sampled stack; the
//! annotation shows the hottest functions and the cost of each of their instructions.

mod flame;
mod stacks;

use std::fs::{self, File};
use std::process::{Command, Stdio};

use crate::command::{self, cargo, succeeds};
use crate::{Result, workspace};

/// Samples in a second. A prime number keeps sampling out of step with timers.
const RATE: &str = "997";

/// Samples in a second for a flame graph: fewer, because each copies the stack and is unwound.
const STACK_RATE: &str = "199";

/// Stacks are unwound by debug information, from copies of 8,192 bytes.
const STACKS: &str = "dwarf,8192";

/// The number of annotated functions, hottest first.
const FUNCTIONS: usize = 5;

/// The number of lines shown of a function's annotation, hottest first.
const LINES: usize = 25;

/// Lines with a smaller share of the function's samples, in per cent, are not shown.
const LINE_PERCENT_MIN: f64 = 1.0;

/// Profiles `CASE [--full] [--flame | --annotate]`.
pub(crate) fn run(arguments: &[&str]) -> Result {
    let usage =
        "usage: profile CASE [--full] [--flame | --annotate]; without CASE, it lists the cases";
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
    let data = data.to_str().ok_or("the path of the profile is not UTF-8")?;
    let mut build = cargo(["build", "--release", "--package", "terrace-workload"]);
    build.args(["--example", "case"]);
    command::run(build)?;
    let is_annotation = options.contains(&"--annotate");
    let rate = if is_annotation { RATE } else { STACK_RATE };
    let mut record = perf(&["record", "--quiet", "--freq", rate, "--output", data]);
    if !is_annotation {
        // Release builds have no frame pointers, so perf unwinds copies of the stack.
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

/// The functions in a report, hottest first. Those of the kernel are left out: perf cannot show their code.
fn symbols(report: &str) -> Vec<&str> {
    report
        .lines()
        .filter_map(|line| line.split_once("[.] "))
        .map(|(_, symbol)| symbol.trim())
        .collect()
}

/// The hottest lines of an annotation, in the order of the code.
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

/// The standard output of a command.
fn output(mut command: Command) -> Result<String> {
    let output = command.current_dir(workspace::root()).stderr(Stdio::null()).output()?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_and_hottest_lines_are_read_from_reports_of_perf() {
        let report = "# Overhead  Symbol\n    40.10%  [.] table::find\n    30.00%  [k] clear_page\n\
                      \n     9.00%  [.] <base::Key as Ord>::cmp\n";
        assert_eq!(symbols(report), ["table::find", "<base::Key as Ord>::cmp"]);
        let annotation = " Percent |\n    0.50 :  10: mov\n   60.25 :  20: cmp\n    2.00 :  30: jne\n\
                               : 40: nothing\n";
        assert_eq!(hottest(annotation), ["   60.25 :  20: cmp", "    2.00 :  30: jne"]);
    }
}
