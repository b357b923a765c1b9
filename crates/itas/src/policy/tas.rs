//! Time aggregation on one core (paper, "Overview of time aggregation scheduler").

use super::{Choice, Policy, View};

/// Prefers the sibling of the fiber that ran last, within `agg_bonus` and `agg_limit`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tas;

impl Policy for Tas {
    fn name(&self) -> &'static str {
        "tas"
    }

    #[inline]
    fn choose(&mut self, view: &View<'_>) -> Choice {
        tp1(view)
    }
}

/// TP1: if equation (1) is true, continues with TP2. Otherwise the thread with the highest priority is next, and
/// `agg_count` becomes 0.
#[inline]
fn tp1(view: &View<'_>) -> Choice {
    if view.equation_1() { tp2(view) } else { tp4(Choice::highest(view)) }
}

/// TP2: if equation (2) is true, the sibling is next; continues with TP3. Otherwise the thread with the highest
/// priority is next, and `agg_count` becomes 0.
#[inline]
fn tp2(view: &View<'_>) -> Choice {
    match view.sibling() {
        Some(c) if view.is_within_bonus(c) => tp3(Choice::aggregate(c)),
        _ => tp4(Choice::highest(view)),
    }
}

/// TP3: increments `agg_count`. (The choice requests the increment; the core performs it.)
#[inline]
fn tp3(choice: Choice) -> Choice {
    tp4(Choice { counts: true, ..choice })
}

/// TP4: ends the scheduling decision.
#[inline]
fn tp4(choice: Choice) -> Choice {
    choice
}
