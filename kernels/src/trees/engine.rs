//! What a grower of trees asks of a device, without any of the device's types.

use std::ops::Range;

use crate::trees::boosting::BoostTargets;
use crate::trees::histogram::GradientSum;
use crate::trees::split::{FeatureMask, GradientScale, Split, SplitLeaf};

/// A leaf of which a [`TreeEngine`] is asked for the best split.
#[derive(Clone, Copy, Debug)]
pub struct LeafTask<'a> {
    /// Its number.
    pub leaf: usize,
    /// What is known of it.
    pub about: SplitLeaf,
    /// The features that it may look at, ascending, and how; nothing given is all of them.
    pub masks: Option<&'a [(u32, FeatureMask)]>,
}

/// What a grower of trees asks for. Leaves are numbered by the caller; each has its rows in a span of one list and,
/// while it may be split, its histogram. Everything is exact or in double precision, so every implementation gives the
/// same.
pub trait TreeEngine {
    /// Builds the histogram of `leaf`, whose rows in `span` sum to `sum`.
    fn build(&mut self, leaf: usize, span: Range<usize>, sum: GradientSum);

    /// The histograms of two children: `left` has that of the parent so far. The smaller child is built, the other one
    /// is what remains of the parent.
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

    /// The best split of every leaf and its feature, see [`best_splits`](crate::best_splits); one small record per leaf
    /// comes back.
    ///
    /// # Panics
    /// If a leaf has no histogram.
    fn best_splits(&self, tasks: &[LeafTask]) -> Vec<Option<(u32, Split)>>;

    /// Whether all rows of a span ask for the same output, see [`gradients_agree`](crate::gradients_agree).
    fn agree(&self, span: Range<usize>) -> bool;

    /// Parts the rows of a leaf, see [`TreeRows::partition`](crate::TreeRows::partition); nothing comes back, the count
    /// is known from the split.
    fn partition(&mut self, span: Range<usize>, feature: u32, left_bins: &[bool]);

    /// The rows, leaf after leaf.
    fn rows(&self) -> Vec<u32>;
}

/// Trees grown on all rows of a device one after the other, each on the gradients that those before it left.
pub trait BoostEngine: TreeEngine {
    /// Begins with no tree.
    ///
    /// # Panics
    /// If there is not a label and weight for every row of the data set.
    fn boost(&mut self, targets: &BoostTargets);

    /// Begins a tree over `rows`, in fixed-point gradients of which a unit is worth `scale`, and returns their sum.
    ///
    /// # Panics
    /// As [`TreeDevice::start`](crate::TreeDevice::start).
    fn start(&mut self, pairs: &[[i32; 2]], scale: GradientScale, rows: &[u32]) -> GradientSum;

    /// Begins the next boosted tree, and returns what a unit of its gradients is worth and their sum;
    /// `None` when a gradient is not a finite number.
    fn start_boosted(&mut self) -> Option<(GradientScale, GradientSum)>;

    /// Adds a leaf's value to the margins of its rows. The spans are those of a tree that has grown, all of them.
    fn add_leaves(&mut self, leaves: &[(Range<usize>, f64)]);

    /// The margins of all rows.
    fn margins(&self) -> Vec<f64>;
}
