//! `terrace config`: prints the settings in force with their sources, checks a configuration file, and prints
//! the reference of all settings.

use std::env;
use std::path::PathBuf;

use base::format_count;
use serde_json::json;
use terracedb::Result;

use super::setting::Setting;
use super::values::Values;
use super::{Config, FILE_VARIABLE, Flags, file, file_named};
use crate::outcome::Outcome;
use crate::output::{Output, report_to_stderr};
use crate::parsers::error_text;
use crate::place;
use crate::shared_args::OutputArgs;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Show every setting in force and its source
    Print(PrintArgs),
    /// List the mistakes in a configuration file
    Check(CheckArgs),
    /// Print the reference of settings, as Markdown
    Reference,
}

#[derive(Debug, clap::Args)]
pub(crate) struct PrintArgs {
    /// A store's directory, or a configuration file
    #[arg(value_parser = place::store())]
    store: Option<PathBuf>,
    #[command(flatten)]
    flags: Flags,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct CheckArgs {
    /// The configuration file
    file: PathBuf,
    #[command(flatten)]
    output: OutputArgs,
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

fn print(args: &PrintArgs) -> Result<Outcome> {
    let config = match &args.store {
        Some(store) => Config::of_store(store, &args.flags)?,
        None => Config::load(&args.flags, file_named(&args.flags).as_deref())?,
    };
    let mut out = Output::new();
    let mut rows = vec![["SETTING", "VALUE", "SOURCE", "CHANGES BY"].map(str::to_owned)];
    for setting in Setting::ALL {
        let (key, value) = (setting.key(), setting.show(&config.values));
        let (source, change) = (config.source(setting).to_string(), setting.while_open());
        if args.output.json {
            out.line(json!({
                "setting": key,
                "value": value,
                "source": source,
                "changes_while_open": change.is_some(),
            }))?;
        } else {
            let value = value.unwrap_or_else(|| setting.unset().to_owned());
            let change = change.unwrap_or("reopening the store");
            rows.push([key.to_owned(), value, source, change.to_owned()]);
        }
    }
    if !args.output.json {
        let width = |column: usize| {
            let texts = rows.iter().filter_map(|row| row.get(column));
            texts.map(|text| text.chars().count()).max().unwrap_or(0)
        };
        let (first, second, third) = (width(0), width(1), width(2));
        for [key, value, source, change] in &rows {
            out.line(format_args!("{key:<first$}  {value:<second$}  {source:<third$}  {change}"))?;
        }
    }
    out.flush()?;
    for name in unknown_variables() {
        let key = name.strip_prefix("TERRACE_").unwrap_or_default();
        let key = key.to_ascii_lowercase().replace("__", ".").replace('_', "-");
        report_to_stderr(format_args!(
            "note: {name} is no setting (expected {})",
            file::suggestion(&key)
        ));
    }
    Ok(Outcome::Done)
}

/// Environment variables with the prefix of settings that name no setting. Other programs may own them (a
/// cluster's services, a test's seed), so the command reports them and does not fail.
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

fn check(args: &CheckArgs) -> Result<Outcome> {
    let read = file::read(&args.file, &mut Values::default())?;
    let problems: Vec<_> = read.problems.iter().map(error_text).collect();
    let mut out = Output::new();
    if args.output.json {
        out.line(json!({
            "right": problems.is_empty(),
            "settings": read.set.len(),
            "problems": problems,
        }))?;
    } else if problems.is_empty() {
        out.line(format_args!(
            "{}: {}, no mistakes",
            args.file.display(),
            format_count(read.set.len(), "setting")
        ))?;
    } else {
        for problem in &problems {
            out.line(problem)?;
        }
    }
    out.flush()?;
    Ok(Outcome::good_if(problems.is_empty()))
}

/// The table of settings in docs/reference/settings.md.
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
