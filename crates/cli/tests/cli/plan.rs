//! `plan`: for a trace, for a measured store, and with edited prices.

use crate::support::*;

const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/zipfian.u64be.xz");

fn plan(args: &[&str]) -> Run {
    terrace(&[&["plan"][..], args].concat())
}

/// The plan for the example trace, over data of some hundred GiB.
fn for_trace(args: &[&str]) -> Run {
    let trace = ["--trace", EXAMPLE, "--format", "u64be", "--value-size", "400", "--scale", "1e4"];
    plan(&[&trace, args].concat())
}

fn json(run: Run) -> Value {
    json_lines(&run.good()).remove(0)
}

#[test]
fn plan_for_a_trace_has_consistent_numbers_and_charts() {
    let scratch = Scratch::new();
    let chart = scratch.arg("plan.html");
    let plan = json(for_trace(&["--json", "--target", "hit=0.5", "--chart", &chart]));
    let mixes = plan["mixes"].as_array().unwrap();
    assert!(mixes.len() > 50 && mixes.iter().any(|mix| mix["efficient"] == true));
    for mix in mixes {
        let ratios = ["row", "dram", "scm", "flash"].map(|tier| mix["hit_ratio"][tier].as_f64());
        let sum: f64 = ratios.iter().map(|ratio| ratio.unwrap()).sum();
        assert!((sum - 1.0).abs() < 1e-6, "{mix}");
        for name in ["mean_us", "cpu_us", "ops_per_sec", "ops_per_sec_per_dollar"] {
            assert!(mix[name].as_f64().unwrap() > 0.0, "{name} in {mix}");
        }
        let of = |what: &str, name: &str| mix[what][name].as_f64().unwrap();
        assert!(of("whole", "dollars") > of("cache", "dollars"));
        assert!(of("whole", "watts") > of("cache", "watts"));
    }
    let chosen = &plan["chosen"];
    assert!(chosen["hit_ratio"]["flash"].as_f64().unwrap() <= 0.5, "{chosen}");
    for source in ["dram", "scm", "flash", "processor", "1P", "2P"] {
        assert!(plan["prices"]["sources"][source].is_string(), "{source}");
    }
    let html = fs::read_to_string(chart).unwrap();
    assert_eq!(html.matches("<svg").count(), html.matches("</svg>").count());
    assert_eq!((html.matches("<svg").count(), html.matches("class=\"chosen\"").count()), (2, 2));
    assert_eq!(html.matches("<title>").count(), mixes.len() + 1);
    assert!(html.starts_with("<!doctype html>") && html.trim_end().ends_with("</html>"));
    for never in ["NaN", "inf,", "http://", "https://", "<script"] {
        assert!(!html.contains(never), "{never}");
    }
}

#[test]
fn text_output_marks_efficient_mixes_and_the_choice() {
    let out = for_trace(&["--target", "latency=60us", "--prices", "2019"]).good();
    assert!(
        out.contains("prices 2019") && out.contains("\n> ") && out.contains("bound by"),
        "{out}"
    );
    let all = for_trace(&["--prices", "2019", "--all"]).good();
    assert!(all.lines().count() > out.lines().count() + 20);
    let one = json(for_trace(&["--json", "--dram", "1GiB", "--scm", "0,4GiB"]));
    assert_eq!(one["mixes"].as_array().unwrap().len(), 4);
    let slow =
        json(for_trace(&["--json", "--dram", "1GiB", "--scm", "0", "--latency", "flash=1ms"]));
    let mean = |plan: &Value| plan["mixes"][0]["mean_us"].as_f64().unwrap();
    assert!(mean(&slow) > 5.0 * mean(&one));
    let none = for_trace(&["--target", "throughput=1e12"]);
    assert!(none.code == 1 && none.out.contains("no mix meets the target"), "{}", none.out);
}

