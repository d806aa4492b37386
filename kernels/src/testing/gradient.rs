//! Gradients in f64: by central differences, and by formulas that this file's tests check against them.
//!
//! Each `*_grad` takes the inputs of the oracle of that name and `grad`, the gradient of the loss with respect to its
//! output. Differences are for tiny graphs (two evaluations per element), formulas for all others.
//!
//! A `*_grad_magnitude` is the same formula with every term replaced by its absolute value: what the terms add up to
//! when nothing cancels, the scale for [`assert_close_at_scale`](super::assert_close_at_scale).

use rayon::prelude::*;

use super::fixtures::Fixture;
use super::oracle::{AttendInput, GatInput, SpmmWeights, add_scaled, attend, dot, edge_softmax, kept_edges};

/// The gradient of `f` with respect to `inputs[which]`: `(f(x + h) - f(x - h)) / 2h` for every element, with
/// `h = 1e-5 max(1, |x|)`. Truncation (h^2) and cancellation (1e-16 / h) both leave an error of about 1e-10 relative
/// to the size of `f`.
pub fn central_difference(f: impl Fn(&[Vec<f64>]) -> f64 + Sync, inputs: &[Vec<f64>], which: usize) -> Vec<f64> {
    let element = |moved: &mut Vec<Vec<f64>>, k: usize| {
        let x = inputs[which][k];
        let step = 1e-5 * x.abs().max(1.0);
        let mut at = |x| {
            moved[which][k] = x;
            f(moved)
        };
        let difference = at(x + step) - at(x - step);
        moved[which][k] = x;
        difference / ((x + step) - (x - step))
    };
    (0..inputs[which].len()).into_par_iter().map_init(|| inputs.to_vec(), element).collect()
}

/// Asserts that `analytic` is the central difference of `f` with respect to `inputs[which]`, each element within
/// 1e-8 of the largest one (or of 1).
#[track_caller]
pub fn assert_gradient(
    name: &str,
    f: impl Fn(&[Vec<f64>]) -> f64 + Sync,
    inputs: &[Vec<f64>],
    which: usize,
    analytic: &[f64],
) {
    let numeric = central_difference(f, inputs, which);
    assert_eq!(analytic.len(), numeric.len(), "{name}: the gradient has the wrong length");
    let scale = numeric.iter().fold(1.0, |scale: f64, x| scale.max(x.abs()));
    for (k, (got, want)) in analytic.iter().zip(&numeric).enumerate() {
        let close = (got - want).abs() <= 1e-8 * scale; // false for NaN
        assert!(close, "{name}: gradient of input {which} at {k}: formula {got}, difference {want}");
    }
}

/// The fixed random vector that turns an output of `n` elements into a loss, [`weighted_sum`]; it is then also the
/// gradient with respect to that output. Exact in f16, so the operator under test can be given the same one.
pub fn probe(n: usize) -> Vec<f64> {
    super::fixtures::values_f16(0x0070_726F_6265, n)
}

/// `sum(out * probe)`: a scalar loss that depends on every output.
pub fn weighted_sum(out: &[f64], probe: &[f64]) -> f64 {
    assert_eq!(out.len(), probe.len(), "the probe needs one entry per output");
    dot(out, probe)
}

/// Gradients of [`spmm`](super::oracle::spmm), computed for absent (unit) factors too.
#[derive(Clone, Debug, PartialEq)]
pub struct SpmmGrad {
    /// `dx_j = v_j sum_i u_i w_ij g_i`.
    pub x: Vec<f64>,
    /// `du_i = sum_j v_j w_ij <g_i, x_j>`.
    pub dst_scale: Vec<f64>,
    /// `dv_j = sum_i u_i w_ij <g_i, x_j>`.
    pub src_scale: Vec<f64>,
    /// `dw_ij = u_i v_j <g_i, x_j>`; 0 for dropped edges.
    pub edge_weight: Vec<f64>,
}

