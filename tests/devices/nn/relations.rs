//! The layers over several relations against their loops.

use burn::tensor::backend::Backend;
use burn::tensor::{DType, Tensor};
use graphsieve::nn::*;
use graphsieve_kernels::testing::{Dtype, Fixture, relative_error, values_f16};
use graphsieve_kernels::{Activation, Csr, DropEdge, GraphBackend, NodeSet};

use super::attention::gat;
use super::layers::{bias, check, csr, features, filled, host, matrix, upload};
use super::oracle::{self, Matrix};

/// Two node types of 9 and 3 nodes, and the relations between and among them with the types of their ends: one of them
/// has no edge, and in all of them a node has none.
fn relations() -> Vec<(Fixture, usize, usize)> {
    let rows = |name: &str, cols: usize, rows: &[&[u32]]| {
        Fixture::from_rows(name, cols, &rows.iter().map(|row| row.to_vec()).collect::<Vec<_>>())
    };
    let back: [&[u32]; 9] = [&[0], &[], &[2, 1], &[], &[0, 0], &[1], &[2], &[], &[0, 1, 2]];
    vec![
        (rows("0 to 1", 9, &[&[8, 0, 4], &[], &[2]]), 0, 1),
        (rows("1 to 1", 3, &[&[0, 1], &[], &[0, 0, 2]]), 1, 1),
        (rows("1 to 0", 3, &back), 1, 0),
        (rows("0 to 1, no edges", 9, &[&[], &[], &[]]), 0, 1),
        (rows("1 to 1, again", 3, &[&[2], &[2, 0], &[]]), 1, 1),
        (rows("0 to 1, again", 9, &[&[1, 1], &[3, 6, 7], &[]]), 0, 1),
    ]
}

const COUNTS: [usize; 2] = [9, 3];

fn typed<B: Backend>(csrs: &[Csr<B>]) -> Vec<TypedEdges<'_, B>> {
    csrs.iter().zip(relations()).map(|(csr, (_, src, dst))| TypedEdges { csr, src, dst }).collect()
}

/// `W_r` of every relation.
fn projections<B: Backend>(conv: &RgcnConv<B>, kind: RelationWeights, output: usize) -> Vec<Matrix> {
    let weights: Vec<Matrix> = conv.weights.iter().map(matrix).collect();
    match kind {
        RelationWeights::Full => weights,
        RelationWeights::Bases(_) => {
            let coefficients = matrix(conv.coefficients.as_ref().unwrap());
            let of_relation = |r: usize| {
                let terms = weights.iter().zip(coefficients.row(r));
                terms.fold(Matrix::zeros(weights[0].rows(), output), |sum, (basis, &c)| sum.plus(basis, c))
            };
            (0..coefficients.rows()).map(of_relation).collect()
        }
        RelationWeights::Blocks(blocks) => {
            let diagonal = |q: &Matrix| {
                let input = q.rows();
                let row = |i: usize| {
                    let mut row = vec![0.0; output];
                    let first = i / (input / blocks) * q.width;
                    row[first..first + q.width].copy_from_slice(q.row(i));
                    row
                };
                Matrix::new((0..input).flat_map(row).collect(), output)
            };
            weights.iter().map(diagonal).collect()
        }
    }
}

/// The result at one node type. Edges count that `keeps`; means divide by all.
fn rgcn<B: Backend>(
    conv: &RgcnConv<B>,
    (kind, mean, output): (RelationWeights, bool, usize),
    x: &[Matrix],
    t: usize,
    keeps: impl Fn(usize, usize, usize) -> bool,
) -> Matrix {
    let weights = projections(conv, kind, output);
    let mut y = Matrix::zeros(COUNTS[t], output);
    if let Some(root) = &conv.weight_root {
        y = y.plus(&x[t].times(&matrix(root)), 1.0);
    }
    for (r, (f, src, _)) in relations().iter().enumerate().filter(|(_, (_, _, dst))| *dst == t) {
        let projected = x[*src].times(&weights[r]);
        for (_, i, j) in f.edges().filter(|&(_, i, j)| keeps(r, i, j)) {
            let degree = (f.row_ptr[i + 1] - f.row_ptr[i]) as f64;
            y.add(i, if mean { 1.0 / degree } else { 1.0 }, projected.row(j));
        }
    }
    if conv.bias.is_some() { y.plus_row(&bias(&conv.bias)) } else { y }
}

