//! What a network takes on several devices, on paper: memory, exchanges, time, and what an epoch waits for most.
//!
//! A plan is that of the layers of a model (`network`), whose work on a graph is counted (`work`): sizes come from a
//! data directory ([`Sizes`](crate::graph::Sizes)), without its features and without a device.
//!
//! ```text
//! compute  = launches + bytes of the layers, forward and backward / copy rate of the device
//!          = launches + (epoch measured on one device - launches) * bytes / bytes on one device
//! exchange = exchanges * time of the smallest + bytes that cross / rate of the link
//! epoch    = compute + exchange - what of it is hidden behind computation
//! ```
//!
//! Launches are the kernels of an epoch times what the host takes for each: no number of devices makes them fewer.

mod assumptions;
mod field;
mod model;
mod network;
mod report;
mod work;

use self::model::Model;
use self::network::{measured, usage};
pub use self::report::{Batches, Bottleneck, Memory, PlanOptions, PlanReport, PlanRow, Rates, Scoring, Way};
use crate::config::RunConfig;
use crate::error::Result;

/// Plans the training that `config` describes.
///
/// # Errors
/// Another task than Stage 1, Stage 2 and classify, layers that read more than the edges of the data, options that are
/// not above 0, data as for [`Sizes::read`](crate::graph::Sizes::read).
pub fn plan(config: &RunConfig, options: &PlanOptions) -> Result<PlanReport> {
    let Rates { device, link, network, launch } = options.rates;
    let given = [("--device-rate", Some(device)), ("--link-rate", link), ("--network-rate", Some(network))];
    let others = [("--launch-time", Some(launch)), ("--epoch", options.epoch), ("--memory", options.memory)];
    let given = given.into_iter().chain(others);
    for (argument, value) in given.chain([("--scale", Some(options.scale))]) {
        if let Some(value) = value.filter(|value| !value.is_finite() || *value <= 0.0) {
            return Err(usage(argument, "a number above 0", &value.to_string(), "see graphsieve plan --help"));
        }
    }
    let (sizes, width) = measured(config)?;
    let model = |scale| Model::of(config, &sizes, width, scale, options.memory);
    // A measured epoch is that of the data as they are.
    let (planned, as_it_is) = (model(options.scale)?, model(1.0)?);
    let one = options.epoch.map(|ms| planned.on_one(ms, &as_it_is, options.rates));
    Ok(planned.report(options, one, assumptions::of(&planned, options)))
}

/// Bytes that the training which `config` describes takes in each of `ranks`, on paper, where there are `memory` bytes:
/// what layers make, every parameter with its gradient and both of Adam's moments, and the graph with its features,
/// which mini-batches leave in files `on_host`.
///
/// # Errors
/// As for [`plan`].
pub fn training_bytes(config: &RunConfig, ranks: usize, memory: Option<u64>, on_host: bool) -> Result<f64> {
    let (sizes, width) = measured(config)?;
    let model = Model::of(config, &sizes, width, 1.0, memory.map(|bytes| bytes as f64 / 1e9))?;
    let PlanRow { memory, batches, .. } = model.row(ranks, ranks, Rates::default(), None);
    let of_data = if on_host && batches.is_some() { 0.0 } else { memory.graph + memory.features };
    Ok(of_data + memory.activations + 16.0 * model.network.parameters)
}

#[cfg(test)]
mod tests;
