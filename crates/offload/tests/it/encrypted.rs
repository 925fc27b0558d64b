//! Links over TLS: certificates that are accepted or refused, and bytes that are no handshake.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use base::{Rng, SystemClock};
use compact::offload::Offload;
use media::{Medium, MemoryMedium};
use terrace_offload::{Address, Credentials, HostTls, Timing, WorkerOptions, WorkerTls, Workers};

use crate::support::env;
use crate::workplace::{
    PATIENT, RunningWorker, SHORT, attempt, content, local, outputs, worker_options, workers,
};

const TOKEN: &[u8] = b"a secret that is looked for on the wire";

/// One of the certificates for tests; that of the server is for localhost and 127.0.0.1.
fn file(name: &str) -> PathBuf {
    let manifest = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.join("../cli/tests/data/tls").join(name)
}

/// The options of a worker with a certificate, which asks hosts for one or not.
fn options(is_mutual: bool, timing: Timing) -> WorkerOptions {
    let authorities = file("ca.pem");
    let authorities = is_mutual.then_some(&*authorities);
    let tls = WorkerTls::open(&file("server.pem"), &file("server.key"), authorities).unwrap();
    let token = Some(TOKEN.to_vec());
    WorkerOptions { tls: Some(tls), token, timing, ..worker_options() }
}

/// A host that trusts the authorities in `authorities`, with a certificate of its own or without.
fn host(address: &Address, authorities: &str, has_certificate: bool, timing: Timing) -> Workers {
    let (certificate, key) = (file("client.pem"), file("client.key"));
    let own = has_certificate.then_some((&*certificate, &*key));
    let tls = HostTls::open(&file(authorities), own).unwrap();
    let credentials = Credentials::new(TOKEN.to_vec()).encrypting(tls);
    let clock = Arc::new(SystemClock::new());
    Workers::new(vec![address.clone()], credentials, timing, clock).unwrap()
}

fn small() -> (Arc<dyn Medium>, compact::Job) {
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new());
    let (_, job) = content(&mut Rng::new(61), &medium, 300);
    (medium, job)
}

/// The reason and the text of an attempt that fails, without any output.
fn failure(workers: &Workers) -> (&'static str, String) {
    let (medium, job) = small();
    let error = attempt(workers, &job, &env(&medium)).unwrap_err();
    assert!(outputs(&medium).is_empty());
    let statistics = workers.statistics().remove(0);
    assert_eq!(statistics.failures.len(), 1, "{statistics:?}");
    (statistics.failures[0].0, error.to_string())
}

/// Passes the bytes of one connection on to `to`, changed by `change`, and keeps them.
fn forward(
    to: &Address,
    change: impl Fn(usize, &mut [u8]) + Send + Sync + 'static,
) -> (Address, JoinHandle<Vec<u8>>) {
    let Address::Tcp(to) = to.clone() else { panic!("a TCP address") };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("tcp://{}", listener.local_addr().unwrap()).parse().unwrap();
    let thread = std::thread::spawn(move || {
        let (host, _) = listener.accept().unwrap();
        let worker = TcpStream::connect(to).unwrap();
        let seen = Mutex::new(Vec::new());
        let pass = |mut from: &TcpStream, mut to: &TcpStream, is_changed: bool| {
            let (mut buf, mut passed) = (vec![0; 64 << 10], 0);
            while let Ok(count @ 1..) = from.read(&mut buf) {
                seen.lock().unwrap().extend_from_slice(&buf[..count]);
                if is_changed {
                    change(passed, &mut buf[..count]);
                }
                passed += count;
                if to.write_all(&buf[..count]).is_err() {
                    break;
                }
            }
            let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
        };
        std::thread::scope(|scope| {
            scope.spawn(|| pass(&host, &worker, true));
            pass(&worker, &host, false);
        });
        seen.into_inner().unwrap()
    });
    (address, thread)
}

fn holds(bytes: &[u8], piece: &[u8]) -> bool {
    bytes.windows(piece.len()).any(|window| window == piece)
}

#[test]
fn a_job_over_tls_writes_what_a_local_run_writes_and_nobody_reads_it() {
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new());
    let (_, job) = content(&mut Rng::new(60), &medium, 8000);
    let worker = RunningWorker::start_on_tcp("tcp://127.0.0.1:0", options(false, PATIENT));
    let (address, forwarded) = forward(&worker.address, |_, _| {});
    let workers = host(&address, "ca.pem", false, PATIENT);
    let outcome = attempt(&workers, &job, &env(&medium)).unwrap();
    assert_eq!(outcome.tables, local(&job, &medium).tables);
    drop(workers);
    let seen = forwarded.join().unwrap();
    assert!(seen.len() as u64 > outcome.bytes_read + outcome.bytes_written());
    assert!(!holds(&seen, TOKEN) && !holds(&seen, b"add.1"));
    // The same without TLS, for comparison.
    let plain = WorkerOptions { token: Some(TOKEN.to_vec()), ..worker_options() };
    let worker = RunningWorker::start_on_tcp("tcp://127.0.0.1:0", plain);
    let (address, forwarded) = forward(&worker.address, |_, _| {});
    job.discard_outputs(&*medium).unwrap();
    attempt(&crate::workplace::workers(&address, TOKEN, PATIENT), &job, &env(&medium)).unwrap();
    let seen = forwarded.join().unwrap();
    assert!(holds(&seen, TOKEN) && holds(&seen, b"add.1"));
}

