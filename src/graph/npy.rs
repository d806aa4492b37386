//! NumPy `.npy` arrays, mapped and checked before anything is allocated.

use std::ops::Range;
use std::path::{Path, PathBuf};

use half::f16;
use memmap2::Mmap;
use ndarray::{Array2, ArrayBase, ArrayView, Data, Dimension};
use ndarray_npy::{ViewNpyExt, WritableElement, WriteNpyExt};
use rayon::prelude::*;

use super::digest::Digesting;
use super::features::{Features, first_non_finite};
use super::formats::{atomic_write, map_file, synced_meanwhile};
use crate::error::{Error, Result};

/// Reads node embeddings: a `.npy` array of f32 or f16, C order, shape `[N, d]`, every value finite.
///
/// # Errors
/// [`Error::Io`] when the file cannot be read; [`Error::Format`] for another type or shape, a row count other than
/// `expected_rows`, a truncated file, or a NaN or infinite value (row and column named).
pub fn read_embeddings(path: impl AsRef<Path>, expected_rows: Option<usize>) -> Result<Array2<f32>> {
    Ok(open_embeddings(path, expected_rows)?.as_f32().to_owned())
}

/// The same without reading them into memory: values of f32 stay in the file, which is mapped.
///
/// # Errors
/// As for [`read_embeddings`].
pub fn open_embeddings(path: impl AsRef<Path>, expected_rows: Option<usize>) -> Result<Features> {
    const HELP: &str = "embeddings are a C-ordered float32 or float16 array [nodes, dimensions], as np.save writes it";
    let npy = Npy::open(path.as_ref())?;
    let [rows, cols] = npy.matrix_shape(HELP)?;
    if let Some(expected) = expected_rows.filter(|&expected| expected != rows) {
        let expected = format!("{expected} rows, one per node of the graph");
        let help = "these embeddings belong to another graph; use those that were made from this data directory";
        return Err(npy.error("shape", expected, format!("{rows} rows"), help));
    }
    let bytes = &npy.map[npy.data.clone()];
    let converted = |values: Vec<f32>| Features::from_f32(values, rows, cols);
    let z = match npy.dtype.as_str() {
        // Headers of other programs may end anywhere.
        "<f4" if npy.data.start.is_multiple_of(align_of::<f32>()) => None,
        "<f4" => Some(converted(bytemuck::pod_collect_to_vec(bytes))),
        "<f2" => {
            let value = |b: &[u8]| f16::from_le_bytes([b[0], b[1]]).to_f32();
            Some(converted(bytes.par_chunks_exact(2).with_min_len(1 << 14).map(value).collect()))
        }
        other => return Err(npy.error("dtype", "<f4 or <f2", other, HELP)),
    };
    let Npy { path, map, data, .. } = npy;
    let z = z.unwrap_or_else(|| Features::mapped_f32(map, data.start, rows, cols));
    let values = z.as_f32();
    let values = values.as_slice().unwrap_or_default();
    if let Some(at) = first_non_finite(values, |value| !value.is_finite()) {
        let place = format!("row {}, column {}", at / cols, at % cols);
        let help = "a run diverged or the file is damaged; make the embeddings again";
        return Err(Error::format(path, place, "a finite number", values[at].to_string(), help));
    }
    Ok(z)
}

/// Writes a `.npy` array of f32 (of one, two or more dimensions) atomically; an existing file is replaced.
///
/// # Errors
/// [`Error::Io`] with `path`.
pub fn write_npy_f32<S, D>(path: impl AsRef<Path>, array: &ArrayBase<S, D>) -> Result<()>
where
    S: Data<Elem = f32>,
    D: Dimension,
{
    write_npy(path, array)
}

/// Values of a file that the disk gets while it is written.
const LONG: usize = 16 << 20;

