//! Stage 2 out of fold: no training node is scored by a model that has seen its label.
//!
//! The training labels are divided into stratified parts, of whole groups in data that are split by group. Each part
//! is scored by a Stage 2 that was trained on the other parts; all other nodes, validation and test among them, get
//! the mean of these models. Of data that are split by time the parts follow one another, and each is scored by a
//! model of what was known of the earlier ones: a later label would tell what nobody knew at the time. The first part
//! has no such model: for the trees its scores are missing.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::{fs, io};

use graphsieve_kernels::GraphBackend;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

use super::super::session::RunOptions;
use super::super::stretch::Stretch;
use super::super::tasks::attention;
use crate::config::{STAGE2_EMBEDDINGS_FILE, STAGE2_SCORES_FILE, Stage2Config};
use crate::data::groups::Groups;
use crate::data::split::{Split, whole_groups};
use crate::error::{Error, Result};
use crate::graph::{Dataset, Events, Spill, TimeWindow, open_embeddings};
use crate::infer::tree_table::Stage2Output;
use crate::run::RunDir;
use crate::run::evaluation::{EVALUATION_FILE, read_scores};
use crate::run::progress::{Mode, Progress};

/// Which models are trained, and which labels they leave out.
#[derive(Debug, Default)]
pub(super) struct Folds {
    pub models: Vec<Model>,
    /// Training labels that no model may score, because none learns from earlier ones: those of the first fold in time.
    first: Vec<(u32, u8)>,
}

/// One Stage 2.
#[derive(Debug, Default)]
pub(super) struct Model {
    /// Labels that it learns from, ascending.
    train: Vec<(u32, u8)>,
    /// Training labels that it scores, ascending.
    held_out: Vec<(u32, u8)>,
    /// Whether it scores the nodes that are no training labels.
    others: bool,
}

impl Folds {
    /// The models for the training labels of `split` in `count` parts: stratified ones, each scored by a model of all
    /// others, of whole groups where the data are split by group: a label of a group tells much of its other members;
    /// of data that are split by time contiguous ones in time, each scored by a model of what was known of the earlier
    /// ones when it began, and all other nodes by a model of all.
    ///
    /// # Errors
    /// [`Error::Data`] for parts that lack a class.
    pub fn of(dataset: &Dataset, split: &Split, count: usize, seed: u64) -> Result<Self> {
        let train = &split.train;
        let (Some(_), Some(events)) = (time_split(dataset), &dataset.events) else {
            let without = |held_out: &[(u32, u8)]| {
                train.iter().filter(|entry| held_out.binary_search(entry).is_err()).copied().collect()
            };
            let model = |held_out: Vec<(u32, u8)>| Model { train: without(&held_out), held_out, others: true };
            let parts = match Groups::of_split(dataset) {
                Some(groups) => parts_of_groups(train, groups, count, seed)?,
                None => parts(train, count, seed)?,
            };
            return Ok(Self { models: parts.into_iter().map(model).collect(), first: Vec::new() });
        };
        let mut parts = in_time(train, events, count)?;
        let mut models = Vec::with_capacity(count);
        for k in 1..count {
            let start = parts[k].iter().map(|&(node, _)| events.time[node as usize]).min().unwrap_or_default();
            let mut earlier = parts[..k].concat();
            earlier.retain(|&(node, _)| events.known[node as usize] < start);
            earlier.sort_unstable();
            both_classes(&earlier, count)?;
            models.push(Model { train: earlier, held_out: parts[k].clone(), others: false });
        }
        models.push(Model { train: train.clone(), held_out: Vec::new(), others: true });
        Ok(Self { models, first: parts.swap_remove(0) })
    }
}

/// The times of data that are split by time.
fn time_split(dataset: &Dataset) -> Option<TimeWindow> {
    dataset.split.as_ref()?.times()
}

/// What the models of all folds leave.
pub(super) struct OutOfFoldOutput {
    /// Runs of the models that score nodes other than training labels, relative to the run of Stage 3.
    pub runs: Vec<PathBuf>,
    pub output: Stage2Output,
}

