//! The behaviour common to all media: one suite, run on each of them.

mod queues;

use std::sync::Arc;
use std::time::Duration;

use base::limits::PAGE_BYTES;
use base::{ErrorKind, ManualClock, Rng};

use crate::emulated::{Device, Emulated, Profile};
use crate::scm::{ScmDirectory, ScmLocation};
use crate::{
    Access, Buf, Faulty, File, FileMedium, FileOptions, Holding, Joined, Medium, MemoryMedium,
    Metered, Op, Pace, Purpose, Rate, Space, Throttled,
};

use queues::{finish, many_in_flight, queues, request};

/// A medium, and the directory that must outlive it.
type Made = (Arc<dyn Medium>, Option<tempfile::TempDir>);

fn on_disk(options: FileOptions) -> Made {
    let directory = tempfile::tempdir().unwrap();
    let medium = FileMedium::open(directory.path(), options).unwrap();
    (Arc::new(medium), Some(directory))
}

macro_rules! conformance {
    ($($name:ident: $make:expr;)*) => {$(
        mod $name {
            use super::*;

            fn make() -> Made {
                $make
            }

            #[test]
            fn names() {
                super::names(&*make().0);
            }

            #[test]
            fn linking() {
                let (one, other) = (make(), make());
                super::linking(&*one.0, &*other.0);
            }

            #[test]
            fn direct_access() {
                super::direct_access(&*make().0);
            }

            #[test]
            fn byte_access() {
                super::byte_access(&*make().0);
            }

            #[test]
            fn ends_of_files() {
                super::ends_of_files(&*make().0);
            }

            #[test]
            fn queues() {
                super::queues(&*make().0);
            }

            #[test]
            fn many_in_flight() {
                super::many_in_flight(&*make().0);
            }

            #[test]
            fn locking() {
                super::locking(&*make().0);
            }

            #[test]
            fn any_history() {
                super::any_history(&*make().0);
            }
        }
    )*};
}

conformance! {
    memory: (Arc::new(MemoryMedium::new()), None);
    ring: on_disk(FileOptions::default());
    pool: on_disk(FileOptions { io_uring: false, ..FileOptions::default() });
    cached: on_disk(FileOptions { direct: false, ..FileOptions::default() });
    shallow: on_disk(FileOptions { io_uring: false, queue_depth: 1, ..FileOptions::default() });
    faulty: (Arc::new(Faulty::new(1)), None);
    throttled_faulty: {
        let pace = Pace::manual(Arc::new(ManualClock::default()));
        let rate = Rate { bytes_per_second: 1 << 20, ops_per_second: 1000 };
        let inner = Arc::new(Faulty::new(2));
        (Arc::new(Throttled::new(inner, rate, Duration::ZERO, pace)), None)
    };
    emulated: {
        let device = Device::virtual_time(Profile::named("nvme").unwrap());
        (Arc::new(Emulated::new(Arc::new(MemoryMedium::new()), Arc::new(device))), None)
    };
    emulated_disk: {
        let (disk, directory) = on_disk(FileOptions::default());
        let device = Device::real(Profile::named("optane-ssd").unwrap());
        (Arc::new(Emulated::new(disk, Arc::new(device))), directory)
    };
    scm_directory: {
        let directory = tempfile::tempdir_in("/dev/shm").unwrap();
        let place = ScmLocation::Path(directory.path().to_owned());
        (Arc::new(ScmDirectory::open(&place, true).unwrap()), Some(directory))
    };
    scm_emulated: {
        let directory = tempfile::tempdir_in("/dev/shm").unwrap();
        let place = format!("emulated:cxl-dram@{}", directory.path().display());
        (Arc::new(ScmDirectory::open(&place.parse().unwrap(), true).unwrap()), Some(directory))
    };
    scm_lines: (Arc::new(Faulty::new(3).with_lines()), None);
    joined: {
        let joined = Joined::new(Arc::new(MemoryMedium::new()), |name| (name > "b").then_some(0));
        joined.attach(vec![Arc::new(MemoryMedium::new())]).unwrap();
        (Arc::new(joined), None)
    };
    metered_memory: (Arc::new(Metered::still(Arc::new(MemoryMedium::new()))), None);
    metered_twice: {
        let (disk, directory) = on_disk(FileOptions::default());
        (Arc::new(Metered::still(Arc::new(Metered::still(disk)))), directory)
    };
}

/// A page of pseudo-random bytes that depend on its number and version.
fn page(number: u64, version: u64) -> Buf {
    let mut buf = Buf::pages(1);
    Rng::new(number << 20 | version).fill(&mut buf);
    buf
}

