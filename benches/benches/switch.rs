//! Cost of a context switch between fibers of `sched-steps`, compared with `corosensei` and `tokio` (feature `rivals`).
//!
//! This benchmark does not use Criterion's measurement loop. All libraries take turns inside each repetition, so that a
//! change in the machine's load affects all of them. `cargo bench -p benches --bench switch [-- --quick]`

use sched_steps::measure::{Figure, code_bytes, survey};

fn main() {
    if std::env::args().any(|arg| arg == "--list") {
        return;
    }
    let quick = std::env::args().any(|arg| arg == "--quick" || arg == "--test");
    let (repetitions, hops) = if quick { (3, 200_000) } else { (11, 2_000_000) };
    println!(
        "ns per hop: median (min-max) of {repetitions} repetitions taken in turns; {} bytes of code",
        code_bytes()
    );
    survey(&[2, 10, 16, 64, 300, 1000], repetitions, hops, |figure| {
        let Figure { name, contexts, median_ns, min_ns, max_ns } = figure;
        println!("{name:<22} {contexts:>5}   {median_ns:>7.2}  ({min_ns:.2}-{max_ns:.2})");
    });
}
