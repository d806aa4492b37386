//! Dropout decided inside the kernels: no mask is stored, and forward, backward, CPU and GPU agree bit for bit.

mod autodiff;
mod cpu;
#[cfg(feature = "cube")]
pub(crate) mod kernel;
#[cfg(feature = "cube")]
mod launch;

use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{Tensor, TensorPrimitive};

use crate::graph::drop_edge::DropEdge;
use crate::runtime::check;
use crate::runtime::hash::mix;

/// Which elements one layer keeps in one training step, and what these are multiplied by.
///
/// Element (`row`, `column`) is kept when `mix(row ^ key0, column ^ key1) < threshold`, where `threshold = (1 - rate)
/// 2^32` and the keys come from Philox4x32-10 of `(seed; step, layer, stream)`. What is kept is multiplied by `1 / (1 -
/// rate)`, so that sums keep their mean.
///
/// Of the attention of `heads` heads ([`GatConfig::attention_dropout`](crate::GatConfig::attention_dropout)) the weight
/// of head `h` of the edge `dst <- src` is the element (`dst`, `src * heads + h`).
///
/// # Source
/// Srivastava et al., Dropout (JMLR 2014); Salmon et al., Philox (SC 2011).
///
/// # Example
/// ```
/// use graphsieve_kernels::Dropout;
/// let half = Dropout::new(0.5, 42, 0, 0, 0).unwrap();
/// let kept = (0..10_000).filter(|&i| half.factor(i, 7) > 0.0).count();
/// assert!((4_700..5_300).contains(&kept));
/// assert!((0..10_000).all(|i| half.factor(i, 7) == 0.0 || half.factor(i, 7) == 2.0));
/// assert!(Dropout::new(0.0, 42, 0, 0, 0).is_none()); // nothing to drop
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dropout {
    /// Rows stand for destinations, columns for sources.
    pub(crate) key: DropEdge,
    /// Of attention weights: all heads, and the first of those at hand.
    pub(crate) heads: [u32; 2],
}

impl Dropout {
    /// Drops elements independently with probability `rate`; `None` when nothing is dropped. `stream` tells the uses
    /// within a layer apart.
    ///
    /// # Panics
    /// Unless `0 <= rate < 1`.
    pub fn new(rate: f64, seed: u64, step: u32, layer: u32, stream: u32) -> Option<Self> {
        assert!((0.0..1.0).contains(&rate), "Dropout: rate: expected [0, 1), got {rate}");
        DropEdge::keyed(rate, seed, [step, layer, stream, 1]).map(|key| Self { key, heads: [1, 0] })
    }

    /// What element (`row`, `column`) is multiplied by.
    pub fn factor(&self, row: u32, column: u32) -> f32 {
        if mix(row ^ self.key.key0, column ^ self.key.key1) < self.key.threshold { self.scale() } else { 0.0 }
    }

    /// `(key0, key1, threshold)`, for an oracle.
    pub fn key(&self) -> (u32, u32, u32) {
        self.key.key()
    }

    /// What the kept elements are multiplied by.
    pub(crate) fn scale(&self) -> f32 {
        (4_294_967_296.0 / f64::from(self.key.threshold)) as f32
    }

    /// The same decisions on the weights of `heads` heads, of which those at hand start with `first`.
    pub(crate) fn of_heads(self, heads: usize, first: usize) -> Self {
        Self { heads: [heads as u32, first as u32], ..self }
    }

    /// [`Dropout::factor`] of the weight of `head` of those at hand on the entry at (`row`, `col`) of the CSR at hand.
    pub(crate) fn edge_factor(&self, row: u32, col: u32, head: usize) -> f32 {
        let (row, col) = (row.wrapping_add(self.key.row_base), col.wrapping_add(self.key.col_base));
        let (dst, src) = if self.key.reversed { (col, row) } else { (row, col) };
        let [heads, first] = self.heads;
        self.factor(dst, src.wrapping_mul(heads).wrapping_add(first + head as u32))
    }

    /// The same decision for a CSR whose row 0 is the node `dst` and whose column 0 is the node `src` of the whole
    /// graph; for a matrix whose row 0 is row `dst` of a whole one.
    pub fn with_bases(self, dst: u32, src: u32) -> Self {
        Self { key: self.key.with_bases(dst, src), ..self }
    }

    /// The same decisions on edges seen from the reverse CSR, whose rows are the sources.
    pub(crate) fn reverse(self) -> Self {
        Self { key: self.key.reverse(), ..self }
    }
}

/// Backends with [`dropout`].
pub trait DropoutBackend: Backend {
    /// Every element times its factor; recorded for the backward pass where the backend differentiates.
    #[doc(hidden)]
    fn dropout(x: FloatTensor<Self>, dropout: Dropout) -> FloatTensor<Self>;
}

/// Sets elements to zero at random and scales the others: `y_rc = x_rc` [`factor`](Dropout::factor)`(first + r, c)`,
/// with the `first` row of [`with_bases`](Dropout::with_bases), usually 0.
///
/// # Shapes
/// `x` `[n, d]` in f32, f16 or bf16; result likewise.
///
/// # Gradient
/// `dx_rc = dy_rc factor(first + r, c)`. Saved: nothing; the backward pass decides anew. Deterministic.
///
/// # Panics
/// If `x` is no matrix of floats.
///
/// # Source
/// Srivastava et al., Dropout (JMLR 2014).
///
/// # Example
/// ```
/// use burn::tensor::Tensor;
/// use burn_flex::Flex;
/// use graphsieve_kernels::{Dropout, dropout};
/// let x = Tensor::<Flex, 2>::ones([100, 100], &Default::default());
/// let half = Dropout::new(0.5, 1, 0, 0, 0).unwrap();
/// let y = dropout(x, &half);
/// assert!((y.mean().into_scalar() - 1.0).abs() < 0.05);
/// ```
pub fn dropout<B: DropoutBackend>(x: Tensor<B, 2>, dropout: &Dropout) -> Tensor<B, 2> {
    let x = x.into_primitive().tensor();
    check::storage::<B>("dropout", "x", &x);
    check::matrix("dropout", "x", &x);
    Tensor::from_primitive(TensorPrimitive::Float(B::dropout(x, *dropout)))
}
