//! What the clients did and what they were told: the record that checkers judge.
//!
//! A history is a slice of [`Operation`]s in any order. Every key starts absent: what a run loads before its
//! clients start is recorded as puts. An outcome is known or unknown as a whole: `returned_ns` is `None`
//! exactly if the outcome within the action is `None`.

use std::fmt;

pub mod corrupt;
pub mod lines;

/// Which value stands under a key. Every write of a history writes another one, so that a read tells which
/// write it saw.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ValueId(pub u64);

/// One operation on one key.
#[derive(Clone, Debug)]
pub struct Operation {
    /// Who did it.
    pub client: u32,
    /// Its key.
    pub key: u64,
    /// When it was called, in nanoseconds of one clock, in the simulator virtual ones.
    pub called_ns: u64,
    /// When it returned; `None` when its outcome is unknown, so that it may take effect at any time after its
    /// call, or never. A read that failed is not recorded. An operation precedes another only if it returned
    /// strictly before the other was called.
    pub returned_ns: Option<u64>,
    /// What it did.
    pub action: Action,
}

/// What an operation did, as its client was told. `None` stands for absence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Read the key.
    Get {
        /// What it found.
        found: Option<ValueId>,
    },
    /// Wrote a value, whatever was there.
    Put {
        /// The new value.
        value: ValueId,
    },
    /// Deleted the key.
    Delete {
        /// Whether it was there; `None` if the outcome is unknown.
        was_there: Option<bool>,
    },
    /// Wrote a value if the key had the expected one.
    CompareAndSet {
        /// What had to be there.
        expected: Option<ValueId>,
        /// The new value; `None` for a delete.
        value: Option<ValueId>,
        /// How it ended; `None` if the outcome is unknown.
        outcome: Option<CompareOutcome>,
    },
}

/// How a compare-and-set ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompareOutcome {
    /// It was done.
    Done,
    /// It was not, because something else than expected was there: this.
    Mismatch(Option<ValueId>),
}

impl Operation {
    /// The value that it writes, or would have written.
    pub fn value(&self) -> Option<ValueId> {
        match self.action {
            Action::Put { value } => Some(value),
            Action::CompareAndSet { value, .. } => value,
            Action::Get { .. } | Action::Delete { .. } => None,
        }
    }

    /// What it says stood under the key when it took effect: `Some(None)` for absence, `None` if it does not
    /// say.
    pub fn saw(&self) -> Option<Option<ValueId>> {
        match self.action {
            Action::Get { found } => Some(found),
            Action::Delete { was_there: Some(false) } => Some(None),
            Action::CompareAndSet { expected, outcome: Some(CompareOutcome::Done), .. } => Some(expected),
            Action::CompareAndSet { outcome: Some(CompareOutcome::Mismatch(found)), .. } => Some(found),
            Action::Put { .. } | Action::Delete { .. } | Action::CompareAndSet { .. } => None,
        }
    }

    /// Whether it left the key as it was, by what its client was told.
    pub fn changed_nothing(&self) -> bool {
        match self.action {
            Action::Get { .. } | Action::Delete { was_there: Some(false) } => true,
            Action::CompareAndSet { outcome: Some(CompareOutcome::Mismatch(_)), .. } => true,
            Action::Put { .. } | Action::Delete { .. } | Action::CompareAndSet { .. } => false,
        }
    }

    /// The same operation with its outcome forgotten; `None` if nothing is left of it because it changed
    /// nothing.
    ///
    /// Every order that explains a history also explains it with an outcome forgotten.
    pub fn without_outcome(&self) -> Option<Operation> {
        if self.changed_nothing() {
            return None;
        }
        let action = match self.action {
            Action::Delete { .. } => Action::Delete { was_there: None },
            Action::CompareAndSet { expected, value, .. } => {
                Action::CompareAndSet { expected, value, outcome: None }
            }
            Action::Get { .. } | Action::Put { .. } => self.action.clone(),
        };
        Some(Operation { returned_ns: None, action, ..*self })
    }
}

/// A value or its absence, as text.
struct Shown(Option<ValueId>);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(value) => value.fmt(f),
            None => f.write_str("absent"),
        }
    }
}

impl fmt::Display for ValueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v{}", self.0)
    }
}

/// For example `1200..1900 client 3 key 7: get -> v12`. An unknown outcome reads `1200..? client 3 key 7: put
/// v12`.
impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.returned_ns {
            Some(returned_ns) => write!(f, "{}..{returned_ns}", self.called_ns)?,
            None => write!(f, "{}..?", self.called_ns)?,
        }
        write!(f, " client {} key {}: {}", self.client, self.key, self.action)
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Action::Get { found } => write!(f, "get -> {}", Shown(found)),
            Action::Put { value } => write!(f, "put {value}"),
            Action::Delete { was_there: None } => write!(f, "delete -> unknown"),
            Action::Delete { was_there: Some(true) } => write!(f, "delete -> was there"),
            Action::Delete { was_there: Some(false) } => write!(f, "delete -> was absent"),
            Action::CompareAndSet { expected, value, outcome } => {
                write!(f, "compare-and-set {} to {} -> ", Shown(expected), Shown(value))?;
                match outcome {
                    None => write!(f, "unknown"),
                    Some(CompareOutcome::Done) => write!(f, "done"),
                    Some(CompareOutcome::Mismatch(found)) => write!(f, "mismatch, found {}", Shown(found)),
                }
            }
        }
    }
}
