//! Rows parted by features, and whole trees against an engine of plain loops.

use std::ops::Range;

use graphsieve_kernels::testing::Rng;
use graphsieve_kernels::testing::harness::Trial;
use graphsieve_kernels::{
    BoostEngine, BoostLoss, BoostTargets, Cut, GradientScale, GradientSum, LeafTask, Missing, Split, SplitFeature,
    SplitLeaf, SplitRule, TreeBackend, TreeBins, TreeDevice, TreeEngine, TreeRows, best_split, boost_derivatives,
    gradients_agree, on_every_backend,
};

use super::splits::double_precision;
use super::table::{Table, pairs, total};

/// The trials of this file.
pub fn trials() -> Vec<Trial> {
    on_every_backend!(
        "growth";
        rows_part_stably_by_any_feature,
        sparse_rows_part_like_dense_ones,
        a_tree_grows_as_by_plain_loops(double_precision),
        boosting_leaves_the_margins_and_gradients_of_plain_loops(double_precision),
        margins_beyond_all_bounds_are_told(double_precision),
    )
}

fn rows_part_stably_by_any_feature<B: TreeBackend>(device: &B::Device) {
    let mut rng = Rng::new(5);
    let table = Table::random(&mut rng, 3000, &[256, 5, 300, 2, 17, 9]);
    let bins = table.upload::<B>(device);
    let mut rows: Vec<u32> = (0..4000).map(|_| rng.below(3000) as u32).collect();
    let mut list = TreeRows::<B>::new(&rows, 3000, device);
    for (feature, span) in [(0, 0..4000), (4, 1..3999), (2, 500..2600), (5, 7..8), (3, 9..9), (1, 0..2048)] {
        let marks: Vec<bool> = (0..table.num_bin[feature]).map(|_| rng.below(2) == 0).collect();
        list.partition(&bins, feature as u32, &marks, span.clone());
        let goes_left = |row: &u32| marks[table.bin(feature, *row as usize) as usize];
        // A stable sort by side.
        rows[span].sort_by_key(|row| !goes_left(row));
        assert!(list.to_host() == rows, "parted by feature {feature}");
    }
}

fn sparse_rows_part_like_dense_ones<B: TreeBackend>(device: &B::Device) {
    let mut rng = Rng::new(6);
    let num_bin = [4, 300, 9];
    let table = Table::random(&mut rng, 500, &num_bin);
    let left_out = [1, 7, 8];
    let (mut row_ptr, mut entries) = (vec![0], Vec::new());
    for row in 0..500 {
        let of_row = (0..3).map(|feature| (feature as u32, table.bin(feature, row)));
        entries.extend(of_row.filter(|&(feature, bin)| bin != left_out[feature as usize]));
        row_ptr.push(entries.len());
    }
    let dense = table.upload::<B>(device);
    let sparse = TreeBins::<B>::sparse(&num_bin, &left_out, &row_ptr, &entries, device);
    let rows: Vec<u32> = (0..500).collect();
    let (mut by_dense, mut by_sparse) = (TreeRows::new(&rows, 500, device), TreeRows::new(&rows, 500, device));
    for (feature, bins) in num_bin.into_iter().enumerate() {
        let marks: Vec<bool> = (0..bins).map(|bin| bin % 3 != 1).collect();
        by_dense.partition(&dense, feature as u32, &marks, 20..470);
        by_sparse.partition(&sparse, feature as u32, &marks, 20..470);
        assert_eq!(by_sparse.to_host(), by_dense.to_host(), "feature {feature}");
    }
}

/// A split that was made: leaf, feature and what was found.
type Step = (usize, u32, Split);

const LEAVES: usize = 12;

/// Rows of a leaf and what is known of it.
type Open = (Range<usize>, SplitLeaf);

const SCALE: GradientScale = GradientScale { grad_unit: 1.0 / (1 << 28) as f64, hess_unit: 1.0 / (1 << 28) as f64 };

fn growth_features(table: &Table) -> Vec<SplitFeature> {
    let missing = [Missing::None, Missing::Nan, Missing::Zero];
    (0..table.num_bin.len())
        .map(|f| SplitFeature {
            num_bin: table.num_bin[f],
            mfb_offset: u32::from(table.left_out[f] == Some(0)),
            default_bin: table.num_bin[f] / 2,
            missing: missing[f % 3],
            categorical: table.num_bin[f] <= 4,
            monotone: 0,
        })
        .collect()
}

fn left_bins(feature: &SplitFeature, split: &Split) -> Vec<bool> {
    let missing = match feature.missing {
        Missing::None => None,
        Missing::Zero => Some(feature.default_bin),
        Missing::Nan => Some(feature.num_bin - 1),
    };
    (0..feature.num_bin)
        .map(|bin| match &split.cut {
            Cut::Bins(bins) => bins.contains(&bin),
            Cut::UpTo(_) if Some(bin) == missing => split.default_left,
            Cut::UpTo(threshold) => bin <= *threshold,
        })
        .collect()
}

