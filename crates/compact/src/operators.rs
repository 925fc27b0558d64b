//! The registry of the functions that a process knows by name: merge operators, and priorities of windows.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::limits::OPERATOR_NAME_BYTES_MAX;
use base::{Error, Result};

use crate::builtin::{Append, I64Add, U64Max, U64Min};
use crate::operator::MergeOperator;
use crate::saturating_add::I64AddSaturating;
use crate::window_priority::{FirstByte, WindowPriority};

/// The merge operators and the priorities of windows that this process knows, by name.
#[derive(Clone, Debug, Default)]
pub struct Operators {
    operators: BTreeMap<String, Arc<dyn MergeOperator>>,
    priorities: BTreeMap<String, Arc<dyn WindowPriority>>,
    is_priority_optional: bool,
}

impl Operators {
    /// A registry without functions.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A registry of the built-in functions.
    #[must_use]
    pub fn builtin() -> Self {
        let all: [Arc<dyn MergeOperator>; 5] = [
            Arc::new(I64Add),
            Arc::new(I64AddSaturating),
            Arc::new(Append),
            Arc::new(U64Max),
            Arc::new(U64Min),
        ];
        let operators = all.into_iter().map(|operator| (operator.name().to_owned(), operator));
        let priority: Arc<dyn WindowPriority> = Arc::new(FirstByte);
        Self {
            operators: operators.collect(),
            priorities: BTreeMap::from([(FirstByte::NAME.to_owned(), priority)]),
            is_priority_optional: false,
        }
    }

    /// The same registry for a process that only repairs: it opens stores with windows whose priority it
    /// does not know, and evicts nothing from them.
    #[must_use]
    pub fn without_required_priorities(self) -> Self {
        Self { is_priority_optional: true, ..self }
    }

    /// Registers `operator` under its name.
    ///
    /// # Errors
    /// `Invalid` if the name is empty, too long or already registered.
    pub fn add(&mut self, operator: Arc<dyn MergeOperator>) -> Result<()> {
        let name = operator.name().to_owned();
        check_name("a merge operator", &name, self.operators.contains_key(&name))?;
        self.operators.insert(name, operator);
        Ok(())
    }

    /// Registers `priority` under its name.
    ///
    /// # Errors
    /// `Invalid` if the name is empty, too long or already registered.
    pub fn add_priority(&mut self, priority: Arc<dyn WindowPriority>) -> Result<()> {
        let name = priority.name().to_owned();
        check_name("a window's priority", &name, self.priorities.contains_key(&name))?;
        self.priorities.insert(name, priority);
        Ok(())
    }

    /// The priority named `name`.
    #[must_use]
    pub fn priority(&self, name: &str) -> Option<&Arc<dyn WindowPriority>> {
        self.priorities.get(name)
    }

    /// Refuses a window whose priority this process must know and does not.
    ///
    /// # Errors
    /// `Invalid` if the priority named `name` is not registered.
    pub fn check_priority(&self, name: &str) -> Result<()> {
        if self.is_priority_optional || self.priorities.contains_key(name) {
            return Ok(());
        }
        Err(Error::invalid("priority of a window")
            .expected("one that was given to the builder or is built in")
            .got(format_args!("`{}`", name.escape_debug())))
    }

    /// The names of all operators, ascending.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.operators.keys().map(String::as_str)
    }

    /// The operator named `name`.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Arc<dyn MergeOperator>> {
        self.operators.get(name)
    }
}

fn check_name(of: &'static str, name: &str, is_known: bool) -> Result<()> {
    if name.is_empty() || name.len() > OPERATOR_NAME_BYTES_MAX {
        return Err(Error::invalid(format!("length of the name of {of}, bytes"))
            .expected(format_args!("1..={OPERATOR_NAME_BYTES_MAX}"))
            .got(name.len()));
    }
    if is_known {
        return Err(Error::invalid(format!("name of {of}"))
            .expected("a name that is not registered yet")
            .got(format_args!("`{name}`")));
    }
    Ok(())
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

    #[test]
    fn a_priority_must_be_known_except_for_repairs() {
        let operators = Operators::builtin();
        operators.check_priority(FirstByte::NAME).unwrap();
        let error = operators.check_priority("other.1").unwrap_err();
        assert!(error.to_string().contains("`other.1`"), "{error}");
        operators.clone().without_required_priorities().check_priority("other.1").unwrap();
        assert!({ operators }.add_priority(Arc::new(FirstByte)).is_err(), "known already");
    }
}
