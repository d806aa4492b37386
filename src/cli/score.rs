//! `graphsieve score`

use std::borrow::Cow;
use std::io::{self, Write};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use ndarray::ArrayView1;

use super::moment::moment;
use super::{Compute, Console, Stdout, check_new_file, size};
use crate::backend::{devices_from, with_backend};
use crate::config::RunConfig;
use crate::data::split::Split;
use crate::error::{Error, Result};
use crate::graph::formats::{atomic_write, parent_of};
use crate::graph::{Dataset, Features, Spill, write_npy_f32};
use crate::metrics::{Calibration, class_scores};
use crate::run::RunDir;
use crate::run::baseline::OnValidation;
use crate::run::calibration::{read_calibration, read_class_calibrations};
use crate::run::model::model_of;
use crate::score::list::{ListColumns, write_csv, write_json, write_parquet};
use crate::score::ranking::{RankedNode, RankingFilter, Scored, rank};
use crate::score::{
    self, ClassView, Comparison, Computed, ScoreOptions, ScoredRun, Scores, check_class, check_place, compare, divided,
    divided_classes,
};

/// Score every node with a trained model and list the most suspicious first, by original id
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// Directory of a run (its best checkpoint), or a checkpoint file
    #[arg(value_name = "RUN|FILE")]
    checkpoint: PathBuf,

    /// Data directory to score [default: the data of the run, with the scores that it left]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,

    /// List only the N nodes with the highest scores
    #[arg(long, value_name = "N")]
    top: Option<usize>,

    /// List only nodes of this type
    #[arg(long, value_name = "TYPE")]
    node_type: Option<String>,

    /// List only nodes that have no label in the data: those that nobody has judged yet. Without it the column `known`
    /// says which labels training used: `training`, `validation` or `test` (not used)
    #[arg(long)]
    unlabelled: bool,

    /// List only events of this date, time or number of seconds since 1970, and later; nodes without a time are left
    /// out, but scores come from all of them
    #[arg(long, value_name = "TIME", value_parser = moment, allow_hyphen_values = true)]
    since: Option<i64>,

    /// Share of anomalies that is expected among these nodes, e.g. 0.002: probabilities are those of labels that were
    /// drawn so (their odds are corrected); the order stays. Of a node classifier the share of class --class
    #[arg(long, value_name = "SHARE", value_parser = share)]
    base_rate: Option<f64>,

    /// Of a node classifier: rank by the probability of this class [default: class 1 of two; of more the probability of
    /// the class that is predicted of each node]
    #[arg(long, value_name = "C")]
    class: Option<u32>,

    /// csv, parquet or json list nodes by descending score, with original id (of an edge also `src` and `dst`) and
    /// calibrated probability, those of a node classifier with the predicted class; npy has a float32 per node, or a
    /// row of class probabilities, in the order of the data [default: by the extension of --out, else csv]
    #[arg(long, value_enum)]
    format: Option<OutputFormat>,

    /// File to write [default: stdout]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,

    /// Input of the model: embeddings (.npy) or a Stage-1 run [default: those that a RUN was trained on, else
    /// Z_embeddings_stage1.npy of the data directory]
    #[arg(long, value_name = "Z.npy|RUN")]
    input: Option<PathBuf>,

    /// Also write the refined embeddings of all nodes
    #[arg(long, value_name = "Z.npy")]
    embeddings: Option<PathBuf>,

    /// Score layer by layer, with at most so much memory for the rows between layers, or for the columns of trees: what
    /// needs more lies in temporary files beside the output (for stdout where the system has those). In bytes, or with
    /// K, M, G or T for powers of 1024
    #[arg(long, value_name = "SIZE", value_parser = size)]
    memory: Option<u64>,

    /// Score every node by neighbours that are drawn per relation at each hop, such as 15,10, as `graphsieve serve`
    /// does with the same fanouts and seed: by these numbers a server can be checked
    #[arg(long, value_name = "N,N", value_delimiter = ',', conflicts_with_all = ["input", "embeddings", "memory"])]
    fanouts: Option<Vec<NonZeroUsize>>,

    /// Seed of the draws: the same neighbours for the same node
    #[arg(long, value_name = "SEED", default_value_t = 0, requires = "fanouts")]
    seed: u64,

    #[command(flatten)]
    compute: Compute,

    /// Score on so many devices at once, CUDA devices from --device on: layer by layer, each a part of the nodes. For
    /// networks of Stage 2 and of node classifications
    #[arg(long, value_name = "N", default_value = "1")]
    devices: NonZeroUsize,

    /// Replace outputs that exist
    #[arg(long)]
    force: bool,
}

