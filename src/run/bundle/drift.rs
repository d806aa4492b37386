//! How far data have moved from those of a training: features, values of edges and scores, by the population stability
//! index.
//!
//! A profile holds, for every node type and column, and for every column of edges that a model reads, ten ranges with a
//! tenth of the training's values each (fewer where values repeat) and how many values lie in each. Of other data
//! `PSI = Σ (q - p) ln(q / p)` over the ranges, with `p` the share of the training and `q` that of the data (half a
//! value is added to every range). By custom 0.1 to 0.25 is a moderate shift and more a large one. A column is named
//! from [`THRESHOLD`] on, where chance alone hardly reaches that: for samples of one distribution `PSI / (1/n + 1/m)`
//! is about chi-squared with one degree of freedom less than there are ranges, and has to lie more than 4.5 standard
//! deviations and 10 above its mean.

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::data::tables::UnknownCategories;
use crate::graph::{Dataset, NodeType, Relation};

/// From here on a shift is named.
pub const THRESHOLD: f64 = 0.2;
/// Share of rows with unknown categories, above that of the training's held-out rows, from which they are named.
pub const UNKNOWN_THRESHOLD: f64 = 0.05;
/// Nodes of a type, or edges of a relation, that are looked at: at most so many, at equal distances.
const MOST_ROWS: usize = 50_000;
/// Columns that are named before a message stops.
const LISTED: usize = 8;

/// What features and scores of a training looked like.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    pub node_types: Vec<TypeProfile>,
    /// Of relations whose values of edges were read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub relations: Vec<RelationProfile>,
}

/// Edges of one relation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RelationProfile {
    pub name: String,
    /// By column; `None` for one without values.
    pub columns: Vec<Option<Distribution>>,
}

/// Nodes of one type.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TypeProfile {
    pub name: String,
    /// By column; `None` for one without values.
    pub columns: Vec<Option<Distribution>>,
    /// Of the nodes that have a score.
    pub scores: Option<Distribution>,
}

/// How values are distributed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Distribution {
    /// Upper ends of all ranges but the last, ascending.
    edges: Vec<f32>,
    /// Values in each range.
    counts: Vec<u32>,
    median: f32,
}

/// How far a column of a node type or a relation, or the scores of a node type, have moved.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Shift {
    /// `user nodes`, or `pays edges`.
    pub of: String,
    /// Name of the column; none for the scores.
    pub column: Option<String>,
    /// Population stability index.
    pub index: f64,
    /// From here on it is a shift: [`THRESHOLD`], or more where there are few values.
    pub limit: f64,
    /// Medians of the training and of the data.
    pub medians: [f32; 2],
    /// Means of the training, to its ranges, and of the data: shares of ones for a column of zeros and ones.
    pub ones: Option<[f64; 2]>,
}

impl Distribution {
    /// Of finite values; `None` without any.
    pub fn of(mut values: Vec<f32>) -> Option<Self> {
        values.retain(|value| value.is_finite());
        values.sort_unstable_by(f32::total_cmp);
        let last = values.len().checked_sub(1)?;
        let mut edges: Vec<f32> = (1..10).map(|tenth| values[last * tenth / 10]).collect();
        // Nothing lies above the largest value, and a constant needs a range of its own.
        edges.push(values[0].next_down());
        edges.push(values[last]);
        edges.sort_unstable_by(f32::total_cmp);
        edges.dedup();
        let mut made = Self { counts: vec![0; edges.len() + 1], edges, median: values[last / 2] };
        made.counts = made.count(&values);
        Some(made)
    }

    /// Whether ranges and counts belong together, as those of a file may not.
    fn is_whole(&self) -> bool {
        self.counts.len() == self.edges.len() + 1 && self.edges.is_sorted()
    }

    fn count(&self, values: &[f32]) -> Vec<u32> {
        let mut counts = vec![0; self.edges.len() + 1];
        values.iter().for_each(|&value| counts[self.edges.partition_point(|&edge| edge < value)] += 1);
        counts
    }

