//! A connection: reads requests from its socket, passes them to its [`Session`], and writes the replies.
//!
//! One task on the runtime of one core. The session's work may wait for the store, so it runs on a bounded
//! pool of threads; meanwhile the task serves other connections. While replies wait for the client nothing is
//! read, so a connection holds at most one input buffer, one batch of replies and its messages. All three are
//! charged to the memory limit; without memory, reading stops until there is some. An idle connection has no
//! buffer.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use terracedb::memory::{Account, Charge};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::Semaphore;

use crate::clients::Client;
use crate::reply::Fail;
use crate::resp::{Parser, Request, request_bytes};
use crate::session::Session;
use crate::value::STRING_BYTES_MAX;

/// One read from the socket, bytes.
const READ_BYTES: usize = 64 << 10;
/// A client that reads nothing for this long while replies wait is cut off.
const WRITE_TIMEOUT: Duration = Duration::from_secs(60);
/// Without memory the connection looks again after this time, at most this often.
const MEMORY_RETRY: Duration = Duration::from_millis(10);
const MEMORY_RETRIES: usize = 1000;
/// Requests that are executed before their replies are sent.
const BATCH: usize = 1024;

/// A connection, and the parts of its server that it uses.
pub(crate) struct Connection<S> {
    pub(crate) socket: S,
    pub(crate) client: Arc<Client>,
    pub(crate) session: Session,
    pub(crate) account: Account,
    /// Threads that may wait for the store at once.
    pub(crate) workers: Arc<Semaphore>,
}

/// How a connection ends before its client wants it to.
enum End {
    /// The socket failed, the client left, was killed, or reads too slowly.
    Socket,
    /// The client broke the protocol: it is told so.
    Protocol(Fail),
}

impl From<io::Error> for End {
    fn from(_: io::Error) -> Self {
        // The client is gone, so the error is dropped.
        Self::Socket
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Serves the client until it leaves.
    pub(crate) async fn serve(self) {
        let Self { mut socket, client, session, account, workers } = self;
        let mut charge = account.empty_charge();
        let mut session = Some(session);
        let end = serve(&mut socket, &client, &mut session, &mut charge, &workers).await;
        if let Err(End::Protocol(fail)) = end {
            let mut reply = crate::reply::Reply::default();
            reply.error(&fail);
            let told = tokio::time::timeout(WRITE_TIMEOUT, socket.write_all(&reply.bytes)).await;
            if let Ok(Ok(())) = told {
                drop(socket.shutdown().await);
            }
        }
    }
}

async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    socket: &mut S,
    client: &Arc<Client>,
    session: &mut Option<Session>,
    charge: &mut Charge,
    workers: &Arc<Semaphore>,
) -> Result<(), End> {
    let Some(shared) = session.as_ref().map(|session| Arc::clone(&session.shared)) else {
        return Ok(());
    };
    let mut parser = Parser::new(STRING_BYTES_MAX);
    let mut piece = Vec::new();
    loop {
        // Everything that was parsed is executed before more is read.
        let is_trusted = session.as_ref().is_some_and(|session| session.is_authenticated);
        let (requests, broken) = parse(&mut parser, is_trusted);
        if !requests.is_empty() {
            let bytes = requests.iter().map(request_bytes).sum::<usize>();
            set_charge(charge, parser.bytes() + bytes).await?;
            run(socket, client, session, requests, &mut parser, workers, charge).await?;
            if session.as_ref().is_none_or(|session| session.is_closing) {
                drop(socket.shutdown().await);
                return Ok(());
            }
            if broken.is_none() {
                continue;
            }
        }
        if let Some(fail) = broken {
            return Err(End::Protocol(fail));
        }
        parser.release_idle();
        if parser.bytes() > shared.config.query_bytes_max {
            shared.counts.cut_off.fetch_add(1, Ordering::Relaxed);
            return Err(End::Socket);
        }
        set_charge(charge, parser.bytes()).await?;
        // Waits without a buffer.
        piece.clear();
        tokio::select! {
            () = client.has_message.notified() => {
                check(client)?;
                send_messages(socket, client).await?;
                continue;
            }
            read = read_some(socket, &mut piece) => {
                if read? == 0 {
                    return Ok(());
                }
            }
        }
        check(client)?;
        shared.counts.input_bytes.fetch_add(piece.len() as u64, Ordering::Relaxed);
        set_charge(charge, parser.bytes() + 2 * READ_BYTES).await?;
        parser.push(&piece);
        if piece.len() < READ_BYTES {
            piece = Vec::new();
        }
    }
}