/// A share that is neither none nor all.
fn share(text: &str) -> std::result::Result<f64, String> {
    let share = text.parse::<f64>().ok().filter(|share| *share > 0.0 && *share < 1.0);
    share.ok_or_else(|| "expected a share between 0 and 1, e.g. 0.002".into())
}

/// How scores are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum OutputFormat {
    /// A table with a header
    Csv,
    /// A table for data frames
    Parquet,
    /// An array of objects
    Json,
    /// One float32 per node, or a row of class probabilities, by global id
    Npy,
}

impl OutputFormat {
    fn name(self) -> &'static str {
        match self {
            OutputFormat::Csv => "csv",
            OutputFormat::Parquet => "parquet",
            OutputFormat::Json => "json",
            OutputFormat::Npy => "npy",
        }
    }

    /// What the arguments ask for.
    fn of(arguments: &Arguments) -> Result<Self> {
        let Arguments { format, out, top, node_type, unlabelled, class, since, base_rate, .. } = arguments;
        let by_name = |path: &PathBuf| {
            let extension = path.extension().unwrap_or_default().to_string_lossy().to_lowercase();
            Self::value_variants().iter().copied().find(|format| format.name() == extension)
        };
        let format = match (format, out) {
            (Some(format), _) => *format,
            (None, None) => OutputFormat::Csv,
            (None, Some(path)) => by_name(path).ok_or_else(|| Error::Usage {
                argument: format!("--out {}", path.display()),
                expected: "a name that ends in .csv, .parquet, .json or .npy".into(),
                found: "another name".into(),
                help: "give --format for any other name".into(),
            })?,
        };
        let refuse = |argument: &str, expected: &str, help: &str| {
            Err(Error::Usage {
                argument: argument.into(),
                expected: expected.into(),
                found: format!("--format {}", format.name()),
                help: help.into(),
            })
        };
        match format {
            OutputFormat::Npy | OutputFormat::Parquet if out.is_none() => {
                refuse("--out", "a file for a binary format", "give --out FILE, or --format csv or json for stdout")
            }
            OutputFormat::Npy => {
                let listed = [
                    ("--top", top.is_some()),
                    ("--node-type", node_type.is_some()),
                    ("--unlabelled", *unlabelled),
                    ("--class", class.is_some()),
                    ("--since", since.is_some()),
                    ("--base-rate", base_rate.is_some()),
                ];
                match listed.into_iter().find(|(_, given)| *given) {
                    Some(("--class", _)) => {
                        refuse("--class", "csv, parquet or json", "an .npy array holds every class")
                    }
                    Some((argument, _)) => {
                        let help = "an .npy array holds one score per node, of all nodes";
                        refuse(argument, "csv, parquet or json", help)
                    }
                    None => Ok(format),
                }
            }
            format => Ok(format),
        }
    }
}

pub(super) fn run(mut arguments: Arguments, console: Console) -> Result<()> {
    let format = OutputFormat::of(&arguments)?;
    let outputs = arguments.out.iter().chain(&arguments.embeddings);
    outputs.into_iter().try_for_each(|path| check_new_file(path, arguments.force))?;
    if arguments.embeddings.is_some() && arguments.embeddings == arguments.out {
        return Err(Error::Usage {
            argument: "--embeddings".into(),
            expected: "another file than --out".into(),
            found: arguments.out.unwrap_or_default().display().to_string(),
            help: "scores and embeddings are two arrays".into(),
        });
    }
    arguments.checkpoint = model_of(&arguments.checkpoint)?;
    let mut scored = scored(&arguments, console)?;
    if let Some(rate) = arguments.base_rate {
        scored.correct(rate)?;
    }
    let nodes = scored.dataset.graph.num_nodes();
    if let (Some(path), Some(matrix)) = (&arguments.embeddings, &scored.embeddings) {
        write_npy_f32(path, &matrix.as_f32())?;
        console.note(format_args!("{nodes} embeddings: {}", path.display()));
    }
    if let (OutputFormat::Npy, Some(path)) = (format, &arguments.out) {
        scored.write_npy(path)?;
        console.note(format_args!("{nodes} scores: {}", path.display()));
        return Ok(());
    }
    let Arguments { top, node_type, unlabelled, since, .. } = arguments;
    let filter = RankingFilter { top, node_type, unlabelled, since };
    let ranking = scored.ranking(&filter)?;
    console.note(format_args!("{}", scored.probabilities()));
    match &arguments.out {
        Some(path) => {
            atomic_write(path, |file| write(format, &ranking, scored.columns(), file))?;
            console.note(format_args!("{} of {nodes} nodes: {}", ranking.len(), path.display()));
            Ok(())
        }
        None => write(format, &ranking, scored.columns(), io::BufWriter::new(Stdout(io::stdout())))
            .map_err(|source| Error::io("stdout", "write", source)),
    }
}

