//! Outputs of one worker that another verifies, near the storage.

use std::sync::Arc;

use base::{ErrorKind, Rng};
use compact::offload::Offload;
use compact::{Job, Outcome};
use media::{Access, Buf, FileMedium, FileOptions, Medium, Purpose};
use terrace_offload::{Address, WorkerOptions, Workers};

use crate::support::env;
use crate::workplace::{
    PATIENT, PROOF, RunningWorker, content, root, wait, worker_options, workers_at,
};

struct Place {
    directory: tempfile::TempDir,
    medium: Arc<dyn Medium>,
    job: Job,
    outcome: Outcome,
}

fn place() -> Place {
    let directory = tempfile::tempdir().unwrap();
    let opened = FileMedium::open(directory.path(), FileOptions::default()).unwrap();
    let medium: Arc<dyn Medium> = Arc::new(opened);
    let (_, job) = content(&mut Rng::new(31), &medium, 1000);
    let outcome = compact::run(job.clone(), &env(&medium)).unwrap();
    Place { directory, medium, job, outcome }
}

impl Place {
    fn worker(&self) -> RunningWorker {
        let roots = vec![root(self.directory.path())];
        RunningWorker::start(WorkerOptions { roots, ..worker_options() })
    }

    fn verify(&self, workers: &Workers, by: &Address) -> Option<base::Result<Outcome>> {
        let env = env(&self.medium);
        let by = by.to_string();
        let mut run = workers.verify(&self.job, &self.outcome, &env, PROOF, &by)?;
        let ended = wait(&mut *run);
        run.judged(ended.as_ref().map(|_| ()));
        Some(ended)
    }
}

#[test]
fn another_worker_reads_and_decodes_every_page_near_the_storage() {
    let place = place();
    let (first, second) = (place.worker(), place.worker());
    let workers = workers_at(&[&first.address, &second.address], b"", PATIENT);
    assert_eq!(place.verify(&workers, &first.address).unwrap().unwrap(), place.outcome);
    let statistics = workers.statistics();
    assert_eq!((statistics[0].verified, statistics[1].verified), (0, 1));
    assert_eq!(statistics[1].jobs, 0);
    // Nothing but messages crossed the link.
    assert!(statistics[1].link_bytes < place.outcome.bytes_written() / 4, "{statistics:?}");
    // No worker verifies its own outputs.
    let alone = workers_at(&[&first.address], b"", PATIENT);
    assert!(place.verify(&alone, &first.address).is_none());
}

#[test]
fn damage_that_another_worker_finds_is_corruption() {
    let place = place();
    let (first, second) = (place.worker(), place.worker());
    let table = place.outcome.tables.last().unwrap();
    let file = place.medium.open(&table::file_name(table.table), Access::Direct).unwrap();
    let (mut page, result) = file.read(4096, Buf::pages(1), Purpose::Scrub);
    result.unwrap();
    page[100] ^= 4;
    file.write(4096, page, Purpose::Scrub).1.unwrap();
    let workers = workers_at(&[&first.address, &second.address], b"", PATIENT);
    let error = place.verify(&workers, &first.address).unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert!(error.to_string().contains(&table::file_name(table.table)), "{error}");
}

/// Such a worker says so, and its host reads the pages itself.
#[test]
fn a_worker_without_the_directory_does_not_verify() {
    let place = place();
    let (first, second) = (place.worker(), RunningWorker::start(worker_options()));
    let workers = workers_at(&[&first.address, &second.address], b"", PATIENT);
    let error = place.verify(&workers, &first.address).unwrap().unwrap_err();
    assert_ne!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert_eq!(workers.statistics()[1].failures, [("refused", 1)]);
}
