//! What can be measured: an emulated device, in virtual time; a real one, with threads and a clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use base::limits::PAGE_BYTES;
use base::{Account, Error, Result, Rng};

use super::LEAST_BYTES;
use super::run::WRITE;
use crate::emulated::{Load, Measured, Profile, measure};
use crate::scm::{Blocks, Facts, Scm, ScmLocation, Slots};
use crate::{Buf, File, Purpose};

/// How long a load is run on a real device.
const LOAD_TIME: Duration = Duration::from_millis(if cfg!(test) { 5 } else { 200 });

/// Accesses of all logical threads together, at most, and of each at least.
const ACCESSES: u32 = 32_000;
const ACCESSES_EACH: u32 = 200;

/// The longest access, bytes.
const LEN_MAX: u64 = 256 << 10;

/// A device to be measured. Its content is lost.
pub struct Device {
    place: String,
    kind: DeviceKind,
}

enum DeviceKind {
    Emulated(&'static Profile),
    Mapped(Slots),
    Blocks(Arc<Blocks>),
}

impl Device {
    /// Opens `size` bytes of `place`, and writes all of them once. An emulated one is not made: its model is
    /// asked.
    ///
    /// # Errors
    /// As [`Scm::open`]; those of the writes.
    pub fn open(place: &ScmLocation, size: u64) -> Result<Self> {
        let kind = match place {
            ScmLocation::Emulated(profile, _) => DeviceKind::Emulated(profile),
            // Whatever a file there begins with.
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

    /// Space that is reserved only is read as zeros by the file system alone, without the device.
    fn write_all(&self) -> Result<()> {
        let mut rng = Rng::new(0);
        match &self.kind {
            DeviceKind::Emulated(_) => Ok(()),
            DeviceKind::Mapped(slots) => {
                for mut page in (0..slots.len()).filter_map(|slot| slots.fill(slot)) {
                    rng.fill(&mut page[..]);
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

    /// Its place, as in settings.
    #[must_use]
    pub fn place(&self) -> &str {
        &self.place
    }

    /// What it is.
    #[must_use]
    pub fn facts(&self) -> Facts {
        match &self.kind {
            DeviceKind::Emulated(profile) => Facts::of_profile(profile),
            DeviceKind::Mapped(slots) => slots.facts().clone(),
            DeviceKind::Blocks(blocks) => blocks.facts().clone(),
        }
    }

    /// The shortest access, bytes.
    pub(super) fn least(&self) -> u64 {
        if self.facts().byte_addressable { LEAST_BYTES } else { PAGE_BYTES as u64 }
    }

    /// The sizes of accesses to try.
    pub(super) fn lens(&self) -> impl Iterator<Item = u64> + use<> {
        let most = match &self.kind {
            // A slot is what is lent at once.
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

    /// The bytes that accesses are spread over.
    fn span(&self) -> u64 {
        match &self.kind {
            DeviceKind::Emulated(_) => 1 << 32,
            DeviceKind::Mapped(slots) => (slots.len() * PAGE_BYTES) as u64,
            DeviceKind::Blocks(blocks) => blocks.len(),
        }
    }

    /// A load of one thread that reads as fast as it can.
    pub(super) fn load(&self) -> Load {
        let is_memory = self.facts().byte_addressable;
        Load {
            threads: 1,
            write: WRITE,
            write_share: 0.0,
            len: if is_memory { 256 } else { PAGE_BYTES as u64 },
            is_sequential: is_memory,
            is_fenced: false,
            // A thread waits for a block.
            is_dependent: !is_memory,
            accesses: 0,
            span: self.span(),
        }
    }

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

/// Runs a thread's work on as many as `load` says, at the same time; it returns its accesses' times.
fn run_threads(
    load: &Load,
    work: impl Fn(u32, Instant, &mut Vec<f64>) -> Result<u64> + Sync,
) -> Result<Measured> {
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

/// Accesses between two looks at the clock: a look takes as long as a read of memory.
const BATCH: u64 = 64;

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
    let places = (slots.len() * (PAGE_BYTES / len)) as u64;
    let mut place = places / u64::from(load.threads.max(1)) * u64::from(number);
    let (mut accesses, mut seen) = (0, 0_u64);
    // Once in any case: a thread may be started late.
    loop {
        let batch = Instant::now();
        for _ in 0..BATCH {
            // What was read decides where to go on, as far as the processor can know.
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
    let places = (len / load.len.max(1)).max(1);
    let mut accesses = 0;
    // Once in any case: a thread may be started late.
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
