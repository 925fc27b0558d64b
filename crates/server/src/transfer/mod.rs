//! Moving data sets between Redis and this store: `terrace import` and `terrace export`.
//!
//! `rdb` reads a dump file and `source` a running server; both hand keys and their elements, one by one, to a
//! `Sink`. `Importer` is the sink that stages them in batches of bounded size; [`export()`] writes a store as
//! commands of the protocol. One thread; a key replaces the key of its name.

mod export;
mod importer;
mod packed;
pub(crate) mod rdb;
mod sink;
mod socket;
mod source;
mod stopped;
#[cfg(test)]
mod tests;

pub use export::{Exported, export};
pub use importer::Tally;
pub use rdb::import_rdb;
pub use socket::SourceTls;
pub use source::{Source, import_from};
pub use stopped::Stopped;

#[cfg(feature = "fuzzing")]
use sink::{Sink, SourceKey};

/// The number of elements of a dump file, for the fuzz target.
#[cfg(feature = "fuzzing")]
pub(crate) fn elements_for_fuzzing(input: &[u8]) -> u64 {
    struct Counted(u64);
    impl Sink for Counted {
        fn begin(&mut self, _key: SourceKey) -> Result<(), Stopped> {
            Ok(())
        }
        fn element(&mut self, _member: &[u8], _payload: &[u8]) -> Result<(), Stopped> {
            self.0 += 1;
            Ok(())
        }
        fn end(&mut self) -> Result<(), Stopped> {
            Ok(())
        }
        fn skipped(&mut self, _kind: &'static str) {}
        fn progress(&mut self, _done: u64) {}
    }
    let mut counted = Counted(0);
    // A damaged file is an error; its elements up to there count.
    let _outcome = rdb::parse(input, &mut counted);
    counted.0
}
