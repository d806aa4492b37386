//! The attention layers against their loops.

use burn::tensor::backend::Backend;
use burn::tensor::{DType, Int, Tensor, TensorData};
use graphsieve::nn::*;
use graphsieve_kernels::testing::Fixture;
use graphsieve_kernels::{Age, Dropout, GraphBackend};

use super::layers::{bias, check, csr, features, filled, graphs, host, matrix, relations, upload};
use super::oracle::{self, Matrix, attention, edges, leaky, mean_of_heads, with_loops};

fn head_dot(x: &[f64], vectors: &Matrix, head: usize) -> f64 {
    let channels = vectors.width;
    x[head * channels..(head + 1) * channels].iter().zip(vectors.row(head)).map(|(a, b)| a * b).sum()
}

/// A row per edge: that of its source out of `h`, and with `weight` its projected features.
fn messages(edges: &[oracle::Edge], h: &Matrix, weight: Option<&Matrix>) -> Matrix {
    let of = |e: &oracle::Edge| {
        let own = Matrix::new(h.row(e.src).to_vec(), h.width);
        weight.map_or(own.clone(), |w| own.plus(&Matrix::new(e.features.clone(), w.rows()).times(w), 1.0)).values
    };
    Matrix::new(edges.iter().flat_map(of).collect(), h.width)
}

/// Weights and result of a [`GatConv`], before heads are averaged, with `factor` on the weights.
pub(super) fn gat<B: Backend>(
    conv: &GatConv<B>,
    edges: &[oracle::Edge],
    ends: (&Matrix, &Matrix),
    factor: impl Fn(usize, &oracle::Edge, usize) -> f64,
) -> (Matrix, Vec<f64>) {
    gat_of(conv, edges, ends, false, factor)
}

/// The same; `edge_messages` is that of the layer.
fn gat_of<B: Backend>(
    conv: &GatConv<B>,
    edges: &[oracle::Edge],
    (src, dst): (&Matrix, &Matrix),
    edge_messages: bool,
    factor: impl Fn(usize, &oracle::Edge, usize) -> f64,
) -> (Matrix, Vec<f64>) {
    let h = src.times(&matrix(&conv.weight));
    let h_dst = dst.times(&matrix(conv.weight_dst.as_ref().unwrap_or(&conv.weight)));
    let (att_src, att_dst) = (matrix(&conv.att_src), matrix(&conv.att_dst));
    let of_edges = conv.weight_edge.as_ref().map(|w| (matrix(w), matrix(conv.att_edge.as_ref().unwrap())));
    let score = |e: &oracle::Edge, head: usize| {
        let ends = head_dot(h.row(e.src), &att_src, head) + head_dot(h_dst.row(e.dst), &att_dst, head);
        let edge = of_edges.as_ref().map_or(0.0, |(weight, vectors)| {
            let features = Matrix::new(e.features.clone(), weight.rows()).times(weight);
            head_dot(features.row(0), vectors, head)
        });
        leaky(ends + edge)
    };
    let messages = messages(edges, &h, of_edges.as_ref().map(|(weight, _)| weight).filter(|_| edge_messages));
    attention(edges, dst.rows(), &messages, att_src.rows(), score, factor)
}

pub fn gat_is_its_definition<B: GraphBackend>(device: &B::Device) {
    // Heads, channels, concat, residual: a single head that widens, one that does not, heads of every kind.
    let shapes =
        [(1, 6, true, false), (1, 4, true, true), (3, 2, true, true), (2, 4, false, true), (8, 3, false, false)];
    for (heads, channels, concat, residual) in shapes {
        let config = || GatConvConfig::new(4, channels).with_heads(heads).with_concat(concat).with_residual(residual);
        let finish = |y: Matrix, dst: &Matrix, conv: &GatConv<B>| {
            let y = if concat { y } else { mean_of_heads(&y, heads) };
            let own = match &conv.weight_residual {
                Some(weight) => dst.times(&matrix(weight)),
                None => dst.clone(),
            };
            let y = if residual { y.plus(&own, 1.0) } else { y };
            y.plus_row(&bias(&conv.bias))
        };
        for f in graphs() {
            let (x, conv) = (features(1, f.num_cols, 4), filled(config().init::<B>(device)));
            let (y, weights) = gat(&conv, &with_loops(&f, None), (&x, &x), |_, _, _| 1.0);
            let (want, csr) = (finish(y, &x, &conv), csr(&f, device));
            check("gat", &f, conv.forward(&csr, upload(&x, device), None), &want);
            let (got, attention) = conv.forward_with_attention(&csr, upload(&x, device), None, None);
            check("gat with attention", &f, got, &want);
            check("attention", &f, attention, &Matrix::new(weights, heads));
        }
        for f in relations() {
            let (src, dst) = (features(1, f.num_cols, 4), features(2, f.num_rows, 5));
            let conv = filled(config().with_dst_channels(Some(5)).init::<B>(device));
            let (y, _) = gat(&conv, &edges(&f, None), (&src, &dst), |_, _, _| 1.0);
            let nodes = (upload(&src, device), upload(&dst, device));
            check("gat between", &f, conv.forward(&csr(&f, device), nodes, None), &finish(y, &dst, &conv));
        }
    }
}

