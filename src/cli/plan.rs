//! `graphsieve plan`

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use clap::Args;

use super::Format;
use crate::config::RunConfig;
use crate::error::Result;
use crate::plan::{PlanOptions, Rates};

/// Say on paper what a training takes on several devices: what fits, what is exchanged, how long an epoch is
///
/// For networks: Stage 1, Stage 2 and classify, over the whole graph or in mini-batches, and scores of all nodes. Reads
/// sizes and degrees of the data, no features, and needs no device. What is assumed stands below the table.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// TOML file of a network, see configs/README.md [default: the settings of configs/stage2.toml]
    #[arg(value_name = "CONFIG")]
    config: Option<PathBuf>,

    /// Data directory
    #[arg(long, value_name = "DIR")]
    data: PathBuf,

    /// Replace a key of the file, e.g. train.rows=all; the last one wins
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,

    /// Numbers of devices, on all hosts together
    #[arg(long, value_name = "N,N", value_delimiter = ',', default_value = "1,2,4")]
    devices: Vec<NonZeroUsize>,

    /// Hosts that the largest number of devices is spread over; smaller numbers fill one host after the other
    #[arg(long, value_name = "N", default_value = "1")]
    hosts: NonZeroUsize,

    /// Memory of a device in GB (10^9 bytes), to say what fits
    #[arg(long, value_name = "GB")]
    memory: Option<f64>,

    /// What a device copies in its memory, in GB/s
    #[arg(long, value_name = "GB/s", default_value_t = Rates::default().device)]
    device_rate: f64,

    /// What arrives at a device from the others of its host, in GB/s [default: 254 between two devices, 325 between
    /// more]
    #[arg(long, value_name = "GB/s")]
    link_rate: Option<f64>,

    /// What arrives at a device from other hosts, in GB/s
    #[arg(long, value_name = "GB/s", default_value_t = Rates::default().network)]
    network_rate: f64,

    /// What the host takes to launch a kernel, in microseconds
    #[arg(long, value_name = "US", default_value_t = Rates::default().launch)]
    launch_time: f64,

    /// An epoch on one device in milliseconds, measured with the data as they are: by a training, or of Stage 2 by
    /// `bench scale --devices 1` [default: bytes over the device's rate, and launches]
    #[arg(long, value_name = "MS")]
    epoch: Option<f64>,

    /// Plan for so many times the nodes, edges and labels
    #[arg(long, value_name = "K", default_value_t = 1.0)]
    scale: f64,

    /// How to print it
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

pub(super) fn run(arguments: Arguments) -> Result<()> {
    let data = format!("data.path={}", arguments.data.display());
    let overrides: Vec<String> = arguments.set.into_iter().chain([data]).collect();
    let config = match &arguments.config {
        Some(file) => RunConfig::load(file, &overrides)?,
        None => {
            let shipped = "configs/stage2.toml";
            RunConfig::parse(include_str!("../../configs/stage2.toml"), Path::new(shipped), &overrides)?
        }
    };
    let options = PlanOptions {
        devices: arguments.devices.into_iter().map(NonZeroUsize::get).collect(),
        hosts: arguments.hosts.get(),
        memory: arguments.memory,
        rates: Rates {
            device: arguments.device_rate,
            link: arguments.link_rate,
            network: arguments.network_rate,
            launch: arguments.launch_time,
        },
        epoch: arguments.epoch,
        scale: arguments.scale,
    };
    arguments.format.print(&crate::plan::plan(&config, &options)?)
}
