//! The source of recovery: how segments are read, and from which medium.

use std::sync::Arc;

use base::{Account, StoreId};
use media::{Medium, Purpose};

use crate::known::Known;
use crate::options::Recover;

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub(crate) medium: Arc<dyn Medium>,
    /// If given, segments of another store are refused.
    pub(crate) store: Option<StoreId>,
    pub(crate) purpose: Purpose,
    /// Charged for the memory of readers and segments (I10).
    pub(crate) account: Account,
    pub(crate) recover: Recover,
    /// Segments before the start are not read.
    pub(crate) known: Known,
}
