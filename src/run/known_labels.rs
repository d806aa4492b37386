//! Labels that a model reads of nodes, its own training labels, and which of them it may see at what moment.
//!
//! A label may tell of other nodes, never of its own. Where nodes have no times, what is seen leaves some labels out,
//! and only nodes without a label among those that are left are learned from or scored. Where they have, what is seen
//! is what was known before a time, and only later nodes are. In both cases the same columns serve all nodes at once.
//! In data that are split by group, labels without times are left out by whole groups: of a new group none is known.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;

use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::bundle::data::DataDigest;
use crate::data::groups::Groups;
use crate::data::split::whole_groups;
use crate::error::{Error, Result};
use crate::graph::formats::atomic_write;
use crate::graph::json::read_json;
use crate::graph::{Dataset, Events, FeatureValues, Features, HeteroGraph, NodeType};

/// The training labels that a model reads, in its run.
pub const KNOWN_LABELS_FILE: &str = "known_labels.json";
/// The columns that labels are, behind those of the input.
pub const LABEL_COLUMNS: [&str; 2] = ["known label: anomalous", "known label: normal"];

/// Moments from which on training events of data that are split by time are scored by the labels known then: one for
/// each quarter of them. Their scores are shown, but nothing is chosen or judged by them.
const QUARTERS: usize = 4;
/// The same where validation and test events are among the training events in time. More of them see more, and take a
/// pass each.
const MOMENTS: usize = 16;

/// Parts of the labels that are hidden in turn, at most: scores of all nodes take one pass more than that.
const MOST_PARTS: usize = 10;

const HELP: &str = "the file was changed after the run wrote it; restore it or train again";

/// Training labels by global id, and the passes that score all nodes without telling any of its own label.
#[derive(Clone, Debug, PartialEq)]
pub struct KnownLabels {
    /// Ascending by node.
    entries: Vec<Known>,
    passes: Passes,
    /// By global id: the place in `entries` and one more, 0 for none.
    places: Vec<u32>,
    /// Of a training on data that are split by group.
    mates: Option<Mates>,
}

/// Nodes whose labels are hidden together.
#[derive(Clone, Debug, PartialEq)]
struct Mates {
    /// By entry.
    group: Vec<usize>,
    /// By group.
    nodes: Vec<Vec<u32>>,
}

/// One label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Known {
    node: u32,
    label: u8,
    /// When the node happened and when its label became known, of events.
    time: i64,
    known: i64,
    /// Of nodes without times: the pass that leaves it out.
    fold: u32,
}

/// The passes over a graph that score all of its nodes.
#[derive(Clone, Debug, PartialEq)]
enum Passes {
    /// One with all labels, for nodes that have none; and so many that leave a part of them out, for those.
    Folds(u32),
    /// One before the first of these times and one from each of them on; the times of all nodes.
    Times { cuts: Vec<i64>, time: Vec<i64> },
}

/// Which labels a pass may see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    All,
    /// All but those of these nodes, in ascending order.
    Without(Vec<u32>),
    /// All but those of one fold.
    WithoutFold(u32),
    /// Those that were known before a time.
    Before(i64),
}

/// What a step of a training sees, and the labels that it learns from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Masked {
    pub seen: Seen,
    pub learned: Vec<(u32, u8)>,
}

impl KnownLabels {
    /// The training labels `train` of `dataset`. Where some are of events, those of entities are learned, but never
    /// seen: nobody says when they became known. An epoch shows a `share` of them, and so does a pass that scores
    /// training nodes.
    pub fn of(dataset: &Dataset, train: &[(u32, u8)], share: f64, seed: u64) -> Self {
        let times = dataset.events.as_ref().filter(|of| train.iter().any(|&(node, _)| of.time_of(node).is_some()));
        let entry = |&(node, label): &(u32, u8)| {
            let [time, known] = match times {
                None => [0, 0],
                // Nobody knows when an entity was known to be what: no event sees that.
                Some(events) if events.time_of(node).is_none() => [Events::NO_TIME, Events::NEVER],
                Some(events) => [events.time[node as usize], events.known[node as usize]],
            };
            Known { node, label, time, known, fold: 0 }
        };
        let mut entries: Vec<Known> = train.iter().map(entry).collect();
        entries.sort_unstable_by_key(|known| known.node);
        let passes = match times {
            Some(events) => Passes::Times { cuts: cuts(&entries, dataset), time: events.time.clone() },
            None => {
                let folds = hidden_in_turn(share) as u32;
                if let Some(groups) = Groups::of_split(dataset) {
                    return Self::of_groups(entries, groups, (folds, seed), dataset.graph.num_nodes());
                }
                let mut order: Vec<usize> = (0..entries.len()).collect();
                order.shuffle(&mut ChaCha8Rng::seed_from_u64(seed));
                // Both classes in every fold, as far as they go.
                order.sort_by_key(|&at| entries[at].label);
                order.iter().zip(0u32..).for_each(|(&at, place)| entries[at].fold = place % folds);
                Passes::Folds(folds)
            }
        };
        Self::new(entries, passes, dataset.graph.num_nodes())
    }

