//! Locations that can be opened, and locations that must be refused.

use std::fs;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base::{Account, ErrorKind};
use rustix::fs::OFlags;

use super::block_device;
use crate::scm::{Persistence, Scm, Slots};
use crate::{Buf, Op, Purpose, Request};

const LEN: u64 = 64 << 10;

/// The magic of the files in these tests.
const MAGIC: &[u8] = b"a tier";

fn open(path: &Path, len: u64) -> base::Result<Scm> {
    open_named(path.to_str().unwrap(), len)
}

fn open_named(place: &str, len: u64) -> base::Result<Scm> {
    Scm::open(&place.parse().unwrap(), len, MAGIC)
}

/// A page that begins with the magic.
fn beginning() -> Buf {
    let mut buf = Buf::pages(1);
    buf[..MAGIC.len()].copy_from_slice(MAGIC);
    buf
}

/// A directory in memory; none if the system has no tmpfs at the usual path.
fn in_memory() -> Option<tempfile::TempDir> {
    let root = Path::new("/dev/shm");
    root.is_dir().then(|| tempfile::tempdir_in(root).unwrap())
}

fn slots(scm: Scm) -> Slots {
    let Scm::Mapped(region) = scm else { panic!("{scm:?} is not mapped") };
    Slots::new(region, &Account::unlimited("slots")).unwrap()
}

#[test]
fn a_file_in_memory_is_mapped_and_keeps_its_content() {
    let Some(folder) = in_memory() else { return };
    let place = folder.path().join("made");
    let first = slots(open(&place, LEN).unwrap());
    assert_eq!((first.len(), first.facts().backend), (16, "tmpfs"));
    assert_eq!(first.facts().persistence, Persistence::Machine);
    first.fill(0).unwrap().copy_from_slice(&beginning());
    first.fill(3).unwrap().fill(9);
    let in_use = open(&place, LEN).unwrap_err();
    assert_eq!(in_use.kind(), ErrorKind::Locked, "{in_use}");
    // A pin alone keeps the file locked.
    let pin = first.pin(3).unwrap();
    drop(first);
    open(&place, LEN).unwrap_err();
    drop(pin);
    let again = slots(open(&place, LEN).unwrap());
    assert!(again.pin(3).unwrap().iter().all(|byte| *byte == 9));
    drop(again);
    // Longer or shorter than before, by the file's own name: the content stays.
    let longer = slots(open(&place.join("terrace.scm"), 2 * LEN).unwrap());
    assert_eq!((longer.len(), longer.pin(3).unwrap()[0]), (32, 9));
    drop(longer);
    assert_eq!(slots(open(&place, LEN + 5).unwrap()).len(), 16);
}

#[test]
fn a_file_on_a_disk_opens_as_blocks_or_persistent_memory() {
    let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let blocks = match open(folder.path(), LEN).unwrap() {
        Scm::Blocks(blocks) => blocks,
        Scm::Mapped(region) => {
            let facts = region.facts();
            assert!(matches!(facts.backend, "dax" | "tmpfs"), "{facts:?}");
            return;
        }
    };
    assert_eq!((blocks.len(), blocks.facts().byte_addressable), (LEN, false));
    let mut buf = Buf::pages(1);
    buf.fill(5);
    blocks.file().write(LEN - 4096, buf, Purpose::Flush).1.unwrap();
    let mut queue = blocks.queue(4).unwrap();
    let op = Op::Read { at: LEN - 4096, buf: Buf::pages(1) };
    let file = Arc::clone(blocks.file());
    queue.submit(Request { file, op, purpose: Purpose::Data, token: 1 }).unwrap();
    let mut done = Vec::new();
    queue.complete(1, &mut done).unwrap();
    done[0].result.as_ref().unwrap();
    assert!(done[0].buf.iter().all(|byte| *byte == 5));
    open(folder.path(), LEN).unwrap_err();
    drop(blocks);
    // The queue still owns what it needs.
    assert_eq!(queue.in_flight(), 0);
}

