//! Held filters: filters of partitions, copied out of their metadata pages, so that a lookup probes them
//! without a page.
//!
//! A lookup that a filter on a page answers with no holds the filter at its table ([`TableFilters`]). The
//! next lookup of the partition reads one row of the copy, two adjacent cache lines, instead of a bucket of
//! the page cache, a frame's header, the page's header, and the row. So filters that rule keys out are
//! held, and others are not.
//!
//! Memory: about a byte a key, charged before it is taken (I10) to an account of [`HeldFilters`] that may
//! use only spare memory and has a cap. At the cap no more are held. A reclaim lets go of all of them; a
//! table lets go of its own when it closes. A copy is never wrong: tables are immutable, and the page was
//! verified.
//!
//! Threads: any. Cost: a probe takes no lock; to hold a filter takes the table's mutex, once a partition.

use std::fmt;
use std::sync::{Arc, OnceLock, Weak};

use arc_swap::{ArcSwapOption, Guard};
use base::{Account, Charge, Reclaim, invariant};
use parking_lot::Mutex;

use super::filter::{Filter, Row};
use super::meta::MetaPage;

/// Memory of a copy beside its bytes: the allocator's overhead.
const OVERHEAD_BYTES: usize = 16;

/// The held filters of all tables of a store, and their account.
pub struct HeldFilters {
    account: Account,
    tables: Mutex<Vec<Weak<TableFilters>>>,
}

impl HeldFilters {
    /// No filters; their memory is charged to `account`.
    #[must_use]
    pub fn new(account: Account) -> Arc<Self> {
        Arc::new(Self { account, tables: Mutex::default() })
    }

    /// Memory of the filters, bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.account.used()
    }

    /// Adds a table that begins to hold filters.
    fn add(&self, table: &Arc<TableFilters>) {
        let mut tables = self.tables.lock();
        if tables.len() == tables.capacity() {
            tables.retain(|table| table.strong_count() > 0);
        }
        tables.push(Arc::downgrade(table));
    }
}

impl Reclaim for HeldFilters {
    /// Lets go of all filters.
    fn reclaim(&self, _bytes: u64) -> u64 {
        let Some(mut tables) = self.tables.try_lock() else { return 0 };
        let before = self.account.used();
        for table in tables.drain(..).filter_map(|table| table.upgrade()) {
            table.copies.store(None);
        }
        before.saturating_sub(self.account.used())
    }
}

impl fmt::Debug for HeldFilters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HeldFilters({} bytes)", self.bytes())
    }
}

/// The held filters of one table.
#[derive(Default)]
pub(crate) struct TableFilters {
    /// `None` until a filter is held, and after a reclaim.
    copies: ArcSwapOption<Copies>,
    /// Held while a filter is copied.
    copying: Mutex<()>,
}

/// Copies of filters, by partition.
struct Copies {
    partitions: Box<[OnceLock<FilterCopy>]>,
    charge: Mutex<Charge>,
}

struct FilterCopy {
    seed: u32,
    width: u8,
    planes: Box<[u8]>,
}

impl FilterCopy {
    fn filter(&self) -> Filter<'_> {
        Filter::new(self.seed, self.width, &self.planes)
    }
}

impl TableFilters {
    /// The held filters, if there are any.
    #[inline]
    pub(crate) fn held(&self) -> Option<Held> {
        let copies = self.copies.load();
        copies.is_some().then_some(Held(copies))
    }

    /// Holds the filter of `meta`, the metadata page of partition `number` of `partitions`, if there is
    /// memory.
    #[cold]
    pub(crate) fn hold(
        self: &Arc<Self>,
        all: &HeldFilters,
        partitions: usize,
        number: usize,
        meta: &MetaPage<'_>,
    ) {
        // Another thread copies: this filter is held by a later lookup.
        let Some(_copying) = self.copying.try_lock() else { return };
        let copies = self.copies.load_full().or_else(|| self.begin(all, partitions));
        let Some((copies, filter)) = copies.zip(meta.filter()) else { return };
        let Some(place) = copies.partitions.get(number).filter(|it| it.get().is_none()) else {
            return;
        };
        let bytes = filter.planes().len() + OVERHEAD_BYTES;
        invariant!(copies.partitions.len() == partitions, "a table has as many partitions as ever");
        if copies.charge.lock().try_grow(bytes as u64) {
            invariant!(
                copies.charge.lock().bytes() >= bytes as u64,
                "a filter is charged before it is copied (I10)"
            );
            let ((seed, width), planes) = (filter.seed_and_width(), filter.planes().into());
            place.get_or_init(|| FilterCopy { seed, width, planes });
        }
    }

    /// Begins to hold filters.
    fn begin(self: &Arc<Self>, all: &HeldFilters, partitions: usize) -> Option<Arc<Copies>> {
        let bytes = partitions * size_of::<OnceLock<FilterCopy>>() + size_of::<Copies>();
        let charge = Mutex::new(all.account.try_charge(bytes as u64)?);
        let partitions = (0..partitions).map(|_| OnceLock::new()).collect();
        let copies = Arc::new(Copies { partitions, charge });
        self.copies.store(Some(Arc::clone(&copies)));
        all.add(self);
        Some(copies)
    }
}

/// The held filters of a table while a lookup probes them.
pub(crate) struct Held(Guard<Option<Arc<Copies>>>);

impl Held {
    /// A probe for the key with the hash `hash` in partition `number`; `None` if its filter is not held.
    #[inline]
    pub(crate) fn probe(self, number: usize, hash: u64) -> Option<FilterProbe> {
        let row = self.0.as_ref()?.partitions.get(number)?.get()?.filter().row(hash);
        Some(FilterProbe { held: self, number, row })
    }
}

/// A probe of a held filter, of which nothing has been read yet.
pub struct FilterProbe {
    held: Held,
    number: usize,
    row: Row,
}

impl FilterProbe {
    /// The filter.
    fn filter(&self) -> Option<Filter<'_>> {
        self.held.0.as_ref()?.partitions.get(self.number)?.get().map(FilterCopy::filter)
    }

    /// The only partition that may contain the key, at or before the position of the probe.
    #[must_use]
    pub const fn partition(&self) -> usize {
        self.number
    }

    /// Requests the cache lines that the probe reads.
    #[inline]
    pub fn prefetch(&self) {
        if let Some(filter) = self.filter() {
            filter.prefetch(&self.row);
        }
    }

    /// False if the table does not contain the key.
    #[inline]
    #[must_use]
    pub fn may_contain(&self) -> bool {
        self.filter().is_none_or(|filter| filter.admits(&self.row))
    }
}

impl fmt::Debug for FilterProbe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FilterProbe(partition {})", self.number)
    }
}
