//! Mutants: the protocol with one protection left out, to test whether the campaigns detect it.
//!
//! The feature `mutants` compiles the switches in; without it [`is_mutant`] is the constant `false`, and none of this is
//! compiled. The environment variable `LOCKSTEP_SPECULATE_MUTANT`, read once, names the active mutant. To add one: a line
//! in the list below, `is_mutant(Mutant::SkipThis)` where the protection is, and `cargo xtask torture mutants --mutant
//! skip-this` with several seeds.

#[cfg(all(feature = "mutants", not(debug_assertions)))]
compile_error!(
    "the feature `mutants` breaks speculation on purpose: it is for test builds, which have debug assertions"
);

macro_rules! mutants {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// The protections that can be left out.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[cfg_attr(not(feature = "mutants"), allow(unreachable_pub, reason = "seen by campaigns only"))]
        pub enum Mutant {
            $($(#[$doc])* $variant,)*
        }

        #[cfg(feature = "mutants")]
        impl Mutant {
            /// All of them.
            pub const ALL: &[Mutant] = &[$(Mutant::$variant,)*];

            /// As the environment variable names it.
            pub fn name(self) -> &'static str {
                match self { $(Mutant::$variant => $name,)* }
            }
        }
    };
}

mutants! {
    /// The store is not asked whether what was read is still so.
    SkipValidation = "skip-validation",
    /// What an epoch has forwarded is not withdrawn when the epoch is rewound, so its readers stay.
    SkipChain = "skip-chain",
    /// A read gets the oldest forwarded value and not the newest.
    StaleForwarding = "stale-forwarding",
    /// The token is passed on before the epoch is written.
    TokenTooEarly = "token-too-early",
    /// A rewound epoch replays one operation beyond the checkpoint.
    ReplayPastCheckpoint = "replay-past-checkpoint",
    /// What a rewound epoch has escaped is not undone.
    KeepEscapes = "keep-escapes",
    /// The store is not asked whether `then` has replaced what an earlier epoch or iteration has written.
    ForgetThen = "forget-then",
}

/// The environment variable that names the mutant.
#[cfg(feature = "mutants")]
pub const VARIABLE: &str = "LOCKSTEP_SPECULATE_MUTANT";

/// Whether this protection is left out.
#[cfg(not(feature = "mutants"))]
#[inline(always)]
pub(crate) const fn is_mutant(_: Mutant) -> bool {
    false
}

/// Whether this protection is left out.
#[cfg(feature = "mutants")]
#[inline]
pub(crate) fn is_mutant(mutant: Mutant) -> bool {
    chosen() == Some(mutant)
}

/// The mutant that is active in this process.
///
/// # Panics
/// If the environment variable names none of the list: a misspelt name must not pass for the unchanged protocol.
#[cfg(feature = "mutants")]
pub fn chosen() -> Option<Mutant> {
    static CHOSEN: std::sync::OnceLock<Option<Mutant>> = std::sync::OnceLock::new();
    *CHOSEN.get_or_init(|| {
        let name = std::env::var(VARIABLE).ok().filter(|name| !name.is_empty())?;
        let found = Mutant::ALL.iter().copied().find(|mutant| mutant.name() == name);
        assert!(found.is_some(), "{VARIABLE}={name}: there is no such mutant");
        found
    })
}
