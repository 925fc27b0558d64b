//! Properties that only a real directory shows: the death of a process, limits of the system, fallbacks.
//!
//! Tests of processes run this test binary again, with an environment variable that selects the child's
//! role.

mod forks;
mod identity;

use std::io::Read;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use base::{ErrorKind, Rng};

use super::*;
use crate::{Buf, Op, Purpose, Request};

const ROLE: &str = "TERRACE_MEDIA_TEST_ROLE";
const DIRECTORY: &str = "TERRACE_MEDIA_TEST_DIRECTORY";

/// Starts the test `name` of this binary in a child process that uses `directory`.
fn child(name: &str, directory: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            &format!("file::directory::tests::{name}"),
            "--nocapture",
            "--test-threads=1",
        ])
        .env(ROLE, name)
        .env(DIRECTORY, directory)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// The directory, if this process is the child of the test `name`.
fn child_directory(name: &str) -> Option<PathBuf> {
    (std::env::var(ROLE).ok()? == name).then(|| std::env::var_os(DIRECTORY).unwrap().into())
}

fn open(path: &Path) -> FileMedium {
    FileMedium::open(path, FileOptions::default()).unwrap()
}

/// Keeps a child alive until its parent kills it, or is gone: then its end of the pipe is closed.
fn until_killed() {
    io::stdin().read_to_end(&mut Vec::new()).unwrap();
}

/// Waits for a condition that another process brings about. Only a broken one takes minutes.
fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < Duration::from_secs(300), "{what} never came");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A child stores numbered records, and then the count of records in a second file, until it is killed.
/// Every counted record is complete afterwards.
#[test]
fn stores_survive_the_death_of_the_process() {
    const RECORD: u64 = 150;
    const LEN: u64 = 2 << 20;
    let name = "stores_survive_the_death_of_the_process";
    let record = |number: u64| {
        let mut bytes = [0; RECORD as usize];
        Rng::new(number).fill(&mut bytes);
        bytes
    };
    if let Some(directory) = child_directory(name) {
        let medium = open(&directory);
        let log = medium.create("log", Access::Bytes, LEN).unwrap();
        let count = medium.create("count", Access::Bytes, 4096).unwrap();
        for number in 0..LEN / RECORD {
            log.store(number * RECORD, &record(number), Purpose::Log).unwrap();
            count.store(0, &(number + 1).to_le_bytes(), Purpose::Log).unwrap();
        }
        return until_killed();
    }
    let directory = tempfile::tempdir().unwrap();
    let medium = open(directory.path());
    let mut writer = child(name, directory.path());
    let counted = || {
        let file = medium.open("count", Access::Bytes).ok()?;
        let (buf, result) = file.read(0, Buf::pages(1), Purpose::Replay);
        result.ok()?;
        Some(u64::from_le_bytes(buf[..8].try_into().unwrap()))
    };
    eventually("a thousand records", || counted().is_some_and(|count| count > 1000));
    // SIGKILL: the child executes nothing any more.
    writer.kill().unwrap();
    writer.wait().unwrap();
    let count = counted().unwrap();
    let log = medium.open("log", Access::Bytes).unwrap();
    let (bytes, result) = log.read(0, Buf::pages(LEN as usize / 4096), Purpose::Replay);
    result.unwrap();
    for (number, stored) in bytes.chunks(RECORD as usize).take(count as usize).enumerate() {
        assert_eq!(*stored, record(number as u64), "record {number} of {count}");
    }
}

#[test]
fn another_process_cannot_take_the_lock() {
    let name = "another_process_cannot_take_the_lock";
    if let Some(directory) = child_directory(name) {
        let medium = open(&directory);
        let _guard = medium.lock().unwrap();
        medium.create("taken", Access::Bytes, 0).unwrap();
        return until_killed();
    }
    let directory = tempfile::tempdir().unwrap();
    let mut owner = child(name, directory.path());
    let medium = open(directory.path());
    eventually("the lock", || medium.open("taken", Access::Bytes).is_ok());
    let error = medium.lock().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Locked);
    assert!(error.to_string().contains(&format!("process {}", owner.id())), "{error}");
    // The lock dies with its owner.
    owner.kill().unwrap();
    owner.wait().unwrap();
    medium.lock().unwrap();
}

