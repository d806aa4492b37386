//! Neighbour sampling on a device: the draws of a sampler on the host, to the bit.
//!
//! [`distinct`] and [`repeated`] say what is drawn; the kernels repeat them. An adjacency lies in device memory, or in page-locked
//! host memory that the kernels read.

#[cfg(feature = "cube")]
mod kernel;
#[cfg(feature = "cube")]
mod launch;
mod rule;

pub use rule::{below, distinct, hash, repeated};

use std::fmt;

use burn::tensor::ops::IntTensor;
use burn::tensor::{DType, Int, Tensor};
use burn_autodiff::{Autodiff, checkpoint::strategy::CheckpointStrategy};
use burn_flex::Flex;

use crate::DropEdge;
use crate::csr::index_tensor;
use crate::row_buffer::{PinnedRows, RowBufferBackend};

/// Most neighbours of a node that a device draws: they are kept in order by insertion.
pub const MAX_FANOUT: u32 = 64;

/// Backends with a [`DeviceSampler`].
pub trait SampleBackend: RowBufferBackend {
    /// Whether there are kernels that sample.
    #[doc(hidden)]
    const SAMPLES: bool;

    /// Samples a relation for the first `rows` nodes of `step.destinations`, and lists the sources that are new.
    #[doc(hidden)]
    fn sample_relation(step: SampleStep<IntTensor<Self>>) -> SampledParts<IntTensor<Self>>;

    /// The place of the `k`-th of `count` nodes becomes `k`, or none where `forget` says so.
    #[doc(hidden)]
    fn set_places(places: &IntTensor<Self>, nodes: &IntTensor<Self>, count: usize, forget: bool);
}

/// Words that a kernel reads: an array of the device, or what lies `delta` words behind it.
#[doc(hidden)]
#[derive(Clone, Debug)]
pub struct Words<I> {
    pub anchor: I,
    pub delta: usize,
    /// Whether they lie in host memory.
    pub pinned: bool,
}

/// What one relation of one layer is sampled from and into.
#[doc(hidden)]
#[derive(Clone, Debug)]
pub struct SampleStep<I> {
    pub row_ptr: Words<I>,
    pub col_idx: Words<I>,
    pub destinations: I,
    pub rows: usize,
    pub draw: NodeDraw,
    /// `[nodes of the source type]`: the place of every node in the batch.
    pub places: I,
    /// `[nodes of the source type]`: the nodes of the batch.
    pub sources: I,
    /// Counts of nodes by type, then of edges by relation.
    pub counts: I,
    /// Of the source type among these.
    pub source_count: usize,
    /// Of the relation's edges among these.
    pub edge_count: usize,
}

/// Device arrays of a sampled relation.
#[doc(hidden)]
#[derive(Clone, Debug)]
pub struct SampledParts<I> {
    pub row_ptr: I,
    pub cols: I,
    pub edges: I,
}

impl<B: SampleBackend, C: CheckpointStrategy> SampleBackend for Autodiff<B, C> {
    const SAMPLES: bool = B::SAMPLES;

    fn sample_relation(step: SampleStep<IntTensor<Self>>) -> SampledParts<IntTensor<Self>> {
        B::sample_relation(step)
    }

    fn set_places(places: &IntTensor<Self>, nodes: &IntTensor<Self>, count: usize, forget: bool) {
        B::set_places(places, nodes, count, forget);
    }
}

impl SampleBackend for Flex {
    const SAMPLES: bool = false;

    fn sample_relation(_step: SampleStep<IntTensor<Self>>) -> SampledParts<IntTensor<Self>> {
        unreachable!("the processor samples on the host")
    }

    fn set_places(_places: &IntTensor<Self>, _nodes: &IntTensor<Self>, _count: usize, _forget: bool) {
        unreachable!("the processor samples on the host")
    }
}

/// How the neighbours of a node are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeDraw {
    /// At most so many, or as many as there are.
    pub fanout: Option<u32>,
    /// Whether a neighbour can be drawn more than once; then a node with any gives as many as the fanout.
    pub replace: bool,
    /// What the draws are hashed under.
    pub key: u64,
    /// Which of the edges that were drawn are left out.
    pub drop_edge: Option<DropEdge>,
}

/// Where an adjacency lies. The processor reads none of them.
#[cfg_attr(not(feature = "cube"), allow(dead_code))]
enum Arrays<B: SampleBackend> {
    Device {
        row_ptr: IntTensor<B>,
        col_idx: IntTensor<B>,
    },
    /// One word per row: bits of integers.
    Pinned {
        row_ptr: PinnedRows<B>,
        col_idx: PinnedRows<B>,
    },
}

/// The adjacency of one relation, to sample from.
pub struct SampleRelation<B: SampleBackend> {
    /// Node type of the sources.
    pub src: usize,
    /// Node type of the destinations.
    pub dst: usize,
    num_edges: usize,
    arrays: Arrays<B>,
}

impl<B: SampleBackend> fmt::Debug for SampleRelation<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = if self.is_pinned() { "host" } else { "device" };
        write!(f, "SampleRelation({} <- {}, {} edges, {place})", self.dst, self.src, self.num_edges)
    }
}

