//! The memory limit of a process: accounts charge a [`Budget`], and reclaimers give memory back.
//!
//! A budget has two kinds of accounts. *Needed* accounts (write buffers, table metadata, reads, jobs) may
//! charge up to the limit; when they reach it, the budget asks its reclaimers for the missing bytes and
//! tries again. *Spare* accounts (the page cache) use the memory that no needed account uses: their charges
//! never start a reclaim, and caches are the first that a reclaim asks.
//!
//! Spare accounts also leave free the most that needed accounts used recently (`reserved_for_needed`).
//! Otherwise memory would move back and forth between a cache that refills and a write buffer that fills
//! up and is flushed. `reserved_for_needed` decreases with the number of spare charges that it refused, not
//! with time: it stays in an idle store, and falls quickly while a cache keeps missing.
//!
//! One account may have memory *set aside*, which needed accounts leave to it. Spare accounts use that memory
//! until the account charges it, and then give it back.
//!
//! Concurrency: a charge is three atomic operations and no lock. Reclaimers run on the charging thread and
//! without the budget's locks. A reclaimer that charges memory itself starts no further reclaim.

use std::cell::Cell;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;

use crate::account::{Account, AccountKind, AccountState};
use crate::{format_bytes, invariant};

/// The memory that the stores of one process may use. Shared; cheap to clone.
#[derive(Clone)]
pub struct Budget(Arc<BudgetState>);

pub(crate) struct BudgetState {
    // Counters that publish no other memory: `Relaxed` suffices.
    limit: AtomicU64,
    used: AtomicU64,
    /// The part of `used` that spare accounts charge.
    spare: AtomicU64,
    /// Bytes kept free of spare charges: the most that needed accounts used recently.
    reserved_for_needed: AtomicU64,
    /// The account that has memory set aside.
    set_aside: OnceLock<Account>,
    /// Bytes of needed charges that wait for a reclaim.
    waiting: AtomicU64,
    /// Spare charges that `reserved_for_needed` refused since it last decreased.
    refused_spare: AtomicU64,
    /// Bytes that reclaimers gave back.
    reclaimed: AtomicU64,
    /// Charges that were refused.
    refused: AtomicU64,
    accounts: Mutex<Vec<Account>>,
    reclaimers: Mutex<Arc<[Reclaimer]>>,
}

/// A component that can give memory back, and its turn.
type Reclaimer = (ReclaimOrder, Weak<dyn Reclaim>);

/// A component that can give back memory that it charged, such as a cache.
///
/// `reclaim` runs on the thread that charges, which may hold any lock of the engine. So `reclaim` must not
/// wait for a lock that some thread holds while it charges, and does a bounded amount of work.
pub trait Reclaim: Send + Sync {
    /// Gives back about `bytes`, or all it can if that is less. Returns the bytes given back already: memory
    /// that comes back later, for example after a flush that this call starts, does not count.
    fn reclaim(&self, bytes: u64) -> u64;

    /// Memory was reclaimed from components that are asked earlier, and spare accounts have `spare` bytes
    /// left. A component whose memory comes back only later may begin to give it back, so that there is some
    /// when nothing is left of the others. The rules of [`Reclaim::reclaim`] hold.
    fn others_reclaimed(&self, spare: u64) {
        let _ = spare;
    }
}

/// The order in which reclaimers are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReclaimOrder {
    /// Cached pages and rows: losing one costs a read.
    Cache,
    /// Memory kept so that it need not be allocated or computed again.
    Optional,
    /// Write buffers: reclaiming flushes them early.
    Buffers,
}

/// Tries of one charge. More than one, because another thread may charge the bytes that this thread's
/// reclaim freed.
const TRIES: usize = 4;

/// Spare charges that `reserved_for_needed` refuses before it decreases by the size of one.
///
/// A page cache asks for a chunk of 2 MiB (512 pages) each time a page evicts another. So it gets the chunk
/// after eight times as many evictions as the chunk has pages.
const REFUSALS_PER_DECREASE: u64 = 4096;

