//! The names of the public API: few at the crate root, and one for every type that a call takes or returns.

use std::sync::Arc;

use terracedb::{Db, Resources, env, events, recovery, stats, tools};

use crate::common;

/// The most names at the crate root.
const ROOT_NAMES_MAX: usize = 40;

/// The names that `pub use` and `pub mod` at the start of a line of `source` make.
fn root_names(source: &str) -> Vec<String> {
    let mut names = Vec::new();
    for part in source.split("\npub ").skip(1) {
        if let Some(module) = part.strip_prefix("mod ") {
            names.extend(module.split(' ').next().map(str::to_owned));
        } else if let Some(used) = part.strip_prefix("use ").and_then(|it| it.split(';').next()) {
            let listed = match used.split_once('{') {
                Some((_, listed)) => listed.trim_end().trim_end_matches('}'),
                None => used.rsplit("::").next().unwrap(),
            };
            names.extend(listed.split(',').map(|it| it.trim().to_owned()));
        }
    }
    names.retain(|name| !name.is_empty());
    names
}

#[test]
fn the_crate_root_has_few_names() {
    let names = root_names(include_str!("../../src/lib.rs"));
    for known in ["Db", "Settings", "WriteOptions", "stats", "tools"] {
        assert!(names.iter().any(|name| name == known), "{known} in {names:?}");
    }
    assert!(names.len() <= ROOT_NAMES_MAX, "{}: {names:?}", names.len());
}

/// Each binding names the type of a field or result by its public path; this compiles only if it has one.
#[test]
fn types_of_fields_and_results_have_public_names() {
    let medium: Arc<dyn env::Medium> = common::memory();
    let resources = Resources::builder().memory(common::MEMORY).build().unwrap();
    let clock: &Arc<dyn env::Clock> = resources.clock();
    let executor: &dyn env::Executor = resources.executor();
    assert!(clock.unix_millis() <= executor.clock().unix_millis());
    let db = Db::on_medium(medium).resources(&resources).open().unwrap();
    db.create_keyspace("k").unwrap().put("a", "1").unwrap();
    db.flush().unwrap();
    let statistics: stats::Statistics = db.statistics();
    let device: &stats::Usage = &statistics.device;
    let total: stats::Counts = device.total();
    assert!(total.write_bytes > 0);
    let _: Option<env::Space> = statistics.device_space;
    let _: &stats::Memory = &statistics.memory;
    let cache: &stats::CacheStatistics = &statistics.cache;
    let _: stats::KindStatistics = cache.data;
    let _: &stats::RowStatistics = &statistics.rows;
    let log: &stats::LogStatistics = &statistics.log;
    assert!(log.records > 0);
    let _: &stats::ClockStatistics = &statistics.clock;
    let _: &stats::CompactionStatistics = &statistics.compaction;
    let _: &stats::ScrubStatistics = &statistics.scrub;
    let _: &Vec<recovery::Problem> = &statistics.damaged;
    let _: &recovery::Recovery = db.recovery();
    let _: tools::ScrubReport = db.scrub().unwrap();
    let _ = |event: &events::Event| match event {
        events::Event::CompactionEnded { outputs, .. } => outputs.first().copied(),
        _ => None::<events::TableId>,
    };
    let _ = |report: tools::RepairReport| -> Option<tools::StoreId> { report.store };
}
