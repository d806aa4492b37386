//! Adjacencies with exactly one self-loop per node.

use std::sync::{Arc, OnceLock};

use burn::tensor::backend::Backend;
use burn::tensor::ops::IntTensor;
use burn::tensor::{Int, Tensor};

use super::{Csr, CsrParts, Topology, index_tensor, reverse_host, upload};
use crate::check;
use crate::gather::{GatherBackend, gather_rows};
use crate::message::{Message, MessageBackend, Reduce, Strategy, gspmm};
use crate::row_index::{RowIndex, RowIndexParts};

/// What is known of the self-loops of an adjacency, and the adjacency with one per node; each made when first needed.
#[derive(Debug)]
pub(super) struct LoopParts<I> {
    /// `[num_rows]`, i32: entries of a node for itself.
    counts: I,
    looped: OnceLock<Arc<CsrParts<I>>>,
    /// By direction, then by [`LoopValue`].
    edge_maps: [[OnceLock<Arc<EdgeMap<I>>>; 2]; 2],
}

/// Where the entries of the adjacency with loops have their values from.
#[derive(Debug)]
struct EdgeMap<I> {
    /// Rows of the values with one row per node behind them.
    index: Arc<RowIndexParts<I>>,
    /// Rows are nodes, columns entries of the adjacency without loops: what a mean is taken over.
    incoming: Option<Arc<CsrParts<I>>>,
}

/// What a self-loop carries in [`SelfLoops::edge_values`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LoopValue {
    /// The mean over the other in-edges of the node, 0 where there are none. Loops that were there are forgotten.
    Mean,
    /// The value of the last loop that the node had, and this value where it had none.
    Kept(f32),
}

/// An adjacency with exactly one self-loop per node, made by [`Csr::with_self_loops`].
#[derive(Clone, Debug)]
pub struct SelfLoops<B: Backend> {
    /// The adjacency. Entries of a row keep their order; loops stand last.
    pub csr: Csr<B>,
    of: Csr<B>,
}

/// One direction on the host.
struct Host {
    row_ptr: Vec<u64>,
    col_idx: Vec<u32>,
}

impl Host {
    fn of<B: Backend>(topology: &Topology<IntTensor<B>>) -> Self {
        let read = |t: &IntTensor<B>| -> Vec<i64> {
            let data = Tensor::<B, 1, Int>::from_primitive(t.clone()).into_data().convert::<i64>();
            data.into_vec().expect("i64 after convert")
        };
        let mut col_idx: Vec<u32> = read(&topology.col_idx).into_iter().map(|c| c as u32).collect();
        // Without entries the array has an element that stands for none.
        col_idx.truncate(topology.num_edges);
        Self { row_ptr: read(&topology.row_ptr).into_iter().map(|p| p as u64).collect(), col_idx }
    }

    fn rows(&self) -> impl Iterator<Item = (u32, std::ops::Range<usize>)> + '_ {
        self.row_ptr.windows(2).enumerate().map(|(row, w)| (row as u32, w[0] as usize..w[1] as usize))
    }
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

    /// The adjacency with exactly one self-loop per node: loops that are there give way to one. Made on the host by the
    /// first call and shared by clones and by [`Csr::reverse`] from then on.
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
            let (mut row_ptr, mut col_idx) = (vec![0], Vec::with_capacity(host.col_idx.len() + from.num_rows));
            for (row, entries) in host.rows() {
                col_idx.extend(host.col_idx[entries].iter().filter(|&&col| col != row));
                col_idx.push(row);
                row_ptr.push(col_idx.len() as u64);
            }
            let device = B::int_device(&from.col_idx);
            let (reverse_ptr, reverse_idx) = reverse_host(&row_ptr, &col_idx, from.num_cols);
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
            let counts = index_tensor::<B>(host.rows().map(count).collect(), &B::int_device(&from.col_idx));
            Arc::new(LoopParts { counts, looped: OnceLock::new(), edge_maps: Default::default() })
        })
    }
}

