//! Losses on CubeCL devices.

use burn::tensor::DType;
use burn_backend::TensorMetadata;
use burn_backend::tensor::FloatTensor;

use super::kernel::{BackwardInputsArgs, loss_backward_kernel};
use super::{Loss, LossBackend};
use crate::ops::sum::{Term, sum};
use crate::runtime::args::array;
use crate::runtime::backends::impl_for_devices;
use crate::runtime::launch::{address, empty, f32_vector, flat};

impl_for_devices! { LossBackend =>
    fn loss_forward(logits: FloatTensor<Self>, other: FloatTensor<Self>, loss: Loss, scale: f32) -> FloatTensor<Self> {
        let len = other.meta.shape()[0];
        sum(logits, Some(other), len, scale, Term::Loss(loss))
    }

    fn loss_backward(
        g: FloatTensor<Self>,
        logits: FloatTensor<Self>,
        other: FloatTensor<Self>,
        loss: Loss,
        scale: f32,
    ) -> FloatTensor<Self> {
        let (g, logits, other) = (f32_vector(g), f32_vector(logits), f32_vector(other));
        let len = other.meta.shape()[0];
        let dx = empty(&logits, logits.shape(), DType::F32);
        let (count, dim) = flat(len);
        // SAFETY: the loop ends at the length of `other`; logits have as many elements, or twice as many.
        unsafe {
            loss_backward_kernel::launch_unchecked::<R>(
                &dx.client,
                count,
                dim,
                address(&[&logits]),
                BackwardInputsArgs { g: array(&g), logits: array(&logits), other: array(&other) }.launch(),
                array(&dx),
                scale,
                len,
                loss,
            );
        }
        dx
    }
}