    /// Population stability index of other values, the least one that is a shift, and their distribution.
    fn shift(&self, values: Vec<f32>) -> Option<(f64, f64, Self)> {
        let other = Self::of(values.clone())?;
        let found = self.count(&values.into_iter().filter(|value| value.is_finite()).collect::<Vec<_>>());
        let (before, now) = (total(&self.counts), total(&found));
        // Ranges that hold nothing in both say nothing.
        let ranges: Vec<(f64, f64)> = self
            .counts
            .iter()
            .zip(&found)
            .filter(|(a, b)| *a.max(b) > &0)
            .map(|(&a, &b)| (f64::from(a) + 0.5, f64::from(b) + 0.5))
            .collect();
        let halves = 0.5 * ranges.len() as f64;
        let index = ranges
            .iter()
            .map(|&(a, b)| {
                let (p, q) = (a / (before + halves), b / (now + halves));
                (q - p) * (q / p).ln()
            })
            .sum();
        let freedom = ranges.len() as f64 - 1.0;
        let chance = (freedom + 4.5 * (2.0 * freedom).sqrt() + 10.0) * (1.0 / before + 1.0 / now);
        Some((index, chance.max(THRESHOLD), other))
    }

    /// Share of ones, where all values are zeros and ones.
    fn ones(&self) -> Option<f64> {
        let binary = self
            .edges
            .iter()
            .all(|&edge| edge == 0.0 || edge == 1.0 || edge == 0f32.next_down() || edge == 1f32.next_down());
        let above = self.counts.iter().enumerate().filter(|(at, _)| *at > 0 && self.edges[at - 1] >= 0.0);
        binary.then(|| above.map(|(_, &count)| f64::from(count)).sum::<f64>() / total(&self.counts))
    }
}

impl Shift {
    /// Of `values` against those of the training, where there are some of both.
    fn of(of: &str, column: Option<String>, before: Option<&Distribution>, values: Vec<f32>) -> Option<Self> {
        let before = before?;
        let (index, limit, now) = before.shift(values)?;
        Some(Self {
            of: of.into(),
            column,
            index,
            limit,
            medians: [before.median, now.median],
            ones: before.ones().zip(now.ones()).map(|(before, now)| [before, now]),
        })
    }
}

fn total(counts: &[u32]) -> f64 {
    counts.iter().map(|&count| f64::from(count)).sum()
}

/// Nodes of a type that are looked at, of those that `wanted` names.
fn rows_of(of: &NodeType, wanted: &dyn Fn(u32) -> bool) -> Vec<usize> {
    let all: Vec<usize> = (of.offset..of.offset + of.count).filter(|&node| wanted(node as u32)).collect();
    let step = all.len().div_ceil(MOST_ROWS).max(1);
    all.into_iter().step_by(step).collect()
}

/// The features of some nodes, by column.
fn columns_of(dataset: &Dataset, rows: &[usize]) -> Vec<Vec<f32>> {
    let Some(features) = dataset.features.as_ref().filter(|features| features.dim() > 0) else { return Vec::new() };
    let width = features.dim();
    let mut values = vec![0.0; rows.len() * width];
    values.par_chunks_exact_mut(width).zip(rows).for_each(|(row, &node)| features.read_row(node, row));
    (0..width).into_par_iter().map(|at| values.iter().skip(at).step_by(width).copied().collect()).collect()
}

/// How the values of every column are distributed.
fn distributions(columns: Vec<Vec<f32>>) -> Vec<Option<Distribution>> {
    columns.into_par_iter().map(Distribution::of).collect()
}

/// The values of the edges that lead to nodes that `wanted` names, as a graph has them that a model reads, by column.
fn edge_columns(dataset: &Dataset, relation: &Relation, wanted: &dyn Fn(u32) -> bool) -> Vec<Vec<f32>> {
    let Some(values) = &relation.values else { return Vec::new() };
    let first = dataset.graph.node_types()[relation.dst].offset;
    let rows = (0..relation.forward.num_rows()).filter(|&row| wanted((first + row) as u32));
    let entries: Vec<usize> = rows.flat_map(|row| relation.forward.entries(row)).collect();
    let mut columns = vec![Vec::new(); values.width()];
    for entry in entries.iter().step_by(entries.len().div_ceil(MOST_ROWS).max(1)) {
        values.row(*entry).iter().zip(&mut columns).for_each(|(&value, column)| column.push(value));
    }
    columns
}

/// The relations whose edges have values of their own, not those of a relation that they reverse, and their names.
fn valued(dataset: &Dataset) -> impl Iterator<Item = (&Relation, &[String])> {
    let columns = dataset.edge_values.iter().filter_map(|of| Some((&of.relation, &of.columns.as_ref()?.names)));
    columns.filter_map(|(name, names)| {
        let relation = dataset.graph.relations().iter().find(|relation| relation.name == *name);
        Some((relation.filter(|relation| relation.values.is_some())?, &names[..]))
    })
}

