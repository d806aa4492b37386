//! `[loader]`: training in sampled mini-batches.

use serde::{Deserialize, Serialize};

use super::ranges::*;
use super::reader::{Document, Unread};
use crate::error::Result;

/// `[loader]` of Stage 1, of Stage 2 and of node classification.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoaderConfig {
    /// Whether an epoch computes the graph at once or in sampled mini-batches. Default `full`.
    pub mode: LoaderMode,
    /// In-neighbours that are sampled per node and relation, one number per layer and that next to the seeds first; 0
    /// takes all. In Stage 2 DropEdge thins those out, which a fanout stands in for. Default `[15, 10]`; 10 for each
    /// layer of a classification.
    #[serde(deserialize_with = "integers")]
    pub fanouts: Vec<usize>,
    /// Which in-neighbours are sampled. Default `uniform`.
    pub draw: Draw,
    /// Seeds of a mini-batch, at least 1: in Stage 1 edges of the loss, with the pairs that were drawn for them, in
    /// Stage 2 labelled nodes and ends of the edges of the loss, in a classification training nodes. Default 4096;
    /// 1024 of a classification.
    #[serde(deserialize_with = "at_least::<1, _>")]
    pub batch_size: usize,
    /// Batches in a row that draw alike, so that fewer rows move; 0 lets every node draw on its own. Default 0.
    #[serde(deserialize_with = "at_least::<0, _>")]
    pub kappa: usize,
    /// Whether rows of the batch before stay on the device. Default true.
    pub window: bool,
    /// Share of all nodes whose features stay on the device for good, in [0, 1]. Default 0.2.
    #[serde(deserialize_with = "share_or_none")]
    pub hot: f64,
    /// How these nodes are chosen. Default `presample`.
    pub hot_by: HotBy,
    /// How fetched rows reach the device. Default `auto`.
    pub transfer: Transfer,
    /// Batches that are prepared ahead, 1 to 1,000. Default 2.
    #[serde(deserialize_with = "between::<1, 1_000, _>")]
    pub prefetch: usize,
    /// Device memory in GB (10^9 bytes) that `auto` counts on; 0 takes what the device has. Default 0.
    #[serde(deserialize_with = "not_negative")]
    pub memory: f64,
    /// Host memory in GB (10^9 bytes) that rows of all nodes may take while layers are computed one after another;
    /// those of a layer that need more lie in a temporary file. 0 keeps them all in memory. Default 0.
    #[serde(deserialize_with = "not_negative")]
    pub host_memory: f64,
}

impl Default for LoaderConfig {
    fn default() -> Self {
        Self {
            mode: LoaderMode::Full,
            fanouts: vec![15, 10],
            draw: Draw::Uniform,
            batch_size: 4096,
            kappa: 0,
            window: true,
            hot: 0.2,
            hot_by: HotBy::Presample,
            transfer: Transfer::Auto,
            prefetch: 2,
            memory: 0.0,
            host_memory: 0.0,
        }
    }
}

impl LoaderConfig {
    /// The defaults of a node classifier with so many layers.
    pub fn classify(layers: usize) -> Self {
        Self { fanouts: vec![10; layers], batch_size: 1024, ..Self::default() }
    }

    /// Whether mini-batches may be drawn by weights of edges.
    pub fn draws_by_weight(&self) -> bool {
        self.draw == Draw::Weighted && self.mode != LoaderMode::Full
    }

    /// Checks the section for a model of so many layers.
    pub(super) fn check(&self, document: &Document, layers: usize) -> Result<()> {
        if self.fanouts.len() == layers {
            return Ok(());
        }
        let help = "one for each layer, the one next to the seeds first; 0 takes all neighbours";
        let expected = if layers == 1 { "1 fanout".to_string() } else { format!("{layers} fanouts") };
        Err(document.error("loader.fanouts", expected, help))
    }

    /// The keys that nothing reads.
    pub(super) fn unread(&self) -> [Unread; 3] {
        [
            Unread {
                when: self.mode == LoaderMode::Full,
                keys: &[
                    ("loader.fanouts", "how many neighbours of a node are sampled in each layer"),
                    ("loader.draw", "which neighbours of a node are sampled"),
                    ("loader.batch_size", "how many seeds a mini-batch has"),
                    ("loader.kappa", "how many mini-batches in a row draw alike"),
                    ("loader.window", "whether rows of the mini-batch before stay on the device"),
                    ("loader.hot", "the share of the nodes whose features stay on the device"),
                    ("loader.hot_by", "how the nodes are chosen whose features stay on the device"),
                    ("loader.transfer", "where the features of sampled nodes lie"),
                    ("loader.prefetch", "how many mini-batches are prepared ahead"),
                    ("loader.memory", "the device memory that loader.mode = \"auto\" and mini-batches count on"),
                    ("loader.host_memory", "the host memory that rows of layers may take"),
                ],
                since: "loader.mode = \"full\" samples nothing",
                help: "set loader.mode = \"sampled\" or \"auto\", or remove the key",
            },
            Unread {
                when: self.transfer == Transfer::Resident,
                keys: &[
                    ("loader.hot", "the share of the nodes whose features stay on the device"),
                    ("loader.hot_by", "how the nodes are chosen whose features stay on the device"),
                ],
                since: "loader.transfer = \"resident\" keeps all features on the device",
                help: "set loader.transfer = \"zero_copy\", \"gathered\" or \"divided\", or remove the key",
            },
            Unread {
                when: self.hot == 0.0,
                keys: &[("loader.hot_by", "how the nodes are chosen whose features stay on the device")],
                since: "loader.hot = 0 chooses none",
                help: "set loader.hot above 0, or remove the key",
            },
        ]
    }
}

/// How much of a graph one step of training sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LoaderMode {
    /// All of it.
    Full,
    /// A sample around some of the labels and edges of the loss.
    Sampled,
    /// All of it where that fits the memory of the device, else a sample.
    Auto,
}

/// Which in-neighbours of a node are sampled where it has more than the fanout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Draw {
    /// Any, by chance.
    #[default]
    Uniform,
    /// Of the earlier events of an event, whose rows are spans in the order of time: the last ones. Of other relations
    /// any.
    Latest,
    /// By chance, in proportion to the weight of the edge; one that weighs nothing never. Of relations without weights
    /// any. With replacement where sums and means of a classifier, which weigh edges, are estimated.
    Weighted,
}

/// How the nodes are chosen whose features stay on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HotBy {
    /// Those that a presampled epoch reads most often.
    Presample,
    /// Those that most edges lead from.
    Degree,
}

/// How fetched rows reach the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Transfer {
    /// Resident where the device samples and they take no more than a quarter of its memory; else read by the device
    /// where it can; else gathered.
    Auto,
    /// All features lie in the memory of the device: none are fetched.
    Resident,
    /// Read by kernels of the device from page-locked memory, which holds the features once more.
    ZeroCopy,
    /// Gathered by the CPU.
    Gathered,
    /// Each of several ranks has a part of the features on its device and gets the rows of others from these: from
    /// those of its host alone where their parts take no more than a quarter of the memory of each.
    Divided,
}
