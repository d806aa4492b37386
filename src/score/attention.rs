//! Stage 2: scores and explanations of a graph attention network.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use graphsieve_kernels::GraphBackend;

use super::explain::Explanation;
use super::explain::names::Names;
use super::explain::network::{Edges, Head, Network, View};
use super::explain::neural::{Columns, Described, Question};
use super::explain::parameters::of_attention;
use super::explain::similar::Known;
use super::fits::check_data;
use super::model::{Model, OfAll, PartModel, Place, Reach, only, other_task};
use super::{Computed, ScoreOptions, ScoredRun, Scores};
use crate::config::{RunConfig, STAGE2_EMBEDDINGS_FILE, Stage2Config, Stage2Data, Stage2Input};
use crate::error::Result;
use crate::graph::{Dataset, Features, Filling, HeteroGraph, Spill, open_embeddings};
use crate::infer::attention::{check_width, graph_for, known_labels};
use crate::infer::embed::{self, Growing, Source, TrainedOn};
use crate::infer::finite::{check_finite_rows, check_finite_targets};
use crate::infer::layerwise::{self, HostScored};
use crate::infer::plan;
use crate::infer::stage2::Stage2;
use crate::infer::tree_table::TableLabels;
use crate::infer::uploaded::Uploaded;
use crate::live::{Layer, Part};
use crate::models::attention::{AttentionSpec, TripleStreamGat, reads_ages};
use crate::models::parameters::HostTensor;
use crate::run::bundle::{Bundle, Reads};
use crate::run::known_labels::KnownLabels;

/// A graph attention network.
pub(super) struct Attention {
    pub spec: AttentionSpec,
    pub tensors: BTreeMap<String, HostTensor>,
    /// Where they were read from.
    pub file: PathBuf,
}

/// What a network starts from.
struct Input {
    kind: Stage2Input,
    source: Source,
    filling: Option<Filling>,
}

impl Input {
    /// What it reads of data.
    fn reads(&self) -> Reads {
        // Embeddings that were made already say nothing of columns.
        let given = self.kind == Stage2Input::Embeddings && matches!(self.source, Source::Array(_));
        if given { Reads::Graph } else { Reads::Features }
    }

    /// The rows of all nodes of some data, `width` columns.
    fn read<B: GraphBackend>(
        &self,
        (dataset, data): (&Dataset, &Path),
        width: usize,
        place: (&Spill, &B::Device),
    ) -> Result<Features> {
        embed::input_of::<B>((self.kind, &self.source), self.filling.as_ref(), dataset, data, width, place)
    }
}

impl Attention {
    /// The network on a device, for graphs like `graph`.
    fn network<B: GraphBackend>(
        &self,
        graph: &HeteroGraph,
        trained: Option<&Stage2Config>,
        device: &B::Device,
    ) -> Result<Stage2<B>> {
        Stage2::new((&self.spec, &self.tensors, &self.file), graph, trained, device)
    }
}

impl<B: GraphBackend> Model<B> for Attention {
    fn compute(&self, options: &ScoreOptions, bundle: Option<&Bundle>, devices: &[B::Device]) -> Result<Computed> {
        let mut dataset = Dataset::open(&options.data)?;
        dataset.graph = graph_for(&self.spec, &dataset)?;
        let graph = dataset.graph.clone();
        let trained = trained_as(&options.checkpoint)?;
        let networks: Vec<Stage2<B>> =
            devices.iter().map(|device| self.network(&graph, trained.as_ref(), device)).collect::<Result<_>>()?;
        let spec = networks[0].spec();
        let (input, _) = input_of(&options.checkpoint, options.input.as_deref(), &options.data, trained.as_ref())?;
        check_data(bundle, options, &dataset, input.reads())?;
        let spill = options.spill.or_gigabytes(trained.as_ref().map_or(0.0, |config| config.loader.host_memory));
        let features = input.read::<B>((&dataset, &options.data), spec.given(), (&options.spill, &devices[0]))?;
        let known = known_labels(spec, &options.checkpoint, &dataset, &options.data)?;
        let planned =
            trained.is_some_and(|config| plan::attention::<B>(&config, &graph, spec.input, &devices[0]).sampled);
        let sampled = devices.len() > 1 || planned || options.spill.is_limited();
        let HostScored { scores, embeddings } = if sampled {
            let (graph, known) = (Arc::new(graph), known.as_ref());
            let replicas: Vec<_> = networks.iter().map(Stage2::replica).collect();
            let storage = networks[0].storage();
            layerwise::scores_with_labels(&replicas, &graph, &features, known, None, storage, (None, &spill))?
        } else {
            networks[0].scores(&graph, &features, known.as_ref(), options.embeddings)?
        };
        check_finite_rows("the score", &scores, 1, &dataset)?;
        let embeddings = options.embeddings.then_some(embeddings);
        Ok(Computed { dataset, scores: Scores::Anomaly(scores), embeddings })
    }

