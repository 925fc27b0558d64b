//! `scrub`: the pages it reads, the damage it finds, its exit status.

use crate::support::*;

const PAGE: usize = 4096;

fn scrub(dir: &str, args: &[&str]) -> Run {
    terrace(&[&["scrub", dir][..], &MEMORY, args].concat())
}

#[test]
fn scrub_reads_every_page_of_an_undamaged_store() {
    let scratch = Scratch::new();
    let dir = filled(&scratch);
    // Compacted tables are not merged between the scrub and the check.
    terrace(&[&["compact", &dir][..], &MEMORY].concat()).good();
    let report = json_lines(&scrub(&dir, &["--json"]).good()).remove(0);
    let checked = json_lines(&terrace(&["check", &dir, "--json"]).good()).remove(0);
    assert_eq!(report["clean"], true, "{report}");
    assert_eq!((&report["tables"], &report["pages"]), (&checked["tables"], &checked["pages"]));
    assert!(report["seconds"].is_f64() && report["bytes"].as_u64() > Some(0), "{report}");
    let text = scrub(&dir, &[]).good();
    assert!(text.contains(" tables and 0 value files of ") && text.ends_with("clean\n"), "{text}");
}

/// `scrub` names a damaged page, and a table that cannot be opened.
#[test]
fn damage_is_named_and_ends_with_status_1() {
    let scratch = Scratch::new();
    let dir = filled(&scratch);
    let table = file(&dir, ".table");
    let name = table.file_name().unwrap().to_str().unwrap();
    flip(&table, PAGE + 1234);
    let run = scrub(&dir, &["--json"]);
    assert_eq!((run.code, run.err.as_str()), (1, ""), "{}", run.out);
    let report = json_lines(&run.out).remove(0);
    assert_eq!((&report["damages"], &report["tables"]), (&1.into(), &2.into()), "{report}");
    let problem = &report["problems"][0];
    assert_eq!((&problem["file"], &problem["page"]), (&name.into(), &1.into()), "{report}");
    assert!(problem["first_key"].is_string(), "{report}");
    let run = scrub(&dir, &[]);
    assert!(run.code == 1 && run.out.contains(name), "{}", run.out);
    assert!(run.out.ends_with("1 problem\n"), "{}", run.out);

    fs::write(&table, b"no table").unwrap();
    let run = scrub(&dir, &["--json"]);
    assert_eq!((run.code, run.err.as_str()), (1, ""), "{}", run.out);
    let report = json_lines(&run.out).remove(0);
    assert_eq!((&report["damages"], &report["tables"]), (&1.into(), &1.into()), "{report}");
    assert_eq!(report["problems"][0]["file"], name, "{report}");
}

#[test]
fn missing_store_and_open_store_are_refused() {
    let scratch = Scratch::new();
    let dir = scratch.arg("store");
    scrub(&dir, &[]).bad(2);
    assert!(!scratch.path("store").exists());
    let _db = terracedb::Db::builder(&dir).memory(64 << 20).open().unwrap();
    assert!(scrub(&dir, &[]).bad(2).contains("in use"));
}
