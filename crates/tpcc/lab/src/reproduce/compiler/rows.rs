//! Optimisations of the paper. Each is shown by two builds: one with the optimisation and one without it.

use crate::reproduce::builds::{
    ALL, ALL_STEPS, BOLT, FEEDBACK, NO_LTO, NOTHING, ONLY_FEEDBACK, PLAIN, SEQUENTIALLY_CONSISTENT, SHARED,
    SHARED_LAZY, SWITCHED_OFF,
};

/// Classes of optimisations in the paper, in the order of its figure 7.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    RegisterStack,
    DataLayout,
    Context,
    Code,
    Preemption,
    Feedback,
    /// Optimisation in no class of figure 7.
    Unclassed,
}

/// Figure 7 of the paper: classes, their names, and speed-ups in per cent.
pub(super) const FIGURE_7: [(Class, &str, f64); 6] = [
    (Class::RegisterStack, "register stack", 1.15),
    (Class::DataLayout, "data layout", 2.25),
    (Class::Context, "saved contexts", 2.85),
    (Class::Code, "code", 7.7),
    (Class::Preemption, "preemption", 8.22),
    (Class::Feedback, "profile feedback", 20.0),
];

/// A row of a table or figure: an optimisation and its builds.
#[derive(Debug)]
pub(super) struct Optimisation {
    pub(super) name: &'static str,
    pub(super) class: Class,
    /// Speed-up in the paper, in per cent; `None` if the paper has no such row.
    pub(super) paper: Option<f64>,
    /// Change of L1 data read misses in the paper, in per cent; `None` if its table 1 has no such row.
    pub(super) paper_l1: Option<f64>,
    /// Names of the build with the optimisation and of the build without it; `None` if this compiler and processor have
    /// nothing to turn off.
    pub(super) builds: Option<(&'static str, &'static str)>,
    /// Equivalent of the optimisation on this machine, and reasons for differences from the paper.
    pub(super) note: &'static str,
}

