//! The types that every TerraceDB crate shares: identifiers, sequence numbers, bounded keys, persisted
//! enums, limits, errors, the byte codec, checksums, and the interfaces through which the engine gets
//! time, randomness, memory and background threads.
//!
//! Level 0 (docs/ARCHITECTURE.md): this crate depends on no other crate of the workspace and does no I/O.

mod account;
mod backoff;
mod budget;
mod cancel;
mod checksum;
mod clock;
mod codec;
mod counter;
mod cpu;
mod error;
mod executor;
pub mod expiry;
mod hash_key;
mod hashed_policy;
mod ids;
mod invariant;
mod key;
mod key_form;
mod key_range;
mod kind;
pub mod limits;
mod moved;
mod op;
mod owner;
mod problem;
mod rng;
mod seqno;
pub mod sync;
mod thread_number;
mod units;
mod write_size;

pub use account::{Account, Charge};
pub use backoff::Backoff;
pub use budget::{AccountUsage, Budget, BudgetUsage, Reclaim, ReclaimOrder};
pub use cancel::Cancel;
pub use checksum::{ContentSeed, PageSeed, crc32c, crc32c_append, hash64, key_hash};
pub use clock::{Clock, ManualClock, SystemClock};
pub use codec::{Cursor, put_bytes, put_u16, put_u32, put_u64, put_u128, put_varint, varint_len};
pub use counter::Counter;
pub use cpu::thread_cpu_time;
pub use error::{Error, ErrorKind, Result, Retry};
pub use executor::{Executor, Progress, Stepper, Task, TaskHandle, Threads};
pub use hash_key::HashKey;
pub use hashed_policy::{Discard, HashedPolicy};
pub use ids::{DictionaryId, KeyspaceId, LaneId, LineageId, RunId, SegmentId, StoreId, TableId};
pub use invariant::{note_broken, unbroken};
pub use key::{AFTER_EVERY_KEY, Key};
pub use key_form::{HASHED_KEY_BYTES_MAX, KEY_HASH_BYTES, KeyForm, StoredKey, StoredKeys};
pub use key_range::KeyRange;
pub use kind::{Codec, Durability, EntryKind};
pub use moved::{LOST, MovedOp, decode_moved, is_moved, moved_first_at, put_moved};
pub use op::{BatchOp, DeleteRange, Write, decode_ops, decode_ops_at};
pub use owner::{Owner, are_forks_watched, note_fork, watch_forks};
pub use problem::Problem;
pub use rng::Rng;
pub use seqno::{Seqno, Trailer};
pub use thread_number::thread_number;
pub use units::{format_bytes, format_count, parse_bytes};
pub use write_size::WriteSize;
