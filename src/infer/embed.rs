//! Stage 1 on any graph with the node types, streams and feature columns that it was trained on.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use burn::tensor::{DType, Tensor};
use graphsieve_kernels::{GraphBackend, download};

use crate::config::{EMBEDDINGS_FILE, RunConfig, Stage1Config, Stage2Input, embeddings_at};
use crate::error::{Error, Result};
use crate::graph::{Adjacency, Dataset, Features, Filling, HeteroGraph, Spill};
use crate::infer::attention::{check_width, input_features};
use crate::infer::finite::check_finite_features;
use crate::infer::layerwise_embeddings::embeddings;
use crate::infer::plan;
use crate::infer::two_layers::TwoLayers;
use crate::infer::uploaded::Uploaded;
use crate::live::{Around, Layer, Part};
use crate::models::TripleStreamGae;
use crate::models::auto_encoder::{AutoEncoderSpec, HostNormalisation, Inputs, Normalisation};
use crate::models::device_graph::{DeviceGraph, check_device, upload_features};
use crate::models::parameters::Parameters;
use crate::models::precision::dtype_on;
use crate::models::receptive_field::ReceptiveField;
use crate::models::weights::{ModelSpec, Weights};
use crate::run::bundle::{STAGE1_DIR, open_output};

/// Trained weights of Stage 1.
#[derive(Clone, Debug)]
pub struct Stage1 {
    spec: AutoEncoderSpec,
    weights: Weights,
    /// The checkpoint, for errors.
    file: PathBuf,
    /// How it was trained; a bare checkpoint does not tell.
    trained: Option<Stage1Config>,
    /// What stands for missing values.
    filling: Option<Filling>,
}

impl Stage1 {
    /// Reads a run of Stage 1, or a checkpoint file.
    ///
    /// # Errors
    /// A checkpoint that cannot be read, or of another model.
    pub fn open(place: &Path) -> Result<Self> {
        let (weights, file) = Weights::read(place)?;
        let ModelSpec::AutoEncoder(spec) = &weights.spec else {
            let help = "embeddings are made by a run of Stage 1; give its directory or its checkpoint";
            return Err(Error::format(file, "model", "a Stage-1 auto-encoder", weights.spec.name(), help));
        };
        let (spec, config) = (spec.clone(), place.join("config.toml"));
        let trained = match config.is_file().then(|| RunConfig::load_kept(&config, &[])).transpose()? {
            Some(RunConfig::Stage1(config)) => Some(config),
            _ => None,
        };
        Ok(Self { spec, weights, file, trained, filling: Filling::of_run(place)? })
    }

    /// The encoder on a device, for data like `dataset`, which was read from `data`.
    ///
    /// # Errors
    /// Data with other node types or streams than those of the training; a checkpoint that is damaged.
    pub fn encoder<B: GraphBackend>(&self, dataset: &Dataset, data: &Path, device: &B::Device) -> Result<Encoder<B>> {
        let spec = for_graph(&self.spec, &dataset.graph, data)?;
        let mut parameters = Parameters::<B>::from_tensors(&self.weights.tensors, &self.file, device);
        let model = TripleStreamGae::<B>::new(&spec, &mut parameters)?;
        let storage = match &self.trained {
            Some(config) => dtype_on::<B>(config.train.precision, device)?,
            None => DType::F32,
        };
        let chunk_rows = self.trained.as_ref().and_then(|config| config.train.chunk_size);
        Ok(Encoder { spec, model, storage, chunk_rows, filling: self.filling.clone(), device: device.clone() })
    }

