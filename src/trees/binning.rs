//! From feature values to bins: quantile bins for numbers, frequency-ordered bins for categories.
//!
//! The bounds are those of LightGBM (`BinMapper::FindBin`), so that models exchanged with it route rows alike: zero has
//! a bin of its own, a value falls into the first bin whose upper bound is not below it, NaN is the last bin of a
//! numeric feature and bin 0 of a categorical one.

pub use graphsieve_kernels::Missing;

use super::refuse;
use crate::error::Result;

/// |x| up to this counts as zero (LightGBM's `kZeroThreshold`, an f32 constant).
pub const ZERO_THRESHOLD: f64 = 1e-35_f32 as f64;
/// A second most common bin takes over from the zero bin only above this share (LightGBM's `kSparseThreshold`).
const SPARSE_SHARE: f64 = 0.7;

/// Largest category number: a split holds one bit per number, and an f32 holds no larger whole number for certain.
pub const MAX_CATEGORY: u32 = 1 << 24;

/// How a matrix is binned.
#[derive(Clone, Debug)]
pub struct BinRule {
    /// Most bins of a numeric feature, at least 2. Above 256 bins a column takes two bytes per row. Default 255.
    pub max_bin: usize,
    /// Fewest sampled rows in a bin. Default 3 (LightGBM).
    pub min_data_in_bin: usize,
    /// Columns that hold category numbers, whole numbers from 0 to [`MAX_CATEGORY`]. The most frequent categories that
    /// hold 99 % of the rows, and at least `max_bin` of them, get a bin each; the rest shares the bin of missing ones.
    /// Default none.
    pub categorical: Vec<usize>,
    /// What counts as missing. Default NaN.
    pub missing: Missing,
    /// Rows that the bounds are found from; the sample depends on `seed` only. Default 200 000 (LightGBM).
    pub sample_rows: usize,
    /// Seed of the sample. Default 1.
    pub seed: u64,
}

impl Default for BinRule {
    fn default() -> Self {
        BinRule {
            max_bin: 255,
            min_data_in_bin: 3,
            categorical: Vec::new(),
            missing: Missing::Nan,
            sample_rows: 200_000,
            seed: 1,
        }
    }
}

impl BinRule {
    pub(crate) fn check(&self, cols: usize) -> Result<()> {
        if !(2..=65_535).contains(&self.max_bin) {
            return Err(refuse::setting("max_bin", "2 to 65535", self.max_bin, "255 is the usual choice"));
        }
        if self.sample_rows == 0 {
            return Err(refuse::setting("sample_rows", "at least 1", 0, "200000 is the usual choice"));
        }
        if let Some(&col) = self.categorical.iter().find(|&&col| col >= cols) {
            let help = "columns are counted from 0";
            return Err(refuse::setting("categorical", format!("columns below {cols}"), col, help));
        }
        Ok(())
    }
}

/// The bins of one feature.
#[derive(Clone, Debug, PartialEq)]
pub struct BinMapper {
    /// Upper bounds or categories, by bin.
    pub bins: Bins,
    /// What counts as missing in this feature.
    pub missing: Missing,
    /// Number of bins, the missing one included.
    pub num_bin: u32,
    /// Bin of the value 0.
    pub default_bin: u32,
    /// Bin with the most sampled rows; a histogram need not store it when it is bin 0.
    pub most_freq_bin: u32,
    /// Smallest and largest sampled value (categorical: 0 and the largest category).
    pub range: (f64, f64),
}

/// What a bin holds.
#[derive(Clone, Debug, PartialEq)]
pub enum Bins {
    /// Inclusive upper bound per bin, ascending, the last +inf; a NaN bin follows them and has no bound here.
    Numeric(Vec<f64>),
    /// Category per bin; bin 0 is NaN, negative, rare and unseen categories and is `None`.
    Categorical {
        /// Category of each bin.
        of_bin: Vec<Option<u32>>,
        /// (category, bin), ascending, for look-up.
        lookup: Vec<(u32, u32)>,
    },
}

impl BinMapper {
    /// Bins for a numeric column from its (sampled) values; NaN allowed.
    pub fn numeric(values: &[f64], rule: &BinRule) -> Self {
        let total = values.len();
        let nans = values.iter().filter(|v| v.is_nan()).count();
        let mut missing = match rule.missing {
            Missing::Nan if nans == 0 => Missing::None,
            other => other,
        };
        let mut nonzero: Vec<f64> =
            values.iter().copied().filter(|v| !v.is_nan() && v.abs() > ZERO_THRESHOLD).collect();
        nonzero.sort_unstable_by(f64::total_cmp);
        let nan_rows = if missing == Missing::Nan { nans } else { 0 };
        // A NaN that is not a bin of its own is a zero.
        let zeros = total - nonzero.len() - nan_rows;
        let distinct = distinct_values(&nonzero, zeros);
        let max_bin = rule.max_bin - (missing == Missing::Nan) as usize;
        let bounds = bounds_around_zero(&distinct, max_bin, total - nan_rows, rule.min_data_in_bin);
        if missing == Missing::Zero && bounds.len() == 2 {
            missing = Missing::None;
        }
        let mut rows_in_bin = vec![0usize; bounds.len()];
        let mut bin = 0;
        for &(value, rows) in &distinct {
            while value > bounds[bin] {
                bin += 1;
            }
            rows_in_bin[bin] += rows;
        }
        if missing == Missing::Nan {
            rows_in_bin.push(nan_rows);
        }
        let range = (distinct.first().map_or(0.0, |d| d.0), distinct.last().map_or(0.0, |d| d.0));
        let num_bin = rows_in_bin.len() as u32;
        let mut mapper =
            BinMapper { bins: Bins::Numeric(bounds), missing, num_bin, default_bin: 0, most_freq_bin: 0, range };
        mapper.default_bin = mapper.bin(0.0);
        mapper.most_freq_bin = most_frequent(&rows_in_bin, mapper.default_bin, total);
        if missing == Missing::Zero {
            // The skipped bin must be the unstored one, or a forward scan would lose bin 0.
            mapper.most_freq_bin = mapper.default_bin;
        }
        mapper
    }

