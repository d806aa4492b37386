//! Why a graph does not take, or does not show, what it is asked.

use crate::error::Error;

/// What kind of fault it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// What does not fit the tables or the graph, and all else.
    Unfit,
    /// A target that there is not.
    Unknown,
    /// What is there already, with another content.
    Duplicate,
    /// A neighbourhood with more nodes than are allowed.
    TooLarge,
}

/// An error with its kind.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct Refused {
    pub fault: Fault,
    pub error: Error,
}

impl Refused {
    /// Of no kind of its own.
    pub(super) fn unfit(error: Error) -> Self {
        Self { fault: Fault::Unfit, error }
    }
}
