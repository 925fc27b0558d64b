//! An ingest (bulk load): a million sorted readings are written to tables directly, past the log and the
//! memtables, and become visible together.
//!
//! ```sh
//! cargo run --example ingest
//! ```

use terracedb::{Db, Error, Result};

/// The key of a reading: ordered by sensor, then by time.
fn key(sensor: u32, second: u32) -> [u8; 8] {
    (u64::from(sensor) << 32 | u64::from(second)).to_be_bytes()
}

fn main() -> Result<()> {
    let directory = std::env::temp_dir().join(format!("terracedb-ingest-{}", std::process::id()));
    let db = Db::builder(&directory).memory(64 << 20).open()?;
    let readings = db.create_keyspace("readings")?;
    readings.put(key(3, 100), "a correction that is older than the ingest")?;

    let mut ingest = readings.ingest()?;
    for sensor in 0..10 {
        for second in 0..100_000u32 {
            // Keys must be added in ascending order.
            ingest.put(key(sensor, second), format!("{:.1} C", f64::from(second % 300) / 10.0))?;
        }
    }
    assert_eq!(readings.iter()?.count(), 1, "an unfinished ingest is invisible");
    let ingested = ingest.finish()?;

    println!("{} readings in {} tables", ingested.entries, ingested.tables);
    let statistics = db.statistics();
    let written = statistics.device.total().write_bytes as f64;
    println!("{:.3} bytes written per byte of tables", written / ingested.file_bytes as f64);
    assert_eq!(readings.get(key(3, 100))?.as_deref(), Some(&b"10.0 C"[..]));
    assert_eq!(readings.range(key(3, 0)..key(3, 60))?.count(), 60);

    drop((readings, db));
    std::fs::remove_dir_all(&directory)
        .map_err(|error| Error::invalid("directory of the example").got(error))
}
