//! `graphsieve eval`

mod part;

use std::fmt;
use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;

use self::part::{SplitPart, part};
use super::moment::moment;
use super::{Compute, Console, Format};
use crate::backend::with_backend;
use crate::config::{ClassifySplit, LabelSplit, RunConfig};
use crate::data::class_split::ClassSplit;
use crate::data::split::{Split, SplitFractions};
use crate::error::{Error, Result};
use crate::graph::{Dataset, Labels, date};
use crate::metrics::{ClassReport, Report};
use crate::run::RunDir;
use crate::run::bundle::check_output;
use crate::run::evaluation::{Evaluation, class_report, read_probabilities, read_scores, report, validation_threshold};
use crate::run::model::model_of;
use crate::run::splits::{class_split_of, split_of};
use crate::score::classes::holds_probabilities;
use crate::score::ranking::none_since;
use crate::score::{Computed, Judged, ScoreOptions, SideBySide, compute};

/// Arguments that are about --scores, and that.
const OF_SCORES: [&str; 7] = ["scores", "run", "seed", "fractions", "labels", "split", "include_train"];

/// Compare scores with labels: ranking, top K, and decisions at a threshold chosen on the validation labels; of class
/// probabilities accuracy, macro F1 and confusion counts. Or set models side by side
#[derive(Debug, Args)]
#[command(
    override_usage = "graphsieve eval [OPTIONS] <RUN>...\n       graphsieve eval [OPTIONS] --scores <SCORES.npy> --data <DIR>"
)]
pub(super) struct Arguments {
    /// Runs of stage 2 or 3, or of classify, that are set side by side: each on its own test labels, or, with --data,
    /// all on the same
    #[arg(value_name = "RUN", required_unless_present_any = OF_SCORES, conflicts_with_all = OF_SCORES)]
    models: Vec<PathBuf>,

    /// Scores of all nodes, as `graphsieve score` writes them
    #[arg(long, value_name = "SCORES.npy", requires = "data")]
    scores: Option<PathBuf>,

    /// Data directory of these scores, or that the models score
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,

    /// With models: labels of events of this date, time or number of seconds since 1970, and later [default: the test
    /// part of the data's split]
    #[arg(long, value_name = "TIME", value_parser = moment, allow_hyphen_values = true, requires = "data", conflicts_with_all = ["scores", "split"])]
    since: Option<i64>,

    /// With models: and before this one
    #[arg(long, value_name = "TIME", value_parser = moment, allow_hyphen_values = true, requires = "since", conflicts_with = "scores")]
    until: Option<i64>,

    /// Window of a split by time, counted from 1 [default: that of --run, else 1]
    #[arg(long, value_name = "N")]
    window: Option<usize>,

    /// Part of the labels that the figures are about [default: test, or all with --include-train]
    #[arg(long, value_enum, requires = "scores")]
    split: Option<SplitPart>,

    /// Let labels that the model was fitted to into the figures, which flatters them
    #[arg(long, requires = "scores")]
    include_train: bool,

    /// Take seed and shares of the split from this run, and the threshold where it was grown anew on training and
    /// validation labels (model.refit)
    #[arg(long, value_name = "RUN", requires = "scores", conflicts_with_all = ["seed", "fractions"])]
    run: Option<PathBuf>,

    /// Seed of the split [default: 42]
    #[arg(long, requires = "scores")]
    seed: Option<u64>,

    /// Shares of the labels for training, validation and test [default: 0.6,0.2,0.2]
    #[arg(long, value_name = "F,F,F", requires = "scores", value_delimiter = ',', num_args = 1)]
    fractions: Option<Vec<f64>>,

    /// Labels with the columns id (TYPE:ID, or an id that one type alone has) and label (0 or 1) [default: labels.npy
    /// of the data directory]
    #[arg(long, value_name = "L.csv", requires = "scores")]
    labels: Option<PathBuf>,

    /// How to print the figures
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,

    #[command(flatten)]
    compute: Compute,
}

/// Where the parts of the labels come from.
enum SplitSource {
    /// Shares and seed of a stratified split.
    Labels(SplitFractions, u64),
    /// What a training on labels that are anomalous or normal was told.
    Run(Box<LabelSplit>, u64),
    /// What a node classification was told, and its seed.
    Classes(ClassifySplit, u64),
}

