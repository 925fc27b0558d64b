//! Jobs over links that work.

use std::sync::Arc;
use std::time::Duration;

use base::{Account, Codec, DictionaryId, EntryKind, ErrorKind, Rng, Seqno, TableId, Trailer};
use compact::job::{Input, InputRun};
use compact::offload::{JobShape, Offload, Placement};
use compact::{Env, KeyRange};
use media::{FileMedium, FileOptions, Medium, MemoryMedium, Purpose};
use table::{Dictionary, RangeDeletes, StoreDictionaries};
use terrace_offload::{Address, OpenMedium, StreamLink, Worker, WorkerOptions};

use crate::support::{Content, OUTPUTS, STORE, env, key, write};
use crate::workplace::{
    PATIENT, PROOF, RunningWorker, attempt, content, local, outputs, root, shape_of,
    stopped_workers, wait, worker_options, workers,
};

#[test]
fn worker_without_the_directory_writes_what_a_local_run_writes() {
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new());
    let (_, job) = content(&mut Rng::new(1), &medium, 2000);
    let worker = RunningWorker::start(worker_options());
    let workers = workers(&worker.address, b"", PATIENT);
    let outcome = attempt(&workers, &job, &env(&medium)).unwrap();
    let expected = local(&job, &medium);
    assert_eq!(outcome.tables, expected.tables);
    assert_eq!(outcome.counts, expected.counts);
    let statistics = workers.statistics().remove(0);
    assert_eq!((statistics.jobs, statistics.running), (1, 0));
    assert_eq!(statistics.bytes_written, outcome.bytes_written());
    // All inputs and outputs went over the link.
    assert!(statistics.link_bytes > outcome.bytes_read + outcome.bytes_written());
    assert!(!statistics.cpu.is_zero());
    assert_eq!(worker.wait_for(1), (1, 0));
    // The proof is gone.
    assert!(medium.list().unwrap().iter().all(|file| !file.name.contains(&PROOF.to_string())));
}

#[test]
fn worker_with_the_directory_ships_no_tables() {
    let directory = tempfile::tempdir().unwrap();
    let other = tempfile::tempdir().unwrap();
    let opened = FileMedium::open(directory.path(), FileOptions::default()).unwrap();
    let medium: Arc<dyn Medium> = Arc::new(opened);
    let (_, job) = content(&mut Rng::new(2), &medium, 2000);
    let roots = vec![root(other.path()), root(directory.path())];
    let worker = RunningWorker::start(WorkerOptions { roots, ..worker_options() });
    let workers = workers(&worker.address, b"", PATIENT);
    let outcome = attempt(&workers, &job, &env(&medium)).unwrap();
    assert_eq!(outcome.tables, local(&job, &medium).tables);
    let statistics = workers.statistics().remove(0);
    assert!(statistics.link_bytes < outcome.bytes_written() / 2, "{statistics:?}");
}

/// The files of a store in memory, as an object store would be reached.
#[derive(Debug)]
struct Shared(Option<Arc<dyn Medium>>);

impl OpenMedium for Shared {
    fn open(&self) -> base::Result<Arc<dyn Medium>> {
        self.0.clone().ok_or_else(|| base::Error::retry("store").got("no answer"))
    }
}

/// A medium that cannot be opened, one of another store, and that of the store: the proof tells.
#[test]
fn worker_with_another_medium_of_the_store_ships_no_tables() {
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new());
    let (_, job) = content(&mut Rng::new(17), &medium, 2000);
    let reached = |media: Vec<Arc<dyn OpenMedium>>| {
        let worker = RunningWorker::start(WorkerOptions { media, ..worker_options() });
        let workers = workers(&worker.address, b"", PATIENT);
        let outcome = attempt(&workers, &job, &env(&medium)).unwrap();
        assert_eq!(outcome.tables, local(&job, &medium).tables);
        job.discard_outputs(&*medium).unwrap();
        workers.statistics().remove(0).link_bytes < outcome.bytes_written() / 2
    };
    let other: Arc<dyn OpenMedium> = Arc::new(Shared(Some(Arc::new(MemoryMedium::new()))));
    let silent: Arc<dyn OpenMedium> = Arc::new(Shared(None));
    assert!(!reached(vec![Arc::clone(&silent), Arc::clone(&other)]));
    assert!(reached(vec![silent, other, Arc::new(Shared(Some(Arc::clone(&medium))))]));
}

