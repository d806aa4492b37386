//! Reductions, prefix sums, argsort and partition against the standard library, on every backend of the build.

use std::fmt::Debug;

use burn::tensor::{DType, Element, Float, Int, Tensor, TensorData};
use graphsieve_kernels::testing::harness::Trial;
use graphsieve_kernels::{
    NumberKind, Prefix, PrimsBackend, Reduction, argsort, on_every_backend, partition_by_flag, prefix_sum, reduce,
};

/// The trials of this file.
pub fn trials() -> Vec<Trial> {
    on_every_backend!(
        "prims";
        integers_reduce_like_those_of_the_host,
        floats_reduce_to_their_sum_and_extremes,
        extremes_pass_over_nan,
        nothing_has_a_sum_and_no_extremes,
        prefix_sums_of_integers_match_the_host,
        prefix_sums_of_whole_floats_are_exact,
        equal_keys_keep_their_order,
        floats_sort_in_total_order,
        flagged_values_come_first_in_order,
    )
}

/// Around planes, cubes and tiles, and several levels of them.
const SIZES: [usize; 11] = [0, 1, 31, 32, 33, 1023, 1024, 1025, 2048, 70_001, 1_000_000];

/// The same to sort: 128 and 256 blocks, merged by stages of every kind. A million has more stages of the same kinds,
/// which took a software driver most of a minute.
const SORTED: [usize; 11] = [0, 1, 31, 32, 33, 1023, 1024, 1025, 2048, 70_001, 140_000];

