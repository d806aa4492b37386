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
    /// What to do.
    pub help: &'static str,
}

impl fmt::Display for LaunchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: expected {}, found ", self.variable, self.expected)?;
        match &self.found {
            Some(value) => write!(f, "`{value}`")?,
            None => write!(f, "that it is not set")?,
        }
        write!(f, "; {}", self.help)
    }
}

impl std::error::Error for LaunchError {}

/// Rank, rank on the host and number of ranks, as launchers call them: torchrun, Open MPI, MPICH and Intel MPI, Cray's
/// mpiexec, srun. The first that has set all three counts: the others start their processes by srun on a cluster that
/// has it, and leave its variables, which count hosts then. srun itself may set the first and the last of MPICH's.
const LAUNCHERS: [[&str; 3]; 5] = [
    ["RANK", "LOCAL_RANK", "WORLD_SIZE"],
    ["OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE"],
    ["PMI_RANK", "MPI_LOCALRANKID", "PMI_SIZE"],
    ["PMI_RANK", "PMI_LOCAL_RANK", "PMI_SIZE"],
    SRUN,
];

const SRUN: [&str; 3] = ["SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS"];

const START: &str = "start all ranks with torchrun, srun or mpirun, or set the variable for each";

impl LaunchEnvironment {
    /// Reads what torchrun sets (`RANK LOCAL_RANK WORLD_SIZE`), else Open MPI, MPICH, Intel MPI or Cray's mpiexec, else
    /// srun (`SLURM_PROCID SLURM_LOCALID SLURM_NTASKS`); `None` where no rank is set: a shell of a scheduler knows a
    /// number of tasks without being one. `lookup` gives the value of a variable, if it has one; usually it asks the
    /// environment.
    ///
    /// Ranks meet at `NCCL_COMM_ID` where it is set, else at `MASTER_ADDR` and **the port behind `MASTER_PORT`**:
    /// torchrun itself listens at `MASTER_PORT`. Without these, tasks of srun meet on the first host of
    /// `SLURM_STEP_NODELIST`, at a port that follows from the numbers of job and step. mpirun tells its processes no
    /// host.
    ///
    /// # Errors
    /// Names the variable that is missing, no number, or does not fit the others.
    ///
    /// # Example
    /// ```
    /// use graphsieve_kernels::{LaunchEnvironment, Rendezvous};
    /// let set =
    ///     [("RANK", "3"), ("LOCAL_RANK", "1"), ("WORLD_SIZE", "4"), ("MASTER_ADDR", "a"), ("MASTER_PORT", "29500")];
    /// let lookup = |name: &str| set.iter().find(|(key, _)| *key == name).map(|(_, value)| value.to_string());
    /// let environment = LaunchEnvironment::read(lookup).unwrap().unwrap();
    /// assert_eq!((environment.rank, environment.local_rank, environment.ranks), (3, 1, 4));
    /// assert_eq!(environment.rendezvous, Some(Rendezvous::Address("a:29501".into())));
    /// assert_eq!(LaunchEnvironment::read(|_| None), Ok(None));
    /// ```
    pub fn read(lookup: impl Fn(&str) -> Option<String>) -> Result<Option<Self>, LaunchError> {
        let lookup = |name: &str| lookup(name).filter(|value| !value.is_empty());
        let first =
            |needed: usize| LAUNCHERS.iter().find(|names| names[..needed].iter().all(|name| lookup(name).is_some()));
        let Some(names) = first(3).or_else(|| first(1)) else {
            return Ok(None);
        };
        let number = |variable: &'static str, expected: &str, fits: &dyn Fn(usize) -> bool| {
            let found = lookup(variable);
            let value = found.as_ref().and_then(|value| value.trim().parse().ok()).filter(|&value| fits(value));
            value.ok_or_else(|| LaunchError { variable, expected: expected.into(), found, help: START })
        };
        let [rank_name, local_name, ranks_name] = *names;
        let ranks = number(ranks_name, "the number of ranks, at least 1", &|ranks| ranks > 0)?;
        let rank = number(rank_name, &format!("a rank below {ranks_name}, {ranks}"), &|rank| rank < ranks)?;
        let at_most = format!("a rank on the host, at most {rank_name}, {rank}");
        let local_rank = number(local_name, &at_most, &|local| local <= rank)?;
        let rendezvous = match ranks {
            1 => None,
            _ => Some(rendezvous(&lookup, *names == SRUN)?),
        };
        Ok(Some(Self { rank, local_rank, ranks, rendezvous }))
    }
}

