//! Jobs at workers: over links that work, links that fail, and with hostile workers.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]
#![allow(unreachable_pub, reason = "the support of compact's tests is shared")]

extern crate compact as terrace_compact;
extern crate terrace_offload as offload;

#[path = "../../../compact/tests/support/mod.rs"]
mod support;

mod compressing;
mod encrypted;
mod faults;
mod faulty;
mod hostile;
mod jobs;
mod verifying;
mod window;
mod workplace;
