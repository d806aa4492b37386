//! The bodies of the operator tests, generic in the backend.

#![allow(dead_code)]

mod messages;
mod sums;
mod training;

pub use messages::*;
pub use sums::*;
pub use training::*;

use burn::backend::Autodiff;
use burn::tensor::{DType, Tensor, TensorData};
use graphsieve_kernels::testing::gradient::{
    attend_grad, edge_softmax_grad, edge_softmax_grad_magnitude, gat_grad, gat_grad_magnitude,
};
use graphsieve_kernels::testing::gradient::{gather_grad, linear_grad, pair_dot_grad, spmm_grad};
use graphsieve_kernels::testing::{
    AttendInput, Dtype, Fixture, GatInput, SpmmWeights, assert_close, assert_close_at_scale, fixtures, oracle, probe,
    values_in,
};
use graphsieve_kernels::{
    Activation, Csr, DropEdge, Dropout, GatConfig, GraphBackend, NodeMarks, NodeSet, PairIndex, RowIndex, ScoreColumns,
    SelfTerm, SpmmConfig, attend, attend_inputs, backward_from, combine, dropout, edge_softmax, gat, gather_rows,
    linear, normalise_rows, pair_dot, row_dots, select_rows, spmm,
};

type Ad<B> = Autodiff<B>;

fn burn_dtype(dtype: Dtype) -> DType {
    match dtype {
        Dtype::F32 => DType::F32,
        Dtype::F16 => DType::F16,
        Dtype::Bf16 => DType::BF16,
    }
}

/// Uploads f64 values in a storage type.
fn up<B: GraphBackend, const D: usize>(
    values: &[f64],
    shape: [usize; D],
    dtype: Dtype,
    device: &B::Device,
) -> Tensor<B, D> {
    if values.is_empty() {
        // CUDA neither takes nor casts nothing.
        return Tensor::empty(shape, (device, burn_dtype(dtype)));
    }
    let data = TensorData::new(values.iter().map(|&v| v as f32).collect::<Vec<_>>(), shape);
    let tensor = Tensor::<B, D>::from_data(data, (device, DType::F32));
    if dtype == Dtype::F32 { tensor } else { tensor.cast(burn_dtype(dtype)) }
}

fn down<B: GraphBackend, const D: usize>(tensor: Tensor<B, D>) -> Vec<f32> {
    // A buffer of no bytes comes back without the alignment of a float.
    if tensor.dims().contains(&0) {
        return Vec::new();
    }
    tensor.into_data().convert::<f32>().into_vec().expect("f32 after convert")
}

fn csr_of<B: GraphBackend>(f: &Fixture, device: &B::Device) -> Csr<B> {
    Csr::from_host(&f.row_ptr, &f.col_idx, f.num_cols, device).expect("fixtures are valid")
}

/// A mask of the fixture and the same mask as the operators take it.
fn half_dropped(f: &Fixture) -> (DropEdge, Vec<bool>) {
    let drop = DropEdge::new(0.5, 9, 4, 1, 2).expect("a rate above zero").with_bases(1_000, 70_000);
    let (key0, key1, threshold) = drop.key();
    (drop, oracle::Drop { key0, key1, threshold }.mask(f, 1_000, 70_000))
}

/// `backward` of `sum(out * probe)`, as the oracle's gradients expect.
fn backward<B: GraphBackend, const D: usize>(
    out: Tensor<Ad<B>, D>,
    dtype: Dtype,
) -> <Ad<B> as burn::tensor::backend::AutodiffBackend>::Gradients {
    probed::<B, D>(out, dtype).backward()
}

/// `sum(out * probe)`.
fn probed<B: GraphBackend, const D: usize>(out: Tensor<Ad<B>, D>, dtype: Dtype) -> Tensor<Ad<B>, 1> {
    let shape = out.dims();
    let device = out.device();
    let weights = up::<B, D>(&probe(shape.iter().product()), shape, dtype, &device);
    (out * Tensor::from_inner(weights)).sum()
}

fn gradient<B: GraphBackend, const D: usize>(
    of: &Tensor<Ad<B>, D>,
    grads: &<Ad<B> as burn::tensor::backend::AutodiffBackend>::Gradients,
) -> Vec<f32> {
    down::<B, D>(of.grad(grads).expect("every input that requires a gradient gets one"))
}

fn longest(f: &Fixture) -> (usize, usize) {
    (f.max_degree(), f.reverse().0.max_degree())
}

fn check_spmm<B: GraphBackend>(
    f: &Fixture,
    width: usize,
    dtype: Dtype,
    scaled: bool,
    weighted: bool,
    device: &B::Device,
) {
    let name = format!("spmm {} width {width} {dtype:?} scaled {scaled} weighted {weighted}", f.name);
    let xs = values_in(dtype, 1, f.num_cols * width);
    let positive = |seed, n| values_in(Dtype::F32, seed, n).iter().map(|v| ((v.abs() + 0.1) as f32) as f64).collect();
    let (u, v): (Vec<f64>, Vec<f64>) = (positive(2, f.num_rows), positive(3, f.num_cols));
    let w = values_in(Dtype::F32, 4, f.num_edges());
    let (drop, mask) = half_dropped(f);
    let x = up::<Ad<B>, 2>(&xs, [f.num_cols, width], dtype, device).require_grad();
    let edge = weighted.then(|| up::<Ad<B>, 1>(&w, [w.len()], Dtype::F32, device).require_grad());
    let vector = |values: &[f64]| scaled.then(|| up::<Ad<B>, 1>(values, [values.len()], Dtype::F32, device));
    let config = SpmmConfig {
        dst_scale: vector(&u),
        src_scale: vector(&v),
        own: None,
        drop_edge: scaled.then_some(drop),
        chunk_rows: None,
    };
    let out = spmm(&csr_of::<Ad<B>>(f, device), x.clone(), edge.clone(), config);
    assert_eq!(out.dims(), [f.num_rows, width], "{name}");

    let kept = if scaled { mask } else { oracle::keep_all(f) };
    let weights = SpmmWeights {
        dst_scale: scaled.then_some(&u[..]),
        src_scale: scaled.then_some(&v[..]),
        edge_weight: weighted.then_some(&w[..]),
    };
    let (forward_len, reverse_len) = longest(f);
    assert_close(&name, &down(out.clone().inner()), &oracle::spmm(f, &xs, width, &weights, &kept), dtype, forward_len);
    if f.num_rows == 0 {
        return; // Burn's own product and sum of the loss below do not take a matrix without rows.
    }
    let grads = backward::<B, 2>(out, dtype);
    let rounded_probe: Vec<f64> = probe(f.num_rows * width).iter().map(|&p| dtype.round(p)).collect();
    let want = spmm_grad(f, &xs, width, &weights, &kept, &rounded_probe);
    assert_close(&format!("{name}: dx"), &gradient::<B, 2>(&x, &grads), &want.x, dtype, reverse_len);
    if let Some(edge) = edge {
        let got = gradient::<B, 1>(&edge, &grads);
        assert_close(&format!("{name}: dw"), &got, &want.edge_weight, Dtype::F32, width);
    }
}

pub fn spmm_matches_the_oracle_on_every_fixture<B: GraphBackend>(device: &B::Device) {
    for f in fixtures() {
        check_spmm::<B>(&f, 33, Dtype::F32, false, false, device);
        check_spmm::<B>(&f, 128, Dtype::F32, true, false, device);
    }
}

pub fn spmm_with_weights_matches_the_oracle<B: GraphBackend>(device: &B::Device) {
    for f in fixtures().iter().filter(|f| f.num_edges() > 0) {
        check_spmm::<B>(f, 31, Dtype::F32, true, true, device);
    }
    let f = Fixture::power_law(5, 60);
    for width in [1, 3, 32, 128, 200] {
        check_spmm::<B>(&f, width, Dtype::F32, false, true, device);
    }
}

pub fn spmm_in_half_precision_stays_within_the_bound<B: GraphBackend>(device: &B::Device) {
    for f in [Fixture::power_law(6, 300), Fixture::random(7, 40, 90, 600)] {
        for width in [1, 33, 128] {
            check_spmm::<B>(&f, width, Dtype::F16, true, false, device);
        }
    }
}

