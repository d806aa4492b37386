//! Ranks that are processes: those of a launcher, and those that a command starts itself for several CUDA devices.
//! Threads of one process would record their passes one after the other.

use std::ffi::OsString;
use std::io::Read;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;

use graphsieve_kernels::{LaunchEnvironment, Rendezvous};

use super::{Compute, Console};
use crate::backend::{Device, cuda_devices, first_of_several};
use crate::error::{Error, Result};

/// This process among those of a launcher; `None` where it is the only one.
///
/// # Errors
/// [`Error::Usage`] for variables that do not fit together, and for several devices in each of several processes.
pub(super) fn launched(devices: usize) -> Result<Option<LaunchEnvironment>> {
    let read = LaunchEnvironment::read(|name| std::env::var(name).ok()).map_err(|error| Error::Usage {
        argument: error.variable.into(),
        expected: error.expected,
        found: error.found.unwrap_or_else(|| "nothing".into()),
        help: format!("{}; unset the variables to train with one process", error.help),
    })?;
    match read.filter(|process| process.ranks > 1) {
        Some(process) if devices > 1 => Err(Error::Usage {
            argument: format!("--devices {devices}"),
            expected: "one process".into(),
            found: format!("process {} of {} of a launcher", process.rank, process.ranks),
            help: "leave --devices out: every process of a launcher has one device".into(),
        }),
        process => Ok(process),
    }
}

/// The device that `compute` asks for, with its description: in a process of a launcher the CUDA device of its number
/// on the host, or the only one that it sees.
///
/// # Errors
/// As for [`Compute::choose`].
pub(super) fn chosen(
    compute: &Compute,
    process: Option<&LaunchEnvironment>,
    console: Console,
) -> Result<(Device, String)> {
    match (process, &*compute.device) {
        (Some(process), "auto" | "cuda") => {
            let there = cuda_devices().map_or(0, |devices| devices.len());
            let own = if there == 1 { 0 } else { process.local_rank };
            Compute { device: format!("cuda:{own}") }.choose(console)
        }
        _ => compute.choose(console),
    }
}

/// `work` as a rank that is a process: this one of those of a launcher, or the first of `devices` that are started here
/// on the CUDA devices from `device` on. `None` where ranks are no processes.
///
/// # Errors
/// That of `work` or of another rank; more devices than there are, and processes that cannot be started.
pub(super) fn together<T>(
    process: Option<&LaunchEnvironment>,
    device: Device,
    devices: usize,
    work: impl FnOnce(&LaunchEnvironment) -> Result<T>,
) -> Result<Option<T>> {
    if let Some(process) = process {
        return work(process).map(Some);
    }
    let Some(first) = first_of_several(device, devices)? else { return Ok(None) };
    let (own, others) = Others::start(devices, first)?;
    others.joined(work(&own)).map(Some)
}

/// Options that are of the whole command and not of one rank.
const OF_ALL: [&str; 3] = ["--device", "--devices", "--log-format"];

/// A rank that is a process, and what it says where it fails.
struct Other {
    rank: usize,
    process: Child,
    said: JoinHandle<String>,
}

/// The ranks behind rank 0, which is this process. Dropping it ends them.
struct Others(Vec<Other>);

