//! How a configuration divides labels into a training, a validation and a test part.

use crate::config::{ClassifySplit, LabelSplit, SplitConfig, SplitSource};
use crate::data::class_split::ClassSplit;
use crate::data::split::{Split, SplitFractions};
use crate::error::{Error, Result};
use crate::graph::{Classes, Dataset, SplitRule, StoredSplit, Subset};

/// The split of binary labels: the one that import made, else their masks, few of them, or one that is stratified by
/// node type and label, as the configuration says. `seed` is that of the run.
///
/// # Errors
/// [`Error::Config`] where the configuration asks for another split than that of the data, or for masks that they lack;
/// as for [`Split::stratified`], [`Split::few`] and [`Split::of_stored`].
pub fn split_of(dataset: &Dataset, entries: &[(u32, u8)], split: &LabelSplit, seed: u64) -> Result<Split> {
    let few = split.drawn.few();
    if let Some(stored) = &dataset.split {
        match (split.source, split.index, few) {
            (SplitSource::Masks, 0, _) => {}
            (SplitSource::Masks, index, _) => return Err(another_split(stored, format!("masks {index}"))),
            (SplitSource::Random, _, None) => check_agrees(stored, split, seed)?,
            (SplitSource::Random, _, Some([normal, anomalous])) => {
                return Err(another_split(stored, format!("{anomalous} anomalous and {normal} normal nodes")));
            }
        }
        return Split::of_stored(stored, entries);
    }
    if split.source == SplitSource::Masks {
        let masks = dataset.classes.as_ref().map(Classes::masks).unwrap_or_default();
        return Split::of_masks(masks, split.index, entries);
    }
    if let Some(few) = few {
        return Split::few(entries, few, split.seed);
    }
    let fractions = SplitFractions { train: split.train, validation: split.validation, test: split.test };
    Split::stratified(entries, |node| dataset.graph.type_of(node as usize), fractions, split.seed)
}

/// Scales and windows of the data were fitted to one split: a training with another one would learn from its test part.
fn check_agrees(stored: &StoredSplit, split: &SplitConfig, seed: u64) -> Result<()> {
    let SplitFractions { train, validation, test } = SplitFractions::default();
    let shares = [split.train, split.validation, split.test];
    let (own, own_seed) = match &stored.rule {
        SplitRule::Random { seed, train, validation, test }
        | SplitRule::Group { seed, train, validation, test, .. } => ([*train, *validation, *test], Some(*seed)),
        SplitRule::Time { .. } => ([train, validation, test], None),
    };
    let is_asked = shares != [train, validation, test] || split.seed != seed;
    if !is_asked || (shares == own && Some(split.seed) == own_seed) {
        return Ok(());
    }
    let found = format!("shares {}, {}, {} and seed {}", shares[0], shares[1], shares[2], split.seed);
    Err(another_split(stored, found))
}

fn another_split(stored: &StoredSplit, found: String) -> Error {
    let expected = format!("none, because the data are divided already: {stored}");
    let help = "leave it out, or change [split] of the description and import the tables again";
    Error::setting("[split]", found, expected, help)
}

/// The labels that a training on `known`, the part of `dataset` that was known at the end of validation, learns from
/// and is chosen by, in the numbering of that part. Labels that were not known before the first test event are left
/// out; the test part is empty.
pub fn within(split: &Split, known: &Subset, dataset: &Dataset) -> Split {
    let [train, validation] = known_entries([&split.train, &split.validation], known, dataset);
    Split { train, validation, test: Vec::new() }
}

/// [`within`] of classes.
pub fn classes_within(split: &ClassSplit, known: &Subset, dataset: &Dataset) -> ClassSplit {
    let [train, validation] = known_entries([&split.train, &split.validation], known, dataset);
    ClassSplit { train, validation, test: Vec::new() }
}

fn known_entries<L: Copy>(parts: [&[(u32, L)]; 2], known: &Subset, dataset: &Dataset) -> [Vec<(u32, L)>; 2] {
    let places = known.places(dataset.graph.num_nodes());
    let starts = dataset.split.as_ref().and_then(|stored| stored.times()).map(|times| times.test[0]);
    let in_time = |node: u32| match (&dataset.events, starts) {
        (Some(events), Some(start)) => events.known[node as usize] <= start,
        _ => true,
    };
    parts.map(|part| {
        let kept = part.iter().filter(|(node, _)| in_time(*node));
        kept.filter_map(|&(node, label)| Some((places[node as usize]?, label))).collect()
    })
}

/// The split of classes: the one that import made, else the one that the configuration asks for. `seed` is that of the
/// run.
///
/// # Errors
/// [`Error::Config`] where the configuration asks for another split than that of the data; as for [`ClassSplit`].
pub fn class_split_of(dataset: &Dataset, classes: &Classes, split: &ClassifySplit, seed: u64) -> Result<ClassSplit> {
    if let Some(stored) = &dataset.split {
        match split {
            ClassifySplit::Masks { index: 0 } => {}
            ClassifySplit::Masks { index } => return Err(another_split(stored, format!("masks {index}"))),
            ClassifySplit::Random { per_class: None, shares } => check_agrees(stored, shares, seed)?,
            ClassifySplit::Labels(shares) => {
                let labels = classes.binary().map(|labels| labels.entries).unwrap_or_default();
                split_of(dataset, &labels, &shares.clone().into(), seed)?;
            }
            ClassifySplit::Random { per_class: Some(count), .. } => {
                return Err(another_split(stored, format!("{count} nodes of every class")));
            }
        }
        return ClassSplit::of_nodes(stored.parts(), classes);
    }
    match split {
        ClassifySplit::Masks { index } => ClassSplit::of_masks(classes, *index),
        ClassifySplit::Random { per_class: Some(count), shares } => {
            ClassSplit::per_class(classes, *count, [shares.validation, shares.test], shares.seed)
        }
        ClassifySplit::Random { per_class: None, shares } => {
            let fractions = SplitFractions { train: shares.train, validation: shares.validation, test: shares.test };
            ClassSplit::stratified(classes, fractions, shares.seed)
        }
        ClassifySplit::Labels(shares) => {
            let labels = classes.binary().ok_or_else(|| {
                let expected = format!("labels that are anomalous or normal, not {} classes", classes.count());
                let help = "set split.use = \"random\", which divides any classes";
                Error::setting("split.use", "\"labels\"", expected, help)
            })?;
            split_of(dataset, &labels.entries, &shares.clone().into(), seed).map(ClassSplit::of_labels)
        }
    }
}
