//! Adam on CubeCL devices.

use burn::tensor::DType;
use burn_backend::tensor::FloatTensor;

use super::kernel::{FactorsArgs, GradientArgs, StateArgs, adam_kernel};
use super::{AdamBackend, AdamFactors, CLIP_EPSILON};
use crate::runtime::args::array;
use crate::runtime::backends::impl_for_devices;
use crate::runtime::launch::{address, empty, f32_vector, flat};

impl_for_devices! { AdamBackend =>
    fn adam_step(
        state: [FloatTensor<Self>; 3],
        gradient: FloatTensor<Self>,
        squares: Option<FloatTensor<Self>>,
        f: AdamFactors,
    ) -> [FloatTensor<Self>; 3] {
        let [values, mean, square] = state.map(f32_vector);
        let gradient = f32_vector(gradient);
        let len = values.meta.shape()[0];
        let out = [(); 3].map(|()| empty(&values, [len], DType::F32));
        let clipped = squares.is_some();
        // What is not there still needs a buffer.
        let squares = squares.map_or_else(|| gradient.clone(), f32_vector);
        let (count, dim) = flat(len);
        // SAFETY: the loop ends at the length that all vectors have.
        unsafe {
            adam_kernel::launch_unchecked::<R>(
                &values.client,
                count,
                dim,
                address(&[&values, &mean, &square, &gradient]),
                StateArgs { values: array(&values), mean: array(&mean), square: array(&square) }.launch(),
                GradientArgs { values: array(&gradient), sum_of_squares: array(&squares) }.launch(),
                StateArgs { values: array(&out[0]), mean: array(&out[1]), square: array(&out[2]) }.launch(),
                FactorsArgs {
                    rate: f.rate,
                    mean_decay: f.beta[0],
                    mean_fresh: f.fresh[0],
                    square_decay: f.beta[1],
                    square_fresh: f.fresh[1],
                    correction: f.correction,
                    epsilon: f.epsilon,
                    gradient_scale: f.gradient_scale,
                    clip_norm: f.clip_norm,
                    clip_epsilon: CLIP_EPSILON,
                }
                .launch(),
                len,
                clipped,
            );
        }
        out
    }
}
