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

    /// Runs the program to its next text, outside all transactions. Returns the text.
    pub fn run_to_text(&mut self) -> Result<String, Error> {
        match self.0.run_to_mark()? {
            Some(Trap { mark: Mark::Aside, .. }) => self.0.run_aside(),
            _ => Err(Error::failed("the traced program has not told where its lines lie")),
        }
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
        self.trace_with_texts(on_access, &mut String::new())
    }

    /// Like [`AccessTracer::trace_transaction`]. Adds what the program tells about the transaction to `texts`.
    pub fn trace_with_texts(
        &mut self,
        on_access: &mut dyn FnMut(TracedAccess),
        texts: &mut String,
    ) -> Result<Option<u64>, Error> {
        let mut on_access = |operation, address, instructions| {
            on_access(TracedAccess { address, operation, instructions });
        };
        let end = self.0.trace_accesses(&mut on_access, texts)?;
        Ok(Some(end.second))
    }

    /// Returns a number of 32 bits in the program's memory.
    pub fn read_u32(&self, address: u64) -> Option<u32> {
        self.0.read_u32(address)
    }

    /// Ends the program and returns its output.
    pub fn finish(self) -> Result<String, Error> {
        self.0.finish()
    }
}