/// Grows a tree leaf by leaf, the largest gain first, on any engine.
fn grown(engine: &mut dyn TreeEngine, table: &Table, sum: GradientSum) -> (Vec<Step>, Vec<u32>) {
    let features = growth_features(table);
    let num_rows = sum.count as usize;
    engine.build(0, 0..num_rows, sum);
    let leaf = |sum, output| SplitLeaf { sum, output, bounds: (f64::NEG_INFINITY, f64::INFINITY) };
    let task = |leaf, about| LeafTask { leaf, about, masks: None };
    let mut open: Vec<Open> = vec![(0..num_rows, leaf(sum, 0.0))];
    let mut best = engine.best_splits(&[task(0, open[0].1)]);
    let mut steps = Vec::new();
    while open.len() < LEAVES {
        let gain = |at: usize| best[at].as_ref().map_or(f64::NEG_INFINITY, |(_, split)| split.gain);
        let at = (0..open.len()).rev().max_by(|&a, &b| gain(a).total_cmp(&gain(b))).expect("there is a root");
        let Some((feature, split)) = best[at].take() else { break };
        let span = open[at].0.clone();
        engine.partition(span.clone(), feature, &left_bins(&features[feature as usize], &split));
        let middle = span.start + split.left.sum.count as usize;
        let (left, right) = ((span.start..middle, split.left.sum), (middle..span.end, split.right.sum));
        let new = open.len();
        engine.build_children(at, new, left.clone(), right.clone());
        open[at] = (left.0, leaf(left.1, split.left.output));
        open.push((right.0, leaf(right.1, split.right.output)));
        let found = engine.best_splits(&[task(at, open[at].1), task(new, open[new].1)]);
        best.push(None);
        for (at, found) in [at, new].into_iter().zip(found) {
            if found.is_none() {
                engine.release(at);
            }
            best[at] = found;
        }
        steps.push((at, feature, split));
    }
    (steps, engine.rows())
}

/// The engine of plain loops: every leaf is summed up afresh.
struct Loops<'a> {
    table: &'a Table,
    rule: SplitRule,
    pairs: Vec<[i32; 2]>,
    rows: Vec<u32>,
    spans: Vec<Range<usize>>,
}

impl TreeEngine for Loops<'_> {
    fn build(&mut self, leaf: usize, span: Range<usize>, _: GradientSum) {
        self.spans[leaf] = span;
    }

    fn build_children(
        &mut self,
        left: usize,
        right: usize,
        left_rows: (Range<usize>, GradientSum),
        right_rows: (Range<usize>, GradientSum),
    ) {
        (self.spans[left], self.spans[right]) = (left_rows.0, right_rows.0);
    }

    fn release(&mut self, _: usize) {}

    fn best_splits(&self, tasks: &[LeafTask]) -> Vec<Option<(u32, Split)>> {
        let features = growth_features(self.table);
        let best = |&LeafTask { leaf, about, .. }: &LeafTask| {
            let rows = &self.rows[self.spans[leaf].clone()];
            assert_eq!(about.sum, total(&self.pairs, rows), "the sum of leaf {leaf}");
            let sums = self.table.sums(&self.pairs, rows);
            let mut best: Option<(u32, Split)> = None;
            let mut first = 0;
            for (number, feature) in features.iter().enumerate() {
                let stored = &sums[first + feature.mfb_offset as usize..first + feature.num_bin as usize];
                first += feature.num_bin as usize;
                if let Some(split) = best_split(stored, feature, &about, &SCALE, &self.rule, None)
                    && best.as_ref().is_none_or(|(_, b)| split.gain > b.gain)
                {
                    best = Some((number as u32, split));
                }
            }
            best
        };
        tasks.iter().map(best).collect()
    }

    fn partition(&mut self, span: Range<usize>, feature: u32, left_bins: &[bool]) {
        let table = self.table;
        self.rows[span].sort_by_key(|&row| !left_bins[table.bin(feature as usize, row as usize) as usize]);
    }

    fn agree(&self, span: Range<usize>) -> bool {
        gradients_agree(self.rows[span].iter().map(|&row| self.pairs[row as usize]))
    }

    fn rows(&self) -> Vec<u32> {
        self.rows.clone()
    }
}