thread_local! {
    /// Whether this thread is inside a reclaim.
    static RECLAIMING: Cell<bool> = const { Cell::new(false) };
}

/// The use of a budget, in total and by account.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BudgetUsage {
    /// The limit, bytes.
    pub limit: u64,
    /// Bytes that all accounts charge.
    pub used: u64,
    /// The part of `used` that spare accounts charge: it is given back when a needed account needs it.
    pub spare: u64,
    /// Bytes that reclaimers gave back.
    pub reclaimed: u64,
    /// Charges refused by the limit or by an account's cap, without those of `try_charge` and `try_grow`.
    pub refused: u64,
    /// Every account, in order of creation.
    pub accounts: Vec<AccountUsage>,
}

/// The use of one account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AccountUsage {
    /// The component's name.
    pub name: &'static str,
    /// Bytes charged now.
    pub used: u64,
    /// The most bytes ever charged at once.
    pub peak: u64,
    /// The most bytes that the account may charge; `None` if only the budget limits it.
    pub cap: Option<u64>,
}

impl Budget {
    /// A budget of `limit` bytes.
    #[must_use]
    pub fn new(limit: u64) -> Self {
        let zero = || AtomicU64::new(0);
        Self(Arc::new(BudgetState {
            limit: AtomicU64::new(limit),
            used: zero(),
            spare: zero(),
            reserved_for_needed: zero(),
            set_aside: OnceLock::new(),
            waiting: zero(),
            refused_spare: zero(),
            reclaimed: zero(),
            refused: zero(),
            accounts: Mutex::new(Vec::new()),
            reclaimers: Mutex::new(Arc::new([])),
        }))
    }

    /// The limit, bytes.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.0.limit()
    }

    /// Bytes that all accounts charge now.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.0.used.load(Relaxed)
    }

    /// Changes the limit and asks reclaimers for the bytes charged above it. Returns how many bytes are
    /// still above it: new charges are refused until those are given back, too.
    pub fn set_limit(&self, limit: u64) -> u64 {
        self.0.limit.store(limit, Relaxed);
        self.0.reclaim_for(0);
        self.used().saturating_sub(limit)
    }

    /// The account called `name`: the existing one, or else a new needed account.
    #[must_use]
    pub fn account(&self, name: &'static str) -> Account {
        self.account_of(name, AccountKind::Needed, u64::MAX)
    }

    /// The account called `name`: the existing one, or else a new spare account. Its charges leave free the
    /// memory that needed accounts used recently.
    #[must_use]
    pub fn spare_account(&self, name: &'static str) -> Account {
        self.account_of(name, AccountKind::Spare, u64::MAX)
    }

    /// An account with `bytes` set aside: it may charge that many bytes and no more, whatever the others
    /// charge. A budget has one such account; a second call returns the first one.
    #[must_use]
    pub fn set_aside(&self, name: &'static str, bytes: u64) -> Account {
        let account = || self.account_of(name, AccountKind::SetAside, bytes);
        self.0.set_aside.get_or_init(account).clone()
    }

    fn account_of(&self, name: &'static str, kind: AccountKind, cap: u64) -> Account {
        let mut accounts = self.0.accounts.lock();
        if let Some(account) = accounts.iter().find(|account| account.name() == name) {
            return account.clone();
        }
        let account = Account::of(AccountState::new(name, kind, cap, Arc::downgrade(&self.0)));
        accounts.push(account.clone());
        account
    }

    /// Registers `reclaimer`. Before the budget refuses a charge of a needed account, it asks all reclaimers
    /// for memory. A dropped reclaimer is not asked any more.
    pub fn add_reclaimer(&self, order: ReclaimOrder, reclaimer: Weak<dyn Reclaim>) {
        let mut reclaimers = self.0.reclaimers.lock();
        let living = reclaimers.iter().filter(|(_, entry)| entry.strong_count() > 0).cloned();
        let mut entries: Vec<_> = living.chain([(order, reclaimer)]).collect();
        entries.sort_by_key(|(order, _)| *order);
        *reclaimers = entries.into();
    }

    /// The bytes charged, in total and by account.
    #[must_use]
    pub fn usage(&self) -> BudgetUsage {
        let state = &*self.0;
        BudgetUsage {
            limit: state.limit(),
            used: state.used.load(Relaxed),
            spare: state.spare.load(Relaxed),
            reclaimed: state.reclaimed.load(Relaxed),
            refused: state.refused.load(Relaxed),
            accounts: state.accounts.lock().iter().map(Account::usage).collect(),
        }
    }
}

