//! A layer over several node types or relations.

use burn::module::Module;
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use graphsieve_kernels::{Activation, GraphBackend, combine};

use super::difference::DifferenceConv;
use super::own::Own;
use super::{AttentionShape, ClassifierSpec};
use crate::config::LayerKind;
use crate::models::attention::EdgeLayer;
use crate::models::node_input::NodeInput;
use crate::nn::{
    Aggregation, Block, GatConv, GatConvConfig, Nodes, RelationEdges, SageConv, SageConvConfig, TrainingPass,
};

/// A convolution per relation and a projection per node type:
///
/// ```text
/// y_i = x_i W_t + b_t + sum_r conv_r(i)      t the type of i, over the relations r into t
/// ```
///
/// `conv_r` is the mean over the in-neighbours of the relation, projected, the same with a [`DifferenceConv`], or graph
/// attention among them. A mean is weighted where the edges of the relation have weights: their values. Attention reads
/// values and ages of edges as that of Stage 2 does
/// ([`TripleStreamGat`](crate::models::attention::TripleStreamGat)). A node comes in by `W_t` alone: no self-loop is
/// added. A residual connection is an identity in `W_t`.
///
/// # Source
/// Schlichtkrull et al., Modeling relational data with graph convolutional networks (ESWC 2018), equation 2, with
/// `c_{i,r} = |N_i^r|`.
#[derive(Module, Debug)]
pub(super) struct TypedLayer<B: Backend> {
    relations: Vec<RelationConv<B>>,
    own: Vec<Own<B>>,
    residual: bool,
}

#[derive(Module, Debug)]
#[expect(clippy::large_enum_variant, reason = "a model holds a handful of relations")]
enum RelationConv<B: Backend> {
    Mean(SageConv<B>),
    Gat(GatConv<B>),
    Difference(DifferenceConv<B>),
}

impl<B: GraphBackend> TypedLayer<B> {
    /// Of the widths `input` and `output`; `last` averages heads, which are concatenated otherwise.
    pub fn new(spec: &ClassifierSpec, [input, output]: [usize; 2], last: bool, device: &B::Device) -> Self {
        let conv = || match spec.attention {
            None if spec.layer == LayerKind::Difference => {
                RelationConv::Difference(DifferenceConv::new([input, output], device))
            }
            None => {
                let config = SageConvConfig::new(input, output).with_aggr(Aggregation::Mean);
                RelationConv::Mean(config.with_root_weight(false).with_bias(false).init(device))
            }
            Some(shape) => {
                let config = gat_config(shape, [input, output], last).with_bias(false);
                RelationConv::Gat(GatConvConfig { add_self_loops: false, ..config }.init(device))
            }
        };
        Self {
            relations: (0..spec.num_relations()).map(|_| conv()).collect(),
            own: (0..spec.types.len().max(1)).map(|_| Own::new([input, output], device)).collect(),
            residual: spec.connections.residual && input == output,
        }
    }

    /// The result of every type, `[rows after the layer, output]`; a type without rows has an empty matrix.
    ///
    /// # Shapes
    /// `x` has the rows before the layer of every type; `carried` is what attention makes of the edges, where it reads
    /// any.
    pub fn forward(
        &self,
        block: &Block<B>,
        x: &[NodeInput<B>],
        carried: Option<&EdgeLayer<B>>,
        pass: Option<TrainingPass>,
    ) -> Vec<Tensor<B, 2>> {
        let own: Vec<NodeInput<B>> = x.iter().zip(&block.kept).map(|(x, kept)| x.selected(kept)).collect();
        self.forward_to(block, (x, &own), carried, pass)
    }

    /// The same where those of the rows `x` that are left after the layer are at hand.
    pub fn forward_to(
        &self,
        block: &Block<B>,
        (x, after): (&[NodeInput<B>], &[NodeInput<B>]),
        carried: Option<&EdgeLayer<B>>,
        pass: Option<TrainingPass>,
    ) -> Vec<Tensor<B, 2>> {
        let of_type = |(t, own): (usize, &Own<B>)| {
            let weight = own.weight.val();
            let rows = &after[t];
            if block.rows_after(t) == 0 {
                return Tensor::empty([0, weight.dims()[1]], (&weight.device(), x[t].dtype()));
            }
            let weight = match self.residual {
                true => weight.clone() + Tensor::eye(weight.dims()[0], &weight.device()),
                false => weight,
            };
            let mut parts = vec![rows.project(weight)];
            parts.extend(block.edges.iter().filter(|edges| edges.dst == t).flat_map(|edges| {
                let pass = pass.map(|pass| pass.layer(((pass.layer + 1) << 16) | edges.relation as u32));
                self.along(edges, block, (x, rows), carried, pass)
            }));
            combine(parts, Some(own.bias.val()), 1.0, Activation::Identity)
        };
        self.own.iter().enumerate().map(of_type).collect()
    }

    /// What arrives along one relation; `after` are the destinations.
    fn along(
        &self,
        edges: &RelationEdges<B>,
        block: &Block<B>,
        (x, after): (&[NodeInput<B>], &NodeInput<B>),
        carried: Option<&EdgeLayer<B>>,
        pass: Option<TrainingPass>,
    ) -> Vec<Tensor<B, 2>> {
        match &self.relations[edges.relation] {
            RelationConv::Mean(conv) => {
                let h = x[edges.src].project(conv.weight.val());
                vec![match edges.weights() {
                    Some(weights) => conv.propagate_weighted(&edges.csr, h, weights),
                    None => conv.propagate(&edges.csr, h),
                }]
            }
            RelationConv::Difference(conv) => conv.along(edges, block, &x[edges.src], after).into(),
            RelationConv::Gat(conv) => {
                let weight = conv.weight.val();
                let src = x[edges.src].project(weight.clone());
                let dst = match edges.src == edges.dst {
                    true => block.destinations(edges.dst, src.clone()),
                    false => after.project(weight),
                };
                let pass = pass.map(|pass| pass.from_row(block.kept[edges.dst].first()));
                let nodes = Nodes::Between { src, dst };
                let Some(of_edges) = carried.and_then(|carried| carried.of(edges)) else {
                    return vec![conv.propagate(&edges.csr, nodes, pass)];
                };
                vec![conv.propagate_by(&nodes, pass, |h, scores, heads, config| {
                    let [sums, messages] = of_edges.attend(&edges.csr, h, scores, heads, config);
                    sums + messages
                })]
            }
        }
    }
}

/// Averaged heads have the width of the result each, concatenated ones share it.
pub(super) fn gat_config(shape: AttentionShape, [input, output]: [usize; 2], last: bool) -> GatConvConfig {
    let heads = if last { shape.out_heads } else { shape.heads };
    let channels = if last { output } else { output / heads };
    let config = GatConvConfig::new(input, channels).with_heads(heads).with_concat(!last);
    config.with_negative_slope(shape.negative_slope).with_attention_dropout(shape.dropout)
}
