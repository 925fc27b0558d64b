//! Simulations of the dispatcher: recorded traces of jobs on hosts and workers of known speed.

use std::time::Duration;

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

/// What came of a simulation.
struct Simulated {
    /// The sum of the times from a job's start to its end, seconds.
    seconds: f64,
    jobs: usize,
    /// Jobs that only measured a placement, and how often the placement of the other jobs changed.
    looks: usize,
    moves: usize,
}

/// Jobs come one after the other, as merges of one keyspace do: each begins when it arrived and the one
/// before has ended. With the same seed all policies see the same noise.
fn simulate(speeds: Speeds, policy: Policy, rounds: usize, seed: u64) -> Simulated {
    let mut rng = Rng::new(seed);
    let dispatcher = Dispatcher::new(PlacementMode::Auto);
    let name = |number: usize| Some(number.to_string());
    let (mut remote, mut usual) = (Rate::default(), Placement::Local);
    let mut done = Simulated { seconds: 0.0, jobs: 0, looks: 0, moves: 0 };
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
            Policy::Dispatcher => {
                dispatcher.place(&job, &[worker], (speeds.slots > 0, true), &name)
            }
            Policy::RoundRobin => places[number % 3].0,
            Policy::Clairvoyant => places.into_iter().max_by(|a, b| a.1.total_cmp(&b.1)).unwrap().0,
        };
        let rate = places.iter().find(|(it, _)| *it == place).unwrap().1;
        let noise = 1.0 + speeds.noise * (rng.below(2001) as f64 / 1000.0 - 1.0);
        let mut seconds = bytes as f64 / rate * noise;
        let patience = dispatcher.patience(&job, remote.samples > 0);
        let patience = patience.filter(|_| place == Placement::Remote).map(|it| it.as_secs_f64());
        let comes_home = patience.filter(|patience| seconds > *patience);
        if let Some(patience) = comes_home {
            remote.learn_slow((patience * rate) as u64, patience);
            seconds = patience + bytes as f64 / speeds.local * noise;
        }
        done.seconds += seconds;
        done.jobs += 1;
        let decided = dispatcher.decisions().pop();
        if decided.is_some_and(|it| it.why == "its rate there is measured") {
            done.looks += 1;
        } else {
            done.moves += usize::from(place != usual);
            usual = place;
        }
        let took = Duration::from_secs_f64(seconds);
        if comes_home.is_some() {
            dispatcher.came_home(&job, took);
            continue;
        }
        if place == Placement::Remote {
            remote.learn(bytes, seconds);
        }
        dispatcher.ended(&job, place, took);
    }
    done
}

const MB: f64 = 1e6;

/// Speeds like those of DEFLATE and LZ4, with fast and slow workers.
fn all_speeds() -> Vec<Speeds> {
    let mut all = Vec::new();
    for local in [40.0, 200.0, 400.0] {
        for (compress, remote) in [
            (0.5, 0.17),
            (1.1, 0.35),
            (1.17, 1.0),
            (0.9, 3.0),
            (2.5, 6.0),
            (3.0, 0.1),
            (1.0, 1.0),
            (1.0, 0.01),
        ] {
            for noise in [0.0, 0.2] {
                let (compress, remote) = (local * compress * MB, local * remote * MB);
                all.push(Speeds { local: local * MB, compress, remote, slots: 2, noise });
            }
        }
    }
    all
}

/// Seeds of noise; without noise all are the same.
const SEEDS: u64 = 40;

/// The mean of `seconds` over the seeds.
fn mean_seconds(speeds: Speeds, policy: Policy) -> f64 {
    (0..SEEDS).map(|seed| simulate(speeds, policy, 3, seed).seconds).sum::<f64>() / SEEDS as f64
}

/// The promise to each host: workers never make its merges slower by more than a twentieth.
#[test]
fn the_dispatcher_is_never_slower_than_no_workers_by_more_than_a_twentieth() {
    for (number, speeds) in all_speeds().into_iter().enumerate() {
        for seed in 0..SEEDS {
            let all_local = simulate(speeds, Policy::AllLocal, 3, seed).seconds;
            let dispatched = simulate(speeds, Policy::Dispatcher, 3, seed).seconds;
            assert!(dispatched < 1.05 * all_local, "{number}: {dispatched} {all_local}");
        }
    }
}

/// On the average over noise. (Noise can hide an advantage of 1.17 from a host for all of a short trace; then
/// turns, which use it in one job of three, are faster by a twentieth.)
#[test]
fn the_dispatcher_is_near_one_that_knows_all_speeds_and_before_turns() {
    for (number, speeds) in all_speeds().into_iter().enumerate() {
        let [best, turns, dispatched] =
            [Policy::Clairvoyant, Policy::RoundRobin, Policy::Dispatcher]
                .map(|policy| mean_seconds(speeds, policy));
        assert!(dispatched <= 1.3 * best, "{number}: {dispatched} {best}");
        // Sums of the same numbers in another order, if all places are equal.
        assert!(dispatched <= turns * (1.0 + 1e-9), "{number}: {dispatched} {turns}");
    }
}

