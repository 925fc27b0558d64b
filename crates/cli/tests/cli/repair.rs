//! `repair`: its report, the files it keeps, its exit status.

use crate::support::*;

const PAGE: usize = 4096;

fn repair(args: &[&str], code: i32) -> Value {
    let run = terrace(&[&["repair", "--json"], args].concat());
    assert_eq!((run.code, run.err.as_str()), (code, ""), "{}", run.out);
    json_lines(&run.out).remove(0)
}

#[test]
fn damaged_table_is_repaired_and_its_lost_keys_are_named() {
    let scratch = Scratch::new();
    let dir = filled(&scratch);
    assert_eq!(repair(&[&dir], 0)["clean"], true);
    let table = file(&dir, ".table");
    flip(&table, PAGE + 1234);
    let name = table.file_name().unwrap().to_str().unwrap();

    let dry = repair(&[&dir, "--dry-run"], 1);
    assert_eq!((&dry["clean"], &dry["dry_run"]), (&false.into(), &true.into()), "{dry}");
    assert_eq!(terrace(&["check", &dir]).code, 1, "nothing was changed");

    let report = repair(&[&dir], 1);
    assert_eq!(report["repaired"][0]["file"], name, "{report}");
    let lost = &report["lost"][0];
    assert_eq!((&lost["page"], &lost["pages"]), (&1.into(), &1.into()), "{report}");
    assert!(lost["first_key"].is_string() && lost["what"] == "versions", "{report}");
    let kept = report["kept"][0].as_str().unwrap();
    assert!(Path::new(&dir).join(kept).exists() && kept.starts_with(name));
    assert!(terrace(&["check", &dir]).good().ends_with("clean\n"));
    assert_eq!(repair(&[&dir], 0)["clean"], true);
    assert!(terrace(&["repair", &dir]).good().ends_with("nothing to repair\n"));
}

#[test]
fn missing_store_and_wrong_usage_are_refused() {
    let scratch = Scratch::new();
    terrace(&["repair", &scratch.arg("nowhere")]).bad(2);
    terrace(&["repair"]).bad(2);
}