#[test]
fn a_missing_or_unsuitable_path_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let missing = open(&folder.path().join("not/mounted"), LEN).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::Invalid, "{missing}");
    let null = open(Path::new("/dev/null"), LEN).unwrap_err();
    assert!(null.to_string().contains("DAX device"), "{null}");
    for len in [0, 4095, u64::MAX] {
        assert_eq!(open(folder.path(), len).unwrap_err().kind(), ErrorKind::Invalid);
    }
    let socket = folder.path().join("socket");
    std::os::unix::net::UnixListener::bind(&socket).unwrap();
    assert_eq!(open(&socket, LEN).unwrap_err().kind(), ErrorKind::Invalid);
    fs::remove_file(socket).unwrap();
}

#[test]
fn too_little_space_is_no_space() {
    let Some(folder) = in_memory() else { return };
    let full = open(folder.path(), 8 << 40).unwrap_err();
    assert_eq!(full.kind(), ErrorKind::NoSpace, "{full}");
    // A smaller size still fits.
    assert_eq!(slots(open(folder.path(), LEN).unwrap()).len(), 16);
}

#[test]
fn an_emulated_device_has_the_facts_of_its_profile() {
    let open = |text: &str| open_named(text, LEN).unwrap();
    let Scm::Mapped(region) = open("emulated:optane-dimm") else { panic!("not mapped") };
    let facts = region.facts();
    assert_eq!((facts.backend, facts.write_unit), ("emulated optane-dimm", 256));
    assert_eq!(facts.emulated, Some("optane-dimm"));
    let slots = Slots::new(region, &Account::unlimited("slots")).unwrap();
    slots.fill(1).unwrap().fill(4);
    assert_eq!(slots.pin(1).unwrap()[4095], 4);
    // A microsecond more than of DRAM is spun away, unless the thread was kept from running for longer.
    let began = Instant::now();
    while slots.emulation().unwrap().wait_cpu_seconds == 0.0 {
        assert!(began.elapsed() < Duration::from_secs(300), "nobody waits");
        drop(slots.pin(1).unwrap());
    }

    let Scm::Blocks(blocks) = open("emulated:optane-ssd") else { panic!("not blocks") };
    assert_eq!(blocks.facts().emulated, Some("optane-ssd"));
    let mut buf = Buf::pages(2);
    buf.fill(8);
    blocks.file().write(4096, buf, Purpose::Flush).1.unwrap();
    let began = Instant::now();
    loop {
        let started = Instant::now();
        let (buf, result) = blocks.file().read(8192, Buf::pages(1), Purpose::Data);
        result.unwrap();
        assert_eq!(buf[0], 8);
        assert!(started.elapsed() >= Duration::from_micros(10));
        if blocks.emulation().unwrap().wait_cpu_seconds > 0.0 {
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(300), "nobody waits");
    }
}

#[test]
fn an_emulated_device_keeps_its_content_in_a_file() {
    let folder = tempfile::tempdir().unwrap();
    for profile in ["cxl-dram", "nvme"] {
        let place = format!("emulated:{profile}@{}", folder.path().join(profile).display());
        let open = || open_named(&place, LEN);
        match open().unwrap() {
            Scm::Mapped(region) => {
                let slots = Slots::new(region, &Account::unlimited("slots")).unwrap();
                slots.fill(0).unwrap().copy_from_slice(&beginning());
                slots.fill(3).unwrap().fill(4);
                slots.persist(0..4).unwrap();
            }
            Scm::Blocks(blocks) => {
                let mut buf = Buf::pages(1);
                buf.fill(4);
                blocks.file().write(0, beginning(), Purpose::Flush).1.unwrap();
                blocks.file().write(3 * 4096, buf, Purpose::Flush).1.unwrap();
                blocks.file().sync(Purpose::Flush).unwrap();
                let in_use = open().unwrap_err();
                assert_eq!(in_use.kind(), ErrorKind::Locked, "{in_use}");
            }
        }
        match open().unwrap() {
            Scm::Mapped(region) => {
                let slots = Slots::new(region, &Account::unlimited("slots")).unwrap();
                assert_eq!(slots.pin(3).unwrap()[0], 4);
            }
            Scm::Blocks(blocks) => {
                let (buf, _) = blocks.file().read(3 * 4096, Buf::pages(1), Purpose::Data);
                assert_eq!(buf[0], 4);
            }
        }
    }
}

