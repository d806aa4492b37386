use super::*;
use crate::testing::fixtures::{Rng, fixtures, values_in};
use crate::testing::oracle::{SpmmWeights, keep_all, spmm};

#[test]
fn rounding_agrees_with_the_hardware_for_f32() {
    let mut x: Vec<f64> = Rng::new(1).normal(10_000);
    x.extend([0.0, -0.0, 1e-40, -3e-45, 1e-46, 3.4028235677973366e38, f64::MAX, f64::INFINITY, f64::MIN_POSITIVE]);
    for x in x {
        assert_eq!(Dtype::F32.round(x), x as f32 as f64, "{x:e}");
    }
    assert!(Dtype::F32.round(f64::NAN).is_nan());
}

#[test]
fn rounding_to_half_types_gives_the_values_of_the_standards() {
    let f16 = |x| Dtype::F16.round(x);
    assert_eq!([f16(1.0 / 3.0), f16(65_519.0), f16(65_520.0)], [0.333251953125, 65_504.0, f64::INFINITY]);
    assert_eq!([f16(2049.0), f16(2051.0)], [2048.0, 2052.0], "ties go to even");
    assert_eq!([f16(6e-8), f16(2e-8)], [(-24f64).exp2(), 0.0], "subnormals");
    let bf16 = |x| Dtype::Bf16.round(x);
    assert_eq!([bf16(1.0 / 3.0), bf16(257.0), bf16(-3.4e38)], [0.333984375, 256.0, f64::NEG_INFINITY]);
}

#[test]
fn relative_error_is_the_quotient_of_norms() {
    assert_eq!(relative_error(&[3.0, 4.5], &[3.0, 4.0]), 0.1);
    assert_eq!(relative_error(&[], &[]), 0.0);
    assert_eq!(relative_error(&[0.0], &[0.0]), 0.0);
    assert_eq!(scaled_error(&[0.5], &[0.0], &[2.0]), 0.25);
    assert!(relative_error(&[1e-30], &[0.0]) > 1e100);
}

#[test]
fn nan_and_unequal_infinities_never_pass() {
    let inf = f64::INFINITY;
    for (got, want) in [(f32::NAN, 1.0), (1.0, f64::NAN), (f32::NAN, f64::NAN), (f32::NAN, inf), (1.0, inf)] {
        assert_eq!(relative_error(&[1.0, got], &[1.0, want]), inf, "{got} {want}");
    }
    for (got, want) in [(f32::INFINITY, 1.0), (f32::INFINITY, -inf)] {
        assert_eq!(relative_error(&[1.0, got], &[1.0, want]), inf, "{got} {want}");
    }
    assert_eq!(relative_error(&[f32::INFINITY, 3.0], &[inf, 3.0]), 0.0);
}

#[test]
#[should_panic(expected = "spmm: relative error 1.000e-1 > ")]
fn a_failure_names_the_operator_and_its_error() {
    assert_close("spmm", &[3.0, 4.5], &[3.0, 4.0], Dtype::F32, 2);
}

#[test]
#[should_panic(expected = "worst at index 1 of 3: got NaN, want 4.0")]
fn a_failure_names_the_worst_element_and_nan_is_the_worst() {
    assert_close("spmm", &[3.0, f32::NAN, 9e9], &[3.0, 4.0, 5.0], Dtype::F32, 2);
}

#[test]
#[should_panic(expected = "spmm: got 2 elements, want 3")]
fn a_length_mismatch_panics() {
    assert_close("spmm", &[0.0, 0.0], &[0.0, 0.0, 0.0], Dtype::F32, 2);
}

/// Row sums of `terms` by a naive loop that rounds every partial sum to `accumulate`, stored as `store`.
fn naive_sums(terms: &[Vec<f64>], accumulate: Dtype, store: Dtype) -> Vec<f32> {
    let sum = |row: &Vec<f64>| row.iter().fold(0.0, |sum, x| accumulate.round(sum + x));
    terms.iter().map(|row| store.round(sum(row)) as f32).collect()
}

#[test]
fn f32_accumulation_passes_with_room_and_half_accumulation_fails() {
    for dtype in [Dtype::F32, Dtype::F16, Dtype::Bf16] {
        for len in [1, 32, 1500, 20_000] {
            let terms: Vec<Vec<f64>> = (0..64).map(|row| values_in(dtype, row, len)).collect();
            let want: Vec<f64> = terms.iter().map(|row| row.iter().sum()).collect();
            let bound = tolerance(dtype, len);
            let error = relative_error(&naive_sums(&terms, Dtype::F32, dtype), &want);
            assert!(error < bound / 3.0, "{dtype:?} {len}: {error:e} of {bound:e}");
            if dtype != Dtype::F32 && len >= 1500 {
                let error = relative_error(&naive_sums(&terms, dtype, dtype), &want);
                assert!(error > bound * 1.5, "{dtype:?} {len}: {error:e} of {bound:e}");
            }
        }
    }
}

#[test]
fn a_naive_f32_spmm_passes_on_every_fixture() {
    for f in fixtures() {
        let (width, kept) = (5, keep_all(&f));
        let x = values_in(Dtype::F32, 1, f.num_cols * width);
        let (u, v) = (values_in(Dtype::F32, 2, f.num_rows), values_in(Dtype::F32, 3, f.num_cols));
        let mut got = vec![0f32; f.num_rows * width];
        for (_, i, j) in f.edges() {
            for c in 0..width {
                got[i * width + c] += u[i] as f32 * v[j] as f32 * x[j * width + c] as f32;
            }
        }
        let weights = SpmmWeights { dst_scale: Some(&u), src_scale: Some(&v), edge_weight: None };
        let want = spmm(&f, &x, width, &weights, &kept);
        assert_close(&f.name, &got, &want, Dtype::F32, f.max_degree());
    }
}