#[test]
fn token_is_needed_and_must_be_right() {
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new());
    let (_, job) = content(&mut Rng::new(3), &medium, 100);
    let options = WorkerOptions { token: Some(b"secret".to_vec()), ..worker_options() };
    let worker = RunningWorker::start(options.clone());
    for wrong in [&b""[..], b"secreT", b"secret and more"] {
        let workers = stopped_workers(&worker.address, wrong);
        let error = attempt(&workers, &job, &env(&medium)).unwrap_err();
        assert!(error.to_string().contains("token"), "{error}");
        let statistics = workers.statistics().remove(0);
        assert_eq!(statistics.failures, [("refused", 1)]);
        // The host offers the worker nothing for a while.
        let shape = JobShape { bytes: 1, codec: Codec::Lz4, is_urgent: false };
        assert_eq!(workers.place(&shape), Placement::Local);
    }
    assert!(outputs(&medium).is_empty());
    let workers = workers(&worker.address, b"secret", PATIENT);
    attempt(&workers, &job, &env(&medium)).unwrap();
    // TCP never works without one.
    let address = "tcp://127.0.0.1:0".parse().unwrap();
    Worker::listen(&address, worker_options()).unwrap_err();
    let worker = Worker::listen(&address, options).unwrap();
    assert!(!worker.address().unwrap().to_string().ends_with(":0"));
}

#[test]
fn tcp_on_loopback_works_and_beyond_it_is_refused() {
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new());
    let (_, job) = content(&mut Rng::new(4), &medium, 100);
    let options = WorkerOptions { token: Some(b"secret".to_vec()), ..worker_options() };
    let beyond: Address = "tcp://0.0.0.0:0".parse().unwrap();
    let refused = Worker::listen(&beyond, options.clone()).unwrap_err();
    assert!(refused.to_string().contains("loopback"), "{refused}");
    let worker = Worker::listen(&"tcp://127.0.0.1:0".parse().unwrap(), options).unwrap();
    let (worker, stop) = (Arc::new(worker), Arc::new(std::sync::atomic::AtomicBool::new(false)));
    let thread = {
        let (worker, stop) = (Arc::clone(&worker), Arc::clone(&stop));
        std::thread::spawn(move || worker.run(&stop, |_| {}).unwrap())
    };
    let workers = workers(&worker.address().unwrap(), b"secret", PATIENT);
    attempt(&workers, &job, &env(&medium)).unwrap();
    stop.store(true, std::sync::atomic::Ordering::Release);
    thread.join().unwrap();
}

/// A worker that is stopped accepts nothing: its queue of connections fills up, and then a host is told so at
/// once. It does not wait without an end.
#[test]
fn a_full_queue_of_connections_does_not_hold_a_host() {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, bind, listen, socket};
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("worker");
    let stopped = socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
    bind(&stopped, &SocketAddrUnix::new(&path).unwrap()).unwrap();
    listen(&stopped, 1).unwrap();
    let connect = || StreamLink::connect(&Address::Unix(path.clone()), Duration::ZERO);
    let links: Vec<_> = std::iter::from_fn(|| connect().ok()).take(100).collect();
    assert!((1..100).contains(&links.len()), "{}", links.len());
    assert_eq!(connect().unwrap_err().kind(), ErrorKind::Retry);
}

/// Fault 7: a worker that lacks the operator is found out before a byte is written.
#[test]
fn worker_without_the_operator_gets_no_job() {
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new());
    let (_, job) = content(&mut Rng::new(5), &medium, 100);
    let operators = Arc::new(compact::Operators::builtin());
    let worker = RunningWorker::start(WorkerOptions { operators, ..worker_options() });
    let workers = workers(&worker.address, b"", PATIENT);
    let error = attempt(&workers, &job, &env(&medium)).unwrap_err();
    assert!(error.to_string().contains("operator"), "{error}");
    assert_eq!(workers.statistics().remove(0).failures, [("operator", 1)]);
    assert!(outputs(&medium).is_empty());
    // It is not offered again; jobs that need no operator are.
    assert!(workers.offer(&job, &shape_of(&job), &env(&medium), PROOF).is_none());
    let plain = compact::Job { operator: None, ..job };
    attempt(&workers, &plain, &env(&medium)).unwrap();
}

