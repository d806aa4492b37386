//! Gradient histograms of binned features in fixed point, for growing trees.

mod bins;
mod cpu;
#[cfg(feature = "cube")]
mod kernel;
#[cfg(feature = "cube")]
mod launch;

use std::fmt;
use std::ops::{Add, AddAssign, Range, Sub, SubAssign};

use burn::tensor::ops::IntTensor;
use burn::tensor::{DType, Int, Tensor};

use crate::runtime::host::index_tensor;
use crate::runtime::prims::PrimsBackend;
pub(crate) use bins::TILE_FEATURES;
pub use bins::{BinColumn, BinParts, BinValues, Storage, TreeBins};
pub(crate) use cpu::{i64_vector, i64s};

/// Words of a bin in a histogram: gradient, hessian, count.
pub(crate) const WORDS: usize = 3;

/// Sum over rows: gradient and hessian in fixed point, exact number of rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GradientSum {
    /// Gradients, each a whole number of at most 2^30 in magnitude.
    pub grad: i64,
    /// Hessians likewise.
    pub hess: i64,
    /// Rows.
    pub count: i64,
}

impl Add for GradientSum {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self { grad: self.grad + other.grad, hess: self.hess + other.hess, count: self.count + other.count }
    }
}

impl Sub for GradientSum {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self { grad: self.grad - other.grad, hess: self.hess - other.hess, count: self.count - other.count }
    }
}

impl AddAssign for GradientSum {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl SubAssign for GradientSum {
    fn sub_assign(&mut self, other: Self) {
        *self = *self - other;
    }
}

impl std::iter::Sum for GradientSum {
    fn sum<I: Iterator<Item = Self>>(sums: I) -> Self {
        sums.fold(Self::default(), Add::add)
    }
}

/// Backends that build [`Histogram`]s. Gradients are `[2 n]` i32, row lists `[len]` i32, sums `[3 bins]` i64.
pub trait HistogramBackend: PrimsBackend {
    /// Sums by bin over `rows[span]`, at least one; bins that are left out stay zero.
    #[doc(hidden)]
    fn build_histogram(
        bins: &BinParts<IntTensor<Self>>,
        gradients: &IntTensor<Self>,
        rows: &IntTensor<Self>,
        span: Range<usize>,
    ) -> IntTensor<Self>;

    /// `[3]` i64: the sum over `rows[span]`, at least one.
    #[doc(hidden)]
    fn gradient_total(gradients: &IntTensor<Self>, rows: &IntTensor<Self>, span: Range<usize>) -> IntTensor<Self>;

    /// The bins that were left out, as `total` less all other bins.
    #[doc(hidden)]
    fn reconstruct_bins(
        sums: IntTensor<Self>,
        bins: &BinParts<IntTensor<Self>>,
        total: &IntTensor<Self>,
    ) -> IntTensor<Self>;

    #[doc(hidden)]
    fn subtract_histogram(parent: IntTensor<Self>, child: &IntTensor<Self>) -> IntTensor<Self>;
}

/// Gradients and hessians of rows in fixed point, on the device.
///
/// A gradient `g` is the whole number `round(2^e g)` of at most 2^30 in magnitude, with one `e` for all rows; hessians
/// likewise with an `e` of their own. Sums of up to 2^32 such numbers fit into i64, so additions commute exactly and a
/// sum is the same on every device, for any number of threads and any order of rows.
pub struct FixedGradients<B: HistogramBackend> {
    pub(crate) pairs: IntTensor<B>,
    pub(crate) num_rows: usize,
}

impl<B: HistogramBackend> FixedGradients<B> {
    /// Uploads a pair of gradient and hessian per row.
    ///
    /// # Panics
    /// If a number exceeds 2^30 in magnitude.
    pub fn new(pairs: &[[i32; 2]], device: &B::Device) -> Self {
        let largest = pairs.iter().flatten().map(|q| q.unsigned_abs()).max().unwrap_or(0);
        assert!(largest <= 1 << 30, "FixedGradients: pairs: expected magnitudes of at most 2^30, got {largest}");
        Self { pairs: index_tensor::<B>(pairs.as_flattened().to_vec(), device), num_rows: pairs.len() }
    }

