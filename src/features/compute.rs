//! The columns, computed with the sparse operators, a few features at a time.

use burn::tensor::backend::Backend;
use burn::tensor::{DType, Tensor, TensorData};
use graphsieve_kernels::{Csr, GraphBackend, Message, Reduce, SpmmConfig, Strategy, gspmm, spmm};
use half::f16;
use rayon::prelude::*;

use super::columns::Block;
use super::plan::Neighbourhood;
use super::table::FeatureTable;
use super::view::View;
use super::wavelets::coefficients;
use crate::error::{Error, MEMORY_HELP, Result};
use crate::graph::{FeatureValues, Rows};

/// How columns are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Execution {
    /// Storage on the device, f32 or f16; sums are f32 either way, and so are the columns that come out. Default f32.
    pub dtype: DType,
    /// Features that are on the device at a time, at least 1. With `hops` = `wavelet_order` = 2 about six matrices of
    /// so many columns are alive at once: 0.6 GB for 1.5 million nodes and the default of 16, one cache line of f32.
    pub columns: usize,
}

impl Default for Execution {
    fn default() -> Self {
        Self { dtype: DType::F32, columns: 16 }
    }
}

/// Some columns of all nodes.
#[derive(Debug)]
pub struct Piece {
    /// Number of the first column.
    pub first: usize,
    /// Number of columns.
    pub width: usize,
    /// `[nodes, width]`, row-major, all finite.
    pub values: Vec<f32>,
}

impl Neighbourhood<'_> {
    /// Computes all columns and hands them to `sink`, each column once. Pieces come in no particular order.
    ///
    /// # Errors
    /// What `sink` returns; [`Error::Data`] for a value that is too large for the storage or a graph that the kernels
    /// cannot index; [`Error::Device`] when the device fails.
    ///
    /// # Panics
    /// If [`Execution::columns`] is 0 or [`Execution::dtype`] is neither f32 nor f16.
    pub fn stream<B: GraphBackend>(
        &self,
        device: &B::Device,
        execution: Execution,
        mut sink: impl FnMut(Piece) -> Result<()>,
    ) -> Result<()> {
        assert!(execution.columns > 0, "features: columns: expected at least 1");
        assert!(matches!(execution.dtype, DType::F32 | DType::F16), "features: dtype: expected f32 or f16");
        if self.num_nodes() == 0 {
            return Ok(());
        }
        let mut emit = |first: usize, width: usize, values: Vec<f32>| {
            self.check_finite(first, width, &values)?;
            sink(Piece { first, width, values })
        };
        let dim = self.features.dim();
        if let Some(first) = self.first(0, Block::Raw, 0) {
            for start in (0..dim).step_by(execution.columns) {
                let width = execution.columns.min(dim - start);
                emit(first + start, width, self.raw(start, width, f32::from, |x| x))?;
            }
        }
        for (index, view) in self.views.iter().enumerate() {
            if let Some(first) = self.first(index, Block::Degree, 0) {
                let degree = |node| (view.adjacency.degree(node) as f32).ln_1p();
                emit(first, 1, (0..self.num_nodes()).map(degree).collect())?;
            }
            if !view.in_blocks || !self.config.walks() {
                continue;
            }
            // One relation is on the device at a time.
            let operator = Operator::<B>::upload(view, device)?;
            for start in (0..dim).step_by(execution.columns) {
                let width = execution.columns.min(dim - start);
                let x = self.upload::<B>(start, width, execution.dtype, device);
                self.blocks(index, &operator, x, &mut |block, at, values| match self.first(index, block, at) {
                    Some(first) => emit(first + start, width, read(values)?),
                    None => Ok(()),
                })?;
            }
        }
        Ok(())
    }

    /// All columns as one matrix.
    ///
    /// # Errors
    /// As for [`stream`](Self::stream).
    ///
    /// # Panics
    /// As for [`stream`](Self::stream).
    pub fn table<B: GraphBackend>(&self, device: &B::Device, execution: Execution) -> Result<FeatureTable> {
        let mut table = FeatureTable::zeros(self.num_nodes(), self.columns().to_vec());
        self.stream::<B>(device, execution, |piece| {
            table.fill(&piece);
            Ok(())
        })?;
        Ok(table)
    }

    /// All wanted blocks of one view over some features `x`.
    fn blocks<B: GraphBackend>(
        &self,
        view: usize,
        operator: &Operator<B>,
        x: Tensor<B, 2>,
        emit: &mut impl FnMut(Block, usize, Tensor<B, 2>) -> Result<()>,
    ) -> Result<()> {
        let config = &self.config;
        let hops = if config.mean { config.hops } else { usize::from(config.difference) };
        let mut mean = x.clone();
        for hop in 1..=hops {
            mean = operator.mean(mean);
            if hop == 1 && config.difference {
                emit(Block::Difference, 0, wide(x.clone()) - wide(mean.clone()))?;
            }
            if config.mean {
                emit(Block::Mean, hop, mean.clone())?;
            }
        }
        for (wanted, block, reduce) in [(config.max, Block::Max, Reduce::Max), (config.sum, Block::Sum, Reduce::Sum)] {
            let mut reduced = x.clone();
            for hop in (1..=config.hops).filter(|_| wanted) {
                reduced = operator.reduce(reduced, reduce);
                emit(block.clone(), hop, reduced.clone())?;
            }
        }
        if self.first(view, Block::Wavelets, 0).is_some() {
            let coefficients = coefficients(config.wavelet_order);
            let mut power = x;
            let mut filters: Vec<Option<Tensor<B, 2>>> = vec![None; coefficients.len()];
            for (k, row) in coefficients.iter().enumerate() {
                if k > 0 {
                    power = operator.normalised(power);
                }
                let power = wide(power.clone());
                for (filter, &c) in filters.iter_mut().zip(row).filter(|(_, c)| **c != 0.0) {
                    let term = power.clone() * c;
                    *filter = Some(match filter.take() {
                        Some(sum) => sum + term,
                        None => term,
                    });
                }
            }
            for (at, filter) in filters.into_iter().flatten().enumerate() {
                emit(Block::Wavelets, at, filter)?;
            }
        }
        Ok(())
    }

    /// Features `start..start + width` of all nodes, row-major.
    fn raw<T: Send>(
        &self,
        start: usize,
        width: usize,
        half: impl Fn(f16) -> T + Sync,
        single: impl Fn(f32) -> T + Sync,
    ) -> Vec<T> {
        let dim = self.features.dim();
        let at = |k: usize| k / width * dim + start + k % width;
        let elements = (0..self.num_nodes() * width).into_par_iter();
        match self.features.values() {
            FeatureValues::Half(values) => elements.map(|k| half(values[at(k)])).collect(),
            FeatureValues::Single(values) => elements.map(|k| single(values[at(k)])).collect(),
        }
    }

    fn upload<B: Backend>(&self, start: usize, width: usize, dtype: DType, device: &B::Device) -> Tensor<B, 2> {
        let shape = [self.num_nodes(), width];
        let data = match dtype {
            DType::F16 => TensorData::new(self.raw(start, width, |x| x, f16::from_f32), shape),
            _ => TensorData::new(self.raw(start, width, f32::from, |x| x), shape),
        };
        Tensor::from_data(data, (device, dtype))
    }

    fn check_finite(&self, first: usize, width: usize, values: &[f32]) -> Result<()> {
        match values.par_iter().position_first(|value| !value.is_finite()) {
            None => Ok(()),
            Some(at) => Err(Error::Data {
                what: format!("feature {} of node {}", self.columns()[first + at % width].name, at / width),
                expected: "a finite number".into(),
                found: values[at].to_string(),
                help: "scale the features, leave `sum` out, or compute in f32: f16 ends at 65504".into(),
            }),
        }
    }
}

