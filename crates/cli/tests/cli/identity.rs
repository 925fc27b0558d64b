//! Names in a store's directory that are not files of the store: never followed, never overwritten.

use std::os::unix::fs::symlink;

use crate::support::*;

#[test]
fn a_lock_that_is_a_link_is_refused_and_its_target_is_unchanged() {
    let scratch = Scratch::new();
    let dir = filled(&scratch);
    let (lock, precious) = (Path::new(&dir).join("LOCK"), scratch.path("precious"));
    fs::write(&precious, "1234").unwrap();
    fs::remove_file(&lock).unwrap();
    symlink(&precious, &lock).unwrap();
    for command in [&["put", &dir, "key", "value"][..], &["check", &dir], &["repair", &dir]] {
        let error = terrace(command).bad(2);
        assert!(error.contains("LOCK") && error.contains("symbolic link"), "{error}");
    }
    assert_eq!(fs::read(&precious).unwrap(), b"1234");
    fs::remove_file(&lock).unwrap();
    assert!(terrace(&["check", &dir]).good().ends_with("clean\n"));
}

#[test]
fn a_link_at_the_name_of_the_next_log_segment_stops_no_command() {
    let scratch = Scratch::new();
    let dir = filled(&scratch);
    let precious = scratch.path("precious");
    fs::write(&precious, "1234").unwrap();
    let mut names = files(&dir).into_iter().map(|(name, _)| name);
    let last = names.rfind(|name| name.starts_with("log-0-")).expect("a log segment");
    let number: u64 = last["log-0-".len()..].parse().unwrap();
    for next in number + 1..number + 5 {
        symlink(&precious, Path::new(&dir).join(format!("log-0-{next:010}"))).unwrap();
    }
    for value in ["one", "two"] {
        terrace(&[&["put", &dir, "key", value][..], &MEMORY].concat()).good();
        assert!(terrace(&["get", &dir, "key"]).good().contains(value));
    }
    assert_eq!(fs::read(&precious).unwrap(), b"1234");
}
