//! Operations of a program, which points and teams distinguish.

/// Identifier of an operation of an executor, for example `fetch STOCK` or `commit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OperationId(pub(crate) u8);

impl OperationId {
    /// Returns the index of the operation, in the order in which operations were added.
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }

    /// Returns the bit of the operation in the word that records the live operations of a point.
    #[must_use]
    pub fn bit(self) -> u64 {
        1 << self.0
    }
}

/// Error: more than 64 operations were added.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("operation '{name}': an executor has at most 64; let several indexes share one")]
pub struct TooManyOperations {
    /// Name of the operation that could not be added.
    pub name: String,
}

/// List of the operations of an executor. The paper's Table 2 defines the granularity of operations: one operation for
/// all begins, commits, updates and scans; one operation per index for fetches, inserts and deletes.
#[derive(Clone, Debug, Default)]
pub struct Operations {
    pub(crate) names: Vec<String>,
    /// Family number of each operation, indexed by operation. Operations of one family may share a team.
    pub(crate) families: Vec<u8>,
    family_names: Vec<String>,
}

impl Operations {
    /// Creates an empty list of operations.
    #[must_use]
    pub fn new() -> Operations {
        Operations::default()
    }

    /// Adds the operation `family` on `object`; adding the same pair again returns the same operation. Operations of
    /// one family run nearly the same code, so their teams may be consolidated.
    ///
    /// # Errors
    /// [`TooManyOperations`] if the list already has 64 operations.
    pub fn add(&mut self, family: &str, object: &str) -> Result<OperationId, TooManyOperations> {
        let name = if object.is_empty() { family.to_owned() } else { format!("{family} {object}") };
        if let Some(at) = self.names.iter().position(|n| *n == name) {
            return Ok(OperationId(at as u8));
        }
        if self.names.len() == 64 {
            return Err(TooManyOperations { name });
        }
        let family = self.family_names.iter().position(|n| n == family).unwrap_or_else(|| {
            self.family_names.push(family.to_owned());
            self.family_names.len() - 1
        });
        self.names.push(name);
        self.families.push(family as u8);
        Ok(OperationId(self.names.len() as u8 - 1))
    }

    /// Returns the operation with the name `name`, for example `fetch STOCK`.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<OperationId> {
        self.names.iter().position(|n| n == name).map(|at| OperationId(at as u8))
    }

    /// Returns the name of an operation; empty if the operation is not in this list.
    #[must_use]
    pub fn name(&self, operation: OperationId) -> &str {
        self.names.get(operation.index()).map_or("", String::as_str)
    }

    /// Iterates over all operations, in the order in which they were added.
    pub fn iter(&self) -> impl Iterator<Item = (OperationId, &str)> {
        self.names.iter().enumerate().map(|(at, name)| (OperationId(at as u8), name.as_str()))
    }
}
