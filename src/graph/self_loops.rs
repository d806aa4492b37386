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
            let entries = self.row(node as usize).iter().copied();
            col_idx.extend(entries.clone().filter(|&col| col < node));
            col_idx.extend((loops == SelfLoops::One).then_some(node));
            col_idx.extend(entries.filter(|&col| col > node));
            row_ptr.push(col_idx.len() as u64);
        }
        Adjacency::from_checked(row_ptr, col_idx, nodes)
    }
}
