//! The durable log of what was accepted.
//!
//! ```text
//! log/
//!   lock                        held by the one process that uses it
//!   00000000000000000001.log    records from 1 on, one checked frame per batch (segment.rs)
//!   00000000000000081723.log    from 81,723 on; batches are appended to the last file
//! ```
//!
//! A batch is on the disk as a whole before it is acknowledged, or not at all. Batches that wait at the same time share
//! one sync. A write that fails is cut off again, and the log goes on. What is damaged is left out and told: one
//! changed byte costs its batch, and a file that ends early what is missing. That is why it is no embedded store. There
//! one byte makes a file unreadable (redb 4.6, for 41 of 60 changed bytes), or silently ends the log (the WAL of
//! SQLite, with 310 of 600 rows behind it), and pages that were freed keep what was forgotten.
//!
//! Files are rewritten to take records out ([`Log::drop_until`], [`Log::forget`]): a new file takes the place of the
//! old one in one step, and the old one is overwritten with zeros. What a file system or a drive keeps of overwritten
//! blocks is out of reach; encrypt the disk against that.

mod keys;
mod record;
mod segment;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::fmt;
use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use memchr::memmem::Finder;
use rayon::prelude::*;

use self::keys::{Keys, is_kept};
pub use self::record::{Ends, Record};
pub(super) use self::segment::LAST_NUMBER;
use self::segment::{Frame, Piece, Segment, pieces};
pub use self::segment::{Key, Position};
use crate::error::{Error, Result};
use crate::graph::formats::{is_temporary, sync_directory};
use crate::live::NodeKey;

/// A file that has reached this many bytes is followed by another one. A file is read as a whole.
const FULL_SEGMENT: u64 = 16 << 20;
/// Records that are read together.
const READ_AT_ONCE: usize = 1 << 12;
const LOCK: &str = "lock";

/// Records that are kept together or not at all.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    pub records: &'a [Record],
    /// By which a client repeats the batch without doubling it.
    pub key: Option<&'a Key>,
}

/// A batch that is on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// Behind its last record.
    pub position: Position,
    /// Whether it was already there under its key.
    pub repeated: bool,
}

/// A batch of which nothing is kept.
#[derive(Clone, Debug, thiserror::Error)]
pub enum LogError {
    /// There is no room for it; smaller ones may still fit.
    #[error("{}: no space is left for the log\n  help: free some space; scoring goes on meanwhile", .0.display())]
    Full(PathBuf),
    /// Its key came before with another request.
    #[error("key {0:?}: expected the request that it came with first, found another one\n  help: use a new key")]
    KeyReused(String),
    #[error("{}: cannot write the log: {reason}\n  help: restart the server when the disk is well again", path.display())]
    Failed { path: PathBuf, reason: String },
}

/// One record of a log.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    pub position: Position,
    /// When it came, in seconds since 1970.
    pub received: i64,
    pub record: Record,
}

/// The files that are rewritten.
enum Wanted<'a> {
    /// Those that begin up to here; of one that ends there, too, nothing is left but keys.
    Until(Position),
    /// Those that have these bytes in them.
    With(&'a Finder<'a>),
}

/// The same as it lies in a file.
struct Stored<'a> {
    path: &'a Path,
    number: u64,
    received: i64,
    json: &'a [u8],
}

/// What was found in a log that was opened.
#[derive(Debug, Default)]
pub struct Recovered {
    pub records: u64,
    pub damage: Vec<Damage>,
}

/// A stretch of a file that cannot be read. Records in it are lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    pub file: PathBuf,
    pub bytes: Range<u64>,
    /// Whether it was the end of the log, which was cut off. A batch that was not acknowledged leaves such an end when
    /// the program is killed.
    pub cut: bool,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, bytes: Range { start, end }, cut } = self;
        let what = if *cut {
            "are no whole batch; they were cut off: a batch that was never acknowledged, or damage of the disk"
        } else {
            "are damaged and left out; the records in them are lost"
        };
        write!(f, "{}: bytes {start} to {end} {what}", file.display())
    }
}

/// A log of its own process. All methods can be called from several threads.
pub struct Log {
    dir: PathBuf,
    /// Batches that nobody has written yet.
    waiting: Mutex<Vec<Arc<Waiting>>>,
    /// Whoever holds it writes what waits.
    files: Mutex<Files>,
    /// Held while complete files are read or rewritten.
    upkeep: Mutex<()>,
    _lock: Lock,
}

