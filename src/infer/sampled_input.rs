//! What mini-batches of a node classifier are made of: the graph that is sampled, and features that say how many
//! neighbours a node has in all of it.

use std::sync::Arc;

use burn::tensor::{DType, Tensor};
use graphsieve_kernels::GraphBackend;
use half::f16;
use rayon::prelude::*;

use crate::config::{Draw, LayerKind};
use crate::error::Result;
use crate::graph::{EdgeMatrix, FeatureValues, Features, HeteroGraph, RelationSpec, SelfLoops, Spill};
use crate::models::device_graph::check_range;
use crate::models::node_classifier::ClassifierSpec;
use crate::models::node_input::BatchRows;
use crate::models::precision::as_dtype;
use crate::nn::Block;
use crate::sampler::{Fanout, NeighbourSampler, SamplerConfig, weights_of};

/// Bytes that reads of rows are aligned to: the width of a load.
const ALIGNED: usize = 16;

/// Whole numbers below this are exact in f16, and in f32.
const HALF_BASE: u32 = 1 << 11;
const SINGLE_BASE: u32 = 1 << 24;

/// Sums of weights are counted in so many parts of one: they are at least 1, and f32 tells no more of them.
const PARTS: f64 = SINGLE_BASE as f64;

/// Rows of one task.
const TASK_ROWS: usize = 64;
/// Rows that are written at a time.
const PIECE_ROWS: usize = 1 << 16;

/// Weight of a self-loop among entries of weights up to [`MAX_EDGE_WEIGHT`](crate::graph::MAX_EDGE_WEIGHT). Entries are
/// drawn in the order of variates over weights, variates are above `2^-54` and below 37: one so much smaller always
/// comes first.
const FIRST: f32 = 1e30;

/// Graph and rows in host memory, as the layers of a classifier want them.
///
/// Layers with a transform of nodes themselves, as all over several node types or relations, read both as they are. On
/// one type with one relation, graph convolution adds the nodes themselves to what is sampled, so that loops of the
/// graph are left out of it; and it divides by degrees in the whole graph, which columns behind the features carry into
/// the batch: where edges have weights, sums of these, and beside them how many neighbours there are. Attention has
/// every node among its own neighbours, exactly once and whatever else is drawn.
#[derive(Clone, Debug)]
pub struct SampledInput {
    kind: Kind,
    /// Whether layers attend to neighbours; they add them up or take means otherwise.
    attends: bool,
    graph: Arc<HeteroGraph>,
    features: Features,
    columns: Columns,
    dtype: DType,
}

/// The layers that read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Gcn,
    Gat,
    Typed,
}

impl Kind {
    fn of(spec: &ClassifierSpec) -> Self {
        match spec.layer {
            _ if spec.has_own() || spec.order.is_some() => Kind::Typed,
            LayerKind::Gat => Kind::Gat,
            _ => Kind::Gcn,
        }
    }
}

/// How a row is divided.
#[derive(Clone, Copy, Debug)]
struct Columns {
    /// Columns of features, divided by the sum of their absolute values where that is asked for.
    width: usize,
    row_normalise: bool,
    /// In-neighbours and one, in so many digits of `base`, the last ones first.
    digits: usize,
    /// Behind them [`PARTS`] of the sum of weights and 1, where edges have any.
    weight_digits: usize,
    base: u32,
}

impl SampledInput {
    /// The nodes of `graph` with their features, whose rows are computed with as `dtype`.
    ///
    /// # Errors
    /// [`Error::Data`](crate::error::Error::Data) for a graph with loops that cannot be taken out of it or added to it,
    /// and for features that `dtype` does not hold.
    pub fn new(spec: &ClassifierSpec, graph: &HeteroGraph, features: &Features, dtype: DType) -> Result<Self> {
        if !spec.row_normalise {
            check_range(features, dtype)?;
        }
        let (kind, graph) = (Kind::of(spec), Arc::new(graph_of_blocks(spec, graph)?));
        let (features, columns) = attached(kind, &graph, features, spec.row_normalise, &Spill::default())?;
        Ok(Self { kind, attends: spec.attention.is_some(), graph, features, columns, dtype })
    }

