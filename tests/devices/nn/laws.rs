//! The laws of a graph layer, on every layer.

use burn::module::Module;
use burn::tensor::Tensor;
use graphsieve::nn::*;
use graphsieve_kernels::testing::harness::Trial;
use graphsieve_kernels::testing::layer::Checked;
use graphsieve_kernels::testing::{LayerInput, LayerShape, assert_graph_layer_laws};

use super::layers::filled;

pub fn trials() -> Vec<Trial> {
    on_cpu!(
        "nn";
        gcn_obeys_the_laws,
        sage_obeys_the_laws,
        gin_obeys_the_laws,
        gat_obeys_the_laws,
        gatv2_obeys_the_laws,
        appnp_obeys_the_laws,
        beta_wavelets_obey_the_laws,
        hetero_obeys_the_laws,
        rgcn_obeys_the_laws,
        gradients_pass_through_dropout,
    )
}

const PASS: Option<TrainingPass> = Some(TrainingPass { seed: 3, step: 1, layer: 0, first: 0 });

fn nodes(input: &LayerInput) -> Nodes<Checked> {
    match &input.dst {
        None => input.src.clone().into(),
        Some(dst) => (input.src.clone(), dst.clone()).into(),
    }
}

fn assert_laws<C: GraphConv<Checked>>(name: &str, conv: C, dst_channels: Option<usize>) {
    let shape = LayerShape { in_channels: 4, dst_channels, edge_channels: None };
    assert_graph_layer_laws(name, &filled(conv), shape, |conv, input| conv.forward(&input.csr, nodes(&input), None));
}

fn assert_laws_with_edges<M: Module<Checked>>(
    name: &str,
    (conv, edge_channels, dst_channels): (M, usize, Option<usize>),
    forward: impl Fn(&M, LayerInput) -> Tensor<Checked, 2>,
) {
    let shape = LayerShape { in_channels: 4, dst_channels, edge_channels: Some(edge_channels) };
    assert_graph_layer_laws(name, &filled(conv), shape, forward);
}

fn gcn_obeys_the_laws() {
    let device = Default::default();
    for (loops, output) in [(true, 3), (true, 5), (false, 3)] {
        let config = GcnConvConfig::new(4, output).with_add_self_loops(loops);
        assert_laws("GcnConv", config.init(&device), Some(4));
        let weighted = (config.init::<Checked>(&device), 1, None);
        assert_laws_with_edges("GcnConv::forward_weighted", weighted, |conv, input| {
            // Weights are positive.
            let weight = input.edges.unwrap().exp().reshape([input.csr.num_edges()]);
            conv.forward_weighted(&input.csr, input.src, weight)
        });
    }
}

fn sage_obeys_the_laws() {
    let device = Default::default();
    for (aggr, output) in [(Aggregation::Mean, 3), (Aggregation::Max, 3), (Aggregation::Sum, 5)] {
        let config = SageConvConfig::new(4, output).with_aggr(aggr);
        assert_laws("SageConv", config.init(&device), Some(4));
        assert_laws("SageConv, normalised", config.with_normalize(true).init(&device), Some(4));
    }
}

fn gin_obeys_the_laws() {
    let device = Default::default();
    for (hidden, train_eps) in [(3, true), (5, true), (3, false)] {
        let config = GinConvConfig::new(4, hidden, 2).with_train_eps(train_eps);
        assert_laws("GinConv", config.init(&device), Some(4));
    }
}

fn gat_obeys_the_laws() {
    let device = Default::default();
    for (heads, channels, concat) in [(1, 3, true), (1, 6, true), (3, 2, true), (2, 3, false)] {
        let config = GatConvConfig::new(4, channels).with_heads(heads).with_concat(concat).with_residual(true);
        assert_laws("GatConv", config.init(&device), Some(4));
        let config = config.with_edge_channels(Some(2)).with_edge_messages(concat);
        let with_edges = (config.init::<Checked>(&device), 2, Some(4));
        assert_laws_with_edges("GatConv::forward_with_edges", with_edges, |conv, input| {
            let nodes = nodes(&input);
            conv.forward_with_edges(&input.csr, nodes, input.edges.unwrap(), None)
        });
    }
}