fn a_tree_grows_as_by_plain_loops<B: TreeBackend>(device: &B::Device) {
    let mut rng = Rng::new(7);
    let table = Table::random(&mut rng, 4000, &[256, 5, 300, 2, 17, 90, 4, 12]);
    let rows: Vec<u32> = (0..4000).filter(|_| rng.below(5) > 0).collect();
    for rule in [
        SplitRule { min_data_in_leaf: 20, lambda_l2: 1.0, ..Default::default() },
        SplitRule { min_data_in_leaf: 5, path_smooth: 4.0, lambda_l1: 0.1, ..Default::default() },
    ] {
        let pairs: Vec<[i32; 2]> =
            pairs(&mut rng, 4000).into_iter().map(|[grad, hess]| [grad, hess.unsigned_abs() as i32]).collect();
        let spans = vec![0..rows.len(); LEAVES];
        let mut loops = Loops { table: &table, rule: rule.clone(), pairs: pairs.clone(), rows: rows.clone(), spans };
        let want = grown(&mut loops, &table, total(&pairs, &rows));
        assert_eq!(want.0.len(), LEAVES - 1);
        let bins = table.upload::<B>(device);
        let mut engine = TreeDevice::new(bins, &growth_features(&table), &rule).expect("double precision");
        let sum = engine.start(&pairs, SCALE, &rows);
        assert_eq!(sum, total(&pairs, &rows));
        assert_eq!(grown(&mut engine, &table, sum), want);
    }
}

/// A row's gradient and hessian in fixed point, by the definition.
fn fixed(targets: &BoostTargets, scale: &GradientScale, row: usize, margin: f64) -> [i32; 2] {
    let label = f64::from(targets.labels[row]);
    let (grad, hess) = boost_derivatives(targets.loss, margin, label);
    let class = if label > 0.5 { targets.class_weights.1 } else { targets.class_weights.0 };
    let weight = targets.weights.map_or(1.0, |w| f64::from(w[row])) * class;
    [grad * weight / scale.grad_unit, hess * weight / scale.hess_unit].map(|x| x.round_ties_even() as i32)
}

fn boosting_leaves_the_margins_and_gradients_of_plain_loops<B: TreeBackend>(device: &B::Device) {
    const ROWS: usize = 5000;
    let mut rng = Rng::new(8);
    let table = Table::random(&mut rng, ROWS, &[256, 5, 300, 17]);
    let weights: Vec<f32> = rng.uniform(ROWS).into_iter().map(|w| w as f32).collect();
    let labels: Vec<f32> = (0..ROWS).map(|_| rng.below(2) as f32).collect();
    let rule = SplitRule { min_data_in_leaf: 20, ..Default::default() };
    for (loss, weights, class_weights, step) in [
        (BoostLoss::Logistic, None, (1.0, 1.0), 0.3),
        (BoostLoss::Logistic, Some(&weights[..]), (0.6, 7.3), 40.0),
        (BoostLoss::Squared, Some(&weights[..]), (1.0, 1.0), 0.1),
    ] {
        let mut engine =
            TreeDevice::new(table.upload::<B>(device), &growth_features(&table), &rule).expect("double precision");
        let targets = BoostTargets { loss, labels: &labels, weights, class_weights, start: -0.7 };
        engine.boost(&targets);
        let mut margins = vec![-0.7; ROWS];
        for round in 0..4 {
            let (scale, sum) = engine.start_boosted().expect("the margins are finite");
            let all: Vec<u32> = (0..ROWS as u32).collect();
            let pairs: Vec<[i32; 2]> = (0..ROWS).map(|row| fixed(&targets, &scale, row, margins[row])).collect();
            assert_eq!(sum, total(&pairs, &all), "{loss:?}, round {round}");
            let largest = pairs.iter().flatten().map(|q| q.unsigned_abs()).max();
            assert!(largest.is_some_and(|q| q > 1 << 28 && q <= 1 << 30), "{largest:?}");
            engine.partition(0..ROWS, 0, &(0..256).map(|bin| bin % 3 == round).collect::<Vec<_>>());
            engine.partition(100..4000, 3, &(0..17).map(|bin| bin % 2 == 0).collect::<Vec<_>>());
            let rows = engine.rows();
            // In any order, and one leaf without rows.
            let value = |leaf: usize| step * (leaf as f64 - 1.3);
            let leaves = [(1200..ROWS, value(0)), (0..150, value(1)), (150..150, value(2)), (150..1200, value(3))];
            engine.add_leaves(&leaves);
            for (span, value) in leaves {
                rows[span].iter().for_each(|&row| margins[row as usize] += value);
            }
            assert_eq!(engine.margins(), margins, "{loss:?}, round {round}");
        }
    }
}

fn margins_beyond_all_bounds_are_told<B: TreeBackend>(device: &B::Device) {
    let mut rng = Rng::new(9);
    let table = Table::random(&mut rng, 300, &[7]);
    let mut engine = TreeDevice::new(table.upload::<B>(device), &growth_features(&table), &SplitRule::default())
        .expect("double precision");
    let labels = vec![1.0; 300];
    let (loss, weights, class_weights) = (BoostLoss::Squared, None, (1.0, 1.0));
    for (start, finite) in [(0.0, true), (f64::NAN, false), (f64::INFINITY, false), (1e308, true)] {
        engine.boost(&BoostTargets { loss, labels: &labels, weights, class_weights, start });
        assert_eq!(engine.start_boosted().is_some(), finite, "{start}");
    }
}
