//! Follows what a traced program does to memory, transaction by transaction.

use std::process::Command;

use super::marks::Mark;
use super::operand::AccessKind;
use super::tracer::{Tracer, Trap};
use tpcc_core::workload::error::Error;

/// An access to memory that is not the stack, or the end of a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AccessSeen {
    pub address: u64,
    /// None at the end.
    pub operation: Option<AccessKind>,
    /// Instructions of the transaction up to here.
    pub instructions: u32,
}

/// A program whose accesses are followed. It is killed when this is dropped.
pub struct AccessTracer(Tracer);

impl AccessTracer {
    /// Starts `command`, which runs what [`super::child`] runs.
    pub fn start(command: &mut Command) -> Result<AccessTracer, Error> {
        if !cfg!(all(target_arch = "x86_64", target_os = "linux")) {
            return Err(Error::failed("tracing accesses needs Linux on x86-64"));
        }
        Ok(AccessTracer(Tracer::start(command)?))
    }

    /// Lets the program run until a transaction begins; its number, or none when the program has ended.
    pub fn go_to_transaction(&mut self) -> Result<Option<u64>, Error> {
        loop {
            match self.0.run_to_mark()? {
                Some(Trap { mark: Mark::Transaction, second, .. }) => return Ok(Some(second)),
                Some(_) => {}
                None => return Ok(None),
            }
        }
    }

    /// Follows the transaction that begins, and returns the number of the next one.
    pub fn through_transaction(&mut self, seen: &mut dyn FnMut(AccessSeen)) -> Result<Option<u64>, Error> {
        let end = self.0.follow(&mut |operation, address, instructions| {
            seen(AccessSeen { address, operation, instructions });
        })?;
        Ok(Some(end.second))
    }

    /// Ends the program; returns what it printed.
    pub fn finish(self) -> Result<String, Error> {
        self.0.finish()
    }
}
