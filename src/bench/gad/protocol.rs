//! The splits of GADBench, node by node.
//!
//! Its authors drew them with scikit-learn's `train_test_split` and numpy's `choice`, both on numpy's legacy generator
//! ([`RandomState`](super::numpy_random)): `tests/golden/make_gad_splits.py` holds this file to them. A data set that
//! comes with masks is divided by these.

use clap::ValueEnum;
use serde::Serialize;

use super::numpy_random::RandomState;
use crate::bench::usage;
use crate::data::split::Split;
use crate::error::Result;
use crate::graph::Dataset;

/// Splits of the protocol.
pub(super) const SPLITS: usize = 10;

/// Nodes of each class, normal and anomalous, that `semi` has for training, and again for validation.
const FEW: [usize; 2] = [80, 20];

/// How many of the labelled nodes are known in training.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// 40 % for training, 20 % for validation, 40 % for the test, the same in both classes, or the masks of the data
    Full,
    /// 20 anomalous and 80 normal nodes for training, as many for validation, the rest for the test
    Semi,
}

impl Protocol {
    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Protocol::Full => "full",
            Protocol::Semi => "semi",
        }
    }
}

/// The labels of a data set, to be divided.
pub(super) struct Splits<'a> {
    dataset: &'a Dataset,
    protocol: Protocol,
    /// For training and validation, of `full`.
    shares: [f64; 2],
    /// `(node, label)` by node.
    labels: Vec<(u32, u8)>,
}

impl<'a> Splits<'a> {
    /// `labels` of `dataset`; `shares` go to training and validation in [`Protocol::Full`].
    ///
    /// # Errors
    /// [`Error::Usage`](crate::error::Error::Usage) for shares that leave a part empty.
    pub fn new(dataset: &'a Dataset, labels: &[(u32, u8)], protocol: Protocol, shares: [f64; 2]) -> Result<Self> {
        let valid = shares.iter().all(|&share| share > 0.0) && shares.iter().sum::<f64>() < 1.0;
        if !valid {
            let found = format!("{} and {}", shares[0], shares[1]);
            return Err(usage(
                "--train-share, --validation-share",
                "numbers above 0 with a sum below 1",
                &found,
                "0.4 and 0.2 are usual",
            ));
        }
        let mut labels = labels.to_vec();
        labels.sort_unstable();
        Ok(Self { dataset, protocol, shares, labels })
    }

