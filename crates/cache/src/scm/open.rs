//! Opening a tier: finds the pages that an earlier process left in it, or formats the medium.

use std::sync::Arc;

use base::limits::PAGE_BYTES;
use base::{Account, Clock, Error, Result, hash64};
use media::scm::Scm;

use super::admission::Admission;
use super::backing::{Backing, Writer};
use super::placement::Placement;
use super::prior::Prior;
use super::slot_map::{SLOT_SIXTEENTHS, WAYS};
use super::stored_map::{Layout, SLOTS_PER_PAGE, decode_head, decode_map, encode_head};
use super::tier::{ScmTier, TierParts};
use super::write_budget::WriteBudget;
use super::writer_state::ScmWriterState;

/// Settings of a tier.
#[derive(Clone, Copy, Debug, Default)]
pub struct ScmOptions {
    /// Which pages go to DRAM and which to this tier.
    pub placement: Placement,
    /// Write budget, bytes per second over any minute; `None`: no limit.
    pub write_budget: Option<u64>,
    /// Which pages are admitted.
    pub admission: Admission,
    /// Calibrated costs of the medium; `None`: the defaults of its kind.
    pub prior: Option<Prior>,
    /// A random number, used if the tier is formatted.
    pub id: u64,
}

impl ScmTier {
    /// Opens a tier on `scm`. Finds the pages that an earlier tier of the same size and format left there.
    /// Formats anything else: the caller opened a file by [`Scm::open`], which checks that it may be
    /// overwritten. Costs are measured by `clock`.
    ///
    /// # Errors
    /// `Invalid` if `scm` is too small, `Retry` if the account has no memory for the slot map, and the
    /// device's errors.
    pub fn open(
        scm: Scm,
        options: ScmOptions,
        account: &Account,
        clock: &Arc<dyn Clock>,
    ) -> Result<Self> {
        let backing = Backing::new(scm, account)?;
        let pages = backing.pages();
        let layout = Layout::of(pages).ok_or_else(|| {
            Error::invalid("size of an SCM tier").expected("at least 18 pages").got(pages)
        })?;
        let slots = layout.sets * WAYS;
        let map_bytes = slots as u64 * SLOT_SIXTEENTHS / 16;
        let charge =
            account.charge(map_bytes + Self::row_and_ghost_bytes(backing.facts(), layout.sets))?;
        let prior = options.prior.unwrap_or_else(|| Prior::of_kind(backing.facts()));
        let mut writer = backing.writer(account, prior.writes)?;
        let found = backing.read(0, |page| decode_head(page, pages as u64))?;
        let is_found = found.is_ok();
        let id = found.unwrap_or(hash64(options.id, b"SCM tier"));
        if !is_found {
            format(&backing, &mut writer, id, pages as u64)?;
        }
        let budget = match is_found {
            true => WriteBudget::used(options.write_budget, clock.monotonic()),
            false => WriteBudget::new(options.write_budget),
        };
        let tier = Self::new(TierParts {
            backing,
            layout,
            id,
            placement: options.placement,
            admission: options.admission,
            writer: ScmWriterState::new(writer, layout, budget),
            prior,
            charge,
            clock: Arc::clone(clock),
        });
        match is_found {
            true => tier.restore(),
            // The write of the first page counts against the budget.
            false => tier.spend(&mut tier.writer.lock(), tier.now(), PAGE_BYTES, true),
        }
        Ok(tier)
    }

    /// Fills the slot map from the stored map. A map page that cannot be read, or was never written, costs
    /// the pages of its slots.
    fn restore(&self) {
        let mut restored = 0;
        for number in 0..self.layout.map_pages {
            let entries = self.backing.read(1 + number, |page| decode_map(self.id, number, page));
            let Ok(Ok(entries)) = entries else { continue };
            restored += self.map.restore(number * SLOTS_PER_PAGE, &entries);
        }
        self.counters.found(restored as u64);
    }
}

/// Writes the first page of a new tier and makes it durable before any other page is written. Without that, a
/// crash could leave a file with pages and no first page, which the next open would take for somebody else's
/// file and refuse.
fn format(backing: &Backing, writer: &mut Writer, id: u64, pages: u64) -> Result<()> {
    writer.write(backing, 0, &encode_head(id, pages), || {})?;
    writer.finish()?;
    backing.persist(0)
}
