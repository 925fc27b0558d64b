//! Links carry frames between a host and a worker. The trait is the seam at which tests drop, repeat and
//! garble frames.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use base::{Error, Result};

use crate::Address;
use crate::frame::Frame;

/// Bytes of one read from a stream.
const READ_BYTES: usize = 64 << 10;

/// The longest time that a write to a stream may take.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// Carries frames in both directions. One thread uses it.
pub trait Link: Send + fmt::Debug {
    /// Sends a frame.
    ///
    /// # Errors
    /// `Retry` if the other side is gone or takes nothing.
    fn send(&mut self, frame: &Frame) -> Result<()>;

    /// The next frame, with a body of at most `body_max` bytes; `None` if none came within `wait`.
    ///
    /// # Errors
    /// `Retry` if the other side is gone, `Corrupt` if the frame is damaged or too long.
    fn receive(&mut self, wait: Duration, body_max: usize) -> Result<Option<Frame>>;

    /// Bytes sent and received so far.
    fn bytes(&self) -> u64;
}

trait Stream: Read + Write + Send {
    fn wait_at_most(&self, wait: Duration) -> io::Result<()>;
}

impl Stream for UnixStream {
    fn wait_at_most(&self, wait: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(wait))
    }
}

impl Stream for TcpStream {
    fn wait_at_most(&self, wait: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(wait))
    }
}

/// A link over a stream socket.
pub struct StreamLink {
    stream: Box<dyn Stream>,
    /// The beginning of the next frame.
    received: Vec<u8>,
    /// The read timeout in force.
    wait: Option<Duration>,
    bytes: u64,
}

impl StreamLink {
    /// Connects to a worker.
    ///
    /// # Errors
    /// `Retry` if it is not there, `Invalid` if the address is wrong or beyond loopback.
    pub fn connect(address: &Address, timeout: Duration) -> Result<Self> {
        let gone = |error| broken("connection to a worker", error);
        match address {
            Address::Unix(path) => Self::unix(UnixStream::connect(path).map_err(gone)?),
            Address::Tcp(text) => {
                let at = Address::loopback(text)?;
                Self::tcp(TcpStream::connect_timeout(&at, timeout).map_err(gone)?)
            }
        }
    }

    /// A link over a connected unix socket.
    ///
    /// # Errors
    /// `Retry` if the socket is broken.
    pub fn unix(stream: UnixStream) -> Result<Self> {
        stream
            .set_write_timeout(Some(WRITE_TIMEOUT))
            .map_err(|error| broken("unix socket", error))?;
        Ok(Self::of(Box::new(stream)))
    }

    pub(crate) fn tcp(stream: TcpStream) -> Result<Self> {
        // Requests are answered one by one: a frame must not wait for the next.
        stream
            .set_nodelay(true)
            .and_then(|()| stream.set_write_timeout(Some(WRITE_TIMEOUT)))
            .map_err(|error| broken("TCP connection", error))?;
        Ok(Self::of(Box::new(stream)))
    }

    /// Whether a frame was received whole.
    fn is_whole(&self, body_max: usize) -> Result<bool> {
        let length = Frame::length(&self.received, body_max)?;
        Ok(length.is_some_and(|length| self.received.len() >= length))
    }

    fn of(stream: Box<dyn Stream>) -> Self {
        Self { stream, received: Vec::new(), wait: None, bytes: 0 }
    }
}

impl Link for StreamLink {
    fn send(&mut self, frame: &Frame) -> Result<()> {
        let bytes = frame.encode();
        self.stream.write_all(&bytes).map_err(|error| broken("link", error))?;
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    fn receive(&mut self, wait: Duration, body_max: usize) -> Result<Option<Frame>> {
        let wait = wait.max(Duration::from_millis(1));
        if self.wait != Some(wait) {
            self.stream.wait_at_most(wait).map_err(|error| broken("link", error))?;
            self.wait = Some(wait);
        }
        let begun = Instant::now();
        loop {
            let length = Frame::length(&self.received, body_max)?;
            let missing = match length {
                Some(length) if self.received.len() >= length => {
                    let rest = self.received.split_off(length);
                    let frame = std::mem::replace(&mut self.received, rest);
                    return Frame::decode(&frame).map(Some);
                }
                Some(length) => length - self.received.len(),
                None => READ_BYTES,
            };
            // Memory grows with the bytes that arrive, not with the length field.
            let begin = self.received.len();
            self.received.resize(begin + missing.min(READ_BYTES), 0);
            let read = self.stream.read(self.received.get_mut(begin..).unwrap_or_default());
            let count = read.as_ref().copied().unwrap_or(0);
            self.received.truncate(begin + count);
            self.bytes += count as u64;
            match read {
                Ok(0) => return Err(Error::retry("link").got("the end of the connection")),
                // A peer that sends a byte now and then does not hold the caller; the bytes are kept.
                Ok(_) if begun.elapsed() >= wait && !self.is_whole(body_max)? => return Ok(None),
                Ok(_) => {}
                Err(error) if is_timeout(&error) => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(broken("link", error)),
            }
        }
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl fmt::Debug for StreamLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StreamLink({} bytes)", self.bytes)
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

/// The other side cannot be reached: another attempt may succeed.
fn broken(what: &'static str, error: io::Error) -> Error {
    Error::retry(what).caused_by(error)
}
