//! The atomics of slots: from `std`, or from shuttle in tests that explore interleavings.

#[cfg(not(all(test, feature = "shuttle")))]
pub(super) use std::sync::atomic;

#[cfg(all(test, feature = "shuttle"))]
pub(super) use shuttle::sync::atomic;
