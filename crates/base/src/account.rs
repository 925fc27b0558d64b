//! Memory accounts: a component's share of a [`crate::Budget`], and charges that give back on
//! drop.
//!
//! Invariant I10: memory is charged before it is taken. A charge that would pass the budget's
//! limit after everybody was asked to give back, or the account's own cap, is refused with `Retry`
//! and takes nothing.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};

use crate::budget::BudgetState;
use crate::{AccountUsage, Budget, Error, Result, format_bytes};

/// One component's share of the budget. Shared; cheap to clone.
#[derive(Clone)]
pub struct Account(Arc<AccountState>);

pub(crate) struct AccountState {
    name: &'static str,
    /// Takes only what nobody needs.
    spare: bool,
    used: AtomicU64,
    peak: AtomicU64,
    cap: AtomicU64,
    // Weak: the budget lists its accounts. A budget that is gone bounds nothing any more.
    budget: Weak<BudgetState>,
}

impl AccountState {
    pub(crate) fn new(name: &'static str, spare: bool, budget: Weak<BudgetState>) -> Self {
        let (used, peak, cap) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(u64::MAX));
        Self { name, spare, used, peak, cap, budget }
    }
}

impl Account {
    pub(crate) fn of(state: AccountState) -> Self {
        Self(Arc::new(state))
    }

    /// An account of a budget of its own without a limit; for tools and tests.
    #[must_use]
    pub fn unlimited(name: &'static str) -> Self {
        Budget::new(u64::MAX).account(name)
    }

    /// The component's name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.0.name
    }

    /// Charged now, bytes.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.0.used.load(Relaxed)
    }

    /// The most ever charged at once, bytes.
    #[must_use]
    pub fn peak(&self) -> u64 {
        self.0.peak.load(Relaxed)
    }

    /// The most it may charge, bytes; what is above it already stays charged.
    pub fn set_cap(&self, bytes: u64) {
        self.0.cap.store(bytes, Relaxed);
    }

    pub(crate) fn usage(&self) -> AccountUsage {
        let cap = Some(self.0.cap.load(Relaxed)).filter(|cap| *cap < u64::MAX);
        AccountUsage { name: self.0.name, used: self.used(), peak: self.peak(), cap }
    }

    /// Charges `bytes`, given back when the charge is dropped. Where the budget has less left,
    /// others are asked to give back what they can do without.
    ///
    /// # Errors
    /// `Retry` where the budget or the account's cap has less left all the same; nothing is
    /// charged.
    pub fn charge(&self, bytes: u64) -> Result<Charge> {
        self.take(bytes)?;
        Ok(Charge { account: self.clone(), bytes })
    }

    /// A charge of nothing, to be grown.
    #[must_use]
    pub fn empty_charge(&self) -> Charge {
        Charge { account: self.clone(), bytes: 0 }
    }

    /// As [`Account::charge`], for what can also do without: a refusal costs nothing but the
    /// looking, and counts as none.
    #[must_use]
    pub fn try_charge(&self, bytes: u64) -> Option<Charge> {
        let taken = self.take_cap(bytes) && self.take_budget(bytes);
        taken.then(|| Charge { account: self.clone(), bytes })
    }

    /// Whether a charge of `bytes` would have room now, nobody being asked to give back.
    #[must_use]
    pub fn has_room(&self, bytes: u64) -> bool {
        if self.used().saturating_add(bytes) > self.0.cap.load(Relaxed) {
            return false;
        }
        self.0.budget.upgrade().is_none_or(|budget| match self.0.spare {
            true => budget.is_spare(bytes),
            false => budget.is_free(bytes),
        })
    }

    fn take(&self, bytes: u64) -> Result<()> {
        if !self.take_cap(bytes) {
            return Err(self.refuse(bytes, self.0.cap.load(Relaxed), self.used()));
        }
        if !self.take_budget(bytes) {
            let budget = self.0.budget.upgrade();
            let (limit, used) = budget.map_or((0, 0), |budget| (budget.limit(), budget.used()));
            return Err(self.refuse(bytes, limit, used));
        }
        Ok(())
    }

    fn refuse(&self, bytes: u64, limit: u64, used: u64) -> Error {
        if let Some(budget) = self.0.budget.upgrade() {
            budget.refused();
        }
        Error::retry(format!("memory for {}", self.0.name))
            .expected(format_args!("at most {}", format_bytes(limit)))
            .got(format_args!(
                "{} in use and {} asked for",
                format_bytes(used),
                format_bytes(bytes)
            ))
    }

    /// Takes `bytes` of the account's own part.
    fn take_cap(&self, bytes: u64) -> bool {
        let cap = self.0.cap.load(Relaxed);
        let fits = |used: u64| used.checked_add(bytes).filter(|sum| *sum <= cap);
        self.0.used.fetch_update(Relaxed, Relaxed, fits).is_ok()
    }

    /// Takes `bytes`, which the account counts already, of the budget; where it has none left, the
    /// account counts them no more.
    fn take_budget(&self, bytes: u64) -> bool {
        let taken = self.0.budget.upgrade().is_none_or(|budget| match self.0.spare {
            true => budget.take_spare(bytes),
            false => budget.take_needed(bytes),
        });
        match taken {
            true => self.0.peak.fetch_max(self.used(), Relaxed),
            false => self.0.used.fetch_sub(bytes, Relaxed),
        };
        taken
    }

    fn give_back(&self, bytes: u64) {
        self.0.used.fetch_sub(bytes, Relaxed);
        if let Some(budget) = self.0.budget.upgrade() {
            budget.give_back(bytes, self.0.spare);
        }
    }
}

impl fmt::Debug for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Account({}: {})", self.0.name, format_bytes(self.used()))
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

    /// Charges `more` bytes on top.
    ///
    /// # Errors
    /// As [`Account::charge`]; the charge stays as it was.
    pub fn grow(&mut self, more: u64) -> Result<()> {
        self.account.take(more)?;
        self.bytes += more;
        Ok(())
    }

    /// As [`Charge::grow`], for what can also do without; whether there was room.
    pub fn try_grow(&mut self, more: u64) -> bool {
        let taken = self.account.take_cap(more) && self.account.take_budget(more);
        self.bytes += if taken { more } else { 0 };
        taken
    }

    /// Gives back all but `bytes`; no effect where no more is charged.
    pub fn shrink_to(&mut self, bytes: u64) {
        if let Some(less) = self.bytes.checked_sub(bytes) {
            self.account.give_back(less);
            self.bytes = bytes;
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.account.give_back(self.bytes);
    }
}