    /// The same nodes with other vectors, which are as they are; copies of them that take more than is left beside them
    /// lie in files.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn with_vectors(&self, vectors: &Features, spill: &Spill) -> Result<Self> {
        let spill = spill.beside(vectors.bytes_in_memory());
        let (features, columns) = attached(self.kind, &self.graph, vectors, false, &spill)?;
        Ok(Self { features, columns, ..self.clone() })
    }

    /// What is sampled.
    pub fn graph(&self) -> &Arc<HeteroGraph> {
        &self.graph
    }

    /// The rows to load.
    pub fn features(&self) -> &Features {
        &self.features
    }

    /// A sampler of so many neighbours per node, for the layer next to the seeds first; 0 takes all. Batches draw as is
    /// said, so many in a row alike, 0 none. Where draws by weight are to estimate sums and means, they are with
    /// replacement; see [`SampledInput::estimating`].
    ///
    /// # Errors
    /// Settings that it refuses.
    pub fn sampler(&self, fanouts: &[usize], (draw, kappa): (Draw, usize), seed: u64) -> Result<NeighbourSampler> {
        let own = u32::from(self.kind == Kind::Gat);
        let fanout = |&fanout: &usize| match Fanout::from(fanout) {
            Fanout::All => Fanout::All,
            Fanout::Most(most) => Fanout::Most(most.saturating_add(own)),
        };
        let fanouts: Vec<Fanout> = fanouts.iter().map(fanout).collect();
        let all = fanouts.iter().all(|fanout| *fanout == Fanout::All);
        let weights = match draw {
            Draw::Weighted => weights_of(&self.graph),
            _ if own == 0 || all => Vec::new(),
            _ => vec![Some(self.weights())],
        };
        let dependency = u32::try_from(kappa).ok().filter(|&kappa| kappa > 0);
        let config = SamplerConfig::new(&fanouts, self.graph.relations().len());
        let replace = self.estimates(draw);
        NeighbourSampler::new(self.graph.clone(), SamplerConfig { replace, draw, dependency, weights, seed, ..config })
    }

    /// Whether draws by weight stand for all neighbours.
    fn estimates(&self, draw: Draw) -> bool {
        draw == Draw::Weighted && !self.attends
    }

    /// A batch of [`SampledInput::sampler`] with these settings as the layers are to read it, so that what they make of
    /// it estimates what they make of all neighbours without bias.
    ///
    /// Of `k_i` draws with replacement in proportion to the weights of edges, whose sum is `W_i`, the estimate is
    /// `W_i / k_i sum h_j` of the sum `sum_j w_ij h_j`, and `1 / k_i sum h_j` of the mean `sum_j w_ij h_j / W_i`: every
    /// draw stands for its weight, and its edge has none any more. Edges of a layer that takes all neighbours keep
    /// theirs. Other draws, and those that attention is among, stay as they are.
    ///
    /// # Source
    /// Hansen and Hurwitz, On the theory of sampling from finite populations (Annals of Mathematical Statistics, 1943).
    pub fn estimating<B: GraphBackend>(
        &self,
        (draw, fanouts): (Draw, &[usize]),
        mut blocks: Vec<Block<B>>,
        rows: BatchRows<B>,
    ) -> (Vec<Block<B>>, BatchRows<B>) {
        if !self.estimates(draw) {
            return (blocks, rows);
        }
        // The layer that reads the features comes first, its fanout last.
        for (block, &fanout) in blocks.iter_mut().zip(fanouts.iter().rev()) {
            let drawn = Fanout::from(fanout) != Fanout::All;
            block.edges.iter_mut().filter(|_| drawn).for_each(|edges| edges.values = None);
        }
        // Where all were taken that weigh something, nothing is left to estimate.
        (blocks, BatchRows { neighbours: None, ..rows })
    }

    /// Weights of the entries that have every node draw itself, and the others evenly.
    fn weights(&self) -> Arc<[f32]> {
        let adjacency = &self.graph.relations()[0].forward;
        let mut weights = vec![1.0; adjacency.num_edges()];
        for node in 0..adjacency.num_rows() {
            let own = adjacency.row(node).iter().position(|&col| col as usize == node);
            own.into_iter().for_each(|at| weights[adjacency.entries(node).start + at] = FIRST);
        }
        weights.into()
    }

    /// What a classifier reads of loaded rows, a matrix per node type.
    ///
    /// # Shapes
    /// `rows` `[rows, features().dim()]` as they are stored, f16 or f32.
    pub fn read<B: GraphBackend>(&self, rows: Vec<Tensor<B, 2>>) -> BatchRows<B> {
        let Columns { width, digits, weight_digits, base, .. } = self.columns;
        let number = |first: usize, digits: usize, unit: f64| {
            let digit = |k: usize| {
                let digit = as_dtype(rows[0].clone().narrow(1, first + k, 1), DType::F32);
                digit * (f64::from(base).powi(k as i32) * unit)
            };
            (digits > 0).then(|| (1..digits).fold(digit(0), |sum, k| sum + digit(k)))
        };
        let (count, sum) = (number(width, digits, 1.0), number(width + digits, weight_digits, 1.0 / PARTS));
        let (degree, neighbours) = match sum {
            Some(sum) => (Some(sum), count.map(|count| count - 1.0)),
            None => (count, None),
        };
        BatchRows { x: rows.into_iter().map(|rows| self.read_rows(rows)).collect(), degree, neighbours }
    }

    /// Rows that layers made, in the type that is computed with.
    pub fn read_rows_of<B: GraphBackend>(&self, rows: Tensor<B, 2>) -> Tensor<B, 2> {
        as_dtype(rows, self.dtype)
    }

    /// The vectors of loaded rows of one type.
    pub fn read_rows<B: GraphBackend>(&self, rows: Tensor<B, 2>) -> Tensor<B, 2> {
        let Columns { width, row_normalise, .. } = self.columns;
        let [count, stored] = rows.dims();
        let x = if stored == width || count == 0 { rows } else { rows.narrow(1, 0, width) };
        if !row_normalise || count == 0 {
            return as_dtype(x, self.dtype);
        }
        // A node without features stays without.
        let x = as_dtype(x, DType::F32);
        let sum = x.clone().abs().sum_dim(1).clamp_min(f32::MIN_POSITIVE);
        as_dtype(x / sum, self.dtype)
    }
}

