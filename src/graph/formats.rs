//! Files of the data directory: atomic writes, checked memory maps, adjacency as raw little-endian arrays.
//!
//! `{stem}_row_ptr.bin` holds rows + 1 offsets as i32 (as i64 when there are more than `i32::MAX` edges; readers tell
//! the two apart by the file length), `{stem}_col_idx.bin` the source ids as i32. Rows as spans have a start and an end
//! each, in `{stem}_row_start.bin` and `{stem}_row_end.bin`, of the same two types.

mod spans;

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::ops::Range;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use memmap2::Mmap;
use rayon::prelude::*;

use super::adjacency::{Adjacency, accumulate, for_each_row_mut};
use super::array::Array;
use crate::error::{Error, Result};

#[cfg(target_endian = "big")]
compile_error!("graph files are mapped as little-endian arrays; a big-endian target needs a converting reader");

/// File name of the features unless a manifest names another.
pub(super) const FEATURES_FILE: &str = "X_combined.memmap";

/// Writes `path` through a temporary file beside it, which is synced and renamed when `write` succeeded.
///
/// Readers see the old content or the new one, never a part; on an error nothing is left behind. An existing file is
/// replaced, so callers that must not overwrite check first. Missing parent directories are created.
///
/// # Errors
/// [`Error::Io`] with `path` when the directory, the file or `write` fails.
pub fn atomic_write(path: impl AsRef<Path>, write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) -> Result<()> {
    let path = path.as_ref();
    let failed = |source| Error::io(path, "write", source);
    let parent = parent_of(path);
    fs::create_dir_all(parent).map_err(|source| Error::io(parent, "create", source))?;
    let (file, temporary) = loop {
        let (file, temporary) = temporary(0o666).tempfile_in(parent).map_err(failed)?.into_parts();
        if hold(&file, &temporary) {
            break (file, temporary);
        }
    };
    // Held until it has its name.
    let _held = file.try_clone();
    fill(file, write).map_err(failed)?;
    temporary.persist(path).map_err(|refused| failed(refused.error))?;
    sync_directory(parent)
}

/// Writes a new file and syncs it, for directories that appear as a whole.
pub(crate) fn write_new(path: &Path, write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) -> Result<()> {
    File::create_new(path).and_then(|file| fill(file, write)).map_err(|source| Error::io(path, "write", source))
}

fn fill(file: File, write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) -> io::Result<()> {
    let mut writer = BufWriter::with_capacity(1 << 20, file);
    write(&mut writer)?;
    writer.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()
}

/// Lets the disk have what `write` has written to a long file while it writes on, so that less is left for the end.
pub(crate) fn synced_meanwhile(file: &File, write: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    let (end, ended) = mpsc::channel::<()>();
    thread::scope(|scope| {
        // What the disk refuses is told here, and not again at the end.
        let synced = scope.spawn(move || {
            while let Err(mpsc::RecvTimeoutError::Timeout) = ended.recv_timeout(Duration::from_millis(20)) {
                file.sync_data()?;
            }
            Ok(())
        });
        let written = write();
        drop(end);
        let synced = synced.join().unwrap_or_else(|panic| resume_unwind(panic));
        written.and(synced)
    })
}

/// Directory of `path`; the working directory for a bare name.
pub(crate) fn parent_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// How temporary names begin and end.
const TEMPORARY: [&str; 2] = [".graphsieve-", ".tmp"];

/// So long ago something was written last to what is left over.
const LEFT_FOR: Duration = Duration::from_secs(24 * 60 * 60);

/// Whether it is a temporary name of this program.
pub(crate) fn is_temporary(name: &str) -> bool {
    name.starts_with(TEMPORARY[0]) && name.ends_with(TEMPORARY[1])
}

/// Locks what was made under a temporary name, until its process ends: what is locked is not left over. False where
/// another process took it for that before it was locked, and removed it. Where there are no locks its age alone says
/// that it is in use.
pub(crate) fn hold(made: &File, path: &Path) -> bool {
    let _ = made.lock();
    let is_there = path.exists();
    let mut own = OWN.lock().unwrap_or_else(PoisonError::into_inner);
    own.retain(|path| path.exists());
    own.extend(is_there.then(|| path.to_owned()));
    is_there
}

