//! Emulated devices with content: every access takes the time of the model, and every byte is kept.

use std::collections::HashMap;

use media::emulated::{Access, AccessKind, Model, Profile};

use super::schedule::Nanos;

/// Bytes that are allocated at once.
const CHUNK: u64 = 64 << 10;

/// Interleaved addresses change the device after this many bytes, as the hardware does it.
const STRIPE: u64 = 4096;

/// Bit of an address above which it names one device.
const DEVICE_SHIFT: u32 = 48;

/// The address of byte `at` of device `device` by itself. Addresses below 2^48 are interleaved over all
/// devices.
pub(super) const fn on_device(device: usize, at: u64) -> u64 {
    ((device as u64 + 1) << DEVICE_SHIFT) | at
}

/// The interleaved memory of `thread`. The parts of consecutive threads begin on consecutive devices: threads
/// that advance together do not meet on one device, as those of a store that runs for long do not.
pub(super) const fn of_thread(thread: usize) -> u64 {
    ((thread as u64) << 32) + thread as u64 * STRIPE
}

/// Several equal devices.
#[derive(Debug)]
pub(super) struct Devices {
    models: Vec<Model>,
    chunks: HashMap<u64, Box<[u8]>>,
}

/// The part of an access that lies on one device.
struct Part {
    device: usize,
    at: u64,
    len: u64,
}

impl Devices {
    pub(super) fn new(profile: &'static Profile, devices: usize) -> Self {
        let models = (0..devices.max(1)).map(|_| Model::new(profile)).collect();
        Self { models, chunks: HashMap::new() }
    }

    /// Bytes that the media have written.
    pub(super) fn written_bytes(&self) -> u64 {
        self.models.iter().map(|model| model.units_written() * model.profile().unit).sum()
    }

    /// Writes `bytes` at `at` with a fence. Returns the time at which they are durable.
    pub(super) fn write(
        &mut self,
        now: Nanos,
        stream: usize,
        kind: AccessKind,
        at: u64,
        bytes: &[u8],
    ) -> Nanos {
        let done = self.access(now, stream, kind, at, bytes.len() as u64);
        self.each_chunk(at, bytes.len(), |place, from| {
            if let Some(from) = bytes.get(from..from + place.len()) {
                place.copy_from_slice(from);
            }
        });
        done
    }

    /// Reads `len` bytes at `at`. Returns them, and the time at which they are there.
    pub(super) fn read(
        &mut self,
        now: Nanos,
        stream: usize,
        at: u64,
        len: usize,
    ) -> (Nanos, Vec<u8>) {
        (self.access(now, stream, AccessKind::Read, at, len as u64), self.peek(at, len))
    }

    /// The content of `len` bytes at `at`, which an access has waited for.
    pub(super) fn peek(&mut self, at: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.each_chunk(at, len, |place, from| {
            if let Some(to) = bytes.get_mut(from..from + place.len()) {
                to.copy_from_slice(place);
            }
        });
        bytes
    }

    fn access(&mut self, now: Nanos, stream: usize, kind: AccessKind, at: u64, len: u64) -> Nanos {
        let is_fenced = kind != AccessKind::Read;
        let mut end = now;
        let mut from = at;
        while from < at + len {
            let part = self.part(from, at + len - from);
            from += part.len;
            let access = Access { kind, at: part.at, len: part.len, is_fenced };
            if let Some(model) = self.models.get_mut(part.device) {
                let outcome = model.access(now, stream as u32, access);
                end = end.max(outcome.done).max(outcome.next);
            }
        }
        end
    }

    /// The first device of an access, and the bytes on it.
    fn part(&self, at: u64, len: u64) -> Part {
        if at >> DEVICE_SHIFT > 0 {
            let device = (at >> DEVICE_SHIFT) as usize - 1;
            return Part { device, at: at & ((1 << DEVICE_SHIFT) - 1), len };
        }
        let devices = self.models.len() as u64;
        let (stripe, within) = (at / STRIPE, at % STRIPE);
        Part {
            device: (stripe % devices) as usize,
            at: stripe / devices * STRIPE + within,
            len: len.min(STRIPE - within),
        }
    }

    /// Calls `f` with each piece of memory of the range, and the piece's offset in the range.
    fn each_chunk(&mut self, at: u64, len: usize, mut f: impl FnMut(&mut [u8], usize)) {
        let mut done = 0;
        while done < len {
            let place = at + done as u64;
            let within = (place % CHUNK) as usize;
            let piece = (len - done).min(CHUNK as usize - within);
            let chunk = self.chunks.entry(place / CHUNK);
            let chunk = chunk.or_insert_with(|| vec![0; CHUNK as usize].into_boxed_slice());
            if let Some(chunk) = chunk.get_mut(within..within + piece) {
                f(chunk, done);
            }
            done += piece;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Devices, on_device};
    use media::emulated::{AccessKind, Profile};

    #[test]
    fn content_is_kept_across_chunks_and_stripes_and_apart_by_device() {
        let profile = Profile::named("cxl-dram").unwrap();
        let mut devices = Devices::new(profile, 2);
        let bytes: Vec<u8> = (0..20_000_u32).map(|byte| byte as u8).collect();
        for at in [0, 65_000, on_device(0, 65_000), on_device(1, 65_000)] {
            let done = devices.write(10.0, 0, AccessKind::Store, at, &bytes);
            assert!(done > 10.0);
            assert_eq!(devices.read(done, 1, at, bytes.len()).1, bytes);
        }
        devices.write(0.0, 0, AccessKind::Store, on_device(1, 65_000), &[7; 3]);
        assert_eq!(devices.read(0.0, 0, on_device(0, 65_000), 3).1, bytes[..3]);
    }

    #[test]
    fn interleaved_stripes_share_the_work_of_the_devices() {
        let profile = Profile::named("optane-dimm").unwrap();
        let time = |count| {
            let mut devices = Devices::new(profile, count);
            devices.write(0.0, 0, AccessKind::Store, 0, &[1; 16 << 10])
        };
        assert!(time(1) > 3.0 * time(4));
    }
}