pub fn edge_softmax_matches_the_oracle_on_every_fixture<B: GraphBackend>(device: &B::Device) {
    for f in fixtures().iter().filter(|f| f.num_edges() > 0) {
        for (heads, dtype) in [(1, Dtype::F32), (3, Dtype::F32), (8, Dtype::F16)] {
            let name = format!("edge_softmax {} heads {heads} {dtype:?}", f.name);
            let values = values_in(dtype, 11, f.num_edges() * heads);
            let logits = up::<Ad<B>, 2>(&values, [f.num_edges(), heads], dtype, device).require_grad();
            let out = edge_softmax(&csr_of::<Ad<B>>(f, device), logits.clone());
            let kept = oracle::keep_all(f);
            let want = oracle::edge_softmax(f, &values, heads, &kept);
            assert_close(&name, &down(out.clone().inner()), &want, dtype, f.max_degree());
            let grads = backward::<B, 2>(out, dtype);
            let rounded_probe: Vec<f64> = probe(want.len()).iter().map(|&p| dtype.round(p)).collect();
            let want = edge_softmax_grad(f, &values, heads, &kept, &rounded_probe);
            let magnitude = edge_softmax_grad_magnitude(f, &values, heads, &kept, &rounded_probe);
            let got = gradient::<B, 2>(&logits, &grads);
            assert_close_at_scale(&format!("{name}: gradient"), &got, &want, &magnitude, dtype, f.max_degree());
        }
    }
}

/// What attention leaves out.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Dropped {
    Nothing,
    Edges,
    Weights,
    Both,
}

/// Dropout of attention, as the operators and as the oracle take it.
fn half_weightless() -> (Dropout, oracle::Drop) {
    let dropout = Dropout::new(0.4, 9, 4, 1, 2).expect("a rate above zero");
    let (key0, key1, threshold) = dropout.key();
    (dropout, oracle::Drop { key0, key1, threshold })
}

fn check_gat<B: GraphBackend>(
    f: &Fixture,
    (heads, channels): (usize, usize),
    dtype: Dtype,
    dropped: Dropped,
    device: &B::Device,
) {
    let name = format!("gat {} {heads}x{channels} {dtype:?} without {dropped:?}", f.name);
    let drops_edges = matches!(dropped, Dropped::Edges | Dropped::Both);
    let drops_weights = matches!(dropped, Dropped::Weights | Dropped::Both);
    let (dropout, weightless) = half_weightless();
    let width = heads * channels;
    let (src, dst) = (values_in(dtype, 21, f.num_cols * width), values_in(dtype, 22, f.num_rows * width));
    let attention = |seed| -> Vec<f64> {
        let scale = 1.0 / (channels as f64).sqrt();
        values_in(Dtype::F32, seed, width).iter().map(|a| (a * scale) as f32 as f64).collect()
    };
    let (att_src, att_dst) = (attention(23), attention(24));
    let slope = 0.2f32;
    let (drop, mask) = half_dropped(f);
    let h_src = up::<Ad<B>, 2>(&src, [f.num_cols, width], dtype, device).require_grad();
    let h_dst = up::<Ad<B>, 2>(&dst, [f.num_rows, width], dtype, device).require_grad();
    let a_src = up::<Ad<B>, 2>(&att_src, [heads, channels], Dtype::F32, device).require_grad();
    let a_dst = up::<Ad<B>, 2>(&att_dst, [heads, channels], Dtype::F32, device).require_grad();
    let config = GatConfig {
        negative_slope: slope,
        drop_edge: drops_edges.then_some(drop),
        attention_dropout: drops_weights.then_some(dropout),
        ..Default::default()
    };
    let csr = csr_of::<Ad<B>>(f, device);
    let out = gat(&csr, h_src.clone(), h_dst.clone(), a_src.clone(), a_dst.clone(), config);
    assert_eq!(out.dims(), [f.num_rows, width], "{name}");

    let kept = if drops_edges { mask } else { oracle::keep_all(f) };
    let factors = oracle::attention_factors(f, &weightless, heads);
    let input = GatInput {
        h_src: &src,
        h_dst: &dst,
        att_src: &att_src,
        att_dst: &att_dst,
        heads,
        channels,
        slope: f64::from(slope),
        factors: drops_weights.then_some(&factors),
    };
    let (forward_len, reverse_len) = longest(f);
    let (forward_len, reverse_len) = (forward_len + channels, reverse_len + channels);
    let node_len = f.num_rows.max(f.num_cols) + channels;
    assert_close(&name, &down(out.clone().inner()), &oracle::gat(f, &input, &kept).out, dtype, forward_len);
    if f.num_rows == 0 {
        return; // Burn's own product and sum of the loss below do not take a matrix without rows.
    }
    let grads = backward::<B, 2>(out, dtype);
    let rounded_probe: Vec<f64> = probe(f.num_rows * width).iter().map(|&p| dtype.round(p)).collect();
    let want = gat_grad(f, &input, &kept, &rounded_probe);
    let scale = gat_grad_magnitude(f, &input, &kept, &rounded_probe);
    let close = |what: &str, got: Vec<f32>, want: &[f64], scale: &[f64], len: usize| {
        assert_close_at_scale(&format!("{name}: {what}"), &got, want, scale, dtype, len);
    };
    close("dh_src", gradient::<B, 2>(&h_src, &grads), &want.h_src, &scale.h_src, reverse_len);
    close("dh_dst", gradient::<B, 2>(&h_dst, &grads), &want.h_dst, &scale.h_dst, forward_len);
    close("datt_src", gradient::<B, 2>(&a_src, &grads), &want.att_src, &scale.att_src, node_len);
    close("datt_dst", gradient::<B, 2>(&a_dst, &grads), &want.att_dst, &scale.att_dst, node_len);
}

pub fn gat_matches_the_oracle_on_every_fixture<B: GraphBackend>(device: &B::Device) {
    for f in fixtures() {
        check_gat::<B>(&f, (1, 32), Dtype::F32, Dropped::Nothing, device);
        check_gat::<B>(&f, (3, 5), Dtype::F32, Dropped::Edges, device);
        check_gat::<B>(&f, (1, 4), Dtype::F32, Dropped::Weights, device);
        check_gat::<B>(&f, (3, 5), Dtype::F32, Dropped::Both, device);
    }
}

pub fn gat_matches_the_oracle_for_every_shape_of_heads<B: GraphBackend>(device: &B::Device) {
    let f = Fixture::power_law(8, 60);
    for channels in [1, 31, 32, 33, 128, 200] {
        check_gat::<B>(&f, (1, channels), Dtype::F32, Dropped::Edges, device);
    }
    for (heads, channels) in [(2, 16), (3, 31), (4, 32), (8, 1), (8, 8)] {
        check_gat::<B>(&f, (heads, channels), Dtype::F32, Dropped::Both, device);
    }
}

/// Heads, and channels of a head, that do not fit a row together.
pub fn gat_of_very_wide_rows_matches_the_oracle<B: GraphBackend>(device: &B::Device) {
    let f = Fixture::random(11, 8, 9, 30);
    for (heads, channels) in [(1, 2500), (3, 1400), (2, 515)] {
        check_gat::<B>(&f, (heads, channels), Dtype::F32, Dropped::Both, device);
    }
}

pub fn gat_in_half_precision_stays_within_the_bound<B: GraphBackend>(device: &B::Device) {
    let f = Fixture::power_law(9, 200);
    for (heads, channels) in [(1, 128), (4, 32), (3, 7)] {
        check_gat::<B>(&f, (heads, channels), Dtype::F16, Dropped::Both, device);
    }
}

pub fn gat_survives_huge_scores<B: GraphBackend>(device: &B::Device) {
    // Scores of +-10,000: without the running maximum every exponential overflows or vanishes.
    let csr = Csr::<B>::from_host(&[0, 3], &[0, 1, 2], 3, device).unwrap();
    let h = Tensor::<B, 2>::from_data([[1.0f32], [-1.0], [0.5]], device);
    let own = Tensor::<B, 2>::from_data([[0.0f32]], device);
    let attention = Tensor::<B, 2>::from_data([[10_000.0f32]], device);
    let out = gat(&csr, h, own, attention.clone(), attention, GatConfig::default());
    assert_eq!(down(out), [1.0]);
}

pub fn gat_equals_edge_softmax_then_spmm<B: GraphBackend>(device: &B::Device) {
    let f = Fixture::power_law(10, 200);
    let (n, d) = (200, 48);
    let h = up::<B, 2>(&values_in(Dtype::F32, 31, n * d), [n, d], Dtype::F32, device);
    let a_src = up::<B, 2>(&values_in(Dtype::F32, 32, d), [1, d], Dtype::F32, device) * 0.1;
    let a_dst = up::<B, 2>(&values_in(Dtype::F32, 33, d), [1, d], Dtype::F32, device) * 0.1;
    let csr = csr_of::<B>(&f, device);
    let fused = gat(&csr, h.clone(), h.clone(), a_src.clone(), a_dst.clone(), GatConfig::default());

    let scores = |a: Tensor<B, 2>| down(linear(h.clone(), a.transpose(), None));
    let (s, t) = (scores(a_dst), scores(a_src));
    let logits: Vec<f64> =
        f.edges().map(|(_, i, j)| s[i] + t[j]).map(|z| f64::from(if z > 0.0 { z } else { 0.2 * z })).collect();
    let weights = edge_softmax(&csr, up::<B, 2>(&logits, [logits.len(), 1], Dtype::F32, device));
    let composed = spmm(&csr, h, Some(weights.reshape([logits.len()])), SpmmConfig::default());
    let want: Vec<f64> = down(composed).into_iter().map(f64::from).collect();
    assert_close("fused against composed", &down(fused), &want, Dtype::F32, f.max_degree() + d);
}

