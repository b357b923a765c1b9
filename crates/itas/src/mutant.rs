//! Mutants: the scheduler with one protection disabled, to test that the campaign of waits detects the defect.
//!
//! The feature `mutants` compiles the mutants in. Without it [`is_mutant`] is the constant `false`, and the rest of
//! this module is not compiled. The environment variable `LOCKSTEP_ITAS_MUTANT`, read once, names the active mutant.

#[cfg(all(feature = "mutants", not(debug_assertions)))]
compile_error!(
    "the feature `mutants` breaks the scheduler on purpose: it is for test builds, which have debug assertions"
);

/// Protections that can be disabled. The name of each is its variant's in kebab case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "mutants"), allow(unreachable_pub, reason = "seen by campaigns only"))]
#[cfg_attr(feature = "mutants", derive(strum::EnumString, strum::IntoStaticStr, strum::VariantArray))]
#[cfg_attr(feature = "mutants", strum(serialize_all = "kebab-case"))]
pub enum Mutant {
    /// A policy may choose a fiber whose vruntime exceeds the smallest vruntime by any amount.
    NoLead,
    /// A new fiber starts with the smallest vruntime of its core.
    StartAtSmallest,
    /// A fiber that wakes up keeps its vruntime, regardless of the duration of its sleep.
    KeepSleepers,
}

#[cfg(feature = "mutants")]
impl Mutant {
    /// All mutants.
    pub const ALL: &[Mutant] = <Mutant as strum::VariantArray>::VARIANTS;

    /// Name of the mutant in the environment variable.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// Environment variable that names the active mutant.
#[cfg(feature = "mutants")]
pub const VARIABLE: &str = "LOCKSTEP_ITAS_MUTANT";

/// Returns true if the protection of this mutant is disabled.
#[cfg(not(feature = "mutants"))]
#[inline(always)]
pub(crate) const fn is_mutant(_: Mutant) -> bool {
    false
}

/// Returns true if the protection of this mutant is disabled.
#[cfg(feature = "mutants")]
#[inline]
pub(crate) fn is_mutant(mutant: Mutant) -> bool {
    chosen() == Some(mutant)
}

/// Returns the mutant that is active in this process.
///
/// # Panics
/// If the environment variable names no mutant: a misspelt name must not pass for the unmodified scheduler.
#[cfg(feature = "mutants")]
pub fn chosen() -> Option<Mutant> {
    static CHOSEN: std::sync::OnceLock<Option<Mutant>> = std::sync::OnceLock::new();
    *CHOSEN.get_or_init(|| {
        let name = std::env::var(VARIABLE).ok().filter(|name| !name.is_empty())?;
        Some(name.parse().unwrap_or_else(|_| panic!("{VARIABLE}={name}: there is no such mutant")))
    })
}
