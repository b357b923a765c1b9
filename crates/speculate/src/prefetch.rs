//! Prefetches of cache lines that other cores may hold, before they are written.

#![allow(unsafe_code)]

/// Size of a cache line, in bytes.
const LINE: usize = 64;
/// Maximum number of lines per call: a processor can track only few outstanding prefetches.
const MOST: usize = 256;

/// Prefetches the cache lines of `bytes` bytes from the address `from` for writing. Any address is permitted.
#[inline]
pub(crate) fn prefetch_write(from: *const u8, bytes: usize) {
    for line in (0..bytes.min(MOST * LINE)).step_by(LINE) {
        let at = from.wrapping_add(line);
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        // SAFETY: a prefetch has no effect that a program can observe and faults on no address; processors without this
        // instruction execute it as a no-op.
        unsafe {
            std::arch::asm!("prefetchw [{}]", in(reg) at, options(nostack, preserves_flags, readonly));
        }
        let _ = at;
    }
}
