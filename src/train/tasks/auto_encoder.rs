//! Stage 1: a graph auto-encoder that learns embeddings without labels.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use burn::backend::Autodiff;
use burn::tensor::Tensor;
use graphsieve_kernels::{GraphBackend, download};
use serde::Serialize;

use super::attention_batches::sampler;
pub use super::auto_encoder_batches::temperature;
use super::auto_encoder_batches::{PairBatch, pairs_of_epoch, parts};
use crate::config::{EMBEDDINGS_FILE, LoaderMode, Rows, RunConfig, Stage1Config, TrainConfig};
use crate::data::edge_split::EdgeSplit;
use crate::error::{Error, Result};
use crate::graph::{Features, HeteroGraph, Relation, Spill, atomic_write, write_npy_f32_digested};
use crate::infer::finite::check_finite_features;
use crate::infer::layerwise_embeddings::embeddings;
use crate::infer::plan;
use crate::infer::tree_table::reconstruction_scores;
use crate::loader::{Batch, FeatureStore};
use crate::models::auto_encoder::{
    AutoEncoderSpec, DividedInputs, HostNormalisation, Inputs, Normalisation, TripleStreamGae,
};
use crate::models::device_graph::{DeviceGraph, check_device, check_range, upload_features};
use crate::models::graph_part::{Division, GraphPart};
use crate::models::parameters::{Export, Parameters};
use crate::models::precision::{as_data, dtype, dtype_on};
use crate::models::receptive_field::{PendingField, ReceptiveField};
use crate::models::weights::ModelSpec;
use crate::run::bundle::Origin;
use crate::run::bundle::drift::Profile;
use crate::run::evaluation::EVALUATION_FILE;
use crate::sampler::check_draw;
use crate::timing::{alongside, timed};
use crate::train::edges::{LabelledPairs, Purpose, held_out_pairs, labelled_pairs};
use crate::train::full::Full;
use crate::train::loading::{beside_digests, opened, transferred};
use crate::train::plots::{self, Series};
use crate::train::position::Position;
use crate::train::ranks::{Rank, agree, failed, of_part, planned, settled};
use crate::train::reconstruction::{DevicePairs, EdgeMetrics, PairRows, Pairs, Scored, edge_metrics, metrics, rows_of};
use crate::train::runner::Runner;
use crate::train::sampled::{Sampled, Sampling};
use crate::train::session::{RunOptions, Session, part_note};
use crate::train::shard::Shard;
use crate::train::task::{Judgement, Losses, Task};
use crate::train::trainer::{self, Led, Place, Trained};

/// One line of `metrics.jsonl`.
#[derive(Serialize)]
pub struct EpochLine {
    loss: f32,
    learning_rate: f64,
    temperature: f64,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    metrics: Option<EdgeMetrics>,
}

/// What a finished Stage 1 leaves.
#[derive(Clone, Debug, Serialize)]
pub struct Stage1Outcome {
    pub run: PathBuf,
    pub embeddings: PathBuf,
    /// On edges that were neither in the loss nor in the adjacency, against pairs that are no edges; embeddings of the
    /// training's adjacency. `None` where nothing was held out.
    pub held_out: Option<EdgeMetrics>,
    /// On edges of the training against pairs that were drawn, the figure that is usually published. It says what the
    /// model remembers, not what it finds.
    pub trained_on: Option<EdgeMetrics>,
    pub loss: f32,
    /// Mean wall time of the epochs after the first.
    #[serde(skip)]
    pub seconds_per_epoch: Option<f64>,
}

impl fmt::Display for Stage1Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "loss {:.4}", self.loss)?;
        let mut line = |what: &str, metrics: &Option<EdgeMetrics>| match metrics {
            Some(EdgeMetrics { edge_auc, p_positive, p_negative, .. }) => {
                write!(f, "\n{what}: edge AUC {edge_auc:.4}, P(edge) {p_positive:.4}, P(no edge) {p_negative:.4}")
            }
            None => Ok(()),
        };
        line("edges held out of training against pairs that are no edges", &self.held_out)?;
        line("edges trained on against drawn pairs, as in the literature", &self.trained_on)
    }
}