/// A batch in JSON and its answer.
struct Waiting {
    records: Vec<Vec<u8>>,
    key: Option<Key>,
    answer: OnceLock<Result<Appended, LogError>>,
}

struct Files {
    complete: Vec<Segment>,
    /// The file that grows, as far as it is synced.
    last: Segment,
    open: File,
    /// Number of the next record.
    next: u64,
    keys: Keys,
    syncs: u64,
    /// Whether a failed write could not be cut off.
    broken: bool,
}

impl Log {
    /// Opens the log in `dir`, or begins one. Records up to `base` are no longer needed and leave, unless the disk is
    /// full; further ones are counted on from there.
    ///
    /// # Errors
    /// [`Error::Data`] while another process has it open; [`Error::Io`].
    pub fn open(dir: &Path, base: Position) -> Result<(Self, Recovered)> {
        fs::create_dir_all(dir).map_err(|source| Error::io(dir, "create", source))?;
        let lock = lock_file(dir)?;
        remove_unfinished(dir)?;
        let (files, recovered) = Files::open(dir, base)?;
        let log = Self {
            dir: dir.into(),
            waiting: Mutex::default(),
            files: files.into(),
            upkeep: Mutex::default(),
            _lock: lock,
        };
        match log.drop_until(base) {
            Err(Error::Io { source, .. }) if is_full(&source) => {}
            outcome => outcome?,
        }
        Ok((log, recovered))
    }

    /// Keeps a batch; returns when it is on the disk.
    ///
    /// # Errors
    /// [`LogError`]; nothing of it is kept then.
    pub fn append(&self, records: &[Record], key: Option<&Key>) -> Result<Appended, LogError> {
        let mut answers = self.append_all(&[Batch { records, key }]);
        answers.pop().unwrap_or_else(|| Err(self.failed(&"no answer")))
    }

    /// Keeps batches with one sync, each for itself; the answers are in their order.
    pub fn append_all(&self, batches: &[Batch]) -> Vec<Result<Appended, LogError>> {
        let waiting: Vec<_> = batches.iter().map(|batch| Waiting::of(batch).map(Arc::new)).collect();
        lock(&self.waiting).extend(waiting.iter().flatten().cloned());
        let mut files = lock(&self.files);
        // Those that waited for the lock with this call, too. They find their answers when they have it.
        let mut open = std::mem::take(&mut *lock(&self.waiting));
        while !open.is_empty() {
            open = files.write(&self.dir, open);
        }
        drop(files);
        let answer = |waiting: Result<Arc<Waiting>, serde_json::Error>| match waiting {
            Ok(waiting) => waiting.answer.get().cloned().unwrap_or_else(|| Err(self.failed(&"the write was given up"))),
            Err(refused) => Err(self.failed(&refused)),
        };
        waiting.into_iter().map(answer).collect()
    }

    /// The answer to a batch that repeats the key of one that was kept; `None` where none was.
    pub fn repeated(&self, key: &Key) -> Option<Result<Appended, LogError>> {
        let mut files = lock(&self.files);
        files.keys.forget(now());
        files.known(key)
    }

    fn failed(&self, reason: &dyn fmt::Display) -> LogError {
        LogError::Failed { path: self.dir.clone(), reason: reason.to_string() }
    }

    /// Behind the last record.
    pub fn position(&self) -> Position {
        Position(lock(&self.files).next - 1)
    }

    /// Bytes on the disk.
    pub fn bytes(&self) -> u64 {
        let files = lock(&self.files);
        files.complete.iter().chain([&files.last]).map(|segment| segment.bytes).sum()
    }

    /// How often it waited for the disk to write batches.
    pub fn syncs(&self) -> u64 {
        lock(&self.files).syncs
    }

    /// Whether batches are taken: not when a failed write left something that cannot be removed.
    pub fn is_usable(&self) -> bool {
        !lock(&self.files).broken
    }