    /// In folds of whole groups.
    fn of_groups(mut entries: Vec<Known>, mut groups: Groups, (folds, seed): (u32, u64), nodes: usize) -> Self {
        let shares = vec![1.0 / f64::from(folds); folds as usize];
        let fold_of = whole_groups(&labels(&entries), &mut |node| groups.of(node), &shares, seed);
        entries.iter_mut().zip(fold_of).for_each(|(known, fold)| known.fold = fold as u32);
        let mut numbers: HashMap<u32, usize> = HashMap::new();
        let mut mates = Mates { group: Vec::with_capacity(entries.len()), nodes: Vec::new() };
        for known in &entries {
            let next = mates.nodes.len();
            let group = *numbers.entry(groups.of(known.node)).or_insert(next);
            if group == next {
                mates.nodes.push(Vec::new());
            }
            mates.nodes[group].push(known.node);
            mates.group.push(group);
        }
        Self { mates: Some(mates), ..Self::new(entries, Passes::Folds(folds), nodes) }
    }

    /// All labels but those of `learned`, ascending by node, and of their groups.
    fn without(&self, learned: &[Known]) -> Seen {
        let Some(Mates { group, nodes: members }) = &self.mates else { return Seen::Without(nodes(learned)) };
        let group_of = |known: &Known| group[self.places[known.node as usize] as usize - 1];
        let groups: BTreeSet<usize> = learned.iter().map(group_of).collect();
        let mut hidden: Vec<u32> = groups.into_iter().flat_map(|group| members[group].iter().copied()).collect();
        hidden.sort_unstable();
        Seen::Without(hidden)
    }

    fn new(entries: Vec<Known>, passes: Passes, nodes: usize) -> Self {
        let mut places = vec![0; nodes];
        entries.iter().zip(1..).for_each(|(known, place)| places[known.node as usize] = place);
        Self { entries, passes, places, mates: None }
    }

    /// Those of a part of the nodes: `whole` says of each which one it is here, if it is any, and `events` are theirs.
    /// A node of the part that is none here has no label.
    pub fn of_part(&self, whole: &[Option<u32>], events: Option<&Events>) -> Self {
        let entry = |(node, whole): (usize, &Option<u32>)| {
            let place = *self.places.get((*whole)? as usize)?;
            Some(Known { node: node as u32, ..*self.entries.get((place as usize).checked_sub(1)?)? })
        };
        let entries = whole.iter().enumerate().filter_map(entry).collect();
        let passes = match &self.passes {
            Passes::Folds(folds) => Passes::Folds(*folds),
            Passes::Times { cuts, .. } => {
                let time = events.map_or_else(|| vec![Events::NO_TIME; whole.len()], |events| events.time.clone());
                Passes::Times { cuts: cuts.clone(), time }
            }
        };
        Self::new(entries, passes, whole.len())
    }

    /// The labels of nodes without times, each with the fold whose pass leaves it out, and how many folds there are;
    /// `None` where what is seen depends on time.
    pub fn folds(&self) -> Option<(u32, impl Iterator<Item = (u32, u8, u32)>)> {
        match &self.passes {
            Passes::Folds(folds) => Some((*folds, self.entries.iter().map(|of| (of.node, of.label, of.fold)))),
            Passes::Times { .. } => None,
        }
    }

    /// The label of a node, where `seen` shows it.
    pub fn label(&self, seen: &Seen, node: u32) -> Option<u8> {
        let known = self.entries.get((self.places[node as usize] as usize).checked_sub(1)?)?;
        let shows = match seen {
            Seen::All => true,
            Seen::Without(hidden) => hidden.binary_search(&node).is_err(),
            Seen::WithoutFold(fold) => known.fold != *fold,
            Seen::Before(time) => known.known < *time,
        };
        shows.then_some(known.label)
    }

