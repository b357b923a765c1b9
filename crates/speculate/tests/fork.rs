//! A speculator in a child process that was forked from the process that built it.
#![cfg(all(target_os = "linux", not(miri)))]
#![allow(clippy::unwrap_used, unsafe_code, reason = "a test: a failure is told where it happens; forks")]

mod common;

use std::convert::Infallible;
use std::time::{Duration, Instant};

use common::{Locks, Rows};
use speculate::{LoopError, Options, Speculator, Store};

/// Writes the items as keys; returns the error of the loop.
fn run(speculator: &mut Speculator<Rows>, store: &Rows) -> Result<(), LoopError<Infallible, <Rows as Store>::Error>> {
    speculator.run(
        store,
        &mut Locks::default(),
        0..8_u8,
        |epoch, key| {
            epoch.put(*key, 1);
            Ok(())
        },
        |_, ()| Ok(()),
    )
}

/// Runs loops in the child; returns its exit status, 0 if all is as expected.
fn in_the_child(mut speculator: Speculator<Rows>, store: &Rows) -> i32 {
    let ran = run(&mut speculator, store);
    drop(speculator);
    // A speculator that the child builds itself works.
    let own = run(&mut Speculator::new(Options::new().workers(2)).unwrap(), store);
    i32::from(!matches!(ran, Err(LoopError::Forked)) || own.is_err())
}

#[test]
fn a_forked_child_is_refused_and_the_parent_goes_on() {
    let store = Rows::default();
    let mut speculator = Speculator::new(Options::new().workers(2)).unwrap();
    run(&mut speculator, &store).unwrap();
    // SAFETY: the child only runs loops that are refused or its own, and exits without running the destructors of this
    // process.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let status = in_the_child(speculator, &store);
        // SAFETY: this only ends the child.
        unsafe { libc::_exit(status) };
    }
    assert!(child > 0, "no child: {}", std::io::Error::last_os_error());
    let (begun, mut status) = (Instant::now(), 0);
    let ended = loop {
        // SAFETY: the child belongs to this process; the status pointer is valid.
        let ended = unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) };
        if ended != 0 {
            break ended;
        }
        if begun.elapsed() > Duration::from_secs(60) {
            // SAFETY: the child belongs to this process and has not been waited for yet.
            unsafe { libc::kill(child, libc::SIGKILL) };
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    assert_eq!((ended, status), (child, 0), "the child was refused nothing, or did not end");
    run(&mut speculator, &store).unwrap();
}
