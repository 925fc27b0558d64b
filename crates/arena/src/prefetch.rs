//! Asking the processor for memory before it is used: a miss costs 30 to 170 ns, several asked
//! for at once cost little more than one.

use std::ptr::NonNull;

/// The size of a cache line, bytes.
pub(crate) const LINE_BYTES: usize = 64;

/// Asks for the line at `address`. Only a hint: it reads nothing and cannot fault.
#[inline]
pub(crate) fn line(address: NonNull<u8>) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};

        // SAFETY: a prefetch accepts any address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.as_ptr().cast_const().cast()) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = address;
}

/// Asks for the line in which byte `at` of `bytes` lies, where there is one: for who reads on towards it.
#[inline]
pub fn prefetch(bytes: &[u8], at: usize) {
    if let Some(byte) = bytes.get(at) {
        line(NonNull::from(byte));
    }
}

/// Asks for all lines of `bytes`, for who writes or reads them all soon.
#[inline]
pub fn prefetch_all(bytes: &[u8]) {
    lines(NonNull::from(bytes).cast(), bytes.len());
}

/// Asks for every line of the `bytes` from `address`.
#[inline]
pub(crate) fn lines(address: NonNull<u8>, bytes: usize) {
    for offset in (0..bytes).step_by(LINE_BYTES) {
        // A wrapping step: the address is only hinted at.
        line(address.map_addr(|at| at.saturating_add(offset)));
    }
}