/// What this process has under temporary names.
static OWN: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Removes what this process has under temporary names, right before it ends. What gets its name at the same moment
/// keeps it whole: a directory that is removed has another name first.
pub(crate) fn remove_own() {
    for path in OWN.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
        let ended = path.with_extension("ended.tmp");
        let removed = fs::rename(&path, &ended).and_then(|()| match ended.is_dir() {
            true => fs::remove_dir_all(&ended),
            false => fs::remove_file(&ended),
        });
        // Whoever wrote it may have been faster.
        let _ = removed;
    }
}

/// Removes what processes that were killed left under temporary names in `directory`: what nobody holds, and nobody
/// wrote to for a day, as not every file system tells other machines of a lock. What cannot be removed stays.
pub(crate) fn remove_leftovers(directory: &Path) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let (Some(name), Ok(kind)) = (entry.file_name().to_str().map(str::to_owned), entry.file_type()) else {
            continue;
        };
        if !is_temporary(&name) || !(kind.is_dir() || kind.is_file()) {
            continue;
        }
        let path = entry.path();
        let Ok(left) = File::open(&path) else { continue };
        if left.try_lock().is_err() || !is_untouched(&path) {
            continue;
        }
        let removed = if kind.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        // Locked until it is gone: its maker may wait to hold it.
        drop(left);
        if removed.is_ok() {
            log::info!("removed {}, which a process that was killed had left", path.display());
        }
    }
}

/// Whether nothing was written for a day to a file, or to a directory and what is in it.
fn is_untouched(path: &Path) -> bool {
    let Ok(found) = fs::symlink_metadata(path) else { return false };
    let is_old = found.modified().is_ok_and(|last| last.elapsed().is_ok_and(|age| age > LEFT_FOR));
    is_old && (!found.is_dir() || fs::read_dir(path).into_iter().flatten().flatten().all(|of| is_untouched(&of.path())))
}

/// A builder of hidden temporary names; `mode` is narrowed by the process's umask, as for any new file.
pub(crate) fn temporary(mode: u32) -> tempfile::Builder<'static, 'static> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(TEMPORARY[0]).suffix(TEMPORARY[1]);
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(mode));
    #[cfg(not(unix))]
    let _ = mode;
    builder
}

/// Makes a rename inside `directory` survive a power cut.
pub(crate) fn sync_directory(directory: &Path) -> Result<()> {
    #[cfg(unix)]
    File::open(directory).and_then(|d| d.sync_all()).map_err(|source| Error::io(directory, "sync", source))?;
    #[cfg(not(unix))]
    let _ = directory;
    Ok(())
}

/// Whether there is something under this name, be it a link to nowhere: what is there but unreadable is an error, not
/// an absent optional file.
pub(crate) fn is_present(path: &Path) -> bool {
    !matches!(fs::symlink_metadata(path), Err(source) if source.kind() == io::ErrorKind::NotFound)
}

/// Maps a regular file for reading.
pub(crate) fn map_file(path: &Path) -> Result<Mmap> {
    let failed = |source| Error::io(path, "read", source);
    // Asked first: opening a pipe would block.
    let metadata = fs::metadata(path).map_err(failed)?;
    if metadata.is_dir() {
        return Err(failed(io::ErrorKind::IsADirectory.into()));
    }
    if !metadata.is_file() {
        return Err(failed(io::Error::other("not a regular file")));
    }
    let file = File::open(path).map_err(failed)?;
    log::debug!("reading {}, {} bytes", path.display(), metadata.len());
    // SAFETY: the map is read-only. Like every program that maps its inputs, this one relies on nobody truncating a
    // data file while it is open.
    unsafe { Mmap::map(&file) }.map_err(failed)
}

/// Maps a file without a name, which nobody else can open.
pub(super) fn map_unnamed(file: &File) -> io::Result<Mmap> {
    // SAFETY: the map is read-only, and nobody writes the file any more.
    unsafe { Mmap::map(file) }
}

/// Where the rows of an adjacency lie in its entries.
pub(crate) enum RowFiles {
    /// One behind another.
    Lists(PathBuf),
    /// Each with a start and an end, in a file each.
    Spans([PathBuf; 2]),
}

