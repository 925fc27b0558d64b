//! How a keyspace's stored versions are interpreted by reads: the clock that expiries are compared with, and
//! the merge operator. Also the memory limits of a read, the counters of reads, and the clock of a window.

use std::sync::{Arc, OnceLock};

use base::{Account, Error, Result, invariant};
use cache::RowOwner;
use compact::MergeOperator;

use crate::dead_spans::DeadSpans;
use crate::read_clock::ReadClock;
use crate::resident::Resident;
use crate::timekeeper::Timekeeper;
use crate::{LookupCounters, WalkCounters};

/// What reads of a keyspace need beyond its data. Shared by all views of the keyspace.
#[derive(Debug)]
pub struct ReadContext {
    timekeeper: Arc<Timekeeper>,
    /// The merge operator, once the keyspace has one.
    operator: OnceLock<Operator>,
    /// Charged for the merge operands of a key that is read.
    account: Account,
    /// Most bytes of the operands of one key: as many as the longest value may have.
    operand_bytes_max: u64,
    /// Identifies the keyspace's rows in the row cache.
    rows: Arc<RowOwner>,
    walks: WalkCounters,
    dead_spans: DeadSpans,
    lookups: LookupCounters,
    /// Notes reads, in a window that keeps the entries that were read lately.
    clock: OnceLock<ReadClock>,
    /// The entries in the log, of a resident keyspace.
    resident: OnceLock<Arc<Resident>>,
}

/// A merge operator's name, and the operator if the process has registered it.
#[derive(Debug)]
struct Operator {
    name: String,
    operator: Option<Arc<dyn MergeOperator>>,
}

impl ReadContext {
    /// A context without a merge operator.
    pub fn new(
        timekeeper: Arc<Timekeeper>,
        account: Account,
        operand_bytes_max: u64,
        rows: RowOwner,
    ) -> Arc<Self> {
        let (operator, rows) = (OnceLock::new(), Arc::new(rows));
        let (walks, lookups) = (WalkCounters::default(), LookupCounters::default());
        let (dead_spans, clock) = (DeadSpans::default(), OnceLock::new());
        let resident = OnceLock::new();
        Arc::new(Self {
            timekeeper,
            operator,
            account,
            operand_bytes_max,
            rows,
            walks,
            dead_spans,
            lookups,
            clock,
            resident,
        })
    }

    /// Makes reads set the bits of `clock`. Called once, when the tree is made.
    pub(crate) fn set_clock(&self, clock: ReadClock) {
        invariant!(self.clock.set(clock).is_ok(), "the clock of a window is set once");
    }

    /// The clock of a window that keeps the entries that were read lately.
    pub(crate) fn clock(&self) -> Option<&ReadClock> {
        self.clock.get()
    }

    /// Makes reads go on in the log after the memtables. Called once, before the tree is made.
    pub fn set_resident(&self, resident: Arc<Resident>) {
        invariant!(self.resident.set(resident).is_ok(), "a keyspace becomes resident once");
    }

    /// The entries in the log, of a resident keyspace.
    pub fn resident(&self) -> Option<&Arc<Resident>> {
        self.resident.get()
    }

    /// Lookups in the keyspace since the store was opened.
    pub fn lookups(&self) -> &LookupCounters {
        &self.lookups
    }

    /// Walks in the keyspace since the store was opened.
    pub fn walks(&self) -> &WalkCounters {
        &self.walks
    }

    /// Key ranges without values.
    pub fn dead_spans(&self) -> &DeadSpans {
        &self.dead_spans
    }

    /// The owner of the keyspace's rows in the row cache.
    pub fn rows(&self) -> &Arc<RowOwner> {
        &self.rows
    }

    /// The clock that expiries are compared with.
    pub fn timekeeper(&self) -> &Timekeeper {
        &self.timekeeper
    }

    /// The account that is charged for merge operands.
    pub fn account(&self) -> &Account {
        &self.account
    }

    /// Most bytes of the operands of one key.
    pub fn operand_bytes_max(&self) -> u64 {
        self.operand_bytes_max
    }

    /// Sets the keyspace's merge operator. `operator` is `None` if the process has not registered it. The
    /// caller has checked, under the lock of the store's keyspaces, that the keyspace has none.
    pub fn set_operator(&self, name: String, operator: Option<Arc<dyn MergeOperator>>) {
        let set = self.operator.set(Operator { name, operator });
        invariant!(set.is_ok(), "a keyspace's merge operator is set once");
    }

    /// The name of the keyspace's merge operator, if it has one.
    pub fn operator_name(&self) -> Option<&str> {
        self.operator.get().map(|operator| operator.name.as_str())
    }

    /// The keyspace's merge operator.
    ///
    /// # Errors
    /// `Invalid` if the keyspace has none, or if the process has not registered it.
    pub fn operator(&self) -> Result<&Arc<dyn MergeOperator>> {
        let missing = Error::invalid("merge");
        match self.operator.get() {
            Some(Operator { operator: Some(operator), .. }) => Ok(operator),
            Some(Operator { name, .. }) => {
                Err(missing.expected(format_args!("merge operator `{name}` to be registered")))
            }
            None => Err(missing.expected("a keyspace that has a merge operator")),
        }
    }
}
