//! Simulations of the dispatcher: recorded traces of jobs on hosts and workers of known speed.

use base::{Codec, Rng};

use super::*;
use crate::dispatcher::{Dispatcher, PlacementMode};

/// Jobs of a fill and an overwrite: arrival in milliseconds, bytes of inputs.
const TRACE: &str = include_str!("../../traces/overwrite.txt");

#[derive(Clone, Copy)]
struct Speeds {
    /// Bytes per second of a job in this process, of one with a worker that compresses, and of one at a
    /// worker.
    local: f64,
    compress: f64,
    remote: f64,
    slots: usize,
    /// The most by which the time of a job differs, as a fraction.
    noise: f64,
}

#[derive(Clone, Copy)]
enum Policy {
    AllLocal,
    Dispatcher,
    /// By turns.
    RoundRobin,
    /// The place that ends each job first, with all speeds known.
    Clairvoyant,
}

fn trace() -> Vec<(f64, u64)> {
    let line = |line: &str| {
        let (at, bytes) = line.split_once(' ').unwrap();
        (at.parse::<f64>().unwrap() / 1e3, bytes.parse().unwrap())
    };
    TRACE.lines().filter(|it| !it.starts_with('#')).map(line).collect()
}

/// The sum of the times from a job's start to its end, seconds, and the number of moves from one place to
/// another. Jobs come one after the other, as merges of one keyspace do: each begins when it arrived and the
/// one before has ended.
fn simulate(speeds: Speeds, policy: Policy, rounds: usize, seed: u64) -> (f64, usize) {
    let mut rng = Rng::new(seed);
    let dispatcher = Dispatcher::new(PlacementMode::Auto);
    let name = |number: usize| Some(number.to_string());
    let (mut remote, mut total, mut flips, mut last) = (Rate::default(), 0.0, 0, Placement::Local);
    let all: Vec<_> = (0..rounds).flat_map(|_| trace()).collect();
    for (number, (_, bytes)) in all.into_iter().enumerate() {
        let job = JobShape { bytes, codec: Codec::Deflate, is_urgent: false };
        let worker =
            Candidate { is_ready: speeds.slots > 0, merges: true, remote, ..Candidate::default() };
        let places = [
            (Placement::Local, speeds.local),
            (Placement::Compress, speeds.compress),
            (Placement::Remote, speeds.remote),
        ];
        let place = match policy {
            Policy::AllLocal => Placement::Local,
            Policy::Dispatcher => dispatcher.place(&job, &[worker], speeds.slots > 0, &name),
            Policy::RoundRobin => places[number % 3].0,
            Policy::Clairvoyant => places.into_iter().max_by(|a, b| a.1.total_cmp(&b.1)).unwrap().0,
        };
        let rate = places.iter().find(|(it, _)| *it == place).unwrap().1;
        let noise = 1.0 + speeds.noise * (rng.below(2001) as f64 / 1000.0 - 1.0);
        let seconds = bytes as f64 / rate * noise;
        total += seconds;
        flips += usize::from(place != last);
        last = place;
        if place == Placement::Remote {
            remote.learn(bytes, seconds);
        }
        dispatcher.ended(&job, place, std::time::Duration::from_secs_f64(seconds));
    }
    (total, flips)
}

const MB: f64 = 1e6;

/// Speeds like those of DEFLATE and LZ4, with fast and slow workers.
fn all_speeds() -> Vec<Speeds> {
    let mut all = Vec::new();
    for local in [40.0, 200.0, 400.0] {
        for (compress, remote) in
            [(0.5, 0.17), (1.1, 0.35), (1.17, 1.0), (0.9, 3.0), (2.5, 6.0), (3.0, 0.1), (1.0, 1.0)]
        {
            for noise in [0.0, 0.2] {
                let (compress, remote) = (local * compress * MB, local * remote * MB);
                all.push(Speeds { local: local * MB, compress, remote, slots: 2, noise });
            }
        }
    }
    all
}

/// The goal: workers never make merges slower by more than a twentieth.
#[test]
fn the_dispatcher_is_never_slower_than_no_workers_by_more_than_a_twentieth() {
    for (number, speeds) in all_speeds().into_iter().enumerate() {
        let (all_local, _) = simulate(speeds, Policy::AllLocal, 3, 1);
        let (dispatched, _) = simulate(speeds, Policy::Dispatcher, 3, 1);
        assert!(dispatched < 1.05 * all_local, "{number}: {dispatched} {all_local}");
    }
}