    /// Embeddings of length one of all nodes of `dataset`, which was read from `data`: `[nodes, width]`, by global id.
    /// On the graph of the training these are the rows that the training wrote. With a limit of host memory they are
    /// computed layer by layer, as they are where the training was in mini-batches.
    ///
    /// # Errors
    /// Data without features, or with other node types, streams, weights of edges or numbers of columns than those of
    /// the training; embeddings that are not finite; a device that failed; a file of `spill`.
    pub fn embed<B: GraphBackend>(
        &self,
        dataset: &Dataset,
        data: &Path,
        spill: &Spill,
        device: &B::Device,
    ) -> Result<Features> {
        let encoder = self.encoder::<B>(dataset, data, device)?;
        let (graph, features) = encoder.read(dataset, data)?;
        let planned =
            |config: &Stage1Config| plan::auto_encoder::<B>(config, &graph, encoder.spec.input, device).sampled;
        let z = if spill.is_limited() || self.trained.as_ref().is_some_and(planned) {
            let normalisation = HostNormalisation::of(Arc::new(graph), encoder.spec.causal);
            let most = self.trained.as_ref().map_or(0.0, |config| config.loader.host_memory);
            let spill = spill.or_gigabytes(most);
            embeddings(&encoder.model, &normalisation, &features, encoder.storage, (None, &spill), device)?
        } else {
            let x = upload_features(graph.node_types(), &features, encoder.storage, device)?;
            encoder.of_all((&graph, &DeviceGraph::upload(&graph, device)?), x)?
        };
        check_finite_features("the embedding", &z, dataset)?;
        Ok(z)
    }
}

/// The encoder of Stage 1 on a device.
#[derive(Debug)]
pub struct Encoder<B: GraphBackend> {
    spec: AutoEncoderSpec,
    model: TripleStreamGae<B>,
    storage: DType,
    chunk_rows: Option<usize>,
    filling: Option<Filling>,
    device: B::Device,
}

impl<B: GraphBackend> Encoder<B> {
    /// How many edges from a node its embedding looks: one more than there are layers where the degrees of both ends
    /// count.
    pub fn reach(&self) -> usize {
        TripleStreamGae::<B>::LAYERS + usize::from(!self.spec.causal)
    }

    /// Embeddings of some nodes of a part, given in ascending order, as [`Stage1::embed`] makes them; of all others no
    /// more is computed than they need.
    ///
    /// # Errors
    /// As for [`Stage1::embed`].
    fn embed(&self, part: &Part, data: &Path, nodes: &[u32], uploaded: &Uploaded<B>) -> Result<Features> {
        let (graph, features) = self.read(&part.dataset, data)?;
        let on_device = &match self.spec.weighted.is_empty() {
            true => uploaded.graph(&[], || Ok(graph.clone()))?,
            false => DeviceGraph::one_way(&graph, &self.device)?,
        };
        let x = uploaded.rows(graph.node_types(), &features, self.storage)?;
        let normalisation = &Normalisation::of(&graph, self.spec.causal, &self.device);
        let z = TwoLayers::new(part, self.spec.causal.then_some(Layer::Encoder), nodes).pass(
            (self.storage, &self.device),
            |field| {
                let inputs = Inputs::of(on_device, field, normalisation, x, self.chunk_rows);
                self.model.hidden(on_device, field, normalisation, &inputs)
            },
            |field, h| self.model.embed_hidden(on_device, field, normalisation, (h, self.chunk_rows)),
        )?;
        self.on_host(z, nodes.len())
    }

    /// Graph and features of some data as the layers read them.
    fn read(&self, dataset: &Dataset, data: &Path) -> Result<(HeteroGraph, Features)> {
        let features = dataset.filled(self.filling.as_ref(), data)?.ok_or_else(|| {
            let help = "Stage 1 embeds features; add them to the data directory";
            Error::format(data, "features", "a feature file", "none", help)
        })?;
        let graph = self.spec.graph_for(dataset, data)?;
        if features.dim() != self.spec.input {
            let expected = format!("{} columns, as the model was trained on", self.spec.input);
            let help = "give data with the columns of the training, in their order";
            return Err(Error::format(data, "features", expected, features.dim().to_string(), help));
        }
        Ok((graph, features))
    }

    /// The embeddings of all nodes, type by type.
    fn of_all(&self, (graph, on_device): (&HeteroGraph, &DeviceGraph<B>), x: Vec<Tensor<B, 2>>) -> Result<Features> {
        let normalisation = Normalisation::of(graph, self.spec.causal, &self.device);
        let inputs = Inputs::new(on_device, &normalisation, x, self.chunk_rows);
        let z = self.model.embed(on_device, &ReceptiveField::all(on_device), &normalisation, &inputs);
        self.on_host(z, graph.num_nodes())
    }

