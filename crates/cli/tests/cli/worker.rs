//! `terrace worker` and hosts that use it, as processes; each is killed under load.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use crate::support::*;

/// Most kills of a long test.
const KILLS_LONG: usize = 200;

/// The program of workers in place of the one that is tested, with arguments before `worker`: of another
/// processor, under an emulator (`cargo xtask long --only aarch64`).
const PROGRAM: &str = "TERRACE_WORKER_PROGRAM";

/// A worker process, killed when dropped.
pub(crate) struct WorkerProcess(pub(crate) Child);

impl WorkerProcess {
    /// Starts a worker and waits until it listens. Returns it with its address.
    pub(crate) fn start(args: &[&str]) -> (Self, String) {
        let args = [&["worker"], args].concat();
        let mut command = match std::env::var(PROGRAM) {
            Err(_) => command(args),
            Ok(program) => {
                let mut words = program.split_whitespace();
                let mut command = Command::new(words.next().unwrap());
                command.args(words).args(args).stdin(Stdio::null());
                command
            }
        };
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening at ").unwrap().to_owned();
        (Self(child), address)
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// The arguments of a benchmark that merges: a store of a few megabytes, overwritten.
fn bench<'a>(data: &'a str, compaction: &'a str, stats: &'a str) -> Vec<&'a str> {
    let mut args =
        vec!["bench", "fillrandom", "overwrite", "--num", "60000", "--value-size", "200"];
    args.extend(["--settle", "--verify", "--json", "--data", data, "--compaction", compaction]);
    args.extend(["--stats", stats]);
    args.extend(MEMORY);
    args
}

fn compaction_of(stats: &Path) -> Value {
    let text = fs::read_to_string(stats).unwrap();
    serde_json::from_str::<Value>(&text).unwrap()["compaction"].clone()
}

#[test]
fn bench_with_a_worker_moves_merges_and_verifies() {
    let scratch = Scratch::new();
    let (data, socket) = (scratch.arg("store"), format!("unix:{}", scratch.arg("w")));
    let (_worker, address) = WorkerProcess::start(&["--listen", &socket, "--slots", "2"]);
    assert_eq!(address, socket);
    let (place, stats) = (format!("remote={address}"), scratch.arg("stats"));
    terrace(&bench(&data, &place, &stats)).good();
    let compaction = compaction_of(&scratch.path("stats"));
    assert!(compaction["remote_jobs"].as_u64().unwrap() > 0, "{compaction}");
    assert_eq!(compaction["workers"][0]["address"], socket);
    assert!(compaction["workers"][0]["link_bytes"].as_u64().unwrap() > 0);
    // Why the last ten merges ran where they did.
    let decisions = compaction["decisions"].as_array().unwrap();
    assert!((1..=10).contains(&decisions.len()), "{compaction}");
    let is_explained = |it: &Value| {
        let to_worker =
            it["place"] == "remote" && it["why"].as_str().unwrap().contains("configured");
        to_worker && it["bytes"].as_u64().unwrap() > 0
    };
    assert!(decisions.iter().any(is_explained), "{compaction}");
    let text = terrace(&["check", &data]).good();
    assert!(!text.is_empty());
}

#[test]
fn host_and_worker_must_agree_on_a_token_over_tcp() {
    let scratch = Scratch::new();
    for (name, token) in [("right", "secret\n"), ("wrong", "public")] {
        fs::write(scratch.path(name), token).unwrap();
    }
    let listen = ["--listen", "tcp://127.0.0.1:0"];
    let refused = terrace(&[&["worker"], &listen[..]].concat()).bad(2);
    assert!(refused.contains("token"), "{refused}");
    let beyond = ["worker", "--listen", "tcp://0.0.0.0:0", "--token-file", &scratch.arg("right")];
    assert!(terrace(&beyond).bad(2).contains("loopback"));
    let token_file = scratch.arg("right");
    let (_worker, address) =
        WorkerProcess::start(&[&listen[..], &["--token-file", &token_file]].concat());
    for (name, is_welcome) in [("right", true), ("wrong", false)] {
        let (data, stats) = (scratch.arg(&format!("store-{name}")), scratch.arg("stats"));
        let token = format!("compaction.token-file={}", scratch.arg(name));
        let place = format!("remote={address}");
        terrace(&[&bench(&data, &place, &stats)[..], &["--set", &token]].concat()).good();
        let compaction = compaction_of(&scratch.path("stats"));
        let remote = compaction["remote_jobs"].as_u64().unwrap();
        assert_eq!(remote > 0, is_welcome, "{compaction}");
        assert!(remote + compaction["local_jobs"].as_u64().unwrap() > 0);
    }
}

