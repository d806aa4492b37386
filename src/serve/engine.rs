//! What HTTP asks for and gets, whatever answers it.

use std::time::Duration;

use axum::body::Bytes;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::refusal::Refusal;
use crate::error::Result;
use crate::live::{Change, NodeKey};

/// Something that scores nodes of a live graph and takes its changes. All of it may be called by several threads at a
/// time, but for [`write`](Engine::write), which one thread calls.
pub trait Engine: Send + Sync + 'static {
    /// Scores requests together: an answer for each, in their order. It is the same alone and among others.
    fn score(&self, requests: &[ScoreRequest]) -> Vec<Result<ScoreAnswer, Refusal>>;

    /// Makes changes durable, together, and applies those that fit, in their order. What is answered with [`Written`]
    /// is seen by every score that is asked for from then on.
    fn write(&self, requests: &[WriteRequest]) -> Vec<Result<Written, Refusal>>;

    /// What is known of a node, with its latest neighbours.
    fn node(&self, node: &NodeKey, neighbours: usize) -> Result<Value, Refusal>;

    /// How far features and scores have moved since the training.
    fn drift(&self) -> Result<Value, Refusal>;

    /// Reads the model anew and returns its name. One that cannot be used is refused, and the old one stays.
    fn reload(&self) -> Result<String>;

    fn state(&self) -> EngineState;

    /// The columns of each node type and relation, for the description of the interface.
    fn columns(&self) -> Vec<TableColumns>;

    /// Computes embeddings anew.
    fn refresh(&self) -> Result<()> {
        Ok(())
    }

    /// Fills in columns that are looked up until then.
    fn fill(&self) -> Result<()> {
        Ok(())
    }

    /// Joins what was appended with the base, where it has become large; whether it did. Embeddings that could not be
    /// computed with the last base are tried again.
    fn compact(&self) -> Result<bool> {
        Ok(false)
    }

    /// Drops what is older than the retention; whether there was something.
    fn retain(&self) -> Result<bool> {
        Ok(false)
    }

    /// Looks how far features and scores have moved.
    fn watch(&self) -> Result<()> {
        Ok(())
    }
}

/// Nodes to score.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ScoreRequest {
    /// Rows that only this request sees.
    pub changes: Vec<Change>,
    pub targets: Vec<NodeKey>,
    /// Whether reasons are wanted.
    pub explain: bool,
    /// Whether a drawing of the neighbourhood is wanted.
    pub drawing: bool,
}

/// Scores of one request.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct ScoreAnswer {
    /// Name of the run whose model this is.
    pub model: String,
    /// Scores from here on are a positive decision; none where the run found no threshold.
    pub threshold: Option<f32>,
    /// In the order of the targets.
    pub scores: Vec<TargetScore>,
    /// What the batch of this request took.
    #[serde(skip)]
    pub spent: Spent,
}

/// What a model says of a target.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct TargetScore {
    /// `type:id`
    pub target: String,
    /// In [0, 1]; higher is more anomalous.
    pub score: f32,
    /// Of being anomalous, where the run has a calibration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probability: Option<f64>,
    /// Share of the latest scores that are lower: 0.99 is among the highest hundredth.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank: Option<f64>,
    /// How many scores the rank is among.
    pub among: usize,
    /// Whether the score reaches the threshold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decision: Option<bool>,
    /// Whether its row is in the graph; else it came with the request.
    pub known: bool,
    /// Seconds since the embeddings of Stage 1 were computed, of a model that reads some.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub embeddings_age: Option<f64>,
    /// As `graphsieve explain --format json` has them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub reasons: Option<Value>,
    /// An SVG picture of the neighbourhood.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drawing: Option<String>,
}

/// Time that the parts of a batch took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    pub extract: Duration,
    pub forward: Duration,
}

/// Changes that are made durable and visible together or not at all.
#[derive(Clone, Debug, PartialEq)]
pub struct WriteRequest {
    pub write: Write,
    /// What comes twice under one key is done once.
    pub key: Option<ClientKey>,
}

/// The client's name for a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientKey {
    pub text: String,
    /// The request that it came with first is the only one that it is good for.
    pub body: Bytes,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    Rows(Vec<Change>),
    Labels(Vec<LabelChange>),
    /// Forgets a node and what is known of it.
    Forget(NodeKey),
}

/// A label that became known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelChange {
    pub node: NodeKey,
    /// 1 is anomalous.
    pub label: u8,
    /// When, in seconds since 1970.
    pub known: i64,
}

/// What a write did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct Written {
    pub nodes: usize,
    pub edges: usize,
    pub labels: usize,
    pub forgotten: usize,
    /// Grows with every write.
    pub position: u64,
    /// Whether it had been done before under the same Idempotency-Key.
    pub repeated: bool,
}

/// How an engine is.
#[derive(Clone, Debug, Default)]
pub struct EngineState {
    pub model: String,
    /// Whether changes are taken; scores go on without.
    pub writable: bool,
    pub figures: Vec<Figure>,
}

/// Figures of one name for `/metrics`.
#[derive(Clone, Debug)]
pub struct Figure {
    pub name: &'static str,
    pub help: &'static str,
    /// By labels; one value without labels where it has no parts.
    pub values: Vec<(Vec<(&'static str, String)>, f64)>,
}

impl Figure {
    pub fn one(name: &'static str, help: &'static str, value: f64) -> Self {
        Self { name, help, values: vec![(Vec::new(), value)] }
    }
}

/// The columns of a node type or of a relation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableColumns {
    /// Whether it is a node type.
    pub is_node: bool,
    pub name: String,
    /// Name and type in JSON: `number`, `string` or `boolean`.
    pub columns: Vec<(String, &'static str)>,
}
