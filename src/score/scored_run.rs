//! A finished run with the scores of the data that it was trained on: what lists, explanations and reports start from.

use std::path::{Path, PathBuf};

use ndarray::Array2;

use super::class_view::ClassView;
use super::fits::{check_own, check_place};
use super::ranking::Scored;
use crate::config::{AutoConfig, ClassifyConfig, RunConfig, Stage2Config, Stage2Input, Stage3Config};
use crate::data::class_split::ClassSplit;
use crate::data::split::{Split, SplitFractions};
use crate::error::{Error, Result};
use crate::graph::{Dataset, EdgeReading, open_embeddings};
use crate::infer::tree_table::reconstruction_scores;
use crate::metrics::Calibration;
use crate::run::RunDir;
use crate::run::bundle::{Reads, check_output};
use crate::run::calibration::{calibrate, calibrate_classes, read_calibration, read_class_calibrations};
use crate::run::ensemble::Ensemble;
use crate::run::evaluation::{read_probabilities, read_scores};
use crate::run::model::model_of;
use crate::run::splits::{class_split_of, split_of};

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
    /// Node classification: the probability of a class.
    Classes,
    /// The mean of several models of a tournament.
    Ensemble,
}

impl Stage {
    /// That of a run with these settings, and the file of its outputs that scores are read from; none of a run without
    /// a model of its own.
    pub(super) fn of(config: &RunConfig, is_ensemble: bool) -> Option<(Self, &'static str)> {
        let stage = match config {
            RunConfig::Stage1(_) => Stage::Reconstruction,
            RunConfig::Stage2(_) => Stage::Attention,
            RunConfig::Stage3(_) => Stage::Trees,
            RunConfig::Classify(_) => Stage::Classes,
            RunConfig::Auto(_) if is_ensemble => Stage::Ensemble,
            RunConfig::Pipeline(_) | RunConfig::Auto(_) => return None,
        };
        Some((stage, config.output_file()?))
    }

    /// `Stage 2: graph attention`.
    pub fn title(self) -> &'static str {
        match self {
            Stage::Reconstruction => "Stage 1: graph auto-encoder",
            Stage::Attention => "Stage 2: graph attention",
            Stage::Trees => "Stage 3: trees",
            Stage::Classes => "Node classification",
            Stage::Ensemble => "Ensemble",
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
    /// The labels are those that the scores are about: of a node classifier 1 for the class that is looked at and 0 for
    /// the rest, or none where no class is ([`Dataset::classes`] has them all).
    pub dataset: Dataset,
    /// By global id, in [0, 1]; NaN for a node that the stage has no score for. Of a node classifier the probability of
    /// [`class_of`](Self::class_of) each node.
    pub scores: Vec<f32>,
    /// How the labels were divided. Stage 1 sees none: there it is the default split, on which a calibration is fitted.
    /// None where there are no labels, or too few to divide, and of a node classifier that is not seen through a class.
    pub split: Option<Split>,
    /// From scores to probabilities, fitted to the validation labels. Of a node classifier that of the class that is
    /// looked at.
    pub calibration: Option<Calibration>,
    /// Of a node classifier all classes.
    pub classes: Option<ClassView>,
    /// The models that this one is the mean of, where it is one.
    pub ensemble: Option<Ensemble>,
    /// What the user should know of data that changed since the training.
    pub warnings: Vec<String>,
}

impl ScoredRun {
    /// Opens a finished run of Stage 1, 2 or 3, or of node classification, with the data that its configuration names;
    /// of a tournament and of a pipeline the run of its model.
    /// `class` is the class of a node classifier that is looked at, see [`ClassView::new`].
    ///
    /// # Errors
    /// [`Error::Usage`] for a run of another task or one that is not finished, for a class that the model does not
    /// have, and for a class of a run of another task; [`Error::Format`] or [`Error::Io`] for data or outputs that
    /// cannot be read or no longer belong together.
    pub fn open(path: &Path, class: Option<u32>) -> Result<Self> {
        Self::open_at(path, class, None)
    }

