//! The files of a store as a reader sees them beside the process that writes it: [`read_only_files`].
//!
//! The reader takes no lock and writes nothing. It copies the manifest, opens every file that the manifest
//! names, and copies the end of each lane of the log; all of that is a consistent state if the manifest is
//! the same afterwards. Otherwise the writer recorded a flush, a merge, an ingest or a keyspace meanwhile,
//! and the reader begins again, a bounded number of times. Afterwards the state needs nothing from the
//! writer: open files stay readable when their names are removed.
//!
//! Only the last segments of a lane change. A segment is begun after the last record of the one before it.
//!
//! Runs on the opening thread. Memory: the manifest, and two segments of each lane, charged.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use base::limits::PAGE_BYTES;
use base::{Account, Error, ErrorKind, Result};
use media::scm::ScmLocation;
use media::{Access, Buf, FileMedium, FileOptions, Medium, Overlay, Purpose};
use parking_lot::Mutex;
use wal::{DEVICE_FILE, OpenDevices, Start, parse_segment_name};

use crate::LogConfig;

/// Attempts to see one state of the manifest. The first attempt opens every table; each later one opens only
/// the tables that are new since, which takes milliseconds. A writer at full speed changes its manifest some
/// times a second.
const ATTEMPTS_MAX: u32 = 200;

/// Segments with records that are copied of each lane: the writer appends to the last one; the one before it
/// is copied too in case the writer begins the next one meanwhile.
const SEGMENTS_COPIED: usize = 2;

/// The store on `below` and its log's devices as they are now, without a lock: `below` may have been opened
/// for reading only, and another process may have the store open. The result never changes.
///
/// # Errors
/// `Invalid` if there is no store; `Corrupt` for a damaged manifest; `Retry` if the manifest changes all the
/// time, or the memory limit is too low; those of the devices.
pub fn read_only_files(
    below: &Arc<dyn Medium>,
    log: &LogConfig,
    account: &Account,
) -> Result<(Arc<dyn Medium>, LogConfig)> {
    let mut overlay = Overlay::new(Arc::clone(below), account);
    for _ in 0..ATTEMPTS_MAX {
        let before = manifests(&**below)?;
        let earlier = std::mem::replace(&mut overlay, Overlay::new(Arc::clone(below), account));
        let log = attempt(&overlay, &earlier, below, &before, log, account);
        // An error is the store's own if nothing changed meanwhile.
        if before == manifests(&**below)? {
            return Ok((Arc::new(overlay), log?));
        }
    }
    Err(Error::retry("store that is opened for reading only")
        .expected("a moment without a change of its manifest")
        .got(format_args!("a change during each of {ATTEMPTS_MAX} attempts")))
}

