//! The features of a node classifier on a device: dense, or sparse where most of them are zero.

use std::ops::Range;

use burn::backend::Autodiff;
use burn::tensor::backend::Backend;
use burn::tensor::{DType, Tensor, TensorData};
use graphsieve_kernels::{Csr, Dropout, GraphBackend, SpmmConfig, dropout, linear, spmm, upload_data};

use super::device_graph::check_range;
use super::precision::as_dtype;
use crate::error::{Error, Result};
use crate::graph::{Features, NodeType};
use crate::nn::KeptRows;

/// Share of entries that are not zero below which a product over those entries alone is faster than a dense one: a
/// dense product does about ten multiplications in the time that a sparse one needs to look up a row.
const SPARSE_BELOW: f64 = 0.1;

/// Input vectors of the nodes of one type.
#[derive(Clone, Debug)]
pub enum NodeInput<B: Backend> {
    /// `[nodes, columns]`.
    Dense(Tensor<B, 2>),
    /// Rows are nodes, entries are columns.
    Sparse {
        /// Where the values are.
        columns: Csr<B>,
        /// One per entry, f32.
        values: Tensor<B, 1>,
        /// Storage of products.
        dtype: DType,
    },
}

impl<B: GraphBackend> NodeInput<B> {
    /// Uploads features, one input per node type, stored as `dtype`; with `row_normalise` those of every node divided
    /// by the sum of their absolute values.
    ///
    /// # Errors
    /// [`Error::Data`] when there are more than the kernels can index, and for a number that `dtype` does not hold.
    pub fn upload(
        node_types: &[NodeType],
        features: &Features,
        row_normalise: bool,
        dtype: DType,
        device: &B::Device,
    ) -> Result<Vec<Self>> {
        if !row_normalise {
            check_range(features, dtype)?;
        }
        let sparse = sparse_entries(features).is_some();
        let of_type = |t: &NodeType| {
            let rows = (t.offset..t.offset + t.count).map(|node| scaled_row(features, row_normalise, node));
            match sparse {
                // No device takes a copy of nothing.
                _ if t.count == 0 => Ok(NodeInput::Dense(Tensor::empty([0, features.dim()], (device, dtype)))),
                true => Self::sparse(rows, features.dim(), dtype, device),
                false => {
                    let data = TensorData::new(rows.flatten().collect::<Vec<f32>>(), [t.count, features.dim()]);
                    Ok(NodeInput::Dense(upload_data(data.convert_dtype(dtype), device)))
                }
            }
        };
        node_types.iter().map(of_type).collect()
    }

    fn sparse(
        rows: impl Iterator<Item = impl Iterator<Item = f32>>,
        width: usize,
        dtype: DType,
        device: &B::Device,
    ) -> Result<Self> {
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
        Ok(NodeInput::Sparse { columns, values: Tensor::from_data(TensorData::new(values, [len]), device), dtype })
    }

    /// The inputs, some of them dropped. Dropping an entry that is zero changes nothing, so only the others are looked
    /// at.
    pub fn dropped(self, drop: Option<Dropout>) -> Self {
        let Some(drop) = drop else { return self };
        match self {
            NodeInput::Dense(x) if x.dims()[0] == 0 => NodeInput::Dense(x),
            NodeInput::Dense(x) => NodeInput::Dense(dropout(x, &drop)),
            NodeInput::Sparse { columns, values, dtype } => {
                let len = values.dims()[0];
                let values = match len {
                    0 => values,
                    _ => dropout(values.reshape([len, 1]), &drop).reshape([len]),
                };
                NodeInput::Sparse { columns, values, dtype }
            }
        }
    }

    /// By what numbers dropout knows the first of these inputs among those of a type, behind those of `before`: rows,
    /// or entries that are not zero.
    pub fn first_behind(&self, features: &Features, row_normalise: bool, before: Range<usize>) -> usize {
        let entries = |node: usize| scaled_row(features, row_normalise, node).filter(|value| *value != 0.0).count();
        match self {
            NodeInput::Dense(_) => before.len(),
            NodeInput::Sparse { .. } => before.map(entries).sum(),
        }
    }

    /// The inputs times `weight` `[columns, channels]`.
    pub fn project(&self, weight: Tensor<B, 2>) -> Tensor<B, 2> {
        match self {
            NodeInput::Dense(x) => linear(x.clone(), weight, None),
            NodeInput::Sparse { columns, values, dtype } => {
                spmm(columns, as_dtype(weight, *dtype), Some(values.clone()), SpmmConfig::default())
            }
        }
    }

    /// Those of the rows after a layer.
    ///
    /// # Panics
    /// For a part of sparse inputs: they are there for whole graphs alone.
    pub fn selected(&self, kept: &KeptRows<B>) -> Self {
        match self {
            NodeInput::Dense(x) => NodeInput::Dense(kept.select(x.clone())),
            NodeInput::Sparse { columns, .. } => {
                let (want, got) = (columns.num_rows(), kept.after());
                assert_eq!(want, got, "NodeInput::selected: rows of sparse inputs: expected all {want}, got {got}");
                self.clone()
            }
        }
    }

    /// The dense rows.
    ///
    /// # Panics
    /// For sparse inputs.
    pub fn dense(self) -> Tensor<B, 2> {
        match self {
            NodeInput::Dense(x) => x,
            NodeInput::Sparse { .. } => panic!("NodeInput::dense: expected dense rows, got sparse ones"),
        }
    }

