//! Relational graph convolution.

use burn::config::Config;
use burn::module::{Module, Param};
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use graphsieve_kernels::{Activation, Destinations, GraphBackend, SpmmConfig, Term, linear, spmm, sum_in_chunks};
use serde::{Deserialize, Serialize};

use super::block::{Block, KeptRows, RelationEdges};
use super::check;
use super::graph_conv::finish;
use super::initial::Initial;
use super::typed_edges::TypedEdges;

const LAYER: &str = "RgcnConv";

/// Matrices that are held before they are added up, so that many relations take no more memory than a few: as many as
/// one launch adds.
const PARTS: usize = 4;

/// What the projections of the relations are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RelationWeights {
    /// A matrix for every relation.
    Full,
    /// Weighted sums of so many matrices, at least 1, with weights for every relation.
    Bases(usize),
    /// So many blocks on the diagonal, at least 1, for every relation. They divide both widths.
    Blocks(usize),
}

/// The shape of an [`RgcnConv`].
#[derive(Config, Debug)]
pub struct RgcnConvConfig {
    /// Width of the input, at least 1, the same for all node types.
    pub in_channels: usize,
    /// Width of the output, at least 1.
    pub out_channels: usize,
    /// Relations.
    pub relations: usize,
    /// What their projections are made of. Default: a matrix for each (PyG).
    #[config(default = "RelationWeights::Full")]
    pub weights: RelationWeights,
    /// Whether the neighbours of a relation are averaged; they are added up otherwise. Default: true (Schlichtkrull et
    /// al.).
    #[config(default = true)]
    pub mean: bool,
    /// Whether the node itself is projected and added. Default: true (Schlichtkrull et al.).
    #[config(default = true)]
    pub root_weight: bool,
    /// Whether a bias is learned. Default: true (PyG).
    #[config(default = true)]
    pub bias: bool,
    /// Seed of the initial values. Default: 0; layers of one shape want different ones.
    #[config(default = 0)]
    pub seed: u64,
}

/// Relational graph convolution: means of the in-neighbours by relation and the node itself, projected apart and added
/// up.
///
/// ```text
/// y_i = sum_r 1/|N_r(i)| sum_j x_j W_r + x_i W_0 + b      over the relations r into the type of i, j in N_r(i)
/// W_r = sum_k c_rk V_k                                    with bases
/// W_r = diag(Q_r1, ..., Q_rB)                             with blocks
/// ```
///
/// All node types share `W_0` and `b`. Types of other widths want a projection before the layer; [`HeteroConv`] of
/// [`SageConv`]s takes widths as they come, with a full matrix for every relation.
///
/// Neighbours are added up before or after their projection, whichever moves fewer values, by relation; by linearity
/// the result is the same. Nothing is stored per edge. Blocks save parameters, not time: a projection is a dense
/// product.
///
/// [`HeteroConv`]: super::HeteroConv
/// [`SageConv`]: super::SageConv
///
/// # Shapes
/// A matrix `[nodes, in_channels]` per node type, all of one dtype (f32, f16 or bf16); result `[nodes, out_channels]`
/// for every type in the same dtype. Parameters are f32. A node without in-neighbours has what it is itself and the
/// bias.
///
/// # Gradient
/// Of features and parameters. Saved: the features, and for relations that are added up first their sums; in chunks the
/// features alone. Deterministic.
///
/// # Panics
/// If a shape does not fit; the message names the argument, what was expected and what was got.
///
/// # Source
/// Schlichtkrull et al., Modeling relational data with graph convolutional networks (ESWC 2018), equations 2 to 4.
///
/// # Example
/// ```
/// use burn::module::Param;
/// use burn::tensor::Tensor;
/// use burn_flex::Flex;
/// use graphsieve::nn::{RgcnConvConfig, RelationWeights, TypedEdges};
/// use graphsieve_kernels::Csr;
/// let device = Default::default();
/// // Two users bought one product: the relation, and its reverse.
/// let bought = Csr::<Flex>::from_host(&[0, 2], &[0, 1], 2, &device).unwrap();
/// let config = RgcnConvConfig::new(1, 1, 2).with_weights(RelationWeights::Bases(1)).with_root_weight(false);
/// let mut conv = config.init::<Flex>(&device);
/// conv.weights = vec![Param::from_data([[2.0]], &device)];
/// conv.coefficients = Some(Param::from_data([[1.0], [-1.0]], &device));
/// let relations =
///     [TypedEdges { csr: &bought, src: 0, dst: 1 }, TypedEdges { csr: &bought.reverse(), src: 1, dst: 0 }];
/// let users = Tensor::<Flex, 2>::from_data([[1.0], [3.0]], &device);
/// let products = Tensor::<Flex, 2>::from_data([[7.0]], &device);
/// let y = conv.forward(&relations, &[users, products]);
/// let values = |t: usize| y[t].clone().into_data().to_vec::<f32>().unwrap();
/// assert_eq!((values(0), values(1)), (vec![-14.0, -14.0], vec![4.0]));
/// ```
#[derive(Module, Debug)]
pub struct RgcnConv<B: Backend> {
    /// `W_r` `[in_channels, out_channels]` for every relation; with bases `V_k` likewise for every basis; with blocks
    /// the `Q_r` one below the other, `[in_channels, out_channels / blocks]` for every relation.
    pub weights: Vec<Param<Tensor<B, 2>>>,
    /// `c` `[relations, bases]`, with bases.
    pub coefficients: Option<Param<Tensor<B, 2>>>,
    /// `W_0` `[in_channels, out_channels]`.
    pub weight_root: Option<Param<Tensor<B, 2>>>,
    /// `[out_channels]`.
    pub bias: Option<Param<Tensor<B, 1>>>,
    widths: [usize; 2],
    relations: usize,
    blocks: usize,
    mean: bool,
}

