//! Traces the memory accesses of a program, transaction by transaction.

use std::process::Command;

use super::marks::Mark;
use super::operand::AccessKind;
use super::tracer::{Tracer, Trap};
use tpcc_core::workload::error::Error;

/// A memory access outside the stack, or the end of a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TracedAccess {
    /// Address of the operand; 0 at the end of the transaction.
    pub address: u64,
    /// Kind of access; `None` at the end of the transaction.
    pub operation: Option<AccessKind>,
    /// Number of instructions of the transaction before this access.
    pub instructions: u32,
}

/// A program whose memory accesses are traced. Dropping the tracer kills the program.
pub struct AccessTracer(Tracer);

impl AccessTracer {
    /// Starts `command`, which must run a function of [`super::child`].
    pub fn start(command: &mut Command) -> Result<AccessTracer, Error> {
        if !cfg!(all(target_arch = "x86_64", target_os = "linux")) {
            return Err(Error::failed("tracing accesses needs Linux on x86-64"));
        }
        Ok(AccessTracer(Tracer::start(command)?))
    }

    /// Runs the program until a transaction begins. Returns the number of the transaction, or `None` if the program has
    /// ended.
    pub fn run_to_transaction(&mut self) -> Result<Option<u64>, Error> {
        loop {
            match self.0.run_to_mark()? {
                Some(Trap { mark: Mark::Transaction, second, .. }) => return Ok(Some(second)),
                Some(_) => {}
                None => return Ok(None),
            }
        }
    }

    /// Traces the transaction that has begun, and passes each of its accesses to `on_access`. Returns the number of the next
    /// transaction.
    pub fn trace_transaction(&mut self, on_access: &mut dyn FnMut(TracedAccess)) -> Result<Option<u64>, Error> {
        let end = self.0.trace_accesses(&mut |operation, address, instructions| {
            on_access(TracedAccess { address, operation, instructions });
        })?;
        Ok(Some(end.second))
    }

    /// Ends the program and returns its output.
    pub fn finish(self) -> Result<String, Error> {
        self.0.finish()
    }
}
