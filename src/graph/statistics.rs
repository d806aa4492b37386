//! Figures about a dataset: counts, degrees, loops, labels, empty features.

use std::fmt;

use rayon::prelude::*;
use serde::Serialize;

use super::adjacency::Adjacency;
use super::classes::Classes;
use super::dataset::Dataset;
use super::hetero::LoopReport;
use crate::error::grouped;

/// Figures about a [`Dataset`]; `Display` is a table, `Serialize` the same for machines.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Statistics {
    /// Number of nodes of all types.
    pub nodes: usize,
    /// Number of edges of all relations, both directions counted.
    pub edges: usize,
    /// Columns of the raw features, if there are any.
    pub feature_dim: Option<usize>,
    /// Number of classes, of data for node classification.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub classes: Option<usize>,
    /// What was done to the data while they were read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Per node type, in the order of the ids.
    pub node_types: Vec<NodeTypeStatistics>,
    /// Per relation, in the order of the graph.
    pub relations: Vec<RelationStatistics>,
}

/// Figures about the nodes of one type.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct NodeTypeStatistics {
    pub name: String,
    /// Number of nodes.
    pub nodes: usize,
    /// Labelled nodes of class 0.
    pub normal: usize,
    /// Labelled nodes of class 1.
    pub anomalous: usize,
    /// Nodes whose features are all zero, if there are features.
    pub zero_features: Option<usize>,
}

/// Figures about one relation; degrees are in-degrees of the destination nodes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RelationStatistics {
    pub name: String,
    pub src: String,
    pub dst: String,
    pub stream: String,
    pub primary: bool,
    pub symmetric: bool,
    /// Number of edges.
    pub edges: usize,
    /// Entries that stand for them: fewer where rows are spans, which share entries.
    pub entries: usize,
    /// Mean in-degree.
    pub mean_degree: f64,
    /// Median in-degree (nearest rank).
    pub p50_degree: usize,
    /// 99th percentile of the in-degrees (nearest rank).
    pub p99_degree: usize,
    /// Largest in-degree.
    pub max_degree: usize,
    /// Destination nodes without an in-neighbour.
    pub isolated: usize,
    /// Self-loops found and removed.
    pub loops: LoopReport,
    /// Columns of values of the edges.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
}

impl Statistics {
    /// Computes all figures.
    pub fn of(dataset: &Dataset) -> Self {
        let graph = &dataset.graph;
        let mut node_types: Vec<NodeTypeStatistics> = graph
            .node_types()
            .iter()
            .map(|node_type| NodeTypeStatistics {
                name: node_type.name.clone(),
                nodes: node_type.count,
                normal: 0,
                anomalous: 0,
                zero_features: dataset.features.as_ref().map(|features| {
                    let nodes = node_type.offset..node_type.offset + node_type.count;
                    nodes.into_par_iter().filter(|&node| features.row(node).all(|value| value == 0.0)).count()
                }),
            })
            .collect();
        for &(node, class) in dataset.labels.iter().flat_map(|labels| &labels.entries) {
            let of_type = &mut node_types[graph.type_of(node as usize)];
            if class == 0 { of_type.normal += 1 } else { of_type.anomalous += 1 }
        }
        let name = |index: usize| graph.node_types()[index].name.clone();
        let relations = graph.relations().iter().map(|relation| {
            let degrees = sorted_degrees(&relation.forward);
            // Nearest rank: the smallest degree that at least this share of the rows does not exceed.
            let rank = |percent: usize| (degrees.len() * percent).div_ceil(100).saturating_sub(1);
            let percentile = |percent| degrees.get(rank(percent)).map_or(0, |&degree| degree as usize);
            let edges = relation.forward.num_edges();
            RelationStatistics {
                name: relation.name.clone(),
                src: name(relation.src),
                dst: name(relation.dst),
                stream: relation.stream.clone(),
                primary: relation.primary,
                symmetric: relation.is_symmetric(),
                edges,
                entries: relation.forward.num_entries(),
                mean_degree: edges as f64 / degrees.len().max(1) as f64,
                p50_degree: percentile(50),
                p99_degree: percentile(99),
                max_degree: percentile(100),
                isolated: degrees.partition_point(|&degree| degree == 0),
                loops: relation.loops,
                values: dataset.value_names(&relation.name).to_vec(),
            }
        });
        Self {
            nodes: graph.num_nodes(),
            edges: graph.num_edges(),
            feature_dim: dataset.features.as_ref().map(|features| features.dim()),
            classes: dataset.classes.as_ref().map(Classes::count),
            notes: dataset.notes.clone(),
            relations: relations.collect(),
            node_types,
        }
    }
}

fn sorted_degrees(adjacency: &Adjacency) -> Vec<u64> {
    let rows = (0..adjacency.num_rows()).into_par_iter();
    let mut degrees: Vec<u64> = rows.map(|row| adjacency.degree(row) as u64).collect();
    degrees.par_sort_unstable();
    degrees
}

