//! Stratified division of labelled nodes into training, validation and test parts.

use std::collections::BTreeMap;

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::graph::{Masks, StoredSplit};

/// Shares of the labelled nodes that each part receives; all positive, sum 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SplitFractions {
    /// Share for fitting, default 0.6.
    pub train: f64,
    /// Share for choosing the checkpoint and the threshold, default 0.2.
    pub validation: f64,
    /// Share that is looked at once, default 0.2.
    pub test: f64,
}

impl Default for SplitFractions {
    fn default() -> Self {
        Self { train: 0.6, validation: 0.2, test: 0.2 }
    }
}

impl SplitFractions {
    fn as_array(self) -> [f64; 3] {
        [self.train, self.validation, self.test]
    }

    fn check(self) -> Result<()> {
        let parts = self.as_array();
        if parts.iter().all(|&f| f.is_finite() && f > 0.0) && (parts.iter().sum::<f64>() - 1.0).abs() < 1e-6 {
            return Ok(());
        }
        Err(Error::Data {
            what: "split fractions".into(),
            expected: "three positive fractions that add up to 1".into(),
            found: format!("train {}, validation {}, test {}", self.train, self.validation, self.test),
            help: "use for example 0.6, 0.2 and 0.2".into(),
        })
    }
}

/// Labelled nodes `(global id, label)` in three disjoint parts, each in ascending order of id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Split {
    /// Used for fitting.
    pub train: Vec<(u32, u8)>,
    /// Used for choosing the checkpoint and the threshold.
    pub validation: Vec<(u32, u8)>,
    /// Used once, for the final figures.
    pub test: Vec<(u32, u8)>,
}

/// A part of the labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Part {
    Train,
    Validation,
    Test,
}

impl Part {
    /// `training`, `validation` or `test`.
    pub fn name(self) -> &'static str {
        match self {
            Part::Train => "training",
            Part::Validation => "validation",
            Part::Test => "test",
        }
    }
}

impl Split {
    /// The part that holds the label of a node, if any does.
    pub fn part_of(&self, node: u32) -> Option<Part> {
        part_of([&self.train, &self.validation, &self.test], node)
    }

    /// Both parts that a model may learn from, in ascending order of id.
    pub fn training_and_validation(&self) -> Vec<(u32, u8)> {
        let mut both = [&self.train[..], &self.validation].concat();
        both.sort_unstable();
        both
    }

    /// Divides `labels` so that every class, and within a class every node type where its count allows, is spread over
    /// the parts by `fractions`.
    ///
    /// `type_of` gives the node type of a global id. The result depends on the *set* of labels and on `seed`, not on
    /// the order of `labels`. A class deviates from its exact share by less than one node per part.
    ///
    /// # Errors
    /// [`Error::Data`] when the fractions are not positive or do not add up to 1, when a label is neither 0 nor 1,
    /// when a node is labelled twice, and when a class would be without examples in one of the parts.
    pub fn stratified(
        labels: &[(u32, u8)],
        type_of: impl Fn(u32) -> usize,
        fractions: SplitFractions,
        seed: u64,
    ) -> Result<Self> {
        let sorted = checked(labels, fractions)?;

        let mut strata: BTreeMap<(u8, usize), Vec<u32>> = BTreeMap::new();
        for &(id, label) in &sorted {
            strata.entry((label, type_of(id))).or_default().push(id);
        }
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut parts: [Vec<(u32, u8)>; 3] = Default::default();
        for class in 0..2 {
            let mut groups: Vec<&mut Vec<u32>> =
                strata.iter_mut().filter(|((label, _), _)| *label == class).map(|(_, ids)| ids).collect();
            // Large groups first: the rounding of the last, small ones then restores the totals of the class.
            groups.sort_by_key(|ids| std::cmp::Reverse(ids.len()));
            let mut owed = [0.0; 3];
            for ids in groups {
                ids.shuffle(&mut rng);
                let mut rest = ids.as_slice();
                for (part, count) in parts.iter_mut().zip(apportion(ids.len(), fractions.as_array(), &mut owed)) {
                    let (taken, left) = rest.split_at(count);
                    part.extend(taken.iter().map(|&id| (id, class)));
                    rest = left;
                }
            }
            check_class(class, &parts)?;
        }
        for part in &mut parts {
            part.sort_unstable();
        }
        let [train, validation, test] = parts;
        Ok(Self { train, validation, test })
    }

