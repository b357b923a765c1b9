//! What it costs to pass the CPU on: hops of `sched-steps`, beside `corosensei` and `tokio` (feature `rivals`).
//!
//! Not Criterion's loop: the contestants take turns inside each repetition, so that a change of the machine's
//! mood meets all of them. `cargo bench -p benches --bench switch [-- --quick]`

use sched_steps::measure::{self, Contestant, Shape, compare};

fn main() {
    if std::env::args().any(|arg| arg == "--list") {
        return;
    }
    let quick = std::env::args().any(|arg| arg == "--quick" || arg == "--test");
    let (repetitions, hops) = if quick { (3, 200_000) } else { (11, 4_000_000) };
    println!("switch: ns per hop, median (min-max) of {repetitions} repetitions taken in turns; {} bytes of code", measure::code_bytes());
    for contexts in [2, 10, 16, 64, 300, 1000] {
        let mut one = |n, rounds| measure::hops(Shape::One, n, rounds);
        let mut staggered = |n, rounds| measure::hops(Shape::Staggered, n, rounds);
        let mut deep = |n, rounds| measure::hops(Shape::Deep, n, rounds);
        let mut contestants: Vec<Contestant<'_>> =
            vec![("switch/hop/one", &mut one), ("switch/hop/staggered", &mut staggered), ("switch/hop/deep", &mut deep)];
        #[cfg(feature = "rivals")]
        let (mut corosensei, mut tokio) = (measure::corosensei_hops, measure::tokio_hops);
        #[cfg(feature = "rivals")]
        contestants.extend([("switch/corosensei", &mut corosensei as _), ("switch/tokio-yield", &mut tokio as _)] as [Contestant<'_>; 2]);
        for figure in compare(contexts, repetitions, hops, &mut contestants) {
            let measure::Figure { name, contexts, median_ns, min_ns, max_ns } = figure;
            println!("{name:<22} {contexts:>5}   {median_ns:>7.2}  ({min_ns:.2}-{max_ns:.2})");
        }
    }
}
