//! A connection that compresses blocks: frames of blocks, each answered before the next.

use std::sync::Arc;
use std::time::{Duration, Instant};

use base::{Account, Codec, Error, Result};
use table::{BlockCompressor, BlockEngine};

use super::Shared;
use super::job::{Grant, Running, own_cpu_time};
use crate::blocks::{BLOCKS_BODY_MAX, CompressReply, CompressRequest};
use crate::{Frame, FrameKind, Link};

/// Memory of a connection: a frame of blocks, its answer and a compressor, bytes.
const CONNECTION_BYTES: u64 = 16 << 20;

/// How long a host may be silent: it sends the blocks of one table, and a merge may pause.
pub(super) const SILENCE_MAX: Duration = Duration::from_secs(60);

/// How long a connection waits for a slot: that of the table before, whose end this worker has not seen yet.
const SLOT_WAIT: Duration = Duration::from_millis(200);

/// Serves a connection with the first request `first`.
///
/// # Errors
/// Those of the link, and why a block was not compressed.
pub(super) fn serve(link: &mut dyn Link, shared: &Arc<Shared>, first: Frame) -> Result<()> {
    let slot = wait_for_slot(shared).ok_or_else(|| Error::retry("slots of a worker"))?;
    let _grant = Grant::take(shared, CONNECTION_BYTES + shared.options.link_bytes(), slot)?;
    let began = own_cpu_time();
    let mut spent = Duration::ZERO;
    let mut compressor = None;
    let mut next = Some(first);
    while let Some(frame) = next {
        if frame.kind != FrameKind::Compress {
            let got = format!("{:?}", frame.kind);
            return Err(Error::corrupt("frame of a host").expected("blocks to compress").got(got));
        }
        let request = CompressRequest::decode(&frame.body)?;
        let payloads = compress(&request, shared.options.engine.as_deref(), &mut compressor)?;
        let cpu = own_cpu_time().saturating_sub(began);
        shared.quota.spend(cpu.saturating_sub(spent));
        spent = cpu;
        let body = CompressReply { cpu, payloads }.encode();
        link.send(&Frame { kind: FrameKind::Compressed, job: 0, epoch: 0, body })?;
        // The end of the connection is the end of the table.
        next = match link.receive(SILENCE_MAX, BLOCKS_BODY_MAX) {
            Ok(frame) => frame,
            Err(error) if error.is_retryable() => None,
            Err(error) => return Err(error),
        };
    }
    Ok(())
}

/// A slot of the worker, if one gets free soon.
fn wait_for_slot(shared: &Shared) -> Option<Running<'_>> {
    let began = Instant::now();
    loop {
        let slot = Running::start(shared);
        if slot.is_some() || began.elapsed() >= SLOT_WAIT {
            return slot;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The compressed forms of the blocks of `request`.
fn compress(
    request: &CompressRequest<'_>,
    engine: Option<&dyn BlockEngine>,
    kept: &mut Option<BlockCompressor>,
) -> Result<Vec<Vec<u8>>> {
    let (codec, level) = (request.codec, request.level);
    let account = Account::unlimited("blocks of a host");
    if !matches!(codec, Codec::Zstd | Codec::Deflate) {
        return Err(Error::invalid("codec of blocks").expected("zstd or deflate").got(codec as u8));
    }
    if let Some(mut stream) = engine.and_then(|engine| engine.stream(codec, level, &account)) {
        for block in &request.blocks {
            stream.submit(&Arc::new(block.to_vec()))?;
        }
        return request.blocks.iter().map(|_| stream.take()).collect();
    }
    let found = kept.take().filter(|it| it.is_of(codec, level));
    let mut compressor = match found {
        Some(compressor) => compressor,
        // The connection's grant covers its memory.
        None => BlockCompressor::new(codec, level, &account)?,
    };
    let payloads = request.blocks.iter().map(|block| compressor.compress(block)).collect();
    *kept = Some(compressor);
    payloads
}
