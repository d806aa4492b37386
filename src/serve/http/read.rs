//! Bodies as requests. What is wrong is told with its place.

use axum::http::StatusCode;
use chrono::{DateTime, Utc};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::error::Category;
use serde_json::{Error, Map, Value};

use super::app::Body;
use crate::live::{Change, EdgeChange, NodeChange, NodeKey};
use crate::serve::engine::{LabelChange, ScoreRequest};
use crate::serve::options::Limits;
use crate::serve::refusal::Refusal;

type Object = Map<String, Value>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ScoreBody {
    #[serde(default)]
    nodes: Vec<Object>,
    #[serde(default)]
    edges: Vec<Object>,
    targets: Vec<String>,
    #[serde(default)]
    explain: bool,
    #[serde(default)]
    drawing: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EventsBody {
    #[serde(default)]
    nodes: Vec<Object>,
    #[serde(default)]
    edges: Vec<Object>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LabelsBody {
    labels: Vec<LabelBody>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LabelBody {
    node: String,
    label: u8,
    known: Option<Moment>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Moment {
    Seconds(i64),
    Text(String),
}

/// Reads the body of `/v1/score`.
pub(super) fn score(body: &Body, limits: &Limits) -> Result<ScoreRequest, Refusal> {
    let ScoreBody { nodes, edges, targets, explain, drawing } = json(body)?;
    if targets.is_empty() {
        return Err(unfit("nothing to score", "at least one target", "none").at("targets"));
    }
    if targets.len() > limits.targets {
        return Err(Refusal::too_many("targets", targets.len(), limits.targets, "--max-targets"));
    }
    let changes = rows(nodes, edges, limits)?;
    let key =
        |(at, text): (usize, &String)| node_key(text, limits).map_err(|refusal| refusal.at(format!("targets[{at}]")));
    let targets = targets.iter().enumerate().map(key).collect::<Result<_, _>>()?;
    Ok(ScoreRequest { changes, targets, explain, drawing })
}

/// Reads the body of `/v1/events`.
pub(super) fn events(body: &Body, limits: &Limits) -> Result<Vec<Change>, Refusal> {
    let Body::Lines(bytes) = body else {
        let EventsBody { nodes, edges } = json(body)?;
        return rows(nodes, edges, limits);
    };
    let lines = bytes.split(|byte| *byte == b'\n').enumerate();
    let mut changes = Vec::new();
    for (at, line) in lines.filter(|(_, line)| !line.trim_ascii().is_empty()) {
        let place = || format!("line {}", at + 1);
        let object: Object = parsed(line).map_err(|refusal| Refusal { place: Some(place().into()), ..refusal })?;
        let is_node = object.contains_key("type");
        changes.push(change(object, is_node, limits).map_err(|refusal| refusal.at(place()))?);
        // Half of them may be nodes.
        if changes.len() > 2 * limits.rows {
            return Err(too_many_rows(changes.len(), 2 * limits.rows));
        }
    }
    Ok(changes)
}

/// Reads the body of `/v1/labels`.
pub(super) fn labels(body: &Body, limits: &Limits) -> Result<Vec<LabelChange>, Refusal> {
    let LabelsBody { labels } = json(body)?;
    if labels.len() > limits.rows {
        return Err(too_many_rows(labels.len(), limits.rows));
    }
    let read = |(at, LabelBody { node, label, known }): (usize, LabelBody)| {
        let place = || format!("labels[{at}]");
        let node = node_key(&node, limits).map_err(|refusal| refusal.at(place()))?;
        if label > 1 {
            return Err(unfit("no label", "0 or 1", label.to_string()).at(place()));
        }
        let known = match known {
            None => Utc::now().timestamp(),
            Some(Moment::Seconds(seconds)) => seconds,
            Some(Moment::Text(text)) => match DateTime::parse_from_rfc3339(&text) {
                Ok(time) => time.timestamp(),
                Err(_) => {
                    let expected = "seconds since 1970 or a time such as 2026-11-17T09:30:00Z";
                    return Err(unfit("no time", expected, text).at(place()));
                }
            },
        };
        Ok(LabelChange { node, label, known })
    };
    labels.into_iter().enumerate().map(read).collect()
}

/// A node of a path or a body.
pub(super) fn node_key(text: &str, limits: &Limits) -> Result<NodeKey, Refusal> {
    let key: NodeKey = text.parse().map_err(Refusal::from)?;
    check_id(&key.id, limits)?;
    Ok(key)
}

fn rows(nodes: Vec<Object>, edges: Vec<Object>, limits: &Limits) -> Result<Vec<Change>, Refusal> {
    let most = nodes.len().max(edges.len());
    if most > limits.rows {
        return Err(too_many_rows(most, limits.rows));
    }
    let of = |name: &'static str, is_node: bool| {
        move |(at, object): (usize, Object)| {
            change(object, is_node, limits).map_err(|refusal| refusal.at(format!("{name}[{at}]")))
        }
    };
    let nodes = nodes.into_iter().enumerate().map(of("nodes", true));
    nodes.chain(edges.into_iter().enumerate().map(of("edges", false))).collect()
}

/// A row as a change: its own keys, and the rest as columns.
fn change(mut object: Object, is_node: bool, limits: &Limits) -> Result<Change, Refusal> {
    let mut take = |key: &str, is_id: bool| match object.shift_remove(key) {
        Some(Value::String(text)) if !is_id => Ok(text),
        Some(Value::String(text)) => check_id(&text, limits).map(|()| text),
        other => {
            let found = other.as_ref().map_or("nothing", kind);
            let fault = format!("a row without its {key}");
            let help = "a node has `type` and `id`, an edge `relation`, `src` and `dst`, all of them texts";
            Err(unfit(fault, format!("a text under \"{key}\""), found).help(help))
        }
    };
    if is_node {
        let (node_type, id) = (take("type", false)?, take("id", true)?);
        return Ok(Change::Node(NodeChange { node_type, id, columns: object }));
    }
    let (relation, src, dst) = (take("relation", false)?, take("src", true)?, take("dst", true)?);
    Ok(Change::Edge(EdgeChange { relation, src, dst, columns: object }))
}

fn check_id(id: &str, limits: &Limits) -> Result<(), Refusal> {
    match id.len() {
        0 => Err(unfit("an empty id", "a text", "nothing")),
        length if length > limits.id => {
            let most = format!("at most {} bytes", limits.id);
            Err(unfit("an id that is too long", most, length.to_string()))
        }
        _ => Ok(()),
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

fn json<T: DeserializeOwned>(body: &Body) -> Result<T, Refusal> {
    parsed(body.bytes())
}

fn parsed<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Refusal> {
    let bad = |code, message: &str| Refusal::new(StatusCode::BAD_REQUEST, code, message);
    let text = std::str::from_utf8(bytes)
        .map_err(|fault| bad("bad_utf8", "the body is no UTF-8").at(format!("byte {}", fault.valid_up_to())))?;
    // A form is only told of what is JSON at all, as deep as it may be.
    let whole = |fault: Error| serde_json::from_str::<Value>(text).err().unwrap_or(fault);
    serde_json::from_str(text).map_err(whole).map_err(|fault| {
        let place = format!("line {} column {}", fault.line(), fault.column());
        let told = fault.to_string();
        let told = told.split(" at line ").next().unwrap_or_default();
        match fault.classify() {
            Category::Data => unfit("the body has another form", "what /openapi.json says", told),
            _ => bad("bad_json", "the body is no JSON").expected("JSON", told),
        }
        .at(place)
    })
}

fn unfit(message: impl Into<String>, expected: impl Into<String>, found: impl Into<String>) -> Refusal {
    Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, "unfit", message).expected(expected, found)
}

fn too_many_rows(found: usize, most: usize) -> Refusal {
    Refusal::too_many("rows", found, most, "--max-rows")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn limits() -> Limits {
        Limits { rows: 2, targets: 2, id: 8, ..Limits::default() }
    }

    fn lines(text: &str) -> Result<Vec<Change>, Refusal> {
        events(&Body::Lines(text.to_owned().into()), &limits())
    }

    #[test]
    fn lines_and_lists_are_the_same_rows() {
        let payment = r#"{"type":"payment","id":"p1","Amount":12.5,"src":"a column"}"#;
        let edge = r#"{"relation":"paid_by","src":"p1","dst":"c1","weight":2}"#;
        let from_lines = lines(&format!("{payment}\n\n{edge}\r\n")).unwrap();
        let listed = Body::Json(format!(r#"{{"nodes":[{payment}],"edges":[{edge}]}}"#).into());
        assert_eq!(events(&listed, &limits()).unwrap(), from_lines);
        let read: Vec<Change> = [payment, edge].map(|text| serde_json::from_str(text).unwrap()).into();
        assert_eq!(from_lines, read);
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        let told = |text: &str| {
            let refusal = lines(text).unwrap_err();
            (refusal.status.as_u16(), refusal.place.unwrap_or_default())
        };
        let good = r#"{"type":"a","id":"1"}"#;
        assert_eq!(told(&format!("{good}\n{{\"type\":\"a\",")), (400, "line 2".into()));
        assert_eq!(told(r#"{"type":"a","id":7}"#), (422, "line 1".into()));
        assert_eq!(told(r#"{"type":"a","id":"123456789"}"#), (422, "line 1".into()));
        assert_eq!(told(r#"{"relation":"r","src":"","dst":"x"}"#), (422, "line 1".into()));
        assert_eq!(told("[]").0, 422);
        assert_eq!(told(&"[".repeat(100_000)).0, 400);
        assert_eq!(told(&format!("{good}\n").repeat(5)).0, 413);
        let bad = events(&Body::Lines(b"{\"type\":\"\xff\"}".to_vec().into()), &limits()).unwrap_err();
        assert_eq!((bad.status.as_u16(), bad.code), (400, "bad_utf8"));
        let score = |value: Value| {
            score(&Body::Json(value.to_string().into()), &limits())
                .map_err(|refusal| (refusal.status.as_u16(), refusal.place.unwrap_or_default()))
        };
        assert_eq!(score(json!({"targets": ["a:1", "b"]})), Err((422, "targets[1]".into())));
        assert_eq!(score(json!({"targets": []})), Err((422, "targets".into())));
        assert_eq!(score(json!({"targets": ["a:1", "a:2", "a:3"]})).unwrap_err().0, 413);
        assert_eq!(score(json!({"targets": ["a:1"], "node": []})).unwrap_err().0, 422);
        assert_eq!(score(json!({"targets": ["a:1:2"]})).unwrap().targets[0].id, "1:2");
    }
}