pub fn dropout_matches_the_oracle<B: GraphBackend>(device: &B::Device) {
    let (drop, oracle_drop) = half_weightless();
    let scale = 32f64.exp2() / f64::from(oracle_drop.threshold);
    for (rows, width, dtype) in [(0, 4), (1, 1), (70, 3), (33, 31), (40, 128), (3, 500)]
        .into_iter()
        .flat_map(|(rows, width)| [Dtype::F32, Dtype::F16].map(|dtype| (rows, width, dtype)))
    {
        let name = format!("dropout [{rows}, {width}] {dtype:?}");
        let values = values_in(dtype, 51, rows * width);
        let x = up::<Ad<B>, 2>(&values, [rows, width], dtype, device).require_grad();
        let out = dropout(x.clone(), &drop);
        let factor = |k: usize| {
            let kept = oracle_drop.keep((k / width) as u32, (k % width) as u32);
            if kept { scale } else { 0.0 }
        };
        let times_factors = |of: &[f64]| -> Vec<f64> { of.iter().enumerate().map(|(k, v)| v * factor(k)).collect() };
        assert_close(&name, &down(out.clone().inner()), &times_factors(&values), dtype, 1);
        if rows == 0 {
            continue; // Burn's own product and sum of the loss do not take a matrix without rows.
        }
        let grads = backward::<B, 2>(out, dtype);
        let g: Vec<f64> = probe(rows * width).iter().map(|&p| dtype.round(p)).collect();
        assert_close(&format!("{name}: dx"), &gradient::<B, 2>(&x, &grads), &times_factors(&g), dtype, 1);
    }
}

pub fn pair_dot_matches_the_oracle<B: GraphBackend>(device: &B::Device) {
    let (num_left, num_right) = (40, 25);
    for (width, dtype) in [(1, Dtype::F32), (31, Dtype::F32), (128, Dtype::F32), (200, Dtype::F32), (128, Dtype::F16)] {
        for pairs in [0usize, 1, 700] {
            let name = format!("pair_dot width {width} pairs {pairs} {dtype:?}");
            let mut rng = graphsieve_kernels::testing::Rng::new(3);
            let (ia, ib) = (rng.indices(pairs, num_left), rng.indices(pairs, num_right));
            let (a, b) = (values_in(dtype, 41, num_left * width), values_in(dtype, 42, num_right * width));
            let left = up::<Ad<B>, 2>(&a, [num_left, width], dtype, device).require_grad();
            let right = up::<Ad<B>, 2>(&b, [num_right, width], dtype, device).require_grad();
            let index = PairIndex::new(&ia, &ib, num_left, num_right, device);
            let out = pair_dot(left.clone(), right.clone(), &index);
            let want = oracle::pair_dot(&a, &b, width, &ia, &ib);
            assert_close(&name, &down(out.clone().inner()), &want, Dtype::F32, width);
            if pairs == 0 {
                continue;
            }
            let grads = backward::<B, 1>(out, Dtype::F32);
            let (da, db) = pair_dot_grad(&a, &b, width, &ia, &ib, &probe(pairs));
            assert_close(&format!("{name}: dleft"), &gradient::<B, 2>(&left, &grads), &da, dtype, pairs);
            assert_close(&format!("{name}: dright"), &gradient::<B, 2>(&right, &grads), &db, dtype, pairs);
        }
    }
}

pub fn gather_matches_the_oracle<B: GraphBackend>(device: &B::Device) {
    let rows = 30;
    for (width, dtype) in [(1, Dtype::F32), (33, Dtype::F32), (128, Dtype::F16)] {
        let xs = values_in(dtype, 51, rows * width);
        let index = graphsieve_kernels::testing::Rng::new(4).indices(500, rows);
        let x = up::<Ad<B>, 2>(&xs, [rows, width], dtype, device).require_grad();
        let out = gather_rows(x.clone(), &RowIndex::new(&index, rows, device));
        let got: Vec<f64> = down(out.clone().inner()).into_iter().map(f64::from).collect();
        assert_eq!(got, oracle::gather(&xs, width, &index), "a gather copies");
        let grads = backward::<B, 2>(out, dtype);
        let rounded_probe: Vec<f64> = probe(500 * width).iter().map(|&p| dtype.round(p)).collect();
        let want = gather_grad(rows, width, &index, &rounded_probe);
        assert_close("gather: dx", &gradient::<B, 2>(&x, &grads), &want, dtype, 500);
    }
}

pub fn linear_matches_the_oracle_for_every_shape<B: GraphBackend>(device: &B::Device) {
    // Rows: tiles of 128, stretches of 256 and more; on the CPU 512 stretches of at least 64, so that 32,768 is the first
    // size that is split and 33,000 leaves a remainder.
    for rows in [1, 100, 257, 32_767, 32_768, 33_000] {
        check_linear::<B>(rows, 12, 9, [Dtype::F32; 2], device);
    }
    // Tiles of 128 results and 32 deep, widths that are no multiple of a vector, and a depth that does not fit in shared
    // memory at once.
    for (k, m) in [(4, 8), (128, 128), (384, 128), (132, 260), (31, 128), (128, 1), (900, 132)] {
        check_linear::<B>(700, k, m, [Dtype::F32; 2], device);
    }
    for weights in [Dtype::F16, Dtype::F32] {
        for (rows, k, m) in [(300, 128, 128), (2_000, 128, 128), (2_000, 384, 128), (33_000, 12, 9), (100, 31, 7)] {
            check_linear::<B>(rows, k, m, [Dtype::F16, weights], device);
        }
    }
}

fn check_linear<B: GraphBackend>(rows: usize, k: usize, m: usize, [dtype, weights]: [Dtype; 2], device: &B::Device) {
    let (xs, ws, bs) = (values_in(dtype, 61, rows * k), values_in(weights, 62, k * m), values_in(dtype, 63, m));
    let x = up::<Ad<B>, 2>(&xs, [rows, k], dtype, device).require_grad();
    let w = up::<Ad<B>, 2>(&ws, [k, m], weights, device).require_grad();
    // What the product sees of them.
    let ws: Vec<f64> = ws.into_iter().map(|w| dtype.round(w)).collect();
    let b = up::<Ad<B>, 1>(&bs, [m], dtype, device).require_grad();
    let out = linear(x.clone(), w.clone(), Some(b.clone()));
    let name = format!("linear {rows} rows, {k} to {m}, {dtype:?}, weights {weights:?}");
    assert_close(&name, &down(out.clone().inner()), &oracle::linear(&xs, &ws, &bs, k), dtype, k);
    let grads = backward::<B, 2>(out, dtype);
    let rounded_probe: Vec<f64> = probe(rows * m).iter().map(|&p| dtype.round(p)).collect();
    let (dx, dw, db) = linear_grad(&xs, &ws, k, m, &rounded_probe);
    assert_close(&format!("{name}: dx"), &gradient::<B, 2>(&x, &grads), &dx, dtype, m);
    assert_close(&format!("{name}: dw"), &gradient::<B, 2>(&w, &grads), &dw, dtype, rows);
    assert_close(&format!("{name}: db"), &gradient::<B, 1>(&b, &grads), &db, dtype, rows);
}