pub fn gat_with_features_of_edges_is_its_definition<B: GraphBackend>(device: &B::Device) {
    for f in graphs() {
        let (x, e) = (features(1, f.num_cols, 4), features(2, f.num_edges(), 3));
        for (heads, channels, edge_messages) in [(1, 2, false), (3, 2, true), (1, 5, true)] {
            let config = GatConvConfig::new(4, channels).with_heads(heads).with_edge_channels(Some(3)).with_bias(false);
            let conv = filled(config.with_edge_messages(edge_messages).init::<B>(device));
            let reference = |edges: &[oracle::Edge]| gat_of(&conv, edges, (&x, &x), edge_messages, |_, _, _| 1.0);
            let (want, weights) = reference(&with_loops(&f, Some(&e)));
            let edges = Some(upload(&e, device));
            let (got, attention) = conv.forward_with_attention(&csr(&f, device), upload(&x, device), edges, None);
            check("gat with features of edges", &f, got, &want);
            check("attention with features of edges", &f, attention, &Matrix::new(weights, heads));
            // The same from the reverse of the reverse, whose entries stand in another order.
            let (reversed, ids) = f.reverse();
            let moved = Matrix::new(ids.iter().flat_map(|&id| e.row(id as usize).to_vec()).collect(), 3);
            let (want, _) = reference(&with_loops(&reversed, Some(&moved)));
            let csr = csr::<B>(&f, device).reverse();
            let got = conv.forward_with_edges(&csr, upload(&x, device), upload(&moved, device), None);
            check("gat with features of edges, reversed", &f, got, &want);
        }
        // Kernels do not depend on the graph: one says it for all.
        if f.name == "mixed" {
            let config = GatConvConfig::new(4, 2).with_heads(2).with_edge_channels(Some(3)).with_bias(false);
            let conv = filled(config.with_time_cosines(Some(2)).with_edge_messages(true).init::<B>(device));
            for by_edge in [false, true] {
                let (carried, edges) = aged(&f, &e, conv.time.as_ref().unwrap(), by_edge, device);
                let (want, _) = gat_of(&conv, &edges, (&x, &x), true, |_, _, _| 1.0);
                let got = conv.forward_with_edges(&csr(&f, device), upload(&x, device), carried, None);
                check("gat with ages of edges", &f, got, &want);
            }
        }
    }
}

/// What edges carry, with ages by the times of their ends or the same ages by edge; and edges with what a layer reads
/// of it as features, one loop per node among them.
fn aged<B: GraphBackend>(
    f: &Fixture,
    e: &Matrix,
    time: &TimeEncoder<B>,
    by_edge: bool,
    device: &B::Device,
) -> (EdgeFeatures<B>, Vec<oracle::Edge>) {
    let times: Vec<i32> = (0..f.num_rows as i32).map(|i| 37 * i % 11).collect();
    let age_of = |dst: usize, src: usize| f64::from(times[dst] - times[src]);
    let (frequency, phase) = (host(time.log_frequency.val()), host(time.phase.val()));
    let mut edges = with_loops(f, Some(e));
    for edge in &mut edges {
        let age = age_of(edge.dst, edge.src);
        edge.features.push(age.max(0.0).ln_1p());
        edge.features.extend(frequency.iter().zip(&phase).map(|(w, p)| (w.exp() * age + p).cos()));
    }
    let age = if by_edge {
        let ages: Vec<f32> = f.edges().map(|(_, dst, src)| age_of(dst, src) as f32).collect();
        Age::Edges(Tensor::from_data(TensorData::new(ages, [f.num_edges()]), (device, DType::F32)))
    } else {
        let times = TensorData::new(times, [f.num_rows]);
        let times = Tensor::<B, 1, Int>::from_data(times, (device, DType::I32));
        Age::Nodes { dst: times.clone(), src: times }
    };
    (EdgeFeatures { values: Some(upload(e, device)), age: Some(age) }, edges)
}

pub fn gat_drops_what_the_masks_say<B: GraphBackend>(device: &B::Device) {
    let pass = TrainingPass { seed: 9, step: 4, layer: 2, first: 0 };
    let drop = |rate: f64, stream: u32| Dropout::new(rate, 9, 4, 2, stream).unwrap();
    for f in graphs() {
        let (heads, x) = (3, features(1, f.num_cols, 4));
        let config = GatConvConfig::new(4, 2).with_heads(heads).with_bias(false);
        let conv = filled(config.with_feature_dropout(0.3).with_attention_dropout(0.5).init::<B>(device));
        let masks = drop(0.3, 0);
        let factor = |i: usize, c: usize| f64::from(masks.factor(i as u32, c as u32));
        let dropped = x.map_rows(4, |i, x| x.iter().enumerate().map(|(c, v)| v * factor(i, c)).collect());
        let edges = with_loops(&f, None);
        let weights = drop(0.5, 1);
        let (want, _) = gat(&conv, &edges, (&dropped, &dropped), |_, e, head| {
            f64::from(weights.factor(e.dst as u32, (e.src * heads + head) as u32))
        });
        let (csr, x) = (csr::<B>(&f, device), upload(&x, device));
        check("gat in training", &f, conv.forward(&csr, x.clone(), Some(pass)), &want);
        let by_position = |at: usize, _: &oracle::Edge, head: usize| f64::from(weights.factor(at as u32, head as u32));
        let (want, _) = gat(&conv, &edges, (&dropped, &dropped), by_position);
        check("gat in training, composed", &f, conv.forward_with_attention(&csr, x, None, Some(pass)).0, &want);
    }
}

