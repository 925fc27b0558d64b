//! `replay`: a trace of each format, written by the test.

use crate::support::*;

fn replay(path: &str, format: &str, args: &[&str]) -> Run {
    terrace(&[&["replay", path, "--format", format][..], &MEMORY, args].concat())
}

fn report(path: &str, format: &str, args: &[&str]) -> Value {
    let out = replay(path, format, &[args, &["--json"]].concat()).good();
    let mut lines = json_lines(&out);
    assert_eq!(lines.len(), 1, "{out}");
    lines.remove(0)
}

fn counts(report: &Value) -> [u64; 4] {
    ["gets", "puts", "found", "missing"].map(|name| report[name].as_u64().unwrap())
}

/// Keys of a trace with three accesses to each of 50 keys.
fn keys() -> impl Iterator<Item = u64> {
    (0..150).map(|access| access % 50)
}

#[test]
fn each_recorded_format_replays() {
    let scratch = Scratch::new();
    let oracle = |key: u64| {
        let record = [&1u32.to_le_bytes()[..], &key.to_le_bytes(), &300u32.to_le_bytes()];
        [&record.concat()[..], &(-1i64).to_le_bytes()].concat()
    };
    let traces: [(&str, Vec<u8>); 5] = [
        ("oracle-general", keys().flat_map(oracle).collect()),
        ("u64be", keys().flat_map(u64::to_be_bytes).collect()),
        ("u32", keys().flat_map(|key| (key as u32).to_be_bytes()).collect()),
        ("lis", b"0 50 0 1\n0 50 0 2\n0 50 0 3\n".to_vec()),
        (
            "twitter-csv",
            keys().flat_map(|key| format!("0,k{key},3,200,1,get,0\n").into_bytes()).collect(),
        ),
    ];
    for (format, bytes) in traces {
        let path = scratch.path(format);
        fs::write(&path, bytes).unwrap();
        let path = path.display().to_string();
        let whole = report(&path, format, &[]);
        assert_eq!(counts(&whole), [150, 50, 100, 50], "{format}: {whole}");
        assert_eq!((&whole["wrong"], &whole["bench"]), (&0.into(), &"replay".into()));
        let ratio = whole["hit_ratio"]["store"].as_f64().unwrap();
        assert!((ratio - 100.0 / 150.0).abs() < 1e-9, "{whole}");
        let tiers = ["row", "page", "scm", "flash"];
        let hits: u64 = tiers.iter().map(|name| whole["hits"][name].as_u64().unwrap()).sum();
        let parts: f64 = tiers.iter().map(|name| whole["hit_ratio"][name].as_f64().unwrap()).sum();
        assert_eq!(hits, 100, "what found nothing is no tier's: {whole}");
        assert!((parts - ratio).abs() < 1e-9, "{whole}");
        for name in ["refused", "deletes", "scans", "ops", "cpu_seconds", "rss_bytes"] {
            assert!(whole[name].is_number(), "{name} in {whole}");
        }
        assert_eq!(counts(&report(&path, format, &["--limit", "60"])), [60, 50, 10, 50]);
    }
}

#[test]
fn text_output_has_the_hits_and_the_compressed_example_replays() {
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/zipfian.u64be.xz");
    let out = replay(example, "u64be", &["--limit", "2000", "--value-size", "50"]).good();
    assert!(out.contains("2000 accesses") && out.contains("hits ") && out.contains("0 wrong"));
}

#[test]
fn existing_store_answers_the_next_replay() {
    let scratch = Scratch::new();
    let (path, data) = (scratch.arg("trace"), scratch.arg("store"));
    fs::write(&path, "0 50 0 1\n").unwrap();
    assert_eq!(counts(&report(&path, "lis", &["--data", &data])), [50, 50, 0, 50]);
    assert_eq!(counts(&report(&path, "lis", &["--data", &data])), [50, 0, 50, 0]);
}

#[test]
fn ycsb_workload_runs_at_the_requested_size() {
    let scratch = Scratch::new();
    let path = scratch.arg("workload");
    fs::write(
        &path,
        "recordcount=1000\noperationcount=1000\nreadproportion=1\nupdateproportion=0\n",
    )
    .unwrap();
    assert_eq!(report(&path, "ycsb", &[])["gets"], 1000);
    let small = report(&path, "ycsb", &["--records", "50", "--operations", "120"]);
    assert_eq!(counts(&small), [120, 0, 120, 0]);
    let error = replay(&path, "ycsb", &["--records", "0"]).bad(2);
    assert!(error.contains("recordcount"), "{error}");
    let error = replay(&path, "lis", &["--operations", "5"]).bad(2);
    assert!(error.contains("--format ycsb") && error.contains("--format lis"), "{error}");
}

#[test]
fn damaged_trace_error_names_the_line_and_no_store() {
    let scratch = Scratch::new();
    let path = scratch.arg("trace");
    fs::write(&path, "0 5 0 1\nnonsense\n").unwrap();
    let run = replay(&path, "lis", &["--json"]);
    let error = run.bad(1);
    assert!(error.contains("line 2") && error.contains(&path), "{error}");
    assert!(error.contains("nonsense") && !error.contains("terrace check"), "{error}");
    assert!(replay(&scratch.arg("none"), "lis", &[]).bad(2).contains("none"));
    let empty = scratch.arg("empty");
    fs::write(&empty, "").unwrap();
    assert!(replay(&empty, "u32", &["--json"]).bad(2).contains("at least one access"));
    let packed = scratch.arg("trace.gz");
    fs::write(&packed, [0x1f, 0x8b, 8, 0, 0, 0, 0, 0]).unwrap();
    let error = replay(&packed, "u64be", &[]).bad(2);
    assert!(error.contains(".zst") && error.contains(".gz"), "{error}");
}