impl fmt::Display for Statistics {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let features = self.feature_dim.map_or("no features".into(), |dim| format!("{dim} features per node"));
        let classes = self.classes.map_or(String::new(), |count| format!(", {count} classes"));
        writeln!(f, "{} nodes, {} edges, {features}{classes}", grouped(self.nodes), grouped(self.edges))?;
        self.notes.iter().try_for_each(|note| writeln!(f, "{note}"))?;
        writeln!(f)?;
        let types = self.node_types.iter().map(|t| {
            let zero = t.zero_features.map_or("-".into(), grouped);
            vec![t.name.clone(), grouped(t.nodes), grouped(t.normal), grouped(t.anomalous), zero]
        });
        table(f, &["node type", "nodes", "normal", "anomalous", "zero features"], 1, types.collect())?;
        writeln!(f)?;
        let relations = self.relations.iter().map(|r| {
            let kind = match (r.symmetric, r.primary) {
                (true, _) => "symmetric",
                (false, true) => "primary",
                (false, false) => "reverse",
            };
            let edge = format!("{} <- {}", r.dst, r.src);
            let mean = format!("{:.2}", r.mean_degree);
            let counts = [r.p50_degree, r.p99_degree, r.max_degree, r.isolated, r.loops.in_range, r.loops.removed];
            [
                vec![r.name.clone(), edge, r.stream.clone(), kind.into(), grouped(r.edges), mean],
                counts.map(grouped).into(),
            ]
            .concat()
        });
        let header = [
            "relation", "edge", "stream", "kind", "edges", "mean", "p50", "p99", "max", "isolated", "loops", "removed",
        ];
        table(f, &header, 4, relations.collect())?;
        let valued = self.relations.iter().filter(|relation| !relation.values.is_empty());
        valued
            .map(|relation| (&relation.name, relation.values.join(", ")))
            .try_for_each(|(name, values)| writeln!(f, "\nvalues of the edges of {name}: {values}"))
    }
}

/// Writes rows under a header; the first `left` columns are aligned left, the others right.
fn table(f: &mut fmt::Formatter, header: &[&str], left: usize, rows: Vec<Vec<String>>) -> fmt::Result {
    let header: Vec<String> = header.iter().map(|&title| title.to_owned()).collect();
    let width = |column: usize| rows.iter().chain([&header]).map(|row| row[column].len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..header.len()).map(width).collect();
    for row in [&header].into_iter().chain(&rows) {
        let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, &width))| {
            if column < left { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        });
        writeln!(f, "{}", cells.collect::<Vec<_>>().join("  ").trim_end())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use half::f16;

    use super::*;
    use crate::graph::{Features, HeteroGraph, Labels};

    fn statistics() -> Statistics {
        let epu = Adjacency::from_edges(3, 4, &[(0, 1), (0, 2), (0, 3), (2, 1)]);
        let eps = Adjacency::from_edges(4, 1, &[(0, 0)]);
        let euu = Adjacency::from_edges(3, 3, &[(0, 0), (1, 1), (2, 2)]);
        let graph = HeteroGraph::marketplace(3, 4, 1, epu, eps, euu).unwrap();
        let mut values = vec![f16::ONE; 16];
        values[2..6].copy_from_slice(&[f16::ZERO, f16::NEG_ZERO, f16::ZERO, f16::ONE]);
        let features = Some(Features::from_vec(values, 8, 2));
        let labels = Some(Labels { entries: vec![(0, 1), (1, 0), (3, 1), (4, 1)] });
        Statistics::of(&Dataset::new(graph, features, labels, None))
    }

    #[test]
    fn counts_degrees_labels_and_empty_features_are_right() {
        let statistics = statistics();
        assert_eq!((statistics.nodes, statistics.edges, statistics.feature_dim), (8, 13, Some(2)));
        let of_types: Vec<_> =
            statistics.node_types.iter().map(|t| (t.nodes, t.normal, t.anomalous, t.zero_features)).collect();
        assert_eq!(of_types, [(3, 1, 1, Some(1)), (4, 0, 2, Some(0)), (1, 0, 0, Some(0))]);
        let epu = &statistics.relations[0];
        assert_eq!((epu.edges, epu.p50_degree, epu.p99_degree, epu.max_degree, epu.isolated), (4, 1, 3, 3, 1));
        assert!((epu.mean_degree - 4.0 / 3.0).abs() < 1e-12);
        assert_eq!(statistics.relations[4].loops, LoopReport { in_range: 3, removed: 0 });
    }

    #[test]
    fn the_table_is_aligned_and_complete() {
        let text = statistics().to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "8 nodes, 13 edges, 2 features per node");
        assert_eq!(lines[2], "node type  nodes  normal  anomalous  zero features");
        assert_eq!(lines[3], "user           3       1          1              1");
        assert_eq!(lines.len(), 13);
        assert!(lines[7].starts_with("relation  edge"), "{text}");
        assert!(lines[8].starts_with("epu       user <- product    pu      primary        4  1.33"), "{text}");
        assert_eq!(lines[8].len(), lines[7].len());
    }

    #[test]
    fn numbers_are_grouped_by_thousands() {
        assert_eq!([0, 999, 1000, 62_545_547].map(grouped), ["0", "999", "1,000", "62,545,547"]);
    }

    #[test]
    fn it_serialises_for_machines() {
        let json = serde_json::to_value(statistics()).unwrap();
        assert_eq!(json["relations"][1]["name"], "epu_T");
        assert_eq!(json["node_types"][0]["zero_features"], 1);
    }
}