/// The same, and the digest of the file in pieces, which is taken while it is written.
///
/// # Errors
/// As for [`write_npy_f32`].
pub(crate) fn write_npy_f32_digested<D: Dimension>(
    path: impl AsRef<Path>,
    array: &ArrayView<f32, D>,
) -> Result<String> {
    let (array, mut digest) = (array.as_standard_layout(), String::new());
    atomic_write(path, |file| {
        let to = file.get_ref().try_clone()?;
        let write = || {
            let mut digesting = Digesting::new(file);
            array.write_npy(&mut digesting).map_err(std::io::Error::other)?;
            digest = digesting.finish();
            Ok(())
        };
        if array.len() > LONG { synced_meanwhile(&to, write) } else { write() }
    })?;
    Ok(digest)
}

/// Writes a `.npy` array of any plain type atomically; an existing file is replaced.
///
/// # Errors
/// [`Error::Io`] with `path`.
pub fn write_npy<S, D>(path: impl AsRef<Path>, array: &ArrayBase<S, D>) -> Result<()>
where
    S: Data<Elem: WritableElement + Clone>,
    D: Dimension,
{
    // Readers expect C order; a transposed view would be written as it lies in memory.
    let array = array.as_standard_layout();
    atomic_write(path, |file| array.write_npy(file).map_err(std::io::Error::other))
}

/// A view of an array in `bytes`, or what was found instead. The header is read here first: `ndarray-npy` takes as much
/// memory as it says that it is long.
pub(crate) fn view_npy<'a, A: ViewNpyExt<'a>>(bytes: &'a [u8]) -> std::result::Result<A, String> {
    header_of(bytes)?;
    A::view_npy(bytes).map_err(|fault| fault.to_string())
}

/// Rows and columns of a `.npy` file.
///
/// # Errors
/// [`Error::Io`]; [`Error::Format`] for another number of dimensions, or a file that its header does not fit.
pub fn matrix_shape(path: &Path) -> Result<[usize; 2]> {
    Npy::open(path)?.matrix_shape("give an array with a row per node")
}

/// A mapped array whose header fits the file.
pub(crate) struct Npy {
    path: PathBuf,
    map: Mmap,
    dtype: String,
    shape: Vec<usize>,
    data: Range<usize>,
}

impl Npy {
    /// Maps the file and checks its header, order and length.
    pub fn open(path: &Path) -> Result<Self> {
        const HELP: &str = "the file is damaged or not an array; write it again with np.save";
        let map = map_file(path)?;
        let error = |place: &str, expected: String, found: String, help: &str| {
            Error::format(path, place, expected, found, help)
        };
        let malformed = |found: &str| error("header", "a .npy header".into(), found.into(), HELP);
        let (header, data_start) = header_of(&map).map_err(|found| malformed(&found))?;
        let Header { dtype, fortran_order, shape } = header;
        if fortran_order && shape.len() > 1 {
            let help = "save it as np.save(path, np.ascontiguousarray(array))";
            return Err(error("fortran_order", "False (C order)".into(), "True".into(), help));
        }
        let plain = dtype.get(1..2).is_some_and(|kind| "iufbc".contains(kind));
        let width = dtype.get(2..).filter(|_| plain).and_then(|width| width.parse::<usize>().ok());
        let width = width.ok_or_else(|| error("dtype", "a plain number type".into(), dtype.clone(), HELP))?;
        let bytes = shape.iter().try_fold(width, |product, &length| product.checked_mul(length));
        let found = map.len() - data_start;
        if bytes != Some(found) {
            let bytes = bytes.map_or("more bytes than can be addressed".into(), |bytes| format!("{bytes} bytes"));
            let expected = format!("{bytes} of data for dtype {dtype}, shape {shape:?}");
            return Err(error("file length", expected, format!("{found} bytes"), HELP));
        }
        let data = data_start..map.len();
        Ok(Self { path: path.to_path_buf(), dtype, shape, data, map })
    }

    /// The length of every dimension.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The shape of a two-dimensional array.
    pub fn matrix_shape(&self, help: &str) -> Result<[usize; 2]> {
        <[usize; 2]>::try_from(self.shape.as_slice())
            .map_err(|_| self.error("shape", "two dimensions", format!("{:?}", self.shape), help))
    }

