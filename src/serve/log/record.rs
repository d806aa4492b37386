//! What the log keeps.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::live::change::COLUMNS;
use crate::live::{Change, EdgeChange, NodeChange, NodeKey};

/// What was accepted and has to be done again at the next start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Record {
    /// A row was appended.
    Change(#[serde(with = "TaggedChange")] Change),
    /// A label came in.
    Label {
        node: NodeKey,
        label: u8,
        /// When it became known, in seconds since 1970.
        known: i64,
    },
    /// A node was forgotten that the base still has.
    Forget(NodeKey),
    /// Events before this time, in seconds since 1970, were left out: rows behind it may have their ids.
    Before(i64),
}

/// [`Change`] with its kind: a column may have any name, those that tell a node from an edge too.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Change", rename_all = "snake_case")]
enum TaggedChange {
    Node(NodeChange),
    Edge(EdgeChange),
}

/// Which rows name nodes other than their own.
#[derive(Clone, Debug, Default)]
pub struct Ends {
    /// By relation: the types of source and destination.
    pub relations: HashMap<String, [String; 2]>,
    /// By node type: the columns of its rows that hold ids of other nodes, and the types of those.
    pub columns: HashMap<String, Vec<(String, String)>>,
}

impl Record {
    /// What is left of it without `node`: nothing of the node's own rows, of its labels and of edges at it. A row of
    /// another node stays; its columns that name `node` become null. That the node was forgotten stays, too, for as
    /// long as the base may have it.
    pub(super) fn without(mut self, node: &NodeKey, ends: &Ends) -> Option<Self> {
        match &mut self {
            Self::Label { node: labelled, .. } if labelled == node => return None,
            Self::Label { .. } | Self::Forget(_) | Self::Before(_) => {}
            Self::Change(Change::Edge(edge)) => {
                let types = ends.relations.get(&edge.relation);
                let at = |end: usize, id: &str| types.is_none_or(|types| types[end] == node.node_type) && id == node.id;
                if at(0, &edge.src) || at(1, &edge.dst) {
                    return None;
                }
            }
            Self::Change(Change::Node(row)) => {
                if row.node_type == node.node_type && row.id == node.id {
                    return None;
                }
                let columns = ends.columns.get(&row.node_type).into_iter().flatten();
                for (column, _) in columns.filter(|(_, node_type)| *node_type == node.node_type) {
                    let is_it = |value: &&mut Value| is_id(value, &node.id);
                    if let Some(value) = row.columns.get_mut(column).filter(is_it) {
                        *value = Value::Null;
                    }
                    let more = row.columns.get_mut(COLUMNS).and_then(Value::as_object_mut);
                    if let Some(value) = more.and_then(|more| more.get_mut(column)).filter(is_it) {
                        *value = Value::Null;
                    }
                }
            }
        }
        Some(self)
    }
}

/// Ids are read as a table would have them.
fn is_id(value: &Value, id: &str) -> bool {
    match value {
        Value::String(text) => text == id,
        Value::Number(number) => number.to_string() == id,
        Value::Bool(value) => value.to_string() == id,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn change(value: Value) -> Record {
        Record::Change(serde_json::from_value(value).unwrap())
    }

    #[test]
    fn records_are_read_as_they_were_written() {
        let edge = EdgeChange {
            relation: "pays".into(),
            src: "1".into(),
            dst: "2".into(),
            columns: [("type".into(), json!("x")), ("id".into(), json!("y"))].into_iter().collect(),
        };
        let records = [
            change(json!({"type": "payment", "id": "p:1", "Amount": 0.1, "none": null, "n": 12345678901234567u64})),
            Record::Change(Change::Edge(edge)),
            Record::Label { node: "payment:p:1".parse().unwrap(), label: 1, known: -5 },
            Record::Forget("card:ü\u{0}".parse().unwrap()),
            Record::Before(-7),
        ];
        for record in records {
            let text = serde_json::to_string(&record).unwrap();
            assert_eq!(serde_json::from_str::<Record>(&text).unwrap(), record, "{text}");
        }
    }

    #[test]
    fn what_names_a_node_goes_with_it_and_the_rest_stays() {
        let ends = Ends {
            relations: [("pays".into(), ["card", "payment"].map(String::from))].into(),
            columns: [("payment".into(), vec![("card".into(), "card".into()), ("shop".into(), "shop".into())])].into(),
        };
        let node: NodeKey = "card:7".parse().unwrap();
        let label = |node: &str| Record::Label { node: node.parse().unwrap(), label: 0, known: 0 };
        for gone in [
            change(json!({"type": "card", "id": "7"})),
            change(json!({"relation": "pays", "src": "7", "dst": "1"})),
            change(json!({"relation": "unknown", "src": "1", "dst": "7"})),
            label("card:7"),
        ] {
            assert_eq!(gone.clone().without(&node, &ends), None, "{gone:?}");
        }
        for kept in [
            change(json!({"type": "payment", "id": "7", "shop": "7", "card": "8"})),
            change(json!({"relation": "pays", "src": "1", "dst": "7"})),
            label("payment:7"),
            Record::Forget(node.clone()),
            Record::Before(7),
        ] {
            assert_eq!(kept.clone().without(&node, &ends), Some(kept));
        }
        for written in [json!("7"), json!(7)] {
            let row = change(json!({"type": "payment", "id": "1", "card": written, "Amount": 7}));
            let left = change(json!({"type": "payment", "id": "1", "card": null, "Amount": 7}));
            assert_eq!(row.without(&node, &ends), Some(left));
        }
        // In an object of their own, and an id that is a word of JSON.
        let node: NodeKey = "card:true".parse().unwrap();
        for written in [json!("true"), json!(true)] {
            let row =
                |card: Value| change(json!({"type": "payment", "id": "1", "columns": {"card": card, "Amount": 7}}));
            assert_eq!(row(written).without(&node, &ends), Some(row(Value::Null)));
        }
    }
}
