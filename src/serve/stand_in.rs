//! An engine without a graph, for tests of all that is around one.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex};

use axum::http::StatusCode;
use serde_json::{Value, json};

use super::engine::{
    Engine, EngineState, Figure, ScoreAnswer, ScoreRequest, Spent, TableColumns, TargetScore, Write, WriteRequest,
    Written,
};
use super::refusal::Refusal;
use crate::error::{Error, Result};
use crate::live::{Change, NodeKey};

/// Knows the nodes that were written. A score is the length of the id.
#[derive(Default)]
pub(super) struct StandIn {
    nodes: Mutex<BTreeMap<String, Value>>,
    /// Closed while scores have to wait.
    pub gate: Gate,
    /// Requests that have begun to be scored.
    pub begun: AtomicUsize,
    /// What the next write is refused with.
    pub refuse_writes: Mutex<Option<std::io::ErrorKind>>,
    /// Whether the next reload finds nothing that can be used.
    pub bad_model: AtomicBool,
    pub reloads: AtomicUsize,
}

/// Something that can be shut and opened.
#[derive(Default)]
pub(super) struct Gate(Mutex<bool>, Condvar);

impl Gate {
    pub fn shut(&self, shut: bool) {
        *self.0.lock().unwrap() = shut;
        self.1.notify_all();
    }

    fn pass(&self) {
        drop(self.1.wait_while(self.0.lock().unwrap(), |shut| *shut).unwrap());
    }
}

fn unknown(node: &NodeKey) -> Refusal {
    Refusal::new(StatusCode::NOT_FOUND, "unknown_node", "no such node").expected("a known node", node.to_string())
}

impl StandIn {
    fn score_one(&self, request: &ScoreRequest) -> Result<ScoreAnswer, Refusal> {
        assert!(request.targets.iter().all(|node| node.id != "panic"), "planted");
        let nodes = self.nodes.lock().unwrap();
        let own = |node: &NodeKey| {
            request.changes.iter().any(|change| matches!(change, Change::Node(own) if own.id == node.id))
        };
        let score = |node: &NodeKey| {
            let known = nodes.contains_key(&node.to_string());
            if !known && !own(node) {
                return Err(unknown(node));
            }
            Ok(TargetScore {
                target: node.to_string(),
                score: node.id.len() as f32 / 100.0,
                probability: None,
                rank: None,
                among: 0,
                decision: Some(false),
                known,
                embeddings_age: Some(0.0),
                reasons: request.explain.then(|| json!({"neighbours": [{"name": "a:<b>x</b>", "relation": "r", "contribution": 0.5}]})),
                drawing: request.drawing.then(|| {
                    r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 9 9"><circle cx="4" cy="4" r="4"/></svg>"#.into()
                }),
            })
        };
        let scores = request.targets.iter().map(score).collect::<Result<_, _>>()?;
        let model = format!("model-{}", self.reloads.load(Ordering::SeqCst));
        Ok(ScoreAnswer { model, threshold: Some(0.5), scores, spent: Spent::default() })
    }
}

impl Engine for StandIn {
    fn score(&self, requests: &[ScoreRequest]) -> Vec<Result<ScoreAnswer, Refusal>> {
        self.begun.fetch_add(requests.len(), Ordering::SeqCst);
        self.gate.pass();
        requests.iter().map(|request| self.score_one(request)).collect()
    }

    fn write(&self, requests: &[WriteRequest]) -> Vec<Result<Written, Refusal>> {
        if let Some(kind) = *self.refuse_writes.lock().unwrap() {
            let refused = || Err(Error::io("/secret/log", "write", kind.into()).into());
            return requests.iter().map(|_| refused()).collect();
        }
        let mut nodes = self.nodes.lock().unwrap();
        let mut write = |request: &WriteRequest| {
            let mut written = Written { position: 1, ..Written::default() };
            match &request.write {
                Write::Rows(rows) => {
                    for row in rows {
                        match row {
                            Change::Node(node) => {
                                let view = json!({"node": format!("{}:{}", node.node_type, node.id), "time": 0,
                                    "neighbours": [{"node": "a:<i>y</i>", "relation": "r", "time": 60}]});
                                nodes.insert(format!("{}:{}", node.node_type, node.id), view);
                                written.nodes += 1;
                            }
                            Change::Edge(_) => written.edges += 1,
                        }
                    }
                }
                Write::Labels(labels) => written.labels = labels.len(),
                Write::Forget(node) => {
                    nodes.remove(&node.to_string()).ok_or_else(|| unknown(node))?;
                    written.forgotten = 1;
                }
            }
            Ok(written)
        };
        requests.iter().map(&mut write).collect()
    }

    fn node(&self, node: &NodeKey, _: usize) -> Result<Value, Refusal> {
        self.nodes.lock().unwrap().get(&node.to_string()).cloned().ok_or_else(|| unknown(node))
    }

    fn drift(&self) -> Result<Value, Refusal> {
        Ok(json!({"columns": []}))
    }

    fn reload(&self) -> Result<String> {
        if self.bad_model.load(Ordering::SeqCst) {
            let text = |text: &str| text.to_owned();
            return Err(Error::Data { what: text("model"), expected: text("a"), found: text("b"), help: text("c") });
        }
        Ok(format!("model-{}", 1 + self.reloads.fetch_add(1, Ordering::SeqCst)))
    }

    fn state(&self) -> EngineState {
        let figures = vec![Figure::one("live_nodes", "Nodes", self.nodes.lock().unwrap().len() as f64)];
        EngineState { model: "model".into(), writable: true, figures }
    }

    fn columns(&self) -> Vec<TableColumns> {
        let columns = vec![("Amount".to_owned(), "number")];
        vec![TableColumns { is_node: true, name: "payment".into(), columns }]
    }
}
