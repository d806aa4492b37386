//! Sparse-dense matrix product with separable normalisation.

mod autodiff;
mod cpu;
#[cfg(feature = "cube")]
pub(crate) mod kernel;
#[cfg(feature = "cube")]
mod launch;

use burn::tensor::backend::Backend;
use burn::tensor::ops::{FloatTensor, IntTensor};
use burn::tensor::{DType, Tensor, TensorPrimitive};

use crate::DropEdge;
use crate::graph::csr::{Csr, EdgeIds, Topology, View};
use crate::graph::node_set::NodeSet;
use crate::graph::row_index::Groups;
use crate::ops::select::{SelectBackend, Side};
use crate::runtime::check;

pub(crate) use autodiff::inner;

/// Settings of [`spmm`]; the default is a plain sum over in-neighbours.
#[derive(Clone, Debug)]
pub struct SpmmConfig<B: Backend> {
    /// `u`, f32, one value per destination (of the whole graph, also where `csr` is restricted). Not differentiated.
    /// Default: ones.
    pub dst_scale: Option<Tensor<B, 1>>,
    /// `v`, f32, one value per source (of the whole graph). Not differentiated. Default: ones.
    pub src_scale: Option<Tensor<B, 1>>,
    /// A self term beside the sum. Default: none.
    pub own: Option<SelfTerm<B>>,
    /// Edges left out of the sum. Default: none.
    pub drop_edge: Option<DropEdge>,
}

/// The self term of a convolution, `s_i h_i` for every destination `i`: self-loops that the adjacency does not hold.
#[derive(Clone, Debug)]
pub struct SelfTerm<B: Backend> {
    /// `h`: a row per node of `nodes`, of the width and dtype of the sources. Differentiated.
    pub h: Tensor<B, 2>,
    /// `s`, f32, one value per destination (of the whole graph). Not differentiated.
    pub scale: Tensor<B, 1>,
    /// The nodes that `h` has rows for; `None` stands for every destination, also where the adjacency is restricted.
    pub nodes: Option<NodeSet<B>>,
}

/// [`SelfTerm`] as primitives.
#[derive(Clone, Debug)]
pub struct OwnRows<F, I> {
    pub h: F,
    pub scale: F,
    pub nodes: Side<I>,
}

impl<B: Backend> Default for SpmmConfig<B> {
    fn default() -> Self {
        Self { dst_scale: None, src_scale: None, own: None, drop_edge: None }
    }
}

/// [`SpmmConfig`] as primitives.
#[derive(Clone, Debug)]
pub struct SpmmArgs<F> {
    pub dst_scale: Option<F>,
    pub src_scale: Option<F>,
    pub drop_edge: Option<DropEdge>,
}

impl<F> SpmmArgs<F> {
    /// The arguments of the product with the reverse adjacency.
    pub(crate) fn reverse(self) -> Self {
        Self { dst_scale: self.src_scale, src_scale: self.dst_scale, drop_edge: self.drop_edge.map(DropEdge::reverse) }
    }
}

/// A weight per edge, read through an edge map where edges are not in the order of the entries at hand.
#[derive(Clone, Debug)]
pub struct EdgeWeight<F, I> {
    pub weight: F,
    pub edge: Option<EdgeIds<I>>,
}

impl<F, I> EdgeWeight<F, I> {
    /// For the entries of `csr`.
    pub(crate) fn of_rows<B: Backend<IntTensorPrimitive = I>>(weight: F, csr: &Csr<B>) -> Self {
        Self { weight, edge: csr.edge_ids().map(EdgeIds::OfEntries) }
    }

    /// For the entries of the reverse of `csr`.
    pub(crate) fn of_reverse<B: Backend<IntTensorPrimitive = I>>(weight: F, csr: &Csr<B>) -> Self {
        Self { weight, edge: Some(csr.reverse_ids()) }
    }
}

/// Backends with [`spmm`].
pub trait SpmmBackend: SelectBackend {
    /// The product, without gradient. `own` adds the self term, and all of it is added to `accumulate_into` where that
    /// is given.
    #[doc(hidden)]
    fn spmm_forward(
        view: &View<IntTensor<Self>>,
        x: FloatTensor<Self>,
        weight: Option<EdgeWeight<FloatTensor<Self>, IntTensor<Self>>>,
        own: Option<OwnRows<FloatTensor<Self>, IntTensor<Self>>>,
        args: &SpmmArgs<FloatTensor<Self>>,
        accumulate_into: Option<FloatTensor<Self>>,
    ) -> FloatTensor<Self>;

