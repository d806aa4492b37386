//! Rows of a leaf parted by the side that they go to.

mod cpu;
#[cfg(feature = "cube")]
mod kernel;
#[cfg(feature = "cube")]
mod launch;

use std::ops::Range;

use burn::tensor::ops::IntTensor;

use crate::runtime::host::index_tensor;
use crate::trees::histogram::{BinParts, HistogramBackend, TreeBins, TreeRows};

/// Backends with [`TreeRows::partition`].
pub trait PartitionBackend: HistogramBackend {
    /// `rows[span]`, not empty: those first whose bin of `feature` is marked in `goes_left`.
    #[doc(hidden)]
    fn partition_rows(
        rows: &mut IntTensor<Self>,
        span: Range<usize>,
        bins: &BinParts<IntTensor<Self>>,
        feature: usize,
        goes_left: &IntTensor<Self>,
    );
}

impl<B: PartitionBackend> TreeRows<B> {
    /// Moves the rows of `span` whose bin of `feature` is marked in `left_bins` to its front; both sides keep their
    /// order. How many there are is the count of the left side of the split.
    ///
    /// # Shapes
    /// `left_bins` `[num_bin]` of the feature: for a threshold, the bins up to it but for a missing bin, which goes to
    /// the default side.
    ///
    /// # Panics
    /// If the span is not inside the list, the feature does not exist, or a number of bins or rows is another.
    ///
    /// # Example
    /// ```
    /// use burn_flex::Flex;
    /// use graphsieve_kernels::{BinColumn, BinValues, TreeBins, TreeRows};
    /// let device = Default::default();
    /// let column = BinColumn { bins: BinValues::U8(&[0, 2, 1, 0]), num_bin: 3, left_out: None };
    /// let bins = TreeBins::<Flex>::dense(&[column], 4, &device);
    /// let mut rows = TreeRows::new(&[3, 2, 1, 0], 4, &device);
    /// rows.partition(&bins, 0, &[false, true, true], 1..4);
    /// assert_eq!(rows.to_host(), [3, 2, 1, 0]);
    /// rows.partition(&bins, 0, &[true, false, true], 0..4);
    /// assert_eq!(rows.to_host(), [3, 1, 0, 2]);
    /// ```
    pub fn partition(&mut self, bins: &TreeBins<B>, feature: u32, left_bins: &[bool], span: Range<usize>) {
        const OP: &str = "TreeRows::partition";
        let features = bins.num_features();
        assert!((feature as usize) < features, "{OP}: feature: expected one below {features}, got {feature}");
        crate::runtime::check::size(OP, "left_bins", bins.num_bin[feature as usize] as usize, left_bins.len());
        self.check(OP, &span, bins.num_rows());
        if span.is_empty() {
            return;
        }
        let goes_left = index_tensor::<B>(left_bins.iter().map(|&left| i32::from(left)).collect(), &bins.device);
        B::partition_rows(&mut self.list, span, &bins.parts, feature as usize, &goes_left);
    }
}