#[test]
fn the_dispatcher_is_near_one_that_knows_all_speeds_and_before_turns() {
    for (number, speeds) in all_speeds().into_iter().enumerate() {
        let [best, turns, dispatched] =
            [Policy::Clairvoyant, Policy::RoundRobin, Policy::Dispatcher]
                .map(|policy| simulate(speeds, policy, 3, 2).0);
        assert!(dispatched <= 1.3 * best, "{number}: {dispatched} {best}");
        assert!(dispatched <= 1.06 * turns, "{number}: {dispatched} {turns}");
    }
}

#[test]
fn noise_of_a_fifth_hardly_flips_a_placement() {
    for (compress, remote) in [(1.0, 1.0), (0.8, 3.0), (2.0, 0.3), (0.3, 0.2)] {
        let local = 100.0 * MB;
        let (compress, remote) = (compress * local, remote * local);
        let speeds = Speeds { local, compress, remote, slots: 2, noise: 0.2 };
        let (_, flips) = simulate(speeds, Policy::Dispatcher, 3, 3);
        // Two tries and the way back; looking again now and then.
        assert!(flips <= 30, "{flips} of {}", 3 * trace().len());
    }
}

fn job(is_urgent: bool) -> JobShape {
    JobShape { bytes: 10_000_000, codec: Codec::Lz4, is_urgent }
}

fn known(rate: f64) -> Rate {
    let mut known = Rate::default();
    (0..3).for_each(|_| known.learn((rate * 10.0) as u64, 10.0));
    known
}

fn host(local: f64) -> Host {
    Host { local: known(local), usual_bytes: 10e6, seconds: 10.0, ..Host::default() }
}

#[test]
fn a_worker_that_is_not_there_or_only_compresses_gets_no_job() {
    let worker = Candidate { is_ready: true, merges: false, ..Candidate::default() };
    for workers in [&[][..], &[worker]] {
        let choice = choose(&job(false), &host(1e6), workers, false, Placement::Remote);
        assert_eq!(choice.place, Placement::Local);
    }
    let choice = choose(&job(false), &host(1e6), &[worker], true, Placement::Local);
    assert_eq!(choice.place, Placement::Compress, "{}", choice.why);
}

#[test]
fn urgent_jobs_go_to_known_places_without_recent_failures() {
    let worker =
        Candidate { is_ready: true, merges: true, remote: known(5e6), ..Candidate::default() };
    let place = |worker: Candidate, is_urgent| {
        choose(&job(is_urgent), &host(1e6), &[worker], false, Placement::Local).place
    };
    assert_eq!(place(worker, true), Placement::Remote);
    let shaky = Candidate { failures_in_row: 1, ..worker };
    assert_eq!((place(shaky, true), place(shaky, false)), (Placement::Local, Placement::Remote));
    let unknown = Candidate { remote: Rate::default(), ..worker };
    assert_eq!(
        (place(unknown, true), place(unknown, false)),
        (Placement::Local, Placement::Remote)
    );
}

#[test]
fn a_full_worker_is_waited_for_only_if_it_is_faster_by_far() {
    let worker = |rate| Candidate {
        is_full: true,
        merges: true,
        remote: known(rate),
        ..Candidate::default()
    };
    let place = |rate, is_urgent| {
        choose(&job(is_urgent), &host(1e6), &[worker(rate)], false, Placement::Remote).place
    };
    assert_eq!(place(5e6, false), Placement::Wait);
    assert_eq!(place(5e6, true), Placement::Local);
    assert_eq!(place(2e6, false), Placement::Local);
}

#[test]
fn the_faster_of_two_workers_gets_the_job() {
    let worker = |rate, running| Candidate {
        is_ready: true,
        merges: true,
        running,
        remote: known(rate),
        ..Candidate::default()
    };
    let workers = [worker(2e6, 0), worker(8e6, 1), worker(8e6, 0)];
    let choice = choose(&job(false), &host(1e6), &workers, false, Placement::Local);
    assert_eq!((choice.place, choice.worker), (Placement::Remote, Some(2)));
}