/// The auto-encoder, and its graph where the passes find it.
pub struct AutoEncoder<B: GraphBackend> {
    config: Stage1Config,
    spec: AutoEncoderSpec,
    host: Arc<HeteroGraph>,
    placement: Placement<B>,
    device: B::Device,
}

/// Where graph and features are.
enum Placement<B: GraphBackend> {
    /// On the device.
    Device(Box<OnDevice<B>>),
    /// On the device of one of several ranks, which have divided the rows; by node its place among the rows of all.
    Divided(Box<DividedInputs<Autodiff<B>>>, Arc<[u32]>),
    /// On the host, from where mini-batches are loaded.
    Host { store: FeatureStore<Autodiff<B>>, features: Features, normalisation: HostNormalisation },
}

struct OnDevice<B: GraphBackend> {
    graph: DeviceGraph<Autodiff<B>>,
    normalisation: Vec<Normalisation<Autodiff<B>>>,
    inputs: Inputs<Autodiff<B>>,
}

impl<B: GraphBackend> OnDevice<B> {
    /// For passes that record nothing.
    fn inner(&self) -> (DeviceGraph<B>, Vec<Normalisation<B>>, Inputs<B>) {
        let normalisation = self.normalisation.iter().cloned().map(Normalisation::inner);
        (self.graph.inner(), normalisation.collect(), self.inputs.clone().inner())
    }
}

/// What a validation reads of an epoch: logits of pairs, and labels of all pairs by rank.
type PairLogits<B> = (Tensor<B, 1>, Vec<Vec<u8>>);

/// Those of all mini-batches of an epoch.
fn of_all_batches<B: GraphBackend>(batches: Vec<PairLogits<B>>) -> Option<PairLogits<B>> {
    let (logits, labels): (Vec<_>, Vec<_>) = batches.into_iter().unzip();
    let labels = labels.into_iter().reduce(|mut before, own| {
        before.iter_mut().zip(own).for_each(|(before, own)| before.extend(own));
        before
    })?;
    Some((Tensor::cat(logits, 0), labels))
}

