use graphsieve::trees::binning::Bins;
use graphsieve::trees::dataset::Column;
use graphsieve::trees::{BinMapper, BinRule, Dataset, Matrix, Missing};
use proptest::prelude::*;

use super::made::{Made, rule};

fn numeric(values: &[f64], max_bin: usize, missing: Missing) -> BinMapper {
    BinMapper::numeric(values, &BinRule { max_bin, missing, min_data_in_bin: 1, ..BinRule::default() })
}

#[test]
fn few_distinct_values_get_a_bin_each_and_zero_gets_its_own() {
    let mapper = numeric(&[-1.0, 0.0, 1.0, 2.0], 255, Missing::Nan);
    let bins: Vec<u32> = [-1.0, 0.0, 1.0, 2.0].iter().map(|&v| mapper.bin(v)).collect();
    assert_eq!((bins, mapper.default_bin, mapper.missing), (vec![0, 1, 2, 3], 1, Missing::None));
    assert_eq!((mapper.bin(-1e-40), mapper.bin(1e-30), mapper.bin(f64::NAN)), (1, 2, 1));
}

#[test]
fn nan_is_the_last_bin() {
    let mapper = numeric(&[1.0, 2.0, f64::NAN, 3.0], 255, Missing::Nan);
    assert_eq!((mapper.bin(f64::NAN), mapper.num_bin), (mapper.num_bin - 1, 5));
    assert_eq!(mapper.threshold(3), f64::MAX);
}

#[test]
fn a_mostly_zero_feature_leaves_its_zero_bin_unstored_only_when_it_is_bin_zero() {
    let mut values = vec![0.0; 90];
    values.extend([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0]);
    assert_eq!(numeric(&values, 255, Missing::Nan).mfb_offset(), 1);
    values[0] = -1.0;
    let mapper = numeric(&values, 255, Missing::Nan);
    assert_eq!((mapper.most_freq_bin, mapper.mfb_offset()), (1, 0));
}

#[test]
fn categories_are_ordered_by_frequency_and_unseen_ones_share_bin_zero() {
    let values: Vec<f64> = [7.0; 50].into_iter().chain([3.0; 80]).chain([5.0; 20]).collect();
    let mapper = BinMapper::categorical(&values, &BinRule::default());
    assert_eq!([3.0, 7.0, 5.0, 9.0, -2.0, f64::NAN].map(|v| mapper.bin(v)), [1, 2, 3, 0, 0, 0]);
    assert!(matches!(mapper.bins, Bins::Categorical { .. }));
}

#[test]
fn more_than_256_bins_take_two_bytes() {
    let values: Vec<f32> = (0..2000).map(|v| v as f32).collect();
    let x = Matrix::f32(&values, 1).unwrap();
    let rule = BinRule { max_bin: 1000, min_data_in_bin: 1, ..BinRule::default() };
    let data = Dataset::new(&x, &rule).unwrap();
    assert!(matches!(&data.columns()[0], Column::U16(_)));
    assert!(data.mappers()[0].num_bin > 900 && data.mappers()[0].num_bin <= 1000);
}

#[test]
fn an_infinite_value_is_refused_with_its_place() {
    let x = Matrix::f32(&[1.0, 2.0, f32::INFINITY, 4.0], 2).unwrap();
    let error = Dataset::new(&x, &BinRule::default()).unwrap_err().to_string();
    assert!(error.contains("feature 0 at row 1") && error.contains("finite"), "{error}");
}

#[test]
fn f32_and_f64_matrices_bin_alike() {
    let made = Made::mixed(500, 1);
    let wide: Vec<f64> = made.values.iter().map(|&v| v as f64).collect();
    let other = Dataset::new(&Matrix::f64(&wide, 4).unwrap(), &rule()).unwrap();
    assert_eq!(made.data().columns(), other.columns());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn bins_keep_the_order_and_thresholds_separate_them(
        values in prop::collection::vec(prop_oneof![3 => -10.0f64..10.0, 1 => Just(0.0), 1 => Just(f64::NAN)], 1..400),
        max_bin in 2usize..40,
    ) {
        let mapper = BinMapper::numeric(&values, &BinRule { max_bin, ..BinRule::default() });
        prop_assert!(mapper.num_bin as usize <= max_bin.max(2));
        for &value in values.iter().filter(|v| !v.is_nan()) {
            let bin = mapper.bin(value);
            prop_assert!(value <= mapper.threshold(bin));
            prop_assert!(bin == 0 || value > mapper.threshold(bin - 1));
        }
    }

    #[test]
    fn bins_do_not_change_under_doubling(values in prop::collection::vec(0.5f64..100.0, 1..300)) {
        let doubled: Vec<f64> = values.iter().map(|v| v * 2.0).collect();
        let (a, b) = (numeric(&values, 32, Missing::Nan), numeric(&doubled, 32, Missing::Nan));
        for (v, d) in values.iter().zip(&doubled) {
            prop_assert_eq!(a.bin(*v), b.bin(*d));
        }
    }
}

#[test]
fn bounds_come_from_the_chosen_rows_alone() {
    let made = Made::mixed(600, 2);
    let chosen: Vec<u32> = (0..600).filter(|row| row % 3 == 0).collect();
    let values: Vec<f32> = chosen.iter().flat_map(|&row| made.values[row as usize * 4..][..4].to_vec()).collect();
    let data = Dataset::on_rows(&made.x(), &chosen, &rule()).unwrap();
    let alone = Dataset::new(&Matrix::f32(&values, 4).unwrap(), &rule()).unwrap();
    assert_eq!((data.mappers(), data.columns()), (alone.mappers(), alone.columns()));
    let error = Dataset::on_rows(&made.x(), &[600], &rule()).unwrap_err().to_string();
    assert!(error.contains("rows below 600"), "{error}");
}
