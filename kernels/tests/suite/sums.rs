//! Gradients that are sums: over several attentions that read one matrix, over the rows of a matrix.

use graphsieve_kernels::testing::gradient::attend_grad_magnitude;

use burn::tensor::{DType, Tensor};
use graphsieve_kernels::testing::gradient::{attend_grad, gat_grad, gat_grad_magnitude};
use graphsieve_kernels::testing::harness::Trial;
use graphsieve_kernels::testing::{
    AttendInput, Dtype, Fixture, GatInput, assert_close, assert_close_at_scale, oracle, probe, values_in,
};
use graphsieve_kernels::{
    Activation, GatConfig, GraphBackend, NodeSet, attend, backward_from, combine, gat, on_every_backend, select_rows,
};

use crate::support::*;

/// The trials of this file.
pub fn trials() -> Vec<Trial> {
    on_every_backend!(
        "sums";
        gradients_of_several_attentions_add_up,
        the_gradient_of_a_bias_is_a_column_sum,
        the_gradient_of_a_bias_of_many_rows_is_a_column_sum,
    )
}

/// Columns of the matrix of scores: more than one relation reads.
const COLUMNS: usize = 5;
const HEADS: usize = 2;

/// One matrix of features and one of scores feed several relations: whichever comes first in the backward pass, the
/// others add to what it leaves.
fn gradients_of_several_attentions_add_up<B: GraphBackend>(device: &B::Device) {
    check_sums::<B>(orders, 12, Dtype::F32, device);
}

pub fn check_sums<B: GraphBackend>(orders: Orders, width: usize, dtype: Dtype, device: &B::Device) {
    for restricted in [false, true] {
        check_sum::<B>(restricted, orders, width, dtype, device);
    }
}

/// What somebody makes of features, scores of destinations and scores of sources.
type Attention<'a, B> = &'a dyn Fn(&[Tensor<Ad<B>, 2>; 3]) -> Tensor<Ad<B>, 1>;

