//! Short hands for the errors of this module.

use crate::error::Error;

/// An [`Error::Data`] about `what`.
pub(super) fn data(
    what: impl Into<String>,
    expected: impl ToString,
    found: impl ToString,
    help: impl Into<String>,
) -> Error {
    Error::Data { what: what.into(), expected: expected.to_string(), found: found.to_string(), help: help.into() }
}

/// An [`Error::Config`] about the setting `key`.
pub(super) fn setting(key: &str, expected: impl ToString, found: impl ToString, help: impl Into<String>) -> Error {
    Error::Config {
        origin: "trees".into(),
        key: key.into(),
        expected: expected.to_string(),
        found: found.to_string(),
        help: help.into(),
    }
}

/// An [`Error::Format`] at `place` of a model that was given as text; whoever read it from a file puts the path in.
pub(super) fn model_text(
    place: impl Into<String>,
    expected: impl ToString,
    found: impl ToString,
    help: impl Into<String>,
) -> Error {
    Error::format("model", place, expected.to_string(), found.to_string(), help)
}