    /// Gives what `read` makes of the records behind `from` to `each`, in their order, while other threads read on.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Format`] for a record of another program; what `each` reports.
    pub fn replay<T: Send>(
        &self,
        from: Position,
        read: impl Fn(Entry) -> T + Sync,
        mut each: impl FnMut(T) -> Result<()>,
    ) -> Result<()> {
        let _upkeep = lock(&self.upkeep);
        let segments = {
            let files = lock(&self.files);
            let behind = files.complete.iter().chain([&files.last]).filter(|segment| segment.last > from.0);
            behind.cloned().collect::<Vec<_>>()
        };
        for segment in segments {
            let bytes = Segment::read(&segment.path)?;
            let synced = bytes.get(..segment.bytes as usize).unwrap_or(&bytes);
            let mut stored = Vec::new();
            for (_, piece) in pieces(synced) {
                let Piece::Frame(frame) = piece else { continue };
                let records = (frame.first..).zip(frame.records);
                let records = records.filter(|(number, json)| *number > from.0 && !json.is_empty());
                let (path, received) = (&*segment.path, frame.received);
                stored.extend(records.map(|(number, json)| Stored { path, number, received, json }));
            }
            let mut found: Vec<Result<T>> = Vec::new();
            for stored in stored.chunks(READ_AT_ONCE).chain([&[][..]]) {
                let before = std::mem::take(&mut found);
                rayon::in_place_scope(|scope| {
                    scope.spawn(|_| found = stored.par_iter().map(|of| of.read().map(&read)).collect());
                    before.into_iter().try_for_each(|of| each(of?))
                })?;
            }
        }
        Ok(())
    }

    /// Lets the records up to `position` leave, which are in the base now. Keys stay for their time.
    ///
    /// # Errors
    /// [`Error::Io`]; records may have left then, and the call can be repeated.
    pub fn drop_until(&self, position: Position) -> Result<()> {
        let left = |of: &Stored| (of.number > position.0).then(|| of.json.to_vec());
        self.rewrite(&Wanted::Until(position), &mut |of| Ok(left(&of))).map(drop)
    }

    /// Takes out for good what names `node`, but for [`Record::Forget`], and tells how many records did. Records that
    /// come meanwhile are not looked at. The log goes on taking batches.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Format`]. The call can be repeated then.
    pub fn forget(&self, node: &NodeKey, ends: &Ends) -> Result<usize> {
        // Most files and records do not have the id in them: the files stay as they are, and the records are not read.
        let id = serde_json::to_vec(&node.id).map_err(|fault| Error::io(&self.dir, "write", fault.into()))?;
        let id = Finder::new(&id[1..id.len() - 1]);
        self.rewrite(&Wanted::With(&id), &mut |of| {
            if id.find(of.json).is_none() {
                return Ok(Some(of.json.to_vec()));
            }
            let record = of.read()?.record;
            match record.clone().without(node, ends) {
                Some(left) if left == record => Ok(Some(of.json.to_vec())),
                Some(left) => match serde_json::to_vec(&left) {
                    Ok(json) => Ok(Some(json)),
                    Err(fault) => Err(Error::io(of.path, "write", fault.into())),
                },
                None => Ok(None),
            }
        })
    }

    /// Replaces every record of the `wanted` files by what `left` leaves of it; tells how many changed.
    fn rewrite(&self, wanted: &Wanted, left: &mut dyn FnMut(Stored) -> Result<Option<Vec<u8>>>) -> Result<usize> {
        let _upkeep = lock(&self.upkeep);
        // Batches are taken meanwhile.
        let last = lock(&self.files).last.clone();
        let is_wanted = match wanted {
            Wanted::Until(until) => last.first <= until.0,
            Wanted::With(id) => id.find(&Segment::read(&last.path)?).is_some(),
        };
        if last.bytes > 0 && is_wanted {
            let mut files = lock(&self.files);
            if files.last.path == last.path {
                files.roll(&self.dir)?;
            }
        }
        let complete = lock(&self.files).complete.clone();
        let now = now();
        let mut changed = 0;
        for segment in complete {
            let has_key = segment.newest_key.is_some_and(|received| is_kept(received, now));
            let bytes = match wanted {
                Wanted::Until(until) if segment.first > until.0 => continue,
                // What leaves as a whole need not be read.
                Wanted::Until(until) if segment.last <= until.0 && !has_key => Vec::new(),
                Wanted::Until(_) => Segment::read(&segment.path)?,
                Wanted::With(id) => match Segment::read(&segment.path)? {
                    bytes if id.find(&bytes).is_none() => continue,
                    bytes => bytes,
                },
            };
            let mut content = Vec::new();
            let mut after = Segment { newest_key: None, ..segment.clone() };
            let mut is_changed = bytes.is_empty();
            for (_, piece) in pieces(&bytes) {
                let Piece::Frame(mut frame) = piece else {
                    is_changed = true;
                    continue;
                };
                let mut records = Vec::with_capacity(frame.records.len());
                for (number, json) in (frame.first..).zip(&frame.records) {
                    let of = Stored { path: &segment.path, number, received: frame.received, json };
                    let kept = if json.is_empty() { None } else { left(of)? }.unwrap_or_default();
                    changed += usize::from(kept != *json);
                    is_changed |= kept != *json;
                    records.push(kept);
                }
                frame.key = frame.key.filter(|_| is_kept(frame.received, now));
                if frame.key.is_none() && records.iter().all(Vec::is_empty) {
                    is_changed = true;
                    continue;
                }
                frame.records = records.iter().map(Vec::as_slice).collect();
                after.add(&frame);
                frame.write(&mut content);
            }
            if is_changed {
                let old = segment.replace(&content)?;
                after.bytes = content.len() as u64;
                let mut files = lock(&self.files);
                files.complete.retain_mut(|known| {
                    if known.path == segment.path {
                        *known = after.clone();
                    }
                    known.bytes > 0
                });
                drop(files);
                segment.erase(old)?;
            }
        }
        Ok(changed)
    }
}