fn check_sum<B: GraphBackend>(restricted: bool, orders: Orders, width: usize, dtype: Dtype, device: &B::Device) {
    // Every row names the first source, so several planes share its gradient; nobody names the last ones.
    let nodes = 640u32;
    let rows: Vec<Vec<u32>> = (0..nodes).map(|i| vec![0, (i * 7 + 1) % (nodes / 2)]).collect();
    let f = Fixture::from_rows("one source for all", nodes as usize, &rows);
    let (held, wanted): (Vec<u32>, Vec<u32>) = match restricted {
        true => ((0..nodes).step_by(2).collect(), (0..nodes).step_by(6).collect()),
        false => ((0..nodes).collect(), (0..nodes).collect()),
    };
    let (n, m) = (held.len(), wanted.len());
    let set = |nodes: &[u32]| restricted.then(|| NodeSet::<Ad<B>>::new(nodes, f.num_rows, device));
    let (held_set, wanted_set) = (set(&held), set(&wanted));
    let csr = csr_of::<Ad<B>>(&f, device).restrict(wanted_set.as_ref(), held_set.as_ref());
    let (drop, mask) = half_dropped(&f);

    let hs = values_in(dtype, 121, n * width);
    let score_values = [values_in(Dtype::F32, 122, n * COLUMNS), values_in(Dtype::F32, 123, m * COLUMNS)];
    let [src_values, dst_values] = &score_values;
    // Without a restriction both parts of the score are in one matrix.
    let dst_values = if restricted { dst_values } else { src_values };
    let channels = width / HEADS;
    let attention = |seed| -> Vec<f64> { values_in(Dtype::F32, seed, width) };
    let (att_src, att_dst) = (attention(124), attention(125));
    let vector = |a: &[f64]| up::<Ad<B>, 2>(a, [HEADS, channels], Dtype::F32, device);
    let (a_src, a_dst) = (vector(&att_src), vector(&att_dst));
    let all_edges = || GatConfig::default();
    let some_edges = || GatConfig { drop_edge: Some(drop), ..Default::default() };
    // Not a result of a cast, behind which the backward pass would put the operator in every order.
    let other = Tensor::<Ad<B>, 2>::from_inner(up::<B, 2>(&hs, [n, width], dtype, device));
    let uses: [Attention<'_, B>; 4] = [
        &|[h, s, t]| {
            let (s, t) = (columns(s, 0), columns(t, 3));
            probed::<B, 2>(attend(&csr, h.clone(), s, t, HEADS, all_edges()), dtype)
        },
        &|[_, s, t]| {
            let (s, t) = (columns(s, 3), columns(t, 2));
            probed::<B, 2>(attend(&csr, other.clone(), s, t, HEADS, some_edges()), dtype)
        },
        &|[h, ..]| {
            let h_dst = select_rows(h.clone(), held_set.as_ref(), wanted_set.as_ref());
            probed::<B, 2>(gat(&csr, h.clone(), h_dst, a_src.clone(), a_dst.clone(), some_edges()), dtype)
        },
        &|[h, s, _]| probed::<B, 2>(h.clone(), dtype).cast(DType::F32) + probed::<B, 2>(s.clone(), Dtype::F32),
    ];

    // The same in f64, with the sizes of the terms that add up to each element.
    let part = |keep: &dyn Fn(usize) -> bool| {
        let mut left = vec![Vec::new(); m];
        for (e, i, j) in f.edges() {
            let ends = (wanted.binary_search(&(i as u32)), held.binary_search(&(j as u32)));
            if let (true, (Ok(r), Ok(at))) = (keep(e), ends) {
                left[r].push(at as u32);
            }
        }
        Fixture::from_rows("part", n, &left)
    };
    let (whole, kept) = (part(&|_| true), part(&|e| mask[e]));
    let rounded = |n: usize| -> Vec<f64> { probe(n).iter().map(|&p| dtype.round(p)).collect() };
    let g = rounded(m * width);
    let slope = f64::from(0.2f32);
    let pick = |of: &[f64], first: usize| -> Vec<f64> {
        of.chunks(COLUMNS).flat_map(|row| row[first..first + HEADS].to_vec()).collect()
    };
    let mut want = [vec![0.0; n * width], vec![0.0; m * COLUMNS], vec![0.0; n * COLUMNS]];
    let mut terms = want.clone();
    for (fixture, dst_first, src_first, features) in [(&whole, 0, 3, true), (&kept, 3, 2, false)] {
        let (s, t) = (pick(dst_values, dst_first), pick(src_values, src_first));
        let input =
            AttendInput { values: &hs, score_dst: &s, score_src: &t, heads: HEADS, channels, slope, factors: None };
        let keep = oracle::keep_all(fixture);
        let gradients = [
            (&mut want, attend_grad(fixture, &input, &keep, &g)),
            (&mut terms, attend_grad_magnitude(fixture, &input, &keep, &g)),
        ];
        for ([h, s, t], gradient) in gradients {
            if features {
                h.iter_mut().zip(gradient.values).for_each(|(a, b)| *a += b);
            }
            for (into, from, first) in [(s, gradient.score_dst, dst_first), (t, gradient.score_src, src_first)] {
                for (k, value) in from.into_iter().enumerate() {
                    into[k / HEADS * COLUMNS + first + k % HEADS] += value;
                }
            }
        }
    }
    let own = |of: &[f64]| -> Vec<f64> {
        let at = |node: &u32| held.binary_search(node).expect("what is wanted is held") * width;
        wanted.iter().flat_map(|node| of[at(node)..at(node) + width].to_vec()).collect()
    };
    let h_dst = own(&hs);
    let input = GatInput {
        h_src: &hs,
        h_dst: &h_dst,
        att_src: &att_src,
        att_dst: &att_dst,
        heads: HEADS,
        channels,
        slope,
        factors: None,
    };
    let keep = oracle::keep_all(&kept);
    for (h, gradient) in [
        (&mut want[0], gat_grad(&kept, &input, &keep, &g)),
        (&mut terms[0], gat_grad_magnitude(&kept, &input, &keep, &g)),
    ] {
        h.iter_mut().zip(gradient.h_src).for_each(|(a, b)| *a += b);
        for (r, node) in wanted.iter().enumerate() {
            let at = held.binary_search(node).expect("what is wanted is held");
            for c in 0..width {
                h[at * width + c] += gradient.h_dst[r * width + c];
            }
        }
    }
    for (sums, size) in [(&mut want, (|p| p) as fn(f64) -> f64), (&mut terms, f64::abs)] {
        sums[0].iter_mut().zip(rounded(n * width)).for_each(|(a, p)| *a += size(p));
        sums[1].iter_mut().zip(probe(m * COLUMNS)).for_each(|(a, p)| *a += size(p));
        if !restricted {
            let [_, s, t] = sums;
            t.iter_mut().zip(s).for_each(|(t, s)| *t += *s);
        }
    }

    for order in orders(uses.len()) {
        let h = up::<Ad<B>, 2>(&hs, [n, width], dtype, device).require_grad();
        let t = up::<Ad<B>, 2>(src_values, [n, COLUMNS], Dtype::F32, device).require_grad();
        let s = match restricted {
            true => up::<Ad<B>, 2>(dst_values, [m, COLUMNS], Dtype::F32, device).require_grad(),
            false => t.clone(),
        };
        let inputs = [h, s, t];
        let losses = order.iter().map(|&k| uses[k](&inputs).cast(DType::F32));
        let grads = losses.reduce(|a, b| a + b).expect("there are uses").backward();
        let name = format!("order {order:?}, restricted {restricted}, width {width}, {dtype:?}");
        // Where there is one matrix of scores, its gradient is the last.
        for k in (0..3).filter(|&k| restricted || k != 1) {
            let got = gradient::<B, 2>(&inputs[k], &grads);
            assert_close_at_scale(&format!("{name}: input {k}"), &got, &want[k], &terms[k], dtype, f.num_rows + width);
        }
    }
}

