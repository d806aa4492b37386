//! Raw node features: one row per node, f16 (owned or memory-mapped) or f32.

use std::borrow::Cow;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use half::f16;
use memmap2::Mmap;

use super::formats::{map_file, write_new};
use super::npy::first_non_finite;
use crate::error::{Error, Result};

/// Node features `[num_rows, dim]`, row-major; row = global node id. Clones share the values.
#[derive(Clone, Debug)]
pub struct Features {
    storage: Storage,
    rows: usize,
    dim: usize,
}

#[derive(Clone, Debug)]
enum Storage {
    Owned(Arc<Vec<f16>>),
    Mapped(Arc<Mmap>),
    Single(Arc<Vec<f32>>),
}

/// All values as they are stored, row-major.
#[derive(Debug, Clone, Copy)]
pub enum FeatureValues<'a> {
    /// As data directories hold them.
    Half(&'a [f16]),
    /// As `.npz` files hold them.
    Single(&'a [f32]),
}

impl Features {
    /// Takes over `rows * dim` values.
    ///
    /// # Panics
    /// When there are more or fewer values.
    pub fn from_vec(values: Vec<f16>, rows: usize, dim: usize) -> Self {
        assert_eq!(Some(values.len()), rows.checked_mul(dim), "features: expected {rows} x {dim} values");
        Self { storage: Storage::Owned(Arc::new(values)), rows, dim }
    }

    /// Takes over `rows * dim` values that f16 could not hold exactly.
    ///
    /// # Panics
    /// When there are more or fewer values.
    pub fn from_f32(values: Vec<f32>, rows: usize, dim: usize) -> Self {
        assert_eq!(Some(values.len()), rows.checked_mul(dim), "features: expected {rows} x {dim} values");
        Self { storage: Storage::Single(Arc::new(values)), rows, dim }
    }

    /// Maps a raw f16 file and checks its length and that every value is finite.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Format`] for a wrong length (naming what would fit) or a value that is not finite.
    pub fn open(path: &Path, rows: usize, dim: usize) -> Result<Self> {
        let map = map_file(path)?;
        let row_bytes = (dim as u128) * 2;
        let expected = rows as u128 * row_bytes;
        if map.len() as u128 != expected {
            return Err(wrong_length(path, rows, dim, expected, map.len()));
        }
        let features = Self { storage: Storage::Mapped(Arc::new(map)), rows, dim };
        let values = features.as_f16();
        match first_non_finite(&values, |value| value.to_bits() & 0x7c00 == 0x7c00) {
            None => Ok(features),
            Some(at) => Err(Error::format(
                path,
                format!("row {}, column {}", at / dim, at % dim),
                "a finite number",
                values[at].to_string(),
                "replace missing values before writing features; f16 ends at 65504, so scale larger ones",
            )),
        }
    }

    /// Number of nodes.
    pub fn num_rows(&self) -> usize {
        self.rows
    }

    /// Number of columns.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// All values as they are stored.
    pub fn values(&self) -> FeatureValues<'_> {
        match &self.storage {
            Storage::Owned(values) => FeatureValues::Half(values),
            Storage::Mapped(map) => FeatureValues::Half(bytemuck::cast_slice(map)),
            Storage::Single(values) => FeatureValues::Single(values),
        }
    }

    /// All values in f16, rounded where they are stored as f32.
    pub fn as_f16(&self) -> Cow<'_, [f16]> {
        match self.values() {
            FeatureValues::Half(values) => Cow::Borrowed(values),
            FeatureValues::Single(values) => values.iter().map(|&value| f16::from_f32(value)).collect(),
        }
    }

    /// The features of one node.
    ///
    /// # Panics
    /// When `node` is not below [`num_rows`](Self::num_rows).
    pub fn row(&self, node: usize) -> impl Iterator<Item = f32> + '_ {
        let range = node * self.dim..(node + 1) * self.dim;
        let (half, single) = match self.values() {
            FeatureValues::Half(values) => (&values[range], &[][..]),
            FeatureValues::Single(values) => (&[][..], &values[range]),
        };
        half.iter().map(|value| value.to_f32()).chain(single.iter().copied())
    }

    /// Writes the raw values in f16 to a new file.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Data`] for a value that f16 cannot hold.
    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        let values = self.as_f16();
        if let Some(at) = values.iter().position(|value| !value.is_finite()) {
            return Err(Error::Data {
                what: format!("feature of row {}, column {}", at / self.dim, at % self.dim),
                expected: "at most 65504, the largest number of f16".into(),
                found: values[at].to_string(),
                help: "scale the features".into(),
            });
        }
        write_new(path, |file| file.write_all(bytemuck::cast_slice(&values)))
    }
}

fn wrong_length(path: &Path, rows: usize, dim: usize, expected: u128, found: usize) -> Error {
    let found_wide = found as u128;
    let fits = |unit: u128| (unit > 0 && found > 0 && found_wide.is_multiple_of(unit)).then(|| found_wide / unit);
    let help = match (fits(rows as u128 * 2), fits(dim as u128 * 2)) {
        (Some(columns), _) => {
            format!("{columns} columns would fit: set dim = {columns} under [features] in graph.toml")
        }
        (None, Some(nodes)) => format!("{nodes} nodes of {dim} columns would fit: check the node counts"),
        (None, None) => "the file is truncated, or not raw f16".into(),
    };
    let expected = format!("{expected} bytes: {rows} nodes x {dim} columns x 2 bytes (f16)");
    Error::format(path, "file length", expected, format!("{found} bytes"), help)
}
