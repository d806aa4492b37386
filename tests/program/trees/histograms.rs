use graphsieve::trees::dataset::Column;
use graphsieve::trees::fixed_point::Gradients;
use graphsieve::trees::histogram::{Histogram, Layout, column_sums, reconstruct};
use graphsieve::trees::split::GradientSum;
use graphsieve::trees::{BinRule, Dataset, Matrix};

use super::made::{Made, on_threads};

fn gradients(rows: usize) -> Gradients {
    let pairs: Vec<(f64, f64)> =
        (0..rows).map(|row| ((row as f64 * 0.7).sin() * 3.0, (row as f64 * 0.3).cos().abs() - 0.01)).collect();
    Gradients::new(&pairs, 0).unwrap()
}

fn layout(data: &Dataset) -> Layout {
    Layout::new(data, &data.splittable())
}

#[test]
fn a_histogram_is_the_loop_over_rows_for_any_number_of_rows_and_threads() {
    let made = Made::mixed(70_000, 2);
    let (data, gradients) = (made.data(), gradients(70_000));
    let layout = layout(&data);
    for count in [0usize, 1, 2047, 2048, 2049, 32_767, 32_768, 32_769, 70_000] {
        let rows: Vec<u32> = (0..count as u32).collect();
        let reversed: Vec<u32> = rows.iter().rev().copied().collect();
        let one = on_threads(1, || Histogram::build(&data, &layout, &gradients, &rows));
        let three = on_threads(3, || Histogram::build(&data, &layout, &gradients, &reversed));
        assert_eq!(one, three);
        for feature in data.splittable() {
            let bins = data.mappers()[feature as usize].num_bin;
            let mut oracle = vec![GradientSum::default(); bins as usize];
            for &row in &rows {
                let [grad, hess] = gradients.pairs[row as usize];
                let at = data.columns()[feature as usize].bin(row as usize) as usize;
                oracle[at] += GradientSum { grad: grad as i64, hess: hess as i64, count: 1 };
            }
            assert_eq!(one.feature(&layout, feature), &oracle[..]);
            assert_eq!(column_sums(&data.columns()[feature as usize], bins, &gradients, &rows), oracle);
        }
    }
}

#[test]
fn parent_minus_smaller_is_the_larger_child_built_directly() {
    let made = Made::mixed(5000, 3);
    let (data, gradients) = (made.data(), gradients(5000));
    let layout = layout(&data);
    let (small, large): (Vec<u32>, Vec<u32>) = (0..5000u32).partition(|row| row % 7 == 0);
    let mut parent = Histogram::build(&data, &layout, &gradients, &(0..5000).collect::<Vec<_>>());
    parent.subtract(&Histogram::build(&data, &layout, &gradients, &small));
    assert_eq!(parent, Histogram::build(&data, &layout, &gradients, &large));
}

#[test]
fn a_left_out_bin_is_the_total_less_the_others() {
    let made = Made::mixed(3000, 4);
    let (data, gradients) = (made.data(), gradients(3000));
    let rows: Vec<u32> = (0..3000).collect();
    let full = column_sums(&data.columns()[2], data.mappers()[2].num_bin, &gradients, &rows);
    for left_out in 0..full.len() {
        let mut sums = full.clone();
        sums[left_out] = GradientSum { grad: 99, hess: 99, count: 99 };
        reconstruct(&mut sums, left_out as u32, gradients.total(&rows));
        assert_eq!(sums, full);
    }
}

#[test]
fn the_largest_sums_do_not_overflow() {
    let pairs = vec![(-1e300, 1e-300); 1 << 15];
    let gradients = Gradients::new(&pairs, 0).unwrap();
    let values = vec![1.0f32; 1 << 15];
    let mut values = values;
    values[0] = 2.0;
    let data = Dataset::new(&Matrix::f32(&values, 1).unwrap(), &BinRule { min_data_in_bin: 1, ..Default::default() });
    let data = data.unwrap();
    let rows: Vec<u32> = (0..1 << 15).collect();
    let layout = layout(&data);
    let histogram = Histogram::build(&data, &layout, &gradients, &rows);
    let sum: GradientSum = histogram.feature(&layout, 0).iter().copied().sum();
    assert_eq!(sum, gradients.total(&rows));
    assert!((gradients.scale.grad(sum.grad) / (-1e300 * 32768.0) - 1.0).abs() < 1e-9);
}

#[test]
fn rounding_loses_less_than_an_f32_would() {
    let pairs: Vec<(f64, f64)> = (0..1000).map(|row| ((row as f64).sin(), 0.25)).collect();
    let gradients = Gradients::new(&pairs, 0).unwrap();
    for (pair, fixed) in pairs.iter().zip(&gradients.pairs) {
        assert!((gradients.scale.grad(fixed[0] as i64) - pair.0).abs() <= 2f64.powi(-31));
        assert_eq!(gradients.scale.hess(fixed[1] as i64), 0.25);
    }
}

#[test]
fn a_gradient_that_is_not_finite_is_named() {
    let error = Gradients::new(&[(0.0, 1.0), (f64::NAN, 1.0)], 5).unwrap_err().to_string();
    assert!(error.contains("gradient of row 1 became NaN in epoch 5"), "{error}");
}

#[test]
fn wide_and_narrow_columns_go_into_one_histogram() {
    let values: Vec<f32> = (0..6000).flat_map(|row| [((row * 7919) % 6000) as f32, (row % 5) as f32]).collect();
    let rule = BinRule { max_bin: 1000, ..BinRule::default() };
    let data = Dataset::new(&Matrix::f32(&values, 2).unwrap(), &rule).unwrap();
    assert!(matches!((&data.columns()[0], &data.columns()[1]), (Column::U16(_), Column::U8(_))));
    let (gradients, layout) = (gradients(6000), layout(&data));
    let rows: Vec<u32> = (0..6000).collect();
    let histogram = Histogram::build(&data, &layout, &gradients, &rows);
    for feature in 0..2 {
        let column = &data.columns()[feature as usize];
        let bins = data.mappers()[feature as usize].num_bin;
        assert_eq!(histogram.feature(&layout, feature), &column_sums(column, bins, &gradients, &rows)[..]);
    }
}
