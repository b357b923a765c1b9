//! Sites of points: the places in the code where a cooperative scheduler may run another fiber.
//!
//! Each site is a static [`PointSite`] in its own linker section, so that no list is kept by hand and tools can enumerate
//! the sites ([`points`]). The number of a site is its index in that section; it is valid for one build.

#![allow(unsafe_code)]

/// Purpose of a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum PointKind {
    /// The point ends a section of code: the next fiber finds the instructions of that section in the cache.
    Instruction,
    /// Cache lines have just been prefetched at the point: running another fiber gives them time to arrive.
    Data,
}

/// A place in the code where a cooperative scheduler may run another fiber.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct PointSite {
    name: &'static str,
    file: &'static str,
    line: u32,
    kind: PointKind,
}

/// Size of a site in bytes. All sites have this size, so that the sites of a section are an array.
const SITE_BYTES: usize = 64;
const _: () = assert!(size_of::<PointSite>() == SITE_BYTES && align_of::<PointSite>() == SITE_BYTES);

impl PointSite {
    #[doc(hidden)]
    pub const fn new(name: &'static str, kind: PointKind, file: &'static str, line: u32) -> PointSite {
        PointSite { name, file, line, kind }
    }

    /// Returns the name of the site, which is the same in every build that contains the site: `btree/leaf-head`.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the purpose of the point.
    pub fn kind(&self) -> PointKind {
        self.kind
    }

    /// Returns the source file of the site.
    pub fn file(&self) -> &'static str {
        self.file
    }

    /// Returns the line of the site in its source file.
    pub fn line(&self) -> u32 {
        self.line
    }

    /// Returns the number of the site: its index in [`points`] of this build.
    #[inline(always)]
    pub fn number(&'static self) -> u32 {
        ((std::ptr::from_ref(self).addr() - section::start().addr()) / SITE_BYTES) as u32
    }
}

/// The linker section of the sites.
#[cfg(all(target_os = "linux", not(miri)))]
mod section {
    use super::PointSite;

    // Linkers of ELF targets define these symbols for every section whose name is a C identifier.
    unsafe extern "C" {
        #[link_name = "__start_lockstep_points"]
        static START: [u64; 0];
        #[link_name = "__stop_lockstep_points"]
        static STOP: [u64; 0];
    }

    #[inline(always)]
    pub(super) fn start() -> *const PointSite {
        (&raw const START).cast()
    }

    pub(super) fn all() -> &'static [PointSite] {
        let (start, stop) = (start(), &raw const STOP);
        let sites = (stop.addr() - start.addr()) / super::SITE_BYTES;
        // SAFETY: between the two symbols lie the statics that `point_sites!` put into the section and nothing else; all
        // have the size and the alignment of a site, so the linker leaves no gap between them, and none is ever written.
        unsafe { std::slice::from_raw_parts(start, sites) }
    }
}

/// On macOS, and under Miri, sites have no numbers and no list; points do nothing.
#[cfg(not(all(target_os = "linux", not(miri))))]
mod section {
    use super::PointSite;

    pub(super) fn start() -> *const PointSite {
        std::ptr::null()
    }

    pub(super) fn all() -> &'static [PointSite] {
        &[]
    }
}

/// True if sites have numbers on this target.
pub(super) const NUMBERED: bool = cfg!(all(target_os = "linux", not(miri)));

/// Returns all points of this build, ordered by number.
///
/// There are at most 64.
pub fn points() -> &'static [PointSite] {
    // The section exists only if it contains a site.
    std::hint::black_box(&site::LEAF_HEAD);
    section::all()
}

macro_rules! point_sites {
    ($($(#[$doc:meta])* $name:ident = $kind:ident $text:literal;)*) => {
        /// Sites of all points. One file declares them all, and so lists the places where a transaction may be suspended.
        pub(crate) mod site {
            use super::{PointKind, PointSite};
            $(
                $(#[$doc])*
                #[used]
                #[cfg_attr(
                    all(target_os = "linux", not(miri)),
                    unsafe(link_section = "lockstep_points")
                )]
                pub(crate) static $name: PointSite = PointSite::new($text, PointKind::$kind, file!(), line!());
            )*
        }
    };
}

point_sites! {
    /// A descent has prefetched the first lines of an inner page below the root.
    INNER_HEAD = Data "btree/inner-head";
    /// A descent has prefetched the segment of an inner page's slots that contains its key.
    INNER_SEGMENT = Data "btree/inner-segment";
    /// A descent has prefetched the entry that refers to the leaf.
    LEAF_ENTRY = Data "btree/leaf-entry";
    /// A descent has prefetched the first lines of the leaf.
    LEAF_HEAD = Data "btree/leaf-head";
    /// A descent has prefetched the segment of the leaf's slots that contains its key.
    LEAF_SEGMENT = Data "btree/leaf-segment";
    /// A descent has prefetched the row, or the place of a row to insert.
    ROW = Data "btree/row";
    /// A group descent has prefetched the first lines of the pages above the leaves.
    GROUP_INNER = Data "btree/group-inner";
    /// A group descent has prefetched segments of the pages above the leaves.
    GROUP_INNER_SEGMENT = Data "btree/group-inner-segment";
    /// A group descent has prefetched the entries that refer to leaves.
    GROUP_ENTRY = Data "btree/group-entry";
    /// A group descent has prefetched the first lines of leaves.
    GROUP_LEAF = Data "btree/group-leaf";
    /// A group descent has prefetched segments of leaves.
    GROUP_SEGMENT = Data "btree/group-segment";
    /// A group descent has prefetched the rows.
    GROUP_ROW = Data "btree/group-row";
    /// A search for a row is about to begin: its table has been found and locked.
    BEFORE_READ = Instruction "table/before-read";
    /// A descent is about to search the root.
    BEFORE_ROOT = Instruction "btree/before-root";
    /// A descent has found the segment of the root's slots that contains its key.
    ROOT_SEGMENT = Instruction "btree/root-segment";
    /// A descent has arrived at its leaf, and has not searched it yet.
    BEFORE_LEAF = Instruction "btree/before-leaf";
    /// A row has been copied, and has not been read yet.
    AFTER_COPY = Instruction "table/after-copy";
    /// A row has been found and locked, and has not been copied yet.
    BEFORE_COPY = Instruction "table/before-copy";
    /// A row has been found and locked, and nothing has been written yet.
    BEFORE_WRITE = Instruction "table/before-write";
}
