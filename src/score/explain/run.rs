//! Explanations of the scores of a run.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use graphsieve_kernels::GraphBackend;
use ndarray::Array2;

use super::explanation::Explanation;
use super::members::{Coverage, has_explained_layers, members_of};
use super::names::Names;
use super::network::{Edges, View};
use super::neural::{Columns, Model, Question};
use super::parameters;
use super::similar::Known;
use super::stage1;
use super::stage3::{self, Forest};
use crate::config::{
    AutoConfig, ClassifyConfig, RunConfig, STAGE2_EMBEDDINGS_FILE, Stage1Config, Stage2Config, Stage2Data, Stage2Input,
    Stage3Config,
};
use crate::error::{Error, Result};
use crate::graph::{Features, Filling, read_embeddings};
use crate::infer::attention::{for_graph, graph_for, known_labels};
use crate::infer::embed::{self, Source, TrainedOn};
use crate::infer::tree_table::{TableOptions, table};
use crate::models::attention::TripleStreamGat;
use crate::models::node_classifier::NodeClassifier;
use crate::models::parameters::Parameters;
use crate::models::tree_ensemble::TreeCheckpoint;
use crate::models::weights::{ModelSpec, Weights};
use crate::run::RunDir;
use crate::run::calibration::{read_calibration, read_class_calibrations};
use crate::run::ensemble::Ensemble;
use crate::run::model::model_of;
use crate::score::classes::features_for;
use crate::score::{ClassView, Computed, ScoreOptions, ScoredRun, Scores, Stage, check_class, compute};

/// Opens a run of Stage 1, 2 or 3 or of node classification: with the data and the scores that it has, or with the
/// scores that its model gives to other `data` or from other embeddings of Stage 1 (`input`: a `.npy` file or a run).
/// `class` is the class of a node classifier that is looked at, see [`ClassView::new`]. Of other data there is no split
/// of the labels, so there are no known anomalies to compare with.
///
/// # Errors
/// As for [`ScoredRun::open`]; data and input that do not fit the model; input with a run of Stage 1 and with a node
/// classifier.
pub fn open_run<B: GraphBackend>(
    path: &Path,
    class: Option<u32>,
    data: Option<&Path>,
    input: Option<&Path>,
    device: &B::Device,
) -> Result<ScoredRun> {
    if data.is_none() && input.is_none() {
        return ScoredRun::open(path, class);
    }
    let path = &model_of(path)?;
    let run = RunDir::open(path)?;
    let ensemble = Ensemble::of_run(path)?;
    let mut config = RunConfig::load_kept(&run.config(), &[])?;
    if !has_explained_layers(&config) {
        return Err(refused_layers(path, &config));
    }
    let stage = match &mut config {
        RunConfig::Stage2(Stage2Config { data: trained, .. }) => {
            if let Some(input) = input {
                (trained.input, trained.embeddings) = (Stage2Input::Embeddings, Some(input.to_path_buf()));
            }
            trained.path = data.unwrap_or(&trained.path).to_path_buf();
            Stage::Attention
        }
        RunConfig::Stage3(Stage3Config { data: trained, .. }) => {
            trained.embeddings = input.map(Path::to_path_buf).or(trained.embeddings.take());
            trained.path = data.unwrap_or(&trained.path).to_path_buf();
            Stage::Trees
        }
        RunConfig::Classify(ClassifyConfig { data: trained, .. }) => {
            trained.path = data.unwrap_or(&trained.path).to_path_buf();
            Stage::Classes
        }
        RunConfig::Stage1(Stage1Config { data: trained, .. }) => {
            trained.path = data.unwrap_or(&trained.path).to_path_buf();
            Stage::Reconstruction
        }
        RunConfig::Auto(AutoConfig { data: trained, .. }) if ensemble.is_some() => {
            trained.path = data.unwrap_or(&trained.path).to_path_buf();
            Stage::Ensemble
        }
        // Says what is wrong with it.
        RunConfig::Pipeline(_) | RunConfig::Auto(_) => return ScoredRun::open(path, class),
    };
    check_class(class, stage == Stage::Classes)?;
    let data = config.data_path().to_path_buf();
    let options = ScoreOptions {
        checkpoint: path.to_path_buf(),
        data: data.clone(),
        input: input.map(Path::to_path_buf),
        embeddings: false,
    };
    let Computed { dataset, scores, .. } = compute::<B>(&options, device)?;
    match scores {
        Scores::Anomaly(scores) => {
            let calibration = read_calibration(&run)?;
            let (split, classes, warnings) = (None, None, Vec::new());
            Ok(ScoredRun { run, config, stage, data, dataset, scores, split, calibration, classes, ensemble, warnings })
        }
        Scores::Classes(probabilities) => {
            let mut view = ClassView::new(probabilities, class)?;
            view.calibrations = read_class_calibrations(&run, view.num_classes())?.unwrap_or_default();
            Ok(ScoredRun { ensemble, ..ScoredRun::of_classes(run, config, data, dataset, view) })
        }
    }
}

