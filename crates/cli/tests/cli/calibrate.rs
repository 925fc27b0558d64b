//! `calibrate`: tables, files, and whose content it does not touch.

use crate::support::*;

#[test]
fn an_emulated_device_is_printed_drawn_and_written() {
    let scratch = Scratch::new();
    let (file, chart) = (scratch.arg("dimm.toml"), scratch.arg("dimm.svg"));
    let args = ["calibrate", "emulated:optane-dimm", "--out", &file, "--chart", &chart];
    let out = terrace(&args).good();
    assert!(out.contains("emulated       optane-dimm, in virtual time\n"), "{out}");
    assert!(out.contains("write unit     256 B\n"), "{out}");
    assert!(out.contains("readers        3 ") && out.contains("writers        1 "), "{out}");
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.contains("\nversion = 1\n") && text.contains("\nunit-bytes = 256\n"), "{text}");
    assert!(fs::read_to_string(&chart).unwrap().starts_with("<svg "));
    // Virtual time is the same every time.
    assert_eq!(terrace(&args).good(), out);
}

#[test]
fn a_directory_is_measured_in_a_file_of_its_own() {
    let scratch = Scratch::new();
    let dir = scratch.arg("device");
    fs::create_dir(&dir).unwrap();
    fs::write(scratch.path("device/precious"), "as it was").unwrap();
    let out = terrace(&["calibrate", &dir, "--size", "1MiB", "--threads", "1"]).good();
    assert!(out.contains("read latency ") && out.contains("both GB/s"), "{out}");
    let left: Vec<_> =
        fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["precious"]);
}

#[test]
fn what_cannot_or_must_not_be_measured_is_refused() {
    let scratch = Scratch::new();
    let file = scratch.arg("precious");
    fs::write(&file, "as it was").unwrap();
    let err = terrace(&["calibrate", &file, "--overwrite"]).bad(2);
    assert!(err.contains("content would be lost"), "{err}");
    assert_eq!(fs::read_to_string(&file).unwrap(), "as it was");
    terrace(&["calibrate", &scratch.arg("none")]).bad(2);
    let err = terrace(&["calibrate", "numa:4000"]).bad(2);
    assert!(err.contains("no such NUMA node"), "{err}");
    let err = terrace(&["calibrate", "emulated:none"]).bad(2);
    assert!(err.contains("optane-ssd"), "{err}");
}
