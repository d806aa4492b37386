//! How ranks over NCCL find each other, and groups of them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use burn_cuda::CudaDevice;
use cudarc::nccl::result::{self as nccl, NcclError};
use cudarc::nccl::sys;

use super::NcclLink;
use super::resources::{OLDEST, Resources, checked, device_fault, probe_nccl, said, with_groups};
use super::watch::Connection;
use crate::collective::communicator::{COLLECTIVE_DEADLINE, Communicator};
use crate::collective::environment::Rendezvous;
use crate::collective::error::{CollectiveError, CollectiveFault};
use crate::collective::hosts::Hosts;
use crate::collective::presence::{Peers, Presence, lock};
use crate::collective::rendezvous;
use crate::runtime::backends::Cuda;
use crate::runtime::turn::SharedTurn;

/// A rank over NCCL; see [`Communicator::nccl`].
#[derive(Clone, Debug)]
pub struct NcclConfig {
    /// The number of this process, from 0.
    pub rank: usize,
    /// How many processes there are.
    pub ranks: usize,
    /// Its device.
    pub device: CudaDevice,
    /// What tells its host from others, see [`host_identity`](crate::host_identity).
    pub host: String,
    /// Where the ranks meet; needed by more than one.
    pub rendezvous: Option<Rendezvous>,
    /// How long a rank waits for the others in an exchange; to connect it is [`COLLECTIVE_DEADLINE`].
    pub deadline: Duration,
    /// Whether the ranks compare what they call before each exchange that they have not made before, which costs one
    /// more, of a few bytes. Without, ranks that disagree wait until the deadline, or get each other's numbers.
    pub compare_calls: bool,
}

/// The first fields of NCCL's own settings, as its version 2.14 has them: it reads as many bytes as `size` says and
/// takes its defaults for the rest, so that one program fits every later version.
#[repr(C)]
struct Settings {
    size: usize,
    magic: u32,
    version: u32,
    blocking: i32,
    undefined: i32,
}

/// What a link is among all.
struct Member {
    /// The number of its rank among all, by which errors call it.
    number: usize,
    /// The ranks of its group, by their numbers among all; `None` of all.
    members: Option<Vec<usize>>,
    /// Whether others are threads of this process.
    together: bool,
    peers: Arc<Mutex<Peers>>,
    presence: Option<Presence>,
}

impl NcclLink {
    /// A rank of all, which meet by `id`.
    fn connect(config: &NcclConfig, id: sys::ncclUniqueId, member: Member) -> Result<Self, CollectiveFault> {
        Self::begun_by(config, member, |resources| Self::initialised(config, id, resources))
    }

    /// Begins to connect a rank of all.
    fn initialised(
        config: &NcclConfig,
        id: sys::ncclUniqueId,
        resources: &mut Resources,
    ) -> Result<(), CollectiveFault> {
        let mut settings = Settings {
            size: size_of::<Settings>(),
            magic: 0xcafe_beef,
            version: OLDEST as u32,
            blocking: 0,
            undefined: i32::MIN,
        };
        let mut comm = std::ptr::null_mut();
        let settings: *mut Settings = &mut settings;
        // SAFETY: the communicator is written to memory of ours, and the settings have the size that they tell.
        let begun = unsafe {
            nccl::comm_init_rank_config(&mut comm, config.ranks as i32, id, config.rank as i32, settings.cast())
        };
        resources.comm = (!comm.is_null()).then_some(comm);
        checked(begun)
    }

    /// A rank that `begin` begins to connect, once it is connected.
    fn begun_by(
        config: &NcclConfig,
        member: Member,
        begin: impl FnOnce(&mut Resources) -> Result<(), CollectiveFault>,
    ) -> Result<Self, CollectiveFault> {
        let Member { number, members, together, peers, presence } = member;
        let mut resources = Resources::new(&config.device)?;
        begin(&mut resources)?;
        let ordered = resources.is_ordered();
        let mut connection = Connection::new(number, members.is_none(), COLLECTIVE_DEADLINE, resources, peers);
        {
            let mut resources = lock(&connection.resources);
            let connected = connection.settle(&resources, Instant::now(), 0);
            if connected.is_err() {
                resources.abort();
            }
            connected?;
        }
        connection.deadline = config.deadline;
        let connection = Arc::new(connection);
        let watch = connection.watched().map_err(|error| device_fault("a thread that watches exchanges", error))?;
        Ok(Self {
            rank: config.rank,
            ranks: config.ranks,
            members,
            device: config.device.clone(),
            compare_calls: config.compare_calls && config.ranks > 1,
            together,
            ordered,
            at_once: AtomicBool::new(false),
            calls: AtomicU64::new(0),
            compared: Mutex::default(),
            connection,
            watch: Some(watch),
            presence,
        })
    }