#[test]
fn a_file_with_other_content_is_refused_and_unchanged() {
    let roots = [in_memory(), Some(tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap())];
    // The last content is like an image of a file system: zeros first, its data after them.
    let contents = [b"a letter".to_vec(), b"a tie".to_vec(), vec![7; 3 * LEN as usize], {
        let mut image = vec![0; 2 * LEN as usize];
        image[LEN as usize + 64] = b'_';
        image
    }];
    for root in roots.into_iter().flatten() {
        let file = root.path().join("file");
        let name = file.to_str().unwrap();
        let places =
            [name.to_owned(), format!("emulated:nvme@{name}"), format!("emulated:cxl-dram@{name}")];
        for (content, place) in contents.iter().flat_map(|c| places.iter().map(move |p| (c, p))) {
            fs::write(&file, content).unwrap();
            let error = open_named(place, LEN).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
            assert!(!error.to_string().contains("in use"), "{error}");
            let said = error.to_string();
            assert!(said.contains(name) && said.contains("would be lost"), "{said}");
            assert_eq!(&fs::read(&file).unwrap(), content, "{place}");
        }
        // The default name in a directory is no exception.
        fs::rename(&file, root.path().join("terrace.scm")).unwrap();
        assert_eq!(open(root.path(), LEN).unwrap_err().kind(), ErrorKind::Invalid);
        fs::remove_file(root.path().join("terrace.scm")).unwrap();
        // A file with the magic, an empty file and a file of zeros are accepted.
        for content in [&b"a tier of old"[..], b"", &[0; 5], &[0; 2 * LEN as usize]] {
            fs::write(&file, content).unwrap();
            for place in &places {
                drop(open_named(place, LEN).unwrap());
            }
            assert_eq!(fs::read(&file).unwrap()[..content.len()], *content);
        }
    }
}

/// A device has a fixed length: a larger size in the settings is refused.
#[test]
fn a_device_smaller_than_the_settings_say_is_refused() {
    let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let device = folder.path().join("device");
    fs::write(&device, vec![1; LEN as usize]).unwrap();
    let open =
        || super::open_existing(&device, fs::metadata(&device).unwrap().file_type()).unwrap().file;
    let error = block_device(&device, open(), LEN + 4096).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    let said = error.to_string();
    assert!(said.contains("smaller") && said.contains("64.0 KiB"), "{said}");
    assert_eq!(fs::read(&device).unwrap(), vec![1; LEN as usize]);
    assert!(block_device(&device, open(), LEN).is_ok());
}

/// A file as a block device, until it is dropped.
struct Loop(PathBuf);

impl Loop {
    /// None if this process may not create one.
    fn of(file: &Path) -> Option<Self> {
        let made = Command::new("losetup").args(["--find", "--show"]).arg(file).output().ok()?;
        let path = String::from_utf8(made.stdout).unwrap();
        made.status.success().then(|| Self(path.trim().into()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        drop(Command::new("losetup").arg("--detach").arg(&self.0).status());
    }
}

/// The result of `open` once the device is free: a child that another test starts has all handles of this
/// process for a moment.
fn once_free<T, E: std::fmt::Debug>(open: impl Fn() -> Result<T, E>) -> T {
    let began = Instant::now();
    loop {
        match open() {
            Ok(opened) => return opened,
            Err(error) => assert!(began.elapsed() < Duration::from_secs(300), "{error:?}"),
        }
        std::thread::yield_now();
    }
}

/// The user of a block device, such as a mounted file system or a RAID, opens it exclusively.
#[test]
fn a_block_device_that_something_else_uses_is_refused() {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(LEN).unwrap();
    let Some(device) = Loop::of(file.path()) else { return };
    let exclusive = OFlags::EXCL.bits().cast_signed();
    let user = || fs::OpenOptions::new().read(true).custom_flags(exclusive).open(&device.0);
    let other = user().unwrap();
    let error = open(&device.0, LEN).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("not mounted"), "{error}");
    drop(other);
    let Scm::Blocks(blocks) = once_free(|| open(&device.0, LEN)) else { panic!("not blocks") };
    blocks.file().write(0, Buf::pages(1), Purpose::Flush).1.unwrap();
    // While it is open as SCM, no other user can open it exclusively.
    user().unwrap_err();
    open(&device.0, LEN).unwrap_err();
    drop(blocks);
    once_free(user);
}
