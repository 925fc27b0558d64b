//! `bench`: every workload, every documented JSON field, and the directories that it accepts.

use crate::support::*;

const NAMES: [&str; 14] = [
    "fillseq",
    "fillrandom",
    "fillsync",
    "overwrite",
    "readrandom",
    "readmissing",
    "readseq",
    "readreverse",
    "seekrandom",
    "multireadrandom",
    "readwhilewriting",
    "deleterandom",
    "compact",
    "verify",
];

fn bench(args: &[&str]) -> Run {
    terrace(&[&["bench"][..], args, &MEMORY].concat())
}

/// The number at a path of names, `a.b.c`.
fn number(report: &Value, path: &str) -> f64 {
    let found = path.split('.').fold(report, |value, name| &value[name]);
    found.as_f64().unwrap_or_else(|| panic!("no number {path} in {report}"))
}

/// Scripts parse these fields.
#[test]
fn every_workload_reports_every_documented_field() {
    let options = ["--num", "500", "--threads", "2", "--json"];
    let out = bench(&[&NAMES[..], &options].concat()).good();
    let reports = json_lines(&out);
    assert_eq!(reports.len(), NAMES.len(), "{out}");
    for (report, name) in reports.iter().zip(NAMES) {
        assert_eq!(report["bench"], name);
        for path in [
            "threads ops seconds ops_per_sec found missing wrong cpu_seconds rss_bytes",
            "peak_rss_bytes memory_bytes stall_seconds settle_seconds written_bytes read_bytes",
            "space_bytes ops_per_sec_settled stalls.memory stalls.buffers stalls.runs stalls.space",
            "latency_us.mean latency_us.p50 latency_us.p95 latency_us.p99 latency_us.p999",
            "latency_us.max device.read_ops device.read_bytes device.write_ops",
            "device.write_bytes hits.row hits.page hits.scm hits.flash",
        ]
        .into_iter()
        .flat_map(str::split_whitespace)
        {
            assert!(number(report, path) >= 0.0, "{path} of {name}");
        }
        assert_eq!(number(report, "wrong"), 0.0, "{report}");
        let threads = match name {
            "compact" | "verify" => 1.0,
            "readwhilewriting" => 3.0,
            _ => 2.0,
        };
        assert_eq!(number(report, "threads"), threads);
        assert!(number(report, "rss_bytes") > 0.0 && number(report, "memory_bytes") > 0.0);
        let purposes = report["device"]["by_purpose"].as_object().unwrap();
        for purpose in ["log", "replay", "manifest", "data", "meta", "read_ahead", "flush"] {
            for count in ["read_ops", "read_bytes", "write_ops", "write_bytes"] {
                let path = format!("device.by_purpose.{purpose}.{count}");
                assert!(number(report, &path) <= number(report, &format!("device.{count}")));
            }
        }
        assert!(!purposes.is_empty());
        // A ratio with a zero denominator is null.
        let fields = report.as_object().unwrap();
        for ratio in ["device_reads_per_get", "write_amplification", "space_amplification"] {
            assert!(fields.contains_key(ratio), "{ratio} of {name}");
        }
        let writes = name.starts_with("fill")
            || ["overwrite", "readwhilewriting", "deleterandom"].contains(&name);
        assert_eq!(report["write_amplification"].is_null(), !writes, "{report}");
        let ops = number(report, "ops");
        let found = match name {
            "readrandom" | "multireadrandom" | "seekrandom" | "readwhilewriting" => 500.0,
            "readseq" | "readreverse" => 1000.0,
            "verify" => ops,
            _ => 0.0,
        };
        match name {
            "readseq" | "readreverse" => assert_eq!(ops, 1000.0, "{report}"),
            "readwhilewriting" => {
                let writes = number(report, "operations.update.count");
                assert_eq!(ops, 500.0 + writes, "{report}");
                assert!(writes > 0.0 && number(report, "operations.read.latency_us.p999") > 0.0);
            }
            "compact" => assert_eq!(ops, 1.0, "{report}"),
            // 500 deletes of 500 random keys leave a share of 1 / e.
            "verify" => assert!((130.0..240.0).contains(&ops), "{report}"),
            _ => assert_eq!(ops, 500.0, "{report}"),
        }
        let missing = if name == "readmissing" { 500.0 } else { 0.0 };
        assert_eq!((number(report, "found"), number(report, "missing")), (found, missing));
    }
}

