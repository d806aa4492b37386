//! What columns and their blocks brought: shares of the gain, and `importance.csv`.

use serde::Serialize;

use crate::error::Result;
use crate::features::FeatureTable;
use crate::graph::formats::atomic_write;
use crate::run::RunDir;

/// How much the splits on the columns of one block brought.
#[derive(Clone, Debug, Serialize)]
pub struct BlockShare {
    pub block: String,
    pub columns: usize,
    /// Of the gain of all splits, in [0, 1].
    pub share: f64,
}

/// Shares of all blocks, the largest first; `gain` is by column.
pub(super) fn block_shares(table: &FeatureTable, gain: &[f64]) -> Vec<BlockShare> {
    let total: f64 = gain.iter().sum();
    let share = |columns: &[usize]| columns.iter().map(|&at| gain[at]).sum::<f64>() / total.max(f64::MIN_POSITIVE);
    let blocks = table.blocks().into_iter();
    let mut shares: Vec<BlockShare> = blocks
        .map(|(block, columns)| BlockShare { block: block.to_string(), columns: columns.len(), share: share(&columns) })
        .collect();
    shares.sort_by(|a, b| b.share.total_cmp(&a.share));
    shares
}

/// `importance.csv`: gain and number of splits of every column, the most important first. `features` are the user's
/// names of features.
pub(super) fn write_importance(
    run: &RunDir,
    table: &FeatureTable,
    features: &[String],
    gain: &[f64],
    splits: &[f64],
) -> Result<()> {
    let mut order: Vec<usize> = (0..gain.len()).collect();
    order.sort_by(|&a, &b| gain[b].total_cmp(&gain[a]));
    atomic_write(run.output("importance.csv"), |file| {
        let mut csv = csv::Writer::from_writer(file);
        csv.write_record(["column", "block", "gain", "splits"])?;
        for at in order {
            let column = &table.columns()[at];
            let [block, gain, splits] = [column.block.to_string(), gain[at].to_string(), splits[at].to_string()];
            csv.write_record([column.named(features), block, gain, splits])?;
        }
        csv.flush()
    })
}
