//! Feature rows in host memory.

use std::ops::{BitAnd, Range};
use std::sync::Arc;

use burn::tensor::{DType, Tensor, TensorData};
use graphsieve_kernels::{PinnedRows, RowSource, SampleBackend, upload, upload_data};
use half::f16;
use half::slice::HalfFloatSliceExt;
use rayon::prelude::*;

use super::divided::{Deal, Part};
use crate::error::Result;
use crate::graph::{FeatureValues, Features, HeteroGraph, NodeType};

/// Rows of one task.
const TASK_ROWS: usize = 64;

/// The features of all nodes in host memory, of which a device gets the rows that it asks for. Clones share the values.
///
/// `&store & &nodes` fetches rows by their global ids.
///
/// # Example
/// ```
/// use burn_flex::Flex;
/// use graphsieve::graph::{Features, HeteroGraph};
/// use graphsieve::loader::FeatureStore;
/// let graph = HeteroGraph::new(vec![("user".into(), 2), ("item".into(), 1)], vec![])?;
/// let features = Features::from_f32(vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 3, 2);
/// let store = FeatureStore::<Flex>::new(features, &graph, &Default::default())?;
/// let rows = &store & &vec![2, 0];
/// assert_eq!(rows.into_data().to_vec::<f32>().unwrap(), [5.0, 6.0, 1.0, 2.0]);
/// # Ok::<(), graphsieve::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct FeatureStore<B: SampleBackend> {
    features: Features,
    node_types: Arc<[NodeType]>,
    dtype: DType,
    device: B::Device,
    /// Where the device reads rows itself.
    source: Option<RowSource<B>>,
    /// The part of this rank, where they are divided.
    part: Option<Arc<Part<B>>>,
}

impl<B: SampleBackend> FeatureStore<B> {
    /// The features of the nodes of `graph`. Rows travel and are kept on the device as they are stored, in f16 or f32,
    /// where the device has that type.
    ///
    /// # Errors
    /// [`Error::Data`](crate::Error::Data) unless there is a row per node.
    pub fn new(features: Features, graph: &HeteroGraph, device: &B::Device) -> Result<Self> {
        features.check_rows(graph.num_nodes())?;
        let half = matches!(features.values(), FeatureValues::Half(_)) && B::supports_dtype(device, DType::F16);
        let dtype = if half { DType::F16 } else { DType::F32 };
        let (node_types, device) = (graph.node_types().into(), device.clone());
        Ok(FeatureStore { features, node_types, dtype, device, source: None, part: None })
    }

    /// The same features in page-locked memory, from which kernels of the device read rows themselves. It holds all
    /// features once more. Where that cannot be they are as before, and the second says why.
    pub fn pin(mut self) -> (Self, Option<String>) {
        let shape = [self.features.num_rows(), self.width()];
        let pinned = PinnedRows::new(shape, self.dtype, &self.device, |bytes| match self.features.values() {
            FeatureValues::Single(values) => copy(bytes, bytemuck::cast_slice(values)),
            FeatureValues::Half(values) if self.dtype == DType::F16 => copy(bytes, bytemuck::cast_slice(values)),
            FeatureValues::Half(values) => {
                bytes.par_chunks_mut(4).zip(values).for_each(|(to, value)| {
                    to.copy_from_slice(&value.to_f32().to_ne_bytes());
                });
            }
        });
        match pinned {
            Ok(pinned) => {
                self.source = Some(RowSource::Pinned(Arc::new(pinned)));
                (self, None)
            }
            Err(reason) => (self, Some(reason)),
        }
    }

    /// The same features in the memory of the device: then rows move only there.
    pub fn resident(mut self) -> Self {
        let (shape, device) = ([self.num_rows(), self.width()], &self.device);
        let rows = match self.features.values() {
            FeatureValues::Single(all) => {
                upload(shape, device, |first, to| to.copy_from_slice(&all[first..][..to.len()]))
            }
            FeatureValues::Half(all) if self.dtype == DType::F16 => {
                upload(shape, device, |first, to| to.copy_from_slice(&all[first..][..to.len()]))
            }
            FeatureValues::Half(all) => {
                upload(shape, device, |first, to| all[first..][..to.len()].convert_to_f32_slice(to))
            }
        };
        self.source = Some(RowSource::Device(rows));
        self
    }

    /// The same features divided over the devices of several ranks: this one has what `deal` gives it, and batches are
    /// taken by [`Loader::next_of`](super::Loader::next_of).
    pub fn divided(mut self, deal: Deal) -> Self {
        let own = deal.own(self.features.num_rows());
        let rows = match own.is_empty() {
            // No device takes a launch over nothing.
            true => Tensor::empty([0, self.width()], (&self.device, self.dtype)),
            false => &self & &own,
        };
        (self.source, self.part) = (None, Some(Arc::new(Part { deal, rows })));
        self
    }