/// Trains the auto-encoder and writes its embeddings; as one of several ranks, where there are any: what rank 0 leaves.
///
/// # Errors
/// Data or a checkpoint that cannot be used, outputs that cannot be written, a loss that is not finite, another rank
/// that fails, or an interruption (everything is saved then).
pub fn run<B: GraphBackend>(
    config: &Stage1Config,
    options: &RunOptions,
    rank: Option<&Rank<B>>,
    device: &B::Device,
) -> Result<Option<Stage1Outcome>> {
    let mut dataset = opened::<B>(&config.data.path, &options.check, device)?.in_window(config.data.window)?;
    if config.model.edge_weights {
        dataset.load_edge_weights("model.edge_weights")?;
    }
    let filling = dataset.filling(options.begun())?;
    let features = &dataset.filled(filling.as_ref(), &config.data.path)?.ok_or_else(|| {
        let help = "Stage 1 learns from features; add them to the data directory";
        Error::format(&config.data.path, "features", "a feature file", "none", help)
    })?;
    let causal = dataset.events.is_some();
    let known = dataset.training_part();
    let (host, of_training) = match &known {
        Some(known) => (&known.dataset.graph, &known.rows_of(features)),
        None => (&dataset.graph, features),
    };
    let split = EdgeSplit::new(config.split.held_out, config.split.seed);
    let mut notes = dataset.notes.clone();
    notes.extend(known.as_ref().map(|known| part_note(known, &dataset)));
    notes.extend(filling.as_ref().and_then(|filling| dataset.filling_note(filling)));
    let toml = RunConfig::Stage1(config.clone()).to_toml()?;
    let read = || Origin::of("stage1", &config.data.path, &dataset, None);
    // Several ranks agree on the data before they do anything together.
    let agreed = |rank: &Rank<B>| -> Result<Origin> {
        let origin = read()?;
        agree::<B>(rank, &toml, Some(&origin), None)?;
        Ok(origin)
    };
    let agreed = rank.map(agreed).transpose()?;
    let open = |graph: &HeteroGraph, features: &Features, sampled: bool| {
        AutoEncoder::<B>::open(config, graph, features, causal, sampled, rank, device)
    };
    let (origin, (task, sampled)) = beside_digests(agreed, read, || {
        let training = match split {
            Some(split) => timed("holding out edges", || split.training_graph(host)),
            None => host.clone(),
        };
        if split.is_some() {
            let (edges, all) = (host.num_edges() - training.num_edges(), host.num_edges());
            notes.push(format!("held out of training: {edges} of {all} edges, both directions counted"));
        }
        if split.is_some() && options.from.is_some() {
            notes.push(
                "the model that it begins with may have learned from edges that are held out now: their figure flatters"
                    .into(),
            );
        }
        let plan = planned::<B>(plan::auto_encoder::<B>(config, &training, features.dim(), device), rank, device)?;
        if config.loader.mode != LoaderMode::Full {
            notes.push(plan.to_string());
        }
        let (task, how) = open(&training, of_training, plan.sampled)?;
        notes.extend(how);
        Ok((task, plan.sampled))
    })?;
    let pairs = task.pairs_of_training();
    if pairs.is_empty() {
        return Err(no_edges());
    }
    let (runs, name, seed) = (&config.output.dir, &config.name, config.seed);
    let place = Place { runs, name, seed, config: &toml, origin: Some(&origin), filling: filling.as_ref() };
    let draw = || {
        let split = split.as_ref().filter(|_| rank.is_none_or(|rank| rank.rank() == 0));
        split.map(|split| held_out_pairs(host, split, |r| config.sampling.edges_of(&r.stream), config.split.seed))
    };
    let train = || trainer::train(&task, &place, options, &notes, rank, device);
    let (held_out, trained) = alongside("drawing held-out pairs", draw, train);
    let Some(Trained { model, led }) = trained? else {
        return Ok(None);
    };
    let rank = rank.filter(|rank| task.embeds_together(rank));
    if led.is_none() && rank.is_none() {
        return Ok(None);
    }
    let is_whole = split.is_none() && known.is_none();
    let embed = |task: &AutoEncoder<B>| timed("embedding all nodes", || task.embed_all(&model, rank));
    let z = (is_whole || !task.is_on_device()).then(|| embed(&task)).transpose()?;
    let of_pairs = |host: &HeteroGraph, drawn: &[LabelledPairs]| match (&led, &z) {
        // Rank 0 alone tells.
        (None, _) => Ok(None),
        (_, Some(z)) => metrics::<B>(host, drawn, |nodes| rows_of(host, z.as_f32(), &nodes, device), device),
        (_, None) => metrics::<B>(host, drawn, |nodes| task.embed_rows(&model, nodes), device),
    };
    let trained_on = of_pairs(&task.host, &pairs)?;
    let held_out = held_out.map_or(Ok(None), |drawn| of_pairs(host, &drawn))?;
    let z = match z.filter(|_| is_whole) {
        Some(z) => z,
        None => {
            // What is written is made of all edges.
            drop(task);
            let (all, _) = open(&dataset.graph, features, sampled)?;
            embed(&all)?
        }
    };
    let Some(Led { session, loss, seconds_per_epoch, .. }) = led else { return Ok(None) };
    check_finite_features("the embedding", &z, &dataset)?;
    let embeddings = session.run.output(EMBEDDINGS_FILE);
    let write = || write_npy_f32_digested(&embeddings, &z.as_f32());
    let (written, profile) = alongside("writing embeddings", write, || {
        let scores = timed("scores of all nodes", || reconstruction_scores(&dataset.graph, z.as_f32()));
        timed("the profile", || Profile::of_training::<u8>(&dataset, Some(&scores), &[]))
    });
    let digest = written?;
    let run = session.run.path().to_path_buf();
    let outcome = Stage1Outcome { run, embeddings, held_out, trained_on, loss, seconds_per_epoch };
    atomic_write(session.run.output(EVALUATION_FILE), |file| Ok(serde_json::to_writer_pretty(file, &outcome)?))?;
    origin.finish(&session.run, &profile, &[(EMBEDDINGS_FILE, digest)])?;
    if config.output.plots {
        plot(&session)?;
    }
    session.finish(&match held_out {
        Some(EdgeMetrics { edge_auc, .. }) => format!("held-out edge AUC {edge_auc:.4}"),
        None => format!("loss {loss:.4}"),
    });
    Ok(Some(outcome))
}