    /// Bins for a categorical column from its (sampled) values, most frequent category first.
    pub fn categorical(values: &[f64], rule: &BinRule) -> Self {
        let total = values.len();
        let mut known: Vec<u32> = values.iter().filter_map(|&v| category(v)).collect();
        known.sort_unstable();
        let mut counted: Vec<(usize, u32)> = known.chunk_by(|a, b| a == b).map(|run| (run.len(), run[0])).collect();
        let max_category = counted.last().map_or(0, |c| c.1);
        counted.sort_by_key(|&(rows, _)| std::cmp::Reverse(rows));
        let absent = total - known.len();
        // Categories that together hold the last percent of the rows share bin 0.
        let enough = (known.len() as f32 * 0.99_f32 + 0.5) as usize;
        let max_bin = rule.max_bin.min(counted.len() + (absent > 0) as usize);
        let (mut of_bin, mut rows_in_bin, mut used) = (vec![None], vec![0usize], 0);
        for (at, &(rows, category)) in counted.iter().enumerate() {
            let full = used >= enough && of_bin.len() >= max_bin;
            let rare = rows < rule.min_data_in_bin && at > 1;
            if full || rare || of_bin.len() > u16::MAX as usize {
                break;
            }
            of_bin.push(Some(category));
            rows_in_bin.push(rows);
            used += rows;
        }
        rows_in_bin[0] = total - used;
        let missing = if of_bin.len() == counted.len() + 1 && absent == 0 { Missing::None } else { Missing::Nan };
        let mut lookup: Vec<(u32, u32)> =
            of_bin.iter().enumerate().filter_map(|(bin, category)| category.map(|c| (c, bin as u32))).collect();
        lookup.sort_unstable();
        let num_bin = of_bin.len() as u32;
        let bins = Bins::Categorical { of_bin, lookup };
        let range = (0.0, max_category as f64);
        let mut mapper = BinMapper { bins, missing, num_bin, default_bin: 0, most_freq_bin: 0, range };
        mapper.default_bin = mapper.bin(0.0);
        mapper.most_freq_bin = most_frequent(&rows_in_bin, mapper.default_bin, total);
        mapper
    }

    /// True for a categorical feature.
    pub fn is_categorical(&self) -> bool {
        matches!(self.bins, Bins::Categorical { .. })
    }

    /// 1 when bin 0 is the most frequent bin, which a histogram need not store.
    pub fn mfb_offset(&self) -> u32 {
        (self.most_freq_bin == 0) as u32
    }

    /// The bin of `value`.
    pub fn bin(&self, value: f64) -> u32 {
        match &self.bins {
            Bins::Numeric(bounds) => {
                let value = match value.is_nan() {
                    true if self.missing == Missing::Nan => return self.num_bin - 1,
                    true => 0.0,
                    false => value,
                };
                // The last bound is +inf: searching without it keeps every answer in range.
                bounds[..bounds.len() - 1].partition_point(|&bound| bound < value) as u32
            }
            Bins::Categorical { lookup, .. } => category(value)
                .and_then(|c| lookup.binary_search_by_key(&c, |&(category, _)| category).ok())
                .map_or(0, |at| lookup[at].1),
        }
    }

    /// The value that separates bin `bin` from the next one; finite, also for the last numeric bin.
    pub fn threshold(&self, bin: u32) -> f64 {
        match &self.bins {
            Bins::Numeric(bounds) => bounds[bin as usize].min(f64::MAX),
            Bins::Categorical { .. } => bin as f64,
        }
    }

    /// The category that `bin` stands for; `None` for numbers and for bin 0.
    pub fn category_of(&self, bin: u32) -> Option<u32> {
        match &self.bins {
            Bins::Numeric(_) => None,
            Bins::Categorical { of_bin, .. } => of_bin[bin as usize],
        }
    }
}

/// The category number of `value`: its whole part; `None` for NaN, negative or too large.
pub(crate) fn category(value: f64) -> Option<u32> {
    (value > -1.0 && value < i32::MAX as f64).then_some(value as u32)
}

