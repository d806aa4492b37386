//! Training, validation and test nodes of a graph with any number of classes.

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

use super::split::{Part, Split, SplitFractions, apportion, masks_at, part_of};
use crate::error::{Error, Result};
use crate::graph::Classes;

/// Labelled nodes `(global id, class)` in three disjoint parts, each in ascending order of id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassSplit {
    /// Used for fitting.
    pub train: Vec<(u32, u32)>,
    /// Used for choosing the epoch.
    pub validation: Vec<(u32, u32)>,
    /// Used once, for the final figures.
    pub test: Vec<(u32, u32)>,
}

impl ClassSplit {
    /// A split of labels as one of the classes 0 (normal) and 1 (anomalous).
    pub fn of_labels(split: Split) -> Self {
        let part = |part: Vec<(u32, u8)>| part.into_iter().map(|(node, label)| (node, u32::from(label))).collect();
        Self { train: part(split.train), validation: part(split.validation), test: part(split.test) }
    }

    /// The split that the data come with; `index` is the column of masks that hold several.
    ///
    /// # Errors
    /// [`Error::Config`] when there is none, or no such column.
    pub fn of_masks(classes: &Classes, index: usize) -> Result<Self> {
        let chosen = masks_at(classes.masks(), index)?;
        let part =
            |nodes: &[u32]| nodes.iter().filter_map(|&node| Some((node, classes.of_node()[node as usize]?))).collect();
        Ok(Self { train: part(&chosen.train), validation: part(&chosen.validation), test: part(&chosen.test) })
    }

    /// The division that belongs to the data, from the part of every node: 0 in no part, 1 training, 2 validation, 3
    /// test.
    ///
    /// # Errors
    /// [`Error::Data`] when a part has no node.
    pub fn of_nodes(of_node: &[u8], classes: &Classes) -> Result<Self> {
        let part = |wanted: u8| classes.labelled().filter(|(node, _)| of_node[*node as usize] == wanted).collect();
        Self { train: part(1), validation: part(2), test: part(3) }.checked()
    }

    /// Divides the labelled nodes so that every class is spread over the parts by `fractions`.
    ///
    /// # Errors
    /// [`Error::Data`] when a class has no node for the training part, or a part has no node at all.
    pub fn stratified(classes: &Classes, fractions: SplitFractions, seed: u64) -> Result<Self> {
        let SplitFractions { train, validation, test } = fractions;
        let mut owed = [0.0; 3];
        Self::shuffled(classes, seed, |_, nodes| Ok(apportion(nodes, [train, validation, test], &mut owed)))?.checked()
    }

    /// Refuses a part without nodes.
    fn checked(self) -> Result<Self> {
        let counts = [&self.train, &self.validation, &self.test].map(Vec::len);
        if counts.iter().all(|&count| count > 0) {
            return Ok(self);
        }
        let [train, validation, test] = counts;
        Err(Error::Data {
            what: "split of the labels".into(),
            expected: "at least one node in every part".into(),
            found: format!("{train} training, {validation} validation, {test} test"),
            help: "label more nodes, or change the shares".into(),
        })
    }

    /// Takes `per_class` nodes of every class for training, and of all labelled nodes the shares `validation` and
    /// `test` from the rest, as citation benchmarks are split. What is left over is in no part.
    ///
    /// # Errors
    /// [`Error::Config`] when a class has no more than `per_class` nodes, or when the shares want more than the rest.
    pub fn per_class(classes: &Classes, per_class: usize, shares: [f64; 2], seed: u64) -> Result<Self> {
        let labelled = classes.labelled().count();
        let [validation, test] = shares.map(|share| (share * labelled as f64).round() as usize);
        let mut split = Self::shuffled(classes, seed, |class, nodes| match nodes > per_class {
            true => Ok([per_class, nodes - per_class, 0]),
            false => {
                let expected = format!("fewer than a class has nodes: class {class} with {nodes} labelled nodes");
                let help = "lower split.per_class, or use shares";
                Err(Error::setting("split.per_class", per_class.to_string(), expected, help))
            }
        })?;
        let mut rest = std::mem::take(&mut split.validation);
        if validation + test > rest.len() || validation == 0 || test == 0 {
            let expected = format!("at least one node each, and at most the {} that training leaves", rest.len());
            let (found, help) =
                (format!("{validation} and {test} nodes"), "change the shares, or lower split.per_class");
            return Err(Error::setting("split.validation and split.test", found, expected, help));
        }
        rest.shuffle(&mut ChaCha8Rng::seed_from_u64(seed.wrapping_add(1)));
        split.validation = rest[..validation].to_vec();
        split.test = rest[validation..validation + test].to_vec();
        split.validation.sort_unstable();
        split.test.sort_unstable();
        Ok(split)
    }

    /// The part that holds the label of a node, if any does.
    pub fn part_of(&self, node: u32) -> Option<Part> {
        part_of([&self.train, &self.validation, &self.test], node)
    }

