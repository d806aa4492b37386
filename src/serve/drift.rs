//! How far what is scored lately has moved from the training.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::slice;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;

use crate::data::tables::UnknownCategories;
use crate::error::Result;
use crate::graph::{Dataset, Features, HeteroGraph};
use crate::live::Part;
use crate::run::bundle::drift::{Profile, Shift, in_words, unknown_in_words};

/// Scored nodes of each type, and rows of each column with categories, that are looked at: the last ones.
const WINDOW: usize = 10_000;
/// What has moved has come back when its index is below this share of its limit, so that none does so all the time.
const BACK: f64 = 0.8;

/// Watches features, scores and unknown categories against what a model keeps of its training.
#[derive(Debug)]
pub struct Drift {
    profile: Profile,
    /// Of the training's held-out rows.
    unknown: Vec<UnknownCategories>,
    seen: Mutex<Seen>,
    /// What is told now.
    told: Mutex<Told>,
}

#[derive(Debug, Default)]
struct Seen {
    names: Option<Vec<String>>,
    by_type: BTreeMap<String, Window>,
    categories: BTreeMap<String, Categories>,
}

/// The last nodes of a type, in any order.
#[derive(Clone, Debug, Default)]
struct Window {
    /// Row by row.
    features: Vec<f32>,
    scores: Vec<f32>,
    /// The oldest, which is replaced next.
    oldest: usize,
}

/// Rows and unknown ones among them, batch by batch.
#[derive(Debug, Default)]
struct Categories {
    batches: VecDeque<[usize; 2]>,
    sums: [usize; 2],
}

#[derive(Debug, Default)]
struct Told {
    moved: BTreeSet<(String, Option<String>)>,
    unknown: BTreeSet<String>,
    report: Arc<Report>,
}

/// What was scored lately against the training.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Report {
    /// By type, nodes that were looked at.
    pub nodes: BTreeMap<String, usize>,
    /// Columns and scores (without a column), the farthest first.
    pub compared: Vec<Shift>,
    /// Columns with categories, in the rows that came lately.
    pub categories: Vec<UnknownCategories>,
    /// What has moved, in words.
    pub moved: Vec<String>,
}

impl Drift {
    /// `profile` is what the model keeps of its training, `unknown` the unknown categories in its held-out rows,
    /// `names` those of the columns.
    pub fn new(profile: Profile, unknown: Vec<UnknownCategories>, names: Option<Vec<String>>) -> Self {
        let seen = Seen { names, ..Seen::default() };
        Self { profile, unknown, seen: seen.into(), told: Mutex::default() }
    }

    /// The targets of a part were scored.
    pub fn observe(&self, part: &Part, scores: &[f32]) {
        let Part { dataset, targets, .. } = part;
        let types = dataset.graph.node_types();
        let mut seen = lock(&self.seen);
        for (&target, &score) in targets.iter().zip(scores) {
            let row = target as usize;
            let node_type = &types[dataset.graph.type_of(row)];
            let width = dataset.features.as_ref().map_or(0, Features::dim);
            let features = dataset.features.iter().flat_map(|features| features.row(row));
            match seen.by_type.get_mut(&node_type.name) {
                Some(window) => window.add(features, width, score),
                None => {
                    let mut window = Window::default();
                    window.add(features, width, score);
                    seen.by_type.insert(node_type.name.clone(), window);
                }
            }
        }
    }

    /// Rows were read that have categories.
    pub fn categories(&self, counts: &[UnknownCategories]) {
        let mut seen = lock(&self.seen);
        for UnknownCategories { column, rows, unknown } in counts.iter().filter(|counts| counts.rows > 0) {
            match seen.categories.get_mut(column) {
                Some(of) => of.add([*rows, *unknown]),
                None => {
                    let mut of = Categories::default();
                    of.add([*rows, *unknown]);
                    seen.categories.insert(column.clone(), of);
                }
            }
        }
    }

