//! The log of metrics by epoch, which a resumed run continues as if it had never stopped.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// Appends one JSON object per line to `metrics.jsonl`.
#[derive(Debug)]
pub struct MetricsLog {
    path: PathBuf,
    file: File,
}

#[derive(Serialize)]
struct Line<'a, T> {
    epoch: u64,
    #[serde(flatten)]
    values: &'a T,
}

#[derive(Deserialize)]
struct LineEpoch {
    epoch: u64,
}

impl MetricsLog {
    pub(super) fn open(path: PathBuf, resumed: u64) -> Result<Self> {
        let opened = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        let mut file = opened.map_err(|source| Error::io(&path, "open", source))?;
        let mut text = Vec::new();
        file.read_to_end(&mut text).map_err(|source| Error::io(&path, "read", source))?;
        let kept = kept_bytes(&path, &text, resumed)?;
        let failed = |source| Error::io(&path, "shorten", source);
        if kept < text.len() as u64 {
            file.set_len(kept).and_then(|()| file.sync_all()).map_err(failed)?;
        }
        file.seek(SeekFrom::Start(kept)).map_err(failed)?;
        Ok(Self { path, file })
    }

    /// Appends `{"epoch": epoch, …values}`. `values` is a struct or a map without an `epoch`; keep wall times out of
    /// it where a resumed run should log the same as an uninterrupted one. Numbers that are not finite become `null`.
    ///
    /// # Errors
    /// [`Error::Io`] when the line cannot be written.
    pub fn append(&mut self, epoch: u64, values: &impl Serialize) -> Result<()> {
        let failed = |source| Error::io(&self.path, "append to", source);
        let mut line = serde_json::to_vec(&Line { epoch, values }).map_err(|error| failed(error.into()))?;
        line.push(b'\n');
        // One write per line and no buffer: a reader never has to wait for a line.
        self.file.write_all(&line).map_err(failed)
    }

    /// Waits until the lines are on the disk. Call it before a checkpoint is saved, which must not know more epochs
    /// than the log.
    ///
    /// # Errors
    /// [`Error::Io`] when the system refuses.
    pub fn sync(&self) -> Result<()> {
        self.file.sync_data().map_err(|source| Error::io(&self.path, "write", source))
    }
}

/// What was logged, for plots.
#[derive(Debug, Default)]
pub struct History(Vec<serde_json::Map<String, serde_json::Value>>);

impl History {
    pub(super) fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).map_err(|source| Error::io(path, "read", source))?;
        // Lines were checked when the log was opened.
        Ok(Self(text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()))
    }

    /// `(epoch, value)` of every line that has a number under `key`.
    pub fn series(&self, key: &str) -> Vec<(f64, f64)> {
        let point = |line: &serde_json::Map<String, serde_json::Value>| {
            Some((line.get("epoch")?.as_f64()?, line.get(key)?.as_f64()?))
        };
        self.0.iter().filter_map(point).collect()
    }
}

/// Length of the leading lines of epochs up to `resumed`.
fn kept_bytes(path: &Path, text: &[u8], resumed: u64) -> Result<u64> {
    let mut kept = 0;
    for (at, line) in text.split_inclusive(|&byte| byte == b'\n').enumerate() {
        if !line.ends_with(b"\n") {
            break;
        }
        let LineEpoch { epoch } = serde_json::from_slice(line).map_err(|error| {
            let help = "the file was changed after the run wrote it; restore it or start a new run";
            Error::format(path, format!("line {}", at + 1), "an object with an epoch", error.to_string(), help)
        })?;
        if epoch > resumed {
            break;
        }
        kept += line.len() as u64;
    }
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::ops::RangeInclusive;

    use super::*;

    #[derive(Serialize)]
    struct Values {
        loss: f32,
        auc: Option<f64>,
    }

    const VALUES: Values = Values { loss: 0.5, auc: None };

    fn append(path: &Path, resumed: u64, epochs: RangeInclusive<u64>) {
        let mut log = MetricsLog::open(path.to_owned(), resumed).unwrap();
        epochs.for_each(|epoch| log.append(epoch, &VALUES).unwrap());
        log.sync().unwrap();
    }

    #[test]
    fn a_resumed_log_equals_that_of_an_uninterrupted_run() {
        let directory = tempfile::tempdir().unwrap();
        let (whole, resumed) = (directory.path().join("whole"), directory.path().join("resumed"));
        append(&whole, 0, 1..=9);
        append(&resumed, 0, 1..=7);
        // Stopped within a line of epoch 8, then resumed from the checkpoint of epoch 5.
        OpenOptions::new().append(true).open(&resumed).unwrap().write_all(b"{\"epo").unwrap();
        append(&resumed, 5, 6..=9);
        let text = fs::read_to_string(&whole).unwrap();
        assert_eq!(fs::read_to_string(&resumed).unwrap(), text);
        assert_eq!(text.lines().next(), Some(r#"{"epoch":1,"loss":0.5,"auc":null}"#));
        assert_eq!(text.lines().count(), 9);
    }

    #[test]
    fn a_line_cut_short_is_removed_even_without_later_epochs() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        fs::write(&path, "{\"epoch\":1}\n{\"epoch\":2}").unwrap();
        append(&path, 2, 3..=3);
        assert_eq!(fs::read_to_string(&path).unwrap(), "{\"epoch\":1}\n{\"epoch\":3,\"loss\":0.5,\"auc\":null}\n");
    }

    #[test]
    fn a_damaged_log_is_a_typed_error_and_stays_as_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let damaged = "{\"epoch\":1}\nno json\n{\"epoch\":3}\n";
        fs::write(&path, damaged).unwrap();
        let error = MetricsLog::open(path.clone(), 3).unwrap_err();
        assert!(matches!(&error, Error::Format { place, .. } if place == "line 2"), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), damaged);
    }
}
