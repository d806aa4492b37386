//! A commented configuration for the data at hand, made of the shipped ones.

use std::fmt::Write as _;
use std::path::Path;

use crate::config::{EMBEDDINGS_FILE, RunConfig};
use crate::data::class_split::ClassSplit;
use crate::data::split::{Split, SplitFractions};
use crate::error::{Error, Result, grouped};
use crate::graph::{Classes, Dataset, Statistics};

/// Seed of the shipped files, by which labels are divided.
const SEED: u64 = 42;
/// Nodes and edges (both directions) from which on a graph may not fit a device at once.
const LARGE: [usize; 2] = [200_000, 10_000_000];
/// Positive edges of a relation and epoch at most, as the published detector has for its largest relation.
const MAX_SAMPLED: usize = 30_000;
/// Column of the comments.
const COMMENTS: usize = 37;

/// The tasks that a configuration can be made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InitTask {
    /// The auto-encoder, which needs no labels.
    Stage1,
    /// Attention on a few labels.
    Stage2,
    /// Trees on the surroundings of nodes.
    Stage3,
    /// A class for every node.
    Classify,
}

impl InitTask {
    fn name(self) -> &'static str {
        match self {
            InitTask::Stage1 => "stage1",
            InitTask::Stage2 => "stage2",
            InitTask::Stage3 => "stage3",
            InitTask::Classify => "classify",
        }
    }

    /// The file that is shipped for the task, on events or on other data.
    fn shipped(self, events: bool) -> &'static str {
        match (self, events) {
            (InitTask::Stage1, _) => include_str!("../../../configs/stage1.toml"),
            (InitTask::Stage2, false) => include_str!("../../../configs/stage2.toml"),
            (InitTask::Stage2, true) => include_str!("../../../configs/payments-stage2.toml"),
            (InitTask::Stage3, false) => include_str!("../../../configs/stage3.toml"),
            (InitTask::Stage3, true) => include_str!("../../../configs/payments.toml"),
            (InitTask::Classify, _) => include_str!("../../../configs/cora-gcn.toml"),
        }
    }
}

/// Writes a configuration that trains on `dataset`, read from `path`, as it is; comments say what the data hold and why
/// a value was chosen. Without a task: Stage 2 where labels can be divided, else classification where there are
/// classes, else Stage 1.
///
/// # Errors
/// [`Error::Data`] for data without features, or without the labels that the task needs; [`Error::Usage`] for a path
/// that TOML cannot hold.
pub(super) fn init(dataset: &Dataset, path: &Path, task: Option<InitTask>) -> Result<String> {
    let Some(place) = path.to_str() else {
        return Err(Error::Usage {
            argument: "--data".into(),
            expected: "a path in UTF-8".into(),
            found: path.display().to_string(),
            help: "rename the directory, or link to it under another name".into(),
        });
    };
    let (task, why) = choose(dataset, path, task)?;
    let embeddings = dataset.features.is_none() && path.join(EMBEDDINGS_FILE).is_file();
    if dataset.features.is_none() && !(embeddings && task == InitTask::Stage2) {
        return Err(Error::Data {
            what: format!("a configuration for {place}"),
            expected: "data with features".into(),
            found: "none".into(),
            help: "every task learns from features; add a feature file, see [features] of graph.toml".into(),
        });
    }
    let events = dataset.events.is_some();
    let mut file = Template::of(task, events);
    file.set("task", quoted(task.name()), "what to train");
    file.set("name", quoted(&run_name(path, task)), "part of the run directory's name");
    file.set("data.path", quoted(place), "the data; relative to the working directory");
    match task {
        InitTask::Stage1 => sample_streams(&mut file, dataset),
        InitTask::Stage2 if embeddings => {
            let why = "the data have no features, but embeddings of Stage 1";
            file.set("data.input", quoted("embeddings"), why);
        }
        // What is shipped for events expects a split by time.
        InitTask::Stage3 if events && dataset.split.as_ref().and_then(|split| split.times()).is_none() => {
            let why = "whether as many trees are grown anew on training and validation labels, and kept";
            file.set("model.refit", "false".into(), why);
        }
        InitTask::Classify => classify(&mut file, dataset, &*dataset.node_classes(path)?),
        _ => {}
    }
    // What is shipped for events trains on mini-batches.
    if task == InitTask::Classify || task == InitTask::Stage2 && !events {
        let [nodes, edges] = [dataset.graph.num_nodes(), dataset.graph.num_edges()];
        let (mode, why) = match nodes > LARGE[0] || edges > LARGE[1] {
            true => ("auto", "a large graph: the whole of it where it fits the device, else \"sampled\" mini-batches"),
            false => {
                ("full", "a small graph fits at once; \"sampled\" mini-batches, or \"auto\": what fits the device")
            }
        };
        file.set("loader.mode", quoted(mode), why);
    }
    let text = format!("{}\n{}", header(dataset, place, task, &why), file.text());
    // What was written runs, or this is no configuration to hand out.
    RunConfig::parse(&text, Path::new("the configuration that was made"), &[]).map(|_| text)
}

