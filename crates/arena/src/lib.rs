//! Concurrent containers and raw memory: the row in which writers publish, and frames for pages.
//!
//! Level 1 (docs/ARCHITECTURE.md). `unsafe` is allowed here: raw memory from the operating system,
//! and structures that threads change at once, live in this crate and nowhere else. All of them
//! are used through safe interfaces.

mod chunk;
mod frame;
mod publish;
mod stripe;
mod sync;

pub use frame::{Frame, FrameMut, FramePool, Page};
pub use publish::PublishRing;