impl<B: GraphBackend> AutoEncoder<B> {
    /// On the graph `host` with its features, which are uploaded, or prepared to be `sampled` in mini-batches, with
    /// what was decided about that. Several ranks divide the rows where all are computed.
    ///
    /// # Errors
    /// A precision or a transfer that the device does not have, draws that the graph does not have, features that do
    /// not fit their types; a rank that fails.
    pub fn open(
        config: &Stage1Config,
        host: &HeteroGraph,
        features: &Features,
        causal: bool,
        sampled: bool,
        rank: Option<&Rank<B>>,
        device: &B::Device,
    ) -> Result<(Self, Option<String>)> {
        let dtype = dtype_on::<B>(config.train.precision, device)?;
        check_draw(config.loader.draw, host.relations(), &config.name)?;
        let spec = AutoEncoderSpec::of(&config.model, host, features.dim(), causal);
        let host = spec.reading(host.clone());
        if !sampled {
            let x = timed("uploading features", || upload_features(host.node_types(), features, dtype, device))?;
            let several = rank.filter(|rank| rank.ranks() > 1);
            let division = several.and_then(|rank| Some((rank.rank(), Division::balanced(&host, rank.ranks())?)));
            let reachable = match (&division, config.train.rows) {
                (Some((_, division)), Rows::Reachable) => {
                    let rows = "the rows that its part of the loss depends on";
                    Some(format!("every rank has the whole graph and computes {rows}; to embed all nodes, {division}"))
                }
                _ => None,
            };
            if let Some((rank, division)) = division.filter(|_| config.train.rows == Rows::All) {
                let (how, places) = (division.to_string(), division.places().into());
                let part = GraphPart::upload(&host, division, rank, device)?;
                let inputs = DividedInputs::new(part, &host, spec.causal, x, config.train.chunk_size, device);
                let placement = Placement::Divided(Box::new(inputs), places);
                let (config, host, device) = (config.clone(), Arc::new(host), device.clone());
                return Ok((Self { config, spec, host, placement, device }, Some(how)));
            }
            let graph = timed("uploading the graph", || DeviceGraph::<Autodiff<B>>::upload(&host, device))?;
            let alone = several.map(|_| "every rank has the whole graph: a part of it would have no rows".into());
            return Ok((Self::with(config, spec, host, graph, x, device), reachable.or(alone)));
        }
        check_range(features, dtype)?;
        let (store, how) = transferred(FeatureStore::new(features.clone(), &host, device)?, &config.loader, rank)?;
        let host = Arc::new(host);
        let normalisation = HostNormalisation::of(host.clone(), spec.causal);
        let placement = Placement::Host { store, features: features.clone(), normalisation };
        let (config, device) = (config.clone(), device.clone());
        Ok((Self { config, spec, host, placement, device }, Some(how)))
    }

    /// On a graph with the features `x`, one matrix per node type. Both graphs are as the layers read them, see
    /// [`AutoEncoderSpec::reading`].
    pub fn new(
        config: &Stage1Config,
        host: &HeteroGraph,
        graph: DeviceGraph<Autodiff<B>>,
        x: Vec<Tensor<Autodiff<B>, 2>>,
        device: &B::Device,
    ) -> Self {
        let spec = AutoEncoderSpec::of(&config.model, host, x.first().map_or(0, |x| x.dims()[1]), false);
        Self::with(config, spec, host.clone(), graph, x, device)
    }

    fn with(
        config: &Stage1Config,
        spec: AutoEncoderSpec,
        host: HeteroGraph,
        graph: DeviceGraph<Autodiff<B>>,
        x: Vec<Tensor<Autodiff<B>, 2>>,
        device: &B::Device,
    ) -> Self {
        let normalisation = Normalisation::of(&host, spec.causal, device);
        // Features have no gradient and no edge is dropped: the first aggregation never changes.
        let inputs = Inputs::new(&graph, &normalisation, x, config.train.chunk_size);
        let placement = Placement::Device(Box::new(OnDevice { graph, normalisation, inputs }));
        let (config, host, device) = (config.clone(), Arc::new(host), device.clone());
        Self { config, spec, host, placement, device }
    }