    fn explain(&self, run: &ScoredRun, nodes: &[u32], device: &B::Device) -> Result<Vec<Explanation>> {
        let RunConfig::Stage2(config) = &run.config else { return Err(other_task(run, "Stage 2")) };
        let graph = &graph_for(&self.spec, &run.dataset)?;
        // Whatever it was trained in: what is explained is computed in f64.
        let explained = Explained::of(&self.network::<B>(graph, None, device)?, graph);
        let (source, filling) = (source_of(run, &config.data)?, Filling::of_run(run.run.path())?);
        let input = Input { kind: config.data.input, source, filling };
        let spec = &explained.spec;
        let features = input.read::<B>((&run.dataset, &run.data), spec.given(), (&Spill::default(), device))?;
        let labels = known_labels(spec, run.run.path(), &run.dataset, &run.data)?;
        let refined = match &run.split {
            Some(_) => Some(open_embeddings(run.run.output(STAGE2_EMBEDDINGS_FILE), Some(graph.num_nodes()))?),
            None => None,
        };
        let known = refined.as_ref().and_then(|z| Known::of(run, z));
        let names = Names::new(&run.dataset, &run.scores);
        explained.explain(&names, graph, (&input, &features, labels.as_ref()), known.as_ref(), nodes, &|node| {
            run.probability(node)
        })
    }

    fn prepared(self: Box<Self>, place: &Place<'_, B>) -> Result<Box<dyn PartModel<B>>> {
        let Place { run, dataset, data, device, .. } = *place;
        let (graph, trained) = (graph_for(&self.spec, dataset)?, trained_as(run)?);
        let network = self.network::<B>(&graph, trained.as_ref(), device)?;
        let spec = network.spec();
        place.check_ages(reads_ages(&spec.edges))?;
        let (input, weights) = input_of(run, None, data, trained.as_ref())?;
        place.check(input.reads())?;
        let growing = match input.kind {
            Stage2Input::Features => None,
            Stage2Input::Embeddings => Some(Growing::open(input.source.clone(), weights, (dataset, data), device)?),
        };
        let explained = Explained::of(&network, &graph);
        let (run, data, device) = (run.to_owned(), data.to_owned(), device.clone());
        let of_events = dataset.events.is_some();
        Ok(Box::new(AttentionParts { network, input, growing, explained, of_events, run, data, device }))
    }
}

/// A network that scores parts of a graph.
struct AttentionParts<B: GraphBackend> {
    network: Stage2<B>,
    input: Input,
    growing: Option<Growing<B>>,
    explained: Explained,
    /// Whether nodes hear of earlier ones alone.
    of_events: bool,
    run: PathBuf,
    data: PathBuf,
    device: B::Device,
}

impl<B: GraphBackend> AttentionParts<B> {
    /// What the network starts from, of `whole` parts or of as much of them as scores read, and the labels that it
    /// reads.
    fn input_of(&self, part: &Part, all: &OfAll, whole: bool) -> Result<(Features, Option<KnownLabels>)> {
        // Stage 1 reads other rows than the network.
        let uploaded = &Uploaded::new(&self.device);
        let features = match &self.growing {
            Some(growing) if whole => growing.of_part(part, all.rows(), None, uploaded)?,
            Some(growing) => growing.within(TripleStreamGat::<B>::LAYERS, part, all.rows(), uploaded)?,
            None => {
                let (from, width) = ((&part.dataset, &*self.data), self.network.spec().given());
                self.input.read::<B>(from, width, (&Spill::default(), &self.device))?
            }
        };
        Ok((features, all.labels.of_part(&part.refreshed, part.dataset.events.as_ref()).into_own()))
    }
}

impl<B: GraphBackend> PartModel<B> for AttentionParts<B> {
    fn layers(&self) -> usize {
        TripleStreamGat::<B>::LAYERS
    }

    fn reach(&self) -> Reach {
        let layers = self.layers();
        // Neither labels nor embeddings of others.
        let keeps = self.of_events && self.growing.is_none() && !self.network.spec().labels;
        Reach::of(layers, self.growing.as_ref().map(|growing| (growing, layers)), usize::from(keeps))
    }

    fn of_all(&self, dataset: &Dataset) -> Result<OfAll> {
        let spec = self.network.spec();
        let embeddings = self.growing.as_ref().map(|growing| growing.of_all(dataset, &self.device)).transpose()?;
        if let Some(z) = &embeddings {
            check_width(self.input.source.place(), z.dim(), Some(spec.given()))?;
        }
        let labels = TableLabels::own(known_labels(spec, &self.run, dataset, &self.data)?);
        Ok(OfAll { embeddings, labels })
    }