#[test]
fn job_beyond_the_memory_of_a_worker_is_refused() {
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new());
    let (_, job) = content(&mut Rng::new(6), &medium, 100);
    let worker = RunningWorker::start(WorkerOptions { memory: 4 << 20, ..worker_options() });
    let workers = workers(&worker.address, b"", PATIENT);
    let error = attempt(&workers, &job, &env(&medium)).unwrap_err();
    assert!(error.to_string().contains("memory"), "{error}");
}

#[test]
fn nobody_at_the_address_is_a_failure_that_is_counted() {
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new());
    let (_, job) = content(&mut Rng::new(7), &medium, 100);
    let directory = tempfile::tempdir().unwrap();
    let workers = workers(&Address::Unix(directory.path().join("none")), b"", PATIENT);
    attempt(&workers, &job, &env(&medium)).unwrap_err();
    let statistics = workers.statistics().remove(0);
    assert_eq!(statistics.failures, [("unreachable", 1)]);
    assert!(statistics.last_failure.is_some());
}

/// Fault 11: a cancelled attempt changes no file any more, although the worker goes on for a moment.
#[test]
fn cancelled_attempt_writes_nothing_through_its_host() {
    let mut rng = Rng::new(8);
    for _ in 0..20 {
        let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new());
        let (_, job) = content(&mut rng, &medium, 1000);
        let worker = RunningWorker::start(worker_options());
        let workers = workers(&worker.address, b"", PATIENT);
        let remote = workers.offer(&job, &shape_of(&job), &env(&medium), PROOF).unwrap();
        while outputs(&medium).is_empty() && worker_is_running(&workers) {
            std::thread::yield_now();
        }
        drop(remote);
        job.discard_outputs(&*medium).unwrap();
        let (done, failed) = worker.wait_for(1);
        assert_eq!(done + failed, 1);
        assert!(outputs(&medium).is_empty());
    }
}

fn worker_is_running(workers: &dyn Offload) -> bool {
    workers.statistics().remove(0).running > 0
}

#[test]
fn slots_bound_the_jobs_of_a_worker() {
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new());
    let (_, job) = content(&mut Rng::new(9), &medium, 3000);
    let worker = RunningWorker::start(worker_options());
    let workers = workers(&worker.address, b"", PATIENT);
    // Before it said how many, it gets one.
    let mut first = workers.offer(&job, &shape_of(&job), &env(&medium), PROOF).unwrap();
    assert!(workers.offer(&job, &shape_of(&job), &env(&medium), PROOF).is_none());
    wait(&mut *first).unwrap();
}

/// Hosts do not know of one another, so the worker itself refuses jobs beyond its slots.
#[test]
fn slots_bound_the_jobs_of_all_hosts_together() {
    let options = WorkerOptions { slots: 1, ..worker_options() };
    let worker = RunningWorker::start(options);
    let hosts: Vec<_> = (0..4).map(|_| workers(&worker.address, b"", PATIENT)).collect();
    let media: Vec<Arc<dyn Medium>> =
        (0..4).map(|_| Arc::new(MemoryMedium::new()) as Arc<dyn Medium>).collect();
    let jobs: Vec<_> =
        media.iter().map(|medium| content(&mut Rng::new(9), medium, 3000).1).collect();
    let mut attempts: Vec<_> = hosts
        .iter()
        .zip(media.iter().zip(&jobs))
        .map(|(host, (medium, job))| host.offer(job, &shape_of(job), &env(medium), PROOF).unwrap())
        .collect();
    let ended: Vec<_> = attempts.iter_mut().map(|attempt| wait(&mut **attempt)).collect();
    assert!(ended.iter().any(Result::is_ok));
    for error in ended.iter().filter_map(|ended| ended.as_ref().err()) {
        assert_eq!(error.kind(), ErrorKind::Retry, "{error}");
        assert!(error.to_string().contains("slots"), "{error}");
    }
}

