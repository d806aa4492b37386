//! Rows parted by features, and whole trees against an engine of plain loops.

use std::ops::Range;

use graphsieve_kernels::testing::Rng;
use graphsieve_kernels::{
    Cut, GradientScale, GradientSum, Look, Missing, Split, SplitFeature, SplitLeaf, SplitRule, TreeBackend, TreeBins,
    TreeDevice, TreeEngine, TreeRows, best_split,
};

use crate::table::{Table, pairs, total};

pub fn rows_part_stably_by_any_feature<B: TreeBackend>(device: &B::Device) {
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

pub fn sparse_rows_part_like_dense_ones<B: TreeBackend>(device: &B::Device) {
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
fn grown(engine: &mut dyn TreeEngine, table: &Table, pairs: &[[i32; 2]], rows: &[u32]) -> (Vec<Step>, Vec<u32>) {
    let features = growth_features(table);
    let sum = engine.start(pairs, SCALE, rows);
    engine.build(0, 0..rows.len(), sum);
    let leaf = |sum, output| SplitLeaf { sum, output, bounds: (f64::NEG_INFINITY, f64::INFINITY) };
    let mut open: Vec<Open> = vec![(0..rows.len(), leaf(sum, 0.0))];
    let mut best = engine.best_splits(&[(0, open[0].1)], None);
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
        let found = engine.best_splits(&[(at, open[at].1), (new, open[new].1)], None);
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
    fn start(&mut self, pairs: &[[i32; 2]], _: GradientScale, rows: &[u32]) -> GradientSum {
        (self.pairs, self.rows, self.spans) = (pairs.to_vec(), rows.to_vec(), vec![0..rows.len(); LEAVES]);
        total(pairs, rows)
    }

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

    fn best_splits(&self, leaves: &[(usize, SplitLeaf)], _: Option<&[Vec<Look>]>) -> Vec<Option<(u32, Split)>> {
        let features = growth_features(self.table);
        let best = |&(leaf, about): &(usize, SplitLeaf)| {
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
        leaves.iter().map(best).collect()
    }

    fn partition(&mut self, span: Range<usize>, feature: u32, left_bins: &[bool]) {
        let table = self.table;
        self.rows[span].sort_by_key(|&row| !left_bins[table.bin(feature as usize, row as usize) as usize]);
    }

    fn rows(&self) -> Vec<u32> {
        self.rows.clone()
    }
}

pub fn a_tree_grows_as_by_plain_loops<B: TreeBackend>(device: &B::Device) {
    let mut rng = Rng::new(7);
    let table = Table::random(&mut rng, 4000, &[256, 5, 300, 2, 17, 90, 4, 12]);
    let rows: Vec<u32> = (0..4000).filter(|_| rng.below(5) > 0).collect();
    for rule in [
        SplitRule { min_data_in_leaf: 20, lambda_l2: 1.0, ..Default::default() },
        SplitRule { min_data_in_leaf: 5, path_smooth: 4.0, lambda_l1: 0.1, ..Default::default() },
    ] {
        let pairs: Vec<[i32; 2]> =
            pairs(&mut rng, 4000).into_iter().map(|[grad, hess]| [grad, hess.unsigned_abs() as i32]).collect();
        let mut loops = Loops { table: &table, rule: rule.clone(), pairs: vec![], rows: vec![], spans: vec![] };
        let want = grown(&mut loops, &table, &pairs, &rows);
        assert_eq!(want.0.len(), LEAVES - 1);
        let bins = table.upload::<B>(device);
        match TreeDevice::new(bins, &growth_features(&table), &rule) {
            Ok(mut engine) => assert_eq!(grown(&mut engine, &table, &pairs, &rows), want),
            Err(why) => eprintln!("skipped: {why}"),
        }
    }
}
