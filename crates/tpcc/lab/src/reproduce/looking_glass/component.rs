//! Components of the engine, identified by the source files of their code.

/// Component to which an instruction belongs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub(super) enum Component {
    /// Transactions of the workload, their inputs, the driver.
    Workload,
    /// Statements, transactions, the catalog: code that connects the other components.
    Statements,
    /// Trees on pages, and the layout of pages.
    Trees,
    /// Locks of tables, rows and gaps; deadlocks.
    Locks,
    /// Latches of pages.
    Latches,
    /// Log records, their positions in the log, checkpoints.
    Log,
    /// Frames, translation of page numbers, eviction, page writes.
    Pool,
    /// Encoding and decoding of keys and rows.
    Codec,
}

/// Number of components.
pub(super) const COMPONENTS: usize = 8;

impl Component {
    /// All components.
    pub(super) const ALL: [Component; COMPONENTS] = [
        Component::Workload,
        Component::Statements,
        Component::Trees,
        Component::Locks,
        Component::Latches,
        Component::Log,
        Component::Pool,
        Component::Codec,
    ];

    /// Returns the name of the component in a report.
    pub(super) fn name(self) -> &'static str {
        match self {
            Component::Workload => "transaction code and driver",
            Component::Statements => "statements",
            Component::Trees => "trees and pages",
            Component::Locks => "locks",
            Component::Latches => "latches",
            Component::Log => "log",
            Component::Pool => "buffer pool",
            Component::Codec => "record codec",
        }
    }

    /// Returns the component of a source file. `None` for libraries, and for code that all components share (`base`, `io`):
    /// such code counts for its caller.
    pub(super) fn of(file: &str) -> Option<Component> {
        let file = file.replace('\\', "/");
        let within = |of: &str| file.split_once(of).map(|(_, rest)| rest.to_owned());
        if let Some(module) = within("crates/storage/src/") {
            let is = |names: &[&str]| names.iter().any(|name| module.starts_with(name));
            return match () {
                () if is(&["table/codec"]) => Some(Component::Codec),
                () if is(&["lock/"]) => Some(Component::Locks),
                () if is(&["latch/"]) => Some(Component::Latches),
                () if is(&["log/", "recovery/"]) => Some(Component::Log),
                () if is(&["buffer/"]) => Some(Component::Pool),
                () if is(&["btree/", "page/"]) => Some(Component::Trees),
                () if is(&["table/", "txn/", "db/"]) => Some(Component::Statements),
                () => None,
            };
        }
        let module = ["core/src/", "lab/src/", "src/"].iter().find_map(|of| within(&format!("crates/tpcc/{of}")))?;
        Some(match () {
            () if module == "engines/storage/codec.rs" => Component::Codec,
            () if module.starts_with("engines/") => Component::Statements,
            () => Component::Workload,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_belong_to_components() {
        let of = |file: &str| Component::of(file);
        assert_eq!(of("/home/a/crates/storage/src/lock/table.rs"), Some(Component::Locks));
        assert_eq!(of("crates/storage/src/table/point.rs"), Some(Component::Statements));
        assert_eq!(of("crates/storage/src/table/codec/row.rs"), Some(Component::Codec));
        assert_eq!(of("crates/storage/src/base/checksum.rs"), None);
        assert_eq!(of("crates/tpcc/core/src/workload/txn/payment.rs"), Some(Component::Workload));
        assert_eq!(of("/rustc/0/library/core/src/ptr/mod.rs"), None);
        for (place, component) in Component::ALL.into_iter().enumerate() {
            assert_eq!(component as usize, place);
        }
    }
}