#[test]
fn running_out_of_handles_is_a_clear_error_that_passes() {
    let name = "running_out_of_handles_is_a_clear_error_that_passes";
    let Some(directory) = child_directory(name) else {
        let directory = tempfile::tempdir().unwrap();
        let status = child(name, directory.path()).wait().unwrap();
        assert!(status.success(), "the child's assertions are above");
        return;
    };
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let medium = open(&directory);
    let limit = Rlimit { current: Some(64), ..getrlimit(Resource::Nofile) };
    setrlimit(Resource::Nofile, limit).unwrap();
    let mut files = Vec::new();
    let error = loop {
        match medium.create(&format!("f{}", files.len()), Access::Direct, 0) {
            Ok(file) => files.push(file),
            Err(error) => break error,
        }
        assert!(files.len() < 64, "the limit holds");
    };
    assert_eq!(error.kind(), ErrorKind::Retry, "{error}");
    assert!(error.to_string().contains("ulimit -n"), "{error}");
    assert_eq!(medium.queue(4).err().unwrap().kind(), ErrorKind::Retry);
    files.pop();
    files.push(medium.create("after", Access::Direct, 0).unwrap());
    // Open files still work.
    files[0].write(0, Buf::pages(1), Purpose::Flush).1.unwrap();
}

#[test]
fn too_little_space_is_an_error_and_leaves_no_file() {
    let directory = tempfile::tempdir().unwrap();
    let medium = open(directory.path());
    for access in [Access::Direct, Access::Bytes] {
        let error = medium.create("huge", access, 15 << 40).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
        assert!(error.to_string().contains("huge"), "{error}");
        assert_eq!(medium.list().unwrap(), []);
    }
}

#[test]
fn a_missing_directory_is_created_only_on_request() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a").join("b");
    let options = FileOptions { create: false, ..FileOptions::default() };
    let error = FileMedium::open(&path, options).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(!path.exists());
    FileMedium::open(&path, FileOptions::default()).unwrap();
    let file = directory.path().join("file");
    fs::write(&file, b"").unwrap();
    assert_eq!(FileMedium::open(&file, options).unwrap_err().kind(), ErrorKind::Invalid);
}

#[test]
fn refused_features_show_in_the_notice_and_in_the_backend_name() {
    let directory = tempfile::tempdir().unwrap();
    let options = FileOptions { io_uring: false, direct: false, ..FileOptions::default() };
    let plain = FileMedium::open(directory.path(), options).unwrap();
    assert_eq!(plain.capabilities().backend, "pread pool cached");
    assert!(plain.notice().unwrap().contains("threads"), "{:?}", plain.notice());
    let best = open(directory.path());
    assert_eq!(
        best.capabilities().backend.contains("io_uring"),
        crate::file::ring::Ring::probe().is_ok()
    );
    let is_best = ["io_uring", "io_uring polled"].contains(&best.capabilities().backend);
    assert_eq!(best.notice().is_none(), is_best);
}

#[test]
fn foreign_files_in_the_directory_are_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let medium = open(directory.path());
    fs::create_dir(directory.path().join("lost+found")).unwrap();
    fs::create_dir(directory.path().join("folder")).unwrap();
    fs::write(directory.path().join("a file"), b"x").unwrap();
    medium.create("mine", Access::Bytes, 10).unwrap();
    let names: Vec<String> = medium.list().unwrap().into_iter().map(|file| file.name).collect();
    assert_eq!(names, ["mine"]);
}

/// A panic with operations in flight must not free a buffer that the kernel still writes to.
#[test]
fn a_panic_waits_for_operations_in_flight() {
    for io_uring in [true, false] {
        let directory = tempfile::tempdir().unwrap();
        let options = FileOptions { io_uring, ..FileOptions::default() };
        let medium = FileMedium::open(directory.path(), options).unwrap();
        let file = medium.create("f", Access::Direct, 0).unwrap();
        file.write(0, Buf::pages(256), Purpose::Flush).1.unwrap();
        for _ in 0..20 {
            let panicked = catch_unwind(AssertUnwindSafe(|| {
                let mut queue = medium.queue(32).unwrap();
                for token in 0..32 {
                    let op = Op::Read { at: token * 4096, buf: Buf::pages(8) };
                    let file = Arc::clone(&file);
                    queue.submit(Request { file, op, purpose: Purpose::Data, token }).unwrap();
                }
                queue.complete(1, &mut Vec::new()).unwrap();
                std::panic::resume_unwind(Box::new("on purpose"));
            }));
            assert!(panicked.is_err());
            assert_eq!(Arc::strong_count(&file), 1, "every operation let go of the file");
        }
    }
}

