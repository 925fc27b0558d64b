//! Memory accounts: each component charges its memory to an [`Account`] of a [`crate::Budget`].
//!
//! A [`Charge`] is memory reserved in an account; dropping it gives the bytes back.
//!
//! Invariant I10: memory is charged before it is allocated. A charge that exceeds the budget's limit, after
//! reclaimers were asked, or the account's own cap, is refused with `Retry` and charges nothing.
//!
//! Concurrency: any thread may charge; an account has no lock. Cost: three atomic operations a charge.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};

use crate::budget::BudgetState;
use crate::{AccountUsage, Budget, Error, Result, format_bytes, invariant};

/// The memory of one component, a part of a budget. Shared; cheap to clone.
#[derive(Clone)]
pub struct Account {
    state: Arc<AccountState>,
    /// See [`Account::lending`].
    is_lending: bool,
}

pub(crate) struct AccountState {
    name: &'static str,
    kind: AccountKind,
    used: AtomicU64,
    peak: AtomicU64,
    cap: AtomicU64,
    /// Weak, because the budget lists its accounts. A dropped budget limits nothing any more.
    budget: Weak<BudgetState>,
}

/// Which memory an account may charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AccountKind {
    /// All but memory that is set aside.
    Needed,
    /// Memory that no other account needs.
    Spare,
    /// Memory set aside for this account. Until it is charged, spare accounts may use it.
    SetAside,
}

impl AccountState {
    pub(crate) fn new(
        name: &'static str,
        kind: AccountKind,
        cap: u64,
        budget: Weak<BudgetState>,
    ) -> Self {
        let (used, peak, cap) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(cap));
        Self { name, kind, used, peak, cap, budget }
    }
}

impl Account {
    pub(crate) fn of(state: AccountState) -> Self {
        Self { state: Arc::new(state), is_lending: false }
    }

    /// An account of its own budget, which has no limit; for tools and tests.
    #[must_use]
    pub fn unlimited(name: &'static str) -> Self {
        Budget::new(u64::MAX).account(name)
    }