impl Profile {
    /// Whether all that it holds can be compared with.
    pub(crate) fn is_whole(&self) -> bool {
        let columns = self.node_types.iter().map(|of| &of.columns).chain(self.relations.iter().map(|of| &of.columns));
        let scores = self.node_types.iter().map(|of| &of.scores);
        columns.flatten().chain(scores).flatten().all(Distribution::is_whole)
    }

    /// Of the data of a training: features and values of edges of what it knew (of a split by time the nodes before its
    /// end), scores, by global id, of what it did not learn by heart, which are the nodes without a label in `train`.
    pub fn of_training<L>(dataset: &Dataset, scores: Option<&[f32]>, train: &[(u32, L)]) -> Self {
        let end = dataset.split.as_ref().and_then(|split| split.times()).map(|window| window.known_until());
        let time = |node| dataset.events.as_ref().and_then(|events| events.time_of(node));
        let learned: std::collections::HashSet<u32> = train.iter().map(|(node, _)| *node).collect();
        let known = |node| end.is_none_or(|end| time(node).is_none_or(|time| time < end));
        Self::of(dataset, scores, &known, &|node| !learned.contains(&node))
    }

    /// Of the nodes that `wanted` names, scores of those that `scored` names; by global id.
    pub fn of(
        dataset: &Dataset,
        scores: Option<&[f32]>,
        wanted: &dyn Fn(u32) -> bool,
        scored: &dyn Fn(u32) -> bool,
    ) -> Self {
        let types = dataset.graph.node_types().iter().map(|node_type| {
            let rows = rows_of(node_type, wanted);
            let of_rows = |scores: &[f32]| {
                let rows = rows_of(node_type, scored);
                Distribution::of(rows.iter().map(|&row| scores[row]).collect())
            };
            TypeProfile {
                name: node_type.name.clone(),
                columns: distributions(columns_of(dataset, &rows)),
                scores: scores.and_then(of_rows),
            }
        });
        let relations = valued(dataset).map(|(relation, _)| {
            let columns = distributions(edge_columns(dataset, relation, wanted));
            RelationProfile { name: relation.name.clone(), columns }
        });
        Self { node_types: types.collect(), relations: relations.collect() }
    }

    /// What has moved in the nodes of other data that `wanted` names, and in the edges to them, the largest shifts
    /// first.
    pub fn shifts(&self, dataset: &Dataset, scores: &[f32], wanted: &dyn Fn(u32) -> bool) -> Vec<Shift> {
        let mut found = self.compare(dataset, scores, wanted);
        found.retain(|shift| shift.index >= shift.limit);
        found
    }

    /// How far everything is from the training, also what has not moved, the largest first. Columns without values in
    /// one of both, and data of other columns, are not compared.
    pub fn compare(&self, dataset: &Dataset, scores: &[f32], wanted: &dyn Fn(u32) -> bool) -> Vec<Shift> {
        let mut found = Vec::new();
        for known in &self.node_types {
            let types = dataset.graph.node_types();
            let Some(node_type) = types.iter().find(|node_type| node_type.name == known.name) else { continue };
            let rows = rows_of(node_type, wanted);
            let width = dataset.features.as_ref().map_or(0, |features| features.dim());
            let columns = if width == known.columns.len() { columns_of(dataset, &rows) } else { Vec::new() };
            let of = format!("{} nodes", known.name);
            let names = dataset.feature_names.as_deref();
            let name =
                |at: usize| names.and_then(|names| names.get(at).cloned()).unwrap_or_else(|| format!("column {at}"));
            let of_columns = known.columns.iter().zip(columns).enumerate();
            let moved = |(at, (before, values)): (usize, (&Option<Distribution>, Vec<f32>))| {
                Shift::of(&of, Some(name(at)), before.as_ref(), values)
            };
            found.extend(of_columns.filter_map(moved));
            if !scores.is_empty() {
                let values = rows.iter().map(|&row| scores[row]).collect();
                found.extend(Shift::of(&of, None, known.scores.as_ref(), values));
            }
        }
        for (relation, names) in valued(dataset) {
            let known = self.relations.iter().find(|known| known.name == relation.name);
            let Some(known) = known.filter(|known| known.columns.len() == names.len()) else { continue };
            let of = format!("{} edges", relation.name);
            let columns = edge_columns(dataset, relation, wanted).into_iter().zip(names).zip(&known.columns);
            let moved = columns
                .filter_map(|((values, name), before)| Shift::of(&of, Some(name.clone()), before.as_ref(), values));
            found.extend(moved);
        }
        found.sort_by(|a, b| b.index.total_cmp(&a.index));
        found
    }
}