    /// Divides whole groups, as [`whole_groups`] does. `group_of` gives the group of a global id.
    ///
    /// # Errors
    /// As for [`stratified`](Self::stratified); few large groups leave a part without a class.
    pub fn of_groups(
        labels: &[(u32, u8)],
        mut group_of: impl FnMut(u32) -> u32,
        fractions: SplitFractions,
        seed: u64,
    ) -> Result<Self> {
        let sorted = checked(labels, fractions)?;
        let mut parts: [Vec<(u32, u8)>; 3] = Default::default();
        let part_of = whole_groups(&sorted, &mut group_of, &fractions.as_array(), seed);
        sorted.into_iter().zip(part_of).for_each(|(entry, part)| parts[part].push(entry));
        Self::of_parts(parts).map_err(|error| match error {
            Error::Data { what, expected, found, .. } => {
                let help = "few groups hold most labels; name other groups, or split at random".into();
                Error::Data { what, expected, found, help }
            }
            other => other,
        })
    }

    /// Draws `[normal, anomalous]` nodes for training and as many for validation; the others are for the test, as in
    /// the semi-supervised setting of GADBench.
    ///
    /// # Errors
    /// [`Error::Data`] for labels other than 0 and 1 and a node that is labelled twice, [`Error::Config`] where no node
    /// of a class is left for the test.
    pub fn few(labels: &[(u32, u8)], counts: [usize; 2], seed: u64) -> Result<Self> {
        let mut sorted = labels.to_vec();
        sorted.sort_unstable();
        check_entries(&sorted)?;
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut parts: [Vec<(u32, u8)>; 3] = Default::default();
        for (class, count) in (0..2).zip(counts) {
            let mut nodes: Vec<(u32, u8)> = sorted.iter().filter(|(_, label)| *label == class).copied().collect();
            if count == 0 || nodes.len() / 2 < count || nodes.len() == 2 * count {
                let name = if class == 1 { "anomalous" } else { "normal" };
                let (key, all) = (format!("split.{name}"), nodes.len());
                let expected = format!("at least one, and fewer than half of {all} {name} nodes: as many validate");
                let help = format!("lower {key}, or split by shares");
                return Err(Error::setting(key, count.to_string(), expected, help));
            }
            nodes.shuffle(&mut rng);
            let rest = nodes.split_off(2 * count);
            parts[1].extend(nodes.split_off(count));
            parts[0].extend(nodes);
            parts[2].extend(rest);
        }
        Self::of_parts(parts)
    }

    /// The division by the masks of number `index`; nodes without a label are left out.
    ///
    /// # Errors
    /// [`Error::Config`] when there are no such masks, and as for [`of_parts`](Self::of_parts).
    pub fn of_masks(masks: &[Masks], index: usize, labels: &[(u32, u8)]) -> Result<Self> {
        let chosen = masks_at(masks, index)?;
        let mut sorted = labels.to_vec();
        sorted.sort_unstable();
        let label = |node: &u32| sorted.binary_search_by_key(node, |entry| entry.0).ok().map(|at| sorted[at]);
        let part = |nodes: &[u32]| nodes.iter().filter_map(label).collect();
        Self::of_parts([part(&chosen.train), part(&chosen.validation), part(&chosen.test)])
    }

    /// The division that belongs to the data, in the window that is looked at; labels in no part are left out.
    ///
    /// # Errors
    /// As for [`of_parts`](Self::of_parts).
    pub fn of_stored(stored: &StoredSplit, labels: &[(u32, u8)]) -> Result<Self> {
        Self::of_nodes(stored.parts(), labels)
    }

    /// The same from the part of every node: 0 in no part, 1 training, 2 validation, 3 test.
    ///
    /// # Errors
    /// As for [`of_parts`](Self::of_parts).
    pub fn of_nodes(of_node: &[u8], labels: &[(u32, u8)]) -> Result<Self> {
        let mut parts: [Vec<(u32, u8)>; 3] = Default::default();
        for &(node, label) in labels {
            if let Some(part) =
                of_node.get(node as usize).and_then(|&part| parts.get_mut(usize::from(part).wrapping_sub(1)))
            {
                part.push((node, label));
            }
        }
        Self::of_parts(parts)
    }

    /// A division that was made elsewhere: training, validation and test.
    ///
    /// # Errors
    /// [`Error::Data`] when a label is neither 0 nor 1, when a node is in two parts, and when a class is without
    /// examples in one of the parts.
    pub fn of_parts(mut parts: [Vec<(u32, u8)>; 3]) -> Result<Self> {
        let mut all = parts.concat();
        all.sort_unstable();
        check_entries(&all)?;
        (0..2).try_for_each(|class| check_class(class, &parts))?;
        parts.iter_mut().for_each(|part| part.sort_unstable());
        let [train, validation, test] = parts;
        Ok(Self { train, validation, test })
    }
}

