//! The bodies of frames: offers, requests for files and their answers, progress, failures.

use std::time::Duration;

use base::{Cursor, Error, ErrorKind, Result, TableId, put_bytes, put_u32, put_u64, put_varint};

use crate::frame::BODY_BYTES_MAX;

/// Bytes of a proof that both sides see the same directory.
pub(crate) const PROOF_BYTES: usize = 16;

/// The longest error text, bytes.
const TEXT_BYTES_MAX: usize = 4096;

/// The longest read or write of a file in one frame, bytes.
pub(crate) const TRANSFER_BYTES_MAX: usize = 256 << 10;

/// The longest body while a job runs, bytes; an outcome and a list of names may be longer.
pub(crate) const REQUEST_BYTES_MAX: usize = TRANSFER_BYTES_MAX + 1024;

/// A job that a host offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Offer {
    /// Operands are merged to values of at most this many bytes.
    pub(crate) value_bytes_max: u64,
    /// The id of a file that the host wrote to its directory: a worker that finds it shares the directory.
    pub(crate) proof: TableId,
    /// The encoded job.
    pub(crate) job: Vec<u8>,
}

impl Offer {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.job.len() + 32);
        put_varint(&mut out, self.value_bytes_max);
        put_u64(&mut out, self.proof.0);
        put_bytes(&mut out, &self.job);
        out
    }

    pub(crate) fn decode(body: &[u8]) -> Result<Self> {
        let mut cursor = Cursor::new("offer", body);
        let (value_bytes_max, proof) = (cursor.varint()?, TableId(cursor.u64()?));
        let job = cursor.bytes(BODY_BYTES_MAX)?.to_vec();
        cursor.finish()?;
        Ok(Self { value_bytes_max, proof, job })
    }
}

/// Outputs of another worker to verify.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VerifyRequest {
    /// As [`Offer::proof`].
    pub(crate) proof: TableId,
    /// The encoded job.
    pub(crate) job: Vec<u8>,
    /// Its encoded outcome.
    pub(crate) outcome: Vec<u8>,
}

impl VerifyRequest {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.job.len() + self.outcome.len() + 32);
        put_u64(&mut out, self.proof.0);
        put_bytes(&mut out, &self.job);
        put_bytes(&mut out, &self.outcome);
        out
    }

    pub(crate) fn decode(body: &[u8]) -> Result<Self> {
        let mut cursor = Cursor::new("outputs to verify", body);
        let proof = TableId(cursor.u64()?);
        let (job, outcome) = (cursor.bytes(BODY_BYTES_MAX)?, cursor.bytes(BODY_BYTES_MAX)?);
        let request = Self { proof, job: job.to_vec(), outcome: outcome.to_vec() };
        cursor.finish()?;
        Ok(request)
    }
}

/// Progress of a worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    /// Bytes of inputs read.
    pub(crate) bytes_read: u64,
    /// Processor time of the attempt.
    pub(crate) cpu: Duration,
}

impl Progress {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_u64(&mut out, self.bytes_read);
        put_u64(&mut out, u64::try_from(self.cpu.as_nanos()).unwrap_or(u64::MAX));
        out
    }

    pub(crate) fn get(cursor: &mut Cursor<'_>) -> Result<Self> {
        let bytes_read = cursor.u64()?;
        Ok(Self { bytes_read, cpu: Duration::from_nanos(cursor.u64()?) })
    }
}

