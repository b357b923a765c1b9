//! A fiber that overflows its stack ends the process with a message that names the fiber. Other faults and other handlers
//! are unaffected. Each case runs in a child process: this test executable starts itself again.

#![allow(clippy::unwrap_used)]
#![cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
#![allow(unsafe_code)]

mod common;

use std::hint::black_box;
use std::process::{Command, Output};

use sched_steps::{Executor, MIN_STACK_BYTES, fiber};

const CASE: &str = "SCHED_STEPS_OVERFLOW_CASE";

fn child(case: &str, backtrace: &str) -> Output {
    let me = std::env::current_exe().unwrap();
    let mut command = Command::new(me);
    command.args(["--exact", "case", "--nocapture", "--test-threads", "1"]).env(CASE, case);
    command.env("RUST_BACKTRACE", backtrace).output().unwrap()
}

fn recurse(depth: u64) -> u64 {
    let frame = black_box([depth; 64]);
    if depth == 0 { frame[3] } else { recurse(depth - 1) + frame[7] }
}

/// Body of the child processes; not a test of its own.
#[test]
fn case() {
    let Ok(case) = std::env::var(CASE) else { return };

    let mut steps = common::build(Executor::builder().fibers(4).stack_bytes(MIN_STACK_BYTES));
    let _ = steps.scope(|s| {
        s.spawn_named("diver", || {
            black_box(recurse(15));
            fiber::hop();
        });
        match case.as_str() {
            "named" => s.spawn_named("teller 7", || {
                fiber::hop();
                black_box(recurse(1_000_000));
            }),
            "number" => s.spawn(|| {
                black_box(recurse(1_000_000));
            }),
            "frame" => s.spawn_named("wide", || {
                // One frame larger than the stack: the stack probes of the compiler hit the guard.
                black_box([1_u8; 80 * 1024]);
            }),
            "deep-enough" => s.spawn(|| {
                black_box(recurse(8));
            }),
            "panic" => s.spawn_named("clerk", || {
                fiber::hop();
                let none: Option<u32> = black_box(None);
                panic!("{} of {:?}", "out of ink", none);
            }),
            "null" => s.spawn_named("innocent", || {
                // SAFETY: none; the fault is intended.
                unsafe { std::ptr::null_mut::<u8>().wrapping_add(64).write_volatile(1) };
            }),
            _ => unreachable!(),
        };
    });
}

fn stderr(case: &str) -> (Option<i32>, String) {
    use std::os::unix::process::ExitStatusExt;
    let output = child(case, "0");
    (output.status.signal(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn an_overflow_names_the_fiber() {
    // 24 KiB were requested; the stride is an odd number of pages, so there is one more page.
    let (signal, text) = stderr("named");
    assert_eq!(signal, Some(6), "{text}");
    assert!(text.contains("fiber 'teller 7' has overflowed its stack of 28672 bytes"), "{text}");
}

/// The high-water mark of the other stacks distinguishes a runaway fiber from stacks that are too small in general.
#[test]
fn an_overflow_tells_the_high_water_mark_of_the_others() {
    let (_, text) = stderr("named");
    let mark = text.split("high-water mark of the others: ").nth(1).unwrap_or_else(|| panic!("{text}"));
    let (bytes, fiber) = mark.split_once(" bytes, fiber '").unwrap();
    let bytes: usize = bytes.parse().unwrap();
    assert!((4096..=28672).contains(&bytes) && fiber.starts_with("diver'"), "{text}");
}

/// Includes the full backtrace, which needs the most stack.
#[test]
fn the_smallest_stack_can_print_a_panic() {
    for backtrace in ["0", "1", "full"] {
        let output = child("panic", backtrace);
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "RUST_BACKTRACE={backtrace}: {text}");
        assert!(text.contains("out of ink of None"), "{text}");
        assert_eq!(text.contains("stack backtrace"), backtrace != "0", "{text}");
    }
}

#[test]
fn a_fiber_without_a_name_has_its_number() {
    let (signal, text) = stderr("number");
    assert_eq!(signal, Some(6), "{text}");
    assert!(text.contains("fiber '1' has overflowed"), "{text}");
}

#[test]
#[cfg_attr(feature = "asan", ignore = "its frames are not probed page by page")]
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
#[cfg_attr(feature = "asan", ignore = "AddressSanitizer handles the signal")]
fn other_faults_are_not_ours() {
    let (signal, text) = stderr("null");
    assert_eq!(signal, Some(11), "{text}");
    assert!(!text.contains("overflowed"), "{text}");
}
