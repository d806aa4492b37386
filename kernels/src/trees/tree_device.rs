//! What a grower of trees asks for, done on a device.

use std::fmt;
use std::ops::Range;

use burn::tensor::ops::IntTensor;

use crate::runtime::check;
use crate::runtime::host::index_tensor;
use crate::trees::boosting::{BoostBackend, BoostParts, BoostTargets};
use crate::trees::engine::{BoostEngine, LeafTask, TreeEngine};
use crate::trees::histogram::{
    FixedGradients, GradientSum, Histogram, TreeBins, TreeRows, gradients_agree, i64_tensor, i64_to_host, ints_to_host,
};
use crate::trees::split::{
    FeatureMask, GradientScale, Split, SplitBackend, SplitFeature, SplitFeatures, SplitRule, SplitTask, best_splits,
    finds_splits,
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
/// let (feature, split) = trees.best_splits(&[LeafTask { leaf: 0, about: leaf, masks: None }]).remove(0).unwrap();
/// assert_eq!((feature, split.cut, split.left.output), (0, Cut::UpTo(0), 2.0));
/// trees.partition(0..4, feature, &[true, false]);
/// assert_eq!(trees.rows(), [0, 3, 1, 2]);
/// ```
pub struct TreeDevice<B: TreeBackend> {
    bins: TreeBins<B>,
    features: SplitFeatures<B>,
    gradients: FixedGradients<B>,
    scale: GradientScale,
    rows: TreeRows<B>,
    /// What the next tree's gradients are computed of.
    boosted: Option<BoostParts<IntTensor<B>>>,
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
        check::size("TreeDevice::start", "pairs", num_rows, pairs.len());
        let gradients = FixedGradients::<B>::new(pairs, &self.bins.device);
        self.begin(gradients.pairs, scale, TreeRows::new(rows, num_rows, &self.bins.device))
    }

    fn begin(&mut self, pairs: IntTensor<B>, scale: GradientScale, rows: TreeRows<B>) -> GradientSum {
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
        let dense = |masks: &[(u32, FeatureMask)]| {
            let mut dense = vec![FeatureMask::Skip; num_features];
            masks.iter().for_each(|&(feature, mask)| dense[feature as usize] = mask);
            dense
        };
        let masks: Vec<Option<Vec<FeatureMask>>> = tasks.iter().map(|task| task.masks.map(dense)).collect();
        let tasks: Vec<SplitTask<B>> = tasks
            .iter()
            .zip(&masks)
            .map(|(task, masks)| SplitTask {
                histogram: self.histogram(task.leaf),
                leaf: task.about,
                masks: masks.as_deref(),
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

impl<B: TreeBackend> BoostEngine for TreeDevice<B> {
    fn boost(&mut self, targets: &BoostTargets) {
        const OP: &str = "BoostEngine::boost";
        let num_rows = self.bins.num_rows();
        check::size(OP, "labels", num_rows, targets.labels.len());
        let weights = targets.weights.unwrap_or_default();
        check::size(OP, "weights", if targets.weights.is_some() { num_rows } else { 0 }, weights.len());
        let device = &self.bins.device;
        let bits = |values: &[f32]| {
            index_tensor::<B>(values.iter().map(|value| i32::from_ne_bytes(value.to_ne_bytes())).collect(), device)
        };
        self.boosted = Some(BoostParts {
            margins: i64_tensor::<B>(vec![targets.start.to_bits().cast_signed(); num_rows], device),
            labels: bits(targets.labels),
            weights: bits(weights),
            is_weighted: targets.weights.is_some(),
            loss: targets.loss,
            class_weights: targets.class_weights,
            num_rows,
        });
    }

    fn start(&mut self, pairs: &[[i32; 2]], scale: GradientScale, rows: &[u32]) -> GradientSum {
        TreeDevice::start(self, pairs, scale, rows)
    }

    fn start_boosted(&mut self) -> Option<(GradientScale, GradientSum)> {
        let parts = self.boosted.as_ref().expect("TreeDevice::start_boosted: boost: expected a call before");
        let num_rows = parts.num_rows;
        if num_rows == 0 {
            let scale = GradientScale::finest(0.0, 0.0);
            return Some((scale, self.start(&[], scale, &[])));
        }
        let (derivatives, [max_grad, max_hess]) = B::boost_derivatives(parts);
        if !(max_grad.is_finite() && max_hess.is_finite()) {
            return None;
        }
        let scale = GradientScale::finest(max_grad, max_hess);
        let pairs = B::fixed_derivatives(derivatives, num_rows, &scale);
        let rows = TreeRows { list: B::ascending_rows(&pairs, num_rows), len: num_rows, num_rows };
        Some((scale, self.begin(pairs, scale, rows)))
    }

    fn add_leaves(&mut self, leaves: &[(Range<usize>, f64)]) {
        const OP: &str = "TreeDevice::add_leaves";
        let mut leaves: Vec<_> = leaves.iter().filter(|(span, _)| !span.is_empty()).collect();
        leaves.sort_unstable_by_key(|(span, _)| span.start);
        let ends = leaves.iter().map(|(span, _)| span.end);
        let starts: Vec<usize> = std::iter::once(0).chain(ends).collect();
        let follow = leaves.iter().zip(&starts).all(|((span, _), &start)| span.start == start);
        let parts = self.boosted.as_mut().unwrap_or_else(|| panic!("{OP}: boost: expected a call before"));
        let last = starts[leaves.len()];
        assert!(
            follow && last == parts.num_rows,
            "{OP}: leaves: expected spans of 0..{}, got {starts:?}",
            parts.num_rows
        );
        if leaves.is_empty() {
            return;
        }
        let device = &self.bins.device;
        let values = leaves.iter().map(|(_, value)| value.to_bits().cast_signed()).collect();
        let starts = index_tensor::<B>(starts.into_iter().map(|start| start as i32).collect(), device);
        let values = i64_tensor::<B>(values, device);
        B::add_leaves(&mut parts.margins, &self.rows.list, parts.num_rows, &starts, &values, leaves.len());
    }

    fn margins(&self) -> Vec<f64> {
        let parts = self.boosted.as_ref().expect("TreeDevice::margins: boost: expected a call before");
        let bits = i64_to_host::<B>(parts.margins.clone());
        bits.into_iter().take(parts.num_rows).map(|bits| f64::from_bits(bits.cast_unsigned())).collect()
    }
}
