//! Sums on the CPU.

use burn::tensor::ops::FloatTensor;
use burn_flex::{Flex, FlexTensor};
use rayon::prelude::*;

use super::SumBackend;
use crate::runtime::flex::{self, dot};

/// Elements of one partial sum: fixed, so that the order does not depend on the number of threads.
const ELEMENTS_PER_PARTIAL: usize = 4096;

/// `scale` times the sum of what `partial` makes of stretches of `0..len`, as `[1]`. The few partial sums are added up
/// in f64.
pub(crate) fn sum_of_terms(
    len: usize,
    scale: f32,
    partial: impl Fn(std::ops::Range<usize>) -> f64 + Sync,
) -> FlexTensor {
    let partials: Vec<f64> = (0..len.div_ceil(ELEMENTS_PER_PARTIAL))
        .into_par_iter()
        .map(|k| partial(k * ELEMENTS_PER_PARTIAL..((k + 1) * ELEMENTS_PER_PARTIAL).min(len)))
        .collect();
    flex::tensor(vec![(partials.iter().sum::<f64>() * f64::from(scale)) as f32], [1])
}

impl SumBackend for Flex {
    fn sum_of_squares(x: FloatTensor<Self>) -> FloatTensor<Self> {
        let x = x.to_contiguous();
        let x = flex::slice::<f32>(&x);
        sum_of_terms(x.len(), 1.0, |part| f64::from(dot(&x[part.clone()], &x[part])))
    }
}
