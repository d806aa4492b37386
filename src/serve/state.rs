//! The state directory: which data the live graph began with last, and the log of what came since.
//!
//! ```text
//! state/
//!   serve.json     {"version": 1, "data": digest, "files": {…}, "base": 3, "position": 81723}
//!   base-3/        data directory that holds the log up to record 81,723; none before the first compaction
//!   log/           what was accepted (log/)
//! ```
//!
//! A compaction takes four steps, and the graph is the same whichever of them is the last:
//!
//! 1. The new base is written under a temporary name and renamed ([`State::next_base`] says where to), and the live
//!    graph goes on with it.
//! 2. `serve.json` is replaced in one step. From here on the new base counts.
//! 3. Records that it holds leave the log.
//! 4. The old base is removed.
//!
//! Where a step fails, the live graph has a base that does not count yet: [`State::base`] is the one that it has.
//!
//! A start takes the base that `serve.json` names, replays the log behind its position only, and does what steps 3 and
//! 4 left; a base that `serve.json` does not name is removed.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::log::{LAST_NUMBER, Log, Position, Recovered};
use crate::data::tables::IMPORT_FILE;
use crate::error::{Error, Result};
use crate::graph::formats::{atomic_write, is_temporary};
use crate::graph::json::read_json;
use crate::graph::{digest, manifest};

const FILE: &str = "serve.json";
const LOG: &str = "log";
const BASE: &str = "base-";
const VERSION: u32 = 1;

/// The state directory of one server.
#[derive(Debug)]
pub struct State {
    dir: PathBuf,
    /// Where the data lie that it began with.
    data: PathBuf,
    content: Content,
    /// Number of the base that the live graph has now; the one that counts unless a switch failed.
    live: Option<u64>,
}

/// `serve.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Content {
    version: u32,
    /// SHA-256 of the manifest of the data that it began with.
    data: String,
    /// What all files of these data were, by name; none in a state of an earlier version.
    #[serde(default)]
    files: BTreeMap<String, DataFile>,
    /// Number of the base that counts; none: the data that it began with.
    base: Option<u64>,
    /// Last record of the log that the base holds.
    position: Position,
}

/// What a file of the data was.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct DataFile {
    bytes: u64,
    /// When it was written last, in nanoseconds since 1970: one that was not written since need not be read again.
    modified: u64,
    sha256: String,
}

impl DataFile {
    /// Of the file at `path`, of which `known` is what it was.
    fn of(path: &Path, known: Option<&Self>) -> Result<Self> {
        let found = fs::metadata(path).map_err(|source| Error::io(path, "read", source))?;
        let since = found.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        let modified = since.map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(0));
        let bytes = found.len();
        match known.filter(|known| modified > 0 && (known.bytes, known.modified) == (bytes, modified)) {
            Some(known) => Ok(known.clone()),
            None => Ok(Self { bytes, modified, sha256: digest::of_file(path)? }),
        }
    }

    /// Of the files that were `known`, or else of all in the directory `data`.
    fn all(data: &Path, known: &BTreeMap<String, Self>) -> Result<BTreeMap<String, Self>> {
        let mut names: Vec<String> = known.keys().cloned().collect();
        if names.is_empty() {
            let failed = |source| Error::io(data, "read", source);
            for entry in fs::read_dir(data).map_err(failed)? {
                let path = entry.map_err(failed)?.path();
                let name = path.file_name().and_then(|name| name.to_str()).filter(|name| !is_temporary(name));
                names.extend(name.filter(|_| path.is_file()).map(str::to_owned));
            }
        }
        let facts = names.into_par_iter().map(|name| {
            let facts = Self::of(&data.join(&name), known.get(&name))?;
            Ok((name, facts))
        });
        facts.collect()
    }
}

impl State {
    /// Opens the state in `dir`, or begins one, of a server whose data are at `data`.
    ///
    /// # Errors
    /// [`Error::Usage`] for the state of other data; [`Error::Data`] while another process uses it; [`Error::Format`];
    /// [`Error::Io`].
    pub fn open(dir: &Path, data: &Path) -> Result<(Self, Log, Recovered)> {
        // What its import learned tells one data directory from another, or its description.
        let manifests = [IMPORT_FILE].into_iter().chain(manifest::FILES);
        let manifest = manifests.into_iter().find(|name| data.join(name).is_file()).unwrap_or(IMPORT_FILE);
        let found = digest::of_file(&data.join(manifest))?;
        let file = dir.join(FILE);
        let help = "the file was changed or is of another version of the program; restore it, or give another --state";
        let other = |what: String| Error::Usage {
            argument: format!("--state {}", dir.display()),
            expected: "the --data that it was begun with".into(),
            found: format!("{}, whose {what}", data.display()),
            help: "give the data that it was begun with, or another --state".into(),
        };
        let kept: Option<Content> = match file.is_file() {
            true => Some(read_json(&file, "the state of a server", help)?),
            false => None,
        };
        let content = match kept {
            Some(kept) if kept.version != VERSION => {
                let found = kept.version.to_string();
                return Err(Error::format(&file, "version", VERSION.to_string(), found, help));
            }
            Some(kept) if kept.position.0.max(kept.base.unwrap_or(0)) > LAST_NUMBER => {
                let found = format!("position {} and base {:?}", kept.position.0, kept.base);
                return Err(Error::format(&file, "numbers", "those of a record and of a base", found, help));
            }
            Some(kept) if kept.data != found => {
                return Err(other(format!("{manifest} is another one")));
            }
            Some(kept) => kept,
            None => Content {
                version: VERSION,
                data: found,
                files: BTreeMap::new(),
                base: None,
                position: Position::default(),
            },
        };
        let files = DataFile::all(data, &content.files)?;
        if let Some((name, _)) = content.files.iter().find(|(name, known)| files[*name].sha256 != known.sha256) {
            return Err(other(format!("{name} has other content (SHA-256)")));
        }
        let is_new = content.files != files;
        let content = Content { files, ..content };
        // Before anything is changed: the lock is the log's.
        let (log, recovered) = Log::open(&dir.join(LOG), content.position)?;
        let live = content.base;
        let state = Self { dir: dir.into(), data: data.into(), content, live };
        if is_new {
            state.write()?;
        }
        state.remove_others()?;
        Ok((state, log, recovered))
    }

