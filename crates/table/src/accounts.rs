//! The memory accounts that an open table charges.

use std::sync::Arc;

use base::Account;

use crate::HeldFilters;

/// The accounts of an open table.
#[derive(Clone, Debug)]
pub struct Accounts {
    /// Charged for memory held as long as the table is open.
    pub pinned: Account,
    /// Charged for the range deletes of the table, while the table or a part of it is in use.
    pub range_deletes: Account,
    /// Charged for long values while a reader holds them.
    pub values: Account,
    /// The held filters of the store's tables; `None` if filters are probed on their pages alone.
    pub filters: Option<Arc<HeldFilters>>,
}

impl From<&Account> for Accounts {
    /// Charges one account for everything; no filters are held.
    fn from(account: &Account) -> Self {
        let account = || account.clone();
        Self { pinned: account(), range_deletes: account(), values: account(), filters: None }
    }
}

impl From<&Self> for Accounts {
    fn from(accounts: &Self) -> Self {
        accounts.clone()
    }
}