/// Intervals are printed as lines of their own, `--settle` waits for compaction, and `--verify` finds every
/// entry.
#[test]
fn load_reports_intervals_settles_and_verifies() {
    let names = ["fillrandom", "overwrite", "--num", "3000", "--duration", "0.3", "--threads", "2"];
    let options = ["--report-interval", "0.1", "--settle", "--verify", "--json", "--seed", "7"];
    let lines = json_lines(&bench(&[&names[..], &options].concat()).good());
    let of = |name: &str, is_interval: bool| -> Vec<&Value> {
        let all = lines.iter().filter(|line| line["bench"] == name);
        all.filter(|line| line["at_seconds"].is_number() == is_interval).collect()
    };
    let intervals = of("overwrite", true);
    assert!(!intervals.is_empty(), "{lines:?}");
    let [report] = of("overwrite", false)[..] else { panic!("{lines:?}") };
    let ops: f64 = intervals.iter().map(|interval| number(interval, "ops")).sum();
    assert_eq!(ops, number(report, "ops"));
    assert!(number(report, "seconds") >= 0.3 && report["settled"] == true, "{report}");
    assert!(number(report, "ops_per_sec_settled") <= number(report, "ops_per_sec"));
    assert!(intervals.iter().all(|interval| number(interval, "space_bytes") > 0.0));
    let [verified] = of("verify", false)[..] else { panic!("{lines:?}") };
    assert!(number(verified, "ops") > 1500.0 && number(verified, "wrong") == 0.0, "{verified}");
}

#[test]
fn text_output_has_a_line_per_workload_and_no_progress_bar() {
    let out = bench(&["fillseq", "readrandom", "--num", "300", "--codec", "zstd"]).good();
    let lines: Vec<_> = out.lines().collect();
    assert_eq!(lines.len(), 3, "{out}");
    assert!(lines[0].starts_with("store ") && lines[0].contains("memory 64.0 MiB"), "{out}");
    assert!(lines[0].ends_with(", seed 0"), "{out}");
    assert!(lines[1].starts_with("fillseq ") && lines[1].contains("ops/sec"), "{out}");
    assert!(lines[2].starts_with("readrandom ") && lines[2].contains("(300 of 300 found)"));
}

#[test]
fn existing_store_is_used_only_with_its_flag() {
    let scratch = Scratch::new();
    let dir = scratch.arg("store");
    let on = |args: &[&str]| bench(&[args, &["--num", "400", "--data", &dir]].concat());
    on(&["fillseq", "--json"]).good();
    let report = &json_lines(&on(&["readrandom", "--existing", "--json"]).good())[0];
    assert_eq!((number(report, "found"), number(report, "missing")), (400.0, 0.0));
    // Tables answered the gets, because the store was flushed after the fill.
    assert!(number(report, "hits.page") + number(report, "hits.flash") > 0.0, "{report}");
    let before = files(&dir);
    let error = on(&["fillseq"]).bad(2);
    assert!(error.contains("--existing") && error.contains(&dir), "{error}");
    assert_eq!(files(&dir), before, "a refused bench changed the store");
}

#[test]
fn directory_with_other_files_is_refused_and_empty_one_is_no_store() {
    let scratch = Scratch::new();
    let dir = scratch.arg("notes");
    fs::create_dir(&dir).unwrap();
    bench(&["readrandom", "--num", "10", "--data", &dir, "--existing"]).bad(2);
    assert!(files(&dir).is_empty());
    fs::write(scratch.path("notes").join("todo.txt"), "buy milk").unwrap();
    let error = bench(&["fillseq", "--num", "10", "--data", &dir]).bad(2);
    assert!(error.contains("todo.txt"), "{error}");
    assert_eq!(files(&dir).len(), 1);
    let error = bench(&["readrandom", "--num", "10", "--existing"]).bad(2);
    assert!(error.contains("--data"), "{error}");
}

#[test]
fn duration_limits_reads_and_not_fills() {
    let args = ["fillseq", "readrandom", "--num", "2000", "--duration", "0.2", "--json"];
    let reports = json_lines(&bench(&args).good());
    assert_eq!(number(&reports[0], "ops"), 2000.0);
    assert!(number(&reports[1], "seconds") >= 0.2, "{}", reports[1]);
}

#[test]
fn options_out_of_range_are_refused_with_the_range() {
    for (args, said) in [
        (&["--key-size", "4"][..], "8..=65536"),
        (&["--threads", "0"], "1..=4096"),
        (&["--num", "0"], "number of keys"),
        (&["--depth", "99999"], "1..=4096"),
        (&["--value-size", "99999999999"], "67108864"),
        (&["--compression-ratio", "7"], "compression"),
        (&["--rate", "0"], "operations per second"),
        (&["--report-interval", "0"], "at least 10ms"),
        (&["readseq", "--rate", "5"], "`readseq`"),
    ] {
        let error = bench(&[&["fillseq"][..], args].concat()).bad(2);
        assert!(error.contains(said), "{args:?}: {error}");
    }
}