    /// All values of an array of signed or unsigned little-endian integers.
    pub fn integers(&self, help: &str) -> Result<impl Iterator<Item = i128> + '_> {
        let signed = match self.dtype.as_str() {
            "<i8" | "<i4" | "<i2" | "|i1" => true,
            "<u8" | "<u4" | "<u2" | "|u1" => false,
            other => return Err(self.error("dtype", "a little-endian integer type, e.g. <i8", other, help)),
        };
        let width = usize::from(self.dtype.as_bytes()[2] - b'0');
        let read = move |bytes: &[u8]| {
            let negative = signed && bytes.last().is_some_and(|&byte| byte >= 0x80);
            bytes.iter().rev().fold(if negative { -1i128 } else { 0 }, |value, &byte| value << 8 | i128::from(byte))
        };
        Ok(self.map[self.data.clone()].chunks_exact(width).map(read))
    }

    /// All values of an array of f32.
    pub fn floats(&self, help: &str) -> Result<Vec<f32>> {
        match self.dtype.as_str() {
            "<f4" => Ok(bytemuck::pod_collect_to_vec(&self.map[self.data.clone()])),
            other => Err(self.error("dtype", "<f4", other, help)),
        }
    }

    /// An [`Error::Format`] for this file.
    pub fn error(
        &self,
        place: impl Into<String>,
        expected: impl Into<String>,
        found: impl Into<String>,
        help: &str,
    ) -> Error {
        Error::format(&self.path, place, expected, found, help)
    }
}

/// What an array says of itself.
pub(super) struct Header {
    pub dtype: String,
    pub fortran_order: bool,
    pub shape: Vec<usize>,
}

/// The header of an array and where its data start.
///
/// # Errors
/// What was found instead.
pub(super) fn header_of(array: &[u8]) -> std::result::Result<(Header, usize), String> {
    let length_at = |range: Range<usize>| {
        array.get(range).map(|bytes| bytes.iter().rev().fold(0usize, |value, &byte| value << 8 | usize::from(byte)))
    };
    if !array.starts_with(b"\x93NUMPY") {
        return Err("other leading bytes than \\x93NUMPY".into());
    }
    let (start, length): (usize, _) = match array.get(6) {
        Some(1) => (10, length_at(8..10)),
        Some(2 | 3) => (12, length_at(8..12)),
        _ => return Err("an unknown format version".into()),
    };
    let text = length
        .and_then(|length| array.get(start..start.checked_add(length)?))
        .and_then(|bytes| std::str::from_utf8(bytes).ok())
        .ok_or("a truncated header")?;
    let header = parse_header(text).ok_or_else(|| text.trim_end().to_owned())?;
    Ok((header, start + text.len()))
}