pub(super) fn run(arguments: Arguments, console: Console) -> Result<()> {
    let (Some(scores), Some(data)) = (&arguments.scores, &arguments.data) else {
        return side_by_side(&arguments, console);
    };
    let run = arguments.run.as_deref().map(|run| RunDir::open(&model_of(run)?)).transpose()?;
    // A model that has learned the validation labels cannot be judged by them, and brings its threshold.
    let refit = run.as_ref().map(Evaluation::of_refit).transpose()?.flatten();
    let part = part(arguments.split, arguments.include_train, refit.is_some())?;
    let (source, window) = match &run {
        Some(run) => split_of_run(run)?,
        None => {
            let fractions = fractions(arguments.fractions.as_deref().unwrap_or(&[0.6, 0.2, 0.2]))?;
            (SplitSource::Labels(fractions, arguments.seed.unwrap_or(42)), 1)
        }
    };
    let dataset = Dataset::open(data)?.in_window(arguments.window.unwrap_or(window))?;
    if holds_probabilities(scores)? {
        return classified(&arguments, [scores, data], &dataset, source, part);
    }
    let (fractions, of_run, seed) = match source {
        SplitSource::Labels(fractions, seed) => (fractions, None, seed),
        SplitSource::Run(split, seed) => (SplitFractions::default(), Some((split, seed)), seed),
        SplitSource::Classes(..) => {
            return Err(Error::Usage {
                argument: format!("--scores {}", scores.display()),
                expected: "class probabilities, as `graphsieve score` writes them with a run of task \"classify\""
                    .into(),
                found: "another array".into(),
                help: "score the data with the run of --run".into(),
            });
        }
    };
    let graph = &dataset.graph;
    let labels = match &arguments.labels {
        Some(path) => Labels::from_csv(path, dataset.ids.as_ref(), graph.node_types())?,
        None => match dataset.labels {
            None if dataset.classes.is_none() => return Err(no_labels(data)),
            _ => dataset.binary_labels(data)?.clone(),
        },
    };
    check_output(scores)?;
    let scores = read_scores(scores, graph.num_nodes())?;
    let split = match &dataset.split {
        Some(stored) if arguments.seed.is_some() || arguments.fractions.is_some() => {
            return Err(Error::Usage {
                argument: if arguments.seed.is_some() { "--seed" } else { "--fractions" }.into(),
                expected: format!("no other split than that of the data, {stored}"),
                found: "one".into(),
                help: "leave it out; [split] of the description decides, when the tables are imported".into(),
            });
        }
        Some(stored) => Split::of_stored(stored, &labels.entries)?,
        None if let Some((split, seed)) = &of_run => split_of(&dataset, &labels.entries, split, *seed)?,
        None => Split::stratified(&labels.entries, |node| graph.type_of(node as usize), fractions, seed)?,
    };
    let (threshold, threshold_labels) = match &refit {
        Some(own) => (own.threshold, labels_of(&own.validation)),
        None => (validation_threshold(&scores, graph, &split)?, split.validation.len()),
    };
    let entries = match part {
        SplitPart::Test => &split.test,
        SplitPart::Validation => &split.validation,
        SplitPart::Train => &split.train,
        SplitPart::All => &labels.entries,
    };
    let report = report(&scores, &dataset, entries, threshold)?;
    let labels = entries.len();
    let refit = refit.as_ref().and_then(Evaluation::refit_in_words);
    arguments.format.print(&Outcome { part, labels, threshold_labels, seed, refit, report })
}

fn labels_of(Report { overall, .. }: &Report) -> usize {
    (overall.positives + overall.negatives) as usize
}

/// Sets models side by side.
fn side_by_side(arguments: &Arguments, console: Console) -> Result<()> {
    let judged = arguments.models.iter().map(|run| Judged::open(run)).collect::<Result<Vec<_>>>()?;
    let own = SideBySide::new(false, judged.iter().map(Judged::own_figures).collect())?;
    let Some(data) = &arguments.data else { return arguments.format.print(&own) };
    let (device, _) = arguments.compute.choose(console)?;
    let mut models = Vec::with_capacity(judged.len());
    for judged in judged {
        let options = ScoreOptions::new(judged.run.path(), data);
        let Computed { dataset, scores, .. } = with_backend!(device, |B, d| compute::<B>(&options, &d))?;
        let dataset = dataset.in_window(arguments.window.unwrap_or(1))?;
        let counts = counting(arguments, &dataset)?;
        models.push(judged.figures(&dataset, data, &scores, |node| counts[node as usize])?);
    }
    arguments.format.print(&SideBySide::new(true, models)?)
}

/// By node: whether its label is one of those that all models are judged by.
fn counting(arguments: &Arguments, dataset: &Dataset) -> Result<Vec<bool>> {
    const TEST: u8 = 3;
    let Some(since) = arguments.since else {
        let Some(stored) = &dataset.split else {
            return Err(Error::Usage {
                argument: "--since".into(),
                expected: "the time from which on labels count, because these data have no split of their own".into(),
                found: "none".into(),
                help: "give --since TIME, or put [split] into the description and import the tables again".into(),
            });
        };
        return Ok(stored.parts().iter().map(|&part| part == TEST).collect());
    };
    let time = |node| dataset.events.as_ref().and_then(|events| events.time_of(node));
    let counts = |time: i64| time >= since && arguments.until.is_none_or(|until| time < until);
    let nodes = 0..dataset.graph.num_nodes() as u32;
    let counted: Vec<bool> = nodes.clone().map(|node| time(node).is_some_and(counts)).collect();
    if !counted.contains(&true) {
        let is_before = |time: &i64| arguments.until.is_none_or(|until| *time < until);
        let last = nodes.filter_map(time).filter(is_before).max();
        let until = arguments.until.map_or(String::new(), |until| format!(" before {}", date(until)));
        let what = format!("events{until} of the data");
        return Err(none_since(what, since, last, "give an earlier --since or a later --until"));
    }
    Ok(counted)
}

