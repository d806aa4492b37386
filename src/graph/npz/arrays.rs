//! Arrays of an `.npz` archive with a type and a shape that the caller can use.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use bytemuck::AnyBitPattern;
use half::f16;
use ndarray::{ArrayD, ArrayViewD, Axis, IxDyn, ShapeBuilder};
use zip::ZipArchive;
use zip::read::ZipFile;
use zip::result::ZipError;

use crate::error::{Error, Result};
use crate::graph::npy::{Header, header_of};
use crate::memory;

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

/// The shapes that an array may have, and what is said of others.
pub(super) struct Shape<'a> {
    pub takes: &'a dyn Fn(&[usize]) -> bool,
    pub expected: &'a str,
    pub help: &'a str,
}

/// A matrix of features as it was stored.
pub(super) struct Matrix {
    /// Row-major.
    pub values: Vec<f32>,
    pub rows: usize,
    pub cols: usize,
}

const DAMAGED: &str = "the file is damaged; write it again with np.savez";
/// Most bytes that are unpacked for the header of an array; those of NumPy have 128.
const MOST_HEADER: u64 = 1 << 16;
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

    /// The array as it lies in the archive, not unpacked yet.
    fn entry(&mut self, name: &str) -> Result<ZipFile<'_, BufReader<File>>> {
        let entry = match self.archive.index_for_name(&format!("{name}.npy")) {
            Some(index) => self.archive.by_index(index),
            None => self.archive.by_name(name),
        };
        entry.map_err(|fault| Error::format(&self.path, name, "a readable array", fault.to_string(), DAMAGED))
    }

    /// What an array says of itself, and the bytes before its data. Nothing else of it is unpacked.
    fn header(&mut self, name: &str) -> Result<(Header, usize)> {
        let mut first = Vec::new();
        let read = self.entry(name)?.take(MOST_HEADER).read_to_end(&mut first);
        read.map_err(|fault| self.error(name, "a readable array", fault.to_string(), DAMAGED))?;
        header_of(&first).map_err(|found| self.error(name, "a .npy header", found, DAMAGED))
    }

    /// The data of an array of little-endian numbers, as many bytes as its header asks for: what reads them trusts the
    /// header. They are unpacked when that is how many the archive says there are, and the memory of this machine holds
    /// them beside what is made of them, numbers of a `width` each.
    fn data(&mut self, name: &str, (header, start): &(Header, usize), width: usize) -> Result<Vec<u8>> {
        let stored = header.dtype.get(2..).and_then(|width| width.parse::<usize>().ok());
        let wanted = stored.and_then(|width| header.shape.iter().try_fold(width, |n, &len| n.checked_mul(len)));
        let of_header = || {
            let wanted = wanted.map_or("more bytes than can be addressed".into(), |bytes| format!("{bytes} bytes"));
            format!("{wanted} of data for dtype {}, shape {:?}", header.dtype, header.shape)
        };
        let found = self.entry(name)?.size().saturating_sub(*start as u64);
        let Some(wanted) = wanted.filter(|&wanted| wanted as u64 == found) else {
            return Err(self.error(name, of_header(), format!("{found} bytes"), DAMAGED));
        };
        let made = header.shape.iter().fold(width as u64, |bytes, &length| bytes.saturating_mul(length as u64));
        let taken = found.saturating_add(made);
        if let Some(machine) = memory::too_little_for(taken) {
            let expected = format!("an array that takes at most the memory of this machine, {machine} bytes, to read");
            return Err(self.error(name, expected, format!("{taken} bytes"), "write it as a data directory instead"));
        }
        let mut data = Vec::new();
        // One more, so that what is unpacked is compared with its checksum.
        let whole = (start + wanted + 1) as u64;
        let read = self.entry(name)?.take(whole).read_to_end(&mut data);
        read.map_err(|fault| self.error(name, "a readable array", fault.to_string(), DAMAGED))?;
        if data.len() != start + wanted {
            let unpacked = data.len().saturating_sub(*start);
            return Err(self.error(name, of_header(), format!("{unpacked} bytes, or more"), DAMAGED));
        }
        data.drain(..start);
        if let Some(stored) = stored.filter(|_| header.dtype.starts_with('>')) {
            data.chunks_exact_mut(stored.max(1)).for_each(<[u8]>::reverse);
        }
        Ok(data)
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

    fn wrong_type(&self, name: &str, dtype: &str, expected: &str, help: &str) -> Error {
        self.error(format!("{name}, dtype"), expected, name_of(dtype), help)
    }

    /// A matrix without infinite values; NaN is a missing one.
    pub fn features(&mut self, name: &str) -> Result<Matrix> {
        const HELP: &str = "features are a matrix [nodes, columns]; convert them with .astype(np.float32)";
        self.required(name, "features of the nodes, [nodes, columns]")?;
        let described = self.header(name)?;
        let header = &described.0;
        let &[rows, cols] = &header.shape[..] else {
            return Err(self.error(format!("{name}, shape"), "[nodes, columns]", format!("{:?}", header.shape), HELP));
        };
        let read = match header.dtype.as_str() {
            "<f4" | ">f4" => numbers(|value: f32| value),
            "<f8" | ">f8" => numbers(|value: f64| value as f32),
            "<f2" | ">f2" => numbers(f16::to_f32),
            "<i8" | ">i8" => numbers(|value: i64| value as f32),
            "<i4" | ">i4" => numbers(|value: i32| value as f32),
            "<i2" | ">i2" => numbers(|value: i16| value.into()),
            "|i1" => numbers(|value: i8| value.into()),
            "<u8" | ">u8" => numbers(|value: u64| value as f32),
            "<u4" | ">u4" => numbers(|value: u32| value as f32),
            "<u2" | ">u2" => numbers(|value: u16| value.into()),
            "|u1" => numbers(|value: u8| value.into()),
            "|b1" => numbers(|value: u8| u8::from(value != 0).into()),
            other => return Err(self.wrong_type(name, other, "numbers", HELP)),
        };
        let mut values = read(&self.data(name, &described, size_of::<f32>())?);
        if header.fortran_order {
            values = (0..rows * cols).map(|at| values[at % cols * rows + at / cols]).collect();
        }
        if let Some(at) = values.iter().position(|value| value.is_infinite()) {
            let place = format!("{name}, row {}, column {}", at / cols, at % cols);
            let help = "write NaN for values that are not known; values have to fit float32";
            let expected = "a finite number, or NaN for a missing one";
            return Err(self.error(place, expected, values[at].to_string(), help));
        }
        Ok(Matrix { values, rows, cols })
    }

    /// Integers of a `shape`. `small` also takes bool, as labels may be.
    pub fn integers(&mut self, name: &str, what: &str, small: bool, shape: Shape<'_>) -> Result<ArrayD<i64>> {
        self.required(name, what)?;
        let described = self.header(name)?;
        let header = &described.0;
        let read = match header.dtype.as_str() {
            "<i8" | ">i8" => numbers(|value: i64| value),
            "<i4" | ">i4" => numbers(|value: i32| i64::from(value)),
            "<i2" | ">i2" => numbers(|value: i16| i64::from(value)),
            "|i1" => numbers(|value: i8| i64::from(value)),
            // Larger ones number no class and no node, and are refused as the largest.
            "<u8" | ">u8" => numbers(|value: u64| i64::try_from(value).unwrap_or(i64::MAX)),
            "<u4" | ">u4" => numbers(|value: u32| i64::from(value)),
            "<u2" | ">u2" => numbers(|value: u16| i64::from(value)),
            "|u1" => numbers(|value: u8| i64::from(value)),
            "|b1" if small => numbers(|value: u8| i64::from(value != 0)),
            other => {
                let expected = if small { "integers or bool" } else { "integers" };
                return Err(self.wrong_type(name, other, expected, "convert it with .astype(np.int64)"));
            }
        };
        if !(shape.takes)(&header.shape) {
            let found = format!("{:?}", header.shape);
            return Err(self.error(format!("{name}, shape"), shape.expected, found, shape.help));
        }
        self.array(name, &described, read)
    }

    fn array<T>(
        &mut self,
        name: &str,
        described: &(Header, usize),
        read: impl Fn(&[u8]) -> Vec<T>,
    ) -> Result<ArrayD<T>> {
        let values = read(&self.data(name, described, size_of::<T>())?);
        let Header { shape, fortran_order, .. } = &described.0;
        let array = ArrayD::from_shape_vec(IxDyn(shape).set_f(*fortran_order), values);
        array.map_err(|fault| self.error(name, "a readable array", fault.to_string(), DAMAGED))
    }

    /// Masks `[nodes]` or `[nodes, splits]`, or `[splits, nodes]` where `splits_first`: one list of marked nodes per
    /// split.
    pub fn marked(&mut self, name: &str, nodes: usize, splits_first: bool) -> Result<Vec<Vec<u32>>> {
        let help = match splits_first {
            true => "these masks are a boolean array with one row per split and one column per node",
            false => "a mask is a boolean array with one value per node, or one column per split",
        };
        let described = self.header(name)?;
        let Header { dtype, shape, .. } = &described.0;
        if dtype != "|b1" {
            return Err(self.wrong_type(name, dtype, "bool", help));
        }
        let fits = match shape[..] {
            [rows] => !splits_first && rows == nodes,
            [rows, columns] => nodes == if splits_first { columns } else { rows },
            _ => false,
        };
        if !fits {
            let expected = match splits_first {
                true => format!("[splits, {nodes}]"),
                false => format!("[{nodes}] or [{nodes}, splits]"),
            };
            return Err(self.error(format!("{name}, shape"), expected, format!("{shape:?}"), help));
        }
        let array = self.array(name, &described, numbers(|value: u8| value != 0))?;
        let marked = |of_split: ArrayViewD<bool>| {
            of_split.iter().enumerate().filter(|(_, marked)| **marked).map(|(node, _)| node as u32).collect()
        };
        Ok(match (array.ndim(), splits_first) {
            (1, _) => vec![marked(array.view())],
            (_, false) => array.axis_iter(Axis(1)).map(marked).collect(),
            (_, true) => array.axis_iter(Axis(0)).map(marked).collect(),
        })
    }
}

/// Reads little-endian numbers one behind another.
fn numbers<T: AnyBitPattern, V>(value: impl Fn(T) -> V + 'static) -> Numbers<V> {
    Box::new(move |data| {
        data.chunks_exact(size_of::<T>()).map(|bytes| value(bytemuck::pod_read_unaligned(bytes))).collect()
    })
}

type Numbers<V> = Box<dyn Fn(&[u8]) -> Vec<V>>;
