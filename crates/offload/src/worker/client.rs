//! The worker's end of a link while a job runs: requests within the credit window, beats, and the end of the
//! lease.
//!
//! A worker has at most [`WINDOW_BYTES`] in flight: writes that the host has not confirmed, reads that it has
//! not answered, and answers that the job has not taken. So neither side's memory grows if the other is slow:
//! a worker whose window is full waits. Requests are answered in their order; a write that failed fails the
//! next request, and no sync succeeds after it.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use base::{Clock, Error, Result};
use parking_lot::Mutex;

use crate::message::{FileRequest, Progress, REQUEST_BYTES_MAX, TRANSFER_BYTES_MAX, decode_reply};
use crate::{Frame, FrameKind, Link, Timing};

/// Most bytes of writes that the host has not confirmed.
const WRITES_BYTES_MAX: usize = 3 * TRANSFER_BYTES_MAX;

/// Most bytes of reads ahead that were not answered, or not taken.
const READS_BYTES_MAX: usize = 4 * TRANSFER_BYTES_MAX;

/// Most bytes in flight: writes, reads ahead, and one request whose answer the job waits for.
pub(crate) const WINDOW_BYTES: usize = WRITES_BYTES_MAX + READS_BYTES_MAX + TRANSFER_BYTES_MAX;

/// The worker's end of a link. One thread uses it; the lock makes it shareable among files.
pub(crate) struct Client {
    inner: Mutex<Inner>,
    timing: Timing,
    clock: Arc<dyn Clock>,
    job: u64,
    epoch: u64,
}

/// A read ahead.
enum ReadAhead {
    Sent,
    Answered(Result<Vec<u8>>),
    /// Nobody waits for it any more.
    Dropped,
}

struct Inner {
    link: Box<dyn Link>,
    /// The number of the last request.
    last: u32,
    /// When the host was heard last, and when the last beat was sent.
    heard: Duration,
    beaten: Duration,
    /// Numbers and bytes of writes that the host has not confirmed, oldest first.
    writes: VecDeque<(u32, usize)>,
    write_bytes: usize,
    /// Reads ahead with their bytes.
    reads: BTreeMap<u32, (usize, ReadAhead)>,
    read_bytes: usize,
    /// The first write that failed.
    failed: Option<Error>,
}

impl Client {
    pub(crate) fn new(
        link: Box<dyn Link>,
        (job, epoch): (u64, u64),
        timing: Timing,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let now = clock.monotonic();
        let inner = Inner {
            link,
            last: 0,
            heard: now,
            beaten: now,
            writes: VecDeque::new(),
            write_bytes: 0,
            reads: BTreeMap::new(),
            read_bytes: 0,
            failed: None,
        };
        Self { inner: Mutex::new(inner), timing, clock, job, epoch }
    }

    fn frame(&self, kind: FrameKind, body: Vec<u8>) -> Frame {
        Frame { kind, job: self.job, epoch: self.epoch, body }
    }

    /// Sends a frame that needs no answer.
    pub(crate) fn send(&self, kind: FrameKind, body: Vec<u8>) -> Result<()> {
        self.inner.lock().link.send(&self.frame(kind, body))
    }

    /// Has the host do something with a file, and waits. Everything asked for before is done by then.
    ///
    /// # Errors
    /// The host's error, or that of an earlier write; `Retry` if it is gone or silent; `Closed` if it
    /// cancelled the job.
    pub(crate) fn call(&self, request: &FileRequest<'_>) -> Result<Vec<u8>> {
        let mut inner = self.inner.lock();
        let number = self.ask(&mut inner, request)?;
        loop {
            if let Some((answered, answer)) = self.reply(&mut inner)? {
                if answered != number {
                    return Err(unasked(answered));
                }
                inner.must_be_whole()?;
                return answer;
            }
        }
    }

