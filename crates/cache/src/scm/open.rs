//! Opening a tier: what was there before is found again, where it is this tier's.

use std::sync::Arc;

use base::limits::PAGE_BYTES;
use base::{Account, Clock, Error, Result, hash64};
use media::scm::Scm;

use super::admission::Admission;
use super::background::ScmWriterState;
use super::backing::Backing;
use super::placement::Placement;
use super::prior::Prior;
use super::slot_map::{SLOT_SIXTEENTHS, WAYS};
use super::stored_map::{Layout, SLOTS_PER_PAGE, decode_head, decode_map, encode_head};
use super::tier::ScmTier;
use super::write_budget::WriteBudget;

/// How a tier behaves.
#[derive(Clone, Copy, Debug, Default)]
pub struct ScmOptions {
    /// Where pages go.
    pub placement: Placement,
    /// The most that is written, bytes a second over any minute; none: no limit.
    pub write_budget: Option<u64>,
    /// Which pages are let in.
    pub admission: Admission,
    /// What the medium was measured to be; none: what its kind says.
    pub prior: Option<Prior>,
    /// A random number, for a place that is taken over.
    pub id: u64,
}

impl ScmTier {
    /// A tier on `scm`. What an earlier one left there is found again; anything else that is there
    /// counts for nothing: that nothing is lost by it is for whoever opened a file ([`Scm::open`]). What
    /// things cost is measured by `clock`.
    ///
    /// # Errors
    /// `Invalid` where it is too small, `Retry` where the account has no memory for its map, and as the
    /// device's.
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
        let bytes = slots as u64 * SLOT_SIXTEENTHS / 16
            + Self::row_and_ghost_bytes(backing.facts(), layout.sets);
        let charge = account.charge(bytes)?;
        let prior = options.prior.unwrap_or_else(|| Prior::of_kind(backing.facts()));
        let mut writer = backing.writer(account, prior.writes)?;
        let found = backing.read(0, |page| decode_head(page, pages as u64))?;
        let is_found = found.is_ok();
        let id = found.unwrap_or(hash64(options.id, b"SCM tier"));
        if !is_found {
            writer.write(&backing, 0, &encode_head(id, pages as u64), || {})?;
            writer.finish()?;
            // Before any other page: a file without it, and with others, would be taken for somebody else's.
            backing.persist(0)?;
        }
        let budget = match is_found {
            true => WriteBudget::used(options.write_budget, clock.monotonic()),
            false => WriteBudget::new(options.write_budget),
        };
        let writer = ScmWriterState::new(writer, layout, budget);
        let policies = (options.placement, options.admission);
        let tier =
            Self::new((backing, layout, id), policies, (writer, prior), charge, Arc::clone(clock));
        match is_found {
            true => tier.restore(),
            // The first page counts, too.
            false => tier.spend(&mut tier.writer.lock(), tier.now(), PAGE_BYTES, true),
        }
        Ok(tier)
    }

    /// Takes the map's pages for what they are worth.
    fn restore(&self) {
        let mut restored = 0;
        for number in 0..self.layout.map_pages {
            let entries = self.backing.read(1 + number, |page| decode_map(self.id, number, page));
            // A page that cannot be read, or was never written, costs its slots' pages.
            let Ok(Ok(entries)) = entries else { continue };
            restored += self.map.restore(number * SLOTS_PER_PAGE, &entries);
        }
        self.counters.found(restored as u64);
    }
}