/// The task, and why it is this one.
fn choose(dataset: &Dataset, path: &Path, wanted: Option<InitTask>) -> Result<(InitTask, String)> {
    let binary = || {
        let labels = dataset.binary_labels(path)?;
        if let Some(stored) = &dataset.split {
            return Split::of_stored(stored, &labels.entries);
        }
        let type_of = |id: u32| dataset.graph.type_of(id as usize);
        Split::stratified(&labels.entries, type_of, SplitFractions::default(), SEED)
    };
    let classes = || {
        let classes = dataset.node_classes(path)?;
        match classes.masks().is_empty() {
            true => ClassSplit::stratified(&classes, SplitFractions::default(), SEED),
            false => ClassSplit::of_masks(&classes, 0),
        }
    };
    match wanted {
        Some(task @ (InitTask::Stage2 | InitTask::Stage3)) => binary().map(|_| (task, "as asked for".into())),
        Some(InitTask::Classify) => classes().map(|_| (InitTask::Classify, "as asked for".into())),
        Some(InitTask::Stage1) => Ok((InitTask::Stage1, "as asked for".into())),
        None => Ok(match (binary(), classes()) {
            (Ok(_), _) => (InitTask::Stage2, "some nodes are labelled as anomalous and as normal".into()),
            (Err(_), Ok(_)) if dataset.classes.is_some() => (InitTask::Classify, "nodes have classes".into()),
            (Err(fault), _) if dataset.labels.is_some() || dataset.classes.is_some() => {
                let fault = fault.to_string().lines().next().unwrap_or_default().to_owned();
                (InitTask::Stage1, format!("it needs no labels, and those of the data cannot be used: {fault}"))
            }
            _ => (InitTask::Stage1, "no node is labelled".into()),
        }),
    }
}

/// What the data hold, as comments.
fn header(dataset: &Dataset, place: &str, task: InitTask, why: &str) -> String {
    let statistics = Statistics::of(dataset);
    let mut lines = vec![
        format!("Made by `graphsieve config init` for {place}. Check it, then: graphsieve train FILE"),
        "Every key can also be set on the command line: --set seed=7. configs/README.md describes all keys.".into(),
        String::new(),
        format!("task = \"{}\": {why}.", task.name()),
        format!(
            "The data: {} nodes, {} edges (both directions), {}.",
            grouped(statistics.nodes),
            grouped(statistics.edges),
            statistics.feature_dim.map_or("no features".into(), |dim| format!("{dim} features per node"))
        ),
    ];
    for node_type in &statistics.node_types {
        let mut line = format!("  nodes {}: {}", node_type.name, grouped(node_type.nodes));
        if node_type.anomalous + node_type.normal > 0 {
            // Writing to a String cannot fail.
            let _ = write!(line, ", {} anomalous, {} normal", grouped(node_type.anomalous), grouped(node_type.normal));
        }
        lines.push(line);
    }
    for relation in &statistics.relations {
        let mut line =
            format!("  edges {}: {} <- {}, {}", relation.name, relation.dst, relation.src, grouped(relation.edges));
        if relation.symmetric {
            line.push_str(", symmetric");
        }
        lines.push(line);
    }
    if let Some(classes) = &dataset.classes {
        let labelled = classes.labelled().count();
        lines.push(format!("  classes: {}, of {} nodes", classes.count(), grouped(labelled)));
    }
    let plain = |line: String| line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect::<String>();
    lines.into_iter().map(|line| format!("# {}", plain(line)).trim_end().to_owned() + "\n").collect()
}

