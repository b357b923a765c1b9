//! What a traced transaction has executed, cut into operations.

/// An instruction that was executed: where it lies and how long it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Executed {
    /// Address, with every file of the program moved to a place that is the same in each run.
    pub(crate) at: u64,
    /// Bytes.
    pub(crate) len: u8,
}

/// A point that was passed: storage offered to run someone else.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Passed {
    /// Number of the site.
    pub(crate) site: u32,
    /// Steps of the operation before it.
    pub(crate) after: usize,
    /// Return addresses of the calls that were open, outermost first, as far as they began within the transaction.
    pub(crate) calls: Vec<u64>,
}

/// What storage says at the begin of a statement.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct OperationId {
    /// `storage::OperationKind` as a number.
    pub(crate) kind: u8,
    /// The index, 0 where there is none.
    pub(crate) index: u32,
}

/// One operation, from its begin to the begin of the next: what the transaction does with its outcome belongs to it,
/// because that code, too, runs before anyone else can.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Operation {
    /// What it is.
    pub(crate) id: OperationId,
    /// Everything executed, in order.
    pub(crate) steps: Vec<Executed>,
    /// Points on the way.
    pub(crate) points: Vec<Passed>,
}

/// Frames in which two chains of calls differ: each costs the chain that is resumed a mispredicted return.
pub(crate) fn frames_apart(a: &[u64], b: &[u64]) -> usize {
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
