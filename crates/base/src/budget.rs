//! The memory of one process's stores: one limit, accounts that charge it, and whom to ask for
//! memory back.
//!
//! Accounts are of two kinds. *Needs* (write buffers, table metadata, reads, jobs) may charge up to
//! the limit; where it is reached, reclaimers are asked to give back what is missing, and the
//! charge is tried again. *Spare* accounts (the page cache) take what no need takes, never make
//! anybody give anything back, and are the first to be asked.
//!
//! What needs took at most lately stays out of the reach of spare accounts (`wanted`), so that
//! memory does not go to and fro between a cache that refills and a write buffer that fills up and
//! is flushed. That mark sinks with the charges that it refused, counted, not timed: an idle store
//! changes nothing, and a cache that misses all the time gets the memory soon.
//!
//! Concurrency: charging is atomic additions, no lock. Reclaimers run on the thread that charges,
//! with none of the budget's locks held; one that charges meanwhile has nobody asked (no
//! recursion). Cost: a charge is three atomic operations.

use std::cell::Cell;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::account::{Account, AccountState};
use crate::format_bytes;

/// The memory of one process's stores, bytes. Shared; cheap to clone.
#[derive(Clone)]
pub struct Budget(Arc<BudgetState>);

pub(crate) struct BudgetState {
    // Counters only: no other memory is published through them, so `Relaxed` suffices.
    limit: AtomicU64,
    used: AtomicU64,
    /// The part of `used` that spare accounts charge.
    spare: AtomicU64,
    /// The most that needs took lately.
    wanted: AtomicU64,
    /// Charges of spare accounts that `wanted` refused since it last sank.
    refused_spare: AtomicU64,
    /// Bytes that reclaimers gave back, and charges refused all the same.
    reclaimed: AtomicU64,
    refused: AtomicU64,
    accounts: Mutex<Vec<Account>>,
    reclaimers: Mutex<Arc<[Reclaimer]>>,
}

/// Someone who can give memory back, in the order of asking.
type Reclaimer = (ReclaimOrder, Weak<dyn Reclaim>);

/// Holds memory that it can do without.
///
/// `reclaim` runs inside a charge of whoever needs the memory, under any lock but its own: it must
/// not wait for locks that are held while charging, and does a bounded amount of work.
pub trait Reclaim: Send + Sync {
    /// Gives back about `bytes`, or what there is; how much it gave back. Memory that comes back
    /// later, after a flush say, is set going and not counted.
    fn reclaim(&self, bytes: u64) -> u64;
}

/// Who is asked first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReclaimOrder {
    /// Caches: losing it costs a read.
    Cache,
    /// What is kept to save making it again.
    Optional,
    /// Write buffers: they are flushed early.
    Buffers,
}

/// How often a charge that was refused is tried again: what one thread had given back, another may
/// take first.
const ROUNDS: usize = 4;

/// Refused pages for each chunk that spare accounts may take back.
///
/// A page cache is refused a chunk once for every page that pushes another out: after eight times
/// the pages of a chunk of 2 MiB it has earned it.
const PATIENCE: u64 = 4096;

thread_local! {
    /// Whether this thread is asking reclaimers.
    static RECLAIMING: Cell<bool> = const { Cell::new(false) };
}

/// What the accounts of a budget hold and did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BudgetUsage {
    /// The limit, bytes.
    pub limit: u64,
    /// Charged by all accounts, bytes.
    pub used: u64,
    /// The part of `used` that nobody needs: it is given back when asked for.
    pub spare: u64,
    /// Bytes given back because others asked.
    pub reclaimed: u64,
    /// Charges refused, by the limit or an account's cap.
    pub refused: u64,
    /// Every account.
    pub accounts: Vec<AccountUsage>,
}

