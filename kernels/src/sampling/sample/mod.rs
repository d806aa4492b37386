//! Neighbour sampling on a device: the draws of a sampler on the host, to the bit.
//!
//! [`distinct`] and [`repeated`] say what is drawn, where it is not the last entries of a row; the kernels repeat them.
//! Adjacencies lie in device memory, or in page-locked
//! host memory that the kernels read. All relations of a layer are sampled by the same few launches, and the host reads
//! the numbers of nodes and entries once per layer. What was sampled stays on the device: a [`PackedSample`] is one
//! array of integers and one matrix of features for a batch.

#[cfg(feature = "cube")]
pub(crate) mod args;
#[cfg(feature = "cube")]
pub(crate) mod kernel;
#[cfg(feature = "cube")]
mod launch;
mod pack;
mod rule;
pub(crate) mod table;

pub use pack::{PackedSample, SampledCsr};
pub use rule::{below, distinct, hash, repeated};

use std::fmt;

use burn::tensor::ops::IntTensor;
use burn::tensor::{DType, Int, Tensor};

use crate::DropEdge;
use crate::runtime::check;
use crate::runtime::host::index_tensor;
use crate::sampling::backend::{DrawKinds, LayerParts, LayerStep, SampleBackend, Spans, Words};
use crate::sampling::row_buffer::PinnedRows;
use table::{relation, span};

/// Most neighbours of a node that a device draws: they are kept in order by insertion.
pub const MAX_FANOUT: u32 = 64;

/// How the neighbours of a node are drawn.
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
    /// What the draws are hashed under.
    pub key: u64,
    /// Which of the edges that were drawn are left out.
    pub drop_edge: Option<DropEdge>,
}

/// The adjacency of one relation, to sample from: rows are destinations, entries are sources.
#[derive(Clone, Copy, Debug)]
pub struct SampleRelation<'a> {
    /// Node type of the sources.
    pub src: usize,
    /// Node type of the destinations.
    pub dst: usize,
    /// A row per node of the type `dst`.
    pub rows: SampleRows<'a>,
    /// Nodes of the type `src`.
    pub col_idx: &'a [u32],
}

/// Where the rows of a relation stand among its entries.
#[derive(Clone, Copy, Debug)]
pub enum SampleRows<'a> {
    /// `[rows + 1]`: row `i` is `row_ptr[i]..row_ptr[i + 1]`.
    Lists(&'a [u64]),
    /// Row `i` is `start[i]..end[i]`, and rows may share entries.
    Spans { start: &'a [u64], end: &'a [u64] },
}

impl<'a> SampleRows<'a> {
    /// The numbers that a device holds.
    fn parts(self) -> [&'a [u64]; 2] {
        match self {
            SampleRows::Lists(row_ptr) => [row_ptr, &[]],
            SampleRows::Spans { start, end } => [start, end],
        }
    }

    fn words(self) -> usize {
        self.parts().iter().map(|part| part.len()).sum()
    }

    /// The number of rows, and the entries of the longest, of spans.
    fn spans(self) -> Option<(usize, usize)> {
        let SampleRows::Spans { start, end } = self else { return None };
        let longest = start.iter().zip(end).map(|(start, end)| end - start).max();
        Some((start.len(), longest.unwrap_or(0) as usize))
    }
}

/// Words of all relations, one relation behind the other. The CPU reads none of them.
#[cfg_attr(not(feature = "cube"), allow(dead_code))]
enum Stored<B: SampleBackend> {
    Device(IntTensor<B>),
    /// One word per row: bits of integers.
    Pinned(PinnedRows<B>),
}

impl<B: SampleBackend> Stored<B> {
    fn new<T: Copy>(parts: &[&[T]], word: impl Fn(T) -> u32, pinned: bool, device: &B::Device) -> Result<Self, String> {
        let all = || parts.iter().flat_map(|part| part.iter().map(|&value| word(value)));
        if pinned {
            let len = parts.iter().map(|part| part.len()).sum::<usize>().max(1);
            let fill = |bytes: &mut [u8]| {
                bytes.chunks_exact_mut(4).zip(all()).for_each(|(to, word)| to.copy_from_slice(&word.to_ne_bytes()));
            };
            return Ok(Stored::Pinned(PinnedRows::new([len, 1], DType::F32, device, fill)?));
        }
        Ok(Stored::Device(index_tensor::<B>(all().map(|word| word as i32).collect(), device)))
    }

    /// As kernels read them.
    fn words(&self) -> Words<IntTensor<B>> {
        match self {
            Stored::Device(words) => Words { anchor: words.clone(), delta: 0, pinned: false },
            Stored::Pinned(rows) => Words { anchor: rows.anchor().clone(), delta: rows.delta(), pinned: true },
        }
    }
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
}

