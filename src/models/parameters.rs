//! Parameters by name: initial values from a seed, or values from a checkpoint.
//!
//! Values are made on the host, so that a seed means the same weights on every device. Names and layouts are those of a
//! PyTorch state dict (`*.weight` is `[out, in]`), so that checkpoints need no translation.

use std::collections::BTreeMap;

use burn::module::{Param, ParamId};
use burn::tensor::backend::Backend;
use burn::tensor::{Tensor, TensorData};
use graphsieve_kernels::download;
use rand::Rng;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use crate::error::{Error, Result};
use crate::nn::even;

/// How a parameter starts.
#[derive(Clone, Copy, Debug)]
pub enum Init {
    Zeros,
    Ones,
    /// Uniform on [-bound, bound].
    Uniform {
        bound: f64,
    },
    /// Normal with this standard deviation.
    Normal {
        std: f64,
    },
    /// At equal distances from the first value to the last.
    Even {
        from: f64,
        to: f64,
    },
}

impl Init {
    /// Glorot and Bengio (2010), uniform.
    pub fn xavier_uniform(fan_in: usize, fan_out: usize) -> Self {
        Init::Uniform { bound: (6.0 / (fan_in + fan_out) as f64).sqrt() }
    }

    /// Glorot and Bengio (2010), normal.
    pub fn xavier_normal(fan_in: usize, fan_out: usize) -> Self {
        Init::Normal { std: (2.0 / (fan_in + fan_out) as f64).sqrt() }
    }

    /// Value `at` of `len`.
    fn sample(self, rng: &mut ChaCha8Rng, at: usize, len: usize) -> f32 {
        match self {
            Init::Zeros => 0.0,
            Init::Ones => 1.0,
            Init::Even { from, to } => even(at, len, [from, to]),
            Init::Uniform { bound } => rng.random_range(-bound..=bound) as f32,
            Init::Normal { std } => {
                // Box-Muller; one of the two values is enough.
                let (u, v): (f64, f64) = (1.0 - rng.random::<f64>(), rng.random());
                (std * (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()) as f32
            }
        }
    }
}

/// A named tensor on the host.
#[derive(Clone, Debug, PartialEq)]
pub struct HostTensor {
    pub shape: Vec<usize>,
    pub values: Vec<f32>,
}

/// Where parameters come from.
pub enum Source<'a> {
    /// Initial values drawn in the order in which parameters are asked for.
    Seed(Box<ChaCha8Rng>),
    /// Values of a checkpoint, which is named in errors.
    Tensors { tensors: &'a BTreeMap<String, HostTensor>, origin: &'a std::path::Path },
}

/// Makes the parameters of a model one after the other.
pub struct Parameters<'a, B: Backend> {
    source: Source<'a>,
    device: &'a B::Device,
    made: u64,
}

impl<'a, B: Backend> Parameters<'a, B> {
    /// Initial values from `seed`.
    pub fn from_seed(seed: u64, device: &'a B::Device) -> Self {
        Self { source: Source::Seed(Box::new(ChaCha8Rng::seed_from_u64(seed))), device, made: 0 }
    }

    /// Values read from the checkpoint `origin`.
    pub fn from_tensors(
        tensors: &'a BTreeMap<String, HostTensor>,
        origin: &'a std::path::Path,
        device: &'a B::Device,
    ) -> Self {
        Self { source: Source::Tensors { tensors, origin }, device, made: 0 }
    }

    /// A weight matrix that is `[out, in]` under its `name` and `[in, out]` in the module.
    pub fn weight(&mut self, name: &str, [input, output]: [usize; 2], init: Init) -> Result<Param<Tensor<B, 2>>> {
        let values = transpose(&self.values(name, &[output, input], init)?, output, input);
        Ok(self.param(values, [input, output]))
    }

    /// A vector.
    pub fn vector(&mut self, name: &str, len: usize, init: Init) -> Result<Param<Tensor<B, 1>>> {
        let values = self.values(name, &[len], init)?;
        Ok(self.param(values, [len]))
    }

    /// A vector of `len` values that a new model has from the data that it is trained on. It is not learned.
    pub fn given(&mut self, name: &str, len: usize, values: &[f32]) -> Result<Param<Tensor<B, 1>>> {
        let values = match &self.source {
            Source::Seed(_) => values.to_vec(),
            Source::Tensors { .. } => self.values(name, &[len], Init::Zeros)?,
        };
        Ok(self.constant(values, [len]))
    }

    fn param<const D: usize>(&mut self, values: Vec<f32>, shape: [usize; D]) -> Param<Tensor<B, D>> {
        self.constant(values, shape).map(Tensor::require_grad)
    }

    fn constant<const D: usize>(&mut self, values: Vec<f32>, shape: [usize; D]) -> Param<Tensor<B, D>> {
        // Ids by order: the optimiser's state finds its parameters again after a restart.
        self.made += 1;
        let tensor = Tensor::from_data(TensorData::new(values, shape), self.device);
        Param::initialized(ParamId::from(self.made), tensor)
    }

    pub(super) fn values(&mut self, name: &str, shape: &[usize], init: Init) -> Result<Vec<f32>> {
        let len = shape.iter().product();
        match &mut self.source {
            Source::Seed(rng) => Ok((0..len).map(|at| init.sample(rng, at, len)).collect()),
            Source::Tensors { tensors, origin } => {
                let origin = *origin;
                let help = "the checkpoint belongs to another model or another set of relations";
                let tensor = tensors.get(name).ok_or_else(|| {
                    let names: Vec<&str> = tensors.keys().map(String::as_str).collect();
                    let found = format!("no such tensor among {}", names.join(", "));
                    Error::format(origin, name, format!("a tensor of shape {shape:?}"), found, help)
                })?;
                if tensor.shape != shape {
                    let found = format!("shape {:?}", tensor.shape);
                    return Err(Error::format(origin, name, format!("shape {shape:?}"), found, help));
                }
                if tensor.values.len() != len {
                    let found = format!("{} values", tensor.values.len());
                    return Err(Error::format(origin, name, format!("{len} values"), found, "the file is damaged"));
                }
                if let Some(at) = tensor.values.iter().position(|v| !v.is_finite()) {
                    let found = format!("{} at element {at}", tensor.values[at]);
                    return Err(Error::format(origin, name, "finite values", found, "the training diverged"));
                }
                Ok(tensor.values.clone())
            }
        }
    }
}

/// Collects the parameters of a model under their names.
#[derive(Default)]
pub struct Export(pub BTreeMap<String, HostTensor>);

impl Export {
    /// A weight matrix, `[in, out]` in the module.
    pub fn weight<B: Backend>(&mut self, name: String, weight: &Param<Tensor<B, 2>>) {
        let [input, output] = weight.val().dims();
        let values = transpose(&to_host(weight.val()), input, output);
        self.0.insert(name, HostTensor { shape: vec![output, input], values });
    }

    /// A vector.
    pub fn vector<B: Backend>(&mut self, name: String, vector: &Param<Tensor<B, 1>>) {
        let values = to_host(vector.val());
        self.0.insert(name, HostTensor { shape: vec![values.len()], values });
    }
}

/// The values of a tensor as f32.
pub fn to_host<B: Backend, const D: usize>(tensor: Tensor<B, D>) -> Vec<f32> {
    download(vec![tensor])
}

/// `[rows, cols]` to `[cols, rows]`.
fn transpose(values: &[f32], rows: usize, cols: usize) -> Vec<f32> {
    (0..cols).flat_map(|c| (0..rows).map(move |r| values[r * cols + c])).collect()
}