/// The graph whose edges the blocks of a classifier have, see [`SampledInput`].
///
/// # Errors
/// As for [`SampledInput::new`].
pub fn graph_of_blocks(spec: &ClassifierSpec, graph: &HeteroGraph) -> Result<HeteroGraph> {
    match Kind::of(spec) {
        Kind::Typed => Ok(graph.clone()),
        Kind::Gcn if graph.relations()[0].loops.in_range == 0 => Ok(graph.clone()),
        Kind::Gcn => looped(graph, SelfLoops::None),
        Kind::Gat => looped(graph, SelfLoops::One),
    }
}

/// The graph with its only relation's loops taken out, or each added once.
fn looped(graph: &HeteroGraph, loops: SelfLoops) -> Result<HeteroGraph> {
    let relation = &graph.relations()[0];
    let (name, stream, primary) = (relation.name.clone(), relation.stream.clone(), relation.primary);
    let adjacency = relation.forward.with_loops(loops);
    let types = graph.node_types().iter().map(|t| (t.name.clone(), t.count)).collect();
    let mut looped = HeteroGraph::new(types, vec![RelationSpec { name, src: 0, dst: 0, stream, primary, adjacency }])?;
    // A loop that is added is drawn first, and only attention adds any: it reads no values.
    let carried = |rows: &Arc<EdgeMatrix>| {
        let value = |entry: Option<usize>| entry.map_or(FIRST, |entry| rows.row(entry)[0]);
        Arc::new(EdgeMatrix::new(relation.forward.looped_entries(loops).map(value).collect(), 1))
    };
    if let Some(weights) = &relation.weights {
        looped.set_edge_weights(&relation.name, carried(weights));
    }
    if let Some(values) = relation.values.as_ref().filter(|_| loops == SelfLoops::None) {
        looped.set_edge_values(&relation.name, carried(values));
    }
    Ok(looped)
}

