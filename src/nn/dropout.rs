//! Dropout of a layer in a training pass.

use burn::tensor::Tensor;
use graphsieve_kernels::{Dropout, GraphBackend, dropout};

use super::graph_conv::{Nodes, TrainingPass};

/// Uses of dropout within a layer.
const SOURCE_FEATURES: u32 = 0;
const ATTENTION: u32 = 1;
const DESTINATION_FEATURES: u32 = 2;

fn of_stream(rate: f64, training: Option<TrainingPass>, stream: u32) -> Option<Dropout> {
    training.and_then(|pass| Dropout::new(rate, pass.seed, pass.step, pass.layer, stream))
}

/// Dropout of features.
pub(super) fn features<B: GraphBackend>(x: Nodes<B>, rate: f64, training: Option<TrainingPass>) -> Nodes<B> {
    let apply = |x: Tensor<B, 2>, stream: u32| match of_stream(rate, training, stream) {
        Some(drop) => dropout(x, &drop),
        None => x,
    };
    match x {
        Nodes::Same(x) => Nodes::Same(apply(x, SOURCE_FEATURES)),
        Nodes::Between { src, dst } => {
            Nodes::Between { src: apply(src, SOURCE_FEATURES), dst: apply(dst, DESTINATION_FEATURES) }
        }
    }
}

/// Dropout of attention weights.
pub(super) fn of_attention(rate: f64, training: Option<TrainingPass>) -> Option<Dropout> {
    let first = training.map_or(0, |pass| pass.first);
    of_stream(rate, training, ATTENTION).map(|drop| drop.with_bases(first, 0))
}
