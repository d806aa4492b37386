//! What layers refuse, and what a seed and a pass mean.

use std::panic::{UnwindSafe, catch_unwind};

use burn::tensor::Tensor;
use burn_flex::Flex;
use graphsieve::nn::*;
use graphsieve_kernels::Csr;
use graphsieve_kernels::testing::harness::Trial;

pub fn trials() -> Vec<Trial> {
    on_cpu!(
        "nn";
        a_wrong_width_is_named,
        a_wrong_number_of_destinations_is_named,
        missing_features_of_edges_are_named,
        features_of_edges_of_a_wrong_width_are_named,
        a_layer_on_one_kind_of_nodes_says_so,
        a_rate_of_one_is_refused,
        a_relation_without_a_layer_is_refused,
        features_of_edges_that_no_layer_reads_are_refused,
        relations_that_do_not_fit_are_refused,
        widths_of_relations_that_do_not_fit_are_refused,
        a_seed_means_the_same_weights_and_another_one_others,
        a_pass_is_repeated_by_its_numbers_and_evaluation_drops_nothing,
        a_config_survives_a_file,
    )
}

/// `body` panics with a message that holds `part`.
fn refuses(part: &str, body: impl FnOnce() + UnwindSafe) {
    let panic = catch_unwind(body).expect_err("it is refused");
    let message = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    assert!(message.is_some_and(|message| message.contains(part)), "{message:?} lacks {part:?}");
}

fn ring(n: u32) -> Csr<Flex> {
    let row_ptr: Vec<u64> = (0..=n.into()).collect();
    let col_idx: Vec<u32> = (0..n).map(|i| (i + 1) % n).collect();
    Csr::from_host(&row_ptr, &col_idx, n as usize, &Default::default()).unwrap()
}

fn zeros(rows: usize, width: usize) -> Tensor<Flex, 2> {
    Tensor::zeros([rows, width], &Default::default())
}

fn values<const D: usize>(tensor: Tensor<Flex, D>) -> Vec<f32> {
    tensor.into_data().into_vec().unwrap()
}

fn a_wrong_width_is_named() {
    refuses("GcnConv: columns of x: expected 4, got 3", || {
        GcnConvConfig::new(4, 2).init::<Flex>(&Default::default()).forward(&ring(3), zeros(3, 3));
    });
}

fn a_wrong_number_of_destinations_is_named() {
    refuses("SageConv: rows of dst: expected 3, got 2", || {
        SageConvConfig::new(4, 2).init::<Flex>(&Default::default()).forward(&ring(3), (zeros(3, 4), zeros(2, 4)));
    });
}

fn missing_features_of_edges_are_named() {
    refuses("GatConv: edges: expected features [3, 2], got none; use forward_with_edges", || {
        let config = GatConvConfig::new(4, 2).with_edge_channels(Some(2));
        config.init::<Flex>(&Default::default()).forward(&ring(3), zeros(3, 4), None);
    });
}

fn features_of_edges_of_a_wrong_width_are_named() {
    refuses("GatV2Conv: edge_messages: expected edge_channels or time_cosines beside it, got neither", || {
        drop(GatV2ConvConfig::new(4, 2).with_edge_messages(true).init::<Flex>(&Default::default()));
    });
    refuses("GatV2Conv: columns of edges: expected 2, got 5", || {
        let config = GatV2ConvConfig::new(4, 2).with_edge_channels(Some(2));
        config.init::<Flex>(&Default::default()).forward_with_edges(&ring(3), zeros(3, 4), zeros(3, 5), None);
    });
}

fn a_layer_on_one_kind_of_nodes_says_so() {
    refuses("BwConv: x: expected sources and destinations to be the same nodes", || {
        BwConvConfig::new(4, 2).init::<Flex>(&Default::default()).forward(&ring(3), (zeros(3, 4), zeros(3, 4)));
    });
}

fn a_rate_of_one_is_refused() {
    refuses("GatConv: attention_dropout: expected [0, 1), got 1", || {
        GatConvConfig::new(4, 2).with_attention_dropout(1.0).init::<Flex>(&Default::default());
    });
}

fn a_relation_without_a_layer_is_refused() {
    refuses("HeteroConv: relations: expected 1, got 0", || {
        let config = HeteroConvConfig::new(vec![ConvConfig::Gcn(GcnConvConfig::new(4, 2))]);
        config.init::<Flex>(&Default::default()).forward(&[], &[zeros(3, 4)], None);
    });
}