/// Reads the mask of a pass off its result: with features of one and no scaling, a row sums to its kept entries, and
/// with one source per column and a one-hot feature the entry itself shows.
pub fn masks_agree_with_the_host_in_every_pass<B: GraphBackend>(device: &B::Device) {
    let n = 97;
    // The complete graph: every (dst, src) pair once.
    let row_ptr: Vec<u64> = (0..=n as u64).map(|i| i * n as u64).collect();
    let col_idx: Vec<u32> = (0..n).flat_map(|_| 0..n as u32).collect();
    let csr = Csr::<Ad<B>>::from_host(&row_ptr, &col_idx, n, device).unwrap();
    let identity: Vec<f64> = (0..n * n).map(|k| f64::from(k / n == k % n)).collect();
    for rate in [0.15, 0.5, 0.85] {
        let drop = DropEdge::new(rate, 77, 3, 1, 4).unwrap().with_bases(123, 4_567);
        let want: Vec<bool> = (0..n * n).map(|k| drop.keeps((k / n) as u32, (k % n) as u32)).collect();
        assert!(want.iter().any(|&k| k) && want.iter().any(|&k| !k));

        let eye = up::<Ad<B>, 2>(&identity, [n, n], Dtype::F32, device).require_grad();
        let config = SpmmConfig { drop_edge: Some(drop), ..Default::default() };
        let sum = spmm(&csr, eye.clone(), None, config);
        let forward: Vec<bool> = down(sum.clone().inner()).into_iter().map(|v| v != 0.0).collect();
        assert!(forward == want, "spmm forward, rate {rate}");
        // d(sum_ij out_ij P_ij)/dX = A^T P; with P the identity that is A^T.
        let eye_constant = up::<Ad<B>, 2>(&identity, [n, n], Dtype::F32, device);
        let grads = (sum * eye_constant.clone()).sum().backward();
        let transposed = gradient::<B, 2>(&eye, &grads);
        let reverse: Vec<bool> = (0..n * n).map(|k| transposed[(k % n) * n + k / n] != 0.0).collect();
        assert!(reverse == want, "spmm backward, rate {rate}");

        let zero = up::<Ad<B>, 2>(&vec![0.0; n], [1, n], Dtype::F32, device);
        let h = up::<Ad<B>, 2>(&identity, [n, n], Dtype::F32, device).require_grad();
        let config = GatConfig { drop_edge: Some(drop), ..Default::default() };
        let attended = gat(&csr, h.clone(), eye_constant.clone(), zero.clone(), zero, config);
        let forward: Vec<bool> = down(attended.clone().inner()).into_iter().map(|v| v != 0.0).collect();
        assert!(forward == want, "gat forward, rate {rate}");
        let grads = (attended * eye_constant).sum().backward();
        let transposed = gradient::<B, 2>(&h, &grads);
        let reverse: Vec<bool> = (0..n * n).map(|k| transposed[(k % n) * n + k / n] != 0.0).collect();
        assert!(reverse == want, "gat backward, rate {rate}");
    }
}

pub fn chunks_of_rows_change_nothing<B: GraphBackend>(device: &B::Device) {
    let f = Fixture::power_law(12, 150);
    let run = |chunk_rows: Option<usize>| {
        let (drop, _) = half_dropped(&f);
        let x = up::<Ad<B>, 2>(&values_in(Dtype::F32, 71, 150 * 20), [150, 20], Dtype::F32, device).require_grad();
        let a = up::<Ad<B>, 2>(&values_in(Dtype::F32, 72, 20), [2, 10], Dtype::F32, device);
        let csr = csr_of::<Ad<B>>(&f, device);
        let config = SpmmConfig { drop_edge: Some(drop), chunk_rows, ..Default::default() };
        let y = spmm(&csr, x.clone(), None, config);
        let config = GatConfig { drop_edge: Some(drop), chunk_rows, ..Default::default() };
        let y = gat(&csr, y.clone(), y, a.clone(), a, config);
        let grads = backward::<B, 2>(y.clone(), Dtype::F32);
        (down(y.inner()), gradient::<B, 2>(&x, &grads))
    };
    let whole = run(None);
    for chunk in [1, 7, 64, 149, 150, 10_000] {
        assert!(run(Some(chunk)) == whole, "chunks of {chunk} rows");
    }
}

pub fn recomputing_changes_nothing<B: GraphBackend>(device: &B::Device) {
    let f = Fixture::power_law(15, 120);
    let run = |recompute: bool| {
        let (drop_edge, _) = half_dropped(&f);
        let h = up::<Ad<B>, 2>(&values_in(Dtype::F32, 73, 120 * 24), [120, 24], Dtype::F32, device).require_grad();
        let a = up::<Ad<B>, 2>(&values_in(Dtype::F32, 74, 24), [3, 8], Dtype::F32, device).require_grad();
        let config = GatConfig { drop_edge: Some(drop_edge), recompute, ..Default::default() };
        let y = gat(&csr_of::<Ad<B>>(&f, device), h.clone(), h.clone(), a.clone(), a.clone(), config);
        let grads = backward::<B, 2>(y, Dtype::F32);
        (gradient::<B, 2>(&h, &grads), gradient::<B, 2>(&a, &grads))
    };
    assert!(run(true) == run(false));
}

pub fn combine_matches_its_definition<B: GraphBackend>(device: &B::Device) {
    let (rows, width) = (20, 25);
    for (dtype, parts, with_bias, activation) in [
        (Dtype::F32, 1, false, Activation::Elu),
        (Dtype::F32, 2, true, Activation::Relu),
        (Dtype::F32, 3, true, Activation::Identity),
        (Dtype::F32, 4, true, Activation::Elu),
        (Dtype::F32, 7, true, Activation::Elu),
        (Dtype::F16, 2, true, Activation::Elu),
    ] {
        let name = format!("combine {parts} parts {dtype:?} {activation:?}");
        let inputs: Vec<Vec<f64>> = (0..parts).map(|p| values_in(dtype, 75 + p, rows * width)).collect();
        let bias = values_in(Dtype::F32, 90, width);
        let scale = 0.5;
        let tracked: Vec<_> =
            inputs.iter().map(|x| up::<Ad<B>, 2>(x, [rows, width], dtype, device).require_grad()).collect();
        let tracked_bias = with_bias.then(|| up::<Ad<B>, 1>(&bias, [width], Dtype::F32, device).require_grad());
        let out = combine(tracked.clone(), tracked_bias.clone(), scale as f32, activation);
        let sum = |k: usize| {
            let bias = if with_bias { bias[k % width] } else { 0.0 };
            scale * (inputs.iter().map(|x| x[k]).sum::<f64>() + bias)
        };
        let value = |y: f64| match activation {
            Activation::Identity => y,
            Activation::Relu => y.max(0.0),
            Activation::Elu => {
                if y > 0.0 {
                    y
                } else {
                    y.exp_m1()
                }
            }
        };
        let slope = |y: f64| match activation {
            Activation::Identity => 1.0,
            Activation::Relu => f64::from(u8::from(y > 0.0)),
            Activation::Elu => {
                if y > 0.0 {
                    1.0
                } else {
                    y.exp()
                }
            }
        };
        let want: Vec<f64> = (0..rows * width).map(|k| value(sum(k))).collect();
        assert_close(&name, &down(out.clone().inner()), &want, dtype, parts as usize);
        let grads = backward::<B, 2>(out, dtype);
        let dx: Vec<f64> =
            probe(rows * width).iter().enumerate().map(|(k, &p)| scale * dtype.round(p) * slope(sum(k))).collect();
        for x in &tracked {
            assert_close(&format!("{name}: dx"), &gradient::<B, 2>(x, &grads), &dx, dtype, 2);
        }
        if let Some(bias) = tracked_bias {
            let want: Vec<f64> = (0..width).map(|c| (0..rows).map(|r| dx[r * width + c]).sum()).collect();
            assert_close(&format!("{name}: dbias"), &gradient::<B, 1>(&bias, &grads), &want, dtype, rows);
        }
    }
}

pub fn normalised_rows_match_their_definition<B: GraphBackend>(device: &B::Device) {
    for (width, dtype) in [(1, Dtype::F32), (31, Dtype::F32), (128, Dtype::F32), (200, Dtype::F32), (128, Dtype::F16)] {
        let rows = 40;
        let mut xs = values_in(dtype, 77, rows * width);
        xs[..width].fill(0.0);
        let x = up::<Ad<B>, 2>(&xs, [rows, width], dtype, device).require_grad();
        let out = normalise_rows(x.clone());
        let name = format!("normalise_rows width {width} {dtype:?}");
        // A row of one element has no gradient: two equal terms cancel.
        let (mut z, mut dx, mut terms) = (Vec::new(), Vec::new(), Vec::new());
        let weights = probe(rows * width);
        for (row, g) in xs.chunks(width).zip(weights.chunks(width)) {
            let length = (row.iter().map(|v| v * v).sum::<f64>() + 1e-12).sqrt();
            let unit: Vec<f64> = row.iter().map(|v| v / length).collect();
            let along: f64 = unit.iter().zip(g).map(|(u, g)| u * g).sum();
            dx.extend(unit.iter().zip(g).map(|(u, g)| (g - u * along) / length));
            terms.extend(unit.iter().zip(g).map(|(u, g)| (g.abs() + (u * along).abs()) / length));
            z.extend(unit);
        }
        assert_close(&name, &down(out.clone().inner()), &z, Dtype::F32, width);
        let grads = backward::<B, 2>(out, Dtype::F32);
        // The row of zeros has a gradient of 1e6: its own scale would hide every other row.
        let got = gradient::<B, 2>(&x, &grads);
        let check = |what: &str, part: std::ops::Range<usize>| {
            let (got, want, terms) = (&got[part.clone()], &dx[part.clone()], &terms[part]);
            assert_close_at_scale(&format!("{name}: {what}"), got, want, terms, dtype, width);
        };
        if dtype == Dtype::F32 {
            check("dx of zeros", 0..width);
        }
        check("dx", width..rows * width);
    }
}