/// See [`SpmmGrad`]; `grad` is `[num_rows, width]`.
pub fn spmm_grad(f: &Fixture, x: &[f64], width: usize, weights: &SpmmWeights, kept: &[bool], grad: &[f64]) -> SpmmGrad {
    let zeros = |n| vec![0.0; n];
    let (dst_scale, src_scale, edge_weight) = (zeros(f.num_rows), zeros(f.num_cols), zeros(f.num_edges()));
    let mut d = SpmmGrad { x: zeros(x.len()), dst_scale, src_scale, edge_weight };
    for (e, i, j) in kept_edges(f, kept) {
        let (u, v, w) = weights.of(e, i, j);
        let g = &grad[i * width..][..width];
        let product = dot(g, &x[j * width..][..width]);
        add_scaled(&mut d.x[j * width..][..width], u * v * w, g);
        d.dst_scale[i] += v * w * product;
        d.src_scale[j] += u * w * product;
        d.edge_weight[e] = u * v * product;
    }
    d
}

/// Gradient of [`edge_softmax`] with respect to the logits: `alpha_ij (g_ij - sum_k alpha_ik g_ik)`; all `[E, H]`.
pub fn edge_softmax_grad(f: &Fixture, logits: &[f64], heads: usize, kept: &[bool], grad: &[f64]) -> Vec<f64> {
    softmax_backward(f, &edge_softmax(f, logits, heads, kept), heads, grad, -1.0)
}

/// `alpha_ij (|g_ij| + sum_k alpha_ik |g_ik|)`: the size of the two terms that [`edge_softmax_grad`] subtracts.
pub fn edge_softmax_grad_magnitude(f: &Fixture, logits: &[f64], heads: usize, kept: &[bool], grad: &[f64]) -> Vec<f64> {
    softmax_backward(f, &edge_softmax(f, logits, heads, kept), heads, &absolute(grad), 1.0)
}

/// `alpha (g + sign sum alpha g)`. Dropped edges have alpha = 0 and so need no mask.
pub(super) fn softmax_backward(f: &Fixture, alpha: &[f64], heads: usize, grad: &[f64], sign: f64) -> Vec<f64> {
    let mut mean = vec![0.0; f.num_rows * heads];
    for (e, i, _) in f.edges() {
        for h in 0..heads {
            mean[i * heads + h] += alpha[e * heads + h] * grad[e * heads + h];
        }
    }
    let row = f.row_idx();
    let element = |k: usize| alpha[k] * (grad[k] + sign * mean[row[k / heads] as usize * heads + k % heads]);
    (0..alpha.len()).map(element).collect()
}

fn absolute(x: &[f64]) -> Vec<f64> {
    x.iter().map(|x| x.abs()).collect()
}

/// Gradients of [`attend`].
#[derive(Clone, Debug, PartialEq)]
pub struct AttendGrad {
    /// `[num_cols, H * D]`: `sum_i f_ij alpha_ij g_i`.
    pub values: Vec<f64>,
    /// `[num_rows, H]`: `ds_i = sum_j dz_ij`.
    pub score_dst: Vec<f64>,
    /// `[num_cols, H]`: `dt_j = sum_i dz_ij`.
    pub score_src: Vec<f64>,
}

/// `p_ij = f_ij <g_i, values_j>`, `de_ij = alpha_ij (p_ij - sum_k alpha_ik p_ik)`, `dz_ij = de_ij` (times the slope
/// where z is not positive), summed as in [`AttendGrad`]; `grad` is `[num_rows, H * D]`.
pub fn attend_grad(f: &Fixture, input: &AttendInput, kept: &[bool], grad: &[f64]) -> AttendGrad {
    attend_backward(f, input, &attend(f, input, kept).alpha, kept, input.values, grad, -1.0)
}

/// Sizes of the terms [`attend_grad`] sums.
pub fn attend_grad_magnitude(f: &Fixture, input: &AttendInput, kept: &[bool], grad: &[f64]) -> AttendGrad {
    let alpha = attend(f, input, kept).alpha;
    attend_backward(f, input, &alpha, kept, &absolute(input.values), &absolute(grad), 1.0)
}

