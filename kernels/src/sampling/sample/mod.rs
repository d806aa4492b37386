//! Neighbour sampling on a device: the draws of a sampler on the host, to the bit.
//!
//! The functions of `rule` say what is drawn, where it is not the last entries of a row; the kernels repeat them.
//! Adjacencies lie in device memory, or in page-locked host memory that the kernels read. All relations of a layer are
//! sampled by the same few launches, and the host reads the numbers of nodes and entries once per layer. What was
//! sampled stays on the device: a [`PackedSample`] is one array of words, with the values of its edges, and one matrix
//! of features for a batch.

mod adjacency;
#[cfg(feature = "cube")]
pub(crate) mod args;
#[cfg_attr(not(feature = "cube"), allow(dead_code))]
mod doubles;
#[cfg(feature = "cube")]
pub(crate) mod kernel;
#[cfg(feature = "cube")]
mod launch;
mod pack;
#[cfg(feature = "cube")]
mod plane_draw;
mod rule;
pub(crate) mod table;

pub use adjacency::{SampleRelation, SampleRows, SampleValues, SampleWeights};
pub use pack::{PackedSample, SampledCsr};
pub use rule::{below, distinct, hash, repeated, repeated_by_weight, smallest, weighted_key};

use std::fmt;
use std::sync::Arc;

use burn::tensor::ops::IntTensor;
use burn::tensor::{DType, Int, Tensor};

use crate::DropEdge;
use crate::graph::csr::LONG_ROW;
use crate::runtime::check;
use crate::runtime::host::{index_tensor, words_to_host};
use crate::sampling::backend::{DrawKinds, LayerParts, LayerStep, SampleBackend, Spans};
use adjacency::{Stored, StoredValues, StoredWeights, available};
use table::{relation, span};

/// Most neighbours of a node that a device draws: a plane keeps them in the memory that its threads share.
pub const MAX_FANOUT: u32 = 1024;

/// Most neighbours that a thread draws alone, which keeps them in order by insertion.
const THREAD_FANOUT: u32 = 64;

/// How the neighbours of a node are drawn: all alike, or by the weights that a relation has. Entries of weight 0 are
/// never taken, others in proportion to their weight; without replacement one after the other among those that are
/// left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeDraw {
    /// At most so many, or as many as there are.
    pub fanout: Option<u32>,
    /// Whether a neighbour can be drawn more than once; then a node with any gives as many as the fanout. The same for
    /// all relations of a layer.
    pub replace: bool,
    /// Whether the last entries of a row are taken instead of drawn ones, in the order of the row: where entries stand
    /// in the order of time, the latest. Each is taken once, also where others are drawn with `replace`.
    pub latest: bool,
    /// Whether an entry is drawn by a variate of its source, the hash of key and source, which is the same for all
    /// rows: the smallest of a row are taken, without replacement. The same for all relations of a layer.
    pub by_source: bool,
    /// What the draws are hashed under.
    pub key: u64,
    /// Which of the edges that were drawn are left out.
    pub drop_edge: Option<DropEdge>,
}

/// A relation as far as the host knows it.
#[derive(Clone, Copy, Debug)]
struct Shape {
    src: usize,
    dst: usize,
    num_entries: usize,
    /// Of spans the number of rows, and the entries of the longest.
    spans: Option<(usize, usize)>,
    /// Where its words begin among those of all relations.
    row_ptr: u32,
    col_idx: u32,
    weights: Option<ShapeWeights>,
}

/// Where the weights of a relation begin among those of all, and behind its row pointers the numbers of entries with a
/// positive one.
#[derive(Clone, Copy, Debug)]
struct ShapeWeights {
    available: u32,
    first: u32,
    replace: bool,
}

impl Shape {
    /// Whether planes draw the entries of its rows.
    fn by_plane(&self, draw: &NodeDraw) -> bool {
        let by_plane = |fanout: u32| draw.by_source || fanout > THREAD_FANOUT;
        !draw.latest && (self.weights.is_some() || draw.fanout.is_some_and(by_plane))
    }
}

