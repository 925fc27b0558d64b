//! Upload: a file that is being written. It is an object, and has a name, once it is complete.
//!
//! Short files are one request. Longer ones are sent in parts of one size, so that a lost connection costs
//! one part, and so that another process goes on with the parts that the store has: a part is not sent again
//! if the store has one with its number and MD5. Memory: one part, charged (I10). Writes append.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use base::{Charge, Error, Result};
use media::{Buf, File, Purpose};
use parking_lot::Mutex;

use crate::download::ObjectFile;
use crate::manifest::ObjectEntry;
use crate::objects::{self, Completion, PARTS_MAX, PartHash, StoredPart, Upload};
use crate::shared::Shared;

/// The length of longer parts is a multiple of this, bytes: only for round numbers.
const PART_STEP: u64 = 1 << 20;

/// The length of the parts of a file of `len` bytes, so that their number stays within the limit of S3.
pub(crate) fn part_len(len: u64, least: u64) -> u64 {
    match len / (PARTS_MAX / 2) {
        needed if needed > least => needed.next_multiple_of(PART_STEP),
        _ => least,
    }
}

/// A file that is being written. See the module.
pub(crate) struct UploadFile {
    shared: Arc<Shared>,
    name: String,
    state: Mutex<State>,
}

struct State {
    /// The key of its object, below the prefix.
    key: String,
    part_len: u64,
    /// The part that is being filled.
    part: Vec<u8>,
    charge: Option<Charge>,
    /// Bytes of the parts before.
    sent: u64,
    upload: Option<Begun>,
    hashes: Vec<PartHash>,
    tags: Vec<String>,
    /// The complete file.
    done: Option<ObjectFile>,
    failed: Option<Error>,
}

/// An upload in parts.
struct Begun {
    upload: Upload,
    /// Parts that the store had before.
    stored: BTreeMap<u64, StoredPart>,
    /// Another process began it.
    is_resumed: bool,
}

impl UploadFile {
    /// A file whose object will have `key`. `reserve` is the length that is expected, bytes.
    pub(crate) fn new(
        shared: &Arc<Shared>,
        name: &str,
        (key, resumable): (String, Option<Upload>),
        reserve: u64,
    ) -> Result<Self> {
        let part_len = part_len(reserve, shared.part_bytes);
        let charge = shared.account.charge(part_len)?;
        let upload = match resumable {
            Some(upload) => {
                let stored = objects::list_parts(&shared.client, &upload)?;
                Some(Begun { upload, stored, is_resumed: true })
            }
            None => None,
        };
        let state = State {
            key,
            part_len,
            part: Vec::new(),
            charge: Some(charge),
            sent: 0,
            upload,
            hashes: Vec::new(),
            tags: Vec::new(),
            done: None,
            failed: None,
        };
        Ok(Self { shared: Arc::clone(shared), name: name.to_owned(), state: Mutex::new(state) })
    }

    /// Runs `step` unless a step before failed.
    fn run(&self, step: impl FnOnce(&mut State) -> Result<()>) -> Result<()> {
        let state = &mut *self.state.lock();
        if let Some(first) = &state.failed {
            return Err(Error::poisoned_by("upload", first).at(&self.name));
        }
        if state.done.is_some() {
            return Err(Error::invalid("write to a complete object").at(&self.name));
        }
        step(state).inspect_err(|error| state.failed = Some(error.clone()))
    }

    fn append(&self, state: &mut State, at: u64, mut bytes: &[u8]) -> Result<()> {
        let end = state.sent + state.part.len() as u64;
        if at != end {
            let error = Error::invalid("write to an object").at(&self.name);
            return Err(error.expected(format_args!("offset {end}, its end")).got(at));
        }
        while !bytes.is_empty() {
            let room = state.part_len as usize - state.part.len();
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            state.part.extend_from_slice(now);
            bytes = later;
            if state.part.len() as u64 == state.part_len {
                self.send_part(state)?;
            }
        }
        Ok(())
    }

    /// Sends the part that was filled, unless the store has it.
    fn send_part(&self, state: &mut State) -> Result<()> {
        let client = &self.shared.client;
        let number = state.tags.len() as u64 + 1;
        if number > PARTS_MAX {
            return Err(Error::invalid("parts of an object").at(&self.name).expected(PARTS_MAX));
        }
        let (hash, len) = (objects::part_hash(&state.part), state.part.len() as u64);
        let begun = match &mut state.upload {
            Some(begun) => begun,
            none => {
                let key = client.location().key(&state.key);
                let upload = objects::begin_upload(client, &key)?;
                none.insert(Begun { upload, stored: BTreeMap::new(), is_resumed: false })
            }
        };
        let has = |part: &StoredPart| part.len == len && part.tag == objects::hex(&hash);
        let tag = match begun.stored.remove(&number).filter(has) {
            Some(part) => part.tag,
            None => match objects::put_part(client, &begun.upload, number, &state.part)? {
                Some(tag) => tag,
                None => return Err(self.taken("none: it was aborted or completed")),
            },
        };
        state.hashes.push(hash);
        state.tags.push(tag);
        state.sent += len;
        state.part.clear();
        Ok(())
    }

