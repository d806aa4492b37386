//! What a training step does besides the model.

use burn::tensor::{Shape, Tensor};
use graphsieve_kernels::testing::harness::Trial;
use graphsieve_kernels::testing::{Dtype, assert_close, assert_close_at_scale, values_in};
use graphsieve_kernels::{
    AdamConfig, AdamState, Clip, Focus, GraphBackend, Segments, adam, bce_with_logits_sum, focal_with_logits_sum,
    linear, on_every_backend, smoothness_sum, sum_of_squares,
};

use crate::support::*;

/// The trials of this file.
pub fn trials() -> Vec<Trial> {
    on_every_backend!(
        "training";
        cross_entropy_matches_the_oracle,
        focal_loss_matches_the_oracle,
        smoothness_matches_the_oracle,
        losses_survive_huge_logits,
        sums_of_squares_match_the_oracle,
        adam_matches_the_oracle,
        segments_join_and_part_without_mixing,
    )
}

/// Around a plane, around what one cube adds up, and more than one launch.
const SIZES: [usize; 9] = [0, 1, 31, 33, 1000, 4096, 4097, 8193, 100_003];

fn vector<B: GraphBackend>(values: &[f64], device: &B::Device) -> Tensor<B, 1> {
    up::<B, 1>(values, [values.len()], Dtype::F32, device)
}

