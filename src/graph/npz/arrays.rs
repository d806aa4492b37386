//! Arrays of an `.npz` archive with a type and a shape that the caller can use.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use ndarray::{ArrayD, ArrayViewD, Axis, Ix2};
use ndarray_npy::{ReadNpyError, ReadNpyExt, ReadableElement};
use zip::ZipArchive;
use zip::read::ZipFile;
use zip::result::ZipError;

use crate::error::{Error, Result};
use crate::graph::npy::{Header, header_of};

/// An open archive.
pub(super) struct Arrays {
    path: PathBuf,
    archive: ZipArchive<BufReader<File>>,
    names: Vec<String>,
}

/// What NumPy calls a type: `<f4` is `float32`.
fn name_of(dtype: &str) -> String {
    let kind = match dtype.get(1..2) {
        Some("f") => "float",
        Some("i") => "int",
        Some("u") => "uint",
        Some("b") => return "bool".into(),
        _ => return dtype.into(),
    };
    let bytes = dtype.get(2..).and_then(|width| width.parse::<u32>().ok());
    bytes.map_or(dtype.into(), |bytes| format!("{kind}{}", 8 * bytes))
}

/// A matrix of features as it was stored.
pub(super) struct Matrix {
    /// Row-major.
    pub values: Vec<f32>,
    pub rows: usize,
    pub cols: usize,
}

const NOT_NPZ: &str = "give a file that np.savez or np.savez_compressed wrote";