fn write(
    format: OutputFormat,
    ranking: &[RankedNode],
    columns: ListColumns,
    mut out: impl Write + Send,
) -> io::Result<()> {
    match format {
        OutputFormat::Json => write_json(ranking, &mut out),
        OutputFormat::Parquet => write_parquet(ranking, columns, &mut out),
        OutputFormat::Csv | OutputFormat::Npy => write_csv(ranking, columns, &mut out),
    }?;
    out.flush()
}

/// Scores with what is needed to list them.
struct ScoredData {
    dataset: Dataset,
    scores: Vec<f32>,
    /// `[nodes, width]`, where they were asked for.
    embeddings: Option<Features>,
    calibration: Option<Calibration>,
    /// How the run divided the labels that it learned from, if these are its data.
    split: Option<Split>,
    /// Of a node classifier.
    classes: Option<ClassView>,
}

impl ScoredData {
    fn ranking(&self, filter: &RankingFilter) -> Result<Vec<RankedNode<'_>>> {
        let scored = Scored {
            dataset: &self.dataset,
            scores: &self.scores,
            calibration: self.calibration.as_ref(),
            split: self.split.as_ref(),
            classes: self.classes.as_ref(),
        };
        rank(&scored, filter)
    }

    fn columns(&self) -> ListColumns {
        ListColumns { ends: !self.dataset.ends.is_empty(), classes: self.classes.is_some() }
    }

    /// Makes the probabilities those for another share of anomalies, or of the class that is looked at.
    fn correct(&mut self, rate: f64) -> Result<()> {
        let refuse = |expected: &str, found: &str, help: &str| Error::Usage {
            argument: format!("--base-rate {rate}"),
            expected: expected.into(),
            found: found.into(),
            help: help.into(),
        };
        if self.classes.as_ref().is_some_and(|view| view.class().is_none()) {
            let help = "give --class C: a base rate is that of one class";
            return Err(refuse("scores of one class", "those of the predicted class of each node", help));
        }
        let Some(calibration) = &mut self.calibration else {
            return Err(refuse(
                "probabilities to correct",
                "scores without a calibration",
                "give the directory of a run whose labels have a validation part",
            ));
        };
        *calibration = calibration.at_base_rate(rate);
        if let Some(view) = &mut self.classes {
            view.correct(rate);
        }
        Ok(())
    }

    /// Where the probabilities beside the scores come from.
    fn probabilities(&self) -> String {
        let view = self.classes.as_ref();
        let class = view.and_then(ClassView::class);
        match (view.filter(|_| class.is_none()), &self.calibration) {
            (Some(view), _) if view.calibrations.iter().any(Option::is_some) => {
                let fitted = view.calibrations.iter().flatten().count();
                let of = view.num_classes();
                format!(
                    "probabilities: of {fitted} of {of} classes, each fitted against the rest to the validation labels"
                )
            }
            (None, Some(calibration)) => format!("probabilities: {}", calibration.describe(class)),
            _ => "no probabilities: there is no calibration without a run and its validation labels".into(),
        }
    }

    /// Writes what the model says about every node, without a list.
    fn write_npy(&self, path: &Path) -> Result<()> {
        match &self.classes {
            Some(view) => write_npy_f32(path, view.probabilities()),
            None => write_npy_f32(path, &ArrayView1::from(&self.scores)),
        }
    }
}

