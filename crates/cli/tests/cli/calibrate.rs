//! `calibrate`: its table and files, and the contents that it must not overwrite.

use crate::support::*;

#[test]
fn emulated_device_is_printed_charted_and_written() {
    let scratch = Scratch::new();
    let (file, chart) = (scratch.arg("dimm.toml"), scratch.arg("dimm.svg"));
    let args = ["calibrate", "emulated:optane-dimm", "--out", &file, "--chart", &chart];
    let out = terrace(&args).good();
    assert!(out.contains("emulated       optane-dimm, in virtual time\n"), "{out}");
    assert!(out.contains("write unit     256 B\n"), "{out}");
    assert!(out.contains("readers        3 ") && out.contains("writers        1 "), "{out}");
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.contains("\nversion = 2\n") && text.contains("\nunit-bytes = 256\n"), "{text}");
    assert!(fs::read_to_string(&chart).unwrap().starts_with("<svg "));
    // Virtual time is deterministic.
    assert_eq!(terrace(&args).good(), out);
}

#[test]
fn directory_is_measured_in_a_temporary_file() {
    let scratch = Scratch::new();
    let dir = scratch.arg("device");
    fs::create_dir(&dir).unwrap();
    fs::write(scratch.path("device/precious"), "as it was").unwrap();
    let out = terrace(&["calibrate", &dir, "--size", "1MiB", "--threads", "1"]).good();
    assert!(out.contains("read latency ") && out.contains("both GB/s"), "{out}");
    let left: Vec<_> =
        fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    let kept = "terrace.calibration";
    assert!(left.len() == 2 && left.iter().all(|name| name == "precious" || name == kept));
    let file = format!("{dir}/{kept}");
    assert!(out.ends_with(&format!("\nwritten to {file}\n")), "{out}");
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.contains(&format!("\nplace = \"{dir}\"\n")), "{text}");
    assert!(!text.contains("measured-unix-ms = 0\n"), "{text}");
}

#[test]
fn tier_uses_the_calibration_of_its_directory_or_says_why_not() {
    let scratch = Scratch::new();
    let (store, device) = (scratch.arg("store"), scratch.arg("device"));
    fs::create_dir(&device).unwrap();
    let place = format!("emulated:optane-ssd@{device}");
    terrace(&["calibrate", &place]).good();
    let scm = [format!("scm.path={place}"), "scm.size=16MiB".to_owned()];
    let [path, size] = scm.each_ref().map(String::as_str);
    let with = |command: &[&str]| {
        let set = ["--memory", "64MiB", "--set", path, "--set", size];
        terrace(&[command, &set].concat())
    };
    with(&["put", &store, "key", "value"]).good();
    let out = with(&["stats", &store]).good();
    let wanted =
        "terrace.calibration: 10.0 us per page read, 1.9 us per page write, 6 writes in flight";
    assert!(out.contains(wanted) && !out.contains("not used"), "{out}");
    // The calibration of another device, or a damaged one, is reported and ignored; the store works.
    let file = format!("{device}/terrace.calibration");
    let text = fs::read_to_string(&file).unwrap();
    for damaged in [text.replace("\"optane-ssd\"", "\"nvme\""), "?".to_owned()] {
        fs::write(&file, damaged).unwrap();
        let out = with(&["get", &store, "key"]);
        assert!(out.err.contains("terrace.calibration is not used, calibrate again: "));
        assert_eq!((out.code, out.out.as_str()), (0, "value\n"));
        let out = with(&["stats", &store]).out;
        assert!(out.contains("warning: ") && out.contains("is not used"), "{out}");
    }
}

#[test]
fn unmeasurable_place_and_existing_file_are_refused() {
    let scratch = Scratch::new();
    let file = scratch.arg("precious");
    fs::write(&file, "as it was").unwrap();
    let err = terrace(&["calibrate", &file, "--overwrite"]).bad(2);
    assert!(err.contains("contents of a file would be lost"), "{err}");
    assert_eq!(fs::read_to_string(&file).unwrap(), "as it was");
    terrace(&["calibrate", &scratch.arg("none")]).bad(2);
    let err = terrace(&["calibrate", "numa:4000"]).bad(2);
    assert!(err.contains("no such NUMA node"), "{err}");
    let err = terrace(&["calibrate", "emulated:none"]).bad(2);
    assert!(err.contains("optane-ssd"), "{err}");
}