fn attend_backward(
    f: &Fixture,
    input: &AttendInput,
    alpha: &[f64],
    kept: &[bool],
    values: &[f64],
    grad: &[f64],
    sign: f64,
) -> AttendGrad {
    let (heads, channels) = (input.heads, input.channels);
    let mut d_values = vec![0.0; values.len()];
    let mut p = vec![0.0; alpha.len()];
    for (e, i, j) in kept_edges(f, kept) {
        for h in 0..heads {
            let g = &grad[(i * heads + h) * channels..][..channels];
            let factor = input.factor(e * heads + h);
            p[e * heads + h] = factor * dot(g, &values[(j * heads + h) * channels..][..channels]);
            add_scaled(&mut d_values[(j * heads + h) * channels..][..channels], factor * alpha[e * heads + h], g);
        }
    }
    let de = softmax_backward(f, alpha, heads, &p, sign);
    let z = input.sums(f);
    let (mut ds, mut dt) = (vec![0.0; f.num_rows * heads], vec![0.0; f.num_cols * heads]);
    for (e, i, j) in f.edges() {
        for h in 0..heads {
            let dz = de[e * heads + h] * if z[e * heads + h] > 0.0 { 1.0 } else { input.slope };
            ds[i * heads + h] += dz;
            dt[j * heads + h] += dz;
        }
    }
    AttendGrad { values: d_values, score_dst: ds, score_src: dt }
}

/// Gradients of [`gat`](super::oracle::gat), with ds and dt those of [`AttendGrad`].
#[derive(Clone, Debug, PartialEq)]
pub struct GatGrad {
    /// `dh_src_j = sum_i f_ij alpha_ij g_i + dt_j att_src`.
    pub h_src: Vec<f64>,
    /// `dh_dst_i = ds_i att_dst`.
    pub h_dst: Vec<f64>,
    /// `sum_j dt_j h_src_j`.
    pub att_src: Vec<f64>,
    /// `sum_i ds_i h_dst_i`.
    pub att_dst: Vec<f64>,
}

/// See [`GatGrad`]; `grad` is `[num_rows, H * D]`.
pub fn gat_grad(f: &Fixture, input: &GatInput, kept: &[bool], grad: &[f64]) -> GatGrad {
    gat_backward(input, attend_grad(f, &input.attend_input(&input.scores()), kept, grad))
}

/// Sizes of the terms [`gat_grad`] sums.
pub fn gat_grad_magnitude(f: &Fixture, input: &GatInput, kept: &[bool], grad: &[f64]) -> GatGrad {
    let (h_src, h_dst) = (absolute(input.h_src), absolute(input.h_dst));
    let (att_src, att_dst) = (absolute(input.att_src), absolute(input.att_dst));
    let sizes = GatInput { h_src: &h_src, h_dst: &h_dst, att_src: &att_src, att_dst: &att_dst, ..*input };
    gat_backward(&sizes, attend_grad_magnitude(f, &input.attend_input(&input.scores()), kept, grad))
}

fn gat_backward(input: &GatInput, d: AttendGrad) -> GatGrad {
    let (heads, channels) = (input.heads, input.channels);
    let (h_src, att_src) = head_dot_grad(input.h_src, input.att_src, heads, channels, &d.score_src);
    let (h_dst, att_dst) = head_dot_grad(input.h_dst, input.att_dst, heads, channels, &d.score_dst);
    GatGrad { h_src: d.values.iter().zip(h_src).map(|(a, b)| a + b).collect(), h_dst, att_src, att_dst }
}

/// Gradients of [`head_dot`](super::oracle::head_dot): (dx_n = g_n attention, dattention = sum_n g_n x_n), per head.
pub fn head_dot_grad(
    x: &[f64],
    attention: &[f64],
    heads: usize,
    channels: usize,
    grad: &[f64],
) -> (Vec<f64>, Vec<f64>) {
    let (mut dx, mut d_attention) = (vec![0.0; x.len()], vec![0.0; attention.len()]);
    for (k, &g) in grad.iter().enumerate() {
        let head = k % heads * channels;
        add_scaled(&mut dx[k * channels..][..channels], g, &attention[head..][..channels]);
        add_scaled(&mut d_attention[head..][..channels], g, &x[k * channels..][..channels]);
    }
    (dx, d_attention)
}

