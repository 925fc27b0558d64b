//! Help and wrong usage.

use crate::support::*;

#[test]
fn help_names_every_command_workload_and_format() {
    let help = terrace(&["--help"]).good();
    let reading = ["get", "put", "delete", "delete-range", "scan", "ingest", "stats", "keyspace"];
    let keeping = ["compact", "checkpoint", "backup", "restore", "config", "inspect", "check"];
    for name in [&reading[..], &keeping, &["bench", "replay", "plan", "completions"]].concat() {
        assert!(help.contains(&format!("\n  {name} ")), "{name} in {help}");
    }
    let help = terrace(&["bench", "--help"]).good();
    for name in ["fillseq", "multireadrandom", "--existing", "--memory", "zipfian", "zstd"] {
        assert!(help.contains(name), "{name} in {help}");
    }
    let help = terrace(&["replay", "--help"]).good();
    for name in ["oracle-general", "lis", "u64be", "u32", "twitter-csv", "ycsb", "--records"] {
        assert!(help.contains(name), "{name} in {help}");
    }
    assert!(terrace(&["--version"]).good().starts_with("terrace "));
}

#[test]
fn missing_arguments_show_the_usage() {
    assert!(terrace(&[]).bad(2).contains("Usage: terrace"));
    assert!(terrace(&["bench"]).bad(2).contains("<NAME>"));
}

#[test]
fn unknown_name_lists_the_choices() {
    for (args, choice) in [
        (&["bench", "fillsec"][..], "fillseq"),
        (&["replay", "f", "--format", "csv"], "twitter-csv"),
        (&["bench", "fillseq", "--codec", "gzip"], "zstd"),
        (&["bench", "fillseq", "--distribution", "normal"], "zipfian"),
        (&["inspect", "page", "f"], "manifest"),
        (&["chek", "d"], "check"),
    ] {
        let error = terrace(args).bad(2);
        assert!(error.contains(choice), "{args:?}: {error}");
        assert!(!error.contains("invalid: "), "{error}");
    }
}

#[test]
fn size_and_time_errors_show_the_expected_form() {
    let error = terrace(&["bench", "fillseq", "--memory", "lots"]).bad(2);
    assert!(error.contains("512MiB") && error.contains("`lots`"), "{error}");
    let error = terrace(&["bench", "fillseq", "--duration", "soon"]).bad(2);
    assert!(error.contains("30 or 0.5"), "{error}");
    let error = terrace(&["bench", "fillseq", "--num", "10", "--memory", "10MiB"]).bad(2);
    assert!(error.contains("at least 64MiB") && error.contains("got 10.0 MiB"), "{error}");
}
