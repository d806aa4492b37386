//! What the attention layers have in common.

use burn::module::Param;
use burn::tensor::backend::Backend;
use burn::tensor::{DType, Tensor};
use graphsieve_kernels::{
    Activation, Age, Csr, GraphBackend, LoopValue, Message, Reduce, Strategy, edge_softmax, gspmm, linear, row_dots,
    spmm,
};

use super::check;
use super::edge_features::{EdgeFeatures, TimeEncoder};
use super::graph_conv::{Nodes, finish};

/// The adjacency that attention runs on, and what its entries carry: `channels` values, and ages where the layer reads
/// them.
pub(super) fn edges_of<B: GraphBackend>(
    layer: &str,
    csr: &Csr<B>,
    edges: EdgeFeatures<B>,
    (channels, reads_ages): (usize, bool),
    self_loops: bool,
) -> (Csr<B>, EdgeFeatures<B>) {
    match &edges.values {
        None if channels == 0 => {}
        Some(values) if channels == 0 => {
            panic!("{layer}: edges: expected none without edge_channels, got features {:?}", values.dims())
        }
        Some(values) => {
            check::size(layer, "rows of edges", csr.num_edges(), values.dims()[0]);
            check::size(layer, "columns of edges", channels, values.dims()[1]);
        }
        None => {
            let edges = csr.num_edges();
            panic!("{layer}: edges: expected features [{edges}, {channels}], got none; use forward_with_edges")
        }
    }
    match (&edges.age, reads_ages) {
        (None, true) => panic!("{layer}: ages of edges: expected them, got none; use forward_with_edges"),
        (Some(_), false) => panic!("{layer}: ages of edges: expected none without time_cosines"),
        _ => {}
    }
    if !self_loops {
        return (csr.clone(), edges);
    }
    let looped = csr.with_self_loops();
    let values = edges.values.map(|values| looped.edge_values(values, LoopValue::Mean));
    let age = edges.age.map(|age| match age {
        Age::Edges(ages) => {
            let ages = looped.edge_values(ages.reshape([csr.num_edges(), 1]), LoopValue::Kept(0.0));
            Age::Edges(ages.reshape([looped.csr.num_edges()]))
        }
        of_nodes => of_nodes,
    });
    (looped.csr, EdgeFeatures { values, age })
}

/// The values and whether ages are read of edges whose projection is `weight`.
pub(super) fn read_of_edges<B: Backend>(
    weight: Option<&Param<Tensor<B, 2>>>,
    time: Option<&TimeEncoder<B>>,
) -> (usize, bool) {
    let columns = weight.map_or(0, |weight| weight.dims()[0]);
    (columns - time.map_or(0, TimeEncoder::columns), time.is_some())
}

/// Fails for messages with what edges carry, of edges that carry nothing.
#[track_caller]
pub(super) fn check_messages(layer: &str, edge_messages: bool, reads_edges: bool) {
    let fits = reads_edges || !edge_messages;
    assert!(fits, "{layer}: edge_messages: expected edge_channels or time_cosines beside it, got neither");
}

/// Fails for a layer that reads ages, of which there is no matrix.
#[track_caller]
pub(super) fn check_no_ages<B: Backend>(layer: &str, time: Option<&TimeEncoder<B>>) {
    let fits = time.is_none();
    assert!(fits, "{layer}: time_cosines: expected none where weights or more than 16 values of edges are stored");
}

/// `W a` of every head `[heads, in]`, so that `<a, x W> = <W a, x>`.
pub(crate) fn folded<B: GraphBackend>(weight: Tensor<B, 2>, vectors: Tensor<B, 2>) -> Tensor<B, 2> {
    // Not by products that are added up: on the way back Burn 0.21 would give a transposed matrix of one column more
    // dimensions, and loses its stride there.
    row_dots(weight, by_head(vectors)).transpose()
}

/// One vector per head, `[heads, channels]`, as rows over all channels: `[heads, heads * channels]`.
pub(crate) fn by_head<B: Backend>(vectors: Tensor<B, 2>) -> Tensor<B, 2> {
    let [heads, channels] = vectors.dims();
    if heads == 1 {
        return vectors;
    }
    let own = Tensor::<B, 2>::eye(heads, &vectors.device()).reshape([heads, heads, 1]);
    (vectors.reshape([heads, 1, channels]) * own).reshape([heads, heads * channels])
}