    /// Like [`open`](Self::open), with the place where the data of the run are now. Data that changed since the
    /// training are refused if their place is given, and make a [warning](Self::warnings) if it is not.
    ///
    /// # Errors
    /// As for [`open`](Self::open); data that are not those of the training.
    pub fn open_at(path: &Path, class: Option<u32>, place: Option<&Path>) -> Result<Self> {
        let path = &model_of(path)?;
        let run = RunDir::open(path)?;
        let ensemble = Ensemble::of_run(path)?;
        let mut config = RunConfig::load_kept(&run.config(), &[])?;
        if let Some(place) = place {
            config.set_data_path(place.to_path_buf());
        }
        let Some((stage, file)) = Stage::of(&config, ensemble.is_some()) else {
            return Err(Error::Usage {
                argument: path.display().to_string(),
                expected: "a run of Stage 1, 2 or 3, or of node classification".into(),
                found: "a run of another task".into(),
                help: format!("go on with it: graphsieve train --resume {}", path.display()),
            });
        };
        check_class(class, stage == Stage::Classes)?;
        let data = config.data_path().to_path_buf();
        let file = run.output(file);
        if !file.is_file() {
            return Err(Error::Usage {
                argument: file.display().to_string(),
                expected: "the outputs of a finished run".into(),
                found: "no such file".into(),
                help: format!("go on with it: graphsieve train --resume {}", path.display()),
            });
        }
        check_output(&file)?;
        check_place(&run, &data)?;
        let own = |dataset: &Dataset, reads| -> Result<Vec<String>> {
            let warnings = check_own(&run, dataset, &data, reads, place.is_some())?;
            warnings.iter().for_each(|warning| log::warn!("warning: {warning}"));
            Ok(warnings)
        };
        if let RunConfig::Classify(settings) = &config {
            let edges = EdgeReading { directed: settings.data.directed };
            let dataset = Dataset::open_with(&data, edges)?.in_window(config.window())?;
            let warnings = own(&dataset, Reads::Features)?;
            let view = own_classes(&run, settings, &dataset, &file, class)?;
            return Ok(Self { ensemble, warnings, ..Self::of_classes(run, config, data, dataset, view) });
        }
        let dataset = Dataset::open(&data)?.in_window(config.window())?;
        let warnings = own(
            &dataset,
            match &config {
                RunConfig::Stage1(_) => Reads::Graph,
                RunConfig::Stage2(config) if config.data.input == Stage2Input::Embeddings => Reads::Graph,
                _ => Reads::Features,
            },
        )?;
        let nodes = dataset.graph.num_nodes();
        let scores = match stage {
            Stage::Reconstruction => {
                reconstruction_scores(&dataset.graph, open_embeddings(&file, Some(nodes))?.as_f32())
            }
            Stage::Attention | Stage::Trees | Stage::Classes | Stage::Ensemble => read_scores(&file, nodes)?,
        };
        let split = match (divided(&config, &dataset)?, &dataset.labels) {
            // Labels that cannot be divided are no fault of a stage that does not ask for them.
            (None, Some(labels)) if dataset.split.is_none() => {
                let type_of = |node: u32| dataset.graph.type_of(node as usize);
                Split::stratified(&labels.entries, type_of, SplitFractions::default(), run.meta().seed).ok()
            }
            (None, Some(labels)) => {
                dataset.split.as_ref().and_then(|stored| Split::of_stored(stored, &labels.entries).ok())
            }
            (split, _) => split,
        };
        let calibration = match read_calibration(&run)? {
            None => split.as_ref().and_then(|split| calibrate(&scores, split).ok()),
            stored => stored,
        };
        let classes = None;
        Ok(Self { run, config, stage, data, dataset, scores, split, calibration, classes, ensemble, warnings })
    }