/// Trains the models one after the other.
#[expect(clippy::too_many_arguments, reason = "what a training needs, once")]
pub(super) fn run<B: GraphBackend>(
    config: &Stage2Config,
    folds: &Folds,
    dataset: &Dataset,
    split: &Split,
    run: &RunDir,
    options: &RunOptions,
    (spill, device): (&Spill, &B::Device),
    progress: &Progress,
) -> Result<OutOfFoldOutput> {
    let options = RunOptions { resume: None, from: None, pipeline: None, progress: Mode::Quiet, ..options.clone() };
    let (mut runs, mut outputs, mut of_held_out) = (Vec::new(), Vec::new(), Vec::new());
    let nodes = dataset.graph.num_nodes();
    for (k, model) in folds.models.iter().enumerate() {
        let test = if model.held_out.is_empty() { split.test.clone() } else { model.held_out.clone() };
        let fold = Split { train: model.train.clone(), validation: split.validation.clone(), test };
        let mut config = config.clone();
        config.name = format!("fold-{k}");
        config.output.dir = run.path().join("folds");
        let of_fold = match earlier(&config.output.dir, &config.name)? {
            Some(of_fold) if OUTPUTS.iter().all(|file| of_fold.join(file).is_file()) => of_fold,
            begun => {
                // A model is trained once, however many trees are asked for; what time there is, is shared by the
                // models that are left and the trees.
                let left = (folds.models.len() - k + 1) as u32;
                let stretch = options.stretch.map(|stretch| Stretch { share: 1.0, ..stretch.divided(left) });
                // One that ended before its first checkpoint begins again where it is.
                let resume = begun.filter(|run| RunDir::open(run).is_ok());
                let options = RunOptions { resume, stretch, ..options.clone() };
                let outcome = attention::run_on::<B>(&config, dataset, &fold, &options, device);
                outcome.map_err(|error| error.of_part(run.path()))?.run
            }
        };
        let [scores, embeddings, _] = OUTPUTS.map(|file| of_fold.join(file));
        let output = Stage2Output {
            scores: read_scores(&scores, nodes)?,
            embeddings: open_embeddings(embeddings, Some(nodes))?,
        };
        for &(node, _) in &model.held_out {
            let node = node as usize;
            of_held_out.push((node, output.scores[node], output.embeddings.row(node).collect::<Vec<f32>>()));
        }
        progress.update(k as u64 + 1, &format!("stage 2, fold {} of {}", k + 1, folds.models.len()));
        if model.others {
            outputs.push(output);
            let relative = of_fold.strip_prefix(run.path()).map(PathBuf::from);
            runs.push(relative.unwrap_or_else(|_| unreachable!("folds lie in the run directory")));
        }
    }
    let (mut scores, mut embeddings) = Stage2Output::mean(&outputs, spill)?;
    for (node, score, embedding) in of_held_out {
        scores[node] = score;
        embeddings.fill(node..node + 1, |row| row.copy_from_slice(&embedding))?;
    }
    for node in folds.first.iter().map(|&(node, _)| node as usize) {
        scores[node] = f32::NAN;
        embeddings.fill(node..node + 1, |row| row.fill(f32::NAN))?;
    }
    Ok(OutOfFoldOutput { runs, output: Stage2Output { scores, embeddings: embeddings.finish()? } })
}

/// What a finished run of Stage 2 has.
const OUTPUTS: [&str; 3] = [STAGE2_SCORES_FILE, STAGE2_EMBEDDINGS_FILE, EVALUATION_FILE];