/// The masks of number `index`.
pub(super) fn masks_at(masks: &[Masks], index: usize) -> Result<&Masks> {
    let help = "set split.use = \"random\", with shares or numbers of nodes";
    masks.get(index).ok_or_else(|| match masks.len() {
        0 => Error::setting("split.use", "\"masks\"", "data with train_mask, val_mask and test_mask", help),
        count => {
            Error::setting("split.index", index.to_string(), format!("below {count}, the splits in the masks"), help)
        }
    })
}

/// The part that holds a node; training, validation and test are in ascending order of id.
pub(super) fn part_of<L>(parts: [&[(u32, L)]; 3], node: u32) -> Option<Part> {
    let found = [Part::Train, Part::Validation, Part::Test].into_iter().zip(parts);
    let mut found = found.filter(|(_, nodes)| nodes.binary_search_by_key(&node, |entry| entry.0).is_ok());
    found.next().map(|(part, _)| part)
}

/// Largest-remainder apportionment of `n` nodes; `owed` carries what rounding took from each part to the next stratum.
pub(super) fn apportion(n: usize, fractions: [f64; 3], owed: &mut [f64; 3]) -> [usize; 3] {
    let ideal: [f64; 3] = std::array::from_fn(|p| fractions[p] * n as f64 + owed[p]);
    let mut counts = ideal.map(|x| x.max(0.0).floor() as usize);
    // Parts that are owed nothing can leave the floors above `n` in sum; the largest part gives back.
    while counts.iter().sum::<usize>() > n {
        let p = (0..3).max_by_key(|&p| counts[p]).unwrap_or(0);
        counts[p] -= 1;
    }
    while counts.iter().sum::<usize>() < n {
        let remainder = |p: usize| ideal[p] - counts[p] as f64;
        let p = (0..3).rev().max_by(|&a, &b| remainder(a).total_cmp(&remainder(b))).unwrap_or(0);
        counts[p] += 1;
    }
    *owed = std::array::from_fn(|p| ideal[p] - counts[p] as f64);
    counts
}

/// By label the part that its group goes to, of parts with these shares of the labels: whole groups, the largest first
/// and equal ones by a draw, each to the part that lacks most of what the group has.
pub(crate) fn whole_groups(
    labels: &[(u32, u8)],
    group_of: &mut dyn FnMut(u32) -> u32,
    shares: &[f64],
    seed: u64,
) -> Vec<usize> {
    let groups: Vec<u32> = labels.iter().map(|&(node, _)| group_of(node)).collect();
    let mut members: BTreeMap<u32, [usize; 2]> = BTreeMap::new();
    for (&group, &(_, label)) in groups.iter().zip(labels) {
        members.entry(group).or_default()[usize::from(label)] += 1;
    }
    let mut order: Vec<(u32, [usize; 2])> = members.into_iter().collect();
    order.shuffle(&mut ChaCha8Rng::seed_from_u64(seed));
    order.sort_by_key(|(_, counts)| std::cmp::Reverse(counts[0] + counts[1]));
    let total = [0, 1].map(|class: u8| labels.iter().filter(|(_, label)| *label == class).count().max(1) as f64);
    let mut have = vec![[0usize; 2]; shares.len()];
    let mut part_of: BTreeMap<u32, usize> = BTreeMap::new();
    for (group, counts) in order {
        // What a part lacks of its share of a class, as a share of that share, weighted by what the group brings.
        let lack = |part: usize| -> f64 {
            let of_class = |class: usize| {
                let wanted = shares[part] * total[class];
                (wanted - have[part][class] as f64) / wanted * counts[class] as f64 / total[class]
            };
            of_class(0) + of_class(1)
        };
        let part = (0..shares.len()).rev().max_by(|&a, &b| lack(a).total_cmp(&lack(b))).unwrap_or(0);
        (0..2).for_each(|class| have[part][class] += counts[class]);
        part_of.insert(group, part);
    }
    groups.into_iter().map(|group| part_of[&group]).collect()
}

/// Labels in ascending order of id, where they and the shares can be divided.
fn checked(labels: &[(u32, u8)], fractions: SplitFractions) -> Result<Vec<(u32, u8)>> {
    fractions.check()?;
    let mut sorted = labels.to_vec();
    sorted.sort_unstable();
    check_entries(&sorted)?;
    Ok(sorted)
}