impl<B: SampleBackend> SampleRelation<B> {
    /// Rows are destinations, entries are sources. With `pinned` the arrays lie in page-locked host memory.
    ///
    /// # Errors
    /// Says why memory cannot be page-locked, and that there are 2^31 entries or more.
    pub fn new(
        [src, dst]: [usize; 2],
        row_ptr: &[u64],
        col_idx: &[u32],
        pinned: bool,
        device: &B::Device,
    ) -> Result<Self, String> {
        if col_idx.len() > i32::MAX as usize {
            return Err(format!("{} entries of one relation; a device samples from fewer than 2^31", col_idx.len()));
        }
        let arrays = if pinned {
            let words = |len: usize, fill: &dyn Fn(&mut [u8])| PinnedRows::new([len, 1], DType::F32, device, fill);
            Arrays::Pinned {
                row_ptr: words(row_ptr.len(), &|bytes| {
                    let bytes = bytes.chunks_exact_mut(4).zip(row_ptr);
                    bytes.for_each(|(to, &at)| to.copy_from_slice(&(at as u32).to_ne_bytes()));
                })?,
                col_idx: words(col_idx.len(), &|bytes| bytes.copy_from_slice(bytemuck::cast_slice(col_idx)))?,
            }
        } else {
            Arrays::Device {
                row_ptr: index_tensor::<B>(row_ptr.iter().map(|&at| at as i32).collect(), device),
                col_idx: index_tensor::<B>(col_idx.iter().map(|&col| col as i32).collect(), device),
            }
        };
        Ok(Self { src, dst, num_edges: col_idx.len(), arrays })
    }

    /// Whether the arrays lie in host memory.
    pub fn is_pinned(&self) -> bool {
        matches!(self.arrays, Arrays::Pinned { .. })
    }

    /// Row pointers and sources as kernels read them.
    fn words(&self) -> [Words<IntTensor<B>>; 2] {
        let on_device = |array: &IntTensor<B>| Words { anchor: array.clone(), delta: 0, pinned: false };
        let on_host = |rows: &PinnedRows<B>| Words { anchor: rows.anchor().clone(), delta: rows.delta(), pinned: true };
        match &self.arrays {
            Arrays::Device { row_ptr, col_idx } => [on_device(row_ptr), on_device(col_idx)],
            Arrays::Pinned { row_ptr, col_idx } => [on_host(row_ptr), on_host(col_idx)],
        }
    }
}

/// A sampled relation of one layer on the device.
#[derive(Clone, Debug)]
pub struct SampledRelation<B: SampleBackend> {
    parts: SampledParts<IntTensor<B>>,
    /// Destinations.
    pub rows: usize,
    /// Edges.
    pub num_edges: usize,
}

impl<B: SampleBackend> SampledRelation<B> {
    /// Where the entries of each row begin, the source of each entry by its place in the batch, and its number among the
    /// entries of the relation.
    pub fn to_host(&self) -> [Vec<u32>; 3] {
        let (row_ptr, cols) = self.rows_to_host();
        let edges = if self.rows == 0 { Vec::new() } else { read::<B>(&self.parts.edges, self.num_edges) };
        [row_ptr, cols, edges]
    }

    /// The same without the numbers of the entries.
    pub fn rows_to_host(&self) -> (Vec<u32>, Vec<u32>) {
        match self.rows {
            0 => (vec![0], Vec::new()),
            rows => (read::<B>(&self.parts.row_ptr, rows + 1), read::<B>(&self.parts.cols, self.num_edges)),
        }
    }
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
#[derive(Debug)]
pub struct DeviceSample<B: SampleBackend> {
    nodes: Vec<IntTensor<B>>,
    /// `[layer + 1][type]`: how many nodes there are before the layer and, last, after all of them.
    pub counts: Vec<Vec<usize>>,
    /// `[layer][relation]`, the layer next to the seeds first.
    pub blocks: Vec<Vec<SampledRelation<B>>>,
}

impl<B: SampleBackend> DeviceSample<B> {
    /// `[type]`: distinct nodes, the seeds first.
    pub fn nodes_to_host(&self) -> Vec<Vec<u32>> {
        let last = self.counts.last().cloned().unwrap_or_default();
        self.nodes.iter().zip(last).map(|(nodes, count)| read::<B>(nodes, count)).collect()
    }