/// Where an adjacency lies and how its ids are to be read.
pub(crate) struct AdjacencyFiles<'a> {
    pub rows: RowFiles,
    pub col_idx: PathBuf,
    /// Name and number of the destination nodes.
    pub dst: (&'a str, usize),
    /// Name of the source type.
    pub src: &'a str,
    /// Ids that the source type has in the file: global or local.
    pub src_ids: Range<usize>,
    /// Global id of the first row when the file holds global ids, in which every row may carry its own.
    pub first_row_id: Option<usize>,
}

impl AdjacencyFiles<'_> {
    /// Reads and sanitises: entries that are the row's own global id outside the source type's range are dropped.
    /// Returns the adjacency (ids local to the source type) and the number of dropped entries.
    ///
    /// Where the file holds local ids and nothing is dropped, its entries stay there and are mapped after a pass that
    /// checks them; otherwise a second pass converts them.
    pub fn read(&self) -> Result<(Adjacency, usize)> {
        match &self.rows {
            RowFiles::Lists(path) => self.read_lists(path),
            RowFiles::Spans([start, end]) => Ok((self.read_spans(start, end)?, 0)),
        }
    }

    fn read_lists(&self, path: &Path) -> Result<(Adjacency, usize)> {
        let (row_ptr, map) = self.map_lists(path)?;
        let entries: &[i32] = bytemuck::cast_slice(&map);
        let mut kept_ptr = self.kept(&row_ptr, entries)?;
        accumulate(&mut kept_ptr);
        if self.src_ids.start == 0 && kept_ptr == row_ptr {
            // Ids below the number of nodes are the same as i32 and as u32.
            return Ok((Adjacency::lists_of(kept_ptr, Array::mapped(map), self.src_ids.len()), 0));
        }

        let mut col_idx = vec![0u32; kept_ptr.last().copied().unwrap_or(0) as usize];
        for_each_row_mut(&kept_ptr, &mut col_idx, &|row, kept| {
            let found = &entries[row_ptr[row] as usize..row_ptr[row + 1] as usize];
            for (slot, local) in kept.iter_mut().zip(found.iter().filter_map(|&id| self.local(id))) {
                *slot = local;
            }
        });
        let removed = entries.len() - col_idx.len();
        Ok((Adjacency::from_checked(kept_ptr, col_idx, self.src_ids.len()), removed))
    }

    /// Where rows that are lists start, and their entries.
    fn map_lists(&self, path: &Path) -> Result<(Vec<u64>, Mmap)> {
        let row_ptr = self.read_row_ptr(path)?;
        let map = map_file(&self.col_idx)?;
        let end = row_ptr.last().copied().unwrap_or(0);
        match map.len() as u64 == end.saturating_mul(4) {
            true => Ok((row_ptr, map)),
            false => Err(self.wrong_col_idx_length(path, end, map.len())),
        }
    }

    /// The number of a node within the source type, of an id of it.
    fn local(&self, id: i32) -> Option<u32> {
        let local = i64::from(id) - self.src_ids.start as i64;
        (0..self.src_ids.len() as i64).contains(&local).then_some(local as u32)
    }

    /// How many entries every row keeps, behind a 0.
    fn kept(&self, row_ptr: &[u64], entries: &[i32]) -> Result<Vec<u64>> {
        let is_own = |id: i32, row: usize| self.first_row_id.is_some_and(|first| i64::from(id) == (first + row) as i64);
        let first_bad = AtomicU64::new(u64::MAX);
        let rows = self.dst.1;
        let mut kept_ptr = Vec::with_capacity(rows + 1);
        kept_ptr.push(0u64);
        kept_ptr.par_extend((0..rows).into_par_iter().with_min_len(256).map(|row| {
            let start = row_ptr[row];
            let mut kept = 0;
            for (at, &id) in entries[start as usize..row_ptr[row + 1] as usize].iter().enumerate() {
                if self.local(id).is_some() {
                    kept += 1;
                } else if !is_own(id, row) {
                    first_bad.fetch_min(start + at as u64, Relaxed);
                    break;
                }
            }
            kept
        }));
        match first_bad.into_inner() {
            u64::MAX => Ok(kept_ptr),
            bad => Err(self.id_out_of_range(row_ptr, bad, entries[bad as usize])),
        }
    }

    /// Degrees of the destinations and, where they are asked for and rows are lists, of the sources, as they are once
    /// read; and the number of entries. Source ids are read only where they have to be.
    pub fn degrees(&self, of_sources: bool) -> Result<([Vec<u64>; 2], u64)> {
        let path = match &self.rows {
            RowFiles::Lists(path) => path,
            RowFiles::Spans([start, end]) => {
                let (start, end) = (self.read_offsets(start, 0)?, self.read_offsets(end, 0)?);
                let length = |(start, end): (i64, i64)| u64::try_from(end - start).unwrap_or(0);
                let degrees = start.into_iter().zip(end).map(length).collect();
                return Ok(([degrees, Vec::new()], map_file(&self.col_idx)?.len() as u64 / 4));
            }
        };
        let drops = self.first_row_id.is_some_and(|first| !self.src_ids.contains(&first));
        if !of_sources && !drops {
            let row_ptr = self.read_row_ptr(path)?;
            let degrees = row_ptr.windows(2).map(|ends| ends[1] - ends[0]).collect();
            return Ok(([degrees, Vec::new()], row_ptr.last().copied().unwrap_or(0)));
        }
        let (row_ptr, map) = self.map_lists(path)?;
        let entries: &[i32] = bytemuck::cast_slice(&map);
        let kept = self.kept(&row_ptr, entries)?.split_off(1);
        let sources: Vec<AtomicU64> = match of_sources {
            true => self.src_ids.clone().map(|_| AtomicU64::new(0)).collect(),
            false => Vec::new(),
        };
        if of_sources {
            let ids = entries.par_iter().with_min_len(1 << 16).filter_map(|&id| self.local(id));
            ids.for_each(|source| {
                sources[source as usize].fetch_add(1, Relaxed);
            });
        }
        let edges = kept.iter().sum();
        Ok(([kept, sources.into_iter().map(AtomicU64::into_inner).collect()], edges))
    }

    /// Offsets into the entries: one for each row and `more`.
    fn read_offsets(&self, path: &Path, more: u64) -> Result<Vec<i64>> {
        let map = map_file(path)?;
        let (dst, rows) = self.dst;
        let length = rows as u64 + more;
        let bytes = map.len() as u64;
        if bytes == length * 4 {
            let values = bytemuck::cast_slice::<u8, i32>(&map).par_iter().with_min_len(1 << 14);
            return Ok(values.map(|&value| i64::from(value)).collect());
        }
        if bytes == length * 8 {
            return Ok(bytemuck::cast_slice::<u8, i64>(&map).to_vec());
        }
        let other = if bytes >= 4 * more && bytes > 0 && bytes.is_multiple_of(4) {
            format!("as i32 it would fit {} `{dst}` nodes; check the node counts", bytes / 4 - more)
        } else {
            "the file is truncated or holds something else".into()
        };
        Err(Error::format(
            path,
            "file length",
            format!("{} bytes (i32) or {} (i64) for {rows} `{dst}` rows", length * 4, length * 8),
            format!("{bytes} bytes"),
            format!("{other}; write the directory again if it is damaged"),
        ))
    }

    fn read_row_ptr(&self, path: &Path) -> Result<Vec<u64>> {
        let values = self.read_offsets(path, 1)?;
        if values[0] != 0 {
            return Err(Error::format(path, "row 0", "a start of 0", values[0].to_string(), ROW_PTR_HELP));
        }
        if let Some(row) = values.par_windows(2).with_min_len(1 << 14).position_first(|pair| pair[1] < pair[0]) {
            return Err(Error::format(
                path,
                format!("row {row}"),
                format!("an end of at least {}, its start", values[row]),
                values[row + 1].to_string(),
                ROW_PTR_HELP,
            ));
        }
        // Not negative: the first is 0 and none is below the one before it. `collect` reuses the allocation.
        Ok(values.into_iter().map(|value| value as u64).collect())
    }

    fn wrong_col_idx_length(&self, row_ptr: &Path, end: u64, bytes: usize) -> Error {
        let found = if bytes.is_multiple_of(4) {
            format!("{} entries ({bytes} bytes)", bytes / 4)
        } else {
            format!("{bytes} bytes, not a multiple of 4")
        };
        Error::format(
            &self.col_idx,
            "file length",
            format!("{end} entries ({} bytes), the last value of {}", end.saturating_mul(4), row_ptr.display()),
            found,
            "the two files belong together: one of them is truncated or comes from another run",
        )
    }

    fn id_out_of_range(&self, row_ptr: &[u64], entry: u64, id: i32) -> Error {
        let row = row_ptr.partition_point(|&start| start <= entry) - 1;
        let own = self.first_row_id.map_or_else(String::new, |first| format!(" (or the row's own id {})", first + row));
        Error::format(
            &self.col_idx,
            format!("entry {entry}, row {row}"),
            format!("a `{}` id in [{}, {}){own}", self.src, self.src_ids.start, self.src_ids.end),
            format!("id out of range: {id}"),
            "check the node counts, the source type, and whether ids are \"global\" or \"local\" in graph.toml",
        )
    }
}

