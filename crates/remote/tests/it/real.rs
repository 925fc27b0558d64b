//! A real server: `cargo xtask object-store` starts one and runs this.

use std::env;
use std::sync::Arc;

use terrace_remote::{Credentials, ObjectMedium, Options};
use terracedb::tools::Backup;

use crate::support::*;

#[test]
#[ignore = "needs an S3 server in TERRACE_S3_ENDPOINT: cargo xtask object-store"]
fn a_real_server_keeps_and_restores_backups() {
    let of = |name: &str| env::var(name).unwrap();
    let credentials =
        Credentials::new(&of("AWS_ACCESS_KEY_ID"), &of("AWS_SECRET_ACCESS_KEY"), None);
    let options = Options {
        endpoint: Some(of("TERRACE_S3_ENDPOINT")),
        credentials: Some(credentials),
        part_bytes: 5 << 20,
        ..Options::default()
    };
    let url = format!("s3://{}/backups/of-tests", of("TERRACE_S3_BUCKET"));
    let backups = |read_only| {
        let options = Options { read_only, ..options.clone() };
        Backup::on_medium(Arc::new(ObjectMedium::open(&url.parse().unwrap(), &options).unwrap()))
    };
    let scene = Scene::new();
    // A file of several parts.
    let keyspace = scene.db.keyspace("k").unwrap();
    for number in 0..180u64 {
        let bytes = (0..65_536u64).map(|at| (at.wrapping_mul(number + 7) >> 3) as u8);
        keyspace.put(format!("long-{number:04}"), bytes.collect::<Vec<u8>>()).unwrap();
    }
    scene.db.flush().unwrap();
    let id = backups(false).create(&scene.db, "real").unwrap().id;
    let again = backups(false).create(&scene.db, "again").unwrap();
    assert!(again.bytes_copied < again.bytes / 10, "{again:?}");
    let error = {
        use media::Medium as _;
        let one = ObjectMedium::open(&url.parse().unwrap(), &options).unwrap();
        let _lock = one.lock().unwrap();
        let two = ObjectMedium::open(&url.parse().unwrap(), &options).unwrap();
        let lock = two.lock().unwrap();
        drop(lock);
        one.create("backup-0000000009", media::Access::Direct, 0)
            .unwrap()
            .sync(media::Purpose::Scrub)
            .unwrap();
        one.sync_names(&[]).unwrap_err()
    };
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    assert!(backups(true).verify(id).unwrap().is_clean());
    let path = scene.directory.path().join("restored");
    backups(true).restore(id, &path).unwrap();
    let restored = open(path);
    for key in ["0000-000000", "0001-000299", "long-0179"] {
        let (here, there) =
            (keyspace.get(key).unwrap(), restored.keyspace("k").unwrap().get(key).unwrap());
        assert!(here.is_some() && here == there, "{key}");
    }
    let options = terracedb::tools::PruneOptions::keep(0).delete_all(true);
    backups(false).prune_opt(&options).unwrap();
    assert_eq!(backups(true).list().unwrap().backups.len(), 0);
}
