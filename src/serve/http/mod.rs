//! HTTP: routes, and what surrounds them.
//!
//! | file | holds |
//! |---|---|
//! | `app.rs` | what all connections share |
//! | `routes.rs` | the answer of each route |
//! | `read.rs` | bodies as requests |
//! | `observe.rs` | ids, tokens, figures and log lines of requests |
//! | `connections.rs` | listening, limits of connections, the graceful end |

mod app;
mod connections;
mod observe;
mod read;
pub(super) mod routes;

use std::any::Any;
use std::sync::Arc;

use axum::extract::DefaultBodyLimit;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Router, middleware};
use tower_http::catch_panic::CatchPanicLayer;

pub(super) use self::app::App;
pub(super) use self::connections::listen;
use super::refusal::Refusal;

/// All routes; `api` describes them.
pub(super) fn router(app: &Arc<App>, api: String) -> Router {
    let panicked: fn(Box<dyn Any + Send>) -> Response = |_| Refusal::panicked().into_response();
    Router::new()
        .route("/v1/score", post(routes::score))
        .route("/v1/events", post(routes::events))
        .route("/v1/labels", post(routes::labels))
        .route("/v1/nodes/{type}/{id}", get(routes::node).delete(routes::forget))
        .route("/v1/nodes/{node}", get(routes::node_by_key).delete(routes::forget_by_key))
        .route("/v1/drift", get(routes::drift))
        .route("/v1/reload", post(routes::reload))
        .route("/healthz", get(routes::health))
        .route("/readyz", get(routes::readiness))
        .route("/metrics", get(routes::metrics))
        .route("/openapi.json", get(routes::openapi))
        .route("/", get(routes::index))
        .fallback(routes::unknown)
        .method_not_allowed_fallback(routes::wrong_method)
        .layer(Extension(Arc::new(routes::Api(api))))
        .layer(DefaultBodyLimit::max(app.options.limits.body))
        .layer(CatchPanicLayer::custom(panicked))
        .layer(middleware::from_fn_with_state(app.clone(), observe::observe))
        .with_state(app.clone())
}
