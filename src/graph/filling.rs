//! Missing values of features as networks read them: means in their place, and columns behind that say where they were.

use std::path::Path;

use half::f16;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::dataset::Dataset;
use super::features::{FeatureValues, Features};
use super::formats::atomic_write;
use super::json::read_json;
use crate::error::{Error, Result};

/// File of a run that holds the filling of its network.
pub const FILLING_FILE: &str = "filling.json";

/// Rows whose sums are added up together: the sum does not depend on the number of threads.
const SUM_ROWS: usize = 1 << 14;
/// Rows of one task.
const TASK_ROWS: usize = 64;
/// Names that a note lists before it stops.
const LISTED: usize = 5;
const HELP: &str = "the file was changed after the run wrote it; restore it or train again";

/// What stands for missing values in the features of a network, learned from those of its training.
///
/// `x[i, j]` stays as it is where node `i` has a value and is the mean of column `j` where it has none. Behind the
/// columns stands a flag for each that lacks values in the training, 1 where the value is missing and 0 elsewhere:
/// `[nodes, columns]` becomes `[nodes, columns + flags]`.
///
/// # Example
/// ```
/// use graphsieve::graph::{Features, Filling};
/// let x = Features::from_f32(vec![1.0, 5.0, f32::NAN, 6.0, 3.0, 7.0], 3, 2);
/// // The last node is not learned from.
/// let filling = Filling::fit(&x, &[true, true, false]);
/// let filled = filling.fill(&x);
/// assert_eq!(filled.dim(), 3);
/// assert_eq!(filled.row(1).collect::<Vec<_>>(), [1.0, 6.0, 1.0]);
/// assert_eq!(filled.row(2).collect::<Vec<_>>(), [3.0, 7.0, 0.0]);
/// assert_eq!(filling.names(Some(&["age".into(), "sum".into()])).unwrap(), ["age", "sum", "age missing"]);
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Filling {
    /// By column; 0 where no node has a value.
    means: Vec<f32>,
    /// The columns with a flag, ascending.
    flags: Vec<usize>,
}

impl Filling {
    /// Means over the nodes with `fitted`, and flags of the columns where one of them lacks a value.
    ///
    /// # Panics
    /// Unless there is a word for every node.
    pub fn fit(features: &Features, fitted: &[bool]) -> Self {
        let (rows, dim) = (features.num_rows(), features.dim());
        assert_eq!(fitted.len(), rows, "Filling::fit: expected a word for each of {rows} nodes");
        let sums = |part: usize| {
            let (mut sums, mut counts, mut row) = (vec![0f64; dim], vec![0u64; dim], vec![0f32; dim]);
            let part = part * SUM_ROWS..((part + 1) * SUM_ROWS).min(rows);
            for node in part.filter(|&node| fitted[node]) {
                features.read_row(node, &mut row);
                for ((sum, count), &value) in sums.iter_mut().zip(&mut counts).zip(&row) {
                    // Without a branch: a missing value adds nothing.
                    *sum += if value.is_nan() { 0.0 } else { f64::from(value) };
                    *count += u64::from(!value.is_nan());
                }
            }
            sums.into_iter().zip(counts).collect::<Vec<_>>()
        };
        let parts: Vec<_> = (0..rows.div_ceil(SUM_ROWS)).into_par_iter().map(sums).collect();
        let mut all = vec![(0f64, 0u64); dim];
        for part in parts {
            all.iter_mut().zip(part).for_each(|(all, (sum, count))| *all = (all.0 + sum, all.1 + count));
        }
        let nodes = fitted.iter().filter(|fitted| **fitted).count() as u64;
        Self {
            flags: (0..dim).filter(|&column| all[column].1 < nodes).collect(),
            means: all.into_iter().map(|(sum, count)| (sum / count.max(1) as f64) as f32).collect(),
        }
    }
    /// Number of columns with the flags.
    fn width(&self) -> usize {
        self.means.len() + self.flags.len()
    }

    /// The features with means and flags, stored as they are; the same values in the same place where nothing is
    /// missing and no column has a flag.
    ///
    /// # Panics
    /// For another number of columns.
    pub fn fill(&self, features: &Features) -> Features {
        let (want, got, rows) = (self.means.len(), features.dim(), features.num_rows());
        assert_eq!(want, got, "Filling::fill: expected {want} columns, got {got}");
        if self.flags.is_empty() && !features.missing().contains(&true) {
            return features.clone();
        }
        match features.values() {
            FeatureValues::Half(values) => {
                Features::from_vec(self.filled(values, f16::from_f32, f16::is_nan), rows, self.width())
            }
            FeatureValues::Single(values) => {
                Features::from_f32(self.filled(values, |value| value, f32::is_nan), rows, self.width())
            }
        }
    }