pub fn row_dots_match_the_oracle<B: GraphBackend>(device: &B::Device) {
    // 192 rows to a partial sum on GPUs, 1024 on the CPU; four vectors to a launch.
    for (rows, width, count, dtype) in [
        (1, 1, 1, Dtype::F32),
        (193, 31, 3, Dtype::F32),
        (2_100, 128, 4, Dtype::F32),
        (300, 200, 9, Dtype::F32),
        (500, 128, 2, Dtype::F16),
    ] {
        let name = format!("row_dots {rows} x {width}, {count} vectors, {dtype:?}");
        let (xs, vs) = (values_in(dtype, 78, rows * width), values_in(Dtype::F32, 79, count * width));
        let x = up::<Ad<B>, 2>(&xs, [rows, width], dtype, device).require_grad();
        let v = up::<Ad<B>, 2>(&vs, [count, width], Dtype::F32, device).require_grad();
        let out = row_dots(x.clone(), v.clone());
        let transposed: Vec<f64> = (0..width * count).map(|k| vs[k % count * width + k / count]).collect();
        let want = oracle::linear(&xs, &transposed, &vec![0.0; count], width);
        assert_close(&name, &down(out.clone().inner()), &want, Dtype::F32, width);
        let grads = backward::<B, 2>(out, Dtype::F32);
        let (dx, dv, _) = linear_grad(&xs, &transposed, width, count, &probe(rows * count));
        let dv: Vec<f64> = (0..width * count).map(|k| dv[k % width * count + k / width]).collect();
        assert_close(&format!("{name}: dx"), &gradient::<B, 2>(&x, &grads), &dx, dtype, count);
        assert_close(&format!("{name}: dv"), &gradient::<B, 2>(&v, &grads), &dv, Dtype::F32, rows);
    }
}

/// Every second node, every third, none and all.
fn node_lists(nodes: usize) -> [Vec<u32>; 4] {
    let every = |step: usize| (0..nodes as u32).step_by(step).collect();
    [every(2), every(3), Vec::new(), every(1)]
}

pub fn selected_rows_move_between_sets<B: GraphBackend>(device: &B::Device) {
    let (nodes, width) = (301, 12);
    for (dtype, width) in [(Dtype::F32, width), (Dtype::F16, 128), (Dtype::F32, 1)] {
        for from in node_lists(nodes) {
            for to in node_lists(nodes) {
                if from.is_empty() {
                    continue; // Nothing to differentiate.
                }
                let xs = values_in(dtype, 83, from.len() * width);
                let x = up::<Ad<B>, 2>(&xs, [from.len(), width], dtype, device).require_grad();
                let sets = [&from, &to].map(|list| NodeSet::<Ad<B>>::new(list, nodes, device));
                assert_eq!(sets[1].to_host(), to);
                let out = select_rows(x.clone(), Some(&sets[0]), Some(&sets[1]));
                let place = |node: &u32| from.binary_search(node).ok();
                let row = |at: Option<usize>, of: &[f64]| match at {
                    Some(at) => of[at * width..(at + 1) * width].to_vec(),
                    None => vec![0.0; width],
                };
                let want: Vec<f32> = to.iter().flat_map(|node| row(place(node), &xs)).map(|v| v as f32).collect();
                assert_eq!(down(out.clone().inner()), want, "{} of {} rows", to.len(), from.len());
                if to.is_empty() {
                    continue;
                }
                let grads = backward::<B, 2>(out, dtype);
                let g: Vec<f64> = probe(to.len() * width).iter().map(|&p| dtype.round(p)).collect();
                let want: Vec<f32> =
                    from.iter().flat_map(|node| row(to.binary_search(node).ok(), &g)).map(|v| v as f32).collect();
                assert_eq!(gradient::<B, 2>(&x, &grads), want, "gradient, {} of {} rows", to.len(), from.len());
            }
        }
    }
}

pub fn marks_find_the_sources_of_kept_edges<B: GraphBackend>(device: &B::Device) {
    for f in fixtures().into_iter().filter(|f| f.num_rows > 0 && f.num_cols > 0) {
        let csr = csr_of::<B>(&f, device);
        let (drop, mask) = half_dropped(&f);
        for wanted in node_lists(f.num_rows) {
            for (drop_edge, kept) in [(None, oracle::keep_all(&f)), (Some(drop), mask.clone())] {
                let rows = NodeSet::new(&wanted, f.num_rows, device);
                let extra = NodeSet::new(&[f.num_cols as u32 - 1], f.num_cols, device);
                let mut marks = NodeMarks::new(f.num_cols, device);
                marks.add(&extra);
                marks.add_sources(&csr.restrict(Some(&rows), None), drop_edge);
                let set = NodeMarks::into_sets(vec![marks]).remove(0);
                let reached = |(e, i, j): (usize, usize, usize)| {
                    (kept[e] && wanted.binary_search(&(i as u32)).is_ok()).then_some(j as u32)
                };
                let mut want: Vec<u32> = f.edges().filter_map(reached).chain([f.num_cols as u32 - 1]).collect();
                want.sort_unstable();
                want.dedup();
                assert_eq!(set.to_host(), want, "{}", f.name);
                assert_eq!(set.len(), want.len(), "{}", f.name);
            }
        }
    }
    // More than one stretch of marks per launch, and none at all.
    let nodes = 5_000;
    for list in node_lists(nodes) {
        let mut marks = NodeMarks::<B>::new(nodes, device);
        marks.add(&NodeSet::new(&list, nodes, device));
        assert_eq!(NodeMarks::into_sets(vec![marks])[0].to_host(), list);
    }
}

/// A restricted product or attention is that of the graph whose other edges do not exist.
pub fn restricted_operators_match_the_oracle<B: GraphBackend>(device: &B::Device) {
    for f in fixtures().into_iter().filter(|f| f.num_edges() > 0) {
        for (rows, cols) in [(0, 3), (1, 0), (3, 1), (1, 1)] {
            let (rows, cols) = (node_lists(f.num_rows)[rows].clone(), node_lists(f.num_cols)[cols].clone());
            check_restricted::<B>(&f, &rows, &cols, device);
        }
    }
}

fn columns<B: GraphBackend>(scores: &Tensor<B, 2>, first: usize) -> ScoreColumns<B> {
    ScoreColumns { scores: scores.clone(), first }
}

