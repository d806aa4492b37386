//! Initial values of parameters, drawn on the host: a seed means the same weights on every device.

use burn::module::Param;
use burn::tensor::backend::Backend;
use burn::tensor::{Tensor, TensorData};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Value `at` of `len` at equal distances from the first to the last.
pub(crate) fn even(at: usize, len: usize, [from, to]: [f64; 2]) -> f32 {
    (from + (to - from) * at as f64 / (len - 1).max(1) as f64) as f32
}

/// Draws the parameters of one layer, one after the other.
pub(super) struct Initial<'a, B: Backend> {
    rng: ChaCha8Rng,
    device: &'a B::Device,
}

impl<'a, B: Backend> Initial<'a, B> {
    pub fn new(seed: u64, device: &'a B::Device) -> Self {
        Self { rng: ChaCha8Rng::seed_from_u64(seed), device }
    }

    /// Uniform on `[-bound, bound]`.
    pub fn uniform<const D: usize>(&mut self, shape: [usize; D], bound: f64) -> Param<Tensor<B, D>> {
        let len = shape.iter().product();
        let values = (0..len).map(|_| self.rng.random_range(-bound..=bound) as f32).collect();
        self.param(values, shape)
    }

    /// Uniform with the variance `2 / (fan_in + fan_out)` (Glorot and Bengio, AISTATS 2010).
    pub fn glorot(&mut self, fans: [usize; 2]) -> Param<Tensor<B, 2>> {
        self.glorot_blocks(fans, 1)
    }

    /// The same for so many matrices, one below the other.
    pub fn glorot_blocks(&mut self, [fan_in, fan_out]: [usize; 2], blocks: usize) -> Param<Tensor<B, 2>> {
        self.uniform([blocks * fan_in, fan_out], (6.0 / (fan_in + fan_out) as f64).sqrt())
    }

    /// Uniform within `1 / sqrt(fan_in)`, as PyTorch starts a linear layer.
    pub fn linear<const D: usize>(&mut self, shape: [usize; D], fan_in: usize) -> Param<Tensor<B, D>> {
        self.uniform(shape, 1.0 / (fan_in.max(1) as f64).sqrt())
    }

    /// At equal distances from the first value to the last, see [`even`].
    pub fn even(&self, len: usize, ends: [f64; 2]) -> Param<Tensor<B, 1>> {
        self.param((0..len).map(|at| even(at, len, ends)).collect(), [len])
    }

    pub fn zeros(&self, len: usize) -> Param<Tensor<B, 1>> {
        self.param(vec![0.0; len], [len])
    }

    /// One number.
    pub fn scalar(&mut self, value: f64) -> Param<Tensor<B, 1>> {
        self.param(vec![value as f32], [1])
    }

    fn param<const D: usize>(&self, values: Vec<f32>, shape: [usize; D]) -> Param<Tensor<B, D>> {
        Param::from_tensor(Tensor::from_data(TensorData::new(values, shape), self.device))
    }
}
