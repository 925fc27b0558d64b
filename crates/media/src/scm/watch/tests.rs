//! Readers of a file that is cut, and signals of other origin.

use std::cell::RefCell;
use std::fs;
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::mm::{mmap, munmap};
use tempfile::tempfile;

use super::*;
use crate::scm::mapping::Mapping;

const LEN: usize = 16 << 12;

fn file() -> fs::File {
    let file = tempfile().unwrap();
    file.set_len(LEN as u64).unwrap();
    file
}

/// Reads the byte at `at`.
fn load(mapping: &Mapping, at: usize) -> u8 {
    assert!(at < mapping.len());
    // SAFETY: within the mapping, as was just checked.
    let byte = unsafe { mapping.start().add(at) };
    // SAFETY: mapped; even if the file is cut, a byte is there.
    unsafe { byte.as_ptr().read_volatile() }
}

/// Sets the byte at `at`.
fn store(mapping: &Mapping, at: usize, byte: u8) {
    assert!(at < mapping.len());
    // SAFETY: within the mapping, as was just checked.
    let place = unsafe { mapping.start().add(at) };
    // SAFETY: mapped and writable, and used by this test alone.
    unsafe { place.as_ptr().write_volatile(byte) }
}

#[test]
fn lost_memory_reads_as_zeros_and_only_its_range_is_marked() {
    let (file, other) = (file(), file());
    let mapping = Mapping::shared(&file, LEN, false).unwrap();
    let kept = Mapping::shared(&other, LEN, false).unwrap();
    store(&mapping, 5, 7);
    store(&mapping, LEN - 1, 7);
    store(&kept, LEN - 1, 9);
    assert_eq!((load(&mapping, 5), load(&mapping, LEN - 1)), (7, 7));
    assert!(!mapping.is_lost());
    file.set_len(LEN as u64 / 2).unwrap();
    // The lost part was not accessed yet: the rest is still valid.
    assert_eq!(load(&mapping, 5), 7);
    assert!(!mapping.is_lost());
    assert_eq!(load(&mapping, LEN - 1), 0);
    assert!(mapping.is_lost());
    // Now the whole range is lost, and stores to it have no effect.
    assert_eq!(load(&mapping, 5), 0);
    store(&mapping, LEN - 1, 8);
    assert_eq!(load(&mapping, LEN - 1), 8);
    mapping.sync(0, LEN).unwrap();
    assert_eq!(load(&kept, LEN - 1), 9);
    assert!(!kept.is_lost());
    // A new watch of the same range is not lost.
    drop(mapping);
    file.set_len(LEN as u64).unwrap();
    let again = Mapping::shared(&file, LEN, false).unwrap();
    assert_eq!((load(&again, 5), load(&again, LEN - 1)), (7, 0));
    assert!(!again.is_lost());
}

#[test]
fn a_store_to_lost_memory_has_no_effect() {
    let file = file();
    let mapping = Mapping::shared(&file, LEN, false).unwrap();
    file.set_len(0).unwrap();
    store(&mapping, 100, 1);
    assert!(mapping.is_lost());
    assert_eq!(file.metadata().unwrap().len(), 0);
}

#[test] // I6
fn a_reader_of_zeros_sees_the_loss() {
    for _ in 0..50 {
        let file = file();
        let mapping = Mapping::shared(&file, LEN, false).unwrap();
        (0..LEN).for_each(|at| store(&mapping, at, 7));
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let mapping = &mapping;
                scope.spawn(move || {
                    // The file is cut while the threads read. The loop ends soon unless the loss goes
                    // unnoticed.
                    let end = Instant::now() + Duration::from_secs(300);
                    for step in (0..LEN).cycle() {
                        assert!(step > 0 || Instant::now() < end, "the loss was never seen");
                        let byte = load(mapping, (step * 4099 + thread * 64) % LEN);
                        if mapping.is_lost() {
                            return;
                        }
                        assert_eq!(byte, 7);
                    }
                });
            }
            file.set_len(0).unwrap();
        });
    }
}