impl RgcnConvConfig {
    /// A layer with initial values: Glorot for weights and coefficients, zero for the bias.
    ///
    /// # Panics
    /// If a width, or the number of bases or blocks, is 0, or the blocks do not divide the widths.
    pub fn init<B: Backend>(&self, device: &B::Device) -> RgcnConv<B> {
        let widths = [self.in_channels, self.out_channels];
        check::positive(LAYER, "in_channels", self.in_channels);
        check::positive(LAYER, "out_channels", self.out_channels);
        let (matrices, blocks) = match self.weights {
            RelationWeights::Full => (self.relations, 1),
            RelationWeights::Bases(bases) => {
                check::positive(LAYER, "bases", bases);
                (bases, 1)
            }
            RelationWeights::Blocks(blocks) => {
                check::positive(LAYER, "blocks", blocks);
                let divide = widths.iter().all(|width| width.is_multiple_of(blocks));
                assert!(divide, "{LAYER}: blocks: expected a divisor of the widths {widths:?}, got {blocks}");
                (self.relations, blocks)
            }
        };
        let mut initial = Initial::new(self.seed, device);
        let block = widths.map(|width| width / blocks);
        let has_bases = matches!(self.weights, RelationWeights::Bases(_));
        RgcnConv {
            weights: (0..matrices).map(|_| initial.glorot_blocks(block, blocks)).collect(),
            coefficients: has_bases.then(|| initial.glorot([self.relations, matrices])),
            weight_root: self.root_weight.then(|| initial.glorot(widths)),
            bias: self.bias.then(|| initial.zeros(self.out_channels)),
            widths,
            relations: self.relations,
            blocks,
            mean: self.mean,
        }
    }
}

