//! The parameters of trained models as plain numbers.

use std::collections::BTreeMap;

use super::network::{
    Activation, Coefficients, EdgeTransform, Gate, Head, Joined, Layer, Matrix, Network, Normalised, Pieces, ReadOut,
    TimeTransform, Transform,
};
use crate::config::{Jump, LayerKind, Norm};
use crate::features::coefficients;
use crate::graph::HeteroGraph;
use crate::models::attention::{
    AttentionSpec, BOUNDS_NAME, EdgeInput, edge_names, gate_name, norm_names, own_weight, time_names,
};
use crate::models::node_classifier::ClassifierSpec;
use crate::models::parameters::HostTensor;

/// Those of a Stage-2 model, whose streams are in the order of the graph's; `tensors` has them all.
pub(in crate::score) fn of_attention(
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
            edges: edges_of(&spec.edges, tensors, at - 1, output, spec.heads),
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

/// By relation what layer `at`, counted from 0, makes of the values and ages of its edges: `output` columns, all heads
/// side by side.
fn edges_of(
    inputs: &[Option<EdgeInput>],
    tensors: &BTreeMap<String, HostTensor>,
    at: usize,
    output: usize,
    heads: usize,
) -> Vec<Option<EdgeTransform>> {
    let values = |name: String| &tensors[&name].values[..];
    let of = |input: &Option<EdgeInput>| {
        let input = input.as_ref()?;
        let [weight, vector] = edge_names(at, &input.relation).map(values);
        let time = input.time.as_ref().map(|_| {
            let [frequency, phase] = time_names(at, &input.relation).map(values);
            TimeTransform {
                frequency: frequency.iter().map(|&log| f64::from(log).exp()).collect(),
                phase: phase.iter().map(|&phase| f64::from(phase)).collect(),
            }
        });
        Some(EdgeTransform::new(Matrix::transposed([input.columns(), output], weight), heads, vector, time))
    };
    inputs.iter().map(of).collect()
}

/// Those of a node classifier, whose relations are in the order of the graph's; `tensors` has them all.
///
/// Where the classes are read from all layers, every layer carries the results of those before it along: its first
/// outputs are its inputs, which ReLU leaves as they are.
pub(in crate::score) fn of_classifier(
    spec: &ClassifierSpec,
    tensors: &BTreeMap<String, HostTensor>,
    graph: &HeteroGraph,
) -> (Network, Option<ReadOut>) {
    if let Some(order) = spec.order {
        return of_wavelets(spec, order, tensors, graph);
    }
    let (types, relations) = (graph.node_types().len(), graph.relations().len());
    let (with_own, carries) = (spec.has_own(), spec.has_head());
    let values = |name: &str| &tensors[name].values[..];
    let numbers = |name: &str| values(name).iter().map(|&value| f64::from(value)).collect::<Vec<f64>>();
    let layer = |at: usize| {
        let last = at + 1 == spec.layers;
        let [input, output] = spec.widths(at);
        // Columns that are carried along, and both widths with them: the last of them are the input.
        let carried = if carries { at * spec.hidden } else { 0 };
        let wide = [if carried == 0 { input } else { carried }, carried + output];
        let placed = |matrix: Matrix| match carried {
            0 => matrix,
            _ => matrix.placed(wide, [carried - input, carried]),
        };
        let heads = spec.attention.map_or(1, |shape| if last { shape.out_heads } else { shape.heads });
        let width = if last { heads * output } else { output };
        let transform = |place: String| {
            let all = values(&format!("{place}.weight"));
            // Of a difference there are two transforms side by side.
            let part = |first: usize, of: usize| -> Matrix {
                let rows: Vec<f32> = all.chunks_exact(of).flat_map(|row| row[first..first + width].to_vec()).collect();
                Matrix::new([input, width], &rows)
            };
            let (weight, apart) = match spec.layer {
                LayerKind::Difference => (part(0, 2 * width), Some(part(width, 2 * width))),
                _ => (Matrix::new([input, width], all), None),
            };
            let vector = |end: &str| values(&format!("{place}.att_{end}"));
            match spec.layer {
                LayerKind::Gat => Transform::with_attention(weight, heads, [vector("dst"), vector("src")]),
                _ => Transform::new(placed(weight)).with_apart(apart.map(&placed)),
            }
        };
        let own = |t: usize| format!("layers.{at}.own.{t}");
        let own_bias = |t: usize| {
            let bias = numbers(&format!("{}.bias", own(t)));
            [vec![0.0; carried], bias].concat()
        };
        Layer {
            input: wide[0],
            output: wide[1],
            heads,
            averaged: last,
            activation: match spec.layer {
                _ if last && !carries => Activation::Identity,
                LayerKind::Gat => Activation::Elu,
                _ => Activation::Relu,
            },
            edges: edges_of(&spec.edges, tensors, at, width, heads),
            transforms: match with_own {
                true => (0..relations).map(|r| transform(format!("layers.{at}.relations.{r}"))).collect(),
                false => vec![transform(format!("layers.{at}"))],
            },
            own: match with_own {
                true => {
                    let matrix = |t| {
                        let own = Matrix::new([input, output], values(&format!("{}.weight", own(t))));
                        let own = if spec.connections.residual && input == output { own.plus_identity() } else { own };
                        if carried == 0 { own } else { placed(own).plus_identity() }
                    };
                    (0..types).map(matrix).map(Some).collect()
                }
                false => Vec::new(),
            },
            bias: match with_own {
                true => (0..types).map(own_bias).collect(),
                false => vec![numbers(&format!("layers.{at}.bias"))],
            },
            gates: Vec::new(),
            norm: (spec.is_normalised() && (!last || carries)).then(|| {
                let [scale, shift] = ["scale", "shift"].map(|part| numbers(&format!("norms.{at}.{part}")));
                Normalised { scale, shift }
            }),
        }
    };
    let network = Network {
        weighted: !spec.weighted.is_empty(),
        layers: (0..spec.layers).map(layer).collect(),
        coefficients: match spec.attention {
            None if with_own => Coefficients::Mean,
            None => Coefficients::Symmetric,
            Some(shape) => Coefficients::Attention { negative_slope: shape.negative_slope },
        },
        loops: !with_own,
        transform_of: (0..relations).collect(),
        scales: vec![1.0; types],
        row_normalise: spec.row_normalise,
        pieces: None,
    };
    let read_out = carries.then(|| ReadOut {
        weight: Matrix::new([spec.layers * spec.hidden, spec.classes], values("head.weight")),
        bias: numbers("head.bias"),
    });
    (network, read_out)
}

/// Those of Beta wavelets of an order `C` between linear layers.
///
/// With `P` the normalised adjacency of a relation and `M_k` the mixture of the filters that `P^k` is multiplied by,
/// the relation's part of a result is `x M_0 + P (x M_1 + ... + P (x M_C))`: a layer for each `P`, the innermost first.
/// All but the last carry `x` along, in their first outputs, and behind it what the brackets of each relation hold.
fn of_wavelets(
    spec: &ClassifierSpec,
    order: usize,
    tensors: &BTreeMap<String, HostTensor>,
    graph: &HeteroGraph,
) -> (Network, Option<ReadOut>) {
    let (relations, hidden) = (graph.relations().len(), spec.hidden);
    let values = |name: String| &tensors[&name].values[..];
    let numbers = |name: String| values(name).iter().map(|&value| f64::from(value)).collect::<Vec<f64>>();
    let norm = |at: usize| {
        let [scale, shift] = ["scale", "shift"].map(|part| format!("norms.{at}.{part}"));
        spec.is_normalised().then(|| Normalised { scale: numbers(scale), shift: numbers(shift) })
    };
    let layer = |[input, output]: [usize; 2], own: Matrix| Layer {
        input,
        output,
        heads: 1,
        averaged: false,
        activation: Activation::Relu,
        transforms: Vec::new(),
        edges: Vec::new(),
        own: vec![Some(own)],
        bias: Vec::new(),
        gates: Vec::new(),
        norm: None,
    };
    let dense = |at: usize, input: usize| Layer {
        bias: vec![numbers(format!("layers.{at}.bias"))],
        norm: norm(at),
        ..layer([input, hidden], Matrix::new([input, hidden], values(format!("layers.{at}.weight"))))
    };
    let mut layers = vec![dense(0, spec.input), dense(1, hidden)];
    for at in 2..2 + spec.layers {
        let mixed = |relation: usize| -> Vec<Matrix> {
            let filters = values(format!("layers.{at}.relations.{relation}.weight")).chunks_exact(hidden * hidden);
            let filters: Vec<Matrix> = filters.map(|values| Matrix::new([hidden; 2], values)).collect();
            let of_power = |factors: Vec<f64>| {
                let parts = filters.iter().zip(factors);
                parts.fold(Matrix::zeros([hidden; 2]), |sum, (filter, factor)| sum.plus(filter, factor))
            };
            coefficients(order).into_iter().map(of_power).collect()
        };
        let mixed: Vec<Vec<Matrix>> = (0..relations).map(mixed).collect();
        for power in (0..order).rev() {
            let (first, last) = (power + 1 == order, power == 0);
            let wide = hidden * (1 + relations);
            let shape = [if first { hidden } else { wide }, if last { hidden } else { wide }];
            let brackets = |relation: usize| hidden * (1 + relation);
            let to = |relation: usize| if last { 0 } else { brackets(relation) };
            let transform = |relation: usize| {
                Transform::new(match first {
                    true => mixed[relation][order].clone().placed(shape, [0, to(relation)]),
                    false => Matrix::identity(hidden).placed(shape, [brackets(relation), to(relation)]),
                })
            };
            let carried = if last { Matrix::zeros(shape) } else { Matrix::identity(hidden).placed(shape, [0, 0]) };
            let own = (0..relations).fold(carried, |own, relation| {
                own.plus(&mixed[relation][power].clone().placed(shape, [0, to(relation)]), 1.0)
            });
            let inner = Layer { transforms: (0..relations).map(transform).collect(), ..layer(shape, own) };
            layers.push(match last {
                true => Layer { bias: vec![numbers(format!("layers.{at}.relations.0.bias"))], norm: norm(at), ..inner },
                false => Layer { activation: Activation::Identity, ..inner },
            });
        }
    }
    let network = Network {
        weighted: false,
        layers,
        coefficients: Coefficients::Symmetric,
        loops: false,
        transform_of: (0..relations).collect(),
        scales: vec![1.0; graph.node_types().len()],
        row_normalise: spec.row_normalise,
        pieces: None,
    };
    let last = 2 + spec.layers;
    let read_out = ReadOut {
        weight: Matrix::new([hidden, spec.classes], values(format!("layers.{last}.weight"))),
        bias: numbers(format!("layers.{last}.bias")),
    };
    (network, Some(read_out))
}