/// A file of the certificates for tests.
fn certificate(name: &str) -> String {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.join("tests/data/tls").join(name).display().to_string()
}

#[test]
fn workers_beyond_this_machine_need_tls_on_both_sides() {
    let scratch = Scratch::new();
    let token = scratch.arg("token");
    fs::write(&token, "secret").unwrap();
    let plain = ["worker", "--listen", "tcp://0.0.0.0:0", "--token-file", &token];
    let refused = terrace(&plain).bad(2);
    assert!(refused.contains("tls-cert") && refused.contains("allow-plaintext"), "{refused}");
    let listen = &plain[1..];
    let (open, _) = WorkerProcess::start(&[listen, &["--allow-plaintext"]].concat());
    drop(open);
    let (chain, key, ca) =
        (certificate("server.pem"), certificate("server.key"), certificate("ca.pem"));
    let keyless = terrace(&[&plain[..], &["--tls-cert", &chain]].concat()).bad(2);
    assert!(keyless.contains("--tls-key"), "{keyless}");
    let unusable = ["--tls-cert", &*chain, "--tls-key", &*chain];
    let unusable = terrace(&[&plain[..], &unusable].concat()).bad(2);
    assert!(unusable.contains("server.pem"), "{unusable}");
    let tls = ["--tls-cert", &*chain, "--tls-key", &*key, "--tls-ca", &*ca];
    let (_worker, address) = WorkerProcess::start(&[listen, &tls].concat());
    // The certificate is for this address.
    let place = format!("remote={}", address.replace("0.0.0.0", "127.0.0.1"));
    let setting =
        |name: &str, value: &str| ["--set".to_owned(), format!("compaction.{name}={value}")];
    let ca = setting("tls-ca", &ca);
    let own = [
        setting("tls-cert", &certificate("client.pem")),
        setting("tls-key", &certificate("client.key")),
    ]
    .concat();
    let (none, all) = (Vec::new(), [&ca[..], &own].concat());
    for (number, (settings, is_welcome)) in
        [(&none, false), (&ca.to_vec(), false), (&all, true)].into_iter().enumerate()
    {
        let (data, stats) = (scratch.arg(&format!("store-{number}")), scratch.arg("stats"));
        let token = setting("token-file", &token);
        let settings: Vec<&str> = token.iter().chain(settings.iter()).map(String::as_str).collect();
        terrace(&[&bench(&data, &place, &stats)[..], &settings].concat()).good();
        let compaction = compaction_of(&scratch.path("stats"));
        let remote = compaction["remote_jobs"].as_u64().unwrap();
        assert_eq!(remote > 0, is_welcome, "{settings:?}: {compaction}");
        assert_eq!(compaction["fallbacks"].as_u64().unwrap() > 0, !is_welcome, "{compaction}");
    }
    let data = scratch.arg("store");
    let half = [&ca[..], &own[..2]].concat();
    let half: Vec<&str> = half.iter().map(String::as_str).collect();
    let put = ["put", &*data, "a", "1", "--compaction", &*place];
    let refused = terrace(&[&put[..], &half].concat()).bad(2);
    assert!(refused.contains("compaction.tls-key"), "{refused}");
}

/// Every configuration of the benchmark runs, and its lines have the fields that scripts parse.
#[test]
fn offload_benchmark_runs_every_configuration() {
    let text =
        terrace(&["bench", "offload", "--quick", "--json", "--codecs", "deflate,lz4"]).good();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let modes = ["local", "compress only", "near compute", "near storage", "dispatcher"];
    assert_eq!(lines.len(), 2 * modes.len(), "{text}");
    for (number, line) in lines.iter().enumerate() {
        assert_eq!(line["mode"], modes[number % 5]);
        assert_eq!(line["codec"], ["deflate", "lz4"][number / 5]);
        for field in [
            "compaction_mb_per_second",
            "puts_per_second",
            "gets_per_second",
            "p99_us_during_compaction",
            "host_compaction_cpu_share",
            "link_share",
        ] {
            assert!(line[field].is_f64(), "{field} of {line}");
        }
        assert!(line["emulation"].as_str().unwrap().contains("core"), "{line}");
        // The engine is emulated for DEFLATE; it says where its rate is from.
        let has_engine = line["codec"] == "deflate" && line["mode"] != "local";
        let has_source = line["emulation"].as_str().unwrap().contains("github.com");
        assert_eq!(has_source, has_engine, "{line}");
        if has_engine && line["memo_hits"].is_f64() {
            let (hits, cpu) = (&line["memo_hits"], &line["memo_miss_cpu_seconds"]);
            assert!((0.0..=1.0).contains(&hits.as_f64().unwrap()), "{line}");
            // Blocks that the memo lacked, and only these, took processor time: it counts as the engine's.
            assert_eq!(hits.as_f64() < Some(1.0), cpu.as_f64() > Some(0.0), "{line}");
        }
        assert_eq!(line["quota"].is_null(), number % 5 == 0, "{line}");
        // The dispatcher moves jobs or not, as busy as the machine is.
        if line["mode"] != "dispatcher" {
            let is_moved = matches!(number % 5, 2 | 3);
            assert_eq!(line["remote_jobs"].as_u64().unwrap() > 0, is_moved, "{line}");
            assert_eq!(line["fallbacks"], 0, "{line}");
        }
    }
    // Near the storage the tables do not cross the link, apart from the sample that the host reads: of so few
    // pages it is a large part, and random.
    let link = |number: usize| lines[number]["link_share"].as_f64().unwrap();
    assert!(link(2) > 0.9 && link(3) < link(2) / 2.0, "{text}");
}

