//! A log per thread: every thread appends its own records, each with a fence, to interleaved memory.

use base::Result;
use media::emulated::AccessKind;

use super::devices::of_thread;
use super::records::Put;
use super::schedule::{Nanos, Schedule};
use super::store::{Step, Store, World};

/// The log of a thread: its end, and its record on the way (seqno, offset, bytes).
type Log = (u64, Option<(u64, u64, usize)>);

/// See the module.
#[derive(Debug)]
pub(super) struct PrivateLog {
    logs: Vec<Log>,
}

impl PrivateLog {
    pub(super) fn new(threads: usize) -> Self {
        Self { logs: (0..threads).map(|thread| (of_thread(thread), None)).collect() }
    }
}

impl Store for PrivateLog {
    fn step(
        &mut self,
        now: Nanos,
        thread: usize,
        put: Put,
        world: &mut World,
        _schedule: &mut Schedule,
    ) -> Result<Step> {
        let Some((tail, on_the_way)) = self.logs.get_mut(thread) else { return Ok(Step::Parked) };
        if let Some((seqno, at, len)) = on_the_way.take() {
            world.acknowledge(put, seqno, at, len);
            return Ok(Step::Done(seqno));
        }
        let seqno = world.take_seqnos(1);
        world.count_group(1);
        let (image, _) = world.shape.group(&[put], seqno)?;
        let at = *tail;
        *tail += image.len() as u64;
        *on_the_way = Some((seqno, at, image.len()));
        Ok(Step::At(world.devices.write(now, thread, AccessKind::Store, at, &image)))
    }
}
