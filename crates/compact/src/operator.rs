//! Merge operators: how operands become a value.
//!
//! An operator is code of the user's, named by the keyspace that uses it. Its name is stored, so
//! that no other operator, or process without it, ever merges what was written for it.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use base::limits::OPERATOR_NAME_BYTES_MAX;
use base::{Error, Result};

use crate::{Append, I64Add, U64Max, U64Min};

/// How the operands written to a key become its value.
///
/// Both functions are pure: the same arguments give the same result, in any process, whenever and
/// however often they are called. Calls come from readers and from background jobs at once.
pub trait MergeOperator: Send + Sync + Debug {
    /// The operator's identity, its version included. Stored: another name is another operator.
    fn name(&self) -> &str;

    /// The value that `operands`, oldest first, make of `base`: of the value under them, or of
    /// none. `None` where they do not fit each other; they are then kept as they are, and reads of
    /// the key fail.
    fn merge(&self, key: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Option<Vec<u8>>;

    /// One operand that does what `operands`, oldest first, do together, whatever lies under them.
    /// `None` where there is none. `operands` are never empty.
    fn combine(&self, _key: &[u8], _operands: &[&[u8]]) -> Option<Vec<u8>> {
        None
    }
}

/// The operators a process knows, by name.
#[derive(Clone, Debug, Default)]
pub struct Operators(BTreeMap<String, Arc<dyn MergeOperator>>);

impl Operators {
    /// No operators.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The operators that every store knows.
    #[must_use]
    pub fn builtin() -> Self {
        let all: [Arc<dyn MergeOperator>; 4] =
            [Arc::new(I64Add), Arc::new(Append), Arc::new(U64Max), Arc::new(U64Min)];
        Self(all.into_iter().map(|operator| (operator.name().to_owned(), operator)).collect())
    }

    /// Adds `operator` under its name.
    ///
    /// # Errors
    /// `Invalid` where its name is empty or too long, or another operator has it.
    pub fn add(&mut self, operator: Arc<dyn MergeOperator>) -> Result<()> {
        let name = operator.name().to_owned();
        if name.is_empty() || name.len() > OPERATOR_NAME_BYTES_MAX {
            return Err(Error::invalid("merge operator's name, bytes")
                .expected(format_args!("1..={OPERATOR_NAME_BYTES_MAX}"))
                .got(name.len()));
        }
        if self.0.contains_key(&name) {
            return Err(Error::invalid("merge operator")
                .expected("a name of its own")
                .got(format_args!("`{name}` twice")));
        }
        self.0.insert(name, operator);
        Ok(())
    }

    /// The operator called `name`.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Arc<dyn MergeOperator>> {
        self.0.get(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Named(&'static str);

    impl MergeOperator for Named {
        fn name(&self) -> &str {
            self.0
        }

        fn merge(&self, _key: &[u8], _base: Option<&[u8]>, _operands: &[&[u8]]) -> Option<Vec<u8>> {
            None
        }
    }

    #[test]
    fn operators_are_found_by_name_and_a_name_is_taken_once() {
        let mut operators = Operators::new();
        operators.add(Arc::new(Named("a.1"))).unwrap();
        assert!(operators.get("a.1").is_some() && operators.get("a.2").is_none());
        assert!(operators.add(Arc::new(Named("a.1"))).is_err());
        assert!(operators.add(Arc::new(Named(""))).is_err());
        assert!(operators.get("a.1").unwrap().combine(b"k", &[b"1"]).is_none());
    }
}