/// YCSB and the production mixes load an empty store first, report each kind of operation, and leave the
/// store as written.
#[test]
fn mixes_load_their_store_and_report_each_kind() {
    for (name, kinds) in [
        ("ycsb-a", &["read", "update"][..]),
        ("ycsb-d", &["read", "insert"]),
        ("ycsb-e", &["scan", "insert"]),
        ("ycsb-f", &["read", "rmw"]),
        ("mixgraph", &["read", "update", "scan"]),
        ("chat", &["read", "update", "insert"]),
        ("blobmeta", &["read", "update", "scan"]),
        ("hivecache", &["read", "update"]),
    ] {
        let options = ["--num", "600", "--ops", "900", "--threads", "2", "--verify", "--json"];
        let reports = json_lines(&bench(&[&[name][..], &options].concat()).good());
        let load = if name.starts_with("ycsb") { "ycsb-load" } else { &format!("{name}-load") };
        let names: Vec<_> =
            reports.iter().map(|report| report["bench"].as_str().unwrap()).collect();
        assert_eq!(names, [load, name, "verify"]);
        assert_eq!((number(&reports[0], "ops"), number(&reports[1], "ops")), (600.0, 900.0));
        let counted = reports[1]["operations"].as_object().unwrap();
        assert_eq!(counted.len(), kinds.len(), "{}", reports[1]);
        for kind in kinds {
            for figure in ["count", "ops_per_sec", "latency_us.mean", "latency_us.p95"] {
                assert!(number(&reports[1], &format!("operations.{kind}.{figure}")) > 0.0);
            }
        }
        let inserts = counted.get("insert").map_or(0.0, |kind| number(kind, "count"));
        assert_eq!(number(&reports[2], "ops"), 600.0 + inserts, "{name}");
    }
}

/// A later process accepts a store that an earlier process loaded and inserted into.
#[test]
fn mixes_continue_on_an_existing_store() {
    let scratch = Scratch::new();
    let dir = scratch.arg("store");
    let on = |args: &[&str]| {
        json_lines(&bench(&[args, &["--num", "500", "--data", &dir, "--json"]].concat()).good())
    };
    on(&["ycsb-load"]);
    let reports = on(&["ycsb-d", "ycsb-c", "verify", "--existing", "--seed", "3"]);
    assert_eq!(reports.len(), 3, "an existing store is not loaded again");
    assert!(number(&reports[2], "ops") > 500.0, "{}", reports[2]);
    let again = on(&["ycsb-b", "--existing", "--distribution", "uniform"]);
    let read = number(&again[0], "operations.read.count");
    assert_eq!((number(&again[0], "found"), number(&again[0], "wrong")), (read, 0.0));
}

/// By default, the trace gives the number of keys, and the file's name gives the format.
#[test]
fn workload_reads_the_keys_of_a_trace_in_order() {
    let scratch = Scratch::new();
    let (path, dir) = (scratch.arg("blocks.lis"), scratch.arg("store"));
    fs::write(&path, "900 50 0 1\n10 25 0 2\n900 50 0 3\n").unwrap();
    let trace = ["--trace", &path];
    let names = ["fillseq", "readrandom", "--value-size", "50", "--data", &dir];
    let out = bench(&[&names[..], &trace].concat()).good();
    assert!(out.contains("trace of 125 accesses, 75 distinct keys"), "{out}");
    assert!(out.contains("(125 of 125 found)"), "{out}");
    for (args, status, said) in [
        (&["readrandom", "--num", "74"][..], 2, "the 75 distinct keys of the trace"),
        (&["ycsb-a", "--key-size", "16"], 2, "`ycsb-a`"),
        (&["readrandom", "--distribution", "uniform"], 2, "--distribution"),
        (&["readrandom", "--format", "oracle-general"], 1, "byte 24 of "),
    ] {
        let error = bench(&[args, &trace].concat()).bad(status);
        assert!(error.contains(said), "{args:?}: {error}");
        assert!(!error.contains("terrace check"), "the trace is at fault: {error}");
    }
    let error = bench(&["readrandom", "--format", "lis"]).bad(2);
    assert!(error.contains("--trace"), "{error}");
}