const ROW_PTR_HELP: &str = "row_ptr starts at 0 and never decreases; the file is damaged or not a row_ptr";

pub(crate) use spans::write_spans;

/// Writes both files of an adjacency with lists, without a temporary name: for directories that appear as a whole.
///
/// `src_offset` is added to every id. With `own_ids = Some(first)` row `i` also gets the entry `first + i`, its own
/// global id, in sorted position, unless it holds that entry already.
pub(crate) fn write_lists(
    paths: [&Path; 2],
    adjacency: &Adjacency,
    src_offset: usize,
    own_ids: Option<usize>,
) -> Result<()> {
    let [row_ptr_path, col_idx_path] = paths;
    let largest = (src_offset + adjacency.num_cols()).max(own_ids.unwrap_or(0) + adjacency.num_rows());
    check_ids(largest, col_idx_path)?;
    let own_id = |row: usize| {
        let own = own_ids? + row;
        let held = own.checked_sub(src_offset).is_some_and(|id| adjacency.row(row).contains(&(id as u32)));
        (!held).then_some(own as i32)
    };
    let rows = 0..adjacency.num_rows();
    let added: usize = rows.clone().into_par_iter().with_min_len(256).filter(|&row| own_id(row).is_some()).count();
    let wide = adjacency.num_edges() + added > i32::MAX as usize;

    write_new(row_ptr_path, |file| {
        let mut end = 0u64;
        put_offset(file, 0, wide)?;
        for row in rows.clone() {
            end += adjacency.degree(row) as u64 + u64::from(own_id(row).is_some());
            put_offset(file, end, wide)?;
        }
        Ok(())
    })?;
    write_new(col_idx_path, |file| {
        let mut ids: Vec<i32> = Vec::new();
        if own_ids.is_none() && !adjacency.is_spans() {
            // Rows lie one behind another.
            for cols in adjacency.entry_array().pieces().flat_map(|piece| piece.chunks(1 << 14)) {
                ids.clear();
                ids.extend(cols.iter().map(|&col| (col as usize + src_offset) as i32));
                file.write_all(bytemuck::cast_slice(&ids))?;
            }
            return Ok(());
        }
        for row in rows.clone() {
            ids.clear();
            ids.extend(adjacency.row(row).iter().map(|&col| (col as usize + src_offset) as i32));
            if let Some(own) = own_id(row) {
                ids.insert(ids.partition_point(|&id| id < own), own);
            }
            file.write_all(bytemuck::cast_slice(&ids))?;
        }
        Ok(())
    })
}