fn next_up(value: f64) -> f64 {
    value.next_up()
}

/// Equal up to one unit in the last place, for ordered values.
fn same(low: f64, high: f64) -> bool {
    high <= next_up(low)
}

/// (value, rows) ascending, zero inserted at its place.
fn distinct_values(sorted: &[f64], zeros: usize) -> Vec<(f64, usize)> {
    let mut distinct: Vec<(f64, usize)> = Vec::new();
    if sorted.is_empty() || (sorted[0] > 0.0 && zeros > 0) {
        distinct.push((0.0, zeros));
    }
    let mut before: Option<f64> = None;
    for &value in sorted {
        match (before, distinct.last_mut()) {
            (Some(low), Some(last)) if same(low, value) => *last = (value, last.1 + 1),
            _ => {
                if before.is_some_and(|low| low < 0.0) && value > 0.0 {
                    distinct.push((0.0, zeros));
                }
                distinct.push((value, 1));
            }
        }
        before = Some(value);
    }
    if before.is_some_and(|last| last < 0.0) && zeros > 0 {
        distinct.push((0.0, zeros));
    }
    distinct
}

/// Upper bounds with a bin of its own for zero; the budget is shared by the rows on either side.
fn bounds_around_zero(distinct: &[(f64, usize)], max_bin: usize, total: usize, min_data: usize) -> Vec<f64> {
    let first_zero = distinct.partition_point(|d| d.0 <= -ZERO_THRESHOLD);
    let first_positive = distinct.partition_point(|d| d.0 <= ZERO_THRESHOLD);
    let rows = |part: &[(f64, usize)]| part.iter().map(|d| d.1).sum::<usize>();
    let (negative, zero, positive) =
        (&distinct[..first_zero], &distinct[first_zero..first_positive], &distinct[first_positive..]);
    let mut bounds = Vec::new();
    if !negative.is_empty() && max_bin > 1 {
        let share = rows(negative) as f64 / (total - rows(zero)) as f64;
        let budget = ((share * (max_bin - 1) as f64) as usize).max(1);
        bounds = greedy_bounds(negative, budget, rows(negative), min_data);
        if let Some(last) = bounds.last_mut() {
            *last = -ZERO_THRESHOLD;
        }
    }
    let left = (max_bin - 1).saturating_sub(bounds.len());
    if !positive.is_empty() && left > 0 {
        bounds.push(ZERO_THRESHOLD);
        bounds.extend(greedy_bounds(positive, left, rows(positive), min_data));
    } else {
        bounds.push(f64::INFINITY);
    }
    bounds
}

/// Upper bounds of at most `max_bin` bins with about equal rows; a value with more rows than a fair share stands alone.
fn greedy_bounds(distinct: &[(f64, usize)], max_bin: usize, total: usize, min_data: usize) -> Vec<f64> {
    let mut bounds: Vec<f64> = Vec::new();
    let mut push = |low: f64, high: f64| {
        let bound = next_up((low + high) / 2.0);
        let new = bounds.last().is_none_or(|&last| !same(last, bound));
        if new {
            bounds.push(bound);
        }
        new
    };
    if distinct.len() <= max_bin {
        let mut rows = 0;
        for pair in distinct.windows(2) {
            rows += pair[0].1;
            if rows >= min_data && push(pair[0].0, pair[1].0) {
                rows = 0;
            }
        }
        bounds.push(f64::INFINITY);
        return bounds;
    }
    let max_bin = total.checked_div(min_data).map_or(max_bin, |most| max_bin.min(most).max(1));
    let fair = total as f64 / max_bin as f64;
    let big = |at: usize| distinct[at].1 as f64 >= fair;
    let (mut bins_left, mut rows_left) = (max_bin as f64, total);
    for (at, d) in distinct.iter().enumerate() {
        if big(at) {
            bins_left -= 1.0;
            rows_left -= d.1;
        }
    }
    let mut target = rows_left as f64 / bins_left;
    let (mut rows, mut bins) = (0usize, 0);
    for at in 0..distinct.len() - 1 {
        if !big(at) {
            rows_left -= distinct[at].1;
        }
        rows += distinct[at].1;
        let make_room = big(at + 1) && rows as f64 >= (target * 0.5).max(1.0);
        if big(at) || rows as f64 >= target || make_room {
            // A bin closes here; the last bin takes what is left.
            bins += 1;
            if bins < max_bin {
                push(distinct[at].0, distinct[at + 1].0);
            }
            if bins >= max_bin - 1 {
                break;
            }
            rows = 0;
            if !big(at) {
                bins_left -= 1.0;
                target = rows_left as f64 / bins_left;
            }
        }
    }
    bounds.push(f64::INFINITY);
    bounds
}

fn most_frequent(rows_in_bin: &[usize], default_bin: u32, total: usize) -> u32 {
    let mut best = 0;
    for (bin, &rows) in rows_in_bin.iter().enumerate() {
        if rows > rows_in_bin[best] {
            best = bin;
        }
    }
    let share = rows_in_bin[best] as f64 / total.max(1) as f64;
    if share < SPARSE_SHARE { default_bin } else { best as u32 }
}