#[test]
fn plan_reads_statistics_of_a_measured_store() {
    let scratch = Scratch::new();
    let file = scratch.arg("stats.json");
    let bench = ["bench", "fillrandom", "readrandom", "--num", "60000", "--value-size", "400"];
    let rest = ["--distribution", "zipfian", "--settle", "--stats", &file];
    terrace(&[&bench[..], &rest, &MEMORY].concat()).good();
    let stats: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    let curves = &stats["curves"];
    assert!(curves["operations"].as_u64().unwrap() > 30_000, "{curves}");
    for name in ["rows", "pages"] {
        assert!(curves[name]["accesses"].as_u64().unwrap() > 1000, "{curves}");
        let points = curves[name]["points"].as_array().unwrap();
        assert_eq!(points.len(), 17);
        let misses = |at: usize| points[at]["misses"].as_f64().unwrap();
        assert!(misses(0) >= misses(16) && misses(0) > 0.0, "{curves}");
    }
    let whole = json(plan(&["--stats", &file, "--json"]));
    assert_eq!(whole["operations"], curves["operations"]);
    assert!(!whole["mixes"].as_array().unwrap().is_empty());
    let error = plan(&["--stats", &file, "--since", &file]).bad(2);
    assert!(error.contains("lookups"), "{error}");
    fs::write(scratch.path("other"), "{}").unwrap();
    assert!(plan(&["--stats", &scratch.arg("other")]).bad(2).contains("no curves"));
}

#[test]
fn prices_come_from_an_edited_file() {
    let scratch = Scratch::new();
    let (file, text) = (scratch.arg("prices.toml"), plan(&["--show-prices"]).good());
    fs::write(&file, text.replace("dollars_per_gib = 32.0", "dollars_per_gib = 64.0")).unwrap();
    let at = |prices: &str| {
        let plan = json(for_trace(&["--json", "--dram", "4GiB", "--scm", "0", "--prices", prices]));
        plan["mixes"][0]["cache"]["dollars"].as_f64().unwrap()
    };
    assert_eq!((at("2026"), at(&file)), (128.0, 256.0));
    fs::write(&file, text.replace("cores", "kerne")).unwrap();
    let error = for_trace(&["--prices", &file]).bad(2);
    assert!(error.contains("`server.cores`") && error.contains("prices.toml:"), "{error}");
    assert!(for_trace(&["--prices", "1999"]).bad(2).contains("2017, 2019, 2026"));
}

#[test]
fn requests_of_an_object_store_are_priced() {
    let args = ["--dram", "1GiB,64GiB", "--scm", "0", "--rate", "100000"];
    let plan = json(for_trace(&[&["--json"][..], &args].concat()));
    let mixes = plan["mixes"].as_array().unwrap();
    let of = |mix: &Value, name: &str| mix["object_store"][name].as_f64().unwrap();
    for mix in mixes {
        let pages = mix["pages_per_op"]["flash"].as_f64().unwrap();
        assert!((of(mix, "gets_per_sec") - 1e5 * pages).abs() < 1e-3, "{mix}");
        // $0.40 for a million, and 30 days.
        let dollars = of(mix, "gets_per_sec") * 2_592_000.0 * 0.4e-6;
        assert!((of(mix, "get_dollars_per_month") - dollars).abs() < 1e-3 * dollars, "{mix}");
        let saved = mix["object_store"]["dollars_saved_per_gib"]["dram"].as_f64().unwrap();
        assert!((0.0..dollars).contains(&saved), "{mix}");
    }
    assert!(mixes[0]["object_store"]["dollars_saved_per_gib"]["dram"].as_f64().unwrap() > 0.0);
    let text = for_trace(&args).good();
    assert!(text.contains("GET $/month") && text.contains("GiB dram saves"), "{text}");
    assert!(!for_trace(&args[..4]).good().contains("GET $/month"));
    let scratch = Scratch::new();
    let file = scratch.arg("prices.toml");
    let prices = plan_prices_without_store();
    fs::write(&file, prices).unwrap();
    let error = for_trace(&[&args[..], &["--prices", &file]].concat()).bad(2);
    assert!(error.contains("[object_store]"), "{error}");
}

/// A price list from before object stores had prices.
fn plan_prices_without_store() -> String {
    let text = plan(&["--show-prices"]).good();
    let (before, rest) = text.split_once("[object_store]").unwrap();
    let (_, after) = rest.split_once("[processor]").unwrap();
    format!("{before}[processor]{after}")
}

#[test]
fn wrong_arguments_are_refused_with_an_example() {
    assert!(plan(&[]).bad(2).contains("--trace"));
    assert!(plan(&["--trace", "web.trace.xz"]).bad(2).contains("--format"));
    assert!(for_trace(&["--target", "speed=1"]).bad(2).contains("hit=0.9"));
    assert!(for_trace(&["--latency", "scm=fast"]).bad(2).contains("300ns"));
    assert!(plan(&["--trace", "none", "--format", "lis"]).bad(2).contains("none"));
    let scale = ["--trace", EXAMPLE, "--format", "u64be", "--scale", "0"];
    assert!(plan(&scale).bad(2).contains("--scale"));
}