    /// `out[rows[g]] = sum over the group of weight[position] x[entry]`, added to `accumulate_into`, which stands for
    /// zeros where it is not given.
    #[doc(hidden)]
    fn spmm_groups(
        groups: &Groups<IntTensor<Self>>,
        x: FloatTensor<Self>,
        weight: Option<FloatTensor<Self>>,
        num_rows: usize,
        accumulate_into: Option<FloatTensor<Self>>,
    ) -> FloatTensor<Self>;

    /// `out_e = u_i v_j <g_i, x_j>` for every kept edge between selected nodes, f32, zero for others: the gradient of
    /// an edge weight, added to `accumulate_into` where that is given. The edge of an entry is found through
    /// `edge_map`, which names each edge once.
    #[doc(hidden)]
    fn spmm_weight_gradient(
        view: &View<IntTensor<Self>>,
        edge_map: Option<IntTensor<Self>>,
        g: FloatTensor<Self>,
        x: FloatTensor<Self>,
        args: &SpmmArgs<FloatTensor<Self>>,
        accumulate_into: Option<FloatTensor<Self>>,
    ) -> FloatTensor<Self>;

    /// The same for entries that rows share, `out_e = v_j <sum_i u_i g_i, x_j>` over the selected rows `i` that keep
    /// entry `e`. Those that share it are its row of `sharers`.
    #[doc(hidden)]
    fn spmm_shared_weight_gradient(
        view: &View<IntTensor<Self>>,
        sharers: &Topology<IntTensor<Self>>,
        g: FloatTensor<Self>,
        x: FloatTensor<Self>,
        args: &SpmmArgs<FloatTensor<Self>>,
        accumulate_into: Option<FloatTensor<Self>>,
    ) -> FloatTensor<Self>;

    /// The product, recorded for the backward pass where the backend differentiates.
    #[doc(hidden)]
    fn spmm(
        csr: Csr<Self>,
        x: FloatTensor<Self>,
        weight: Option<FloatTensor<Self>>,
        own: Option<OwnRows<FloatTensor<Self>, IntTensor<Self>>>,
        args: SpmmArgs<FloatTensor<Self>>,
    ) -> FloatTensor<Self> {
        let weight = weight.map(|weight| EdgeWeight::of_rows(weight, &csr));
        Self::spmm_forward(&csr.view(), x, weight, own, &args, None)
    }
}

/// Sums the rows of a node's in-neighbours: `y_i = u_i sum_j v_j w_ij x_j + s_i h_i` over the kept entries `j` of row
/// `i`.
///
/// The separable weights `u`, `v` express GCN normalisation without a value per edge: with
/// `u_i = 1/sqrt(deg_i)` and `v_j = 1/sqrt(deg_j)` this is `D^-1/2 A D^-1/2 x`.
///
/// # Shapes
/// `x` `[num_cols, d]` in f32, f16 or bf16; `edge_weight` `[num_entries]` in f32, in the order of `csr`, of all edges
/// also where `csr` is restricted; result `[num_rows, d]` in the dtype of `x`. Sums are taken in f32 whatever the
/// storage. Where rows are spans ([`Csr::from_spans`]), those that share an entry share its weight.
///
/// # Gradient
/// `dx_j = v_j sum_i u_i w_ij dy_i` (the product with the reverse), `dw_ij = u_i v_j <dy_i, x_j>`, `dh_i = s_i dy_i`.
/// What rows share has the sum of their gradients, an edge of nodes that are not selected has none. Saved: `x` only
/// when the edge weights need a gradient. Deterministic: no atomics.
///
/// # Panics
/// If a shape or dtype does not fit, or `edge_weight` is given for the reverse of spans where that has an entry per
/// edge; the message names the argument, what was expected and what was got.
///
/// # Source
/// Kipf and Welling, Semi-supervised classification with graph convolutional networks (ICLR 2017), equation 2.
///
/// # Example
/// ```
/// use burn::tensor::Tensor;
/// use burn_flex::Flex;
/// use graphsieve_kernels::{Csr, SpmmConfig, spmm};
/// let device = Default::default();
/// let csr = Csr::<Flex>::from_host(&[0, 2, 3], &[0, 1, 1], 2, &device).unwrap();
/// let x = Tensor::<Flex, 2>::from_data([[1.0, 2.0], [3.0, 4.0]], &device);
/// let w = Tensor::<Flex, 1>::from_data([0.5, 1.0, 2.0], &device);
/// let y = spmm(&csr, x, Some(w), SpmmConfig::default());
/// assert_eq!(y.into_data().to_vec::<f32>().unwrap(), [3.5, 5.0, 6.0, 8.0]);
/// ```
pub fn spmm<B: SpmmBackend>(
    csr: &Csr<B>,
    x: Tensor<B, 2>,
    edge_weight: Option<Tensor<B, 1>>,
    config: SpmmConfig<B>,
) -> Tensor<B, 2> {
    const OP: &str = "spmm";
    let weight = edge_weight.map(|weight| weights(OP, csr, weight));
    let (x, own, args) = arguments(OP, csr, x, config);
    Tensor::from_primitive(TensorPrimitive::Float(B::spmm(csr.clone(), x, weight, own, args)))
}