/// The latest run of that name in `runs`, if there is any.
fn earlier(runs: &Path, name: &str) -> Result<Option<PathBuf>> {
    let entries = match fs::read_dir(runs) {
        Err(missing) if missing.kind() == io::ErrorKind::NotFound => return Ok(None),
        entries => entries.map_err(|source| Error::io(runs, "read", source))?,
    };
    let mut latest: Option<PathBuf> = None;
    for entry in entries {
        let path = entry.map_err(|source| Error::io(runs, "read", source))?.path();
        let is_named = path.to_str().is_some_and(|path| path.ends_with(&format!("-{name}")));
        // Names begin with the time.
        if is_named && latest.as_ref().is_none_or(|latest| *latest < path) {
            latest = Some(path);
        }
    }
    Ok(latest)
}

/// The training labels in `count` parts of whole groups.
///
/// # Errors
/// [`Error::Data`] where the labels outside of a part lack a class: no model learns from them.
fn parts_of_groups(labels: &[(u32, u8)], mut groups: Groups, count: usize, seed: u64) -> Result<Vec<Vec<(u32, u8)>>> {
    let shares = vec![1.0 / count as f64; count];
    let part_of = whole_groups(labels, &mut |node| groups.of(node), &shares, seed);
    let part = |part: usize| labels.iter().zip(&part_of).filter(move |(_, of)| **of == part).map(|(entry, _)| *entry);
    for at in 0..count {
        let classes: HashSet<u8> =
            (0..count).filter(|other| *other != at).flat_map(part).map(|(_, label)| label).collect();
        if classes.len() < 2 || part(at).next().is_none() {
            return Err(Error::Data {
                what: "training labels".into(),
                expected: format!(
                    "groups enough for features.stage2_folds = {count} parts, both classes outside of each"
                ),
                found: "a group with nearly all labels of a class".into(),
                help:
                    "lower features.stage2_folds, leave stage2_score and stage2_embedding out, or split by other groups"
                        .into(),
            });
        }
    }
    Ok((0..count).map(|at| part(at).collect()).collect())
}

/// Stratified parts of labels, each in ascending order.
pub(super) fn parts(labels: &[(u32, u8)], count: usize, seed: u64) -> Result<Vec<Vec<(u32, u8)>>> {
    let mut parts = vec![Vec::new(); count];
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    for class in 0..2 {
        let mut nodes: Vec<(u32, u8)> = labels.iter().filter(|(_, label)| *label == class).copied().collect();
        if nodes.len() < count {
            let name = if class == 1 { "anomalous" } else { "normal" };
            return Err(Error::Data {
                what: "training labels".into(),
                expected: format!("at least {count} {name} nodes, one for each of features.stage2_folds = {count}"),
                found: nodes.len().to_string(),
                help: "lower features.stage2_folds, or leave stage2_score and stage2_embedding out".into(),
            });
        }
        nodes.sort_unstable();
        nodes.shuffle(&mut rng);
        nodes.into_iter().enumerate().for_each(|(k, node)| parts[k % count].push(node));
    }
    parts.iter_mut().for_each(|part| part.sort_unstable());
    Ok(parts)
}

/// Parts of labelled events one behind the other in time, each in ascending order of id; events of one time are in one
/// part.
fn in_time(labels: &[(u32, u8)], events: &Events, count: usize) -> Result<Vec<Vec<(u32, u8)>>> {
    let time = |entry: &(u32, u8)| events.time[entry.0 as usize];
    let mut order = labels.to_vec();
    order.sort_unstable_by_key(|entry| (time(entry), entry.0));
    let mut parts: Vec<Vec<(u32, u8)>> = vec![Vec::new(); count];
    let mut part = 0;
    for (at, entry) in order.iter().enumerate() {
        let begins = at > 0 && time(entry) > time(&order[at - 1]);
        if begins && part + 1 < count && at >= (part + 1) * order.len() / count {
            part += 1;
        }
        parts[part].push(*entry);
    }
    for part in &mut parts {
        both_classes(part, count)?;
        part.sort_unstable();
    }
    Ok(parts)
}