    /// The type of what is projected.
    pub fn dtype(&self) -> DType {
        match self {
            NodeInput::Dense(x) => x.dtype(),
            NodeInput::Sparse { dtype, .. } => *dtype,
        }
    }
}

/// The features of a node; normalised, they are divided by the sum of their absolute values. A node without features
/// stays without.
fn scaled_row(features: &Features, normalise: bool, node: usize) -> impl Iterator<Item = f32> {
    let sum: f64 = if normalise { features.row(node).map(|x| f64::from(x.abs())).sum() } else { 1.0 };
    let factor = if sum > 0.0 { 1.0 / sum } else { 0.0 };
    features.row(node).map(move |x| (f64::from(x) * factor) as f32)
}

impl<B: GraphBackend> NodeInput<Autodiff<B>> {
    /// The same arrays for passes that record nothing.
    pub fn inner(&self) -> NodeInput<B> {
        match self {
            NodeInput::Dense(x) => NodeInput::Dense(x.clone().inner()),
            NodeInput::Sparse { columns, values, dtype } => {
                NodeInput::Sparse { columns: columns.clone().inner(), values: values.clone().inner(), dtype: *dtype }
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
pub fn device_bytes(features: &Features, dtype: DType) -> [u64; 2] {
    let rows = features.num_rows() as u64;
    match sparse_entries(features) {
        // Values, and columns by row and rows by column.
        Some(entries) => [12 * entries as u64 + 4 * (rows + features.dim() as u64), 4 * entries as u64],
        None => [dtype.size() as u64 * rows * features.dim() as u64; 2],
    }
}

/// Rows of a mini-batch on the device.
#[derive(Clone, Debug)]
pub struct BatchRows<B: Backend> {
    /// `[type]`: `[rows, columns]`.
    pub x: Vec<Tensor<B, 2>>,
    /// `[rows, 1]`, f32, for graph convolution on one type: in-neighbours in the whole graph and the node itself, or of
    /// edges with weights the sum of these and 1.
    pub degree: Option<Tensor<B, 2>>,
    /// `[rows, 1]`, f32, where edges have weights: in-neighbours in the whole graph. Without them all neighbours were
    /// taken whose edges still have weights.
    pub neighbours: Option<Tensor<B, 2>>,
}

impl<B: Backend> BatchRows<B> {
    /// The same rows for a training: data, without a gradient.
    pub fn into_autodiff(self) -> BatchRows<Autodiff<B>> {
        BatchRows {
            x: self.x.into_iter().map(Tensor::from_inner).collect(),
            degree: self.degree.map(Tensor::from_inner),
            neighbours: self.neighbours.map(Tensor::from_inner),
        }
    }
}

#[cfg(test)]
mod tests {
    use burn_flex::{Flex, FlexDevice};

    use super::*;
    use crate::models::parameters::to_host;

    /// The input of a graph with one node type.
    fn upload(features: &Features, row_normalise: bool) -> NodeInput<Flex> {
        let types = [NodeType { name: "node".into(), offset: 0, count: features.num_rows() }];
        NodeInput::upload(&types, features, row_normalise, DType::F32, &FlexDevice).unwrap().swap_remove(0)
    }

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
            let input = upload(&features, false);
            assert_eq!(matches!(input, NodeInput::Sparse { .. }), every == 17);
            let dense = Tensor::from_data(
                TensorData::new((0..20).flat_map(|node| features.row(node)).collect::<Vec<_>>(), [20, 30]),
                &FlexDevice,
            );
            let (got, want) = (to_host(input.project(weight.clone())), to_host(dense.matmul(weight.clone())));
            assert!(got.iter().zip(&want).all(|(a, b)| (a - b).abs() < 1e-4), "{got:?} {want:?}");
        }
    }

    #[test]
    fn a_part_of_the_inputs_drops_what_it_drops_among_all() {
        for every in [3, 17] {
            let features = features(every);
            let drop = Dropout::new(0.5, 1, 2, 0, 0);
            let product =
                |input: NodeInput<Flex>, drop| to_host(input.dropped(drop).project(Tensor::ones([30, 1], &FlexDevice)));
            let types = [NodeType { name: "node".into(), offset: 7, count: 11 }];
            let part = NodeInput::<Flex>::upload(&types, &features, false, DType::F32, &FlexDevice).unwrap().remove(0);
            let first = part.first_behind(&features, false, 0..7) as u32;
            let of_part = product(part, drop.map(|drop| drop.with_bases(first, 0)));
            assert_eq!(of_part, product(upload(&features, false), drop)[7..18]);
        }
    }

    #[test]
    fn normalised_rows_add_up_to_one_and_empty_ones_stay_empty() {
        let mut values = vec![0.0f32; 3 * 2];
        values[..4].copy_from_slice(&[1.0, 3.0, -2.0, 2.0]);
        let input = upload(&Features::from_f32(values, 3, 2), true);
        let product = to_host(input.project(Tensor::eye(2, &FlexDevice)));
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
            let input = upload(&features, false);
            let ones = Tensor::ones([10 * every, 1], &FlexDevice);
            let kept: f32 = to_host(input.dropped(Dropout::new(0.6, 1, 2, 0, 0)).project(ones)).iter().sum();
            assert!((kept - 2_000.0).abs() < 200.0, "{every}: {kept}");
        }
    }
}
