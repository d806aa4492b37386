//! `[loader]`: training in sampled mini-batches.

use std::ops::Bound::{Excluded, Included};

use serde::Serialize;

use super::reader::{Choice, Reader};
use crate::error::Result;

/// `[loader]` of Stage 2 and of node classification.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LoaderConfig {
    /// Whether an epoch computes the graph at once or in sampled mini-batches. Default `full`.
    pub mode: LoaderMode,
    /// In-neighbours that are sampled per node and relation, one number per layer and that next to the seeds first; 0 takes
    /// all. In Stage 2 DropEdge thins those out, which a fanout stands in for. Default `[15, 10]`; 10 for each layer of a
    /// classification.
    pub fanouts: Vec<usize>,
    /// Seeds of a mini-batch, at least 1: in Stage 2 labelled nodes and ends of the edges of the loss, in a classification
    /// training nodes. Default 4096; 1024 of a classification.
    pub batch_size: usize,
    /// Batches in a row that draw alike, so that fewer rows move; 0 lets every node draw on its own. Default 0.
    pub kappa: usize,
    /// Whether rows of the batch before stay on the device. Default true.
    pub window: bool,
    /// Share of all nodes whose features stay on the device for good, in [0, 1]. Default 0.2.
    pub hot: f64,
    /// How these nodes are chosen. Default `presample`.
    pub hot_by: HotBy,
    /// How fetched rows reach the device. Default `auto`.
    pub transfer: Transfer,
    /// Batches that are prepared ahead, at least 1. Default 2.
    pub prefetch: usize,
    /// Device memory in GB (10^9 bytes) that `auto` counts on; 0 takes what the device has. Default 0.
    pub memory: f64,
}

impl Default for LoaderConfig {
    fn default() -> Self {
        Self {
            mode: LoaderMode::Full,
            fanouts: vec![15, 10],
            batch_size: 4096,
            kappa: 0,
            window: true,
            hot: 0.2,
            hot_by: HotBy::Presample,
            transfer: Transfer::Auto,
            prefetch: 2,
            memory: 0.0,
        }
    }
}

impl LoaderConfig {
    /// The defaults of a node classifier with so many layers.
    pub fn classify(layers: usize) -> Self {
        Self { fanouts: vec![10; layers], batch_size: 1024, ..Self::default() }
    }
}

/// How much of a graph one step of training sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LoaderMode {
    /// All of it.
    Full,
    /// A sample around some of the labels and edges of the loss.
    Sampled,
    /// All of it where that fits the memory of the device, else a sample.
    Auto,
}

impl Choice for LoaderMode {
    const NAMES: &'static [(&'static str, Self)] =
        &[("full", LoaderMode::Full), ("sampled", LoaderMode::Sampled), ("auto", LoaderMode::Auto)];
}

/// How the nodes are chosen whose features stay on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum HotBy {
    /// Those that a rehearsed epoch reads most often.
    Presample,
    /// Those that most edges lead from.
    Degree,
}

impl Choice for HotBy {
    const NAMES: &'static [(&'static str, Self)] = &[("presample", HotBy::Presample), ("degree", HotBy::Degree)];
}

/// How fetched rows reach the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Transfer {
    /// Resident where the device samples and they take no more than a quarter of its memory; else read by the device where it
    /// can; else gathered.
    Auto,
    /// All features lie in the memory of the device: none are fetched.
    Resident,
    /// Read by kernels of the device from page-locked memory, which holds the features once more.
    ZeroCopy,
    /// Gathered by the processor.
    Gathered,
}

impl Choice for Transfer {
    const NAMES: &'static [(&'static str, Self)] = &[
        ("auto", Transfer::Auto),
        ("resident", Transfer::Resident),
        ("zero_copy", Transfer::ZeroCopy),
        ("gathered", Transfer::Gathered),
    ];
}

/// Reads the section; keys that it lacks take their value from `default`, which has a fanout for every layer.
pub(super) fn loader(reader: &Reader, default: LoaderConfig) -> Result<LoaderConfig> {
    let fanouts = reader.integers("loader.fanouts", &default.fanouts)?;
    let layers = default.fanouts.len();
    if fanouts.len() != layers {
        let help = "one for each layer, the one next to the seeds first; 0 takes all neighbours";
        let expected = if layers == 1 { "1 fanout".to_string() } else { format!("{layers} fanouts") };
        return Err(reader.error("loader.fanouts", expected, help));
    }
    Ok(LoaderConfig {
        mode: reader.choice("loader.mode", default.mode)?,
        fanouts,
        batch_size: reader.integer("loader.batch_size", default.batch_size, 1)?,
        kappa: reader.integer("loader.kappa", default.kappa, 0)?,
        window: reader.flag("loader.window", default.window)?,
        hot: reader.number("loader.hot", default.hot, (Included(0.0), Included(1.0)))?,
        hot_by: reader.choice("loader.hot_by", default.hot_by)?,
        transfer: reader.choice("loader.transfer", default.transfer)?,
        prefetch: reader.integer("loader.prefetch", default.prefetch, 1)?,
        memory: reader.number("loader.memory", default.memory, (Included(0.0), Excluded(f64::INFINITY)))?,
    })
}
