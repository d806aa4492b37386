//! Operators of tree growing against plain loops on the host.

mod growth;
mod histograms;
mod splits;
mod table;

use graphsieve_kernels::testing::harness::Trial;

/// The trials of this folder.
pub fn trials() -> Vec<Trial> {
    [histograms::trials(), growth::trials(), splits::trials()].into_iter().flatten().collect()
}