/// Samples batches of a typed graph on a device. The nodes of a batch are listed once, in the order of their first
/// edge.
///
/// Edges are drawn, and nodes found that are new, by kernels; the host reads the counts once per layer. A draw is a
/// hash of key and node, so that host, device and place of the adjacency make no difference.
pub struct DeviceSampler<B: SampleBackend> {
    row_ptr: Stored<B>,
    col_idx: Stored<B>,
    weights: Option<StoredWeights<B>>,
    /// `[relation]`; a sample keeps them until it is packed.
    values: Vec<Option<Arc<StoredValues<B>>>>,
    relations: Vec<Shape>,
    node_counts: Vec<usize>,
    /// The first node of every type among all nodes.
    bases: Vec<usize>,
    /// `[all nodes]`, of this batch and of the one before, in turn: the place of every node of the batch, none of
    /// others.
    places: [IntTensor<B>; 2],
    /// The batch that either knows.
    listed: [Option<Listed<IntTensor<B>>>; 2],
    turn: usize,
    device: B::Device,
}

/// The nodes of a batch.
#[derive(Clone, Debug)]
struct Listed<I> {
    spans: Spans<I>,
    nodes: I,
    /// Where the rows of every type begin.
    first: Vec<usize>,
}

impl<B: SampleBackend> fmt::Debug for DeviceSampler<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = if matches!(self.col_idx, Stored::Pinned(_)) { "host" } else { "device" };
        let entries: usize = self.relations.iter().map(|r| r.num_entries).sum();
        write!(f, "DeviceSampler({} relations, {entries} entries, {place})", self.relations.len())
    }
}

/// Stands for a node that is not in the batch.
pub(crate) const NOWHERE: u32 = u32::MAX;
/// Added to the number of the entry that asks for a place.
pub(crate) const ASKED: u32 = 1 << 30;

/// Rows of a type begin at a multiple of so many: every device binds a matrix that begins there.
const ROW_ALIGNMENT: usize = 128;

/// Where the next `by` of something begin; `end` is where they end.
fn advance(end: &mut usize, by: usize) -> usize {
    std::mem::replace(end, *end + by)
}

/// Where the rows of types of so many rows begin, and where they end.
fn row_starts(counts: &[usize]) -> (Vec<usize>, usize) {
    let mut end = 0;
    let first = counts.iter().map(|count| advance(&mut end, count.next_multiple_of(ROW_ALIGNMENT))).collect();
    (first, end)
}

