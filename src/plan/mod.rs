//! What an epoch of Stage 2 takes on several devices, on paper: memory, exchanges, time, and what it waits for most.
//!
//! Sizes come from a data directory ([`Sizes`]), without its features and without a device. Compute is the bytes of the
//! layers, forward and backward, over the device's copy rate, or a measured epoch of one device times the ratio of
//! these bytes; exchanges are the bytes that cross over the rate of the link; and the host waits before each of them.

mod assumptions;
mod field;
mod model;
mod report;
mod work;

use self::model::Model;
pub use self::report::{Bottleneck, Memory, PlanOptions, PlanReport, PlanRow, Rates, Way};
use crate::config::{RunConfig, Stage2Input};
use crate::error::{Error, Result};
use crate::graph::{Sizes, matrix_shape};

/// Plans the training that `config` describes.
///
/// # Errors
/// Another task than Stage 2, options that are not above 0, data as for [`Sizes::read`].
pub fn plan(config: &RunConfig, options: &PlanOptions) -> Result<PlanReport> {
    let RunConfig::Stage2(config) = config else {
        return Err(usage("CONFIG", "a configuration of task = \"stage2\"", config.name(), "take configs/stage2.toml"));
    };
    let Rates { device, link, network } = options.rates;
    let given = [("--device-rate", Some(device)), ("--link-rate", link), ("--network-rate", Some(network))];
    let given = given.into_iter().chain([("--memory", options.memory), ("--epoch", options.epoch)]);
    for (argument, value) in given.chain([("--scale", Some(options.scale))]) {
        if let Some(value) = value.filter(|value| !value.is_finite() || *value <= 0.0) {
            return Err(usage(argument, "a number above 0", &value.to_string(), "see graphsieve plan --help"));
        }
    }
    let sizes = Sizes::read(&config.data.path)?;
    let width = match (config.data.input, sizes.features) {
        (Stage2Input::Embeddings, _) => matrix_shape(&config.data.embeddings_file())?[1],
        (Stage2Input::Features, Some([width, _])) => width,
        (Stage2Input::Features, None) => {
            let help = "use data.input = \"embeddings\" with the file of a Stage 1";
            return Err(Error::format(&config.data.path, "features", "a feature file", "none", help));
        }
    };
    let model = Model { config, sizes: &sizes, width, scale: options.scale, memory: options.memory };
    Ok(model.report(options, assumptions::of(&model, options)))
}

fn usage(argument: &str, expected: &str, found: &str, help: &str) -> Error {
    let [argument, expected, found, help] = [argument, expected, found, help].map(String::from);
    Error::Usage { argument, expected, found, help }
}

#[cfg(test)]
mod tests;