    fn on_host(&self, z: Vec<Tensor<B, 2>>, count: usize) -> Result<Features> {
        let values = download(z);
        check_device()?;
        Ok(Features::from_f32(values, count, self.spec.output))
    }
}

/// Embeddings of Stage 1 where the graph grows: those of all nodes are read or made now and then, those of nodes that
/// come in between are made from what is around them.
#[derive(Debug)]
pub struct Growing<B: GraphBackend> {
    source: Source,
    /// Where an array is of.
    base: Vec<Weak<Adjacency>>,
    /// What makes others.
    stage1: Option<(Stage1, Encoder<B>)>,
    data: PathBuf,
}

impl<B: GraphBackend> Growing<B> {
    /// Those of a source, for `dataset`, which was read from `data`; `weights` are what the array of a source is from.
    ///
    /// # Errors
    /// Weights that cannot be read or do not fit the data.
    pub fn open(
        source: Source,
        weights: Option<PathBuf>,
        (dataset, data): (&Dataset, &Path),
        device: &B::Device,
    ) -> Result<Self> {
        let weights = match &source {
            Source::Weights(place) => Some(place.clone()),
            Source::Array(_) => weights,
        };
        let stage1 = weights.map(|place| {
            let stage1 = Stage1::open(&place)?;
            let encoder = stage1.encoder(dataset, data, device)?;
            Ok::<_, Error>((stage1, encoder))
        });
        Ok(Self { source, base: arrays_of(dataset), stage1: stage1.transpose()?, data: data.to_owned() })
    }

    /// How many edges from a new node its embedding looks; nothing where there are no weights for one.
    pub fn reach(&self) -> usize {
        self.stage1.as_ref().map_or(0, |(_, encoder)| encoder.reach())
    }

    /// How embeddings of nodes within so many steps of what is scored are made; nothing where they depend on degrees,
    /// which a part that is not whole does not tell.
    pub fn around(&self, within: usize) -> Option<Around> {
        let (_, encoder) = self.stage1.as_ref()?;
        encoder.spec.causal.then(|| Around { within, reach: encoder.reach() })
    }

    /// The embeddings of all nodes of `dataset`: the array of the training where this is what it was opened for, made
    /// anew otherwise.
    ///
    /// # Errors
    /// As for [`Source::read`]; other data where there are no weights.
    pub fn of_all(&self, dataset: &Dataset, device: &B::Device) -> Result<Features> {
        let now = arrays_of(dataset);
        let is_base = now.len() == self.base.len() && now.iter().zip(&self.base).all(|(a, b)| a.ptr_eq(b));
        match (&self.source, &self.stage1) {
            (Source::Array(_), Some((stage1, _))) if !is_base => {
                stage1.embed::<B>(dataset, &self.data, &Spill::default(), device)
            }
            (source, _) => source.read::<B>(dataset, &self.data, &Spill::default(), device),
        }
    }

    /// Embeddings of the nodes of a part that are at most so many edges from its targets, by global id; others have
    /// zeros.
    ///
    /// # Errors
    /// As for [`of_part`](Self::of_part).
    pub fn within(&self, edges: usize, part: &Part, all: &Features, uploaded: &Uploaded<B>) -> Result<Features> {
        let (nodes, count, dim) = (part.within(edges), part.refreshed.len(), all.dim());
        let z = self.of_part(part, all, Some(&nodes), uploaded)?;
        if nodes.len() == count {
            return Ok(z);
        }
        let mut rows = vec![0.0; count * dim];
        for (at, &node) in nodes.iter().enumerate() {
            let row = &mut rows[node as usize * dim..][..dim];
            row.iter_mut().zip(z.row(at)).for_each(|(value, known)| *value = known);
        }
        Ok(Features::from_f32(rows, count, dim))
    }