impl<B: GatherBackend + MessageBackend> SelfLoops<B> {
    /// The values of the entries of the adjacency that this was made from, with those of self-loops as `value` says.
    ///
    /// # Shapes
    /// `values` `[num_edges, k]` in f32, f16 or bf16, in the order of the adjacency that this was made from; result
    /// `[csr.num_edges(), k]` in the same dtype, in the order of [`SelfLoops::csr`].
    ///
    /// # Gradient
    /// Every value has that of its entry, and `1 / n` of that of the loop of a mean over `n`. Deterministic.
    ///
    /// # Panics
    /// If `values` does not have a row per entry; for 2^31 entries or more.
    pub fn edge_values(&self, values: Tensor<B, 2>, value: LoopValue) -> Tensor<B, 2> {
        const OP: &str = "SelfLoops::edge_values";
        let [rows, width] = values.dims();
        check::size(OP, "rows of values", self.of.num_edges(), rows);
        let map = self.edge_map(OP, value);
        let nodes = self.of.num_rows();
        let loops = match (value, &map.incoming) {
            (LoopValue::Mean, Some(parts)) => {
                let incoming = Csr { parts: parts.clone(), reversed: false, rows: None, cols: None };
                gspmm(&incoming, Message::CopyU(values.clone()), Reduce::Mean, Strategy::Auto)
            }
            (LoopValue::Mean, None) => Tensor::zeros([nodes, width], (&values.device(), values.dtype())),
            (LoopValue::Kept(fill), _) => Tensor::full([nodes, width], fill, (&values.device(), values.dtype())),
        };
        let all = if rows == 0 { loops } else { Tensor::cat(vec![values, loops], 0) };
        gather_rows(all, &RowIndex { parts: map.index.clone() })
    }

    fn edge_map(&self, op: &str, value: LoopValue) -> Arc<EdgeMap<IntTensor<B>>> {
        let is_mean = value == LoopValue::Mean;
        let slots = &self.of.loops(op).edge_maps[usize::from(self.of.reversed)];
        slots[usize::from(is_mean)]
            .get_or_init(|| {
                let (from, to) = (Host::of::<B>(self.of.topology()), Host::of::<B>(self.csr.topology()));
                let device = B::int_device(&self.of.topology().col_idx);
                let num_edges = from.col_idx.len();
                let mut index = Vec::with_capacity(to.col_idx.len());
                let (mut incoming_ptr, mut incoming) = (vec![0], Vec::new());
                for ((row, entries), (_, looped)) in from.rows().zip(to.rows()) {
                    let is_loop = |e: &usize| from.col_idx[*e] == row;
                    let last = entries.clone().rev().find(|e| !is_mean && is_loop(e));
                    // Both list the other entries in the same order.
                    let mut others = entries.filter(|e| !is_loop(e)).map(|e| e as u32);
                    if is_mean {
                        incoming.extend(others.clone());
                        incoming_ptr.push(incoming.len() as u64);
                    }
                    for &col in &to.col_idx[looped] {
                        let other = if col == row { None } else { others.next() };
                        index.push(other.unwrap_or(last.unwrap_or(num_edges + row as usize) as u32));
                    }
                }
                let index = RowIndex::<B>::new(&index, num_edges + self.of.num_rows(), &device).parts;
                let incoming = (!incoming.is_empty()).then(|| {
                    let (reverse_ptr, reverse_idx) = reverse_host(&incoming_ptr, &incoming, num_edges);
                    let forward = upload::<B>(&incoming_ptr, &incoming, num_edges, &device);
                    let reverse = upload::<B>(&reverse_ptr, &reverse_idx, self.of.num_rows(), &device);
                    Csr::<B>::from_parts(forward, reverse).parts
                });
                Arc::new(EdgeMap { index, incoming })
            })
            .clone()
    }
}
