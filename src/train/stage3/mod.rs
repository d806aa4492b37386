//! Stage 3: trees on features of nodes, of their surroundings and of both stages before.

mod columns;
mod folds;
mod growing;
mod importance;

use std::borrow::Cow;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use graphsieve_kernels::{GraphBackend, TreeBackend};
use ndarray::ArrayView1;
use serde::Serialize;

pub use self::columns::ColumnRules;
use self::columns::check_names;
use self::folds::Folds;
use self::growing::refit;
pub use self::growing::{booster_params, fit, forest_params};
pub use self::importance::BlockShare;
use self::importance::{block_shares, write_importance};
use super::plots;
use super::session::{RunOptions, check_same_settings};
use super::stretch::{Judged, Stretch, Validated};
use crate::config::{RankingMetric, RunConfig, STAGE3_SCORES_FILE, Stage3Config, TreeModel};
use crate::data::split::Split;
use crate::error::{Error, Result};
use crate::features::FeatureTable;
use crate::graph::formats::atomic_write;
use crate::graph::{Dataset, Features, Spill, Subset, write_npy_f32};
use crate::infer::attention::{load_edges, with_edges};
use crate::infer::tree_table::{Stage2Output, Tables, append_labels, append_stage1, append_stage2, labels_in_time};
use crate::models::tree_ensemble::{EXTENSION, TreeCheckpoint, TreeInputs};
use crate::run::baseline::BesideBaseline;
use crate::run::bundle::drift::Profile;
use crate::run::bundle::{Bundle, Origin, open_output};
use crate::run::calibration::write_calibration;
use crate::run::evaluation::{EVALUATION_FILE, Evaluation, evaluate_parts};
use crate::run::known_labels::KnownLabels;
use crate::run::progress::{Progress, Unit};
use crate::run::ranked::LabelledEvents;
use crate::run::splits::{split_of, within};
use crate::run::stages::Pipeline;
use crate::run::{Meta, RunDir, interrupt};
use crate::trees::{Importance, Matrix};

/// Share of the training labels that a training node sees: all but those of its fold, of five.
const LABEL_SHARE: f64 = 0.8;

/// What a finished Stage 3 leaves.
#[derive(Clone, Debug, Serialize)]
pub struct Stage3Outcome {
    pub run: PathBuf,
    /// Trees that are kept.
    pub trees: usize,
    /// Columns that they could choose from.
    pub columns: usize,
    /// On the validation and the test part.
    pub evaluation: Evaluation,
    #[serde(flatten)]
    pub baseline: BesideBaseline,
    /// Share of every block in the gain of all splits.
    pub blocks: Vec<BlockShare>,
}

impl fmt::Display for Stage3Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} trees on {} columns, held-out test labels:\n{}",
            self.trees, self.columns, self.evaluation.test
        )?;
        if let Some(words) = self.evaluation.refit_in_words() {
            writeln!(f, "{words}")?;
        }
        write!(f, "{}", self.baseline)?;
        let shares = self.blocks.iter().map(|b| format!("{} {:.0} %", b.block, 100.0 * b.share));
        writeln!(f, "gain by block: {}", shares.collect::<Vec<_>>().join(", "))
    }
}