/// As many positive edges of each stream as it has, up to what is published.
fn sample_streams(file: &mut Template, dataset: &Dataset) {
    if dataset.graph.is_marketplace() {
        return;
    }
    let edges_of = |stream: &str| {
        let relations = dataset.graph.relations().iter().filter(|r| r.primary && r.stream == stream);
        relations.map(|relation| relation.forward.num_edges()).max().unwrap_or(0)
    };
    // A key with a dot would be read as two; `default_edges` is for the others.
    let streams = dataset.graph.streams().into_iter().filter(|stream| !stream.contains('.'));
    let counts = streams.map(|stream| format!("{} = {}", quoted(stream), edges_of(stream).clamp(1, MAX_SAMPLED)));
    let counts = counts.collect::<Vec<_>>().join(", ");
    let why = "positive edges per relation and epoch, by stream: all, up to 30,000";
    file.set("sampling.edges", format!("{{ {counts} }}"), why);
}

fn classify(file: &mut Template, dataset: &Dataset, classes: &Classes) {
    let negative = dataset
        .features
        .as_ref()
        .is_some_and(|features| (0..features.num_rows()).any(|node| features.row(node).any(|value| value < 0.0)));
    let why = match negative {
        true => "some features are negative: sums of a row mean nothing",
        false => "no feature is negative: those of a node add up to one",
    };
    file.set("data.row_normalise", (!negative).to_string(), why);
    if classes.count() > 16 {
        let why = format!("channels between layers; more than the {} classes", classes.count());
        file.set("model.hidden", classes.count().next_power_of_two().max(64).to_string(), &why);
    }
    match classes.masks().len() {
        0 => file.replace_section(
            "split",
            &[
                ("use", quoted("random"), "the data come without masks"),
                ("train", "0.6".into(), "share of the labelled nodes for the loss"),
                ("validation", "0.2".into(), "for choosing the epoch"),
                ("test", "0.2".into(), "looked at once, at the end"),
            ],
        ),
        count => file.set("split.index", "0".into(), &format!("column of the masks; the data have {count}")),
    }
}

/// The lines of a shipped file behind its first comments.
struct Template {
    lines: Vec<String>,
}

impl Template {
    fn of(task: InitTask, events: bool) -> Self {
        let lines = task.shipped(events).lines().skip_while(|line| line.starts_with('#') || line.is_empty());
        Self { lines: lines.map(str::to_owned).collect() }
    }

    fn text(&self) -> String {
        self.lines.iter().map(|line| format!("{line}\n")).collect()
    }

    /// Lines of a section without its title; the empty name is what stands before the first.
    fn section(&self, name: &str) -> std::ops::Range<usize> {
        let title = format!("[{name}]");
        let start =
            if name.is_empty() { Some(0) } else { self.lines.iter().position(|line| *line == title).map(|at| at + 1) };
        let start = start.unwrap_or(self.lines.len());
        let length = self.lines[start..].iter().position(|line| line.starts_with('['));
        start..length.map_or(self.lines.len(), |length| start + length)
    }

    /// Replaces value and comment of a key that the file has.
    fn set(&mut self, key: &str, value: String, comment: &str) {
        let (section, name) = key.rsplit_once('.').unwrap_or(("", key));
        let range = self.section(section);
        let is_key = |line: &String| line.split_once('=').is_some_and(|(found, _)| found.trim() == name);
        if let Some(line) = self.lines[range].iter_mut().find(|line| is_key(line)) {
            *line = entry(name, &value, comment);
        }
    }

    fn replace_section(&mut self, name: &str, entries: &[(&str, String, &str)]) {
        let range = self.section(name);
        let mut lines: Vec<String> = entries.iter().map(|(key, value, why)| entry(key, value, why)).collect();
        lines.push(String::new());
        self.lines.splice(range, lines);
    }
}

fn entry(key: &str, value: &str, comment: &str) -> String {
    let setting = format!("{key} = {value}");
    format!("{setting:<0$}# {comment}", COMMENTS.max(setting.chars().count() + 2))
}

/// Text on one line in quotes: what JSON escapes, TOML understands, and it wants one character more.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string().replace('\u{7f}', "\\u007f")
}

/// The last part of the path and the task, as far as the name of a run may hold it.
fn run_name(path: &Path, task: InitTask) -> String {
    let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    let plain: String = stem.chars().filter(|&c| c.is_ascii_alphanumeric() || "-_".contains(c)).take(60).collect();
    if plain.is_empty() { task.name().into() } else { format!("{plain}-{}", task.name()) }
}

#[cfg(test)]
mod tests;