impl<B: SampleBackend> DeviceSampler<B> {
    /// A sampler of relations between types of so many nodes. With `pinned` the adjacencies, and weights and values of
    /// their entries, lie in page-locked host memory.
    ///
    /// # Errors
    /// Says why the device cannot sample: there are no kernels, or none for draws by these weights, memory cannot be
    /// page-locked, or there are too many nodes or entries.
    ///
    /// # Panics
    /// If a relation has another number of weights or values than its entries take.
    pub fn new(
        relations: &[SampleRelation<'_>],
        node_counts: &[usize],
        pinned: bool,
        device: &B::Device,
    ) -> Result<Self, String> {
        if !B::SAMPLES {
            return Err("the CPU samples on the host".into());
        }
        let nodes: usize = node_counts.iter().sum();
        if nodes >= ASKED as usize {
            return Err(format!("{nodes} nodes; a device samples from fewer than 2^30"));
        }
        let weights = StoredWeights::new(relations, pinned, device)?;
        let available: Vec<Vec<u64>> =
            relations.iter().map(|r| r.weights.map_or(Vec::new(), |weights| available(r.rows, weights))).collect();
        let words = |of: fn(&SampleRelation<'_>) -> usize| relations.iter().map(of).sum::<usize>();
        let rows = words(|r| r.rows.words()) + available.iter().map(Vec::len).sum::<usize>();
        let entries = words(|r| r.col_idx.len()).max(rows);
        if entries > u32::MAX as usize {
            return Err(format!("{entries} entries of all relations; a device samples from fewer than 2^32"));
        }
        let (mut row_ptr, mut col_idx, mut weight, mut base) = (0, 0, 0, 0);
        let shape = |(r, available): (&SampleRelation<'_>, &Vec<u64>)| Shape {
            src: r.src,
            dst: r.dst,
            num_entries: r.col_idx.len(),
            spans: r.rows.spans(),
            row_ptr: advance(&mut row_ptr, r.rows.words()) as u32,
            col_idx: advance(&mut col_idx, r.col_idx.len()) as u32,
            weights: r.weights.map(|weights| ShapeWeights {
                available: advance(&mut row_ptr, available.len()) as u32,
                first: advance(&mut weight, weights.weights.len()) as u32,
                replace: weights.replace,
            }),
        };
        let shapes = relations.iter().zip(&available).map(shape).collect();
        let row_ptrs = relations.iter().zip(&available).flat_map(|(r, available)| {
            let [first, second] = r.rows.parts();
            [first, second, available]
        });
        let row_ptrs: Vec<&[u64]> = row_ptrs.collect();
        let col_idxs: Vec<&[u32]> = relations.iter().map(|r| r.col_idx).collect();
        let values = |r: &SampleRelation<'_>| Ok(StoredValues::new(r, pinned, device)?.map(Arc::new));
        let nowhere = || index_tensor::<B>(vec![NOWHERE as i32; nodes], device);
        Ok(Self {
            row_ptr: Stored::new(&row_ptrs, |at| at as u32, pinned, device)?,
            col_idx: Stored::new(&col_idxs, |source| source, pinned, device)?,
            weights,
            values: relations.iter().map(values).collect::<Result<_, String>>()?,
            relations: shapes,
            bases: node_counts.iter().map(|&count| advance(&mut base, count)).collect(),
            node_counts: node_counts.to_vec(),
            places: [nowhere(), nowhere()],
            listed: [None, None],
            turn: 0,
            device: device.clone(),
        })
    }

    /// Samples around distinct `seeds`, numbered within their types. `draw` says how each relation of each layer is
    /// sampled; the layer next to the seeds is number 0. `reversed` says which layers are needed from their sources,
    /// too.
    ///
    /// # Panics
    /// If there is not a list of seeds per type, a seed does not exist, a fanout is 0 or above [`MAX_FANOUT`],
    /// relations have weights for other draws, or rows that share or repeat entries could give a layer 2^32 of them.
    pub fn sample(
        &mut self,
        seeds: &[Vec<u32>],
        layers: usize,
        draw: impl Fn(usize, usize) -> NodeDraw,
        reversed: impl Fn(usize) -> bool,
    ) -> DeviceSample<B> {
        const OP: &str = "DeviceSampler::sample";
        let types = self.node_counts.len();
        check::size(OP, "lists of seeds", types, seeds.len());
        for (seeds, &count) in seeds.iter().zip(&self.node_counts) {
            if let Some(seed) = seeds.iter().find(|&&seed| seed as usize >= count) {
                panic!("{OP}: seeds: expected nodes below {count}, got {seed}");
            }
        }
        let draws: Vec<Vec<NodeDraw>> =
            (0..layers).map(|layer| (0..self.relations.len()).map(|at| draw(layer, at)).collect()).collect();
        for (of, draw) in draws.iter().flat_map(|draws| self.relations.iter().zip(draws)) {
            if let Some(fanout) = draw.fanout {
                assert!((1..=MAX_FANOUT).contains(&fanout), "{OP}: fanout: expected 1 to {MAX_FANOUT}, got {fanout}");
            }
            assert!(!(draw.replace && draw.by_source), "{OP}: replace: expected false for variates of sources");
            if let Some(weights) = of.weights {
                assert!(!draw.latest, "{OP}: latest: expected false for a relation with weights");
                assert!(weights.replace || !draw.replace, "{OP}: replace: expected weights that are meant for it");
            }
        }
        let turn = self.turn;
        self.turn = 1 - turn;
        if let Some(old) = self.listed[turn].take() {
            B::forget_places(&old.spans, &old.nodes, &self.places[turn]);
        }
        let mut counts = vec![seeds.iter().map(Vec::len).collect::<Vec<_>>()];
        let (lists, room) = self.lists(&counts[0], &draws);
        let nodes = index_room::<B>(room, &self.device);
        self.place(seeds, &lists, &nodes, turn);
        let mut sampled = Vec::with_capacity(layers);
        for (layer, draws) in draws.iter().enumerate() {
            let (of_layer, after) = self.layer(&counts[layer], draws, &lists, &nodes, turn, reversed(layer));
            sampled.push(of_layer);
            counts.push(after);
        }
        let (first, rows) = row_starts(&counts[layers]);
        let before = self.listed[1 - turn].as_ref().map(|listed| (self.places[1 - turn].clone(), listed.first.clone()));
        let none = vec![0; types];
        let of_before = before.as_ref().map_or(&none, |(_, first)| first);
        let spans = self.spans(&counts[layers], &first, rows, &lists, of_before);
        self.listed[turn] = Some(Listed { spans: spans.clone(), nodes: nodes.clone(), first: first.clone() });
        let before = before.map(|(places, _)| places);
        let (values, device) = (self.values.clone(), self.device.clone());
        DeviceSample { nodes, lists, counts, layers: sampled, values, spans, first, before, device }
    }

    /// Where the nodes of every type are listed: there is room for as many as there can be.
    fn lists(&self, seeds: &[usize], draws: &[Vec<NodeDraw>]) -> (Vec<usize>, usize) {
        let mut most = seeds.to_vec();
        for draws in draws {
            let before = most.clone();
            for (of, draw) in self.relations.iter().zip(draws) {
                let found = match draw.fanout {
                    Some(fanout) => (before[of.dst] * fanout as usize).min(of.num_entries),
                    None => of.num_entries,
                };
                most[of.src] = (most[of.src] + found).min(self.node_counts[of.src]);
            }
        }
        let mut end = 0;
        (most.iter().map(|&most| advance(&mut end, most)).collect(), end)
    }

    fn spans(
        &self,
        counts: &[usize],
        first: &[usize],
        rows: usize,
        lists: &[usize],
        before: &[usize],
    ) -> Spans<IntTensor<B>> {
        let words = (0..counts.len()).flat_map(|t| {
            let mut words = [0; span::WORDS as usize];
            let mut set = |field: u32, value: usize| words[field as usize] = value as i32;
            set(span::FIRST, first[t]);
            set(span::ROWS, counts[t]);
            set(span::LIST, lists[t]);
            set(span::BASE, self.bases[t]);
            set(span::BEFORE, before[t]);
            words
        });
        Spans { table: index_tensor::<B>(words.collect(), &self.device), types: counts.len(), rows }
    }

    /// Lists the seeds.
    fn place(&self, seeds: &[Vec<u32>], lists: &[usize], nodes: &IntTensor<B>, turn: usize) {
        let counts: Vec<usize> = seeds.iter().map(Vec::len).collect();
        let (first, rows) = row_starts(&counts);
        if rows == 0 {
            return;
        }
        let mut words = vec![0; rows];
        for (seeds, &first) in seeds.iter().zip(&first) {
            words[first..first + seeds.len()].iter_mut().zip(seeds).for_each(|(word, &seed)| *word = seed as i32);
        }
        let spans = self.spans(&counts, &first, rows, lists, &vec![0; counts.len()]);
        B::place_seeds(&spans, index_tensor::<B>(words, &self.device), nodes, &self.places[turn]);
    }

    /// Samples one layer; also the number of nodes of every type after it.
    fn layer(
        &self,
        before: &[usize],
        draws: &[NodeDraw],
        lists: &[usize],
        nodes: &IntTensor<B>,
        turn: usize,
        reversed: bool,
    ) -> (SampledLayer<B>, Vec<usize>) {
        let mut rows = 0;
        let first_rows: Vec<usize> = self.relations.iter().map(|of| advance(&mut rows, before[of.dst])).collect();
        let shapes = |edges: &[usize], after: &[usize]| -> Vec<SampledShape> {
            let (mut first_edge, mut first_col) = (0, 0);
            let of = self.relations.iter().zip(&first_rows).zip(edges);
            of.map(|((of, &first_row), &edges)| SampledShape {
                src: of.src,
                dst: of.dst,
                rows: before[of.dst],
                cols: after[of.src],
                edges,
                first_row,
                first_edge: advance(&mut first_edge, edges),
                first_col: advance(&mut first_col, after[of.src]),
            })
            .collect()
        };
        let table = |shapes: &[SampledShape]| {
            let words = self
                .relations
                .iter()
                .zip(draws)
                .zip(shapes)
                .flat_map(|((of, draw), shape)| self.relation_words(of, draw, shape, before, lists));
            index_tensor::<B>(words.collect(), &self.device)
        };
        let none = shapes(&vec![0; self.relations.len()], before);
        if rows == 0 || self.relations.iter().all(|of| of.num_entries == 0) {
            return (SampledLayer { shapes: none, parts: None, reverse: None, long_rows: false }, before.to_vec());
        }
        // Lists have each of their entries once, unless they are drawn with replacement.
        let again = |(of, draw): (&Shape, &NodeDraw)| match (of.spans, draw.fanout) {
            (Some((_, longest)), None) => before[of.dst].saturating_mul(longest),
            (spans, Some(fanout)) if spans.is_some() || draw.replace => before[of.dst] * fanout as usize,
            _ => 0,
        };
        let entries = self.relations.iter().zip(draws).map(again).fold(0, usize::saturating_add);
        assert!(
            entries <= u32::MAX as usize,
            "DeviceSampler::sample: fanout: expected fewer than 2^32 entries of a layer, got up to {entries}"
        );
        // Of high fanouts rows have far fewer: then the number of entries is read.
        let low = |draw: &NodeDraw| draw.fanout.filter(|fanout| *fanout <= THREAD_FANOUT);
        let most = self.relations.iter().zip(draws).map(|(of, draw)| Some(before[of.dst] * low(draw)? as usize));
        let by_plane = self.relations.iter().zip(draws).filter(|(of, draw)| of.by_plane(draw));
        let planes = by_plane.map(|(_, draw)| draw.fanout.unwrap_or(1)).max();
        let mut step = LayerStep {
            row_ptr: self.row_ptr.words(),
            col_idx: self.col_idx.words(),
            weights: self.weights.as_ref().map(StoredWeights::words),
            plane_room: planes.map(|fanout| fanout.max(THREAD_FANOUT).next_power_of_two() as usize),
            table: table(&none),
            relations: self.relations.len(),
            rows,
            most: most.sum(),
            kinds: DrawKinds {
                replace: draws.iter().any(|draw| draw.replace),
                latest: draws.iter().any(|draw| draw.latest),
                spans: self.relations.iter().any(|of| of.spans.is_some()),
                weighted: self.weights.is_some(),
                by_source: draws.iter().any(|draw| draw.by_source),
                planes: planes.is_some(),
            },
            drops: draws.iter().any(|draw| draw.drop_edge.is_some()),
            nodes: nodes.clone(),
            places: self.places[turn].clone(),
        };
        let parts = B::sample_layer(step.clone());
        let counts = words_to_host::<B>(&parts.counts, 0..2 * self.relations.len());
        let (mut after, mut edges) = (before.to_vec(), Vec::with_capacity(self.relations.len()));
        for (of, counts) in self.relations.iter().zip(counts.chunks(2)) {
            after[of.src] += counts[0] as usize;
            edges.push(counts[1] as usize);
        }
        let shapes = shapes(&edges, &after);
        let num_edges: usize = edges.iter().sum();
        let reverse = (reversed && num_edges > 0).then(|| {
            step.table = table(&shapes);
            B::reverse_layer(&step, &parts, shapes.iter().map(|shape| shape.cols).sum())
        });
        let long_rows = draws.iter().any(|draw| draw.fanout.is_none_or(|fanout| fanout as usize > LONG_ROW));
        (SampledLayer { shapes, parts: Some(parts), reverse, long_rows }, after)
    }

    fn relation_words(
        &self,
        of: &Shape,
        draw: &NodeDraw,
        shape: &SampledShape,
        before: &[usize],
        lists: &[usize],
    ) -> [i32; relation::WORDS as usize] {
        let mut words = [0; relation::WORDS as usize];
        let mut set = |field: u32, value: u32| words[field as usize] = value as i32;
        set(relation::FIRST_ROW, shape.first_row as u32);
        set(relation::ROWS, shape.rows as u32);
        set(relation::DST_LIST, lists[of.dst] as u32);
        set(relation::SRC_LIST, lists[of.src] as u32);
        set(relation::SRC_BASE, self.bases[of.src] as u32);
        set(relation::SRC_TYPE, of.src as u32);
        set(relation::SRC_KNOWN, before[of.src] as u32);
        set(relation::ROW_PTR, of.row_ptr);
        set(relation::COL_IDX, of.col_idx);
        set(relation::FANOUT, draw.fanout.unwrap_or(0));
        set(relation::KEY_HIGH, (draw.key >> 32) as u32);
        set(relation::KEY_LOW, draw.key as u32);
        if let Some(drop) = draw.drop_edge {
            set(relation::DROP_KEY0, drop.key0);
            set(relation::DROP_KEY1, drop.key1);
            set(relation::DROP_THRESHOLD, drop.threshold);
            set(relation::DROP_ROW_BASE, drop.row_base);
            set(relation::DROP_COL_BASE, drop.col_base);
        }
        set(relation::FIRST_COL, shape.first_col as u32);
        set(relation::ENDS, of.spans.map_or(1, |(rows, _)| rows) as u32);
        set(relation::LATEST, u32::from(draw.latest));
        set(relation::BY_PLANE, u32::from(of.by_plane(draw)));
        if let Some(weights) = of.weights {
            set(relation::WEIGHTED, 1);
            set(relation::WEIGHTS, weights.first);
            set(relation::AVAILABLE, weights.available);
        }
        words
    }
}

/// Room for so many words.
fn index_room<B: SampleBackend>(words: usize, device: &B::Device) -> IntTensor<B> {
    Tensor::<B, 1, Int>::empty([words.max(1)], (device, DType::I32)).into_primitive()
}

/// Sizes of one relation in a sampled layer.
#[derive(Clone, Copy, Debug)]
struct SampledShape {
    src: usize,
    dst: usize,
    rows: usize,
    cols: usize,
    edges: usize,
    /// Where its rows, entries and columns begin among those of the layer.
    first_row: usize,
    first_edge: usize,
    first_col: usize,
}

/// A sampled layer on the device.
#[derive(Clone, Debug)]
struct SampledLayer<B: SampleBackend> {
    shapes: Vec<SampledShape>,
    /// None without rows or entries to draw from.
    parts: Option<LayerParts<IntTensor<B>>>,
    /// Where the entries of every column begin, and their destinations.
    reverse: Option<[IntTensor<B>; 2]>,
    /// Whether rows may be long.
    long_rows: bool,
}

/// One relation of a sampled layer on the host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SampledRelation {
    /// Where the entries of each row begin.
    pub row_ptr: Vec<u32>,
    /// The source of each entry by its place in the batch.
    pub cols: Vec<u32>,
    /// The number of each entry among those that the relation stores.
    pub edges: Vec<u32>,
}

/// A sampled batch on the device.
pub struct DeviceSample<B: SampleBackend> {
    nodes: IntTensor<B>,
    /// Where the nodes of every type are listed.
    lists: Vec<usize>,
    /// `[layer + 1][type]`: how many nodes there are before the layer and, last, after all of them.
    pub counts: Vec<Vec<usize>>,
    layers: Vec<SampledLayer<B>>,
    /// `[relation]`: of all its entries.
    values: Vec<Option<Arc<StoredValues<B>>>>,
    pub(crate) spans: Spans<IntTensor<B>>,
    /// Where the rows of every type begin.
    first: Vec<usize>,
    /// The places of the nodes of the batch before.
    pub(crate) before: Option<IntTensor<B>>,
    device: B::Device,
}

impl<B: SampleBackend> fmt::Debug for DeviceSample<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeviceSample({} layers, {} edges)", self.layers.len(), self.num_edges())
    }
}