    /// This rank in the group of `members`, by their numbers here, once all have come.
    pub(super) fn group(&self, members: &[usize]) -> Result<Self, CollectiveFault> {
        with_groups()?;
        let place = members.iter().filter(|&&rank| rank < self.rank).count();
        let config = NcclConfig {
            rank: place,
            ranks: members.len(),
            device: self.device.clone(),
            host: String::new(),
            rendezvous: None,
            deadline: self.connection.deadline,
            compare_calls: self.compare_calls,
        };
        let number = |&rank: &usize| self.members.as_ref().map_or(rank, |numbers| numbers[rank]);
        let member = Member {
            number: self.connection.rank,
            members: Some(members.iter().map(number).collect()),
            together: self.together,
            peers: self.connection.peers.clone(),
            presence: None,
        };
        Self::begun_by(&config, member, |resources| self.split_off(members[0] as i32, place as i32, resources))
    }

    /// Begins to connect the group with this number, in which this rank has `place`.
    fn split_off(&self, group: i32, place: i32, resources: &mut Resources) -> Result<(), CollectiveFault> {
        let of_all = lock(&self.connection.resources);
        of_all.enter()?;
        let comm = of_all.comm()?;
        // NCCL writes it when the group is connected. A rank that gives up before leaves it to NCCL for good.
        let made: *mut sys::ncclComm_t = Box::into_raw(Box::new(std::ptr::null_mut()));
        // SAFETY: the communicator is one that is not given up, what is written to stays, and the settings are those of
        // the communicator.
        checked(unsafe { sys::ncclCommSplit(comm, group, place, made, std::ptr::null_mut()) }.result())?;
        self.connection.settle(&of_all, Instant::now(), self.calls.load(Ordering::Relaxed))?;
        // SAFETY: it was made above, and NCCL has done with it.
        let comm = *unsafe { Box::from_raw(made) };
        resources.comm = (!comm.is_null()).then_some(comm);
        resources.comm().map(drop)
    }
}

fn new_id() -> Result<sys::ncclUniqueId, CollectiveFault> {
    nccl::get_uniqueid().map_err(|NcclError(code)| said(code))
}