const KINDS: [RelationWeights; 3] = [RelationWeights::Full, RelationWeights::Bases(2), RelationWeights::Blocks(2)];

pub fn rgcn_is_its_definition<B: GraphBackend>(device: &B::Device) {
    let x = COUNTS.map(|count| features(count as u64, count, 4));
    let tensors = x.clone().map(|x| upload::<B>(&x, device));
    let csrs: Vec<_> = relations().iter().map(|(f, ..)| csr::<B>(f, device)).collect();
    for kind in KINDS {
        for (output, mean, root) in [(2, true, true), (6, true, false), (4, false, true)] {
            let config = RgcnConvConfig::new(4, output, csrs.len()).with_weights(kind).with_mean(mean);
            let conv = filled(config.with_root_weight(root).with_bias(root).init::<B>(device));
            for (t, got) in conv.forward(&typed(&csrs), &tensors).into_iter().enumerate() {
                let want = rgcn(&conv, (kind, mean, output), &x, t, |_, _, _| true);
                check(&format!("rgcn {kind:?} {output}"), &relations()[2].0, got, &want);
            }
        }
    }
    // Nothing leads to these types.
    let config = RgcnConvConfig::new(4, 2, 0).with_root_weight(false);
    let conv = filled(config.init::<B>(device));
    let got = conv.forward(&[], &tensors);
    let want = Matrix::zeros(9, 2).plus_row(&bias(&conv.bias));
    check("rgcn without relations", &relations()[2].0, got[0].clone(), &want);
}

/// Some rows of a whole graph, and the first rows of a batch: with dropped edges, at once and in chunks.
pub fn rgcn_over_some_rows_and_edges_is_its_definition<B: GraphBackend>(device: &B::Device) {
    let x = COUNTS.map(|count| features(count as u64, count, 4));
    let tensors = x.clone().map(|x| upload::<B>(&x, device));
    let wanted: [&[u32]; 2] = [&[0, 2, 8], &[1, 2]];
    let sets = [0, 1].map(|t| NodeSet::<B>::new(wanted[t], COUNTS[t], device));
    let drop_of = |r: usize| DropEdge::new(0.4, 7, 1, 0, r as u32).filter(|_| r != 1);
    let edges = |of_csr: &dyn Fn(&Fixture, usize) -> Csr<B>| {
        let edges = |(r, (f, src, dst)): (usize, &(Fixture, usize, usize))| RelationEdges {
            relation: r,
            src: *src,
            dst: *dst,
            stream: 0,
            csr: of_csr(f, *dst),
            drop_edge: drop_of(r),
            values: None,
            age: None,
        };
        relations().iter().enumerate().map(edges).collect::<Vec<_>>()
    };
    let block = |edges, kept: [KeptRows<B>; 2]| Block {
        edges,
        kept: kept.into(),
        streams_into: [1, 1].into(),
        reads_data: false,
    };
    let restricted = block(
        edges(&|f, dst| csr::<B>(f, device).restrict(Some(&sets[dst]), None)),
        [0, 1].map(|t| KeptRows::Selected { before: None, after: Some(sets[t].clone()), of: COUNTS[t] }),
    );
    // The destinations of a batch are the first of its rows.
    const FIRST: usize = 2;
    let first = |f: &Fixture, _: usize| {
        let rows: Vec<Vec<u32>> =
            (0..FIRST).map(|i| f.col_idx[f.row_ptr[i] as usize..f.row_ptr[i + 1] as usize].to_vec()).collect();
        csr::<B>(&Fixture::from_rows("batch", f.num_cols, &rows), device)
    };
    let batch = block(edges(&first), COUNTS.map(|of| KeptRows::Slice { first: 0, rows: FIRST, of }));
    let blocks = [(restricted, wanted), (batch, [&[0, 1], &[0, 1]])];
    for (kind, output) in [(KINDS[0], 2), (KINDS[1], 6), (KINDS[2], 4)] {
        let config = RgcnConvConfig::new(4, output, relations().len()).with_weights(kind);
        let conv = filled(config.init::<B>(device));
        let keeps = |r: usize, i: usize, j: usize| drop_of(r).is_none_or(|drop| drop.keeps(i as u32, j as u32));
        for ((block, rows), chunk_rows) in blocks.iter().flat_map(|b| [None, Some(1), Some(2), Some(9)].map(|c| (b, c)))
        {
            for (t, got) in conv.forward_block(block, &tensors, chunk_rows).into_iter().enumerate() {
                let whole = rgcn(&conv, (kind, true, output), &x, t, keeps);
                let values = rows[t].iter().flat_map(|&i| whole.row(i as usize).to_vec()).collect();
                let what = format!("rgcn {kind:?}, chunks of {chunk_rows:?}");
                check(&what, &relations()[2].0, got, &Matrix::new(values, output));
            }
        }
    }
}

