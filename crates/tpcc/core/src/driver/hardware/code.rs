//! Moves the program's code into large pages: a copy replaces the code at the same addresses.
//!
//! Few kernels use large pages for file-backed code. Therefore the code segment is copied into anonymous memory with large
//! pages, and one system call moves the copy over the original. All addresses stay the same, so unwind tables, symbols and
//! return addresses remain valid. The build aligns each segment to a large page (`build.rs`), so that the copy of all code
//! fits without touching neighbouring segments.
//!
//! After Saylor and Khessib (DaMoN 2006), section 6.4, who also used large pages for instructions. Drawback: tools that
//! sample addresses (perf) can no longer attribute the code to its file.
#![allow(unsafe_code)]

use std::ops::Range;

use crate::workload::error::Error;

/// Size of a large page, in bytes.
pub const LARGE_PAGE: usize = 2 << 20;

/// Moves the program's code into large pages. Returns the moved address range, which consists of whole large pages.
///
/// # Errors
/// A message for the user if the system provides no large pages. The code is then unchanged.
pub fn move_to_large_pages() -> Result<Range<usize>, Error> {
    move_code().map_err(|why| {
        Error::failed(format!("--large-pages code: {why}"))
            .help("pass --large-pages try, for memory without the program's code")
    })
}

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
fn move_code() -> Result<Range<usize>, String> {
    Err("code is moved on Linux on x86-64 only".to_owned())
}

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
fn move_code() -> Result<Range<usize>, String> {
    use std::ffi::c_void;
    use std::ptr::{self, NonNull};

    use nix::sys::mman::{MRemapFlags, mremap};
    use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags, madvise, mmap_anonymous, mprotect, munmap};
    use storage::MemoryMap;

    /// Fill byte for addresses without code: a breakpoint instruction.
    const FILLER: u8 = 0xcc;

    storage::large_pages_available()?;
    let maps = std::fs::read_to_string("/proc/self/maps").map_err(|e| format!("/proc/self/maps: {e}"))?;
    let here = move_to_large_pages as fn() -> Result<Range<usize>, Error> as usize;
    let Some((code, target)) = places(&maps, here) else {
        return Err("the program's code has no whole large page".to_owned());
    };
    let (bytes, room) = (target.len(), target.len() + LARGE_PAGE);
    let refused = |e: rustix::io::Errno| format!("the system refuses memory for it: {e}");
    let all = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a fresh mapping that overlaps nothing.
    let mapping = unsafe { mmap_anonymous(ptr::null_mut(), room, all, MapFlags::PRIVATE) }.map_err(refused)?;
    let offset = mapping.addr().next_multiple_of(LARGE_PAGE) - mapping.addr();
    let copy = mapping.wrapping_byte_add(offset);
    let copied = code.start.max(target.start)..code.end.min(target.end);
    // SAFETY: the range of the copy lies in the mapping just created, which no other code knows. `copied` lies in the
    // mapping of the program's code, which is readable and does not change: only debuggers write to code. The target of the
    // move contains the copied code and otherwise no mapping (see `places`). The move thus replaces bytes by the same bytes
    // at the same addresses, in one call under the lock of the address space: no thread can fetch an instruction in between.
    unsafe {
        let _ = madvise(copy, bytes, Advice::LinuxHugepage);
        ptr::write_bytes(copy.cast::<u8>(), FILLER, bytes);
        let to = copy.cast::<u8>().byte_add(copied.start - target.start);
        ptr::copy_nonoverlapping(ptr::with_exposed_provenance::<u8>(copied.start), to, copied.len());
        let given = MemoryMap::read().map_or(0, |map| map.within(&(copy.addr()..copy.addr() + bytes)).large);
        let moved = if given == 0 {
            Err("the system has no large page free".to_owned())
        } else {
            mprotect(copy, bytes, MprotectFlags::READ | MprotectFlags::EXEC).map_err(refused).and_then(|()| {
                let over = NonNull::new(ptr::with_exposed_provenance_mut::<c_void>(target.start));
                let copy = NonNull::new(copy).ok_or("no address")?;
                let flags = MRemapFlags::MREMAP_MAYMOVE | MRemapFlags::MREMAP_FIXED;
                mremap(copy, bytes, bytes, flags, over).map_err(|e| format!("the system does not move it: {e}"))
            })
        };
        // Unmaps the ends of the mapping, or all of it if nothing was moved.
        let kept = if moved.is_ok() { bytes } else { 0 };
        let _ = (offset > 0).then(|| munmap(mapping, offset));
        let _ = munmap(copy.byte_add(kept), room - offset - kept);
        moved?;
    }
    Ok(target)
}

/// Returns the address range of the code mapping that contains `here`, and the range of large pages that a copy of the code
/// may replace. These pages extend beyond the mapping if no other mapping is in the way, otherwise they lie within the
/// mapping. `None` if there is no such large page.
#[cfg(any(test, all(target_os = "linux", target_arch = "x86_64")))]
fn places(maps: &str, here: usize) -> Option<(Range<usize>, Range<usize>)> {
    let all: Vec<Range<usize>> = maps
        .lines()
        .filter_map(|line| {
            let (start, end) = line.split_ascii_whitespace().next()?.split_once('-')?;
            Some(usize::from_str_radix(start, 16).ok()?..usize::from_str_radix(end, 16).ok()?)
        })
        .collect();
    let code = all.iter().find(|range| range.contains(&here))?.clone();
    let is_free = |place: &Range<usize>| {
        all.iter().all(|other| *other == code || other.end <= place.start || other.start >= place.end)
    };
    let (down, up) = (code.start / LARGE_PAGE * LARGE_PAGE, code.end.next_multiple_of(LARGE_PAGE));
    let start = if is_free(&(down..code.start)) { down } else { code.start.next_multiple_of(LARGE_PAGE) };
    let end = if is_free(&(code.end..up)) { up } else { code.end / LARGE_PAGE * LARGE_PAGE };
    (start < end).then_some((code, start..end))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
555555400000-555555600000 r--p 00000000 fe:00 12 /program
5555558a0000-555555d30000 r-xp 0027d000 fe:00 12 /program
555555f30000-555555f40000 r--p 0072e000 fe:00 12 /program
";

    #[test]
    fn all_of_the_code_has_room_between_large_pages_of_its_own() {
        let code = 0x5555_558a_0000..0x5555_55d3_0000;
        assert_eq!(places(MAPS, code.start + 5), Some((code, 0x5555_5580_0000..0x5555_55e0_0000)));
        assert_eq!(places(MAPS, 0x1000), None);
    }

    #[test]
    fn a_neighbour_keeps_its_place() {
        let close = MAPS.replace("555555f30000-555555f40000", "555555d30000-555555d40000");
        let close = close.replace("555555400000-555555600000", "555555400000-5555558a0000");
        let (_, target) = places(&close, 0x5555_558b_0000).unwrap();
        assert_eq!(target, 0x5555_55a0_0000..0x5555_55c0_0000);
        let short = "5555558a0000-5555559a0000 r-xp 0 fe:00 12 /p\n5555559a0000-5555559b0000 rw-p 0 fe:00 12 /p\n";
        let squeezed = format!("555555800000-5555558a0000 r--p 0 fe:00 12 /p\n{short}");
        assert_eq!(places(&squeezed, 0x5555_558a_0000), None, "no whole large page");
    }
}
