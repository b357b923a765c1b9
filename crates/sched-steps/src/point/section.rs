//! Linker section that holds all points of a program.
#![allow(unsafe_code)]

use super::Point;

/// Iterates over every point of the program, in the order of the section, which is the same for every run of one build.
/// Yields no point on macOS, whose linker does not mark the ends of sections in this way, and under Miri.
pub fn points() -> impl Iterator<Item = &'static Point> {
    gathered::all().iter().filter(|point| !point.file.is_empty())
}

#[cfg(all(target_os = "linux", not(miri)))]
mod gathered {
    use super::Point;

    // Without this entry the section and its boundary symbols would be missing from a program without points.
    #[used]
    #[unsafe(link_section = "sched_steps_points")]
    static ANCHOR: Point = Point::new("", "", "", 0, 0);

    // Linkers of ELF targets define these symbols for every section whose name is a valid C identifier.
    unsafe extern "C" {
        #[link_name = "__start_sched_steps_points"]
        static START: [u64; 0];
        #[link_name = "__stop_sched_steps_points"]
        static STOP: [u64; 0];
    }

    pub(super) fn all() -> &'static [Point] {
        std::hint::black_box(&ANCHOR);
        let (start, stop) = ((&raw const START).cast::<Point>(), &raw const STOP);
        let bytes = stop.addr() - start.addr();
        // SAFETY: only the statics of `__ctx_site!` are between the two symbols; their size and alignment are those of
        // a point, so there are no gaps. The mutable field of a point is atomic.
        unsafe { std::slice::from_raw_parts(start, bytes / size_of::<Point>()) }
    }
}

#[cfg(not(all(target_os = "linux", not(miri))))]
mod gathered {
    use super::Point;

    pub(super) fn all() -> &'static [Point] {
        &[]
    }
}