    /// Writes a range of an output without waiting for the host, unless the window is full.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub(crate) fn write(&self, file: u32, at: u64, bytes: &[u8]) -> Result<()> {
        let mut inner = self.inner.lock();
        while inner.write_bytes + bytes.len() > WRITES_BYTES_MAX && !inner.writes.is_empty() {
            if let Some((answered, _)) = self.reply(&mut inner)? {
                return Err(unasked(answered));
            }
        }
        let number = self.ask(&mut inner, &FileRequest::Write { file, at, bytes })?;
        inner.writes.push_back((number, bytes.len()));
        inner.write_bytes += bytes.len();
        Ok(())
    }

    /// Begins to read a range of a file; the number is for [`Client::take`]. `None` if the window is full.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub(crate) fn read_ahead(&self, file: u32, at: u64, len: usize) -> Result<Option<u32>> {
        let mut inner = self.inner.lock();
        if inner.read_bytes + len > READS_BYTES_MAX {
            return Ok(None);
        }
        let number = self.ask(&mut inner, &FileRequest::Read { file, at, len: len as u32 })?;
        inner.reads.insert(number, (len, ReadAhead::Sent));
        inner.read_bytes += len;
        Ok(Some(number))
    }

    /// Waits for the answer to a read ahead.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub(crate) fn take(&self, number: u32) -> Result<Vec<u8>> {
        let mut inner = self.inner.lock();
        loop {
            match inner.reads.remove(&number) {
                Some((len, ReadAhead::Answered(answer))) => {
                    inner.read_bytes -= len;
                    return answer;
                }
                Some(waiting) => drop(inner.reads.insert(number, waiting)),
                None => return Err(unasked(number)),
            }
            if let Some((answered, _)) = self.reply(&mut inner)? {
                return Err(unasked(answered));
            }
        }
    }

    /// Whether [`Client::take`] would not wait.
    pub(crate) fn is_answered(&self, number: u32) -> bool {
        let inner = self.inner.lock();
        inner.reads.get(&number).is_some_and(|(_, it)| matches!(it, ReadAhead::Answered(_)))
    }

    /// Drops a read ahead that nobody takes.
    pub(crate) fn forget(&self, number: u32) {
        let mut inner = self.inner.lock();
        match inner.reads.remove(&number) {
            Some((len, ReadAhead::Answered(_))) => inner.read_bytes -= len,
            // Its answer is still to come, and takes its part of the window until then.
            Some((len, _)) => drop(inner.reads.insert(number, (len, ReadAhead::Dropped))),
            None => {}
        }
    }

    /// Sends a request with the next number.
    fn ask(&self, inner: &mut Inner, request: &FileRequest<'_>) -> Result<u32> {
        inner.must_be_whole()?;
        inner.last = inner.last.wrapping_add(1);
        let number = inner.last;
        inner.link.send(&self.frame(request.kind(), request.encode(number)))?;
        Ok(number)
    }

    /// Waits a beat for an answer; returns it if it is of neither a write nor a read ahead.
    fn reply(&self, inner: &mut Inner) -> Result<Option<(u32, Result<Vec<u8>>)>> {
        // The host serves nothing else meanwhile, beats neither: a sync may take it long. The job changes
        // no file while it waits, so it is safe to be patient.
        match self.receive(inner, self.timing.beat, self.timing.stall)? {
            Some(frame) => inner.note(&frame),
            None => Ok(None),
        }
    }

    /// Sends a beat if one is due, and looks whether the host cancelled the job.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub(crate) fn beat(&self, progress: &dyn Fn() -> Progress) -> Result<()> {
        // A request that waits for its answer keeps the link alive, and notices a cancellation.
        let Some(mut inner) = self.inner.try_lock() else { return Ok(()) };
        let now = self.clock.monotonic();
        if now.saturating_sub(inner.beaten) >= self.beat_interval() {
            inner.beaten = now;
            inner.link.send(&self.frame(FrameKind::Beat, progress().encode()))?;
        }
        let wait = Duration::from_millis(1);
        while let Some(frame) = self.receive(&mut inner, wait, self.timing.lease)? {
            if let Some((answered, _)) = inner.note(&frame)? {
                return Err(unasked(answered));
            }
        }
        Ok(())
    }

    /// The interval of beats.
    pub(crate) fn beat_interval(&self) -> Duration {
        self.timing.beat / 4
    }

    /// Waits until the host closes the link, at most a lease, so that frames it has not read yet are not
    /// lost.
    pub(crate) fn linger(&self) {
        let mut inner = self.inner.lock();
        while self.receive(&mut inner, self.timing.beat, self.timing.lease).is_ok() {}
    }

    /// The next frame; an error once the host was silent for `patience`.
    fn receive(
        &self,
        inner: &mut Inner,
        wait: Duration,
        patience: Duration,
    ) -> Result<Option<Frame>> {
        let frame = inner.link.receive(wait, REQUEST_BYTES_MAX)?;
        let now = self.clock.monotonic();
        let Some(frame) = frame else {
            if now.saturating_sub(inner.heard) > patience {
                return Err(Error::retry("lease").got("silence of the host"));
            }
            return Ok(None);
        };
        if (frame.job, frame.epoch) != (self.job, self.epoch) {
            return Err(Error::corrupt("frame of a host")
                .expected(format_args!("job {} epoch {}", self.job, self.epoch))
                .got(format_args!("job {} epoch {}", frame.job, frame.epoch)));
        }
        if frame.kind == FrameKind::Cancel {
            return Err(Error::closed("job"));
        }
        inner.heard = now;
        Ok(Some(frame))
    }
}

impl Inner {
    /// Takes an answer; returns it if it is of neither a write nor a read ahead.
    fn note(&mut self, frame: &Frame) -> Result<Option<(u32, Result<Vec<u8>>)>> {
        if frame.kind != FrameKind::Reply {
            return Ok(None);
        }
        let (number, answer) = decode_reply(&frame.body)?;
        if self.writes.front().is_some_and(|(oldest, _)| *oldest == number) {
            let (_, bytes) = self.writes.pop_front().unwrap_or_default();
            self.write_bytes -= bytes;
            if let Err(error) = answer {
                self.failed.get_or_insert(error);
            }
            return Ok(None);
        }
        match self.reads.get_mut(&number) {
            Some((len, state @ ReadAhead::Dropped)) => {
                self.read_bytes -= *len;
                *state = ReadAhead::Sent;
                self.reads.remove(&number);
                Ok(None)
            }
            Some((_, state @ ReadAhead::Sent)) => {
                *state = ReadAhead::Answered(answer);
                Ok(None)
            }
            Some((_, ReadAhead::Answered(_))) => Err(unasked(number)),
            None => Ok(Some((number, answer))),
        }
    }

    /// Fails once a write failed.
    fn must_be_whole(&self) -> Result<()> {
        self.failed.clone().map_or(Ok(()), Err)
    }
}

fn unasked(number: u32) -> Error {
    Error::corrupt("answer of a host")
        .expected("one to a request")
        .got(format_args!("number {number}"))
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Client(job {}, epoch {})", self.job, self.epoch)
    }
}
