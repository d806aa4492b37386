//! What a split is judged by, and what one is.

use serde::{Deserialize, Serialize};

use crate::trees::histogram::GradientSum;

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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Missing {
    /// Nothing; a NaN is read as zero.
    None,
    /// Zero and NaN.
    Zero,
    /// NaN, in the last bin; a feature without any becomes [`Missing::None`].
    #[default]
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

/// Bits of the magnitude of a gradient in fixed point.
const ROW_BITS: i32 = 30;

impl GradientScale {
    /// The finest scale at which no row exceeds 2^30, from the largest magnitudes.
    pub fn finest(max_grad: f64, max_hess: f64) -> Self {
        let unit = |max: f64| {
            // 2^e max in [2^(bits - 1), 2^bits), with an e whose powers of two are normal numbers.
            let floor_log2 = ((max.to_bits() >> 52) & 0x7ff) as i32 - 1023;
            let exponent = if max == 0.0 { 0 } else { (ROW_BITS - 1 - floor_log2).clamp(-1000, 1000) };
            f64::from_bits(((1023 - exponent) as u64) << 52)
        };
        Self { grad_unit: unit(max_grad), hess_unit: unit(max_hess) }
    }

    /// The real gradient sum.
    #[inline]
    pub fn grad(&self, fixed: i64) -> f64 {
        fixed as f64 * self.grad_unit
    }

    /// The real hessian sum.
    #[inline]
    pub fn hess(&self, fixed: i64) -> f64 {
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

/// Of two features' splits that of larger gain; of equal ones that of the smaller feature.
pub fn better_split(a: (u32, Split), b: (u32, Split)) -> (u32, Split) {
    let b_wins = b.1.gain > a.1.gain || (b.1.gain == a.1.gain && b.0 < a.0);
    if b_wins { b } else { a }
}

/// `bits` mapped to `0..bound`; 0 when the range is empty.
pub(crate) fn pick(bits: u64, bound: u32) -> u32 {
    ((u128::from(bits) * u128::from(bound)) >> 64) as u32
}

impl SplitFeature {
    /// The one threshold that random bits choose; of a feature split one category against the rest, the one bin.
    pub(crate) fn drawn(&self, bits: u64) -> u32 {
        if self.categorical { 1 + pick(bits, self.num_bin - 1) } else { pick(bits, self.num_bin.saturating_sub(2)) }
    }
}