const ACTIVATIONS: [Activation; 3] = [Activation::Identity, Activation::Relu, Activation::Elu];

/// Few and many columns, on and off the widths of vectors; no row, one, and many.
fn the_gradient_of_a_bias_is_a_column_sum<B: GraphBackend>(device: &B::Device) {
    for width in [1, 5, 33, 128] {
        for rows in [0, 1, 1000] {
            check_bias::<B>([rows, width], &ACTIVATIONS, Dtype::F32, device);
        }
    }
    check_bias::<B>([700, 1100], &[Activation::Relu], Dtype::F32, device);
}

/// Rows enough for every step of the sum.
fn the_gradient_of_a_bias_of_many_rows_is_a_column_sum<B: GraphBackend>(device: &B::Device) {
    for width in [1, 5, 33, 128] {
        check_bias::<B>([70_001, width], &ACTIVATIONS, Dtype::F32, device);
    }
}

pub fn check_half_bias<B: GraphBackend>(dtype: Dtype, device: &B::Device) {
    for width in [1, 5, 33, 128] {
        check_bias::<B>([1000, width], &[Activation::Elu], dtype, device);
    }
}

fn check_bias<B: GraphBackend>(
    [rows, width]: [usize; 2],
    activations: &[Activation],
    dtype: Dtype,
    device: &B::Device,
) {
    let xs = values_in(dtype, 131, rows * width);
    let bias_values = values_in(Dtype::F32, 132, width);
    // Many rows go as one: compute-sanitizer looks at every row of a copy.
    let rows_of = |values: &[f64], width: usize| match rows > 1000 {
        true => up::<B, 1>(values, [rows * width], dtype, device).reshape([rows, width]),
        false => up::<B, 2>(values, [rows, width], dtype, device),
    };
    let given = rows_of(&xs, width);
    // A part of a wider matrix: its rows are apart.
    let padded = width + 3;
    let gs = values_in(dtype, 133, rows * padded);
    let wide = rows_of(&gs, if rows > 0 { padded } else { width });
    let g = if rows > 0 { wide.slice([0..rows, 1..width + 1]) } else { wide };
    for &activation in activations {
        let name = format!("combine {activation:?}, {rows} rows of {width}, {dtype:?}");
        let x = Tensor::<Ad<B>, 2>::from_inner(given.clone()).require_grad();
        let bias = up::<Ad<B>, 1>(&bias_values, [width], Dtype::F32, device).require_grad();
        let out = combine(vec![x.clone()], Some(bias.clone()), 1.0, activation);
        let grads = backward_from(out, g.clone());
        let mut dx = vec![0.0; rows * width];
        let (mut want, mut terms) = (vec![0.0; width], vec![0.0; width]);
        for (k, dx) in dx.iter_mut().enumerate() {
            let (row, c) = (k / width, k % width);
            let y = xs[k] + bias_values[c];
            let slope = match activation {
                Activation::Identity => 1.0,
                Activation::Relu => f64::from(u8::from(y > 0.0)),
                Activation::Elu => y.min(0.0).exp(),
            };
            *dx = slope * gs[row * padded + 1 + c];
            want[c] += *dx;
            terms[c] += dx.abs();
        }
        assert_close(&format!("{name}: dx"), &gradient::<B, 2>(&x, &grads), &dx, dtype, 2);
        let got = gradient::<B, 1>(&bias, &grads);
        assert_close_at_scale(&format!("{name}: dbias"), &got, &want, &terms, dtype, rows.max(1));
    }
}