    /// One class against the rest: the same parts with the label 1 for nodes of `class` and 0 for all others. A part
    /// may be without one of the two.
    pub fn against_rest(&self, class: u32) -> Split {
        let part = |nodes: &[(u32, u32)]| nodes.iter().map(|&(node, own)| (node, u8::from(own == class))).collect();
        Split { train: part(&self.train), validation: part(&self.validation), test: part(&self.test) }
    }

    /// Shuffles every class and cuts it into as many nodes as `counts(class, number of nodes)` says.
    fn shuffled(
        classes: &Classes,
        seed: u64,
        mut counts: impl FnMut(usize, usize) -> Result<[usize; 3]>,
    ) -> Result<Self> {
        let mut of_class: Vec<Vec<u32>> = vec![Vec::new(); classes.count()];
        classes.labelled().for_each(|(node, class)| of_class[class as usize].push(node));
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut parts: [Vec<(u32, u32)>; 3] = Default::default();
        for (class, nodes) in of_class.iter_mut().enumerate().filter(|(_, nodes)| !nodes.is_empty()) {
            nodes.shuffle(&mut rng);
            let counts = counts(class, nodes.len())?;
            if counts[0] == 0 {
                return Err(Error::Data {
                    what: format!("labels of class {class}"),
                    expected: "enough nodes for the training part".into(),
                    found: format!("{} in all", nodes.len()),
                    help: "label more nodes of this class, or give training a larger share".into(),
                });
            }
            let mut rest = nodes.as_slice();
            for (part, count) in parts.iter_mut().zip(counts) {
                let (taken, left) = rest.split_at(count);
                part.extend(taken.iter().map(|&node| (node, class as u32)));
                rest = left;
            }
        }
        parts.iter_mut().for_each(|part| part.sort_unstable());
        let [train, validation, test] = parts;
        Ok(Self { train, validation, test })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Masks;

    fn classes() -> Classes {
        Classes::new((0..300).map(|node| (node % 10 != 9).then_some(node % 3)).collect())
    }

    fn count(part: &[(u32, u32)], class: u32) -> usize {
        part.iter().filter(|entry| entry.1 == class).count()
    }

    #[test]
    fn every_class_gets_its_share_and_parts_are_disjoint() {
        let (classes, fractions) = (classes(), SplitFractions::default());
        let split = ClassSplit::stratified(&classes, fractions, 1).unwrap();
        for (part, share) in [(&split.train, 0.6), (&split.validation, 0.2), (&split.test, 0.2)] {
            (0..3).for_each(|class| assert!((count(part, class) as f64 - 90.0 * share).abs() <= 1.0));
        }
        let mut all = [split.train.clone(), split.validation.clone(), split.test.clone()].concat();
        all.sort_unstable();
        assert_eq!(all, classes.labelled().collect::<Vec<_>>());
        assert_eq!(ClassSplit::stratified(&classes, fractions, 1).unwrap(), split);
        assert_ne!(ClassSplit::stratified(&classes, fractions, 2).unwrap(), split);
    }

    #[test]
    fn one_class_against_the_rest_keeps_the_parts() {
        let split = ClassSplit { train: vec![(0, 2), (4, 0)], validation: vec![(1, 1)], test: vec![(3, 2), (7, 2)] };
        let binary = split.against_rest(2);
        assert_eq!(binary, Split { train: vec![(0, 1), (4, 0)], validation: vec![(1, 0)], test: vec![(3, 1), (7, 1)] });
        for node in 0..9 {
            assert_eq!(split.part_of(node), binary.part_of(node));
        }
        assert_eq!(
            [4, 1, 7, 5].map(|node| split.part_of(node).map(Part::name)).map(Option::unwrap_or_default),
            ["training", "validation", "test", ""]
        );
    }

    #[test]
    fn so_many_nodes_per_class_are_taken_for_training() {
        let split = ClassSplit::per_class(&classes(), 20, [0.1, 0.2], 1).unwrap();
        assert_eq!([0, 1, 2].map(|class| count(&split.train, class)), [20; 3]);
        assert_eq!((split.validation.len(), split.test.len()), (27, 54));
        let mut all: Vec<u32> = [split.train, split.validation, split.test].concat().iter().map(|e| e.0).collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 60 + 27 + 54);
        let fault =
            |per_class, shares| ClassSplit::per_class(&classes(), per_class, shares, 1).unwrap_err().to_string();
        assert!(fault(90, [0.1, 0.2]).contains("class 0 with 90 labelled nodes"));
        assert!(fault(80, [0.1, 0.2]).contains("the 30 that training leaves"));
    }

    #[test]
    fn masks_are_taken_as_they_are_and_missed_when_absent() {
        let masks = Masks { train: vec![0, 4], validation: vec![1], test: vec![2] };
        let split = ClassSplit::of_masks(&classes().with_masks(vec![masks]), 0).unwrap();
        assert_eq!((split.train, split.test), (vec![(0, 0), (4, 1)], vec![(2, 2)]));
        let fault = |classes: &Classes, index| ClassSplit::of_masks(classes, index).unwrap_err().to_string();
        assert!(fault(&classes(), 0).contains("data with train_mask"));
        assert!(fault(&classes().with_masks(vec![Masks::default()]), 1).contains("below 1"));
    }
}
