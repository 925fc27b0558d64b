//! The options that a keyspace has: to create one like it, and to show them.

use engine::{KeyspaceOptions, keyspace_options};

use crate::Keyspace;

impl Keyspace {
    /// The options to create a keyspace of the same kind with: policy, merge operator, codec and filters.
    #[must_use]
    pub fn options(&self) -> KeyspaceOptions {
        keyspace_options(self.tree())
    }
}
