//! The features of a node classifier on a device: dense, or sparse where most of them are zero.

use burn::backend::Autodiff;
use burn::tensor::backend::Backend;
use burn::tensor::{Tensor, TensorData};
use graphsieve_kernels::{Csr, Dropout, GraphBackend, SpmmConfig, dropout, linear, spmm};

use crate::error::{Error, Result};
use crate::graph::Features;

/// Share of entries that are not zero below which a product over those entries alone is faster than a dense one: a
/// dense product does about ten multiplications in the time that a sparse one needs to look up a row.
const SPARSE_BELOW: f64 = 0.1;

/// Input vectors of all nodes.
#[derive(Clone, Debug)]
pub enum NodeInput<B: Backend> {
    /// `[nodes, columns]`.
    Dense(Tensor<B, 2>),
    /// Rows are nodes, entries are columns.
    Sparse {
        /// Where the values are.
        columns: Csr<B>,
        /// One per entry.
        values: Tensor<B, 1>,
    },
}

impl<B: GraphBackend> NodeInput<B> {
    /// Uploads features; with `row_normalise` those of every node divided by the sum of their absolute values.
    ///
    /// # Errors
    /// [`Error::Data`] when there are more than the kernels can index.
    pub fn upload(features: &Features, row_normalise: bool, device: &B::Device) -> Result<Self> {
        let (nodes, width) = (features.num_rows(), features.dim());
        let rows = (0..nodes).map(|node| {
            let sum: f64 = if row_normalise { features.row(node).map(|x| f64::from(x.abs())).sum() } else { 1.0 };
            // A node without features stays without.
            let factor = if sum > 0.0 { 1.0 / sum } else { 0.0 };
            features.row(node).map(move |x| (f64::from(x) * factor) as f32)
        });
        if sparse_entries(features).is_none() {
            let values: Vec<f32> = rows.flatten().collect();
            return Ok(NodeInput::Dense(Tensor::from_data(TensorData::new(values, [nodes, width]), device)));
        }
        let (mut row_ptr, mut col_idx, mut values) = (vec![0u64], Vec::new(), Vec::new());
        for row in rows {
            for (column, value) in row.enumerate().filter(|(_, value)| *value != 0.0) {
                col_idx.push(column as u32);
                values.push(value);
            }
            row_ptr.push(col_idx.len() as u64);
        }
        let columns = Csr::from_host(&row_ptr, &col_idx, width, device).map_err(|problem| Error::Data {
            what: "features".into(),
            expected: "a matrix that the kernels can index".into(),
            found: problem.to_string(),
            help: "split the graph".into(),
        })?;
        let len = values.len();
        Ok(NodeInput::Sparse { columns, values: Tensor::from_data(TensorData::new(values, [len]), device) })
    }

    /// The inputs, some of them dropped, times `weight` `[columns, channels]`. Dropping an entry that is zero changes
    /// nothing, so only the others are looked at.
    pub fn project(&self, weight: Tensor<B, 2>, drop: Option<Dropout>) -> Tensor<B, 2> {
        match self {
            NodeInput::Dense(x) => linear(dropped(x.clone(), drop), weight, None),
            NodeInput::Sparse { columns, values } => {
                let len = values.dims()[0];
                let values = dropped(values.clone().reshape([len, 1]), drop).reshape([len]);
                spmm(columns, weight, Some(values), SpmmConfig::default())
            }
        }
    }
}

impl<B: GraphBackend> NodeInput<Autodiff<B>> {
    /// The same arrays for passes that record nothing.
    pub fn inner(&self) -> NodeInput<B> {
        match self {
            NodeInput::Dense(x) => NodeInput::Dense(x.clone().inner()),
            NodeInput::Sparse { columns, values } => {
                NodeInput::Sparse { columns: columns.clone().inner(), values: values.clone().inner() }
            }
        }
    }
}

/// Entries that are not zero, where there are so few of them that they alone are uploaded.
fn sparse_entries(features: &Features) -> Option<usize> {
    let (nodes, width) = (features.num_rows(), features.dim());
    let entries = (0..nodes).map(|node| features.row(node).filter(|x| *x != 0.0).count()).sum::<usize>();
    // No device uploads nothing.
    (entries > 0 && (entries as f64) < SPARSE_BELOW * (nodes * width) as f64).then_some(entries)
}

