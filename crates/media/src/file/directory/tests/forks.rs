//! A forked child of the process that opened a directory: it uses nothing, waits for nothing, and keeps no
//! lock.

use std::io::Write as _;

use super::*;
use crate::in_forked_child;

/// Runs `work` in a forked child; it returns the failures of its checks.
fn forked(work: impl FnOnce() -> Vec<&'static str>) {
    let said = in_forked_child(|pipe| {
        for failure in work() {
            writeln!(pipe, "{failure}").unwrap();
        }
    });
    assert_eq!(said.as_deref(), Ok(""));
}

/// Adds `what` to `failures` unless `result` says that the call was made in a forked child.
fn must_be_closed<T>(failures: &mut Vec<&'static str>, what: &'static str, result: Result<T>) {
    if !result.is_err_and(|e| e.kind() == ErrorKind::Closed && e.to_string().contains("forked")) {
        failures.push(what);
    }
}

#[test]
fn a_forked_child_can_use_nothing_and_drops_all_without_an_effect() {
    for io_uring in [true, false] {
        let root = tempfile::tempdir().unwrap();
        let options = FileOptions { io_uring, ..FileOptions::default() };
        let medium = FileMedium::open(root.path().join("store"), options).unwrap();
        let lock = medium.lock().unwrap();
        let staging = crate::Staging::begin(root.path().join("copy")).unwrap();
        let file = medium.create("log", Access::Bytes, 1 << 20).unwrap();
        file.store(0, b"parent", Purpose::Log).unwrap();
        let table = medium.create("table", Access::Direct, 0).unwrap();
        table.write(0, Buf::pages(64), Purpose::Flush).1.unwrap();
        let mut queue = medium.queue(8).unwrap();
        // An operation that is in flight at the fork is the parent's. A fast device may complete it before.
        let read = |token| {
            let op = Op::Read { at: 0, buf: Buf::pages(64) };
            Request { file: Arc::clone(&table), op, purpose: Purpose::Data, token }
        };
        queue.submit(read(1)).unwrap();
        let mut done = Vec::new();
        queue.complete(0, &mut done).unwrap();
        let is_in_flight = done.is_empty();
        let (mut owned, mut kept) = (Some((medium, lock, staging, file, queue)), None);
        forked(|| {
            let (medium, lock, staging, file, mut queue) = owned.take().unwrap();
            let mut failures = Vec::new();
            let mut closed = |what, result| must_be_closed(&mut failures, what, result);
            closed("store", file.store(0, b"child!", Purpose::Log));
            closed("write", file.write(0, Buf::pages(1), Purpose::Log).1);
            closed("read", file.read(0, Buf::pages(1), Purpose::Data).1);
            closed("sync", file.sync(Purpose::Log));
            closed("size", file.size().map(drop));
            closed("length", file.set_len(0));
            file.prepare_stores(0);
            if file.write_ahead(0, 4096, Purpose::Log) > 0 {
                closed("write ahead", Ok(()));
            }
            closed("create", medium.create("new", Access::Bytes, 0).map(drop));
            closed("open", medium.open("log", Access::Bytes).map(drop));
            closed("remove", medium.remove("log"));
            closed("rename", medium.rename("log", "x"));
            closed("list", medium.list().map(drop));
            closed("names", medium.sync_names(&[]));
            closed("lock", medium.lock().map(drop));
            closed("queue", medium.queue(1).map(drop));
            if is_in_flight {
                closed("complete", queue.complete(1, &mut Vec::new()));
            }
            closed("staging", staging.medium().sync_names(&[]));
            drop((queue, lock, file, staging, medium));
            failures
        });
        kept.replace(owned.take().unwrap());
        let (medium, lock, staging, file, mut queue) = kept.unwrap();
        // All of it is as before.
        open(&root.path().join("store")).lock().unwrap_err();
        assert!(root.path().join("copy.terrace-unfinished/LOCK").exists());
        file.sync(Purpose::Log).unwrap();
        let bytes = fs::read(root.path().join("store/log")).unwrap();
        assert!(bytes.starts_with(b"parent"));
        queue.complete(usize::from(is_in_flight), &mut done).unwrap();
        done.pop().unwrap().result.unwrap();
        drop((lock, queue));
        medium.lock().unwrap();
        staging.finish(|_| true).unwrap();
    }
}

/// A child that lives on holds neither the lock nor an open file. The child's own store is its own.
#[test]
fn the_lock_of_a_dead_owner_is_free_though_its_forked_child_lives() {
    let name = "forks::the_lock_of_a_dead_owner_is_free_though_its_forked_child_lives";
    if let Some(directory) = child_directory(name) {
        let medium = open(&directory.join("store"));
        let _lock = medium.lock().unwrap();
        let _file = medium.create("file", Access::Bytes, 4096).unwrap();
        let forked = in_forked_child(|_| {
            let open_files = fs::read_dir("/proc/self/fd")
                .unwrap()
                .filter_map(|entry| fs::read_link(entry.unwrap().path()).ok());
            let mut open_files: Vec<_> =
                open_files.filter(|path| path.starts_with(&directory)).collect();
            let own = open(&directory.join("own"));
            if own.lock().is_err() || own.create("file", Access::Bytes, 4096).is_err() {
                open_files.push("its own directory does not work".into());
            }
            fs::write(directory.join("child"), format!("{open_files:?}")).unwrap();
            until_killed();
        });
        forked.unwrap();
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let mut owner = child(name, directory.path());
    let told = || fs::read_to_string(directory.path().join("child")).unwrap_or_default();
    eventually("the forked child", || told().ends_with(']'));
    assert_eq!(told(), "[]");
    let medium = open(&directory.path().join("store"));
    medium.lock().unwrap_err();
    // The pipe that keeps the forked child alive stays open.
    let pipe = owner.stdin.take();
    owner.kill().unwrap();
    owner.wait().unwrap();
    medium.lock().unwrap();
    drop(pipe);
}
