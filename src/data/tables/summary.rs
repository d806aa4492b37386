//! What an import found and made.

use std::fmt;

use serde::Serialize;

use super::edges::{HubCounts, RelationEdges};
use super::nodes::NodeType;
use crate::graph::HeteroGraph;
use crate::memory::resident_peak;

/// What [`import`](super::import) read and made; `Display` is a text, `Serialize` the same for machines.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ImportSummary {
    pub node_types: Vec<TypeSummary>,
    pub relations: Vec<RelationSummary>,
    /// Columns of the features.
    pub feature_dim: usize,
    /// What the user should know.
    pub notes: Vec<String>,
    /// Most memory that the process ever held, in bytes, where the system tells.
    pub peak_memory: Option<u64>,
}

/// Nodes of one type.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TypeSummary {
    pub name: String,
    pub nodes: usize,
    /// Of these, nodes that no node table names.
    pub from_edges: usize,
    /// Rows that repeat an earlier one in full.
    pub repeated: usize,
    pub anomalous: usize,
    pub normal: usize,
    /// Columns that became features.
    pub columns: Vec<ColumnSummary>,
}

/// One column of a node table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ColumnSummary {
    pub name: String,
    /// Rows without a value.
    pub missing: usize,
}

/// Edges of one relation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RelationSummary {
    pub name: String,
    pub src: String,
    pub dst: String,
    /// Edges: those without times are merged where they repeat.
    pub edges: usize,
    /// Rows that repeat an edge.
    pub repeated: usize,
    /// Rows left out because an end is empty.
    pub skipped: u64,
    /// In-degree of the destinations: mean, 99th percentile (nearest rank) and maximum.
    pub mean_degree: f64,
    pub p99_degree: usize,
    pub max_degree: usize,
    /// Of a shared column.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hubs: Option<HubCounts>,
}

impl TypeSummary {
    pub(super) fn of(node_type: &NodeType) -> Self {
        let labelled = |class| node_type.labels.iter().filter(|label| **label == Some(class)).count();
        let columns = node_type.columns.iter();
        Self {
            name: node_type.name.clone(),
            nodes: node_type.ids.len(),
            from_edges: node_type.ids.len() - node_type.declared,
            repeated: node_type.repeated,
            anomalous: labelled(1),
            normal: labelled(0),
            columns: columns
                .map(|column| ColumnSummary { name: column.name.clone(), missing: column.missing() })
                .collect(),
        }
    }
}

impl RelationSummary {
    pub(super) fn of(relation: &RelationEdges, repeated: usize, graph: &HeteroGraph) -> Self {
        let made = graph.relations().iter().find(|made| made.name == relation.name);
        let mut degrees: Vec<usize> = made
            .map(|made| (0..made.forward.num_rows()).map(|row| made.forward.degree(row)).collect())
            .unwrap_or_default();
        degrees.sort_unstable();
        let edges = degrees.iter().sum();
        // Nearest rank: the smallest degree that at least 99 % of the rows do not exceed.
        let p99 = (degrees.len() * 99).div_ceil(100).saturating_sub(1);
        let name = |at: usize| graph.node_types()[at].name.clone();
        Self {
            name: relation.name.clone(),
            src: name(relation.src),
            dst: name(relation.dst),
            edges,
            repeated,
            skipped: relation.skipped,
            mean_degree: edges as f64 / degrees.len().max(1) as f64,
            p99_degree: degrees.get(p99).copied().unwrap_or(0),
            max_degree: degrees.last().copied().unwrap_or(0),
            hubs: relation.hubs,
        }
    }
}

impl ImportSummary {
    pub(super) fn new(
        node_types: &[TypeSummary],
        relations: &[RelationSummary],
        feature_dim: usize,
        notes: &[String],
    ) -> Self {
        Self {
            node_types: node_types.to_vec(),
            relations: relations.to_vec(),
            feature_dim,
            notes: notes.to_vec(),
            peak_memory: resident_peak(),
        }
    }

    /// Looks at the memory again, after writing.
    pub fn measure_memory(&mut self) {
        self.peak_memory = resident_peak();
    }
}

impl fmt::Display for ImportSummary {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        for node_type in &self.node_types {
            write!(f, "{}: {} nodes", node_type.name, node_type.nodes)?;
            if node_type.from_edges > 0 {
                write!(f, ", {} of them from edges only", node_type.from_edges)?;
            }
            if node_type.repeated > 0 {
                write!(f, ", {} repeated rows merged", node_type.repeated)?;
            }
            if node_type.anomalous + node_type.normal > 0 {
                write!(f, "; labels: {} anomalous, {} normal", node_type.anomalous, node_type.normal)?;
            }
            let missing = node_type.columns.iter().filter(|column| column.missing > 0);
            let missing: Vec<String> = missing.map(|column| format!("{} {}", column.name, column.missing)).collect();
            if !missing.is_empty() {
                write!(f, "; missing values: {}", missing.join(", "))?;
            }
            writeln!(f)?;
        }
        for relation in &self.relations {
            let RelationSummary { name, src, dst, edges, repeated, skipped, .. } = relation;
            write!(f, "{name} ({dst} <- {src}): {edges} edges")?;
            if *repeated > 0 {
                write!(f, ", {repeated} rows repeat an edge")?;
            }
            if *skipped > 0 {
                write!(f, ", {skipped} rows with an empty end left out")?;
            }
            let RelationSummary { mean_degree, p99_degree, max_degree, .. } = relation;
            write!(f, "; in-degree: mean {mean_degree:.2}, p99 {p99_degree}, max {max_degree}")?;
            if let Some(HubCounts { hubs, of_one_node, above_max_degree, empty }) = relation.hubs {
                write!(f, "; {hubs} shared values ({of_one_node} of a single node)")?;
                if above_max_degree > 0 {
                    write!(f, ", {above_max_degree} above max_degree left out")?;
                }
                if empty > 0 {
                    write!(f, ", {empty} rows without a value")?;
                }
            }
            writeln!(f)?;
        }
        write!(f, "{} feature columns", self.feature_dim)?;
        if let Some(bytes) = self.peak_memory {
            write!(f, "; peak memory {} MiB", bytes >> 20)?;
        }
        for note in &self.notes {
            write!(f, "\nnote: {note}")?;
        }
        Ok(())
    }
}
