//! The marketplace of a run that finds no data.

use std::fs;
use std::path::Path;

use super::{SynthConfig, generate};
use crate::error::{Error, Result};

/// Makes the marketplace of `config` at `dir`, unless there is anything already, and says so. Of two processes that do
/// this at once one makes the directory, as a whole, and the other one takes it. Returns whether it was made here.
///
/// # Errors
/// As for [`generate`]; [`Error::Io`] when the directory cannot be written.
pub fn provide(dir: &Path, config: &SynthConfig, progress: &dyn Fn(&'static str, u64, u64)) -> Result<bool> {
    if !is_absent(dir) {
        return Ok(false);
    }
    match generate(config, progress)?.write(dir) {
        Ok(_) => {
            let (nodes, seed) = (config.num_nodes(), config.seed);
            log::info!(
                "no data at {}: made a synthetic marketplace of {nodes} nodes there, seed {seed}",
                dir.display()
            );
            Ok(true)
        }
        Err(Error::Exists { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether nothing or an empty directory is at `dir`.
fn is_absent(dir: &Path) -> bool {
    match fs::read_dir(dir) {
        Ok(mut entries) => entries.next().is_none(),
        Err(_) => fs::symlink_metadata(dir).is_err(),
    }
}