    /// Whether ranks have a part of the rows each.
    pub fn is_divided(&self) -> bool {
        self.part.is_some()
    }

    /// The part of this rank, where they are divided.
    pub(super) fn part(&self) -> Option<&Part<B>> {
        self.part.as_deref()
    }

    /// Where kernels of the device read rows themselves; `None` where the processor gathers them.
    pub fn source(&self) -> Option<&RowSource<B>> {
        self.source.as_ref()
    }

    /// The features in page-locked memory, where they are.
    pub fn pinned(&self) -> Option<&PinnedRows<B>> {
        match &self.source {
            Some(RowSource::Pinned(rows)) => Some(rows),
            _ => None,
        }
    }

    /// Whether kernels of the device read page-locked host memory at all.
    pub fn can_pin(&self) -> bool {
        PinnedRows::<B>::new([1, 1], DType::F32, &self.device, |_| ()).is_ok()
    }

    /// Whether all rows are on the device.
    pub fn is_resident(&self) -> bool {
        matches!(self.source, Some(RowSource::Device(_)))
    }

    /// Bytes of the rows that the device has for good, besides a cache.
    pub fn bytes_on_device(&self) -> usize {
        match &self.part {
            Some(part) => part.rows.dims()[0] * self.row_bytes(),
            None if self.is_resident() => self.bytes(),
            None => 0,
        }
    }

    /// Bytes of all rows.
    pub fn bytes(&self) -> usize {
        self.features.num_rows() * self.row_bytes()
    }

    /// Number of rows.
    pub fn num_rows(&self) -> usize {
        self.features.num_rows()
    }

    /// Number of columns.
    pub fn width(&self) -> usize {
        self.features.dim()
    }

    /// How a value travels.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Bytes of a row.
    pub fn row_bytes(&self) -> usize {
        self.width() * self.dtype.size()
    }

    /// Where the rows go.
    pub fn device(&self) -> &B::Device {
        &self.device
    }

    /// The types of the nodes.
    pub fn node_types(&self) -> &[NodeType] {
        &self.node_types
    }

    /// The rows of nodes of a type, numbered within it, on the host.
    ///
    /// # Panics
    /// For a type or a node that does not exist.
    pub fn gather(&self, node_type: usize, nodes: &[u32]) -> TensorData {
        let NodeType { offset, count, .. } = self.node_types[node_type];
        host_rows(&self.features, self.dtype, offset..offset + count, nodes)
    }

    /// Host rows as a tensor of the device.
    pub fn upload(&self, rows: TensorData) -> Tensor<B, 2> {
        upload_data(rows, &self.device)
    }
}

impl<B: SampleBackend> BitAnd<&Vec<u32>> for &FeatureStore<B> {
    type Output = Tensor<B, 2>;

    /// The rows of nodes by their global ids.
    ///
    /// # Panics
    /// For a node that does not exist.
    fn bitand(self, nodes: &Vec<u32>) -> Tensor<B, 2> {
        self.upload(host_rows(&self.features, self.dtype, 0..self.features.num_rows(), nodes))
    }
}

/// Copies bytes, on all threads.
fn copy(to: &mut [u8], from: &[u8]) {
    const PART: usize = 1 << 20;
    to.par_chunks_mut(PART).zip(from.par_chunks(PART)).for_each(|(to, from)| to.copy_from_slice(from));
}

/// Rows of nodes that are numbered within `of`, in the format in which a device stores them.
///
/// # Panics
/// For a node that does not exist.
fn host_rows(features: &Features, dtype: DType, of: Range<usize>, nodes: &[u32]) -> TensorData {
    let width = features.dim();
    match features.values() {
        FeatureValues::Single(values) => gathered(values, width, of, nodes, |v| v),
        FeatureValues::Half(values) if dtype == DType::F16 => gathered(values, width, of, nodes, |v| v),
        FeatureValues::Half(values) => gathered(values, width, of, nodes, f16::to_f32),
    }
}

/// Rows of `values`, each converted by `convert`.
fn gathered<T: Copy + Sync, E: burn::tensor::Element + Default>(
    values: &[T],
    width: usize,
    of: Range<usize>,
    nodes: &[u32],
    convert: impl Fn(T) -> E + Sync,
) -> TensorData {
    let mut rows = vec![E::default(); nodes.len() * width];
    if width > 0 {
        rows.par_chunks_mut(width).zip(nodes).with_min_len(TASK_ROWS).for_each(|(row, &node)| {
            assert!((node as usize) < of.len(), "FeatureStore: expected nodes below {}, got {node}", of.len());
            let node = of.start + node as usize;
            let from = &values[node * width..(node + 1) * width];
            row.iter_mut().zip(from).for_each(|(to, &value)| *to = convert(value));
        });
    }
    TensorData::new(rows, [nodes.len(), width])
}