/// Explains the scores of some nodes, of a node classifier the class that is looked at; model and input are read once.
///
/// # Errors
/// A checkpoint or an input that cannot be read or does not fit the data; a node without a score.
pub fn explain_run<B: GraphBackend>(run: &ScoredRun, nodes: &[u32], device: &B::Device) -> Result<Vec<Explanation>> {
    if let Some(ensemble) = &run.ensemble {
        let best = members_of(run.run.path(), ensemble)?.explained.into_iter().next();
        let (_, member) = best.ok_or_else(|| refused_layers(run.run.path(), &run.config))?;
        return explain_run::<B>(&member_at::<B>(run, &member, device)?, nodes, device);
    }
    let names = Names::new(&run.dataset, &run.scores);
    match (&run.config, &run.classes) {
        (RunConfig::Stage1(_), _) => reconstruction::<B>(run, &names, nodes, device),
        (RunConfig::Stage2(config), _) => attention::<B>(run, config, &names, nodes, device),
        (RunConfig::Stage3(config), _) => trees::<B>(run, config, &names, nodes, device),
        (RunConfig::Classify(_), Some(_)) if !has_explained_layers(&run.config) => {
            Err(refused_layers(run.run.path(), &run.config))
        }
        (RunConfig::Classify(_), Some(view)) => classes::<B>(run, view, nodes, device),
        (RunConfig::Classify(_) | RunConfig::Pipeline(_) | RunConfig::Auto(_), _) => Err(Error::Usage {
            argument: run.run.path().display().to_string(),
            expected: "a run of Stage 1, 2 or 3 or of node classification".into(),
            found: "a run of another task".into(),
            help: "a pipeline has a run of its own for each stage beside it; give one of those".into(),
        }),
    }
}

/// What each member of an ensemble says of some nodes, by its name; of any other run what it says itself, without a
/// name. Members that cannot be explained are left out, see [`Coverage`].
///
/// # Errors
/// As for [`explain_run`].
pub fn explain_members<B: GraphBackend>(
    run: &ScoredRun,
    nodes: &[u32],
    device: &B::Device,
) -> Result<Vec<(String, Vec<Explanation>)>> {
    let Some(ensemble) = &run.ensemble else {
        return Ok(vec![(String::new(), explain_run::<B>(run, nodes, device)?)]);
    };
    let explained = |(name, member): (String, PathBuf)| {
        Ok((name, explain_run::<B>(&member_at::<B>(run, &member, device)?, nodes, device)?))
    };
    let said: Vec<_> =
        members_of(run.run.path(), ensemble)?.explained.into_iter().map(explained).collect::<Result<_>>()?;
    if said.is_empty() { Err(refused_layers(run.run.path(), &run.config)) } else { Ok(said) }
}

/// Whether [`explain_run`] can explain the scores of a run: its own layers, or those of a member of an ensemble.
///
/// # Errors
/// Runs of members that cannot be read.
pub fn is_explained(run: &ScoredRun) -> Result<bool> {
    Ok(match Coverage::of(run)? {
        Some(coverage) => coverage.of_first().is_some(),
        None => has_explained_layers(&run.config),
    })
}

/// A member of the ensemble `run`, on its data.
fn member_at<B: GraphBackend>(run: &ScoredRun, member: &Path, device: &B::Device) -> Result<ScoredRun> {
    let class = run.classes.as_ref().and_then(ClassView::class);
    // Scores that were computed now are of other data.
    if run.split.is_none() && run.classes.as_ref().is_none_or(|view| view.split.is_none()) {
        return open_run::<B>(member, class, Some(&run.data), None, device);
    }
    let own = RunConfig::load_kept(&member.join("config.toml"), &[])?;
    ScoredRun::open_at(member, class, (own.data_path() != run.data).then_some(&run.data))
}

