//! The Zstandard codec: one frame per block, with or without a dictionary.

use std::sync::Arc;

use base::{Account, Charge, DictionaryId, Error, Result};
use parking_lot::Mutex;
use zstd::zstd_safe::{self, CCtx, CDict, DCtx, DDict, ErrorCode};

use crate::dictionary::Dictionary;

/// What a compression context takes for blocks of a few pages at the usual levels, bytes.
const CONTEXT_BYTES: u64 = 2 << 20;

fn message(code: ErrorCode) -> &'static str {
    zstd_safe::get_error_name(code)
}

/// The levels a writer may ask for.
pub(crate) fn check_level(level: i32) -> Result<()> {
    // Negative levels trade ratio for speed without end; below -100 nothing is left to trade.
    let levels = -100..=zstd_safe::max_c_level();
    if levels.contains(&level) {
        return Ok(());
    }
    Err(Error::invalid("zstd level").expected(format_args!("{levels:?}")).got(level))
}

/// Compresses the blocks of one writer.
pub(crate) struct Compressor {
    context: CCtx<'static>,
    level: i32,
    dictionary: Option<(Arc<Dictionary>, Arc<CDict<'static>>)>,
    charge: Charge,
}

impl Compressor {
    pub(crate) fn new(
        level: i32,
        dictionary: Option<Arc<Dictionary>>,
        account: &Account,
    ) -> Result<Self> {
        check_level(level)?;
        let charge = account.charge(CONTEXT_BYTES)?;
        let context = CCtx::try_create().ok_or_else(|| Error::retry("memory for zstd"))?;
        let dictionary = match dictionary {
            Some(dictionary) => {
                let digested = dictionary.digested().compressing(level)?;
                Some((dictionary, digested))
            }
            None => None,
        };
        Ok(Self { context, level, dictionary, charge })
    }

    /// The dictionary's id; 0 for none.
    pub(crate) fn dictionary_id(&self) -> DictionaryId {
        self.dictionary.as_ref().map_or(DictionaryId(0), |(dictionary, _)| dictionary.id())
    }

    /// Replaces `out` by the compressed form of `raw`.
    pub(crate) fn compress(&mut self, raw: &[u8], out: &mut Vec<u8>) -> Result<()> {
        out.clear();
        out.reserve(zstd_safe::compress_bound(raw.len()));
        let result = match &self.dictionary {
            Some((_, digested)) => self.context.compress_using_cdict(out, raw, digested),
            None => self.context.compress(out, raw, self.level),
        };
        result.map_err(|code| Error::retry("zstd compression").got(message(code)))?;
        // High levels take more for large blocks than can be told before.
        let more = (self.context.sizeof() as u64).saturating_sub(self.charge.bytes());
        if more > 0 {
            self.charge.grow(more)?;
        }
        Ok(())
    }
}

/// A dictionary digested for decompression, and, once a writer asks, for compression.
pub(crate) struct Digested {
    bytes: Arc<[u8]>,
    decompressing: DDict<'static>,
    compressing: Mutex<Option<(i32, Arc<CDict<'static>>)>>,
    charge: Mutex<Charge>,
}

impl Digested {
    pub(crate) fn new(bytes: Arc<[u8]>, account: &Account) -> Result<Self> {
        // The dictionary's tables come on top of a copy of it.
        let mut charge = account.charge(2 * bytes.len() as u64 + (64 << 10))?;
        let decompressing =
            DDict::try_create(&bytes).ok_or_else(|| Error::retry("memory for zstd"))?;
        charge.shrink_to((bytes.len() + decompressing.sizeof()) as u64);
        let (compressing, charge) = (Default::default(), Mutex::new(charge));
        Ok(Self { bytes, decompressing, compressing, charge })
    }

    /// Digested for compression at `level`: once, as long as writers ask for the same level.
    fn compressing(&self, level: i32) -> Result<Arc<CDict<'static>>> {
        let mut slot = self.compressing.lock();
        if let Some((digested_for, digested)) = &*slot
            && *digested_for == level
        {
            return Ok(Arc::clone(digested));
        }
        let mut charge = self.charge.lock();
        let before = charge.bytes();
        // What a digest takes at the highest level; the true size is known once it exists.
        charge.grow(CONTEXT_BYTES + self.bytes.len() as u64)?;
        let digested = Arc::new(
            CDict::try_create(&self.bytes, level).ok_or_else(|| Error::retry("memory for zstd"))?,
        );
        charge.shrink_to(before + digested.sizeof() as u64);
        *slot = Some((level, Arc::clone(&digested)));
        Ok(digested)
    }
}

/// Contexts for decompression that nobody uses at the moment.
///
/// One takes about 160 KiB, and longer to make than a page to decompress. One a thread would be
/// memory in proportion to the threads; here it is as many as decompress at once, and of these at
/// most [`IDLE_MAX`] are kept: 2.5 MiB of the fixed overhead.
static IDLE: Mutex<Vec<DCtx<'static>>> = Mutex::new(Vec::new());

const IDLE_MAX: usize = 16;

pub(crate) fn decompress(
    dictionary: Option<&Dictionary>,
    payload: &[u8],
    raw_bytes: usize,
) -> Result<Vec<u8>> {
    let mut raw = Vec::with_capacity(raw_bytes);
    let idle = IDLE.lock().pop();
    let mut context = match idle {
        Some(context) => context,
        None => DCtx::try_create().ok_or_else(|| Error::retry("memory for zstd"))?,
    };
    let result = match dictionary {
        Some(dictionary) => {
            let digested = &dictionary.digested().decompressing;
            context.decompress_using_ddict(&mut raw, payload, digested)
        }
        None => context.decompress(&mut raw, payload),
    };
    let mut idle = IDLE.lock();
    if idle.len() < IDLE_MAX {
        idle.push(context);
    }
    drop(idle);
    result.map_err(|code| {
        Error::corrupt("zstd payload")
            .expected(format_args!("{raw_bytes} bytes once decompressed"))
            .got(message(code))
    })?;
    Ok(raw)
}

/// Trains a dictionary of at most `bytes_max` bytes.
pub(crate) fn train(samples: &[&[u8]], bytes_max: usize) -> Result<Vec<u8>> {
    let lengths: Vec<usize> = samples.iter().map(|sample| sample.len()).collect();
    let mut out = Vec::with_capacity(bytes_max);
    zstd_safe::train_from_buffer(&mut out, &samples.concat(), &lengths).map_err(|code| {
        Error::invalid("samples for a dictionary")
            .expected("at least ten, alike, and a hundred times the dictionary's size in all")
            .got(message(code))
    })?;
    Ok(out)
}
