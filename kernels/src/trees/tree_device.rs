//! What a grower of trees does on a device, without any of the device's types.

use std::fmt;
use std::ops::Range;

use burn::tensor::ops::IntTensor;

use crate::trees::boosting::{BoostBackend, BoostParts};
use crate::trees::histogram::{
    FixedGradients, GradientSum, Histogram, TreeBins, TreeRows, gradients_agree, ints_to_host,
};
use crate::trees::split::{
    GradientScale, Look, Split, SplitBackend, SplitFeature, SplitFeatures, SplitLeaf, SplitRule, SplitTask,
    best_splits, finds_splits,
};

/// A device without double precision, which splits are searched in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoDoublePrecision;

impl fmt::Display for NoDoublePrecision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("trees: device: expected one with double precision, found none; grow the trees on the CPU")
    }
}

impl std::error::Error for NoDoublePrecision {}

/// Backends that trees are grown on.
pub trait TreeBackend: SplitBackend + BoostBackend {}

impl<B: SplitBackend + BoostBackend> TreeBackend for B {}

/// A leaf of which a [`TreeEngine`] is asked for the best split.
#[derive(Clone, Copy, Debug)]
pub struct LeafTask<'a> {
    /// Its number.
    pub leaf: usize,
    /// What is known of it.
    pub about: SplitLeaf,
    /// The features that it may look at, ascending, and how; nothing given is all of them.
    pub looks: Option<&'a [(u32, Look)]>,
}

/// What a grower of trees asks for. Leaves are numbered by the caller; each has its rows in a span of one list and, while
/// it may be split, its histogram. Everything is exact or in double precision, so every implementation gives the same.
pub trait TreeEngine {
    /// Builds the histogram of `leaf`, whose rows in `span` sum to `sum`.
    fn build(&mut self, leaf: usize, span: Range<usize>, sum: GradientSum);

    /// The histograms of two children: `left` has that of the parent so far. The smaller child is built, the other one is
    /// what remains of the parent.
    ///
    /// # Panics
    /// If `left` has no histogram.
    fn build_children(
        &mut self,
        left: usize,
        right: usize,
        left_rows: (Range<usize>, GradientSum),
        right_rows: (Range<usize>, GradientSum),
    );

    /// Drops the histogram of a leaf that is not split any more.
    fn release(&mut self, leaf: usize);

    /// The best split of every leaf and its feature, see [`best_splits`]; one small record per leaf comes back.
    ///
    /// # Panics
    /// If a leaf has no histogram.
    fn best_splits(&self, tasks: &[LeafTask]) -> Vec<Option<(u32, Split)>>;

    /// Whether all rows of a span ask for the same output, see [`gradients_agree`].
    fn agree(&self, span: Range<usize>) -> bool;

    /// Parts the rows of a leaf, see [`TreeRows::partition`]; nothing comes back, the count is known from the split.
    fn partition(&mut self, span: Range<usize>, feature: u32, left_bins: &[bool]);

    /// The rows, leaf after leaf.
    fn rows(&self) -> Vec<u32>;
}

/// Bins, gradients, rows and histograms on a device.
///
/// # Example
/// ```
/// use burn_flex::Flex;
/// use graphsieve_kernels::{
///     BinColumn, BinValues, Cut, GradientScale, LeafTask, Missing, SplitFeature, SplitLeaf, SplitRule, TreeBins,
///     TreeDevice, TreeEngine,
/// };
/// let device = Default::default();
/// let column = BinColumn { bins: BinValues::U8(&[0, 1, 1, 0]), num_bin: 2, left_out: None };
/// let bins = TreeBins::<Flex>::dense(&[column], 4, &device);
/// let (missing, categorical, monotone) = (Missing::None, false, 0);
/// let feature = SplitFeature { num_bin: 2, mfb_offset: 0, default_bin: 0, missing, categorical, monotone };
/// let rule = SplitRule { min_data_in_leaf: 1, ..Default::default() };
/// let mut trees = TreeDevice::new(bins, &[feature], &rule).unwrap();
/// let scale = GradientScale { grad_unit: 1.0, hess_unit: 1.0 };
/// let sum = trees.start(&[[-1, 1], [2, 1], [2, 1], [-3, 1]], scale, &[0, 1, 2, 3]);
/// trees.build(0, 0..4, sum);
/// let leaf = SplitLeaf { sum, output: 0.0, bounds: (f64::NEG_INFINITY, f64::INFINITY) };
/// let (feature, split) = trees.best_splits(&[LeafTask { leaf: 0, about: leaf, looks: None }]).remove(0).unwrap();
/// assert_eq!((feature, split.cut, split.left.output), (0, Cut::UpTo(0), 2.0));
/// trees.partition(0..4, feature, &[true, false]);
/// assert_eq!(trees.rows(), [0, 3, 1, 2]);
/// ```
pub struct TreeDevice<B: TreeBackend> {
    pub(crate) bins: TreeBins<B>,
    features: SplitFeatures<B>,
    gradients: FixedGradients<B>,
    scale: GradientScale,
    pub(crate) rows: TreeRows<B>,
    /// What the next tree's gradients are computed of.
    pub(crate) boosted: Option<BoostParts<IntTensor<B>>>,
    /// By leaf.
    histograms: Vec<Option<Histogram<B>>>,
}

