//! `terrace config`: what is in force and where it came from, whether a file is right, and what
//! there is to set.

use std::env;
use std::path::PathBuf;

use serde_json::json;
use terracedb::{Result, format_count};

use super::setting::{Setting, Values};
use super::{Config, FILE_VARIABLE, Flags, file, file_named};
use crate::Outcome;
use crate::output::{Output, tell};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Show every setting in force, and where it came from
    Print(Print),
    /// Say what is wrong with a configuration file
    Check(Check),
    /// Print the reference of settings, as Markdown
    Reference,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Print {
    /// A store's directory, or a configuration file
    store: Option<PathBuf>,
    #[command(flatten)]
    flags: Flags,
    /// Print one JSON object a setting
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Check {
    /// The configuration file
    file: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(command: &Command) -> Result<Outcome> {
    match command {
        Command::Print(args) => print(args),
        Command::Check(args) => check(args),
        Command::Reference => {
            let mut out = Output::new();
            out.bytes(reference().as_bytes())?;
            out.flush()?;
            Ok(Outcome::Done)
        }
    }
}

fn print(args: &Print) -> Result<Outcome> {
    let config = match &args.store {
        Some(store) => Config::of_store(store, &args.flags)?,
        None => Config::load(&args.flags, file_named(&args.flags).as_deref())?,
    };
    let mut out = Output::new();
    let mut rows = vec![["SETTING", "VALUE", "SOURCE", "CHANGES BY"].map(str::to_owned)];
    for setting in Setting::ALL {
        let (key, value) = (setting.key(), setting.show(&config.values));
        let (source, change) = (config.source(setting).to_string(), setting.while_open());
        if args.json {
            out.line(json!({
                "setting": key,
                "value": value,
                "source": source,
                "changes_while_open": change.is_some(),
            }))?;
        } else {
            let value = value.unwrap_or_else(|| setting.unset().to_owned());
            let change = change.unwrap_or("opening the store again");
            rows.push([key.to_owned(), value, source, change.to_owned()]);
        }
    }
    if !args.json {
        let width = |of: fn(&[String; 4]) -> &str| {
            rows.iter().map(|row| of(row).chars().count()).max().unwrap_or(0)
        };
        let [first, second, third] =
            [width(|[it, ..]| it), width(|[_, it, ..]| it), width(|[_, _, it, _]| it)];
        for [key, value, source, change] in &rows {
            out.line(format_args!("{key:<first$}  {value:<second$}  {source:<third$}  {change}"))?;
        }
    }
    out.flush()?;
    for name in unknown_variables() {
        let key = name.strip_prefix("TERRACE_").unwrap_or_default();
        let key = key.to_ascii_lowercase().replace("__", ".").replace('_', "-");
        tell(format_args!("note: {name} sets nothing (expected {})", file::likely(&key)));
    }
    Ok(Outcome::Done)
}

/// Variables that look like settings and are none. Others have their own (a cluster's services, a
/// test's seed), so they are told, not refused.
fn unknown_variables() -> Vec<String> {
    let known = Setting::ALL.map(Setting::variable);
    let mut names: Vec<_> = env::vars_os()
        .filter_map(|(name, _)| name.into_string().ok())
        .filter(|name| name.starts_with("TERRACE_") && name != FILE_VARIABLE)
        .filter(|name| !known.contains(name))
        .collect();
    names.sort();
    names
}

fn check(args: &Check) -> Result<Outcome> {
    let read = file::read(&args.file, &mut Values::default())?;
    let problems: Vec<_> = read.problems.iter().map(crate::args::plain).collect();
    let mut out = Output::new();
    if args.json {
        out.line(json!({
            "right": problems.is_empty(),
            "settings": read.set.len(),
            "problems": problems,
        }))?;
    } else if problems.is_empty() {
        out.line(format_args!(
            "{}: {}, right",
            args.file.display(),
            format_count(read.set.len(), "setting")
        ))?;
    } else {
        for problem in &problems {
            out.line(problem)?;
        }
    }
    out.flush()?;
    Ok(if problems.is_empty() { Outcome::Done } else { Outcome::Negative })
}

/// The table of settings in docs/operations.md.
fn reference() -> String {
    let mut text = "| setting | environment | takes | default | is | changes while open by |\n\
                    |---|---|---|---|---|---|\n"
        .to_owned();
    for setting in Setting::ALL {
        let default = setting
            .show(&Values::default())
            .map_or_else(|| setting.unset().to_owned(), |value| format!("`{value}`"));
        text.push_str(&format!(
            "| `{}` | `{}` | {} | {default} | {} | {} |\n",
            setting.key(),
            setting.variable(),
            setting.expects(),
            setting.about(),
            setting.while_open().map_or_else(String::new, |change| format!("`{change}`")),
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documented_reference_is_the_one_in_force() {
        let documented = include_str!("../../../../docs/operations.md");
        let text = reference();
        assert!(
            documented.contains(&text),
            "docs/operations.md needs what `terrace config reference` prints:\n{text}"
        );
    }
}