/// Central differences of a sum of terms, one per element.
fn slope(term: impl Fn(f64) -> f64, x: f64) -> f64 {
    let h = 1e-5;
    (term(x + h) - term(x - h)) / (2.0 * h)
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// Mixed signs and sizes: most terms are small, some are not.
fn logits(seed: u64, n: usize) -> Vec<f64> {
    values_in(Dtype::F32, seed, n).into_iter().map(|x| (3.0 * x) as f32 as f64).collect()
}

fn cross_entropy_matches_the_oracle<B: GraphBackend>(device: &B::Device) {
    for n in SIZES {
        let name = format!("bce_with_logits_sum {n}");
        let scale = 1.0 / n.max(1) as f64;
        let xs = logits(121, n);
        let ys: Vec<f64> = values_in(Dtype::F32, 122, n).into_iter().map(|v| f64::from(u8::from(v > 0.3))).collect();
        let term = |x: f64, y: f64| -(y * sigmoid(x).ln() + (1.0 - y) * sigmoid(-x).ln());
        let x = vector::<Ad<B>>(&xs, device).require_grad();
        let run = || bce_with_logits_sum(x.clone(), vector(&ys, device), scale);
        let loss = run();
        let want: f64 = xs.iter().zip(&ys).map(|(&x, &y)| scale * term(x, y)).sum();
        assert_close(&name, &down(loss.clone().inner()), &[want], Dtype::F32, n);
        assert_eq!(down(run().inner())[0].to_bits(), down(loss.clone().inner())[0].to_bits(), "{name}: fixed order");
        if n == 0 {
            continue;
        }
        let grads = (loss * 3.0).backward();
        let want: Vec<f64> = xs.iter().zip(&ys).map(|(&x, &y)| 3.0 * scale * slope(|x| term(x, y), x)).collect();
        assert_close(&format!("{name}: dx"), &gradient::<B, 1>(&x, &grads), &want, Dtype::F32, 1);
    }
}

fn focal_loss_matches_the_oracle<B: GraphBackend>(device: &B::Device) {
    // One label alone without an exponent, and not one that the model is sure of: such a loss has the error of the
    // device's exponential, to the third power where it has an exponent of two.
    for (n, gamma, positive) in
        [(1, 0.0, 3.0), (1000, 2.0, 1.0), (1000, 2.0, 5.0), (1000, 0.5, 0.25), (1000, 0.0, 30.0), (1000, 0.0, 1.0)]
    {
        let name = format!("focal_with_logits_sum {n}, {gamma}, {positive}");
        let (scale, focus) = (1.0 / n as f64, Focus { gamma, positive });
        let xs = logits(121, n);
        let ys: Vec<f64> = values_in(Dtype::F32, 122, n).into_iter().map(|v| f64::from(u8::from(v > 0.3))).collect();
        let term = |x: f64, y: f64| {
            let right = if y == 1.0 { sigmoid(x) } else { sigmoid(-x) };
            let weight = if y == 1.0 { f64::from(positive) } else { 1.0 };
            -weight * (1.0 - right).powf(f64::from(gamma)) * right.ln()
        };
        let x = vector::<Ad<B>>(&xs, device).require_grad();
        let loss = focal_with_logits_sum(x.clone(), vector(&ys, device), focus, scale);
        let want: f64 = xs.iter().zip(&ys).map(|(&x, &y)| scale * term(x, y)).sum();
        assert_close(&name, &down(loss.clone().inner()), &[want], Dtype::F32, n);
        let grads = (loss * 3.0).backward();
        let want: Vec<f64> = xs.iter().zip(&ys).map(|(&x, &y)| 3.0 * scale * slope(|x| term(x, y), x)).collect();
        assert_close(&format!("{name}: dx"), &gradient::<B, 1>(&x, &grads), &want, Dtype::F32, 1);
    }
}

fn smoothness_matches_the_oracle<B: GraphBackend>(device: &B::Device) {
    for n in SIZES {
        let name = format!("smoothness_sum {n}");
        let (a, b) = (logits(123, n), logits(124, n));
        let ws: Vec<f64> = values_in(Dtype::F32, 125, n).into_iter().map(f64::abs).collect();
        let ends = match n {
            // CUDA does not copy nothing.
            0 => Tensor::<Ad<B>, 2>::empty([2, 0], device),
            _ => up::<Ad<B>, 2>(&[a.clone(), b.clone()].concat(), [2, n], Dtype::F32, device),
        }
        .require_grad();
        let loss = smoothness_sum(ends.clone(), vector(&ws, device), 0.5);
        let term = |a: f64, b: f64, w: f64| 0.5 * w * (sigmoid(a) - sigmoid(b)).powi(2);
        let want: f64 = (0..n).map(|e| term(a[e], b[e], ws[e])).sum();
        // Both scores have the error of the device's exponential, and so has their difference.
        let both = |e: usize| sigmoid(a[e]) + sigmoid(b[e]);
        let terms = |e: usize| 0.5 * ws[e] * (sigmoid(a[e]) - sigmoid(b[e])).abs() * both(e);
        let magnitude: f64 = (0..n).map(terms).sum();
        assert_close_at_scale(&name, &down(loss.clone().inner()), &[want], &[magnitude], Dtype::F32, n);
        if n == 0 {
            continue;
        }
        let grads = (loss * 3.0).backward();
        let left = (0..n).map(|e| 3.0 * slope(|x| term(x, b[e], ws[e]), a[e]));
        let right = (0..n).map(|e| 3.0 * slope(|x| term(a[e], x, ws[e]), b[e]));
        let want: Vec<f64> = left.chain(right).collect();
        let of_end = |x: &[f64]| (0..n).map(|e| 3.0 * ws[e] * both(e) * slope(sigmoid, x[e])).collect::<Vec<_>>();
        let magnitude = [of_end(&a), of_end(&b)].concat();
        let name = format!("{name}: dx");
        assert_close_at_scale(&name, &gradient::<B, 2>(&ends, &grads), &want, &magnitude, Dtype::F32, 1);
    }
}

fn losses_survive_huge_logits<B: GraphBackend>(device: &B::Device) {
    let vector = |x: &[f64]| vector::<Ad<B>>(x, device);
    let bce = |x: f64, y: f64| {
        let x = vector(&[x]).require_grad();
        let loss = bce_with_logits_sum(x.clone(), vector(&[y]), 1.0);
        (down(loss.clone().inner())[0], gradient::<B, 1>(&x, &loss.backward())[0])
    };
    assert_eq!([bce(1e4, 1.0), bce(-1e4, 0.0)], [(0.0, 0.0); 2]);
    assert_eq!([bce(1e4, 0.0), bce(-1e4, 1.0)], [(1e4, 1.0), (1e4, -1.0)]);
    let focal = |x: f64, y: f64| {
        let x = vector(&[x]).require_grad();
        let loss = focal_with_logits_sum(x.clone(), vector(&[y]), Focus { gamma: 2.0, positive: 3.0 }, 1.0);
        (down(loss.clone().inner())[0], gradient::<B, 1>(&x, &loss.backward())[0])
    };
    assert_eq!([focal(1e4, 1.0), focal(-1e4, 0.0)], [(0.0, 0.0); 2]);
    assert_eq!([focal(1e4, 0.0), focal(-1e4, 1.0)], [(1e4, 1.0), (3e4, -3.0)]);
    let ends = up::<Ad<B>, 2>(&[1e4, -1e4, 1e4, -1e4, 1e4, -1e4], [2, 3], Dtype::F32, device).require_grad();
    let loss = smoothness_sum(ends.clone(), vector(&[1.0, 2.0, 4.0]), 1.0);
    assert_eq!(down(loss.clone().inner()), [7.0]);
    assert_eq!(gradient::<B, 2>(&ends, &loss.backward()), [0.0; 6]);
}

fn sums_of_squares_match_the_oracle<B: GraphBackend>(device: &B::Device) {
    for n in SIZES {
        let x = values_in(Dtype::F32, 101, n);
        let want: f64 = x.iter().map(|x| x * x).sum();
        let got = || down(sum_of_squares(vector::<B>(&x, device)));
        assert_close(&format!("sum of {n} squares"), &got(), &[want], Dtype::F32, n);
        assert_eq!(got()[0].to_bits(), got()[0].to_bits(), "the order of {n} squares is fixed");
    }
}

/// Three steps in f64.
fn adam_oracle(x: &[f64], gradients: &[Vec<f64>], config: AdamConfig, clip: Option<f64>) -> [Vec<f64>; 3] {
    let (mut x, mut m, mut v) = (x.to_vec(), vec![0.0; x.len()], vec![0.0; x.len()]);
    for (t, gradient) in gradients.iter().enumerate() {
        let scaled: Vec<f64> = gradient.iter().map(|g| g * config.gradient_scale).collect();
        let norm = scaled.iter().map(|g| g * g).sum::<f64>().sqrt();
        let shrink = clip.map_or(1.0, |clip| (clip / (norm + 1e-6)).min(1.0));
        let correction = config.beta.map(|beta| 1.0 - beta.powi(t as i32 + 1));
        for k in 0..x.len() {
            let g = scaled[k] * shrink;
            m[k] = config.beta[0] * m[k] + (1.0 - config.beta[0]) * g;
            v[k] = config.beta[1] * v[k] + (1.0 - config.beta[1]) * g * g;
            x[k] -= config.learning_rate * (m[k] / correction[0]) / ((v[k] / correction[1]).sqrt() + config.epsilon);
        }
    }
    [x, m, v]
}

fn adam_matches_the_oracle<B: GraphBackend>(device: &B::Device) {
    let config = AdamConfig { learning_rate: 0.1, beta: [0.9, 0.999], epsilon: 1e-8, step: 1, gradient_scale: 1.0 };
    for n in SIZES {
        for (clip, gradient_scale) in
            [(None, 1.0), (Some(1.0), 1.0), (Some(1e9), 1.0), (Some(0.5), 0.125), (None, 0.125)]
        {
            let name = format!("adam {n} clip {clip:?} scale {gradient_scale}");
            let x = values_in(Dtype::F32, 102, n);
            let gradients: Vec<_> = (0..3).map(|t| values_in(Dtype::F32, 103 + t, n)).collect();
            let zeros = vector::<B>(&vec![0.0; n], device);
            let mut state = AdamState { values: vector(&x, device), moments: [zeros.clone(), zeros] };
            let first = state.values.clone();
            for (t, gradient) in gradients.iter().enumerate() {
                let gradient = vector::<B>(gradient, device);
                let clip = clip.map(|norm| Clip { squares: sum_of_squares(gradient.clone()), norm });
                state = adam(state, gradient, clip, AdamConfig { step: t as u64 + 1, gradient_scale, ..config });
            }
            let want = adam_oracle(&x, &gradients, AdamConfig { gradient_scale, ..config }, clip);
            let [mean, square] = state.moments;
            // A norm is a sum over all elements.
            let len = if clip.is_some() { n } else { 3 };
            for ((what, got), want) in
                [("values", state.values), ("mean", mean), ("square", square)].into_iter().zip(want)
            {
                assert_close(&format!("{name}: {what}"), &down(got), &want, Dtype::F32, len);
            }
            let kept: Vec<f64> = down(first).into_iter().map(f64::from).collect();
            assert_eq!(kept, x, "{name}: the old values are somebody else's");
        }
    }
}

fn segments_join_and_part_without_mixing<B: GraphBackend>(device: &B::Device) {
    // More tensors than one launch takes, of all kinds: whole, padded rows, transposed, one row, empty, missing.
    let shapes: Vec<[usize; 2]> =
        (0..75).map(|k| [[3, 40], [33, 7], [1, 64], [1, 65], [0, 5], [128, 9]][k % 6]).collect();
    let host: Vec<Vec<f64>> =
        shapes.iter().zip(111..).map(|([r, c], seed)| values_in(Dtype::F32, seed, r * c)).collect();
    let part = |k: usize| {
        let ([rows, columns], values) = (shapes[k], &host[k]);
        match k % 5 {
            // CUDA neither fills nor copies nothing.
            _ if values.is_empty() => Tensor::<B, 2>::empty([rows, columns], device),
            1 => {
                let turned =
                    (0..columns).flat_map(|c| (0..rows).map(move |r| values[r * columns + c])).collect::<Vec<_>>();
                up::<B, 2>(&turned, [columns, rows], Dtype::F32, device).transpose()
            }
            2 => {
                let gap = Tensor::<B, 2>::ones([rows, 3], device);
                let wide = Tensor::cat(vec![gap.clone(), up::<B, 2>(values, shapes[k], Dtype::F32, device), gap], 1);
                wide.narrow(1, 3, columns)
            }
            _ => up::<B, 2>(values, shapes[k], Dtype::F32, device),
        }
    };
    let missing = |k: usize| k % 7 == 3;
    let lens: Vec<usize> = host.iter().map(Vec::len).collect();
    let segments = Segments::new(&lens);
    let join = || segments.join((0..shapes.len()).map(|k| (!missing(k)).then(|| part(k))).collect(), device);
    let want: Vec<Vec<f32>> =
        (0..shapes.len()).map(|k| host[k].iter().map(|&v| if missing(k) { 0.0 } else { v as f32 }).collect()).collect();
    let whole = join();
    let values = down(whole.clone());
    assert_eq!(values, segments.with_gaps(&want.concat()), "gaps are zero");
    assert_eq!(segments.without_gaps(&values), want.concat());

    for (k, want) in want.iter().enumerate() {
        assert_eq!(&down(segments.part(&whole, k, shapes[k])), want, "part {k}");
    }
    // What might write in place does so neither in the whole nor, once that is gone, in the part of another.
    let changed = segments.part(&whole, 0, shapes[0]) * 2.0 + 1.0;
    assert_eq!(down(whole.clone()), values);
    let (own, other) = (segments.part(&whole, 0, shapes[0]), segments.part(&whole, 1, shapes[1]));
    drop(whole);
    let negated = own * -1.0;
    assert_eq!(down(other.clone()), want[1]);
    let sum = other + 1.0;
    assert_eq!(down(sum), want[1].iter().map(|v| v + 1.0).collect::<Vec<_>>());
    assert_eq!(down(negated), want[0].iter().map(|v| -v).collect::<Vec<_>>());
    assert_eq!(down(changed), want[0].iter().map(|v| v * 2.0 + 1.0).collect::<Vec<_>>());

    // A part is an operand like any other: 3 x 40 times 40 x 3, and its transpose.
    let whole = join();
    let (a, b) = (segments.part(&whole, 0, [3, 40]), segments.part(&whole, 0, [40, 3]));
    let product = |a: &Tensor<B, 2>| linear(a.clone(), b.clone(), None);
    let copy = up::<B, 2>(&host[0], [3, 40], Dtype::F32, device);
    assert_eq!(a.shape(), Shape::new([3, 40]));
    let wide: Vec<f64> = down(product(&copy)).into_iter().map(f64::from).collect();
    assert_close("product of views", &down(product(&a)), &wide, Dtype::F32, 40);
    assert_eq!(down(a.transpose()), down(copy.transpose()));
}
