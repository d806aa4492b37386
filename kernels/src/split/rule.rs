//! What a split is judged by, and what one is.

use crate::histogram::GradientSum;

/// Where the rows of a side are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Counts {
    /// Counted.
    #[default]
    Exact,
    /// `rint(H_side n / H)`, as LightGBM does; differs from the true count where hessians differ.
    Estimated,
}

/// What makes a split valid and what it is worth.
#[derive(Clone, Debug, PartialEq)]
pub struct SplitRule {
    /// `lambda_1 >= 0`. Default 0.
    pub lambda_l1: f64,
    /// `lambda_2 >= 0`. Default 0.
    pub lambda_l2: f64,
    /// Largest magnitude of an output; 0 sets no limit. Default 0.
    pub max_delta_step: f64,
    /// `p >= 0` of the path smoothing; 0 is off. Default 0.
    pub path_smooth: f64,
    /// Fewest rows on a side. Default 20.
    pub min_data_in_leaf: u32,
    /// Smallest hessian sum on a side. Default 1e-3.
    pub min_sum_hessian: f64,
    /// Gain that a split must exceed. Default 0.
    pub min_gain: f64,
    /// Categorical features with at most this many bins are split one category against the rest. Default 4.
    pub max_cat_to_onehot: u32,
    /// Most categories on the smaller list of a sorted split. Default 32.
    pub max_cat_threshold: u32,
    /// Added to `lambda_2` in sorted splits. Default 10.
    pub cat_l2: f64,
    /// Fewest rows of a category in sorted splits, and the pull of its sorting key towards 0. Default 10.
    pub cat_smooth: f64,
    /// Fewest rows between two candidates of a sorted split. Default 100.
    pub min_data_per_group: u32,
    /// How rows are counted. Default exact.
    pub counts: Counts,
    /// Whether any feature is monotone: sides are then scored by their bounded outputs. Default false.
    pub bounded: bool,
}

impl Default for SplitRule {
    fn default() -> Self {
        SplitRule {
            lambda_l1: 0.0,
            lambda_l2: 0.0,
            max_delta_step: 0.0,
            path_smooth: 0.0,
            min_data_in_leaf: 20,
            min_sum_hessian: 1e-3,
            min_gain: 0.0,
            max_cat_to_onehot: 4,
            max_cat_threshold: 32,
            cat_l2: 10.0,
            cat_smooth: 10.0,
            min_data_per_group: 100,
            counts: Counts::Exact,
            bounded: false,
        }
    }
}

/// What counts as missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// Nothing.
    None,
    /// The value zero.
    Zero,
    /// NaN; its bin is the last.
    Nan,
}

/// What a search has to know about a feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SplitFeature {
    /// Number of bins, the missing one included.
    pub num_bin: u32,
    /// 1 when bin 0 is the most frequent bin and is not among the stored sums, else 0.
    pub mfb_offset: u32,
    /// Bin of the value 0.
    pub default_bin: u32,
    /// What counts as missing.
    pub missing: Missing,
    /// Category bins instead of ordered ones; bin 0 is for missing, rare and unseen categories.
    pub categorical: bool,
    /// +1: the output may not fall as the feature grows; -1: it may not rise; 0: free.
    pub monotone: i8,
}

/// What a search has to know about a leaf.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SplitLeaf {
    /// Sum over its rows.
    pub sum: GradientSum,
    /// Its output, which path smoothing pulls the children towards.
    pub output: f64,
    /// Smallest and largest output that monotone ancestors allow.
    pub bounds: (f64, f64),
}

/// What a unit of fixed-point gradients and hessians is worth.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GradientScale {
    /// A power of two, so that the product with a sum is exact.
    pub grad_unit: f64,
    /// Likewise.
    pub hess_unit: f64,
}

impl GradientScale {
    #[inline]
    pub(crate) fn grad(&self, fixed: i64) -> f64 {
        fixed as f64 * self.grad_unit
    }

    #[inline]
    pub(crate) fn hess(&self, fixed: i64) -> f64 {
        fixed as f64 * self.hess_unit
    }
}

/// Which bins go left.
#[derive(Clone, Debug, PartialEq)]
pub enum Cut {
    /// Bins up to this one.
    UpTo(u32),
    /// These bins.
    Bins(Vec<u32>),
}

/// One side of a split.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SplitSide {
    /// Sum over its rows.
    pub sum: GradientSum,
    /// Output of the new leaf.
    pub output: f64,
}

/// The best split of a leaf by one feature.
#[derive(Clone, Debug, PartialEq)]
pub struct Split {
    /// Score of both sides less the parent's score and `min_gain`; positive.
    pub gain: f64,
    /// Which bins go left.
    pub cut: Cut,
    /// Whether the missing bin goes left.
    pub default_left: bool,
    /// The rows that go left.
    pub left: SplitSide,
    /// The other rows.
    pub right: SplitSide,
}
