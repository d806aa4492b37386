//! Best splits on the CPU.

use burn::tensor::ops::IntTensor;
use burn_flex::{Flex, FlexDevice};
use rayon::prelude::*;

use super::rule::Split;
use super::table::{FeatureMask, SplitBackend, SplitInput};
use super::{best_split, better_split};
use crate::runtime::flex::ids;
use crate::trees::histogram::{BinParts, GradientSum, WORDS, i64s};

/// The best split by one feature, from the words of all bins.
pub(crate) fn split_by(
    words: &[i64],
    offset: usize,
    leaf: usize,
    feature: usize,
    input: &SplitInput,
) -> Option<(u32, Split)> {
    let about = &input.features[feature];
    let draw = match input.masks[leaf * input.features.len() + feature] {
        FeatureMask::Any => None,
        FeatureMask::Drawn(bits) => Some(bits),
        FeatureMask::Skip => return None,
    };
    let first = WORDS * (offset + about.mfb_offset as usize);
    let (stored, _) = words[first..WORDS * (offset + about.num_bin as usize)].as_chunks::<WORDS>();
    let stored: Vec<GradientSum> =
        stored.iter().map(|&[grad, hess, count]| GradientSum { grad, hess, count }).collect();
    let split = best_split(&stored, about, &input.leaves[leaf], input.scale, input.rule, draw);
    split.map(|split| (feature as u32, split))
}

impl SplitBackend for Flex {
    fn has_double_precision(_: &FlexDevice) -> bool {
        true
    }

    fn best_splits(
        histograms: &[IntTensor<Self>],
        bins: &BinParts<IntTensor<Self>>,
        _: &IntTensor<Self>,
        input: &SplitInput,
    ) -> Vec<Option<(u32, Split)>> {
        let offsets = ids(&bins.offsets);
        let of_leaf = |(leaf, sums): (usize, &IntTensor<Self>)| {
            let words = i64s(sums);
            (0..input.features.len())
                .into_par_iter()
                .filter_map(|feature| split_by(words, offsets[feature] as usize, leaf, feature, input))
                .reduce_with(better_split)
        };
        histograms.iter().enumerate().map(of_leaf).collect()
    }
}