impl Others {
    /// Starts this very command once for every rank but 0, on the CUDA devices behind `first`; with what is rank 0.
    ///
    /// # Errors
    /// A process that cannot be started.
    fn start(ranks: usize, first: usize) -> Result<(LaunchEnvironment, Self)> {
        let failed = |action, error| Error::io("graphsieve", action, error);
        let program = std::env::current_exe().map_err(|error| failed("find", error))?;
        let arguments = without_options(std::env::args_os().skip(1), &OF_ALL);
        // Ranks meet behind the port of a launcher; rank 0 listens there.
        let port = free_port().map_err(|error| failed("reserve a port for", error))?;
        let mut others = Self(Vec::new());
        for rank in 1..ranks {
            let numbers =
                [("RANK", rank), ("LOCAL_RANK", rank), ("WORLD_SIZE", ranks), ("MASTER_PORT", port as usize - 1)];
            let mut process = Command::new(&program)
                .args(&arguments)
                .args(["--device", &format!("cuda:{}", first + rank)])
                .envs(numbers.map(|(name, number)| (name, number.to_string())))
                .env("MASTER_ADDR", "127.0.0.1")
                .env_remove("NCCL_COMM_ID")
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::piped())
                .spawn()
                .map_err(|error| failed("start", error))?;
            let mut stderr = process.stderr.take();
            let said = std::thread::spawn(move || {
                let mut text = String::new();
                // What it has said is worth more than why it cannot be read on.
                let _ = stderr.as_mut().map(|stderr| stderr.read_to_string(&mut text));
                text
            });
            others.0.push(Other { rank, process, said });
        }
        let rendezvous = Some(Rendezvous::Address(format!("127.0.0.1:{port}")));
        Ok((LaunchEnvironment { rank: 0, local_rank: 0, ranks, rendezvous }, others))
    }

    /// Waits for the end of all; what rank 0 left, or why the first rank failed of itself.
    ///
    /// # Errors
    /// That of rank 0 or of another rank.
    fn joined<T>(mut self, left: Result<T>) -> Result<T> {
        if let Err(error) = left.as_ref().map(drop)
            && !matches!(error, Error::Ranks { .. })
        {
            // They were told, or have not met this one yet.
            return left;
        }
        for Other { rank, mut process, said } in self.0.drain(..) {
            let status = process.wait().map_err(|error| Error::io("graphsieve", "wait for", error))?;
            let said = said.join().unwrap_or_default();
            if status.success() {
                continue;
            }
            let found = failure(&said).unwrap_or_else(|| format!("it ended with {status}"));
            // One that lost another says so, too.
            if !found.contains("is lost") {
                let help =
                    "the last checkpoint is as it was: `graphsieve train --resume RUN` goes on from there".into();
                return Err(Error::Ranks { reason: format!("rank {rank}: {found}"), help });
            }
        }
        left
    }
}

impl Drop for Others {
    fn drop(&mut self) {
        for other in &mut self.0 {
            // One that has ended already needs no more.
            let _ = other.process.kill();
            let _ = other.process.wait();
        }
    }
}

/// Why a process failed, of what it said: its error, without the help.
fn failure(said: &str) -> Option<String> {
    let error = said.lines().filter_map(|line| line.split_once("error: ")).next_back()?;
    Some(error.1.to_owned())
}

/// A port behind another free one.
fn free_port() -> std::io::Result<u16> {
    TcpListener::bind(("127.0.0.1", 0))?.local_addr().map(|address| address.port())
}

/// `arguments` without these options and their values.
fn without_options(arguments: impl Iterator<Item = OsString>, options: &[&str]) -> Vec<OsString> {
    let mut kept = Vec::new();
    let mut is_value = false;
    for argument in arguments {
        if std::mem::take(&mut is_value) {
            continue;
        }
        let text = argument.to_string_lossy();
        let (name, value) = text.split_once('=').map_or((&*text, None), |(name, value)| (name, Some(value)));
        match options.contains(&name) {
            true => is_value = value.is_none(),
            false => kept.push(argument),
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_all_ranks_are_left_out_with_their_values() {
        let without = |line: &str| {
            let kept = without_options(line.split(' ').map(OsString::from), &OF_ALL);
            kept.join(" ".as_ref()).into_string().unwrap()
        };
        assert_eq!(without("train a.toml --devices 2 --set x=1 --device cuda:1"), "train a.toml --set x=1");
        assert_eq!(without("train --device=cuda a.toml --devices=4"), "train a.toml");
        assert_eq!(without("train a.toml"), "train a.toml");
    }

    #[test]
    fn what_a_rank_failed_of_is_the_last_error_that_it_names() {
        assert_eq!(failure("note\nerror: rank 0 is lost\n  help: x\n").as_deref(), Some("rank 0 is lost"));
        assert_eq!(failure("killed"), None);
    }
}