    /// The error of an upload that another process ended: a later writer, or the one that began it.
    fn taken(&self, got: &str) -> Error {
        let client = &self.shared.client;
        if let Err(error) = self.shared.session.lock().must_be_writer(client) {
            return error;
        }
        let error = Error::retry("upload of an object").at(&self.name);
        error.expected("the upload that this process writes").got(got)
    }

    fn complete(&self, state: &mut State) -> Result<()> {
        let client = &self.shared.client;
        if !state.part.is_empty() && state.upload.is_some() {
            self.send_part(state)?;
        }
        let len = state.sent + state.part.len() as u64;
        let key = match &state.upload {
            Some(begun) => {
                let key = &begun.upload.key;
                if objects::complete_upload(client, &begun.upload, &state.tags)? == Completion::Gone
                {
                    self.must_be_complete(begun, &state.hashes, len)?;
                }
                client.location().name(key).unwrap_or(key).to_owned()
            }
            None => {
                objects::put(client, &client.location().key(&state.key), &state.part)?;
                state.key.clone()
            }
        };
        let entry = ObjectEntry { key, len };
        state.done = Some(ObjectFile::new(&self.shared, &self.name, &entry));
        (state.part, state.charge) = (Vec::new(), None);
        self.shared.session.lock().finish(&self.name, entry)
    }

    /// Looks for the object of an upload that does not exist any more: the answer to its completion may have
    /// been lost.
    fn must_be_complete(&self, begun: &Begun, hashes: &[PartHash], len: u64) -> Result<()> {
        match objects::head(&self.shared.client, &begun.upload.key)? {
            Some(found) if found.len == len && found.tag == objects::upload_tag(hashes) => Ok(()),
            // A store that encrypts has other tags. Only this process has the key of its own upload.
            Some(found) if found.len == len && !begun.is_resumed => Ok(()),
            Some(_) => Err(self.taken("another object: it was completed elsewhere")),
            None => Err(self.taken("none: it was aborted")),
        }
    }
}

impl File for UploadFile {
    fn name(&self) -> &str {
        &self.name
    }

    fn size(&self) -> Result<u64> {
        let state = self.state.lock();
        match &state.done {
            Some(file) => file.size(),
            None => Ok(state.sent + state.part.len() as u64),
        }
    }

    fn read(&self, at: u64, buf: Buf, purpose: Purpose) -> (Buf, Result<()>) {
        match &self.state.lock().done {
            Some(file) => file.read(at, buf, purpose),
            None => (buf, Err(Error::invalid("read of an incomplete object").at(&self.name))),
        }
    }

    fn write(&self, at: u64, buf: Buf, _purpose: Purpose) -> (Buf, Result<()>) {
        let result = self.run(|state| self.append(state, at, &buf));
        (buf, result)
    }

    fn store(&self, at: u64, bytes: &[u8], _purpose: Purpose) -> Result<()> {
        self.run(|state| self.append(state, at, bytes))
    }

    fn sync(&self, _purpose: Purpose) -> Result<()> {
        if self.state.lock().done.is_some() {
            return Ok(());
        }
        self.run(|state| self.complete(state))
    }

    fn set_len(&self, len: u64) -> Result<()> {
        let size = self.size()?;
        if len == size {
            return Ok(());
        }
        Err(Error::invalid("length of an object").at(&self.name).expected(size).got(len))
    }

    fn undecorated(&self) -> &dyn Any {
        self
    }
}

impl Drop for UploadFile {
    fn drop(&mut self) {
        if self.state.get_mut().done.is_none() {
            self.shared.session.lock().give_up(&self.name);
        }
    }
}

impl fmt::Debug for UploadFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UploadFile({})", self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_stay_within_the_limits_of_s3() {
        let least = 8 << 20;
        assert_eq!((part_len(0, least), part_len(1 << 30, least)), (least, least));
        assert_eq!(part_len(40_000, 8192), 8192);
        for len in [1 << 36, 1 << 40, 5 << 40] {
            let part = part_len(len, least);
            assert!(
                len.div_ceil(part) <= PARTS_MAX && part.is_multiple_of(PART_STEP),
                "{len}: {part}"
            );
        }
    }
}