    /// The columns of labels of `nodes`, by global id: a row `[anomalous, normal]` for each, zeros where no label is
    /// seen.
    pub fn columns(&self, seen: &Seen, nodes: impl IndexedParallelIterator<Item = u32>) -> Vec<f32> {
        let row = |node: u32| match self.label(seen, node) {
            None => [0.0, 0.0],
            Some(label) => [f32::from(label), 1.0 - f32::from(label)],
        };
        let rows: Vec<[f32; 2]> = nodes.with_min_len(1024).map(row).collect();
        rows.as_flattened().to_vec()
    }

    /// [`columns`](Self::columns) of all nodes, by type.
    pub fn by_type(&self, seen: &Seen, types: &[NodeType]) -> Vec<Vec<f32>> {
        let of_type = |of: &NodeType| {
            let nodes = of.offset as u32..(of.offset + of.count) as u32;
            self.columns(seen, nodes.into_par_iter())
        };
        types.iter().map(of_type).collect()
    }

    /// `features` of all nodes with the columns of labels behind them.
    pub fn beside(&self, features: &Features, seen: &Seen) -> Features {
        let (rows, width) = (features.num_rows(), features.dim());
        let labels = self.columns(seen, (0..rows as u32).into_par_iter());
        fn widened<T: Copy>(values: &[T], width: usize, labels: &[f32], of: impl Fn(f32) -> T) -> Vec<T> {
            let mut all = Vec::with_capacity(values.len() + labels.len());
            for (row, labels) in labels.chunks_exact(LABEL_COLUMNS.len()).enumerate() {
                all.extend_from_slice(&values[row * width..(row + 1) * width]);
                all.extend(labels.iter().map(|&value| of(value)));
            }
            all
        }
        let dim = width + LABEL_COLUMNS.len();
        match features.values() {
            FeatureValues::Half(values) => {
                Features::from_vec(widened(values, width, &labels, half::f16::from_f32), rows, dim)
            }
            FeatureValues::Single(values) => Features::from_f32(widened(values, width, &labels, |v| v), rows, dim),
        }
    }

    /// What each of the passes sees that score all nodes.
    pub fn passes(&self) -> Vec<Seen> {
        match &self.passes {
            Passes::Folds(folds) => std::iter::once(Seen::All).chain((0..*folds).map(Seen::WithoutFold)).collect(),
            Passes::Times { cuts, .. } => [i64::MIN].iter().chain(cuts).map(|&cut| Seen::Before(cut)).collect(),
        }
    }

    /// Which of the [`passes`](Self::passes) scores a node: one that does not see its label.
    pub fn pass_of(&self, node: u32) -> usize {
        match &self.passes {
            Passes::Folds(_) => match self.places[node as usize] {
                0 => 0,
                place => 1 + self.entries[place as usize - 1].fold as usize,
            },
            Passes::Times { cuts, time } => match time[node as usize] {
                // No label reaches an entity.
                Events::NO_TIME => cuts.len(),
                time => cuts.partition_point(|&cut| cut <= time),
            },
        }
    }

    /// What an epoch over the whole graph sees, and the labels that it learns from: a random part of them, of events
    /// those from a random time on. At most `share` of the labels are seen.
    pub fn of_epoch(&self, share: f64, seed: u64, epoch: usize) -> Masked {
        let mut rng = random(seed, epoch);
        match &self.passes {
            Passes::Folds(_) => {
                let hidden = ((1.0 - share) * self.entries.len() as f64).ceil() as usize;
                let mut all = self.entries.clone();
                let mut learned = all.partial_shuffle(&mut rng, hidden).0.to_vec();
                learned.sort_unstable_by_key(|known| known.node);
                Masked { seen: self.without(&learned), learned: labels(&learned) }
            }
            Passes::Times { .. } => {
                let times = self.in_time();
                let cut = times[(rng.random::<f64>() * share * times.len() as f64) as usize].time;
                let learns = |known: &&Known| known.time >= cut || known.time == Events::NO_TIME;
                let learned: Vec<Known> = self.entries.iter().filter(learns).copied().collect();
                Masked { seen: Seen::Before(cut), learned: labels(&learned) }
            }
        }
    }

