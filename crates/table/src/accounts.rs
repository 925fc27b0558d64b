//! Whom an open table charges.

use base::Account;

/// The accounts of an open table.
#[derive(Clone, Debug)]
pub struct Accounts {
    /// Charged for what stays in memory while the table is open.
    pub pinned: Account,
    /// Charged for long values while someone holds them.
    pub values: Account,
}

impl From<&Account> for Accounts {
    /// One for both.
    fn from(account: &Account) -> Self {
        Self { pinned: account.clone(), values: account.clone() }
    }
}

impl From<&Self> for Accounts {
    fn from(accounts: &Self) -> Self {
        accounts.clone()
    }
}
