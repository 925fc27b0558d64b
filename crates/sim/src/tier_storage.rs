//! The storage of the SCM tier, memory or a device: what survives each end of a process, and how it may
//! change before the next process opens it.
//!
//! The tier promises nothing (I6): pages may be lost, old, damaged, or those of another tier. So no answer
//! depends on it, and the store never fails because of it.

use std::sync::Arc;
use std::time::Duration;

use base::limits::PAGE_BYTES;
use base::{Error, ManualClock, Result, Rng};
use media::emulated::{Device, Profile};
use media::scm::{AnonymousMemory, Blocks, Facts, Persistence, Scm};
use media::{Access, Fault, Faulty, Medium, MemoryMedium, OpKind, Pace, Rule};

use crate::history::ProcessEnd;
use crate::settings::TierSettings;

/// Name of the device's file.
pub(crate) const FILE: &str = "tier";

/// A cache line: the unit in which memory is written back, bytes.
const LINE: usize = 64;

/// The storage over all processes of a simulation.
#[derive(Debug, Default)]
pub(crate) struct TierStorage {
    /// The contents that the last process left.
    left: Image,
    /// The contents that an earlier process left; sometimes they are restored.
    older: Image,
    /// The storage of the running process.
    pub(crate) live: Option<Live>,
    /// Whether the running process may read other bytes than its tier wrote, so that damaged pages are
    /// permitted.
    pub(crate) may_be_damaged: bool,
}

/// The contents while no process runs.
#[derive(Debug, Default)]
struct Image {
    bytes: Vec<u8>,
    /// As [`TierStorage::may_be_damaged`].
    may_be_damaged: bool,
}

/// Storage in use.
#[derive(Debug)]
pub(crate) enum Live {
    Memory(AnonymousMemory),
    Device(Arc<Faulty>),
    /// There is no storage.
    Missing,
}

impl TierStorage {
    /// Prepares the storage for a tier with `settings`: as it was left, or changed. Returns a description of
    /// its state.
    pub(crate) fn prepare(
        &mut self,
        settings: &TierSettings,
        clock: &Arc<ManualClock>,
        rng: &mut Rng,
    ) -> Result<&'static str> {
        let (state, mut fails) = (self.change_while_unused(rng), false);
        // What a smaller tier does not see stays as it was left: the next one may find it.
        let mut bytes = self.left.bytes.clone();
        bytes.resize(settings.pages * PAGE_BYTES, 0);
        self.may_be_damaged = self.left.may_be_damaged;
        self.live = Some(if rng.one_in(16) {
            Live::Missing
        } else if settings.is_mapped {
            Live::Memory(AnonymousMemory::new(&bytes)?)
        } else {
            let image = MemoryMedium::new();
            image.insert(FILE, bytes)?;
            let pace = Pace::manual(Arc::clone(clock));
            let device = Faulty::over(&image, rng.next_u64())?.with_pace(pace);
            fails = rng.one_in(16);
            if fails {
                let on = if rng.one_in(2) { OpKind::Read } else { OpKind::Write };
                device.inject(Rule::new(on, Fault::Io).after(rng.below(3)))?;
            }
            Live::Device(Arc::new(device))
        });
        Ok(match &self.live {
            Some(Live::Missing) => "missing",
            _ if fails => "failing",
            _ => state,
        })
    }

    /// Changes the contents while no process runs. Returns a description of the change.
    fn change_while_unused(&mut self, rng: &mut Rng) -> &'static str {
        let Image { bytes, may_be_damaged } = &mut self.left;
        match rng.below(16) {
            0 => {
                self.left = Image::default();
                "empty"
            }
            1 | 2 => {
                std::mem::swap(&mut self.left, &mut self.older);
                "an older one"
            }
            3 => {
                let from = rng.below(bytes.len() as u64 + 1) as usize;
                rng.fill(bytes.get_mut(from..).unwrap_or_default());
                *may_be_damaged = true;
                "overwritten"
            }
            4 | 5 if !bytes.is_empty() => {
                for _ in 0..1 + rng.below(40) {
                    let at = rng.below(bytes.len() as u64) as usize;
                    bytes[at] ^= 1 << rng.below(8);
                }
                *may_be_damaged = true;
                "damaged"
            }
            _ => "as it was left",
        }
    }

    /// Keeps the contents after the process ended (`died` is `None`; the tier wrote its last pages) or died
    /// (it did not).
    pub(crate) fn leave(&mut self, died: Option<ProcessEnd>, rng: &mut Rng) -> Result<()> {
        let mut bytes = match self.live.take() {
            None | Some(Live::Missing) => return Ok(()),
            Some(Live::Memory(kept)) => kept.content()?,
            Some(Live::Device(device)) => {
                let image = match died {
                    Some(ProcessEnd::Power) => device.crash_image(rng.next_u64())?,
                    Some(ProcessEnd::Process) | None => device.process_death_image()?,
                };
                self.may_be_damaged |= device.struck() > 0;
                image.content(FILE).unwrap_or_default()
            }
        };
        if died == Some(ProcessEnd::Power) {
            // Some cache lines were not written back: they hold what the process found at its start.
            for (line, old) in bytes.chunks_mut(LINE).zip(self.left.bytes.chunks(LINE)) {
                if rng.one_in(200) && line.len() == old.len() {
                    line.copy_from_slice(old);
                }
            }
        }
        let image = Image { bytes, may_be_damaged: self.may_be_damaged };
        self.older = std::mem::replace(&mut self.left, image);
        Ok(())
    }

    /// Whether a fault explains that the tier is off.
    pub(crate) fn may_fail(&self) -> bool {
        match &self.live {
            Some(Live::Device(device)) => device.struck() > 0,
            Some(Live::Memory(_)) => false,
            None | Some(Live::Missing) => true,
        }
    }
}

impl Live {
    /// Opens the storage for a tier.
    pub(crate) fn open(&self, settings: &TierSettings) -> Result<Scm> {
        // Virtual time: nothing waits.
        let profile = |name| Profile::named(name).filter(|_| settings.is_emulated);
        match self {
            Self::Missing => Err(Error::invalid("device").expected("one").got("none")),
            Self::Memory(kept) => Ok(Scm::Mapped(match profile("cxl-dram") {
                Some(profile) => kept.region()?.emulated(Device::virtual_time(profile)),
                None => kept.region()?,
            })),
            Self::Device(device) => {
                let device = Arc::clone(device);
                let file = device.open(FILE, Access::Direct)?;
                let facts = Facts {
                    backend: "simulated",
                    byte_addressable: false,
                    persistence: Persistence::Power,
                    write_unit: PAGE_BYTES,
                    read_latency: Duration::from_micros(10),
                    numa_node: None,
                    emulated: None,
                };
                let len = (settings.pages * PAGE_BYTES) as u64;
                let blocks = Blocks::new(file, len, facts, move |depth| device.queue(depth));
                Ok(Scm::Blocks(match profile("optane-ssd") {
                    Some(profile) => blocks.emulated(Device::virtual_time(profile)),
                    None => blocks,
                }))
            }
        }
    }
}