    /// The labels of the mini-batches of an epoch, `parts` of them or as many more as it takes to show a `share` of
    /// all in each, and what each sees. Batches of events follow one another in time, but are learned in a random
    /// order, by what was known when they begin or at a time before that.
    pub fn of_batches(&self, parts: usize, share: f64, seed: u64, epoch: usize) -> Vec<Masked> {
        let mut rng = random(seed, epoch);
        let parts = parts.max(hidden_in_turn(share));
        let mut entries = self.in_time();
        let without_times = matches!(self.passes, Passes::Folds(_));
        if without_times {
            entries.shuffle(&mut rng);
        }
        let batch = |part: usize| {
            let [first, end] = [part, part + 1].map(|part| part * entries.len() / parts);
            let mut learned = entries[first..end].to_vec();
            learned.sort_unstable_by_key(|known| known.node);
            let seen = match without_times {
                true => self.without(&learned),
                false => Seen::Before(entries.get(rng.random_range(first / 2..=first)).map_or(0, |known| known.time)),
            };
            Masked { seen, learned: labels(&learned) }
        };
        let mut batches: Vec<Masked> = (0..parts).map(batch).collect();
        batches.shuffle(&mut rng);
        batches
    }

    /// The labels in the order of time.
    fn in_time(&self) -> Vec<Known> {
        let mut entries = self.entries.clone();
        entries.sort_by_key(|known| known.time);
        entries
    }

    /// Writes them into the directory of a run, by the original ids of `dataset` where it has any.
    ///
    /// # Errors
    /// [`Error::Io`]; data without ids whose digest cannot be made.
    pub fn write(&self, run: &Path, dataset: &Dataset) -> Result<()> {
        let graph = &dataset.graph;
        let row = |known: &Known| {
            let (name, at) = place_of(graph, known.node);
            let id = match &dataset.ids {
                Some(ids) => ids.get(known.node as usize).unwrap_or_default().to_owned(),
                None => at.to_string(),
            };
            Row {
                node_type: name.into(),
                id,
                label: known.label,
                time: known.time,
                known: known.known,
                fold: known.fold,
            }
        };
        let (folds, cuts) = match &self.passes {
            Passes::Folds(folds) => (Some(*folds), Vec::new()),
            Passes::Times { cuts, .. } => (None, cuts.clone()),
        };
        let graph = if dataset.ids.is_some() { None } else { Some(DataDigest::of(dataset)?.graph) };
        let stored = Stored { graph, folds, cuts, labels: self.entries.iter().map(row).collect() };
        atomic_write(run.join(KNOWN_LABELS_FILE), |file| Ok(serde_json::to_writer(file, &stored)?))
    }

