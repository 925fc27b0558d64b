//! A medium of limited speed: for rate-limited background work, and for tests of slow devices.
//!
//! Two token buckets, one in bytes and one in operations, are shared by all files and queues. An operation
//! takes its tokens when it is requested and reaches the device once neither bucket is in debt. So a large
//! operation is not split, the rate holds over any second, and operations keep their order. Operations on
//! names are not limited; a sync counts as one operation of no bytes.
//!
//! Concurrency: one short lock an operation; waiting happens outside it.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use base::Result;
use parking_lot::Mutex;

use crate::{Access, Buf, Completion, File, Medium, Pace, Purpose, Queue, Refused, Request};

/// Limits for bytes and operations; 0 means no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rate {
    /// Bytes read, written and stored per second.
    pub bytes_per_second: u64,
    /// Operations per second.
    pub ops_per_second: u64,
}

impl Rate {
    /// How long an operation of `bytes` occupies the slower of the two buckets.
    fn cost(self, bytes: usize) -> Duration {
        let share = |amount: u64, rate: u64| {
            if rate == 0 { 0.0 } else { amount as f64 / rate as f64 }
        };
        let seconds = share(bytes as u64, self.bytes_per_second).max(share(1, self.ops_per_second));
        Duration::from_secs_f64(seconds.min(1e6))
    }
}

/// Lets operations through at a limited rate.
#[derive(Debug)]
pub struct Throttled {
    inner: Arc<dyn Medium>,
    bucket: Arc<Bucket>,
}

impl Throttled {
    /// Limits `inner` to `rate`. After idling, operations worth `burst` of time pass at once.
    #[must_use]
    pub fn new(inner: Arc<dyn Medium>, rate: Rate, burst: Duration, pace: Pace) -> Self {
        let bucket = Bucket { rate, burst, pace, paid_until: Mutex::new(Duration::ZERO) };
        Self { inner, bucket: Arc::new(bucket) }
    }

    fn file(&self, inner: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(ThrottledFile { inner, bucket: Arc::clone(&self.bucket) })
    }
}

/// Both buckets, kept as the time until which their tokens are spent.
#[derive(Debug)]
struct Bucket {
    rate: Rate,
    burst: Duration,
    pace: Pace,
    paid_until: Mutex<Duration>,
}

impl Bucket {
    /// Takes the tokens of an operation. Returns when the operation may start.
    fn take(&self, bytes: usize) -> Duration {
        let now = self.pace.now();
        let mut paid_until = self.paid_until.lock();
        // Tokens saved beyond the burst are lost.
        let start = (*paid_until).max(now.saturating_sub(self.burst));
        *paid_until = start.saturating_add(self.rate.cost(bytes));
        start
    }

    fn wait_until(&self, due: Duration) {
        self.pace.wait(due.saturating_sub(self.pace.now()));
    }

    /// Takes the tokens of an operation and waits until it may start.
    fn pay(&self, bytes: usize) {
        let due = self.take(bytes);
        self.wait_until(due);
    }
}

impl Medium for Throttled {
    crate::delegate!(inner: capabilities, remove, rename, link, list, space, sync_names, lock);
    crate::delegate!(inner: undecorated);

    fn create(&self, name: &str, access: Access, reserve: u64) -> Result<Arc<dyn File>> {
        self.inner.create(name, access, reserve).map(|file| self.file(file))
    }

    fn open(&self, name: &str, access: Access) -> Result<Arc<dyn File>> {
        self.inner.open(name, access).map(|file| self.file(file))
    }

    fn queue(&self, depth: usize) -> Result<Box<dyn Queue>> {
        let inner = self.inner.queue(depth)?;
        let bucket = Arc::clone(&self.bucket);
        Ok(Box::new(ThrottledQueue { inner, bucket, delayed: VecDeque::new() }))
    }
}

struct ThrottledFile {
    inner: Arc<dyn File>,
    bucket: Arc<Bucket>,
}

impl File for ThrottledFile {
    crate::delegate!(inner: name, size, prepare_stores, write_ahead, set_len, undecorated);

    fn read(&self, at: u64, buf: Buf, purpose: Purpose) -> (Buf, Result<()>) {
        self.bucket.pay(buf.len());
        self.inner.read(at, buf, purpose)
    }

    fn write(&self, at: u64, buf: Buf, purpose: Purpose) -> (Buf, Result<()>) {
        self.bucket.pay(buf.len());
        self.inner.write(at, buf, purpose)
    }

    fn store(&self, at: u64, bytes: &[u8], purpose: Purpose) -> Result<()> {
        self.bucket.pay(bytes.len());
        self.inner.store(at, bytes, purpose)
    }