/// Makes the features, trains the trees, scores every node and evaluates the scores once on the test labels. A run that
/// is resumed keeps what its models of Stage 2 have learnt; features and trees are made again.
///
/// # Errors
/// Data or settings that cannot be used, outputs that cannot be written, or an interruption of a Stage 2.
pub fn run<B: GraphBackend + TreeBackend>(
    config: &Stage3Config,
    options: &RunOptions,
    device: &B::Device,
) -> Result<Stage3Outcome> {
    if let Some(from) = &options.from {
        return Err(Error::Usage {
            argument: format!("--from {}", from.display()),
            expected: "a task that learns weights: stage 1, stage 2, classify or a pipeline".into(),
            found: "stage 3".into(),
            help: "leave it out: trees are grown anew in less time than they could be changed".into(),
        });
    }
    let resumed = resumed(options, config)?;
    let mut dataset = Dataset::open(&config.data.path)?.in_window(config.data.window)?;
    if let Some(stage2) = &config.stage2 {
        load_edges(stage2, &mut dataset)?;
    }
    let labels = dataset.binary_labels(&config.data.path)?;
    let split = split_of(&dataset, &labels.entries, &config.split, config.seed)?;
    // What the models of Stage 2 read is what the trees read.
    let embeddings = config.stage2.as_ref().and_then(|stage2| stage2.data.embeddings.as_deref());
    let embeddings = config.data.embeddings.as_deref().or(embeddings);
    let refits = config.model.shared().refit;
    let origin = Origin::of("stage3", &config.data.path, &dataset, embeddings)?.with_refit(refits);
    let Fitted { run, mut checkpoint, table, of_training, progress, steps, .. } = fitted::<B>(
        config,
        &dataset,
        &split,
        Begun { resumed, origin: Some(&origin), tables: &Tables::default() },
        options,
        device,
    )?;
    // Of trees that have not seen the validation labels: what these choose is chosen on them.
    let unseen = checkpoint.ensemble.predict_table(&table)?;
    if refits {
        let (of_both, labels) = of_training.as_ref().map_or((&table, &split), |(table, labels)| (table, labels));
        let names = dataset.feature_names.as_deref().unwrap_or_default();
        checkpoint.ensemble = refit::<B>(config, of_both, names, labels, &checkpoint.ensemble, device)?;
        checkpoint.write(&file_of(&run))?;
    }
    let ensemble = &checkpoint.ensemble;
    let scores = if refits { ensemble.predict_table(&table)? } else { unseen.clone() };
    let evaluation = evaluate_parts([&unseen, &scores], &dataset, &split)?;
    let gain = ensemble.importance(Importance::Gain);
    let names = dataset.feature_names.as_deref().unwrap_or_default();
    write_importance(&run, &table, names, &gain, &ensemble.importance(Importance::Split))?;
    let outcome = Stage3Outcome {
        run: run.path().to_path_buf(),
        trees: ensemble.num_trees(),
        columns: table.columns().len(),
        evaluation: Evaluation { refit: refits.then(|| ensemble.num_trees()), ..evaluation },
        baseline: BesideBaseline::of(&dataset, &split, config.model.ranking_metric(), &unseen)?,
        blocks: block_shares(&table, &gain),
    };
    if config.output.plots {
        plots::held_out(
            |name| run.output(name),
            "Stage 3: test labels",
            &scores,
            &split.test,
            outcome.evaluation.threshold,
        )?;
    }
    write_calibration(&run, &unseen, &split)?;
    atomic_write(run.output(EVALUATION_FILE), |file| Ok(serde_json::to_writer_pretty(file, &outcome)?))?;
    // Last: whoever finds scores finds their threshold and calibration, too.
    write_npy_f32(run.output(STAGE3_SCORES_FILE), &ArrayView1::from(&scores))?;
    let learned = if refits { split.training_and_validation() } else { split.train.clone() };
    if config.features.neighbourhood.edge_values {
        // Whether they have moved is looked at.
        dataset.load_edge_values()?;
    }
    origin.finish(&run, &Profile::of_training(&dataset, Some(&scores), &learned), &[])?;
    progress.update(steps as u64, "");
    progress.finish(&format!("{} trees{}", outcome.trees, if refits { ", grown anew" } else { "" }));
    Ok(outcome)
}