impl<B: TreeBackend> TreeDevice<B> {
    /// Trees on these bins by this rule.
    ///
    /// # Errors
    /// If the device has no double precision.
    ///
    /// # Panics
    /// As [`SplitFeatures::new`].
    pub fn new(bins: TreeBins<B>, features: &[SplitFeature], rule: &SplitRule) -> Result<Self, NoDoublePrecision> {
        if !finds_splits::<B>(&bins.device) {
            return Err(NoDoublePrecision);
        }
        Ok(Self {
            features: SplitFeatures::new(features, &bins, rule),
            gradients: FixedGradients::new(&[], &bins.device),
            scale: GradientScale { grad_unit: 1.0, hess_unit: 1.0 },
            rows: TreeRows::new(&[], 0, &bins.device),
            boosted: None,
            histograms: Vec::new(),
            bins,
        })
    }

    /// Begins a tree over `rows`, in fixed-point gradients of which a unit is worth `scale`, and returns their sum. All
    /// histograms of the tree before are dropped.
    ///
    /// # Panics
    /// If there is not a pair for every row of the data set, or a row is out of range.
    pub fn start(&mut self, pairs: &[[i32; 2]], scale: GradientScale, rows: &[u32]) -> GradientSum {
        let num_rows = self.bins.num_rows();
        crate::runtime::check::size("TreeDevice::start", "pairs", num_rows, pairs.len());
        let gradients = FixedGradients::<B>::new(pairs, &self.bins.device);
        self.begin(gradients.pairs, scale, TreeRows::new(rows, num_rows, &self.bins.device))
    }

    pub(crate) fn begin(&mut self, pairs: IntTensor<B>, scale: GradientScale, rows: TreeRows<B>) -> GradientSum {
        self.histograms.clear();
        self.gradients = FixedGradients { pairs, num_rows: self.bins.num_rows() };
        self.scale = scale;
        self.rows = rows;
        self.gradients.total(&self.rows, 0..self.rows.len())
    }

    fn histogram(&self, leaf: usize) -> &Histogram<B> {
        let histogram = self.histograms.get(leaf).and_then(Option::as_ref);
        histogram.unwrap_or_else(|| panic!("TreeDevice: leaf: expected one with a histogram, got {leaf}"))
    }

    fn keep(&mut self, leaf: usize, histogram: Histogram<B>) {
        if self.histograms.len() <= leaf {
            self.histograms.resize_with(leaf + 1, || None);
        }
        self.histograms[leaf] = Some(histogram);
    }

    fn built(&self, span: Range<usize>, sum: GradientSum) -> Histogram<B> {
        Histogram::build(&self.bins, &self.gradients, &self.rows, span).reconstruct(&self.bins, sum)
    }
}

impl<B: TreeBackend> TreeEngine for TreeDevice<B> {
    fn build(&mut self, leaf: usize, span: Range<usize>, sum: GradientSum) {
        let histogram = self.built(span, sum);
        self.keep(leaf, histogram);
    }

    fn build_children(
        &mut self,
        left: usize,
        right: usize,
        left_rows: (Range<usize>, GradientSum),
        right_rows: (Range<usize>, GradientSum),
    ) {
        let left_is_smaller = left_rows.0.len() <= right_rows.0.len();
        let (span, sum) = if left_is_smaller { left_rows } else { right_rows };
        let smaller = self.built(span, sum);
        let parent = self.histograms.get_mut(left).and_then(Option::take);
        let parent = parent.unwrap_or_else(|| panic!("TreeDevice: left: expected a leaf with a histogram, got {left}"));
        let larger = parent.subtract(&smaller);
        let (of_left, of_right) = if left_is_smaller { (smaller, larger) } else { (larger, smaller) };
        self.keep(left, of_left);
        self.keep(right, of_right);
    }

    fn release(&mut self, leaf: usize) {
        if let Some(histogram) = self.histograms.get_mut(leaf) {
            *histogram = None;
        }
    }

    fn best_splits(&self, tasks: &[LeafTask]) -> Vec<Option<(u32, Split)>> {
        let num_features = self.bins.num_features();
        let dense = |looks: &[(u32, Look)]| {
            let mut dense = vec![Look::Skip; num_features];
            looks.iter().for_each(|&(feature, look)| dense[feature as usize] = look);
            dense
        };
        let looks: Vec<Option<Vec<Look>>> = tasks.iter().map(|task| task.looks.map(dense)).collect();
        let tasks: Vec<SplitTask<B>> = tasks
            .iter()
            .zip(&looks)
            .map(|(task, looks)| SplitTask {
                histogram: self.histogram(task.leaf),
                leaf: task.about,
                looks: looks.as_deref(),
            })
            .collect();
        best_splits(&self.bins, &self.features, &tasks, &self.scale)
    }

    fn agree(&self, span: Range<usize>) -> bool {
        let rows = self.rows.to_host();
        let pairs = ints_to_host::<B>(self.gradients.pairs.clone());
        gradients_agree(rows[span].iter().map(|&row| [0, 1].map(|word| pairs[2 * row as usize + word])))
    }

    fn partition(&mut self, span: Range<usize>, feature: u32, left_bins: &[bool]) {
        self.rows.partition(&self.bins, feature, left_bins, span);
    }

    fn rows(&self) -> Vec<u32> {
        self.rows.to_host()
    }
}
