//! Raw node features: one row per node, f16 or f32, owned or memory-mapped. NaN is a missing value.

use std::borrow::Cow;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use half::f16;
use half::slice::HalfFloatSliceExt;
use memmap2::Mmap;
use ndarray::ArrayView2;
use rayon::prelude::*;

use super::array::let_go;
use super::formats::{map_file, write_new};
use super::manifest::FeatureType;
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
    Single(Arc<Vec<f32>>),
    /// A file, from so many bytes on.
    Mapped(Arc<(Mmap, usize)>, FeatureType),
}

/// All values as they are stored, row-major.
#[derive(Debug, Clone, Copy)]
pub enum FeatureValues<'a> {
    /// As data directories hold them unless they say otherwise.
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

    /// The f32 from byte `start` of a map on.
    ///
    /// # Panics
    /// Unless these are `rows * dim` values, at a place that they can be read from.
    pub(super) fn mapped_f32(map: Mmap, start: usize, rows: usize, dim: usize) -> Self {
        let bytes = (map.len() - start) as u128;
        assert_eq!(bytes, rows as u128 * dim as u128 * 4, "features: expected {rows} x {dim} values");
        assert!(start.is_multiple_of(align_of::<f32>()), "features: expected an aligned start, got {start}");
        Self { storage: Storage::Mapped(Arc::new((map, start)), FeatureType::F32), rows, dim }
    }

    /// Maps a raw file and checks its length and that no value is infinite.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Format`] for a wrong length (naming what would fit) or an infinite value.
    pub fn open(path: &Path, rows: usize, dim: usize, dtype: FeatureType) -> Result<Self> {
        let map = map_file(path)?;
        let expected = rows as u128 * dim as u128 * dtype.width() as u128;
        if map.len() as u128 != expected {
            return Err(wrong_length(path, [rows, dim], dtype, map.len()));
        }
        let features = Self { storage: Storage::Mapped(Arc::new((map, 0)), dtype), rows, dim };
        let bad = match features.values() {
            FeatureValues::Half(values) => first_non_finite(values, |value| value.to_bits() & 0x7fff == 0x7c00),
            FeatureValues::Single(values) => first_non_finite(values, f32::is_infinite),
        };
        let Some(at) = bad else { return Ok(features) };
        let found = features.row(at / dim).nth(at % dim).unwrap_or(f32::NAN);
        Err(Error::format(
            path,
            format!("row {}, column {}", at / dim, at % dim),
            "a finite number, or NaN for a missing one",
            found.to_string(),
            "write NaN for values that are not known; f16 ends at 65504, so scale larger ones",
        ))
    }

    /// Number of nodes.
    pub fn num_rows(&self) -> usize {
        self.rows
    }

    /// Refuses features of other nodes than those of a graph.
    ///
    /// # Errors
    /// [`Error::Data`] unless there is a row for each of `nodes`.
    pub(crate) fn check_rows(&self, nodes: usize) -> Result<()> {
        if self.rows == nodes {
            return Ok(());
        }
        Err(Error::Data {
            what: "features".into(),
            expected: format!("{nodes} rows, one per node"),
            found: self.rows.to_string(),
            help: "give the features of this graph".into(),
        })
    }

    /// Number of columns.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// Whether these are the same values, not others like them.
    pub fn shares(&self, other: &Self) -> bool {
        self.dim == other.dim
            && match (self.values(), other.values()) {
                (FeatureValues::Half(own), FeatureValues::Half(others)) => std::ptr::eq(own, others),
                (FeatureValues::Single(own), FeatureValues::Single(others)) => std::ptr::eq(own, others),
                _ => false,
            }
    }

    /// All values as they are stored.
    pub fn values(&self) -> FeatureValues<'_> {
        match &self.storage {
            Storage::Owned(values) => FeatureValues::Half(values),
            Storage::Single(values) => FeatureValues::Single(values),
            // A map starts at a page, so that its values are aligned.
            Storage::Mapped(file, FeatureType::F16) => FeatureValues::Half(bytemuck::cast_slice(&file.0[file.1..])),
            Storage::Mapped(file, FeatureType::F32) => FeatureValues::Single(bytemuck::cast_slice(&file.0[file.1..])),
        }
    }

    /// All values, of features that are stored in f32.
    ///
    /// # Panics
    /// For others.
    pub fn as_f32(&self) -> ArrayView2<'_, f32> {
        let FeatureValues::Single(values) = self.values() else { panic!("Features: expected f32, got f16") };
        ArrayView2::from_shape((self.rows, self.dim), values).unwrap_or_else(|e| unreachable!("a row per node: {e}"))
    }

    /// All values, of features that are stored in f32; without a copy where nobody else has them.
    ///
    /// # Panics
    /// For others.
    pub fn into_f32(self) -> Vec<f32> {
        match self.storage {
            Storage::Single(values) => Arc::unwrap_or_clone(values),
            _ => self.as_f32().iter().copied().collect(),
        }
    }

    /// Bytes of the values; 0 where they are mapped: they are read again when their memory is needed.
    pub fn bytes_in_memory(&self) -> u64 {
        match &self.storage {
            Storage::Owned(values) => size_of_val(&***values) as u64,
            Storage::Single(values) => size_of_val(&***values) as u64,
            Storage::Mapped(..) => 0,
        }
    }

    /// Gives back the memory of what was read of a mapped file; it is read again when it is asked for.
    pub(crate) fn let_go(&self) {
        if let Storage::Mapped(file, _) = &self.storage {
            let_go(&file.0);
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

    /// The features of one node, into `row`: many values at a time.
    ///
    /// # Panics
    /// When `node` is not below [`num_rows`](Self::num_rows), or `row` is of another length.
    pub(crate) fn read_row(&self, node: usize, row: &mut [f32]) {
        let range = node * self.dim..(node + 1) * self.dim;
        match self.values() {
            FeatureValues::Half(values) => values[range].convert_to_f32_slice(row),
            FeatureValues::Single(values) => row.copy_from_slice(&values[range]),
        }
    }

    /// The rows of `nodes`, in their order.
    ///
    /// # Panics
    /// When one of them is not below [`num_rows`](Self::num_rows).
    pub fn select(&self, nodes: &[u32]) -> Self {
        let dim = self.dim;
        let of = |node: u32| node as usize * dim..(node as usize + 1) * dim;
        match self.values() {
            FeatureValues::Half(values) => {
                let rows = nodes.iter().flat_map(|&node| &values[of(node)]).copied().collect();
                Self::from_vec(rows, nodes.len(), dim)
            }
            FeatureValues::Single(values) => {
                let rows = nodes.iter().flat_map(|&node| &values[of(node)]).copied().collect();
                Self::from_f32(rows, nodes.len(), dim)
            }
        }
    }

    /// By column: whether any node lacks a value there.
    pub fn missing(&self) -> Vec<bool> {
        fn any<T: Copy + Sync>(values: &[T], dim: usize, is_nan: impl Fn(T) -> bool + Sync) -> Vec<bool> {
            let mut missing = vec![false; dim];
            // Most features have none: one pass that stops at the first.
            let Some(first) = first_non_finite(values, &is_nan) else { return missing };
            for row in values[first / dim * dim..].chunks_exact(dim) {
                missing.iter_mut().zip(row).for_each(|(missing, &value)| *missing |= is_nan(value));
            }
            missing
        }
        match self.values() {
            FeatureValues::Half(values) => any(values, self.dim, f16::is_nan),
            FeatureValues::Single(values) => any(values, self.dim, f32::is_nan),
        }
    }

    /// Refuses missing values, for a network that does not say what stands for them. `data` is where the features are
    /// from, `names` are those of the columns, if they have any.
    ///
    /// # Errors
    /// [`Error::Format`] that counts the columns and names the first.
    pub fn check_complete(&self, data: &Path, names: Option<&[String]>) -> Result<()> {
        let missing = self.missing();
        let Some(first) = missing.iter().position(|&missing| missing) else { return Ok(()) };
        let count = missing.iter().filter(|&&missing| missing).count();
        let name =
            names.and_then(|names| names.get(first)).map_or(format!("column {first}"), |name| format!("`{name}`"));
        let found = format!("missing values in {count} of {} columns, the first {name}", self.dim);
        let help = "give the directory of the run instead of its checkpoint; a run of an earlier version has to be trained \
                    again";
        let expected = "known values: the model does not say what stands for missing ones";
        Err(Error::format(data, "features", expected, found, help))
    }

    /// The narrowest type that holds every value exactly.
    pub(crate) fn exact_type(&self) -> FeatureType {
        match self.values() {
            FeatureValues::Half(_) => FeatureType::F16,
            FeatureValues::Single(values) => {
                let rounded = |value: f32| !value.is_nan() && f16::from_f32(value).to_f32() != value;
                first_non_finite(values, rounded).map_or(FeatureType::F16, |_| FeatureType::F32)
            }
        }
    }

    /// Writes the raw values to a new file, in [`exact_type`](Self::exact_type).
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Data`] for an infinite value.
    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        let bad = match self.values() {
            FeatureValues::Half(values) => first_non_finite(values, f16::is_infinite),
            FeatureValues::Single(values) => first_non_finite(values, f32::is_infinite),
        };
        if let Some(at) = bad {
            let (row, column) = (at / self.dim, at % self.dim);
            return Err(Error::Data {
                what: format!("feature of row {row}, column {column}"),
                expected: "a finite number, or NaN for a missing one".into(),
                found: self.row(row).nth(column).unwrap_or(f32::NAN).to_string(),
                help: "write NaN for values that are not known, and scale the features".into(),
            });
        }
        match (self.values(), self.exact_type()) {
            (FeatureValues::Single(values), FeatureType::F32) => {
                write_new(path, |file| file.write_all(bytemuck::cast_slice(values)))
            }
            _ => write_new(path, |file| file.write_all(bytemuck::cast_slice(&self.as_f16()))),
        }
    }
}

fn wrong_length(path: &Path, [rows, dim]: [usize; 2], dtype: FeatureType, found: usize) -> Error {
    let (name, width, found_wide) = (dtype.name(), dtype.width(), found as u128);
    let fits = |unit: u128| (unit > 0 && found > 0 && found_wide.is_multiple_of(unit)).then(|| found_wide / unit);
    let help = match (fits(rows as u128 * width as u128), fits(dim as u128 * width as u128)) {
        (Some(columns), _) => {
            format!("{columns} columns would fit: set dim = {columns} under [features] in graph.toml")
        }
        (None, Some(nodes)) => format!("{nodes} nodes of {dim} columns would fit: check the node counts"),
        (None, None) => format!("the file is truncated, or not raw {name}"),
    };
    let expected = rows as u128 * dim as u128 * width as u128;
    let expected = format!("{expected} bytes: {rows} nodes x {dim} columns x {width} bytes ({name})");
    Error::format(path, "file length", expected, format!("{found} bytes"), help)
}

/// Index of the first value for which `bad` holds; searched in parallel, branch-free inside a block.
pub(crate) fn first_non_finite<T: Copy + Sync>(values: &[T], bad: impl Fn(T) -> bool + Sync) -> Option<usize> {
    const BLOCK: usize = 1 << 14;
    values.par_chunks(BLOCK).enumerate().find_map_first(|(block, chunk)| {
        let any = chunk.iter().fold(false, |any, &value| any | bad(value));
        any.then(|| chunk.iter().position(|&value| bad(value))).flatten().map(|at| block * BLOCK + at)
    })
}
