//! The columns, computed with the sparse operators, a few features at a time.

use burn::tensor::backend::Backend;
use burn::tensor::{DType, Tensor, TensorData};
use graphsieve_kernels::{GraphBackend, Reduce, upload_data};
use half::f16;
use rayon::prelude::*;

use super::columns::Block;
use super::operator::{Known, Operator, wide};
use super::plan::Neighbourhood;
use super::table::{FeatureTable, Piece};
use super::view::View;
use super::wavelets::coefficients;
use crate::error::{Error, Result};
use crate::graph::{FeatureValues, Spill};

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

impl Neighbourhood<'_> {
    /// Computes all columns and hands them to `sink`, each column once. Pieces come in no particular order.
    ///
    /// # Errors
    /// What `sink` returns; [`Error::Data`] for a value that is too large for the storage or a graph that the kernels
    /// cannot index; [`Error::DeviceFailed`] when the device fails.
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
        let mut missing = self.features.missing();
        missing.iter_mut().zip(&self.missing).for_each(|(missing, &elsewhere)| *missing |= elsewhere);
        let mut emit = |first: usize, width: usize, values: Vec<f32>, may_miss: bool| {
            self.check_finite(first, width, &values, may_miss)?;
            sink(Piece { first, width, values })
        };
        let dim = self.features.dim();
        if let Some(first) = self.first(0, Block::Raw, 0) {
            for start in (0..dim).step_by(execution.columns) {
                let width = execution.columns.min(dim - start);
                emit(first + start, width, self.raw(start, width, f32::from, |x| x), true)?;
            }
        }
        for (index, view) in self.views.iter().enumerate() {
            if let Some(first) = self.first(index, Block::Degree, 0) {
                let degree = |node| (view.num_neighbours(node) as f32).ln_1p();
                emit(first, 1, (0..self.num_nodes()).map(degree).collect(), false)?;
            }
            for start in (0..dim).step_by(execution.columns).filter(|_| view.in_blocks) {
                let width = execution.columns.min(dim - start);
                for (at, values) in self.quantiles(view, start, width).into_iter().enumerate() {
                    if let Some(first) = self.first(index, Block::Quantiles, at) {
                        emit(first + start, width, values, true)?;
                    }
                }
            }
            if !view.in_blocks || !self.config.walks() {
                continue;
            }
            // One relation is on the device at a time.
            let operator = Operator::<B>::upload(view, device)?;
            for start in (0..dim).step_by(execution.columns) {
                let width = execution.columns.min(dim - start);
                let misses = missing[start..start + width].contains(&true);
                let x = self.upload::<B>(start, width, execution.dtype, misses, device);
                self.blocks(
                    index,
                    &operator,
                    x,
                    &mut |block, at, values: Known<B>| match self.first(index, block, at) {
                        Some(first) => emit(first + start, width, values.read()?, misses),
                        None => Ok(()),
                    },
                )?;
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
        self.table_within::<B>(&Spill::default(), device, execution)
    }

    /// The same, with columns in files where they need more memory than `spill` has.
    ///
    /// # Errors
    /// As for [`stream`](Self::stream); a file that cannot be written.
    ///
    /// # Panics
    /// As for [`stream`](Self::stream).
    pub fn table_within<B: GraphBackend>(
        &self,
        spill: &Spill,
        device: &B::Device,
        execution: Execution,
    ) -> Result<FeatureTable> {
        FeatureTable::filled(self.num_nodes(), self.columns().to_vec(), spill, |sink| {
            self.stream::<B>(device, execution, sink)
        })
    }

    /// All wanted blocks of one view over some features `x`.
    fn blocks<B: GraphBackend>(
        &self,
        view: usize,
        operator: &Operator<B>,
        x: Known<B>,
        emit: &mut impl FnMut(Block, usize, Known<B>) -> Result<()>,
    ) -> Result<()> {
        let config = &self.config;
        let wavelets = self.first(view, Block::Wavelets, 0).is_some();
        let looks_at_first = config.difference || (wavelets && x.known.is_some());
        let hops = if config.mean { config.hops } else { usize::from(looks_at_first) };
        let mut mean = x.clone();
        let mut of_neighbours = None;
        for hop in 1..=hops {
            mean = operator.mean_of(mean);
            if hop == 1 && config.difference {
                emit(Block::Difference, 0, x.clone().less(mean.clone()))?;
            }
            if config.mean {
                emit(Block::Mean, hop, mean.clone())?;
            }
            of_neighbours.get_or_insert_with(|| mean.clone());
        }
        for (wanted, block, reduce) in [(config.max, Block::Max, Reduce::Max), (config.sum, Block::Sum, Reduce::Sum)] {
            let mut reduced = x.clone();
            for hop in (1..=config.hops).filter(|_| wanted) {
                reduced = operator.reduce(reduced, reduce);
                emit(block.clone(), hop, reduced.clone())?;
            }
        }
        if wavelets {
            let coefficients = coefficients(config.wavelet_order);
            let mut power = x.filled(of_neighbours);
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
                emit(Block::Wavelets, at, Known { x: filter, known: None })?;
            }
        }
        Ok(())
    }

    /// For each of the quantiles its values for features `start..start + width` of all nodes, row-major: over the
    /// in-neighbours that have one, linear between neighbouring values; NaN without any.
    fn quantiles(&self, view: &View, start: usize, width: usize) -> Vec<Vec<f32>> {
        let quantiles = &self.config.quantiles;
        if quantiles.is_empty() {
            return Vec::new();
        }
        let x = self.raw(start, width, f32::from, |x| x);
        let mut rows = vec![0f32; self.num_nodes() * width * quantiles.len()];
        let of_node = |(neighbours, sorted): &mut (Vec<u32>, Vec<f32>), (node, out): (usize, &mut [f32])| {
            view.neighbours(node, neighbours);
            for (column, out) in out.chunks_exact_mut(quantiles.len()).enumerate() {
                let values = neighbours.iter().map(|&j| x[j as usize * width + column]);
                sorted.clear();
                sorted.extend(values.filter(|value| !value.is_nan()));
                sorted.sort_unstable_by(f32::total_cmp);
                out.iter_mut().zip(quantiles).for_each(|(out, &quantile)| *out = quantile_of(sorted, quantile));
            }
        };
        rows.par_chunks_exact_mut(width * quantiles.len()).enumerate().for_each_init(Default::default, of_node);
        let of_quantile = |at: usize| -> Vec<f32> { rows.iter().skip(at).step_by(quantiles.len()).copied().collect() };
        (0..quantiles.len()).map(of_quantile).collect()
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

    fn upload<B: Backend>(
        &self,
        start: usize,
        width: usize,
        dtype: DType,
        misses: bool,
        device: &B::Device,
    ) -> Known<B> {
        let shape = [self.num_nodes(), width];
        let upload = |value: &(dyn Fn(f32) -> f32 + Sync)| -> Tensor<B, 2> {
            let data = match dtype {
                DType::F16 => {
                    let narrow = |x| f16::from_f32(value(x));
                    TensorData::new(self.raw(start, width, |x| narrow(x.to_f32()), narrow), shape)
                }
                _ => TensorData::new(self.raw(start, width, |x| value(x.to_f32()), value), shape),
            };
            upload_data(data, device)
        };
        match misses {
            false => Known { x: upload(&|x: f32| x), known: None },
            true => Known {
                x: upload(&|x: f32| if x.is_nan() { 0.0 } else { x }),
                known: Some(upload(&|x: f32| f32::from(u8::from(!x.is_nan())))),
            },
        }
    }

    fn check_finite(&self, first: usize, width: usize, values: &[f32], may_miss: bool) -> Result<()> {
        let refused = |value: &f32| !(value.is_finite() || may_miss && value.is_nan());
        match values.par_iter().position_first(refused) {
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

/// The quantile of sorted values, linear between neighbouring ones; NaN of none.
fn quantile_of(sorted: &[f32], quantile: f64) -> f32 {
    let Some(last) = sorted.len().checked_sub(1) else { return f32::NAN };
    let place = quantile * last as f64;
    let (below, above) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
    (f64::from(below) + place.fract() * (f64::from(above) - f64::from(below))) as f32
}
