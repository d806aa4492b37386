//! Best splits on CubeCL devices.

use burn::tensor::DType;
use burn_backend::tensor::IntTensor;
use cubecl::prelude::*;

use super::cpu::split_by;
use super::kernel::{
    ANY, CandidatesArgs, FOUND_WORDS, LEAF_WORDS, LeafCandidatesArgs, LeafPlaceArgs, RULE_WORDS, RuleShape, SKIP,
    SearchInputsArgs, WINNER_WORDS, search_kernel, winner_kernel,
};
use super::rule::{Counts, Cut, Split, SplitRule};
use super::search::Search;
use super::table::{FeatureMask, SORTED, SplitBackend, SplitInput};
use super::{EPSILON, better_split};
use crate::runtime::args::array;
use crate::runtime::backends::impl_for_devices;
use crate::runtime::launch::{empty, has_doubles};
use crate::runtime::prims::kernel::THREADS;
use crate::trees::histogram::{BinParts, GradientSum, i64_tensor, i64_to_host};

fn shape(rule: &SplitRule) -> RuleShape {
    RuleShape {
        l1: rule.lambda_l1 != 0.0,
        step: rule.max_delta_step > 0.0,
        smooth: rule.path_smooth > 0.0,
        bounded: rule.bounded,
        estimated: rule.counts == Counts::Estimated,
    }
}

/// Rule, leaves and masks in the order of the kernel.
fn words(input: &SplitInput) -> Vec<i64> {
    let bits = |x: f64| x.to_bits() as i64;
    let rule = input.rule;
    let mut words = Vec::with_capacity(RULE_WORDS + input.leaves.len() * LEAF_WORDS + input.masks.len());
    words.extend([rule.lambda_l1, rule.lambda_l2, rule.max_delta_step, rule.path_smooth].map(bits));
    words.extend([f64::from(rule.min_data_in_leaf), rule.min_sum_hessian, EPSILON].map(bits));
    words.extend([input.scale.grad_unit, input.scale.hess_unit].map(bits));
    words.push(0);
    for leaf in input.leaves {
        let search = Search::new(rule, leaf, input.scale, 0);
        words.extend([search.grad, search.hess, search.rows_per_hess, search.shift].map(bits));
        words.extend([leaf.output, leaf.bounds.0, leaf.bounds.1].map(bits));
        words.extend([leaf.sum.grad, leaf.sum.hess, leaf.sum.count]);
    }
    words.extend(input.masks.iter().zip(input.features.iter().cycle()).map(|(mask, feature)| match mask {
        FeatureMask::Any => ANY,
        FeatureMask::Drawn(bits) => i64::from(feature.drawn(*bits)),
        FeatureMask::Skip => SKIP,
    }));
    words
}

/// The split that a record of a leaf describes.
fn split_of(record: &[i64], leaf: usize, input: &SplitInput) -> Option<(u32, Split)> {
    let feature = u32::try_from(record[0]).ok()? / 2;
    let about = &input.features[feature as usize];
    let search = Search::new(input.rule, &input.leaves[leaf], input.scale, about.monotone);
    let left = GradientSum { grad: record[4], hess: record[5], count: record[6] };
    let (left, right) = search.sides(input.rule.lambda_l2, left);
    let bin = record[2] as u32;
    let cut = if about.categorical { Cut::Bins(vec![bin]) } else { Cut::UpTo(bin) };
    let (gain, default_left) = (f64::from_bits(record[1] as u64), record[3] != 0);
    Some((feature, Split { gain, cut, default_left, left, right }))
}

impl_for_devices! { SplitBackend =>
    fn has_double_precision(device: &Self::Device) -> bool {
        has_doubles(&R::client(device))
    }

    fn best_splits(
        histograms: &[IntTensor<Self>],
        bins: &BinParts<IntTensor<Self>>,
        table: &IntTensor<Self>,
        input: &SplitInput,
    ) -> Vec<Option<(u32, Split)>> {
        let device = table.device.clone();
        assert!(Self::has_double_precision(&device), "best_splits: device: expected double precision on {device:?}");
        let (num_leaves, num_features) = (input.leaves.len(), input.features.len());
        let candidates = 2 * num_features;
        let words = i64_tensor::<Self>(words(input), &device);
        let gains = empty(&words, [num_leaves * candidates], DType::I64);
        let found = empty(&words, [num_leaves * candidates * FOUND_WORDS], DType::I64);
        let winners = empty(&words, [num_leaves * WINNER_WORDS], DType::I64);
        let client = &words.client;
        let dim = CubeDim::new_1d(THREADS as u32);
        let cubes = |count: usize| CubeCount::Static(count.clamp(1, 1 << 15) as u32, 1, 1);
        for (leaf, sums) in histograms.iter().enumerate() {
            // SAFETY: histogram, bins and features were checked against each other when they were made.
            unsafe {
                search_kernel::launch_unchecked::<R>(
                    client,
                    cubes(candidates),
                    dim,
                    SearchInputsArgs {
                        sums: array(sums),
                        offsets: array(&bins.offsets),
                        table: array(table),
                        words: array(&words),
                    }
                    .launch(),
                    CandidatesArgs { gains: array(&gains), found: array(&found) }.launch(),
                    LeafPlaceArgs { number: leaf, count: num_leaves, num_features }.launch(),
                    shape(input.rule),
                );
            }
        }
        // SAFETY: every leaf has its candidates and its record.
        unsafe {
            winner_kernel::launch_unchecked::<R>(
                client,
                cubes(num_leaves),
                dim,
                CandidatesArgs { gains: array(&gains), found: array(&found) }.launch(),
                array(&winners),
                LeafCandidatesArgs { count: num_leaves, candidates }.launch(),
            );
        }
        let records = i64_to_host::<Self>(winners);
        let (records, _) = records.as_chunks::<WINNER_WORDS>();
        let mut best: Vec<_> = records.iter().enumerate().map(|(leaf, r)| split_of(r, leaf, input)).collect();
        // Categories to be sorted are few and their search is short: the host does it.
        if input.features.iter().any(|feature| input.kind(feature) == SORTED) {
            for (leaf, sums) in histograms.iter().enumerate() {
                let words = i64_to_host::<Self>(sums.clone());
                let mut offset = 0;
                for (feature, about) in input.features.iter().enumerate() {
                    if input.kind(about) == SORTED {
                        let split = split_by(&words, offset, leaf, feature, input);
                        best[leaf] = best[leaf].take().into_iter().chain(split).reduce(better_split);
                    }
                    offset += about.num_bin as usize;
                }
            }
        }
        best
    }
}