impl Waiting {
    fn of(batch: &Batch) -> serde_json::Result<Self> {
        let records = batch.records.iter().map(serde_json::to_vec).collect::<serde_json::Result<Vec<_>>>()?;
        Ok(Self { records, key: batch.key.cloned(), answer: OnceLock::new() })
    }

    fn answer(&self, answer: Result<Appended, LogError>) {
        // Nobody else answers.
        let _ = self.answer.set(answer);
    }
}

impl Files {
    /// Reads all files of `dir`; cuts off what is no whole batch at the end.
    fn open(dir: &Path, base: Position) -> Result<(Self, Recovered)> {
        let mut recovered = Recovered::default();
        let (mut complete, mut keys) = (Vec::new(), Keys::default());
        let listed = Segment::list(dir)?;
        let now = now();
        for (at, (first, path)) in listed.iter().enumerate() {
            let bytes = Segment::read(path)?;
            let mut segment = Segment::new(path.clone(), *first, bytes.len());
            for (range, piece) in pieces(&bytes) {
                match piece {
                    Piece::Frame(frame) => {
                        segment.add(&frame);
                        recovered.records += frame.records.iter().filter(|record| !record.is_empty()).count() as u64;
                        let last = Position(frame.last());
                        if let Some(key) = frame.key.filter(|_| is_kept(frame.received, now)) {
                            keys.add(key, frame.received, last);
                        }
                    }
                    Piece::Damage => {
                        let cut = at + 1 == listed.len() && range.end == bytes.len();
                        let range = range.start as u64..range.end as u64;
                        if cut {
                            segment.bytes = range.start;
                            cut_off(path, range.start)?;
                        }
                        recovered.damage.push(Damage { file: path.clone(), bytes: range, cut });
                    }
                }
            }
            complete.push(segment);
        }
        let next = complete.last().map_or(0, |last| last.last).max(base.0) + 1;
        let last = match complete.pop_if(|last| last.last + 1 == next) {
            Some(last) => last,
            None => begin(dir, next)?,
        };
        let open = open_last(&last.path)?;
        Ok((Self { complete, last, open, next, keys, syncs: 0, broken: false }, recovered))
    }

    /// Begins another file.
    fn roll(&mut self, dir: &Path) -> Result<()> {
        let next = begin(dir, self.next)?;
        self.open = open_last(&next.path)?;
        self.complete.push(std::mem::replace(&mut self.last, next));
        Ok(())
    }

    /// What became of the batch with this key, where there was one.
    fn known(&self, key: &Key) -> Option<Result<Appended, LogError>> {
        let (digest, position) = self.keys.get(&key.text)?;
        let known = Appended { position, repeated: true };
        Some((digest == key.digest).then_some(known).ok_or_else(|| LogError::KeyReused(key.text.clone())))
    }

    /// Writes and answers what waits, but those that repeat the key of another one here: they are given back.
    fn write(&mut self, dir: &Path, waiting: Vec<Arc<Waiting>>) -> Vec<Arc<Waiting>> {
        let received = now();
        self.keys.forget(received);
        let (mut content, mut written, mut again) = (Vec::new(), Vec::new(), Vec::new());
        let (mut fresh, mut next) = (HashSet::new(), self.next);
        for batch in waiting {
            if let Some(key) = &batch.key {
                if let Some(known) = self.known(key) {
                    batch.answer(known);
                    continue;
                }
                if !fresh.insert(key.text.clone()) {
                    again.push(batch);
                    continue;
                }
            }
            if batch.records.is_empty() {
                batch.answer(Ok(Appended { position: Position(next - 1), repeated: false }));
                continue;
            }
            let records = batch.records.iter().map(Vec::as_slice).collect();
            Frame { first: next, received, key: batch.key.clone(), records }.write(&mut content);
            next += batch.records.len() as u64;
            written.push((batch, next - 1));
        }
        if written.is_empty() {
            return again;
        }
        let outcome = self.append(dir, &content);
        for (batch, last) in written {
            let position = Position(last);
            if outcome.is_ok() {
                self.last.last = last;
                if let Some(key) = batch.key.clone() {
                    self.last.newest_key = Some(received);
                    self.keys.add(key, received, position);
                }
                self.next = last + 1;
            }
            batch.answer(outcome.clone().map(|()| Appended { position, repeated: false }));
        }
        again
    }

