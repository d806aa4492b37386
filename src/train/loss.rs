//! Terms of the losses.

use burn::tensor::backend::Backend;
use burn::tensor::{Tensor, activation};

/// Sum of binary cross-entropies of logits: `max(x, 0) - x y + ln(1 + exp(-|x|))`, which never overflows.
pub fn bce_with_logits_sum<B: Backend>(logits: Tensor<B, 1>, targets: Tensor<B, 1>) -> Tensor<B, 1> {
    let tail = (-logits.clone().abs()).exp().log1p();
    (activation::relu(logits.clone()) - logits * targets + tail).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn_flex::Flex;

    #[test]
    fn cross_entropy_is_that_of_the_definition_and_survives_huge_logits() {
        let device = Default::default();
        let (logits, targets) = ([0.5f32, -2.0, 3.0], [1.0f32, 0.0, 0.0]);
        let want: f64 = logits
            .iter()
            .zip(targets)
            .map(|(&x, y)| {
                let p = 1.0 / (1.0 + (-f64::from(x)).exp());
                -(f64::from(y) * p.ln() + (1.0 - f64::from(y)) * (1.0 - p).ln())
            })
            .sum();
        let sum = |x: &[f32], y: &[f32]| -> f32 {
            let (x, y) = (Tensor::<Flex, 1>::from_data(x, &device), Tensor::from_data(y, &device));
            bce_with_logits_sum(x, y).into_scalar()
        };
        assert!((f64::from(sum(&logits, &targets)) - want).abs() < 1e-5);
        assert_eq!(sum(&[1e4, -1e4], &[1.0, 0.0]), 0.0);
        assert_eq!(sum(&[1e4], &[0.0]), 1e4);
    }
}
