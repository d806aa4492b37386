//! `graphsieve info`

use std::fmt;
use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use super::Format;
use crate::backend::{self, Device, Processor};
use crate::error::Result;
use crate::graph::{Dataset, Statistics};

/// Show what this build can compute on, or what a data directory holds
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// Data directory to describe [default: describe the program and the devices of this machine]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,

    /// How to print it
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

pub(super) fn run(arguments: Arguments) -> Result<()> {
    match arguments.data {
        Some(dir) => arguments.format.print(&Statistics::of(&Dataset::open(&dir)?)),
        None => arguments.format.print(&Machine::probe()?),
    }
}

/// The program and what it found to compute on.
#[derive(Serialize)]
struct Machine {
    version: &'static str,
    backends: Vec<&'static str>,
    cpu: Processor,
    cuda: Probe,
    vulkan: Probe,
    auto: Auto,
}

/// Usable devices, or why there are none.
#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
enum Probe {
    Devices(Vec<Found>),
    Unusable(String),
}

#[derive(Serialize)]
struct Found {
    name: String,
    /// False for a driver that computes on the CPU, which `auto` never takes.
    hardware: bool,
}

/// What `--device auto` takes.
#[derive(Serialize)]
struct Auto {
    device: String,
    reason: String,
}

impl Machine {
    fn probe() -> Result<Self> {
        let found = |device: &Device, hardware| Found { name: backend::description(device), hardware };
        let cuda = match backend::cuda_devices() {
            Ok(devices) => Probe::Devices(devices.iter().map(|device| found(device, true)).collect()),
            Err(reason) => Probe::Unusable(reason),
        };
        let vulkan = match backend::vulkan_adapter() {
            Ok(adapter) => Probe::Devices(vec![found(&adapter.device, adapter.hardware)]),
            Err(reason) => Probe::Unusable(reason),
        };
        let auto = backend::choose("auto")?;
        Ok(Self {
            version: env!("CARGO_PKG_VERSION"),
            backends: backend::built_in(),
            cpu: Processor::of_this_machine(),
            cuda,
            vulkan,
            auto: Auto { device: backend::description(&auto.device), reason: auto.reason },
        })
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "graphsieve {}", self.version)?;
        writeln!(f, "backends  {}", self.backends.join(", "))?;
        writeln!(f, "cpu       {}", self.cpu)?;
        writeln!(f, "cuda      {}", self.cuda)?;
        writeln!(f, "vulkan    {}", self.vulkan)?;
        writeln!(f, "auto      {}", self.auto.device)?;
        write!(f, "          {}", self.auto.reason)
    }
}

impl fmt::Display for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Probe::Unusable(reason) => write!(f, "not usable: {reason}"),
            Probe::Devices(devices) => {
                let line = |device: &Found| match device.hardware {
                    true => device.name.clone(),
                    false => format!("{}, a software driver", device.name),
                };
                f.write_str(&devices.iter().map(line).collect::<Vec<_>>().join("\n          "))
            }
        }
    }
}
