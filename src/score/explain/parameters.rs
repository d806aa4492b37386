//! The parameters of trained models as plain numbers.

use std::collections::BTreeMap;

use super::network::{
    Activation, Coefficients, EdgeTransform, Gate, Head, Joined, Layer, Matrix, Network, Normalised, Pieces,
    TimeTransform, Transform,
};
use crate::config::{Jump, LayerKind, Norm};
use crate::graph::HeteroGraph;
use crate::models::attention::{
    AttentionSpec, BOUNDS_NAME, EdgeInput, edge_names, gate_name, norm_names, own_weight, time_names,
};
use crate::models::node_classifier::ClassifierSpec;
use crate::models::parameters::HostTensor;

/// Those of a Stage-2 model, whose streams are in the order of the graph's; `tensors` has them all.
pub(super) fn of_attention(
    spec: &AttentionSpec,
    tensors: &BTreeMap<String, HostTensor>,
    graph: &HeteroGraph,
) -> (Network, Head) {
    let values = |name: String| &tensors[&name].values[..];
    let of_itself = |at: usize, shape: [usize; 2], name: &Option<String>| {
        let name = name.as_ref()?;
        Some(Matrix::transposed(shape, values(own_weight(at - 1, name))))
    };
    let own_of = |at: usize, shape: [usize; 2]| -> Vec<Option<Matrix>> {
        let square = shape[0] == shape[1];
        let shape = if at == 1 { [spec.own_input(), shape[1]] } else { shape };
        let own: Vec<Option<Matrix>> = spec.own.iter().map(|name| of_itself(at, shape, name)).collect();
        if !spec.connections.residual {
            return own;
        }
        // In both layers or in none: a layer that changes the width adds nothing.
        let with_identity = |t: usize| {
            let own = own.get(t).cloned().flatten().unwrap_or_else(|| Matrix::zeros(shape));
            Some(if square { own.plus_identity() } else { own })
        };
        (0..graph.node_types().len()).map(with_identity).collect()
    };
    let of_edges = |at: usize, output: usize, input: &Option<EdgeInput>| {
        let input = input.as_ref()?;
        let [weight, vector] = edge_names(at - 1, &input.relation).map(values);
        let time = input.time.as_ref().map(|_| {
            let [frequency, phase] = time_names(at - 1, &input.relation).map(values);
            TimeTransform {
                frequency: frequency.iter().map(|&log| f64::from(log).exp()).collect(),
                phase: phase.iter().map(|&phase| f64::from(phase)).collect(),
            }
        });
        Some(EdgeTransform::new(Matrix::transposed([input.columns(), output], weight), spec.heads, vector, time))
    };
    let wide = |name: String| values(name).iter().map(|&value| f64::from(value)).collect::<Vec<f64>>();
    let gate = |at: usize, name: &Option<String>| {
        let name = name.as_ref().filter(|_| spec.connections.gate)?;
        Some(Gate::new(values(gate_name(at - 1, name))))
    };
    let norm = |at: usize| match spec.connections.norm {
        Norm::None => None,
        Norm::Layer => {
            let [scale, shift] = norm_names(at - 1).map(wide);
            Some(Normalised { scale, shift })
        }
    };
    let layer = |at: usize, input: usize, output: usize| {
        let of_stream = |stream: &String| {
            let weight = Matrix::transposed([input, output], values(format!("gat{at}.W_{stream}.weight")));
            let vectors = values(format!("gat{at}.a_{stream}")).split_at(output);
            Transform::with_attention(weight, spec.heads, vectors.into())
        };
        Layer {
            input,
            output,
            heads: spec.heads,
            averaged: false,
            activation: Activation::Elu,
            transforms: spec.streams.iter().map(of_stream).collect(),
            edges: spec.edges.iter().map(|input| of_edges(at, output, input)).collect(),
            own: own_of(at, [input, output]),
            bias: Vec::new(),
            gates: spec.own.iter().map(|name| gate(at, name)).collect(),
            norm: norm(at),
        }
    };
    let stream_of = |stream: &String| spec.streams.iter().position(|known| known == stream).unwrap_or_default();
    let network = Network {
        weighted: false,
        layers: vec![layer(1, spec.input, spec.hidden), layer(2, spec.hidden, spec.output)],
        coefficients: Coefficients::Attention { negative_slope: f64::from(spec.negative_slope) },
        loops: false,
        transform_of: graph.relations().iter().map(|relation| stream_of(&relation.stream)).collect(),
        scales: graph.streams_into().iter().map(|&streams| 1.0 / streams.max(1) as f64).collect(),
        row_normalise: false,
        pieces: spec.pieces.as_ref().map(|input| Pieces::new(input.pieces, values(BOUNDS_NAME.into()))),
    };
    let weights = wide("score_head.weight".into());
    let (joined, weights) = match spec.connections.jump {
        Jump::None => (Joined::Nothing, weights),
        Jump::Max => (Joined::Largest, weights),
        Jump::Concat => {
            let (hidden, last) = weights.split_at(spec.hidden);
            (Joined::Beside(hidden.to_vec()), last.to_vec())
        }
    };
    (network, Head { weights, bias: f64::from(values("score_head.bias".into())[0]), joined })
}

