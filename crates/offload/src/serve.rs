//! The host's side of shipped bytes: serves a worker's requests for files on the store's own medium.
//!
//! A worker reaches the files of its job only: it opens the job's inputs, value files and dictionaries, it
//! creates files with the ids that are reserved for this attempt, and it writes, removes and syncs those
//! alone. The bytes that it may write are bounded. Handles are numbers, given here.
//!
//! One thread serves; another may close the gate, and no file is created or written after that.

use std::collections::BTreeSet;
use std::sync::Arc;

use base::limits::PAGE_BYTES;
use base::{Charge, Error, Result, put_u32, put_u64};
use compact::{Env, Job};
use media::{Access, Buf, File, Medium, Purpose};
use parking_lot::Mutex;
use table::Dictionary;

use crate::message::{FileRequest, TRANSFER_BYTES_MAX};

/// Bytes that a worker may write beyond four times the inputs: values that are copied from value files.
const WRITE_BYTES_SPARE: u64 = 1 << 30;

/// Memory of a request and its answer, bytes: the frame received, the buffer of the device, the answer, and
/// its frame.
const SERVE_BYTES: u64 = 5 * TRANSFER_BYTES_MAX as u64;

/// Handles beyond those of the inputs.
const HANDLES_SPARE: usize = 4096;

/// Open while the attempt may change files.
pub(crate) type Gate = Mutex<bool>;

/// The files that a worker opened or created.
pub(crate) struct Server {
    medium: Arc<dyn Medium>,
    job: Job,
    inputs: BTreeSet<String>,
    handles: Vec<Handle>,
    /// Bytes that may still be written.
    write_bytes: u64,
    /// The number of the last request.
    last: u32,
    gate: Arc<Gate>,
    /// For the bytes in flight.
    _charge: Charge,
}

struct Handle {
    file: Arc<dyn File>,
    is_output: bool,
}

impl Server {
    /// Serves the files of `job`.
    ///
    /// # Errors
    /// `Retry` if memory is short.
    pub(crate) fn new(job: &Job, env: &Env, gate: Arc<Gate>) -> Result<Self> {
        let inputs: u64 = job.pieces().map(|piece| piece.file_bytes).fold(0, u64::saturating_add);
        Ok(Self {
            medium: Arc::clone(&env.medium),
            inputs: job.pieces().map(|piece| table::file_name(piece.id)).collect(),
            job: job.clone(),
            handles: Vec::new(),
            write_bytes: inputs.saturating_mul(4).saturating_add(WRITE_BYTES_SPARE),
            last: 0,
            gate,
            _charge: env.account.charge(SERVE_BYTES)?,
        })
    }

    /// Serves a request. The first error is of the request, for its sender; the second ends the attempt.
    ///
    /// # Errors
    /// `Corrupt` if requests were lost or repeated.
    pub(crate) fn serve(
        &mut self,
        number: u32,
        request: &FileRequest<'_>,
    ) -> Result<Result<Vec<u8>>> {
        // A repeated write could undo a later one, and a lost one leave a hole.
        if number != self.last.wrapping_add(1) {
            return Err(Error::corrupt("number of a request")
                .expected(self.last.wrapping_add(1))
                .got(number));
        }
        self.last = number;
        Ok(self.answer(request))
    }

    fn answer(&mut self, request: &FileRequest<'_>) -> Result<Vec<u8>> {
        match request {
            FileRequest::Open { name } => {
                if !self.may_read(name) {
                    return Err(foreign(name));
                }
                let file = self.medium.open(name, Access::Direct)?;
                self.add(file, self.is_output(name))
            }
            FileRequest::Create { name } => {
                if !self.is_output(name) {
                    return Err(foreign(name));
                }
                let gate = Arc::clone(&self.gate);
                let gate = gate.lock();
                must_be_open(*gate)?;
                let file = self.medium.create(name, Access::Direct, 0)?;
                self.add(file, true)
            }
            FileRequest::Read { file, at, len } => self.read(*file, *at, *len as usize),
            FileRequest::Write { file, at, bytes } => self.write(*file, *at, bytes),
            FileRequest::SetLen { file, len } => {
                let gate = self.gate.lock();
                must_be_open(*gate)?;
                let file = self.output(*file)?;
                // An extension takes space without a write.
                if *len > file.size()? {
                    return Err(Error::invalid("length of an output").expected("a shorter one"));
                }
                file.set_len(*len).map(|()| Vec::new())
            }
            FileRequest::Sync { file } => {
                self.output(*file)?.sync(Purpose::Compaction).map(|()| Vec::new())
            }
            FileRequest::Remove { name } => {
                if !self.is_output(name) {
                    return Err(foreign(name));
                }
                let gate = self.gate.lock();
                must_be_open(*gate)?;
                self.medium.remove(name).map(|()| Vec::new())
            }
            FileRequest::SyncNames { names } => {
                if let Some(name) = names.iter().find(|name| !self.is_output(name)) {
                    return Err(foreign(name));
                }
                self.medium.sync_names(names).map(|()| Vec::new())
            }
        }
    }

