use crate::Frame;

use super::*;

fn filled(pool: &FramePool, byte: u8) -> Option<Frame> {
    let mut frame = pool.alloc()?;
    frame.fill(byte);
    Some(frame.freeze())
}

#[cfg(not(feature = "shuttle"))]
mod on_threads {
    use base::{Budget, ErrorKind, Rng};

    use super::*;

    #[test] // I10
    fn a_pool_grows_chunk_by_chunk_up_to_its_limit_and_charges_first() {
        let budget = Budget::new(u64::MAX);
        let account = budget.account("frames");
        let frames_max = if cfg!(miri) { 6 } else { FRAMES_PER_CHUNK + 3 };
        let pool = FramePool::new(&account, frames_max, 0).unwrap();
        assert_eq!(pool.frames_grown(), 0);
        let before = budget.used();
        let frames: Vec<_> = std::iter::from_fn(|| filled(&pool, 1)).collect();
        assert_eq!(frames.len(), frames_max);
        assert!(budget.used() - before >= (frames_max * PAGE_BYTES) as u64);
        assert_eq!(budget.used(), FramePool::cost_bytes(frames_max));
        // Frames outlive the pool's handle and keep its memory.
        drop(pool);
        assert!(frames.iter().all(|frame| frame.iter().all(|byte| *byte == 1)));
        assert_eq!(budget.used(), FramePool::cost_bytes(frames_max));
        drop(frames);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn a_full_budget_stops_growth_and_freed_frames_are_allocated_again() {
        let budget = Budget::new(FramePool::cost_bytes(3));
        let pool = FramePool::new(&budget.account("frames"), 3, 0).unwrap();
        let held = budget.account("other").charge(PAGE_BYTES as u64).unwrap();
        assert!(pool.alloc().is_none());
        drop(held);
        let frames: Vec<_> = std::iter::from_fn(|| filled(&pool, 2)).collect();
        assert_eq!(frames.len(), 3);
        let kept = frames[0].clone();
        drop(frames);
        let again: Vec<_> = std::iter::from_fn(|| pool.alloc()).collect();
        assert_eq!(again.len(), 2, "one frame is pinned; no frame leaks");
        assert!(kept.iter().all(|byte| *byte == 2));
    }

    #[test]
    fn a_block_used_in_place_keeps_its_frame_and_a_shared_block_outlives_it() {
        let account = Account::unlimited("frames");
        let pool = FramePool::new(&account, 1, 0).unwrap();
        let frame = filled(&pool, 3).unwrap();
        let frame = frame.into_block().unwrap_err();
        assert!(frame.attach(vec![7; 100].into()));
        let block = frame.clone().into_block().unwrap();
        let frame = frame.try_thaw().unwrap_err();
        let shared = block.shared();
        assert_eq!((&*block, &*shared), (&[7; 100][..], &[7; 100][..]));
        drop(block);
        let mut frame = frame.try_thaw().unwrap();
        drop(frame.take_block());
        drop(frame);
        drop(pool);
        assert_eq!(&*shared, &[7; 100][..]);
    }

    /// `find` reads no memory outside the chunk, which is shorter than 2 MiB here.
    #[test]
    fn an_id_past_the_end_of_a_short_chunk_is_not_found() {
        let pool = FramePool::new(&Account::unlimited("frames"), 1, 0).unwrap();
        let name = FrameName { file: 1, page: 2 };
        let mut frame = pool.alloc().unwrap();
        frame.set_name(name);
        let frame = frame.freeze();
        assert!(pool.find(frame.id().unwrap(), name).is_some());
        for id in [2, FRAMES_PER_CHUNK as u32, FRAMES_PER_CHUNK as u32 + 1, u32::MAX] {
            let id = FrameId::new(id).unwrap();
            pool.prefetch(id);
            assert!(pool.find(id, name).is_none());
        }
    }

    #[test]
    fn a_frame_with_another_clone_does_not_thaw() {
        let account = Account::unlimited("frames");
        let pool = FramePool::new(&account, 1, 0).unwrap();
        let frame = filled(&pool, 3).unwrap();
        let clone = frame.clone();
        let frame = frame.try_thaw().unwrap_err();
        drop(clone);
        let mut frame = frame.try_thaw().unwrap();
        assert_eq!(frame[0], 3);
        frame[0] = 4;
        assert_eq!(frame.freeze()[0], 4);
    }

    #[test]
    fn a_heap_frame_is_charged_if_there_is_room_and_made_anyway() {
        let budget = Budget::new(5000);
        let account = budget.account("frames");
        let first = Frame::heap(&account, &[5; PAGE_BYTES]);
        assert!(budget.used() > PAGE_BYTES as u64);
        let second = Frame::heap(&account, &[6; PAGE_BYTES]);
        assert_eq!((first[0], second[PAGE_BYTES - 1]), (5, 6));
        assert!(first.is_unique() && !first.clone().is_unique());
        drop((first, second));
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn more_frames_than_32_bits_are_invalid() {
        let refused = FramePool::new(&Account::unlimited("frames"), usize::MAX, 0).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid);
    }

    /// Threads allocate frames, mark them, clone and drop them, and check that no other thread wrote to them.
    #[test]
    fn concurrent_threads_never_write_to_the_same_frame() {
        let (threads, rounds) = if cfg!(miri) { (3, 30) } else { (4, 20_000) };
        let pool = FramePool::new(&Account::unlimited("frames"), 3 * threads, 0).unwrap();
        let (mut rng, seed) = Rng::from_env();
        let seeds: Vec<u64> = (0..threads).map(|_| rng.next_u64()).collect();
        std::thread::scope(|scope| {
            for (thread, own_seed) in seeds.into_iter().enumerate() {
                let pool = &pool;
                scope.spawn(move || {
                    let mut rng = Rng::new(own_seed);
                    let mut held: Vec<(u8, Frame)> = Vec::new();
                    for round in 0..rounds {
                        if held.len() < 3 && rng.one_in(2) {
                            let mark = (round * threads + thread) as u8;
                            let Some(mut frame) = pool.alloc() else { continue };
                            frame[0] = mark;
                            frame[PAGE_BYTES - 1] = mark;
                            held.push((mark, frame.freeze()));
                        } else if !held.is_empty() {
                            let at = rng.below(held.len() as u64) as usize;
                            let (mark, frame) = held.swap_remove(at);
                            let clone = frame.clone();
                            drop(frame);
                            assert_eq!(clone[0], mark, "seed {seed}");
                            assert_eq!(clone[PAGE_BYTES - 1], mark, "seed {seed}");
                        }
                    }
                });
            }
        });
        let all: Vec<_> = std::iter::from_fn(|| pool.alloc()).collect();
        assert_eq!(all.len(), 3 * threads, "seed {seed}");
    }
}

/// Interleavings of two threads on two frames: no frame is allocated twice at once, none is lost.
#[cfg(feature = "shuttle")]
#[test]
fn shuttle_a_frame_has_one_owner() {
    crate::sync::explore(500, || {
        let pool = FramePool::new(&Account::unlimited("frames"), 2, 0).unwrap();
        let threads: Vec<_> = (0..2u8)
            .map(|thread| {
                let pool = pool.clone();
                shuttle::thread::spawn(move || {
                    for round in 0..3 {
                        let mark = thread * 16 + round;
                        if let Some(frame) = filled(&pool, mark) {
                            let clone = frame.clone();
                            drop(frame);
                            yield_now();
                            assert!(clone.iter().all(|byte| *byte == mark));
                        }
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let all: Vec<_> = std::iter::from_fn(|| pool.alloc()).collect();
        assert_eq!(all.len(), 2);
    });
}

/// Interleavings of a thread that allocates and frees frames with one that evacuates their chunk: frames in
/// use keep their content, and no frame is lost.
#[cfg(feature = "shuttle")]
#[test]
fn shuttle_a_chunk_with_a_frame_in_use_is_not_evacuated() {
    crate::sync::explore(500, || {
        let pool = FramePool::new(&Account::unlimited("frames"), 2, 0).unwrap();
        let user = pool.clone();
        let user = shuttle::thread::spawn(move || {
            for mark in 1..4 {
                if let Some(frame) = filled(&user, mark) {
                    yield_now();
                    assert!(frame.iter().all(|byte| *byte == mark));
                }
            }
        });
        for _ in 0..2 {
            if let Some(evacuation) = pool.evacuate(0) {
                yield_now();
                let _ = evacuation.finish();
            }
        }
        user.join().unwrap();
        let all: Vec<_> = std::iter::from_fn(|| pool.alloc()).collect();
        assert_eq!(all.len(), 2);
    });
}
