//! Links carry frames between a host and a worker. The trait is the seam at which tests drop, repeat and
//! garble frames.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use base::{Error, Result};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use crate::Address;
use crate::frame::{BODY_BYTES_MAX, Frame, OVERHEAD_BYTES};

/// Bytes of one read from a stream.
const READ_BYTES: usize = 64 << 10;

/// How long a write waits before the link looks whether the other side sends. While both send, each takes
/// what the other sent once in this time: it bounds the rate of the link.
const WRITE_SLICE: Duration = Duration::from_millis(1);

/// The longest time that a frame may take to be sent.
const PATIENCE: Duration = Duration::from_secs(10);

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
    fn receive(&mut self, wait: Duration, body_max: usize) -> Result<Option<Frame>> {
        self.receive_if(wait, &mut |bytes| must_be_within(bytes, body_max))
    }

    /// As [`Link::receive`]; `admit` gets the length of a body before memory is taken for it, maybe more than
    /// once.
    ///
    /// # Errors
    /// As [`Link::receive`], or that of `admit`.
    fn receive_if(
        &mut self,
        wait: Duration,
        admit: &mut dyn FnMut(usize) -> Result<()>,
    ) -> Result<Option<Frame>>;

    /// Bytes sent and received so far.
    fn bytes(&self) -> u64;
}

/// A socket. Reads and writes wait for a bounded time; the error of one that is interrupted says to look at
/// the clock and to try again.
pub(crate) trait Stream: Read + Write + Send {
    /// Lets a read wait at most `wait`.
    fn wait_at_most(&self, wait: Duration) -> io::Result<()>;

    /// Lets a write wait at most `wait`.
    fn write_at_most(&self, wait: Duration) -> io::Result<()>;
}

impl Stream for UnixStream {
    fn wait_at_most(&self, wait: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(wait))
    }

    fn write_at_most(&self, wait: Duration) -> io::Result<()> {
        self.set_write_timeout(Some(wait))
    }
}

impl Stream for TcpStream {
    fn wait_at_most(&self, wait: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(wait))
    }

    fn write_at_most(&self, wait: Duration) -> io::Result<()> {
        self.set_write_timeout(Some(wait))
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
    /// The longest time that a frame may take to be sent.
    patience: Duration,
    /// Most bytes that are received while a frame is sent.
    drain_bytes: usize,
    /// Whether the first bytes were looked at.
    is_known: bool,
}

impl StreamLink {
    /// Connects to a worker, without TLS.
    ///
    /// # Errors
    /// `Retry` if it is not there, `Invalid` if the address is wrong or beyond loopback.
    pub fn connect(address: &Address, timeout: Duration) -> Result<Self> {
        match address {
            Address::Unix(path) => Self::to_unix(path),
            Address::Tcp(text) => Self::tcp(Self::to_tcp(text, false, timeout)?),
        }
    }

    /// Connects to the worker at a unix socket. Does not wait: a worker that is stopped accepts nothing, and
    /// its queue of connections fills up.
    ///
    /// # Errors
    /// `Retry` if it is not there, or its queue is full.
    pub(crate) fn to_unix(path: &Path) -> Result<Self> {
        let connected = || {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
            connect(&socket, &SocketAddrUnix::new(path)?)?;
            let stream = UnixStream::from(socket);
            stream.set_nonblocking(false)?;
            Ok(stream)
        };
        Self::unix(connected().map_err(|error| broken("connection to a worker", error))?)
    }

    /// A connection to the worker at a TCP address, which must be on this machine unless the link
    /// `may_leave` it.
    ///
    /// # Errors
    /// As [`StreamLink::connect`].
    pub(crate) fn to_tcp(text: &str, may_leave: bool, timeout: Duration) -> Result<TcpStream> {
        let mut failed = None;
        let until = Instant::now() + timeout;
        for at in Address::sockets(text, may_leave)? {
            let left = until.saturating_duration_since(Instant::now());
            match TcpStream::connect_timeout(&at, left.max(Duration::from_millis(1))) {
                Ok(stream) => return Ok(stream),
                Err(error) => failed = Some(error),
            }
        }
        let failed = failed.unwrap_or_else(|| io::ErrorKind::AddrNotAvailable.into());
        Err(broken("connection to a worker", failed))
    }

    /// A link over a connected unix socket.
    ///
    /// # Errors
    /// `Retry` if the socket is broken.
    pub fn unix(stream: UnixStream) -> Result<Self> {
        Self::of(Box::new(stream))
    }

    pub(crate) fn tcp(stream: TcpStream) -> Result<Self> {
        // Requests are answered one by one: a frame must not wait for the next.
        stream.set_nodelay(true).map_err(|error| broken("TCP connection", error))?;
        Self::of(Box::new(stream))
    }

    /// A link over an encrypted connection.
    #[cfg(feature = "tls")]
    pub(crate) fn encrypted(stream: crate::tls::TlsStream) -> Result<Self> {
        Self::of(Box::new(stream))
    }

