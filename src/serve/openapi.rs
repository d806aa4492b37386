//! The interface as OpenAPI: the routes, and the columns that this server's tables have.

use serde_json::{Map, Value, json};
use utoipa::OpenApi;

use super::engine::TableColumns;
use super::http::routes;

#[derive(OpenApi)]
#[openapi(
    info(title = "graphsieve serve", description = "Scores of a live graph"),
    paths(
        routes::score,
        routes::events,
        routes::labels,
        routes::node,
        routes::node_by_key,
        routes::forget,
        routes::forget_by_key,
        routes::drift,
        routes::reload,
        routes::health,
        routes::readiness,
        routes::metrics,
        routes::openapi,
        routes::index,
    )
)]
struct Frame;

/// The description, with a schema for each table.
pub(super) fn describe(tables: &[TableColumns]) -> String {
    // A document of plain maps and texts always has a form as JSON.
    let mut api = serde_json::to_value(Frame::openapi()).unwrap_or_default();
    let schemas = &mut api["components"]["schemas"];
    for table in tables {
        schemas[name_of(table)] = schema_of(table);
    }
    let rows = |is_node: bool| -> Value {
        let of_kind = tables.iter().filter(|table| table.is_node == is_node);
        let known: Vec<Value> = of_kind.map(|table| reference(&name_of(table))).collect();
        match known.is_empty() {
            true => json!({"type": "object"}),
            false => json!({"oneOf": known}),
        }
    };
    schemas["Node"] = rows(true);
    schemas["Edge"] = rows(false);
    schemas["Change"] = json!({"oneOf": [reference("Node"), reference("Edge")]});
    let list = |name: &str, limit: &str| json!({"type": "array", "items": reference(name), "description": limit});
    schemas["EventsRequest"] = json!({"type": "object", "additionalProperties": false, "properties": {
        "nodes": list("Node", "New nodes"), "edges": list("Edge", "New edges")}});
    schemas["ScoreRequest"] = json!({"type": "object", "additionalProperties": false, "required": ["targets"],
        "properties": {
            "nodes": list("Node", "Nodes that only this request sees"),
            "edges": list("Edge", "Edges that only this request sees"),
            "targets": {"type": "array", "items": {"type": "string"}, "minItems": 1, "description": "type:id"},
            "explain": {"type": "boolean", "default": false, "description": "Adds reasons"},
            "drawing": {"type": "boolean", "default": false, "description": "Adds an SVG of the neighbourhood"}}});
    let label = json!({"type": "object", "additionalProperties": false, "required": ["node", "label"], "properties": {
        "node": {"type": "string", "description": "type:id"},
        "label": {"type": "integer", "enum": [0, 1], "description": "1 is anomalous"},
        "known": {"description": "When it became known [default: now]", "oneOf": [
            {"type": "integer", "description": "Seconds since 1970"}, {"type": "string", "format": "date-time"}]}}});
    schemas["LabelsRequest"] =
        json!({"type": "object", "required": ["labels"], "properties": {"labels": {"type": "array", "items": label}}});
    api.to_string()
}

fn name_of(table: &TableColumns) -> String {
    format!("{}_{}", if table.is_node { "Node" } else { "Edge" }, table.name)
}

fn schema_of(table: &TableColumns) -> Value {
    let (tag, ids) = if table.is_node { ("type", &["id"][..]) } else { ("relation", &["src", "dst"][..]) };
    let mut properties = Map::new();
    properties.insert(tag.into(), json!({"type": "string", "const": table.name}));
    for id in ids {
        properties.insert((*id).into(), json!({"type": "string"}));
    }
    let required: Vec<String> = properties.keys().cloned().collect();
    for (column, kind) in &table.columns {
        // What is missing is filled as at import.
        properties.insert(column.clone(), json!({"type": [kind, "null"]}));
    }
    json!({"type": "object", "required": required, "properties": properties})
}

fn reference(schema: &str) -> Value {
    // Names of types may have characters that a pointer escapes.
    let name = schema.replace('~', "~0").replace('/', "~1");
    json!({"$ref": format!("#/components/schemas/{name}")})
}