    /// The sum over `rows[span]`.
    ///
    /// # Panics
    /// If the span is not inside the list or a list was made for more rows.
    pub fn total(&self, rows: &TreeRows<B>, span: Range<usize>) -> GradientSum {
        rows.check("FixedGradients::total", &span, self.num_rows);
        if span.is_empty() {
            return GradientSum::default();
        }
        sums_to_host::<B>(B::gradient_total(&self.pairs, &rows.list, span))[0]
    }
}

/// Whether gradient and hessian are in the same ratio in all pairs: all rows then ask for the same output, and no
/// feature can split them.
pub fn gradients_agree(pairs: impl IntoIterator<Item = [i32; 2]>) -> bool {
    let mut pairs = pairs.into_iter().map(|pair| pair.map(i64::from));
    let Some([grad, hess]) = pairs.next() else { return true };
    pairs.all(|[other_grad, other_hess]| grad * other_hess == other_grad * hess)
}

/// A list of rows on the device: those of a tree, leaf after leaf.
pub struct TreeRows<B: HistogramBackend> {
    pub(crate) list: IntTensor<B>,
    pub(crate) len: usize,
    /// All rows are below this.
    pub(crate) num_rows: usize,
}

impl<B: HistogramBackend> TreeRows<B> {
    /// Uploads row numbers below `num_rows`, in any order and with repetitions.
    ///
    /// # Panics
    /// If a row is out of range or there are 2^31 rows or more.
    pub fn new(rows: &[u32], num_rows: usize, device: &B::Device) -> Self {
        const OP: &str = "TreeRows";
        assert!(num_rows < 1 << 31 && rows.len() < 1 << 31, "{OP}: rows: expected fewer than 2^31, got {num_rows}");
        let largest = rows.iter().max().map_or(0, |&row| row as usize + 1);
        assert!(largest <= num_rows, "{OP}: rows: expected numbers below {num_rows}, got {}", largest - 1);
        let list = index_tensor::<B>(rows.iter().map(|&row| row as i32).collect(), device);
        Self { list, len: rows.len(), num_rows }
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The list as it is now.
    pub fn to_host(&self) -> Vec<u32> {
        ints_to_host::<B>(self.list.clone()).into_iter().take(self.len).map(|row| row as u32).collect()
    }

    #[track_caller]
    pub(crate) fn check(&self, op: &str, span: &Range<usize>, num_rows: usize) {
        assert!(
            span.start <= span.end && span.end <= self.len,
            "{op}: span: expected one in 0..{}, got {span:?}",
            self.len
        );
        assert!(
            self.num_rows <= num_rows,
            "{op}: rows: expected numbers below {num_rows}, got a list for {}",
            self.num_rows
        );
    }
}

/// The sums of one leaf by bin, one feature after the other.
///
/// # Example
/// ```
/// use burn_flex::Flex;
/// use graphsieve_kernels::{BinColumn, BinValues, FixedGradients, GradientSum, Histogram, TreeBins, TreeRows};
/// let device = Default::default();
/// let column = BinColumn { bins: BinValues::U8(&[0, 1, 1, 0]), num_bin: 2, left_out: Some(1) };
/// let bins = TreeBins::<Flex>::dense(&[column], 4, &device);
/// let gradients = FixedGradients::new(&[[5, 1], [-3, 1], [7, 2], [1, 1]], &device);
/// let rows = TreeRows::new(&[0, 1, 2], 4, &device);
/// let total = gradients.total(&rows, 0..3);
/// let histogram = Histogram::build(&bins, &gradients, &rows, 0..3).reconstruct(&bins, total);
/// assert_eq!(histogram.to_host()[1], GradientSum { grad: 4, hess: 3, count: 2 });
/// ```
pub struct Histogram<B: HistogramBackend> {
    pub(crate) sums: IntTensor<B>,
}

impl<B: HistogramBackend> Clone for Histogram<B> {
    fn clone(&self) -> Self {
        Self { sums: self.sums.clone() }
    }
}

impl<B: HistogramBackend> fmt::Debug for Histogram<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Histogram")
    }
}