#[test]
fn second_worker_at_a_socket_is_refused_and_a_dead_ones_socket_is_taken() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("worker");
    let address = Address::Unix(path.clone());
    // The socket of a process that was killed.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let worker = Worker::listen(&address, worker_options()).unwrap();
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    Worker::listen(&address, worker_options()).unwrap_err();
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
    drop(worker);
    assert!(!path.exists());
    std::fs::write(&path, "kept").unwrap();
    Worker::listen(&address, worker_options()).unwrap_err();
    assert_eq!(std::fs::read(&path).unwrap(), b"kept");
}

/// Every block of a table with a dictionary needs it; it comes over the link once a job.
#[test]
fn a_dictionary_crosses_the_link_once() {
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new());
    let (_, mut job) = content(&mut Rng::new(15), &medium, 3000);
    let (account, id) = (Account::unlimited("test"), DictionaryId(1));
    let mut bytes = vec![0; 64 << 10];
    Rng::new(16).fill(&mut bytes);
    let dictionary = Dictionary::new(id, &bytes, &account).unwrap();
    dictionary.write(&*medium, STORE, Purpose::Flush).unwrap();
    let dictionaries = Arc::new(StoreDictionaries::new(Arc::clone(&medium), STORE, account));
    let with = Env { dictionaries, ..env(&medium) };
    // The outputs of a first merge are the inputs of a second one, which has another codec, so that it
    // copies no block unread.
    (job.output.codec, job.output.level, job.output.dictionary) = (Codec::Zstd, 1, Some(id));
    job.output.table_bytes_max = 1 << 20;
    let first = compact::run(job.clone(), &with).unwrap();
    let blocks: u64 = first.tables.iter().map(|it| it.properties.blocks).sum();
    assert!(blocks > 50 && first.tables.iter().all(|it| it.properties.dictionaries == [id]));
    let input = |it: &table::Summary| Input {
        id: it.table,
        file_bytes: it.file_bytes,
        digest: it.digest,
        bounds: KeyRange::all(),
        seqno: None,
    };
    job.inputs = vec![InputRun { tables: first.tables.iter().map(input).collect() }];
    (job.output.codec, job.output.dictionary) = (Codec::Lz4, None);
    job.output.ids = TableId(OUTPUTS + 500)..TableId(OUTPUTS + 900);
    let worker = RunningWorker::start(worker_options());
    let workers = workers(&worker.address, b"", PATIENT);
    let mut remote = workers.offer(&job, &shape_of(&job), &with, PROOF).unwrap();
    let outcome = wait(&mut *remote).unwrap();
    assert_eq!(outcome.counts.read, first.counts.kept);
    let job_bytes = outcome.bytes_read + outcome.bytes_written();
    drop(remote);
    worker.wait_for(1);
    let link_bytes = loop {
        let statistics = workers.statistics().remove(0);
        if statistics.running == 0 {
            break statistics.link_bytes;
        }
        std::thread::yield_now();
    };
    let most = job_bytes + job_bytes / 5 + 2 * bytes.len() as u64;
    assert!(
        (job_bytes..most).contains(&link_bytes),
        "{link_bytes} of {job_bytes}, {blocks} blocks"
    );
}

/// Memory beyond the grant of a job is refused: the memory of a worker is bounded.
#[test]
fn a_job_that_needs_more_memory_than_its_grant_fails() {
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new());
    let mut content = Content::default();
    for seqno in [2, 1] {
        let mut value = vec![0; 24 << 20];
        Rng::new(seqno).fill(&mut value);
        let trailer = Trailer::new(Seqno::new(seqno), EntryKind::Put);
        let versions = [(key(1), trailer, value)];
        let table = write(&medium, TableId(seqno), &versions, &RangeDeletes::default()).unwrap();
        content.runs.push(InputRun { tables: vec![table] });
    }
    let job = content.job(&[]);
    let worker = RunningWorker::start(worker_options());
    let workers = workers(&worker.address, b"", PATIENT);
    let error = attempt(&workers, &job, &env(&medium)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Retry, "{error}");
    assert_eq!(workers.statistics().remove(0).failures, [("job failed", 1)]);
    assert!(outputs(&medium).is_empty());
}