/// Shifts in words, the scores first.
pub fn in_words(shifts: &[Shift]) -> Vec<String> {
    let mut lines = Vec::new();
    let (scores, columns): (Vec<&Shift>, Vec<&Shift>) = shifts.iter().partition(|shift| shift.column.is_none());
    for Shift { of, index, medians, .. } in scores {
        lines.push(format!(
            "scores of {of} have moved since the training: population stability index {index:.2} (from {THRESHOLD} on \
             it is named), median {:.3}, {:.3} in the training",
            medians[1], medians[0]
        ));
    }
    for Shift { of, column, index, medians, ones, .. } in columns.iter().take(LISTED).copied() {
        let name = column.as_deref().unwrap_or_default();
        let percent = |share: f64| format!("{:.1} %", 100.0 * share);
        lines.push(match (name.strip_suffix("_missing"), ones) {
            (Some(name), Some([before, now])) => {
                format!("`{name}` is missing in {} of {of}, in {} in the training", percent(*now), percent(*before))
            }
            (_, Some([before, now])) => format!(
                "`{name}` is 1 for {} of {of}, for {} in the training: population stability index {index:.2}",
                percent(*now),
                percent(*before)
            ),
            _ => format!(
                "`{name}` of {of} has moved since the training: population stability index {index:.2}, median {:.3}, \
                 {:.3} in the training",
                medians[1], medians[0]
            ),
        });
    }
    if columns.len() > LISTED {
        lines.push(format!("{} more columns have moved", columns.len() - LISTED));
    }
    lines
}

