//! An engine at a worker: the host merges, the worker compresses.
//!
//! A stream is a connection. Blocks travel several in a frame, and one frame is in flight: while the worker
//! compresses it, the host packs the blocks of the next. Anything unexpected ends the stream, and the writer
//! compresses the rest itself.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use base::{Account, Charge, Clock, Codec, Error, Result};
use table::{BlockEngine, BlockStream};

use crate::blocks::{BLOCK_BYTES_MAX, BLOCKS_BODY_MAX, CompressReply, CompressRequest};
use crate::credentials::Credentials;
use crate::hello::{HELLO_BYTES_MAX, HostHello, WorkerHello};
use crate::message::decode_error;
use crate::workers::RemoteWorker;
use crate::{Frame, FrameKind, Link, Timing};

/// Blocks in one frame, if as many are there.
const BATCH: usize = 8;

/// The engine of a worker.
pub(crate) struct RemoteEngine {
    pub(crate) worker: Arc<RemoteWorker>,
    pub(crate) credentials: Arc<Credentials>,
    pub(crate) timing: Timing,
    pub(crate) clock: Arc<dyn Clock>,
}

impl RemoteEngine {
    fn open(&self, codec: Codec, level: i32, account: &Account) -> Result<RemoteStream> {
        let address = &self.worker.address;
        let charge = account.charge(self.credentials.link_bytes(address))?;
        let link = self.credentials.connect(address, &self.timing);
        let mut link = link.map_err(|(_, error)| error)?;
        let hello = HostHello { token: self.credentials.token().to_vec() };
        link.send(&frame(FrameKind::Hello, hello.encode()))?;
        let hello = receive(&mut *link, FrameKind::Hello, self.timing.connect, HELLO_BYTES_MAX)?;
        let hello = WorkerHello::decode(&hello.body)?;
        {
            let mut state = self.worker.state.lock();
            state.set_hello(&hello);
            state.begun();
        }
        Ok(RemoteStream {
            worker: Arc::clone(&self.worker),
            clock: Arc::clone(&self.clock),
            patience: self.timing.lease,
            link,
            codec,
            level,
            waiting: Vec::new(),
            in_flight: 0,
            done: VecDeque::new(),
            raw: VecDeque::new(),
            link_bytes: 0,
            cpu: Duration::ZERO,
            _charge: charge,
        })
    }
}

fn frame(kind: FrameKind, body: Vec<u8>) -> Frame {
    Frame { kind, job: 0, epoch: 0, body }
}

/// The next frame, which must be of `kind`.
fn receive(link: &mut dyn Link, kind: FrameKind, wait: Duration, max: usize) -> Result<Frame> {
    let frame = link.receive(wait, max)?;
    let frame = frame.ok_or_else(|| Error::retry("worker").expected("an answer in time"))?;
    match frame.kind {
        found if found == kind => Ok(frame),
        FrameKind::Refuse | FrameKind::Failed => Err(decode_error(&frame.body)),
        found => {
            let (expected, got) = (format!("{kind:?}"), format!("{found:?}"));
            Err(Error::corrupt("frame of a worker").expected(expected).got(got))
        }
    }
}

impl BlockEngine for RemoteEngine {
    fn stream(&self, codec: Codec, level: i32, account: &Account) -> Option<Box<dyn BlockStream>> {
        if !matches!(codec, Codec::Zstd | Codec::Deflate) {
            return None;
        }
        match self.open(codec, level, account) {
            Ok(stream) => Some(Box::new(stream)),
            Err(error) => {
                let now = self.clock.monotonic();
                self.worker.state.lock().failed("compression", error.to_string(), now);
                None
            }
        }
    }

    fn decompress(&self, _: Codec, _: &[u8], _: usize) -> Option<Vec<u8>> {
        // A raw block would cross the link.
        None
    }
}

impl fmt::Debug for RemoteEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RemoteEngine({})", self.worker.address)
    }
}

