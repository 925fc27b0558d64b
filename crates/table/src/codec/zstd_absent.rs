//! Replaces the Zstandard codec in a build without the `zstd` feature: refuses every use.

use std::sync::Arc;

use base::{Account, DictionaryId, Error, Result};

use crate::dictionary::Dictionary;

fn absent<T>() -> Result<T> {
    Err(Error::invalid("zstd").expected("a build with the `zstd` feature").got("one without"))
}

/// Has no values in this build.
pub(crate) enum Compressor {}

impl Compressor {
    pub(crate) fn new(_: i32, dictionary: Option<Arc<Dictionary>>, _: &Account) -> Result<Self> {
        match dictionary {
            Some(dictionary) => match *dictionary.digested() {},
            None => absent(),
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
        absent()
    }
}

pub(crate) fn decompress(dictionary: Option<&Dictionary>, _: &[u8], _: usize) -> Result<Vec<u8>> {
    match dictionary {
        Some(dictionary) => match *dictionary.digested() {},
        None => absent(),
    }
}

pub(crate) fn train(_: &[&[u8]], _: usize) -> Result<Vec<u8>> {
    absent()
}