    /// Where the splits come from, in words.
    pub fn source(&self) -> &'static str {
        if self.mask(0).is_some() { "masks of the data" } else { "drawn as GADBench draws them" }
    }

    /// Split number `at`, counted from 0.
    ///
    /// # Errors
    /// [`Error::Data`](crate::error::Error::Data) when there are too few nodes of a class.
    pub fn split(&self, at: usize) -> Result<Split> {
        let places = match self.mask(at) {
            Some(parts) => return Split::of_parts(parts),
            None if self.protocol == Protocol::Full => self.full(seed(at) as u32),
            None => self.semi(at),
        };
        Split::of_parts(places.map(|part| part.into_iter().map(|place| self.labels[place]).collect()))
    }

    /// A split that the data come with. Files of the benchmark hold ten of `full`, then ten of `semi`; one that is
    /// given alone is every one of `full`.
    fn mask(&self, at: usize) -> Option<[Vec<(u32, u8)>; 3]> {
        let masks = self.dataset.classes.as_ref()?.masks();
        let masks = match self.protocol {
            Protocol::Full => &masks[..masks.len().min(SPLITS)],
            Protocol::Semi => masks.get(SPLITS..)?,
        };
        let mask = masks.get(if masks.len() == 1 { 0 } else { at })?;
        let labelled = |nodes: &Vec<u32>| {
            let place = |node: &u32| self.labels.binary_search_by_key(node, |entry| entry.0).ok();
            nodes.iter().filter_map(place).map(|place| self.labels[place]).collect()
        };
        Some([&mask.train, &mask.validation, &mask.test].map(labelled))
    }

    /// Two divisions by `train_test_split` with the same seed: training against the rest, validation against the test.
    fn full(&self, seed: u32) -> [Vec<usize>; 3] {
        let classes: Vec<u8> = self.labels.iter().map(|entry| entry.1).collect();
        let [train, validation] = self.shares.map(|share| (share * classes.len() as f64).floor() as usize);
        let [train, rest] = train_test_split(&classes, train, seed);
        let of_rest: Vec<u8> = rest.iter().map(|&place| classes[place]).collect();
        let [validation, test] =
            train_test_split(&of_rest, validation, seed).map(|part| part.iter().map(|&p| rest[p]).collect());
        [train, validation, test]
    }

    /// Draws of both classes by turns, from the generator that the seed of the last full split has left: each split
    /// goes on where the one before stopped.
    fn semi(&self, at: usize) -> [Vec<usize>; 3] {
        let mut random = RandomState::new(seed(SPLITS - 1) as u32);
        let of_class = [0, 1].map(|class| -> Vec<usize> {
            (0..self.labels.len()).filter(|&place| self.labels[place].1 == class).collect()
        });
        let mut parts: [Vec<usize>; 3] = Default::default();
        for split in 0..=at {
            for class in [1, 0] {
                let order = random.permutation(of_class[class].len());
                if split == at {
                    let few = FEW[class].min(order.len());
                    let twice = (2 * FEW[class]).min(order.len());
                    for (part, taken) in parts.iter_mut().zip([&order[..few], &order[few..twice], &order[twice..]]) {
                        part.extend(taken.iter().map(|&place| of_class[class][place]));
                    }
                }
            }
        }
        parts
    }
}

/// Seed of a split and of the models on it.
pub(super) fn seed(at: usize) -> u64 {
    3407 + 10 * at as u64
}

/// scikit-learn's `train_test_split(range(n), stratify=classes, train_size=train, random_state=seed)` of classes 0 and
/// 1: places of the first and of the second part.
fn train_test_split(classes: &[u8], train: usize, seed: u32) -> [Vec<usize>; 2] {
    let of_class =
        [0, 1].map(|class| -> Vec<usize> { (0..classes.len()).filter(|&place| classes[place] == class).collect() });
    let mut random = RandomState::new(seed);
    let counts = of_class.each_ref().map(Vec::len);
    let first = approximate_mode(counts, train, &mut random);
    let left = [0, 1].map(|class| counts[class] - first[class]);
    let second = approximate_mode(left, classes.len() - train, &mut random);
    let mut parts: [Vec<usize>; 2] = Default::default();
    for (class, places) in of_class.iter().enumerate() {
        let order = random.permutation(places.len());
        let taken = order.iter().map(|&at| places[at]);
        parts[0].extend(taken.clone().take(first[class]));
        parts[1].extend(taken.skip(first[class]).take(second[class]));
    }
    parts.iter_mut().for_each(|part| random.shuffle(part));
    parts
}

/// How many of `draws` each class gets: its share rounded down, and one more for those with the largest remainder,
/// drawn among equal ones.
fn approximate_mode(counts: [usize; 2], draws: usize, random: &mut RandomState) -> [usize; 2] {
    let total = (counts[0] + counts[1]).max(1) as f64;
    let exact = counts.map(|count| count as f64 / total * draws as f64);
    let mut taken = exact.map(|share| share.floor() as usize);
    let remainders = [0, 1].map(|class| exact[class] - exact[class].floor());
    let missing = draws.saturating_sub(taken[0] + taken[1]);
    if missing == 0 {
        return taken;
    }
    match remainders[0].total_cmp(&remainders[1]) {
        std::cmp::Ordering::Equal => {
            random.permutation(2).into_iter().take(missing).for_each(|class| taken[class] += 1)
        }
        larger => {
            let first = usize::from(larger.is_lt());
            [first, 1 - first].into_iter().take(missing).for_each(|class| taken[class] += 1);
        }
    }
    taken
}
