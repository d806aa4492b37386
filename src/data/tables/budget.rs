//! What an import has to hold in memory, and what is left for edges.

use super::naming::column_names;
use super::nodes::{FeatureColumn, NodeType};
use crate::error::{Error, Result};
use crate::graph::Disk;

/// Bytes of a node's place in the maps of ids, its text not counted.
const IN_MAPS: u64 = 60;
/// The least that edges are sorted in.
const LEAST_ROOM: u64 = 1 << 13;

/// How much memory an import may take, and where edges go that take more.
#[derive(Debug)]
pub(super) struct Budget {
    pub disk: Disk,
    pub bytes: u64,
}

impl Budget {
    /// What is left of it beside `held` bytes of `nodes` nodes.
    ///
    /// # Errors
    /// [`Error::Usage`] where that is too little.
    pub fn beside(&self, held: u64, nodes: usize) -> Result<u64> {
        let needed = held + LEAST_ROOM;
        if self.bytes >= needed {
            return Ok(self.bytes - held);
        }
        Err(Error::Usage {
            argument: "--memory".into(),
            expected: format!(
                "at least {needed} bytes for the {nodes} nodes that were read and for a part of the edges"
            ),
            found: self.bytes.to_string(),
            help:
                "only edges are sorted on disk: ids, columns, values of edges and features stay in memory; give more \
                   of it, or leave some of these out"
                    .into(),
        })
    }

    /// What is left for edges while tables are read, of whose edges `values` are held.
    ///
    /// # Errors
    /// As [`beside`](Self::beside).
    pub fn while_reading(&self, types: &[NodeType], values: u64) -> Result<u64> {
        self.beside(of_types(types) + values, types.iter().map(|node_type| node_type.ids.len()).sum())
    }
}

/// Bytes of ids, labels and columns of nodes.
pub(super) fn of_types(types: &[NodeType]) -> u64 {
    let of_type = |of: &NodeType| {
        let rows = of.declared as u64 * (1 + 8 * (of.columns.len() + of.facts.len()) as u64);
        of.ids.num_bytes() + of.ids.len() as u64 * IN_MAPS + rows
    };
    types.iter().map(of_type).sum()
}

/// Bytes of the values of so many edges: their columns as they were read, where each comes from and what they become.
pub(super) fn of_values(columns: &[FeatureColumn], edges: usize) -> u64 {
    let of_column = |column: &FeatureColumn| 8 + 4 * column_names(&column.kind, "").len() as u64;
    edges as u64 * columns.iter().map(of_column).reduce(|sum, more| sum + more).map_or(0, |columns| 12 + columns)
}