/// The names and contents of the manifests.
fn manifests(medium: &dyn Medium) -> Result<Vec<(String, Vec<u8>)>> {
    let mut found = Vec::new();
    for listing in medium.list()? {
        if !manifest::is_file_name(&listing.name) {
            continue;
        }
        match content(medium, &listing.name) {
            Ok(content) => found.push((listing.name, content)),
            // It was removed since it was listed. One that ends early is judged by its reader.
            Err(error) if matches!(error.kind(), ErrorKind::Invalid | ErrorKind::Corrupt) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// The content of a manifest.
fn content(medium: &dyn Medium, name: &str) -> Result<Vec<u8>> {
    let file = medium.open(name, Access::Bytes)?;
    let len = file.size()?;
    let mut content = Vec::new();
    let mut buf = Buf::pages(16);
    for at in (0..len).step_by(buf.len()) {
        let rest = usize::try_from(len - at).unwrap_or(usize::MAX).min(16 * PAGE_BYTES);
        if rest < buf.len() {
            buf = Buf::pages(rest.div_ceil(PAGE_BYTES));
        }
        let (read, result) = file.read(at, buf, Purpose::Manifest);
        result?;
        content.extend(read.iter().take(rest));
        buf = read;
    }
    Ok(content)
}

/// Takes the files that `manifests` name into `overlay`: those that the overlay of the `earlier` attempt has
/// open are taken from it. Returns the log with its devices as they are now.
fn attempt(
    overlay: &Overlay,
    earlier: &Overlay,
    below: &Arc<dyn Medium>,
    manifests: &[(String, Vec<u8>)],
    log: &LogConfig,
    account: &Account,
) -> Result<LogConfig> {
    for (name, content) in manifests {
        overlay.insert(name, content.clone())?;
    }
    let Ok(found) = manifest::recover(overlay, false)? else {
        return Err(Error::invalid("store").expected("an existing one").got("none"));
    };
    for name in found.state.files() {
        // No two files have one name: the numbers of tables are never used again.
        if overlay.pin_like(earlier, &name) {
            continue;
        }
        // A file that is missing although the manifest did not change is damage, which the open reports.
        match overlay.pin(&name, Access::Direct) {
            Err(error) if error.kind() == ErrorKind::Invalid => {}
            pinned => pinned?,
        }
    }
    let place = &found.state.log_place;
    let devices = place.devices.len();
    take_log(overlay, &**below, &found.state.log_start, &|name| {
        wal::device_of(name).is_none_or(|device| device >= devices)
    })?;
    let mut log = log.clone();
    if place.is_on_devices() {
        let devices = PinnedDevices {
            inner: Arc::clone(&log.devices),
            start: found.state.log_start.clone(),
            account: account.clone(),
            taken: Mutex::default(),
        };
        log.devices = Arc::new(devices);
        // The files of the devices are those of this moment, so this opens them all.
        log.open(found.store, place)?;
    }
    Ok(log)
}

/// Takes the segments of the log on `below` from `start` on that are `wanted`: the last ones are copied, the
/// others pinned.
fn take_log(
    overlay: &Overlay,
    below: &dyn Medium,
    start: &Start,
    wanted: &dyn Fn(&str) -> bool,
) -> Result<()> {
    let mut lanes = BTreeMap::<_, Vec<_>>::new();
    for listing in below.list()? {
        let Some((lane, segment)) = parse_segment_name(&listing.name) else { continue };
        if segment >= start.of(lane) && wanted(&listing.name) {
            lanes.entry(lane).or_default().push((segment, listing.name));
        }
    }
    for mut segments in lanes.into_values() {
        // Newest first: a record that is stored meanwhile is in no copy unless the ones before it are.
        segments.sort_by_key(|(segment, _)| std::cmp::Reverse(*segment));
        let mut copied = 0;
        for (_, name) in segments {
            if copied >= SEGMENTS_COPIED {
                overlay.pin(&name, Access::Bytes)?;
                continue;
            }
            // A segment that was made ahead of need has a header, in its first page.
            let end = match overlay.freeze(&name, Purpose::Replay) {
                // A spare segment that was removed since it was listed.
                Err(error) if error.kind() == ErrorKind::Invalid && copied == 0 => 0,
                end => end?,
            };
            copied += usize::from(end > PAGE_BYTES as u64);
        }
    }
    Ok(())
}

/// Opens the devices of a log as they were when they were opened first, without a lock.
struct PinnedDevices {
    inner: Arc<dyn OpenDevices>,
    start: Start,
    account: Account,
    taken: Mutex<BTreeMap<String, Arc<dyn Medium>>>,
}

impl OpenDevices for PinnedDevices {
    fn open(&self, place: &str, _create: bool) -> Result<Arc<dyn Medium>> {
        let mut taken = self.taken.lock();
        if let Some(medium) = taken.get(place) {
            return Ok(Arc::clone(medium));
        }
        let below: Arc<dyn Medium> = match directory_of(place) {
            Some(path) => {
                let (create, read_only) = (false, true);
                let options =
                    FileOptions { create, read_only, direct: false, ..Default::default() };
                Arc::new(FileMedium::open(path, options)?)
            }
            None => self.inner.open(place, false)?,
        };
        let overlay = Overlay::new(Arc::clone(&below), &self.account);
        if below.list()?.iter().any(|file| file.name == DEVICE_FILE) {
            overlay.pin(DEVICE_FILE, Access::Bytes)?;
        }
        take_log(&overlay, &*below, &self.start, &|_| true)?;
        let medium: Arc<dyn Medium> = Arc::new(overlay);
        taken.insert(place.to_owned(), Arc::clone(&medium));
        Ok(medium)
    }

    fn absolute(&self, place: &str) -> Result<String> {
        self.inner.absolute(place)
    }
}

impl fmt::Debug for PinnedDevices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PinnedDevices").field(&self.inner).finish()
    }
}

/// The directory with the files of the device at `place`, if it is one.
fn directory_of(place: &str) -> Option<PathBuf> {
    let path = match place.parse().ok()? {
        ScmLocation::Path(path) | ScmLocation::Emulated(_, Some(path)) => path,
        ScmLocation::Numa(_) | ScmLocation::Emulated(_, None) => return None,
    };
    path.is_dir().then_some(path)
}
