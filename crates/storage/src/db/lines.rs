//! Addresses of the cache lines that threads share by design, for tools that trace accesses to shared cache lines.

use super::database::Database;
use crate::base::lines::SharedLines;
use crate::buffer::frame_bytes;
use crate::latch::reader_words;

impl Database {
    /// Returns the cache lines that workers share by design. The kind of an address is the kind of the first element
    /// that [contains](SharedLines::contains) it. Addresses are valid as long as the database is open.
    pub fn shared_lines(&self) -> Vec<SharedLines> {
        let all = |kind, range| SharedLines { kind, range, every: 0, per_worker: 0 };
        let mut lines = Vec::new();
        for (name, range) in self.engine.pool.regions() {
            if name == "frames" {
                // The first cache line of each frame is the frame's header.
                lines.push(SharedLines { every: frame_bytes(), ..all("page latch", range.clone()) });
                lines.push(all("page", range));
            } else {
                lines.push(all(if name == "page_table" { "page table" } else { name }, range));
            }
        }
        lines.push(all("lock heads", self.engine.locks.range()));
        let [tail, (positions, each)] = self.engine.log.position_lines();
        lines.push(all("log tail", tail.0));
        lines.push(SharedLines { per_worker: each, ..all("log positions", positions) });
        let ring = self.engine.log.ring_range();
        // Workers write to different parts of the ring.
        lines.push(SharedLines { per_worker: ring.len(), ..all("log ring", ring) });
        let (slots, each) = self.engine.slots.lines();
        lines.push(SharedLines { per_worker: each, ..all("slots", slots) });
        let (words, each) = reader_words();
        lines.push(SharedLines { per_worker: each, ..all("reader words", words) });
        lines
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::Options;
    use crate::base::lines::LINE;
    use crate::io::MemDisk;

    #[test]
    fn lines_are_told_apart_by_their_addresses() {
        let options = Options::new().buffer_pool(64 << 20);
        let db = options.open_on(Arc::new(MemDisk::new())).expect("a database in memory opens");
        let lines = db.shared_lines();
        let kind = |address| lines.iter().find(|lines| lines.contains(address)).map(|lines| lines.kind);
        let start = |kind| lines.iter().find(|lines| lines.kind == kind).unwrap().range.start;
        for lines in &lines {
            assert!(!lines.range.is_empty() && lines.range.start % 8 == 0, "{lines:?}");
        }
        let frames = start("page latch");
        assert_eq!(kind(frames), Some("page latch"));
        assert_eq!(kind(frames + LINE), Some("page"));
        assert_eq!(kind(frames + frame_bytes() + LINE - 1), Some("page latch"));
        for name in ["page table", "shortcuts", "lock heads", "log tail", "log positions", "log ring", "slots"] {
            assert_eq!(kind(start(name)), Some(name));
        }
        assert_eq!(kind(start("reader words")), Some("reader words"));
        assert_eq!(kind(std::ptr::from_ref(&lines).addr()), None, "a local variable");
    }
}
