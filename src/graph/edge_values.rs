//! Weights and times of edges: raw little-endian arrays beside the adjacency, read when they are asked for.

use std::borrow::Cow;
use std::fs;
use std::io::Write;
use std::path::PathBuf;

use super::formats::{map_file, write_new};
use crate::error::{Error, Result};

/// Weights and times of the edges of one relation, one per entry in the order of `col_idx`.
#[derive(Debug, Clone, PartialEq)]
pub struct EdgeValues {
    /// Name of the relation.
    pub relation: String,
    /// Weight of each entry.
    pub weight: Option<Values<f32>>,
    /// Time of each entry, in seconds since 1970.
    pub time: Option<Values<i64>>,
}

/// Values that were made, or the file that holds them.
#[derive(Debug, Clone, PartialEq)]
pub enum Values<T> {
    /// In memory.
    Made(Vec<T>),
    /// In a file of raw values, not read yet.
    File(PathBuf),
}

impl<T: bytemuck::Pod> Values<T> {
    /// All values, of a relation of `entries` edges.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Format`] for a file of another length, [`Error::Data`] for values of another number.
    pub fn read(&self, entries: usize) -> Result<Cow<'_, [T]>> {
        match self {
            Self::Made(values) if values.len() == entries => Ok(Cow::Borrowed(values)),
            Self::Made(values) => Err(Error::Data {
                what: "values of edges".into(),
                expected: format!("{entries}, one per edge"),
                found: values.len().to_string(),
                help: "give every edge of the relation one value".into(),
            }),
            Self::File(path) => {
                let bytes = entries as u64 * size_of::<T>() as u64;
                let found = fs::metadata(path).map_err(|source| Error::io(path, "read", source))?.len();
                if found != bytes {
                    let expected = format!("{bytes} bytes: {entries} edges x {} bytes", size_of::<T>());
                    let help = "the file is truncated or belongs to another relation; write the directory again";
                    return Err(Error::format(path, "file length", expected, format!("{found} bytes"), help));
                }
                Ok(Cow::Owned(bytemuck::pod_collect_to_vec(&map_file(path)?)))
            }
        }
    }

    /// Writes the raw values to a new file.
    pub(super) fn write(&self, path: &std::path::Path, entries: usize) -> Result<()> {
        let values = self.read(entries)?;
        write_new(path, |file| file.write_all(bytemuck::cast_slice(&values)))
    }
}
