#![cfg(not(feature = "shuttle"))]

use std::time::{Duration, Instant};

use base::{Account, Budget, Rng};

use super::*;
use crate::Frame;

/// All frames of the pool, each filled and tagged with its number.
fn fill(pool: &FramePool) -> Vec<Option<Frame>> {
    let frames = std::iter::from_fn(|| pool.alloc());
    let filled = frames.zip(0u32..).map(|(mut frame, number)| {
        frame[..4].copy_from_slice(&number.to_le_bytes());
        let frame = frame.freeze();
        frame.set_tag(number);
        Some(frame)
    });
    filled.collect()
}

/// Hands over every frame of the evacuation without another handle, as a cache does.
fn hand_over(evacuation: &mut Evacuation<'_>, frames: &mut [Option<Frame>]) {
    let tags: Vec<u32> = evacuation.in_use().collect();
    for tag in tags {
        let Some(place) = frames.get_mut(tag as usize) else { continue };
        let Some(frame) = place.take_if(|frame| evacuation.contains(frame)) else { continue };
        match frame.try_thaw() {
            Ok(frame) => evacuation.take(frame).unwrap(),
            Err(pinned) => *place = Some(pinned),
        }
    }
}

const CHUNKS: usize = if cfg!(miri) { 2 } else { 8 };

#[test]
fn an_evacuated_chunk_is_given_back_and_restored_later() {
    let budget = Budget::new(u64::MAX);
    let pool = FramePool::new(&budget.account("frames"), CHUNKS * FRAMES_PER_CHUNK, 0).unwrap();
    let mut frames = fill(&pool);
    let full = budget.used();
    for gone in 1..=CHUNKS {
        let mut evacuation = pool.evacuate(0).unwrap();
        assert_eq!(evacuation.in_use().count(), FRAMES_PER_CHUNK);
        hand_over(&mut evacuation, &mut frames);
        assert_eq!(evacuation.finish(), FRAMES_PER_CHUNK * PAGE_BYTES);
        assert_eq!(full - budget.used(), (gone * FRAMES_PER_CHUNK * PAGE_BYTES) as u64);
        assert_eq!(pool.frames_grown(), (CHUNKS - gone) * FRAMES_PER_CHUNK);
    }
    assert!(pool.evacuate(0).is_none() && frames.iter().all(Option::is_none));
    let again = fill(&pool);
    assert_eq!((again.len(), budget.used()), (CHUNKS * FRAMES_PER_CHUNK, full));
    drop((again, pool));
    assert_eq!(budget.used(), 0);
}

#[test]
fn a_chunk_with_a_pinned_frame_is_passed_over_or_kept() {
    let account = Account::unlimited("frames");
    let pool = FramePool::new(&account, 2 * FRAMES_PER_CHUNK, 0).unwrap();
    let mut frames = fill(&pool);
    let pinned = frames[7].clone().unwrap();
    let mut evacuation = pool.evacuate(0).unwrap();
    assert!(!evacuation.contains(&pinned), "the chunk with a pinned frame is passed over");
    let other = frames[8].take().unwrap().try_thaw().unwrap();
    drop(evacuation.take(other).unwrap_err());
    hand_over(&mut evacuation, &mut frames);
    assert!(evacuation.finish() > 0);
    // `None`: first because the last chunk has a pinned frame, then because it is the last one to stay.
    assert!(pool.evacuate(0).is_none());
    assert_eq!(pinned[..4], 7u32.to_le_bytes());
    drop(pinned);
    assert!(pool.evacuate(1).is_none());
    // A frame that is pinned during the evacuation: all frames go back to the chunk.
    let mut evacuation = pool.evacuate(0).unwrap();
    let pinned = frames[7].clone();
    hand_over(&mut evacuation, &mut frames);
    assert_eq!(evacuation.finish(), 0);
    assert_eq!(frames.iter().flatten().count(), 1);
    pool.set_frames_max(FRAMES_PER_CHUNK);
    assert_eq!(std::iter::from_fn(|| pool.alloc()).collect::<Vec<_>>().len(), FRAMES_PER_CHUNK - 1);
    assert_eq!(pinned.unwrap()[..4], 7u32.to_le_bytes());
}

/// Set for a process of this binary that runs the test of resident memory and no other.
#[cfg(not(miri))]
const ALONE: &str = "TERRACE_ARENA_TEST_ALONE";

/// Resident memory of this process, bytes.
#[cfg(not(miri))]
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * PAGE_BYTES
}