/// Gradients of [`pair_dot`](super::oracle::pair_dot): (da, db), where pair p adds `g_p b[ib_p]` to row `ia_p` of da
/// and `g_p a[ia_p]` to row `ib_p` of db.
pub fn pair_dot_grad(a: &[f64], b: &[f64], width: usize, ia: &[u32], ib: &[u32], grad: &[f64]) -> (Vec<f64>, Vec<f64>) {
    let (mut da, mut db) = (vec![0.0; a.len()], vec![0.0; b.len()]);
    for (p, &g) in grad.iter().enumerate() {
        let (i, j) = (ia[p] as usize * width, ib[p] as usize * width);
        add_scaled(&mut da[i..][..width], g, &b[j..][..width]);
        add_scaled(&mut db[j..][..width], g, &a[i..][..width]);
    }
    (da, db)
}

/// Gradient of [`gather`](super::oracle::gather) from `num_rows` rows: row k of `grad` is added to row `index[k]`.
pub fn gather_grad(num_rows: usize, width: usize, index: &[u32], grad: &[f64]) -> Vec<f64> {
    let mut dx = vec![0.0; num_rows * width];
    for (k, &row) in index.iter().enumerate() {
        add_scaled(&mut dx[row as usize * width..][..width], 1.0, &grad[k * width..][..width]);
    }
    dx
}

