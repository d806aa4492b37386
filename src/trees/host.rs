//! The engine of the CPU: histograms in cache-sized tiles, features in parallel.

use std::ops::Range;

use graphsieve_kernels::{FeatureMask, LeafTask, TreeEngine, better_split, gradients_agree};
use rayon::prelude::*;

use super::dataset::Dataset;
use super::fixed_point::Gradients;
use super::histogram::{Histogram, Layout, column_sums};
use super::partition::partition;
use super::split::{GradientSum, Split, SplitFeature, SplitRule, best_split};

/// Rows below which a leaf is not worth handing out column by column.
const FEW_ROWS: usize = 2048;

/// Features of a task that reads histograms.
const TASK_FEATURES: usize = 8;

/// One tree being grown on the CPU.
pub(super) struct HostTrees<'a> {
    data: &'a Dataset,
    gradients: &'a Gradients,
    rule: &'a SplitRule,
    features: &'a [SplitFeature],
    /// What a leaf looks at unless it is told.
    all: Vec<(u32, FeatureMask)>,
    layout: Layout,
    /// Leaves look at few of the features: read those columns instead of keeping histograms of all.
    direct: bool,
    pub rows: Vec<u32>,
    scratch: Vec<u32>,
    leaves: Vec<Leaf>,
}

#[derive(Clone, Default)]
struct Leaf {
    span: Range<usize>,
    histogram: Option<Histogram>,
}

impl<'a> HostTrees<'a> {
    /// A tree over `rows` that sees the features `seen` of `data`, all of which are in `features`.
    pub fn new(
        data: &'a Dataset,
        gradients: &'a Gradients,
        rule: &'a SplitRule,
        features: &'a [SplitFeature],
        seen: &[u32],
        direct: bool,
        rows: Vec<u32>,
    ) -> Self {
        let layout = Layout::new(data, seen);
        let all = seen.iter().map(|&feature| (feature, FeatureMask::Any)).collect();
        let scratch = vec![0; rows.len()];
        HostTrees { data, gradients, rule, features, all, layout, direct, rows, scratch, leaves: Vec::new() }
    }

    fn leaf(&mut self, leaf: usize) -> &mut Leaf {
        if self.leaves.len() <= leaf {
            self.leaves.resize_with(leaf + 1, Leaf::default);
        }
        &mut self.leaves[leaf]
    }

    fn histogram(&self, span: &Range<usize>) -> Histogram {
        Histogram::build(self.data, &self.layout, self.gradients, &self.rows[span.clone()])
    }

    fn best(&self, task: &LeafTask) -> Option<(u32, Split)> {
        let Leaf { span, histogram } = &self.leaves[task.leaf];
        let rows = &self.rows[span.clone()];
        let masks = task.masks.unwrap_or(&self.all);
        let together = match histogram {
            Some(_) => TASK_FEATURES,
            None if rows.len() < FEW_ROWS => masks.len(),
            None => 1,
        };
        let by_feature = |&(number, mask): &(u32, FeatureMask)| {
            let feature = &self.features[number as usize];
            let draw = match mask {
                FeatureMask::Any => None,
                FeatureMask::Drawn(bits) => Some(bits),
                FeatureMask::Skip => return None,
            };
            let search = |sums: &[GradientSum]| {
                let stored = &sums[feature.mfb_offset as usize..];
                best_split(stored, feature, &task.about, &self.gradients.scale, self.rule, draw)
            };
            let split = match histogram {
                Some(histogram) => search(histogram.feature(&self.layout, number)),
                None => {
                    let column = &self.data.columns()[number as usize];
                    search(&column_sums(column, feature.num_bin, self.gradients, rows))
                }
            };
            split.map(|split| (number, split))
        };
        masks.par_iter().with_min_len(together.max(1)).filter_map(by_feature).reduce_with(better_split)
    }
}

impl TreeEngine for HostTrees<'_> {
    fn build(&mut self, leaf: usize, span: Range<usize>, _: GradientSum) {
        let histogram = (!self.direct).then(|| self.histogram(&span));
        *self.leaf(leaf) = Leaf { span, histogram };
    }

    fn build_children(
        &mut self,
        left: usize,
        right: usize,
        left_rows: (Range<usize>, GradientSum),
        right_rows: (Range<usize>, GradientSum),
    ) {
        let parent = self.leaf(left).histogram.take();
        let left_is_smaller = left_rows.0.len() <= right_rows.0.len();
        let (mut of_left, mut of_right) = (None, None);
        if let Some(mut larger) = parent {
            let smaller = self.histogram(if left_is_smaller { &left_rows.0 } else { &right_rows.0 });
            larger.subtract(&smaller);
            (of_left, of_right) =
                if left_is_smaller { (Some(smaller), Some(larger)) } else { (Some(larger), Some(smaller)) };
        }
        *self.leaf(left) = Leaf { span: left_rows.0, histogram: of_left };
        *self.leaf(right) = Leaf { span: right_rows.0, histogram: of_right };
    }

    fn release(&mut self, leaf: usize) {
        self.leaf(leaf).histogram = None;
    }

    fn best_splits(&self, tasks: &[LeafTask]) -> Vec<Option<(u32, Split)>> {
        tasks.iter().map(|task| self.best(task)).collect()
    }

    fn agree(&self, span: Range<usize>) -> bool {
        gradients_agree(self.rows[span].iter().map(|&row| self.gradients.pairs[row as usize]))
    }

    fn partition(&mut self, span: Range<usize>, feature: u32, left_bins: &[bool]) {
        let column = &self.data.columns()[feature as usize];
        partition(&mut self.rows[span.clone()], &mut self.scratch[span], column, left_bins);
    }

    fn rows(&self) -> Vec<u32> {
        self.rows.clone()
    }
}
