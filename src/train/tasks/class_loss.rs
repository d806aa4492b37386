//! The loss of node classification, on the device and on the host.

use burn::backend::Autodiff;
use burn::tensor::activation::log_softmax;
use burn::tensor::backend::Backend;
use burn::tensor::{DType, Int, Tensor};
use graphsieve_kernels::GraphBackend;
use serde::Serialize;

use super::attention_loss::LossWeights;
use crate::config::{Best, ClassifyLoss};
use crate::error::Result;
use crate::metrics::{average_precision, log_sum_exp, predicted_class};
use crate::models::node_classifier::probabilities;
use crate::models::precision::as_dtype;

/// Figures of the validation nodes.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Validation {
    pub validation_loss: f64,
    pub validation_accuracy: f64,
    /// Of the probability of class 1, where that chooses the epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub validation_average_precision: Option<f64>,
}

impl Validation {
    /// The figure that is told of a training, higher is better.
    pub fn figure(&self) -> f64 {
        self.validation_average_precision.unwrap_or(self.validation_accuracy)
    }
}

/// What is minimised.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ClassLoss {
    /// The plain cross-entropy of any number of classes.
    Plain,
    /// Of two classes: with logits `z` the logit of class 1 is `z_1 - z_0`, and labels count as in Stage 2.
    Weighed(LossWeights),
}

impl ClassLoss {
    /// Of the labels of a training.
    pub fn of(config: &ClassifyLoss, train: &[(u32, u32)]) -> Self {
        if *config == ClassifyLoss::default() {
            return Self::Plain;
        }
        let anomalous = train.iter().filter(|(_, class)| *class == 1).count();
        let counts = [train.len() - anomalous, anomalous];
        Self::Weighed(LossWeights::of_labels(config.positive_weight, config.focal_gamma, counts))
    }

    /// The loss of rows of logits `[rows, classes]` against classes `[rows, 1]`.
    pub fn of_rows<B: GraphBackend>(
        self,
        logits: Tensor<Autodiff<B>, 2>,
        classes: Tensor<Autodiff<B>, 2, Int>,
    ) -> Tensor<Autodiff<B>, 1> {
        let Self::Weighed(weights) = self else { return cross_entropy(logits, classes) };
        let (logits, rows) = (as_dtype(logits, DType::F32), classes.dims()[0]);
        let [normal, anomalous] = [0, 1].map(|class| logits.clone().narrow(1, class, 1));
        weights.supervised((anomalous - normal).reshape([rows]), as_dtype(classes.float(), DType::F32).reshape([rows]))
    }
}

/// Mean cross-entropy of rows of logits against classes `[rows, 1]`: `mean_i (ln sum_c exp(z_ic) - z_i,y_i)`, with the
/// largest logit of a row subtracted first, in f32.
pub fn cross_entropy<B: Backend>(logits: Tensor<B, 2>, classes: Tensor<B, 2, Int>) -> Tensor<B, 1> {
    let logits = if logits.dtype() == DType::F32 { logits } else { logits.cast(DType::F32) };
    log_softmax(logits, 1).gather(1, classes).mean().neg()
}

/// The same on the host in f64, with the share of right predictions, and the average precision where that is `best`.
///
/// # Errors
/// Logits that are not finite, or one class alone, where precision is asked for.
pub(super) fn validate(logits: &[f32], classes: usize, part: &[(u32, u32)], best: Best) -> Result<Validation> {
    let (mut loss, mut right) = (0.0, 0usize);
    for &(node, class) in part {
        let row = &logits[node as usize * classes..][..classes];
        loss += log_sum_exp(row) - f64::from(row[class as usize]);
        right += usize::from(predicted_class(row) == class);
    }
    let nodes = part.len() as f64;
    let ranked = || {
        let score = |&(node, _): &(u32, u32)| probabilities(&logits[node as usize * classes..][..classes], classes)[1];
        let labels: Vec<u8> = part.iter().map(|(_, class)| u8::from(*class == 1)).collect();
        average_precision(&part.iter().map(score).collect::<Vec<f32>>(), &labels)
    };
    Ok(Validation {
        validation_loss: loss / nodes,
        validation_accuracy: right as f64 / nodes,
        validation_average_precision: (best == Best::AveragePrecision).then(ranked).transpose()?,
    })
}

#[cfg(test)]
mod tests {
    use burn::backend::Autodiff;
    use burn_flex::{Flex, FlexDevice};
    use graphsieve_kernels::autodiff_turn;

    use super::*;
    use crate::models::parameters::to_host;

