//! The registry of merge operators that a process knows.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::limits::OPERATOR_NAME_BYTES_MAX;
use base::{Error, Result};

use crate::builtin::{Append, I64Add, U64Max, U64Min};
use crate::operator::MergeOperator;
use crate::saturating_add::I64AddSaturating;

/// The operators that this process knows, by name.
#[derive(Clone, Debug, Default)]
pub struct Operators(BTreeMap<String, Arc<dyn MergeOperator>>);

impl Operators {
    /// A registry without operators.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A registry of the built-in operators.
    #[must_use]
    pub fn builtin() -> Self {
        let all: [Arc<dyn MergeOperator>; 5] = [
            Arc::new(I64Add),
            Arc::new(I64AddSaturating),
            Arc::new(Append),
            Arc::new(U64Max),
            Arc::new(U64Min),
        ];
        Self(all.into_iter().map(|operator| (operator.name().to_owned(), operator)).collect())
    }

    /// Registers `operator` under its name.
    ///
    /// # Errors
    /// `Invalid` if the name is empty, too long or already registered.
    pub fn add(&mut self, operator: Arc<dyn MergeOperator>) -> Result<()> {
        let name = operator.name().to_owned();
        if name.is_empty() || name.len() > OPERATOR_NAME_BYTES_MAX {
            return Err(Error::invalid("length of a merge operator's name, bytes")
                .expected(format_args!("1..={OPERATOR_NAME_BYTES_MAX}"))
                .got(name.len()));
        }
        if self.0.contains_key(&name) {
            return Err(Error::invalid("name of a merge operator")
                .expected("a name that is not registered yet")
                .got(format_args!("`{name}`")));
        }
        self.0.insert(name, operator);
        Ok(())
    }

    /// The names of all operators, ascending.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// The operator named `name`.
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
    fn an_operator_is_found_by_its_name_and_names_are_unique() {
        let mut operators = Operators::new();
        operators.add(Arc::new(Named("a.1"))).unwrap();
        assert!(operators.get("a.1").is_some() && operators.get("a.2").is_none());
        assert!(operators.add(Arc::new(Named("a.1"))).is_err());
        assert!(operators.add(Arc::new(Named(""))).is_err());
        assert!(operators.get("a.1").unwrap().combine(b"k", &[b"1"]).is_none());
    }
}