/// Fault 3: workers die by kill -9 while they write, with and without the store's directory; the host goes
/// on, and every answer is right.
fn workers_die(kills: usize) {
    let scratch = Scratch::new();
    let (data, stats) = (scratch.arg("store"), scratch.arg("stats"));
    fs::create_dir(&data).unwrap();
    let socket = format!("unix:{}", scratch.arg("w"));
    let root = format!("store={data}");
    let place = format!("remote={socket}");
    let mut args = bench(&data, &place, &stats);
    let num = (20_000 * kills).clamp(60_000, 2_000_000).to_string();
    args[4] = &num;
    let mut host = command(&args).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut killed = 0;
    while host.try_wait().unwrap().is_none() {
        let mut worker_args = vec!["--listen", &socket];
        if killed % 2 == 0 {
            worker_args.extend(["--root", &root]);
        }
        let (worker, _) = WorkerProcess::start(&worker_args);
        std::thread::sleep(std::time::Duration::from_millis(50 + 37 * (killed as u64 % 11)));
        drop(worker);
        killed += 1;
    }
    let output = host.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(killed > 0);
    // What dead workers left is removed by the next open at the latest; then the store is whole.
    terrace(&["keyspace", "list", &data]).good();
    terrace(&["check", &data]).good();
}

#[test]
fn workers_that_are_killed_cost_their_jobs_only() {
    workers_die(3);
}

#[test]
#[ignore = "minutes: 200 kills"]
fn workers_that_are_killed_cost_their_jobs_only_for_long() {
    workers_die(KILLS_LONG);
}

/// The host dies by kill -9 while workers write into its directory. The store opens, holds every write that
/// was durable, and no orphan stays.
fn hosts_die(kills: usize) {
    let scratch = Scratch::new();
    let data = scratch.arg("store");
    fs::create_dir(&data).unwrap();
    let socket = format!("unix:{}", scratch.arg("w"));
    let root = format!("store={data}");
    let (_worker, _) = WorkerProcess::start(&["--listen", &socket, "--root", &root]);
    let place = format!("remote={socket}");
    for kill in 0..kills {
        let fill = ["bench", "overwrite", "--num", "60000", "--value-size", "200", "--existing"];
        let first = ["bench", "fillrandom", "overwrite", "--num", "60000", "--value-size", "200"];
        let mut args = if kill == 0 { first.to_vec() } else { fill.to_vec() };
        args.extend(["--data", &data, "--compaction", &place]);
        args.extend(MEMORY);
        let mut host = command(&args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        // The first fill must end, so that later ones find its keys.
        let least = if kill == 0 { 3000 } else { 100 };
        std::thread::sleep(std::time::Duration::from_millis(least + 83 * (kill as u64 % 13)));
        let _ = host.kill();
        host.wait().unwrap();
        terrace(&["keyspace", "list", &data]).good();
        terrace(&["check", &data]).good();
    }
}

#[test]
fn hosts_that_are_killed_leave_stores_that_open() {
    hosts_die(3);
}

#[test]
#[ignore = "minutes: 200 kills"]
fn hosts_that_are_killed_leave_stores_that_open_for_long() {
    hosts_die(KILLS_LONG);
}

#[test]
fn wrong_places_are_refused() {
    let scratch = Scratch::new();
    let data = scratch.arg("store");
    for place in ["far", "remote=", "remote=w", "remote=unix:a,", "remote=tcp://192.0.2.1:1"] {
        let error = terrace(&["put", &data, "a", "1", "--compaction", place]).bad(2);
        assert!(error.contains("expected"), "{place}: {error}");
    }
    terrace(&["put", &data, "a", "1", "--compaction", "local"]).good();
}
