//! Bytes that cross the boundary.

use bytes::Bytes;

/// Bytes that the library gives to the caller, to be freed with `tdb_bytes_free`. `data` is NULL if there is
/// no value; an empty value has a `data` that is not NULL and a `len` of 0.
#[repr(C)]
pub struct tdb_bytes {
    /// The first byte.
    pub data: *const u8,
    /// The number of bytes.
    pub len: usize,
    /// The library's.
    pub owner: *mut tdb_owner,
}

/// The owner of bytes.
pub struct tdb_owner(#[expect(dead_code, reason = "keeps the bytes alive")] Bytes);

impl tdb_bytes {
    pub(crate) fn new(bytes: Option<Bytes>) -> Self {
        let Some(bytes) = bytes else {
            return Self { data: std::ptr::null(), len: 0, owner: std::ptr::null_mut() };
        };
        // Moving `Bytes` moves the handle, not the bytes.
        let (data, len) = (bytes.as_ptr(), bytes.len());
        Self { data, len, owner: Box::into_raw(Box::new(tdb_owner(bytes))) }
    }
}

/// Frees bytes, and makes them absent. Freeing absent bytes does nothing.
///
/// # Safety
/// `bytes` is NULL or points to bytes that the library gave.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tdb_bytes_free(bytes: *mut tdb_bytes) {
    // SAFETY: the caller passes NULL or valid bytes.
    let Some(bytes) = (unsafe { bytes.as_mut() }) else { return };
    if !bytes.owner.is_null() {
        // SAFETY: the owner came from `Box::into_raw` and is replaced below.
        drop(unsafe { Box::from_raw(bytes.owner) });
    }
    *bytes = tdb_bytes::new(None);
}

/// The bytes at `data`; none if `len` is 0, whatever `data` is.
///
/// # Safety
/// `data` points to `len` bytes that do not change during `'a`.
pub(crate) unsafe fn slice<'a>(data: *const u8, len: usize) -> &'a [u8] {
    match data.is_null() || len == 0 {
        true => &[],
        // SAFETY: as promised by the caller.
        false => unsafe { std::slice::from_raw_parts(data, len) },
    }
}