/// Refuses labels of one class alone.
fn both_classes(labels: &[(u32, u8)], count: usize) -> Result<()> {
    let anomalous = labels.iter().filter(|(_, label)| *label == 1).count();
    if anomalous > 0 && anomalous < labels.len() {
        return Ok(());
    }
    Err(Error::Data {
        what: "training labels".into(),
        expected: format!(
            "both classes in each of features.stage2_folds = {count} parts in time, and known before the next one begins"
        ),
        found: format!("a part with {anomalous} anomalous and {} normal nodes", labels.len() - anomalous),
        help: "lower features.stage2_folds, or leave stage2_score and stage2_embedding out".into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(times: &[i64], delay: i64) -> Events {
        let known = times.iter().map(|time| time + delay).collect();
        Events { time: times.to_vec(), known, amount: None, value: None, alert: None }
    }

    #[test]
    fn folds_in_time_follow_one_another_and_events_of_one_time_stay_together() {
        let times: Vec<i64> = (0..60).map(|node| (node * 37 % 60) / 4).collect();
        let labels: Vec<(u32, u8)> = (0..60).map(|node| (node, u8::from(node % 3 == 0))).collect();
        let of = events(&times, 0);
        let parts = in_time(&labels, &of, 4).unwrap();
        let mut all = parts.concat();
        all.sort_unstable();
        assert_eq!(all, labels);
        let range = |part: &Vec<(u32, u8)>| {
            let times = part.iter().map(|(node, _)| of.time[*node as usize]);
            (times.clone().min().unwrap(), times.max().unwrap())
        };
        let ranges: Vec<(i64, i64)> = parts.iter().map(range).collect();
        assert!(ranges.windows(2).all(|pair| pair[0].1 < pair[1].0), "{ranges:?}");
        assert!(parts.iter().all(|part| part.is_sorted() && part.len() >= 12));
        let error = in_time(&labels, &events(&[1; 60], 0), 4).unwrap_err().to_string();
        assert!(error.contains("stage2_folds = 4 parts in time"), "{error}");
    }

    #[test]
    fn groups_are_held_out_as_a_whole() {
        let labels: Vec<(u32, u8)> = (0..60).map(|node| (node, u8::from(node % 7 < 3))).collect();
        let groups = || {
            let mut groups = Groups::new(60);
            (20..60).for_each(|node| groups.join(node, node % 20));
            groups
        };
        let parts = parts_of_groups(&labels, groups(), 4, 7).unwrap();
        let mut all = parts.concat();
        all.sort_unstable();
        assert_eq!(all, labels);
        for part in &parts {
            assert!((12..=18).contains(&part.len()) && part.is_sorted(), "{part:?}");
            assert!(part.iter().all(|(node, _)| part.iter().filter(|(mate, _)| mate % 20 == node % 20).count() == 3));
        }
        let mut one = groups();
        (1..20).for_each(|node| one.join(0, node));
        let error = parts_of_groups(&labels, one, 4, 7).unwrap_err().to_string();
        assert!(error.contains("features.stage2_folds = 4") && error.contains("other groups"), "{error}");
    }

    #[test]
    fn every_label_is_held_out_once_and_every_part_has_both_classes() {
        let labels: Vec<(u32, u8)> = (0..43).map(|node| (node * 3, u8::from(node % 5 == 0))).collect();
        let parts = parts(&labels, 4, 7).unwrap();
        let mut all: Vec<(u32, u8)> = parts.concat();
        all.sort_unstable();
        assert_eq!(all, labels);
        for part in &parts {
            let positives = part.iter().filter(|(_, label)| *label == 1).count();
            assert!((2..=3).contains(&positives) && (10..=12).contains(&part.len()), "{part:?}");
            assert!(part.is_sorted());
        }
        assert_ne!(parts, super::parts(&labels, 4, 8).unwrap());
    }

    #[test]
    fn more_folds_than_nodes_of_a_class_are_refused() {
        let labels: Vec<(u32, u8)> = (0..20).map(|node| (node, u8::from(node < 3))).collect();
        let error = parts(&labels, 5, 0).unwrap_err().to_string();
        assert!(error.contains("at least 5 anomalous nodes") && error.contains("found 3"), "{error}");
    }
}
