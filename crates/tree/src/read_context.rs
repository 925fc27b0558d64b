//! What the stored versions of a keyspace mean to a reader: the time that expiries are held
//! against, and the operator that merges operands; and how often they are asked for.

use std::sync::{Arc, OnceLock};

use base::{Account, Counter, Error, Result};
use cache::RowOwner;
use compact::MergeOperator;

use crate::timekeeper::Timekeeper;

/// How a keyspace's versions are read. Shared by its views.
#[derive(Debug)]
pub struct ReadContext {
    timekeeper: Arc<Timekeeper>,
    /// The merge operator, once one was named: its name, and itself where the process has it.
    operator: OnceLock<Operator>,
    /// Charged for the operands of a key that is read.
    account: Account,
    /// The most operands of one key, bytes: what the longest value may take.
    operand_bytes_max: u64,
    /// Whose the rows of the keyspace are.
    rows: Arc<RowOwner>,
    seeks: Counter,
}

#[derive(Debug)]
struct Operator {
    name: String,
    operator: Option<Arc<dyn MergeOperator>>,
}

impl ReadContext {
    /// Without a merge operator.
    pub fn new(
        timekeeper: Arc<Timekeeper>,
        account: Account,
        operand_bytes_max: u64,
        rows: RowOwner,
    ) -> Arc<Self> {
        let (operator, rows) = (OnceLock::new(), Arc::new(rows));
        let seeks = Counter::default();
        Arc::new(Self { timekeeper, operator, account, operand_bytes_max, rows, seeks })
    }

    pub fn seeks(&self) -> &Counter {
        &self.seeks
    }

    pub fn rows(&self) -> &Arc<RowOwner> {
        &self.rows
    }

    pub fn timekeeper(&self) -> &Timekeeper {
        &self.timekeeper
    }

    pub fn account(&self) -> &Account {
        &self.account
    }

    pub fn operand_bytes_max(&self) -> u64 {
        self.operand_bytes_max
    }

    /// Names the keyspace's merge operator, once; `operator` where the process has it.
    pub fn set_operator(&self, name: String, operator: Option<Arc<dyn MergeOperator>>) {
        // A second one is refused before it comes here.
        let _ = self.operator.set(Operator { name, operator });
    }

    /// The name of the keyspace's merge operator, if it has one.
    pub fn operator_name(&self) -> Option<&str> {
        self.operator.get().map(|operator| operator.name.as_str())
    }

    /// The keyspace's merge operator.
    ///
    /// # Errors
    /// `Invalid` where it has none, or the process does not know it.
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