    fn filled<T: Copy + Send + Sync>(
        &self,
        values: &[T],
        stored: impl Fn(f32) -> T,
        is_nan: impl Fn(T) -> bool + Sync,
    ) -> Vec<T> {
        let (dim, width) = (self.means.len(), self.width());
        let means: Vec<T> = self.means.iter().map(|&mean| stored(mean)).collect();
        let [known, missing] = [0.0, 1.0].map(stored);
        let mut filled = vec![known; values.len() / dim * width];
        let rows = filled.par_chunks_mut(width).zip(values.par_chunks(dim)).with_min_len(TASK_ROWS);
        rows.for_each(|(row, values)| {
            let (columns, flags) = row.split_at_mut(dim);
            for ((to, &value), &mean) in columns.iter_mut().zip(values).zip(&means) {
                *to = if is_nan(value) { mean } else { value };
            }
            for (flag, _) in flags.iter_mut().zip(&self.flags).filter(|(_, column)| is_nan(values[**column])) {
                *flag = missing;
            }
        });
        filled
    }

    /// The names of the filled columns: a flag is called `<name> missing`. `None` where columns have no names and none
    /// has a flag.
    pub fn names(&self, names: Option<&[String]>) -> Option<Vec<String>> {
        let own = || (0..self.means.len()).map(|column| format!("feature {column}")).collect();
        let mut all = match names {
            None if self.flags.is_empty() => return None,
            names => names.map_or_else(own, <[String]>::to_vec),
        };
        let flags: Vec<String> = self.flags.iter().map(|&column| format!("{} missing", all[column])).collect();
        all.extend(flags);
        Some(all)
    }

    /// What a run, whose directory `run` is, fills missing values with. `None` for a run of an earlier version, one of
    /// trees or embeddings, and a checkpoint without its run.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Format`] for a file that was changed.
    pub fn of_run(run: &Path) -> Result<Option<Self>> {
        let file = run.join(FILLING_FILE);
        if !file.is_file() {
            return Ok(None);
        }
        let expected = "means of columns, and the columns with a flag";
        let read: Self = read_json(&file, expected, HELP)?;
        match read.flags.iter().find(|&&column| column >= read.means.len()) {
            None => Ok(Some(read)),
            Some(column) => {
                let expected = format!("columns below {}", read.means.len());
                Err(Error::format(file, "flags", expected, column.to_string(), HELP))
            }
        }
    }

    /// Keeps it in a run that has none yet.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn keep(&self, run: &Path) -> Result<()> {
        let file = run.join(FILLING_FILE);
        if file.is_file() {
            return Ok(());
        }
        atomic_write(file, |file| Ok(serde_json::to_writer(file, self)?))
    }
}

impl Dataset {
    /// What stands for missing values in a training on these data: as in the run at `begun` that it goes on with or
    /// begins with, where that says so; else learned by the rule by which import fits scales. That is from the nodes
    /// that are known when the training part ends, of data that are split by time; from all but the validation and test
    /// labels of another split that is stored with the data; otherwise from all nodes. `None` without features.
    ///
    /// # Errors
    /// As for [`Filling::of_run`].
    pub fn filling(&self, begun: Option<&Path>) -> Result<Option<Filling>> {
        let Some(features) = &self.features else { return Ok(None) };
        let begun = begun.map_or(Ok(None), Filling::of_run)?;
        Ok(Some(begun.unwrap_or_else(|| Filling::fit(features, &self.fitted()))))
    }

    /// The nodes that [`filling`](Self::filling) learns from.
    fn fitted(&self) -> Vec<bool> {
        match &self.split {
            None => vec![true; self.graph.num_nodes()],
            Some(split) => match split.times().filter(|_| self.events.is_some()) {
                Some(times) => self.seen_until(times.train[1]),
                None => split.parts().iter().map(|&part| part <= 1).collect(),
            },
        }
    }

