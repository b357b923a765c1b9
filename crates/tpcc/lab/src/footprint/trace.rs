//! What a traced transaction has executed, cut into operations.

/// An instruction that was executed: where it lies and how long it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Executed {
    /// Address, with every file of the program moved to a place that is the same in each run.
    pub at: u64,
    /// Bytes.
    pub len: u8,
}

/// A point that was passed: storage offered to run someone else.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Passed {
    /// Number of the site.
    pub site: u32,
    /// Steps of the operation before it.
    pub after: usize,
    /// Return addresses of the calls that were open, outermost first, as far as they began within the transaction.
    pub calls: Vec<u64>,
}

/// What storage says at the begin of a statement.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct OperationId {
    /// `storage::OperationKind` as a number.
    pub kind: u8,
    /// The index, 0 where there is none.
    pub index: u32,
}

/// One operation, from its begin to the begin of the next: what the transaction does with its outcome belongs to it,
/// because that code, too, runs before anyone else can.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Operation {
    /// What it is.
    pub id: OperationId,
    /// Everything executed, in order.
    pub steps: Vec<Executed>,
    /// Points on the way.
    pub points: Vec<Passed>,
}

/// Frames in which two chains of calls differ: each costs the chain that is resumed a mispredicted return.
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