#[test]
fn a_worker_of_another_authority_or_name_gets_no_token() {
    let worker = RunningWorker::start_on_tcp("tcp://127.0.0.1:0", options(false, PATIENT));
    // No authority, but a certificate all the same: it signed nothing.
    let (why, text) = failure(&host(&worker.address, "client.pem", false, PATIENT));
    assert_eq!(why, "tls", "{text}");
    assert!(text.contains("UnknownIssuer"), "{text}");
    // Its certificate is for 127.0.0.1.
    let worker = RunningWorker::start_on_tcp("tcp://127.0.0.2:0", options(false, PATIENT));
    let (why, text) = failure(&host(&worker.address, "ca.pem", false, PATIENT));
    assert_eq!(why, "tls", "{text}");
    assert!(text.contains("name"), "{text}");
    // A token alone is not enough for the host, and a handshake not for the worker.
    let worker = RunningWorker::start_on_tcp("tcp://localhost:0", options(false, PATIENT));
    let tls = HostTls::open(&file("ca.pem"), None).unwrap();
    let credentials = Credentials::new(b"another".to_vec()).encrypting(tls);
    let clock = Arc::new(SystemClock::new());
    let address = vec![worker.address.clone()];
    let (why, text) = failure(&Workers::new(address, credentials, PATIENT, clock).unwrap());
    assert!(why == "refused" && text.contains("token"), "{why}: {text}");
}

#[test]
fn with_an_authority_a_worker_serves_hosts_with_a_certificate_only() {
    let worker = RunningWorker::start_on_tcp("tcp://127.0.0.1:0", options(true, PATIENT));
    let (why, text) = failure(&host(&worker.address, "ca.pem", false, PATIENT));
    assert!(matches!(why, "tls" | "link"), "{why}: {text}");
    let (medium, job) = small();
    let workers = host(&worker.address, "ca.pem", true, PATIENT);
    attempt(&workers, &job, &env(&medium)).unwrap();
}

/// Each side says that the other one speaks TLS, or does not.
#[test]
fn plain_and_encrypted_sides_do_not_understand_each_other_and_say_so() {
    let encrypted = RunningWorker::start_on_tcp("tcp://127.0.0.1:0", options(false, PATIENT));
    let (why, text) = failure(&workers(&encrypted.address, TOKEN, PATIENT));
    // The worker closes without having read all: its alert may be lost.
    assert_eq!(why, "link", "{text}");
    let plain = WorkerOptions { token: Some(TOKEN.to_vec()), ..worker_options() };
    let plain = RunningWorker::start_on_tcp("tcp://127.0.0.1:0", plain);
    let (why, text) = failure(&host(&plain.address, "ca.pem", false, PATIENT));
    assert!(why == "tls" && text.contains("TLS handshake"), "{why}: {text}");
    // Both workers go on.
    let (medium, job) = small();
    let workers = host(&encrypted.address, "ca.pem", false, PATIENT);
    attempt(&workers, &job, &env(&medium)).unwrap();
    let (medium, job) = small();
    attempt(&crate::workplace::workers(&plain.address, TOKEN, PATIENT), &job, &env(&medium))
        .unwrap();
}

/// Bytes in place of a handshake.
#[derive(Clone, Copy, Debug)]
enum Stranger {
    /// Random bytes, then nothing.
    Garbage,
    /// A record of a handshake, a byte at a time.
    Trickle,
    /// Nothing at all.
    Silent,
    /// A record that is longer than any.
    Long,
    /// The end at once.
    Gone,
}

const STRANGERS: [Stranger; 5] =
    [Stranger::Garbage, Stranger::Trickle, Stranger::Silent, Stranger::Long, Stranger::Gone];

impl Stranger {
    /// Speaks until the other side is gone.
    fn speak(self, mut stream: TcpStream) {
        match self {
            Self::Garbage => {
                let mut bytes = vec![0; 5000];
                Rng::new(7).fill(&mut bytes);
                let _ = stream.write_all(&bytes);
            }
            Self::Trickle => {
                for byte in [0x16, 3, 1, 0x3f, 0xff, 1, 0, 0x3f, 0xfb].into_iter().chain([0; 5000])
                {
                    if stream.write_all(&[byte]).is_err() {
                        return;
                    }
                    std::thread::sleep(Duration::from_millis(10));
                }
                panic!("the other side is patient");
            }
            Self::Silent => {}
            Self::Long => {
                let _ = stream.write_all(&[0x16, 3, 1, 0xff, 0xff]);
                let _ = stream.write_all(&[1; 0xffff]);
            }
            Self::Gone => return,
        }
        let mut rest = Vec::new();
        match stream.read_to_end(&mut rest) {
            Err(error) if error.kind() != ErrorKind::ConnectionReset => panic!("{error}"),
            _ => {}
        }
    }
}