    /// Embeddings of some nodes of a part, in their order, or of all: rows of `all` for those that it has, of the part
    /// where they were made before, made for the others.
    ///
    /// # Errors
    /// New nodes where there are no weights; as for [`Stage1::embed`].
    pub fn of_part(
        &self,
        part: &Part,
        all: &Features,
        nodes: Option<&[u32]>,
        uploaded: &Uploaded<B>,
    ) -> Result<Features> {
        let nodes = nodes.map_or_else(|| Cow::Owned((0..part.refreshed.len() as u32).collect()), Cow::Borrowed);
        let known = |node: u32| {
            let row = part.refreshed[node as usize]? as usize;
            (row < all.num_rows()).then_some(row)
        };
        let kept = |node: u32| part.made.get(&node)?.get(Layer::Embedding);
        let is_new = |&node: &u32| known(node).is_none() && kept(node).is_none();
        let mut new: Vec<u32> = nodes.iter().copied().filter(is_new).collect();
        new.sort_unstable();
        new.dedup();
        let made = match (new.is_empty(), &self.stage1) {
            (true, _) => None,
            (false, Some((_, encoder))) => Some(encoder.embed(part, &self.data, &new, uploaded)?),
            (false, None) => {
                let help = "serve a run that keeps its Stage 1 (stage1/), as trainings of this version do, or a model \
                            that reads features";
                let expected = "weights of Stage 1, which makes the embedding of a new node";
                return Err(Error::format(self.source.place(), "embeddings", expected, "an array alone", help));
            }
        };
        for (at, node) in new.iter().enumerate() {
            if let (Some(made), Some(place)) = (&made, part.made.get(node)) {
                place.put(Layer::Embedding, &made.row(at).collect::<Vec<_>>());
            }
        }
        let mut rows = Vec::with_capacity(nodes.len() * all.dim());
        for &node in &*nodes {
            match (known(node), new.binary_search(&node), &made) {
                (Some(row), ..) => rows.extend(all.row(row)),
                (None, Ok(at), Some(made)) => rows.extend(made.row(at)),
                _ => rows.extend_from_slice(kept(node).unwrap_or_else(|| unreachable!("what is not new is known"))),
            }
        }
        Ok(Features::from_f32(rows, nodes.len(), all.dim()))
    }
}

/// The rows of the relations of some data, which tell them from any others as long as they are there.
fn arrays_of(dataset: &Dataset) -> Vec<Weak<Adjacency>> {
    dataset.graph.relations().iter().map(|relation| Arc::downgrade(&relation.forward)).collect()
}

/// The model's shape with streams and node types in the graph's order.
fn for_graph(spec: &AutoEncoderSpec, graph: &HeteroGraph, data: &Path) -> Result<AutoEncoderSpec> {
    let streams: Vec<String> = graph.streams().into_iter().map(String::from).collect();
    let node_types: Vec<String> = graph.node_types().iter().map(|t| t.name.clone()).collect();
    for (what, known, found) in [("streams", &spec.streams, &streams), ("node types", &spec.node_types, &node_types)] {
        if known.len() != found.len() || found.iter().any(|name| !known.contains(name)) {
            let expected = format!("{}, as the model was trained on", known.join(", "));
            let help = "give data with the node types and relations of the training";
            return Err(Error::format(data, what, expected, found.join(", "), help));
        }
    }
    Ok(AutoEncoderSpec { streams, node_types, ..spec.clone() })
}

/// Where the embeddings come from that a model of Stage 2 or 3 reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// An array with a row per node.
    Array(PathBuf),
    /// Weights of Stage 1: a run, or a checkpoint file.
    Weights(PathBuf),
}

/// What a run was trained on.
#[derive(Clone, Copy, Debug)]
pub struct TrainedOn<'a> {
    /// Its directory.
    pub run: &'a Path,
    /// Its data directory.
    pub data: &'a Path,
    /// The embeddings that its configuration names.
    pub embeddings: Option<&'a Path>,
}