/// A missing store is filled first, then each configuration runs with the keys of the trace.
#[test]
fn tiers_are_compared_with_the_keys_of_a_trace() {
    let scratch = Scratch::new();
    let (path, dir) = (scratch.arg("blocks.lis"), scratch.arg("store"));
    fs::write(&path, "900 500 0 1\n10 25 0 2\n900 500 0 3\n").unwrap();
    let place = format!("64MiB+8MiB@{}", scratch.arg("tier"));
    let out = terrace(&[
        "bench",
        "tiers",
        "readrandom",
        "--data",
        &dir,
        "--trace",
        &path,
        "--value-size",
        "400",
        "--threads",
        "2",
        "--duration",
        "0.2",
        "--rounds",
        "1",
        "--tier",
        "64MiB",
        "--tier",
        &place,
        "--json",
    ]);
    let reports = json_lines(&out.good());
    assert_eq!(reports.len(), 2, "{reports:?}");
    for report in &reports {
        assert_eq!((number(report, "missing"), number(report, "wrong")), (0.0, 0.0), "{report}");
        assert!(number(report, "found") > 0.0, "{report}");
    }
    assert_eq!(reports[1]["tiers"], place);
    assert!(reports[0]["policy"].is_null() && reports[1]["policy"] == "adaptive", "{reports:?}");
    // Scripts read these fields of a tier.
    let refused = ["cold", "budget", "churn", "busy", "dead", "kind", "place", "slow"];
    let refused = refused.map(|reason| number(&reports[1]["scm"], &format!("refused_{reason}")));
    assert_eq!(number(&reports[1]["scm"], "refused"), refused.iter().sum::<f64>());
    for name in ["hits", "misses", "admitted", "dropped", "promoted", "demoted", "bytes_written"] {
        assert!(number(&reports[1]["scm"], name) >= 0.0, "{name}");
    }
    assert!((0.0..=1.0).contains(&number(&reports[1], "io_wait_share")), "{reports:?}");
    assert!(reports[1]["emulation"].is_null(), "{reports:?}");
}

#[test]
fn tiers_report_the_cpu_time_of_emulation() {
    let scratch = Scratch::new();
    let data = scratch.arg("store");
    let args = ["bench", "tiers", "readrandom", "--data", &data, "--num", "600", "--json"];
    let runs = ["--threads", "2", "--duration", "0.2", "--rounds", "1"];
    let tier = ["--tier", "64MiB+8MiB@emulated:cxl-dram,by-kind"];
    let reports = json_lines(&terrace(&[&args[..], &runs, &tier].concat()).good());
    let emulation = &reports[0]["emulation"];
    assert_eq!(
        (&emulation["profile"], &reports[0]["policy"]),
        (&"cxl-dram".into(), &"by-kind".into())
    );
    assert!(number(emulation, "wait_cpu_seconds") >= 0.0, "{emulation}");
}

/// A mix with its own key and value sizes is loaded as `bench` loads it. A store of another workload shows in
/// the share of keys found, in every line, and in the exit status.
#[test]
fn tiers_load_the_store_of_the_workload() {
    let scratch = Scratch::new();
    let place = format!("64MiB+8MiB@{}", scratch.arg("tier"));
    let tiers = |name: &str, dir: &str, last: &[&str]| {
        let args = ["bench", "tiers", name, "--data", dir, "--num", "600", "--threads", "2"];
        let runs = ["--duration", "0.2", "--rounds", "1", "--tier", "64MiB", "--tier", &place];
        terrace(&[&args[..], &runs, last].concat())
    };
    for (name, kinds) in [("chat", 3), ("ycsb-b", 2), ("ycsb-e", 2)] {
        let dir = scratch.arg(name);
        let reports = json_lines(&tiers(name, &dir, &["--json"]).good());
        assert_eq!(reports.len(), 2, "{reports:?}");
        for report in &reports {
            assert_eq!(number(report, "found_share"), 1.0, "{report}");
            assert_eq!(
                (number(report, "wrong"), number(report, "missing")),
                (0.0, 0.0),
                "{report}"
            );
            assert!(number(report, "found") > 0.0, "{report}");
            assert_eq!(report["operations"].as_object().unwrap().len(), kinds, "{report}");
        }
    }
    let dir = scratch.arg("another");
    bench(&["fillrandom", "--num", "600", "--data", &dir]).good();
    let run = tiers("ycsb-c", &dir, &[]);
    let (line, found) = (run.out.lines().last().unwrap(), 3);
    assert_eq!(line.split_whitespace().nth(found), Some("0.00"), "{line}");
    assert_eq!(run.code, 2, "{}", run.err);
    assert!(run.err.contains("ycsb-load") && run.err.contains("0.00 % of the keys"), "{}", run.err);
}

