//! Merge operators: user code that computes a key's value from its operands.
//!
//! A keyspace stores the name of its operator. So operands are never merged by an operator of another name,
//! nor by a process that lacks it.

use std::fmt::Debug;

/// Computes a key's value from the operands written to it.
///
/// Both functions must be pure: equal arguments give equal results in any process, at any time. Reads and
/// background jobs call them concurrently from several threads.
pub trait MergeOperator: Send + Sync + Debug {
    /// The operator's identity, including its version. It is stored with the keyspace: a changed name is
    /// another operator.
    fn name(&self) -> &str;

    /// The value that `operands`, oldest first, make of `base` (`None`: the key has no value). `None` if the
    /// operands or the base are malformed for this operator, or have no result: then the operands are kept,
    /// and reads of the key fail, with an error that names the key.
    fn merge(&self, key: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Option<Vec<u8>>;

    /// Checks an operand before it is written; the error says what is expected. A write of a refused operand
    /// fails with `Invalid`, so that no operand is stored that makes its key unreadable. It may be called
    /// for operands only, not for base values, and by default accepts all.
    ///
    /// # Errors
    /// The expected form of an operand, if `operand` has another.
    fn validate(&self, _operand: &[u8]) -> Result<(), String> {
        Ok(())
    }

    /// One operand equivalent to `operands`, oldest first, over any base. `None` if there is none. `operands`
    /// is never empty.
    fn combine(&self, _key: &[u8], _operands: &[&[u8]]) -> Option<Vec<u8>> {
        None
    }
}