pub fn gatv2_is_its_definition<B: GraphBackend>(device: &B::Device) {
    let reference = |conv: &GatV2Conv<B>, edges: &[oracle::Edge], [src, dst]: [&Matrix; 2], edge_messages: bool| {
        let left = src.times(&matrix(&conv.weight_src)).plus_row(&bias(&conv.bias_src));
        let right = dst.times(&matrix(&conv.weight_dst)).plus_row(&bias(&conv.bias_dst));
        let (att, weight_edge) = (matrix(&conv.att), conv.weight_edge.as_ref().map(matrix));
        let score = |e: &oracle::Edge, head: usize| {
            let edge = weight_edge.as_ref().map(|w| Matrix::new(e.features.clone(), w.rows()).times(w));
            let hidden =
                |c: usize| left.row(e.src)[c] + right.row(e.dst)[c] + edge.as_ref().map_or(0.0, |e| e.row(0)[c]);
            let hidden: Vec<f64> = (0..left.width).map(|c| leaky(hidden(c))).collect();
            head_dot(&hidden, &att, head)
        };
        let messages = messages(edges, &left, weight_edge.as_ref().filter(|_| edge_messages));
        attention(edges, dst.rows(), &messages, att.rows(), score, |_, _, _| 1.0)
    };
    for (heads, channels, concat) in [(1, 5, true), (3, 2, true), (2, 3, false)] {
        let config = || GatV2ConvConfig::new(4, channels).with_heads(heads).with_concat(concat);
        let finish = |y: Matrix, conv: &GatV2Conv<B>| {
            let y = if concat { y } else { mean_of_heads(&y, heads) };
            y.plus_row(&bias(&conv.bias))
        };
        for f in graphs() {
            let (x, e) = (features(1, f.num_cols, 4), features(2, f.num_edges(), 3));
            let (csr, tensor) = (csr::<B>(&f, device), upload::<B>(&x, device));
            let conv = filled(config().init::<B>(device));
            let (y, weights) = reference(&conv, &with_loops(&f, None), [&x, &x], false);
            let (got, attention) = conv.forward_with_attention(&csr, tensor.clone(), None, None);
            check("gatv2", &f, got, &finish(y, &conv));
            check("attention of gatv2", &f, attention, &Matrix::new(weights, heads));
            let edge_messages = heads > 1;
            let config = || config().with_edge_channels(Some(3)).with_edge_messages(edge_messages);
            let conv = filled(config().init::<B>(device));
            let (y, _) = reference(&conv, &with_loops(&f, Some(&e)), [&x, &x], edge_messages);
            let got = conv.forward_with_edges(&csr, tensor.clone(), upload(&e, device), None);
            let want = finish(y, &conv);
            check("gatv2 with features of edges", &f, got, &want);
            let got = conv.forward_with_attention(&csr, tensor.clone(), Some(upload(&e, device)), None).0;
            check("gatv2 with attention and features of edges", &f, got, &want);
            for chunk_rows in [1, 4, 100] {
                let edges = Some(upload(&e, device).into());
                let got = conv.forward_in_chunks(&csr, tensor.clone(), edges, None, chunk_rows);
                check("gatv2 in chunks", &f, got, &want);
            }
            if f.name == "mixed" {
                let conv = filled(config().with_time_cosines(Some(2)).init::<B>(device));
                let (carried, edges) = aged(&f, &e, conv.time.as_ref().unwrap(), heads == 1, device);
                let want = finish(reference(&conv, &edges, [&x, &x], edge_messages).0, &conv);
                let got = conv.forward_with_edges(&csr, tensor.clone(), carried, None);
                check("gatv2 with ages of edges", &f, got, &want);
            }
        }
        for f in relations() {
            let (src, dst) = (features(1, f.num_cols, 4), features(2, f.num_rows, 6));
            let conv = filled(config().with_dst_channels(Some(6)).init::<B>(device));
            let (y, _) = reference(&conv, &edges(&f, None), [&src, &dst], false);
            let nodes = (upload(&src, device), upload(&dst, device));
            let want = finish(y, &conv);
            check("gatv2 between", &f, conv.forward(&csr(&f, device), nodes.clone(), None), &want);
            let got = conv.forward_in_chunks(&csr(&f, device), nodes, None, None, 3);
            check("gatv2 between, in chunks", &f, got, &want);
        }
    }
}
