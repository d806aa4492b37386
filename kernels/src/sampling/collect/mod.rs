//! The feature rows of a sampled batch, collected by the device from where they are: the batch before, a cache, or all
//! features.

#[cfg(feature = "cube")]
pub(crate) mod kernel;

use std::fmt;
use std::sync::Arc;

use burn::tensor::ops::{FloatTensor, IntTensor};
use burn::tensor::{DType, Tensor, TensorMetadata};

use crate::runtime::check;
use crate::runtime::host::index_tensor;
use crate::sampling::backend::{CollectStep, SampleBackend, Source};
use crate::sampling::row_buffer::PinnedRows;
use crate::sampling::sample::DeviceSample;

/// Where all features lie.
#[derive(Clone)]
pub enum RowSource<B: SampleBackend> {
    /// In page-locked host memory, which kernels read.
    Pinned(Arc<PinnedRows<B>>),
    /// On the device.
    Device(Tensor<B, 2>),
}

impl<B: SampleBackend> fmt::Debug for RowSource<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [rows, width] = self.dims();
        let place = if matches!(self, RowSource::Pinned(_)) { "host" } else { "device" };
        write!(f, "RowSource({rows} x {width}, {place})")
    }
}

impl<B: SampleBackend> RowSource<B> {
    fn dims(&self) -> [usize; 2] {
        match self {
            RowSource::Pinned(rows) => [rows.num_rows(), rows.width()],
            RowSource::Device(rows) => rows.dims(),
        }
    }

    fn dtype(&self) -> DType {
        match self {
            RowSource::Pinned(rows) => rows.dtype(),
            RowSource::Device(rows) => rows.dtype(),
        }
    }
}

/// In place of a row of the cache.
pub(crate) const COLD: u32 = u32::MAX;

/// Collects the rows of batches, each into a matrix of its own: rows that the batch before had are copied from its
/// matrix, rows of the cache from there, and only the others are fetched from where all features lie.
pub struct RowCollector<B: SampleBackend> {
    source: RowSource<B>,
    cache: Option<(IntTensor<B>, FloatTensor<B>)>,
    window: bool,
    before: Option<FloatTensor<B>>,
    device: B::Device,
}

impl<B: SampleBackend> fmt::Debug for RowCollector<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cached = self.cache.as_ref().map_or(0, |(_, rows)| rows.shape()[0]);
        write!(f, "RowCollector({:?}, {cached} cached, window {})", self.source, self.window)
    }
}

impl<B: SampleBackend> RowCollector<B> {
    /// Collects from `source`. The cache has the rows of nodes, numbered among all of them, in that order; with
    /// `window` a batch takes rows of the one before.
    ///
    /// # Panics
    /// If the cache has another width or dtype or not a row per node, a node of it does not exist, or there are too
    /// many rows to tell them apart by 32 bits.
    pub fn new(source: RowSource<B>, cache: Option<(&[u32], Tensor<B, 2>)>, window: bool, device: &B::Device) -> Self {
        const OP: &str = "RowCollector";
        let [nodes, width] = source.dims();
        let cache = cache.filter(|(rows, _)| !rows.is_empty()).map(|(listed, rows)| {
            check::size(OP, "rows of the cache", listed.len(), rows.dims()[0]);
            check::size(OP, "columns of the cache", width, rows.dims()[1]);
            assert!(
                rows.dtype() == source.dtype(),
                "{OP}: cache: expected {:?}, got {:?}",
                source.dtype(),
                rows.dtype()
            );
            let mut index = vec![COLD as i32; nodes];
            for (row, &node) in listed.iter().enumerate() {
                assert!((node as usize) < nodes, "{OP}: cache: expected nodes below {nodes}, got {node}");
                index[node as usize] = row as i32;
            }
            (index_tensor::<B>(index, device), rows.into_primitive().tensor())
        });
        // The batch before and the cache have at most as many rows.
        assert!(nodes < (COLD / 3) as usize, "{OP}: expected fewer than 2^32 / 3 rows, got {nodes}");
        Self { source, cache, window, before: None, device: device.clone() }
    }

    /// The rows of the nodes of a sample.
    pub(crate) fn collect(&mut self, sample: &DeviceSample<B>, tally: &IntTensor<B>) -> FloatTensor<B> {
        let [_, width] = self.source.dims();
        let dtype = self.source.dtype();
        let before = self.before.take().zip(sample.before.clone());
        if sample.spans.rows == 0 {
            return B::float_empty([0, width].into(), &self.device, dtype.into());
        }
        let rows = B::collect_rows(CollectStep {
            spans: sample.spans.clone(),
            nodes: sample.nodes().clone(),
            before: before.map(|(rows, places)| (places, rows)),
            cache: self.cache.clone(),
            source: match &self.source {
                RowSource::Pinned(rows) => Source::Behind { anchor: rows.anchor().clone(), delta: rows.delta() },
                RowSource::Device(rows) => Source::Matrix(rows.clone().into_primitive().tensor()),
            },
            width,
            dtype,
            tally: tally.clone(),
        });
        if self.window {
            self.before = Some(rows.clone());
        }
        rows
    }
}