#[test]
fn one_range_more_than_can_be_watched_is_refused() {
    static FEW: [Range; 3] = [const { Range::new() }; 3];
    let mut watches: Vec<_> = FEW.iter().map(|_| Watch::of(&FEW).unwrap()).collect();
    let error = Watch::of(&FEW).unwrap_err().to_string();
    assert_eq!(error, "3 mapped regions are in use");
    watches.pop();
    Watch::of(&FEW).unwrap();
}

/// Runs `what` in a child process of this test binary. Returns its exit status, or the signal that ended it.
fn ends_by(what: &str) -> (Option<i32>, Option<i32>) {
    let test = "scm::watch::tests::run_alone";
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args([test, "--exact", "--nocapture"]).env("TERRACE_FAULT", what);
    let status = child.output().unwrap().status;
    (status.code(), status.signal())
}

extern "C" fn of_the_program(_: c_int, _: *mut siginfo_t, _: *mut c_void) {
    // SAFETY: ends the process at once, and touches nothing.
    unsafe { libc::_exit(42) };
}

/// Maps a file outside the watched ranges, cuts it and reads it.
fn fault() {
    let file = file();
    let access = ProtFlags::READ;
    // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing of ours.
    let start =
        unsafe { mmap(null_mut(), LEN, access, MapFlags::SHARED, file.as_fd(), 0) }.unwrap();
    file.set_len(0).unwrap();
    // SAFETY: mapped; the read raises the signal that this test is about.
    let byte = unsafe { start.cast::<u8>().read_volatile() };
    // SAFETY: mapped above, with this length, and used no more.
    unsafe { munmap(start, LEN) }.unwrap();
    panic!("read {byte}");
}

/// The child process of the other tests.
#[test]
fn run_alone() {
    let watched = || Mapping::shared(&file(), LEN, false).unwrap();
    match std::env::var("TERRACE_FAULT").as_deref() {
        Ok("fault") => {
            let _watched = watched();
            fault();
        }
        Ok("sent") => {
            let _watched = watched();
            // The first signal removes the handler of Rust's runtime, which detects stack overflows.
            for _ in 0..2 {
                // SAFETY: of no memory.
                unsafe { libc::raise(SIGBUS) };
            }
        }
        Ok("ignored") => {
            let action = libc::sigaction { sa_sigaction: SIG_IGN, ..default_action() };
            assert!(act(&action));
            let watched = watched();
            // SAFETY: of no memory.
            unsafe { libc::raise(SIGBUS) };
            assert!(!watched.is_lost());
        }
        Ok("handled") => {
            let handler: Handler = of_the_program;
            let action = libc::sigaction {
                sa_sigaction: handler as usize,
                sa_flags: SA_SIGINFO,
                ..default_action()
            };
            assert!(act(&action));
            let _watched = watched();
            fault();
        }
        _ => {}
    }
}

#[test]
fn other_signals_keep_their_previous_action() {
    assert_eq!(ends_by("fault"), (None, Some(SIGBUS)));
    assert_eq!(ends_by("sent"), (None, Some(SIGBUS)));
    assert_eq!(ends_by("handled"), (Some(42), None));
    assert_eq!(ends_by("ignored"), (Some(0), None));
}

#[test]
fn a_range_that_cannot_be_replaced_at_once_is_replaced_by_the_page() {
    let (lost, page) = (0x10_0000..0x90_0000, 0x4_3000);
    for (longest, expected) in [(usize::MAX, 1), (PAGE_BYTES, 2), (0, 2)] {
        let asked = RefCell::new(Vec::new());
        let map = |start, len| {
            asked.borrow_mut().push((start, len));
            len <= longest
        };
        assert_eq!(replace(lost.clone(), page + 0x123, map), longest > 0);
        let all = [(lost.start, lost.len()), (page, PAGE_BYTES)];
        assert_eq!(asked.into_inner(), all[..expected]);
    }
}
