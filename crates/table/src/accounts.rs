//! The memory accounts that an open table charges.

use base::Account;

/// The accounts of an open table.
#[derive(Clone, Debug)]
pub struct Accounts {
    /// Charged for memory held as long as the table is open.
    pub pinned: Account,
    /// Charged for long values while a reader holds them.
    pub values: Account,
}

impl From<&Account> for Accounts {
    /// Charges one account for both.
    fn from(account: &Account) -> Self {
        Self { pinned: account.clone(), values: account.clone() }
    }
}

impl From<&Self> for Accounts {
    fn from(accounts: &Self) -> Self {
        accounts.clone()
    }
}
