//! Nodes in the words of the data.

use std::collections::HashMap;

use crate::error::{Error, Result};
use crate::graph::{Dataset, HeteroGraph};

/// What an explanation says of a node besides its part of the score.
pub(in crate::score) struct Names<'a> {
    pub dataset: &'a Dataset,
    pub scores: &'a [f32],
    pub labels: HashMap<u32, u8>,
}

impl<'a> Names<'a> {
    /// `scores` by global id.
    pub fn new(dataset: &'a Dataset, scores: &'a [f32]) -> Self {
        let labels = dataset.labels.iter().flat_map(|labels| labels.entries.iter().copied()).collect();
        Self { dataset, scores, labels }
    }

    /// The same for one class of a node classifier: `scores` are its probabilities, a label says whether a node is of
    /// it.
    pub fn of_class(dataset: &'a Dataset, scores: &'a [f32], class: u32) -> Self {
        let labelled = dataset.classes.iter().flat_map(|classes| classes.labelled());
        Self { dataset, scores, labels: labelled.map(|(node, own)| (node, u8::from(own == class))).collect() }
    }

    pub fn graph(&self) -> &'a HeteroGraph {
        &self.dataset.graph
    }

    pub fn name(&self, node: u32) -> String {
        name_of(self.dataset, node)
    }

    /// The name of a relation; behind those of the data is that of nodes two edges away, which a classifier adds.
    pub fn relation(&self, relation: usize) -> String {
        let relations = self.graph().relations();
        relations.get(relation).map_or_else(|| "two edges away".into(), |relation| relation.name.clone())
    }

    pub fn score(&self, node: u32) -> Option<f32> {
        self.scores.get(node as usize).copied().filter(|score| score.is_finite())
    }

    pub fn label(&self, node: u32) -> Option<u8> {
        self.labels.get(&node).copied()
    }

    /// The name of the node's type, and its id.
    pub fn kind_and_id(&self, node: u32) -> [String; 2] {
        kind_and_id(self.dataset, node)
    }

    /// The score of a node that is to be explained.
    ///
    /// # Errors
    /// [`Error::Data`] for a node without a score.
    pub fn own_score(&self, node: u32) -> Result<f32> {
        self.score(node).ok_or_else(|| Error::Data {
            what: format!("score of {}", self.name(node)),
            expected: "a score to explain".into(),
            found: "none".into(),
            help: "Stage 1 has scores of nodes with edges alone".into(),
        })
    }
}

fn kind_and_id(dataset: &Dataset, node: u32) -> [String; 2] {
    let of_type = &dataset.graph.node_types()[dataset.graph.type_of(node as usize)];
    [of_type.name.clone(), dataset.id_of(node).into_owned()]
}

/// `A -> B` of a node that is an edge from A to B, `?` for an end that the data do not say; none of any other.
pub fn between(dataset: &Dataset, node: u32) -> Option<String> {
    let id = |end: Option<u32>| end.map_or("?".into(), |end| dataset.id_of(end));
    dataset.ends_of(node).map(|[src, dst]| format!("{} -> {}", id(src), id(dst)))
}

/// `type:id` in the words of the data, `type:number` where nodes have no ids; with both ends where it is an edge of the
/// data.
pub fn name_of(dataset: &Dataset, node: u32) -> String {
    let name = kind_and_id(dataset, node).join(":");
    between(dataset, node).map_or(name.clone(), |between| format!("{name} ({between})"))
}

/// The node that `text` names: a global number, `type:number`, an original id or `type:id`.
///
/// # Errors
/// [`Error::Usage`] when there is no such node, or several.
pub fn node_of(dataset: &Dataset, text: &str) -> Result<u32> {
    let graph = &dataset.graph;
    let unknown = |found: &str, help: &str| Error::Usage {
        argument: format!("--node {text}"),
        expected: format!("a node: a number below {}, TYPE:ID, or an id of the data", graph.num_nodes()),
        found: found.into(),
        help: help.into(),
    };
    if let Some((kind, id)) = text.split_once(':')
        && let Some(t) = graph.node_types().iter().position(|of_type| of_type.name == kind)
    {
        let of_type = &graph.node_types()[t];
        let by_id = dataset.ids.as_ref().and_then(|ids| ids.0.get(t)?.iter().position(|known| known == id));
        let by_number = id.parse::<usize>().ok().filter(|&number| number < of_type.count && dataset.ids.is_none());
        let help = "ids are those of the tables that the data came from; numbers count from 0 within the type";
        return match by_id.or(by_number) {
            Some(number) => Ok((of_type.offset + number) as u32),
            None => Err(unknown("no such node of that type", help)),
        };
    }
    if let Some(ids) = &dataset.ids {
        let mut named = ids.0.iter().flatten().zip(0..).filter(|(name, _)| *name == text);
        match (named.next(), named.next()) {
            (Some((_, node)), None) => return Ok(node),
            (Some(_), Some(_)) => return Err(unknown("an id of several node types", "write TYPE:ID")),
            (None, _) => {}
        }
    }
    let number = text.parse::<usize>().ok().filter(|&number| number < graph.num_nodes());
    number
        .map(|number| number as u32)
        .ok_or_else(|| unknown("no such node", "global numbers count from 0 over all types"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::IdMaps;

    fn dataset(ids: Option<IdMaps>) -> Dataset {
        let graph = HeteroGraph::new(vec![("user".into(), 6), ("product".into(), 3)], Vec::new()).unwrap();
        Dataset::new(graph, None, None, ids)
    }

    #[test]
    fn nodes_are_found_by_number_and_by_type() {
        let dataset = dataset(None);
        assert_eq!((node_of(&dataset, "7").unwrap(), node_of(&dataset, "product:1").unwrap()), (7, 7));
        assert_eq!(name_of(&dataset, 7), "product:1");
        for wrong in ["9", "product:3", "seller:0", ""] {
            assert_eq!(node_of(&dataset, wrong).unwrap_err().exit_code(), 2, "{wrong}");
        }
    }

    #[test]
    fn ids_of_the_data_come_before_numbers() {
        let ids = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<String>>();
        let maps = IdMaps(vec![ids(&["a", "b", "7", "x:y", "both", "f"]), ids(&["both", "p", "q"])]);
        let dataset = dataset(Some(maps));
        let found = |text: &str| node_of(&dataset, text).unwrap();
        assert_eq!([found("7"), found("user:7"), found("x:y"), found("product:both"), found("8")], [2, 2, 3, 6, 8]);
        assert_eq!(name_of(&dataset, 6), "product:both");
        assert!(node_of(&dataset, "both").unwrap_err().to_string().contains("TYPE:ID"));
    }
}
