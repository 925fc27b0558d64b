//! A pool of threads that compress blocks: the engine without hardware.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::thread::JoinHandle;

use base::sync::{Condvar, Mutex};
use base::{Account, Charge, Codec, Error, Result};

use super::decompress::check_codec;
use super::{BlockCompressor, BlockEngine, BlockStream};

/// Compressors of different levels that a thread keeps.
const KEPT_MAX: usize = 2;

/// Memory of the compressors of a thread, bytes: 2 MiB each, of zstd for blocks, and less of DEFLATE.
const THREAD_BYTES: u64 = KEPT_MAX as u64 * (2 << 20);

/// A place for the compressed form of a block.
#[derive(Default)]
struct Slot {
    done: Mutex<Option<Result<Vec<u8>>>>,
    ready: Condvar,
}

impl Slot {
    fn fill(&self, result: Result<Vec<u8>>) {
        *self.done.lock() = Some(result);
        self.ready.notify_one();
    }

    fn wait(&self) -> Result<Vec<u8>> {
        let mut done = self.done.lock();
        loop {
            match done.take() {
                Some(result) => return result,
                None => done = self.ready.wait(done),
            }
        }
    }
}

/// A block to compress.
struct Work {
    raw: Arc<Vec<u8>>,
    codec: Codec,
    level: i32,
    slot: Arc<Slot>,
}

impl Drop for Work {
    fn drop(&mut self) {
        // If a thread panics, its callers stop waiting.
        let mut done = self.slot.done.lock();
        if done.is_none() && Arc::strong_count(&self.slot) > 1 {
            *done = Some(Err(Error::retry("compression of a block").got("no thread for it")));
            self.slot.ready.notify_one();
        }
    }
}

#[derive(Default)]
struct Queue {
    work: VecDeque<Work>,
    /// Threads that have not ended.
    threads: usize,
    is_over: bool,
}

/// A thread of the pool, counted until it ends, even if it panics.
struct Living<'a>(&'a Shared);

impl Drop for Living<'_> {
    fn drop(&mut self) {
        let mut queue = self.0.queue.lock();
        queue.threads = queue.threads.saturating_sub(1);
        if queue.threads == 0 {
            // Nobody takes a block any more, so nobody may wait for one.
            queue.is_over = true;
            queue.work.clear();
        }
    }
}

struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
    account: Account,
}

/// A pool of threads that compress blocks. Its queue is as long as its streams make it: each has a bounded
/// number of blocks in flight. Dropping it ends the threads.
pub struct SoftPool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    _charge: Charge,
}

impl SoftPool {
    /// A pool of `threads` threads; their memory is charged to `account`.
    ///
    /// # Errors
    /// `Invalid` if there are none or more than 64; `Retry` if memory or threads are short.
    pub fn new(threads: usize, account: &Account) -> Result<Self> {
        if !(1..=64).contains(&threads) {
            return Err(Error::invalid("threads that compress").expected("1 to 64").got(threads));
        }
        let charge = account.charge(threads as u64 * THREAD_BYTES)?;
        let shared = Arc::new(Shared {
            queue: Mutex::default(),
            changed: Condvar::new(),
            account: Account::unlimited("compressing threads"),
        });
        let mut pool = Self { shared, threads: Vec::new(), _charge: charge };
        for _ in 0..threads {
            let shared = Arc::clone(&pool.shared);
            pool.shared.queue.lock().threads += 1;
            let run = move || {
                let _living = Living(&shared);
                run(&shared);
            };
            let spawned = std::thread::Builder::new().name("compress".into()).spawn(run);
            pool.threads.push(
                spawned.map_err(|error| Error::retry("thread that compresses").caused_by(error))?,
            );
        }
        Ok(pool)
    }
}

/// Compresses blocks until the pool is dropped.
fn run(shared: &Shared) {
    let mut kept: Vec<BlockCompressor> = Vec::new();
    loop {
        let work = {
            let mut queue = shared.queue.lock();
            loop {
                match queue.work.pop_front() {
                    Some(work) => break work,
                    None if queue.is_over => return,
                    None => queue = shared.changed.wait(queue),
                }
            }
        };
        let found = kept.iter().position(|it| it.is_of(work.codec, work.level));
        let compressor = match found {
            Some(at) => Ok(kept.swap_remove(at)),
            // The pool's charge covers the compressors that a thread keeps.
            None => BlockCompressor::new(work.codec, work.level, &shared.account),
        };
        let result = compressor.and_then(|mut compressor| {
            let result = compressor.compress(&work.raw);
            kept.truncate(KEPT_MAX - 1);
            kept.push(compressor);
            result
        });
        work.slot.fill(result);
    }
}

