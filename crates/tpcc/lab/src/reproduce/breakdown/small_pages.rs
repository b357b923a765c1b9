//! Small pages for the memory of probes. On a system that provides large pages without a request, a probe of address
//! translation would measure no cost.

use nix::sys::prctl::{get_thp_disable, set_thp_disable};

/// Prevents large pages in this process until dropped. Has no effect if the system has no large pages, or does not support
/// the request.
pub(super) struct SmallPages {
    /// True if large pages were off before.
    were_off: bool,
}

impl SmallPages {
    pub(super) fn force() -> SmallPages {
        let were_off = get_thp_disable().unwrap_or(false);
        let _ = set_thp_disable(true);
        SmallPages { were_off }
    }
}

impl Drop for SmallPages {
    fn drop(&mut self) {
        let _ = set_thp_disable(self.were_off);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_pages_are_off_for_as_long_as_it_lives() {
        let before = get_thp_disable().unwrap();
        let small = SmallPages::force();
        assert!(get_thp_disable().unwrap());
        drop(small);
        assert_eq!(get_thp_disable().unwrap(), before);
    }
}
