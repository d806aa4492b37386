//! Histograms against a loop over rows.

use std::ops::Range;

use graphsieve_kernels::testing::harness::Trial;
use graphsieve_kernels::testing::{Rng, with_narrow_additions};
use graphsieve_kernels::{
    BinColumn, BinValues, FixedGradients, GradientSum, Histogram, HistogramBackend, TreeBins, TreeRows,
    on_every_backend,
};

use super::table::{Table, one, pairs, total};

/// The trials of this file.
pub fn trials() -> Vec<Trial> {
    let mut trials = on_every_backend!(
        "histograms";
        histograms_equal_a_loop_over_rows,
        sparse_histograms_equal_dense_ones,
        the_larger_child_is_the_parent_less_the_smaller,
        the_most_skewed_and_largest_gradients_do_not_overflow,
        a_leaf_without_rows_has_an_empty_histogram,
    );
    // The CPU adds up in one way.
    let carries = on_every_backend!("histograms"; carries_between_words_give_the_sums_of_wide_additions);
    trials.extend(carries.into_iter().filter(|trial| !trial.name().starts_with("cpu::")));
    trials
}

/// Row counts and the numbers of bins of features: one tile, several tiles, wide features between narrow ones.
const SHAPES: [(usize, &[u32]); 5] =
    [(1, &[2]), (700, &[256, 3, 17, 255]), (5000, &[5, 300, 64, 2, 9, 1000, 256]), (2500, &[400]), (20_000, &[33; 9])];

/// Names the first few bins that differ.
fn assert_same(name: &str, got: &[GradientSum], want: &[GradientSum]) {
    let differs = |at: &usize| got.get(*at) != want.get(*at);
    let few: Vec<_> =
        (0..got.len().max(want.len())).filter(differs).take(5).map(|at| (at, got.get(at), want.get(at))).collect();
    assert!(few.is_empty(), "{name}: bin, found, expected: {few:?}");
}

fn span_of(rng: &mut Rng, len: usize) -> Range<usize> {
    let start = rng.below(len.div_ceil(3));
    start..start + 1 + rng.below(len - start)
}

fn histograms_equal_a_loop_over_rows<B: HistogramBackend>(device: &B::Device) {
    let mut rng = Rng::new(1);
    for (num_rows, num_bin) in SHAPES {
        let table = Table::random(&mut rng, num_rows, num_bin);
        let pairs = pairs(&mut rng, num_rows);
        // Rows in any order, some twice.
        let rows: Vec<u32> = (0..num_rows + num_rows / 2).map(|_| rng.below(num_rows) as u32).collect();
        let span = span_of(&mut rng, rows.len());
        let want = table.sums(&pairs, &rows[span.clone()]);
        let whole = total(&pairs, &rows[span.clone()]);

        let bins = table.upload::<B>(device);
        let (gradients, list) = (FixedGradients::new(&pairs, device), TreeRows::new(&rows, num_rows, device));
        assert_eq!(gradients.total(&list, span.clone()), whole, "{num_rows} rows");
        let histogram = Histogram::build(&bins, &gradients, &list, span);
        assert_same("stored bins", &histogram.to_host(), &table.stored(want.clone()));
        assert_same("all bins", &histogram.reconstruct(&bins, whole).to_host(), &want);
    }
}

