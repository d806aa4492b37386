//! What is computed on the device over one view.

use burn::tensor::backend::Backend;
use burn::tensor::{DType, Tensor};
use graphsieve_kernels::device::{self, Failure};
use graphsieve_kernels::{Csr, GraphBackend, Message, Reduce, SpmmConfig, Strategy, gspmm, spmm};
use half::f16;
use rayon::prelude::*;

use super::view::View;
use crate::error::{Error, Result};
use crate::graph::{Adjacency, Rows};

/// Values of which some may be missing.
#[derive(Clone)]
pub(super) struct Known<B: Backend> {
    /// 0 where a value is missing.
    pub x: Tensor<B, 2>,
    /// 1 where a value is known, 0 elsewhere; nothing where all are.
    pub known: Option<Tensor<B, 2>>,
}

impl<B: Backend> Known<B> {
    /// The difference, in f32; missing where either is.
    pub fn less(self, other: Self) -> Self {
        let known = match (self.known, other.known) {
            (Some(a), Some(b)) => Some(a * b),
            (a, b) => a.or(b),
        };
        let x = wide(self.x) - wide(other.x);
        Self { x: masked(x, known.as_ref()), known }
    }

    /// The values, those of `others` where they are missing, 0 where these are, too.
    pub fn filled(self, others: Option<Self>) -> Tensor<B, 2> {
        match (self.known, others) {
            (Some(known), Some(others)) => self.x + (known.neg() + 1.0) * others.x,
            _ => self.x,
        }
    }

    /// The values on the host, NaN where they are missing.
    pub fn read(self) -> Result<Vec<f32>> {
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
pub(super) struct Operator<B: Backend> {
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
    pub fn upload(view: &View, device: &B::Device) -> Result<Self> {
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
    pub fn normalised(&self, x: Tensor<B, 2>) -> Tensor<B, 2> {
        self.sum(x, Some(&self.root), Some(&self.root))
    }

    /// The mean over in-neighbours that have a value; missing where there are in-neighbours, but none has.
    pub fn mean_of(&self, from: Known<B>) -> Known<B> {
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

    pub fn reduce(&self, from: Known<B>, reduce: Reduce) -> Known<B> {
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
pub(super) fn wide<B: Backend>(x: Tensor<B, 2>) -> Tensor<B, 2> {
    if x.dtype() == DType::F32 { x } else { x.cast(DType::F32) }
}

/// The values on the host.
fn read<B: Backend>(values: Tensor<B, 2>) -> Result<Vec<f32>> {
    let data = wide(values).into_data();
    let failed = |reason, kept| Error::DeviceFailed { work: "of the features", reason, kept };
    match device::failure() {
        Some(Failure { reason, kept }) => Err(failed(reason, kept)),
        None => data.into_vec::<f32>().map_err(|problem| failed(format!("{problem:?}"), None)),
    }
}