fn check_restricted<B: GraphBackend>(f: &Fixture, rows: &[u32], cols: &[u32], device: &B::Device) {
    let width = 12;
    let name = format!("{} between {} and {} nodes", f.name, rows.len(), cols.len());
    // The sub-graph with nodes numbered anew, and its DropEdge fates under the numbers of the whole.
    let (drop, mask) = half_dropped(f);
    let mut kept = Vec::new();
    let part: Vec<Vec<u32>> = (rows.iter())
        .map(|&i| {
            let entries = f.row_ptr[i as usize] as usize..f.row_ptr[i as usize + 1] as usize;
            entries
                .filter_map(|e| {
                    let j = cols.binary_search(&f.col_idx[e]).ok()?;
                    kept.push(mask[e]);
                    Some(j as u32)
                })
                .collect()
        })
        .collect();
    let part = Fixture::from_rows(&name, cols.len(), &part);
    let sets = (NodeSet::<Ad<B>>::new(rows, f.num_rows, device), NodeSet::<Ad<B>>::new(cols, f.num_cols, device));
    let csr = csr_of::<Ad<B>>(f, device).restrict(Some(&sets.0), Some(&sets.1));
    assert_eq!((csr.num_rows(), csr.num_cols()), (rows.len(), cols.len()), "{name}");
    let xs = values_in(Dtype::F32, 84, cols.len() * width);
    let x = up::<Ad<B>, 2>(&xs, [cols.len(), width], Dtype::F32, device).require_grad();
    let weights = probe(rows.len() * width);
    let (forward_len, reverse_len) = longest(&part);

    // SpMM with scales over the whole graph and a self term.
    let scale = |seed, n: usize| -> Vec<f64> {
        values_in(Dtype::F32, seed, n).iter().map(|v| f64::from((v.abs() + 0.1) as f32)).collect()
    };
    let (u, v, s) = (scale(85, f.num_rows), scale(86, f.num_cols), scale(87, f.num_rows));
    let pick = |of: &[f64], nodes: &[u32]| -> Vec<f64> { nodes.iter().map(|&n| of[n as usize]).collect() };
    let own_nodes = node_lists(f.num_rows)[0].clone();
    let hs = values_in(Dtype::F32, 88, own_nodes.len() * width);
    let h = up::<Ad<B>, 2>(&hs, [own_nodes.len(), width], Dtype::F32, device).require_grad();
    let vector = |values: &[f64]| up::<Ad<B>, 1>(values, [values.len()], Dtype::F32, device);
    let config = SpmmConfig {
        dst_scale: Some(vector(&u)),
        src_scale: Some(vector(&v)),
        own: Some(SelfTerm {
            h: h.clone(),
            scale: vector(&s),
            nodes: Some(NodeSet::new(&own_nodes, f.num_rows, device)),
        }),
        drop_edge: Some(drop),
        chunk_rows: Some(7),
    };
    let out = spmm(&csr, x.clone(), None, config);
    let (u_part, v_part) = (pick(&u, rows), pick(&v, cols));
    let factors = SpmmWeights { dst_scale: Some(&u_part), src_scale: Some(&v_part), edge_weight: None };
    let mut want = oracle::spmm(&part, &xs, width, &factors, &kept);
    let mut dh = vec![0.0; hs.len()];
    for (r, node) in rows.iter().enumerate() {
        if let Ok(at) = own_nodes.binary_search(node) {
            for c in 0..width {
                want[r * width + c] += s[*node as usize] * hs[at * width + c];
                dh[at * width + c] = s[*node as usize] * weights[r * width + c];
            }
        }
    }
    assert_close(&format!("spmm {name}"), &down(out.clone().inner()), &want, Dtype::F32, forward_len + 1);
    let grads = backward::<B, 2>(out, Dtype::F32);
    let want = spmm_grad(&part, &xs, width, &factors, &kept, &weights);
    assert_close(&format!("spmm {name}: dx"), &gradient::<B, 2>(&x, &grads), &want.x, Dtype::F32, reverse_len);
    assert_close(&format!("spmm {name}: dh"), &gradient::<B, 2>(&h, &grads), &dh, Dtype::F32, 1);

    // Attention from scores, against attention on the sub-graph.
    let heads = 3;
    let (ss, ts) = (values_in(Dtype::F32, 95, rows.len() * heads), values_in(Dtype::F32, 96, cols.len() * heads));
    let run = |csr: &Csr<Ad<B>>, drop_edge: Option<DropEdge>| {
        let x = up::<Ad<B>, 2>(&xs, [cols.len(), width], Dtype::F32, device).require_grad();
        let s = up::<Ad<B>, 2>(&ss, [rows.len(), heads], Dtype::F32, device).require_grad();
        let t = up::<Ad<B>, 2>(&ts, [cols.len(), heads], Dtype::F32, device).require_grad();
        let config = GatConfig { drop_edge, ..Default::default() };
        let (dst, src) = (columns(&s, 0), columns(&t, 0));
        let out = attend(csr, x.clone(), dst, src, heads, config);
        let value = down(out.clone().inner());
        let grads = backward::<B, 2>(out, Dtype::F32);
        (value, gradient::<B, 2>(&x, &grads), gradient::<B, 2>(&s, &grads), gradient::<B, 2>(&t, &grads))
    };
    let got = run(&csr, Some(drop));
    // The kept part of the sub-graph as a graph of its own.
    let mut left = vec![Vec::new(); rows.len()];
    for (e, i, j) in part.edges().filter(|&(e, _, _)| kept[e]) {
        let _ = e;
        left[i].push(j as u32);
    }
    let left = Fixture::from_rows("kept", cols.len(), &left);
    let want = run(&csr_of::<Ad<B>>(&left, device), None);
    let wide = |values: Vec<f32>| values.into_iter().map(f64::from).collect::<Vec<_>>();
    let len = left.max_degree().max(left.reverse().0.max_degree()) + width;
    assert_close(&format!("attend {name}"), &got.0, &wide(want.0), Dtype::F32, len);
    assert_close(&format!("attend {name}: dx"), &got.1, &wide(want.1), Dtype::F32, len);
    // Gradients of scores are differences of sums; their terms give the scale.
    let (s_terms, t_terms) = score_gradient_terms(&left, &xs, (&ss, &ts), (heads, width / heads), &weights);
    let (ds, dt) = (wide(want.2), wide(want.3));
    assert_close_at_scale(&format!("attend {name}: ds"), &got.2, &ds, &s_terms, Dtype::F32, len);
    assert_close_at_scale(&format!("attend {name}: dt"), &got.3, &dt, &t_terms, Dtype::F32, len);
}

/// `sum a_ij (|p_ij| + |c_i|)` over the edges of every destination, and of every source, per head.
fn score_gradient_terms(
    f: &Fixture,
    values: &[f64],
    (score_dst, score_src): (&[f64], &[f64]),
    (heads, channels): (usize, usize),
    g: &[f64],
) -> (Vec<f64>, Vec<f64>) {
    let input = oracle::AttendInput { values, score_dst, score_src, heads, channels, slope: 0.2, factors: None };
    let attention = oracle::attend(f, &input, &oracle::keep_all(f));
    let dot = |a: &[f64], i: usize, b: &[f64], j: usize, h: usize| -> f64 {
        let head = |x: &[f64], row: usize| x[(row * heads + h) * channels..][..channels].to_vec();
        head(a, i).iter().zip(head(b, j)).map(|(a, b)| a * b).sum()
    };
    let (mut dst, mut src) = (vec![0.0; f.num_rows * heads], vec![0.0; f.num_cols * heads]);
    for (e, i, j) in f.edges() {
        for h in 0..heads {
            let (p, c) = (dot(g, i, values, j, h), dot(g, i, &attention.out, i, h));
            let term = attention.alpha[e * heads + h] * (p.abs() + c.abs());
            dst[i * heads + h] += term;
            src[j * heads + h] += term;
        }
    }
    (dst, src)
}

/// Attention from scores is that of attention vectors when the scores are theirs, gradients included.
pub fn attend_equals_gat<B: GraphBackend>(device: &B::Device) {
    let f = Fixture::power_law(16, 200);
    let (n, d) = (200, 48);
    let (drop, _) = half_dropped(&f);
    let csr = csr_of::<Ad<B>>(&f, device);
    let config = || GatConfig { drop_edge: Some(drop), ..Default::default() };
    let inputs = || {
        let h = up::<Ad<B>, 2>(&values_in(Dtype::F32, 97, n * d), [n, d], Dtype::F32, device).require_grad();
        let a = up::<Ad<B>, 2>(&values_in(Dtype::F32, 98, d), [1, d], Dtype::F32, device).require_grad();
        let b = up::<Ad<B>, 2>(&values_in(Dtype::F32, 99, d), [1, d], Dtype::F32, device).require_grad();
        [h, a, b]
    };
    let read = |out: Tensor<Ad<B>, 2>, [h, a, b]: [Tensor<Ad<B>, 2>; 3]| {
        let value = down(out.clone().inner());
        let grads = backward::<B, 2>(out, Dtype::F32);
        [value, gradient::<B, 2>(&h, &grads), gradient::<B, 2>(&a, &grads), gradient::<B, 2>(&b, &grads)]
    };
    let [h, a, b] = inputs();
    let fused = read(gat(&csr, h.clone(), h.clone(), a.clone(), b.clone(), config()), [h, a, b]);
    let [h, a, b] = inputs();
    let scores = row_dots(h.clone(), Tensor::cat(vec![b.clone(), a.clone()], 0));
    let (dst, src) = (columns(&scores, 0), columns(&scores, 1));
    let composed = read(attend(&csr, h.clone(), dst, src, 1, config()), [h, a, b]);
    for (k, (fused, composed)) in fused.iter().zip(composed).enumerate() {
        let want: Vec<f64> = composed.into_iter().map(f64::from).collect();
        assert_close(&format!("part {k}"), fused, &want, Dtype::F32, f.num_edges());
    }
}

