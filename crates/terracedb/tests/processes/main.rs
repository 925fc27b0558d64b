//! Tests that start processes: children that are killed at any moment, two processes on one store, and the
//! examples.
//!
//! A binary of their own, because a child that one thread starts holds a copy of every open file of the
//! process, and with them the locks of open stores, from its `fork` to its `exec`. If another thread closes
//! and reopens a store in that time, it finds the store locked. Hence every test here that starts a process
//! holds [`alone`] from its start to its end.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

#[path = "../common/mod.rs"]
mod common;

mod broken_invariant;
mod examples;
mod forks;
mod identity;
mod kill;
mod kill_copies;
mod kill_mixed_load;
mod kill_resident;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Taken by each test that starts processes, so that no two of them run at the same time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}