pub fn rgcn_of_one_relation_is_sage<B: GraphBackend>(device: &B::Device) {
    let (f, ..) = &relations()[1];
    let x = features(1, 3, 4);
    let conv = filled(RgcnConvConfig::new(4, 3, 1).init::<B>(device));
    let mut sage = SageConvConfig::new(4, 3).init::<B>(device);
    sage.weight = conv.weights[0].clone();
    (sage.weight_root, sage.bias) = (conv.weight_root.clone(), conv.bias.clone());
    let csr = csr::<B>(f, device);
    let want = Matrix::new(host(sage.forward(&csr, upload(&x, device))), 3);
    let got = conv.forward(&[TypedEdges { csr: &csr, src: 0, dst: 0 }], &[upload(&x, device)]);
    check("rgcn of one relation", f, got[0].clone(), &want);
}

/// The weighted mean, and the weights by row.
fn semantic_attention<B: Backend>(
    attention: &SemanticAttention<B>,
    (per_node, activation): (bool, Activation),
    parts: &[Matrix],
) -> (Matrix, Matrix) {
    let activated = |v: f64| match activation {
        Activation::Identity => v,
        Activation::Relu => v.max(0.0),
        Activation::Elu => {
            if v > 0.0 {
                v
            } else {
                v.exp() - 1.0
            }
        }
    };
    let (rows, width) = (parts[0].rows(), parts[0].width);
    let z: Vec<_> = parts.iter().map(|x| x.map_rows(width, |_, x| x.iter().map(|&v| activated(v)).collect())).collect();
    let (offsets, query) = (host(attention.bias.val()), matrix(&attention.query));
    let scores = |z: &Matrix| -> Vec<f64> {
        let hidden = z.times(&matrix(&attention.weight)).plus_row(&offsets);
        let score = |i: usize| hidden.row(i).iter().zip(query.row(0)).map(|(h, q)| q * h.tanh()).sum();
        let scores: Vec<f64> = (0..rows).map(score).collect();
        if per_node { scores } else { vec![scores.iter().sum::<f64>() / rows as f64; rows] }
    };
    let scores: Vec<_> = z.iter().map(scores).collect();
    let (mut y, mut weights) = (Matrix::zeros(rows, width), Vec::new());
    for i in 0..rows {
        let sum: f64 = scores.iter().map(|scores| scores[i].exp()).sum();
        for (z, scores) in z.iter().zip(&scores) {
            weights.push(scores[i].exp() / sum);
            y.add(i, scores[i].exp() / sum, z.row(i));
        }
    }
    (y, Matrix::new(weights, parts.len()))
}

pub fn attention_over_relations_is_its_definition<B: GraphBackend>(device: &B::Device) {
    let f = &relations()[0].0;
    for (per_node, activation) in [(false, Activation::Elu), (true, Activation::Relu), (false, Activation::Identity)] {
        let config = SemanticAttentionConfig::new(3).with_hidden_channels(5).with_activation(activation);
        let attention = filled(config.with_per_node(per_node).init::<B>(device));
        for (rows, relations) in [(1, 2), (7, 1), (600, 2), (7, 6)] {
            let parts: Vec<_> = (0..relations).map(|r| features(r, rows, 3)).collect();
            let tensors = parts.iter().map(|x| upload::<B>(x, device)).collect();
            let (y, weights) = attention.forward_with_weights(tensors);
            let (want, want_weights) = semantic_attention(&attention, (per_node, activation), &parts);
            check("attention over relations", f, y, &want);
            let sets = if per_node { rows } else { 1 };
            let of_sets = want_weights.values[..sets * parts.len()].to_vec();
            check("weights of relations", f, weights, &Matrix::new(of_sets, parts.len()));
        }
        let none = vec![Tensor::<B, 2>::empty([0, 3], device); 2];
        assert_eq!(attention.forward(none).dims(), [0, 3]);
    }
}