/// Evaluates class probabilities.
fn classified(
    arguments: &Arguments,
    [scores, data]: [&PathBuf; 2],
    dataset: &Dataset,
    source: SplitSource,
    part: SplitPart,
) -> Result<()> {
    if let Some(path) = &arguments.labels {
        return Err(Error::Usage {
            argument: format!("--labels {}", path.display()),
            expected: "no such argument with class probabilities".into(),
            found: "one".into(),
            help: "classes come with the data".into(),
        });
    }
    let classes = dataset.node_classes(data)?;
    let split = match source {
        SplitSource::Classes(split, seed) => class_split_of(dataset, &classes, &split, seed)?,
        SplitSource::Labels(fractions, seed) if arguments.seed.is_some() || arguments.fractions.is_some() => {
            ClassSplit::stratified(&classes, fractions, seed)?
        }
        // Of a wrong guess the training nodes would count as held out.
        SplitSource::Labels(..) | SplitSource::Run(..) => {
            return Err(Error::Usage {
                argument: "--run".into(),
                expected: "the run that made these class probabilities: it knows which nodes were held out".into(),
                found: "none".into(),
                help: "give --run RUN, or --seed and --fractions for a stratified split".into(),
            });
        }
    };
    check_output(scores)?;
    let values = read_probabilities(scores, dataset.graph.num_nodes(), classes.count())?;
    let all: Vec<(u32, u32)>;
    let entries = match part {
        SplitPart::Test => &split.test,
        SplitPart::Validation => &split.validation,
        SplitPart::Train => &split.train,
        SplitPart::All => {
            all = classes.labelled().collect();
            &all
        }
    };
    let report = class_report(&values, classes.count(), entries)?;
    arguments.format.print(&Classified { part, report })
}

/// What is printed about class probabilities.
#[derive(Serialize)]
struct Classified {
    part: SplitPart,
    #[serde(flatten)]
    report: ClassReport,
}

impl fmt::Display for Classified {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} {}", self.report.nodes, self.part.in_words(false))?;
        self.report.fmt(f)
    }
}

/// What is printed.
#[derive(Serialize)]
struct Outcome {
    part: SplitPart,
    /// Labelled nodes of the part.
    labels: usize,
    /// Labelled nodes on which the threshold was chosen.
    threshold_labels: usize,
    /// Seed of the split.
    seed: u64,
    /// Of a model that was grown anew, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    refit: Option<String>,
    #[serde(flatten)]
    report: Report,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} {}", self.labels, self.part.in_words(self.refit.is_some()))?;
        writeln!(f, "split by seed {}, threshold from {} validation labels", self.seed, self.threshold_labels)?;
        if let Some(words) = &self.refit {
            writeln!(f, "{words}")?;
        }
        writeln!(f)?;
        self.report.fmt(f)
    }
}

fn fractions(given: &[f64]) -> Result<SplitFractions> {
    match *given {
        [train, validation, test]
            if given.iter().all(|&f| f > 0.0) && (given.iter().sum::<f64>() - 1.0).abs() < 1e-6 =>
        {
            Ok(SplitFractions { train, validation, test })
        }
        _ => Err(Error::Usage {
            argument: "--fractions".into(),
            expected: "three positive numbers that add up to 1".into(),
            found: format!("{given:?}"),
            help: "for example --fractions 0.6,0.2,0.2".into(),
        }),
    }
}

/// The split that a run of stage 2 or 3, of a pipeline or of a node classification used, and its window.
fn split_of_run(run: &RunDir) -> Result<(SplitSource, usize)> {
    let config = RunConfig::load_kept(&run.config(), &[])?;
    let window = config.window();
    let split = match config {
        RunConfig::Stage2(config) => config.split,
        RunConfig::Pipeline(config) => config.stage2.split,
        RunConfig::Stage3(config) => config.split,
        RunConfig::Auto(config) => config.split,
        RunConfig::Classify(config) => return Ok((SplitSource::Classes(config.split, config.seed), window)),
        RunConfig::Stage1(_) => {
            return Err(Error::Usage {
                argument: format!("--run {}", run.path().display()),
                expected: "a run that splits labels: stage 2, stage 3, a pipeline or classify".into(),
                found: "a stage-1 run, which uses no labels".into(),
                help: "give --seed and --fractions instead".into(),
            });
        }
    };
    let seed = split.seed;
    Ok((SplitSource::Run(Box::new(split), seed), window))
}

fn no_labels(data: &Path) -> Error {
    let help = "give --labels FILE.csv with the columns id and label";
    Error::format(data, "labels.npy", "labels of some nodes", "no such file", help)
}
