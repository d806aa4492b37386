//! Attention over the edges of a row.

use burn::tensor::Tensor;
use graphsieve_kernels::testing::gradient::{
    edge_softmax_grad, edge_softmax_grad_magnitude, gat_grad, gat_grad_magnitude,
};
use graphsieve_kernels::testing::harness::{Trial, hardware};
use graphsieve_kernels::testing::{
    Dtype, Fixture, GatInput, assert_close, assert_close_at_scale, fixtures, oracle, probe, values_in,
};
use graphsieve_kernels::{
    Csr, GatConfig, GraphBackend, NodeSet, SpmmConfig, attend, attend_inputs, edge_softmax, gat, linear,
    on_every_backend, row_dots, spmm,
};

use crate::support::*;

/// The trials of this file.
pub fn trials() -> Vec<Trial> {
    on_every_backend!(
        "attention";
        edge_softmax_matches_the_oracle_on_every_fixture,
        gat_matches_the_oracle_on_every_fixture,
        gat_matches_the_oracle_for_every_shape_of_heads,
        gat_of_very_wide_rows_matches_the_oracle,
        gat_of_more_very_wide_rows_matches_the_oracle(hardware),
        gat_survives_huge_scores,
        gat_equals_edge_softmax_then_spmm,
        attend_equals_gat,
        attended_inputs_match_the_oracle,
    )
}

fn edge_softmax_matches_the_oracle_on_every_fixture<B: GraphBackend>(device: &B::Device) {
    check_edge_softmax::<B>(&[1, 3], Dtype::F32, device);
}

pub fn check_edge_softmax<B: GraphBackend>(heads: &[usize], dtype: Dtype, device: &B::Device) {
    for f in fixtures().iter().filter(|f| f.num_edges() > 0) {
        for &heads in heads {
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
pub enum Dropped {
    Nothing,
    Edges,
    Weights,
    Both,
}

pub fn check_gat<B: GraphBackend>(
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

fn gat_matches_the_oracle_for_every_shape_of_heads<B: GraphBackend>(device: &B::Device) {
    let f = Fixture::power_law(8, 60);
    for channels in [1, 31, 32, 33, 128, 200] {
        check_gat::<B>(&f, (1, channels), Dtype::F32, Dropped::Edges, device);
    }
    for (heads, channels) in [(2, 16), (3, 31), (4, 32), (8, 1), (8, 8)] {
        check_gat::<B>(&f, (heads, channels), Dtype::F32, Dropped::Both, device);
    }
}

/// Heads, and channels of a head, that do not fit a row together: 2048 channels do, odd ones up to 512.
fn gat_of_very_wide_rows_matches_the_oracle<B: GraphBackend>(device: &B::Device) {
    check_very_wide::<B>(&[(2, 515)], device);
    // A team of planes over rows that fill the shared memory of a device that has little.
    let hub = Fixture::with_degrees("hub row of 513", 7, 520, &[2, 0, 513]);
    check_gat::<B>(&hub, (1, 128), Dtype::F32, Dropped::Nothing, device);
}

fn gat_of_more_very_wide_rows_matches_the_oracle<B: GraphBackend>(device: &B::Device) {
    check_very_wide::<B>(&[(1, 2500), (3, 700)], device);
}

pub fn check_very_wide<B: GraphBackend>(shapes: &[(usize, usize)], device: &B::Device) {
    let f = Fixture::random(11, 8, 9, 30);
    for &(heads, channels) in shapes {
        check_gat::<B>(&f, (heads, channels), Dtype::F32, Dropped::Both, device);
    }
}

pub fn check_half_gat<B: GraphBackend>(dtype: Dtype, device: &B::Device) {
    let f = Fixture::power_law(9, 200);
    for (heads, channels) in [(1, 128), (4, 32), (3, 7)] {
        check_gat::<B>(&f, (heads, channels), dtype, Dropped::Both, device);
    }
}

fn gat_survives_huge_scores<B: GraphBackend>(device: &B::Device) {
    // Scores of +-10,000: without the running maximum every exponential overflows or vanishes.
    let csr = Csr::<B>::from_host(&[0, 3], &[0, 1, 2], 3, device).unwrap();
    let h = Tensor::<B, 2>::from_data([[1.0f32], [-1.0], [0.5]], device);
    let own = Tensor::<B, 2>::from_data([[0.0f32]], device);
    let attention = Tensor::<B, 2>::from_data([[10_000.0f32]], device);
    let out = gat(&csr, h, own, attention.clone(), attention, GatConfig::default());
    assert_eq!(down(out), [1.0]);
}

fn gat_equals_edge_softmax_then_spmm<B: GraphBackend>(device: &B::Device) {
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

/// Attention from scores is that of attention vectors when the scores are theirs, gradients included.
fn attend_equals_gat<B: GraphBackend>(device: &B::Device) {
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
        for (rows, cols, width) in [(0, 3, 32), (3, 1, 5)] {
            let (rows, cols) = (&node_lists(f.num_rows)[rows], &node_lists(f.num_cols)[cols]);
            check_attended_inputs::<B>(&f, [rows, cols], width, Dtype::F32, device);
        }
    }
}

pub fn check_half_inputs<B: GraphBackend>(dtype: Dtype, device: &B::Device) {
    for f in fixtures().into_iter().filter(|f| f.num_edges() > 0) {
        let (rows, cols) = (&node_lists(f.num_rows)[1], &node_lists(f.num_cols)[1]);
        check_attended_inputs::<B>(&f, [rows, cols], 160, dtype, device);
    }
}

pub fn check_attended_inputs<B: GraphBackend>(
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
