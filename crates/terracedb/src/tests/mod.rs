//! Tests of the tree that need a whole store around it.

mod piece_weight;
mod rows;
mod warm_outputs;