/// What edges add up to for every head, `[rows, heads * columns]`, projected: `v_h W_h`, heads side by side, with
/// `weight` `[columns, heads * channels]`.
pub(crate) fn projected_by_head<B: GraphBackend>(v: Tensor<B, 2>, weight: Tensor<B, 2>, heads: usize) -> Tensor<B, 2> {
    if heads == 1 {
        return linear(v, weight, None);
    }
    let [columns, width] = weight.dims();
    // One product: a head's values meet its own columns alone.
    let own = Tensor::<B, 2>::eye(heads, &weight.device()).reshape([heads, 1, heads, 1]);
    let of_heads = weight.reshape([1, columns, heads, width / heads]) * own;
    linear(v, of_heads.reshape([heads * columns, width]), None)
}

/// Attention weights `[num_edges, heads]`, f32, from the logits; those are not asked for where there are no edges,
/// since some devices do not take a launch over nothing.
pub(super) fn weights_of<B: GraphBackend>(
    csr: &Csr<B>,
    heads: usize,
    device: &B::Device,
    logits: impl FnOnce() -> Tensor<B, 2>,
) -> Tensor<B, 2> {
    if csr.num_edges() == 0 {
        return Tensor::empty([0, heads], (device, DType::F32));
    }
    edge_softmax(csr, logits())
}

/// `sum_j a_ij h_j` of every head; `attention` `[num_edges, heads]` is f32.
pub(super) fn weighted_sum<B: GraphBackend>(csr: &Csr<B>, h: Tensor<B, 2>, attention: Tensor<B, 2>) -> Tensor<B, 2> {
    // A weight per edge is a sparse product.
    if attention.dims()[1] == 1 {
        return spmm(csr, h, Some(attention.reshape([csr.num_edges()])), Default::default());
    }
    let attention = if attention.dtype() == h.dtype() { attention } else { attention.cast(h.dtype()) };
    gspmm(csr, Message::u_mul_e(h, attention), Reduce::Sum, Strategy::Auto)
}

/// [`weighted_sum`] with messages `h_j + e_ij W_h`, where `edges` has the `e` and `W`, and there are edges.
pub(super) fn weighted_messages<B: GraphBackend>(
    csr: &Csr<B>,
    h: Tensor<B, 2>,
    attention: Tensor<B, 2>,
    edges: Option<(Tensor<B, 2>, Tensor<B, 2>)>,
) -> Tensor<B, 2> {
    let y = weighted_sum(csr, h, attention.clone());
    let Some((values, weight)) = edges.filter(|_| csr.num_edges() > 0) else { return y };
    let attention = if attention.dtype() == values.dtype() { attention } else { attention.cast(values.dtype()) };
    // A head at a time: all of them would take columns times heads per edge.
    let of_head =
        |weights: Tensor<B, 2>| gspmm(csr, Message::CopyE(values.clone() * weights), Reduce::Sum, Strategy::Auto);
    let heads = attention.dims()[1];
    let v = Tensor::cat(attention.split(1, 1).into_iter().map(of_head).collect(), 1);
    with_edges(y, Some((v, weight)), heads)
}

/// `y`, and where messages have what edges carry, what that adds up to and its projection.
pub(super) fn with_edges<B: GraphBackend>(
    y: Tensor<B, 2>,
    edges: Option<(Tensor<B, 2>, Tensor<B, 2>)>,
    heads: usize,
) -> Tensor<B, 2> {
    match edges {
        Some((v, weight)) => finish(vec![y, projected_by_head(v, weight, heads)], None, Activation::Identity),
        None => y,
    }
}

/// What a layer adds to the features of the destinations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Residual {
    Nothing,
    /// The destinations as they are.
    Identity,
    /// Their projection.
    Projected,
}

impl Residual {
    pub fn new(wanted: bool, input: usize, output: usize) -> Self {
        match wanted {
            false => Residual::Nothing,
            true if input == output => Residual::Identity,
            true => Residual::Projected,
        }
    }
}

/// The end of a layer: heads side by side or averaged, residual and bias.
pub(super) fn finish_heads<B: GraphBackend>(
    y: Tensor<B, 2>,
    (heads, concat): (usize, bool),
    (residual, weight): (Residual, Option<&Param<Tensor<B, 2>>>),
    x: &Nodes<B>,
    bias: Option<&Param<Tensor<B, 1>>>,
) -> Tensor<B, 2> {
    let [rows, width] = y.dims();
    let y = match concat || heads == 1 {
        true => y,
        false => y.reshape([rows, heads, width / heads]).mean_dim(1).reshape([rows, width / heads]),
    };
    let dst = || x.dst().clone();
    let own = match (residual, weight) {
        (Residual::Nothing, _) => None,
        (_, None) => Some(dst()),
        (_, Some(weight)) => Some(linear(dst(), weight.val(), None)),
    };
    finish([Some(y), own].into_iter().flatten().collect(), bias, Activation::Identity)
}
