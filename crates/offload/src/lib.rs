//! Compaction jobs in worker processes: the transport, the host's side and the worker's side.
//!
//! Level 5 (docs/ARCHITECTURE.md). [`Workers`] is the host's side: it implements
//! [`compact::offload::Offload`], so the tasks that plan merges know nothing of links. [`Worker`] is a
//! process that runs jobs: it holds no state, serves many stores, and needs of TerraceDB only the crates
//! below this one.
//!
//! One connection is one attempt of one job. The host dials, both say `hello`, the host offers the job, and
//! beats of both sides keep the lease. A connection that ends, for any reason, ends the attempt. The worker
//! reaches the store's files in one of two ways: it opens the directory itself, after it proved that it sees
//! the same one ([`compact::offload`]), or its reads and writes are [`Frame`]s that the host serves on its
//! own device (modules `remote_medium` and `serve`).
//!
//! Bytes from the other side are from outside: they never panic, lengths are checked before memory is
//! taken, and a host serves only the files of the job. docs/format/offload.md describes the frames.

mod address;
mod attempt;
mod blocks;
mod credentials;
mod dispatch;
mod dispatcher;
mod emulated;
mod frame;
mod hello;
mod link;
mod message;
mod remote_engine;
mod remote_medium;
mod serve;
mod timing;
#[cfg(feature = "tls")]
mod tls;
mod worker;
mod workers;

pub use address::Address;
pub use credentials::Credentials;
pub use dispatcher::PlacementMode;
pub use emulated::{BLUEFIELD_2, EmulatedEngine, EngineProfile, EngineStatistics};
pub use frame::{Frame, FrameKind};
pub use link::{Link, StreamLink};
pub use timing::Timing;
#[cfg(feature = "tls")]
pub use tls::{HostTls, WorkerTls};
pub use worker::{OpenMedium, Root, Worker, WorkerOptions};
pub use workers::Workers;
