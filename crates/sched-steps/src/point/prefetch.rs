//! Prefetching of cache lines.
#![allow(unsafe_code)]

/// Size of a cache line in bytes.
const LINE: usize = 64;

/// Prefetches `lines` cache lines, starting with the line that contains `address`. Any address is permitted.
#[inline(always)]
pub fn prefetch<T: ?Sized>(address: *const T, lines: usize) {
    for line in 0..lines {
        one(address.cast::<u8>().wrapping_add(line * LINE));
    }
}

#[cfg(all(target_os = "linux", target_arch = "x86_64", not(miri)))]
#[inline(always)]
fn one(address: *const u8) {
    // SAFETY: a prefetch does not fault.
    unsafe { std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(address.cast()) };
}

#[cfg(all(target_os = "linux", target_arch = "aarch64", not(miri)))]
#[inline(always)]
fn one(address: *const u8) {
    // SAFETY: a prefetch does not fault.
    unsafe { std::arch::asm!("prfm pldl1keep, [{}]", in(reg) address, options(nostack, readonly, preserves_flags)) };
}

#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"), not(miri))))]
fn one(_address: *const u8) {}
