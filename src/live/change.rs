//! What can be appended to a live graph, as a user writes it.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::error::{Error, Result};

/// A node by the ids of the user's tables, written `type:id`, such as `payment:p1`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct NodeKey {
    pub node_type: String,
    pub id: String,
}

impl fmt::Display for NodeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.node_type, self.id)
    }
}

impl From<NodeKey> for String {
    fn from(key: NodeKey) -> Self {
        key.to_string()
    }
}

impl TryFrom<String> for NodeKey {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl FromStr for NodeKey {
    type Err = Error;

    /// Splits at the first colon: names of types have none, ids may.
    fn from_str(text: &str) -> Result<Self> {
        match text.split_once(':') {
            Some((node_type, id)) if !node_type.is_empty() && !id.is_empty() => {
                Ok(Self { node_type: node_type.into(), id: id.into() })
            }
            _ => Err(Error::Data {
                what: "node".into(),
                expected: "TYPE:ID".into(),
                found: format!("{text:?}"),
                help: "name the type and the id, for example \"payment:p1\"".into(),
            }),
        }
    }
}

/// A key whose object holds columns that are called as other keys of a row are, such as `type`.
pub(crate) const COLUMNS: &str = "columns";

/// One row that is appended: an object with `type` is a node, one with `relation` an edge.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Change {
    Node(NodeChange),
    Edge(EdgeChange),
}

/// A row of a `[[nodes]]` table, or of an `[[edges]]` table whose rows are scored. Edges that the description takes
/// from columns of the same file come with it. Of data without a description the columns are those of the features.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeChange {
    #[serde(rename = "type")]
    pub node_type: String,
    pub id: String,
    /// Values by column, as the table has them.
    #[serde(flatten)]
    pub columns: Map<String, Value>,
}

/// A row of an `[[edges]]` table with a file of its own, or an edge of data without a description.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EdgeChange {
    /// Name of the relation.
    pub relation: String,
    /// Id of the source, whose type the relation says.
    pub src: String,
    /// Id of the destination.
    pub dst: String,
    /// Weight, time and values by column, as the table has them.
    #[serde(flatten)]
    pub columns: Map<String, Value>,
}