/// Reproducible bits.
fn bits(k: usize) -> u64 {
    let mut x = (k as u64).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

fn up<B: PrimsBackend, K: NumberKind<B>, E: Element>(values: &[E], device: &B::Device) -> Tensor<B, 1, K> {
    if values.is_empty() {
        return Tensor::empty([0], (device, E::dtype()));
    }
    Tensor::from_data(TensorData::new(values.to_vec(), [values.len()]), (device, E::dtype()))
}

fn down<B: PrimsBackend, K: NumberKind<B>, E: Element>(tensor: Tensor<B, 1, K>) -> Vec<E> {
    if tensor.dims() == [0] {
        return Vec::new();
    }
    tensor.into_data().into_vec().expect("the dtype of the test")
}

fn check_integers<B: PrimsBackend, E: Element + Ord + Copy + Debug>(
    value: impl Fn(u64) -> E,
    plus: impl Fn(E, E) -> E + Copy,
    device: &B::Device,
) {
    for len in SIZES.into_iter().filter(|&len| len > 0) {
        let values: Vec<E> = (0..len).map(|k| value(bits(k))).collect();
        let x = up::<B, Int, E>(&values, device);
        let of = |by| down::<B, Int, E>(reduce(x.clone(), by).expect("not empty"))[0];
        assert_eq!(of(Reduction::Sum), values.iter().copied().reduce(plus).unwrap(), "sum of {len}");
        assert_eq!(of(Reduction::Max), *values.iter().max().unwrap(), "largest of {len}");
        assert_eq!(of(Reduction::Min), *values.iter().min().unwrap(), "smallest of {len}");
    }
}

fn integers_reduce_like_those_of_the_host<B: PrimsBackend>(device: &B::Device) {
    check_integers::<B, i32>(|b| b as i32, i32::wrapping_add, device);
    check_integers::<B, u32>(|b| b as u32, u32::wrapping_add, device);
    check_integers::<B, i64>(|b| b as i64, i64::wrapping_add, device);
}

fn floats_reduce_to_their_sum_and_extremes<B: PrimsBackend>(device: &B::Device) {
    for len in SIZES.into_iter().filter(|&len| len > 0) {
        let values: Vec<f32> = (0..len).map(|k| (bits(k) as i64 as f64 / 2f64.powi(63)) as f32).collect();
        let x = up::<B, Float, f32>(&values, device);
        let of = |by| down::<B, Float, f32>(reduce(x.clone(), by).expect("not empty"))[0];
        let exact: f64 = values.iter().map(|&v| f64::from(v)).sum();
        let magnitude: f64 = values.iter().map(|&v| f64::from(v.abs())).sum();
        let error = (f64::from(of(Reduction::Sum)) - exact).abs();
        assert!(error <= f64::from(f32::EPSILON) * len as f64 * magnitude, "sum of {len}: off by {error}");
        assert_eq!(of(Reduction::Max), values.iter().copied().reduce(f32::max).unwrap(), "largest of {len}");
        assert_eq!(of(Reduction::Min), values.iter().copied().reduce(f32::min).unwrap(), "smallest of {len}");
    }
}

fn extremes_pass_over_nan<B: PrimsBackend>(device: &B::Device) {
    let mut values = vec![f32::NAN; 5000];
    let of = |values: &[f32], by| down::<B, Float, f32>(reduce(up::<B, Float, f32>(values, device), by).unwrap())[0];
    assert!(of(&values, Reduction::Max).is_nan());
    values[3333] = -2.5;
    values[4444] = f32::NEG_INFINITY;
    assert_eq!(of(&values, Reduction::Max), -2.5);
    assert_eq!(of(&values, Reduction::Min), f32::NEG_INFINITY);
}

fn nothing_has_a_sum_and_no_extremes<B: PrimsBackend>(device: &B::Device) {
    let x = up::<B, Int, i32>(&[], device);
    assert_eq!(down::<B, Int, i32>(reduce(x.clone(), Reduction::Sum).unwrap()), [0]);
    assert!(reduce(x.clone(), Reduction::Max).is_none() && reduce(x.clone(), Reduction::Min).is_none());
    assert_eq!(prefix_sum(x.clone(), Prefix::Inclusive).dims(), [0]);
    assert_eq!(argsort(x.clone()).dims(), [0]);
    let (parted, count) = partition_by_flag(x.clone(), x);
    assert_eq!((parted.dims(), down::<B, Int, i32>(count)), ([0], vec![0]));
}

fn check_prefix_sums<B: PrimsBackend, K: NumberKind<B>, E: Element + Copy + PartialEq + Debug>(
    zero: E,
    value: impl Fn(u64) -> E,
    plus: impl Fn(E, E) -> E,
    device: &B::Device,
) {
    for len in SIZES {
        let values: Vec<E> = (0..len).map(|k| value(bits(k))).collect();
        let mut sum = zero;
        let mut sums = vec![zero];
        for &v in &values {
            sum = plus(sum, v);
            sums.push(sum);
        }
        let x = up::<B, K, E>(&values, device);
        let inclusive = down::<B, K, E>(prefix_sum(x.clone(), Prefix::Inclusive));
        assert!(inclusive == sums[1..], "inclusive sums of {len} {:?}", E::dtype());
        let exclusive = down::<B, K, E>(prefix_sum(x, Prefix::Exclusive));
        assert!(exclusive == sums[..len], "exclusive sums of {len} {:?}", E::dtype());
    }
}

fn prefix_sums_of_integers_match_the_host<B: PrimsBackend>(device: &B::Device) {
    check_prefix_sums::<B, Int, i32>(0, |b| b as i32, i32::wrapping_add, device);
    check_prefix_sums::<B, Int, u32>(0, |b| b as u32, u32::wrapping_add, device);
    check_prefix_sums::<B, Int, i64>(0, |b| b as i64, i64::wrapping_add, device);
}

fn prefix_sums_of_whole_floats_are_exact<B: PrimsBackend>(device: &B::Device) {
    // Sums stay below 2^24, so that every order gives the same.
    check_prefix_sums::<B, Float, f32>(0.0, |b| (b % 17) as f32 - 8.0, |a, b| a + b, device);
}

fn check_order<B: PrimsBackend, K: NumberKind<B>, E: Element + Copy>(
    value: impl Fn(u64) -> E,
    compare: impl Fn(&E, &E) -> std::cmp::Ordering,
    device: &B::Device,
) {
    for len in SORTED {
        let values: Vec<E> = (0..len).map(|k| value(bits(k))).collect();
        let mut want: Vec<i32> = (0..len as i32).collect();
        want.sort_by(|&a, &b| compare(&values[a as usize], &values[b as usize]));
        let got = down::<B, Int, i32>(argsort(up::<B, K, E>(&values, device)));
        assert!(got == want, "order of {len} {:?}", E::dtype());
    }
}

fn equal_keys_keep_their_order<B: PrimsBackend>(device: &B::Device) {
    check_order::<B, Int, i32>(|b| (b % 100) as i32 - 50, Ord::cmp, device);
    check_order::<B, Int, u32>(|b| [0, 7, u32::MAX][(b % 3) as usize], Ord::cmp, device);
    check_order::<B, Int, i64>(|b| [i64::MIN, -1, 0, 1 << 40, i64::MAX][(b % 5) as usize], Ord::cmp, device);
}

fn floats_sort_in_total_order<B: PrimsBackend>(device: &B::Device) {
    // Any bits: both zeros, infinities and NaNs of both signs are among them.
    let special = [0.0, -0.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, -f32::NAN];
    let value =
        |b: u64| if b.is_multiple_of(16) { special[(b / 16 % 6) as usize] } else { f32::from_bits((b >> 32) as u32) };
    check_order::<B, Float, f32>(value, f32::total_cmp, device);
}

fn flagged_values_come_first_in_order<B: PrimsBackend>(device: &B::Device) {
    for len in SIZES {
        let values: Vec<i32> = (0..len).map(|k| bits(k) as i32).collect();
        // Flags are zero or anything else.
        let flags: Vec<i32> = (0..len).map(|k| (bits(k + len) % 3) as i32 - 1).collect();
        let with = |flagged: bool| (0..len).filter(move |&k| (bits(k + len) % 3 != 1) == flagged);
        let want: Vec<i32> = with(true).chain(with(false)).map(|k| values[k]).collect();
        let (parted, count) = partition_by_flag(up::<B, Int, i32>(&values, device), up::<B, Int, i32>(&flags, device));
        assert_eq!(down::<B, Int, i32>(count), [with(true).count() as i32]);
        assert!(down::<B, Int, i32>(parted) == want, "partition of {len}");
    }
    let (values, flags) = (up::<B, Int, u32>(&[u32::MAX, 1, 2], device), up::<B, Int, i32>(&[0, -1, 1], device));
    assert_eq!(values.dtype(), DType::U32);
    assert_eq!(down::<B, Int, u32>(partition_by_flag(values, flags).0), [1, 2, u32::MAX]);
}