#[test] // I10
#[cfg(not(miri))]
fn evacuation_shrinks_the_resident_memory_of_the_process() {
    // Other tests of this process allocate memory at the same time: measure in a process of its own.
    if std::env::var_os(ALONE).is_none() {
        let mut alone = std::process::Command::new(std::env::current_exe().unwrap());
        let name = "evacuation::tests::evacuation_shrinks_the_resident_memory_of_the_process";
        let done = alone.args(["--exact", name, "--nocapture"]).env(ALONE, "1").output().unwrap();
        let said = String::from_utf8_lossy(&done.stdout);
        let complained = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success() && said.contains("1 passed"), "{said}{complained}");
        return;
    }
    let chunks = 64;
    let pool = FramePool::new(&Account::unlimited("frames"), chunks * FRAMES_PER_CHUNK, 0).unwrap();
    let mut frames = fill(&pool);
    let full = resident();
    while let Some(mut evacuation) = pool.evacuate(0) {
        hand_over(&mut evacuation, &mut frames);
        assert!(evacuation.finish() > 0);
    }
    let given = full.saturating_sub(resident());
    assert!(given > chunks * FRAMES_PER_CHUNK * PAGE_BYTES / 4 * 3, "{given} bytes");
    drop(frames);
}

#[test]
fn a_chunk_without_frames_in_use_is_evacuated_first() {
    let pool = FramePool::new(&Account::unlimited("frames"), CHUNKS * FRAMES_PER_CHUNK, 0).unwrap();
    let mut frames = fill(&pool);
    let last = frames.len() - FRAMES_PER_CHUNK;
    frames[last..].fill(None);
    let evacuation = pool.evacuate(0).unwrap();
    assert_eq!(evacuation.in_use().count(), 0);
    assert!(evacuation.finish() > 0);
    assert!(frames[..last].iter().all(Option::is_some));
}

/// Threads allocate, hold and check frames while another thread evacuates chunks all the time.
#[test]
fn frames_keep_their_content_while_chunks_are_evacuated_and_restored() {
    let (threads, rounds) = if cfg!(miri) { (2, 60) } else { (3, 30_000) };
    let pool = FramePool::new(&Account::unlimited("frames"), CHUNKS * FRAMES_PER_CHUNK, 0).unwrap();
    let (mut rng, seed) = Rng::from_env();
    println!("TERRACE_SEED={seed}");
    let seeds: Vec<u64> = (0..threads).map(|_| rng.next_u64()).collect();
    let done = std::sync::atomic::AtomicUsize::new(0);
    let any_given = std::sync::atomic::AtomicBool::new(cfg!(miri));
    let given = std::thread::scope(|scope| {
        for own_seed in seeds {
            let (pool, done, any_given) = (&pool, &done, &any_given);
            scope.spawn(move || {
                let mut rng = Rng::new(own_seed);
                let mut held: Vec<(u64, Frame)> = Vec::new();
                // On a busy machine the evacuating thread may wait long; only a broken one takes minutes.
                let began = Instant::now();
                let goes_on = |round| {
                    let waits = || !any_given.load(std::sync::atomic::Ordering::SeqCst);
                    round < rounds || waits() && began.elapsed() < Duration::from_secs(300)
                };
                let mut most = 0;
                for round in (0..).take_while(|round| goes_on(*round)) {
                    // Hold many frames, of all chunks, for a while, then few, of one chunk.
                    if round % 2_000 == 0 {
                        most = [1, 16, FRAMES_PER_CHUNK][rng.below(3) as usize];
                    }
                    while held.len() > most {
                        let (mark, frame) = held.swap_remove(rng.below(held.len() as u64) as usize);
                        assert_eq!(frame[..8], mark.to_le_bytes());
                        assert_eq!(frame[PAGE_BYTES - 8..], mark.to_le_bytes());
                    }
                    let Some(mut frame) = pool.alloc() else { continue };
                    let mark = rng.next_u64();
                    frame[..8].copy_from_slice(&mark.to_le_bytes());
                    frame[PAGE_BYTES - 8..].copy_from_slice(&mark.to_le_bytes());
                    held.push((mark, frame.freeze()));
                }
                done.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            });
        }
        let mut given = 0;
        while done.load(std::sync::atomic::Ordering::SeqCst) < threads {
            given += pool.evacuate(0).map_or(0, Evacuation::finish);
            any_given.fetch_or(given > 0, std::sync::atomic::Ordering::SeqCst);
            std::thread::yield_now();
        }
        given
    });
    println!("{given} bytes given back");
    assert!(cfg!(miri) || given > 0);
    let all = std::iter::from_fn(|| pool.alloc()).collect::<Vec<_>>();
    assert_eq!(all.len(), CHUNKS * FRAMES_PER_CHUNK);
}
