//! Flushes cache lines to the medium with the processor's instructions.
//!
//! For persistent memory that is mapped as such: a line is durable once it was flushed and a fence followed.
//! Of no use on other media.

/// The unit of a flush, bytes.
#[cfg(not(miri))]
const LINE_BYTES: usize = 64;

/// Flushes every line of `len` bytes from `start` on, and waits for completion.
///
/// # Safety
/// The range is mapped.
#[cfg(not(miri))]
pub(super) unsafe fn flush(start: *const u8, len: usize) {
    // SAFETY: as the caller promises.
    unsafe { write_back(start, len) };
    fence();
}

/// Waits until every line that this thread flushed before is on the medium.
#[cfg(all(target_arch = "x86_64", not(miri)))]
pub(super) fn fence() {
    // SAFETY: every x86-64 has it, and it changes nothing.
    unsafe { std::arch::x86_64::_mm_sfence() };
}

/// As above.
#[cfg(all(target_arch = "aarch64", not(miri)))]
pub(super) fn fence() {
    // SAFETY: a barrier changes nothing.
    unsafe { std::arch::asm!("dsb ish", options(nostack, preserves_flags)) };
}

/// Begins to flush every line of `len` bytes from `start` on; [`fence`] waits for completion.
///
/// # Safety
/// The range is mapped.
#[cfg(all(target_arch = "x86_64", not(miri)))]
pub(super) unsafe fn write_back(start: *const u8, len: usize) {
    use std::arch::asm;
    use std::arch::x86_64::{__cpuid_count, _mm_clflush};
    use std::sync::LazyLock;

    #[derive(Clone, Copy)]
    enum Kind {
        WriteBack,
        FlushInAnyOrder,
        Flush,
    }
    // Intel's manual, CPUID leaf 7: EBX bit 24 is CLWB, bit 23 CLFLUSHOPT.
    static KIND: LazyLock<Kind> = LazyLock::new(|| {
        let features = __cpuid_count(7, 0).ebx;
        match (features >> 24 & 1, features >> 23 & 1) {
            (1, _) => Kind::WriteBack,
            (_, 1) => Kind::FlushInAnyOrder,
            _ => Kind::Flush,
        }
    });
    let kind = *KIND;
    let first = start.addr() % LINE_BYTES;
    for offset in (0..len + first).step_by(LINE_BYTES) {
        let line = start.wrapping_sub(first).wrapping_add(offset);
        match kind {
            // SAFETY: the instruction exists here, and changes neither memory nor registers; the line
            // holds a byte of the range or shares a line with one, so it is mapped.
            Kind::WriteBack => unsafe {
                asm!("clwb [{}]", in(reg) line, options(nostack, preserves_flags));
            },
            // SAFETY: as above.
            Kind::FlushInAnyOrder => unsafe {
                asm!("clflushopt [{}]", in(reg) line, options(nostack, preserves_flags));
            },
            // SAFETY: as above; every x86-64 has it.
            Kind::Flush => unsafe { _mm_clflush(line) },
        }
    }
}

/// Begins to write back every line of `len` bytes from `start` on; [`fence`] waits for completion.
///
/// # Safety
/// The range is mapped.
#[cfg(all(target_arch = "aarch64", not(miri)))]
pub(super) unsafe fn write_back(start: *const u8, len: usize) {
    use std::arch::asm;

    let first = start.addr() % LINE_BYTES;
    for offset in (0..len + first).step_by(LINE_BYTES) {
        let line = start.wrapping_sub(first).wrapping_add(offset);
        // SAFETY: cleaning a line to the point of coherency changes neither memory nor registers, and
        // is allowed to programs; the line is mapped, as it holds or neighbours a byte of the range.
        unsafe { asm!("dc cvac, {}", in(reg) line, options(nostack, preserves_flags)) };
    }
}

#[cfg(test)]
mod tests {
    #[cfg(not(miri))]
    #[test]
    fn flushing_leaves_content_as_it_is() {
        let bytes: Vec<u8> = (0..=255).cycle().take(5000).collect();
        for (from, len) in [(0, 0), (0, 1), (1, 63), (63, 2), (7, 4096), (0, 5000)] {
            // SAFETY: the range lies in `bytes`.
            unsafe { super::flush(bytes[from..].as_ptr(), len) };
        }
        assert!(bytes.iter().zip((0..=255).cycle()).all(|(byte, wanted)| *byte == wanted));
    }
}
