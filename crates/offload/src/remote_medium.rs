//! The worker's side of shipped bytes: a medium of the host's files.
//!
//! Each operation is one request and one answer. Writes do not wait for theirs, and reads of a queue are
//! sent ahead, as far as the credit window allows ([`Client`]). Operations that a job does not need (rename,
//! link, store, lock, list) are refused.

use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::limits::PAGE_BYTES;
use base::{Cursor, Error, Result};
use media::{
    Access, Buf, Capabilities, Completion, File, Listing, Medium, Op, Purpose, Queue, Refused,
    Request, Space,
};

use crate::message::{FileRequest, TRANSFER_BYTES_MAX};
use crate::worker::Client;

/// A host's files. See the module.
#[derive(Debug)]
pub(crate) struct RemoteMedium(pub(crate) Arc<Client>);

struct RemoteFile {
    name: String,
    handle: u32,
    /// Bytes: as the host reported it, and grown by writes. Only a number: `Relaxed`.
    len: AtomicU64,
    client: Arc<Client>,
}

/// Reads ahead that fill the window.
const QUEUE_DEPTH: usize = 4;

fn unsupported(what: &'static str) -> Error {
    Error::invalid(what).expected("none on the files of a host")
}

impl RemoteMedium {
    fn file(&self, name: &str, answer: &[u8]) -> Result<Arc<dyn File>> {
        let mut cursor = Cursor::new("answer of a host", answer);
        let (handle, len) = (cursor.u32()?, AtomicU64::new(cursor.u64()?));
        cursor.finish()?;
        let client = Arc::clone(&self.0);
        Ok(Arc::new(RemoteFile { name: name.to_owned(), handle, len, client }))
    }
}

impl Medium for RemoteMedium {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            block_bytes: PAGE_BYTES,
            byte_addressable: false,
            persistent: true,
            queue_depth: QUEUE_DEPTH,
            backend: "worker link",
            open_files_max: None,
        }
    }

    fn create(&self, name: &str, access: Access, _reserve: u64) -> Result<Arc<dyn File>> {
        if access != Access::Direct {
            return Err(unsupported("a file for stores"));
        }
        self.file(name, &self.0.call(&FileRequest::Create { name })?)
    }

    fn open(&self, name: &str, access: Access) -> Result<Arc<dyn File>> {
        if access != Access::Direct {
            return Err(unsupported("a file for stores"));
        }
        self.file(name, &self.0.call(&FileRequest::Open { name })?)
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.0.call(&FileRequest::Remove { name }).map(drop)
    }

    fn rename(&self, _from: &str, _to: &str) -> Result<()> {
        Err(unsupported("rename"))
    }

    fn link(&self, _name: &str, _to: &dyn Medium) -> Result<bool> {
        Err(unsupported("link"))
    }

    fn list(&self) -> Result<Vec<Listing>> {
        Err(unsupported("list"))
    }

    fn space(&self) -> Result<Option<Space>> {
        Ok(None)
    }

    fn sync_names(&self, names: &[&str]) -> Result<()> {
        self.0.call(&FileRequest::SyncNames { names: names.to_vec() }).map(drop)
    }

    fn lock(&self) -> Result<Box<dyn Any + Send + Sync>> {
        Err(unsupported("lock"))
    }

    fn queue(&self, depth: usize) -> Result<Box<dyn Queue>> {
        Ok(Box::new(RemoteQueue { reads: VecDeque::new(), depth: depth.max(1) }))
    }

    fn undecorated(&self) -> &dyn Any {
        self
    }
}

impl RemoteFile {
    fn read_into(&self, at: u64, buf: &mut Buf) -> Result<()> {
        let mut at = at;
        for part in buf.chunks_mut(TRANSFER_BYTES_MAX) {
            let request = FileRequest::Read { file: self.handle, at, len: part.len() as u32 };
            let answer = self.client.call(&request)?;
            if answer.len() != part.len() {
                return Err(Error::corrupt("answer of a host, bytes")
                    .at(&self.name)
                    .expected(part.len())
                    .got(answer.len()));
            }
            part.copy_from_slice(&answer);
            at = at.saturating_add(part.len() as u64);
        }
        Ok(())
    }

    fn write_from(&self, at: u64, buf: &Buf) -> Result<()> {
        let mut at = at;
        for bytes in buf.chunks(TRANSFER_BYTES_MAX) {
            self.client.write(self.handle, at, bytes)?;
            at = at.saturating_add(bytes.len() as u64);
            self.len.fetch_max(at, Ordering::Relaxed);
        }
        Ok(())
    }
}

impl File for RemoteFile {
    fn name(&self) -> &str {
        &self.name
    }

