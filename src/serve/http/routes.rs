//! The answer of each route.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::app::{App, Body, beside};
use super::read;
use crate::error::Error;
use crate::live::NodeKey;
use crate::serve::engine::{ClientKey, ScoreAnswer, Spent, Write, WriteRequest, Written};
use crate::serve::page;
use crate::serve::refusal::{ErrorBody, Refusal};

type Answer<T> = Result<T, Refusal>;

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Neighbours of a node that are listed unless the request says otherwise, and at most.
const NEIGHBOURS: usize = 20;
const MOST_NEIGHBOURS: usize = 1000;

/// The description of the interface, as JSON.
pub(in crate::serve) struct Api(pub String);

#[derive(Serialize, ToSchema)]
pub(in crate::serve) struct Health {
    alive: bool,
}

#[derive(Serialize, ToSchema)]
pub(in crate::serve) struct Readiness {
    ready: bool,
    /// Whether changes are taken; scores go on without.
    writable: bool,
    model: String,
}

#[derive(Serialize, ToSchema)]
pub(in crate::serve) struct Reloaded {
    /// Name of the run that scores from now on.
    model: String,
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(in crate::serve) struct NodeQuery {
    /// Latest neighbours that are listed, at most 1000 [default: 20]
    neighbours: Option<usize>,
}

/// Scores of nodes: of known ones, or of rows that come with the request and are forgotten after it
#[utoipa::path(post, path = "/v1/score", request_body(content = ref("#/components/schemas/ScoreRequest")), responses(
    (status = 200, description = "Scores in the order of the targets; Server-Timing says where the time went",
     body = ScoreAnswer),
    (status = "4XX", description = "What is wrong with the request", body = ErrorBody),
    (status = "5XX", description = "What is wrong with the server", body = ErrorBody)))]
pub(in crate::serve) async fn score(State(app): State<Arc<App>>, request: Request) -> Answer<Response> {
    let body = app.body(request, false).await?;
    let started = Instant::now();
    let limits = app.options.limits;
    let asked = body.read(move |body| read::score(body, &limits)).await?;
    let weight = asked.targets.len();
    let done = app.scoring.submit(asked, weight, started + limits.answer).await?;
    let Spent { extract, forward } = done.answer.spent;
    for (part, took) in [("queue", done.queued), ("extract", extract), ("forward", forward)] {
        app.metrics.part(part, took);
    }
    app.metrics.batch("score", done.batch);
    let mut response = Json(done.answer).into_response();
    let ms = |took: Duration| took.as_secs_f64() * 1e3;
    let timing = format!(
        "queue;dur={:.3}, extract;dur={:.3}, forward;dur={:.3}, total;dur={:.3}",
        ms(done.queued),
        ms(extract),
        ms(forward),
        ms(started.elapsed())
    );
    response.headers_mut().extend(HeaderValue::try_from(timing).ok().map(|value| (SERVER_TIMING, value)));
    Ok(response)
}

/// Appends nodes and edges; they are durable and seen by all later scores when this is answered
#[utoipa::path(post, path = "/v1/events", params(
    ("Idempotency-Key" = Option<String>, Header, description = "What comes twice under one key is done once")),
    request_body(content((ref("#/components/schemas/EventsRequest") = "application/json"),
        (ref("#/components/schemas/Change") = "application/x-ndjson"))), responses(
    (status = 200, description = "Durable", body = Written),
    (status = "4XX", description = "Nothing of it was written", body = ErrorBody),
    (status = "5XX", description = "It may have been written: repeat it with the same key", body = ErrorBody)))]
pub(in crate::serve) async fn events(State(app): State<Arc<App>>, request: Request) -> Answer<Json<Written>> {
    let limits = app.options.limits;
    let (body, key) = keyed_body(&app, request, true).await?;
    let rows = body.read(move |body| read::events(body, &limits)).await?;
    write(&app, Write::Rows(rows), key).await
}

/// Labels that became known
#[utoipa::path(post, path = "/v1/labels", params(
    ("Idempotency-Key" = Option<String>, Header, description = "What comes twice under one key is done once")),
    request_body(content = ref("#/components/schemas/LabelsRequest")), responses(
    (status = 200, description = "Durable", body = Written),
    (status = "4XX", description = "Nothing of it was written", body = ErrorBody),
    (status = "5XX", description = "It may have been written: repeat it with the same key", body = ErrorBody)))]
pub(in crate::serve) async fn labels(State(app): State<Arc<App>>, request: Request) -> Answer<Json<Written>> {
    let limits = app.options.limits;
    let (body, key) = keyed_body(&app, request, false).await?;
    let labels = body.read(move |body| read::labels(body, &limits)).await?;
    write(&app, Write::Labels(labels), key).await
}