/// Reads the bytes that have arrived, at most [`READ_BYTES`].
async fn read_some<S: AsyncRead + Unpin>(socket: &mut S, piece: &mut Vec<u8>) -> io::Result<usize> {
    // The first byte is waited for without a buffer.
    let mut first = [0; 1];
    if socket.read(&mut first).await? == 0 {
        return Ok(0);
    }
    piece.reserve_exact(READ_BYTES);
    piece.extend_from_slice(&first);
    // Bytes that have arrived are read at once; nothing more is waited for.
    let read = socket.read_buf(piece);
    tokio::pin!(read);
    std::future::poll_fn(|context| match read.as_mut().poll(context) {
        Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
        _ => Poll::Ready(Ok(())),
    })
    .await?;
    Ok(piece.len())
}

/// The whole requests of the input, at most [`BATCH`], and the error behind them.
fn parse(parser: &mut Parser, is_trusted: bool) -> (Vec<Request>, Option<Fail>) {
    let mut requests = Vec::new();
    parser.trust(is_trusted);
    // Before a client has authenticated, requests are parsed one at a time: the size limits of the next
    // one depend on whether this one is an AUTH that succeeds.
    let most = if is_trusted { BATCH } else { 1 };
    while requests.len() < most {
        match parser.next() {
            Ok(Some(request)) => requests.push(request),
            Ok(None) => break,
            Err(crate::resp::Broken(text)) => return (requests, Some(Fail::new(text))),
        }
    }
    (requests, None)
}

/// Ends the connection if it was killed.
fn check(client: &Client) -> Result<(), End> {
    if client.is_killed.load(Ordering::Acquire) { Err(End::Socket) } else { Ok(()) }
}

async fn set_charge(charge: &mut Charge, bytes: usize) -> Result<(), End> {
    let bytes = bytes as u64;
    for _ in 0..MEMORY_RETRIES {
        if charge.bytes() >= bytes {
            charge.shrink_to(bytes);
            return Ok(());
        }
        if charge.try_grow(bytes - charge.bytes()) {
            return Ok(());
        }
        tokio::time::sleep(MEMORY_RETRY).await;
    }
    Err(End::Protocol(Fail::new("OOM there is no memory for the buffers of this client")))
}

/// Executes `requests` and sends the replies, batch by batch.
async fn run<S: AsyncRead + AsyncWrite + Unpin>(
    socket: &mut S,
    client: &Arc<Client>,
    place: &mut Option<Session>,
    mut requests: Vec<Request>,
    parser: &mut Parser,
    workers: &Arc<Semaphore>,
    charge: &mut Charge,
) -> Result<(), End> {
    loop {
        let held = charge.bytes() as usize;
        let Some(mut session) = place.take() else { return Err(End::Socket) };
        let mut left = session.run_at_once(requests);
        if session.must_continue(&left) {
            let Ok(permit) = workers.acquire().await else { return Err(End::Socket) };
            let work = tokio::task::spawn_blocking(move || {
                let left = session.run(left);
                (session, left)
            });
            // A command that panicked has no session to go on with.
            let Ok(ended) = work.await else { return Err(End::Socket) };
            (session, left) = ended;
            drop(permit);
        }
        requests = if session.is_closing { Vec::new() } else { left };
        let bytes = std::mem::take(&mut session.reply.bytes);
        let shared = Arc::clone(&session.shared);
        shared.counts.output_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        *place = Some(session);
        let is_charged = set_charge(charge, held + bytes.capacity()).await.is_ok();
        if !is_charged || bytes.len() > shared.config.output_bytes_max {
            // The writes are committed: an error would deny them.
            shared.counts.cut_off.fetch_add(1, Ordering::Relaxed);
            return Err(End::Socket);
        }
        write(socket, client, &bytes).await?;
        drop(bytes);
        charge.shrink_to(held as u64);
        send_messages(socket, client).await?;
        check(client)?;
        let Some(session) = place.as_mut() else { return Err(End::Socket) };
        if session.blocked.is_some() {
            wait(socket, client, session, parser, charge).await?;
        } else if requests.is_empty() {
            return Ok(());
        }
    }
}