/// What tells this host from others: `NCCL_HOSTID` where it is set, by which NCCL tells them apart, too; else its name
/// and, on Linux, the number that it got when it was started. `lookup` is that of [`LaunchEnvironment::read`].
///
/// # Errors
/// [`LaunchError`] for a host that says neither.
///
/// # Example
/// ```
/// let set = |name: &str| (name == "NCCL_HOSTID").then(|| "left".to_string());
/// assert_eq!(graphsieve_kernels::host_identity(set), Ok("left".into()));
/// ```
pub fn host_identity(lookup: impl Fn(&str) -> Option<String>) -> Result<String, LaunchError> {
    let lookup = |name: &str| lookup(name).filter(|value| !value.is_empty());
    let read = |file: &str| std::fs::read_to_string(file).ok().map(|text| text.trim().to_owned());
    let name = || read("/proc/sys/kernel/hostname").or_else(|| lookup("HOSTNAME")).or_else(|| lookup("COMPUTERNAME"));
    let of_system = || {
        let known: Vec<String> = [name(), read("/proc/sys/kernel/random/boot_id")].into_iter().flatten().collect();
        (!known.is_empty()).then(|| known.join(" "))
    };
    lookup("NCCL_HOSTID").or_else(of_system).ok_or_else(|| LaunchError {
        variable: "NCCL_HOSTID",
        expected: "a name that tells this host from others, since the system gives it none".into(),
        found: None,
        help: "set it to one value for all ranks of a host, and to another on each host",
    })
}

fn rendezvous(lookup: &impl Fn(&str) -> Option<String>, srun: bool) -> Result<Rendezvous, LaunchError> {
    let wrong =
        |variable, expected: &str, found, help| LaunchError { variable, expected: expected.into(), found, help };
    if let Some(address) = lookup("NCCL_COMM_ID") {
        let port = address.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
        return match port {
            Some(_) => Ok(Rendezvous::OfNccl(address)),
            None => Err(wrong("NCCL_COMM_ID", "host:port", Some(address), START)),
        };
    }
    let help = match srun {
        true => {
            "start the program itself with srun, since a batch script is no task, or set the variable for each rank"
        }
        false => {
            "give it to all ranks: `mpirun -x MASTER_ADDR=HOST -x MASTER_PORT=29500` (Open MPI), or `mpiexec -genv \
                  MASTER_ADDR HOST -genv MASTER_PORT 29500` (MPICH)"
        }
    };
    let of_step = || lookup("SLURM_STEP_NODELIST").filter(|_| srun).and_then(|list| first_host(&list));
    let host = lookup("MASTER_ADDR").or_else(of_step);
    let host = host.ok_or_else(|| wrong("MASTER_ADDR", "the host of rank 0 (or `NCCL_COMM_ID`)", None, help))?;
    let found = lookup("MASTER_PORT");
    let port = match &found {
        Some(port) => port.trim().parse::<u16>().ok().and_then(|port| port.checked_add(1)),
        None if srun => port_of_step(lookup),
        None => None,
    };
    let expected = "a port below 65535, behind which ranks meet (or `NCCL_COMM_ID`)";
    let port = port.ok_or_else(|| wrong("MASTER_PORT", expected, found, help))?;
    // The colons of an address of IPv6 are not those before a port.
    let host = if host.contains(':') && !host.starts_with('[') { format!("[{host}]") } else { host };
    Ok(Rendezvous::Address(format!("{host}:{port}")))
}

/// The first host of a list as Slurm writes it: `gpu[07-09,12],login` begins with `gpu07`.
fn first_host(list: &str) -> Option<String> {
    let (mut host, mut rest) = (String::new(), list.trim());
    loop {
        let end = rest.find(['[', ',']).unwrap_or(rest.len());
        host += &rest[..end];
        let Some(inside) = rest[end..].strip_prefix('[') else { break };
        let (numbers, behind) = inside.split_once(']')?;
        host += numbers.split([',', '-']).next()?;
        rest = behind;
    }
    (!host.is_empty()).then_some(host)
}

/// Another port for each job and step, above those that Linux gives to connections.
fn port_of_step(lookup: &impl Fn(&str) -> Option<String>) -> Option<u16> {
    let number = |name: &str| lookup(name)?.trim().parse::<u64>().ok();
    let step = number("SLURM_JOB_ID")? + number("SLURM_STEP_ID")?;
    u16::try_from(61_440 + step % 4_096).ok()
}
