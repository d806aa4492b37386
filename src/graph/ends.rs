//! Nodes that stand for edges of raw tables, such as payments: where each of them comes from and leads to.

use super::hetero::HeteroGraph;
use crate::error::{Error, Result};

/// The ends of the nodes of a type, each of which is an edge of the raw data.
///
/// # Example
/// ```
/// use graphsieve::graph::{Adjacency, Ends, HeteroGraph, RelationSpec};
/// let into = |name: &str, of_row: &[u32]| {
///     let starts = (0..=of_row.len() as u64).collect();
///     RelationSpec::new(name, 0, 1, Adjacency::new(starts, of_row.to_vec(), 3).unwrap())
/// };
/// // Two payments between three accounts: 0 -> 2 and 1 -> 0.
/// let types = vec![("account".into(), 3), ("payment".into(), 2)];
/// let graph = HeteroGraph::new(types, vec![into("paid_by", &[0, 1]), into("paid_to", &[2, 0])]).unwrap();
/// let ends = Ends::new(&graph, "payment", &["paid_by".into(), "paid_to".into()]).unwrap();
/// assert_eq!(ends.of(&graph, 4), Some([Some(1), Some(0)]));
/// assert_eq!(ends.of(&graph, 2), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    node_type: usize,
    /// Indices of the relations from the source and from the destination to the nodes.
    relations: [usize; 2],
}

impl Ends {
    /// The ends of the nodes of a type by the names of the relations, either way round: of the source, then of the
    /// destination.
    ///
    /// # Errors
    /// [`Error::Data`] for a type or a relation that the graph lacks, and for a relation that leads elsewhere.
    pub fn new(graph: &HeteroGraph, node_type: &str, names: &[String; 2]) -> Result<Self> {
        let wrong = |expected: String, found: &str| Error::Data {
            what: format!("ends of `{node_type}`"),
            expected,
            found: format!("`{found}`"),
            help: "name the relations that lead from both ends to the nodes, or leave `ends` out".into(),
        };
        let types = graph.node_types();
        let at = types.iter().position(|of| of.name == node_type);
        let at = at.ok_or_else(|| wrong("a node type of the graph".into(), node_type))?;
        let relation = |name: &String| {
            let reverse = format!("{name}_T");
            let leads = |of: &str| graph.relations().iter().position(|known| known.name == *of && known.dst == at);
            let found = leads(name).or_else(|| leads(&reverse));
            found.ok_or_else(|| wrong(format!("a relation that leads to `{node_type}`"), name))
        };
        Ok(Self { node_type: at, relations: [relation(&names[0])?, relation(&names[1])?] })
    }

    /// Index of the node type.
    pub fn node_type(&self) -> usize {
        self.node_type
    }

    /// Name of the type, and those of the relations.
    pub fn names<'a>(&self, graph: &'a HeteroGraph) -> (&'a str, [&'a str; 2]) {
        let relation = |at: usize| graph.relations()[at].name.as_str();
        (&graph.node_types()[self.node_type].name, self.relations.map(relation))
    }

    /// Source and destination of a node by global id, each `None` where the data do not say; `None` for a node of
    /// another type.
    pub fn of(&self, graph: &HeteroGraph, node: u32) -> Option<[Option<u32>; 2]> {
        let types = graph.node_types();
        let own = &types[self.node_type];
        let row = (node as usize).checked_sub(own.offset).filter(|&row| row < own.count)?;
        let end = |at: usize| {
            let relation = &graph.relations()[at];
            let first = relation.forward.row(row).first();
            first.map(|&source| types[relation.src].offset as u32 + source)
        };
        Some(self.relations.map(end))
    }
}