    fn sync(&self, purpose: Purpose) -> Result<()> {
        self.bucket.pay(0);
        self.inner.sync(purpose)
    }
}

impl fmt::Debug for ThrottledFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Throttled({:?})", self.inner)
    }
}

struct ThrottledQueue {
    inner: Box<dyn Queue>,
    bucket: Arc<Bucket>,
    /// Requests not yet passed on, in order, with the time at which each may start.
    delayed: VecDeque<(Duration, Request)>,
}

impl ThrottledQueue {
    /// Passes on the requests that are due.
    fn release(&mut self) {
        let now = self.bucket.pace.now();
        while let Some((due, request)) = self.delayed.pop_front_if(|(due, _)| *due <= now) {
            if let Err(Refused(request)) = self.inner.submit(request) {
                self.delayed.push_front((due, request));
                return;
            }
        }
    }
}

impl Queue for ThrottledQueue {
    fn submit(&mut self, request: Request) -> Result<(), Refused> {
        if self.in_flight() >= self.depth() {
            return Err(Refused(request));
        }
        let due = self.bucket.take(request.op.buf().len());
        let last = self.delayed.back();
        base::invariant!(last.is_none_or(|(last, _)| *last <= due), "requests become due in order");
        self.delayed.push_back((due, request));
        Ok(())
    }

    fn complete(&mut self, least: usize, out: &mut Vec<Completion>) -> Result<()> {
        let before = out.len();
        loop {
            self.release();
            let wanted = least.saturating_sub(out.len() - before);
            // Delayed requests become due while others run: then wait for one completion at a time.
            let most = if self.delayed.is_empty() { wanted } else { 1 };
            self.inner.complete(wanted.min(most), out)?;
            if out.len() - before >= least || self.in_flight() == 0 {
                return Ok(());
            }
            if self.inner.in_flight() == 0
                && let Some((due, _)) = self.delayed.front()
            {
                self.bucket.wait_until(*due);
            }
        }
    }

    fn in_flight(&self) -> usize {
        self.inner.in_flight() + self.delayed.len()
    }

    crate::delegate!(inner: depth);
}

impl Drop for ThrottledQueue {
    fn drop(&mut self) {
        // Submitted operations take place, as with any queue; an error cannot be returned from here.
        drop(self.complete(usize::MAX, &mut Vec::new()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MemoryMedium, Op};
    use base::ManualClock;

    fn throttled(rate: Rate, burst: Duration) -> (Throttled, Arc<ManualClock>) {
        let clock = Arc::new(ManualClock::default());
        // Not at zero: the burst would start before the clock's first instant.
        clock.advance(Duration::from_secs(100));
        let pace = Pace::manual(Arc::clone(&clock));
        (Throttled::new(Arc::new(MemoryMedium::new()), rate, burst, pace), clock)
    }

    #[test]
    fn blocking_operations_take_as_long_as_the_rate_implies() {
        let rate = Rate { bytes_per_second: 40_960, ops_per_second: 0 };
        let (medium, clock) = throttled(rate, Duration::ZERO);
        let file = medium.create("f", Access::Bytes, 4096).unwrap();
        let start = base::Clock::monotonic(&*clock);
        for _ in 0..20 {
            file.write(0, Buf::pages(1), Purpose::Compaction).1.unwrap();
        }
        // The first starts at once; each later one waits for its predecessor's tokens.
        assert_eq!(base::Clock::monotonic(&*clock) - start, Duration::from_millis(1900));
    }

    #[test]
    fn a_queue_keeps_the_rate_and_the_burst() {
        let rate = Rate { bytes_per_second: 0, ops_per_second: 100 };
        let (medium, clock) = throttled(rate, Duration::from_millis(50));
        let file = medium.create("f", Access::Bytes, 4096).unwrap();
        let mut queue = medium.queue(16).unwrap();
        for token in 0..16 {
            let op = Op::Read { at: 0, buf: Buf::pages(1) };
            let file = Arc::clone(&file);
            queue.submit(Request { file, op, purpose: Purpose::Scrub, token }).unwrap();
        }
        let start = base::Clock::monotonic(&*clock);
        let mut out = Vec::new();
        queue.complete(0, &mut out).unwrap();
        assert_eq!(out.len(), 6, "50 ms of saved tokens at 100 a second, and the one that is due");
        queue.complete(10, &mut out).unwrap();
        assert_eq!(queue.in_flight(), 0);
        assert_eq!(base::Clock::monotonic(&*clock) - start, Duration::from_millis(100));
        let tokens: Vec<u64> = out.iter().map(|completion| completion.token).collect();
        assert_eq!(tokens, (0..16).collect::<Vec<u64>>());
    }
}
