//! Tests of the SCM tier.
//!
//! A binary of their own, because a mapped tier installs a handler for `SIGBUS` in the process, and tests
//! here cut the mapped file short to raise that signal. One test also kills a child process.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

#[path = "../common/mod.rs"]
mod common;

mod rows;
mod tier;
mod trouble;
