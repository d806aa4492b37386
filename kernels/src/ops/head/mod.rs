//! Reductions per head over the channels of a row or over all rows: the small ends of attention, and of a bias.
//!
//! Internal: none is recorded for a backward pass of its own.

mod cpu;
#[cfg(feature = "cube")]
mod kernel;
#[cfg(feature = "cube")]
mod launch;

#[cfg(feature = "cube")]
pub(crate) use kernel::put_partial_sum;
#[cfg(feature = "cube")]
pub(crate) use launch::{MAX_PARTIALS, column_sums};

use burn::tensor::DType;
use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;
use burn_autodiff::{Autodiff, checkpoint::strategy::CheckpointStrategy};
use burn_backend::AutodiffBackend;

/// Backends with per-head reductions.
pub trait HeadBackend: Backend {
    /// Per head `<x_i, y_i>`, f32; a `y` of one row serves all rows. `y` may have another dtype than `x`.
    #[doc(hidden)]
    fn head_dot(x: FloatTensor<Self>, y: FloatTensor<Self>, heads: usize) -> FloatTensor<Self>;

    /// `out_i,h = w_i,h a_h` in `dtype`, added to `accumulate_into` where that is given: `w` `[rows, heads]`, `a`
    /// `[1, heads * channels]`, both f32.
    #[doc(hidden)]
    fn head_outer(
        w: FloatTensor<Self>,
        a: FloatTensor<Self>,
        dtype: DType,
        accumulate_into: Option<FloatTensor<Self>>,
    ) -> FloatTensor<Self>;

    /// `out_h = sum_i w_i,h x_i,h`: `[1, heads * channels]`, f32, summed in a fixed order. Without `w` every factor is
    /// 1.
    #[doc(hidden)]
    fn head_column_sum(x: FloatTensor<Self>, w: Option<FloatTensor<Self>>) -> FloatTensor<Self>;
}

/// The column sum `[1, d]` in f32 and a fixed order; Burn's own sums a tall matrix with one thread per column on GPUs.
pub(crate) fn column_sum<B: HeadBackend>(x: FloatTensor<B>) -> FloatTensor<B> {
    B::head_column_sum(x, None)
}

impl<B: HeadBackend, C: CheckpointStrategy> HeadBackend for Autodiff<B, C> {
    fn head_dot(x: FloatTensor<Self>, y: FloatTensor<Self>, heads: usize) -> FloatTensor<Self> {
        Self::from_inner(B::head_dot(x.primitive, y.primitive, heads))
    }

    fn head_outer(
        w: FloatTensor<Self>,
        a: FloatTensor<Self>,
        dtype: DType,
        accumulate_into: Option<FloatTensor<Self>>,
    ) -> FloatTensor<Self> {
        Self::from_inner(B::head_outer(w.primitive, a.primitive, dtype, accumulate_into.map(|o| o.primitive)))
    }

    fn head_column_sum(x: FloatTensor<Self>, w: Option<FloatTensor<Self>>) -> FloatTensor<Self> {
        Self::from_inner(B::head_column_sum(x.primitive, w.map(|w| w.primitive)))
    }
}