/// The gradient of the weights of all entries from that of the result.
pub(crate) fn weight_gradient<B: SpmmBackend>(
    csr: &Csr<B>,
    g: FloatTensor<B>,
    x: FloatTensor<B>,
    args: &SpmmArgs<FloatTensor<B>>,
) -> FloatTensor<B> {
    match csr.topology().spans {
        true => shared_weight_gradient::<B>(csr, g, x, args, None),
        false => B::spmm_weight_gradient(&csr.view(), csr.edge_ids(), g, x, args, None),
    }
}

/// Adds the gradient of the weights of the entries from the nodes of `sources`, whose rows `x` has, to those so far;
/// other nodes are not walked.
pub(crate) fn weight_gradient_from<B: SpmmBackend>(
    csr: &Csr<B>,
    sources: &NodeSet<B>,
    g: FloatTensor<B>,
    x: FloatTensor<B>,
    args: &SpmmArgs<FloatTensor<B>>,
    so_far: Option<FloatTensor<B>>,
) -> FloatTensor<B> {
    let csr = csr.restrict(csr.sides()[0], Some(sources));
    match csr.topology().spans {
        true => shared_weight_gradient::<B>(&csr, g, x, args, so_far),
        false => {
            let (view, args) = (csr.reverse_view(), args.clone().reverse());
            B::spmm_weight_gradient(&view, Some(csr.reverse_edge()), x, g, &args, so_far)
        }
    }
}

fn shared_weight_gradient<B: SpmmBackend>(
    csr: &Csr<B>,
    g: FloatTensor<B>,
    x: FloatTensor<B>,
    args: &SpmmArgs<FloatTensor<B>>,
    so_far: Option<FloatTensor<B>>,
) -> FloatTensor<B> {
    let sharers = csr.columns_of_entries().reverse();
    B::spmm_shared_weight_gradient(&csr.view(), sharers.topology(), g, x, args, so_far)
}

/// Checks a weight per entry of the whole adjacency.
pub(crate) fn weights<B: Backend>(op: &str, csr: &Csr<B>, weight: Tensor<B, 1>) -> FloatTensor<B> {
    csr.check_entries(op, "edge_weight");
    let weight = weight.into_primitive().tensor();
    check::vector(op, "edge_weight", &weight, csr.num_entries());
    check::dtype(op, "edge_weight", &weight, DType::F32);
    weight
}

/// The arguments of a product as primitives: the sources, the self term, the rest.
type Arguments<B> = (FloatTensor<B>, Option<OwnRows<FloatTensor<B>, IntTensor<B>>>, SpmmArgs<FloatTensor<B>>);

/// Checks the arguments of a product without edge weights.
pub(crate) fn arguments<B: SpmmBackend>(
    op: &str,
    csr: &Csr<B>,
    x: Tensor<B, 2>,
    config: SpmmConfig<B>,
) -> Arguments<B> {
    let float = |t: Tensor<B, 1>| t.into_primitive().tensor();
    let x = x.into_primitive().tensor();
    check::storage::<B>(op, "x", &x);
    check::size(op, "rows of x", csr.num_cols(), check::matrix(op, "x", &x)[0]);
    let vector = |name: &str, tensor: Option<Tensor<B, 1>>, len: usize| {
        let tensor = tensor.map(float);
        if let Some(t) = &tensor {
            check::vector(op, name, t, len);
            check::dtype(op, name, t, DType::F32);
        }
        tensor
    };
    let whole = csr.topology();
    let args = SpmmArgs {
        dst_scale: vector("dst_scale", config.dst_scale, whole.num_rows),
        src_scale: vector("src_scale", config.src_scale, whole.num_cols),
        drop_edge: config.drop_edge,
    };
    let own = config.own.map(|own| {
        let (h, scale) = (own.h.into_primitive().tensor(), float(own.scale));
        let [rows, width] = check::matrix(op, "own.h", &h);
        check::same_dtype(op, "own.h", &h, &x);
        check::size(op, "columns of own.h", check::matrix(op, "x", &x)[1], width);
        check::vector(op, "own.scale", &scale, whole.num_rows);
        check::dtype(op, "own.scale", &scale, DType::F32);
        let nodes = own.nodes.map(|set| set.parts);
        check::size(op, "rows of own.h", nodes.as_ref().map_or(whole.num_rows, |set| set.len), rows);
        OwnRows { h, scale, nodes }
    });
    (x, own, args)
}