#[test]
fn strangers_are_cut_off_by_a_worker_and_others_are_served() {
    let worker = RunningWorker::start_on_tcp("tcp://127.0.0.1:0", options(false, SHORT));
    let Address::Tcp(address) = &worker.address else { panic!("a TCP address") };
    std::thread::scope(|scope| {
        for stranger in STRANGERS {
            scope.spawn(move || stranger.speak(TcpStream::connect(address).unwrap()));
        }
    });
    assert_eq!(worker.wait_for(5), (0, 5));
    // The handshake of a host has its full time. A slow machine may need more of it than there is.
    let workers = host(&worker.address, "ca.pem", false, PATIENT);
    let (medium, job) = small();
    loop {
        match attempt(&workers, &job, &env(&medium)) {
            Ok(_) => break,
            Err(error) => {
                println!("{error}");
                job.discard_outputs(&*medium).unwrap();
                std::thread::sleep(Duration::from_millis(100));
            }
        }
    }
}

#[test]
fn strangers_at_the_address_of_a_worker_cost_an_attempt() {
    for stranger in STRANGERS {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("tcp://{}", listener.local_addr().unwrap()).parse().unwrap();
        let thread = std::thread::spawn(move || stranger.speak(listener.accept().unwrap().0));
        let (why, text) = failure(&host(&address, "ca.pem", false, SHORT));
        assert_eq!(why, "tls", "{stranger:?}: {text}");
        thread.join().unwrap();
    }
}

/// Changed bytes are found by TLS at the end of their record, or make the record longer than the bytes that
/// arrive: no frame is made of them.
#[test]
fn changed_bytes_on_the_way_end_the_attempt() {
    let worker = RunningWorker::start_on_tcp("tcp://127.0.0.1:0", options(false, SHORT));
    for at in [3_usize, 200, 450, 1000, 20_000] {
        let (address, forwarded) = forward(&worker.address, move |begin, bytes| {
            for (number, byte) in (begin..).zip(bytes) {
                // More than the head of a record, which has a version that nobody reads.
                if (at..at + 12).contains(&number) {
                    *byte ^= 0x40;
                }
            }
        });
        let (why, text) = failure(&host(&address, "ca.pem", false, SHORT));
        let expected = ["tls", "link", "silent", "lease lost"];
        assert!(expected.contains(&why), "{at}: {why}: {text}");
        forwarded.join().unwrap();
    }
    assert_eq!(worker.wait_for(5), (0, 5));
}

#[test]
fn without_tls_a_link_stays_on_the_machine_unless_it_may_leave() {
    let address: Address = "tcp://192.0.2.1:1".parse().unwrap();
    let new = |credentials| {
        let clock = Arc::new(SystemClock::new());
        Workers::new(vec![address.clone()], credentials, SHORT, clock)
    };
    let refused = new(Credentials::default()).unwrap_err().to_string();
    assert!(refused.contains("TLS") && refused.contains("allow-plaintext"), "{refused}");
    new(Credentials::default().allowing_plaintext(true)).unwrap();
    new(Credentials::default().encrypting(HostTls::open(&file("ca.pem"), None).unwrap())).unwrap();
    let beyond: Address = "tcp://0.0.0.0:0".parse().unwrap();
    let plain = WorkerOptions { token: Some(TOKEN.to_vec()), ..worker_options() };
    let refused = terrace_offload::Worker::listen(&beyond, plain.clone()).unwrap_err().to_string();
    assert!(refused.contains("TLS") && refused.contains("allow-plaintext"), "{refused}");
    let open = WorkerOptions { allows_plaintext: true, ..plain };
    terrace_offload::Worker::listen(&beyond, open).unwrap();
    terrace_offload::Worker::listen(&beyond, options(false, PATIENT)).unwrap();
    // TLS does not spare the token.
    let stranger = WorkerOptions { token: None, ..options(false, PATIENT) };
    terrace_offload::Worker::listen(&beyond, stranger).unwrap_err();
}

#[test]
fn unusable_files_are_named() {
    let worker = |chain: &str, key: &str| {
        WorkerTls::open(&file(chain), &file(key), None).unwrap_err().to_string()
    };
    for (chain, key, named) in [
        ("missing.pem", "server.key", "missing.pem"),
        ("server.key", "server.key", "certificate of a worker"),
        ("server.pem", "server.pem", "key of a certificate"),
        ("server.pem", "client.key", "key of a certificate"),
    ] {
        let error = worker(chain, key);
        assert!(error.contains(named), "{chain} {key}: {error}");
    }
    let error = HostTls::open(&file("client.key"), None).unwrap_err().to_string();
    assert!(error.contains("authorities of workers"), "{error}");
}
