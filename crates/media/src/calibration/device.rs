//! The devices that can be calibrated: an emulated one, in virtual time; a real one, with threads and a
//! clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use base::limits::PAGE_BYTES;
use base::{Account, Error, Result, Rng};

use super::values::LEAST_BYTES;
use crate::emulated::{AccessKind, Load, Measured, Profile, measure};
use crate::scm::{Blocks, Facts, Scm, ScmLocation, Slots};
use crate::{Buf, File, Purpose};

/// Duration of one load on a real device.
const LOAD_TIME: Duration = Duration::from_millis(if cfg!(test) { 5 } else { 200 });

/// The most accesses of all logical threads together, and the least of each.
const ACCESSES: u32 = 32_000;
const ACCESSES_EACH: u32 = 200;

/// The kind of the writes.
const WRITE: AccessKind = AccessKind::Store;

/// The longest access, bytes.
const LEN_MAX: u64 = 256 << 10;

/// A device to be calibrated. Its content is lost.
pub struct CalibratedDevice {
    place: String,
    kind: DeviceKind,
}

enum DeviceKind {
    Emulated(&'static Profile),
    Mapped(Slots),
    Blocks(Arc<Blocks>),
}

impl CalibratedDevice {
    /// Opens `size` bytes at `place` and writes all of them once. An emulated device is not opened: only its
    /// model is used.
    ///
    /// # Errors
    /// Those of [`Scm::open`], and those of the writes.
    pub fn open(place: &ScmLocation, size: u64) -> Result<Self> {
        let kind = match place {
            ScmLocation::Emulated(profile, _) => DeviceKind::Emulated(profile),
            // No magic: a file there may begin with anything.
            _ => match Scm::open(place, size, &[])? {
                Scm::Mapped(region) => {
                    DeviceKind::Mapped(Slots::new(region, &Account::unlimited("calibration"))?)
                }
                Scm::Blocks(blocks) => DeviceKind::Blocks(Arc::new(blocks)),
            },
        };
        let device = Self { place: place.to_string(), kind };
        device.write_all()?;
        Ok(device)
    }

    /// Writes every page, because the file system reads reserved space as zeros without using the device.
    fn write_all(&self) -> Result<()> {
        let mut rng = Rng::new(0);
        match &self.kind {
            DeviceKind::Emulated(_) => Ok(()),
            DeviceKind::Mapped(slots) => {
                let in_use =
                    || base::broken_invariant!("a device in calibration has no other user");
                for slot in 0..slots.len() {
                    rng.fill(&mut slots.fill(slot).ok_or_else(in_use)?[..]);
                }
                slots.persist(0..slots.len())
            }
            DeviceKind::Blocks(blocks) => {
                for at in (0..blocks.len()).step_by(LEN_MAX as usize) {
                    let len = LEN_MAX.min(blocks.len() - at);
                    let mut buf = Buf::pages(len as usize / PAGE_BYTES);
                    rng.fill(&mut buf);
                    blocks.file().write(at, buf, Purpose::Flush).1?;
                }
                blocks.file().sync(Purpose::Flush)
            }
        }
    }

    /// Its location, as in the settings.
    #[must_use]
    pub fn place(&self) -> &str {
        &self.place
    }

    /// Its properties.
    #[must_use]
    pub fn facts(&self) -> Facts {
        match &self.kind {
            DeviceKind::Emulated(profile) => Facts::of_profile(profile),
            DeviceKind::Mapped(slots) => slots.facts().clone(),
            DeviceKind::Blocks(blocks) => blocks.facts().clone(),
        }
    }

    /// Size of the shortest access, bytes.
    pub(super) fn least(&self) -> u64 {
        if self.facts().byte_addressable { LEAST_BYTES } else { PAGE_BYTES as u64 }
    }

    /// The sizes of accesses to measure, bytes.
    pub(super) fn lens(&self) -> impl Iterator<Item = u64> + use<> {
        let most = match &self.kind {
            // A thread accesses at most a slot at a time.
            DeviceKind::Mapped(_) => PAGE_BYTES as u64,
            DeviceKind::Emulated(_) | DeviceKind::Blocks(_) => LEN_MAX.min(self.span()),
        };
        let mut len = self.least();
        std::iter::from_fn(move || {
            let this = len;
            len *= 2;
            (this <= most).then_some(this)
        })
    }

    /// Number of bytes that accesses are spread over.
    fn span(&self) -> u64 {
        match &self.kind {
            DeviceKind::Emulated(_) => 1 << 32,
            DeviceKind::Mapped(slots) => (slots.len() * PAGE_BYTES) as u64,
            DeviceKind::Blocks(blocks) => blocks.len(),
        }
    }

    /// One thread that reads as fast as it can.
    pub(super) fn load(&self) -> Load {
        let is_memory = self.facts().byte_addressable;
        Load {
            threads: 1,
            write: WRITE,
            write_share: 0.0,
            len: if is_memory { 256 } else { PAGE_BYTES as u64 },
            is_sequential: is_memory,
            is_fenced: false,
            // A thread waits for each block.
            is_dependent: !is_memory,
            accesses: 0,
            span: self.span(),
        }
    }