    fn size(&self) -> Result<u64> {
        Ok(self.len.load(Ordering::Relaxed))
    }

    fn read(&self, at: u64, mut buf: Buf, _purpose: Purpose) -> (Buf, Result<()>) {
        let result = self.read_into(at, &mut buf);
        (buf, result)
    }

    fn write(&self, at: u64, buf: Buf, _purpose: Purpose) -> (Buf, Result<()>) {
        let result = self.write_from(at, &buf);
        (buf, result)
    }

    fn store(&self, _at: u64, _bytes: &[u8], _purpose: Purpose) -> Result<()> {
        Err(unsupported("store"))
    }

    fn sync(&self, _purpose: Purpose) -> Result<()> {
        self.client.call(&FileRequest::Sync { file: self.handle }).map(drop)
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.client.call(&FileRequest::SetLen { file: self.handle, len })?;
        self.len.store(len, Ordering::Relaxed);
        Ok(())
    }

    fn undecorated(&self) -> &dyn Any {
        self
    }
}

impl fmt::Debug for RemoteFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RemoteFile({})", self.name)
    }
}

/// Sends reads as they are submitted, while the window has room; performs other operations at once.
/// Operations complete in the order of their submission.
struct RemoteQueue {
    reads: VecDeque<Submitted>,
    depth: usize,
}

/// An operation that was submitted.
enum Submitted {
    /// A read that was sent, by its number.
    Sent {
        token: u64,
        buf: Buf,
        number: u32,
        client: Arc<Client>,
    },
    /// A read without room in the window.
    Waiting(Request),
    Done(Completion),
}

impl Submitted {
    fn is_done(&self) -> bool {
        match self {
            Self::Sent { number, client, .. } => client.is_answered(*number),
            Self::Waiting(_) => false,
            Self::Done(_) => true,
        }
    }

    /// Waits for the operation.
    fn finish(self) -> Completion {
        match self {
            Self::Sent { token, mut buf, number, client } => {
                let result = client.take(number).and_then(|answer| filled(&mut buf, &answer));
                Completion { token, buf, result }
            }
            Self::Waiting(request) => perform(request),
            Self::Done(completion) => completion,
        }
    }
}

/// Fills `buf` with the answer to a read.
fn filled(buf: &mut Buf, answer: &[u8]) -> Result<()> {
    if answer.len() != buf.len() {
        return Err(Error::corrupt("answer of a host, bytes")
            .expected(buf.len())
            .got(answer.len()));
    }
    buf.copy_from_slice(answer);
    Ok(())
}

fn perform(request: Request) -> Completion {
    let Request { file, op, purpose, token } = request;
    let (buf, result) = match op {
        Op::Read { at, buf } => file.read(at, buf, purpose),
        Op::Write { at, buf } => file.write(at, buf, purpose),
    };
    Completion { token, buf, result }
}

/// Sends a read ahead, if it is one that can be sent now.
fn send(request: Request) -> Submitted {
    let Request { file, op, purpose, token } = request;
    let (at, buf) = match op {
        Op::Read { at, buf } => (at, buf),
        op => return Submitted::Done(perform(Request { file, op, purpose, token })),
    };
    let remote = file.undecorated().downcast_ref::<RemoteFile>();
    let remote = remote.filter(|_| buf.len() <= TRANSFER_BYTES_MAX);
    let sent = remote.map(|it| (it.client.read_ahead(it.handle, at, buf.len()), &it.client));
    match sent {
        Some((Ok(Some(number)), client)) => {
            Submitted::Sent { token, buf, number, client: Arc::clone(client) }
        }
        Some((Err(error), _)) => Submitted::Done(Completion { token, buf, result: Err(error) }),
        Some((Ok(None), _)) | None => {
            Submitted::Waiting(Request { file, op: Op::Read { at, buf }, purpose, token })
        }
    }
}

impl Queue for RemoteQueue {
    fn submit(&mut self, request: Request) -> Result<(), Refused> {
        if self.reads.len() >= self.depth {
            return Err(Refused(request));
        }
        self.reads.push_back(send(request));
        Ok(())
    }

    fn complete(&mut self, least: usize, out: &mut Vec<Completion>) -> Result<()> {
        let mut taken = 0;
        while let Some(next) = self.reads.pop_front_if(|next| taken < least || next.is_done()) {
            out.push(next.finish());
            taken += 1;
        }
        Ok(())
    }

    fn in_flight(&self) -> usize {
        self.reads.len()
    }

    fn depth(&self) -> usize {
        self.depth
    }
}

impl Drop for RemoteQueue {
    fn drop(&mut self) {
        for submitted in self.reads.drain(..) {
            if let Submitted::Sent { number, client, .. } = submitted {
                client.forget(number);
            }
        }
    }
}
