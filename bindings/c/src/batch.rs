//! Batches.

use std::ffi::c_int;

use terracedb::{Error, Result, WriteBatch};

use crate::bytes::slice;
use crate::error::{done, tdb_error};
use crate::store::{live, tdb_db, tdb_keyspace, write_options};

/// Writes that are applied together or not at all. Free it with `tdb_batch_free`.
pub struct tdb_batch(WriteBatch);

/// An empty batch.
#[unsafe(no_mangle)]
pub extern "C" fn tdb_batch_new() -> *mut tdb_batch {
    Box::into_raw(Box::new(tdb_batch(WriteBatch::new())))
}

/// Frees a batch. NULL is allowed.
///
/// # Safety
/// `batch` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tdb_batch_free(batch: *mut tdb_batch) {
    if !batch.is_null() {
        // SAFETY: it came from `Box::into_raw`, and the caller frees it once.
        drop(unsafe { Box::from_raw(batch) });
    }
}

/// # Safety
/// `batch` is NULL or live, and no other thread uses it; `keyspace` is NULL or live.
unsafe fn both<'a>(
    batch: *mut tdb_batch,
    keyspace: *const tdb_keyspace,
) -> Result<(&'a mut WriteBatch, &'a tdb_keyspace)> {
    // SAFETY: as promised by the caller.
    let batch = unsafe { batch.as_mut() }.ok_or_else(|| Error::invalid("batch").got("NULL"))?;
    // SAFETY: as promised by the caller.
    Ok((&mut batch.0, unsafe { live(keyspace, "keyspace") }?))
}

/// Adds a put.
///
/// # Safety
/// `batch` and `keyspace` are live; `key` and `value` point to as many bytes as their lengths say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tdb_batch_put(
    batch: *mut tdb_batch,
    keyspace: *const tdb_keyspace,
    key: *const u8,
    key_len: usize,
    value: *const u8,
    value_len: usize,
) -> *mut tdb_error {
    // SAFETY: as promised by the caller.
    let (key, value) = unsafe { (slice(key, key_len), slice(value, value_len)) };
    // SAFETY: as promised by the caller.
    let both = unsafe { both(batch, keyspace) };
    done(both.and_then(|(batch, keyspace)| batch.put(&keyspace.0, key, value)))
}

/// Adds a delete.
///
/// # Safety
/// `batch` and `keyspace` are live; `key` points to `key_len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tdb_batch_delete(
    batch: *mut tdb_batch,
    keyspace: *const tdb_keyspace,
    key: *const u8,
    key_len: usize,
) -> *mut tdb_error {
    // SAFETY: as promised by the caller.
    let (key, both) = unsafe { (slice(key, key_len), both(batch, keyspace)) };
    done(both.and_then(|(batch, keyspace)| batch.delete(&keyspace.0, key)))
}

/// Applies the batch, and empties it. After an error none of it is applied, and it is as before.
///
/// # Safety
/// `db` and `batch` are live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tdb_write(
    db: *const tdb_db,
    batch: *mut tdb_batch,
    durability: c_int,
) -> *mut tdb_error {
    let write = || {
        // SAFETY: as promised by the caller.
        let batch = unsafe { batch.as_mut() }.ok_or_else(|| Error::invalid("batch").got("NULL"))?;
        // SAFETY: as promised by the caller.
        unsafe { live(db, "store") }?.0.write_opt(&batch.0, &write_options(durability)?)?;
        batch.0.clear();
        Ok(())
    };
    done(write())
}
