//! The bodies of COMPRESS and COMPRESSED: blocks on their way to a worker that compresses, and back.

use std::time::Duration;

use base::{Codec, Cursor, Result, put_bytes, put_u32, put_u64, put_varint};

/// Most blocks in one frame.
pub(crate) const BLOCKS_MAX: usize = 64;

/// The longest raw block, bytes.
pub(crate) const BLOCK_BYTES_MAX: usize = 64 << 10;

/// The longest body, bytes.
pub(crate) const BLOCKS_BODY_MAX: usize = BLOCKS_MAX * (BLOCK_BYTES_MAX + 5) + 64;

/// Blocks to compress.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CompressRequest<'a> {
    pub(crate) codec: Codec,
    pub(crate) level: i32,
    pub(crate) blocks: Vec<&'a [u8]>,
}

impl<'a> CompressRequest<'a> {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = vec![self.codec as u8];
        put_u32(&mut out, self.level.cast_unsigned());
        put_varint(&mut out, self.blocks.len() as u64);
        self.blocks.iter().for_each(|block| put_bytes(&mut out, block));
        out
    }

    pub(crate) fn decode(body: &'a [u8]) -> Result<Self> {
        let mut cursor = Cursor::new("blocks to compress", body);
        let codec = Codec::decode(cursor.u8()?)?;
        let level = cursor.u32()?.cast_signed();
        let mut blocks = Vec::new();
        for _ in 0..cursor.length(BLOCKS_MAX)? {
            blocks.push(cursor.bytes(BLOCK_BYTES_MAX)?);
        }
        cursor.finish()?;
        Ok(Self { codec, level, blocks })
    }
}

/// Compressed blocks, in the order of the request; an empty one would have become longer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CompressReply {
    /// Processor time of the connection so far.
    pub(crate) cpu: Duration,
    pub(crate) payloads: Vec<Vec<u8>>,
}

impl CompressReply {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_u64(&mut out, u64::try_from(self.cpu.as_nanos()).unwrap_or(u64::MAX));
        put_varint(&mut out, self.payloads.len() as u64);
        self.payloads.iter().for_each(|payload| put_bytes(&mut out, payload));
        out
    }

    pub(crate) fn decode(body: &[u8]) -> Result<Self> {
        let mut cursor = Cursor::new("compressed blocks", body);
        let cpu = Duration::from_nanos(cursor.u64()?);
        let mut payloads = Vec::new();
        for _ in 0..cursor.length(BLOCKS_MAX)? {
            payloads.push(cursor.bytes(BLOCK_BYTES_MAX)?.to_vec());
        }
        cursor.finish()?;
        Ok(Self { cpu, payloads })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_round_trip_and_damaged_bodies_are_refused() {
        let request =
            CompressRequest { codec: Codec::Deflate, level: -2, blocks: vec![b"abc", b"", b"x"] };
        let body = request.encode();
        assert_eq!(CompressRequest::decode(&body).unwrap(), request);
        let payloads = vec![b"1".to_vec(), Vec::new()];
        let reply = CompressReply { cpu: Duration::from_micros(7), payloads };
        let reply_body = reply.encode();
        assert_eq!(CompressReply::decode(&reply_body).unwrap(), reply);
        for end in 0..body.len() {
            CompressRequest::decode(&body[..end]).unwrap_err();
        }
        for end in 0..reply_body.len() {
            CompressReply::decode(&reply_body[..end]).unwrap_err();
        }
        let mut many = vec![Codec::Deflate as u8, 0, 0, 0, 0];
        put_varint(&mut many, BLOCKS_MAX as u64 + 1);
        CompressRequest::decode(&many).unwrap_err();
    }
}
