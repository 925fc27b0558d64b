//! Viper (Benson et al., VLDB 2021): each thread fills pages of its own, which are interleaved over the
//! devices. A put writes its record into a slot of fixed size, then the page's bitmap, each flushed and
//! fenced. The index is in DRAM.
//!
//! An update is an insert here: the clearing of the old slot's bit, another flush, is left out.

use base::Result;
use base::limits::PAGE_BYTES;
use media::emulated::AccessKind;

use super::devices::of_thread;
use super::records::Put;
use super::schedule::{Nanos, Schedule};
use super::store::{Step, Store, World};

/// The lock and the bitmap at the start of a page.
const HEAD_BYTES: u64 = 16;

#[derive(Clone, Copy, Debug, Default)]
enum State {
    #[default]
    New,
    SlotWritten {
        seqno: u64,
        at: u64,
        len: usize,
    },
    BitWritten {
        seqno: u64,
        at: u64,
        len: usize,
    },
}

#[derive(Debug)]
struct Client {
    page: u64,
    /// The slots of the page in use, a bit each.
    used: u64,
    state: State,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Viper {
    clients: Vec<Client>,
    slot_bytes: u64,
    slots: u32,
}

impl Viper {
    pub(super) fn new(threads: usize, record_bytes: usize) -> Self {
        let slot_bytes = (record_bytes as u64).next_multiple_of(8);
        let client = |thread| Client { page: of_thread(thread), used: 0, state: State::default() };
        let slots = (PAGE_BYTES as u64 - HEAD_BYTES) / slot_bytes;
        Self { clients: (0..threads).map(client).collect(), slot_bytes, slots: slots as u32 }
    }
}

impl Store for Viper {
    fn step(
        &mut self,
        now: Nanos,
        thread: usize,
        put: Put,
        world: &mut World,
        _schedule: &mut Schedule,
    ) -> Result<Step> {
        let (slot_bytes, slots) = (self.slot_bytes, self.slots);
        let Some(client) = self.clients.get_mut(thread) else { return Ok(Step::Parked) };
        match client.state {
            State::New => {
                if client.used.count_ones() == slots.min(u64::BITS) {
                    (client.page, client.used) = (client.page + PAGE_BYTES as u64, 0);
                }
                let seqno = world.take_seqnos(1);
                world.count_group(1);
                let (image, _) = world.shape.group(&[put], seqno)?;
                let slot = u64::from(client.used.trailing_ones());
                let at = client.page + HEAD_BYTES + slot * slot_bytes;
                client.used |= 1 << slot;
                client.state = State::SlotWritten { seqno, at, len: image.len() };
                Ok(Step::At(world.devices.write(now, thread, AccessKind::Flushed, at, &image)))
            }
            State::SlotWritten { seqno, at, len } => {
                client.state = State::BitWritten { seqno, at, len };
                let (page, bits) = (client.page, client.used.to_le_bytes());
                Ok(Step::At(world.devices.write(now, thread, AccessKind::Flushed, page, &bits)))
            }
            State::BitWritten { seqno, at, len } => {
                client.state = State::New;
                world.acknowledge(put, seqno, at, len);
                Ok(Step::Done(seqno))
            }
        }
    }
}