/// Where temporary files go.
fn beside_outputs(arguments: &Arguments) -> PathBuf {
    let output = arguments.embeddings.as_deref().or(arguments.out.as_deref());
    output.map_or_else(std::env::temp_dir, |path| parent_of(path).to_owned())
}

/// The scores that a run left of its own data, or those that its model gives now.
fn scored(arguments: &Arguments, console: Console) -> Result<ScoredData> {
    let is_run = arguments.checkpoint.join("config.toml").is_file();
    let run = is_run.then(|| RunDir::open(&arguments.checkpoint)).transpose()?;
    if let Some(warning) = run.as_ref().map(OnValidation::read).transpose()?.flatten().and_then(|it| it.warning()) {
        console.note(format_args!("warning: {warning}"));
    }
    if let Some(run) = &run
        && arguments.data.is_none()
        && arguments.input.is_none()
        && arguments.embeddings.is_none()
        && arguments.fanouts.is_none()
    {
        let ScoredRun { config, dataset, scores, calibration, classes, .. } =
            ScoredRun::open(run.path(), arguments.class)?;
        let split = divided(&config, &dataset)?;
        return Ok(ScoredData { dataset, scores, embeddings: None, calibration, split, classes });
    }
    let config = run.as_ref().map(|run| RunConfig::load_kept(&run.config(), &[])).transpose()?;
    let own = config.as_ref().map(|config| config.data_path().to_path_buf());
    let Some(data) = arguments.data.clone().or(own) else {
        if !arguments.checkpoint.is_file() {
            RunDir::open(&arguments.checkpoint)?;
        }
        return Err(Error::Usage {
            argument: "--data".into(),
            expected: "the data to score: a checkpoint file does not know them".into(),
            found: "none".into(),
            help: "give --data DIR, or the directory of a run instead of a file".into(),
        });
    };
    if let (Some(run), None) = (&run, &arguments.data) {
        check_place(run, &data)?;
    }
    if let Some(config) = &config {
        check_class(arguments.class, matches!(config, RunConfig::Classify(_)))?;
    }
    let (device, _) = arguments.compute.choose(console)?;
    let options = ScoreOptions {
        input: arguments.input.clone(),
        embeddings: arguments.embeddings.is_some(),
        spill: Spill::new(arguments.memory, beside_outputs(arguments)),
        ..ScoreOptions::new(arguments.checkpoint.clone(), data)
    };
    let fanouts: Option<Vec<usize>> =
        arguments.fanouts.as_ref().map(|fanouts| fanouts.iter().map(|fanout| fanout.get()).collect());
    let Computed { mut dataset, scores, embeddings } = with_backend!(device, |B, d| match &fanouts {
        Some(fanouts) => score::compute_drawn::<B>(&options, fanouts, arguments.seed, &d),
        None => score::compute_on::<B>(&options, &devices_from::<B>(device, &d, arguments.devices.get())?),
    })?;
    let comparison = match &run {
        None => Comparison::default(),
        Some(run) => {
            let scores = match &scores {
                Scores::Anomaly(scores) => Cow::from(scores),
                Scores::Classes(probabilities) => class_scores(probabilities).into(),
            };
            compare(run, &dataset, &scores, &options.data, arguments.since)?
        }
    };
    comparison.warnings.iter().for_each(|warning| log::warn!("warning: {warning}"));
    // Of other data the run knows no label.
    let config = config.filter(|_| comparison.same_data);
    match scores {
        Scores::Anomaly(scores) => {
            check_class(arguments.class, false)?;
            let calibration = run.as_ref().map(read_calibration).transpose()?.flatten();
            let split = config.and_then(|config| divided(&config, &dataset).ok().flatten());
            Ok(ScoredData { dataset, scores, embeddings, calibration, split, classes: None })
        }
        Scores::Classes(probabilities) => {
            let mut view = ClassView::new(probabilities, arguments.class)?;
            if let Some(run) = &run {
                view.calibrations = read_class_calibrations(run, view.num_classes())?.unwrap_or_default();
            }
            view.split = config.and_then(|config| divided_classes(&config, &dataset).ok().flatten());
            view.relabel(&mut dataset);
            let (scores, calibration) = (view.scores(), view.calibration().cloned());
            Ok(ScoredData { dataset, scores, embeddings, calibration, split: None, classes: Some(view) })
        }
    }
}
