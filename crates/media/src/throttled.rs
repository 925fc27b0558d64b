//! A medium of limited speed: for rate-limited background work, and for tests of slowness.
//!
//! A token bucket in bytes and one in operations, shared by all files and queues: an operation
//! takes its tokens when it is asked for and reaches the device once both buckets are out of debt.
//! So a large operation is not cut up, the rate holds over any second, and order is kept. Names
//! are not limited; a sync is one operation without bytes.
//!
//! Concurrency: one short lock an operation; waiting happens outside it.

use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use base::Result;
use parking_lot::Mutex;

use crate::{
    Access, Buf, Capabilities, Completion, File, Listing, Medium, Pace, Purpose, Queue, Refused,
    Request, Space,
};

/// The most of both; 0 stands for no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rate {
    /// Bytes read, written and stored per second.
    pub bytes_per_second: u64,
    /// Operations per second.
    pub ops_per_second: u64,
}

impl Rate {
    /// The time that an operation of `bytes` takes from the budget.
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
    /// Limits `inner` to `rate`. A device at rest lets through at once what fits `burst`.
    #[must_use]
    pub fn new(inner: Arc<dyn Medium>, rate: Rate, burst: Duration, pace: Pace) -> Self {
        let bucket = Bucket { rate, burst, pace, paid_until: Mutex::new(Duration::ZERO) };
        Self { inner, bucket: Arc::new(bucket) }
    }

    fn file(&self, inner: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(ThrottledFile { inner, bucket: Arc::clone(&self.bucket) })
    }
}

/// The bucket, kept as the time until which its tokens are spent.
#[derive(Debug)]
struct Bucket {
    rate: Rate,
    burst: Duration,
    pace: Pace,
    paid_until: Mutex<Duration>,
}

impl Bucket {
    /// Takes the tokens of an operation; when it may start.
    fn take(&self, bytes: usize) -> Duration {
        let now = self.pace.now();
        let mut paid_until = self.paid_until.lock();
        // Tokens saved up beyond the burst are lost.
        let start = (*paid_until).max(now.saturating_sub(self.burst));
        *paid_until = start.saturating_add(self.rate.cost(bytes));
        start
    }

    fn wait_until(&self, due: Duration) {
        self.pace.wait(due.saturating_sub(self.pace.now()));
    }

    /// Takes the tokens and waits for them.
    fn pay(&self, bytes: usize) {
        let due = self.take(bytes);
        self.wait_until(due);
    }
}

impl Medium for Throttled {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn create(&self, name: &str, access: Access, reserve: u64) -> Result<Arc<dyn File>> {
        self.inner.create(name, access, reserve).map(|file| self.file(file))
    }

    fn open(&self, name: &str, access: Access) -> Result<Arc<dyn File>> {
        self.inner.open(name, access).map(|file| self.file(file))
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.inner.remove(name)
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.inner.rename(from, to)
    }

    fn link(&self, name: &str, to: &dyn Medium) -> Result<bool> {
        self.inner.link(name, to)
    }

    fn list(&self) -> Result<Vec<Listing>> {
        self.inner.list()
    }

    fn space(&self) -> Result<Option<Space>> {
        self.inner.space()
    }

    fn sync_names(&self, names: &[&str]) -> Result<()> {
        self.inner.sync_names(names)
    }

    fn lock(&self) -> Result<Box<dyn Any + Send + Sync>> {
        self.inner.lock()
    }

    fn queue(&self, depth: usize) -> Result<Box<dyn Queue>> {
        let inner = self.inner.queue(depth)?;
        let bucket = Arc::clone(&self.bucket);
        Ok(Box::new(ThrottledQueue { inner, bucket, held: VecDeque::new() }))
    }

    fn undecorated(&self) -> &dyn Any {
        self.inner.undecorated()
    }
}

struct ThrottledFile {
    inner: Arc<dyn File>,
    bucket: Arc<Bucket>,
}

impl File for ThrottledFile {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn size(&self) -> Result<u64> {
        self.inner.size()
    }

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

    fn prepare_stores(&self, at: u64) {
        self.inner.prepare_stores(at);
    }

    fn write_ahead(&self, at: u64, len: u64, purpose: Purpose) -> u64 {
        self.inner.write_ahead(at, len, purpose)
    }

    fn sync(&self, purpose: Purpose) -> Result<()> {
        self.bucket.pay(0);
        self.inner.sync(purpose)
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.inner.set_len(len)
    }

    fn undecorated(&self) -> &dyn Any {
        self.inner.undecorated()
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
    /// Requests in order, with the time each may start.
    held: VecDeque<(Duration, Request)>,
}

impl ThrottledQueue {
    /// Hands on what is due.
    fn release(&mut self) {
        let now = self.bucket.pace.now();
        while let Some((due, request)) = self.held.pop_front_if(|(due, _)| *due <= now) {
            if let Err(Refused(request)) = self.inner.submit(request) {
                self.held.push_front((due, request));
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
        self.held.push_back((due, request));
        Ok(())
    }

    fn complete(&mut self, least: usize, out: &mut Vec<Completion>) -> Result<()> {
        let before = out.len();
        loop {
            self.release();
            let wanted = least.saturating_sub(out.len() - before);
            // Held requests become due while others run: wait for one at a time then.
            let most = if self.held.is_empty() { wanted } else { 1 };
            self.inner.complete(wanted.min(most), out)?;
            if out.len() - before >= least || self.in_flight() == 0 {
                return Ok(());
            }
            if self.inner.in_flight() == 0
                && let Some((due, _)) = self.held.front()
            {
                self.bucket.wait_until(*due);
            }
        }
    }

    fn in_flight(&self) -> usize {
        self.inner.in_flight() + self.held.len()
    }

    fn depth(&self) -> usize {
        self.inner.depth()
    }
}

impl Drop for ThrottledQueue {
    fn drop(&mut self) {
        // What was submitted happens, as with any queue; a broken queue cannot say so here.
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
        // Away from zero, where the burst would start negative.
        clock.advance(Duration::from_secs(100));
        let pace = Pace::manual(Arc::clone(&clock));
        (Throttled::new(Arc::new(MemoryMedium::new()), rate, burst, pace), clock)
    }

    #[test]
    fn blocking_operations_take_the_time_the_rate_allows() {
        let rate = Rate { bytes_per_second: 40_960, ops_per_second: 0 };
        let (medium, clock) = throttled(rate, Duration::ZERO);
        let file = medium.create("f", Access::Bytes, 4096).unwrap();
        let start = base::Clock::monotonic(&*clock);
        for _ in 0..20 {
            file.write(0, Buf::pages(1), Purpose::Compaction).1.unwrap();
        }
        // The first starts at once; each later one waits for the one before it.
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
        assert_eq!(out.len(), 6, "50 ms saved up at 100 a second, and the one that is due");
        queue.complete(10, &mut out).unwrap();
        assert_eq!(queue.in_flight(), 0);
        assert_eq!(base::Clock::monotonic(&*clock) - start, Duration::from_millis(100));
        let tokens: Vec<u64> = out.iter().map(|completion| completion.token).collect();
        assert_eq!(tokens, (0..16).collect::<Vec<u64>>());
    }
}