    /// Reads those of a run for a `dataset`, which was read from `data`: its own, or one that has the nodes of the
    /// training labels by their ids. Labels of other nodes are not looked at.
    ///
    /// # Errors
    /// [`Error::Io`] and [`Error::Format`] for a file that is missing or was changed, and for data that have none of
    /// these nodes: columns of zeros are none that a model was trained on.
    pub fn read(run: &Path, dataset: &Dataset, data: &Path) -> Result<Self> {
        let file = run.join(KNOWN_LABELS_FILE);
        let stored: Stored = read_json(&file, "the training labels that a model reads", HELP)?;
        let graph = &dataset.graph;
        let missing = |found: &str| {
            let expected = format!("nodes whose labels {} learned from: the model reads them", run.display());
            let help =
                "import the earlier events, too, under the ids that they had; or train a model that reads no labels";
            Error::format(data, "known labels", expected, found, help)
        };
        if let Some(known) = &stored.graph
            && DataDigest::of(dataset)?.graph != *known
        {
            return Err(missing("another graph, and the data of the training have no ids to find them by"));
        }
        let mut by_name: HashMap<(&str, &str), u32> = HashMap::new();
        if let (None, Some(ids)) = (&stored.graph, &dataset.ids) {
            for (t, of) in graph.node_types().iter().enumerate() {
                let named = ids.0[t].iter().zip(of.offset as u32..);
                by_name.extend(named.map(|(id, node)| ((of.name.as_str(), id.as_str()), node)));
            }
        }
        let node_of = |row: &Row| match &stored.graph {
            None => by_name.get(&(row.node_type.as_str(), row.id.as_str())).copied(),
            Some(_) => {
                let of = graph.node_types().iter().find(|of| of.name == row.node_type)?;
                Some((of.offset + row.id.parse::<usize>().ok().filter(|&at| at < of.count)?) as u32)
            }
        };
        let entry = |row: &Row| {
            let Row { label, time, known, fold, .. } = *row;
            Some(Known { node: node_of(row)?, label, time, known, fold })
        };
        let mut entries: Vec<Known> = stored.labels.iter().filter_map(entry).collect();
        entries.sort_unstable_by_key(|known| known.node);
        if entries.is_empty() {
            return Err(missing("none of them"));
        }
        if entries.len() < stored.labels.len() {
            let (found, all) = (entries.len(), stored.labels.len());
            log::warn!("{}: has {found} of the {all} nodes whose labels the model reads", data.display());
        }
        let folds = stored.folds.map_or(0, |folds| folds as usize);
        let wrong = |what: &str, found: String| Error::format(&file, "known labels", what, found, HELP);
        if stored.folds.is_some() && !(2..=MOST_PARTS).contains(&folds) {
            return Err(wrong(&format!("2 to {MOST_PARTS} folds"), folds.to_string()));
        }
        let unfit = |row: &&Row| row.label > 1 || folds > 0 && row.fold as usize >= folds;
        if let Some(Row { id, label, fold, .. }) = stored.labels.iter().find(unfit) {
            return Err(wrong("labels 0 and 1, each of one of the folds", format!("{label} and {fold} of {id:?}")));
        }
        if !stored.cuts.is_sorted() {
            return Err(wrong("cuts in the order of time", "others".into()));
        }
        let passes = match (stored.folds, &dataset.events) {
            (Some(folds), _) => Passes::Folds(folds),
            (None, Some(events)) => Passes::Times { cuts: stored.cuts, time: events.time.clone() },
            (None, None) => return Err(missing("nodes without times")),
        };
        Ok(Self::new(entries, passes, graph.num_nodes()))
    }
}

fn nodes(entries: &[Known]) -> Vec<u32> {
    entries.iter().map(|known| known.node).collect()
}

fn labels(entries: &[Known]) -> Vec<(u32, u8)> {
    entries.iter().map(|known| (known.node, known.label)).collect()
}

/// `known_labels.json`.
#[derive(Serialize, Deserialize)]
struct Stored {
    /// Of data without original ids: the digest of the graph, whose nodes have numbers alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    graph: Option<String>,
    /// Of nodes without times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    folds: Option<u32>,
    /// Of events: seconds since 1970.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    cuts: Vec<i64>,
    labels: Vec<Row>,
}

#[derive(Serialize, Deserialize)]
struct Row {
    #[serde(rename = "type")]
    node_type: String,
    id: String,
    label: u8,
    time: i64,
    known: i64,
    fold: u32,
}

/// The name of the type of a node, and its number within it.
fn place_of(graph: &HeteroGraph, node: u32) -> (&str, usize) {
    let of = &graph.node_types()[graph.type_of(node as usize)];
    (&of.name, node as usize - of.offset)
}

/// In how many parts labels are hidden in turn so that each leaves about a `share` of them to be seen.
fn hidden_in_turn(share: f64) -> usize {
    ((1.0 / (1.0 - share)).round() as usize).clamp(2, MOST_PARTS)
}

/// The moments from which on events are scored by what was known before: some of the training events, and the begin of
/// validation and of test.
fn cuts(entries: &[Known], dataset: &Dataset) -> Vec<i64> {
    let times = dataset.split.as_ref().and_then(|split| split.times());
    let mut of_training: Vec<i64> =
        entries.iter().map(|known| known.time).filter(|&time| time != Events::NO_TIME).collect();
    of_training.sort_unstable();
    let parts = if times.is_some() { QUARTERS } else { MOMENTS };
    let mut cuts: Vec<i64> =
        (1..parts).filter_map(|k| of_training.get(k * of_training.len() / parts).copied()).collect();
    cuts.extend(times.iter().flat_map(|times| [times.validation[0], times.test[0]]));
    cuts.sort_unstable();
    cuts.dedup();
    cuts
}

/// The random numbers of an epoch.
fn random(seed: u64, epoch: usize) -> ChaCha8Rng {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    // A stream of their own: the order of seeds has the first.
    rng.set_stream(1 + epoch as u64);
    rng
}

#[cfg(test)]
mod tests;
