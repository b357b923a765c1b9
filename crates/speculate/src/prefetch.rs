//! Taking lines from other cores before they are written.

#![allow(unsafe_code)]

/// Bytes of a line.
const LINE: usize = 64;
/// Most lines asked for at once: the processor keeps track of few more.
const MOST: usize = 256;

/// Asks for the lines of so many bytes, to write to them; harmless for any address.
#[inline]
pub(crate) fn prefetch_write(from: *const u8, bytes: usize) {
    for line in (0..bytes.min(MOST * LINE)).step_by(LINE) {
        let at = from.wrapping_add(line);
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        // SAFETY: a prefetch changes nothing that a program can see and faults on no address; processors without this form
        // do nothing.
        unsafe {
            std::arch::asm!("prefetchw [{}]", in(reg) at, options(nostack, preserves_flags, readonly));
        }
        let _ = at;
    }
}
