//! Scores of a tree ensemble.

use std::path::Path;

use graphsieve_kernels::GraphBackend;

use super::fits::check_data;
use super::{Computed, ScoreOptions, Scores};
use crate::error::{Error, Result};
use crate::graph::Dataset;
use crate::infer::tree_table::{TableOptions, table};
use crate::models::tree_ensemble::{TreeCheckpoint, matrix};
use crate::run::bundle::{Bundle, Reads};

/// Scores the graph of a data directory with trees.
///
/// # Errors
/// As for [`table`].
pub(super) fn compute<B: GraphBackend>(
    options: &ScoreOptions,
    bundle: Option<&Bundle>,
    file: &Path,
    device: &B::Device,
) -> Result<Computed> {
    if options.embeddings {
        return Err(Error::Usage {
            argument: "--embeddings".into(),
            expected: "no such argument with a run of Stage 3".into(),
            found: "one".into(),
            help: "trees refine no embeddings; score with a Stage-2 checkpoint for those".into(),
        });
    }
    let checkpoint = TreeCheckpoint::read(file)?;
    let mut dataset = Dataset::open(&options.data)?;
    check_data(bundle, options, &dataset, Reads::Features)?;
    let place = TableOptions {
        checkpoint: &options.checkpoint,
        run: options.checkpoint.is_dir().then_some(options.checkpoint.as_path()),
        data: &options.data,
        input: options.input.as_deref(),
    };
    let table = table::<B>(&place, &checkpoint, &dataset, device)?;
    if checkpoint.inputs.neighbourhood.edge_values {
        dataset.load_edge_values()?;
    }
    let scores = Scores::Anomaly(checkpoint.ensemble.predict(&matrix(&table)?)?);
    Ok(Computed { dataset, scores, embeddings: None })
}