    /// Adds a handle. The answer is its number and the file's length.
    fn add(&mut self, file: Arc<dyn File>, is_output: bool) -> Result<Vec<u8>> {
        if self.handles.len() >= 4 * self.inputs.len() + HANDLES_SPARE {
            return Err(Error::retry("open files of a worker").expected("fewer"));
        }
        let mut out = Vec::new();
        put_u32(&mut out, self.handles.len() as u32);
        put_u64(&mut out, file.size()?);
        self.handles.push(Handle { file, is_output });
        Ok(out)
    }

    fn handle(&self, number: u32) -> Result<&Handle> {
        let handle = self.handles.get(number as usize);
        handle.ok_or_else(|| Error::invalid("file of a worker").expected("an open one").got(number))
    }

    fn output(&self, number: u32) -> Result<&Arc<dyn File>> {
        let handle = self.handle(number)?;
        match handle.is_output {
            true => Ok(&handle.file),
            false => Err(foreign(handle.file.name())),
        }
    }

    fn read(&self, file: u32, at: u64, len: usize) -> Result<Vec<u8>> {
        must_be_pages(len)?;
        let file = &self.handle(file)?.file;
        let (buf, result) = file.read(at, Buf::pages(len / PAGE_BYTES), Purpose::Compaction);
        result.map(|()| buf.to_vec())
    }

    fn write(&mut self, file: u32, at: u64, bytes: &[u8]) -> Result<Vec<u8>> {
        must_be_pages(bytes.len())?;
        let left = self.write_bytes.checked_sub(bytes.len() as u64);
        let left = left.ok_or_else(|| Error::no_space("bytes of a worker's outputs"))?;
        let file = Arc::clone(self.output(file)?);
        // A write past the end would leave a hole, and nothing bounds the length of holes.
        if at > file.size()? {
            return Err(Error::invalid("write of a worker").expected("none past the file's end"));
        }
        let mut buf = Buf::pages(bytes.len() / PAGE_BYTES);
        buf.copy_from_slice(bytes);
        let gate = self.gate.lock();
        must_be_open(*gate)?;
        self.write_bytes = left;
        let (_, result) = file.write(at, buf, Purpose::Compaction);
        result.map(|()| Vec::new())
    }

    /// Whether `name` is a file with an id that is reserved for this attempt.
    fn is_output(&self, name: &str) -> bool {
        let table = table::parse_file_name(name);
        let values = table::parse_values_file_name(name);
        table.is_some_and(|id| self.job.output.ids.contains(&id))
            || values.is_some_and(|id| self.job.values.ids.contains(&id))
    }

    /// Whether the job needs `name`: inputs, the value files that they may point into, dictionaries.
    fn may_read(&self, name: &str) -> bool {
        self.inputs.contains(name)
            || self.is_output(name)
            || table::parse_values_file_name(name).is_some()
            || Dictionary::parse_file_name(name).is_some()
    }
}

fn foreign(name: &str) -> Error {
    Error::invalid("file of a worker's request")
        .expected("a file of its job")
        .got(name.escape_debug())
}

fn must_be_open(gate: bool) -> Result<()> {
    if gate { Ok(()) } else { Err(Error::closed("attempt of a worker")) }
}

fn must_be_pages(len: usize) -> Result<()> {
    if len > 0 && len <= TRANSFER_BYTES_MAX && len.is_multiple_of(PAGE_BYTES) {
        return Ok(());
    }
    Err(Error::invalid("length of a transfer")
        .expected(format_args!("whole pages, at most {TRANSFER_BYTES_MAX} bytes"))
        .got(len))
}