/// Whether the ids of a file are below 2^31.
fn check_ids(largest: usize, path: &Path) -> Result<()> {
    if largest <= i32::MAX as usize {
        return Ok(());
    }
    Err(Error::Data {
        what: format!("ids for {}", path.display()),
        expected: format!("at most {}, the files hold i32", i32::MAX),
        found: largest.to_string(),
        help: "split the graph; the file format of the original ends here".into(),
    })
}

/// Writes an offset into entries, in eight bytes where four do not hold all of them.
fn put_offset(file: &mut impl Write, value: u64, wide: bool) -> io::Result<()> {
    if wide { file.write_all(&value.to_le_bytes()) } else { file.write_all(&(value as u32).to_le_bytes()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn i32s(path: &Path) -> Vec<i32> {
        fs::read(path).unwrap().chunks_exact(4).map(|b| i32::from_le_bytes(b.try_into().unwrap())).collect()
    }

    fn names_in(dir: &Path) -> Vec<String> {
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn what_a_disk_refuses_while_a_file_is_written_is_an_error() {
        let file = tempfile::tempfile().unwrap();
        let write = |file: &File, ends: io::Result<()>| {
            synced_meanwhile(file, || {
                thread::sleep(Duration::from_millis(60));
                ends
            })
        };
        write(&file, Ok(())).unwrap();
        assert_eq!(write(&file, Err(io::Error::other("no more"))).unwrap_err().to_string(), "no more");
        // No disk is behind it.
        #[cfg(target_os = "linux")]
        assert_eq!(write(&File::open("/dev/null").unwrap(), Ok(())).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn a_failed_write_leaves_the_old_content_and_no_temporary_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sub/scores.csv");
        atomic_write(&path, |file| file.write_all(b"old")).unwrap();
        let error = atomic_write(&path, |file| {
            file.write_all(b"new, but")?;
            Err(io::Error::other("no more"))
        });
        assert!(error.unwrap_err().to_string().contains("scores.csv: cannot write: no more"));
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(names_in(&dir.path().join("sub")), ["scores.csv"]);
    }

    #[test]
    #[cfg(unix)]
    fn written_files_are_readable_like_ordinary_ones() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let (plain, atomic) = (dir.path().join("plain"), dir.path().join("atomic"));
        fs::write(&plain, "").unwrap();
        atomic_write(&atomic, |_| Ok(())).unwrap();
        let mode = |path| fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode(atomic), mode(plain));
    }

    #[test]
    fn row_starts_of_eight_bytes_are_read_as_i64_and_entries_stay_in_their_file() {
        let dir = tempfile::tempdir().unwrap();
        let (row_ptr, col_idx) = (dir.path().join("r"), dir.path().join("c"));
        fs::write(&row_ptr, [0i64, 2, 3].map(i64::to_le_bytes).concat()).unwrap();
        fs::write(&col_idx, [1i32, 0, 1].map(i32::to_le_bytes).concat()).unwrap();
        let rows = RowFiles::Lists(row_ptr);
        let files = AdjacencyFiles { rows, col_idx, dst: ("a", 2), src: "b", src_ids: 0..2, first_row_id: None };
        let (adjacency, removed) = files.read().unwrap();
        assert!(adjacency.entry_array().is_mapped());
        assert_eq!((adjacency, removed), (Adjacency::new(vec![0, 2, 3], vec![1, 0, 1], 2).unwrap(), 0));
    }

    #[test]
    fn own_ids_are_written_in_sorted_position_and_never_twice() {
        let dir = tempfile::tempdir().unwrap();
        let written = |name: &str, adjacency: &Adjacency, src_offset, own| {
            let paths = ["r", "c"].map(|part| dir.path().join(format!("{name}{part}")));
            write_lists([&paths[0], &paths[1]], adjacency, src_offset, own).unwrap();
            paths.map(|path| i32s(&path))
        };
        let bipartite = Adjacency::from_edges(2, 3, &[(0, 0), (0, 2)]);
        assert_eq!(written("a", &bipartite, 2, Some(0)), [vec![0, 3, 4], vec![0, 2, 4, 1]]);
        assert_eq!(written("b", &bipartite, 0, Some(3)), [vec![0, 3, 4], vec![0, 2, 3, 4]]);
        let square = Adjacency::from_edges(2, 2, &[(0, 0), (0, 1), (1, 0)]);
        assert_eq!(written("c", &square, 0, Some(0)), [vec![0, 2, 4], vec![0, 1, 0, 1]]);
        assert_eq!(written("d", &square, 0, None), [vec![0, 2, 3], vec![0, 1, 0]]);
    }
}
