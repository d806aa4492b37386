//! `graphsieve score`

use std::io::{self, Write};
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::{Compute, Console, check_new_file};
use crate::backend::with_backend;
use crate::config::RunConfig;
use crate::data::split::Split;
use crate::error::{Error, Result};
use crate::graph::formats::atomic_write;
use crate::graph::{Dataset, write_npy_f32};
use crate::metrics::Calibration;
use crate::run::RunDir;
use crate::run::calibration::read_calibration;
use crate::score::ranking::{RankedNode, RankingFilter, rank, write_csv, write_json, write_parquet};
use crate::score::{self, Computed, ScoreOptions, ScoredRun, Scores, divided};

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

    /// csv, parquet or json list nodes by descending score, with original id and calibrated probability; npy has a
    /// float32 per node in the order of the data [default: by the extension of --out, else csv]
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

    #[command(flatten)]
    compute: Compute,

    /// Replace outputs that exist
    #[arg(long)]
    force: bool,
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
        let Arguments { format, out, top, node_type, unlabelled, .. } = arguments;
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
            OutputFormat::Npy if top.is_some() || node_type.is_some() || *unlabelled => {
                let argument = match (top, node_type) {
                    (Some(_), _) => "--top",
                    (_, Some(_)) => "--node-type",
                    _ => "--unlabelled",
                };
                refuse(argument, "csv, parquet or json", "an .npy array holds one score per node, of all nodes")
            }
            format => Ok(format),
        }
    }
}

pub(super) fn run(arguments: Arguments, console: Console) -> Result<()> {
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
    let scored = scored(&arguments, console)?;
    let nodes = scored.computed.dataset.graph.num_nodes();
    if let (Some(path), Some(matrix)) = (&arguments.embeddings, &scored.computed.embeddings) {
        write_npy_f32(path, matrix)?;
        console.note(format_args!("{nodes} embeddings: {}", path.display()));
    }
    if let (OutputFormat::Npy, Some(path)) = (format, &arguments.out) {
        scored.computed.write_npy(path)?;
        console.note(format_args!("{nodes} scores: {}", path.display()));
        return Ok(());
    }
    let Arguments { top, node_type, unlabelled, .. } = arguments;
    let filter = RankingFilter { top, node_type, unlabelled };
    let ranking = scored.ranking(&filter)?;
    match &scored.calibration {
        Some(calibration) => console.note(format_args!("probabilities: {calibration}")),
        None => console.note("no probabilities: there is no calibration without a run and its validation labels"),
    }
    match &arguments.out {
        Some(path) => {
            atomic_write(path, |file| write(format, &ranking, file))?;
            console.note(format_args!("{} of {nodes} nodes: {}", ranking.len(), path.display()));
            Ok(())
        }
        None => match write(format, &ranking, io::BufWriter::new(io::stdout())) {
            // A reader such as `head` has seen enough.
            Err(refused) if refused.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            other => other.map_err(|source| Error::io("stdout", "write", source)),
        },
    }
}

fn write(format: OutputFormat, ranking: &[RankedNode], mut out: impl Write + Send) -> io::Result<()> {
    match format {
        OutputFormat::Json => write_json(ranking, &mut out),
        OutputFormat::Parquet => write_parquet(ranking, &mut out),
        OutputFormat::Csv | OutputFormat::Npy => write_csv(ranking, &mut out),
    }?;
    out.flush()
}

/// Scores with what is needed to list them.
struct ScoredData {
    computed: Computed,
    calibration: Option<Calibration>,
    /// How the run divided the labels that it learned from, if these are its data.
    split: Option<Split>,
}

impl ScoredData {
    fn ranking(&self, filter: &RankingFilter) -> Result<Vec<RankedNode<'_>>> {
        let dataset: &Dataset = &self.computed.dataset;
        match &self.computed.scores {
            Scores::Anomaly(scores) => rank(dataset, scores, self.calibration.as_ref(), self.split.as_ref(), filter),
            Scores::Classes(_) => Err(Error::Usage {
                argument: "--format".into(),
                expected: "npy with a node classifier".into(),
                found: "a ranking by anomaly score".into(),
                help: "give --out PROBABILITIES.npy: a row of class probabilities per node".into(),
            }),
        }
    }
}

/// The scores that a run left of its own data, or those that its model gives now.
fn scored(arguments: &Arguments, console: Console) -> Result<ScoredData> {
    let is_run = arguments.checkpoint.join("config.toml").is_file();
    let run = is_run.then(|| RunDir::open(&arguments.checkpoint)).transpose()?;
    let config = run.as_ref().map(|run| RunConfig::load_kept(&run.config(), &[])).transpose()?;
    let as_trained = arguments.data.is_none() && arguments.input.is_none() && arguments.embeddings.is_none();
    if as_trained && config.as_ref().is_some_and(|config| !matches!(config, RunConfig::Classify(_))) {
        let ScoredRun { dataset, scores, calibration, config, .. } = ScoredRun::open(&arguments.checkpoint)?;
        let split = divided(&config, &dataset)?;
        let computed = Computed { dataset, scores: Scores::Anomaly(scores), embeddings: None };
        return Ok(ScoredData { computed, calibration, split });
    }
    let own = config.as_ref().map(|config| config.data_path().to_path_buf());
    let data = arguments.data.clone().or(own).ok_or_else(|| Error::Usage {
        argument: "--data".into(),
        expected: "the data to score: a checkpoint file does not know them".into(),
        found: "none".into(),
        help: "give --data DIR, or the directory of a run instead of a file".into(),
    })?;
    let (device, _) = arguments.compute.choose(console)?;
    let options = ScoreOptions {
        checkpoint: arguments.checkpoint.clone(),
        data,
        input: arguments.input.clone(),
        embeddings: arguments.embeddings.is_some(),
    };
    let computed = with_backend!(device, |B, d| score::compute::<B>(&options, &d))?;
    let calibration = run.as_ref().map(read_calibration).transpose()?.flatten();
    // Of other data the run knows no label.
    let config = config.filter(|config| config.data_path() == options.data);
    let split = config.and_then(|config| divided(&config, &computed.dataset).ok().flatten());
    Ok(ScoredData { computed, calibration, split })
}
