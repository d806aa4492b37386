//! Directories that appear as a whole.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::formats::{parent_of, sync_directory, temporary};
use crate::error::{Error, Result};

/// Lets `fill` write the files of a new directory under a temporary name beside `dir`, which is renamed when all went
/// well: `dir` is complete or absent. Returns the paths of the files that `fill` names.
///
/// # Errors
/// [`Error::Exists`] unless `dir` is absent or an empty directory; [`Error::Io`]; what `fill` reports.
pub(crate) fn write_directory(dir: &Path, fill: impl FnOnce(&Path) -> Result<Vec<String>>) -> Result<Vec<PathBuf>> {
    refuse_existing(dir)?;
    let parent = parent_of(dir);
    fs::create_dir_all(parent).map_err(|source| Error::io(parent, "create", source))?;
    let failed = |source| Error::io(dir, "write", source);
    let building = temporary(0o777).tempdir_in(parent).map_err(failed)?;
    let names = fill(building.path())?;
    sync_directory(building.path())?;
    // Renaming onto an empty directory replaces it, onto any other one fails: nothing is ever overwritten.
    if cfg!(windows) && dir.exists() {
        fs::remove_dir(dir).map_err(failed)?;
    }
    fs::rename(building.path(), dir).or_else(|source| refuse_existing(dir).and(Err(failed(source))))?;
    let _ = building.keep();
    sync_directory(parent)?;
    Ok(names.into_iter().map(|name| dir.join(name)).collect())
}

fn refuse_existing(dir: &Path) -> Result<()> {
    let exists = match fs::read_dir(dir) {
        Ok(mut entries) => entries.next().is_some(),
        Err(source) => source.kind() != io::ErrorKind::NotFound,
    };
    if !exists {
        return Ok(());
    }
    Err(Error::Exists { path: dir.into(), help: "choose another directory, or remove this one yourself".into() })
}
