//! The worker's side of shipped bytes: a medium of the host's files.
//!
//! Each operation is one request and one answer. Operations that a job does not need (rename, link, store,
//! lock, list) are refused.

use std::any::Any;
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
            queue_depth: 8,
            backend: "worker link",
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
        Ok(Box::new(RemoteQueue { done: Vec::new(), depth: depth.max(1) }))
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
            self.client.call(&FileRequest::Write { file: self.handle, at, bytes })?;
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

/// Performs each operation as it is submitted.
struct RemoteQueue {
    done: Vec<Completion>,
    depth: usize,
}

impl Queue for RemoteQueue {
    fn submit(&mut self, request: Request) -> Result<(), Refused> {
        if self.done.len() >= self.depth {
            return Err(Refused(request));
        }
        let Request { file, op, purpose, token } = request;
        let (buf, result) = match op {
            Op::Read { at, buf } => file.read(at, buf, purpose),
            Op::Write { at, buf } => file.write(at, buf, purpose),
        };
        self.done.push(Completion { token, buf, result });
        Ok(())
    }

    fn complete(&mut self, _least: usize, out: &mut Vec<Completion>) -> Result<()> {
        out.append(&mut self.done);
        Ok(())
    }

    fn in_flight(&self) -> usize {
        self.done.len()
    }

    fn depth(&self) -> usize {
        self.depth
    }
}