    /// Whether `dir` has the state of a server.
    pub fn is_begun(dir: &Path) -> bool {
        [FILE, LOG].iter().any(|name| dir.join(name).exists())
    }

    /// Takes back the state that was begun in `dir` by a server that could not start: the next one may have other data.
    pub fn take_back(dir: &Path) {
        // What cannot be removed is what the next start finds and names.
        [FILE, LOG].iter().for_each(|name| drop(remove(&dir.join(name))));
        let _ = fs::remove_dir(dir);
    }

    /// The data directory of the base that the live graph has.
    pub fn base(&self) -> PathBuf {
        self.of(self.live)
    }

    fn of(&self, base: Option<u64>) -> PathBuf {
        base.map_or_else(|| self.data.clone(), |number| self.path(number))
    }

    /// The base that counts holds the log up to here.
    pub fn position(&self) -> Position {
        self.content.position
    }

    /// Where the next base is to be written. What an earlier attempt left there is removed.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn next_base(&self) -> Result<PathBuf> {
        let dir = self.path(self.next());
        if dir.exists() {
            remove(&dir)?;
        }
        Ok(dir)
    }

    /// Makes the next base, which the live graph has now and which holds the log up to `position`, the one that counts,
    /// and lets the records that it holds and the bases before it go.
    ///
    /// # Errors
    /// [`Error::Io`]: the new base counts or not, and what was not removed goes with the next one or at the next start.
    pub fn switch(&mut self, position: Position, log: &Log) -> Result<()> {
        self.live = Some(self.next());
        self.name_base(position)?;
        log.drop_until(position)?;
        self.remove_others()
    }

    fn name_base(&mut self, position: Position) -> Result<()> {
        let next = Content { base: self.live, position, ..self.content.clone() };
        let before = std::mem::replace(&mut self.content, next);
        self.write().inspect_err(|_| self.content = before)
    }

    fn next(&self) -> u64 {
        self.live.map_or(1, |number| number + 1)
    }

    fn path(&self, base: u64) -> PathBuf {
        self.dir.join(format!("{BASE}{base}"))
    }

    fn write(&self) -> Result<()> {
        let path = self.dir.join(FILE);
        let text = serde_json::to_vec_pretty(&self.content).map_err(|fault| Error::io(&path, "write", fault.into()))?;
        atomic_write(&path, |file| file.write_all(&text))
    }

    /// Removes bases that neither count nor are in use, and files that were never finished, however young: nobody else
    /// writes here while the log is locked.
    fn remove_others(&self) -> Result<()> {
        let failed = |source| Error::io(&self.dir, "read", source);
        let bases = [self.base(), self.of(self.content.base)];
        for entry in fs::read_dir(&self.dir).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            let is_other = name.starts_with(BASE) && !bases.contains(&entry.path());
            if is_other || is_temporary(&name) {
                remove(&entry.path())?;
            }
        }
        Ok(())
    }
}

fn remove(path: &Path) -> Result<()> {
    let removed = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    removed.map_err(|source| Error::io(path, "remove", source))
}

#[cfg(test)]
mod tests {
    use super::super::log::Record;
    use super::*;

    fn labels(numbers: std::ops::Range<u64>) -> Vec<Record> {
        let label = |number| Record::Label { node: format!("a:{number}").parse().unwrap(), label: 0, known: 0 };
        numbers.map(label).collect()
    }

    /// A data directory, in so far as it counts here, that holds records.
    fn write_data(dir: &Path, holds: &[Record]) {
        fs::create_dir_all(dir).unwrap();
        fs::write(dir.join("graph.json"), serde_json::to_vec(holds).unwrap()).unwrap();
    }

    /// All that a graph would hold.
    fn graph(state: &State, log: &Log) -> Vec<Record> {
        let mut records: Vec<Record> =
            serde_json::from_slice(&fs::read(state.base().join("graph.json")).unwrap()).unwrap();
        log.replay(
            state.position(),
            |entry| entry,
            |entry| {
                records.push(entry.record);
                Ok(())
            },
        )
        .unwrap();
        records
    }

