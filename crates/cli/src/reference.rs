//! `terrace reference`: the help of every command as one Markdown page, docs/reference/cli.md.

use std::fmt::Write as _;

use terracedb::Result;

use crate::outcome::Outcome;
use crate::output::Output;

/// Prints the page for `command`, which describes the whole program.
pub(crate) fn run(command: &mut clap::Command) -> Result<Outcome> {
    command.build();
    let mut text = String::new();
    sections(command, &mut text);
    let mut out = Output::new();
    out.bytes(text.trim_start().as_bytes())?;
    out.flush()?;
    Ok(Outcome::Done)
}

/// A section for each visible subcommand. A command that only has subcommands gets none of its own.
fn sections(command: &clap::Command, text: &mut String) {
    for subcommand in command.get_subcommands() {
        if subcommand.is_hide_set() || subcommand.get_name() == "help" {
            continue;
        }
        let name = subcommand.get_bin_name().unwrap_or_else(|| subcommand.get_name());
        if !subcommand.is_subcommand_required_set() {
            let help = subcommand.clone().render_long_help().to_string();
            let lines: Vec<&str> = help.trim_end().lines().map(str::trim_end).collect();
            let _never = write!(text, "\n## {name}\n\n```text\n{}\n```\n", lines.join("\n"));
        }
        sections(subcommand, text);
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::args::Args;

    #[test]
    fn every_command_has_a_section_with_its_options() {
        let mut command = Args::command();
        command.build();
        let mut text = String::new();
        sections(&command, &mut text);
        for expected in
            ["## terrace put\n", "## terrace backup create\n", "--ttl", "Usage: terrace scan"]
        {
            assert!(text.contains(expected), "{expected}: {text}");
        }
        assert!(!text.contains("## terrace reference"), "hidden");
    }
}
