//! Arrays of an `.npz` archive with a type and a shape that the caller can use.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use ndarray::{ArrayD, Axis, Ix2, IxDyn, OwnedRepr};
use ndarray_npy::{NpzReader, ReadNpyError, ReadNpzError, ReadableElement};

use crate::error::{Error, Result};

/// An open archive.
pub(super) struct Arrays {
    path: PathBuf,
    reader: NpzReader<BufReader<File>>,
    names: Vec<String>,
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
        let archive = |fault: ReadNpzError| Error::format(path, "archive", "an .npz file", fault.to_string(), NOT_NPZ);
        let mut reader = NpzReader::new(BufReader::new(file)).map_err(archive)?;
        let names = reader.names().map_err(archive)?;
        Ok(Self { path: path.to_path_buf(), reader, names })
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

    /// An array of elements `T`; `None` when it holds another type.
    fn typed<T: ReadableElement>(&mut self, name: &str) -> Result<Option<ArrayD<T>>> {
        match self.reader.by_name::<OwnedRepr<T>, IxDyn>(name) {
            Ok(array) => Ok(Some(array)),
            Err(ReadNpzError::Npy(ReadNpyError::WrongDescriptor(_))) => Ok(None),
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
        // Any element type fails for a type it is not, with the descriptor of the one that it is.
        let found = match self.reader.by_name::<OwnedRepr<f32>, IxDyn>(name) {
            Err(ReadNpzError::Npy(ReadNpyError::WrongDescriptor(found))) => found.to_string(),
            _ => "float32".into(),
        };
        self.error(format!("{name}, dtype"), expected, found, help)
    }

    /// A finite matrix of f32 or f64.
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
        if let Some(at) = values.iter().position(|value| !value.is_finite()) {
            let place = format!("{name}, row {}, column {}", at / cols, at % cols);
            let help = "replace missing values before writing the file; values have to fit float32";
            return Err(self.error(place, "a finite number", values[at].to_string(), help));
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

    /// Masks `[nodes]` or `[nodes, splits]`, one list of marked nodes per split.
    pub fn marked(&mut self, name: &str, nodes: usize) -> Result<Vec<Vec<u32>>> {
        const HELP: &str = "a mask is a boolean array with one value per node, or one column per split";
        let array = match self.typed::<bool>(name)? {
            Some(array) => array,
            None => return Err(self.wrong_type(name, "bool", HELP)),
        };
        let shape = array.shape().to_vec();
        if !matches!(shape.len(), 1 | 2) || shape[0] != nodes {
            let expected = format!("[{nodes}] or [{nodes}, splits]");
            return Err(self.error(format!("{name}, shape"), expected, format!("{shape:?}"), HELP));
        }
        let marked = |column: ndarray::ArrayViewD<bool>| {
            column.iter().enumerate().filter(|(_, marked)| **marked).map(|(node, _)| node as u32).collect()
        };
        match shape.len() {
            1 => Ok(vec![marked(array.view())]),
            _ => Ok(array.axis_iter(Axis(1)).map(marked).collect()),
        }
    }
}
