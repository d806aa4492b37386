//! Best splits of leaves whose histograms are on the device.

use burn::tensor::ops::IntTensor;

use super::rule::{GradientScale, Missing, Split, SplitFeature, SplitLeaf, SplitRule};
use crate::runtime::host::index_tensor;
use crate::trees::histogram::{BinParts, Histogram, HistogramBackend, TreeBins};

/// Words of a feature on the device: number of bins, offset of the most frequent bin, bin of zero, what is missing,
/// direction, kind.
pub(crate) const FEATURE_WORDS: usize = 6;

/// Kinds of features on the device.
pub(crate) const ORDERED: i32 = 0;
/// Each category against the rest.
pub(crate) const ONE_HOT: i32 = 1;
/// Sorted categories.
pub(crate) const SORTED: i32 = 2;

/// Which thresholds of a feature may win in a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum FeatureMask {
    /// Any.
    #[default]
    Any,
    /// The one that these random bits choose, as in extremely randomised trees; see [`best_split`](crate::best_split).
    Drawn(u64),
    /// None: the leaf does not see the feature.
    Skip,
}

/// Backends with [`best_splits`].
pub trait SplitBackend: HistogramBackend {
    /// Whether the device computes in double precision, which splits are searched in.
    #[doc(hidden)]
    fn has_double_precision(device: &Self::Device) -> bool;

    #[doc(hidden)]
    fn best_splits(
        histograms: &[IntTensor<Self>],
        bins: &BinParts<IntTensor<Self>>,
        table: &IntTensor<Self>,
        input: &SplitInput,
    ) -> Vec<Option<(u32, Split)>>;
}

/// What is given on the host, besides histograms.
#[derive(Debug)]
pub struct SplitInput<'a> {
    pub features: &'a [SplitFeature],
    pub leaves: &'a [SplitLeaf],
    /// `[leaves, features]`
    pub masks: &'a [FeatureMask],
    pub scale: &'a GradientScale,
    pub rule: &'a SplitRule,
}

impl SplitInput<'_> {
    /// How the device looks at a feature.
    #[cfg(feature = "cube")]
    pub(crate) fn kind(&self, feature: &SplitFeature) -> i32 {
        kind(feature, self.rule)
    }
}

fn kind(feature: &SplitFeature, rule: &SplitRule) -> i32 {
    match feature.categorical {
        false => ORDERED,
        true if feature.num_bin <= rule.max_cat_to_onehot => ONE_HOT,
        true => SORTED,
    }
}

/// Features as a rule looks at them, on the device.
pub struct SplitFeatures<B: SplitBackend> {
    table: IntTensor<B>,
    features: Vec<SplitFeature>,
    rule: SplitRule,
}

impl<B: SplitBackend> SplitFeatures<B> {
    /// Uploads what is known of the features of `bins`.
    ///
    /// # Panics
    /// If their number or numbers of bins are not those of `bins`, an offset is above 1, or the bin of zero does not
    /// exist.
    pub fn new(features: &[SplitFeature], bins: &TreeBins<B>, rule: &SplitRule) -> Self {
        const OP: &str = "SplitFeatures";
        crate::runtime::check::size(OP, "features", bins.num_features(), features.len());
        let mut words = Vec::with_capacity(features.len() * FEATURE_WORDS);
        for (feature, &num_bin) in features.iter().zip(&bins.num_bin) {
            crate::runtime::check::size(OP, "num_bin", num_bin as usize, feature.num_bin as usize);
            let offset = feature.mfb_offset;
            assert!(offset <= 1 && offset <= num_bin, "{OP}: mfb_offset: expected 0 or 1, got {offset}");
            let zero = feature.default_bin;
            assert!(zero < num_bin.max(1), "{OP}: default_bin: expected one below {num_bin}, got {zero}");
            let missing = match feature.missing {
                Missing::None => 0,
                Missing::Zero => 1,
                Missing::Nan => 2,
            };
            let (num_bin, offset, zero) = (num_bin as i32, offset as i32, zero as i32);
            let monotone = if feature.categorical { 0 } else { feature.monotone.into() };
            words.extend([num_bin, offset, zero, missing, monotone, kind(feature, rule)]);
        }
        Self { table: index_tensor::<B>(words, &bins.device), features: features.to_vec(), rule: rule.clone() }
    }

    /// The features.
    pub fn features(&self) -> &[SplitFeature] {
        &self.features
    }

    /// What splits are judged by.
    pub fn rule(&self) -> &SplitRule {
        &self.rule
    }
}

/// A leaf whose best split is wanted.
#[derive(Debug)]
pub struct SplitTask<'a, B: SplitBackend> {
    /// The sums of its rows by bin, reconstructed but for a bin 0 that is the most frequent one of its feature.
    pub histogram: &'a Histogram<B>,
    /// What is known of it.
    pub leaf: SplitLeaf,
    /// What it may look at, per feature; nothing given is everything.
    pub masks: Option<&'a [FeatureMask]>,
}

/// The best split of every leaf and its feature; `None` for a leaf that no split improves. Larger gain wins, then the
/// feature of the smaller number, then the order of [`best_split`](crate::best_split), whose arithmetic this is: the
/// results are those of the CPU bit for bit on every device that divides in double precision as IEEE 754 asks.
///
/// On devices a cube takes one feature in one direction: the sums up to each threshold are a prefix sum of whole
/// numbers, the best threshold a reduction; a cube per leaf then reduces over features. One record per leaf comes back.
/// Categories that are sorted before they are split (`max_cat_to_onehot`) are searched on the host.
///
/// # Panics
/// If a histogram or list is not of `bins`, or the device has no double precision, see [`finds_splits`].
///
/// # Source
/// LightGBM `cuda_best_split_finder.cu`.
pub fn best_splits<B: SplitBackend>(
    bins: &TreeBins<B>,
    features: &SplitFeatures<B>,
    tasks: &[SplitTask<B>],
    scale: &GradientScale,
) -> Vec<Option<(u32, Split)>> {
    const OP: &str = "best_splits";
    crate::runtime::check::size(OP, "features", bins.num_features(), features.features.len());
    if tasks.is_empty() || features.features.is_empty() {
        return vec![None; tasks.len()];
    }
    let mut masks = Vec::with_capacity(tasks.len() * features.features.len());
    for task in tasks {
        match task.masks {
            Some(given) => {
                crate::runtime::check::size(OP, "masks", features.features.len(), given.len());
                masks.extend_from_slice(given);
            }
            None => masks.resize(masks.len() + features.features.len(), FeatureMask::Any),
        }
    }
    let histograms: Vec<IntTensor<B>> = tasks.iter().map(|task| task.histogram.sums.clone()).collect();
    let leaves: Vec<SplitLeaf> = tasks.iter().map(|task| task.leaf).collect();
    let (features, table, rule) = (&features.features, &features.table, &features.rule);
    B::best_splits(
        &histograms,
        &bins.parts,
        table,
        &SplitInput { features, leaves: &leaves, masks: &masks, scale, rule },
    )
}

/// Whether [`best_splits`] runs on `device`: it needs double precision, which some GPUs lack under Vulkan.
pub fn finds_splits<B: SplitBackend>(device: &B::Device) -> bool {
    B::has_double_precision(device)
}