    /// How ranks that have the whole graph embed all nodes together; `None` of one alone, and of more than there are
    /// nodes.
    fn division(&self, rank: Option<&Rank<B>>) -> Option<Division> {
        rank.filter(|rank| rank.ranks() > 1).and_then(|rank| Division::balanced(&self.host, rank.ranks()))
    }

    /// Whether ranks embed all nodes together.
    fn embeds_together(&self, rank: &Rank<B>) -> bool {
        match &self.placement {
            Placement::Divided(..) | Placement::Host { .. } => true,
            Placement::Device(_) => self.division(Some(rank)).is_some(),
        }
    }

    /// Embeddings of every node, by global id. Ranks that embed together all ask for them; where rows are divided rank
    /// 0 alone gets them.
    ///
    /// # Errors
    /// A device that failed; a rank that fails.
    pub fn embed_all(&self, model: &TripleStreamGae<B>, rank: Option<&Rank<B>>) -> Result<Features> {
        let of_rows = |values: Vec<f32>| {
            check_device()?;
            let rows = values.len() / self.spec.output;
            Ok(Features::from_f32(values, rows, self.spec.output))
        };
        let together = |inputs: &DividedInputs<B>| {
            let rows = model.embed_divided(inputs, of_part(rank)).map_err(failed)?;
            inputs.part().on_first_host(rows, of_part(rank))
        };
        let on_device = match &self.placement {
            Placement::Device(on_device) => on_device,
            Placement::Divided(inputs, _) => return of_rows(together(&inputs.inner())?),
            Placement::Host { features, normalisation, .. } => {
                let dtype = dtype(self.config.train.precision);
                let spill = Spill::of_gigabytes(self.config.loader.host_memory, &self.config.output.dir);
                return embeddings(model, normalisation, features, dtype, (rank, &spill), &self.device);
            }
        };
        if let Some(division) = self.division(rank) {
            let part = GraphPart::upload(&self.host, division, of_part(rank).rank(), &self.device)?;
            let (host, causal) = (&self.host, self.spec.causal);
            let inputs = on_device.inputs.clone().inner();
            let inputs = DividedInputs::of_whole(part, host, causal, inputs, &self.device);
            return of_rows(together(&inputs)?);
        }
        let (graph, normalisation, inputs) = on_device.inner();
        of_rows(download(model.embed(&graph, &ReceptiveField::all(&graph), &normalisation, &inputs)))
    }

    /// Whether the whole graph is on the device.
    fn is_on_device(&self) -> bool {
        matches!(self.placement, Placement::Device(_))
    }

    /// Embeddings of some nodes of every type, where the whole graph is on the device.
    fn embed_rows(&self, model: &TripleStreamGae<B>, nodes: Vec<Vec<u32>>) -> Vec<Tensor<B, 2>> {
        let Placement::Device(on_device) = &self.placement else { unreachable!("the whole graph is on the device") };
        let (graph, normalisation, inputs) = on_device.inner();
        let field = ReceptiveField::of_rows(&graph, Some(nodes), |_| None, &self.device);
        model.embed(&graph, &field, &normalisation, &inputs)
    }

    /// Edges of the training and as many pairs that are drawn as its negatives are.
    fn pairs_of_training(&self) -> Vec<LabelledPairs> {
        let count = |relation: &Relation| self.config.sampling.edges_of(&relation.stream);
        labelled_pairs(&self.host, count, 1, self.config.seed, Purpose::Evaluation, 0)
    }

    /// The loss of pairs of the rows of `z`; `labels` are those of all ranks' pairs.
    fn scored(
        &self,
        pairs: DevicePairs<Autodiff<B>>,
        z: &[Tensor<Autodiff<B>, 2>],
        tau: f64,
        labels: Vec<Vec<u8>>,
    ) -> Losses<B, Vec<PairLogits<B>>> {
        let Scored { loss, logits, .. } = pairs.score(z, tau);
        Losses { loss, terms: Vec::new(), detail: vec![(logits.inner(), labels)] }
    }