/// Gradients of [`linear`](super::oracle::linear): (dx = g w^T, dw = x^T g, db = column sums of g).
pub fn linear_grad(
    x: &[f64],
    w: &[f64],
    in_width: usize,
    out_width: usize,
    grad: &[f64],
) -> (Vec<f64>, Vec<f64>, Vec<f64>) {
    let (mut dx, mut dw, mut db) = (vec![0.0; x.len()], vec![0.0; w.len()], vec![0.0; out_width]);
    for (n, g) in grad.chunks(out_width).enumerate() {
        add_scaled(&mut db, 1.0, g);
        for k in 0..in_width {
            dx[n * in_width + k] = dot(g, &w[k * out_width..][..out_width]);
            add_scaled(&mut dw[k * out_width..][..out_width], x[n * in_width + k], g);
        }
    }
    (dx, dw, db)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::fixtures::{small_fixtures, values};
    use crate::testing::oracle::{Drop, attention_factors, gat, gather, head_dot, keep_all, linear, pair_dot, spmm};

    /// Every small fixture, with all edges and with about a third of them dropped.
    fn masked_fixtures() -> impl Iterator<Item = (Fixture, Vec<bool>)> {
        small_fixtures().into_iter().flat_map(|f| {
            let masks = [keep_all(&f), Drop::new(4, 0.66).mask(&f, 3, 8)];
            masks.map(|kept| (f.clone(), kept))
        })
    }

    fn random_inputs(seed: u64, sizes: &[usize]) -> Vec<Vec<f64>> {
        (seed..).zip(sizes).map(|(seed, &n)| values(seed, n)).collect()
    }

    /// Random inputs whose logits stay clear of the kink of the leaky ReLU, which a difference must not straddle.
    fn inputs_off_the_kink(sizes: &[usize], sums: impl Fn(&[Vec<f64>]) -> Vec<f64>) -> Vec<Vec<f64>> {
        let off_the_kink = |inputs: &Vec<Vec<f64>>| sums(inputs).iter().all(|z| z.abs() > 1e-3);
        let mut candidates = (0..100).map(|attempt| random_inputs(10 * attempt, sizes));
        candidates.find(off_the_kink).expect("one of 100 seeds has all its logits away from 0")
    }

    fn spmm_weights(x: &[Vec<f64>]) -> SpmmWeights<'_> {
        SpmmWeights { dst_scale: Some(&x[1]), src_scale: Some(&x[2]), edge_weight: Some(&x[3]) }
    }

    fn attend_input<'a>(x: &'a [Vec<f64>], factors: &'a [f64]) -> AttendInput<'a> {
        let (values, score_dst, score_src) = (&x[0], &x[1], &x[2]);
        AttendInput { values, score_dst, score_src, heads: 2, channels: 3, slope: 0.2, factors: Some(factors) }
    }

    fn gat_input<'a>(x: &'a [Vec<f64>], factors: &'a [f64]) -> GatInput<'a> {
        let (h_src, h_dst, att_src, att_dst) = (&x[0], &x[1], &x[2], &x[3]);
        GatInput { h_src, h_dst, att_src, att_dst, heads: 2, channels: 3, slope: 0.2, factors: Some(factors) }
    }

    /// Factors of the attention of two heads, some of which are 0.
    fn some_factors(f: &Fixture) -> Vec<f64> {
        attention_factors(f, &Drop::new(3, 0.6), 2)
    }

    #[test]
    fn a_central_difference_recovers_known_derivatives() {
        let f = |x: &[Vec<f64>]| x[0][0].powi(3) + x[0][1].sin() * x[1][0].exp();
        let inputs = [vec![2.0, 0.5], vec![1.0]];
        assert_gradient("example", f, &inputs, 0, &[12.0, 0.5f64.cos() * 1f64.exp()]);
        assert_gradient("example", f, &inputs, 1, &[0.5f64.sin() * 1f64.exp()]);
        assert!(central_difference(|_| 1.0, &[vec![]], 0).is_empty());
    }

    #[test]
    #[should_panic(expected = "sum: gradient of input 0 at 1: formula 1.0001")]
    fn a_wrong_formula_is_reported_with_its_place() {
        assert_gradient("sum", |x| x[0].iter().sum(), &[vec![3.0, 4.0]], 0, &[1.0, 1.0001]);
    }

    #[test]
    #[should_panic(expected = "formula NaN")]
    fn a_nan_gradient_never_passes() {
        assert_gradient("sum", |x| x[0].iter().sum(), &[vec![3.0]], 0, &[f64::NAN]);
    }

    #[test]
    fn spmm_gradients_match_differences() {
        for (f, kept) in masked_fixtures() {
            let inputs = random_inputs(1, &[f.num_cols * 3, f.num_rows, f.num_cols, f.num_edges()]);
            let grad = probe(f.num_rows * 3);
            let loss = |x: &[Vec<f64>]| weighted_sum(&spmm(&f, &x[0], 3, &spmm_weights(x), &kept), &grad);
            let d = spmm_grad(&f, &inputs[0], 3, &spmm_weights(&inputs), &kept, &grad);
            for (which, d) in [d.x, d.dst_scale, d.src_scale, d.edge_weight].iter().enumerate() {
                assert_gradient(&f.name, loss, &inputs, which, d);
            }
        }
    }

    #[test]
    fn the_edge_softmax_gradient_matches_differences() {
        for (f, kept) in masked_fixtures() {
            let inputs = random_inputs(1, &[f.num_edges() * 2]);
            let grad = probe(f.num_edges() * 2);
            let loss = |x: &[Vec<f64>]| weighted_sum(&edge_softmax(&f, &x[0], 2, &kept), &grad);
            assert_gradient(&f.name, loss, &inputs, 0, &edge_softmax_grad(&f, &inputs[0], 2, &kept, &grad));
        }
    }

    #[test]
    fn attend_gradients_match_differences() {
        for (f, kept) in masked_fixtures() {
            let sizes = [f.num_cols * 6, f.num_rows * 2, f.num_cols * 2];
            let factors = some_factors(&f);
            let inputs = inputs_off_the_kink(&sizes, |x| attend_input(x, &factors).sums(&f));
            let grad = probe(f.num_rows * 6);
            let loss = |x: &[Vec<f64>]| weighted_sum(&attend(&f, &attend_input(x, &factors), &kept).out, &grad);
            let d = attend_grad(&f, &attend_input(&inputs, &factors), &kept, &grad);
            for (which, d) in [d.values, d.score_dst, d.score_src].iter().enumerate() {
                assert_gradient(&f.name, loss, &inputs, which, d);
            }
        }
    }

    #[test]
    fn gat_gradients_match_differences() {
        for (f, kept) in masked_fixtures() {
            let factors = some_factors(&f);
            let sums = |x: &[Vec<f64>]| {
                let input = gat_input(x, &factors);
                input.attend_input(&input.scores()).sums(&f)
            };
            let inputs = inputs_off_the_kink(&[f.num_cols * 6, f.num_rows * 6, 6, 6], sums);
            let grad = probe(f.num_rows * 6);
            let loss = |x: &[Vec<f64>]| weighted_sum(&gat(&f, &gat_input(x, &factors), &kept).out, &grad);
            let d = gat_grad(&f, &gat_input(&inputs, &factors), &kept, &grad);
            for (which, d) in [d.h_src, d.h_dst, d.att_src, d.att_dst].iter().enumerate() {
                assert_gradient(&f.name, loss, &inputs, which, d);
            }
        }
    }

    #[test]
    fn dense_gradients_match_differences() {
        let (ia, ib) = ([0, 2, 2, 1, 0], [3, 0, 0, 1, 3]); // repeated pairs; row 2 of b is not used
        let inputs = random_inputs(1, &[3 * 4, 4 * 4, 4]);
        let grad = probe(5);
        let loss = |x: &[Vec<f64>]| weighted_sum(&pair_dot(&x[0], &x[1], 4, &ia, &ib), &grad);
        let (da, db) = pair_dot_grad(&inputs[0], &inputs[1], 4, &ia, &ib, &grad);
        assert_gradient("pair_dot", loss, &inputs, 0, &da);
        assert_gradient("pair_dot", loss, &inputs, 1, &db);

        let grad = probe(5 * 4);
        let loss = |x: &[Vec<f64>]| weighted_sum(&gather(&x[1], 4, &ib), &grad);
        assert_gradient("gather", loss, &inputs, 1, &gather_grad(4, 4, &ib, &grad));

        let grad = probe(3 * 2);
        let loss = |x: &[Vec<f64>]| weighted_sum(&head_dot(&x[0], &x[2], 2, 2), &grad);
        let (dx, d_attention) = head_dot_grad(&inputs[0], &inputs[2], 2, 2, &grad);
        assert_gradient("head_dot", loss, &inputs, 0, &dx);
        assert_gradient("head_dot", loss, &inputs, 2, &d_attention);

        let inputs = random_inputs(1, &[3 * 4, 4 * 2, 2]);
        let loss = |x: &[Vec<f64>]| weighted_sum(&linear(&x[0], &x[1], &x[2], 4), &grad);
        let (dx, dw, db) = linear_grad(&inputs[0], &inputs[1], 4, 2, &grad);
        for (which, d) in [dx, dw, db].iter().enumerate() {
            assert_gradient("linear", loss, &inputs, which, d);
        }
    }

    #[test]
    fn magnitudes_bound_gradients_and_stay_positive_where_these_cancel() {
        let bounded = |(m, d): (&Vec<f64>, &Vec<f64>)| m.iter().zip(d).all(|(m, d)| *m >= d.abs() - 1e-12);
        for (f, kept) in masked_fixtures() {
            let inputs = random_inputs(1, &[f.num_cols * 6, f.num_rows * 6, 6, 6]);
            let factors = some_factors(&f);
            let (input, grad) = (gat_input(&inputs, &factors), probe(f.num_rows * 6));
            let (d, m) = (gat_grad(&f, &input, &kept, &grad), gat_grad_magnitude(&f, &input, &kept, &grad));
            let pairs =
                [(&m.h_src, &d.h_src), (&m.h_dst, &d.h_dst), (&m.att_src, &d.att_src), (&m.att_dst, &d.att_dst)];
            assert!(pairs.into_iter().all(bounded), "{}", f.name);
            let (logits, grad) = (values(5, f.num_edges() * 2), probe(f.num_edges() * 2));
            let d = edge_softmax_grad(&f, &logits, 2, &kept, &grad);
            assert!(bounded((&edge_softmax_grad_magnitude(&f, &logits, 2, &kept, &grad), &d)), "{}", f.name);
        }
        let single = Fixture::from_rows("single neighbour", 1, &[vec![0]]);
        assert_eq!(edge_softmax_grad(&single, &[0.7], 1, &[true], &[3.0]), [0.0]);
        assert_eq!(edge_softmax_grad_magnitude(&single, &[0.7], 1, &[true], &[3.0]), [6.0]);
    }
}
