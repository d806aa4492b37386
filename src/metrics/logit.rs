//! The logistic function and its loss.

use rayon::prelude::*;

/// `1 / (1 + exp(-x))`: the score that a logit means.
pub fn sigmoid(logit: f32) -> f32 {
    1.0 / (1.0 + (-logit).exp())
}

/// The score of a logit, its [`sigmoid`]; NaN of one that is not finite: an overflow has left it, and is no certainty.
pub fn score_of(logit: f32) -> f32 {
    if logit.is_finite() { sigmoid(logit) } else { f32::NAN }
}

/// [`score_of`] each, in the memory of the logits and on all threads.
pub fn scores_of(mut logits: Vec<f32>) -> Vec<f32> {
    logits.par_iter_mut().with_min_len(1 << 14).for_each(|logit| *logit = score_of(*logit));
    logits
}

/// [`sigmoid`] in double precision.
#[inline]
pub fn sigmoid_f64(logit: f64) -> f64 {
    1.0 / (1.0 + (-logit).exp())
}

/// `ln(1 + exp(x))` without overflow: the loss of a logit `x` whose label is 0, and of `-x` whose label is 1.
#[inline]
pub fn softplus(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_infinite_logit_has_no_score() {
        let scores = scores_of(vec![0.0, 200.0, -200.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN]);
        assert_eq!(scores[..3], [0.5, 1.0, 0.0]);
        assert!(scores[3..].iter().all(|score| score.is_nan()), "{scores:?}");
    }

    #[test]
    fn far_from_zero_nothing_overflows_and_nothing_is_lost() {
        assert_eq!([sigmoid_f64(-1e4), sigmoid_f64(0.0), sigmoid_f64(1e4)], [0.0, 0.5, 1.0]);
        assert_eq!([sigmoid(-1e4), sigmoid(0.0), sigmoid(1e4)], [0.0, 0.5, 1.0]);
        assert_eq!([softplus(-1e4), softplus(0.0), softplus(1e4)], [0.0, std::f64::consts::LN_2, 1e4]);
        assert!((softplus(-40.0) / (-40f64).exp() - 1.0).abs() < 1e-12);
    }
}