fn gatv2_obeys_the_laws() {
    let device = Default::default();
    for (heads, channels, concat) in [(1, 3, true), (3, 2, true), (2, 3, false)] {
        let config = GatV2ConvConfig::new(4, channels).with_heads(heads).with_concat(concat).with_residual(true);
        assert_laws("GatV2Conv", config.init(&device), Some(4));
        let config = config.with_edge_channels(Some(2)).with_edge_messages(concat);
        let with_edges = (config.init::<Checked>(&device), 2, Some(4));
        assert_laws_with_edges("GatV2Conv::forward_with_edges", with_edges, |conv, input| {
            let nodes = nodes(&input);
            conv.forward_with_edges(&input.csr, nodes, input.edges.unwrap(), None)
        });
    }
}

fn appnp_obeys_the_laws() {
    let device = Default::default();
    for loops in [true, false] {
        assert_laws(
            "AppnpConv",
            AppnpConvConfig::new(3, 0.2).with_add_self_loops(loops).init::<Checked>(&device),
            None,
        );
    }
}

fn beta_wavelets_obey_the_laws() {
    let device = Default::default();
    for output in [3, 5] {
        assert_laws("BwConv", BwConvConfig::new(4, output).with_order(3).init(&device), None);
    }
}

/// The node types of an input, and the one that the destinations have.
fn types(input: &LayerInput) -> (Vec<Tensor<Checked, 2>>, usize) {
    match &input.dst {
        None => (vec![input.src.clone()], 0),
        Some(dst) => (vec![input.src.clone(), dst.clone()], 1),
    }
}

const TYPED: LayerShape = LayerShape { in_channels: 4, dst_channels: Some(4), edge_channels: None };

fn hetero_obeys_the_laws() {
    let device = Default::default();
    let conv = |seed: u64| ConvConfig::Gat(GatConvConfig::new(4, 2).with_seed(seed));
    let attention = SemanticAttentionConfig::new(2).with_hidden_channels(3);
    let settings: [RelationAggregation; 5] = [
        Aggregation::Sum.into(),
        Aggregation::Mean.into(),
        Aggregation::Max.into(),
        attention.clone().into(),
        attention.with_per_node(true).into(),
    ];
    for aggr in settings {
        let layer: HeteroConv<Checked> = HeteroConvConfig::new(vec![conv(1), conv(2)]).with_aggr(aggr).init(&device);
        assert_graph_layer_laws("HeteroConv", &filled(layer), TYPED, |layer, input| {
            let (types, dst) = types(&input);
            let relation = TypedEdges { csr: &input.csr, src: 0, dst };
            layer.forward(&[relation; 2], &types, None)[dst].clone().unwrap()
        });
    }
}

fn rgcn_obeys_the_laws() {
    let device = Default::default();
    let weights = [RelationWeights::Full, RelationWeights::Bases(2), RelationWeights::Blocks(2)];
    for (weights, output, mean, chunk_rows) in [
        (weights[0], 2, true, None),
        (weights[0], 6, false, Some(2)),
        (weights[1], 6, true, None),
        (weights[1], 2, true, Some(2)),
        (weights[2], 6, false, None),
        (weights[2], 2, true, Some(100)),
    ] {
        let layer = RgcnConvConfig::new(4, output, 3).with_weights(weights).with_mean(mean).init(&device);
        assert_graph_layer_laws("RgcnConv", &filled(layer), TYPED, |layer, input| {
            let (types, dst) = types(&input);
            let reverse = input.csr.reverse();
            let relation = TypedEdges { csr: &input.csr, src: 0, dst };
            let relations = [relation, TypedEdges { csr: &reverse, src: dst, dst: 0 }, relation];
            let counts: Vec<usize> = types.iter().map(|x| x.dims()[0]).collect();
            let block = Block::whole(&relations, &counts);
            layer.forward_block(&block, &types, chunk_rows)[dst].clone()
        });
    }
}

fn gradients_pass_through_dropout() {
    let device = Default::default();
    let shape = LayerShape { in_channels: 4, dst_channels: Some(4), edge_channels: None };
    let config = GatConvConfig::new(4, 2).with_heads(2).with_feature_dropout(0.3).with_attention_dropout(0.3);
    let conv = filled(config.init::<Checked>(&device));
    let forward = |conv: &GatConv<Checked>, input: LayerInput| conv.forward(&input.csr, nodes(&input), PASS);
    let layer = graphsieve_kernels::testing::layer::Layer { name: "GatConv", module: &conv, shape, forward: &forward };
    layer.has_right_gradients();
    let forward = |conv: &GatConv<Checked>, input: LayerInput| {
        conv.forward_with_attention(&input.csr, nodes(&input), None, PASS).0
    };
    let layer = graphsieve_kernels::testing::layer::Layer { name: "GatConv", module: &conv, shape, forward: &forward };
    layer.has_right_gradients();
}
