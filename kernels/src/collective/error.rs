//! Why an exchange between ranks gave nothing.

use std::fmt;
use std::time::Duration;

/// An exchange between ranks that gave nothing. The first error ends the group: every later call gives one, too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectiveError {
    /// The rank that says so.
    pub rank: usize,
    /// What it called.
    pub operation: &'static str,
    /// What is wrong.
    pub fault: CollectiveFault,
}

/// What is wrong in a [`CollectiveError`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CollectiveFault {
    /// An argument does not fit the group or the other arguments.
    Argument { argument: &'static str, expected: String, found: String },
    /// The ranks do not call the same: what each of them calls.
    Disagreement { found: Vec<String> },
    /// Ranks did not call in time; none is named where the library does not tell.
    Late { missing: Vec<usize>, after: Duration },
    /// A rank is no longer there, for the reason given.
    Lost { rank: usize, reason: String },
    /// This rank gave up, for the reason given.
    Aborted { reason: String },
    /// A backward pass of one of several ranks of this process was not started by `Communicator::backward`.
    Apart,
    /// Parts of a handshake that are not the same everywhere: the name of each, and the ranks that differ from rank 0.
    Handshake { differing: Vec<(String, Vec<usize>)> },
    /// The ranks cannot find each other.
    Address { address: String, reason: String },
    /// The device or its library reports an error.
    Device { reason: String },
    /// A library is missing or too old.
    Library { found: String, help: String },
}

impl CollectiveFault {
    /// What rank `rank` sees where rank `at` found this fault.
    pub(crate) fn seen_from(&self, rank: usize, at: usize) -> Self {
        match self {
            fault if rank == at => fault.clone(),
            Self::Late { missing, .. } if !missing.contains(&rank) => self.clone(),
            Self::Lost { rank: lost, .. } if *lost != rank => self.clone(),
            Self::Disagreement { .. } | Self::Handshake { .. } => self.clone(),
            Self::Aborted { reason } => Self::Lost { rank: at, reason: format!("it gave up: {reason}") },
            fault => Self::Lost { rank: at, reason: format!("its call failed: {fault}") },
        }
    }
}

/// `rank 2`, or `ranks 2, 3`.
fn named(ranks: &[usize]) -> String {
    let list: Vec<String> = ranks.iter().map(usize::to_string).collect();
    format!("{} {}", if ranks.len() == 1 { "rank" } else { "ranks" }, list.join(", "))
}

impl fmt::Display for CollectiveFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Argument { argument, expected, found } => write!(f, "{argument}: expected {expected}, found {found}"),
            Self::Disagreement { found } => {
                write!(f, "expected the same call on every rank, found")?;
                for (rank, call) in found.iter().enumerate() {
                    write!(f, "{} rank {rank}: {call}", if rank == 0 { "" } else { ";" })?;
                }
                write!(f, "; give every rank the same program, configuration and data")
            }
            Self::Late { missing, after } => {
                let who = if missing.is_empty() { "another rank".into() } else { named(missing) };
                write!(
                    f,
                    "expected all ranks within {:?}, found that {who} did not come; see what {who} says, or allow more \
                     time",
                    after
                )
            }
            Self::Lost { rank, reason } => {
                write!(f, "rank {rank} is lost: {reason}; mend that and start all ranks again")
            }
            Self::Aborted { reason } => write!(f, "this rank gave up: {reason}"),
            Self::Apart => write!(
                f,
                "expected the ranks of a process to differentiate together, found a backward pass of one alone; start it \
                 within `Communicator::backward`"
            ),
            Self::Handshake { differing } => {
                write!(f, "expected the same on every rank, found")?;
                for (k, (part, ranks)) in differing.iter().enumerate() {
                    write!(f, "{} another {part} on {}", if k == 0 { "" } else { ";" }, named(ranks))?;
                }
                write!(f, " than on rank 0; give every rank the same")
            }
            Self::Address { address, reason } => write!(
                f,
                "{address}: {reason}; rank 0 listens there (`NCCL_COMM_ID`, else `MASTER_ADDR` and the port behind \
                 `MASTER_PORT`): give an address that all ranks reach and a port that is free"
            ),
            Self::Device { reason } => write!(f, "{reason}"),
            Self::Library { found, help } => write!(f, "{found}; {help}"),
        }
    }
}

impl fmt::Display for CollectiveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {}: {}: {}", self.rank, self.operation, self.fault)
    }
}

impl std::error::Error for CollectiveError {}