/// Attention over data: values and the gradients of both vectors, where destinations and sources are selected and where
/// they are not.
pub fn attended_inputs_match_the_oracle<B: GraphBackend>(device: &B::Device) {
    for f in fixtures().into_iter().filter(|f| f.num_edges() > 0) {
        for (rows, cols, width, dtype) in [(0, 3, 32, Dtype::F32), (3, 1, 5, Dtype::F32), (1, 1, 160, Dtype::F16)] {
            let (rows, cols) = (&node_lists(f.num_rows)[rows], &node_lists(f.num_cols)[cols]);
            check_attended_inputs::<B>(&f, [rows, cols], width, dtype, device);
        }
    }
}

fn check_attended_inputs<B: GraphBackend>(
    f: &Fixture,
    [rows, cols]: [&[u32]; 2],
    width: usize,
    dtype: Dtype,
    device: &B::Device,
) {
    let name = format!("{} {width} {dtype:?} between {} and {} nodes", f.name, rows.len(), cols.len());
    let (drop, mask) = half_dropped(f);
    let (dropout, weightless) = half_weightless();
    let sets = (NodeSet::<Ad<B>>::new(rows, f.num_rows, device), NodeSet::<Ad<B>>::new(cols, f.num_cols, device));
    let csr = csr_of::<Ad<B>>(f, device).restrict(Some(&sets.0), Some(&sets.1));
    // The kept edges between selected nodes, for the oracle: other rows are empty.
    let mut left = vec![Vec::new(); f.num_rows];
    let (mut factors, all_factors) = (Vec::new(), oracle::attention_factors(f, &weightless, 1));
    for (e, i, j) in f.edges() {
        if let (true, Ok(_), Ok(at)) = (mask[e], rows.binary_search(&(i as u32)), cols.binary_search(&(j as u32))) {
            left[i].push(at as u32);
            factors.push(all_factors[e]);
        }
    }
    let left = Fixture::from_rows(&name, cols.len(), &left);
    let scale = 1.0 / (width as f64).sqrt();
    let vectors: Vec<f64> =
        values_in(Dtype::F32, 71, 2 * width).iter().map(|v| f64::from((v * scale) as f32)).collect();
    let (dst, src) = (values_in(dtype, 72, f.num_rows * width), values_in(dtype, 73, cols.len() * width));
    let v = up::<Ad<B>, 2>(&vectors, [2, width], Dtype::F32, device).require_grad();
    let x_dst = up::<Ad<B>, 2>(&dst, [f.num_rows, width], dtype, device);
    let x_src = up::<Ad<B>, 2>(&src, [cols.len(), width], dtype, device);
    let (s, t) = (row_dots(x_dst.clone(), v.clone().detach()), row_dots(x_src.clone(), v.clone().detach()));
    let scores = [columns(&s, 0), columns(&t, 1)];
    let attention_dropout = (dtype == Dtype::F32).then_some(dropout);
    let config = GatConfig { drop_edge: Some(drop), attention_dropout, ..Default::default() };
    let out = attend_inputs(&csr, x_src, x_dst, v.clone(), scores, config);

    let (att_dst, att_src) = vectors.split_at(width);
    let slope = f64::from(0.2f32);
    let factors = attention_dropout.map(|_| &factors[..]);
    let input = GatInput { h_src: &src, h_dst: &dst, att_src, att_dst, heads: 1, channels: width, slope, factors };
    let all = oracle::keep_all(&left);
    let pick = |of: &[f64]| -> Vec<f64> {
        rows.iter().flat_map(|&i| of[i as usize * width..(i as usize + 1) * width].to_vec()).collect()
    };
    let len = left.max_degree() + width;
    let want = pick(&oracle::gat(&left, &input, &all).out);
    assert_close(&name, &down(out.clone().inner()), &want, dtype, len);
    let grads = backward::<B, 2>(out, dtype);
    let mut probed = vec![0.0; f.num_rows * width];
    for (&i, row) in rows.iter().zip(probe(rows.len() * width).chunks(width)) {
        let row: Vec<f64> = row.iter().map(|&p| dtype.round(p)).collect();
        probed[i as usize * width..(i as usize + 1) * width].copy_from_slice(&row);
    }
    let (want, terms) = (gat_grad(&left, &input, &all, &probed), gat_grad_magnitude(&left, &input, &all, &probed));
    let (want, terms) = ([want.att_dst, want.att_src].concat(), [terms.att_dst, terms.att_src].concat());
    let len = f.num_rows.max(f.num_cols) + width;
    assert_close_at_scale(&format!("{name}: dv"), &gradient::<B, 2>(&v, &grads), &want, &terms, dtype, len);
}

/// What somebody makes of a matrix.
type Use<'a, B, const D: usize> = &'a dyn Fn(Tensor<Ad<B>, 2>) -> Tensor<Ad<B>, D>;

/// Every order of `0..n`.
fn orders(n: usize) -> Vec<Vec<usize>> {
    let Some(last) = n.checked_sub(1) else { return vec![Vec::new()] };
    let with_last = |order: Vec<usize>| {
        (0..n).map(move |at| {
            let mut order = order.clone();
            order.insert(at, last);
            order
        })
    };
    orders(last).into_iter().flat_map(with_last).collect()
}

/// One matrix feeds many operators: whichever comes first in the backward pass, the others add to what it leaves.
pub fn gradients_of_several_operators_add_up<B: GraphBackend>(device: &B::Device) {
    for (width, dtype) in [(12, Dtype::F32), (33, Dtype::F16)] {
        for restricted in [false, true] {
            check_sum_of_gradients::<B>(restricted, width, dtype, device);
        }
    }
}

fn check_sum_of_gradients<B: GraphBackend>(restricted: bool, width: usize, dtype: Dtype, device: &B::Device) {
    // Every row names the first source, so several planes share its gradient; nobody names the last ones.
    let nodes = 640u32;
    let rows: Vec<Vec<u32>> = (0..nodes).map(|i| vec![0, (i * 7 + 1) % (nodes / 2)]).collect();
    let f = Fixture::from_rows("one source for all", nodes as usize, &rows);
    let (held, wanted): (Vec<u32>, Vec<u32>) = match restricted {
        true => ((0..nodes).step_by(2).collect(), (0..nodes).step_by(6).collect()),
        false => ((0..nodes).collect(), (0..nodes).collect()),
    };
    let held_len = held.len();
    let set = |nodes: &[u32]| restricted.then(|| NodeSet::<Ad<B>>::new(nodes, f.num_rows, device));
    let (held_set, wanted_set) = (set(&held), set(&wanted));
    let csr = csr_of::<Ad<B>>(&f, device).restrict(wanted_set.as_ref(), held_set.as_ref());

    let hs = values_in(dtype, 101, held_len * width);
    let vs = values_in(Dtype::F32, 102, 3 * width);
    let scale: Vec<f64> =
        values_in(Dtype::F32, 103, f.num_rows).iter().map(|v| f64::from((v.abs() + 0.1) as f32)).collect();
    let (left, right): (Vec<u32>, Vec<u32>) =
        (0..50u32).map(|p| (p * p % held_len as u32, p * 3 % held_len as u32)).unzip();
    let pairs = PairIndex::<Ad<B>>::new(&left, &right, held_len, held_len, device);
    let index = RowIndex::<Ad<B>>::new(&left, held_len, device);
    let vectors = up::<Ad<B>, 2>(&vs, [3, width], Dtype::F32, device);
    // Not a result of a cast, behind which the backward pass would put the operator in every order.
    let other = Tensor::<Ad<B>, 2>::from_inner(up::<B, 2>(&hs, [held_len, width], dtype, device));
    let config = |own: Tensor<Ad<B>, 2>| SpmmConfig {
        own: Some(SelfTerm {
            h: own,
            scale: up::<Ad<B>, 1>(&scale, [scale.len()], Dtype::F32, device),
            nodes: held_set.clone(),
        }),
        ..Default::default()
    };
    let uses: [Use<'_, B, 1>; 5] = [
        &|h| probed::<B, 2>(spmm(&csr, h.clone(), None, config(h)), dtype),
        &|h| probed::<B, 2>(spmm(&csr, other.clone(), None, config(h)), dtype),
        &|h| probed::<B, 2>(select_rows(h, held_set.as_ref(), wanted_set.as_ref()), dtype),
        &|h| probed::<B, 2>(row_dots(h, vectors.clone()), Dtype::F32),
        &|h| {
            let gathered = probed::<B, 2>(gather_rows(h.clone(), &index), dtype).cast(DType::F32);
            gathered + probed::<B, 1>(pair_dot(h.clone(), h, &pairs), Dtype::F32)
        },
    ];

    let held_part = |node: &u32| held.binary_search(node).ok();
    let part: Vec<Vec<u32>> =
        (wanted.iter()).map(|&i| rows[i as usize].iter().filter_map(held_part).map(|j| j as u32).collect()).collect();
    let part = Fixture::from_rows("part", held_len, &part);
    let rounded = |n: usize| -> Vec<f64> { probe(n).iter().map(|&p| dtype.round(p)).collect() };
    let g = rounded(wanted.len() * width);
    let product = spmm_grad(&part, &hs, width, &SpmmWeights::default(), &oracle::keep_all(&part), &g).x;
    let transposed: Vec<f64> = (0..width * 3).map(|k| vs[k % 3 * width + k / 3]).collect();
    let (dots, _, _) = linear_grad(&hs, &transposed, width, 3, &probe(held_len * 3));
    let (by_left, by_right) = pair_dot_grad(&hs, &hs, width, &left, &right, &probe(left.len()));
    let gathered = gather_grad(held_len, width, &left, &rounded(left.len() * width));
    let mut want: Vec<f64> =
        (0..hs.len()).map(|k| product[k] + dots[k] + by_left[k] + by_right[k] + gathered[k]).collect();
    for (r, node) in wanted.iter().enumerate() {
        let at = held_part(node).expect("what is wanted is held");
        for c in 0..width {
            // Two self terms and the selection.
            want[at * width + c] += (2.0 * scale[*node as usize] + 1.0) * g[r * width + c];
        }
    }

    for order in orders(uses.len()) {
        let h = up::<Ad<B>, 2>(&hs, [held_len, width], dtype, device).require_grad();
        let losses = order.iter().map(|&k| uses[k](h.clone()).cast(DType::F32));
        let grads = losses.reduce(|a, b| a + b).expect("there are uses").backward();
        let name = format!("order {order:?}, restricted {restricted}, width {width}, {dtype:?}");
        assert_close(&name, &gradient::<B, 2>(&h, &grads), &want, dtype, f.num_rows);
    }
}