impl Communicator<Cuda> {
    /// This process as one rank of a group over NCCL, on one or several hosts. All ranks call it; it comes back when
    /// all are connected, or with an error when the deadline is over. NCCL is loaded at run time, see [`probe_nccl`].
    ///
    /// Ranks meet where [`NcclConfig::rendezvous`] says, which [`LaunchEnvironment`](crate::LaunchEnvironment) reads.
    /// NCCL's calls come back at once and are watched: a thread waits for the end of each exchange, for an error of
    /// another rank and for the deadline, and gives the connection up after an error, which the other ranks then see.
    /// The device waits for exchanges by itself where its driver is of CUDA 12.5 or later; else, and where
    /// `GRAPHSIEVE_HOST_WAITS` is set, the host does, which [`note`](Self::note) says.
    /// Where they meet at an address they keep the connections that they met by: a process that ends without leaving is
    /// an error on all others at once. Over `NCCL_COMM_ID` only NCCL can tell, which may take until the deadline.
    /// Sums of rows are made in the order of the ranks, others in one that NCCL chooses; those of 16-bit values in f32.
    /// Groups of the ranks of a host ([`within_host`](Self::within_host)) take NCCL 2.18 or newer.
    ///
    /// # Errors
    /// For every [`CollectiveFault`].
    pub fn nccl(config: NcclConfig) -> Result<Self, CollectiveError> {
        let connect = || {
            probe_nccl()?;
            let argument = |argument, expected: String, found: String| {
                Err(CollectiveFault::Argument { argument, expected, found })
            };
            let NcclConfig { rank, ranks, .. } = config;
            if ranks == 0 || rank >= ranks || i32::try_from(ranks).is_err() {
                return argument("rank", "a rank below the number of ranks".into(), format!("{rank} of {ranks}"));
            }
            let peers = Arc::default();
            let mut presence = None;
            let id = match &config.rendezvous {
                // Every rank's id is then the address, and rank 0 listens there.
                Some(Rendezvous::OfNccl(address)) => match std::env::var("NCCL_COMM_ID") {
                    Ok(set) if set == *address => new_id()?,
                    set => {
                        return argument("NCCL_COMM_ID", format!("{address} in the environment"), format!("{set:?}"));
                    }
                },
                Some(Rendezvous::Address(address)) => {
                    let (bytes, kept) = rendezvous::share(address, rank, ranks, COLLECTIVE_DEADLINE, || {
                        Ok(new_id()?.internal.map(|byte| byte as u8))
                    })?;
                    let watched = Presence::watch(rank, kept, &peers);
                    let fault = |error: std::io::Error| CollectiveFault::Address {
                        address: address.clone(),
                        reason: error.to_string(),
                    };
                    presence = Some(watched.map_err(fault)?);
                    sys::ncclUniqueId { internal: bytes.map(|byte| byte as std::ffi::c_char) }
                }
                None if ranks == 1 => new_id()?,
                None => return argument("rendezvous", "where the ranks meet".into(), "none".into()),
            };
            NcclLink::connect(&config, id, Member { number: rank, members: None, together: false, peers, presence })
        };
        let (rank, device, hosts) = (config.rank, config.device.clone(), Hosts::one(config.ranks));
        match connect() {
            Ok(link) => Self::of(Arc::new(link), device, None, hosts).on_host(&config.host),
            Err(fault) => Err(CollectiveError { rank, operation: "connect", fault }),
        }
    }

    /// A group of threads of this process with a device each, over NCCL; otherwise as [`nccl`](Self::nccl).
    ///
    /// # Errors
    /// For every [`CollectiveFault`].
    pub fn nccl_threads(
        devices: &[CudaDevice],
        deadline: Duration,
        compare_calls: bool,
    ) -> Result<Vec<Self>, CollectiveError> {
        let failed = |rank, fault| CollectiveError { rank, operation: "connect", fault };
        probe_nccl().map_err(|fault| failed(0, fault))?;
        let id = new_id().map_err(|fault| failed(0, fault))?;
        let peers: Arc<Mutex<Peers>> = Arc::default();
        let ranks = devices.len();
        let turn = (ranks > 1).then(|| Arc::new(SharedTurn::default()));
        let connect = |(rank, device): (usize, &CudaDevice)| {
            let device = device.clone();
            let (rendezvous, host) = (None, String::new());
            let config = NcclConfig { rank, ranks, device, host, rendezvous, deadline, compare_calls };
            let (together, peers_of) = (ranks > 1, peers.clone());
            let member = Member { number: rank, members: None, together, peers: peers_of, presence: None };
            NcclLink::connect(&config, id, member).map_err(|fault| {
                let error = failed(rank, fault);
                lock(&peers).failed.get_or_insert(error.clone());
                error
            })
        };
        // Each of them waits for the others.
        let connect = &connect;
        let links = std::thread::scope(|scope| {
            let threads: Vec<_> = devices.iter().enumerate().map(|of| scope.spawn(move || connect(of))).collect();
            let lost = |rank| CollectiveFault::Lost { rank, reason: "its thread panicked".into() };
            let link = |(rank, thread): (usize, std::thread::ScopedJoinHandle<'_, _>)| {
                thread.join().unwrap_or_else(|_| Err(failed(rank, lost(rank))))
            };
            threads.into_iter().enumerate().map(link).collect::<Result<Vec<NcclLink>, CollectiveError>>()
        })?;
        let rank = |(link, device): (NcclLink, &CudaDevice)| {
            Self::of(Arc::new(link), device.clone(), turn.clone(), Hosts::one(ranks))
        };
        Ok(links.into_iter().zip(devices).map(rank).collect())
    }
}
