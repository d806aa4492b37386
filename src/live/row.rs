//! Rows of a live graph in numbers.

use half::f16;

/// One row, checked against the description and the graph.
#[derive(Clone, Debug, PartialEq)]
pub enum Row {
    Node(NodeRow),
    Edge(EdgeRow),
}

/// A node.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeRow {
    /// Index of the node type in the graph.
    pub node_type: usize,
    pub id: String,
    /// All columns of the feature matrix. What depends on other rows, windows and figures of edges, is not filled in.
    pub features: Vec<f16>,
    /// When it happened, of an event, in seconds since 1970.
    pub time: Option<i64>,
    /// What windows add up, of an event.
    pub value: Option<f32>,
    /// What a fraudulent event costs.
    pub amount: Option<f32>,
    /// The label, where the row has one.
    pub label: Option<u8>,
    /// When the label became known.
    pub known: Option<i64>,
}

/// An edge, in the direction of its table.
#[derive(Clone, Debug, PartialEq)]
pub struct EdgeRow {
    /// Index of the relation in the graph.
    pub relation: usize,
    pub src: String,
    pub dst: String,
    pub weight: Option<f32>,
    /// In seconds since 1970.
    pub time: Option<i64>,
    /// The columns of values that the relation has.
    pub values: Vec<f32>,
}
