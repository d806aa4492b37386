//! Typed errors: what is wrong, where, what was expected, what was found, and the way out.

mod caught;
mod nearest;
mod place;

use std::error::Error as StdError;
use std::io;
use std::iter;
use std::path::{Path, PathBuf};

pub use caught::is_caught;
pub(crate) use caught::{caught, panic_text};
pub(crate) use nearest::{UnknownName, nearest_name};
pub use place::Place;
pub(crate) use place::{Snippet, byte_at, line_number};

/// Result with this crate's [`enum@Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything that the world can do wrong. A caller's bug (a tensor of the wrong shape) panics instead.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A command-line argument or a combination of arguments that cannot be run.
    #[error("{argument}: expected {expected}, found {found}\n  help: {help}")]
    Usage { argument: String, expected: String, found: String, help: String },

    /// A key of a configuration file (or of `--set`) that is unknown, mistyped or out of range.
    #[error("{origin}: {key} = {found}: expected {expected}{}\n  help: {help}", origin.snippet())]
    Config {
        /// `configs/stage2.toml:14`, or `--set`.
        origin: Place,
        key: String,
        expected: String,
        found: String,
        help: String,
    },

    /// The operating system refused to read or write a path.
    #[error("{}: cannot {action}: {source}\n  help: {}", path.display(), io_help(source))]
    Io { path: PathBuf, action: &'static str, source: io::Error },

    /// A file whose content is not what its format promises.
    #[error("{}: {place}: expected {expected}, found {found}{}\n  help: {help}", path.display(), place.snippet())]
    Format {
        path: PathBuf,
        /// Line, key, row or byte offset inside the file.
        place: Place,
        expected: String,
        found: String,
        help: String,
    },

    /// Inputs that are readable one by one but cannot be used together.
    #[error("{what}: expected {expected}, found {found}\n  help: {help}")]
    Data { what: String, expected: String, found: String, help: String },

    /// An output that exists already and is never overwritten.
    #[error("{}: exists already and is never overwritten\n  help: {help}", path.display())]
    Exists { path: PathBuf, help: String },

    /// A compute device that is not there or cannot be used.
    #[error("device {device} is not usable: {reason}\n  help: {help}")]
    Device { device: String, reason: String, help: String },

    /// A device that failed at its work.
    #[error("the device {work} failed: {reason}\n  help: {MEMORY_HELP}{}", kept.as_deref().map_or_else(String::new, or_remove))]
    DeviceFailed { work: &'static str, reason: String, kept: Option<PathBuf> },

    /// A loss or gradient that became NaN or infinite.
    #[error("{term} became {value} in epoch {epoch}; the run was stopped\n  help: {help}")]
    NonFinite { term: String, value: f64, epoch: usize, help: String },

    /// Ranks that train together, of which one can no longer.
    #[error("{reason}\n  help: {help}")]
    Ranks { reason: String, help: String },

    /// The user asked to stop; what `saved` names was saved.
    #[error("interrupted; {saved} is saved. Go on with: {resume}")]
    Interrupted { saved: String, resume: String },
}

impl Error {
    /// An [`Error::Io`] for `path`; `action` completes "cannot …", e.g. `"read"`.
    pub fn io(path: impl AsRef<Path>, action: &'static str, source: io::Error) -> Self {
        Error::Io { path: path.as_ref().to_path_buf(), action, source }
    }

    /// The same error about the file at `path`, where it is an [`Error::Format`] of content that was read from there.
    pub fn in_file(self, path: &Path) -> Self {
        match self {
            Error::Format { place, expected, found, help, .. } => Error::format(path, place, expected, found, help),
            other => other,
        }
    }

    /// An [`Error::Format`] for `path` at `place`.
    pub fn format(
        path: impl AsRef<Path>,
        place: impl Into<Place>,
        expected: impl Into<String>,
        found: impl Into<String>,
        help: impl Into<String>,
    ) -> Self {
        Error::Format {
            path: path.as_ref().to_path_buf(),
            place: place.into(),
            expected: expected.into(),
            found: found.into(),
            help: help.into(),
        }
    }

    /// An [`Error::Config`] of a setting that does not suit the data, the device or the run.
    pub fn setting(
        key: impl Into<String>,
        found: impl Into<String>,
        expected: impl Into<String>,
        help: impl Into<String>,
    ) -> Self {
        Error::Config {
            origin: "the configuration".into(),
            key: key.into(),
            expected: expected.into(),
            found: found.into(),
            help: help.into(),
        }
    }

    /// An interruption of a part of the run in the directory `run` is one of the whole: that is what goes on.
    pub fn of_part(self, run: &Path) -> Self {
        match self {
            Error::Interrupted { saved, .. } => {
                Error::Interrupted { saved, resume: format!("graphsieve train --resume {}", run.display()) }
            }
            other => other,
        }
    }

    /// Exit status of the process: 2 for usage and configuration, which another command line or setting mends, 130 for
    /// an interruption, 1 for a failed run.
    pub fn exit_code(&self) -> u8 {
        match self {
            Error::Usage { .. } | Error::Config { .. } => 2,
            Error::Interrupted { .. } => 130,
            _ => 1,
        }
    }
}

/// A number with thousands separated by commas: `1,540,475`.
pub(crate) fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn io_help(source: &io::Error) -> &'static str {
    // Writers of formats wrap what the system said.
    let wrapped = iter::successors(source.get_ref().map(|error| error as &dyn StdError), |&error| error.source());
    let system = wrapped.filter_map(|error| error.downcast_ref::<io::Error>()).last().unwrap_or(source);
    match system.kind() {
        io::ErrorKind::NotFound => {
            "check the path; a missing data directory is made by `graphsieve synth` or `graphsieve import`"
        }
        io::ErrorKind::PermissionDenied => "check the permissions of the file and of its directory",
        io::ErrorKind::StorageFull => {
            "free some space or choose another output directory; nothing half-written was left"
        }
        io::ErrorKind::IsADirectory => "give a file, not a directory",
        io::ErrorKind::InvalidData => "save the file as UTF-8 text, or copy it again",
        io::ErrorKind::NotADirectory => "a part of the path is a file, not a directory",
        _ => "see the message of the operating system above",
    }
}

/// What else to do when a device failed that took compiled kernels from `kept`.
fn or_remove(kept: &Path) -> String {
    format!("; or remove {}, in case a compiled kernel that is kept there was damaged", kept.display())
}

/// What to do when a device has no memory left.
const MEMORY_HELP: &str = "for want of memory set train.precision=f16, model.recompute=true, a smaller \
                               loader.batch_size or a train.chunk_size (rows at a time), close other programs, or use \
                               --device cpu";
