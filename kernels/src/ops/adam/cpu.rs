//! Adam on the CPU.

use burn::tensor::ops::FloatTensor;
use burn_flex::Flex;
use rayon::prelude::*;

use super::{AdamBackend, AdamFactors, CLIP_EPSILON};
use crate::runtime::flex;

/// Elements of one task.
const ELEMENTS_PER_TASK: usize = 4096;

impl AdamBackend for Flex {
    fn adam_step(
        state: [FloatTensor<Self>; 3],
        gradient: FloatTensor<Self>,
        squares: Option<FloatTensor<Self>>,
        f: AdamFactors,
    ) -> [FloatTensor<Self>; 3] {
        let factor = squares.map_or(f.gradient_scale, |squares| {
            let norm = flex::slice::<f32>(&squares)[0].sqrt() * f.gradient_scale;
            ((norm + CLIP_EPSILON).recip() * f.clip_norm).min(1.0) * f.gradient_scale
        });
        let gradient = gradient.to_contiguous();
        let [mut values, mut mean, mut square] = state.map(|t| flex::slice::<f32>(&t.to_contiguous()).to_vec());
        let len = values.len();
        values
            .par_chunks_mut(ELEMENTS_PER_TASK)
            .zip(mean.par_chunks_mut(ELEMENTS_PER_TASK))
            .zip(square.par_chunks_mut(ELEMENTS_PER_TASK))
            .zip(flex::slice::<f32>(&gradient).par_chunks(ELEMENTS_PER_TASK))
            .for_each(|(((values, mean), square), gradient)| {
                for (((value, mean), square), g) in values.iter_mut().zip(mean).zip(square).zip(gradient) {
                    let g = g * factor;
                    *mean = *mean * f.beta[0] + g * f.fresh[0];
                    *square = *square * f.beta[1] + g * g * f.fresh[1];
                    let length = (*square / f.correction).sqrt() + f.epsilon;
                    *value -= *mean / length * f.rate;
                }
            });
        [values, mean, square].map(|values| flex::tensor(values, [len]))
    }
}
