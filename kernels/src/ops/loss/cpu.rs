//! Losses on the CPU.

use burn::tensor::ops::FloatTensor;
use burn_backend::TensorMetadata;
use burn_flex::Flex;
use rayon::prelude::*;

use super::{Loss, LossBackend};
use crate::ops::sum::sum_of_terms;
use crate::runtime::flex;

/// Elements of one task.
const ELEMENTS_PER_TASK: usize = 4096;

impl LossBackend for Flex {
    fn loss_forward(logits: FloatTensor<Self>, other: FloatTensor<Self>, loss: Loss, scale: f32) -> FloatTensor<Self> {
        let (logits, other) = (logits.to_contiguous(), other.to_contiguous());
        let (x, other) = (flex::slice::<f32>(&logits), flex::slice::<f32>(&other));
        let len = other.len();
        sum_of_terms(len, scale, |part| {
            let term = |k: usize| match loss {
                Loss::CrossEntropy => x[k].max(0.0) - x[k] * other[k] + (-x[k].abs()).exp().ln_1p(),
                Loss::Focal { gamma, positive } => {
                    let Margin { m, weight, .. } = Margin::of(x[k], other[k], positive);
                    weight * powered(m, f32::from_bits(gamma)) * softplus(m)
                }
                Loss::Smoothness => other[k] * (sigmoid(x[k]) - sigmoid(x[len + k])).powi(2),
            };
            part.map(|k| f64::from(term(k))).sum()
        })
    }

    fn loss_backward(
        g: FloatTensor<Self>,
        logits: FloatTensor<Self>,
        other: FloatTensor<Self>,
        loss: Loss,
        scale: f32,
    ) -> FloatTensor<Self> {
        let factor = flex::slice::<f32>(&g)[0] * scale;
        let shape = logits.shape();
        let (logits, other) = (logits.to_contiguous(), other.to_contiguous());
        let (x, other) = (flex::slice::<f32>(&logits), flex::slice::<f32>(&other));
        let slope = |k: usize| match loss {
            Loss::CrossEntropy => sigmoid(x[k]) - other[k],
            Loss::Focal { gamma, positive } => {
                let (Margin { m, sign, weight }, gamma) = (Margin::of(x[k], other[k], positive), f32::from_bits(gamma));
                let slope = gamma * sigmoid(-m) * softplus(m) + sigmoid(m);
                sign * weight * powered(m, gamma) * slope
            }
            Loss::Smoothness => {
                let len = other.len();
                let opposite = if k < len { k + len } else { k - len };
                2.0 * other[k % len] * (sigmoid(x[k]) - sigmoid(x[opposite])) * sigmoid_slope(x[k])
            }
        };
        let dx: Vec<f32> =
            (0..x.len()).into_par_iter().with_min_len(ELEMENTS_PER_TASK).map(|k| factor * slope(k)).collect();
        flex::tensor(dx, shape)
    }
}

/// A logit towards the wrong class.
struct Margin {
    m: f32,
    /// Of the logit in it.
    sign: f32,
    weight: f32,
}

impl Margin {
    fn of(x: f32, target: f32, positive: u32) -> Self {
        let sign = 1.0 - 2.0 * target;
        Self { m: sign * x, sign, weight: 1.0 + target * (f32::from_bits(positive) - 1.0) }
    }
}

/// `sigmoid(m)^gamma`; the square, which most take, without the error of a logarithm.
fn powered(m: f32, gamma: f32) -> f32 {
    if gamma == 2.0 { sigmoid(m).powi(2) } else { (-gamma * softplus(-m)).exp() }
}

/// `ln(1 + exp(x))`
fn softplus(x: f32) -> f32 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

fn sigmoid(x: f32) -> f32 {
    let e = (-x.abs()).exp();
    (if x >= 0.0 { 1.0 } else { e }) / (1.0 + e)
}

/// `s (1 - s)` of `s = sigmoid(x)`, without the cancellation of `1 - s`.
fn sigmoid_slope(x: f32) -> f32 {
    let e = (-x.abs()).exp();
    e / ((1.0 + e) * (1.0 + e))
}
