//! Edges that are scored: an edge table with a label becomes a node table of its rows and a relation from either end.

use super::{Description, EdgeTable, End, NodeTable, wrong};
use crate::error::Result;

impl EdgeTable {
    /// Whether each of its rows gets a score.
    fn is_scored(&self) -> bool {
        self.label.is_some() || self.scored
    }

    /// The first key that only scored edges have.
    fn key_of_scored(&self) -> Option<&'static str> {
        let keys = [
            ("id", self.id.is_some()),
            ("amount", self.amount.is_some()),
            ("alert", self.alert.is_some()),
            ("history", !self.history.is_default()),
        ];
        keys.into_iter().find(|(_, given)| *given).map(|(key, _)| key)
    }
}

impl Description {
    /// Replaces every table of scored edges by a table of nodes, one per edge, and the relations `{name}_src` and
    /// `{name}_dst` that lead from its two ends to it.
    ///
    /// # Errors
    /// [`Error::Config`] for keys that scored edges have no room for, or that only they have, and for a name that is
    /// that of a node type.
    pub(super) fn with_scored_edges_as_nodes(mut self) -> Result<Self> {
        let mut edges = Vec::with_capacity(self.edges.len());
        for table in self.edges {
            let wrong = |key: &str, expected: &str, found: String, help: &str| {
                wrong(format!("edges.{key} of `{}`", table.name), expected, found, help)
            };
            if !table.is_scored() {
                if let Some(key) = table.key_of_scored() {
                    let help = "add label = \"COLUMN\", or scored = true where no label is known yet, or leave it out";
                    return Err(wrong(key, "it in a table of edges that are scored", "no label".into(), help));
                }
                edges.push(table);
                continue;
            }
            if table.weight.is_some() {
                let help = "name the column in values = [...]: all columns of a scored edge are there";
                return Err(wrong("weight", "no weight of edges that are scored", "one".into(), help));
            }
            let Some(file) = table.file else {
                let help = "add file = \"...\": one row is one edge";
                return Err(wrong("file", "the file of edges that are scored", "none".into(), help));
            };
            for (key, end) in [("src", &table.src), ("dst", &table.dst)] {
                if end.column.is_none() {
                    let found = format!("\"{}\"", end.node_type);
                    let help = format!("write {key} = \"{}.COLUMN\"", end.node_type);
                    return Err(wrong(key, "a column of ids of an edge that is scored", found, &help));
                }
            }
            if self.nodes.iter().any(|nodes| nodes.node_type == table.name) {
                let help = "scored edges are listed by the name of their table: rename it";
                return Err(wrong("name", "another name than that of a node type", table.name.clone(), help));
            }
            let relations = ["src", "dst"].map(|end| format!("{}_{end}", table.name));
            let [src, dst] = [table.src, table.dst];
            for (name, end) in relations.iter().zip([src, dst]) {
                edges.push(EdgeTable {
                    name: name.clone(),
                    src: end,
                    dst: End { node_type: table.name.clone(), column: None },
                    skip_empty: table.skip_empty,
                    one_way: table.one_way,
                    ..EdgeTable::default()
                });
            }
            self.nodes.push(NodeTable {
                node_type: table.name,
                file,
                id: table.id,
                time: table.time,
                amount: table.amount,
                alert: table.alert,
                history: table.history,
                label: table.label,
                features: table.values,
                ends: Some(relations),
            });
        }
        self.edges = edges;
        Ok(self)
    }

    /// Refuses ends that are not relations of the rows of their table.
    pub(super) fn check_ends(&self) -> Result<()> {
        for table in &self.nodes {
            for name in table.ends.iter().flatten() {
                let is_own = |end: &End| end.node_type == table.node_type;
                let leads = |edges: &EdgeTable| edges.name == *name && (is_own(&edges.src) != is_own(&edges.dst));
                if self.edges.iter().any(leads) {
                    continue;
                }
                let key = format!("nodes.ends of `{}`", table.node_type);
                let expected = format!("names of [[edges]] tables with \"{}\" at one end", table.node_type);
                let help = "an edge has a source and a destination: ends = [\"paid_by\", \"paid_at\"]";
                return Err(wrong(key, expected, format!("{name:?}"), help));
            }
        }
        Ok(())
    }
}