    fn joins(&self, _: &Part) -> bool {
        true
    }

    fn scores(&self, part: &Part, all: &OfAll) -> Result<Vec<f32>> {
        let (features, known) = self.input_of(part, all, false)?;
        let (read, keeps) = ((part, &features), (Layer::Network(0), false));
        let uploaded = &Uploaded::new(&self.device);
        let scores = self.network.target_scores(read, known.as_ref(), keeps, uploaded)?.scores;
        check_finite_targets("the score", &scores, 1, part)?;
        Ok(scores)
    }

    fn explain(
        &self,
        part: &Part,
        all: &OfAll,
        names: &Names,
        node: u32,
        probability: Option<f64>,
    ) -> Result<Explanation> {
        let (features, known) = self.input_of(part, all, true)?;
        let graph = self.network.graph_of(&part.dataset)?;
        let read = (&self.input, &features, known.as_ref());
        only(self.explained.explain(names, &graph, read, None, &[node], &|_| probability)?)
    }
}

/// A network as explanations read it.
struct Explained {
    spec: AttentionSpec,
    network: Network,
    head: Head,
}

impl Explained {
    /// Through the model, which checks names, shapes and values.
    fn of<B: GraphBackend>(on_device: &Stage2<B>, graph: &HeteroGraph) -> Self {
        let spec = on_device.spec().clone();
        let (network, head) = of_attention(&spec, &on_device.replica().0.export(&spec).0, graph);
        Self { spec, network, head }
    }

    /// Why some nodes have the scores of `names`; `read` is where the rows of all nodes come from, these, and the
    /// labels that the model reads.
    fn explain(
        &self,
        names: &Names,
        graph: &HeteroGraph,
        (input, features, labels): (&Input, &Features, Option<&KnownLabels>),
        known: Option<&Known>,
        nodes: &[u32],
        probability: &dyn Fn(u32) -> Option<f64>,
    ) -> Result<Vec<Explanation>> {
        let column_names = names.dataset.filled_names(input.filling.as_ref());
        let columns = match input.kind {
            Stage2Input::Embeddings => Columns::Embeddings,
            Stage2Input::Features => Columns::Features(column_names.as_deref()),
        };
        let edges = Edges::new(graph, &self.network);
        let question = Question::Score { head: &self.head };
        let edge_columns = &names.dataset.edge_value_names()[..];
        let explain = |features: &Features, node: u32| {
            let view = View { network: &self.network, edges: &edges, features };
            let model = Described { names, view, columns, edge_columns, labels: self.spec.labels, known };
            model.explain(probability(node), node, &question)
        };
        let Some(labels) = labels else { return nodes.iter().map(|&node| explain(features, node)).collect() };
        // Each node with the labels that its score has seen.
        let passes = labels.passes();
        let mut by_pass: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        nodes.iter().enumerate().for_each(|(at, &node)| by_pass.entry(labels.pass_of(node)).or_default().push(at));
        let mut explained = BTreeMap::new();
        for (pass, places) in by_pass {
            let features = labels.beside(features, &passes[pass]);
            for at in places {
                explained.insert(at, explain(&features, nodes[at])?);
            }
        }
        Ok(explained.into_values().collect())
    }
}

/// The settings of the run that a checkpoint is of, where it is in its directory.
fn trained_as(checkpoint: &Path) -> Result<Option<Stage2Config>> {
    if !checkpoint.is_dir() {
        return Ok(None);
    }
    Ok(match RunConfig::load_kept(&checkpoint.join("config.toml"), &[])? {
        RunConfig::Stage2(config) => Some(config),
        _ => None,
    })
}

/// Where the input of the model comes from, of which the user may have `given` something else; and the weights that an
/// array of embeddings is from, where they are at hand.
fn input_of(
    checkpoint: &Path,
    given: Option<&Path>,
    data: &Path,
    trained: Option<&Stage2Config>,
) -> Result<(Input, Option<PathBuf>)> {
    let from_features = given.is_none() && trained.is_some_and(|of| of.data.input == Stage2Input::Features);
    let kind = if from_features { Stage2Input::Features } else { Stage2Input::Embeddings };
    let trained =
        trained.map(|of| TrainedOn { run: checkpoint, data: &of.data.path, embeddings: of.data.embeddings.as_deref() });
    let source = Source::of(given, trained, data);
    let weights = source.weights(trained);
    Ok((Input { kind, source, filling: Filling::of_run(checkpoint)? }, weights))
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
