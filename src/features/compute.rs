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
use crate::graph::{Adjacency, FeatureValues, Rows};

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
    /// `[nodes, width]`, row-major: finite, or NaN for what is missing.
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
        let missing = self.features.missing();
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
            Tensor::from_data(data, (device, dtype))
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

/// Values of which some may be missing.
#[derive(Clone)]
struct Known<B: Backend> {
    /// 0 where a value is missing.
    x: Tensor<B, 2>,
    /// 1 where a value is known, 0 elsewhere; nothing where all are.
    known: Option<Tensor<B, 2>>,
}

impl<B: Backend> Known<B> {
    /// The difference, in f32; missing where either is.
    fn less(self, other: Self) -> Self {
        let known = match (self.known, other.known) {
            (Some(a), Some(b)) => Some(a * b),
            (a, b) => a.or(b),
        };
        let x = wide(self.x) - wide(other.x);
        Self { x: masked(x, known.as_ref()), known }
    }

    /// The values, those of `others` where they are missing, 0 where these are, too.
    fn filled(self, others: Option<Self>) -> Tensor<B, 2> {
        match (self.known, others) {
            (Some(known), Some(others)) => self.x + (known.neg() + 1.0) * others.x,
            _ => self.x,
        }
    }

    /// The values on the host, NaN where they are missing.
    fn read(self) -> Result<Vec<f32>> {
        let mut values = read(self.x)?;
        if let Some(known) = self.known {
            values.par_iter_mut().zip(read(known)?).filter(|(_, known)| *known == 0.0).for_each(|(value, _)| {
                *value = f32::NAN;
            });
        }
        Ok(values)
    }
}

/// 0 where a value is missing.
fn masked<B: Backend>(x: Tensor<B, 2>, known: Option<&Tensor<B, 2>>) -> Tensor<B, 2> {
    match known {
        Some(known) => x.clone() * known.clone().cast(x.dtype()),
        None => x,
    }
}

/// The operators of one view.
struct Operator<B: Backend> {
    plus: Vec<Csr<B>>,
    minus: Vec<Csr<B>>,
    /// `1 / degree`, and its root; 1 for a node without in-neighbours.
    inverse: Tensor<B, 1>,
    root: Tensor<B, 1>,
    /// `[nodes, 1]`: 1 for a node without in-neighbours, which has zeros that are known.
    isolated: Tensor<B, 2>,
}

fn upload<B: GraphBackend>(adjacency: &Adjacency, device: &B::Device) -> Result<Csr<B>> {
    let (col_idx, num_cols) = (adjacency.col_idx(), adjacency.num_cols());
    let csr = match adjacency.rows() {
        // Every edge has its mirror image.
        Rows::Lists { row_ptr } if adjacency.is_reverse_of(adjacency) => {
            Csr::<B>::from_host_symmetric(row_ptr, col_idx, device)
        }
        Rows::Lists { row_ptr } => Csr::<B>::from_host(row_ptr, col_idx, num_cols, device),
        Rows::Spans { start, end } => Csr::<B>::from_spans(start, &end, col_idx, num_cols, device),
    };
    csr.map_err(|problem| Error::Data {
        what: "edges of all relations".into(),
        expected: "an adjacency that the kernels can index".into(),
        found: problem.to_string(),
        help: "split the graph".into(),
    })
}

impl<B: GraphBackend> Operator<B> {
    fn upload(view: &View, device: &B::Device) -> Result<Self> {
        let all =
            |of: &[Adjacency]| of.iter().map(|adjacency| upload::<B>(adjacency, device)).collect::<Result<Vec<_>>>();
        let (plus, minus) = (all(&view.plus)?, all(&view.minus)?);
        let sum = |of: &[Csr<B>]| of.iter().map(Csr::degrees).reduce(|sum, next| sum + next);
        let degrees = match (sum(&plus), sum(&minus)) {
            (Some(plus), Some(minus)) => plus - minus,
            (plus, _) => plus.unwrap_or_else(|| unreachable!("a view has an adjacency")),
        };
        let inverse = degrees.clone().clamp_min(1.0).recip();
        let isolated = degrees.lower_elem(0.5).float().unsqueeze_dim(1);
        Ok(Self { plus, minus, root: inverse.clone().sqrt(), inverse, isolated })
    }