/// All rows of the tables and figures.
pub(super) const ROWS: &[Optimisation] = &[
    Optimisation {
        name: "register stack engine",
        class: Class::RegisterStack,
        paper: Some(1.15),
        paper_l1: Some(-3.41),
        builds: None,
        note: "not on this machine: sixteen registers and no register stack; calls spill to the stack in memory",
    },
    Optimisation {
        name: "read-only data",
        class: Class::DataLayout,
        paper: Some(1.64),
        paper_l1: Some(-2.18),
        builds: None,
        note: "nothing to turn off: constants of Rust are read-only always, and one process serves all sessions",
    },
    Optimisation {
        name: "sorting of local data",
        class: Class::DataLayout,
        paper: Some(0.6),
        paper_l1: None,
        builds: None,
        note: "nothing to turn off: the compiler has no such switch",
    },
    Optimisation {
        name: "small context",
        class: Class::Context,
        paper: Some(1.08),
        paper_l1: Some(1.29),
        builds: Some(("callee's registers saved", "floating-point state saved")),
        note: "a hop that leaves the floating-point state alone, against one that saves it; teams of steps",
    },
    Optimisation {
        name: "values live across a switch",
        class: Class::Context,
        paper: Some(1.75),
        paper_l1: Some(10.91),
        builds: Some((ALL_STEPS, "callee's registers saved")),
        note: "the compiler spills what is live across a hop, against a hop that saves six registers; teams of steps",
    },
    Optimisation {
        name: "function inlining",
        class: Class::Code,
        paper: Some(2.0),
        paper_l1: None,
        builds: Some((ALL, NO_LTO)),
        note: "one unit and fat link-time optimisation, against crates in 16 parts: the paper inlines a few hot files",
    },
    Optimisation {
        name: "one unit",
        class: Class::Code,
        paper: None,
        paper_l1: None,
        builds: Some((ALL, "crates in parts, linked whole")),
        note: "each crate compiled as one unit, against 16 parts of each; fat link-time optimisation puts both together",
    },
    Optimisation {
        name: "thin inlining",
        class: Class::Code,
        paper: None,
        paper_l1: None,
        builds: Some(("thin inlining across crates", NO_LTO)),
        note: "thin link-time optimisation, which builds in parallel",
    },
    Optimisation {
        name: "function grouping",
        class: Class::Code,
        paper: Some(2.0),
        paper_l1: None,
        builds: Some((ALL, FEEDBACK)),
        note: "the paper's least, up to 3% on its cached set-up; sections of hot and of unlikely functions, kept apart by the linker",
    },
    Optimisation {
        name: "function splitting",
        class: Class::Code,
        paper: Some(0.5),
        paper_l1: None,
        builds: Some(("splitting", ALL)),
        note: "the paper's least, always below 1%; cold blocks of hot functions moved away; off in the build with everything on",
    },
    Optimisation {
        name: "recovery code in line",
        class: Class::Code,
        paper: Some(0.8),
        paper_l1: None,
        builds: None,
        note: "not on this machine: there are no speculative loads of the compiler's that could fail",
    },
    Optimisation {
        name: "no stalls of speculative misses",
        class: Class::Code,
        paper: Some(1.0),
        paper_l1: None,
        builds: None,
        note: "not on this machine: the processor itself loads ahead, and nothing tells it not to",
    },
    Optimisation {
        name: "prefetch hints",
        class: Class::Code,
        paper: Some(1.0),
        paper_l1: None,
        builds: Some((ALL, "no prefetch")),
        note: "the paper's hints are for instructions, which this processor does not have; ours announce rows of a statement",
    },
    Optimisation {
        name: "memory ordering",
        class: Class::Unclassed,
        paper: Some(3.6),
        paper_l1: None,
        builds: Some((ALL, SEQUENTIALLY_CONSISTENT)),
        note: "orders as proven, against every access sequentially consistent; the paper's gain was on a cached set-up only",
    },
    Optimisation {
        name: "block layout",
        class: Class::Code,
        paper: None,
        paper_l1: None,
        builds: Some((BOLT, FEEDBACK)),
        note: "blocks of functions laid out anew in the linked program by LLVM's BOLT; where that is not installed, no row",
    },
    Optimisation {
        name: "panics abort",
        class: Class::Code,
        paper: None,
        paper_l1: None,
        builds: None,
        note: "not to be had in this program: speculation unwinds a body whose answers were wrong, so 'speculate' refuses to be \
               compiled where a panic aborts",
    },
    Optimisation {
        name: "this very processor",
        class: Class::Code,
        paper: None,
        paper_l1: None,
        builds: Some(("this processor", ALL)),
        note: "all instructions of this processor; off in the build with everything on, which runs elsewhere too",
    },
    Optimisation {
        name: "preemption model",
        class: Class::Preemption,
        paper: Some(8.22),
        paper_l1: Some(-13.35),
        builds: Some((SWITCHED_OFF, SHARED)),
        note: "the engine in the program, against the engine in a shared object whose public functions can be preempted, as in \
               the paper; on neither side inlining across crates, which ends at a shared object, nor a profile, whose functions \
               have other names there",
    },
    Optimisation {
        name: "fixed addresses",
        class: Class::Preemption,
        paper: None,
        paper_l1: None,
        builds: Some((ALL, "position independent")),
        note: "one program, fixed addresses against position independent ones: addresses relative to the instruction cost \
               next to nothing on this processor",
    },
    Optimisation {
        name: "binding at the start",
        class: Class::Preemption,
        paper: None,
        paper_l1: None,
        builds: Some((SHARED, SHARED_LAZY)),
        note: "the engine in a shared object: calls through a table of addresses that is filled when the program starts, against \
               calls through the procedure linkage table, which is the paper's before",
    },
    Optimisation {
        name: "binding at the start, one program",
        class: Class::Preemption,
        paper: None,
        paper_l1: None,
        builds: Some(("position independent", "position independent, lazy binding")),
        note: "one position independent program: only calls to the system's libraries are left to bind",
    },
    Optimisation {
        name: "profile feedback",
        class: Class::Feedback,
        paper: Some(20.0),
        paper_l1: None,
        builds: Some((ALL, "no feedback")),
        note: "an out-of-order processor hides part of what the paper's compiler had to schedule",
    },
    Optimisation {
        name: "feedback alone",
        class: Class::Feedback,
        paper: None,
        paper_l1: None,
        builds: Some((ONLY_FEEDBACK, NOTHING)),
        note: "the paper's order: feedback first, before anything else was on",
    },
    Optimisation {
        name: "all, against the plain release",
        class: Class::Feedback,
        paper: None,
        paper_l1: None,
        builds: Some((ALL, PLAIN)),
        note: "what feedback, fixed addresses and grouping add to what a user has; the plain release has the laboratory too, \
               which does not run",
    },
];
