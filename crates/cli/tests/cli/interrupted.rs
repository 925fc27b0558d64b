//! Ctrl-C and SIGTERM: a command ends with 130 or 143, and leaves no half-made output. A command that was
//! quicker than the signal ends as it does without one; a signal before the command began ends it at once.

use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::support::*;

/// Time between two looks at the progress of a command.
const LOOK_INTERVAL: Duration = Duration::from_millis(2);

fn signal(child: &Child, signal: Signal) {
    let pid = Pid::from_raw(child.id() as i32).unwrap();
    kill_process(pid, signal).unwrap();
}

fn spawn(args: &[&str]) -> Child {
    let mut command = command(args);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Waits until `reached`, while the command runs.
fn wait_until(child: &mut Child, reached: impl Fn() -> bool) {
    while !reached() {
        assert!(child.try_wait().unwrap().is_none(), "it ended early: {:?}", child.wait());
        std::thread::sleep(LOOK_INTERVAL);
    }
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Ended {
    /// Before the signal.
    Completed,
    Interrupted,
}

/// Runs a command and interrupts it after each of several times, from at once to longer than most commands
/// take. Calls `check` after each run; `prepare` before.
fn interrupt_anywhere(
    args: &[&str],
    completed: &[i32],
    mut prepare: impl FnMut(),
    mut check: impl FnMut(Ended, &str),
) {
    for millis in [0, 1, 2, 3, 5, 7, 10, 14, 20, 30, 50, 80, 200] {
        prepare();
        let child = spawn(args);
        std::thread::sleep(Duration::from_millis(millis));
        signal(&child, Signal::INT);
        let output = child.wait_with_output().unwrap();
        let what = format!("{args:?} after {millis} ms: {output:?}");
        let ended = match output.status.code() {
            Some(130) => Ended::Interrupted,
            // The process did not handle signals yet.
            None if output.status.signal() == Some(Signal::INT.as_raw()) => Ended::Interrupted,
            Some(code) if completed.contains(&code) => Ended::Completed,
            _ => panic!("{what}"),
        };
        check(ended, &what);
    }
}

/// The names in a directory; none if it does not exist.
fn names(dir: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// The manifests of a store. Each open writes another one.
fn manifests(store: &Path) -> Vec<String> {
    let mut names = names(store);
    names.retain(|name| name.starts_with("manifest-"));
    names
}

/// The store is whole, and has no files of merges or ingests that did not end.
fn assert_whole(store: &str, what: &str) {
    let run = terrace(&["check", store]);
    assert_eq!(run.code, 0, "{what}: {}", run.out);
    // The next open removes segments and manifests that are not in force any more, as after any end.
    let is_left = |line: &&str| line.starts_with("note: ") && line.contains(".table");
    assert_eq!(run.out.lines().find(is_left), None, "{what}: {}", run.out);
}

#[test]
fn an_interrupted_ingest_leaves_no_new_store_and_no_new_keyspace() {
    let scratch = Scratch::new();
    let store = scratch.arg("store");
    let args = [&["ingest", &store, "-", "--keyspace", "new"][..], &MEMORY].concat();
    let interrupted = |kind: Signal, is_waiting: bool| {
        let path = scratch.path("store");
        let (mut key, before) = (0u64, manifests(&path));
        let mut child = command(&args);
        let child = child.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = child.spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        let is_open = || {
            let now = manifests(&path);
            !now.is_empty() && now != before
        };
        if is_waiting {
            // The command waits for its input when the signal comes.
            input.write_all(b"a\t1\n").unwrap();
            wait_until(&mut child, is_open);
            signal(&child, kind);
        } else {
            // The command is busy, and has more in memory than it takes.
            while !is_open() || key < 200_000 {
                let lines: String = (0..1000).map(|n| format!("{:012}\tv\n", key + n)).collect();
                key += 1000;
                if input.write_all(lines.as_bytes()).is_err() {
                    break;
                }
            }
            signal(&child, kind);
        }
        let output = child.wait_with_output().unwrap();
        drop(input);
        assert_eq!(output.status.code(), Some(128 + kind.as_raw()), "{output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("interrupted"), "{output:?}");
    };
    for kind in [Signal::INT, Signal::TERM, Signal::HUP] {
        for is_waiting in [true, false] {
            interrupted(kind, is_waiting);
            assert!(!scratch.path("store").exists(), "{kind:?} {is_waiting}");
        }
    }
    // A store that existed keeps its keyspaces, and gets no other.
    terrace(&[&["put", &store, "key", "value"][..], &MEMORY].concat()).good();
    for is_waiting in [true, false] {
        interrupted(Signal::INT, is_waiting);
        let list = terrace(&[&["keyspace", "list", &store][..], &MEMORY].concat()).good();
        assert!(list.contains("default") && !list.contains("new"), "{list}");
        assert_whole(&store, "ingest");
    }
}

/// The same Ctrl-C ends the program before a pipe: its end is not the end of the input.
#[test]
fn the_end_of_an_interrupted_pipe_is_not_the_end_of_the_input() {
    let scratch = Scratch::new();
    let store = scratch.arg("store");
    let mut child = command([&["ingest", &store, "-"][..], &MEMORY].concat());
    let child = child.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = child.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(b"a\t1\nb\t2\n").unwrap();
    wait_until(&mut child, || scratch.path("store").exists());
    signal(&child, Signal::INT);
    drop(input);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(!scratch.path("store").exists());
}

#[test]
fn an_interrupted_backup_is_no_backup_and_the_next_one_goes_on() {
    let scratch = Scratch::new();
    let (store, backups) = (filled(&scratch), scratch.arg("backups"));
    let create = [&["backup", "create", &store, &backups][..], &MEMORY].concat();
    let mut child = spawn(&[&create[..], &["--rate", "16KiB"]].concat());
    wait_until(&mut child, || !names(&scratch.path("backups")).is_empty());
    signal(&child, Signal::TERM);
    assert_eq!(child.wait().unwrap().code(), Some(143));
    assert_whole(&store, "backup");
    if scratch.path("backups").exists() {
        let list = terrace(&["backup", "list", &backups]).good();
        assert_eq!(list.lines().count(), 1, "{list}");
    }
    terrace(&create).good();
    terrace(&["backup", "verify", &backups, "1"]).good();

    let place = scratch.arg("restored");
    let before = names(&scratch.path(""));
    let mut child = spawn(&["restore", &backups, "1", &place, "--rate", "16KiB"]);
    wait_until(&mut child, || names(&scratch.path("")).len() > before.len());
    signal(&child, Signal::INT);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(names(&scratch.path("")).len(), before.len(), "{:?}", names(&scratch.path("")));
    let mut child = spawn(&["backup", "verify", &backups, "1", "--rate", "4KiB"]);
    std::thread::sleep(Duration::from_millis(20));
    signal(&child, Signal::INT);
    assert!(!child.wait().unwrap().success());
    terrace(&["restore", &backups, "1", &place]).good();
    assert_whole(&place, "restored");
}

#[test]
fn an_interrupted_checkpoint_leaves_nothing() {
    let scratch = Scratch::new();
    let (store, place) = (filled(&scratch), scratch.arg("copy"));
    let args = [&["checkpoint", &store, &place][..], &MEMORY].concat();
    interrupt_anywhere(
        &args,
        &[0],
        || drop(fs::remove_dir_all(&place)),
        |ended, what| {
            match ended {
                Ended::Completed => assert_whole(&place, what),
                Ended::Interrupted => {
                    assert_eq!(names(&scratch.path("")), ["store"], "{what}");
                }
            }
            assert_whole(&store, what);
        },
    );
}

#[test]
fn an_interrupted_compaction_leaves_a_whole_store() {
    let scratch = Scratch::new();
    let store = filled(&scratch);
    let put = [&["put", &store, "zzz", "later"][..], &MEMORY].concat();
    let args = [&["compact", &store][..], &MEMORY].concat();
    interrupt_anywhere(
        &args,
        &[0],
        || drop(terrace(&put).good()),
        |_, what| {
            // The outputs of unfinished merges: an interrupted process removes them, and an open removes
            // those of a killed process.
            assert_whole(&store, what);
            let count = terrace(&[&["scan", &store, "--count"][..], &MEMORY].concat()).good();
            assert_eq!(count, "2002\n", "{what}");
        },
    );
}

#[test]
fn an_interrupted_repair_changes_nothing() {
    let scratch = Scratch::new();
    let store = filled(&scratch);
    flip(&file(&store, ".table"), 5000);
    let whole = files(&store);
    let damaged = |store: &str| {
        let files = files(store);
        files.into_iter().filter(|(name, _)| name != "LOCK").collect::<Vec<_>>()
    };
    let before = damaged(&store);
    let restore = || {
        fs::remove_dir_all(&store).unwrap();
        fs::create_dir(&store).unwrap();
        for (name, bytes) in &whole {
            fs::write(Path::new(&store).join(name), bytes).unwrap();
        }
    };
    // Keys are lost, so a repair ends with 1.
    interrupt_anywhere(&["repair", &store], &[1], restore, |ended, what| {
        if ended == Ended::Interrupted {
            assert!(damaged(&store) == before, "{what}: {:?}", names(Path::new(&store)));
        }
    });
}

#[test]
fn interrupted_readers_end_and_change_nothing() {
    let scratch = Scratch::new();
    let store = filled(&scratch);
    let content = |store: &str| {
        let files = files(store);
        files.into_iter().filter(|(name, _)| name != "LOCK").collect::<Vec<_>>()
    };
    let before = content(&store);
    for args in [&["check", &store][..], &["repair", &store, "--dry-run"]] {
        interrupt_anywhere(
            args,
            &[0],
            || (),
            |_, what| {
                assert!(content(&store) == before, "{what}");
            },
        );
    }
    // A scan waits for ever if nobody reads its output, which is longer than a pipe holds.
    let mut child = spawn(&[&["scan", &store][..], &MEMORY].concat());
    let mut output = child.stdout.take().unwrap();
    output.read_exact(&mut [0]).unwrap();
    signal(&child, Signal::INT);
    // Not read before the end.
    assert_eq!(child.wait().unwrap().code(), Some(130));
    drop(output);
    for args in [&["scrub", &store][..], &["stats", &store], &["scan", &store, "--count"]] {
        let args = [args, &MEMORY].concat();
        interrupt_anywhere(
            &args,
            &[0],
            || (),
            |_, what| {
                assert_eq!(terrace(&["check", &store]).code, 0, "{what}");
            },
        );
    }
}

#[test]
fn interrupted_measurements_leave_no_temporary_files() {
    let scratch = Scratch::new();
    let temporary = scratch.path("temporary");
    fs::create_dir(&temporary).unwrap();
    let args = ["bench", "fillrandom", "readrandom", "--num", "20000", "--duration", "3600"];
    let mut bench = command([&args[..], &MEMORY].concat());
    bench.env("TMPDIR", &temporary).stdout(Stdio::null()).stderr(Stdio::null());
    for kind in [Signal::INT, Signal::TERM] {
        let mut child = bench.spawn().unwrap();
        let store = || names(&temporary).first().map(|name| temporary.join(name));
        wait_until(&mut child, || store().is_some_and(|store| names(&store).len() > 2));
        signal(&child, kind);
        assert_eq!(child.wait().unwrap().code(), Some(128 + kind.as_raw()));
        assert_eq!(names(&temporary), [""; 0]);
    }
    let place = scratch.path("device");
    fs::create_dir(&place).unwrap();
    let mut child = spawn(&["calibrate", place.to_str().unwrap(), "--size", "64MiB"]);
    // Once the file has a length, the measurement has begun.
    let length = || names(&place).first().and_then(|name| fs::metadata(place.join(name)).ok());
    wait_until(&mut child, || length().is_some_and(|file| file.len() > 0));
    signal(&child, Signal::INT);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(names(&place), [""; 0]);
}

/// `bench tiers` runs other processes, which end too: the store is free again.
#[test]
fn the_processes_of_an_interrupted_command_end_with_it() {
    let scratch = Scratch::new();
    let data = scratch.arg("store");
    let run = ["bench", "fillrandom", "--data", &data, "--num", "1000"];
    assert_eq!(terrace(&[&run[..], &MEMORY].concat()).code, 0);
    let args = ["bench", "tiers", "readrandom", "--data", &data, "--num", "1000"];
    let args = [&args[..], &["--duration", "3600", "--tier", "64MiB"]].concat();
    let before = manifests(Path::new(&data));
    let mut child = spawn(&args);
    wait_until(&mut child, || {
        let now = manifests(Path::new(&data));
        !now.is_empty() && now != before
    });
    signal(&child, Signal::TERM);
    assert_eq!(child.wait().unwrap().code(), Some(143));
    // The other process ends as soon as it runs: the store is in use until then.
    while terrace(&["check", &data]).code == 2 {
        std::thread::sleep(LOOK_INTERVAL);
    }
}

/// The processes whose arguments contain `text`.
fn processes_with(text: &str) -> Vec<String> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let arguments = entries.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    let arguments = arguments.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    arguments.filter(|arguments| arguments.contains(text)).collect()
}

/// A worker ends only by a signal: `bench offload` passes its own on.
#[test]
fn the_workers_of_an_interrupted_measurement_end_with_it() {
    let scratch = Scratch::new();
    let temporary = scratch.path("temporary");
    fs::create_dir(&temporary).unwrap();
    let mut bench = command(["bench", "offload", "--quick", "--codecs", "lz4"]);
    bench.env("TMPDIR", &temporary).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = bench.spawn().unwrap();
    let sockets = || {
        let folder = names(&temporary).first().map(|name| temporary.join(name));
        folder.map_or_else(Vec::new, |folder| {
            names(&folder).into_iter().filter(|name| name.starts_with('w')).collect()
        })
    };
    wait_until(&mut child, || !sockets().is_empty());
    let socket = sockets().remove(0);
    assert!(processes_with(&socket).iter().any(|it| it.contains("--listen")));
    signal(&child, Signal::TERM);
    assert_eq!(child.wait().unwrap().code(), Some(143));
    // The workers end as soon as the scheduler runs them.
    for _ in 0..60_000 {
        if processes_with(&socket).is_empty() {
            return;
        }
        std::thread::sleep(LOOK_INTERVAL);
    }
    panic!("{:?}", processes_with(&socket));
}

#[test]
fn a_signal_is_the_end_of_a_worker() {
    use std::io::{BufRead, BufReader};
    let scratch = Scratch::new();
    let address = format!("unix:{}", scratch.arg("socket"));
    for kind in [Signal::INT, Signal::TERM] {
        let mut child = spawn(&["worker", "--listen", &address]);
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.starts_with("listening"), "{line}");
        signal(&child, kind);
        assert_eq!(child.wait().unwrap().code(), Some(0));
    }
}