/// What one account holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AccountUsage {
    /// The component's name.
    pub name: &'static str,
    /// Charged now, bytes.
    pub used: u64,
    /// The most ever charged at once, bytes.
    pub peak: u64,
    /// The most it may charge, bytes, where that is less than the limit.
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
            wanted: zero(),
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

    /// Charged now by all accounts, bytes.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.0.used.load(Relaxed)
    }

    /// Changes the limit and asks for what is charged above it. How many bytes still are: nothing
    /// is charged until they, too, were given back.
    pub fn set_limit(&self, limit: u64) -> u64 {
        self.0.limit.store(limit, Relaxed);
        self.0.reclaim_for(0);
        self.used().saturating_sub(limit)
    }

    /// The account called `name`: the existing one, or a new one for something that is needed.
    #[must_use]
    pub fn account(&self, name: &'static str) -> Account {
        self.account_of(name, false)
    }

    /// The account called `name`: the existing one, or a new one for memory that nobody needs. Its
    /// charges leave free what others took lately.
    #[must_use]
    pub fn spare_account(&self, name: &'static str) -> Account {
        self.account_of(name, true)
    }

    fn account_of(&self, name: &'static str, spare: bool) -> Account {
        let mut accounts = self.0.accounts.lock();
        if let Some(account) = accounts.iter().find(|account| account.name() == name) {
            return account.clone();
        }
        let account = Account::of(AccountState::new(name, spare, Arc::downgrade(&self.0)));
        accounts.push(account.clone());
        account
    }

    /// Has `reclaimer` asked for memory when a charge would be refused, for as long as it lives.
    pub fn add_reclaimer(&self, order: ReclaimOrder, reclaimer: Weak<dyn Reclaim>) {
        let mut reclaimers = self.0.reclaimers.lock();
        let living = reclaimers.iter().filter(|(_, entry)| entry.strong_count() > 0).cloned();
        let mut entries: Vec<_> = living.chain([(order, reclaimer)]).collect();
        entries.sort_by_key(|(order, _)| *order);
        *reclaimers = entries.into();
    }

    /// What is charged, by account.
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

    pub(crate) fn refused(&self) {
        self.refused.fetch_add(1, Relaxed);
    }

    /// Charges `bytes` for something needed; whether there is room, now or after asking.
    pub(crate) fn take_needed(&self, bytes: u64) -> bool {
        for _ in 0..ROUNDS {
            if self.take_up_to(bytes, self.limit()) {
                let needs = self.used().saturating_sub(self.spare.load(Relaxed));
                self.wanted.fetch_max(needs, Relaxed);
                return true;
            }
            if !self.reclaim_for(bytes) {
                return false;
            }
        }
        false
    }

    /// Charges `bytes` of what nobody needs; whether there are.
    pub(crate) fn take_spare(&self, bytes: u64) -> bool {
        let taken = self.is_spare(bytes) && self.take_up_to(bytes, self.limit());
        if taken {
            self.spare.fetch_add(bytes, Relaxed);
        }
        taken
    }

    /// Whether spare accounts may take `bytes`; a refusal brings them a little nearer to it.
    pub(crate) fn is_spare(&self, bytes: u64) -> bool {
        let (limit, spare) = (self.limit(), self.spare.load(Relaxed));
        let free_of = |needs: u64| spare.saturating_add(needs).saturating_add(bytes) <= limit;
        let wanted = self.wanted.load(Relaxed);
        if free_of(wanted) {
            return true;
        }
        let needs = self.used().saturating_sub(spare);
        if free_of(needs) && self.refused_spare.fetch_add(1, Relaxed) + 1 >= PATIENCE {
            self.refused_spare.store(0, Relaxed);
            self.wanted.store(needs.max(wanted.saturating_sub(bytes)), Relaxed);
        }
        false
    }

    /// Whether a need may take `bytes` without asking anybody.
    pub(crate) fn is_free(&self, bytes: u64) -> bool {
        self.used().saturating_add(bytes) <= self.limit()
    }

    fn take_up_to(&self, bytes: u64, limit: u64) -> bool {
        let fits = |used: u64| used.checked_add(bytes).filter(|sum| *sum <= limit);
        self.used.fetch_update(Relaxed, Relaxed, fits).is_ok()
    }

    pub(crate) fn give_back(&self, bytes: u64, spare: bool) {
        // The part first: `used` less `spare` never falls below what needs hold.
        if spare {
            self.spare.fetch_sub(bytes, Relaxed);
        }
        self.used.fetch_sub(bytes, Relaxed);
    }

    /// Asks for memory until `bytes` fit, in order; whether any came back.
    fn reclaim_for(&self, bytes: u64) -> bool {
        let Some(_asking) = Asking::begin() else { return false };
        let reclaimers = Arc::clone(&self.reclaimers.lock());
        let missing = || self.used().saturating_add(bytes).saturating_sub(self.limit());
        let mut came_back = 0;
        for (_, reclaimer) in reclaimers.iter() {
            let missing = missing();
            if missing == 0 {
                break;
            }
            if let Some(reclaimer) = reclaimer.upgrade() {
                came_back += reclaimer.reclaim(missing);
            }
        }
        self.reclaimed.fetch_add(came_back, Relaxed);
        came_back > 0 || missing() == 0
    }
}

/// Marks this thread as one that asks; only the outermost of several.
struct Asking;

impl Asking {
    fn begin() -> Option<Self> {
        // Lazily: an `Asking` that is made and not wanted would end the outer one.
        (!RECLAIMING.replace(true)).then(|| Self)
    }
}

impl Drop for Asking {
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
