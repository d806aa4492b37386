//! Adam on CubeCL devices.

use burn::tensor::DType;
use burn_backend::tensor::FloatTensor;
use burn_cubecl::element::BoolElement;
use burn_cubecl::{CubeBackend, CubeRuntime, FloatElement, IntElement};

use super::kernel::{FactorsLaunch, adam_kernel};
use super::{AdamBackend, AdamFactors, CLIP_EPSILON};
use crate::runtime::launch::{address, empty, f32_vector, flat};

impl<R: CubeRuntime, F: FloatElement, I: IntElement, BT: BoolElement> AdamBackend for CubeBackend<R, F, I, BT> {
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
                values.clone().into_array_arg(),
                mean.into_array_arg(),
                square.into_array_arg(),
                gradient.into_array_arg(),
                squares.into_array_arg(),
                out[0].clone().into_array_arg(),
                out[1].clone().into_array_arg(),
                out[2].clone().into_array_arg(),
                FactorsLaunch::new(
                    f.rate,
                    f.beta[0],
                    f.fresh[0],
                    f.beta[1],
                    f.fresh[1],
                    f.correction,
                    f.epsilon,
                    f.gradient_scale,
                    f.clip_norm,
                    CLIP_EPSILON,
                ),
                len,
                clipped,
            );
        }
        out
    }
}