    /// The only adjacency, where there is one.
    fn only(&self) -> Option<&Csr<B>> {
        self.plus.first().filter(|_| self.plus.len() + self.minus.len() == 1)
    }

    /// `S A T x`, with `S` of `dst_scale` and `T` of `src_scale`. Of several adjacencies it is made in f32, and scaled
    /// at the end: sums of ones and zeros are exact before.
    fn sum(&self, x: Tensor<B, 2>, dst_scale: Option<&Tensor<B, 1>>, src_scale: Option<&Tensor<B, 1>>) -> Tensor<B, 2> {
        let config = SpmmConfig { src_scale: src_scale.cloned(), ..Default::default() };
        if let Some(csr) = self.only() {
            return spmm(csr, x, None, SpmmConfig { dst_scale: dst_scale.cloned(), ..config });
        }
        let (dtype, x) = (x.dtype(), wide(x));
        let of = |csr: &Csr<B>| spmm(csr, x.clone(), None, config.clone());
        let plus = self.plus.iter().fold(x.zeros_like(), |sum, csr| sum + of(csr));
        let sum = self.minus.iter().fold(plus, |sum, csr| sum - of(csr));
        match dst_scale {
            Some(scale) => (sum * wide(scale.clone().unsqueeze_dim(1))).cast(dtype),
            None => sum.cast(dtype),
        }
    }

    /// The largest in-neighbour; 0 without any.
    fn max(&self, x: Tensor<B, 2>) -> Tensor<B, 2> {
        let max = |csr: &Csr<B>| gspmm(csr, Message::CopyU(x.clone()), Reduce::Max, Strategy::Auto);
        if let Some(csr) = self.only() {
            return max(csr);
        }
        let least = least(x.dtype());
        // 1 in rows without an entry, which have the largest value 0.
        let empty = |csr: &Csr<B>| csr.degrees().lower_elem(0.5).float().unsqueeze_dim::<2>(1).cast(x.dtype());
        let all = self.plus.iter().map(|csr| max(csr) + empty(csr) * least).reduce(Tensor::max_pair);
        let all = all.unwrap_or_else(|| unreachable!("a view has an adjacency"));
        all - self.isolated.clone().cast(x.dtype()) * least
    }

    /// `D^-1 A x`.
    fn mean(&self, x: Tensor<B, 2>) -> Tensor<B, 2> {
        self.sum(x, Some(&self.inverse), None)
    }

    /// `D^-1/2 A D^-1/2 x`.
    fn normalised(&self, x: Tensor<B, 2>) -> Tensor<B, 2> {
        self.sum(x, Some(&self.root), Some(&self.root))
    }

    /// The mean over in-neighbours that have a value; missing where there are in-neighbours, but none has.
    fn mean_of(&self, from: Known<B>) -> Known<B> {
        let Some(known) = from.known else { return Known { x: self.mean(from.x), known: None } };
        let dtype = from.x.dtype();
        let share = wide(self.mean(known));
        let x = wide(self.mean(from.x)) / share.clone().clamp_min(f32::MIN_POSITIVE);
        Known { x: x.cast(dtype), known: Some(self.of_some(share).cast(dtype)) }
    }

    /// 1 where a share of in-neighbours is above 0, or there are none.
    fn of_some(&self, share: Tensor<B, 2>) -> Tensor<B, 2> {
        share.greater_elem(0.0).float().cast(DType::F32) + self.isolated.clone().cast(DType::F32)
    }

    fn reduce(&self, from: Known<B>, reduce: Reduce) -> Known<B> {
        let reduced = |x| match (reduce, self.only()) {
            (Reduce::Max, _) => self.max(x),
            (_, Some(csr)) => gspmm(csr, Message::CopyU(x), reduce, Strategy::Auto),
            (_, None) => self.sum(x, None, None),
        };
        let Some(known) = from.known else { return Known { x: reduced(from.x), known: None } };
        let dtype = from.x.dtype();
        // No value is below the least one, which therefore wins where there is no other.
        let x = match reduce {
            Reduce::Max => from.x + (known.clone().neg() + 1.0) * least(dtype),
            _ => from.x,
        };
        let known = self.of_some(wide(self.mean(known))).cast(dtype);
        Known { x: masked(reduced(x), Some(&known)), known: Some(known) }
    }
}

/// The least value of a storage.
fn least(dtype: DType) -> f32 {
    if dtype == DType::F16 { f32::from(f16::MIN) } else { f32::MIN }
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