impl<B: SampleBackend> DeviceSample<B> {
    pub(crate) fn nodes(&self) -> &IntTensor<B> {
        &self.nodes
    }

    /// `[type]`: distinct nodes, the seeds first.
    pub fn nodes_to_host(&self) -> Vec<Vec<u32>> {
        let last = self.counts.last().cloned().unwrap_or_default();
        // There is room between the lists.
        self.lists.iter().zip(last).map(|(&list, count)| words_to_host::<B>(&self.nodes, list..list + count)).collect()
    }

    /// `[layer][relation]`, the layer next to the seeds first.
    pub fn blocks_to_host(&self) -> Vec<Vec<SampledRelation>> {
        let block = |layer: &SampledLayer<B>| -> Vec<SampledRelation> {
            let Some(parts) = &layer.parts else {
                let empty =
                    |shape: &SampledShape| SampledRelation { row_ptr: vec![0; shape.rows + 1], ..Default::default() };
                return layer.shapes.iter().map(empty).collect();
            };
            let rows = layer.shapes.iter().map(|shape| shape.rows).sum::<usize>();
            let entries = layer.shapes.iter().map(|shape| shape.edges).sum::<usize>();
            let starts = words_to_host::<B>(&parts.starts, 0..rows + 1);
            let [cols, edges] = [&parts.cols, &parts.edges].map(|words| words_to_host::<B>(words, 0..entries));
            let of_shape = |shape: &SampledShape| {
                let of = shape.first_edge..shape.first_edge + shape.edges;
                let starts = &starts[shape.first_row..=shape.first_row + shape.rows];
                SampledRelation {
                    row_ptr: starts.iter().map(|start| start - starts[0]).collect(),
                    cols: cols[of.clone()].to_vec(),
                    edges: edges[of].to_vec(),
                }
            };
            layer.shapes.iter().map(of_shape).collect()
        };
        self.layers.iter().map(block).collect()
    }

    /// Number of sampled edges.
    pub fn num_edges(&self) -> usize {
        self.layers.iter().flat_map(|layer| &layer.shapes).map(|shape| shape.edges).sum()
    }
}