/// A request for a file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FileRequest<'a> {
    Open { name: &'a str },
    Create { name: &'a str },
    Read { file: u32, at: u64, len: u32 },
    Write { file: u32, at: u64, bytes: &'a [u8] },
    SetLen { file: u32, len: u64 },
    Sync { file: u32 },
    Remove { name: &'a str },
    SyncNames { names: Vec<&'a str> },
}

/// The longest file name, bytes.
const NAME_BYTES_MAX: usize = 128;

/// Most names in one request.
const NAMES_MAX: usize = 1 << 16;

fn name<'a>(cursor: &mut Cursor<'a>) -> Result<&'a str> {
    let bytes = cursor.bytes(NAME_BYTES_MAX)?;
    std::str::from_utf8(bytes).map_err(|e| Error::corrupt("file name").caused_by(e))
}

impl<'a> FileRequest<'a> {
    pub(crate) const fn kind(&self) -> crate::FrameKind {
        use crate::FrameKind as Kind;
        match self {
            Self::Open { .. } => Kind::Open,
            Self::Create { .. } => Kind::Create,
            Self::Read { .. } => Kind::Read,
            Self::Write { .. } => Kind::Write,
            Self::SetLen { .. } => Kind::SetLen,
            Self::Sync { .. } => Kind::Sync,
            Self::Remove { .. } => Kind::Remove,
            Self::SyncNames { .. } => Kind::SyncNames,
        }
    }

    pub(crate) fn encode(&self, number: u32) -> Vec<u8> {
        let mut out = Vec::new();
        put_u32(&mut out, number);
        match self {
            Self::Open { name } | Self::Create { name } | Self::Remove { name } => {
                put_bytes(&mut out, name.as_bytes());
            }
            Self::Read { file, at, len } => {
                put_u32(&mut out, *file);
                put_u64(&mut out, *at);
                put_u32(&mut out, *len);
            }
            Self::Write { file, at, bytes } => {
                out.reserve_exact(bytes.len() + 12);
                put_u32(&mut out, *file);
                put_u64(&mut out, *at);
                out.extend_from_slice(bytes);
            }
            Self::SetLen { file, len } => {
                put_u32(&mut out, *file);
                put_u64(&mut out, *len);
            }
            Self::Sync { file } => put_u32(&mut out, *file),
            Self::SyncNames { names } => {
                put_varint(&mut out, names.len() as u64);
                names.iter().for_each(|name| put_bytes(&mut out, name.as_bytes()));
            }
        }
        out
    }

    /// The number of the request, and the request; `None` if `kind` is no request for a file.
    pub(crate) fn decode(kind: crate::FrameKind, body: &'a [u8]) -> Result<Option<(u32, Self)>> {
        use crate::FrameKind as Kind;
        let mut cursor = Cursor::new("request for a file", body);
        let is_request = matches!(
            kind,
            Kind::Open
                | Kind::Create
                | Kind::Read
                | Kind::Write
                | Kind::SetLen
                | Kind::Sync
                | Kind::Remove
                | Kind::SyncNames
        );
        if !is_request {
            return Ok(None);
        }
        let number = cursor.u32()?;
        let request = match kind {
            Kind::Open => Self::Open { name: name(&mut cursor)? },
            Kind::Create => Self::Create { name: name(&mut cursor)? },
            Kind::Remove => Self::Remove { name: name(&mut cursor)? },
            Kind::Read => Self::Read { file: cursor.u32()?, at: cursor.u64()?, len: cursor.u32()? },
            Kind::Write => {
                let (file, at) = (cursor.u32()?, cursor.u64()?);
                let bytes = cursor.rest();
                return Ok(Some((number, Self::Write { file, at, bytes })));
            }
            Kind::SetLen => Self::SetLen { file: cursor.u32()?, len: cursor.u64()? },
            Kind::Sync => Self::Sync { file: cursor.u32()? },
            _ => {
                let mut names = Vec::new();
                for _ in 0..cursor.length(NAMES_MAX)? {
                    names.push(name(&mut cursor)?);
                }
                Self::SyncNames { names }
            }
        };
        cursor.finish()?;
        Ok(Some((number, request)))
    }
}

/// The answer to request `number`: its content, or why it failed.
pub(crate) fn encode_reply(number: u32, answer: &Result<Vec<u8>>) -> Vec<u8> {
    let mut out = Vec::new();
    put_u32(&mut out, number);
    match answer {
        Ok(content) => {
            out.push(0);
            out.extend_from_slice(content);
        }
        Err(error) => put_error(&mut out, error),
    }
    out
}

/// The number of the request that `body` answers, and the answer.
pub(crate) fn decode_reply(body: &[u8]) -> Result<(u32, Result<Vec<u8>>)> {
    let mut cursor = Cursor::new("reply", body);
    let (number, status) = (cursor.u32()?, cursor.u8()?);
    Ok(match status {
        0 => (number, Ok(cursor.rest().to_vec())),
        code => (number, Err(error(code, &mut cursor)?)),
    })
}

/// Appends the kind and text of an error.
pub(crate) fn put_error(out: &mut Vec<u8>, error: &Error) {
    out.push(match error.kind() {
        ErrorKind::Retry => 1,
        ErrorKind::Invalid => 2,
        ErrorKind::Corrupt => 3,
        ErrorKind::NoSpace => 4,
        _ => 5,
    });
    let text: String = error.to_string().chars().take(TEXT_BYTES_MAX / 4).collect();
    put_bytes(out, text.as_bytes());
}

/// The error with code `code` and the text at `cursor`.
fn error(code: u8, cursor: &mut Cursor<'_>) -> Result<Error> {
    let kind = match code {
        1 => ErrorKind::Retry,
        3 => ErrorKind::Corrupt,
        4 => ErrorKind::NoSpace,
        _ => ErrorKind::Invalid,
    };
    let text = String::from_utf8_lossy(cursor.bytes(TEXT_BYTES_MAX)?).into_owned();
    Ok(Error::new(kind, "the other side").got(text.escape_debug()))
}

/// The error that `body` reports.
pub(crate) fn decode_error(body: &[u8]) -> Error {
    let mut cursor = Cursor::new("failure", body);
    let decoded = cursor.u8().and_then(|code| error(code, &mut cursor));
    decoded.unwrap_or_else(|damage| damage)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_round_trip_and_damaged_ones_are_refused() {
        let requests = [
            FileRequest::Open { name: "a" },
            FileRequest::Create { name: "b" },
            FileRequest::Remove { name: "c" },
            FileRequest::Read { file: 1, at: 2, len: 3 },
            FileRequest::Write { file: 1, at: 2, bytes: b"xyz" },
            FileRequest::SetLen { file: 1, len: 9 },
            FileRequest::Sync { file: 4 },
            FileRequest::SyncNames { names: vec!["a", "b"] },
        ];
        for request in requests {
            let body = request.encode(7);
            assert_eq!(FileRequest::decode(request.kind(), &body).unwrap(), Some((7, request)));
            FileRequest::decode(crate::FrameKind::Open, &body[..3]).unwrap_err();
        }
        assert_eq!(FileRequest::decode(crate::FrameKind::Beat, &[]).unwrap(), None);
    }

    #[test]
    fn errors_keep_their_kind_and_text() {
        for kind in [ErrorKind::Retry, ErrorKind::Invalid, ErrorKind::Corrupt, ErrorKind::NoSpace] {
            let answer = Err(Error::new(kind, "disk").got("nothing"));
            let (number, decoded) = decode_reply(&encode_reply(3, &answer)).unwrap();
            let error = decoded.unwrap_err();
            assert_eq!((number, error.kind()), (3, kind));
            assert!(error.to_string().contains("disk"), "{error}");
        }
        assert_eq!(decode_reply(&encode_reply(1, &Ok(vec![9]))).unwrap().1.unwrap(), [9]);
        decode_reply(&[1]).unwrap_err();
    }
}