impl TrainedOn<'_> {
    /// The weights that its embeddings, which are in `array`, come from, wherever they are at hand.
    fn weights(&self, array: &Path) -> Option<PathBuf> {
        let beside = array.parent().filter(|_| array.file_name().is_some_and(|name| name == EMBEDDINGS_FILE));
        let places = [Some(self.run.join(STAGE1_DIR)), beside.map(Path::to_path_buf)];
        places.into_iter().flatten().find(|place| is_run(place))
    }
}

impl Source {
    /// The source for the data in `data`: `given` by the user (a `.npy` file, or a run of Stage 1), else of the model's
    /// training. Other data than those that an array was made of have their embeddings computed, wherever the weights
    /// are at hand: in the run's own copy, or in the run that its embeddings are of.
    pub fn of(given: Option<&Path>, trained: Option<TrainedOn>, data: &Path) -> Self {
        if let Some(given) = given {
            let computes = is_run(given) && !data_of(given).is_some_and(|of| same(&of, data));
            return if computes { Source::Weights(given.into()) } else { Source::Array(embeddings_at(given)) };
        }
        let Some(trained) = trained else { return Source::Array(embeddings_at(data)) };
        let array = embeddings_at(trained.embeddings.unwrap_or(data));
        if array.is_file() && (trained.embeddings.is_none() || same(trained.data, data)) {
            return Source::Array(array);
        }
        trained.weights(&array).map_or(Source::Array(array), Source::Weights)
    }

    /// Of the embeddings of Stage 1 itself.
    pub fn of_stage1(run: &Path, data: &Path) -> Self {
        Self::of(Some(run), None, data)
    }

    /// The weights that an array of a model that was `trained` is from, where they are at hand.
    pub fn weights(&self, trained: Option<TrainedOn>) -> Option<PathBuf> {
        match self {
            Source::Weights(place) => Some(place.clone()),
            Source::Array(array) => trained.and_then(|trained| trained.weights(array)),
        }
    }

    /// Reads or computes the embeddings of `dataset`, which was read from `data`; and what they are from, for errors.
    ///
    /// # Errors
    /// An array that cannot be read or is not of this graph; as for [`Stage1::embed`].
    pub fn read<B: GraphBackend>(
        &self,
        dataset: &Dataset,
        data: &Path,
        spill: &Spill,
        device: &B::Device,
    ) -> Result<Features> {
        match self {
            Source::Array(file) => open_output(file, Some(dataset.graph.num_nodes())),
            Source::Weights(place) => Stage1::open(place)?.embed::<B>(dataset, data, spill, device),
        }
    }

    /// The file or directory.
    pub fn place(&self) -> &Path {
        match self {
            Source::Array(place) | Source::Weights(place) => place,
        }
    }
}

/// What a Stage-2 model of so many input columns starts from on other data than those of its training. `filling` is
/// what its run keeps for missing values.
///
/// # Errors
/// Features or embeddings that are missing, or of another width.
pub fn input_of<B: GraphBackend>(
    (input, source): (Stage2Input, &Source),
    filling: Option<&Filling>,
    dataset: &Dataset,
    data: &Path,
    width: usize,
    (spill, device): (&Spill, &B::Device),
) -> Result<Features> {
    match input {
        Stage2Input::Features => {
            let data = crate::config::Stage2Data { path: data.to_path_buf(), window: 1, input, embeddings: None };
            input_features(&data, dataset, filling, Some(width))
        }
        Stage2Input::Embeddings => {
            let z = source.read::<B>(dataset, data, spill, device)?;
            check_width(source.place(), z.dim(), Some(width))?;
            Ok(z)
        }
    }
}

/// Whether a place is a run with weights, rather than a directory with an array alone.
fn is_run(place: &Path) -> bool {
    place.join("checkpoint").join("best.bpk").is_file()
}

/// The data that a run was trained on, where it says so.
fn data_of(run: &Path) -> Option<PathBuf> {
    RunConfig::load_kept(&run.join("config.toml"), &[]).ok().map(|config| config.data_path().to_path_buf())
}

/// Whether two paths lead to one place.
fn same(a: &Path, b: &Path) -> bool {
    match (a.canonicalize(), b.canonicalize()) {
        (Ok(a), Ok(b)) => a == b,
        _ => a == b,
    }
}
