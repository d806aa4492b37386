//! The loss of node classification, on the device and on the host.

use burn::tensor::activation::log_softmax;
use burn::tensor::backend::Backend;
use burn::tensor::{DType, Int, Tensor};
use serde::Serialize;

use crate::metrics::{log_sum_exp, predicted_class};

/// Figures of the validation nodes.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Validation {
    pub validation_loss: f64,
    pub validation_accuracy: f64,
}

/// Mean cross-entropy of rows of logits against classes `[rows, 1]`: `mean_i (ln sum_c exp(z_ic) - z_i,y_i)`, with the
/// largest logit of a row subtracted first, in f32.
pub fn cross_entropy<B: Backend>(logits: Tensor<B, 2>, classes: Tensor<B, 2, Int>) -> Tensor<B, 1> {
    let logits = if logits.dtype() == DType::F32 { logits } else { logits.cast(DType::F32) };
    log_softmax(logits, 1).gather(1, classes).mean().neg()
}

/// The same on the host in f64, with the share of right predictions.
pub(super) fn validate(logits: &[f32], classes: usize, part: &[(u32, u32)]) -> Validation {
    let (mut loss, mut right) = (0.0, 0usize);
    for &(node, class) in part {
        let row = &logits[node as usize * classes..][..classes];
        loss += log_sum_exp(row) - f64::from(row[class as usize]);
        right += usize::from(predicted_class(row) == class);
    }
    let nodes = part.len() as f64;
    Validation { validation_loss: loss / nodes, validation_accuracy: right as f64 / nodes }
}

#[cfg(test)]
mod tests {
    use burn::backend::Autodiff;
    use burn_flex::{Flex, FlexDevice};

    use super::*;
    use crate::models::parameters::to_host;

    #[test]
    fn the_cross_entropy_and_its_gradient_are_those_of_f64() {
        // Large logits, whose exponentials f32 cannot hold.
        let logits = [[0.5f32, -1.25, 3.0], [200.0, 199.0, -200.0], [-1e4, -1e4, -1e4 + 1.0], [7.0, 7.0, 7.0]];
        let labels = [2u32, 1, 0, 1];
        let x = Tensor::<Autodiff<Flex>, 2>::from_data(logits, &FlexDevice).require_grad();
        let classes = Tensor::<Autodiff<Flex>, 2, Int>::from_data([[2], [1], [0], [1]], &FlexDevice);
        let loss = cross_entropy(x.clone(), classes);
        let flat: Vec<f32> = logits.iter().flatten().copied().collect();
        let part: Vec<(u32, u32)> = (0..4).zip(labels).collect();
        let want = validate(&flat, 3, &part);
        assert!((f64::from(to_host(loss.clone())[0]) - want.validation_loss).abs() < 1e-5);
        let gradient = to_host(x.grad(&loss.backward()).unwrap());
        for (row, (logits, label)) in logits.iter().zip(labels).enumerate() {
            for class in 0..3 {
                let probability = (f64::from(logits[class]) - log_sum_exp(logits)).exp();
                let want = (probability - f64::from(u8::from(class as u32 == label))) / 4.0;
                let got = f64::from(gradient[row * 3 + class]);
                assert!((got - want).abs() < 1e-6, "{row}, {class}: {got} {want}");
            }
        }
    }

    #[test]
    fn accuracy_counts_the_largest_logit() {
        let validation = validate(&[1.0, 2.0, 3.0, 0.0], 2, &[(0, 1), (1, 1)]);
        assert_eq!(validation.validation_accuracy, 0.5);
    }
}
