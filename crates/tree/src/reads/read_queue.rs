//! Many gets in flight from one thread.

use std::fmt;
use std::ops::Deref;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use base::{Error, Key, Result, Seqno};
use bytes::Bytes;
use media::Medium;
use parking_lot::Mutex;
use read::{Completed, Depth, PageFile, Queue, QueuedRead, ReadOp};
use table::{Pages, Step, Table};

use super::{Lookup, Probe, Reader, Value};
use crate::View;

/// The view of a queued get, which the get keeps alive.
struct PinnedView(Arc<View>);

impl Deref for PinnedView {
    type Target = Arc<View>;

    fn deref(&self) -> &Arc<View> {
        &self.0
    }
}

/// A lookup that owns its key and view, and caches its value as a row.
struct QueuedLookup {
    lookup: Lookup<Bytes, PinnedView>,
    /// It reads a hot row ahead, for no caller.
    is_ahead: bool,
}

impl ReadOp for QueuedLookup {
    type Output = Option<Value>;

    fn step(&mut self, supplied: Option<Pages>) -> Result<Step<Option<Value>>> {
        self.lookup.step(supplied)
    }

    fn device_read(&mut self) {
        self.lookup.device_read();
    }

    fn file(&self) -> Option<PageFile> {
        self.lookup.file()
    }

    fn table(&self) -> Option<&Arc<Table>> {
        self.lookup.table()
    }
}

impl QueuedRead for QueuedLookup {
    type Shared = Arc<Reader>;

    fn is_counted(&self) -> bool {
        !self.is_ahead
    }

    fn end(
        self,
        reader: &Arc<Reader>,
        output: Result<Option<Value>>,
        depth: Depth,
    ) -> Result<Option<Bytes>> {
        let value = output?;
        if self.is_ahead {
            if let Some(value) = &value {
                reader.rows.fill_ahead(&self.lookup, value, depth);
            }
            return Ok(None);
        }
        self.lookup.count(value.is_some());
        if let Some(value) = &value {
            reader.rows.fill(&self.lookup, value, depth);
        }
        Ok(value.map(|value| value.bytes))
    }
}

/// Gets in flight for one thread: submit keys, do other work, poll for results.
///
/// Results come in the order in which they are found. Not `Sync`: one queue, one thread.
pub struct ReadQueue {
    queue: Queue<QueuedLookup>,
}

/// A queue with at most `depth` reads at the device at once. Not a method, like the functions below:
/// [`ReadQueue`] is part of the public API, and their parameters are not.
///
/// # Errors
/// `Retry` if memory is short, or the device's error.
pub fn open_queue(reader: Arc<Reader>, medium: &dyn Medium, depth: usize) -> Result<ReadQueue> {
    let pages = Arc::clone(&reader.pages);
    Ok(ReadQueue { queue: Queue::new(pages, reader, medium, depth)? })
}

/// Starts a get of `key` in `view` at the seqno `at`; its result carries `token`. `now` is as for
/// [`Lookup::new`].
///
/// # Errors
/// `Retry` if the queue is full.
pub fn start_get(
    ReadQueue { queue }: &mut ReadQueue,
    view: &Arc<View>,
    key: Key<'_>,
    probe: Probe,
    at: Seqno,
    now: Option<u64>,
    token: u64,
) -> Result<()> {
    queue.check_room()?;
    if let Some(value) = queue.shared().row(view, key.bytes(), probe, at, now) {
        queue.complete(token, value.bytes);
        return Ok(());
    }
    let key = Bytes::copy_from_slice(key.bytes());
    let lookup = Lookup::new(key, probe, PinnedView(Arc::clone(view)), at, now);
    queue.start(token, QueuedLookup { lookup, is_ahead: false });
    Ok(())
}

/// Starts a read of `key` in `view` at the seqno `at` that fills the key's row ([`Rows::fill_ahead`]). The
/// result has no value.
///
/// # Errors
/// `Retry` if the queue is full.
///
/// [`Rows::fill_ahead`]: super::Rows::fill_ahead
pub(crate) fn start_row_ahead(
    ReadQueue { queue }: &mut ReadQueue,
    view: &Arc<View>,
    key: Key<'_>,
    probe: Probe,
    at: Seqno,
) -> Result<()> {
    queue.check_room()?;
    let key = Bytes::copy_from_slice(key.bytes());
    let lookup = Lookup::new(key, probe, PinnedView(Arc::clone(view)), at, None);
    queue.start(0, QueuedLookup { lookup, is_ahead: true });
    Ok(())
}

