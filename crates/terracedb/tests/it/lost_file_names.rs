//! File names that a failed directory sync lost: no job relies on them, whichever job called the sync.

use std::sync::Arc;

use media::{Fault, Medium, OpKind, Rule};
use terracedb::Keyspace;

use crate::common::{self, Stepped};

const KEYS: u32 = 500;

fn ingested(keyspace: &Keyspace) -> terracedb::Ingest {
    let mut ingest = keyspace.ingest().unwrap();
    for number in 0..KEYS {
        ingest.put(number.to_be_bytes(), b"ingested").unwrap();
    }
    ingest
}

/// I3. An ingest has created its file when the directory sync of a concurrent flush fails: this may lose
/// the name of the ingest's file. The ingest fails although its own sync succeeds. So the store goes on,
/// and everything that it then acknowledges as durable is durable.
#[test] // I3
fn no_job_relies_on_a_file_name_that_another_jobs_failed_sync_lost() {
    let mut lost = 0;
    for seed in 0..20 {
        let (device, medium) = common::faulty(seed);
        let stepped = Stepped::new(seed);
        let db = stepped.on(medium).open().unwrap();
        let keyspace = db.open_or_create_keyspace("k").unwrap();
        keyspace.put("written", "before").unwrap();
        // Log segments are created ahead, so none of their names is in doubt.
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
        // A new ingest with a new file succeeds, and the flush is repeated.
        ingested(&keyspace).finish().unwrap();
        keyspace.put("written", "after").unwrap();
        db.flush().unwrap();
        db.sync().unwrap();
        let image: Arc<dyn Medium> = Arc::new(device.crash_image(seed).unwrap());
        drop((keyspace, db));
        let db = stepped.on(image).open().unwrap();
        assert!(db.recovery().damaged_tables.is_empty(), "seed {seed}");
        let keyspace = db.open_or_create_keyspace("k").unwrap();
        assert_eq!(keyspace.get("written").unwrap().as_deref(), Some(&b"after"[..]));
        assert_eq!(keyspace.iter().unwrap().count(), KEYS as usize + 1, "seed {seed}");
    }
    assert!(lost > 0, "the fault lost a name in some run");
}

fn tables(medium: &dyn Medium) -> Vec<String> {
    let names = medium.list().unwrap().into_iter().map(|file| file.name);
    names.filter(|name| name.ends_with(".table")).collect()
}