/// The features with a column for the degree where the layers want one, in rows that a device reads fast.
fn attached(
    kind: Kind,
    graph: &HeteroGraph,
    features: &Features,
    row_normalise: bool,
    spill: &Spill,
) -> Result<(Features, Columns)> {
    let width = features.dim();
    if kind != Kind::Gcn {
        return Ok((features.clone(), Columns { width, row_normalise, digits: 0, weight_digits: 0, base: 1 }));
    }
    let relation = &graph.relations()[0];
    let (adjacency, nodes) = (&relation.forward, features.num_rows());
    let count = |node: usize| adjacency.degree(node) as u128 + 1;
    let sum = relation.values.as_ref().map(|weights| {
        move |node: usize| {
            let sum: f64 = weights.values()[adjacency.entries(node)].iter().map(|&weight| f64::from(weight)).sum();
            ((sum + 1.0) * PARTS).round() as u128
        }
    });
    let mut numbers: Vec<&Number> = vec![&count];
    numbers.extend(sum.as_ref().map(|sum| sum as &Number));
    let (features, digits, base) = match features.values() {
        FeatureValues::Half(values) => {
            let digit = |digit| f16::from_f32(digit as f32);
            let (dim, digits) = widths::<f16>([nodes, width], &numbers, HALF_BASE);
            let mut wide = vec![f16::ZERO; nodes * dim];
            widen(values, width, (&mut wide, 0), (&numbers, &digits), HALF_BASE, digit);
            (Features::from_vec(wide, nodes, dim), digits, HALF_BASE)
        }
        FeatureValues::Single(values) => {
            let (dim, digits) = widths::<f32>([nodes, width], &numbers, SINGLE_BASE);
            let mut wide = spill.zeros(nodes, dim)?;
            for first in (0..nodes).step_by(PIECE_ROWS) {
                let digit = |digit| digit as f32;
                let widen = |to: &mut [f32]| {
                    widen(values, width, (to, first), (&numbers, &digits), SINGLE_BASE, digit);
                };
                wide.fill(first..nodes.min(first + PIECE_ROWS), widen)?;
            }
            (wide.finish()?, digits, SINGLE_BASE)
        }
    };
    let weight_digits = digits.get(1).copied().unwrap_or(0);
    Ok((features, Columns { width, row_normalise, digits: digits[0], weight_digits, base }))
}

/// A number of every node.
type Number<'a> = dyn Fn(usize) -> u128 + Sync + 'a;

/// The width of rows of `width` values with digits of `numbers` behind them, and how many digits each number has.
fn widths<T>([nodes, width]: [usize; 2], numbers: &[&Number], base: u32) -> (usize, Vec<usize>) {
    let base = u128::from(base);
    let digits_of = |number: &&Number| {
        let most = (0..nodes).into_par_iter().map(number).max().unwrap_or(1);
        most.ilog(base) as usize + 1
    };
    let digits: Vec<usize> = numbers.iter().map(digits_of).collect();
    let dim = (width + digits.iter().sum::<usize>()).next_multiple_of(ALIGNED / size_of::<T>());
    (dim, digits)
}

