//! The sparse product.

use graphsieve_kernels::testing::gradient::spmm_grad;
use graphsieve_kernels::testing::harness::Trial;
use graphsieve_kernels::testing::{
    Dtype, Fixture, SpmmWeights, assert_close, assert_close_at_scale, fixtures, oracle, probe, values_in,
};
use graphsieve_kernels::{GraphBackend, SpmmConfig, on_every_backend, spmm};

use crate::support::*;

/// The trials of this file.
pub fn trials() -> Vec<Trial> {
    on_every_backend!(
        "spmm";
        spmm_matches_the_oracle_on_every_fixture,
        spmm_with_weights_matches_the_oracle,
    )
}

pub fn check_spmm<B: GraphBackend>(
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
    // Rows that share an entry share its weight.
    let of_entries = values_in(Dtype::F32, 4, f.num_entries());
    let w = f.by_edge(&of_entries, 1);
    let (drop, mask) = half_dropped(f);
    let x = up::<Ad<B>, 2>(&xs, [f.num_cols, width], dtype, device).require_grad();
    let edge = weighted.then(|| up::<Ad<B>, 1>(&of_entries, [of_entries.len()], Dtype::F32, device).require_grad());
    let vector = |values: &[f64]| scaled.then(|| up::<Ad<B>, 1>(values, [values.len()], Dtype::F32, device));
    let config =
        SpmmConfig { dst_scale: vector(&u), src_scale: vector(&v), own: None, drop_edge: scaled.then_some(drop) };
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
        let sizes: Vec<f64> = want.edge_weight.iter().map(|dw| dw.abs()).collect();
        let (want, sizes) = (f.by_entry(&want.edge_weight, 1), f.by_entry(&sizes, 1));
        let len = if f.spans.is_some() { width * reverse_len } else { width };
        assert_close_at_scale(&format!("{name}: dw"), &got, &want, &sizes, Dtype::F32, len);
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

pub fn check_half<B: GraphBackend>(dtype: Dtype, device: &B::Device) {
    for f in [Fixture::power_law(6, 300), Fixture::random(7, 40, 90, 600)] {
        for width in [1, 33, 128] {
            check_spmm::<B>(&f, width, dtype, true, false, device);
            check_spmm::<B>(&f, width, dtype, true, true, device);
        }
    }
}
