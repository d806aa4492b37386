//! Directories that appear as a whole.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::formats::{hold, parent_of, remove_leftovers, sync_directory, temporary};
use crate::error::{Error, Result};

/// Lets `fill` write the files of a new directory under a temporary name beside `dir`, which is renamed when all went
/// well: `dir` is complete or absent. Returns the paths of the files that `fill` names.
///
/// # Errors
/// [`Error::Exists`] unless `dir` is absent or an empty directory; [`Error::Io`]; what `fill` reports.
pub(crate) fn write_directory(dir: &Path, fill: impl FnOnce(&Path) -> Result<Vec<String>>) -> Result<Vec<PathBuf>> {
    refuse_existing(dir, "choose another directory, or remove this one yourself")?;
    let parent = parent_of(dir);
    fs::create_dir_all(parent).map_err(|source| Error::io(parent, "create", source))?;
    let failed = |source| Error::io(dir, "write", source);
    remove_leftovers(parent);
    let (building, _held) = loop {
        let building = temporary(0o777).tempdir_in(parent).map_err(failed)?;
        // Windows opens no directory: there nothing is held, and nothing left over is removed.
        let open = File::open(building.path()).ok();
        if open.as_ref().is_none_or(|open| hold(open, building.path())) {
            break (building, open);
        }
    };
    let names = fill(building.path())?;
    sync_directory(building.path())?;
    // Renaming onto an empty directory replaces it, onto any other one fails: nothing is ever overwritten.
    if cfg!(windows) && dir.exists() {
        fs::remove_dir(dir).map_err(failed)?;
    }
    fs::rename(building.path(), dir).or_else(|source| {
        let help = "another process has made it in the meantime: use that one, or choose another directory";
        refuse_existing(dir, help).and(Err(failed(source)))
    })?;
    let _ = building.keep();
    // A caller that hears of an error finds nothing.
    sync_directory(parent).inspect_err(|_| drop(fs::remove_dir_all(dir)))?;
    Ok(names.into_iter().map(|name| dir.join(name)).collect())
}

fn refuse_existing(dir: &Path, help: &str) -> Result<()> {
    let exists = match fs::read_dir(dir) {
        Ok(mut entries) => entries.next().is_some(),
        Err(source) => source.kind() != io::ErrorKind::NotFound,
    };
    if !exists {
        return Ok(());
    }
    Err(Error::Exists { path: dir.into(), help: help.into() })
}