/// Writes rows, from node `first` on, of `width` values with the digits of `numbers` of their nodes behind them.
fn widen<T: Copy + Send + Sync>(
    values: &[T],
    width: usize,
    (wide, first): (&mut [T], usize),
    (numbers, digits): (&[&Number], &[usize]),
    base: u32,
    digit: impl Fn(u32) -> T + Sync,
) {
    let base = u128::from(base);
    let dim = (width + digits.iter().sum::<usize>()).next_multiple_of(ALIGNED / size_of::<T>());
    wide.par_chunks_exact_mut(dim).enumerate().with_min_len(TASK_ROWS).for_each(|(at, row)| {
        let node = first + at;
        row[..width].copy_from_slice(&values[node * width..(node + 1) * width]);
        let mut places = row[width..].iter_mut();
        for (number, &digits) in numbers.iter().zip(digits) {
            let mut rest = number(node);
            for to in places.by_ref().take(digits) {
                *to = digit((rest % base) as u32);
                rest /= base;
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use burn::tensor::TensorData;
    use burn_flex::{Flex, FlexDevice};

    use super::*;
    use crate::graph::Adjacency;
    use crate::models::node_classifier::AttentionShape;
    use crate::models::parameters::to_host;

    const NODES: usize = 5000;

    /// A hub with an edge from every node, and a ring; a few loops.
    fn graph() -> HeteroGraph {
        let ring = (0..NODES as u32).map(|node| (node, (node + 1) % NODES as u32));
        let hub = (1..NODES as u32).map(|node| (0, node));
        let loops = [0, 7, 9].map(|node| (node, node));
        let edges: Vec<(u32, u32)> = ring.chain(hub).chain(loops).collect();
        let adjacency = Adjacency::from_edges(NODES, NODES, &edges);
        let spec = RelationSpec::new("edge", 0, 0, adjacency);
        HeteroGraph::new(vec![("node".into(), NODES)], vec![spec]).unwrap()
    }

    fn spec(layer: LayerKind, row_normalise: bool) -> ClassifierSpec {
        let attention = AttentionShape { heads: 1, out_heads: 1, negative_slope: 0.2, dropout: 0.0 };
        ClassifierSpec {
            attention: (layer == LayerKind::Gat).then_some(attention),
            row_normalise,
            directed: true,
            ..ClassifierSpec::new(layer, [3, 4, 2], 1)
        }
    }

    #[test]
    fn rows_bring_degrees_of_any_size_and_are_normalised() {
        let values: Vec<f32> = (0..NODES * 3).map(|k| (k % 7) as f32 - 3.0).collect();
        let halves = Features::from_vec(values.iter().map(|&v| f16::from_f32(v)).collect(), NODES, 3);
        for features in [Features::from_f32(values.clone(), NODES, 3), halves] {
            let input = SampledInput::new(&spec(LayerKind::Gcn, true), &graph(), &features, DType::F32).unwrap();
            let stored = input.features();
            let all: Vec<f32> = (0..NODES).flat_map(|node| stored.row(node)).collect();
            let data = TensorData::new(all, [NODES, stored.dim()]);
            let BatchRows { mut x, degree, .. } = input.read(vec![Tensor::<Flex, 2>::from_data(data, &FlexDevice)]);
            let x = x.swap_remove(0);
            let degree = to_host(degree.unwrap());
            // More than f16 counts to; the loop that was there is not counted, one is.
            assert_eq!((degree[0], degree[7], degree[8]), (NODES as f32, 2.0, 2.0));
            let want =
                [values[3], values[4], values[5]].map(|v| v / (values[3].abs() + values[4].abs() + values[5].abs()));
            assert_eq!((x.dims(), &to_host(x)[3..6]), ([NODES, 3], &want[..]));
        }
    }

    #[test]
    fn attention_draws_every_node_for_itself_and_so_many_others() {
        let features = Features::from_f32(vec![1.0; NODES], NODES, 1);
        let input = SampledInput::new(&spec(LayerKind::Gat, false), &graph(), &features, DType::F32).unwrap();
        for kappa in [0, 3] {
            let sampler = input.sampler(&[4], (Draw::Uniform, kappa), 1).unwrap();
            let mut scratch = sampler.scratch();
            for number in 0..20 {
                let seeds: Vec<u32> = (0..200).map(|k| k * 7 % NODES as u32).collect();
                let batch = sampler.sample(&mut scratch, number, std::slice::from_ref(&seeds)).unwrap();
                for (row, &seed) in seeds.iter().enumerate() {
                    let drawn = &batch.blocks[0][0].cols[batch.blocks[0][0].row(row)];
                    let own = drawn.iter().filter(|&&place| batch.nodes[0][place as usize] == seed).count();
                    assert_eq!((own, drawn.len()), (1, if seed == 0 { 5 } else { 2 }), "node {seed}");
                }
            }
        }
    }
}