/// The environment adds no SCM tier to a configuration without one.
#[test]
fn tiers_ignore_settings_of_the_environment() {
    let scratch = Scratch::new();
    let data = scratch.arg("store");
    let args = ["bench", "tiers", "readrandom", "--data", &data, "--num", "600", "--json"];
    let runs = ["--threads", "2", "--duration", "0.2", "--rounds", "1", "--tier", "64MiB"];
    let mut command = command(args.iter().chain(&runs));
    command.env("TERRACE_SCM__PATH", scratch.path("tier")).env("TERRACE_SCM__SIZE", "8MiB");
    command.env("TERRACE_CONFIG", scratch.path("no such file"));
    let reports = json_lines(&Run::of(command.output().unwrap()).good());
    assert!(reports.len() == 1 && reports[0]["scm"].is_null(), "{reports:?}");
    assert!(!scratch.path("tier").exists());
}

#[test]
fn lanes_end_with_a_summary_and_run_in_real_time() {
    let Ok(memory) = tempfile::tempdir_in("/dev/shm") else { return };
    let (scm, scratch) = (memory.path().to_str().unwrap(), Scratch::new());
    let short = ["--ops", "1000", "--duration", "0.01", "--num", "1000", "--json"];
    let args = ["bench", "lanes", "--scm", scm, "--data", &scratch.arg("")];
    let mut lines = json_lines(&terrace(&[&args[..], &short].concat()).good());
    let summary = lines.pop().unwrap();
    assert_eq!(
        (&summary["bench"], &summary["emulation"]),
        (&"lanes".into(), &"optane-dimm".into())
    );
    for path in [
        "user_share_of_peak_24_threads",
        "scaling_1_to_4_devices",
        "load_over.flatstore_inline",
        "load_over.log_per_thread",
        "synced_puts_over_flash",
        "dram_bytes_per_entry",
    ] {
        assert!(number(&summary, path) > 0.0, "{path} in {summary}");
    }
    // No ratio to a store of which no published figure was reproduced.
    assert!(summary["load_over"]["chameleondb"].is_null(), "{summary}");
    let (real, emulated): (Vec<_>, Vec<_>) =
        lines.iter().partition(|line| line["table"] == "real-time");
    let fields = ["devices", "threads", "mops", "p50_us", "p99_us"];
    for line in &lines {
        assert!(fields.iter().all(|field| number(line, field) > 0.0), "{line}");
        assert!(line["store"].is_string() && line["workload"].is_string(), "{line}");
    }
    assert!(emulated.iter().all(|line| number(line, "media_share_of_peak") > 0.0));
    let count = |store: &str, log: &str, workload: &str| {
        let same = |line: &&&Value| {
            line["store"] == store && line["log"] == log && line["workload"] == workload
        };
        real.iter().filter(same).count()
    };
    for store in ["resident", "ordered", "hash-map"] {
        let runs = ["put", "put-synced", "get"].map(|workload| count(store, "memory", workload));
        assert_eq!(runs, [2; 3], "{store}");
    }
    assert_eq!((count("ordered", "flash", "put-synced"), real.len()), (2, 22));
    // The stores are gone.
    assert_eq!(fs::read_dir(scm).unwrap().count(), 0);
}

#[test]
fn lanes_run_on_one_profile_and_refuse_scans() {
    let lanes = |more: &[&str]| {
        let short = ["bench", "lanes", "--ops", "1000", "--duration", "0", "--json"];
        terrace(&[&short[..], more].concat())
    };
    let of = |lines: &[Value], field: &str| -> std::collections::BTreeSet<String> {
        lines
            .iter()
            .filter(|line| line["table"] != "published")
            .map(|line| line[field].to_string())
            .collect()
    };
    let set = |names: &[&str]| names.iter().map(|name| format!("\"{name}\"")).collect();
    let mut lines = json_lines(&lanes(&["--profile", "cxl-dram", "--workloads", "c,d"]).good());
    let summary = lines.pop().unwrap();
    assert_eq!(summary["emulation"], "cxl-dram");
    assert!(number(&summary, "scaling_1_to_4_devices") > 1.0, "{summary}");
    assert_eq!(of(&lines, "profile"), set(&["cxl-dram"]));
    assert_eq!(of(&lines, "workload"), set(&["load", "c", "d"]));

    let refused = lanes(&["--workloads", "a,e"]).bad(2);
    assert!(refused.contains("needs scans"), "{refused}");
}