    /// Number of sampled edges.
    pub fn num_edges(&self) -> usize {
        self.blocks.iter().flatten().map(|block| block.num_edges).sum()
    }
}

/// Samples batches of a typed graph on a device. The nodes of a batch are listed once, in the order of their first edge.
///
/// Edges are drawn, and nodes found that are new, by kernels; the host reads the counts once per layer. A draw is a hash of key
/// and node, so that host, device and place of the adjacency make no difference.
pub struct DeviceSampler<B: SampleBackend> {
    relations: Vec<SampleRelation<B>>,
    /// `[type]`: the place of every node in the batch that is being made, none outside of [`DeviceSampler::sample`].
    places: Vec<IntTensor<B>>,
    node_counts: Vec<usize>,
    device: B::Device,
}

/// Stands for a node that is not in the batch.
pub(crate) const NOWHERE: u32 = u32::MAX;
/// Added to the number of the entry that asks for a place.
pub(crate) const ASKED: u32 = 1 << 30;

impl<B: SampleBackend> DeviceSampler<B> {
    /// A sampler for types of so many nodes.
    ///
    /// # Errors
    /// Says why the device cannot sample.
    pub fn new(relations: Vec<SampleRelation<B>>, node_counts: &[usize], device: &B::Device) -> Result<Self, String> {
        if !B::SAMPLES {
            return Err("the processor samples on the host".into());
        }
        if let Some(count) = node_counts.iter().find(|&&count| count >= ASKED as usize) {
            return Err(format!("{count} nodes of one type; a device samples from fewer than 2^30"));
        }
        let nowhere = |&count: &usize| index_tensor::<B>(vec![NOWHERE as i32; count], device);
        let places = node_counts.iter().map(nowhere).collect();
        Ok(Self { relations, places, node_counts: node_counts.to_vec(), device: device.clone() })
    }

    /// Samples around distinct `seeds`, numbered within their types. `draw` says how each relation of each layer is sampled; the
    /// layer next to the seeds is number 0.
    ///
    /// # Panics
    /// If there is not a list of seeds per type, a seed does not exist, or a fanout is 0 or above [`MAX_FANOUT`].
    pub fn sample(
        &mut self,
        seeds: &[Vec<u32>],
        layers: usize,
        draw: impl Fn(usize, usize) -> NodeDraw,
    ) -> DeviceSample<B> {
        const OP: &str = "DeviceSampler::sample";
        crate::check::size(OP, "lists of seeds", self.node_counts.len(), seeds.len());
        let types = self.node_counts.len();
        let mut counts = vec![seeds.iter().map(Vec::len).collect::<Vec<_>>()];
        let nodes: Vec<IntTensor<B>> = seeds
            .iter()
            .zip(&self.node_counts)
            .map(|(seeds, &count)| {
                if let Some(seed) = seeds.iter().find(|&&seed| seed as usize >= count) {
                    panic!("{OP}: seeds: expected nodes below {count}, got {seed}");
                }
                let mut nodes: Vec<i32> = seeds.iter().map(|&seed| seed as i32).collect();
                nodes.resize(count.max(1), 0);
                index_tensor::<B>(nodes, &self.device)
            })
            .collect();
        for (t, seeds) in seeds.iter().enumerate() {
            self.set_places(t, seeds);
        }
        let mut blocks = Vec::with_capacity(layers);
        for layer in 0..layers {
            let before = counts[layer].clone();
            let words = before.iter().map(|&count| count as i32).chain(vec![0; self.relations.len()]).collect();
            let state = index_tensor::<B>(words, &self.device);
            let mut of_layer = Vec::with_capacity(self.relations.len());
            for (at, relation) in self.relations.iter().enumerate() {
                let draw = draw(layer, at);
                if let Some(fanout) = draw.fanout {
                    assert!(
                        (1..=MAX_FANOUT).contains(&fanout),
                        "{OP}: fanout: expected 1 to {MAX_FANOUT}, got {fanout}"
                    );
                }
                let rows = before[relation.dst];
                // No launch over nothing: one unused element stands for the arrays.
                let nothing = || index_tensor::<B>(Vec::new(), &self.device);
                let parts = match rows > 0 && relation.num_edges > 0 {
                    false => SampledParts {
                        row_ptr: index_tensor::<B>(vec![0; rows + 1], &self.device),
                        cols: nothing(),
                        edges: nothing(),
                    },
                    true => {
                        let [row_ptr, col_idx] = relation.words();
                        B::sample_relation(SampleStep {
                            row_ptr,
                            col_idx,
                            destinations: nodes[relation.dst].clone(),
                            rows,
                            draw,
                            places: self.places[relation.src].clone(),
                            sources: nodes[relation.src].clone(),
                            counts: state.clone(),
                            source_count: relation.src,
                            edge_count: types + at,
                        })
                    }
                };
                of_layer.push(SampledRelation { parts, rows, num_edges: 0 });
            }
            let state = Tensor::<B, 1, Int>::from_primitive(state).into_data().convert::<i32>();
            let state: Vec<i32> = state.into_vec().expect("i32 after convert");
            for (block, &edges) in of_layer.iter_mut().zip(&state[types..]) {
                block.num_edges = edges as usize;
            }
            counts.push(state[..types].iter().map(|&count| count as usize).collect());
            blocks.push(of_layer);
        }
        for ((places, nodes), &count) in self.places.iter().zip(&nodes).zip(&counts[layers]) {
            if count > 0 {
                B::set_places(places, nodes, count, true);
            }
        }
        DeviceSample { nodes, counts, blocks }
    }

    /// Gives the seeds their places.
    fn set_places(&mut self, node_type: usize, seeds: &[u32]) {
        if !seeds.is_empty() {
            let ids = index_tensor::<B>(seeds.iter().map(|&seed| seed as i32).collect(), &self.device);
            B::set_places(&self.places[node_type], &ids, seeds.len(), false);
        }
    }
}
