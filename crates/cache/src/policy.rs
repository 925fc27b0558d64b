//! Which page goes when a new one needs its frame: a clock with a small count of heat.
//!
//! A hand walks the slots. A slot with heat loses one and stays; a slot without is evicted. A hit
//! adds heat, up to a ceiling. Data enters without heat: a page that is read once, by a scan say,
//! goes the first time the hand meets it, and pushes nothing out that was ever read twice.
//! Metadata enters with the heat of its ceiling: it outlives data by as many rounds of the hand.
//!
//! Pure: the cache calls it slot by slot, and so may a simulator.

use crate::PageKind;

/// A page's claim to stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Heat(u8);

const DATA_MAX: u8 = 3;
const META_MAX: u8 = 8;

impl Heat {
    /// Of a page that was just inserted.
    pub(crate) const fn new(kind: PageKind) -> Self {
        match kind {
            PageKind::Data => Self(0),
            PageKind::Meta => Self(META_MAX),
        }
    }

    /// After a hit.
    pub(crate) const fn hit(self, kind: PageKind) -> Self {
        match kind {
            PageKind::Data if self.0 < DATA_MAX => Self(self.0 + 1),
            PageKind::Data => self,
            PageKind::Meta => Self(META_MAX),
        }
    }

    /// After the hand passed; `None` where the page is to go.
    pub(crate) const fn cool(self) -> Option<Self> {
        match self.0.checked_sub(1) {
            Some(heat) => Some(Self(heat)),
            None => None,
        }
    }

    /// The most times a hand passes a page before it goes.
    pub(crate) const fn rounds_max() -> usize {
        META_MAX as usize + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounds(mut heat: Heat) -> usize {
        let mut rounds = 0;
        while let Some(cooler) = heat.cool() {
            heat = cooler;
            rounds += 1;
        }
        rounds
    }

    #[test]
    fn data_read_once_goes_at_once_and_metadata_stays_for_rounds() {
        let data = Heat::new(PageKind::Data);
        assert_eq!(rounds(data), 0);
        assert_eq!(rounds(data.hit(PageKind::Data)), 1);
        let hot = (0..100).fold(data, |heat, _| heat.hit(PageKind::Data));
        assert_eq!(rounds(hot), usize::from(DATA_MAX));
        let meta = Heat::new(PageKind::Meta);
        assert!(rounds(meta) > rounds(hot) && rounds(meta) < Heat::rounds_max());
    }
}