fn sparse_histograms_equal_dense_ones<B: HistogramBackend>(device: &B::Device) {
    let mut rng = Rng::new(2);
    for (num_rows, num_bin) in SHAPES {
        let mut table = Table::random(&mut rng, num_rows, num_bin);
        table.left_out.iter_mut().for_each(|l| *l = l.or(Some(0)));
        let left_out: Vec<u32> = table.left_out.iter().map(|l| l.expect("set above")).collect();
        let (mut row_ptr, mut entries) = (vec![0], Vec::new());
        for row in 0..num_rows {
            let of_row = (0..num_bin.len()).map(|feature| (feature as u32, table.bin(feature, row)));
            entries.extend(of_row.filter(|&(feature, bin)| bin != left_out[feature as usize]));
            row_ptr.push(entries.len());
        }
        let pairs = pairs(&mut rng, num_rows);
        let rows: Vec<u32> = (0..num_rows as u32).rev().collect();
        let span = span_of(&mut rng, rows.len());
        let want = table.sums(&pairs, &rows[span.clone()]);
        let bins = TreeBins::<B>::sparse(num_bin, &left_out, &row_ptr, &entries, device);
        let (gradients, list) = (FixedGradients::new(&pairs, device), TreeRows::new(&rows, num_rows, device));
        let whole = gradients.total(&list, span.clone());
        let got = Histogram::build(&bins, &gradients, &list, span).reconstruct(&bins, whole).to_host();
        assert_same("sparse bins", &got, &want);
    }
}

fn the_larger_child_is_the_parent_less_the_smaller<B: HistogramBackend>(device: &B::Device) {
    let mut rng = Rng::new(3);
    let table = Table::random(&mut rng, 6000, &[256, 40, 300, 7, 2]);
    let pairs = pairs(&mut rng, 6000);
    let rows: Vec<u32> = (0..6000).collect();
    let (bins, list) = (table.upload::<B>(device), TreeRows::new(&rows, 6000, device));
    let gradients = FixedGradients::new(&pairs, device);
    let build = |span: Range<usize>| {
        Histogram::build(&bins, &gradients, &list, span.clone()).reconstruct(&bins, gradients.total(&list, span))
    };
    let parent = build(0..6000);
    let kept = parent.clone();
    let larger = parent.subtract(&build(0..2100));
    assert_same("larger child", &larger.to_host(), &table.sums(&pairs, &rows[2100..]));
    assert_same("parent", &kept.to_host(), &table.sums(&pairs, &rows));
}

fn the_most_skewed_and_largest_gradients_do_not_overflow<B: HistogramBackend>(device: &B::Device) {
    let num_rows = 300_000;
    let zeros = vec![0u8; num_rows];
    let bins = TreeBins::<B>::dense(
        &[BinColumn { bins: BinValues::U8(&zeros), num_bin: 1, left_out: None }],
        num_rows,
        device,
    );
    let rows: Vec<u32> = (0..num_rows as u32).collect();
    let list = TreeRows::new(&rows, num_rows, device);
    for pair in [[1 << 30, -(1 << 30)], [-(1 << 30), (1 << 30) - 1], [-1, 0xffff]] {
        let gradients = FixedGradients::new(&vec![pair; num_rows], device);
        let want: GradientSum = std::iter::repeat_n(one(pair), num_rows).sum();
        assert_eq!(Histogram::build(&bins, &gradients, &list, 0..num_rows).to_host(), [want]);
        assert_eq!(gradients.total(&list, 0..num_rows), want);
    }
}

fn a_leaf_without_rows_has_an_empty_histogram<B: HistogramBackend>(device: &B::Device) {
    let mut rng = Rng::new(4);
    let table = Table::random(&mut rng, 10, &[4, 300]);
    let bins = table.upload::<B>(device);
    let gradients = FixedGradients::new(&pairs(&mut rng, 10), device);
    let list = TreeRows::new(&[], 10, device);
    assert_eq!(gradients.total(&list, 0..0), GradientSum::default());
    let histogram = Histogram::build(&bins, &gradients, &list, 0..0).reconstruct(&bins, GradientSum::default());
    assert_eq!(histogram.to_host(), vec![GradientSum::default(); 304]);
}

fn carries_between_words_give_the_sums_of_wide_additions<B: HistogramBackend>(device: &B::Device) {
    with_narrow_additions(|| {
        histograms_equal_a_loop_over_rows::<B>(device);
        sparse_histograms_equal_dense_ones::<B>(device);
        the_most_skewed_and_largest_gradients_do_not_overflow::<B>(device);
    });
}
