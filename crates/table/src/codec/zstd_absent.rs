//! Replaces the Zstandard codec in a build without the `zstd` feature: refuses every use.

use std::sync::Arc;

use base::{Account, DictionaryId, Result};

use super::decompress::zstd_is_absent;
use crate::dictionary::Dictionary;

/// Has no values in this build.
pub(crate) enum Compressor {}

impl Compressor {
    pub(crate) fn new(_: i32, dictionary: Option<Arc<Dictionary>>, _: &Account) -> Result<Self> {
        match dictionary {
            Some(dictionary) => match *dictionary.digested() {},
            None => zstd_is_absent(),
        }
    }

    pub(crate) fn dictionary_id(&self) -> DictionaryId {
        match *self {}
    }

    pub(crate) fn compress(&mut self, _: &[u8], _: &mut Vec<u8>) -> Result<bool> {
        match *self {}
    }
}

/// Has no values in this build.
pub(crate) enum Digested {}

impl Digested {
    pub(crate) fn new(_: Arc<[u8]>, _: &Account) -> Result<Self> {
        zstd_is_absent()
    }
}

pub(crate) fn decompress(dictionary: Option<&Dictionary>, _: &[u8], _: usize) -> Result<Vec<u8>> {
    match dictionary {
        Some(dictionary) => match *dictionary.digested() {},
        None => zstd_is_absent(),
    }
}

pub(crate) fn train(_: &[&[u8]], _: usize) -> Result<Vec<u8>> {
    zstd_is_absent()
}