    fn sampled(
        &self,
        store: &FeatureStore<Autodiff<B>>,
        seed: u64,
        first: usize,
        shard: Shard,
    ) -> Result<Sampled<B, PairBatch>> {
        let config = Stage1Config { seed, ..self.config.clone() };
        let sampling = Sampling {
            config: &self.config.loader,
            graph: &self.host,
            sampler: sampler(&config.loader, seed, self.host.clone())?,
            store: store.clone(),
            // Features are added up before they are projected, and have no gradient.
            first_reverse: false,
            drop_edge: None,
        };
        let host = self.host.clone();
        Sampled::new(sampling, first, self.config.train.epochs, move |epoch| parts(&config, &host, epoch, shard))
    }
}

/// An epoch that the device has begun.
pub struct BegunEpoch<B: GraphBackend> {
    /// The rows that the pairs depend on, where the whole graph is on the device.
    field: Option<PendingField<Autodiff<B>>>,
    /// Those of this rank.
    pairs: DevicePairs<Autodiff<B>>,
    /// Of all ranks' pairs.
    labels: Vec<Vec<u8>>,
    /// The temperature.
    tau: f64,
}

impl<B: GraphBackend> Task<B> for AutoEncoder<B> {
    type Model = TripleStreamGae<Autodiff<B>>;
    type Inner = TripleStreamGae<B>;
    /// The pairs of a rank in an epoch with the labels of all ranks' pairs, and the temperature.
    type Input = ((Pairs, Vec<Vec<u8>>), f64);
    type Begun = Option<BegunEpoch<B>>;
    type Part = PairBatch;
    type Detail = Vec<PairLogits<B>>;
    type Figures = EdgeMetrics;
    type Line = EpochLine;

