//! What a launcher tells the processes that it starts.

use std::fmt;

/// How the ranks of several processes find each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rendezvous {
    /// `NCCL_COMM_ID` is set, by which NCCL itself brings the ranks together: rank 0 listens there.
    OfNccl(String),
    /// `host:port`, at which rank 0 tells the others what they need.
    Address(String),
}

/// The place of a process among those that a launcher started: `torchrun`, `srun` or `mpirun`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchEnvironment {
    /// The number of this process, from 0.
    pub rank: usize,
    /// Its number among those of its host: the number of its GPU.
    pub local_rank: usize,
    /// How many processes there are.
    pub ranks: usize,
    /// Where they meet; `None` where this is the only one.
    pub rendezvous: Option<Rendezvous>,
}

/// A launcher's variables that do not fit together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchError {
    /// The variable.
    pub variable: &'static str,
    /// What it should have been.
    pub expected: String,
    /// What it is; `None` if it is not set.
    pub found: Option<String>,
}

impl fmt::Display for LaunchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: expected {}, found ", self.variable, self.expected)?;
        match &self.found {
            Some(value) => write!(f, "`{value}`")?,
            None => write!(f, "that it is not set")?,
        }
        write!(f, "; start all ranks with torchrun, srun or mpirun, or set the variable for each")
    }
}

impl std::error::Error for LaunchError {}

/// Rank, rank on the host and number of ranks, as launchers call them. What stands first counts: torchrun under srun
/// sets its own and leaves those of srun, which count its hosts.
const LAUNCHERS: [[&str; 3]; 3] = [
    ["RANK", "LOCAL_RANK", "WORLD_SIZE"],
    ["SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS"],
    ["OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE"],
];

impl LaunchEnvironment {
    /// Reads `RANK LOCAL_RANK WORLD_SIZE`, else `SLURM_PROCID SLURM_LOCALID SLURM_NTASKS`, else those of Open MPI;
    /// `None` where no rank is set: a shell of a scheduler knows a number of tasks without being one.
    /// `lookup` gives the value of a variable, if it has one; usually it asks the environment.
    ///
    /// Ranks meet at `NCCL_COMM_ID` where it is set, else at `MASTER_ADDR` and **the port behind `MASTER_PORT`**:
    /// torchrun itself listens at `MASTER_PORT`.
    ///
    /// # Errors
    /// Names the variable that is missing, no number, or does not fit the others.
    ///
    /// # Example
    /// ```
    /// use graphsieve_kernels::{LaunchEnvironment, Rendezvous};
    /// let set = [("RANK", "3"), ("LOCAL_RANK", "1"), ("WORLD_SIZE", "4"), ("MASTER_ADDR", "a"), ("MASTER_PORT", "29500")];
    /// let lookup = |name: &str| set.iter().find(|(key, _)| *key == name).map(|(_, value)| value.to_string());
    /// let environment = LaunchEnvironment::read(lookup).unwrap().unwrap();
    /// assert_eq!((environment.rank, environment.local_rank, environment.ranks), (3, 1, 4));
    /// assert_eq!(environment.rendezvous, Some(Rendezvous::Address("a:29501".into())));
    /// assert_eq!(LaunchEnvironment::read(|_| None), Ok(None));
    /// ```
    pub fn read(lookup: impl Fn(&str) -> Option<String>) -> Result<Option<Self>, LaunchError> {
        let lookup = |name: &str| lookup(name).filter(|value| !value.is_empty());
        let Some(names) = LAUNCHERS.iter().find(|[rank, ..]| lookup(rank).is_some()) else {
            return Ok(None);
        };
        let number = |variable: &'static str, expected: &str, fits: &dyn Fn(usize) -> bool| {
            let found = lookup(variable);
            let value = found.as_ref().and_then(|value| value.trim().parse().ok()).filter(|&value| fits(value));
            value.ok_or_else(|| LaunchError { variable, expected: expected.into(), found })
        };
        let [rank_name, local_name, ranks_name] = *names;
        let ranks = number(ranks_name, "the number of ranks, at least 1", &|ranks| ranks > 0)?;
        let rank = number(rank_name, &format!("a rank below {ranks_name}, {ranks}"), &|rank| rank < ranks)?;
        let at_most = format!("a rank on the host, at most {rank_name}, {rank}");
        let local_rank = number(local_name, &at_most, &|local| local <= rank)?;
        let rendezvous = match ranks {
            1 => None,
            _ => Some(rendezvous(&lookup)?),
        };
        Ok(Some(Self { rank, local_rank, ranks, rendezvous }))
    }
}

fn rendezvous(lookup: &impl Fn(&str) -> Option<String>) -> Result<Rendezvous, LaunchError> {
    if let Some(address) = lookup("NCCL_COMM_ID") {
        let port = address.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
        return match port {
            Some(_) => Ok(Rendezvous::OfNccl(address)),
            None => Err(LaunchError { variable: "NCCL_COMM_ID", expected: "host:port".into(), found: Some(address) }),
        };
    }
    let expected = "the host of rank 0 (or `NCCL_COMM_ID`)".to_string();
    let host = lookup("MASTER_ADDR").ok_or(LaunchError { variable: "MASTER_ADDR", expected, found: None })?;
    let found = lookup("MASTER_PORT");
    let port = found.as_ref().and_then(|port| port.trim().parse::<u16>().ok()).and_then(|port| port.checked_add(1));
    let expected = "a port below 65535, behind which ranks meet (or `NCCL_COMM_ID`)".into();
    let port = port.ok_or(LaunchError { variable: "MASTER_PORT", expected, found })?;
    // The colons of an address of IPv6 are not those before a port.
    let host = if host.contains(':') && !host.starts_with('[') { format!("[{host}]") } else { host };
    Ok(Rendezvous::Address(format!("{host}:{port}")))
}