/// A heterogeneous attention network: attention to the neighbours of each relation, then over the relations.
pub fn hetero_weighs_relations_by_attention<B: GraphBackend>(device: &B::Device) {
    let x = COUNTS.map(|count| features(count as u64, count, 4));
    let tensors = x.clone().map(|x| upload::<B>(&x, device));
    let csrs: Vec<_> = relations().iter().map(|(f, ..)| csr::<B>(f, device)).collect();
    // The edges of every other relation have features.
    let of_edges = |r: usize, f: &Fixture| r.is_multiple_of(2).then(|| features(10 + r as u64, f.num_edges(), 3));
    let features_of: Vec<_> = relations().iter().enumerate().map(|(r, (f, ..))| of_edges(r, f)).collect();
    let edges: Vec<_> = features_of.iter().map(|of| of.as_ref().map(|of| upload::<B>(of, device))).collect();
    let conv = |seed: u64| {
        let config = GatConvConfig::new(4, 2).with_heads(3).with_add_self_loops(false).with_dst_channels(Some(4));
        let config = config.with_edge_channels(features_of[seed as usize].as_ref().map(|_| 3));
        ConvConfig::Gat(config.with_bias(false).with_seed(seed))
    };
    for (per_node, activation) in [(false, Activation::Elu), (true, Activation::Relu)] {
        let attention = SemanticAttentionConfig::new(6).with_hidden_channels(5).with_activation(activation);
        let config = HeteroConvConfig::new((0..csrs.len() as u64).map(conv).collect());
        let layer = filled(config.with_aggr(attention.with_per_node(per_node).into()).init::<B>(device));
        let got = layer.forward_with_edges(&typed(&csrs), &edges, &tensors, None);
        for (t, got) in got.into_iter().enumerate() {
            let part = |(r, (f, src, _)): (usize, (Fixture, usize, usize))| {
                let Conv::Gat(conv) = &layer.convs[r] else { unreachable!("all are") };
                gat(conv, &oracle::edges(&f, features_of[r].as_ref()), (&x[src], &x[t]), |_, _, _| 1.0).0
            };
            let into = relations().into_iter().enumerate().filter(|(_, (_, _, dst))| *dst == t);
            let parts: Vec<Matrix> = into.map(part).collect();
            let attention = layer.attention.as_ref().unwrap();
            let (want, _) = semantic_attention(attention, (per_node, activation), &parts);
            check("attention network over relations", &relations()[2].0, got.unwrap(), &want);
        }
    }
}

pub fn relations_in_half_precision_stay_near<B: GraphBackend>(device: &B::Device) {
    let x = COUNTS.map(|count| upload::<B>(&Matrix::new(values_f16(count as u64, count * 4), 4), device));
    let halves = x.clone().map(|x| x.cast(DType::F16));
    let csrs: Vec<_> = relations().iter().map(|(f, ..)| csr::<B>(f, device)).collect();
    let near = |what: &str, got: Tensor<B, 2>, want: Tensor<B, 2>| {
        assert_eq!(got.dtype(), DType::F16, "the result has the dtype of the features");
        let got: Vec<f32> = host(got).into_iter().map(|v| v as f32).collect();
        let error = relative_error(&got, &host(want));
        // A handful of roundings to half precision.
        assert!(error < 8.0 * Dtype::F16.unit_roundoff(), "{what}: {error:e}");
    };
    for (kind, chunk_rows) in [(KINDS[0], None), (KINDS[1], Some(2)), (KINDS[2], None)] {
        let conv = filled(RgcnConvConfig::new(4, 6, csrs.len()).with_weights(kind).init::<B>(device));
        let forward = |x: &[Tensor<B, 2>]| conv.forward_block(&Block::whole(&typed(&csrs), &COUNTS), x, chunk_rows);
        for (got, want) in forward(&halves).into_iter().zip(forward(&x)) {
            near("rgcn", got, want);
        }
    }
    let sage = |seed: u64| ConvConfig::Sage(SageConvConfig::new(4, 3).with_seed(seed));
    let config = HeteroConvConfig::new((0..csrs.len() as u64).map(sage).collect());
    let layer = filled(config.with_aggr(SemanticAttentionConfig::new(3).into()).init::<B>(device));
    let forward = |x: &[Tensor<B, 2>]| layer.forward(&typed(&csrs), x, None);
    for (got, want) in forward(&halves).into_iter().zip(forward(&x)) {
        near("attention over relations", got.unwrap(), want.unwrap());
    }
}
