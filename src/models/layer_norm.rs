//! Layer normalisation.

use burn::module::{Module, Param};
use burn::tensor::backend::Backend;
use burn::tensor::{DType, Tensor};
use graphsieve_kernels::GraphBackend;

use super::parameters::{Export, Init, Parameters};
use crate::error::Result;

/// Added to the variance of a row before the division by its root, as in PyTorch.
pub(crate) const NORM_EPSILON: f64 = 1e-5;

/// `scale * (z - mean(z)) / deviation(z) + shift` of each row (Ba et al., 2016). A row's own numbers alone make it.
#[derive(Module, Debug)]
pub(super) struct LayerNorm<B: Backend> {
    /// `[width]`
    scale: Param<Tensor<B, 1>>,
    /// `[width]`
    shift: Param<Tensor<B, 1>>,
}

impl<B: Backend> LayerNorm<B> {
    /// Of rows of `width` columns; begins as mean 0 and variance 1. The names are those of the scale and the shift.
    pub fn new([scale, shift]: [String; 2], width: usize, parameters: &mut Parameters<B>) -> Result<Self> {
        Ok(Self {
            scale: parameters.vector(&scale, width, Init::Ones)?,
            shift: parameters.vector(&shift, width, Init::Zeros)?,
        })
    }

    /// Adds the parameters under their names.
    pub fn export(&self, [scale, shift]: [String; 2], export: &mut Export) {
        export.vector(scale, &self.scale);
        export.vector(shift, &self.shift);
    }
}

impl<B: GraphBackend> LayerNorm<B> {
    /// `scale * (z - mean(z)) / sqrt(variance(z) + epsilon) + shift` of every row, computed in f32.
    pub fn of(&self, z: Tensor<B, 2>) -> Tensor<B, 2> {
        let dtype = z.dtype();
        let z = if dtype == DType::F32 { z } else { z.cast(DType::F32) };
        let centred = z.clone() - z.mean_dim(1);
        let variance = (centred.clone() * centred.clone()).mean_dim(1);
        let y =
            centred / (variance + NORM_EPSILON).sqrt() * self.scale.val().unsqueeze() + self.shift.val().unsqueeze();
        if dtype == DType::F32 { y } else { y.cast(dtype) }
    }
}