/// Ring and pool return the same bytes for the same random reads, and the pool keeps its thread bound.
#[test]
fn the_pool_equals_the_ring() {
    const PAGES: u64 = 256;
    let (mut rng, seed) = Rng::from_env();
    let directory = tempfile::tempdir().unwrap();
    let ring = open(directory.path());
    let options = FileOptions { io_uring: false, queue_depth: 4, ..FileOptions::default() };
    let pool = FileMedium::open(directory.path(), options).unwrap();
    let mut content = Buf::pages(PAGES as usize);
    rng.fill(&mut content);
    let file = ring.create("f", Access::Direct, 0).unwrap();
    let (content, result) = file.write(0, content, Purpose::Flush);
    result.unwrap();
    let places: Vec<u64> = (0..500).map(|_| rng.below(PAGES)).collect();
    for medium in [&ring, &pool] {
        let file = medium.open("f", Access::Direct).unwrap();
        let mut queue = medium.queue(64).unwrap();
        let (mut out, mut next) = (Vec::new(), 0);
        let mut left = places.len();
        while left > 0 {
            while let Some(place) = places.get(next) {
                let op = Op::Read { at: place * 4096, buf: Buf::pages(1) };
                let (file, purpose) = (Arc::clone(&file), Purpose::ALL[next % 9]);
                if queue.submit(Request { file, op, purpose, token: *place }).is_err() {
                    break;
                }
                next += 1;
            }
            queue.complete(8, &mut out).unwrap();
            left -= out.len();
            for done in out.drain(..) {
                done.result.unwrap();
                let from = done.token as usize * 4096;
                assert_eq!(done.buf[..], content[from..from + 4096], "TERRACE_SEED={seed}");
            }
        }
    }
    assert!(pool.backend.threads() <= 4);
}

#[test]
fn a_directory_open_for_reading_changes_nothing_and_shares_the_lock() {
    let dir = tempfile::tempdir().unwrap();
    let reading = || {
        let options = FileOptions { read_only: true, ..FileOptions::default() };
        FileMedium::open(dir.path(), options).unwrap()
    };
    let nothing = reading();
    drop(nothing.lock().unwrap());
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "not even a lock file is made");

    let medium = open(dir.path());
    let file = medium.create("a", Access::Direct, 0).unwrap();
    file.write(0, Buf::pages(1), Purpose::Flush).1.unwrap();
    {
        let _owner = medium.lock().unwrap();
        assert_eq!(reading().lock().unwrap_err().kind(), ErrorKind::Locked);
    }
    let (one, other) = (reading(), reading());
    let _shared = (one.lock().unwrap(), other.lock().unwrap());
    let error = medium.lock().unwrap_err().to_string();
    assert!(error.contains("or a check"), "{error}");

    let file = one.open("a", Access::Direct).unwrap();
    file.read(0, Buf::pages(1), Purpose::Scrub).1.unwrap();
    assert!(file.write(0, Buf::pages(1), Purpose::Flush).1.is_err());
    assert!(file.set_len(0).is_err());
    let file = one.open("a", Access::Bytes).unwrap();
    assert!(file.store(0, b"x", Purpose::Log).is_err());
    let refused = [
        one.create("b", Access::Bytes, 0).unwrap_err(),
        one.remove("a").unwrap_err(),
        one.rename("a", "b").unwrap_err(),
        medium.link("a", &other).unwrap_err(),
    ];
    assert!(refused.iter().all(|error| error.to_string().contains("for reading only")));
    assert_eq!(medium.open("a", Access::Direct).unwrap().size().unwrap(), PAGE_BYTES as u64);
}

#[test]
fn stores_are_prepared_ahead_or_not_and_are_the_same() {
    const LENGTH: usize = 5 << 20;
    let directory = tempfile::tempdir().unwrap();
    let medium = open(directory.path());
    let file = medium.create("log", Access::Bytes, LENGTH as u64).unwrap();
    let (mut rng, seed) = Rng::from_env();
    println!("TERRACE_SEED={seed}");
    let mut expected = Vec::new();
    let (done, at) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        // The preparing thread knows only about where the writer is.
        scope.spawn(|| {
            while !done.load(SeqCst) {
                let tail = at.load(SeqCst);
                for at in [tail, tail + (1 << 20), tail + (3 << 20)] {
                    file.prepare_stores(at);
                    file.write_ahead(tail, 100_000, Purpose::Log);
                }
            }
        });
        while expected.len() < LENGTH {
            let length = (rng.below(12 << 10) as usize + 1).min(LENGTH - expected.len());
            let mut bytes = vec![0; length];
            rng.fill(&mut bytes);
            file.store(expected.len() as u64, &bytes, Purpose::Log).unwrap();
            expected.extend(bytes);
            at.store(expected.len() as u64, SeqCst);
        }
        done.store(true, SeqCst);
    });
    // No stores are announced; a later store still works.
    file.prepare_stores(u64::MAX);
    file.store(7, b"late", Purpose::Log).unwrap();
    expected[7..11].copy_from_slice(b"late");
    assert_eq!(fs::read(directory.path().join("log")).unwrap(), expected);
    assert_eq!(file.size().unwrap(), LENGTH as u64, "nothing beyond what was reserved");
}