/// A file with two names exists until both are removed.
fn linking(one: &dyn Medium, other: &dyn Medium) {
    let file = one.create("a", Access::Direct, 0).unwrap();
    file.write(0, page(1, 0), Purpose::Flush).1.unwrap();
    file.sync(Purpose::Flush).unwrap();
    assert!(one.link("a", other).unwrap());
    let again = one.link("a", other).unwrap_err();
    assert_eq!(again.kind(), ErrorKind::Invalid, "{again}");
    let missing = one.link("b", other).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::Invalid, "{missing}");
    other.sync_names(&[]).unwrap();
    one.remove("a").unwrap();
    let linked = other.open("a", Access::Direct).unwrap();
    assert_eq!(read(&*linked, 0, 1).unwrap()[..], page(1, 0)[..]);
    assert_eq!(linked.size().unwrap(), PAGE_BYTES as u64);
    assert!(one.list().unwrap().is_empty());
}

#[test]
fn decorators_report_the_space_of_the_device_below() {
    let (disk, _directory) = on_disk(FileOptions::default());
    let space = disk.space().unwrap().unwrap();
    assert!(space.free > 0 && space.free <= space.total, "{space:?}");
    assert_eq!(MemoryMedium::new().space().unwrap(), None);
    let device = Arc::new(Faulty::new(1));
    let pace = Pace::manual(Arc::new(ManualClock::default()));
    let throttled = Throttled::new(Arc::clone(&device) as _, Rate::default(), Duration::ZERO, pace);
    let medium = Metered::still(Arc::new(Holding::new(Arc::new(throttled))));
    assert_eq!(medium.space().unwrap(), None);
    medium.create("a", Access::Bytes, 3 * PAGE_BYTES as u64).unwrap();
    device.set_capacity(Some(10 * PAGE_BYTES as u64));
    let left = |pages: u64| Space { total: 10 << 12, free: pages << 12 };
    assert_eq!(medium.space().unwrap(), Some(left(7)));
    medium.remove("a").unwrap();
    assert_eq!(medium.space().unwrap(), Some(left(10)));
    medium.create("b", Access::Bytes, 10 << 12).unwrap();
    device.set_capacity(Some(4 << 12));
    assert_eq!(
        medium.space().unwrap(),
        Some(Space { total: 4 << 12, free: 0 }),
        "more in use than the capacity"
    );
}

#[test]
fn devices_of_different_kinds_link_no_files() {
    let (disk, _directory) = on_disk(FileOptions::default());
    let media: [Arc<dyn Medium>; 3] =
        [Arc::new(MemoryMedium::new()), Arc::new(Metered::still(Arc::new(Faulty::new(1)))), disk];
    for (number, from) in media.iter().enumerate() {
        from.create("a", Access::Bytes, 0).unwrap();
        for (other, to) in media.iter().enumerate() {
            assert!(number == other || !from.link("a", &**to).unwrap(), "{from:?} to {to:?}");
        }
        from.remove("a").unwrap();
    }
}

fn read(file: &dyn File, at: u64, pages: usize) -> base::Result<Buf> {
    let mut buf = Buf::pages(pages);
    buf.fill(0xee);
    let (buf, result) = file.read(at, buf, Purpose::Data);
    assert_eq!(buf.len(), pages * PAGE_BYTES, "the buffer comes back");
    result.map(|()| buf)
}