/// The split that is predicted for LZ4 is found, and most of its gain is had, in spite of the noise.
#[test]
fn an_advantage_of_a_sixth_is_used() {
    let (local, noise) = (100.0 * MB, 0.2);
    for (compress, remote) in [(1.17, 1.0), (1.0, 1.17), (1.17, 0.3)] {
        let speeds =
            Speeds { local, compress: compress * local, remote: remote * local, slots: 2, noise };
        let all_local = mean_seconds(speeds, Policy::AllLocal);
        let dispatched = mean_seconds(speeds, Policy::Dispatcher);
        // The whole gain would be 1 - 1 / 1.17 = 0.145.
        assert!(dispatched < 0.93 * all_local, "{compress} {remote}: {dispatched} {all_local}");
    }
}

/// Noise of a fifth moves nothing between places that differ by a factor of two: there is the one move to the
/// fastest. (It makes rates differ by a factor of 1.2 / 0.8 = 1.5 at most, and a move takes 1.12.) Between
/// equal places a move costs nothing, and is rare. Single jobs that measure a place are as
/// many as their rule says: at most one a place after 1, 2, 4, 8, 16, 32, 32... jobs.
#[test]
fn noise_of_a_fifth_moves_no_placement_that_matters() {
    let speeds = |local: f64, (compress, remote): (f64, f64), noise| {
        let (compress, remote) = (compress * local, remote * local);
        Speeds { local, compress, remote, slots: 2, noise }
    };
    let different = [(0.5, 3.0), (2.0, 0.3), (0.3, 0.2), (0.4, 2.0), (3.0, 0.1)];
    let equal = [(1.0, 1.0), (1.0, 0.5), (0.5, 1.0)];
    for (places, moves) in different.map(|it| (it, 1)).into_iter().chain(equal.map(|it| (it, 8))) {
        for (seed, noise) in (0..SEEDS).map(|seed| (seed, 0.2)).chain([(0, 0.0)]) {
            let done = simulate(speeds(100.0 * MB, places, noise), Policy::Dispatcher, 3, seed);
            let moves = if noise > 0.0 { moves } else { 1 };
            assert!(done.moves <= moves, "{places:?}: {} moves", done.moves);
            let looks = 2 * (6 + done.jobs / 32);
            assert!(done.looks <= looks, "{places:?}: {} of {looks} looks", done.looks);
        }
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
    let mut host = Host::default();
    (0..3).for_each(|_| host.ended((local * 10.0) as u64, Placement::Local, 10.0));
    host.usual_bytes = 10e6;
    host
}

#[test]
fn a_worker_that_is_not_there_or_only_compresses_gets_no_job() {
    let worker = Candidate { is_ready: true, merges: false, ..Candidate::default() };
    for workers in [&[][..], &[worker]] {
        let choice = choose(&job(false), &host(1e6), workers, false);
        assert_eq!(choice.place, Placement::Local);
    }
    let choice = choose(&job(false), &host(1e6), &[worker], true);
    assert_eq!(choice.place, Placement::Compress, "{}", choice.why);
}

#[test]
fn urgent_jobs_go_to_known_places_without_recent_failures() {
    let worker =
        Candidate { is_ready: true, merges: true, remote: known(5e6), ..Candidate::default() };
    let place =
        |worker: Candidate, is_urgent| choose(&job(is_urgent), &host(1e6), &[worker], false).place;
    assert_eq!(place(worker, true), Placement::Remote);
    let shaky = Candidate { failures_in_row: 1, ..worker };
    assert_eq!((place(shaky, true), place(shaky, false)), (Placement::Local, Placement::Remote));
    let unknown = Candidate { remote: Rate::default(), ..worker };
    assert_eq!(
        (place(unknown, true), place(unknown, false)),
        (Placement::Local, Placement::Remote)
    );
    // A worker that is no place for an urgent job does not keep it from one that is.
    for other in [unknown, shaky] {
        let choice = choose(&job(true), &host(1e6), &[other, worker], false);
        assert_eq!((choice.place, choice.worker), (Placement::Remote, Some(1)));
    }
    let mut host = host(1e6);
    (0..3).for_each(|_| host.ended(20_000_000, Placement::Compress, 10.0));
    let compresses = Candidate { merges: false, ..worker };
    assert_eq!(choose(&job(true), &host, &[compresses], true).place, Placement::Compress);
}

/// A merge of nothing takes no time anywhere. It says nothing, and it leaves the usual place as it is.
#[test]
fn jobs_without_bytes_move_nothing() {
    let worker =
        Candidate { is_ready: true, merges: true, remote: known(5e6), ..Candidate::default() };
    let mut host = host(1e6);
    for bytes in [10_000_000, 0, 10_000_000] {
        let choice = choose(&JobShape { bytes, ..job(false) }, &host, &[worker], false);
        assert_eq!(choice.place, Placement::Remote);
        host.placed(&choice);
        host.ended(bytes, Placement::Remote, bytes as f64 / 5e6);
    }
}

#[test]
fn a_full_worker_is_waited_for_only_if_it_is_faster_by_far() {
    let worker = |rate| Candidate {
        is_full: true,
        merges: true,
        remote: known(rate),
        ..Candidate::default()
    };
    let place = |rate, is_urgent| choose(&job(is_urgent), &host(1e6), &[worker(rate)], false).place;
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
    let choice = choose(&job(false), &host(1e6), &workers, false);
    assert_eq!((choice.place, choice.worker), (Placement::Remote, Some(2)));
}
