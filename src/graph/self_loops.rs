//! The self-loops of nodes with edges among themselves.

use super::adjacency::Adjacency;

/// Which self-loops an adjacency is to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SelfLoops {
    /// None.
    None,
    /// Exactly one per node.
    One,
}

impl Adjacency {
    /// The same entries with the self-loops that are asked for; rows that ascend go on to do so.
    ///
    /// # Panics
    /// Unless there are as many rows as columns.
    ///
    /// # Example
    /// ```
    /// use graphsieve::graph::{Adjacency, SelfLoops};
    /// let adjacency = Adjacency::from_edges(3, 3, &[(0, 0), (0, 2), (1, 0), (1, 2)]);
    /// assert_eq!(adjacency.with_loops(SelfLoops::None).col_idx(), [2, 0, 2]);
    /// assert_eq!(adjacency.with_loops(SelfLoops::One).col_idx(), [0, 2, 0, 1, 2, 2]);
    /// ```
    pub fn with_loops(&self, loops: SelfLoops) -> Adjacency {
        let nodes = self.num_rows();
        assert_eq!(nodes, self.num_cols(), "self-loops: expected as many columns as rows");
        let mut row_ptr = Vec::with_capacity(nodes + 1);
        let mut col_idx = Vec::with_capacity(self.num_edges() + usize::from(loops == SelfLoops::One) * nodes);
        row_ptr.push(0);
        for node in 0..nodes as u32 {
            col_idx.extend(self.looped_row(node, loops).map(|entry| entry.map_or(node, |at| self.col_idx()[at])));
            row_ptr.push(col_idx.len() as u64);
        }
        Adjacency::from_checked(row_ptr, col_idx, nodes)
    }

    /// By entry of [`with_loops`](Self::with_loops): the entry here that it is, and none of a loop that is added.
    pub fn looped_entries(&self, loops: SelfLoops) -> impl Iterator<Item = Option<usize>> + '_ {
        (0..self.num_rows() as u32).flat_map(move |node| self.looped_row(node, loops))
    }

    fn looped_row(&self, node: u32, loops: SelfLoops) -> impl Iterator<Item = Option<usize>> + '_ {
        let entries = self.entries(node as usize).zip(self.row(node as usize));
        let before = entries.clone().filter(move |(_, col)| **col < node);
        let behind = entries.filter(move |(_, col)| **col > node);
        let own = (loops == SelfLoops::One).then_some(None);
        before.map(|(entry, _)| Some(entry)).chain(own).chain(behind.map(|(entry, _)| Some(entry)))
    }
}