/// Samples batches of a typed graph on a device. The nodes of a batch are listed once, in the order of their first
/// edge.
///
/// Edges are drawn, and nodes found that are new, by kernels; the host reads the counts once per layer. A draw is a
/// hash of key and node, so that host, device and place of the adjacency make no difference.
pub struct DeviceSampler<B: SampleBackend> {
    row_ptr: Stored<B>,
    col_idx: Stored<B>,
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
    /// A sampler of relations between types of so many nodes. With `pinned` the adjacencies lie in page-locked host
    /// memory.
    ///
    /// # Errors
    /// Says why the device cannot sample: there are no kernels, memory cannot be page-locked, or there are too many
    /// nodes or entries.
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
        let words = |of: fn(&SampleRelation<'_>) -> usize| relations.iter().map(of).sum::<usize>();
        let entries = words(|r| r.col_idx.len()).max(words(|r| r.rows.words()));
        if entries > u32::MAX as usize {
            return Err(format!("{entries} entries of all relations; a device samples from fewer than 2^32"));
        }
        let (mut row_ptr, mut col_idx, mut base) = (0, 0, 0);
        let shape = |r: &SampleRelation<'_>| Shape {
            src: r.src,
            dst: r.dst,
            num_entries: r.col_idx.len(),
            spans: r.rows.spans(),
            row_ptr: advance(&mut row_ptr, r.rows.words()) as u32,
            col_idx: advance(&mut col_idx, r.col_idx.len()) as u32,
        };
        let shapes = relations.iter().map(shape).collect();
        let row_ptrs: Vec<&[u64]> = relations.iter().flat_map(|r| r.rows.parts()).collect();
        let col_idxs: Vec<&[u32]> = relations.iter().map(|r| r.col_idx).collect();
        let nowhere = || index_tensor::<B>(vec![NOWHERE as i32; nodes], device);
        Ok(Self {
            row_ptr: Stored::new(&row_ptrs, |at| at as u32, pinned, device)?,
            col_idx: Stored::new(&col_idxs, |source| source, pinned, device)?,
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
    /// If there is not a list of seeds per type, a seed does not exist, or a fanout is 0 or above [`MAX_FANOUT`];
    /// without a fanout, if rows that are spans could give a layer 2^32 entries.
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
        for draw in draws.iter().flatten() {
            if let Some(fanout) = draw.fanout {
                assert!((1..=MAX_FANOUT).contains(&fanout), "{OP}: fanout: expected 1 to {MAX_FANOUT}, got {fanout}");
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
        DeviceSample { nodes, lists, counts, layers: sampled, spans, first, before, device: self.device.clone() }
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
        let all_of_spans = self.relations.iter().zip(draws).filter(|(_, draw)| draw.fanout.is_none());
        let all_of_spans = all_of_spans.filter_map(|(of, _)| Some(before[of.dst].saturating_mul(of.spans?.1)));
        let entries = all_of_spans.fold(0, usize::saturating_add);
        assert!(
            entries <= u32::MAX as usize,
            "DeviceSampler::sample: fanout: expected fewer than 2^32 entries of all spans, got up to {entries}"
        );
        let most = self.relations.iter().zip(draws).map(|(of, draw)| Some(before[of.dst] * draw.fanout? as usize));
        let mut step = LayerStep {
            row_ptr: self.row_ptr.words(),
            col_idx: self.col_idx.words(),
            table: table(&none),
            relations: self.relations.len(),
            rows,
            most: most.sum(),
            kinds: DrawKinds {
                replace: draws.iter().any(|draw| draw.replace),
                latest: draws.iter().any(|draw| draw.latest),
                spans: self.relations.iter().any(|of| of.spans.is_some()),
            },
            drops: draws.iter().any(|draw| draw.drop_edge.is_some()),
            nodes: nodes.clone(),
            places: self.places[turn].clone(),
        };
        let parts = B::sample_layer(step.clone());
        let counts = read::<B>(&parts.counts, 2 * self.relations.len());
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
        let long_rows = draws.iter().any(|draw| draw.fanout.is_none());
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

/// The first words of an array.
fn read<B: SampleBackend>(words: &IntTensor<B>, len: usize) -> Vec<u32> {
    if len == 0 {
        return Vec::new();
    }
    let words = Tensor::<B, 1, Int>::from_primitive(words.clone()).narrow(0, 0, len).into_data().convert::<i32>();
    let words: Vec<i32> = words.into_vec().expect("i32 after convert");
    words.into_iter().map(|word| word as u32).collect()
}

/// A sampled batch on the device.
pub struct DeviceSample<B: SampleBackend> {
    nodes: IntTensor<B>,
    /// Where the nodes of every type are listed.
    lists: Vec<usize>,
    /// `[layer + 1][type]`: how many nodes there are before the layer and, last, after all of them.
    pub counts: Vec<Vec<usize>>,
    layers: Vec<SampledLayer<B>>,
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
        let all =
            read::<B>(&self.nodes, self.lists.iter().zip(&last).map(|(list, count)| list + count).max().unwrap_or(0));
        self.lists.iter().zip(last).map(|(&list, count)| all[list..list + count].to_vec()).collect()
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
            let starts = read::<B>(&parts.starts, rows + 1);
            let [cols, edges] = [&parts.cols, &parts.edges].map(|words| read::<B>(words, entries));
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