/// Columns with more unknown categories than the held-out rows of the training had, in words.
pub fn unknown_in_words(training: &[UnknownCategories], now: &[UnknownCategories]) -> Vec<String> {
    let share = |of: &UnknownCategories| if of.rows == 0 { 0.0 } else { of.unknown as f64 / of.rows as f64 };
    let words = |of: &UnknownCategories| {
        let before = training.iter().find(|known| known.column == of.column).map_or(0.0, share);
        (share(of) > before + UNKNOWN_THRESHOLD).then(|| {
            format!(
                "{:.1} % of the rows have a category of `{}` that the training never saw, {:.1} % of its own held-out \
                 rows",
                100.0 * share(of),
                of.column,
                100.0 * before
            )
        })
    };
    now.iter().filter_map(words).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Features, HeteroGraph};

    /// Two columns, the second of zeros and ones, over `nodes` nodes of one type.
    fn dataset(nodes: usize, value: impl Fn(usize) -> [f32; 2]) -> Dataset {
        let graph = HeteroGraph::new(vec![("node".into(), nodes)], Vec::new()).unwrap();
        let values = (0..nodes).flat_map(value).collect();
        let feature_names = Some(["a", "b_missing"].map(String::from).into());
        Dataset { feature_names, ..Dataset::new(graph, Some(Features::from_f32(values, nodes, 2)), None, None) }
    }

    fn noise(at: usize) -> f32 {
        (crate::splitmix::mix(at as u64) >> 40) as f32 / (1u64 << 24) as f32
    }

    #[test]
    fn the_same_data_and_the_same_distribution_do_not_shift() {
        let before = dataset(2_000, |at| [noise(at), f32::from(noise(at + 9_999) < 0.05)]);
        let scores: Vec<f32> = (0..2_000).map(|at| noise(at + 77)).collect();
        let profile = Profile::of(&before, Some(&scores), &|_| true, &|_| true);
        assert_eq!(profile.shifts(&before, &scores, &|_| true), []);
        // As many samples of the same distribution as are needed to see that small ones raise no alarm.
        for (nodes, start) in [(2_000, 100_000), (300, 200_000), (40, 300_000), (10, 400_000), (1, 500_000)] {
            let other = dataset(nodes, |at| [noise(start + at), f32::from(noise(start + 50_000 + at) < 0.05)]);
            let scores: Vec<f32> = (0..nodes).map(|at| noise(start + 90_000 + at)).collect();
            assert_eq!(profile.shifts(&other, &scores, &|_| true), [], "{nodes}");
        }
    }

    #[test]
    fn what_has_moved_is_named_with_how_far() {
        let before = dataset(2_000, |at| [noise(at), 0.0]);
        let scores = vec![0.25; 2_000];
        let profile = Profile::of(&before, Some(&scores), &|_| true, &|_| true);
        let after = dataset(400, |at| [noise(at) + 0.5, f32::from(at % 4 == 0)]);
        let shifts = profile.shifts(&after, &[0.75; 400], &|_| true);
        assert_eq!(shifts.len(), 3);
        assert!(shifts.is_sorted_by(|a, b| a.index >= b.index));
        let words = in_words(&shifts).join("\n");
        for part in [
            "scores of node nodes have moved",
            "median 0.750, 0.250 in the training",
            "`a` of node nodes has moved",
            "`b` is missing in 25.0 % of node nodes, in 0.0 % in the training",
        ] {
            assert!(words.contains(part), "{words}\nlacks {part}");
        }
        // Of the first rows alone, which have not moved.
        let mixed = dataset(400, |at| if at < 200 { [noise(at), 0.0] } else { [9.0, 1.0] });
        assert_eq!(profile.shifts(&mixed, &[0.25; 400], &|node| node < 200), []);
        assert_eq!(profile.shifts(&mixed, &[0.25; 400], &|node| node >= 200).len(), 2);
    }

    #[test]
    fn a_column_that_is_missing_in_the_training_or_now_leaves_the_others_compared() {
        let value = |at: usize| f32::from(at.is_multiple_of(4));
        let names = |profile: &Profile, other: &Dataset| -> Vec<Option<String>> {
            profile.shifts(other, &[], &|_| true).into_iter().map(|shift| shift.column).collect()
        };
        let before = dataset(2_000, |_| [f32::NAN, 0.0]);
        let profile = Profile::of(&before, None, &|_| true, &|_| true);
        assert_eq!(names(&profile, &before), []);
        assert_eq!(names(&profile, &dataset(400, |at| [noise(at), value(at)])), [Some("b_missing".into())]);
        assert_eq!(names(&profile, &dataset(400, |at| [f32::NAN, value(at)])), [Some("b_missing".into())]);
        let whole = Profile::of(&dataset(2_000, |at| [noise(at), 0.0]), None, &|_| true, &|_| true);
        assert_eq!(names(&whole, &dataset(400, |at| [f32::NAN, value(at)])), [Some("b_missing".into())]);
        // As it is kept with the model.
        let kept: Profile = serde_json::from_str(&serde_json::to_string(&profile).unwrap()).unwrap();
        assert_eq!(kept, profile);
    }

    #[test]
    fn a_profile_whose_counts_and_ranges_do_not_belong_together_is_not_whole() {
        let data = dataset(100, |at| [noise(at), (at % 2) as f32]);
        let profile = Profile::of_training(&data, Some(&[0.5; 100]), &[(0, 0u8)]);
        let stored = serde_json::to_string(&profile).unwrap();
        let is_whole = |text: String| serde_json::from_str::<Profile>(&text).unwrap().is_whole();
        assert!(is_whole(stored.clone()));
        for (begin, damaged) in [("\"counts\":[", "\"counts\":[1,"), ("\"edges\":[", "\"edges\":[9e9,")] {
            assert!(!is_whole(stored.replacen(begin, damaged, 1)), "{stored}");
        }
        // As many as there should be, in another order.
        let turned = stored.replacen("\"edges\":[", "\"edges\":[9e9,", 1).replacen("\"counts\":[", "\"counts\":[1,", 1);
        assert!(!is_whole(turned));
    }

    #[test]
    fn the_index_is_that_of_its_formula() {
        let before = Distribution::of((0..100).map(|at| (at % 2) as f32).collect()).unwrap();
        let (index, _, _) = before.shift((0..100).map(|at| f32::from(at % 10 == 0)).collect()).unwrap();
        let [p, q] = [[50.5 / 101.0, 50.5 / 101.0], [90.5 / 101.0, 10.5 / 101.0f64]];
        let expected: f64 = (0..2).map(|at| (q[at] - p[at]) * (q[at] / p[at]).ln()).sum();
        assert!((index - expected).abs() < 1e-12, "{index} {expected}");
        assert_eq!(before.ones(), Some(0.5));
    }

    #[test]
    fn unknown_categories_are_named_where_the_training_had_fewer() {
        let of = |column: &str, rows, unknown| UnknownCategories { column: column.into(), rows, unknown };
        let training = [of("a", 100, 10), of("b", 0, 0)];
        let found = unknown_in_words(&training, &[of("a", 100, 14), of("b", 50, 5)]);
        assert_eq!(found.len(), 1);
        assert!(found[0].contains("10.0 % of the rows have a category of `b`"), "{found:?}");
    }
}