/// Parses the dictionary literal of a header; `None` for anything but the three plain keys.
fn parse_header(text: &str) -> Option<Header> {
    let value_of = |key: &str| {
        let at = ['\'', '"'].iter().find_map(|quote| {
            let quoted = format!("{quote}{key}{quote}");
            text.find(&quoted).map(|at| at + quoted.len())
        })?;
        text[at..].trim_start().strip_prefix(':').map(str::trim_start)
    };
    let dtype = value_of("descr")?;
    let quote = dtype.chars().next().filter(|&c| c == '\'' || c == '"')?;
    let dtype = dtype[1..].split(quote).next()?.to_owned();
    let order = value_of("fortran_order")?;
    let fortran_order = if order.starts_with("True") {
        true
    } else if order.starts_with("False") {
        false
    } else {
        return None;
    };
    let (shape, _) = value_of("shape")?.strip_prefix('(')?.split_once(')')?;
    let lengths = shape.split(',').map(str::trim).filter(|length| !length.is_empty());
    let shape = lengths.map(|length| length.parse().ok()).collect::<Option<Vec<usize>>>()?;
    Some(Header { dtype, fortran_order, shape })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use ndarray::{Array1, array};

    use super::*;

    fn npy(header: &str, data: &[u8]) -> Vec<u8> {
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend((header.len() as u16).to_le_bytes());
        bytes.extend(header.as_bytes());
        bytes.extend(data);
        bytes
    }

    fn error_of(bytes: &[u8], rows: Option<usize>) -> String {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), bytes).unwrap();
        let error = read_embeddings(file.path(), rows).unwrap_err().to_string();
        assert!(error.starts_with(&file.path().display().to_string()), "{error}");
        error
    }

    #[test]
    fn what_is_written_is_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("z.npy");
        let z = array![[1.0f32, -2.5, 0.0], [3.0, 4.0, 65504.0]];
        write_npy_f32(&path, &z).unwrap();
        assert_eq!(read_embeddings(&path, Some(2)).unwrap(), z);
        write_npy_f32(&path, &z.t()).unwrap();
        assert_eq!(read_embeddings(&path, None).unwrap(), z.t());
        write_npy_f32(&path, &Array1::<f32>::zeros(5)).unwrap();
        let error = read_embeddings(&path, None).unwrap_err().to_string();
        assert!(error.contains("shape: expected two dimensions, found [5]"), "{error}");
    }

    #[test]
    fn half_precision_is_widened() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let data = [1.5f32, -0.25].map(|v| f16::from_f32(v).to_le_bytes()).concat();
        fs::write(file.path(), npy("{'descr': '<f2', 'fortran_order': False, 'shape': (1, 2), }\n", &data)).unwrap();
        assert_eq!(read_embeddings(file.path(), Some(1)).unwrap(), array![[1.5, -0.25]]);
    }

    #[test]
    fn a_value_that_is_not_finite_is_named_by_row_and_column() {
        let mut values = vec![0.5f32; 3 * 20_000];
        values[50_001] = f32::NAN;
        values[50_002] = f32::INFINITY;
        let data: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        let bytes = npy("{'descr': '<f4', 'fortran_order': False, 'shape': (20000, 3)}", &data);
        let error = error_of(&bytes, Some(20_000));
        assert!(error.contains("row 16667, column 0: expected a finite number, found NaN"), "{error}");
    }

    #[test]
    fn damaged_or_foreign_arrays_are_refused_with_the_reason() {
        let header = |descr: &str, order: &str, shape: &str| {
            npy(&format!("{{'descr': '{descr}', 'fortran_order': {order}, 'shape': {shape}, }}\n"), &[0; 16])
        };
        let cases: [(Vec<u8>, Option<usize>, &str); 13] = [
            (vec![], None, "leading bytes"),
            (b"PK\x03\x04".to_vec(), None, "leading bytes"),
            (b"\x93NUMPY".to_vec(), None, "unknown format version"),
            (b"\x93NUMPY\x02\x00\xff\xff\xff\xff{".to_vec(), None, "truncated header"),
            (npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,)}", &[]), None, "header: expected"),
            (header("<f4", "False", "(2, x)"), None, "header: expected"),
            (header("<f4", "False", "(3, 2)"), None, "expected 24 bytes of data for dtype <f4, shape [3, 2], found 16"),
            (header("<f4", "False", "(9223372036854775807, 4)"), None, "more bytes than can be addressed"),
            (header("<f4", "True", "(2, 2)"), None, "fortran_order: expected False"),
            (header("<f8", "False", "(1, 2)"), None, "dtype: expected <f4 or <f2, found <f8"),
            (header(">f4", "False", "(2, 2)"), None, "found >f4"),
            (header("<U2", "False", "(2, 1)"), None, "dtype: expected a plain number type, found <U2"),
            (header("<f4", "False", "(2, 2)"), Some(3), "shape: expected 3 rows, one per node of the graph, found 2"),
        ];
        for (bytes, rows, expected) in cases {
            let error = error_of(&bytes, rows);
            assert!(error.contains(expected), "{error}\nlacks {expected}");
        }
    }
}