    /// The features as a network reads them; `data` is where they were read from. `None` without features.
    ///
    /// # Errors
    /// [`Error::Format`] for another number of columns than those of the training, and for missing values of which no
    /// filling is known.
    pub fn filled(&self, filling: Option<&Filling>, data: &Path) -> Result<Option<Features>> {
        let Some(features) = &self.features else { return Ok(None) };
        let Some(filling) = filling else {
            features.check_complete(data, self.feature_names.as_deref())?;
            return Ok(Some(features.clone()));
        };
        let (known, found) = (filling.means.len(), features.dim());
        if known != found {
            let expected = format!("{known} columns, as the model was trained on");
            let help = "give data with the columns of the training, in their order";
            return Err(Error::format(data, "features", expected, found.to_string(), help));
        }
        Ok(Some(filling.fill(features)))
    }

    /// The names of the columns of [`filled`](Self::filled), flags of missing values included.
    pub fn filled_names(&self, filling: Option<&Filling>) -> Option<Vec<String>> {
        let names = self.feature_names.as_deref();
        filling.map_or_else(|| names.map(<[String]>::to_vec), |filling| filling.names(names))
    }

    /// Says which columns lack values here that none lacked in the training, if there are any.
    pub fn filling_note(&self, filling: &Filling) -> Option<String> {
        let missing = self.features.as_ref()?.missing().into_iter().enumerate();
        let unseen = missing.filter(|(column, missing)| *missing && !filling.flags.contains(column));
        let name = |column: usize| match self.feature_names.as_ref().and_then(|names| names.get(column)) {
            Some(name) => format!("`{name}`"),
            None => format!("column {column}"),
        };
        let names: Vec<String> = unseen.map(|(column, _)| name(column)).collect();
        let more = names.len().saturating_sub(LISTED);
        let listed = names[..names.len() - more].join(", ");
        let and_more = if more > 0 { format!(" and {more} more columns") } else { String::new() };
        (!names.is_empty()).then(|| {
            format!(
                "{listed}{and_more}: missing values are filled with the means of the training, which knew none there"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Events, HeteroGraph, SplitRule, StoredSplit, TimeWindow};

    const NAN: f32 = f32::NAN;

    fn dataset(values: Vec<f32>, dim: usize) -> Dataset {
        let rows = values.len() / dim;
        let graph = HeteroGraph::new(vec![("node".into(), rows)], Vec::new()).unwrap();
        Dataset::new(graph, Some(Features::from_f32(values, rows, dim)), None, None)
    }

    fn rows(features: &Features) -> Vec<Vec<f32>> {
        (0..features.num_rows()).map(|node| features.row(node).collect()).collect()
    }

    #[test]
    fn means_are_those_of_the_nodes_that_have_a_value_and_flags_say_where_none_is() {
        let x = Features::from_f32(vec![1.0, NAN, 2.0, NAN, NAN, 4.0, 5.0, NAN, NAN], 3, 3);
        let filling = Filling::fit(&x, &[true; 3]);
        assert_eq!(filling, Filling { means: vec![3.0, 0.0, 3.0], flags: vec![0, 1, 2] });
        let expected = [[1.0, 0.0, 2.0, 0.0, 1.0, 0.0], [3.0, 0.0, 4.0, 1.0, 1.0, 0.0], [5.0, 0.0, 3.0, 0.0, 1.0, 1.0]];
        assert_eq!(rows(&filling.fill(&x)), expected);
        assert_eq!(filling.names(None).unwrap()[3..], ["feature 0 missing", "feature 1 missing", "feature 2 missing"]);
    }

    #[test]
    fn half_precision_stays_and_what_lacks_nothing_is_not_copied() {
        let half = |values: &[f32]| {
            Features::from_vec(values.iter().map(|&value| f16::from_f32(value)).collect(), values.len() / 2, 2)
        };
        let address = |features: &Features| match features.values() {
            FeatureValues::Half(values) => values.as_ptr(),
            FeatureValues::Single(_) => panic!("stored as f32"),
        };
        let whole = half(&[1.0, 2.0, 3.0, 5.0]);
        let filling = Filling::fit(&whole, &[true; 2]);
        assert_eq!(filling, Filling { means: vec![2.0, 3.5], flags: Vec::new() });
        assert_eq!(address(&filling.fill(&whole)), address(&whole));
        assert_eq!(filling.names(None), None);
        let lacks = half(&[1.0, NAN, 3.0, 5.0]);
        // No flag where the training lacked nothing.
        let filled = filling.fill(&lacks);
        assert_ne!(address(&filled), address(&lacks));
        assert_eq!(rows(&filled), [[1.0, 3.5], [3.0, 5.0]]);
        assert_eq!(rows(&Filling::fit(&lacks, &[true; 2]).fill(&lacks)), [[1.0, 5.0, 1.0], [3.0, 5.0, 0.0]]);
    }

    #[test]
    fn sums_over_many_rows_are_exact_and_do_not_depend_on_threads() {
        let count = 3 * SUM_ROWS + 5;
        let values = (0..count).map(|row| if row % 3 == 0 { NAN } else { (row % 3) as f32 }).collect();
        let x = Features::from_f32(values, count, 1);
        let of = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| Filling::fit(&x, &vec![true; count]))
        };
        let [ones, twos] = [1, 2].map(|rest| (0..count).filter(|row| row % 3 == rest).count() as f64);
        assert_eq!(of(1).means, [((ones + 2.0 * twos) / (ones + twos)) as f32]);
        assert_eq!(of(1), of(4));
    }

    #[test]
    fn what_is_held_out_and_what_comes_later_is_not_learned_from() {
        let data = dataset(vec![1.0, 2.0, 3.0, 100.0, NAN], 1);
        let flags = |data: &Dataset| data.filling(None).unwrap().unwrap();
        assert_eq!(flags(&data), Filling { means: vec![26.5], flags: vec![0] });
        let rule = SplitRule::Random { seed: 1, train: 0.6, validation: 0.2, test: 0.2 };
        let split = StoredSplit { rule, windows: vec![vec![1, 0, 1, 2, 3]], window: 0 };
        let divided = Dataset { split: Some(split), ..dataset(vec![1.0, 2.0, 3.0, 100.0, NAN], 1) };
        assert_eq!(flags(&divided), Filling { means: vec![2.0], flags: Vec::new() });
        let of_time = |last: f32| {
            let times = TimeWindow { train: [0, 30], validation: [30, 40], test: [40, 50] };
            let split = StoredSplit {
                rule: SplitRule::Time { windows: vec![times], blocked: None },
                windows: vec![vec![1, 1, 1, 2, 3]],
                window: 0,
            };
            let time = vec![10, 20, 29, 30, 45];
            let events = Events { known: vec![Events::NEVER; 5], time, amount: None, value: None, alert: None };
            let data = dataset(vec![1.0, NAN, 3.0, last, last], 1);
            flags(&Dataset { split: Some(split), events: Some(events), ..data })
        };
        assert_eq!(of_time(100.0), Filling { means: vec![2.0], flags: vec![0] });
        assert_eq!(of_time(100.0), of_time(NAN));
    }

    #[test]
    fn a_run_keeps_its_filling_and_a_changed_file_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Filling::of_run(dir.path()).unwrap(), None);
        let filling = Filling { means: vec![0.1, 1.0 / 3.0, -65_504.0, 1e-30], flags: vec![1, 3] };
        filling.keep(dir.path()).unwrap();
        assert_eq!(Filling::of_run(dir.path()).unwrap(), Some(filling.clone()));
        // The first one stays.
        Filling { flags: Vec::new(), ..filling.clone() }.keep(dir.path()).unwrap();
        assert_eq!(Filling::of_run(dir.path()).unwrap(), Some(filling));
        std::fs::write(dir.path().join(FILLING_FILE), "{\"means\": [1.0], \"flags\": [1]}").unwrap();
        let error = Filling::of_run(dir.path()).unwrap_err().to_string();
        assert!(error.contains("flags: expected columns below 1, found 1"), "{error}");
    }

    #[test]
    fn columns_that_lack_values_only_now_are_named_and_other_columns_refused() {
        let filling = Filling { means: vec![1.0, 2.0], flags: vec![0] };
        let data = dataset(vec![NAN, NAN, 1.0, 2.0], 2);
        let note = data.filling_note(&filling).unwrap();
        assert!(note.starts_with("column 1: missing values are filled with the means of the training"), "{note}");
        assert_eq!(dataset(vec![NAN, 1.0], 2).filling_note(&filling), None);
        let path = Path::new("data");
        assert_eq!(rows(&data.filled(Some(&filling), path).unwrap().unwrap()), [[1.0, 2.0, 1.0], [1.0, 2.0, 0.0]]);
        let error = data.filled(None, path).unwrap_err().to_string();
        assert!(error.contains("missing values in 2 of 2 columns"), "{error}");
        let error = dataset(vec![1.0; 3], 3).filled(Some(&filling), path).unwrap_err().to_string();
        assert!(error.contains("expected 2 columns, as the model was trained on, found 3"), "{error}");
    }
}
