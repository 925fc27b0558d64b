//! The frames of a link: length, kind, job, epoch, body, checksum (docs/format/offload.md).

use base::{Cursor, Error, Result, hash64, put_u64};

/// The longest body, bytes: a job or an outcome.
pub(crate) const BODY_BYTES_MAX: usize = 64 << 20;

/// Kind, job, epoch.
const HEADER_BYTES: usize = 1 + 8 + 8;

const CHECKSUM_BYTES: usize = 8;

/// Bytes of a frame besides its body and its length field.
pub(crate) const OVERHEAD_BYTES: usize = HEADER_BYTES + CHECKSUM_BYTES;

/// The kind of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FrameKind {
    /// Both: protocol, token, abilities.
    Hello = 1,
    /// Host: a job.
    Offer = 2,
    /// Worker: it takes the job.
    Accept = 3,
    /// Worker: it refuses the job, with the reason.
    Refuse = 4,
    /// Both: still there; the worker adds its progress.
    Beat = 5,
    /// Worker: read a range of a file.
    Read = 6,
    /// Worker: create an output.
    Create = 7,
    /// Worker: write a range of an output.
    Write = 8,
    /// Worker: make an output durable.
    Sync = 9,
    /// Worker: the outcome.
    Done = 10,
    /// Worker: the job failed, and why.
    Failed = 11,
    /// Host: the attempt is over.
    Cancel = 12,
    /// Worker: open a file.
    Open = 13,
    /// Worker: remove an output.
    Remove = 14,
    /// Worker: make the names of outputs durable.
    SyncNames = 15,
    /// Worker: set the length of an output.
    SetLen = 16,
    /// Host: the answer to a request for a file.
    Reply = 17,
    /// Host: blocks to compress.
    Compress = 18,
    /// Worker: the compressed blocks.
    Compressed = 19,
    /// Host: outputs of another worker to verify.
    Verify = 20,
    /// Worker: they are in order.
    Verified = 21,
}

impl FrameKind {
    const ALL: [Self; 21] = [
        Self::Hello,
        Self::Offer,
        Self::Accept,
        Self::Refuse,
        Self::Beat,
        Self::Read,
        Self::Create,
        Self::Write,
        Self::Sync,
        Self::Done,
        Self::Failed,
        Self::Cancel,
        Self::Open,
        Self::Remove,
        Self::SyncNames,
        Self::SetLen,
        Self::Reply,
        Self::Compress,
        Self::Compressed,
        Self::Verify,
        Self::Verified,
    ];

    fn decode(byte: u8) -> Result<Self> {
        let kind = Self::ALL.into_iter().find(|kind| *kind as u8 == byte);
        kind.ok_or_else(|| Error::invalid("kind of a frame").expected("1 to 21").got(byte))
    }
}

/// A frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Its kind.
    pub kind: FrameKind,
    /// The job's id; 0 before there is one.
    pub job: u64,
    /// The job's epoch; 0 before there is one.
    pub epoch: u64,
    /// Its content.
    pub body: Vec<u8>,
}

impl Frame {
    /// Encodes the frame with its length field.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let length = OVERHEAD_BYTES + self.body.len();
        base::invariant!(self.body.len() <= BODY_BYTES_MAX, "the body of a frame is bounded");
        let mut out = Vec::with_capacity(4 + length);
        out.extend_from_slice(&(length as u32).to_le_bytes());
        out.push(self.kind as u8);
        put_u64(&mut out, self.job);
        put_u64(&mut out, self.epoch);
        out.extend_from_slice(&self.body);
        let checksum = hash64(0, &out);
        put_u64(&mut out, checksum);
        out
    }

    /// The length of the frame at the start of `bytes`, length field included; `None` if `bytes` is shorter
    /// than that field.
    ///
    /// # Errors
    /// `Corrupt` if its body has more than `body_max` bytes, or it is too short.
    pub(crate) fn length(bytes: &[u8], body_max: usize) -> Result<Option<usize>> {
        let Some(field) = bytes.get(..4) else { return Ok(None) };
        let length = Cursor::new("frame", field).u32()? as usize;
        let most = OVERHEAD_BYTES + body_max.min(BODY_BYTES_MAX);
        if !(OVERHEAD_BYTES..=most).contains(&length) {
            return Err(Error::corrupt("length of a frame")
                .expected(format_args!("{OVERHEAD_BYTES} to {most}"))
                .got(length));
        }
        Ok(Some(4 + length))
    }

    /// Decodes a whole frame, as [`Frame::encode`] made it.
    ///
    /// # Errors
    /// `Corrupt` if it is damaged, `Invalid` if its kind is unknown.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let length = Self::length(bytes, BODY_BYTES_MAX)?;
        if length != Some(bytes.len()) {
            return Err(Error::corrupt("frame").expected("a whole frame").got(bytes.len()));
        }
        let (covered, stored) = bytes.split_at(bytes.len() - CHECKSUM_BYTES);
        let (stored, computed) = (Cursor::new("frame", stored).u64()?, hash64(0, covered));
        if stored != computed {
            return Err(Error::corrupt("frame")
                .at("checksum")
                .expected(format_args!("{computed:016x}"))
                .got(format_args!("{stored:016x}")));
        }
        let mut cursor = Cursor::new("frame", covered);
        let _length = cursor.u32()?;
        let kind = FrameKind::decode(cursor.u8()?)?;
        let (job, epoch) = (cursor.u64()?, cursor.u64()?);
        Ok(Self { kind, job, epoch, body: cursor.rest().to_vec() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame() -> Frame {
        Frame { kind: FrameKind::Read, job: 7, epoch: 2, body: vec![1, 2, 3] }
    }

    #[test]
    fn golden_bytes() {
        let golden = include_str!("../golden/frame.hex").trim_end();
        let hex: String = frame().encode().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, golden);
    }

    #[test]
    fn every_damaged_byte_is_refused() {
        let bytes = frame().encode();
        assert_eq!(Frame::decode(&bytes).unwrap(), frame());
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            Frame::decode(&damaged).unwrap_err();
            Frame::decode(&bytes[..at]).unwrap_err();
        }
    }

    #[test]
    fn length_is_checked_before_memory_is_taken() {
        assert_eq!(Frame::length(&[1, 2], 10).unwrap(), None);
        for length in [0, OVERHEAD_BYTES - 1, OVERHEAD_BYTES + 11, u32::MAX as usize] {
            Frame::length(&(length as u32).to_le_bytes(), 10).unwrap_err();
        }
        let length = (OVERHEAD_BYTES + 10) as u32;
        assert_eq!(Frame::length(&length.to_le_bytes(), 10).unwrap(), Some(4 + length as usize));
    }
}