    const NAME: &'static str = "stage 1";
    const TERMS: &'static [&'static str] = &["the reconstruction loss"];

    fn train(&self) -> &TrainConfig {
        &self.config.train
    }

    fn spec(&self) -> ModelSpec {
        ModelSpec::AutoEncoder(self.spec.clone())
    }

    fn model(&self, parameters: &mut Parameters<Autodiff<B>>) -> Result<Self::Model> {
        TripleStreamGae::new(&self.spec, parameters)
    }

    fn inner_model(&self, parameters: &mut Parameters<B>) -> Result<Self::Inner> {
        TripleStreamGae::new(&self.spec, parameters)
    }

    fn export(&self, model: &Self::Inner) -> Export {
        model.export(&self.spec)
    }

    fn runner_of(&self, shard: Shard, seed: u64, first: usize) -> Result<Runner<B, Self>> {
        if let Placement::Host { store, .. } = &self.placement {
            return Ok(Runner::Sampled(Box::new(self.sampled(store, seed, first, shard)?)));
        }
        let (config, host) = (Stage1Config { seed, ..self.config.clone() }, self.host.clone());
        let places = match &self.placement {
            Placement::Divided(_, places) => Some(places.clone()),
            _ => None,
        };
        Ok(Runner::Full(Full::prefetched(first, self.config.train.epochs, move |epoch| {
            let (drawn, tau) = pairs_of_epoch(&config, &host, epoch);
            let (pairs, labels) = PairRows::of_shard(&host, &drawn, config.train.rows, shard);
            let pairs = match &places {
                Some(places) => pairs.placed(places),
                None => pairs,
            };
            ((pairs.grouped(), labels), tau)
        })))
    }

    fn edges_per_epoch(&self) -> usize {
        match &self.placement {
            Placement::Device(on_device) => 2 * on_device.graph.num_edges(),
            Placement::Divided(inputs, _) => 2 * inputs.num_edges(),
            Placement::Host { .. } => 0,
        }
    }

    /// Nothing of an epoch without pairs.
    fn begin(&self, ((mut pairs, labels), tau): Self::Input) -> Self::Begun {
        if pairs.targets.is_empty() {
            return None;
        }
        let field = match &self.placement {
            Placement::Device(on_device) => {
                Some(ReceptiveField::begin_rows(&on_device.graph, pairs.nodes.take(), |_| None, &self.device))
            }
            _ => None,
        };
        Some(BegunEpoch { field, pairs: pairs.upload(&self.device), labels, tau })
    }

    fn epoch(
        &self,
        model: &Self::Model,
        begun: Self::Begun,
        rank: Option<&Rank<B>>,
    ) -> Result<Losses<B, Self::Detail>> {
        let BegunEpoch { field, pairs, labels, tau } = begun.ok_or_else(no_edges)?;
        let (on_device, field) = match (&self.placement, field) {
            (Placement::Device(on_device), Some(field)) => (on_device, field.end()),
            (Placement::Divided(inputs, _), _) => {
                let z = model.embed_divided(inputs, of_part(rank)).map_err(failed)?;
                return Ok(self.scored(pairs, &[z], tau, labels));
            }
            _ => unreachable!("epochs over the whole graph have it on the device, and begin there"),
        };
        let OnDevice { graph, normalisation, inputs } = &**on_device;
        let z = model.embed(graph, &field, normalisation, inputs);
        Ok(self.scored(pairs, &z, tau, labels))
    }

    fn gathered(&self, own: Self::Detail, rank: &Rank<B>) -> Result<Self::Detail> {
        let Some((logits, labels)) = of_all_batches(own) else { return Ok(Vec::new()) };
        let rows: Vec<usize> = labels.iter().map(Vec::len).collect();
        let all = rank.all_gather_rows_after(logits.unsqueeze_dim::<2>(1), &rows, None).map_err(failed)?;
        Ok(vec![(all.squeeze_dim::<1>(1), labels)])
    }

    fn batch(&self, model: &Self::Model, batch: Batch<Autodiff<B>, PairBatch>) -> Result<Losses<B, Self::Detail>> {
        let Placement::Host { normalisation, .. } = &self.placement else {
            unreachable!("mini-batches are loaded from the host")
        };
        let Batch { x, blocks, seed_rows, nodes, payload: PairBatch { pairs, labels, tau }, .. } = batch;
        let pairs = pairs.reordered(&seed_rows).grouped();
        if pairs.targets.is_empty() {
            return Err(no_edges());
        }
        let dtype = dtype(self.config.train.precision);
        let x = x.into_iter().map(|x| as_data(x, dtype)).collect();
        let normalisation = normalisation.of_training(&nodes.to_host(), &blocks, &self.device);
        let z = model.embed_blocks(&blocks, &normalisation, x);
        Ok(self.scored(pairs.upload(&self.device), &z, tau, labels))
    }

    fn joined(&self, mut before: Self::Detail, own: Self::Detail) -> Self::Detail {
        before.extend(own);
        before
    }

    fn validate(&self, _: &Self::Inner, detail: Self::Detail, _: usize, rank: Option<&Rank<B>>) -> Result<EdgeMetrics> {
        let (logits, labels) = of_all_batches(detail).unwrap_or_else(|| unreachable!("every epoch has pairs"));
        let metrics = edge_metrics(logits, &labels.concat());
        settled::<B>(rank)?;
        metrics
    }

    /// The last model is kept: nothing is chosen on pairs that it was trained on.
    fn judge(&self, figures: &EdgeMetrics, position: &mut Position) -> Judgement {
        Judgement { keep: position.epoch == self.config.train.epochs, stop: false, metric: figures.edge_auc }
    }

    fn line(&self, epoch: usize, rate: f64, values: &[f32], figures: Option<EdgeMetrics>) -> EpochLine {
        let temperature = temperature(&self.config.temperature, epoch, self.config.train.epochs);
        EpochLine { loss: values[0], learning_rate: rate, temperature, metrics: figures }
    }

    fn progress(&self, figures: Option<EdgeMetrics>, _: &Position) -> String {
        figures.map_or(String::new(), |figures| format!("  edge AUC of its pairs {:.4}", figures.edge_auc))
    }
}

fn no_edges() -> Error {
    Error::Data {
        what: "the graph".into(),
        expected: "at least one relation with edges other than self-loops".into(),
        found: "none".into(),
        help: "Stage 1 reconstructs edges; check the relations with `graphsieve info --data DIR`, and split.held_out"
            .into(),
    }
}

fn plot(session: &Session) -> Result<()> {
    let history = session.run.history()?;
    let (loss, auc) = (history.series("loss"), history.series("edge_auc"));
    plots::training_curves(
        &session.run.output("training.svg"),
        "Stage 1: graph auto-encoder",
        &[Series { name: "reconstruction loss", points: &loss }],
        &[Series { name: "edge AUC (training pairs)", points: &auc }],
    )
}
