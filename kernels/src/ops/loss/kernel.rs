//! A thread per logit, backward; forward, the terms of a sum.

use cubecl::prelude::*;

use super::Loss;
use crate::runtime::args::launch_args;

/// What element `k` of `len` adds to the sum.
#[cube]
pub(crate) fn loss_term(logits: &Array<f32>, other: &Array<f32>, k: usize, len: usize, #[comptime] loss: Loss) -> f32 {
    match comptime!(loss) {
        Loss::CrossEntropy => {
            let x = logits[k];
            x.max(0.0f32) - x * other[k] + (-x.abs()).exp().log1p()
        }
        Loss::Focal { gamma, positive } => {
            let (sign, weight) = sign_and_weight(other[k], positive);
            let m = sign * logits[k];
            weight * powered(m, gamma) * softplus(m)
        }
        Loss::Smoothness => {
            let difference = sigmoid(logits[k]) - sigmoid(logits[len + k]);
            other[k] * difference * difference
        }
    }
}

launch_args! {
    /// The gradient of the sum, the logits, and the targets or weights.
    BackwardInputs, BackwardInputsArgs {
        g: Array<f32>,
        logits: Array<f32>,
        other: Array<f32>,
    }
}

#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn loss_backward_kernel(
    inputs: &BackwardInputs,
    dx: &mut Array<f32>,
    scale: f32,
    len: usize,
    #[comptime] loss: Loss,
) {
    let factor = inputs.g[0] * scale;
    let mut k = ABSOLUTE_POS;
    while k < len {
        let x = inputs.logits[k];
        match comptime!(loss) {
            Loss::CrossEntropy => {
                dx[k] = factor * (sigmoid(x) - inputs.other[k]);
            }
            Loss::Focal { gamma, positive } => {
                let (sign, weight) = sign_and_weight(inputs.other[k], positive);
                let m = sign * x;
                let exponent = comptime!(f32::from_bits(gamma));
                let slope = exponent * sigmoid(-m) * softplus(m) + sigmoid(m);
                dx[k] = factor * sign * weight * powered(m, gamma) * slope;
            }
            Loss::Smoothness => {
                let opposite = inputs.logits[len + k];
                let step = factor * 2.0f32 * inputs.other[k] * (sigmoid(x) - sigmoid(opposite));
                dx[k] = step * sigmoid_slope(x);
                dx[len + k] = -step * sigmoid_slope(opposite);
            }
        }
        k += CUBE_COUNT * CUBE_DIM as usize;
    }
}

/// Of the logit in the margin towards the wrong class, and what the label counts.
#[cube]
fn sign_and_weight(target: f32, #[comptime] positive: u32) -> (f32, f32) {
    let more = comptime!(f32::from_bits(positive) - 1.0);
    (1.0f32 - 2.0f32 * target, 1.0f32 + target * more)
}

/// `sigmoid(m)^gamma`; the square, which most take, without the error of a logarithm.
#[cube]
fn powered(m: f32, #[comptime] gamma: u32) -> f32 {
    if comptime!(f32::from_bits(gamma) == 2.0) {
        let s = sigmoid(m);
        s * s
    } else {
        let exponent = comptime!(-f32::from_bits(gamma));
        (softplus(-m) * exponent).exp()
    }
}

/// `ln(1 + exp(x))`
#[cube]
fn softplus(x: f32) -> f32 {
    x.max(0.0f32) + (-x.abs()).exp().log1p()
}

/// Of a logit of any size: the exponential never overflows.
#[cube]
fn sigmoid(x: f32) -> f32 {
    let e = (-x.abs()).exp();
    select(x >= 0.0f32, 1.0f32, e) / (1.0f32 + e)
}

/// `s (1 - s)` of `s = sigmoid(x)`, without the cancellation of `1 - s`.
#[cube]
fn sigmoid_slope(x: f32) -> f32 {
    let e = (-x.abs()).exp();
    e / ((1.0f32 + e) * (1.0f32 + e))
}