/// The operators of one view.
struct Operator<B: Backend> {
    csr: Csr<B>,
    /// `1 / degree`, and its root; 1 for a node without in-neighbours.
    inverse: Tensor<B, 1>,
    root: Tensor<B, 1>,
}

impl<B: GraphBackend> Operator<B> {
    fn upload(view: &View, device: &B::Device) -> Result<Self> {
        let (col_idx, num_cols) = (view.adjacency.col_idx(), view.adjacency.num_cols());
        let csr = match view.adjacency.rows() {
            Rows::Lists { row_ptr } if view.symmetric => Csr::<B>::from_host_symmetric(row_ptr, col_idx, device),
            Rows::Lists { row_ptr } => Csr::<B>::from_host(row_ptr, col_idx, num_cols, device),
            Rows::Spans { start, end } => Csr::<B>::from_spans(start, &end, col_idx, num_cols, device),
        };
        let csr = csr.map_err(|problem| Error::Data {
            what: "edges of all relations".into(),
            expected: "an adjacency that the kernels can index".into(),
            found: problem.to_string(),
            help: "split the graph".into(),
        })?;
        let inverse = csr.degrees().clamp_min(1.0).recip();
        Ok(Self { csr, root: inverse.clone().sqrt(), inverse })
    }

    /// `D^-1 A x`.
    fn mean(&self, x: Tensor<B, 2>) -> Tensor<B, 2> {
        let config = SpmmConfig { dst_scale: Some(self.inverse.clone()), ..Default::default() };
        spmm(&self.csr, x, None, config)
    }

    /// `D^-1/2 A D^-1/2 x`.
    fn normalised(&self, x: Tensor<B, 2>) -> Tensor<B, 2> {
        let scale = Some(self.root.clone());
        let config = SpmmConfig { dst_scale: scale.clone(), src_scale: scale, ..Default::default() };
        spmm(&self.csr, x, None, config)
    }

    fn reduce(&self, x: Tensor<B, 2>, reduce: Reduce) -> Tensor<B, 2> {
        gspmm(&self.csr, Message::CopyU(x), reduce, Strategy::Auto)
    }
}

/// In f32: differences and sums of filters cancel.
fn wide<B: Backend>(x: Tensor<B, 2>) -> Tensor<B, 2> {
    if x.dtype() == DType::F32 { x } else { x.cast(DType::F32) }
}

/// The values on the host.
fn read<B: Backend>(values: Tensor<B, 2>) -> Result<Vec<f32>> {
    let data = wide(values).into_data();
    let failed = |reason: String| Error::Device { device: "of the features".into(), reason, help: MEMORY_HELP.into() };
    match graphsieve_kernels::device::failure() {
        Some(reason) => Err(failed(reason.to_string())),
        None => data.into_vec::<f32>().map_err(|problem| failed(format!("{problem:?}"))),
    }
}
