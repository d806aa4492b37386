//! What the operators are measured on: a relation, random features that are the same on every device, samples of rows.

use burn::backend::Autodiff;
use burn::tensor::{DType, Tensor};
use graphsieve_kernels::GraphBackend;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use super::exact::Matrix;
use super::{BenchOptions, no_edges, usage};
use crate::error::Result;
use crate::graph::{Adjacency, HeteroGraph, NodeType};
use crate::models::device_graph::upload_by_type;
use crate::models::parameters::to_host;
use crate::splitmix::mix;

/// A matrix on the device, and its values as stored there.
pub struct Stored<B: GraphBackend> {
    pub tensor: Tensor<B, 2>,
    values: Vec<f32>,
}

impl<B: GraphBackend> Stored<B> {
    /// Random values of mean 0 and standard deviation `scale`, stored as `dtype`.
    pub fn random(shape: [usize; 2], dtype: DType, scale: f32, key: u64, device: &B::Device) -> Self {
        let node_type = NodeType { name: String::new(), offset: 0, count: shape[0] };
        let value = |k: usize| scale * uniform(key, k as u64);
        Self::of(upload_by_type(std::slice::from_ref(&node_type), shape[1], dtype, device, &value).remove(0))
    }

    /// A matrix that there is.
    pub fn of(tensor: Tensor<B, 2>) -> Self {
        Self { values: to_host(tensor.clone()), tensor }
    }

    /// For the f64 computation.
    pub fn matrix(&self) -> Matrix<'_> {
        Matrix { values: &self.values, width: self.tensor.dims()[1] }
    }

    /// The matrix as an input that needs its gradient.
    pub fn tracked(&self) -> Tensor<Autodiff<B>, 2> {
        Tensor::from_inner(self.tensor.clone()).require_grad()
    }
}

/// The relation that was asked for, else the one with most edges.
pub fn choose(graph: &HeteroGraph, options: &BenchOptions) -> Result<usize> {
    let relations = graph.relations();
    let names = || relations.iter().map(|relation| relation.name.as_str()).collect::<Vec<_>>().join(", ");
    let id = match &options.relation {
        Some(name) => relations
            .iter()
            .position(|relation| relation.name == *name)
            .ok_or_else(|| usage("--relation", &names(), &format!("{name:?}"), "without it the largest is taken"))?,
        None => (0..relations.len())
            .max_by_key(|&id| relations[id].forward.num_edges())
            .ok_or_else(|| no_edges(&options.data))?,
    };
    if relations[id].forward.num_edges() == 0 { Err(no_edges(&options.data)) } else { Ok(id) }
}

/// The row with most entries.
pub fn longest_row(adjacency: &Adjacency) -> u32 {
    (0..adjacency.num_rows()).max_by_key(|&row| adjacency.degree(row)).unwrap_or_default() as u32
}

/// `count` distinct rows of `rows`, ascending, `one_more` among them.
pub fn sample_rows(rows: usize, count: usize, one_more: Option<u32>, seed: u64) -> Vec<u32> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let drawn = rand::seq::index::sample(&mut random, rows, count.min(rows));
    let mut list: Vec<u32> = drawn.into_iter().map(|row| row as u32).chain(one_more).collect();
    list.sort_unstable();
    list.dedup();
    list
}

/// The `k`-th value of a stream of mean 0 and variance 1, so that any thread can make any part of it.
pub fn uniform(key: u64, k: u64) -> f32 {
    let bits = mix(key ^ mix(k)) >> 40;
    (bits as f32 / (1u32 << 23) as f32 - 1.0) * 3f32.sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_distinct_and_hold_the_row_that_must_be_there() {
        let rows = sample_rows(1000, 10, Some(999), 1);
        assert!(rows.len() >= 10 && rows.contains(&999) && rows.windows(2).all(|pair| pair[0] < pair[1]), "{rows:?}");
        assert_eq!(sample_rows(3, 10, Some(1), 1), [0, 1, 2]);
    }

    #[test]
    fn random_values_have_mean_zero_and_variance_one() {
        let values: Vec<f64> = (0..100_000).map(|k| f64::from(uniform(7, k))).collect();
        let mean = values.iter().sum::<f64>() / 1e5;
        let variance = values.iter().map(|v| v * v).sum::<f64>() / 1e5;
        assert!(mean.abs() < 0.02 && (variance - 1.0).abs() < 0.02, "{mean} {variance}");
        assert_ne!(uniform(7, 0), uniform(8, 0));
    }
}