/// Grows the share of the trees that `options` say and looks at nothing but the training and the validation labels of
/// `split`. `also` are other nodes that are scored; `tables` are of the same data. Whatever `model.refit` says, no
/// validation label is learned.
///
/// # Errors
/// As for [`run`].
pub fn validated<B: GraphBackend + TreeBackend>(
    config: &Stage3Config,
    dataset: &Dataset,
    split: &Split,
    (also, tables): (&[u32], &Tables),
    options: &RunOptions,
    device: &B::Device,
) -> Result<Validated> {
    let dataset = &*match &config.stage2 {
        Some(stage2) => with_edges(stage2, dataset)?,
        None => Cow::Borrowed(dataset),
    };
    let begun = Begun { resumed: resumed(options, config)?, origin: None, tables };
    let Fitted { run, checkpoint, late, table, of_training, progress, .. } =
        fitted::<B>(config, dataset, split, begun, options, device)?;
    let ensemble = &checkpoint.ensemble;
    let scores_of = |table: &FeatureTable, nodes: &[u32]| {
        let values: Vec<f32> = nodes.iter().flat_map(|&node| table.row(node as usize)).collect();
        ensemble.predict(&Matrix::f32(&values, table.columns().len())?)
    };
    let (of_validation, validation) = match &of_training {
        Some((of_training, within)) => (&**of_training, &within.validation),
        None => (&*table, &split.validation),
    };
    let scores = scores_of(of_validation, &validation.iter().map(|(node, _)| *node).collect::<Vec<_>>())?;
    progress.finish("");
    let share = options.stretch.map_or(1.0, |stretch| stretch.share);
    let (most, done) = (Stretch { share, deadline: None }.of(trees_of(&config.model)), ensemble.num_trees());
    // A booster that stopped before its last tree would stop there again.
    let stopped = match &config.model {
        TreeModel::Booster(booster) => !late && booster.patience.is_some_and(|patience| done + patience < most),
        TreeModel::Forest(_) => false,
    };
    let all = share == 1.0 && (!late || done == most);
    Ok(Validated {
        run: run.path().to_path_buf(),
        judged: Judged::Anomalies { scores, labels: validation.iter().map(|(_, label)| *label).collect() },
        also: if also.is_empty() { Vec::new() } else { scores_of(&table, also)? },
        done,
        complete: stopped || all,
    })
}

/// Where the trees of a run are.
fn file_of(run: &RunDir) -> PathBuf {
    run.best_checkpoint().with_extension(EXTENSION)
}

/// The most trees that a model has.
fn trees_of(model: &TreeModel) -> usize {
    match model {
        TreeModel::Booster(booster) => booster.trees,
        TreeModel::Forest(forest) => forest.trees,
    }
}

/// Trees, and the features that they were grown on.
struct Fitted {
    run: RunDir,
    checkpoint: TreeCheckpoint,
    /// Whether the time was over when the last tree was there.
    late: bool,
    /// Of all nodes.
    table: Arc<FeatureTable>,
    /// Of data that are split by time what was known at the end of validation, and the labels in its numbering.
    of_training: Option<(Arc<FeatureTable>, Split)>,
    progress: Progress,
    /// All steps of the progress.
    steps: usize,
}

/// The run to go on with, where the data of a run that becomes a model are from, and the tables that there are.
struct Begun<'a> {
    resumed: Option<RunDir>,
    origin: Option<&'a Origin>,
    tables: &'a Tables,
}

