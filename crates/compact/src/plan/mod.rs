//! Planning: which tables should be merged next, as a pure function of a summary of the tree.