impl<B: GraphBackend> RgcnConv<B> {
    /// The layer; see [`RgcnConv`]. `x` has a matrix per node type.
    pub fn forward(&self, relations: &[TypedEdges<'_, B>], x: &[Tensor<B, 2>]) -> Vec<Tensor<B, 2>> {
        check::size(LAYER, "relations", self.relations, relations.len());
        let nodes: Vec<usize> = x.iter().map(|x| x.dims()[0]).collect();
        self.forward_block(&Block::whole(relations, &nodes), x, None)
    }

    /// The layer over a block: some rows of a graph or of a mini-batch, with the edges that each relation drops. A
    /// relation is known by its index. Means divide by the neighbours that `block` knows, those that are dropped
    /// included.
    ///
    /// With `chunk_rows` the result is computed by so many rows at a time ([`sum_in_chunks`]): nothing else exists for
    /// more rows than that, forwards and backwards, and all neighbours are added up before they are projected.
    ///
    /// # Shapes
    /// `x` `[rows before the block, in_channels]` for every node type; result `[rows after it, out_channels]`.
    ///
    /// # Panics
    /// As [`RgcnConv`]; if `chunk_rows` is 0, or a relation has no weights.
    pub fn forward_block(&self, block: &Block<B>, x: &[Tensor<B, 2>], chunk_rows: Option<usize>) -> Vec<Tensor<B, 2>> {
        check::size(LAYER, "matrices of x", block.kept.len(), x.len());
        for (t, x) in x.iter().enumerate() {
            check::size(LAYER, &format!("rows of x[{t}]"), block.rows_before(t), x.dims()[0]);
            check::size(LAYER, &format!("columns of x[{t}]"), self.widths[0], x.dims()[1]);
        }
        let bases = self.coefficients.as_ref().map(|_| self.bases());
        let of_type = |t: usize| {
            let (rows, width) = (block.rows_after(t), self.widths[1]);
            let options = (&x[t].device(), x[t].dtype());
            let into = block.edges.iter().filter(|edges| edges.dst == t);
            let into: Vec<_> = into.map(|edges| (edges, self.projection(edges.relation, bases.as_ref()))).collect();
            if rows == 0 {
                // No device takes a launch over nothing.
                Tensor::empty([0, width], options)
            } else if into.is_empty() && self.weight_root.is_none() {
                finish(vec![Tensor::zeros([rows, width], options)], self.bias.as_ref(), Activation::Identity)
            } else if let Some(chunk_rows) = chunk_rows {
                self.in_chunks(block, t, x, into, chunk_rows)
            } else {
                self.all_rows(block, t, x, into)
            }
        };
        (0..x.len()).map(of_type).collect()
    }

    fn all_rows(
        &self,
        block: &Block<B>,
        node_type: usize,
        x: &[Tensor<B, 2>],
        into: Vec<(&RelationEdges<B>, Tensor<B, 2>)>,
    ) -> Tensor<B, 2> {
        let own = || block.destinations(node_type, x[node_type].clone());
        let mut parts: Vec<_> = self.weight_root.iter().map(|root| linear(own(), root.val(), None)).collect();
        for (edges, weight) in into {
            if parts.len() == PARTS {
                parts = vec![finish(parts, None, Activation::Identity)];
            }
            let (csr, x, config) = (&edges.csr, x[edges.src].clone(), self.sum_of(edges));
            let [input, output] = self.widths;
            // Rows of either width that are written or gathered.
            let first = (csr.num_cols() + csr.num_edges()) * output < (csr.num_rows() + csr.num_edges()) * input;
            parts.push(match first {
                true => spmm(csr, linear(x, weight, None), None, config),
                false => linear(spmm(csr, x, None, config), weight, None),
            });
        }
        finish(parts, self.bias.as_ref(), Activation::Identity)
    }

    fn in_chunks(
        &self,
        block: &Block<B>,
        node_type: usize,
        x: &[Tensor<B, 2>],
        into: Vec<(&RelationEdges<B>, Tensor<B, 2>)>,
        chunk_rows: usize,
    ) -> Tensor<B, 2> {
        let term = |(edges, weight): (&RelationEdges<B>, _)| {
            Term::spmm(&edges.csr, x[edges.src].clone(), None, self.sum_of(edges), weight)
        };
        let mut terms: Vec<_> = into.into_iter().map(term).collect();
        let own = x[node_type].clone();
        let (to, own, before) = match &block.kept[node_type] {
            KeptRows::Selected { before, after, of } => (Destinations::new(*of, after.as_ref()), own, before.as_ref()),
            kept => (Destinations::new(kept.after(), None), kept.select(own), None),
        };
        terms.extend(self.weight_root.as_ref().map(|root| Term::rows(own, before, root.val())));
        sum_in_chunks(terms, self.bias.as_ref().map(Param::val), 1.0, Activation::Identity, to, chunk_rows)
    }

    /// How neighbours are added up.
    fn sum_of(&self, edges: &RelationEdges<B>) -> SpmmConfig<B> {
        let dst_scale = self.mean.then(|| edges.csr.degrees().clamp_min(1.0).recip());
        SpmmConfig { dst_scale, drop_edge: edges.drop_edge, ..Default::default() }
    }

    /// The bases, a row each.
    fn bases(&self) -> Tensor<B, 2> {
        let len = self.widths[0] * self.widths[1];
        Tensor::cat(self.weights.iter().map(|basis| basis.val().reshape([1, len])).collect(), 0)
    }

    /// `W_r`.
    fn projection(&self, relation: usize, bases: Option<&Tensor<B, 2>>) -> Tensor<B, 2> {
        let [input, output] = self.widths;
        let expected = self.relations;
        assert!(relation < expected, "{LAYER}: relation: expected one of {expected}, got {relation}");
        if let Some((coefficients, bases)) = self.coefficients.as_ref().zip(bases) {
            let coefficients = coefficients.val().narrow(0, relation, 1);
            return linear(coefficients, bases.clone(), None).reshape([input, output]);
        }
        let weight = self.weights[relation].val();
        if self.blocks == 1 {
            return weight;
        }
        let diagonal = Tensor::<B, 2>::eye(self.blocks, &weight.device()).reshape([self.blocks, 1, self.blocks, 1]);
        let blocks = weight.reshape([self.blocks, input / self.blocks, 1, output / self.blocks]);
        (blocks * diagonal).reshape([input, output])
    }
}
