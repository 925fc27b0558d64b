//! Names that a failed sync lost: nobody relies on them, whoever's sync it was.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod common;

use std::sync::Arc;

use common::Stepped;
use media::{Fault, Medium, OpKind, Rule};
use terracedb::Keyspace;

const KEYS: u32 = 500;

fn ingested(keyspace: &Keyspace) -> terracedb::Ingest {
    let mut ingest = keyspace.ingest().unwrap();
    for number in 0..KEYS {
        ingest.add(number.to_be_bytes(), b"ingested").unwrap();
    }
    ingest
}

/// I3. An ingest has made its file when the sync of a flush's fails: with it the ingest's name may be lost.
/// The ingest, whose own sync succeeds, fails; so the store goes on, and what it then says is durable is.
#[test]
fn no_job_relies_on_a_name_that_anothers_failed_sync_lost() {
    let mut lost = 0;
    for seed in 0..20 {
        let (device, medium) = common::faulty(seed);
        let stepped = Stepped::new(seed);
        let db = stepped.on(medium).open().unwrap();
        let keyspace = db.keyspace("k").unwrap();
        keyspace.put("written", "before").unwrap();
        // Log segments are made ahead: no name of theirs is in doubt.
        stepped.work(1000);
        let ingest = ingested(&keyspace);
        let made: Vec<String> = tables(&*device);
        assert!(!made.is_empty());
        device.inject(Rule::new(OpKind::Names, Fault::Io).name("directory")).unwrap();
        keyspace.flush().unwrap_err();
        assert_eq!(device.struck(), 1);
        lost += usize::from(!tables(&device.crash_image(seed).unwrap()).contains(&made[0]));
        let error = ingest.finish().unwrap_err();
        assert!(error.to_string().contains(&made[0]), "{error}");
        // Made anew, it is as good as any; and the flush is made up for.
        ingested(&keyspace).finish().unwrap();
        keyspace.put("written", "after").unwrap();
        db.flush().unwrap();
        db.sync().unwrap();
        let image: Arc<dyn Medium> = Arc::new(device.crash_image(seed).unwrap());
        drop((keyspace, db));
        let db = stepped.on(image).open().unwrap();
        assert!(db.recovery().damaged_tables.is_empty(), "seed {seed}");
        let keyspace = db.keyspace("k").unwrap();
        assert_eq!(keyspace.get("written").unwrap().as_deref(), Some(&b"after"[..]));
        assert_eq!(keyspace.iter().unwrap().count(), KEYS as usize + 1, "seed {seed}");
    }
    assert!(lost > 0, "the fault does what it is there for");
}

fn tables(medium: &dyn Medium) -> Vec<String> {
    let names = medium.list().unwrap().into_iter().map(|file| file.name);
    names.filter(|name| name.ends_with(".table")).collect()
}