fn fitted<B: GraphBackend + TreeBackend>(
    config: &Stage3Config,
    dataset: &Dataset,
    split: &Split,
    Begun { resumed, origin, tables }: Begun,
    options: &RunOptions,
    device: &B::Device,
) -> Result<Fitted> {
    // Under a split by time the trees learn from what was known at the end of validation.
    let known = dataset.training_part();
    let of_known = known.as_ref().map(|known| within(split, known, dataset));
    let events = match known.as_ref().zip(of_known.as_ref()) {
        Some((known, labels)) => LabelledEvents::of(&known.dataset, &labels.validation),
        None => LabelledEvents::of(dataset, &split.validation),
    };
    if config.features.label_share && dataset.events.is_some() {
        return Err(labels_in_time());
    }
    for (metric, key) in stopping_metrics(config) {
        events.check(metric, &config.name, key)?;
    }
    let folds = match &config.stage2 {
        Some(stage2) => Folds::of(dataset, split, config.features.stage2_folds, stage2.seed)?,
        None => Folds::default(),
    };
    let whole = options.pipeline.as_ref().map(Pipeline::run);
    without_steps(options, whole.or(resumed.as_ref().map(RunDir::path)));
    // The run has no directory yet.
    let spill = Spill::of_gigabytes(config.features.host_memory, &config.output.dir);
    let neighbourhood = |part, spill: &Spill| {
        tables.of::<B>((dataset, part), &config.data.path, &config.features.neighbourhood, spill, device)
    };
    let mut table = neighbourhood(None, &spill)?;
    let left = spill.beside(table.bytes_in_memory());
    let mut of_training = known.as_ref().map(|known| neighbourhood(Some(known), &left)).transpose()?;
    let left = left.beside(of_training.as_ref().map_or(0, |table| table.bytes_in_memory()));
    let names = dataset.feature_names.as_deref().unwrap_or_default();
    check_names(config, &table, names)?;
    let embeddings = match config.data.embeddings_file() {
        Some(file) if config.features.embedding || config.features.reconstruction => {
            Some(open_output(&file, Some(dataset.graph.num_nodes()))?)
        }
        _ => None,
    };
    // What is refused above leaves no directory.
    let run = match resumed {
        Some(run) => run,
        None => {
            let meta = Meta::now(options.device.clone(), config.seed);
            let toml = RunConfig::Stage3(config.clone()).to_toml()?;
            let run = RunDir::create(&config.output.dir, &config.name, &toml, meta)?;
            if let Some(pipeline) = &options.pipeline {
                pipeline.record(&run)?;
            }
            run
        }
    };
    let whole = Some(whole.unwrap_or(run.path()));
    without_steps(options, whole);
    if let Some(origin) = origin {
        if options.resume.is_some() {
            origin.check_resumed(&run)?;
        }
        origin.begin(&run, None)?;
    }
    let steps = 2 + folds.models.len();
    let progress = Progress::with_mode("stage 3", steps as u64, Unit::Items, options.progress);
    dataset.notes.iter().for_each(|note| progress.println(note));

    let mut inputs = TreeInputs {
        neighbourhood: config.features.neighbourhood.clone(),
        embedding: config.features.embedding,
        reconstruction: config.features.reconstruction,
        stage2_score: config.features.stage2_score,
        stage2_embedding: config.features.stage2_embedding,
        label_share: config.features.label_share,
        folds: Vec::new(),
    };
    if let Some(z) = &embeddings {
        append_stage1(Arc::make_mut(&mut table), &dataset.graph, &inputs, z)?;
        if let (Some(table), Some(known)) = (&mut of_training, &known) {
            append_stage1(Arc::make_mut(table), &known.dataset.graph, &inputs, &rows_of(known, z, &left)?)?;
        }
    }
    if let Some(stage2) = &config.stage2 {
        let out_of_fold = folds::run::<B>(stage2, &folds, dataset, split, &run, options, (&left, device), &progress)?;
        without_steps(options, whole);
        inputs.folds = out_of_fold.runs;
        append_stage2(Arc::make_mut(&mut table), &inputs, &out_of_fold.output)?;
        if let (Some(table), Some(known)) = (&mut of_training, &known) {
            let Stage2Output { scores, embeddings } = &out_of_fold.output;
            let output = Stage2Output {
                scores: known.nodes.iter().map(|&node| scores[node as usize]).collect(),
                embeddings: rows_of(known, embeddings, &left)?,
            };
            append_stage2(Arc::make_mut(table), &inputs, &output)?;
        }
    }
    if config.features.label_share {
        let known = KnownLabels::of(dataset, &split.train, LABEL_SHARE, config.seed);
        append_labels(Arc::make_mut(&mut table), &dataset.graph, &inputs.neighbourhood, &known)?;
        known.write(run.path(), dataset)?;
    }
    progress.update(steps as u64 - 1, &format!("{} columns for {} nodes", table.columns().len(), table.num_rows()));

    let file = file_of(&run);
    let of_training = of_training.zip(of_known);
    let mut late = false;
    let checkpoint = match options.stretch {
        // Trees that are there already.
        Some(stretch) if stretch.share == 0.0 => TreeCheckpoint::read(&file)?,
        stretch => {
            let mut config = config.clone();
            if let Some(stretch) = stretch {
                match &mut config.model {
                    TreeModel::Booster(booster) => booster.trees = stretch.of(booster.trees),
                    TreeModel::Forest(forest) => forest.trees = stretch.of(forest.trees),
                }
            }
            let deadline = stretch.and_then(|stretch| stretch.deadline);
            let (table, labels) = of_training.as_ref().map_or((&table, split), |(table, labels)| (table, labels));
            let ensemble = fit::<B>(&config, table, names, labels, &events, deadline, device)?;
            late = stretch.is_some_and(|stretch| stretch.is_late());
            // An earlier call that had more time may have got further.
            let earlier = TreeCheckpoint::read(&file).ok().filter(|_| late);
            match earlier.filter(|earlier| earlier.ensemble.num_trees() > ensemble.num_trees()) {
                Some(earlier) => earlier,
                None => {
                    let checkpoint = TreeCheckpoint { inputs, ensemble };
                    checkpoint.write(&file)?;
                    checkpoint
                }
            }
        }
    };
    Ok(Fitted { run, checkpoint, late, table, of_training, progress, steps })
}

