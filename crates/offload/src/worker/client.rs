//! The worker's end of a link while a job runs: requests, beats, and the end of the lease.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use base::{Clock, Error, Result};
use parking_lot::Mutex;

use crate::message::{FileRequest, Progress, REQUEST_BYTES_MAX, decode_reply};
use crate::{Frame, FrameKind, Link, Timing};

/// The worker's end of a link. One thread uses it; the lock makes it shareable among files.
pub(crate) struct Client {
    inner: Mutex<Inner>,
    timing: Timing,
    clock: Arc<dyn Clock>,
    job: u64,
    epoch: u64,
}

struct Inner {
    link: Box<dyn Link>,
    /// The number of the last request.
    last: u32,
    /// When the host was heard last, and when the last beat was sent.
    heard: Duration,
    beaten: Duration,
}

impl Client {
    pub(crate) fn new(
        link: Box<dyn Link>,
        (job, epoch): (u64, u64),
        timing: Timing,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let now = clock.monotonic();
        let inner = Mutex::new(Inner { link, last: 0, heard: now, beaten: now });
        Self { inner, timing, clock, job, epoch }
    }

    fn frame(&self, kind: FrameKind, body: Vec<u8>) -> Frame {
        Frame { kind, job: self.job, epoch: self.epoch, body }
    }

    /// Sends a frame that needs no answer.
    pub(crate) fn send(&self, kind: FrameKind, body: Vec<u8>) -> Result<()> {
        self.inner.lock().link.send(&self.frame(kind, body))
    }

    /// Has the host do something with a file, and waits.
    ///
    /// # Errors
    /// The host's error; `Retry` if it is gone or silent; `Closed` if it cancelled the job.
    pub(crate) fn call(&self, request: &FileRequest<'_>) -> Result<Vec<u8>> {
        let mut inner = self.inner.lock();
        inner.last = inner.last.wrapping_add(1);
        let number = inner.last;
        inner.link.send(&self.frame(request.kind(), request.encode(number)))?;
        loop {
            // The host serves nothing else meanwhile, beats neither: a sync may take it long. The job changes
            // no file while it waits, so it is safe to be patient.
            let frame = self.receive(&mut inner, self.timing.beat, self.timing.stall)?;
            let Some(frame) = frame else { continue };
            if frame.kind != FrameKind::Reply {
                continue;
            }
            let (answered, answer) = decode_reply(&frame.body)?;
            if answered == number {
                return answer;
            }
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
        while self.receive(&mut inner, Duration::from_millis(1), self.timing.lease)?.is_some() {}
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

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Client(job {}, epoch {})", self.job, self.epoch)
    }
}
