//! Facts about the build of the program: sources, compiler, flags.

use std::sync::OnceLock;

static FACTS: OnceLock<BuildFacts> = OnceLock::new();

/// Build facts, determined by the build script of the program's package. An unknown fact is an empty string.
#[derive(Clone, Copy, Debug, Default)]
pub struct BuildFacts {
    /// Version of the program.
    pub version: &'static str,
    /// Commit of the sources.
    pub commit: &'static str,
    /// `true` if the sources differ from the commit.
    pub dirty: &'static str,
    /// Compiler and its version.
    pub rustc: &'static str,
    /// Flags of the compiler.
    pub flags: &'static str,
    /// Profile of the build.
    pub profile: &'static str,
    /// Profile feedback or code layout that the program was built with; empty for a plain build.
    pub built_with: &'static str,
    /// Target triple.
    pub target: &'static str,
}

/// Declares the build facts of this program. Later calls have no effect.
pub fn declare(facts: BuildFacts) {
    FACTS.get_or_init(|| facts);
}

/// Returns the declared build facts. Empty in tests of a library.
pub(super) fn facts() -> BuildFacts {
    FACTS.get().copied().unwrap_or_default()
}