impl BudgetState {
    pub(crate) fn limit(&self) -> u64 {
        self.limit.load(Relaxed)
    }

    pub(crate) fn used(&self) -> u64 {
        self.used.load(Relaxed)
    }

    pub(crate) fn count_refusal(&self) {
        self.refused.fetch_add(1, Relaxed);
    }

    /// Counts `bytes` of a needed account; false if there is no room even after a reclaim.
    pub(crate) fn reserve_needed(&self, bytes: u64) -> bool {
        self.reserve_and_note(bytes) || self.reserve_after_reclaim(bytes)
    }

    fn reserve_and_note(&self, bytes: u64) -> bool {
        let is_reserved = self.reserve(bytes, self.needed_limit());
        if is_reserved {
            let needed = self.used().saturating_sub(self.spare.load(Relaxed));
            self.reserved_for_needed.fetch_max(needed, Relaxed);
        }
        is_reserved
    }

    /// The most that all accounts but the spare ones may charge together before memory that is set aside is
    /// charged.
    fn needed_limit(&self) -> u64 {
        let unused = self.set_aside.get().map_or(0, Account::unused);
        self.limit().saturating_sub(unused)
    }

    #[cold]
    fn reserve_after_reclaim(&self, bytes: u64) -> bool {
        let _waiting = Waiting::begin(&self.waiting, bytes);
        for _ in 0..TRIES {
            let came_back = self.reclaim_for(bytes);
            if self.reserve_and_note(bytes) {
                return true;
            }
            if !came_back {
                return false;
            }
        }
        false
    }

    /// Counts `bytes` of a needed account, whatever the limit.
    pub(crate) fn reserve_above_limit(&self, bytes: u64) {
        self.used.fetch_add(bytes, Relaxed);
    }

    /// Counts `bytes` of a spare account; false if they do not fit.
    pub(crate) fn reserve_spare(&self, bytes: u64) -> bool {
        let reserved = self.has_spare_room(bytes) && self.reserve(bytes, u64::MAX);
        if reserved {
            self.spare.fetch_add(bytes, Relaxed);
        }
        reserved
    }

    /// Whether a spare account may charge `bytes`. A refusal counts towards the next decrease of
    /// `reserved_for_needed`.
    pub(crate) fn has_spare_room(&self, bytes: u64) -> bool {
        let (limit, spare) = (self.limit(), self.spare.load(Relaxed));
        let fits_beside = |needed: u64| spare.saturating_add(needed).saturating_add(bytes) <= limit;
        let needed = self.used().saturating_sub(spare);
        let waiting = self.waiting.load(Relaxed);
        if waiting > 0 && !fits_beside(needed.saturating_add(waiting)) {
            return false;
        }
        let reserved = self.reserved_for_needed.load(Relaxed);
        if fits_beside(reserved) {
            return true;
        }
        if fits_beside(needed)
            && self.refused_spare.fetch_add(1, Relaxed) + 1 >= REFUSALS_PER_DECREASE
        {
            self.refused_spare.store(0, Relaxed);
            let decreased = needed.max(reserved.saturating_sub(bytes));
            self.reserved_for_needed.store(decreased, Relaxed);
        }
        false
    }