    /// Compares anew, and warns of what has moved since the last time. It sorts every column: for a thread that waits
    /// for nothing else, every half a minute or so.
    ///
    /// # Errors
    /// None of what a graph has that scores it.
    pub fn refresh(&self) -> Result<()> {
        let seen = lock(&self.seen);
        let (names, by_type) = (seen.names.clone(), seen.by_type.clone());
        let counts = seen.categories.iter().map(|(column, Categories { sums: [rows, unknown], .. })| {
            UnknownCategories { column: column.clone(), rows: *rows, unknown: *unknown }
        });
        let categories: Vec<UnknownCategories> = counts.collect();
        drop(seen);
        let nodes = by_type.iter().map(|(name, window)| (name.clone(), window.scores.len())).collect();
        let compared = self.compare(names, by_type)?;

        let mut told = lock(&self.told);
        let key = |shift: &Shift| (shift.of.clone(), shift.column.clone());
        let has_moved = |shift: &&Shift| {
            shift.index >= shift.limit || (shift.index >= BACK * shift.limit && told.moved.contains(&key(shift)))
        };
        let moved: Vec<Shift> = compared.iter().filter(has_moved).cloned().collect();
        let fresh: Vec<Shift> = moved.iter().filter(|shift| !told.moved.contains(&key(shift))).cloned().collect();
        let mut warnings = in_words(&fresh);
        let now: BTreeSet<_> = moved.iter().map(key).collect();
        for (of, column) in told.moved.difference(&now) {
            let what = column.as_ref().map_or_else(|| "the scores".into(), |column| format!("`{column}`"));
            log::info!("{what} of {of} no longer differ from the training");
        }
        let mut words = in_words(&moved);
        let mut unknown = BTreeSet::new();
        for of in &categories {
            let said = unknown_in_words(&self.unknown, slice::from_ref(of));
            if !said.is_empty() {
                unknown.insert(of.column.clone());
            }
            if !told.unknown.contains(&of.column) {
                warnings.extend_from_slice(&said);
            }
            words.extend(said);
        }
        warnings.iter().for_each(|warning| log::warn!("{warning}"));
        let report = Arc::new(Report { nodes, compared, categories, moved: words });
        *told = Told { moved: now, unknown, report };
        Ok(())
    }

    fn compare(&self, names: Option<Vec<String>>, by_type: BTreeMap<String, Window>) -> Result<Vec<Shift>> {
        let scores: Vec<f32> = by_type.values().flat_map(|window| &window.scores).copied().collect();
        if scores.is_empty() {
            return Ok(Vec::new());
        }
        let types = by_type.iter().map(|(name, window)| (name.clone(), window.scores.len())).collect();
        let graph = HeteroGraph::new(types, Vec::new())?;
        let values: Vec<f32> = by_type.into_values().flat_map(|window| window.features).collect();
        let width = values.len() / scores.len();
        let features = (width > 0).then(|| Features::from_f32(values, scores.len(), width));
        let dataset = Dataset { feature_names: names, ..Dataset::new(graph, features, None, None) };
        Ok(self.profile.compare(&dataset, &scores, &|_| true))
    }

    /// As the last [`refresh`](Self::refresh) found it.
    pub fn report(&self) -> Arc<Report> {
        lock(&self.told).report.clone()
    }
}

impl Window {
    fn add(&mut self, features: impl Iterator<Item = f32>, width: usize, score: f32) {
        if self.scores.len() < WINDOW {
            self.features.extend(features);
            self.scores.push(score);
            return;
        }
        let start = self.oldest * width;
        if let Some(row) = self.features.get_mut(start..start + width) {
            row.iter_mut().zip(features).for_each(|(to, from)| *to = from);
        }
        self.scores[self.oldest] = score;
        self.oldest = (self.oldest + 1) % WINDOW;
    }
}

