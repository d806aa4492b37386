//! Why a request is not answered as asked: a status, and the one form of errors.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

use super::log::is_full;
use crate::error::Error;

/// Characters of a text that an answer repeats, at most.
const LONGEST: usize = 300;

/// An error as a client gets it: `{"error": {...}}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Refusal {
    #[serde(skip)]
    pub status: StatusCode,
    /// Seconds after which it is worth asking again.
    #[serde(skip)]
    pub retry_after: Option<u32>,
    /// For programs; does not change between releases.
    pub code: &'static str,
    /// For people: what is wrong.
    #[schema(value_type = String)]
    pub message: Box<str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub expected: Option<Box<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub found: Option<Box<str>>,
    /// The way out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub help: Option<Box<str>>,
    /// Where in the request: `line 3` of what cannot be read, else what it is about, such as `nodes[2]`, the third one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub place: Option<Box<str>>,
}

/// The body of a refusal.
#[derive(Serialize, ToSchema)]
pub(super) struct ErrorBody {
    error: Refusal,
}

/// The code of a refusal, for the log and the metrics.
#[derive(Clone, Copy, Debug)]
pub(super) struct Code(pub &'static str);

impl Refusal {
    pub fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        let message = shortened(message.into());
        Self { status, retry_after: None, code, message, expected: None, found: None, help: None, place: None }
    }

    #[must_use]
    pub fn expected(self, expected: impl Into<String>, found: impl Into<String>) -> Self {
        Self { expected: Some(shortened(expected.into())), found: Some(shortened(found.into())), ..self }
    }

    #[must_use]
    pub fn help(self, help: impl Into<String>) -> Self {
        Self { help: Some(shortened(help.into())), ..self }
    }

    /// At `place`, unless it has one already.
    #[must_use]
    pub fn at(self, place: impl Into<String>) -> Self {
        Self { place: self.place.or_else(|| Some(shortened(place.into()))), ..self }
    }

    #[must_use]
    pub fn after(self, seconds: u32) -> Self {
        Self { retry_after: Some(seconds), ..self }
    }

    /// More of something than is taken.
    pub fn too_many(what: &str, found: usize, most: usize, flag: &str) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "too_many", format!("too many {what} in one request"))
            .expected(format!("at most {most}"), found.to_string())
            .help(format!("send several requests, or start the server with a larger {flag}"))
    }

    /// No room for what was to be written.
    pub fn disk_full() -> Self {
        let full = "the disk of the server is full: nothing was written, scores go on";
        Self::new(StatusCode::INSUFFICIENT_STORAGE, "disk_full", full).help("free space on the disk of --state")
    }

    /// A bug of this program.
    pub fn panicked() -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "panic", "an internal error; the server goes on")
            .help("please report it with the X-Request-Id of this answer and the server's log")
    }
}

/// Whose fault an error of the library is: what does not fit is the request's, what the system refuses the server's.
impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        let unprocessable = StatusCode::UNPROCESSABLE_ENTITY;
        match error {
            Error::Data { what, expected, found, help } => {
                Self::new(unprocessable, "unfit", what).expected(expected, found).help(help)
            }
            Error::Format { place, expected, found, help, .. } => {
                let place = place.to_string();
                Self::new(unprocessable, "unfit", "a row that does not fit")
                    .expected(expected, found)
                    .help(help)
                    .at(place)
            }
            Error::Io { source, .. } if is_full(&source) => Self::disk_full(),
            // Paths of the server are not for clients; its log has them.
            Error::Io { .. } => {
                log::warn!("{error}");
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "io", "the server could not read or write a file")
                    .help("see the server's log")
                    .after(5)
            }
            other => {
                let told = other.to_string();
                log::warn!("{told}");
                let (message, help) = told.split_once("\n  help: ").unwrap_or((&told, "see the server's log"));
                Self::new(StatusCode::INTERNAL_SERVER_ERROR, "failed", message).help(help)
            }
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let Self { status, retry_after, code, .. } = self;
        let mut response = (status, Json(ErrorBody { error: self })).into_response();
        response.extensions_mut().insert(Code(code));
        let headers = response.headers_mut();
        if let Some(seconds) = retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

/// A text that can repeat what a client sent, cut.
fn shortened(text: String) -> Box<str> {
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]).into(),
        None => text.into(),
    }
}