    /// Whether a needed account may charge `bytes` without a reclaim.
    pub(crate) fn has_room(&self, bytes: u64) -> bool {
        self.missing(bytes, self.needed_limit()) == 0
    }

    /// The bytes that must be given back before `bytes` fit, if accounts that are not spare may charge
    /// `needed_limit`.
    fn missing(&self, bytes: u64, needed_limit: u64) -> u64 {
        let used = self.used().saturating_add(bytes);
        let needed = used.saturating_sub(self.spare.load(Relaxed));
        used.saturating_sub(self.limit()).max(needed.saturating_sub(needed_limit))
    }

    /// Counts `bytes` if the limit allows them, and `needed_limit` allows them beside what accounts that are
    /// not spare charge.
    fn reserve(&self, bytes: u64, needed_limit: u64) -> bool {
        let limit = self.limit();
        let fits = |used: u64| {
            let sum = used.checked_add(bytes)?;
            // Loaded after `used`, and spare accounts change `spare` such that the difference is never too
            // small.
            let needed = sum.saturating_sub(self.spare.load(Relaxed));
            (sum <= limit && needed <= needed_limit).then_some(sum)
        };
        self.used.fetch_update(Relaxed, Relaxed, fits).is_ok()
    }

    pub(crate) fn give_back(&self, bytes: u64, is_spare: bool) {
        // `spare` before `used`: `used - spare` is never less than the bytes that needed accounts charge.
        if is_spare {
            let before = self.spare.fetch_sub(bytes, Relaxed);
            invariant!(before >= bytes, "spare accounts give back no more than they charged");
        }
        let before = self.used.fetch_sub(bytes, Relaxed);
        invariant!(before >= bytes, "accounts give back no more than the budget counts");
    }

    /// Asks reclaimers in order until `bytes` fit, and tells the others if any bytes came back. Returns
    /// whether they fit or any bytes came back.
    fn reclaim_for(&self, bytes: u64) -> bool {
        let Some(_reclaiming) = Reclaiming::begin() else { return false };
        let reclaimers = Arc::clone(&self.reclaimers.lock());
        invariant!(
            reclaimers.is_sorted_by_key(|(order, _)| *order),
            "caches are asked for memory before write buffers"
        );
        let missing = || self.missing(bytes, self.needed_limit());
        let mut came_back = 0;
        for (_, reclaimer) in reclaimers.iter() {
            let missing = missing();
            match reclaimer.upgrade() {
                Some(reclaimer) if missing > 0 => came_back += reclaimer.reclaim(missing),
                Some(reclaimer) if came_back > 0 => {
                    reclaimer.others_reclaimed(self.spare.load(Relaxed));
                }
                _ => {}
            }
        }
        self.reclaimed.fetch_add(came_back, Relaxed);
        came_back > 0 || missing() == 0
    }
}

/// Counts a charge that waits for a reclaim, until dropped.
struct Waiting<'a>(&'a AtomicU64, u64);

impl<'a> Waiting<'a> {
    fn begin(waiting: &'a AtomicU64, bytes: u64) -> Self {
        waiting.fetch_add(bytes, Relaxed);
        Self(waiting, bytes)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(self.1, Relaxed);
    }
}

/// Marks the current thread as inside a reclaim, until dropped.
struct Reclaiming;

impl Reclaiming {
    /// `None` if this thread is inside a reclaim already.
    fn begin() -> Option<Self> {
        // `then` and not `then_some`: dropping an unused `Reclaiming` would end the outer reclaim.
        (!RECLAIMING.replace(true)).then(|| Self)
    }
}

impl Drop for Reclaiming {
    fn drop(&mut self) {
        RECLAIMING.set(false);
    }
}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Budget({} of {})", format_bytes(self.used()), format_bytes(self.limit()))
    }
}

#[cfg(test)]
mod tests;