impl Categories {
    fn add(&mut self, batch: [usize; 2]) {
        self.batches.push_back(batch);
        (0..2).for_each(|at| self.sums[at] += batch[at]);
        while let Some(&oldest) = self.batches.front()
            && self.sums[0] - oldest[0] >= WINDOW
        {
            self.batches.pop_front();
            (0..2).for_each(|at| self.sums[at] -= oldest[at]);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::splitmix::nth;

    fn noise(at: usize) -> f32 {
        (nth(at as u64) >> 40) as f32 / (1u64 << 24) as f32
    }

    /// A part of two types, whose last nodes are scored.
    fn part(nodes: usize, value: impl Fn(usize) -> f32) -> Part {
        let graph = HeteroGraph::new(vec![("card".into(), 5), ("payment".into(), nodes)], Vec::new()).unwrap();
        let values = (0..5).map(|_| 100.0).chain((0..nodes).map(value)).collect();
        let features = Some(Features::from_f32(values, nodes + 5, 1));
        let dataset =
            Dataset { feature_names: Some(vec!["Amount".into()]), ..Dataset::new(graph, features, None, None) };
        Part {
            dataset,
            targets: (5..nodes as u32 + 5).collect(),
            refreshed: vec![None; nodes + 5],
            made: BTreeMap::new(),
        }
    }

    fn scores(nodes: usize, shift: f32) -> Vec<f32> {
        (0..nodes).map(|at| noise(at + 50_000) + shift).collect()
    }

    fn unknown(rows: usize, unknown: usize) -> UnknownCategories {
        UnknownCategories { column: "shop".into(), rows, unknown }
    }

    #[test]
    fn what_has_moved_is_told_and_no_longer_when_it_has_come_back() {
        let before = part(4_000, noise);
        let all: Vec<f32> = [vec![0.0; 5], scores(4_000, 0.0)].concat();
        let profile = Profile::of(&before.dataset, Some(&all), &|_| true, &|_| true);
        let drift = Drift::new(profile, vec![unknown(100, 2)], before.dataset.feature_names.clone());
        drift.refresh().unwrap();
        assert_eq!(*drift.report(), Report::default());

        drift.observe(&part(3_000, |at| noise(at + 7_000)), &scores(3_000, 0.0));
        drift.categories(&[unknown(1_000, 30), unknown(0, 0)]);
        drift.refresh().unwrap();
        let report = drift.report();
        assert_eq!((report.nodes["payment"], &report.moved[..]), (3_000, &[][..]));
        let columns: Vec<_> = report.compared.iter().map(|shift| (&shift.of[..], shift.column.as_deref())).collect();
        assert!(columns.len() == 2 && columns.contains(&("payment nodes", Some("Amount"))), "{columns:?}");
        assert_eq!(report.categories, [unknown(1_000, 30)]);

        // The window is full of others, of which some leave again.
        drift.observe(&part(9_000, |at| noise(at) + 0.5), &scores(9_000, 0.5));
        drift.categories(&[unknown(9_000, 2_000)]);
        drift.refresh().unwrap();
        let report = drift.report();
        let words = report.moved.join("\n");
        for part in ["scores of payment nodes have moved", "`Amount` of payment nodes", "a category of `shop`"] {
            assert!(words.contains(part), "{words}\nlacks {part}");
        }
        assert_eq!((report.nodes["payment"], report.moved.len()), (10_000, 3));
        assert_eq!(lock(&drift.told).moved.len(), 2);
        let text = serde_json::to_string(&*report).unwrap();
        assert!(text.contains(r#""column":"Amount""#) && text.contains(r#""limit":0.2"#), "{text}");

        drift.observe(&part(12_000, |at| noise(at + 3)), &scores(12_000, 0.0));
        drift.categories(&[unknown(10_000, 100)]);
        drift.refresh().unwrap();
        let report = drift.report();
        assert_eq!((&report.moved[..], &report.categories[..]), (&[][..], &[unknown(10_000, 100)][..]));
        assert_eq!(lock(&drift.told).moved.len(), 0);
    }
}