    #[test]
    fn the_cross_entropy_and_its_gradient_are_those_of_f64() {
        let _turn = autodiff_turn();
        // Large logits, whose exponentials f32 cannot hold.
        let logits = [[0.5f32, -1.25, 3.0], [200.0, 199.0, -200.0], [-1e4, -1e4, -1e4 + 1.0], [7.0, 7.0, 7.0]];
        let labels = [2u32, 1, 0, 1];
        let x = Tensor::<Autodiff<Flex>, 2>::from_data(logits, &FlexDevice).require_grad();
        let classes = Tensor::<Autodiff<Flex>, 2, Int>::from_data([[2], [1], [0], [1]], &FlexDevice);
        let loss = cross_entropy(x.clone(), classes);
        let flat: Vec<f32> = logits.iter().flatten().copied().collect();
        let part: Vec<(u32, u32)> = (0..4).zip(labels).collect();
        let want = validate(&flat, 3, &part, Best::Loss).unwrap();
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
        let validation = validate(&[1.0, 2.0, 3.0, 0.0], 2, &[(0, 1), (1, 1)], Best::Accuracy).unwrap();
        assert_eq!((validation.validation_accuracy, validation.validation_average_precision), (0.5, None));
        assert_eq!(validation.figure(), 0.5);
    }

    #[test]
    fn average_precision_is_of_the_log_odds_of_class_1() {
        // Log-odds 1, -3, 2, 0 of nodes 0 to 3: by score 2, 0, 3, 1.
        let logits = [1.0, 2.0, 3.0, 0.0, -1.0, 1.0, 5.0, 5.0];
        let part = [(0, 1), (1, 0), (2, 0), (3, 1)];
        let found = validate(&logits, 2, &part, Best::AveragePrecision).unwrap();
        assert_eq!(found.figure(), 0.5 * (1.0 / 2.0) + 0.5 * (2.0 / 3.0));
        assert!(validate(&logits, 2, &part[..1], Best::AveragePrecision).is_err(), "one class ranks nothing");
    }

    /// The loss in f64: of two classes with log-odds `m` towards the wrong one
    /// `w sigmoid(m)^gamma ln(1 + exp(m))`, divided by the sum of `w`.
    fn weighed(logits: &[[f64; 2]], classes: &[u32], positive: f64, gamma: f64) -> f64 {
        let weight = |class: u32| if class == 1 { positive } else { 1.0 };
        let of = |(z, &class): (&[f64; 2], &u32)| {
            let m = z[1 - class as usize] - z[class as usize];
            weight(class) * (1.0 / (1.0 + (-m).exp())).powf(gamma) * m.exp().ln_1p()
        };
        logits.iter().zip(classes).map(of).sum::<f64>() / classes.iter().map(|&class| weight(class)).sum::<f64>()
    }

    #[test]
    fn weighed_labels_and_their_gradient_are_those_of_f64() {
        let _turn = autodiff_turn();
        let logits = [[0.5f32, -1.25], [2.0, 1.0], [-0.5, 3.0], [0.25, 0.25], [1.5, -2.0]];
        let classes = [1u32, 0, 1, 0, 0];
        let train: Vec<(u32, u32)> = (0..5).zip(classes).collect();
        for (positive_weight, positive) in [(None, 1.5), (Some(4.0), 4.0)] {
            for focal_gamma in [0.0, 2.0] {
                let loss = ClassLoss::of(&ClassifyLoss { positive_weight, focal_gamma }, &train);
                let x = Tensor::<Autodiff<Flex>, 2>::from_data(logits, &FlexDevice).require_grad();
                let targets = Tensor::<Autodiff<Flex>, 2, Int>::from_data([[1], [0], [1], [0], [0]], &FlexDevice);
                let loss = loss.of_rows::<Flex>(x.clone(), targets);
                let wide = logits.map(|row| row.map(f64::from));
                let want = weighed(&wide, &classes, positive, focal_gamma);
                assert!((f64::from(to_host(loss.clone())[0]) - want).abs() < 1e-6, "{want}");
                let gradient = to_host(x.grad(&loss.backward()).unwrap());
                for at in 0..10 {
                    let moved = |by: f64| {
                        let mut wide = wide;
                        wide[at / 2][at % 2] += by;
                        weighed(&wide, &classes, positive, focal_gamma)
                    };
                    let want = (moved(1e-5) - moved(-1e-5)) / 2e-5;
                    assert!((f64::from(gradient[at]) - want).abs() < 1e-6, "{at}: {} {want}", gradient[at]);
                }
            }
        }
        assert_eq!(ClassLoss::of(&ClassifyLoss::default(), &train), ClassLoss::Plain);
    }
}