/// Bytes that [`NodeInput::upload`] takes on the device, and the values that dropout makes once more for a training.
pub fn device_bytes(features: &Features) -> [u64; 2] {
    let rows = features.num_rows() as u64;
    match sparse_entries(features) {
        // Values, and columns by row and rows by column.
        Some(entries) => [12 * entries as u64 + 4 * (rows + features.dim() as u64), 4 * entries as u64],
        None => [4 * rows * features.dim() as u64; 2],
    }
}

/// `x` with some elements dropped in training.
pub(super) fn dropped<B: GraphBackend>(x: Tensor<B, 2>, drop: Option<Dropout>) -> Tensor<B, 2> {
    match drop {
        Some(drop) => dropout(x, &drop),
        None => x,
    }
}

/// Rows of a mini-batch on the device.
#[derive(Clone, Debug)]
pub struct BatchRows<B: Backend> {
    /// `[rows, columns]`, f32.
    pub x: Tensor<B, 2>,
    /// `[rows, 1]`, f32, for graph convolution: in-neighbours in the whole graph and the node itself.
    pub degree: Option<Tensor<B, 2>>,
}

impl<B: Backend> BatchRows<B> {
    /// The same rows for a training: data, without a gradient.
    pub fn into_autodiff(self) -> BatchRows<Autodiff<B>> {
        BatchRows { x: Tensor::from_inner(self.x), degree: self.degree.map(Tensor::from_inner) }
    }
}

#[cfg(test)]
mod tests {
    use burn_flex::{Flex, FlexDevice};

    use super::*;
    use crate::models::parameters::to_host;

    /// 20 nodes with 30 columns of which every `every`-th entry is not zero.
    fn features(every: usize) -> Features {
        let value = |at: usize| if at.is_multiple_of(every) { (at % 7) as f32 - 2.5 } else { 0.0 };
        Features::from_f32((0..20 * 30).map(value).collect(), 20, 30)
    }

    #[test]
    fn sparse_and_dense_inputs_have_the_same_product() {
        let weight = Tensor::<Flex, 2>::from_data(
            TensorData::new((0..30 * 4).map(|k| (k % 11) as f32 / 8.0 - 0.5).collect::<Vec<_>>(), [30, 4]),
            &FlexDevice,
        );
        for every in [3, 17] {
            let features = features(every);
            let input = NodeInput::<Flex>::upload(&features, false, &FlexDevice).unwrap();
            assert_eq!(matches!(input, NodeInput::Sparse { .. }), every == 17);
            let dense = Tensor::from_data(
                TensorData::new((0..20).flat_map(|node| features.row(node)).collect::<Vec<_>>(), [20, 30]),
                &FlexDevice,
            );
            let (got, want) = (to_host(input.project(weight.clone(), None)), to_host(dense.matmul(weight.clone())));
            assert!(got.iter().zip(&want).all(|(a, b)| (a - b).abs() < 1e-4), "{got:?} {want:?}");
        }
    }

    #[test]
    fn normalised_rows_add_up_to_one_and_empty_ones_stay_empty() {
        let mut values = vec![0.0f32; 3 * 2];
        values[..4].copy_from_slice(&[1.0, 3.0, -2.0, 2.0]);
        let input = NodeInput::<Flex>::upload(&Features::from_f32(values, 3, 2), true, &FlexDevice).unwrap();
        let product = to_host(input.project(Tensor::eye(2, &FlexDevice), None));
        assert_eq!(product, [0.25, 0.75, -0.5, 0.5, 0.0, 0.0]);
    }

    #[test]
    fn dropped_entries_keep_the_mean_of_the_product() {
        for every in [1, 11] {
            let features = Features::from_f32(
                vec![1.0; 2_000 * every]
                    .iter()
                    .enumerate()
                    .map(|(at, one)| if at.is_multiple_of(every) { *one } else { 0.0 })
                    .collect(),
                200,
                10 * every,
            );
            let input = NodeInput::<Flex>::upload(&features, false, &FlexDevice).unwrap();
            let ones = Tensor::ones([10 * every, 1], &FlexDevice);
            let kept: f32 = to_host(input.project(ones, Dropout::new(0.6, 1, 2, 0, 0))).iter().sum();
            assert!((kept - 2_000.0).abs() < 200.0, "{every}: {kept}");
        }
    }
}