/// The error of layers without [`has_explained_layers`].
fn refused_layers(run: &Path, config: &RunConfig) -> Error {
    Error::Usage {
        argument: run.display().to_string(),
        expected: "a model whose layers add up what neighbours say".into(),
        found: match config {
            RunConfig::Classify(config) => format!("model.layer = \"{}\"", config.model.layer.name()),
            _ => "an ensemble without any".into(),
        },
        help: "explain a run of another model.layer, such as \"sage\"".into(),
    }
}

/// The embeddings of all nodes and the anomalies of the training labels, where there are any.
fn known<'a>(run: &ScoredRun, embeddings: &'a Array2<f32>) -> Option<Known<'a>> {
    let train = &run.split.as_ref()?.train;
    let anomalies = train.iter().filter(|(_, label)| *label == 1).map(|&(node, _)| node).collect();
    Some(Known { embeddings, anomalies })
}

fn reconstruction<B: GraphBackend>(
    run: &ScoredRun,
    names: &Names,
    nodes: &[u32],
    device: &B::Device,
) -> Result<Vec<Explanation>> {
    let z = Source::of_stage1(run.run.path(), &run.data).read::<B>(&run.dataset, &run.data, device)?;
    let known = known(run, &z);
    let explain = |&node: &u32| stage1::explain(names, z.view(), run.probability(node), known.as_ref(), node);
    nodes.iter().map(explain).collect()
}

fn attention<B: GraphBackend>(
    run: &ScoredRun,
    config: &Stage2Config,
    names: &Names,
    nodes: &[u32],
    device: &B::Device,
) -> Result<Vec<Explanation>> {
    let (weights, file) = Weights::read(run.run.path())?;
    let ModelSpec::Attention(spec) = &weights.spec else {
        let help = "the run directory was changed; train it again";
        return Err(Error::format(file, "model", "a Stage-2 attention network", weights.spec.name(), help));
    };
    let graph = &graph_for(spec, &run.dataset)?;
    let spec = for_graph(spec, graph, &file)?;
    // Through the model, which checks names, shapes and values.
    let model = TripleStreamGat::<B>::new(&spec, &mut Parameters::from_tensors(&weights.tensors, &file, device))?;
    let (network, head) = parameters::of_attention(&spec, &model.export(&spec).0, graph);
    let source = source_of(run, &config.data)?;
    let filling = Filling::of_run(run.run.path())?;
    let input = (config.data.input, &source);
    let features = embed::input_of::<B>(input, filling.as_ref(), &run.dataset, &run.data, spec.given(), device)?;
    let column_names = filled_names(run, filling.as_ref());
    let labels = known_labels(&spec, run.run.path(), &run.dataset, &run.data)?;
    let refined = match &run.split {
        Some(_) => Some(read_embeddings(run.run.output(STAGE2_EMBEDDINGS_FILE), Some(graph.num_nodes()))?),
        None => None,
    };
    let columns = match config.data.input {
        Stage2Input::Embeddings => Columns::Embeddings,
        Stage2Input::Features => Columns::Features(column_names.as_deref()),
    };
    let edges = Edges::new(graph, &network);
    let question = Question::Score { head: &head };
    let known = refined.as_ref().and_then(|z| known(run, z));
    let edge_columns = run.dataset.edge_value_names();
    let explain = |features: &Features, node: u32| {
        let view = View { network: &network, edges: &edges, features };
        let (edge_columns, known) = (&edge_columns[..], known.as_ref());
        let model = Model { names, view, columns, edge_columns, labels: spec.labels, known };
        model.explain(run.probability(node), node, &question)
    };
    let Some(labels) = labels else { return nodes.iter().map(|&node| explain(&features, node)).collect() };
    // Each node with the labels that its score has seen.
    let passes = labels.passes();
    let mut by_pass: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    nodes.iter().enumerate().for_each(|(at, &node)| by_pass.entry(labels.pass_of(node)).or_default().push(at));
    let mut explained = BTreeMap::new();
    for (pass, places) in by_pass {
        let features = labels.beside(&features, &passes[pass]);
        for at in places {
            explained.insert(at, explain(&features, nodes[at])?);
        }
    }
    Ok(explained.into_values().collect())
}