/// Whether `queue` reads the store of `reader`.
pub fn reads_from(queue: &ReadQueue, reader: &Arc<Reader>) -> bool {
    Arc::ptr_eq(queue.queue.shared(), reader)
}

impl ReadQueue {
    /// Gets with results that were not taken yet.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.queue.in_flight()
    }

    /// Gets that may be submitted now. Completed reads at the device make room.
    #[must_use]
    pub fn room(&self) -> usize {
        self.queue.room()
    }

    /// Most reads at the device at once.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.queue.depth()
    }

    /// Appends the results that are ready to `out`, without waiting. Returns how many.
    ///
    /// # Errors
    /// Only if the device's queue failed; a failed get is a result.
    pub fn poll(&mut self, out: &mut Vec<Completed>) -> Result<usize> {
        self.queue.poll(out)
    }

    /// As [`ReadQueue::poll`], but takes everything that the devices have completed. A caller that waits for
    /// [`ReadQueue::descriptor`] calls it after its submissions, which it passes to the device, and whenever
    /// the descriptor is readable.
    ///
    /// # Errors
    /// As [`ReadQueue::poll`].
    pub fn poll_all(&mut self, out: &mut Vec<Completed>) -> Result<usize> {
        self.queue.poll_all(out)
    }

    /// A descriptor that becomes readable when a get may have ended, so that a program can wait for it
    /// together with sockets and timers: with `poll`, `epoll`, or an async runtime. Call
    /// [`ReadQueue::poll_all`] then; it never waits. The descriptor belongs to the queue, and is for waiting
    /// only.
    ///
    /// `None` if a device of the store cannot tell when it is done: memory, which is done at once, and
    /// emulated devices. Then call [`ReadQueue::poll_all`] again later, or wait with [`ReadQueue::wait`].
    ///
    /// # Errors
    /// `Retry` if the operating system has no descriptor left.
    pub fn descriptor(&mut self) -> Result<Option<BorrowedFd<'_>>> {
        self.queue.descriptor()
    }

    /// Waits for at least `least` results, or for all if fewer are in flight, and appends them to `out`.
    /// Returns how many.
    ///
    /// # Errors
    /// As [`ReadQueue::poll`].
    pub fn wait(&mut self, least: usize, out: &mut Vec<Completed>) -> Result<usize> {
        self.queue.wait(least, out)
    }
}

impl fmt::Debug for ReadQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReadQueue({} of {} in flight)", self.in_flight(), self.depth())
    }
}

/// Queues for the next `multi_get`: a device queue costs far more to create than to use.
#[derive(Debug, Default)]
pub struct QueuePool {
    idle: Mutex<Vec<ReadQueue>>,
}

/// Most idle queues. Each keeps its charge.
const IDLE_MAX: usize = 4;

/// The depths of a new queue. The next one is tried if there is no memory.
const POOLED_DEPTHS: [usize; 3] = [64, 16, 4];

impl QueuePool {
    fn make(reader: &Arc<Reader>, medium: &dyn Medium) -> Result<ReadQueue> {
        let mut made = Err(Error::retry("read queue"));
        for depth in POOLED_DEPTHS {
            made = open_queue(Arc::clone(reader), medium, depth);
            if !matches!(&made, Err(error) if error.is_retryable()) {
                break;
            }
        }
        made
    }

    /// Runs `work` with an idle queue, or with a new one.
    ///
    /// # Errors
    /// The error of `work`, or of creating a queue.
    pub fn with<T>(
        &self,
        reader: &Arc<Reader>,
        medium: &dyn Medium,
        work: impl FnOnce(&mut ReadQueue) -> Result<T>,
    ) -> Result<T> {
        let idle = self.idle.lock().pop();
        let mut queue = match idle {
            Some(queue) => queue,
            None => Self::make(reader, medium)?,
        };
        queue.queue.set_waiting();
        let result = work(&mut queue)?;
        let mut idle = self.idle.lock();
        // A queue that failed, or still has gets in flight, is dropped.
        if idle.len() < IDLE_MAX && queue.in_flight() == 0 {
            idle.push(queue);
        }
        Ok(result)
    }
}
