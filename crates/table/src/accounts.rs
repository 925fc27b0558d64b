//! The memory accounts that an open table charges.

use base::Account;

/// The accounts of an open table.
#[derive(Clone, Debug)]
pub struct Accounts {
    /// Charged for memory held as long as the table is open.
    pub pinned: Account,
    /// Charged for the range deletes of the table, while the table or a part of it is in use.
    pub range_deletes: Account,
    /// Charged for long values while a reader holds them.
    pub values: Account,
}

impl From<&Account> for Accounts {
    /// Charges one account for everything.
    fn from(account: &Account) -> Self {
        let account = || account.clone();
        Self { pinned: account(), range_deletes: account(), values: account() }
    }
}

impl From<&Self> for Accounts {
    fn from(accounts: &Self) -> Self {
        accounts.clone()
    }
}