fn check_entries(sorted: &[(u32, u8)]) -> Result<()> {
    if let Some((id, label)) = sorted.iter().find(|(_, label)| *label > 1) {
        return Err(Error::Data {
            what: format!("label of node {id}"),
            expected: "0 (normal) or 1 (anomalous)".into(),
            found: label.to_string(),
            help: "map every class of the label file to 0 or 1".into(),
        });
    }
    if let Some(pair) = sorted.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        return Err(Error::Data {
            what: format!("label of node {}", pair[0].0),
            expected: "one label per node".into(),
            found: format!("labels {} and {}", pair[0].1, pair[1].1),
            help: "remove the repeated entry from the label file".into(),
        });
    }
    Ok(())
}

fn check_class(class: u8, parts: &[Vec<(u32, u8)>; 3]) -> Result<()> {
    let counts = [0, 1, 2].map(|p: usize| parts[p].iter().filter(|(_, label)| *label == class).count());
    if counts.iter().all(|&c| c > 0) {
        return Ok(());
    }
    let name = if class == 1 { "1 (anomalous)" } else { "0 (normal)" };
    Err(Error::Data {
        what: format!("labels of class {name}"),
        expected: "at least one example in each of training, validation and test".into(),
        found: format!(
            "{} in all: {} training, {} validation, {} test",
            counts.iter().sum::<usize>(),
            counts[0],
            counts[1],
            counts[2]
        ),
        help: "label more nodes of this class, or give the small parts larger fractions".into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(normal: usize, anomalous: usize) -> Vec<(u32, u8)> {
        (0..normal + anomalous).map(|i| (3 * i as u32, u8::from(i >= normal))).collect()
    }

    fn count(part: &[(u32, u8)], class: u8) -> usize {
        part.iter().filter(|(_, label)| *label == class).count()
    }

    #[test]
    fn every_class_and_type_gets_its_share() {
        let labels = labels(500, 300);
        let type_of = |id: u32| usize::from(id.is_multiple_of(5));
        let split = Split::stratified(&labels, type_of, SplitFractions::default(), 1).unwrap();
        for (part, share) in [(&split.train, 0.6), (&split.validation, 0.2), (&split.test, 0.2)] {
            assert_eq!(count(part, 0), (500.0 * share) as usize);
            assert_eq!(count(part, 1), (300.0 * share) as usize);
            let of_type = part.iter().filter(|(id, label)| *label == 1 && type_of(*id) == 1).count();
            assert!((of_type as f64 - 60.0 * share).abs() <= 1.0, "{of_type} of type 1 for a share of {share}");
        }
        let mut all: Vec<_> = [&split.train[..], &split.validation, &split.test].concat();
        all.sort_unstable();
        assert_eq!(all, labels, "parts are disjoint and complete");
        assert!(split.train.iter().all(|entry| split.part_of(entry.0) == Some(Part::Train)));
        assert!(split.test.iter().all(|entry| split.part_of(entry.0) == Some(Part::Test)));
        assert_eq!(split.part_of(1), None, "a node without a label");
    }

    #[test]
    fn order_of_the_input_does_not_matter_but_the_seed_does() {
        let forward = labels(40, 40);
        let backward: Vec<_> = forward.iter().rev().copied().collect();
        let split = |l: &[(u32, u8)], seed| Split::stratified(l, |_| 0, SplitFractions::default(), seed).unwrap();
        assert_eq!(split(&forward, 7), split(&backward, 7));
        assert_ne!(split(&forward, 7), split(&forward, 8));
    }

    #[test]
    fn many_tiny_types_still_add_up_to_the_fractions() {
        let split = Split::stratified(&labels(50, 50), |id| id as usize, SplitFractions::default(), 3).unwrap();
        assert_eq!((count(&split.train, 1), count(&split.validation, 1), count(&split.test, 1)), (30, 10, 10));
    }

    #[test]
    fn a_class_missing_from_a_part_is_an_error_that_names_it() {
        let error = Split::stratified(&labels(50, 2), |_| 0, SplitFractions::default(), 0).unwrap_err().to_string();
        assert!(error.contains("class 1 (anomalous)") && error.contains("2 in all"), "{error}");
        assert!(Split::stratified(&[], |_| 0, SplitFractions::default(), 0).is_err());
    }

    #[test]
    fn few_labels_are_drawn_and_the_rest_is_tested() {
        let labels = labels(300, 50);
        let split = Split::few(&labels, [80, 20], 3).unwrap();
        for part in [&split.train, &split.validation] {
            assert_eq!((count(part, 0), count(part, 1)), (80, 20));
        }
        assert_eq!((count(&split.test, 0), count(&split.test, 1)), (140, 10));
        let mut all = [&split.train[..], &split.validation, &split.test].concat();
        all.sort_unstable();
        assert_eq!(all, labels);
        assert_ne!(Split::few(&labels, [80, 20], 4).unwrap(), split);
        for counts in [[80, 25], [150, 20], [usize::MAX, 20], [0, 20]] {
            let error = Split::few(&labels, counts, 3).unwrap_err().to_string();
            assert!(error.contains("split.") && error.contains("fewer than half"), "{counts:?}: {error}");
        }
    }

    #[test]
    fn masks_are_a_split_of_the_labels_that_there_are() {
        let labels = labels(6, 6);
        let masks = Masks { train: vec![0, 18, 1], validation: vec![3, 21], test: vec![6, 24] };
        let split = Split::of_masks(std::slice::from_ref(&masks), 0, &labels).unwrap();
        assert_eq!((split.train, split.test), (vec![(0, 0), (18, 1)], vec![(6, 0), (24, 1)]));
        let fault = |masks: &[Masks], at| Split::of_masks(masks, at, &labels).unwrap_err().to_string();
        assert!(
            fault(&[], 0).contains("data with train_mask")
                && fault(std::slice::from_ref(&masks), 1).contains("below 1")
        );
        let one_class = Masks { test: vec![6, 9], ..masks };
        assert!(fault(&[one_class], 0).contains("class 1 (anomalous)"));
    }

    #[test]
    fn groups_stay_whole_and_parts_have_about_their_shares() {
        let labels = labels(600, 200);
        let group_of = |node: u32| node / 3 % 97;
        let split = Split::of_groups(&labels, group_of, SplitFractions::default(), 5).unwrap();
        let groups =
            |part: &[(u32, u8)]| part.iter().map(|entry| group_of(entry.0)).collect::<std::collections::BTreeSet<_>>();
        let [train, validation, test] = [&split.train, &split.validation, &split.test].map(|part| groups(part));
        assert!(train.is_disjoint(&validation) && train.is_disjoint(&test) && validation.is_disjoint(&test));
        for (part, share) in [(&split.train, 0.6), (&split.validation, 0.2), (&split.test, 0.2)] {
            for (class, all) in [(0, 600.0), (1, 200.0)] {
                assert!((count(part, class) as f64 - share * all).abs() < 0.05 * all, "{share} of class {class}");
            }
        }
        let mut all = [&split.train[..], &split.validation, &split.test].concat();
        all.sort_unstable();
        assert_eq!(all, labels);
        assert_eq!(split, Split::of_groups(&labels, group_of, SplitFractions::default(), 5).unwrap());
        let one = Split::of_groups(&labels, |_| 0, SplitFractions::default(), 5).unwrap_err().to_string();
        assert!(one.contains("few groups hold most labels"), "{one}");
    }

    #[test]
    fn a_division_made_elsewhere_has_both_classes_in_every_part_and_no_node_twice() {
        let part = |nodes: [u32; 2]| vec![(nodes[0], 1), (nodes[1], 0)];
        let split = Split::of_parts([part([9, 2]), part([4, 5]), part([7, 6])]).unwrap();
        assert_eq!(split.train, [(2, 0), (9, 1)], "by node");
        assert!(Split::of_parts([part([9, 2]), part([4, 5]), part([9, 6])]).is_err());
        let error = Split::of_parts([part([9, 2]), part([4, 5]), vec![(7, 0)]]).unwrap_err().to_string();
        assert!(error.contains("class 1 (anomalous)") && error.contains("0 test"), "{error}");
    }

    #[test]
    fn repeated_nodes_odd_labels_and_odd_fractions_are_errors() {
        let with = |labels: &[(u32, u8)], fractions| Split::stratified(labels, |_| 0, fractions, 0);
        assert!(with(&[(1, 0), (1, 1)], SplitFractions::default()).is_err());
        assert!(with(&[(1, 2)], SplitFractions::default()).is_err());
        let fractions = SplitFractions { train: 0.9, validation: 0.2, test: -0.1 };
        assert!(with(&labels(50, 50), fractions).is_err());
        assert!(with(&labels(50, 50), SplitFractions { train: f64::NAN, ..SplitFractions::default() }).is_err());
    }
}
