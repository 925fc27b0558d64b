//! TerraceDB behind the Redis protocol, for `terrace serve`.
//!
//! Each core has one thread with a runtime of its own, and a connection stays on the thread that accepted it
//! (`conn`). The commands of a connection run on a bounded pool of threads, because they may wait for the
//! device or for flushes (`session`). `keys` maps Redis's keys to the store; `command` has the
//! commands. docs/server.md is the page for users.

mod acl;
mod admin;
mod args;
mod at_once;
mod blocking;
mod clients;
mod collection;
mod command;
mod config;
mod conn;
mod decimal;
mod encoding;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod glob;
mod keys;
mod latency;
mod listen;
mod locks;
mod metrics;
mod one_commit;
mod part;
mod permission;
mod reply;
mod resp;
mod session;
mod shared;
mod slow;
mod space;
mod spec;
mod take;
mod tls;
pub mod transfer;
mod unit;
mod value;
mod watch;

pub use config::{AppendFsync, Config, TlsConfig};
pub use keys::DATABASES;
pub use listen::serve;
pub use space::DatabaseKind;

/// Reads a dump file of Redis, for the fuzz target. Returns the number of its elements.
#[cfg(feature = "fuzzing")]
#[must_use]
pub fn parse_rdb_for_fuzzing(input: &[u8]) -> u64 {
    transfer::elements_for_fuzzing(input)
}

/// The parser of requests, for the fuzz target: parses `input` in pieces, and returns the number of requests.
#[cfg(feature = "fuzzing")]
#[must_use]
pub fn parse_for_fuzzing(input: &[u8], piece: usize) -> usize {
    let mut parser = resp::Parser::new(1 << 20);
    let mut count = 0;
    for piece in input.chunks(piece.max(1)) {
        parser.push(piece);
        loop {
            match parser.next() {
                Ok(Some(_)) => count += 1,
                Ok(None) => break,
                Err(_) => return count,
            }
        }
    }
    count
}