    /// Appends bytes to the last file and syncs it, or leaves it as it was.
    fn append(&mut self, dir: &Path, content: &[u8]) -> Result<(), LogError> {
        let failed = |reason: String| LogError::Failed { path: dir.into(), reason };
        if self.broken {
            return Err(failed("an earlier write failed and could not be undone".into()));
        }
        let outcome = self.append_to_last(dir, content);
        outcome.map_err(|fault| match fault {
            Error::Io { source, .. } if is_full(&source) => LogError::Full(dir.into()),
            Error::Io { source, .. } => failed(source.to_string()),
            other => failed(other.to_string()),
        })
    }

    fn append_to_last(&mut self, dir: &Path, content: &[u8]) -> Result<()> {
        if self.last.bytes >= FULL_SEGMENT {
            self.roll(dir)?;
        }
        self.syncs += 1;
        let written = self.open.write_all(content).and_then(|()| self.open.sync_data());
        if let Err(source) = written {
            self.broken = self.open.set_len(self.last.bytes).and_then(|()| self.open.sync_all()).is_err();
            return Err(Error::io(&self.last.path, "write", source));
        }
        self.last.bytes += content.len() as u64;
        Ok(())
    }
}

impl Stored<'_> {
    fn read(&self) -> Result<Entry> {
        let Self { path, number, received, json } = *self;
        let record = serde_json::from_slice(json).map_err(|fault| {
            let help = "use the version of the program that wrote the log";
            Error::format(path, format!("record {number}"), "a record of this program", fault.to_string(), help)
        })?;
        Ok(Entry { position: Position(number), received, record })
    }
}

/// An empty file for records from `first` on; what is left of one with that name holds no record.
fn begin(dir: &Path, first: u64) -> Result<Segment> {
    let path = Segment::path(dir, first);
    File::create(&path).and_then(|file| file.sync_all()).map_err(|source| Error::io(&path, "create", source))?;
    sync_directory(dir)?;
    Ok(Segment::new(path, first, 0))
}

fn open_last(path: &Path) -> Result<File> {
    File::options().append(true).open(path).map_err(|source| Error::io(path, "open", source))
}

fn cut_off(path: &Path, length: u64) -> Result<()> {
    let cut = File::options().write(true).open(path).and_then(|file| {
        file.set_len(length)?;
        file.sync_all()
    });
    cut.map_err(|source| Error::io(path, "cut", source))
}

/// What one process holds at a time.
struct Lock(File);

impl Drop for Lock {
    /// A child of this process that has not begun its program yet would hold it on.
    fn drop(&mut self) {
        // Closing the file is the other way.
        let _ = self.0.unlock();
    }
}

fn lock_file(dir: &Path) -> Result<Lock> {
    let path = dir.join(LOCK);
    let failed = |source| Error::io(&path, "lock", source);
    let file = File::options().create(true).truncate(false).write(true).open(&path).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => Ok(Lock(file)),
        Err(TryLockError::WouldBlock) => Err(Error::Data {
            what: format!("log {}", dir.display()),
            expected: "one server per state directory".into(),
            found: "another process that has it open".into(),
            help: "stop that process, or give another --state".into(),
        }),
        Err(TryLockError::Error(source)) => Err(failed(source)),
    }
}

/// Removes files that were never finished, however young: nobody else writes here. They hold records, and forgetting
/// does not look for them.
fn remove_unfinished(dir: &Path) -> Result<()> {
    for entry in fs::read_dir(dir).map_err(|source| Error::io(dir, "read", source))? {
        let entry = entry.map_err(|source| Error::io(dir, "read", source))?;
        if is_temporary(&entry.file_name().to_string_lossy()) {
            fs::remove_file(entry.path()).map_err(|source| Error::io(entry.path(), "remove", source))?;
        }
    }
    Ok(())
}

/// A limit of the file size is as a full disk: what is written has no room.
pub(super) fn is_full(fault: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(fault.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Seconds since 1970.
fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64)
}
