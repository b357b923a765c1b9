//! Mutants: the protocol with one protection removed, to test that the campaigns detect the defect.
//!
//! The feature `mutants` compiles the mutants in; without it, [`is_mutant`] is the constant `false`. The environment
//! variable `LOCKSTEP_SPECULATE_MUTANT`, read once, names the active mutant. To add a mutant, add a variant to [`Mutant`]
//! and `is_mutant(Mutant::SkipThis)` at the protection, and run `cargo xtask torture mutants --mutant skip-this` with
//! several seeds.

#[cfg(all(feature = "mutants", not(debug_assertions)))]
compile_error!(
    "the feature `mutants` breaks speculation on purpose: it is for test builds, which have debug assertions"
);

/// Protections that can be removed. The name of each is its variant's in kebab case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "mutants"), allow(unreachable_pub, reason = "seen by campaigns only"))]
#[cfg_attr(feature = "mutants", derive(strum::EnumString, strum::IntoStaticStr, strum::VariantArray))]
#[cfg_attr(feature = "mutants", strum(serialize_all = "kebab-case"))]
pub enum Mutant {
    /// The store does not confirm the values that were read.
    SkipValidation,
    /// The forwarded writes of a rewound epoch are not withdrawn, so their readers are not violated.
    SkipChain,
    /// A read gets the oldest forwarded value instead of the newest.
    StaleForwarding,
    /// The token is passed on before the epoch is written.
    TokenTooEarly,
    /// A rewound epoch replays one operation beyond the checkpoint.
    ReplayPastCheckpoint,
    /// The escaped operations of a rewound epoch are not undone.
    KeepEscapes,
    /// The store does not confirm values of earlier epochs or iterations that `then` may have replaced.
    ForgetThen,
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
pub const VARIABLE: &str = "LOCKSTEP_SPECULATE_MUTANT";

/// Returns true if the protection of this mutant is removed.
#[cfg(not(feature = "mutants"))]
#[inline(always)]
pub(crate) const fn is_mutant(_: Mutant) -> bool {
    false
}

/// Returns true if the protection of this mutant is removed.
#[cfg(feature = "mutants")]
#[inline]
pub(crate) fn is_mutant(mutant: Mutant) -> bool {
    chosen() == Some(mutant)
}

/// Returns the mutant that is active in this process.
///
/// # Panics
/// Panics if the environment variable names an unknown mutant: a misspelt name must not pass for the unchanged protocol.
#[cfg(feature = "mutants")]
pub fn chosen() -> Option<Mutant> {
    static CHOSEN: std::sync::OnceLock<Option<Mutant>> = std::sync::OnceLock::new();
    *CHOSEN.get_or_init(|| {
        let name = std::env::var(VARIABLE).ok().filter(|name| !name.is_empty())?;
        Some(name.parse().unwrap_or_else(|_| panic!("{VARIABLE}={name}: there is no such mutant")))
    })
}