    /// A run of node classification with what its model says about the nodes of a data directory.
    pub fn of_classes(run: RunDir, config: RunConfig, data: PathBuf, mut dataset: Dataset, view: ClassView) -> Self {
        view.relabel(&mut dataset);
        Self {
            run,
            config,
            stage: Stage::Classes,
            data,
            dataset,
            scores: view.scores(),
            split: view.binary_split(),
            calibration: view.calibration().cloned(),
            classes: Some(view),
            ensemble: None,
            warnings: Vec::new(),
        }
    }

    /// What lists and reports start from.
    pub fn scored(&self) -> Scored<'_> {
        Scored {
            dataset: &self.dataset,
            scores: &self.scores,
            calibration: self.calibration.as_ref(),
            split: self.split.as_ref(),
            classes: self.classes.as_ref(),
        }
    }

    /// The probability that a node is anomalous, or of [`class_of`](Self::class_of) it, as far as its score and the
    /// calibration tell.
    pub fn probability(&self, node: u32) -> Option<f64> {
        ((node as usize) < self.scores.len()).then(|| self.scored().probability(node)).flatten()
    }

    /// Of a node classifier the class that a node's score is the probability of: the class that is looked at, else the
    /// predicted one. None for other stages, and for a node that is not there.
    pub fn class_of(&self, node: u32) -> Option<u32> {
        let view = self.classes.as_ref()?;
        ((node as usize) < self.scores.len()).then(|| view.class_of(node))
    }
}

/// What a run of node classification left of its own data.
fn own_classes(
    run: &RunDir,
    config: &ClassifyConfig,
    dataset: &Dataset,
    file: &Path,
    class: Option<u32>,
) -> Result<ClassView> {
    let classes = dataset.node_classes(&config.data.path)?;
    let (nodes, count) = (dataset.graph.num_nodes(), classes.count());
    let probabilities = Array2::from_shape_vec((nodes, count), read_probabilities(file, nodes, count)?)
        .unwrap_or_else(|e| unreachable!("one row per node: {e}"));
    let mut view = ClassView::new(probabilities, class)?;
    let split = class_split_of(dataset, &classes, &config.split, config.seed)?;
    view.calibrations = match read_class_calibrations(run, count)? {
        Some(stored) => stored,
        None => calibrate_classes(view.probabilities(), &split),
    };
    view.split = Some(split);
    Ok(view)
}

/// Refuses a class of anything but a node classifier.
///
/// # Errors
/// [`Error::Usage`].
pub fn check_class(class: Option<u32>, is_classifier: bool) -> Result<()> {
    match class {
        Some(class) if !is_classifier => Err(Error::Usage {
            argument: format!("--class {class}"),
            expected: "a run of node classification".into(),
            found: "a run of another task".into(),
            help: "leave it out: these scores say how anomalous a node is".into(),
        }),
        _ => Ok(()),
    }
}

/// How a run of Stage 2 or 3, or of an ensemble, divided the labels of its data. None for other tasks, and where there
/// are no labels.
///
/// # Errors
/// As for [`Split::stratified`].
pub fn divided(config: &RunConfig, dataset: &Dataset) -> Result<Option<Split>> {
    let (
        Some(labels),
        RunConfig::Stage2(Stage2Config { split, seed, .. })
        | RunConfig::Stage3(Stage3Config { split, seed, .. })
        | RunConfig::Auto(AutoConfig { split, seed, .. }),
    ) = (&dataset.labels, config)
    else {
        return Ok(None);
    };
    split_of(dataset, &labels.entries, split, *seed).map(Some)
}

/// How a run of node classification divided the labelled nodes of its data. None for other tasks.
///
/// # Errors
/// Data without classes, and as for [`class_split_of`].
pub fn divided_classes(config: &RunConfig, dataset: &Dataset) -> Result<Option<ClassSplit>> {
    let RunConfig::Classify(config) = config else { return Ok(None) };
    let classes = dataset.node_classes(&config.data.path)?;
    class_split_of(dataset, &classes, &config.split, config.seed).map(Some)
}