/// From here on a request to stop ends the process at once: features and trees are made as a whole. `run` is the one to
/// go on with. In a tournament, which goes on with what it has, the request is seen behind them.
fn without_steps(options: &RunOptions, run: Option<&Path>) {
    if options.stretch.is_none() {
        interrupt::steps_end(match run {
            Some(run) => format!(
                "interrupted; features and trees are made again. Go on with: graphsieve train --resume {}",
                run.display()
            ),
            None => "interrupted; nothing was saved yet".into(),
        });
    }
}

/// What a validation of the trees, and of the models of Stage 2, is asked for, with the keys that say so. The log loss
/// and a forest ask for nothing.
pub fn stopping_metrics(config: &Stage3Config) -> Vec<(RankingMetric, &'static str)> {
    let booster = match &config.model {
        TreeModel::Booster(booster) if booster.patience.is_some() => booster.metric.ranking(),
        TreeModel::Booster(_) | TreeModel::Forest(_) => None,
    };
    let stage2 = config.stage2.as_ref().map(|stage2| (stage2.early_stop.metric, "stage2.early_stop.metric"));
    booster.map(|metric| (metric, "model.metric")).into_iter().chain(stage2).collect()
}

/// The rows of the nodes that are kept.
fn rows_of(known: &Subset, z: &Features, spill: &Spill) -> Result<Features> {
    spill.keep(z.select(&known.nodes).into_f32(), known.nodes.len(), z.dim())
}

/// The run to go on with, if there is one; it must not be finished.
fn resumed(options: &RunOptions, config: &Stage3Config) -> Result<Option<RunDir>> {
    let Some(path) = &options.resume else { return Ok(None) };
    let run = RunDir::resume(path)?;
    // A pipeline goes on from its last stage, finished or not.
    if options.pipeline.is_none() && Bundle::is_finished(path)? {
        return Err(Error::Usage {
            argument: format!("--resume {}", path.display()),
            expected: "a run that was interrupted".into(),
            found: "one that is finished".into(),
            help: "start another one: graphsieve train CONFIG".into(),
        });
    }
    let toml = RunConfig::Stage3(config.clone()).to_toml()?;
    check_same_settings(&run, &toml, &["seed", "data", "split", "features", "stage2"])?;
    Ok(Some(run))
}