fn names(medium: &dyn Medium) {
    let kind = |result: base::Result<Arc<dyn File>>| result.unwrap_err().kind();
    assert_eq!(kind(medium.open("a", Access::Direct)), ErrorKind::Invalid);
    assert_eq!(medium.remove("a").unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(medium.rename("a", "b").unwrap_err().kind(), ErrorKind::Invalid);
    for bad in ["", "..", "../a", "a/b", "LOCK", ".hidden"] {
        assert_eq!(kind(medium.create(bad, Access::Bytes, 0)), ErrorKind::Invalid, "{bad}");
        assert_eq!(kind(medium.open(bad, Access::Bytes)), ErrorKind::Invalid, "{bad}");
        assert!(medium.rename("a", bad).is_err() && medium.remove(bad).is_err(), "{bad}");
    }

    let a = medium.create("a", Access::Direct, 1 << 20).unwrap();
    assert_eq!(a.name(), "a");
    assert_eq!(kind(medium.create("a", Access::Bytes, 0)), ErrorKind::Invalid);
    a.write(0, page(1, 0), Purpose::Flush).1.unwrap();
    let b = medium.create("b", Access::Bytes, 5000).unwrap();
    let listed = |medium: &dyn Medium| -> Vec<(String, u64)> {
        medium.list().unwrap().into_iter().map(|file| (file.name, file.len)).collect()
    };
    assert_eq!(listed(medium), [("a".to_owned(), 4096), ("b".to_owned(), 5000)]);

    // A rename replaces the target; both files stay readable through open handles.
    medium.rename("a", "b").unwrap();
    assert_eq!(listed(medium), [("b".to_owned(), 4096)]);
    assert_eq!(read(&*a, 0, 1).unwrap()[..], page(1, 0)[..]);
    assert!(read(&*b, 0, 1).unwrap().iter().all(|byte| *byte == 0));
    let renamed = medium.open("b", Access::Direct).unwrap();
    assert_eq!(read(&*renamed, 0, 1).unwrap()[..], page(1, 0)[..]);
    medium.sync_names(&[]).unwrap();

    medium.remove("b").unwrap();
    assert_eq!(listed(medium), []);
    assert_eq!(read(&*renamed, 0, 1).unwrap()[..], page(1, 0)[..]);
    // The name can be used again, for a new file.
    medium.create("b", Access::Direct, 0).unwrap();
    assert_eq!(listed(medium), [("b".to_owned(), 0)]);
}

fn direct_access(medium: &dyn Medium) {
    let file = medium.create("t", Access::Direct, 64 << 10).unwrap();
    assert_eq!(file.size().unwrap(), 0, "reserved space is not length");
    let mut run = Buf::pages(3);
    Rng::new(9).fill(&mut run);
    let (run, result) = file.write(4096, run, Purpose::Flush);
    result.unwrap();
    assert_eq!(file.size().unwrap(), 4 * 4096);
    assert!(read(&*file, 0, 1).unwrap().iter().all(|byte| *byte == 0));
    assert_eq!(read(&*file, 4096, 3).unwrap()[..], run[..]);
    file.sync(Purpose::Flush).unwrap();
    let again = medium.open("t", Access::Direct).unwrap();
    assert_eq!(read(&*again, 8192, 2).unwrap()[..], run[4096..]);

    for at in [1, 512, 4095] {
        assert_eq!(read(&*file, at, 1).unwrap_err().kind(), ErrorKind::Invalid);
        let (buf, result) = file.write(at, Buf::pages(1), Purpose::Flush);
        assert_eq!((buf.len(), result.unwrap_err().kind()), (4096, ErrorKind::Invalid));
    }
    let far = u64::MAX - 4095;
    assert_eq!(read(&*file, far, 1).unwrap_err().kind(), ErrorKind::Invalid);
    assert!(file.write(far, Buf::pages(1), Purpose::Flush).1.is_err());
    let stored = file.store(0, b"bytes", Purpose::Log);
    assert_eq!(stored.unwrap_err().kind(), ErrorKind::Invalid);
}

fn byte_access(medium: &dyn Medium) {
    const RESERVED: usize = 1 << 20;
    let file = medium.create("log", Access::Bytes, RESERVED as u64).unwrap();
    assert_eq!(file.size().unwrap(), RESERVED as u64);
    assert!(read(&*file, 0, RESERVED / 4096).unwrap().iter().all(|byte| *byte == 0));

    // Records of odd lengths across the edges of all pages, some of them long, the last one past the
    // reserved end; a second handle sees each at once.
    let other = medium.open("log", Access::Bytes).unwrap();
    let mut model = vec![0; RESERVED];
    let (mut at, mut rng) = (0, Rng::new(4));
    while at < RESERVED {
        let len = if rng.one_in(20) { 1 + rng.below(40_000) } else { 1 + rng.below(2000) } as usize;
        let mut record = vec![0; len];
        rng.fill(&mut record);
        file.store(at as u64, &record, Purpose::Log).unwrap();
        model.resize(model.len().max(at + len), 0);
        model[at..at + len].copy_from_slice(&record);
        let first = at / 4096 * 4096;
        let seen = read(&*other, first as u64, 1).unwrap();
        let end = model.len().min(first + 4096);
        assert_eq!(seen[..end - first], model[first..end], "record at {at}");
        at += len;
    }
    file.store(3, b"", Purpose::Log).unwrap();
    file.sync(Purpose::Log).unwrap();
    assert_eq!(file.size().unwrap(), model.len() as u64);
    assert_eq!(read(&*file, 0, RESERVED / 4096).unwrap()[..], model[..RESERVED]);

    // Stores through a handle of an existing file, next to whole pages written.
    other.write(8192, page(2, 2), Purpose::Log).1.unwrap();
    other.store(8190, b"edge", Purpose::Log).unwrap();
    file.store(4094, b"mapped", Purpose::Log).unwrap();
    model[8192..12288].copy_from_slice(&page(2, 2));
    model[8190..8194].copy_from_slice(b"edge");
    model[4094..4100].copy_from_slice(b"mapped");
    assert_eq!(read(&*file, 0, 4).unwrap()[..], model[..16384]);
    assert!(file.store(u64::MAX - 2, b"far", Purpose::Log).is_err());
}

fn ends_of_files(medium: &dyn Medium) {
    let file = medium.create("f", Access::Bytes, 3 * 4096).unwrap();
    file.store(0, &[7; 3 * 4096], Purpose::Manifest).unwrap();
    file.set_len(5000).unwrap();
    assert_eq!(file.size().unwrap(), 5000);
    // The last block is readable; it is zeros past the end of the file.
    let tail = read(&*file, 4096, 1).unwrap();
    assert!(tail[..904].iter().all(|byte| *byte == 7) && tail[904..].iter().all(|byte| *byte == 0));
    assert_eq!(read(&*file, 8192, 1).unwrap_err().kind(), ErrorKind::Corrupt);
    assert_eq!(read(&*file, 0, 3).unwrap_err().kind(), ErrorKind::Corrupt);
    assert_eq!(read(&*file, 1 << 40, 1).unwrap_err().kind(), ErrorKind::Corrupt);
    // Bytes that were cut off do not come back.
    file.set_len(3 * 4096).unwrap();
    assert!(read(&*file, 8192, 1).unwrap().iter().all(|byte| *byte == 0));
    file.store(5000, b"after", Purpose::Manifest).unwrap();
    assert_eq!(
        read(&*file, 4096, 1).unwrap()[900..909],
        [7, 7, 7, 7, b'a', b'f', b't', b'e', b'r']
    );
    file.store(100_000, b"", Purpose::Manifest).unwrap();
    assert_eq!(file.size().unwrap(), 3 * 4096, "no bytes extend no file");

    let direct = medium.create("d", Access::Direct, 1 << 20).unwrap();
    direct.write(0, page(1, 1), Purpose::Flush).1.unwrap();
    assert_eq!(read(&*direct, 4096, 1).unwrap_err().kind(), ErrorKind::Corrupt);
    direct.set_len(4096).unwrap();
    assert_eq!(read(&*direct, 0, 1).unwrap()[..], page(1, 1)[..]);
}

fn locking(medium: &dyn Medium) {
    let guard = medium.lock().unwrap();
    assert_eq!(medium.lock().unwrap_err().kind(), ErrorKind::Locked);
    drop(guard);
    drop(medium.lock().unwrap());
    assert!(medium.list().unwrap().is_empty(), "the lock is no file");
}

/// Random operations on two files match vectors of bytes.
fn any_history(medium: &dyn Medium) {
    let (mut rng, seed) = Rng::from_env();
    let mut queue = medium.queue(8).unwrap();
    let names = ["one", "two"];
    let files = names.map(|name| medium.create(name, Access::Bytes, 100_000).unwrap());
    let mut models = names.map(|_| vec![0u8; 100_000]);
    for step in 0..300 {
        let which = rng.below(2) as usize;
        let (file, model) = (&files[which], &mut models[which]);
        let context = format!("TERRACE_SEED={seed} step {step}");
        let at = rng.below(40) * 4096;
        match rng.below(10) {
            0..4 => {
                let at = rng.below(150_000) as usize;
                let mut bytes = vec![0; rng.below(20_000) as usize];
                rng.fill(&mut bytes);
                file.store(at as u64, &bytes, Purpose::Log).expect(&context);
                if !bytes.is_empty() {
                    model.resize(model.len().max(at + bytes.len()), 0);
                    model[at..at + bytes.len()].copy_from_slice(&bytes);
                }
            }
            4..6 => {
                let mut buf = Buf::pages(1 + rng.below(4) as usize);
                rng.fill(&mut buf);
                let (from, end) = (at as usize, at as usize + buf.len());
                model.resize(model.len().max(end), 0);
                model[from..end].copy_from_slice(&buf);
                queue.submit(request(file, Op::Write { at, buf }, 0)).expect(&context);
                finish(&mut *queue).remove(0).result.expect(&context);
            }
            6..9 => {
                let pages = 1 + rng.below(8) as usize;
                let (from, len) = (at as usize, pages * 4096);
                let fits = from + len <= model.len().next_multiple_of(4096);
                let op = Op::Read { at, buf: Buf::pages(pages) };
                queue.submit(request(file, op, 0)).expect(&context);
                let done = finish(&mut *queue).remove(0);
                assert_eq!(done.result.is_ok(), fits, "{context}: {:?}", done.result);
                if fits {
                    let held = &model[from..model.len().min(from + len)];
                    assert_eq!(done.buf[..held.len()], *held, "{context}");
                    assert!(done.buf[held.len()..].iter().all(|byte| *byte == 0), "{context}");
                }
            }
            _ => {
                let len = rng.below(150_000) as usize;
                file.set_len(len as u64).expect(&context);
                model.resize(len, 0);
            }
        }
        assert_eq!(file.size().expect(&context), model.len() as u64, "{context}");
    }
}
