//! Errors and panics of the threads of a loader.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::error::{Error, Result, panic_text};

/// What `work` says; an error and a panic name `place`.
pub(super) fn guarded<T>(place: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(Error::Data { what, expected, found, help })) => {
            Err(Error::Data { what: format!("{place}: {what}"), expected, found, help })
        }
        Ok(Err(other)) => Err(other),
        Err(panic) => Err(panicked(&format!("loader, {place}"), &*panic)),
    }
}

pub(super) fn panicked(what: &str, panic: &(dyn Any + Send)) -> Error {
    Error::Data {
        what: what.into(),
        expected: "a thread that goes on".into(),
        found: format!("one that panicked: {}", panic_text(panic).unwrap_or("no message")),
        help: "resume the run from its last checkpoint, and report the message if it comes back".into(),
    }
}