struct RemoteStream {
    worker: Arc<RemoteWorker>,
    clock: Arc<dyn Clock>,
    patience: Duration,
    link: Box<dyn Link>,
    codec: Codec,
    level: i32,
    /// Blocks that were not sent.
    waiting: Vec<Arc<Vec<u8>>>,
    /// Blocks in the frame that was not answered.
    in_flight: usize,
    done: VecDeque<Vec<u8>>,
    /// The blocks that were not taken.
    raw: VecDeque<Arc<Vec<u8>>>,
    /// Bytes and processor time that are counted already.
    link_bytes: u64,
    cpu: Duration,
    _charge: Charge,
}

impl RemoteStream {
    /// Sends the waiting blocks, once the frame in flight is answered.
    fn flush(&mut self) -> Result<()> {
        self.settle()?;
        if self.waiting.is_empty() {
            return Ok(());
        }
        let blocks: Vec<&[u8]> = self.waiting.iter().map(|block| &***block).collect();
        let raw: usize = blocks.iter().map(|block| block.len()).sum();
        let request = CompressRequest { codec: self.codec, level: self.level, blocks };
        let body = request.encode();
        self.in_flight = self.waiting.len();
        self.waiting.clear();
        self.link.send(&frame(FrameKind::Compress, body))?;
        self.worker.state.lock().compressed(self.in_flight, raw);
        Ok(())
    }

    /// Waits for the frame in flight.
    fn settle(&mut self) -> Result<()> {
        if self.in_flight == 0 {
            return Ok(());
        }
        let kind = FrameKind::Compressed;
        let reply = receive(&mut *self.link, kind, self.patience, BLOCKS_BODY_MAX)?;
        let reply = CompressReply::decode(&reply.body)?;
        if reply.payloads.len() != self.in_flight {
            return Err(Error::corrupt("compressed blocks")
                .expected(self.in_flight)
                .got(reply.payloads.len()));
        }
        self.in_flight = 0;
        self.done.extend(reply.payloads);
        // A worker may say anything.
        let more = reply.cpu.saturating_sub(self.cpu).min(Duration::from_secs(3600));
        self.cpu = reply.cpu;
        self.worker.state.lock().cpu += more;
        Ok(())
    }

    fn count_link(&mut self) {
        let bytes = self.link.bytes();
        self.worker.state.lock().link_bytes += bytes - self.link_bytes;
        self.link_bytes = bytes;
    }

    fn ended<T>(&mut self, result: Result<T>) -> Result<T> {
        self.count_link();
        result.inspect_err(|error| {
            let now = self.clock.monotonic();
            self.worker.state.lock().failed("compression", error.to_string(), now);
        })
    }
}

impl Drop for RemoteStream {
    fn drop(&mut self) {
        self.worker.state.lock().ended();
    }
}

impl BlockStream for RemoteStream {
    fn submit(&mut self, raw: &Arc<Vec<u8>>) -> Result<()> {
        if raw.len() > BLOCK_BYTES_MAX {
            return Err(Error::invalid("length of a block")
                .expected(BLOCK_BYTES_MAX)
                .got(raw.len()));
        }
        self.raw.push_back(Arc::clone(raw));
        self.waiting.push(Arc::clone(raw));
        if self.waiting.len() < BATCH {
            return Ok(());
        }
        let flushed = self.flush();
        self.ended(flushed)
    }

    fn take(&mut self) -> Result<Vec<u8>> {
        if self.done.is_empty() {
            let settled = match self.in_flight {
                0 => self.flush().and_then(|()| self.settle()),
                _ => self.settle(),
            };
            self.ended(settled)?;
        }
        let taken = self.done.pop_front().zip(self.raw.pop_front());
        let (payload, raw) =
            taken.ok_or_else(|| Error::invalid("block to take").expected("one submitted"))?;
        // Bytes of a worker are input from outside, so they are checked. Decompressing costs a tenth of
        // compressing.
        let checked = match payload.is_empty() {
            true => Ok(()),
            false => table::decompress_block(self.codec, &payload, raw.len()).and_then(|found| {
                let wrong =
                    || Error::corrupt("compressed block").expected("the block that was sent");
                if found == *raw { Ok(()) } else { Err(wrong()) }
            }),
        };
        self.ended(checked)?;
        Ok(payload)
    }
}
