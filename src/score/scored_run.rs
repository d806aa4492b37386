//! A finished run with the scores of the data that it was trained on: what lists, explanations and reports start from.

use std::path::{Path, PathBuf};

use crate::config::{EMBEDDINGS_FILE, RunConfig, STAGE2_SCORES_FILE, STAGE3_SCORES_FILE, Stage2Config, Stage3Config};
use crate::data::split::{Split, SplitFractions};
use crate::error::{Error, Result};
use crate::graph::{Dataset, read_embeddings};
use crate::infer::tree_table::reconstruction_errors;
use crate::metrics::Calibration;
use crate::run::RunDir;
use crate::run::calibration::{calibrate, read_calibration};
use crate::run::evaluation::read_scores;
use crate::run::splits::split_of;

/// What a score is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Stage 1: how badly the embeddings explain a node's edges, `1 - exp(-mean of -ln sigmoid(<z_i, z_j>))`, which is
    /// one minus the geometric mean of their probabilities. No label was used. A node without edges has no score.
    Reconstruction,
    /// Stage 2: graph attention.
    Attention,
    /// Stage 3: trees.
    Trees,
}

impl Stage {
    /// `Stage 2: graph attention`.
    pub fn title(self) -> &'static str {
        match self {
            Stage::Reconstruction => "Stage 1: graph auto-encoder",
            Stage::Attention => "Stage 2: graph attention",
            Stage::Trees => "Stage 3: trees",
        }
    }
}

/// A finished run, its data, and a score for every node of them.
#[derive(Debug)]
pub struct ScoredRun {
    pub run: RunDir,
    pub config: RunConfig,
    pub stage: Stage,
    /// Where the data were read from.
    pub data: PathBuf,
    pub dataset: Dataset,
    /// By global id, in [0, 1]; NaN for a node that the stage has no score for.
    pub scores: Vec<f32>,
    /// How the labels were divided. Stage 1 sees none: there it is the default split, on which a calibration is fitted.
    /// None where there are no labels, or too few to divide.
    pub split: Option<Split>,
    /// From scores to probabilities, fitted to the validation labels.
    pub calibration: Option<Calibration>,
}

impl ScoredRun {
    /// Opens a finished run of Stage 1, 2 or 3 with the data that its configuration names.
    ///
    /// # Errors
    /// [`Error::Usage`] for a run of another task; [`Error::Format`] or [`Error::Io`] for a run that is not finished, and for
    /// data or outputs that cannot be read or no longer belong together.
    pub fn open(path: &Path) -> Result<Self> {
        let run = RunDir::open(path)?;
        let config = RunConfig::load_kept(&run.config(), &[])?;
        let (stage, file) = match &config {
            RunConfig::Stage1(_) => (Stage::Reconstruction, EMBEDDINGS_FILE),
            RunConfig::Stage2(_) => (Stage::Attention, STAGE2_SCORES_FILE),
            RunConfig::Stage3(_) => (Stage::Trees, STAGE3_SCORES_FILE),
            RunConfig::Classify(_) | RunConfig::Pipeline(_) => {
                return Err(Error::Usage {
                    argument: path.display().to_string(),
                    expected: "a run of Stage 1, 2 or 3: scores of anomalies".into(),
                    found: "a run of another task".into(),
                    help: "class probabilities of a node classifier are in its probabilities.npy; `graphsieve eval` reports on them"
                        .into(),
                });
            }
        };
        let data = config.data_path().to_path_buf();
        let file = run.output(file);
        if !file.is_file() {
            let help = format!("go on with it: graphsieve train --resume {}", path.display());
            return Err(Error::format(&file, "file", "the outputs of a finished run", "no such file", help));
        }
        let dataset = Dataset::open(&data)?;
        let nodes = dataset.graph.num_nodes();
        let scores = match stage {
            Stage::Reconstruction => {
                let errors = reconstruction_errors(&dataset.graph, &read_embeddings(&file, Some(nodes))?);
                errors.into_iter().map(|error| -(-error).exp_m1()).collect()
            }
            Stage::Attention | Stage::Trees => read_scores(&file, nodes)?,
        };
        let split = match (divided(&config, &dataset)?, &dataset.labels) {
            // Labels that cannot be divided are no fault of a stage that does not ask for them.
            (None, Some(labels)) => {
                let type_of = |node: u32| dataset.graph.type_of(node as usize);
                Split::stratified(&labels.entries, type_of, SplitFractions::default(), run.meta().seed).ok()
            }
            (split, _) => split,
        };
        let calibration = match read_calibration(&run)? {
            None => split.as_ref().and_then(|split| calibrate(&scores, split).ok()),
            stored => stored,
        };
        Ok(Self { run, config, stage, data, dataset, scores, split, calibration })
    }

    /// The probability that a node is anomalous, as far as its score and the calibration tell.
    pub fn probability(&self, node: u32) -> Option<f64> {
        self.calibration.as_ref()?.probability(*self.scores.get(node as usize)?)
    }
}

/// How a run of Stage 2 or 3 divided the labels of its data. None for other tasks, and where there are no labels.
///
/// # Errors
/// As for [`Split::stratified`].
pub fn divided(config: &RunConfig, dataset: &Dataset) -> Result<Option<Split>> {
    let (Some(labels), RunConfig::Stage2(Stage2Config { split, .. }) | RunConfig::Stage3(Stage3Config { split, .. })) =
        (&dataset.labels, config)
    else {
        return Ok(None);
    };
    split_of(&dataset.graph, &labels.entries, split).map(Some)
}
