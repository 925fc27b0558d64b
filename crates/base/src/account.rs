//! Memory accounts: one budget, named accounts that charge it, charges that give back on drop.
//!
//! Invariant I10: memory is charged before it is taken. A charge that would pass the limit is
//! refused with `Retry` and takes nothing.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;

use crate::{Error, Result, format_bytes};

/// The memory of one process's stores, bytes. Shared; cheap to clone.
#[derive(Clone)]
pub struct Budget(Arc<BudgetState>);

struct BudgetState {
    limit: u64,
    // Counters only: no other memory is published through them, so `Relaxed` suffices.
    used: AtomicU64,
    accounts: Mutex<Vec<Account>>,
}

impl Budget {
    /// A budget of `limit` bytes.
    #[must_use]
    pub fn new(limit: u64) -> Self {
        let accounts = Mutex::new(Vec::new());
        Self(Arc::new(BudgetState { limit, used: AtomicU64::new(0), accounts }))
    }

    /// The limit, bytes.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.0.limit
    }

    /// Charged now by all accounts, bytes.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.0.used.load(Relaxed)
    }

    /// The account called `name`: the existing one, or a new one.
    #[must_use]
    pub fn account(&self, name: &'static str) -> Account {
        let mut accounts = self.0.accounts.lock();
        if let Some(account) = accounts.iter().find(|account| account.0.name == name) {
            return account.clone();
        }
        let account = Account(Arc::new(AccountState {
            name,
            used: AtomicU64::new(0),
            peak: AtomicU64::new(0),
            budget: Arc::downgrade(&self.0),
        }));
        accounts.push(account.clone());
        account
    }

    /// Every account's name, bytes charged now and the most ever charged.
    #[must_use]
    pub fn breakdown(&self) -> Vec<(&'static str, u64, u64)> {
        let accounts = self.0.accounts.lock();
        accounts.iter().map(|account| (account.0.name, account.used(), account.peak())).collect()
    }
}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Budget({} of {})", format_bytes(self.used()), format_bytes(self.limit()))
    }
}

/// One component's share of the budget. Shared; cheap to clone.
#[derive(Clone)]
pub struct Account(Arc<AccountState>);

struct AccountState {
    name: &'static str,
    used: AtomicU64,
    peak: AtomicU64,
    // Weak: the budget lists its accounts. A budget that is gone bounds nothing any more.
    budget: std::sync::Weak<BudgetState>,
}

impl Account {
    /// An account of a budget of its own without a limit; for tools and tests.
    #[must_use]
    pub fn unlimited(name: &'static str) -> Self {
        Budget::new(u64::MAX).account(name)
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

    /// Charges `bytes`, given back when the charge is dropped.
    ///
    /// # Errors
    /// `Retry` where the budget has less left; nothing is charged.
    pub fn charge(&self, bytes: u64) -> Result<Charge> {
        self.take(bytes)?;
        Ok(Charge { account: self.clone(), bytes })
    }

    fn take(&self, bytes: u64) -> Result<()> {
        if let Some(budget) = self.0.budget.upgrade() {
            let fits = |used: u64| used.checked_add(bytes).filter(|sum| *sum <= budget.limit);
            if let Err(used) = budget.used.fetch_update(Relaxed, Relaxed, fits) {
                return Err(Error::retry(format!("memory for {}", self.0.name))
                    .expected(format_args!("at most {}", format_bytes(budget.limit)))
                    .got(format_args!(
                        "{} in use and {} asked for",
                        format_bytes(used),
                        format_bytes(bytes)
                    )));
            }
        }
        let used = self.0.used.fetch_add(bytes, Relaxed) + bytes;
        self.0.peak.fetch_max(used, Relaxed);
        Ok(())
    }

    fn give_back(&self, bytes: u64) {
        self.0.used.fetch_sub(bytes, Relaxed);
        if let Some(budget) = self.0.budget.upgrade() {
            budget.used.fetch_sub(bytes, Relaxed);
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
    /// `Retry` where the budget has less left; the charge stays as it was.
    pub fn grow(&mut self, more: u64) -> Result<()> {
        self.account.take(more)?;
        self.bytes += more;
        Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_charge_over_the_limit_is_refused_and_takes_nothing() {
        let budget = Budget::new(100);
        let (one, two) = (budget.account("one"), budget.account("two"));
        let mut first = one.charge(60).unwrap();
        let error = two.charge(41).unwrap_err();
        assert!(error.is_retryable(), "{error}");
        assert_eq!((budget.used(), two.used()), (60, 0));
        assert!(first.grow(41).is_err());
        first.grow(40).unwrap();
        first.shrink_to(10);
        assert_eq!(budget.breakdown(), [("one", 10, 100), ("two", 0, 0)]);
        drop(first);
        assert_eq!(budget.used(), 0);
        assert_eq!(budget.account("one").peak(), 100);
    }
}