/// What is known of a node, with its latest neighbours
#[utoipa::path(get, path = "/v1/nodes/{type}/{id}", params(
    ("type" = String, Path, description = "Node type"), ("id" = String, Path, description = "Its id, percent-encoded"),
    NodeQuery), responses(
    (status = 200, description = "The node", body = Object),
    (status = 404, description = "No such node", body = ErrorBody)))]
pub(in crate::serve) async fn node(
    State(app): State<Arc<App>>,
    path: Result<Path<(String, String)>, PathRejection>,
    query: Result<Query<NodeQuery>, QueryRejection>,
) -> Answer<Json<Value>> {
    look_up(app, pair(path)?, query).await
}

/// The same by `type:id`
#[utoipa::path(get, path = "/v1/nodes/{node}", params(
    ("node" = String, Path, description = "type:id, percent-encoded"), NodeQuery), responses(
    (status = 200, description = "The node", body = Object),
    (status = 404, description = "No such node", body = ErrorBody)))]
pub(in crate::serve) async fn node_by_key(
    State(app): State<Arc<App>>,
    path: Result<Path<String>, PathRejection>,
    query: Result<Query<NodeQuery>, QueryRejection>,
) -> Answer<Json<Value>> {
    look_up(app, whole(path)?, query).await
}

/// Forgets a node: its row, its edges, its label, in the graph and on disk
#[utoipa::path(delete, path = "/v1/nodes/{type}/{id}", params(
    ("type" = String, Path, description = "Node type"), ("id" = String, Path, description = "Its id, percent-encoded")),
    responses(
    (status = 200, description = "Forgotten", body = Written),
    (status = 404, description = "No such node", body = ErrorBody)))]
pub(in crate::serve) async fn forget(
    State(app): State<Arc<App>>,
    path: Result<Path<(String, String)>, PathRejection>,
) -> Answer<Json<Written>> {
    let node = read::node_key(&pair(path)?, &app.options.limits)?;
    write(&app, Write::Forget(node), None).await
}

/// The same by `type:id`
#[utoipa::path(delete, path = "/v1/nodes/{node}", params(
    ("node" = String, Path, description = "type:id, percent-encoded")), responses(
    (status = 200, description = "Forgotten", body = Written),
    (status = 404, description = "No such node", body = ErrorBody)))]
pub(in crate::serve) async fn forget_by_key(
    State(app): State<Arc<App>>,
    path: Result<Path<String>, PathRejection>,
) -> Answer<Json<Written>> {
    let node = read::node_key(&whole(path)?, &app.options.limits)?;
    write(&app, Write::Forget(node), None).await
}

/// How far features and scores have moved since the training
#[utoipa::path(get, path = "/v1/drift", responses((status = 200, description = "Drift by column", body = Object)))]
pub(in crate::serve) async fn drift(State(app): State<Arc<App>>) -> Answer<Json<Value>> {
    beside(move || app.engine.drift()).await.map(Json)
}

/// Takes the model, tokens and certificates that lie on disk now; without a request that is lost
#[utoipa::path(post, path = "/v1/reload", responses(
    (status = 200, description = "They are used from now on", body = Reloaded),
    (status = 409, description = "They cannot be used; the old ones stay", body = ErrorBody)))]
pub(in crate::serve) async fn reload(State(app): State<Arc<App>>) -> Answer<Json<Reloaded>> {
    let reloaded = beside(move || {
        app.reload().map_err(|error: Error| {
            log::warn!("not reloaded: {error}");
            let refusal = match error {
                // Its path is not for clients.
                Error::Format { place, expected, found, help, .. } => {
                    let message = format!("a file of the server does not fit, at {place}; its log names it");
                    Refusal::new(StatusCode::CONFLICT, "not_reloaded", message).expected(expected, found).help(help)
                }
                other => other.into(),
            };
            Refusal { status: StatusCode::CONFLICT, code: "not_reloaded", retry_after: None, ..refusal }
        })
    });
    Ok(Json(Reloaded { model: reloaded.await? }))
}

/// Whether the process is alive
#[utoipa::path(get, path = "/healthz", responses((status = 200, description = "It is", body = Health)))]
pub(in crate::serve) async fn health() -> Json<Health> {
    Json(Health { alive: true })
}

/// Whether requests may come
#[utoipa::path(get, path = "/readyz", responses(
    (status = 200, description = "They may", body = Readiness),
    (status = 503, description = "The server is stopping", body = Readiness)))]
