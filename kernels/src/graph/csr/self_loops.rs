//! Adjacencies with exactly one self-loop per node.

use std::sync::{Arc, OnceLock};

use burn::tensor::backend::Backend;
use burn::tensor::ops::IntTensor;
use burn::tensor::{Int, Tensor};

use super::Csr;
use super::arrays::{reverse_host, upload};
use super::parts::{EdgeMap, Host, LoopParts};
use super::spans::RowBounds;
use crate::graph::row_index::RowIndex;
use crate::runtime::host::{index_tensor, to_host};
use crate::runtime::lists::UploadBackend;

/// What a self-loop carries in [`SelfLoops::edge_values`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LoopValue {
    /// The mean over the other in-edges of the node, 0 where there are none. Loops that were there are forgotten.
    Mean,
    /// The mean over the loops that the node had, and this value where it had none.
    Kept(f32),
}

/// An adjacency with exactly one self-loop per node, made by [`Csr::with_self_loops`].
#[derive(Clone, Debug)]
pub struct SelfLoops<B: Backend> {
    /// The adjacency. Entries of a row keep their order; loops stand last (seen from the reverse, where the
    /// node's id puts them). Its edges have the order of the entries, also
    /// where those of the adjacency that it was made from had one of their own ([`Csr::from_edges`]).
    pub csr: Csr<B>,
    of: Csr<B>,
}

impl<B: Backend> Csr<B> {
    /// Self-loops of every node `[num_rows]`, f32. The first call reads the structure back.
    ///
    /// # Panics
    /// Unless rows and columns are the same nodes: as many of one as of the other, and no restriction.
    pub fn self_loops(&self) -> Tensor<B, 1> {
        Tensor::<B, 1, Int>::from_primitive(self.loops("Csr::self_loops").counts.clone())
            .narrow(0, 0, self.num_rows())
            .float()
    }

    /// The adjacency with exactly one self-loop per node: loops that are there give way to one. It has a list per row,
    /// also where the rows of this one are spans. Made on the host by the first call and shared by clones and by
    /// [`Csr::reverse`] from then on.
    ///
    /// # Panics
    /// Unless rows and columns are the same nodes: as many of one as of the other, and no restriction.
    ///
    /// # Example
    /// ```
    /// use burn::tensor::Tensor;
    /// use burn_flex::Flex;
    /// use graphsieve_kernels::{Csr, LoopValue};
    /// let device = Default::default();
    /// // 0 <- {1, 1}, 1 <- {1}
    /// let csr = Csr::<Flex>::from_host(&[0, 2, 3], &[1, 1, 1], 2, &device).unwrap();
    /// let looped = csr.with_self_loops();
    /// assert_eq!(looped.csr.num_edges(), 4); // 0 <- {1, 1, 0}, 1 <- {1}
    /// let values = Tensor::<Flex, 2>::from_data([[1.0], [3.0], [9.0]], &device);
    /// let mean = looped.edge_values(values.clone(), LoopValue::Mean);
    /// assert_eq!(mean.into_data().to_vec::<f32>().unwrap(), [1.0, 3.0, 2.0, 0.0]);
    /// let kept = looped.edge_values(values, LoopValue::Kept(1.0));
    /// assert_eq!(kept.into_data().to_vec::<f32>().unwrap(), [1.0, 3.0, 1.0, 9.0]);
    /// ```
    pub fn with_self_loops(&self) -> SelfLoops<B> {
        let parts = self.loops("Csr::with_self_loops").looped.get_or_init(|| {
            let from = &self.parts.forward;
            let host = Host::of::<B>(from);
            let (mut row_ptr, mut col_idx) = (vec![0], Vec::with_capacity(from.num_edges + from.num_rows));
            for (row, entries) in host.bounds().rows() {
                col_idx.extend(host.col_idx[entries].iter().filter(|&&col| col != row));
                col_idx.push(row);
                row_ptr.push(col_idx.len() as u64);
            }
            let device = B::int_device(&from.col_idx);
            let (reverse_ptr, reverse_idx) = reverse_host(RowBounds::lists(&row_ptr), &col_idx, from.num_cols);
            let forward = upload::<B>(&row_ptr, &col_idx, from.num_cols, &device);
            Self::from_parts(forward, upload::<B>(&reverse_ptr, &reverse_idx, from.num_rows, &device)).parts
        });
        let csr = Csr { parts: parts.clone(), reversed: self.reversed, rows: None, cols: None };
        SelfLoops { csr, of: self.clone() }
    }

    fn loops(&self, op: &str) -> &LoopParts<IntTensor<B>> {
        assert!(
            !self.is_restricted() && self.num_rows() == self.num_cols(),
            "{op}: csr: expected a whole adjacency of nodes with themselves, got {self:?}"
        );
        self.parts.loops.get_or_init(|| {
            let from = &self.parts.forward;
            let host = Host::of::<B>(from);
            let count = |(row, entries): (u32, std::ops::Range<usize>)| {
                host.col_idx[entries].iter().filter(|&&col| col == row).count() as i32
            };
            let counts = index_tensor::<B>(host.bounds().rows().map(count).collect(), &B::int_device(&from.col_idx));
            Arc::new(LoopParts { counts, looped: OnceLock::new(), edge_maps: Default::default() })
        })
    }
}