    /// The component's name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.state.name
    }

    /// Bytes charged now.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.state.used.load(Relaxed)
    }

    /// The most bytes ever charged at once.
    #[must_use]
    pub fn peak(&self) -> u64 {
        self.state.peak.load(Relaxed)
    }

    /// Sets the most bytes that the account may charge. Bytes already charged above it stay charged.
    pub fn set_cap(&self, bytes: u64) {
        self.state.cap.store(bytes, Relaxed);
    }

    /// Bytes that the cap still allows.
    pub(crate) fn unused(&self) -> u64 {
        self.state.cap.load(Relaxed).saturating_sub(self.used())
    }

    pub(crate) fn usage(&self) -> AccountUsage {
        let cap = Some(self.state.cap.load(Relaxed)).filter(|cap| *cap < u64::MAX);
        AccountUsage { name: self.state.name, used: self.used(), peak: self.peak(), cap }
    }

    /// Charges `bytes` until the charge is dropped. If the budget has too little left, it first asks
    /// reclaimers to give memory back.
    ///
    /// # Errors
    /// `Retry` if the account's cap, or the budget after reclaiming, leaves less than `bytes`; nothing is
    /// charged.
    pub fn charge(&self, bytes: u64) -> Result<Charge> {
        self.reserve(bytes)?;
        Ok(Charge { account: self.clone(), bytes })
    }

    /// The same account, for a job that gives back more memory than it takes, such as a flush: if reclaimers
    /// do not make room, a charge counts above the limit and the cap, and all others are refused until the
    /// job has ended. Otherwise memory would be needed to free memory. The caller bounds its
    /// use.
    #[must_use]
    pub fn lending(&self) -> Self {
        Self { state: Arc::clone(&self.state), is_lending: true }
    }

    /// A charge of 0 bytes, to be grown.
    #[must_use]
    pub fn empty_charge(&self) -> Charge {
        Charge { account: self.clone(), bytes: 0 }
    }

    /// As [`Account::charge`], for callers that can do without the memory: a refusal builds no error and is
    /// not counted in [`crate::BudgetUsage::refused`].
    #[must_use]
    pub fn try_charge(&self, bytes: u64) -> Option<Charge> {
        let reserved = self.reserve_in_cap(bytes) && self.reserve_in_budget(bytes);
        reserved.then(|| Charge { account: self.clone(), bytes })
    }

    /// Whether a charge of `bytes` fits now without asking reclaimers.
    #[must_use]
    pub fn has_room(&self, bytes: u64) -> bool {
        if self.used().saturating_add(bytes) > self.state.cap.load(Relaxed) {
            return false;
        }
        self.state.budget.upgrade().is_none_or(|budget| match self.state.kind {
            AccountKind::Spare => budget.has_spare_room(bytes),
            AccountKind::Needed => budget.has_room(bytes),
            AccountKind::SetAside => true,
        })
    }

    /// Counts `bytes` in the account and in the budget, or in neither.
    fn reserve(&self, bytes: u64) -> Result<()> {
        if self.is_lending {
            self.lend(bytes);
            return Ok(());
        }
        if !self.reserve_in_cap(bytes) {
            return Err(self.refuse(bytes, self.state.cap.load(Relaxed), self.used()));
        }
        if !self.reserve_in_budget(bytes) {
            let budget = self.state.budget.upgrade();
            let (limit, used) = budget.map_or((0, 0), |budget| (budget.limit(), budget.used()));
            return Err(self.refuse(bytes, limit, used));
        }
        Ok(())
    }

    fn lend(&self, bytes: u64) {
        self.state.used.fetch_add(bytes, Relaxed);
        self.state.peak.fetch_max(self.used(), Relaxed);
        if let Some(budget) = self.state.budget.upgrade()
            && !budget.reserve_needed(bytes)
        {
            budget.reserve_above_limit(bytes);
        }
    }

    /// The refusal of `bytes`. It never heals if they alone exceed the limit.
    fn refuse(&self, bytes: u64, limit: u64, used: u64) -> Error {
        if let Some(budget) = self.state.budget.upgrade() {
            budget.count_refusal();
        }
        let refusal = Error::retry(format!("memory for {}", self.state.name))
            .expected(format_args!("at most {}", format_bytes(limit)))
            .got(format_args!(
                "{} in use and {} more requested",
                format_bytes(used),
                format_bytes(bytes)
            ));
        if self.can_ever_hold(bytes) { refusal } else { refusal.never_heals() }
    }

    /// Whether cap and limit allow `bytes` while nothing else is charged.
    fn can_ever_hold(&self, bytes: u64) -> bool {
        let limit = self.state.budget.upgrade().map_or(u64::MAX, |budget| budget.limit());
        bytes <= self.state.cap.load(Relaxed).min(limit)
    }

    /// Counts `bytes` in the account if its cap allows them.
    fn reserve_in_cap(&self, bytes: u64) -> bool {
        let cap = self.state.cap.load(Relaxed);
        let fits = |used: u64| used.checked_add(bytes).filter(|sum| *sum <= cap);
        self.state.used.fetch_update(Relaxed, Relaxed, fits).is_ok()
    }

    /// Counts `bytes`, which the account counts already, in the budget. If the budget refuses them, removes
    /// them from the account again.
    fn reserve_in_budget(&self, bytes: u64) -> bool {
        let reserved = self.state.budget.upgrade().is_none_or(|budget| match self.state.kind {
            AccountKind::Spare => budget.reserve_spare(bytes),
            AccountKind::Needed => budget.reserve_needed(bytes),
            AccountKind::SetAside => {
                if !budget.reserve_needed(bytes) {
                    budget.reserve_above_limit(bytes);
                }
                true
            }
        });
        if reserved {
            self.state.peak.fetch_max(self.used(), Relaxed);
        } else {
            self.remove(bytes);
        }
        reserved
    }

    fn give_back(&self, bytes: u64) {
        self.remove(bytes);
        if let Some(budget) = self.state.budget.upgrade() {
            budget.give_back(bytes, self.state.kind == AccountKind::Spare);
        }
    }

    fn remove(&self, bytes: u64) {
        let before = self.state.used.fetch_sub(bytes, Relaxed);
        invariant!(before >= bytes, "an account gives back no more than it charged");
    }
}

impl fmt::Debug for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Account({}: {})", self.state.name, format_bytes(self.used()))
    }
}

/// Bytes charged to an account; given back on drop.
#[derive(Debug)]
pub struct Charge {
    account: Account,
    bytes: u64,
}

impl Charge {
    /// The bytes charged.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The account that the bytes are charged to.
    #[must_use]
    pub const fn account(&self) -> &Account {
        &self.account
    }

    /// Charges `more` bytes in addition.
    ///
    /// # Errors
    /// As [`Account::charge`]; the charge stays as it was.
    pub fn grow(&mut self, more: u64) -> Result<()> {
        let all = self.bytes.saturating_add(more);
        self.account.reserve(more).map_err(|refusal| match self.account.can_ever_hold(all) {
            true => refusal,
            false => refusal.never_heals(),
        })?;
        self.bytes += more;
        Ok(())
    }

    /// As [`Charge::grow`], for callers that can do without the memory. Returns whether the charge grew.
    pub fn try_grow(&mut self, more: u64) -> bool {
        let reserved = self.account.reserve_in_cap(more) && self.account.reserve_in_budget(more);
        self.bytes += if reserved { more } else { 0 };
        reserved
    }

    /// Gives back all but `bytes`. Does nothing if the charge is not greater.
    pub fn shrink_to(&mut self, bytes: u64) {
        if let Some(excess) = self.bytes.checked_sub(bytes) {
            self.account.give_back(excess);
            self.bytes = bytes;
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.account.give_back(self.bytes);
    }
}