impl BlockEngine for SoftPool {
    fn stream(&self, codec: Codec, level: i32, _: &Account) -> Option<Box<dyn BlockStream>> {
        if !matches!(codec, Codec::Zstd | Codec::Deflate) || check_codec(codec).is_err() {
            return None;
        }
        let (shared, slots) = (Arc::clone(&self.shared), VecDeque::new());
        Some(Box::new(PoolStream { shared, codec, level, slots }))
    }

    fn decompress(&self, _: Codec, _: &[u8], _: usize) -> Option<Vec<u8>> {
        // The thread that needs the block is as fast.
        None
    }
}

impl Drop for SoftPool {
    fn drop(&mut self) {
        self.shared.queue.lock().is_over = true;
        self.shared.changed.notify_all();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for SoftPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SoftPool({} threads)", self.threads.len())
    }
}

struct PoolStream {
    shared: Arc<Shared>,
    codec: Codec,
    level: i32,
    slots: VecDeque<Arc<Slot>>,
}

impl BlockStream for PoolStream {
    fn submit(&mut self, raw: &Arc<Vec<u8>>) -> Result<()> {
        let Self { codec, level, .. } = *self;
        let mut queue = self.shared.queue.lock();
        if queue.is_over {
            return Err(Error::closed("threads that compress"));
        }
        let slot = Arc::new(Slot::default());
        self.slots.push_back(Arc::clone(&slot));
        queue.work.push_back(Work { raw: Arc::clone(raw), codec, level, slot });
        drop(queue);
        self.shared.changed.notify_one();
        Ok(())
    }

    fn take(&mut self) -> Result<Vec<u8>> {
        let slot = self.slots.pop_front();
        let slot = slot.ok_or_else(|| Error::invalid("block to take").expected("one submitted"))?;
        slot.wait()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The last thread of a pool panicked.
    #[test]
    fn blocks_that_no_thread_is_left_for_are_given_back() {
        let shared = Arc::new(Shared {
            queue: Mutex::new(Queue { threads: 1, ..Queue::default() }),
            changed: Condvar::new(),
            account: Account::unlimited("test"),
        });
        let stream = |shared: &Arc<Shared>| {
            let (shared, slots) = (Arc::clone(shared), VecDeque::new());
            PoolStream { shared, codec: Codec::Deflate, level: 6, slots }
        };
        let mut waiting = stream(&shared);
        waiting.submit(&Arc::new(vec![1])).unwrap();
        drop(Living(&shared));
        let slot = waiting.slots.front().unwrap().done.lock().take();
        assert!(slot.is_some_and(|done| done.is_err()), "nobody waits for it");
        assert!(stream(&shared).submit(&Arc::new(vec![1])).is_err());
    }

    #[test]
    fn blocks_come_back_in_order_and_whole_from_several_streams() {
        let account = Account::unlimited("test");
        let pool = SoftPool::new(2, &account).unwrap();
        let mut streams: Vec<_> = [(Codec::Deflate, 6), (Codec::Deflate, 1), (Codec::Zstd, 3)]
            .into_iter()
            .filter_map(|(codec, level)| Some((codec, pool.stream(codec, level, &account)?)))
            .collect();
        let raw = |number: u8| Arc::new(vec![number; 3000 + usize::from(number)]);
        for number in 0..30 {
            streams.iter_mut().for_each(|(_, stream)| stream.submit(&raw(number)).unwrap());
        }
        for number in 0..30 {
            for (codec, stream) in &mut streams {
                let (payload, expected) = (stream.take().unwrap(), raw(number));
                let found = super::super::decompress(*codec, None, &payload, expected.len());
                assert_eq!(found.unwrap(), **expected);
            }
        }
        for (_, stream) in &mut streams {
            assert!(stream.take().is_err());
        }
        assert!(pool.stream(Codec::Lz4, 0, &account).is_none());
        drop(pool);
        // The threads are gone: nobody waits for them.
        assert!(streams[0].1.submit(&raw(1)).is_err());
        assert!(streams[0].1.take().is_err(), "a block that was refused has no compressed form");
        assert!(SoftPool::new(0, &account).is_err());
        assert!(SoftPool::new(1, &base::Budget::new(1000).account("test")).is_err());
    }
}