    /// Runs a load.
    pub(super) fn run(&mut self, load: &Load) -> Result<Measured> {
        match &self.kind {
            DeviceKind::Emulated(profile) => {
                let accesses = (ACCESSES / load.threads.max(1)).clamp(ACCESSES_EACH, 4000);
                Ok(measure(profile, &Load { accesses, ..*load }))
            }
            DeviceKind::Mapped(slots) => {
                let measured = run_threads(load, |number, end, sample| {
                    on_slots(slots, load, number, end, sample)
                });
                slots.check().and(measured)
            }
            DeviceKind::Blocks(blocks) => run_threads(load, |number, end, sample| {
                on_blocks(blocks.file(), blocks.len(), load, number, end, sample)
            }),
        }
    }
}

/// Runs `work` on the threads of `load` at the same time. It returns its number of accesses and adds samples.
fn run_threads(
    load: &Load,
    work: impl Fn(u32, Instant, &mut Vec<f64>) -> Result<u64> + Sync,
) -> Result<Measured> {
    base::invariant!(load.threads > 0, "a load has a thread");
    let bytes = AtomicU64::new(0);
    let start = Instant::now();
    let end = start + LOAD_TIME;
    let samples: Vec<Result<Vec<f64>>> = thread::scope(|scope| {
        let spawned: Vec<_> = (0..load.threads)
            .map(|number| {
                let (work, bytes) = (&work, &bytes);
                scope.spawn(move || {
                    let mut samples = Vec::new();
                    let accesses = work(number, end, &mut samples)?;
                    bytes.fetch_add(accesses * load.len, Relaxed);
                    Ok(samples)
                })
            })
            .collect();
        let broken = || Error::retry("a thread of the calibration");
        spawned.into_iter().map(|thread| thread.join().map_err(|_| broken())?).collect()
    });
    let elapsed = start.elapsed().as_nanos().max(1) as f64;
    let mut latencies_ns = Vec::new();
    for sample in samples {
        latencies_ns.extend(sample?);
    }
    latencies_ns.sort_by(f64::total_cmp);
    Ok(Measured { gb_per_second: bytes.into_inner() as f64 / elapsed, latencies_ns })
}

/// Accesses between two readings of the clock: a reading takes as long as a read of memory.
const BATCH: u64 = 64;

/// The accesses of thread `number` to mapped slots until `end`. Returns their number; adds their latencies.
fn on_slots(
    slots: &Slots,
    load: &Load,
    number: u32,
    end: Instant,
    samples: &mut Vec<f64>,
) -> Result<u64> {
    let mut rng = Rng::new(u64::from(number) + 1);
    let mut owed = 0.5;
    let len = usize::try_from(load.len).unwrap_or(PAGE_BYTES).min(PAGE_BYTES);
    base::invariant!(PAGE_BYTES.is_multiple_of(len), "an access lies within one slot");
    let places = (slots.len() * (PAGE_BYTES / len)) as u64;
    let mut place = places / u64::from(load.threads.max(1)) * u64::from(number);
    let (mut accesses, mut seen) = (0, 0_u64);
    // At least one batch: the thread may start late.
    loop {
        let batch = Instant::now();
        for _ in 0..BATCH {
            // The next place depends on the data read, as far as the processor can know.
            place = match load.is_sequential {
                true => (place + 1) % places,
                false => (rng.below(places) + u64::from(seen == u64::MAX)) % places,
            };
            let slot = usize::try_from(place).unwrap_or(0) / (PAGE_BYTES / len);
            let from = usize::try_from(place).unwrap_or(0) % (PAGE_BYTES / len) * len;
            owed += load.write_share;
            if owed >= 1.0 {
                owed -= 1.0;
                if let Some(mut page) = slots.fill(slot) {
                    page.get_mut(from..from + len).unwrap_or_default().fill(accesses as u8);
                }
                slots.persist(slot..slot + 1)?;
            } else if let Some(page) = slots.pin(slot) {
                let bytes = page.get(from..from + len).unwrap_or_default();
                let words = bytes.chunks_exact(8).filter_map(|word| word.try_into().ok());
                seen = words.fold(0, |seen, word| seen ^ u64::from_le_bytes(word));
            }
            accesses += 1;
        }
        samples.push(batch.elapsed().as_nanos() as f64 / BATCH as f64);
        if Instant::now() >= end {
            break;
        }
    }
    std::hint::black_box(seen);
    Ok(accesses)
}

/// The accesses of thread `number` to blocks until `end`. Returns their number; adds their latencies.
fn on_blocks(
    file: &Arc<dyn File>,
    len: u64,
    load: &Load,
    number: u32,
    end: Instant,
    samples: &mut Vec<f64>,
) -> Result<u64> {
    let mut rng = Rng::new(u64::from(number) + 1);
    let mut owed = 0.5;
    let pages = usize::try_from(load.len).unwrap_or(PAGE_BYTES) / PAGE_BYTES;
    let mut buf = Buf::pages(pages);
    rng.fill(&mut buf);
    base::invariant!(load.len <= len, "no access is longer than the device");
    let places = (len / load.len.max(1)).max(1);
    let mut accesses = 0;
    // At least one access: the thread may start late.
    loop {
        let at = rng.below(places) * load.len;
        let started = Instant::now();
        owed += load.write_share;
        let (back, result) = if owed >= 1.0 {
            owed -= 1.0;
            file.write(at, buf, Purpose::Flush)
        } else {
            file.read(at, buf, Purpose::Data)
        };
        result?;
        buf = back;
        samples.push(started.elapsed().as_nanos() as f64);
        accesses += 1;
        if Instant::now() >= end {
            return Ok(accesses);
        }
    }
}