pub(in crate::serve) async fn readiness(State(app): State<Arc<App>>) -> Answer<(StatusCode, Json<Readiness>)> {
    let ready = !app.stops();
    // It waits where the log waits for its disk.
    let state = beside(move || Ok(app.engine.state())).await?;
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    Ok((status, Json(Readiness { ready, writable: state.writable, model: state.model })))
}

/// Figures for Prometheus
#[utoipa::path(get, path = "/metrics", responses(
    (status = 200, description = "OpenMetrics text", body = String, content_type = "application/openmetrics-text")))]
pub(in crate::serve) async fn metrics(State(app): State<Arc<App>>) -> Answer<Response> {
    let text = beside(move || app.metrics.text().map_err(|_| Refusal::panicked())).await?;
    Ok(([(header::CONTENT_TYPE, OPENMETRICS)], text).into_response())
}

/// This description
#[utoipa::path(get, path = "/openapi.json", responses((status = 200, description = "OpenAPI", body = Object)))]
pub(in crate::serve) async fn openapi(Extension(api): Extension<Arc<Api>>) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], api.0.clone()).into_response()
}

/// A page to look a node up
#[utoipa::path(get, path = "/", responses((status = 200, description = "HTML", body = String, content_type = "text/html")))]
pub(in crate::serve) async fn index() -> Response {
    ([(header::CONTENT_SECURITY_POLICY, page::policy())], Html(page::HTML)).into_response()
}

pub(super) async fn unknown() -> Refusal {
    Refusal::new(StatusCode::NOT_FOUND, "no_route", "there is no such path").help("GET /openapi.json lists them")
}

pub(super) async fn wrong_method() -> Refusal {
    let refusal = Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "method", "this path has no such method");
    refusal.help("GET /openapi.json lists them")
}

async fn write(app: &App, write: Write, key: Option<ClientKey>) -> Answer<Json<Written>> {
    let weight = match &write {
        Write::Rows(rows) => rows.len(),
        Write::Labels(labels) => labels.len(),
        Write::Forget(_) => 1,
    };
    let deadline = Instant::now() + app.options.limits.answer;
    let done = app.writing.submit(WriteRequest { write, key }, weight, deadline).await?;
    app.metrics.batch("write", done.batch);
    let written = done.answer;
    if !written.repeated {
        let kinds = [("node", written.nodes), ("edge", written.edges), ("label", written.labels)];
        for (kind, count) in kinds.into_iter().chain([("forgotten", written.forgotten)]) {
            app.metrics.rows(kind, count);
        }
    }
    Ok(Json(written))
}

async fn look_up(app: Arc<App>, node: String, query: Result<Query<NodeQuery>, QueryRejection>) -> Answer<Json<Value>> {
    let bad = || Refusal::new(StatusCode::BAD_REQUEST, "bad_query", "the query is no ?neighbours=N");
    let neighbours = query.map_err(|_| bad())?.0.neighbours.unwrap_or(NEIGHBOURS).min(MOST_NEIGHBOURS);
    let node: NodeKey = read::node_key(&node, &app.options.limits)?;
    beside(move || app.engine.node(&node, neighbours)).await.map(Json)
}

fn pair(path: Result<Path<(String, String)>, PathRejection>) -> Answer<String> {
    path.map(|Path((node_type, id))| format!("{node_type}:{id}")).map_err(|_| bad_path())
}

fn whole(path: Result<Path<String>, PathRejection>) -> Answer<String> {
    path.map(|Path(node)| node).map_err(|_| bad_path())
}

fn bad_path() -> Refusal {
    Refusal::new(StatusCode::BAD_REQUEST, "bad_path", "the path is no percent-encoded UTF-8")
}

/// The body of a write, which may be `lines`, and the key that its client gave it.
async fn keyed_body(app: &App, request: Request, lines: bool) -> Answer<(Body, Option<ClientKey>)> {
    let key = idempotency_key(request.headers())?;
    let body = app.body(request, lines).await?;
    let key = key.map(|text| ClientKey { text, body: body.bytes().clone() });
    Ok((body, key))
}

fn idempotency_key(headers: &HeaderMap) -> Answer<Option<String>> {
    let Some(value) = headers.get(IDEMPOTENCY_KEY) else { return Ok(None) };
    let key =
        value.to_str().ok().filter(|key| (1..=128).contains(&key.len()) && key.bytes().all(|b| b.is_ascii_graphic()));
    key.map(|key| Some(key.to_owned())).ok_or_else(|| {
        Refusal::new(StatusCode::BAD_REQUEST, "bad_key", "an Idempotency-Key that cannot be used")
            .expected("1 to 128 visible ASCII characters", "something else")
    })
}