impl<B: Backend> SelfLoops<B> {
    /// The adjacency that this was made from.
    pub(crate) fn source(&self) -> &Csr<B> {
        &self.of
    }
}

impl<B: UploadBackend> SelfLoops<B> {
    /// The rows of values with one row per node behind them that the entries take, and the adjacency from entries to
    /// nodes whose mean a self-loop gets; `None` where every mean is over nothing.
    pub(crate) fn edge_sources(&self, op: &str, value: LoopValue) -> (RowIndex<B>, Option<Csr<B>>) {
        let map = self.edge_map(op, value);
        let csr = |parts: &Arc<_>| Csr { parts: Arc::clone(parts), reversed: false, rows: None, cols: None };
        (RowIndex { parts: map.index.clone() }, map.averaged.as_ref().map(csr))
    }

    fn edge_map(&self, op: &str, value: LoopValue) -> Arc<EdgeMap<IntTensor<B>>> {
        let is_mean = value == LoopValue::Mean;
        let slots = &self.of.loops(op).edge_maps[usize::from(self.of.reversed)];
        slots[usize::from(is_mean)]
            .get_or_init(|| {
                let (from, to) = (Host::of::<B>(self.of.topology()), Host::of::<B>(self.csr.topology()));
                let device = B::int_device(&self.of.topology().col_idx);
                let num_edges = from.col_idx.len();
                let ids = self.of.edge_ids().map(|ids| to_host::<B>(&ids, num_edges));
                let edge_of = |entry: usize| ids.as_ref().map_or(entry, |ids| ids[entry] as usize);
                let mut index = Vec::with_capacity(to.col_idx.len());
                let (mut averaged_ptr, mut averaged) = (vec![0], Vec::new());
                for ((row, entries), (_, looped)) in from.bounds().rows().zip(to.bounds().rows()) {
                    let is_loop = |e: &usize| from.col_idx[*e] == row;
                    averaged.extend(entries.clone().filter(|e| is_loop(e) != is_mean).map(|e| edge_of(e) as u32));
                    averaged_ptr.push(averaged.len() as u64);
                    // Both list the other entries in the same order.
                    let mut others = entries.filter(|e| !is_loop(e));
                    for &col in &to.col_idx[looped] {
                        let other = if col == row { None } else { others.next() };
                        index.push(other.map_or(num_edges + row as usize, edge_of) as u32);
                    }
                }
                let index = RowIndex::<B>::new(&index, num_edges + self.of.num_rows(), &device).parts;
                let averaged = (!averaged.is_empty()).then(|| {
                    let (reverse_ptr, reverse_idx) =
                        reverse_host(RowBounds::lists(&averaged_ptr), &averaged, num_edges);
                    let forward = upload::<B>(&averaged_ptr, &averaged, num_edges, &device);
                    let reverse = upload::<B>(&reverse_ptr, &reverse_idx, self.of.num_rows(), &device);
                    Csr::<B>::from_parts(forward, reverse).parts
                });
                Arc::new(EdgeMap { index, averaged })
            })
            .clone()
    }
}

#[cfg(test)]
mod tests {
    use burn_flex::Flex;

    use super::*;

    /// 0 <- {0, 1, 0}, 1 <- {}, 2 <- {0, 2, 1, 1}, 3 <- {3}
    fn csr() -> Csr<Flex> {
        Csr::from_host(&[0, 3, 3, 7, 8], &[0, 1, 0, 0, 2, 1, 1, 3], 4, &Default::default()).unwrap()
    }

    fn rows(csr: &Csr<Flex>) -> Vec<Vec<u32>> {
        let host = Host::of::<Flex>(csr.topology());
        host.bounds().rows().map(|(_, entries)| host.col_idx[entries].to_vec()).collect()
    }

    #[test]
    fn every_node_has_one_loop_behind_its_other_entries() {
        assert_eq!(rows(&csr().with_self_loops().csr), [vec![1, 0], vec![1], vec![0, 1, 1, 2], vec![3]]);
        assert_eq!(csr().self_loops().into_data().to_vec::<f32>().unwrap(), [2.0, 0.0, 1.0, 1.0]);
    }

    #[test]
    fn the_reverse_has_the_loops_too_and_shares_the_arrays() {
        let csr = csr();
        let (forward, backward) = (csr.with_self_loops().csr, csr.reverse().with_self_loops().csr);
        assert_eq!(rows(&backward), [vec![0, 2], vec![0, 1, 2, 2], vec![2], vec![3]]);
        assert!(Arc::ptr_eq(&forward.parts, &backward.parts));
        assert!(Arc::ptr_eq(&forward.parts, &csr.clone().with_self_loops().csr.parts));
        assert_eq!(csr.reverse().self_loops().into_data().to_vec::<f32>().unwrap(), [2.0, 0.0, 1.0, 1.0]);
    }

    #[test]
    fn a_graph_without_edges_gets_loops() {
        let csr = Csr::<Flex>::from_host(&[0, 0, 0], &[], 2, &Default::default()).unwrap();
        assert_eq!(rows(&csr.with_self_loops().csr), [[0], [1]]);
    }

    #[test]
    #[should_panic(expected = "Csr::with_self_loops: csr: expected a whole adjacency of nodes with themselves")]
    fn nodes_of_two_kinds_have_no_loops() {
        Csr::<Flex>::from_host(&[0, 1], &[1], 2, &Default::default()).unwrap().with_self_loops();
    }
}
