//! Provenance of a run: version, commit, device, seed, command line, time.

use std::fmt;
use std::fs;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// Where a run comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meta {
    /// Version of this program.
    pub version: String,
    /// Commit of the source, where it is known.
    pub git_commit: Option<String>,
    /// Compute device, e.g. `cuda:0 (NVIDIA H100)`.
    pub device: String,
    /// Seed of everything random.
    pub seed: u64,
    /// The command line, one argument per entry.
    pub command: Vec<String>,
    /// Start of the run in UTC, e.g. `2026-01-31T09:30:00Z`.
    pub started: String,
    /// How it was gone on with, in order: what such a command sets counts from there on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resumed: Vec<Resumed>,
}

/// A command that went on with a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resumed {
    /// The command line, one argument per entry.
    pub command: Vec<String>,
    /// When, in UTC.
    pub started: String,
}

impl Meta {
    /// The provenance of a run that this process starts now.
    pub fn now(device: impl Into<String>, seed: u64) -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION").into(),
            git_commit: git_commit(),
            device: device.into(),
            seed,
            command: command(),
            started: UtcTime::now().to_string(),
            resumed: Vec::new(),
        }
    }

    /// The same of a run that this process goes on with now.
    pub fn resumed_now(mut self) -> Self {
        self.resumed.push(Resumed { command: command(), started: UtcTime::now().to_string() });
        self
    }
}

/// The command line of this process.
fn command() -> Vec<String> {
    std::env::args_os().map(|argument| argument.to_string_lossy().into_owned()).collect()
}

/// Commit given at build time, or of the source tree in the current directory.
fn git_commit() -> Option<String> {
    option_env!("GRAPHSIEVE_GIT_COMMIT").map(str::to_owned).or_else(|| checked_out_commit(Path::new(".")))
}

/// The commit that is checked out in `root`, when that is the source tree of this program and no other repository.
fn checked_out_commit(root: &Path) -> Option<String> {
    let manifest = fs::read_to_string(root.join("Cargo.toml")).ok()?;
    let ours = format!("name = \"{}\"", env!("CARGO_PKG_NAME"));
    manifest.lines().find(|line| line.trim() == ours)?;
    let git = root.join(".git");
    let head = fs::read_to_string(git.join("HEAD")).ok()?;
    let commit = match head.trim().strip_prefix("ref: ") {
        None => head.trim().to_owned(),
        Some(branch) => match fs::read_to_string(git.join(branch)) {
            Ok(commit) => commit.trim().to_owned(),
            Err(_) => {
                let packed = fs::read_to_string(git.join("packed-refs")).ok()?;
                packed.lines().find_map(|line| line.strip_suffix(branch)?.strip_suffix(' ').map(str::to_owned))?
            }
        },
    };
    commit.bytes().all(|byte| byte.is_ascii_hexdigit()).then_some(commit).filter(|commit| commit.len() >= 40)
}

/// A UTC time to the second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UtcTime {
    year: u64,
    month: u64,
    day: u64,
    hour: u64,
    minute: u64,
    second: u64,
}

impl UtcTime {
    /// The clock of the system; 1970 when it is set before that.
    pub(crate) fn now() -> Self {
        Self::from_unix(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()))
    }

    fn from_unix(seconds: u64) -> Self {
        let (time, mut day) = (seconds % 86_400, seconds / 86_400);
        let leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
        let mut year = 1970;
        while day >= 365 + u64::from(leap(year)) {
            day -= 365 + u64::from(leap(year));
            year += 1;
        }
        let february = 28 + u64::from(leap(year));
        let mut month = 1;
        for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
            if day < length {
                break;
            }
            day -= length;
            month += 1;
        }
        Self { year, month, day: day + 1, hour: time / 3600, minute: time / 60 % 60, second: time % 60 }
    }

    /// `20260131-093000`, which sorts by time and needs no quotes.
    pub(crate) fn compact(&self) -> String {
        let Self { year, month, day, hour, minute, second } = self;
        format!("{year:04}{month:02}{day:02}-{hour:02}{minute:02}{second:02}")
    }
}

/// `2026-01-31T09:30:00Z` (RFC 3339).
impl fmt::Display for UtcTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { year, month, day, hour, minute, second } = self;
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_gregorian() {
        let text = |seconds| UtcTime::from_unix(seconds).to_string();
        assert_eq!(text(0), "1970-01-01T00:00:00Z");
        assert_eq!(text(951_782_399), "2000-02-28T23:59:59Z");
        assert_eq!(text(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(text(1_735_689_599), "2024-12-31T23:59:59Z");
        assert_eq!(text(4_107_542_400), "2100-03-01T00:00:00Z");
        assert_eq!(UtcTime::from_unix(1_769_851_800).compact(), "20260131-093000");
    }

    #[test]
    fn the_commit_is_read_only_from_the_source_tree_of_this_program() {
        const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";
        let root = tempfile::tempdir().unwrap();
        let write = |name: &str, text: String| fs::write(root.path().join(name), text).unwrap();
        fs::create_dir_all(root.path().join(".git/refs/heads")).unwrap();
        write(".git/HEAD", "ref: refs/heads/main\n".into());
        write(".git/packed-refs", format!("# pack-refs\n{COMMIT} refs/heads/main\n"));
        write("Cargo.toml", "[package]\nname = \"another\"\n".into());
        assert_eq!(checked_out_commit(root.path()), None);
        write("Cargo.toml", format!("[package]\nname = \"{}\"\n", env!("CARGO_PKG_NAME")));
        assert_eq!(checked_out_commit(root.path()).as_deref(), Some(COMMIT));
        let loose = COMMIT.replace('0', "f");
        write(".git/refs/heads/main", format!("{loose}\n"));
        assert_eq!(checked_out_commit(root.path()), Some(loose));
        write(".git/HEAD", format!("{COMMIT}\n"));
        assert_eq!(checked_out_commit(root.path()).as_deref(), Some(COMMIT));
        write(".git/HEAD", "nonsense\n".into());
        assert_eq!(checked_out_commit(root.path()), None);
    }
}