/// Stores without preparation leave few pages in the memory of the process, not all stored bytes.
#[test]
fn stored_pages_are_released_from_the_memory_of_the_process() {
    const LENGTH: u64 = 96 << 20;
    let mapped = || {
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let kib = |line: &str| line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap();
        let lines = status
            .lines()
            .filter(|line| line.starts_with("RssFile") || line.starts_with("RssShmem"));
        lines.map(kib).sum::<u64>() << 10
    };
    let directory = tempfile::tempdir().unwrap();
    let medium = open(directory.path());
    let file = medium.create("log", Access::Bytes, LENGTH).unwrap();
    let before = mapped();
    let record = [7; 4000];
    for at in (0..LENGTH - 4000).step_by(4000) {
        file.store(at, &record, Purpose::Log).unwrap();
    }
    let most = before + LENGTH / 2;
    assert!(mapped() < most, "{} of {most}", mapped());
    file.prepare_stores(u64::MAX);
    file.sync(Purpose::Log).unwrap();
    assert_eq!(fs::read(directory.path().join("log")).unwrap()[..4000], record);
}

#[test]
fn writing_ahead_reports_its_bytes_and_stays_within_the_reserved_length() {
    const LENGTH: u64 = 1 << 20;
    const PAGE: u64 = PAGE_BYTES as u64;
    let directory = tempfile::tempdir().unwrap();
    let medium = open(directory.path());
    let file = medium.create("log", Access::Bytes, LENGTH).unwrap();
    file.store(10, b"first", Purpose::Log).unwrap();
    // From the page after the last store on, and each page once.
    assert_eq!(file.write_ahead(0, 20 * PAGE, Purpose::Log), 19 * PAGE);
    assert_eq!(file.write_ahead(0, 20 * PAGE, Purpose::Log), 0);
    file.store(10 * PAGE - 2, b"second", Purpose::Log).unwrap();
    assert_eq!(file.write_ahead(10 * PAGE, 30 * PAGE, Purpose::Log), 20 * PAGE);
    assert_eq!(file.write_ahead(LENGTH - PAGE, u64::MAX, Purpose::Log), PAGE);
    // Writing ahead neither extends a file that was cut nor overwrites an existing file.
    file.set_len(50 * PAGE).unwrap();
    assert_eq!(file.write_ahead(50 * PAGE, PAGE, Purpose::Log), 0);
    let again = medium.open("log", Access::Bytes).unwrap();
    assert_eq!(again.write_ahead(0, LENGTH, Purpose::Log), 0);
    let mut expected = vec![0; 50 * PAGE_BYTES];
    expected[10..15].copy_from_slice(b"first");
    expected[10 * PAGE_BYTES - 2..][..6].copy_from_slice(b"second");
    assert_eq!(fs::read(directory.path().join("log")).unwrap(), expected);
}

#[test]
fn files_have_the_permissions_of_their_directory() {
    use std::os::unix::fs::PermissionsExt;
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let dir = tempfile::tempdir().unwrap();
    let new = dir.path().join("a").join("store");
    open(&new).create("file", Access::Bytes, 10).unwrap();
    assert_eq!((mode(&new), mode(&new.join("file"))), (0o700, 0o600));
    assert_eq!(mode(&new.join("LOCK")), 0o600);
    let shared = dir.path().join("shared");
    fs::create_dir(&shared).unwrap();
    for (of_directory, of_file) in [(0o750, 0o640), (0o500, 0o600)] {
        fs::set_permissions(&shared, fs::Permissions::from_mode(of_directory)).unwrap();
        let medium = open(&shared);
        fs::set_permissions(&shared, fs::Permissions::from_mode(0o700)).unwrap();
        medium.create("file", Access::Bytes, 10).unwrap();
        // This process may mask more.
        assert_eq!(mode(&shared.join("file")) & !of_file, 0, "{of_directory:o}");
        assert_eq!(mode(&shared.join("file")) & 0o600, 0o600, "{of_directory:o}");
        medium.remove("file").unwrap();
    }
}
