//! The Zstandard codec: one frame per block, with or without a dictionary.

use std::sync::Arc;

use base::{Account, Charge, DictionaryId, Error, Result};
use parking_lot::Mutex;
use zstd::zstd_safe::{self, CCtx, CDict, DCtx, DDict, ErrorCode};

use crate::dictionary::Dictionary;

/// Memory of a compression context for blocks of a few pages at the usual levels, bytes.
const CONTEXT_BYTES: u64 = 2 << 20;

/// The most memory that a context takes for `raw` bytes, including those of the dictionary, at a level,
/// bytes. Above level 3 its tables grow with the input: at level 22 to 2.8 MiB for 128 KiB and to 17.3
/// MiB for 1 MiB, according to `sizeof`.
const fn context_bytes(level: i32, raw: usize) -> u64 {
    if level <= 3 || raw <= 64 << 10 {
        return CONTEXT_BYTES;
    }
    CONTEXT_BYTES + 16 * (raw as u64).next_power_of_two()
}

fn message(code: ErrorCode) -> &'static str {
    zstd_safe::get_error_name(code)
}

/// Checks that a writer may use the level.
pub(crate) fn check_level(level: i32) -> Result<()> {
    // Lower levels trade ratio for speed; below -100 no ratio is left to trade.
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
    dictionary: Option<(Arc<Dictionary>, Arc<Compressing>)>,
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

    /// The id of the dictionary; 0 for none.
    pub(crate) fn dictionary_id(&self) -> DictionaryId {
        self.dictionary.as_ref().map_or(DictionaryId(0), |(dictionary, _)| dictionary.id())
    }

    /// Replaces `out` with the compressed form of `raw`. Returns false, with `out` empty, if memory is
    /// too short.
    pub(crate) fn compress(&mut self, raw: &[u8], out: &mut Vec<u8>) -> Result<bool> {
        out.clear();
        let dictionary =
            self.dictionary.as_ref().map_or(0, |(dictionary, _)| dictionary.bytes().len());
        let more = context_bytes(self.level, raw.len() + dictionary) - CONTEXT_BYTES;
        if more > 0 && !self.charge.try_grow(more) {
            return Ok(false);
        }
        out.reserve(zstd_safe::compress_bound(raw.len()));
        let result = match &self.dictionary {
            Some((_, digested)) => self.context.compress_using_cdict(out, raw, &digested.digest),
            None => self.context.compress(out, raw, self.level),
        };
        result.map_err(|code| Error::retry("zstd compression").got(message(code)).never_heals())?;
        debug_assert!(self.context.sizeof() as u64 <= self.charge.bytes(), "{}", raw.len());
        if more > 0 {
            // A context keeps the memory that it grew by, so make a new one.
            self.context = CCtx::try_create().ok_or_else(|| Error::retry("memory for zstd"))?;
            self.charge.shrink_to(CONTEXT_BYTES);
        }
        Ok(true)
    }
}

/// A dictionary digested for decompression and, once a writer needs it, for compression.
pub(crate) struct Digested {
    bytes: Arc<[u8]>,
    decompressing: DDict<'static>,
    compressing: Mutex<Option<Arc<Compressing>>>,
    account: Account,
    _charge: Charge,
}

/// A dictionary digested for compression at one level, as long as a writer uses it.
struct Compressing {
    level: i32,
    digest: CDict<'static>,
    _charge: Charge,
}

impl Digested {
    pub(crate) fn new(bytes: Arc<[u8]>, account: &Account) -> Result<Self> {
        // The dictionary's tables, and a copy of its bytes.
        let mut charge = account.charge(2 * bytes.len() as u64 + (64 << 10))?;
        let decompressing =
            DDict::try_create(&bytes).ok_or_else(|| Error::retry("memory for zstd"))?;
        charge.shrink_to((bytes.len() + decompressing.sizeof()) as u64);
        let (compressing, account) = (Mutex::default(), account.clone());
        Ok(Self { bytes, decompressing, compressing, account, _charge: charge })
    }

    /// The digest for compression at `level`. It is kept as long as writers ask for the same level.
    fn compressing(&self, level: i32) -> Result<Arc<Compressing>> {
        let mut slot = self.compressing.lock();
        if let Some(found) = &*slot
            && found.level == level
        {
            return Ok(Arc::clone(found));
        }
        // The memory of a digest at the highest level; the true size is known after it is made.
        let mut charge = self.account.charge(CONTEXT_BYTES + self.bytes.len() as u64)?;
        let digest =
            CDict::try_create(&self.bytes, level).ok_or_else(|| Error::retry("memory for zstd"))?;
        charge.shrink_to(digest.sizeof() as u64);
        let made = Arc::new(Compressing { level, digest, _charge: charge });
        *slot = Some(Arc::clone(&made));
        Ok(made)
    }
}

/// Decompression contexts that are not in use.
///
/// A context takes about 160 KiB, and longer to make than a page takes to decompress. One per thread
/// would take memory in proportion to the threads. Here there are as many as decompressions at a time,
/// and at most [`IDLE_MAX`] idle ones are kept: 2.5 MiB of the fixed overhead.
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
