//! Stage 2: scores and explanations of a graph attention network.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use burn::tensor::DType;
use graphsieve_kernels::GraphBackend;

use super::explain::Explanation;
use super::explain::names::Names;
use super::explain::network::{Edges, View};
use super::explain::neural::{Columns, Described, Question};
use super::explain::parameters::of_attention;
use super::explain::similar::Known;
use super::fits::check_data;
use super::model::{Model, other_task};
use super::{Computed, ScoreOptions, ScoredRun, Scores};
use crate::config::{RunConfig, STAGE2_EMBEDDINGS_FILE, Stage2Config, Stage2Data, Stage2Input};
use crate::error::Result;
use crate::graph::{Dataset, Features, Filling, Spill, open_embeddings};
use crate::infer::attention::{for_graph, graph_for, host_scores, known_labels};
use crate::infer::embed::{self, Source, TrainedOn};
use crate::infer::layerwise::{self, HostScored};
use crate::infer::plan;
use crate::models::attention::{AttentionSpec, TripleStreamGat};
use crate::models::device_graph::{DeviceGraph, upload_features};
use crate::models::parameters::{HostTensor, Parameters};
use crate::models::precision::dtype_on;
use crate::run::bundle::{Bundle, Reads};

/// A graph attention network.
pub(super) struct Attention {
    pub spec: AttentionSpec,
    pub tensors: BTreeMap<String, HostTensor>,
    /// Where they were read from.
    pub file: PathBuf,
}

impl<B: GraphBackend> Model<B> for Attention {
    fn compute(&self, options: &ScoreOptions, bundle: Option<&Bundle>, devices: &[B::Device]) -> Result<Computed> {
        let device = &devices[0];
        let mut dataset = Dataset::open(&options.data)?;
        dataset.graph = graph_for(&self.spec, &dataset)?;
        let graph = dataset.graph.clone();
        let spec = for_graph(&self.spec, &graph, &self.file)?;
        let replica = |device: &B::Device| -> Result<_> {
            let mut parameters = Parameters::from_tensors(&self.tensors, &self.file, device);
            Ok((TripleStreamGat::<B>::new(&spec, &mut parameters)?, device.clone()))
        };
        let replicas = devices.iter().map(replica).collect::<Result<Vec<_>>>()?;
        let trained = trained_as(options)?;
        let (input, source) = input_of(options, trained.as_ref());
        // Embeddings that were made already say nothing of columns.
        let given = input == Stage2Input::Embeddings && matches!(source, Source::Array(_));
        check_data(bundle, options, &dataset, if given { Reads::Graph } else { Reads::Features })?;
        let filling = Filling::of_run(&options.checkpoint)?;
        let (filling, data) = (filling.as_ref(), &options.data);
        let spill = options.spill.or_gigabytes(trained.as_ref().map_or(0.0, |config| config.loader.host_memory));
        let features =
            embed::input_of::<B>((input, &source), filling, &dataset, data, spec.given(), (&options.spill, device))?;
        let known = known_labels(&spec, &options.checkpoint, &dataset, &options.data)?;
        let chunk_rows = trained.as_ref().and_then(|config| config.train.chunk_size);
        // A bare checkpoint does not tell how it was trained.
        let storage = match &trained {
            Some(config) => dtype_on::<B>(config.train.precision, device)?,
            None => DType::F32,
        };
        let planned = trained.is_some_and(|config| plan::attention::<B>(&config, &graph, spec.input, device).sampled);
        let sampled = devices.len() > 1 || planned || options.spill.is_limited();
        let HostScored { scores, embeddings } = if sampled {
            let (graph, known) = (Arc::new(graph), known.as_ref());
            layerwise::scores_with_labels(&replicas, &graph, &features, known, None, storage, (None, &spill))?
        } else {
            let x = upload_features(graph.node_types(), &features, storage, device)?;
            let graph = DeviceGraph::<B>::upload(&graph, device)?;
            host_scores(&replicas[0].0, &graph, &x, known.as_ref(), None, chunk_rows, options.embeddings)?
        };
        let embeddings = options.embeddings.then_some(embeddings);
        Ok(Computed { dataset, scores: Scores::Anomaly(scores), embeddings })
    }

    fn explain(&self, run: &ScoredRun, nodes: &[u32], device: &B::Device) -> Result<Vec<Explanation>> {
        let RunConfig::Stage2(config) = &run.config else { return Err(other_task(run, "Stage 2")) };
        let names = &Names::new(&run.dataset, &run.scores);
        let graph = &graph_for(&self.spec, &run.dataset)?;
        let spec = for_graph(&self.spec, graph, &self.file)?;
        // Through the model, which checks names, shapes and values.
        let model = TripleStreamGat::<B>::new(&spec, &mut Parameters::from_tensors(&self.tensors, &self.file, device))?;
        let (network, head) = of_attention(&spec, &model.export(&spec).0, graph);
        let source = source_of(run, &config.data)?;
        let filling = Filling::of_run(run.run.path())?;
        let input = (config.data.input, &source);
        let place = (&Spill::default(), device);
        let features = embed::input_of::<B>(input, filling.as_ref(), &run.dataset, &run.data, spec.given(), place)?;
        let column_names = run.column_names(filling.as_ref());
        let labels = known_labels(&spec, run.run.path(), &run.dataset, &run.data)?;
        let refined = match &run.split {
            Some(_) => Some(open_embeddings(run.run.output(STAGE2_EMBEDDINGS_FILE), Some(graph.num_nodes()))?),
            None => None,
        };
        let columns = match config.data.input {
            Stage2Input::Embeddings => Columns::Embeddings,
            Stage2Input::Features => Columns::Features(column_names.as_deref()),
        };
        let edges = Edges::new(graph, &network);
        let question = Question::Score { head: &head };
        let known = refined.as_ref().and_then(|z| Known::of(run, z));
        let edge_columns = run.dataset.edge_value_names();
        let explain = |features: &Features, node: u32| {
            let view = View { network: &network, edges: &edges, features };
            let (edge_columns, known) = (&edge_columns[..], known.as_ref());
            let model = Described { names, view, columns, edge_columns, labels: spec.labels, known };
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
}

/// The settings of the run that a checkpoint is of, where it is in its directory.
fn trained_as(options: &ScoreOptions) -> Result<Option<Stage2Config>> {
    if !options.checkpoint.is_dir() {
        return Ok(None);
    }
    Ok(match RunConfig::load_kept(&options.checkpoint.join("config.toml"), &[])? {
        RunConfig::Stage2(config) => Some(config),
        _ => None,
    })
}

/// Where the input of the model comes from.
fn input_of(options: &ScoreOptions, trained: Option<&Stage2Config>) -> (Stage2Input, Source) {
    let from_features = options.input.is_none() && trained.is_some_and(|of| of.data.input == Stage2Input::Features);
    let input = if from_features { Stage2Input::Features } else { Stage2Input::Embeddings };
    let trained = trained.map(|Stage2Config { data, .. }| TrainedOn {
        run: &options.checkpoint,
        data: &data.path,
        embeddings: data.embeddings.as_deref(),
    });
    (input, Source::of(options.input.as_deref(), trained, &options.data))
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
