//! A fiber that overflows its stack ends the process with a message that names it; other faults and other
//! handlers are as they were. Each case runs in a child: this test starts itself again.

#![allow(clippy::unwrap_used)]
#![cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
#![allow(unsafe_code)]

use std::hint::black_box;
use std::process::{Command, Output};

use sched_steps::{Executor, fiber};

const CASE: &str = "SCHED_STEPS_OVERFLOW_CASE";

fn child(case: &str) -> Output {
    let me = std::env::current_exe().unwrap();
    Command::new(me).args(["--exact", "case", "--nocapture", "--test-threads", "1"]).env(CASE, case).output().unwrap()
}

fn recurse(depth: u64) -> u64 {
    let frame = black_box([depth; 64]);
    if depth == 0 { frame[3] } else { recurse(depth - 1) + frame[7] }
}

/// Not a test of its own: what the children do.
#[test]
fn case() {
    let Ok(case) = std::env::var(CASE) else { return };
    let mut steps = Executor::builder().fibers(4).stack_bytes(16 * 1024).build().unwrap();
    let _ = steps.scope(|s| {
        s.spawn(fiber::hop);
        match case.as_str() {
            "named" => s.spawn_named("teller 7", || {
                fiber::hop();
                black_box(recurse(1_000_000));
            }),
            "number" => s.spawn(|| {
                black_box(recurse(1_000_000));
            }),
            "frame" => s.spawn_named("wide", || {
                // One frame larger than the stack: the compiler's probes meet the guard.
                black_box([1_u8; 40 * 1024]);
            }),
            "deep-enough" => s.spawn(|| {
                black_box(recurse(8));
            }),
            "null" => s.spawn_named("innocent", || {
                // SAFETY: none; the fault is the purpose.
                unsafe { std::ptr::null_mut::<u8>().wrapping_add(64).write_volatile(1) };
            }),
            _ => unreachable!(),
        };
    });
}

fn stderr(case: &str) -> (Option<i32>, String) {
    use std::os::unix::process::ExitStatusExt;
    let output = child(case);
    (output.status.signal(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn an_overflow_names_the_fiber() {
    // 16 KiB were asked for; the stride is an odd number of pages, so there is one more.
    let (signal, text) = stderr("named");
    assert_eq!(signal, Some(6), "{text}");
    assert!(text.contains("fiber 'teller 7' has overflowed its stack of 20480 bytes"), "{text}");
}

#[test]
fn a_fiber_without_a_name_has_its_number() {
    let (signal, text) = stderr("number");
    assert_eq!(signal, Some(6), "{text}");
    assert!(text.contains("fiber '1' has overflowed"), "{text}");
}

#[test]
fn a_frame_larger_than_the_stack_is_caught_by_the_guard() {
    let (_, text) = stderr("frame");
    assert!(text.contains("fiber 'wide' has overflowed"), "{text}");
}

#[test]
fn what_fits_runs_through() {
    let (signal, text) = stderr("deep-enough");
    assert_eq!(signal, None, "{text}");
}

#[test]
fn other_faults_are_not_ours() {
    let (signal, text) = stderr("null");
    assert_eq!(signal, Some(11), "{text}");
    assert!(!text.contains("overflowed"), "{text}");
}