fn features_of_edges_that_no_layer_reads_are_refused() {
    refuses("GraphConv: edges: expected none for a layer that reads none, got features [3, 2]", || {
        let config = HeteroConvConfig::new(vec![ConvConfig::Gcn(GcnConvConfig::new(4, 2))]);
        let (layer, csr) = (config.init::<Flex>(&Default::default()), ring(3));
        let relations = [TypedEdges { csr: &csr, src: 0, dst: 0 }];
        layer.forward_with_edges(&relations, &[Some(zeros(3, 2))], &[zeros(3, 4)], None);
    });
}

fn relations_that_do_not_fit_are_refused() {
    let forward = |relations: usize, (src, dst): (usize, usize), x: &[Tensor<Flex, 2>]| {
        let conv = RgcnConvConfig::new(4, 2, relations).init::<Flex>(&Default::default());
        conv.forward(&[TypedEdges { csr: &ring(3), src, dst }], x);
    };
    refuses("RgcnConv: relations: expected 2, got 1", || forward(2, (0, 0), &[zeros(3, 4)]));
    refuses("src of relation 0: expected one of 1 node types, got 1", || forward(1, (1, 0), &[zeros(3, 4)]));
    let sources = "sources of relation 0: expected 5, got 3";
    refuses(sources, || forward(1, (1, 0), &[zeros(3, 4), zeros(5, 4)]));
}

fn widths_of_relations_that_do_not_fit_are_refused() {
    let init =
        |weights: RelationWeights| RgcnConvConfig::new(4, 6, 1).with_weights(weights).init::<Flex>(&Default::default());
    let blocks = "RgcnConv: blocks: expected a divisor of the widths [4, 6], got 4";
    refuses(blocks, || drop(init(RelationWeights::Blocks(4))));
    refuses("RgcnConv: bases: expected at least 1, got 0", || drop(init(RelationWeights::Bases(0))));
    refuses("RgcnConv: columns of x[1]: expected 4, got 5", || {
        init(RelationWeights::Full)
            .forward(&[TypedEdges { csr: &ring(3), src: 0, dst: 0 }], &[zeros(3, 4), zeros(2, 5)]);
    });
    let attention = || SemanticAttentionConfig::new(4).init::<Flex>(&Default::default());
    refuses("SemanticAttention: columns of x: expected 4, got 3", || drop(attention().forward(vec![zeros(2, 3)])));
    refuses("SemanticAttention: rows of x: expected 2, got 3", || {
        attention().forward(vec![zeros(2, 4), zeros(3, 4)]);
    });
    refuses("SemanticAttention: x: expected at least one matrix", || drop(attention().forward(Vec::new())));
}

fn a_seed_means_the_same_weights_and_another_one_others() {
    let weight =
        |seed: u64| values(GcnConvConfig::new(4, 2).with_seed(seed).init::<Flex>(&Default::default()).weight.val());
    assert_eq!(weight(1), weight(1));
    assert_ne!(weight(1), weight(2));
}

fn a_pass_is_repeated_by_its_numbers_and_evaluation_drops_nothing() {
    let config = GatConvConfig::new(4, 8).with_feature_dropout(0.5).with_attention_dropout(0.5);
    let conv = config.init::<Flex>(&Default::default());
    let x = zeros(50, 4) + 1.0;
    let forward = |training: Option<TrainingPass>| values(conv.forward(&ring(50), x.clone(), training));
    let pass = TrainingPass { seed: 1, step: 2, layer: 3, first: 0 };
    assert_eq!(forward(Some(pass)), forward(Some(pass)));
    for other in [TrainingPass { seed: 2, ..pass }, TrainingPass { step: 3, ..pass }, pass.layer(4)] {
        assert_ne!(forward(Some(pass)), forward(Some(other)));
    }
    // Equal features have equal results.
    assert!(forward(None).chunks(8).all(|row| row.iter().zip(&forward(None)).all(|(a, b)| (a - b).abs() < 1e-6)));
}

fn a_config_survives_a_file() {
    use burn::config::Config;
    let config = HeteroConvConfig::new(vec![ConvConfig::Gat(GatConvConfig::new(4, 2).with_heads(3))]);
    let config = config.with_aggr(SemanticAttentionConfig::new(6).with_per_node(true).into());
    let file = tempfile::NamedTempFile::new().unwrap();
    config.save(file.path()).unwrap();
    assert_eq!(HeteroConvConfig::load(file.path()).unwrap().to_string(), config.to_string());
    let config = RgcnConvConfig::new(4, 2, 3).with_weights(RelationWeights::Bases(2));
    config.save(file.path()).unwrap();
    assert_eq!(RgcnConvConfig::load(file.path()).unwrap().to_string(), config.to_string());
}
