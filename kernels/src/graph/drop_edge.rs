//! DropEdge decided inside the kernels: whether an edge is kept is a hash of its endpoints, so no mask is ever stored
//! and forward, backward, CPU and GPU agree bit for bit.

#[cfg(feature = "cube")]
use cubecl::prelude::*;

#[cfg(feature = "cube")]
use crate::runtime::args::launch_args;
#[cfg(feature = "cube")]
use crate::runtime::hash::mix_cube;
use crate::runtime::hash::{mix, philox4x32};
use crate::runtime::rows::KeepKey;

/// Which edges one layer keeps in one epoch.
///
/// An edge `dst <- src` is kept when `mix(dst ^ key0, src ^ key1) < threshold`, where `threshold = (1 - rate) 2^32` and
/// the keys come from Philox4x32-10 of `(seed, epoch, layer, relation)`. Each direction of an undirected edge has a
/// fate of its own; parallel edges share one. Nothing is rescaled by `1 / (1 - rate)`.
///
/// Ids are *global*: `row_base` and `col_base` turn the local ids of a bipartite relation into ids of the whole graph,
/// so relations, partitions and chunks agree.
///
/// # Source
/// Rong et al., DropEdge (ICLR 2020); Salmon et al., Philox (SC 2011).
///
/// # Example
/// ```
/// use graphsieve_kernels::DropEdge;
/// let half = DropEdge::new(0.5, 42, 0, 0, 0).unwrap();
/// let kept = (0..10_000u32).filter(|&i| half.keeps(i, i + 1)).count();
/// assert!((4_700..5_300).contains(&kept));
/// assert!(DropEdge::new(0.0, 42, 0, 0, 0).is_none()); // nothing to drop
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DropEdge {
    pub(crate) key0: u32,
    pub(crate) key1: u32,
    pub(crate) threshold: u32,
    pub(crate) row_base: u32,
    pub(crate) col_base: u32,
    /// Whether the rows of the CSR at hand are sources: true in the reverse pass.
    pub(crate) reversed: bool,
}

impl DropEdge {
    /// Drops edges independently with probability `rate`; `None` when nothing is dropped.
    ///
    /// # Panics
    /// Unless `0 <= rate < 1`.
    pub fn new(rate: f64, seed: u64, epoch: u32, layer: u32, relation: u32) -> Option<Self> {
        assert!((0.0..1.0).contains(&rate), "DropEdge: rate: expected [0, 1), got {rate}");
        Self::keyed(rate, seed, [epoch, layer, relation, 0])
    }

    /// The decision that `counter` names among those of `seed`; `None` when nothing is dropped.
    pub(crate) fn keyed(rate: f64, seed: u64, counter: [u32; 4]) -> Option<Self> {
        // At least one hash value is kept, so that a rate just below one is not "drop everything".
        let threshold = ((1.0 - rate) * 4_294_967_296.0).round();
        if threshold >= 4_294_967_296.0 {
            return None;
        }
        let [key0, key1, ..] = philox4x32(counter, [seed as u32, (seed >> 32) as u32]);
        Some(Self { key0, key1, threshold: (threshold as u32).max(1), row_base: 0, col_base: 0, reversed: false })
    }

    /// The same decision for a CSR whose row 0 is the node `dst` and whose column 0 is the node `src` of the whole
    /// graph.
    pub fn with_bases(self, dst: u32, src: u32) -> Self {
        Self { row_base: dst, col_base: src, ..self }
    }

    /// The same decisions seen from the reverse CSR, whose rows are the sources.
    pub fn reverse(self) -> Self {
        Self { row_base: self.col_base, col_base: self.row_base, reversed: !self.reversed, ..self }
    }

    /// Whether the entry at (`row`, `col`) of the CSR at hand is kept.
    pub fn keeps(&self, row: u32, col: u32) -> bool {
        let (row, col) = (row.wrapping_add(self.row_base), col.wrapping_add(self.col_base));
        let (dst, src) = if self.reversed { (col, row) } else { (row, col) };
        mix(dst ^ self.key0, src ^ self.key1) < self.threshold
    }

    /// `(key0, key1, threshold)`, for an oracle.
    pub fn key(&self) -> (u32, u32, u32) {
        (self.key0, self.key1, self.threshold)
    }
}

impl From<DropEdge> for KeepKey {
    fn from(drop: DropEdge) -> Self {
        let DropEdge { key0, key1, threshold, row_base, col_base, reversed } = drop;
        KeepKey { key0, key1, threshold, row_base, col_base, reversed }
    }
}

#[cfg(feature = "cube")]
launch_args! {
    /// [`DropEdge`] as kernels see it.
    DropEdgeKey, DropEdgeKeyArgs {
        key0: u32,
        key1: u32,
        threshold: u32,
        row_base: u32,
        col_base: u32,
    }
}

/// How the kernel reads the key: a variant of its own for each case, decided before the launch.
#[cfg(feature = "cube")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum DropMode {
    KeepAll,
    RowsAreDestinations,
    RowsAreSources,
}

#[cfg(feature = "cube")]
impl DropMode {
    pub(crate) fn of(drop: &Option<DropEdge>) -> Self {
        match drop {
            None => DropMode::KeepAll,
            Some(d) if d.reversed => DropMode::RowsAreSources,
            Some(_) => DropMode::RowsAreDestinations,
        }
    }
}

#[cfg(feature = "cube")]
impl DropEdgeKey {
    pub(crate) fn launch<R: Runtime>(drop: &Option<DropEdge>) -> DropEdgeKeyLaunch<R> {
        let none = DropEdge { key0: 0, key1: 0, threshold: 0, row_base: 0, col_base: 0, reversed: false };
        let DropEdge { key0, key1, threshold, row_base, col_base, .. } = drop.unwrap_or(none);
        DropEdgeKeyArgs { key0, key1, threshold, row_base, col_base }.launch()
    }
}

/// [`DropEdge::keeps`] on the device.
#[cfg(feature = "cube")]
#[cube]
pub(crate) fn keeps(key: &DropEdgeKey, row: u32, col: u32, #[comptime] mode: DropMode) -> bool {
    let row = row + key.row_base;
    let col = col + key.col_base;
    match comptime!(mode) {
        DropMode::KeepAll => true.runtime(),
        DropMode::RowsAreDestinations => mix_cube(row ^ key.key0, col ^ key.key1) < key.threshold,
        DropMode::RowsAreSources => mix_cube(col ^ key.key0, row ^ key.key1) < key.threshold,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reverse_csr_keeps_the_same_edges() {
        let drop = DropEdge::new(0.85, 7, 3, 1, 2).unwrap().with_bases(10, 500);
        let reverse = drop.reverse();
        for (dst, src) in (0..200).flat_map(|i| (0..50).map(move |j| (i, j))) {
            assert_eq!(drop.keeps(dst, src), reverse.keeps(src, dst));
        }
        assert_eq!(reverse.reverse(), drop);
    }

    #[test]
    fn every_coordinate_of_the_counter_changes_the_mask() {
        let base = DropEdge::new(0.5, 1, 1, 1, 1);
        for other in [(2, 1, 1, 1), (1 << 40, 1, 1, 1), (1, 2, 1, 1), (1, 1, 2, 1), (1, 1, 1, 2)] {
            assert_ne!(DropEdge::new(0.5, other.0, other.1, other.2, other.3), base);
        }
    }

    #[test]
    fn a_rate_just_below_one_still_keeps_something_in_principle() {
        assert_eq!(DropEdge::new(1.0 - 1e-16, 1, 1, 1, 1).unwrap().threshold, 1);
    }
}