    fn names(dir: &Path) -> Vec<String> {
        let mut names: Vec<String> =
            fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn the_graph_is_the_same_wherever_a_compaction_stops() {
        for stop in 0..=5 {
            let dir = tempfile::tempdir().unwrap();
            let [data, at] = ["data", "state"].map(|name| dir.path().join(name));
            write_data(&data, &labels(0..2));
            let mut all = labels(0..2);
            // Twice: from the user's data, which stay, and from a base that goes.
            for round in [2, 5] {
                let (mut state, log, _) = State::open(&at, &data).unwrap();
                log.append(&labels(round..round + 2), None).unwrap();
                all.extend(labels(round..round + 2));
                let position = log.position();
                let whole = graph(&state, &log);
                assert_eq!(whole, all);
                // Comes in during the compaction.
                log.append(&labels(round + 2..round + 3), None).unwrap();
                all.extend(labels(round + 2..round + 3));
                if stop >= 1 {
                    write_data(&at.join(".graphsieve-x.tmp"), &whole[..1]);
                }
                if stop >= 2 {
                    write_data(&state.next_base().unwrap(), &whole);
                }
                match stop {
                    3 | 4 => {
                        state.live = Some(state.next());
                        state.name_base(position).unwrap();
                        if stop == 4 {
                            log.drop_until(position).unwrap();
                        }
                    }
                    5 => state.switch(position, &log).unwrap(),
                    _ => {}
                }
                // The process ends here.
                drop((state, log));
                let (state, log, _) = State::open(&at, &data).unwrap();
                assert_eq!(graph(&state, &log), all, "stop {stop}");
                let base = state.base();
                let expected = [base.file_name().unwrap().to_str().unwrap(), LOG, FILE];
                let expected = if stop < 3 { &expected[1..] } else { &expected[..] };
                assert_eq!(names(&at), expected, "stop {stop}");
                assert_eq!(base == data, stop < 3);
            }
        }
    }

    #[test]
    fn a_base_that_the_graph_has_already_is_the_one_to_go_on_from_though_it_does_not_count() {
        let dir = tempfile::tempdir().unwrap();
        let [data, at] = ["data", "state"].map(|name| dir.path().join(name));
        write_data(&data, &labels(0..2));
        let (mut state, log, _) = State::open(&at, &data).unwrap();
        log.append(&labels(2..4), None).unwrap();
        let mut next = || {
            let path = state.next_base().unwrap();
            write_data(&path, &labels(0..4));
            (state.switch(log.position(), &log).is_ok(), state.base() == path, path)
        };
        // Nothing takes the place of a directory that is not empty.
        let [file, aside] = [at.join(FILE), at.join("aside")];
        fs::rename(&file, &aside).unwrap();
        write_data(&file, &[]);
        let (counts, is_used, first) = next();
        assert_eq!((counts, is_used, first.exists()), (false, true, true));
        fs::remove_dir_all(&file).unwrap();
        fs::rename(&aside, &file).unwrap();
        let (counts, is_used, second) = next();
        assert_eq!((counts, is_used, first == second, first.exists()), (true, true, false, false));
        drop((state, log));
        let (state, log, _) = State::open(&at, &data).unwrap();
        assert_eq!((state.base(), graph(&state, &log)), (second, labels(0..4)));
    }

    #[test]
    fn the_state_of_other_data_and_a_changed_file_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let [data, other, at] = ["data", "other", "state"].map(|name| dir.path().join(name));
        write_data(&data, &labels(0..1));
        write_data(&other, &labels(1..2));
        fs::write(data.join("edges.bin"), "1234").unwrap();
        drop(State::open(&at, &data).unwrap());
        let refused = |data: &Path| State::open(&at, data).err().unwrap().to_string();
        assert!(refused(&other).contains("give the data that it was begun with"));
        // The same counts and another content; then the same content, written anew.
        for (seconds, content, is_same) in [(1, "4321", false), (2, "1234", true)] {
            let mut file = fs::File::create(data.join("edges.bin")).unwrap();
            file.write_all(content.as_bytes()).unwrap();
            file.set_modified(UNIX_EPOCH + std::time::Duration::from_secs(seconds)).unwrap();
            assert_eq!(State::open(&at, &data).is_ok(), is_same);
            assert!(is_same || refused(&data).contains("whose edges.bin has other content"), "{}", refused(&data));
        }
        let (state, log, _) = State::open(&at, &data).unwrap();
        assert!(refused(&data).contains("another process"));
        drop((state, log));
        for (content, part) in [
            ("{", "line 1"),
            (r#"{"version":9,"data":"","position":0}"#, "expected 1, found 9"),
            (r#"{"version":1,"data":"","position":18446744073709551615}"#, "position 18446744073709551615"),
        ] {
            fs::write(at.join(FILE), content).unwrap();
            assert!(refused(&data).contains(part), "{}", refused(&data));
        }
    }
}
