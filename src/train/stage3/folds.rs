//! Stage 2 out of fold: no training node is scored by a model that has seen its label.
//!
//! The training labels are divided into stratified parts. Each part is scored by a Stage 2 that was trained on the
//! other parts; all other nodes, validation and test among them, get the mean of these models.

use std::path::{Path, PathBuf};
use std::{fs, io};

use graphsieve_kernels::GraphBackend;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

use super::super::session::{RunOptions, last_file};
use super::super::tasks::attention;
use crate::config::{STAGE2_EMBEDDINGS_FILE, STAGE2_SCORES_FILE, Stage2Config};
use crate::data::split::Split;
use crate::error::{Error, Result};
use crate::graph::{Dataset, read_embeddings};
use crate::infer::tree_table::Stage2Output;
use crate::run::RunDir;
use crate::run::evaluation::read_scores;
use crate::run::progress::{Mode, Progress};

/// What the models of all folds leave.
pub(super) struct OutOfFoldOutput {
    /// Their runs, relative to the run of Stage 3.
    pub runs: Vec<PathBuf>,
    pub output: Stage2Output,
}

/// Trains the models one after the other.
#[expect(clippy::too_many_arguments, reason = "what a training needs, once")]
pub(super) fn run<B: GraphBackend>(
    config: &Stage2Config,
    parts: &[Vec<(u32, u8)>],
    dataset: &Dataset,
    split: &Split,
    run: &RunDir,
    options: &RunOptions,
    device: &B::Device,
    progress: &Progress,
) -> Result<OutOfFoldOutput> {
    let options = RunOptions { resume: None, progress: Mode::Quiet, ..options.clone() };
    let (mut runs, mut outputs) = (Vec::new(), Vec::new());
    for (k, held_out) in parts.iter().enumerate() {
        let others = split.train.iter().filter(|entry| held_out.binary_search(entry).is_err()).copied().collect();
        let fold = Split { train: others, validation: split.validation.clone(), test: held_out.clone() };
        let mut config = config.clone();
        config.name = format!("fold-{k}");
        config.output.dir = run.path().join("folds");
        let of_fold = match earlier(&config.output.dir, &config.name)? {
            Some(of_fold) if OUTPUTS.iter().all(|file| of_fold.join(file).is_file()) => of_fold,
            begun => {
                let resume = begun.filter(|run| RunDir::open(run).is_ok_and(|run| last_file(&run).is_file()));
                let options = RunOptions { resume, ..options.clone() };
                let outcome = attention::run_on::<B>(&config, dataset, &fold, &options, device);
                outcome.map_err(|error| interrupted(error, run))?.run
            }
        };
        let nodes = dataset.graph.num_nodes();
        let [scores, embeddings, _] = OUTPUTS.map(|file| of_fold.join(file));
        outputs.push(Stage2Output {
            scores: read_scores(&scores, nodes)?,
            embeddings: read_embeddings(embeddings, Some(nodes))?,
        });
        progress.update(k as u64 + 1, &format!("stage 2, fold {} of {}", k + 1, parts.len()));
        let relative = of_fold.strip_prefix(run.path()).map(PathBuf::from);
        runs.push(relative.unwrap_or_else(|_| unreachable!("folds lie in the run directory")));
    }
    let mut output = Stage2Output::mean(&outputs);
    for (held_out, fold) in parts.iter().zip(&outputs) {
        for &(node, _) in held_out {
            let node = node as usize;
            output.scores[node] = fold.scores[node];
            output.embeddings.row_mut(node).assign(&fold.embeddings.row(node));
        }
    }
    Ok(OutOfFoldOutput { runs, output })
}

/// What a finished run of Stage 2 has.
const OUTPUTS: [&str; 3] = [STAGE2_SCORES_FILE, STAGE2_EMBEDDINGS_FILE, "evaluation.json"];

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

/// An interruption of a fold is one of the whole run.
fn interrupted(error: Error, run: &RunDir) -> Error {
    match error {
        Error::Interrupted { epoch, .. } => {
            Error::Interrupted { epoch, resume: format!("graphsieve train --resume {}", run.path().display()) }
        }
        other => other,
    }
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

#[cfg(test)]
mod tests {
    use super::*;

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