/// The names of the columns that a network reads, flags of missing values included.
fn filled_names(run: &ScoredRun, filling: Option<&Filling>) -> Option<Vec<String>> {
    let names = run.dataset.feature_names.as_deref();
    filling.map_or_else(|| names.map(<[String]>::to_vec), |filling| filling.names(names))
}

/// Where the embeddings come from that a run of Stage 2 reads; `now` is its section with what the user gave.
fn source_of(run: &ScoredRun, now: &Stage2Data) -> Result<Source> {
    let RunConfig::Stage2(Stage2Config { data: trained, .. }) = RunConfig::load_kept(&run.run.config(), &[])? else {
        return Ok(Source::of(now.embeddings.as_deref(), None, &run.data));
    };
    let given = now.embeddings.as_deref().filter(|given| trained.embeddings.as_deref() != Some(*given));
    let trained = TrainedOn { run: run.run.path(), data: &trained.path, embeddings: trained.embeddings.as_deref() };
    Ok(Source::of(given, Some(trained), &run.data))
}

/// Each node for the class that it is seen through; scores and labels of all others are of that class, too.
fn classes<B: GraphBackend>(
    run: &ScoredRun,
    classes: &ClassView,
    nodes: &[u32],
    device: &B::Device,
) -> Result<Vec<Explanation>> {
    let (weights, file) = Weights::read(run.run.path())?;
    let ModelSpec::NodeClassifier(spec) = &weights.spec else {
        let help = "the run directory was changed; train it again";
        return Err(Error::format(file, "model", "a node classifier", weights.spec.name(), help));
    };
    let dataset = &run.dataset;
    let filling = Filling::of_run(run.run.path())?;
    let features = &features_for(spec, dataset, filling.as_ref(), &run.data)?;
    let graph = &spec.graph_for(dataset, features, &file)?;
    let column_names = filled_names(run, filling.as_ref());
    // Through the model, which checks names, shapes and values.
    let model = NodeClassifier::<B>::new(spec, &mut Parameters::from_tensors(&weights.tensors, &file, device), device)?;
    let (network, read_out) = parameters::of_classifier(spec, &model.export(spec).0, graph);
    let edges = Edges::new(graph, &network);
    let view = View { network: &network, edges: &edges, features };
    let edge_columns = &dataset.edge_value_names()[..];
    let mut by_class: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    nodes.iter().enumerate().for_each(|(at, &node)| by_class.entry(classes.class_of(node)).or_default().push(at));
    let mut explained = BTreeMap::new();
    for (class, places) in by_class {
        let scores = classes.probabilities().column(class as usize).to_vec();
        let names = Names::of_class(dataset, &scores, class);
        let columns = Columns::Features(column_names.as_deref());
        let model = Model { names: &names, view, columns, edge_columns, labels: false, known: None };
        let question = Question::Class { class, classes: spec.classes, read_out: read_out.as_ref() };
        for at in places {
            explained.insert(at, model.explain(run.probability(nodes[at]), nodes[at], &question)?);
        }
    }
    Ok(explained.into_values().collect())
}

fn trees<B: GraphBackend>(
    run: &ScoredRun,
    config: &Stage3Config,
    names: &Names,
    nodes: &[u32],
    device: &B::Device,
) -> Result<Vec<Explanation>> {
    let path = run.run.path();
    let file = TreeCheckpoint::file_of(path).ok_or_else(|| {
        let help = "the run is not finished, or was changed; train it again";
        Error::format(path, "checkpoint/best.trees", "the checkpoint of a run", "no such file", help)
    })?;
    let checkpoint = TreeCheckpoint::read(&file)?;
    let trained = match RunConfig::load_kept(&run.run.config(), &[])? {
        RunConfig::Stage3(trained) => trained.data.embeddings,
        _ => None,
    };
    let input = config.data.embeddings.as_deref().filter(|given| trained.as_deref() != Some(*given));
    let options = TableOptions { checkpoint: path, run: Some(path), data: &run.data, input };
    let table = table::<B>(&options, &checkpoint, &run.dataset, device)?;
    let embeddings: Option<Array2<f32>> = stage3::embeddings_of(&table, run.dataset.graph.num_nodes());
    let known = embeddings.as_ref().and_then(|z| known(run, z));
    let forest = Forest { names, checkpoint: &checkpoint, table: &table, data: &run.data, known: known.as_ref() };
    nodes.iter().map(|&node| forest.explain::<B>(run.probability(node), node, device)).collect()
}