/// Waits until the pop of a blocked client has its reply. Input that arrives meanwhile is kept, up to the
/// limit of an unfinished request; a client that leaves waits no more.
async fn wait<S: AsyncRead + AsyncWrite + Unpin>(
    socket: &mut S,
    client: &Arc<Client>,
    session: &mut Session,
    parser: &mut Parser,
    charge: &mut Charge,
) -> Result<(), End> {
    let most = session.shared.config.query_bytes_max;
    let mut piece = Vec::new();
    let mut is_late = false;
    loop {
        let Some(blocked) = &session.blocked else { return Ok(()) };
        let (waiter, until) = (Arc::clone(&blocked.waiter), blocked.until);
        let deadline = async {
            match until {
                Some(until) if !is_late => tokio::time::sleep_until(until.into()).await,
                _ => std::future::pending().await,
            }
        };
        tokio::select! {
            // The client has its reply, or was being served when its deadline passed and got none.
            () = waiter.done.notified() => {
                if session.end_wait(is_late) {
                    return Ok(());
                }
            }
            () = deadline => {
                if session.end_wait(true) {
                    return Ok(());
                }
                // Another command is serving the client now.
                is_late = true;
            }
            () = client.has_message.notified() => {
                check(client)?;
                send_messages(socket, client).await?;
            }
            read = read_some(socket, &mut piece), if parser.bytes() < most => {
                if read? == 0 {
                    return Err(End::Socket);
                }
                let held = charge.bytes() as usize;
                set_charge(charge, held + 2 * piece.len()).await?;
                parser.push(&piece);
                piece = Vec::new();
            }
        }
    }
}

/// Sends the messages, those that arrive meanwhile too: their notifications may be gone.
async fn send_messages<S: AsyncWrite + Unpin>(socket: &mut S, client: &Client) -> Result<(), End> {
    loop {
        let messages = client.take_messages();
        if messages.is_empty() {
            return Ok(());
        }
        write(socket, client, &messages).await?;
    }
}

/// Writes `bytes`, unless the client is killed or reads nothing for too long.
async fn write<S: AsyncWrite + Unpin>(
    socket: &mut S,
    client: &Client,
    bytes: &[u8],
) -> Result<(), End> {
    let mut left = bytes;
    while !left.is_empty() {
        check(client)?;
        tokio::select! {
            written = tokio::time::timeout(WRITE_TIMEOUT, socket.write(left)) => {
                let written = written.map_err(|_| End::Socket)??;
                if written == 0 {
                    return Err(End::Socket);
                }
                left = left.get(written..).unwrap_or_default();
            }
            // A message, sent after these bytes, or the end of the connection.
            () = client.has_message.notified() => {
                check(client)?;
                tokio::select! {
                    written = tokio::time::timeout(WRITE_TIMEOUT, socket.write(left)) => {
                        let written = written.map_err(|_| End::Socket)??;
                        left = left.get(written..).unwrap_or_default();
                    }
                    () = killed(client) => return Err(End::Socket),
                }
            }
        }
    }
    // An encrypted socket may hold the end of the bytes back.
    tokio::select! {
        flushed = tokio::time::timeout(WRITE_TIMEOUT, socket.flush()) => {
            flushed.map_err(|_| End::Socket)?.map_err(End::from)
        }
        () = killed(client) => Err(End::Socket),
    }
}

/// Ends once the client is killed.
async fn killed(client: &Client) {
    while !client.is_killed.load(Ordering::Acquire) {
        client.has_message.notified().await;
    }
}