/// Those of a node classifier, whose relations are in the order of the graph's; `tensors` has them all.
pub(super) fn of_classifier(
    spec: &ClassifierSpec,
    tensors: &BTreeMap<String, HostTensor>,
    graph: &HeteroGraph,
) -> Network {
    let (types, relations) = (graph.node_types().len(), graph.relations().len());
    let typed = spec.is_typed();
    let values = |name: &str| &tensors[name].values[..];
    let wide = |name: &str| values(name).iter().map(|&value| f64::from(value)).collect::<Vec<f64>>();
    let layer = |at: usize| {
        let last = at + 1 == spec.layers;
        let input = if at == 0 { spec.input } else { spec.hidden };
        let output = if last { spec.classes } else { spec.hidden };
        let heads = spec.attention.map_or(1, |shape| if last { shape.out_heads } else { shape.heads });
        let width = if last { heads * output } else { output };
        let transform = |place: String| {
            let weight = Matrix::new([input, width], values(&format!("{place}.weight")));
            let vector = |end: &str| values(&format!("{place}.att_{end}"));
            match spec.layer {
                LayerKind::Gcn => Transform::new(weight),
                LayerKind::Gat => Transform::with_attention(weight, heads, [vector("dst"), vector("src")]),
            }
        };
        let own = |t: usize| format!("layers.{at}.own.{t}");
        Layer {
            input,
            output,
            heads,
            averaged: last,
            activation: match spec.layer {
                _ if last => Activation::Identity,
                LayerKind::Gcn => Activation::Relu,
                LayerKind::Gat => Activation::Elu,
            },
            edges: Vec::new(),
            transforms: match typed {
                true => (0..relations).map(|r| transform(format!("layers.{at}.relations.{r}"))).collect(),
                false => vec![transform(format!("layers.{at}"))],
            },
            own: match typed {
                true => {
                    let matrix = |t| Matrix::new([input, output], values(&format!("{}.weight", own(t))));
                    (0..types).map(matrix).map(Some).collect()
                }
                false => Vec::new(),
            },
            bias: match typed {
                true => (0..types).map(|t| wide(&format!("{}.bias", own(t)))).collect(),
                false => vec![wide(&format!("layers.{at}.bias"))],
            },
            gates: Vec::new(),
            norm: None,
        }
    };
    Network {
        weighted: !spec.weighted.is_empty(),
        layers: (0..spec.layers).map(layer).collect(),
        coefficients: match spec.attention {
            None if typed => Coefficients::Mean,
            None => Coefficients::Symmetric,
            Some(shape) => Coefficients::Attention { negative_slope: shape.negative_slope },
        },
        loops: !typed,
        transform_of: (0..relations).collect(),
        scales: vec![1.0; types],
        row_normalise: spec.row_normalise,
        pieces: None,
    }
}