impl Arrays {
    pub fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).map_err(|source| Error::io(path, "open", source))?;
        log::debug!("reading {}", path.display());
        let broken = |fault: ZipError| Error::format(path, "archive", "an .npz file", fault.to_string(), NOT_NPZ);
        let archive = ZipArchive::new(BufReader::new(file)).map_err(broken)?;
        let names = archive.file_names().map(|name| name.trim_end_matches(".npy").to_owned()).collect();
        Ok(Self { path: path.to_path_buf(), archive, names })
    }

    pub fn has(&self, name: &str) -> bool {
        self.names.iter().any(|known| known == name)
    }

    /// What is wrong with an array of this file.
    pub fn error(
        &self,
        place: impl Into<String>,
        expected: impl Into<String>,
        found: impl Into<String>,
        help: &str,
    ) -> Error {
        Error::format(&self.path, place, expected, found, help)
    }

    /// The bytes of an array, as many as its header asks for: what reads it trusts the header.
    fn bytes(&mut self, name: &str) -> Result<(Header, Vec<u8>)> {
        const DAMAGED: &str = "the file is damaged; write it again with np.savez";
        // Deflate does not pack tighter, so that nothing larger is an honest size.
        const MAX_COMPRESSION: u64 = 1032;
        let path = self.path.clone();
        let error = |expected: &str, found: String| Error::format(&path, name, expected, found, DAMAGED);
        let unreadable = |fault: &dyn std::fmt::Display| error("a readable array", fault.to_string());
        let entry = match self.archive.index_for_name(&format!("{name}.npy")) {
            Some(index) => self.archive.by_index(index),
            None => self.archive.by_name(name),
        };
        let mut entry: ZipFile<'_, _> = entry.map_err(|fault| unreadable(&fault))?;
        let (size, packed) = (entry.size(), entry.compressed_size());
        if size > packed.saturating_mul(MAX_COMPRESSION).saturating_add(64) {
            return Err(error("a size that the packed bytes can hold", format!("{size} bytes in {packed}")));
        }
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).map_err(|fault| unreadable(&fault))?;
        let (header, start) = header_of(&bytes).map_err(|found| error("a .npy header", found))?;
        let width = header.dtype.get(2..).and_then(|width| width.parse::<usize>().ok());
        let wanted = width.and_then(|width| header.shape.iter().try_fold(width, |n, &len| n.checked_mul(len)));
        let found = bytes.len() - start;
        if wanted != Some(found) {
            let wanted = wanted.map_or("more bytes than can be addressed".into(), |bytes| format!("{bytes} bytes"));
            let expected = format!("{wanted} of data for dtype {}, shape {:?}", header.dtype, header.shape);
            return Err(error(&expected, format!("{found} bytes")));
        }
        Ok((header, bytes))
    }

    /// An array of elements `T`; `None` when it holds another type.
    fn typed<T: ReadableElement>(&mut self, name: &str) -> Result<Option<ArrayD<T>>> {
        let (_, bytes) = self.bytes(name)?;
        match ArrayD::<T>::read_npy(bytes.as_slice()) {
            Ok(array) => Ok(Some(array)),
            Err(ReadNpyError::WrongDescriptor(_)) => Ok(None),
            Err(fault) => {
                let help = "the file is damaged; write it again with np.savez";
                Err(self.error(name, "a readable array", fault.to_string(), help))
            }
        }
    }

    fn required(&self, name: &str, what: &str) -> Result<()> {
        if self.has(name) {
            return Ok(());
        }
        let mut names: Vec<&str> = self.names.iter().map(String::as_str).collect();
        names.sort_unstable();
        let found = if names.is_empty() { "no arrays at all".into() } else { format!("only {}", names.join(", ")) };
        Err(self.error(name, format!("an array `{name}`: {what}"), found, "add it, or rename the array that holds it"))
    }

    /// The type of an array that holds none of the types that would do.
    fn wrong_type(&mut self, name: &str, expected: &str, help: &str) -> Error {
        let found = match self.bytes(name) {
            Ok((header, _)) => name_of(&header.dtype),
            Err(error) => return error,
        };
        self.error(format!("{name}, dtype"), expected, found, help)
    }

    /// A matrix of f32 or f64 without infinite values; NaN is a missing one.
    pub fn features(&mut self, name: &str) -> Result<Matrix> {
        const HELP: &str = "features are a matrix [nodes, columns]; convert them with .astype(np.float32)";
        self.required(name, "features of the nodes, [nodes, columns]")?;
        let array = match self.typed::<f32>(name)? {
            Some(array) => array,
            None => match self.typed::<f64>(name)? {
                Some(array) => array.mapv(|value| value as f32),
                None => return Err(self.wrong_type(name, "float32 or float64", HELP)),
            },
        };
        let shape = array.shape().to_vec();
        let matrix = array
            .into_dimensionality::<Ix2>()
            .map_err(|_| self.error(format!("{name}, shape"), "[nodes, columns]", format!("{shape:?}"), HELP))?;
        let (rows, cols) = matrix.dim();
        let values: Vec<f32> = matrix.iter().copied().collect();
        if let Some(at) = values.iter().position(|value| value.is_infinite()) {
            let place = format!("{name}, row {}, column {}", at / cols, at % cols);
            let help = "write NaN for values that are not known; values have to fit float32";
            let expected = "a finite number, or NaN for a missing one";
            return Err(self.error(place, expected, values[at].to_string(), help));
        }
        Ok(Matrix { values, rows, cols })
    }

    /// Integers of any shape; `small` also takes bool and uint8, as labels may be.
    pub fn integers(&mut self, name: &str, what: &str, small: bool) -> Result<ArrayD<i64>> {
        self.required(name, what)?;
        if let Some(array) = self.typed::<i64>(name)? {
            return Ok(array);
        }
        if let Some(array) = self.typed::<i32>(name)? {
            return Ok(array.mapv(i64::from));
        }
        if small && let Some(array) = self.typed::<u8>(name)? {
            return Ok(array.mapv(i64::from));
        }
        if small && let Some(array) = self.typed::<bool>(name)? {
            return Ok(array.mapv(i64::from));
        }
        let expected = if small { "int64, int32, uint8 or bool" } else { "int64 or int32" };
        Err(self.wrong_type(name, expected, "convert it with .astype(np.int64)"))
    }

    /// Masks `[nodes]` or `[nodes, splits]`, or `[splits, nodes]` where `splits_first`: one list of marked nodes per
    /// split.
    pub fn marked(&mut self, name: &str, nodes: usize, splits_first: bool) -> Result<Vec<Vec<u32>>> {
        let help = match splits_first {
            true => "these masks are a boolean array with one row per split and one column per node",
            false => "a mask is a boolean array with one value per node, or one column per split",
        };
        let array = match self.typed::<bool>(name)? {
            Some(array) => array,
            None => return Err(self.wrong_type(name, "bool", help)),
        };
        let shape = array.shape().to_vec();
        let marked = |of_split: ArrayViewD<bool>| {
            of_split.iter().enumerate().filter(|(_, marked)| **marked).map(|(node, _)| node as u32).collect()
        };
        match (&shape[..], splits_first) {
            (&[rows], false) if rows == nodes => Ok(vec![marked(array.view())]),
            (&[rows, _], false) if rows == nodes => Ok(array.axis_iter(Axis(1)).map(marked).collect()),
            (&[_, columns], true) if columns == nodes => Ok(array.axis_iter(Axis(0)).map(marked).collect()),
            _ => {
                let expected = match splits_first {
                    true => format!("[splits, {nodes}]"),
                    false => format!("[{nodes}] or [{nodes}, splits]"),
                };
                Err(self.error(format!("{name}, shape"), expected, format!("{shape:?}"), help))
            }
        }
    }
}