/// The gradient that the caller gives is that of `h` and of the operator's result at once: the operator comes to `h` when
/// two others hold what is there.
pub fn a_gradient_that_others_hold_is_not_changed<B: GraphBackend>(device: &B::Device) {
    let (n, width) = (60, 8);
    let f = Fixture::power_law(17, n);
    let csr = csr_of::<Ad<B>>(&f, device);
    let all = NodeSet::<Ad<B>>::new(&(0..n as u32).collect::<Vec<_>>(), n, device);
    let turned: Vec<u32> = (0..n as u32).rev().collect();
    let index = RowIndex::<Ad<B>>::new(&turned, n, device);
    let ones = vec![1.0; n];
    let hs = values_in(Dtype::F32, 111, n * width);
    let gs = values_in(Dtype::F32, 112, n * width);
    let vs = values_in(Dtype::F32, 113, width * width);
    let vectors = up::<Ad<B>, 2>(&vs, [width, width], Dtype::F32, device);
    let zeros = Tensor::<Ad<B>, 2>::zeros([n, width], device);
    let own = |h: Tensor<Ad<B>, 2>| SpmmConfig {
        own: Some(SelfTerm { h, scale: up::<Ad<B>, 1>(&ones, [n], Dtype::F32, device), nodes: None }),
        ..Default::default()
    };
    let transposed: Vec<f64> = (0..width * width).map(|k| vs[k % width * width + k / width]).collect();
    let all_edges = oracle::keep_all(&f);
    let product = spmm_grad(&f, &hs, width, &SpmmWeights::default(), &all_edges, &gs).x;
    let (a_src, a_dst) = (values_in(Dtype::F32, 114, width), values_in(Dtype::F32, 115, width));
    let vector = |a: &[f64]| up::<Ad<B>, 2>(a, [1, width], Dtype::F32, device);
    let slope = f64::from(0.2f32);
    let input = GatInput {
        h_src: &hs,
        h_dst: &hs,
        att_src: &a_src,
        att_dst: &a_dst,
        heads: 1,
        channels: width,
        slope,
        factors: None,
    };
    let through_gat = gat_grad(&f, &input, &all_edges, &gs);
    let through_gat = through_gat.h_src.iter().zip(&through_gat.h_dst).map(|(a, b)| a + b).collect();
    let scores = values_in(Dtype::F32, 116, n);
    let score = || ScoreColumns { scores: up::<Ad<B>, 2>(&scores, [n, 1], Dtype::F32, device), first: 0 };
    let input = AttendInput {
        values: &hs,
        score_dst: &scores,
        score_src: &scores,
        heads: 1,
        channels: width,
        slope,
        factors: None,
    };
    let through_attend = attend_grad(&f, &input, &all_edges, &gs).values;
    let attended = |h: Tensor<Ad<B>, 2>| attend(&csr, h, score(), score(), 1, GatConfig::default());
    let gat_of = |h: Tensor<Ad<B>, 2>| gat(&csr, h.clone(), h, vector(&a_src), vector(&a_dst), GatConfig::default());
    let cases: [(&str, Use<'_, B, 2>, Vec<f64>); 7] = [
        ("attend", &attended, through_attend),
        ("gat", &gat_of, through_gat),
        ("product", &|h| spmm(&csr, h, None, SpmmConfig::default()), product),
        ("self term", &|h| spmm(&csr, zeros.clone(), None, own(h)), gs.clone()),
        ("select_rows", &|h| select_rows(h, Some(&all), Some(&all)), gs.clone()),
        ("row_dots", &|h| row_dots(h, vectors.clone()), linear_grad(&hs, &transposed, width, width, &gs).0),
        ("gather_rows", &|h| gather_rows(h, &index), gather_grad(n, width, &turned, &gs)),
    ];
    for (name, operator, through) in cases {
        let h = up::<Ad<B>, 2>(&hs, [n, width], Dtype::F32, device).require_grad();
        let g = up::<B, 2>(&gs, [n, width], Dtype::F32, device);
        let before = down(g.clone());
        let grads = backward_from(h.clone() + operator(h.clone()), g.clone());
        let want: Vec<f64> = through.iter().zip(&gs).map(|(a, b)| a + b).collect();
        assert_close(name, &gradient::<B, 2>(&h, &grads), &want, Dtype::F32, f.max_degree() + width);
        assert_eq!(down(g), before, "{name} changed what the caller holds");
    }
}

pub fn repeating_a_pass_gives_the_same_bytes<B: GraphBackend>(device: &B::Device) {
    let f = Fixture::power_law(13, 300);
    let run = || {
        let h = up::<Ad<B>, 2>(&values_in(Dtype::F32, 81, 300 * 32), [300, 32], Dtype::F32, device).require_grad();
        let a = up::<Ad<B>, 2>(&values_in(Dtype::F32, 82, 32), [1, 32], Dtype::F32, device).require_grad();
        let y = gat(&csr_of::<Ad<B>>(&f, device), h.clone(), h.clone(), a.clone(), a.clone(), GatConfig::default());
        let grads = backward::<B, 2>(y, Dtype::F32);
        let bits = |v: Vec<f32>| v.into_iter().map(f32::to_bits).collect::<Vec<_>>();
        (bits(gradient::<B, 2>(&h, &grads)), bits(gradient::<B, 2>(&a, &grads)))
    };
    let first = run();
    for _ in 0..3 {
        assert!(run() == first);
    }
}

pub fn strided_and_transposed_inputs_are_read_correctly<B: GraphBackend>(device: &B::Device) {
    // CUDA pads rows; other devices never do, so make padding and transposition by hand.
    let f = Fixture::random(14, 20, 30, 150);
    let csr = csr_of::<B>(&f, device);
    let wide = up::<B, 2>(&values_in(Dtype::F32, 91, 30 * 64), [30, 64], Dtype::F32, device);
    let dense: Vec<f64> = down(wide.clone()).into_iter().map(f64::from).collect();
    for (from, to) in [(0, 40), (3, 36), (8, 40), (63, 64)] {
        let width = to - from;
        let part: Vec<f64> = (0..30).flat_map(|i| dense[i * 64 + from..i * 64 + to].to_vec()).collect();
        let want = oracle::spmm(&f, &part, width, &SpmmWeights::default(), &oracle::keep_all(&f));
        let sliced = wide.clone().slice([0..30, from..to]);
        let out = spmm(&csr, sliced, None, SpmmConfig::default());
        assert_close(&format!("columns {from}..{to}"), &down(out), &want, Dtype::F32, f.max_degree());
        let turned = up::<B, 2>(&part, [30, width], Dtype::F32, device).transpose().reshape([width, 30]).transpose();
        let out = spmm(&csr, turned, None, SpmmConfig::default());
        assert_close(&format!("transposed {width}"), &down(out), &want, Dtype::F32, f.max_degree());
    }
}