    /// Gives a frame at most `patience` to be sent.
    #[must_use]
    pub(crate) const fn patient_for(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Receives up to `bytes` while a frame is sent: the other side may answer earlier ones first, and take
    /// nothing meanwhile.
    #[must_use]
    pub(crate) const fn draining(mut self, bytes: usize) -> Self {
        self.drain_bytes = bytes;
        self
    }

    /// Whether a frame was received whole.
    fn is_whole(&self) -> Result<bool> {
        let length = Frame::length(&self.received, BODY_BYTES_MAX)?;
        Ok(length.is_some_and(|length| self.received.len() >= length))
    }

    fn wait_at_most(&mut self, wait: Duration) -> Result<()> {
        let wait = wait.max(Duration::from_millis(1));
        if self.wait != Some(wait) {
            self.stream.wait_at_most(wait).map_err(|error| broken("link", error))?;
            self.wait = Some(wait);
        }
        Ok(())
    }

    /// Receives the bytes that are there. The other side takes nothing at the moment.
    fn drain(&mut self) -> Result<()> {
        self.wait_at_most(Duration::ZERO)?;
        while self.received.len() < self.drain_bytes {
            // Less than was asked for: there are no more.
            if self.read_some(READ_BYTES)?.is_none_or(|count| count < READ_BYTES) {
                break;
            }
        }
        Ok(())
    }

    /// Receives at most `most` bytes; `None` if none came in time.
    fn read_some(&mut self, most: usize) -> Result<Option<usize>> {
        let begin = self.received.len();
        self.received.resize(begin + most.min(READ_BYTES), 0);
        let read = self.stream.read(self.received.get_mut(begin..).unwrap_or_default());
        let count = read.as_ref().copied().unwrap_or(0);
        self.received.truncate(begin + count);
        self.bytes += count as u64;
        match read {
            Ok(0) => Err(Error::retry("link").got("the end of the connection")),
            Ok(count) => Ok(Some(count)),
            Err(error) if is_timeout(&error) => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(Some(0)),
            Err(error) => Err(broken("link", error)),
        }
    }

    fn of(stream: Box<dyn Stream>) -> Result<Self> {
        stream.write_at_most(WRITE_SLICE).map_err(|error| broken("link", error))?;
        let (received, patience) = (Vec::new(), PATIENCE);
        let (wait, bytes, drain_bytes, is_known) = (None, 0, 0, false);
        Ok(Self { stream, received, wait, bytes, patience, drain_bytes, is_known })
    }

    /// Fails if the other side speaks TLS on this plain link: the first bytes are a record of a handshake
    /// or an alert. As the length of a frame they would be too long for a hello.
    fn must_be_plain(&mut self) -> Result<()> {
        if let (false, [kind, major, minor, ..]) = (self.is_known, self.received.as_slice()) {
            if matches!((kind, major, minor), (0x15 | 0x16, 3, 1..=4)) {
                return Err(Error::invalid("link").expected("frames in plaintext").got("TLS"));
            }
            self.is_known = true;
        }
        Ok(())
    }
}

impl Link for StreamLink {
    fn send(&mut self, frame: &Frame) -> Result<()> {
        let bytes = frame.encode();
        let begun = Instant::now();
        let mut rest = bytes.as_slice();
        loop {
            let written = match rest {
                [] => self.stream.flush().map(|()| None),
                _ => self.stream.write(rest).map(Some),
            };
            match written {
                Ok(None) => break,
                Ok(Some(0)) => return Err(Error::retry("link").got("the end of the connection")),
                Ok(Some(count)) => rest = rest.get(count..).unwrap_or_default(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if is_timeout(&error) && begun.elapsed() < self.patience => {
                    self.drain()?;
                }
                Err(error) => return Err(broken("link", error)),
            }
        }
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    fn receive_if(
        &mut self,
        wait: Duration,
        admit: &mut dyn FnMut(usize) -> Result<()>,
    ) -> Result<Option<Frame>> {
        self.wait_at_most(wait)?;
        let begun = Instant::now();
        loop {
            self.must_be_plain()?;
            let length = Frame::length(&self.received, BODY_BYTES_MAX)?;
            if let Some(length) = length {
                admit(length.saturating_sub(4 + OVERHEAD_BYTES))?;
            }
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
            match self.read_some(missing)? {
                // A peer that sends a byte now and then does not hold the caller; the bytes are kept.
                Some(_) if begun.elapsed() >= wait && !self.is_whole()? => return Ok(None),
                Some(_) => {}
                None => return Ok(None),
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

/// Refuses a body of more than `most` bytes.
pub(crate) fn must_be_within(bytes: usize, most: usize) -> Result<()> {
    if bytes <= most {
        return Ok(());
    }
    Err(Error::corrupt("length of a frame's body")
        .expected(format_args!("at most {most}"))
        .got(bytes))
}

pub(crate) fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

/// The other side cannot be reached: another attempt may succeed.
fn broken(what: &'static str, error: io::Error) -> Error {
    Error::retry(what).caused_by(error)
}
