//! Storage devices behind one trait: memory and files, with decorators that meter, throttle and
//! break them.
//!
//! Level 1 (docs/ARCHITECTURE.md). `unsafe` is allowed here: aligned buffers, mapped windows and
//! the kernel's completion rings live in this crate and nowhere else.

mod buf;
mod medium;
mod purpose;

pub use buf::Buf;
pub use medium::{
    Access, Capabilities, Completion, File, Listing, Medium, Op, Queue, Refused, Request,
};
pub use purpose::{Class, Purpose};
