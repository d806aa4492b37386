//! What happens around every request: who may ask, an id, figures, and a line in the log.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Version, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::app::App;
use crate::serve::refusal::{Code, Refusal};

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// What needs no token: it tells nothing of the data.
const OPEN: &[&str] = &["/", "/healthz", "/readyz"];

pub(super) async fn observe(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let started = Instant::now();
    let id = request_id(request.headers());
    // The pattern of the route: ids of a path do not get into the log.
    let route = request.extensions().get::<MatchedPath>().map_or("none".into(), |path| path.as_str().to_owned());
    let method = method_name(request.method());
    let admitted = check_host(&request).and_then(|()| app.admit(request.headers(), OPEN.contains(&route.as_str())));
    let mut response = match admitted {
        Ok(()) => next.run(request).await,
        Err(refusal) => refusal.into_response(),
    };
    let code = response.extensions().get::<Code>().map_or("ok", |code| code.0);
    let (status, took) = (response.status().as_u16(), started.elapsed());
    app.metrics.request(method, &route, status, took);
    if code == "panic" {
        app.metrics.panicked();
    }
    if status >= 400 || app.options.log_requests {
        let level = if status >= 500 { log::Level::Warn } else { log::Level::Info };
        let (request, milliseconds) = (id.to_str().unwrap_or_default(), took.as_secs_f64() * 1e3);
        log::log!(
            level,
            request, method, route = route.as_str(), status, code, milliseconds;
            "{method} {route} {status} {code} {milliseconds:.1} ms, request {request}"
        );
    }
    let headers = response.headers_mut();
    headers.insert(REQUEST_ID, id);
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// Refuses a request of HTTP/1.1 that does not say once which host it is for, as RFC 9112 asks.
fn check_host(request: &Request) -> Result<(), Refusal> {
    let hosts = request.headers().get_all(header::HOST).iter().count();
    if request.version() != Version::HTTP_11 || hosts == 1 {
        return Ok(());
    }
    let refusal = Refusal::new(StatusCode::BAD_REQUEST, "bad_host", "a request of HTTP/1.1 names one host");
    Err(refusal.expected("one header Host", hosts.to_string()))
}

/// The client's own id where it is plain, else a new one.
fn request_id(headers: &HeaderMap) -> HeaderValue {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let plain = |id: &&HeaderValue| {
        let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
        (1..=64).contains(&id.len()) && id.as_bytes().iter().all(plain)
    };
    if let Some(id) = headers.get(REQUEST_ID).filter(plain) {
        return id.clone();
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let id = format!("{:x}-{:x}", now.as_millis(), NUMBER.fetch_add(1, Ordering::Relaxed));
    HeaderValue::try_from(id).unwrap_or(HeaderValue::from_static("-"))
}

/// The methods that have a route; a client can make up others without end.
fn method_name(method: &Method) -> &'static str {
    [Method::GET, Method::POST, Method::DELETE, Method::HEAD]
        .iter()
        .zip(["GET", "POST", "DELETE", "HEAD"])
        .find_map(|(known, name)| (known == method).then_some(name))
        .unwrap_or("other")
}