impl<B: HistogramBackend> Histogram<B> {
    /// Adds up the gradients of `rows[span]` by bin, `sum_r q_r [bin of r = b]` for every feature and bin, exactly.
    /// Bins that `bins` leaves out are zero until [`Self::reconstruct`].
    ///
    /// On devices a cube adds a stretch of rows up in shared memory, in words of 32 bits: the upper and lower 16 bits
    /// of a number apart, which over at most 2^16 rows cannot overflow. Then it adds its sums to the result, in 64
    /// bits, or in two words with a carry where the device has no such additions.
    ///
    /// # Panics
    /// If the span is not inside the list, or the gradients are of other rows than the bins.
    ///
    /// # Source
    /// LightGBM `cuda_histogram_constructor.cu`; fixed point after XGBoost's quantised gradients.
    pub fn build(bins: &TreeBins<B>, gradients: &FixedGradients<B>, rows: &TreeRows<B>, span: Range<usize>) -> Self {
        const OP: &str = "Histogram::build";
        crate::runtime::check::size(OP, "rows of gradients", bins.num_rows(), gradients.num_rows);
        rows.check(OP, &span, gradients.num_rows);
        if span.is_empty() || bins.num_bins() == 0 {
            let zeros = Tensor::<B, 1, Int>::zeros([(bins.num_bins() * WORDS).max(1)], (&bins.device, DType::I64));
            return Self { sums: zeros.into_primitive() };
        }
        Self { sums: B::build_histogram(&bins.parts, &gradients.pairs, &rows.list, span) }
    }

    /// Uploads the sums of all bins of all features.
    ///
    /// # Panics
    /// If their number is not that of `bins`.
    pub fn from_host(sums: &[GradientSum], bins: &TreeBins<B>) -> Self {
        crate::runtime::check::size("Histogram::from_host", "sums", bins.num_bins(), sums.len());
        let words = sums.iter().flat_map(|sum| [sum.grad, sum.hess, sum.count]).collect();
        Self { sums: i64_tensor::<B>(words, &bins.device) }
    }

    /// Fills in the bins that were left out: the leaf's total less all other bins of the feature. Exact.
    pub fn reconstruct(self, bins: &TreeBins<B>, total: GradientSum) -> Self {
        if bins.parts.left_outs.iter().all(Option::is_none) {
            return self;
        }
        let total = i64_tensor::<B>(vec![total.grad, total.hess, total.count], &bins.device);
        Self { sums: B::reconstruct_bins(self.sums, &bins.parts, &total) }
    }

    /// The histogram of the other child, from that of the parent.
    pub fn subtract(self, child: &Self) -> Self {
        Self { sums: B::subtract_histogram(self.sums, &child.sums) }
    }

    /// The sums of all bins.
    pub fn to_host(&self) -> Vec<GradientSum> {
        sums_to_host::<B>(self.sums.clone())
    }
}

/// Uploads 64-bit integers, at least one.
pub(crate) fn i64_tensor<B: PrimsBackend>(mut values: Vec<i64>, device: &B::Device) -> IntTensor<B> {
    if values.is_empty() {
        values.push(0);
    }
    let len = values.len();
    let data = burn::tensor::TensorData::new(values, [len]);
    Tensor::<B, 1, Int>::from_data(data, (device, DType::I64)).into_primitive()
}

/// Downloads 32-bit integers.
pub(crate) fn ints_to_host<B: PrimsBackend>(values: IntTensor<B>) -> Vec<i32> {
    let data = Tensor::<B, 1, Int>::from_primitive(values).into_data();
    data.into_vec().expect("rows and gradients are i32")
}

/// Downloads 64-bit integers.
pub(crate) fn i64_to_host<B: PrimsBackend>(values: IntTensor<B>) -> Vec<i64> {
    let data = Tensor::<B, 1, Int>::from_primitive(values).into_data();
    data.into_vec().expect("sums are i64")
}

fn sums_to_host<B: PrimsBackend>(sums: IntTensor<B>) -> Vec<GradientSum> {
    let words = i64_to_host::<B>(sums);
    let (sums, _) = words.as_chunks::<WORDS>();
    sums.iter().map(|&[grad, hess, count]| GradientSum { grad, hess, count }).collect()
}
