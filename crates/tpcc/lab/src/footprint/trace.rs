//! Trace of the instructions of a transaction, cut into operations.

/// An executed instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ExecutedInstruction {
    /// Address, relocated so that every file of the program is at the same address in each run.
    pub at: u64,
    /// Length of the instruction in bytes.
    pub len: u8,
}

/// A passed context-switch point, at which storage offered a switch to another fiber.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct PassedPoint {
    /// Number of the site.
    pub site: u32,
    /// Number of steps of the operation before the point.
    pub steps_before: usize,
    /// Addresses of the call instructions of the open calls, outermost first. Calls from before the transaction are not
    /// included.
    pub calls: Vec<u64>,
}

/// Kind and index of an operation, as storage reports them at its start.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct OperationId {
    /// `storage::OperationKind` as a number.
    pub kind: u8,
    /// Number of the index; 0 if the operation uses no index.
    pub index: u32,
}

/// One operation, from its start to the start of the next operation. Includes the code of the transaction that uses the
/// result of the operation, because that code, too, runs before a switch is possible.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Operation {
    /// Kind and index of the operation.
    pub id: OperationId,
    /// Executed instructions, in order.
    pub steps: Vec<ExecutedInstruction>,
    /// Passed context-switch points.
    pub points: Vec<PassedPoint>,
}

/// Returns the number of frames in which two call chains differ. Each such frame costs the resumed chain a mispredicted
/// return.
pub(super) fn frames_apart(a: &[u64], b: &[u64]) -> usize {
    let common = a.iter().zip(b).take_while(|(a, b)| a == b).count();
    a.len() - common + b.len() - common
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_compared_from_the_outside() {
        assert_eq!(frames_apart(&[1, 2, 3], &[1, 2, 3]), 0);
        assert_eq!(frames_apart(&[1, 2, 3], &[1, 2]), 1);
        assert_eq!(frames_apart(&[1, 2, 3], &[1, 4, 5, 6]), 5);
        assert_eq!(frames_apart(&[], &[7]), 1);
    }
}
