//! The level-5 MAT file of MATLAB, as `save -v7` and `scipy.io.savemat` write it: which variables there are, and the
//! values of numeric ones.
//!
//! Layout after the "MAT-File Format" document of MathWorks. A file is a header of 128 bytes and a sequence of
//! elements, each a tag (type, length) and data; a variable is an element of elements, as it is or deflated.

use std::borrow::Cow;
use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};

use flate2::read::ZlibDecoder;
use memmap2::Mmap;

use super::values::{Dense, Sparse};
use crate::error::{Error, Result};
use crate::graph::formats::map_file;
use crate::memory;

const MI_MATRIX: u32 = 14;
const MI_COMPRESSED: u32 = 15;
const HEADER: usize = 128;
/// Bytes of a variable in which its name and shape are found.
const HEAD: u64 = 1 << 12;
/// Deflate does not pack tighter, so that nothing larger is an honest size.
const MAX_COMPRESSION: u64 = 1032;
const DAMAGED: &str = "the file is truncated or damaged; save it again";

/// The class of a variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    Sparse,
    /// Numbers of one of the ten numeric types, or logical values.
    Dense(&'static str),
    /// Text, cells, structures, objects: nothing that a graph is made of.
    Other(&'static str),
}

/// A variable of the file.
#[derive(Debug, Clone)]
pub(super) struct Variable {
    pub name: String,
    pub class: Class,
    pub shape: Vec<usize>,
    pub complex: bool,
    /// Where its element lies in the file.
    data: Range<usize>,
    deflated: bool,
}

impl Variable {
    /// Shape and class as errors list them, e.g. `45954x32 double`.
    pub fn describe(&self) -> String {
        let shape: Vec<String> = self.shape.iter().map(ToString::to_string).collect();
        let class = match self.class {
            Class::Sparse => "sparse",
            Class::Dense(name) | Class::Other(name) => name,
        };
        let complex = if self.complex { "complex " } else { "" };
        format!("{} ({} {complex}{class})", self.name, shape.join("x"))
    }

    /// Number of nodes of a graph whose adjacency this may be.
    pub fn square(&self) -> Option<usize> {
        match self.shape[..] {
            [rows, cols] if rows == cols && rows > 0 && self.class == Class::Sparse => Some(rows),
            _ => None,
        }
    }
}

/// An open file.
pub(super) struct MatFile {
    path: PathBuf,
    map: Mmap,
    big_endian: bool,
    pub variables: Vec<Variable>,
}

impl MatFile {
    /// Maps the file and lists its variables.
    pub fn open(path: &Path) -> Result<Self> {
        let map = map_file(path)?;
        let big_endian = endianness(path, &map)?;
        let mut file = Self { path: path.to_path_buf(), map, big_endian, variables: Vec::new() };
        let mut variables = Vec::new();
        let mut at = HEADER;
        // Some writers fill the last block with zeros.
        while file.map[at..].iter().any(|&byte| byte != 0) {
            let (kind, data, next) = file.element(&file.map, at, "element")?;
            if kind == MI_COMPRESSED || kind == MI_MATRIX {
                variables.extend(file.variable(data, kind == MI_COMPRESSED)?);
            }
            // A deflated element is not padded.
            at = if kind == MI_COMPRESSED { next.0 } else { next.1.min(file.map.len()) };
        }
        file.variables = variables;
        Ok(file)
    }

    /// What is wrong with a variable of this file.
    pub fn error(
        &self,
        place: impl Into<String>,
        expected: impl Into<String>,
        found: impl Into<String>,
        help: &str,
    ) -> Error {
        Error::format(&self.path, place.into(), expected, found, help)
    }

    /// All variables with shape and class, for errors.
    pub fn listing(&self) -> String {
        match self.variables.is_empty() {
            true => "no variables".into(),
            false => self.variables.iter().map(Variable::describe).collect::<Vec<_>>().join(", "),
        }
    }

    /// The variable of a name.
    pub fn get(&self, name: &str) -> Option<&Variable> {
        self.variables.iter().find(|variable| variable.name == name)
    }

    /// The values of a dense variable, column by column.
    pub fn dense(&self, variable: &Variable) -> Result<Dense> {
        self.real(variable)?;
        let name = &variable.name;
        let bytes = self.bytes(variable)?;
        let at = self.skip_head(&bytes, name)?;
        let (kind, data, _) = self.element(&bytes, at, name)?;
        let values = self.numbers(name, kind, &bytes[data])?;
        let wanted = variable.shape.iter().try_fold(1usize, |product, &length| product.checked_mul(length));
        if wanted != Some(values.len()) {
            let expected = format!("as many values as the shape {:?} has", variable.shape);
            return Err(self.error(name, expected, values.len().to_string(), DAMAGED));
        }
        match variable.shape[..] {
            [rows, _] => Ok(Dense { values, rows }),
            _ => Err(self.error(name, "two dimensions", format!("{:?}", variable.shape), "give a matrix")),
        }
    }

    /// The entries of a sparse variable, column by column.
    pub fn sparse(&self, variable: &Variable) -> Result<Sparse> {
        self.real(variable)?;
        let name = &variable.name;
        let &[rows, cols] = &variable.shape[..] else {
            return Err(self.error(name, "two dimensions", format!("{:?}", variable.shape), DAMAGED));
        };
        let bytes = self.bytes(variable)?;
        let mut at = self.skip_head(&bytes, name)?;
        let mut next = || {
            let (kind, data, next) = self.element(&bytes, at, name)?;
            at = next.1.min(bytes.len());
            Ok::<_, Error>((kind, data))
        };
        let [(row_kind, row_data), (ptr_kind, ptr_data), (kind, data)] = [next()?, next()?, next()?];
        let rows_of = self.integers(name, row_kind, &bytes[row_data])?;
        let col_ptr = self.integers(name, ptr_kind, &bytes[ptr_data])?;
        let mut values = self.numbers(name, kind, &bytes[data])?;
        let entries = col_ptr.last().copied().unwrap_or(0) as usize;
        let ordered = col_ptr.first() == Some(&0) && col_ptr.windows(2).all(|pair| pair[0] <= pair[1]);
        if col_ptr.len() != cols.saturating_add(1) || !ordered || entries > rows_of.len() || entries > values.len() {
            let expected = format!("column starts of {cols} columns that never decrease, and an entry for each");
            let found =
                format!("{} starts up to {entries}, {} rows, {} values", col_ptr.len(), rows_of.len(), values.len());
            return Err(self.error(name, expected, found, DAMAGED));
        }
        values.truncate(entries);
        let rows_of = rows_of[..entries].to_vec();
        if let Some(at) = rows_of.iter().position(|&row| row as usize >= rows) {
            let place = format!("{name}, entry {at}");
            return Err(self.error(place, format!("a row below {rows}"), rows_of[at].to_string(), DAMAGED));
        }
        Ok(Sparse { rows, cols, col_ptr, row_idx: rows_of, values })
    }

    fn real(&self, variable: &Variable) -> Result<()> {
        match variable.complex {
            false => Ok(()),
            true => Err(self.error(&variable.name, "real numbers", "complex ones", "save real(x) or abs(x)")),
        }
    }

    /// Reads the head of a variable; `None` for an element without a name, which MATLAB keeps for itself.
    fn variable(&self, data: Range<usize>, deflated: bool) -> Result<Option<Variable>> {
        let place = format!("byte {}", data.start);
        let head = self.payload(&data, deflated, HEAD, &place)?;
        let [flags, dimensions, name] = self.head(&head, &place)?.0;
        let flags = self.words(&head[flags]);
        let (&class, complex) = (flags.first().unwrap_or(&0), flags.first().is_some_and(|flags| flags & 0x800 != 0));
        let logical = class & 0x200 != 0;
        let shape: Vec<usize> = self.words(&head[dimensions]).into_iter().map(|length| length as usize).collect();
        if shape.len() < 2 || shape.iter().any(|&length| length > i32::MAX as usize) {
            return Err(self.error(place, "two or more dimensions", format!("{shape:?}"), DAMAGED));
        }
        let name = String::from_utf8_lossy(&head[name]).into_owned();
        let class = match class & 0xff {
            5 => Class::Sparse,
            _ if logical => Class::Dense("logical"),
            6 => Class::Dense("double"),
            7 => Class::Dense("single"),
            8 => Class::Dense("int8"),
            9 => Class::Dense("uint8"),
            10 => Class::Dense("int16"),
            11 => Class::Dense("uint16"),
            12 => Class::Dense("int32"),
            13 => Class::Dense("uint32"),
            14 => Class::Dense("int64"),
            15 => Class::Dense("uint64"),
            1 => Class::Other("cell"),
            2 => Class::Other("struct"),
            4 => Class::Other("char"),
            _ => Class::Other("object"),
        };
        Ok((!name.is_empty()).then_some(Variable { name, class, shape, complex, data, deflated }))
    }

    /// Places of flags, dimensions and name at the start of a variable, and where its values start.
    fn head(&self, bytes: &[u8], place: &str) -> Result<([Range<usize>; 3], usize)> {
        let mut at = 0;
        let mut next = || {
            let (_, data, next) = self.element(bytes, at, place)?;
            at = next.1.min(bytes.len());
            Ok::<_, Error>(data)
        };
        let parts = [next()?, next()?, next()?];
        Ok((parts, at))
    }

    fn skip_head(&self, bytes: &[u8], place: &str) -> Result<usize> {
        self.head(bytes, place).map(|(_, at)| at)
    }

    /// All bytes inside the element of a variable.
    fn bytes(&self, variable: &Variable) -> Result<Cow<'_, [u8]>> {
        self.payload(&variable.data, variable.deflated, u64::MAX, &variable.name)
    }

    /// The bytes inside a variable's element, or at least the first `most` of them.
    fn payload(&self, data: &Range<usize>, deflated: bool, most: u64, place: &str) -> Result<Cow<'_, [u8]>> {
        let stored = &self.map[data.clone()];
        if !deflated {
            return Ok(Cow::Borrowed(stored));
        }
        let unreadable =
            |fault: &dyn std::fmt::Display| self.error(place, "a deflated variable", fault.to_string(), DAMAGED);
        let mut inflated = ZlibDecoder::new(stored);
        let mut tag = [0; 8];
        inflated.read_exact(&mut tag).map_err(|fault| unreadable(&fault))?;
        let [kind, length] = [0, 4].map(|at| self.word(&tag[at..]));
        if kind != MI_MATRIX {
            return Err(self.error(place, "a variable", format!("an element of type {kind}"), DAMAGED));
        }
        if u64::from(length) > (stored.len() as u64).saturating_mul(MAX_COMPRESSION) {
            let found = format!("{length} bytes in {}", stored.len());
            return Err(self.error(place, "a size that the packed bytes can hold", found, DAMAGED));
        }
        let mut bytes = Vec::new();
        let wanted = u64::from(length).min(most);
        // As they are and as numbers of 8 bytes, which take at least as much.
        self.fits(wanted.saturating_mul(2), place)?;
        inflated.take(wanted).read_to_end(&mut bytes).map_err(|fault| unreadable(&fault))?;
        match bytes.len() as u64 == wanted {
            true => Ok(Cow::Owned(bytes)),
            false => Err(self.error(place, format!("{wanted} bytes"), bytes.len().to_string(), DAMAGED)),
        }
    }

    /// Refuses what would take so many bytes where the memory of this machine cannot hold them.
    fn fits(&self, bytes: u64, place: &str) -> Result<()> {
        let Some(machine) = memory::too_little_for(bytes) else { return Ok(()) };
        let expected = format!("a variable that fits the memory of this machine, {machine} bytes, as numbers");
        Err(self.error(place, expected, format!("{bytes} bytes"), "save the graph in parts, or as tables"))
    }

    /// Type and data of the element at `at`, and where the next one starts: without and with padding.
    fn element(&self, bytes: &[u8], at: usize, place: &str) -> Result<(u32, Range<usize>, (usize, usize))> {
        let cut = || self.error(place, "an element", format!("the end of the data at byte {at}"), DAMAGED);
        let tag = bytes.get(at..).filter(|rest| rest.len() >= 8).ok_or_else(cut)?;
        let first = self.word(tag);
        // A small element keeps its data in the tag.
        if first >> 16 != 0 {
            let length = (first >> 16) as usize;
            if length > 4 {
                return Err(self.error(place, "at most 4 bytes in a small element", length.to_string(), DAMAGED));
            }
            return Ok((first & 0xffff, at + 4..at + 4 + length, (at + 8, at + 8)));
        }
        let length = self.word(&tag[4..]) as usize;
        let end = (at + 8).checked_add(length).filter(|&end| end <= bytes.len()).ok_or_else(|| {
            let expected = format!("at most {} more bytes", bytes.len() - at - 8);
            self.error(place, expected, format!("an element of {length} at byte {at}"), DAMAGED)
        })?;
        Ok((first, at + 8..end, (end, end.next_multiple_of(8))))
    }

    fn word(&self, bytes: &[u8]) -> u32 {
        let word = [bytes[0], bytes[1], bytes[2], bytes[3]];
        if self.big_endian { u32::from_be_bytes(word) } else { u32::from_le_bytes(word) }
    }

    fn words(&self, bytes: &[u8]) -> Vec<u32> {
        bytes.chunks_exact(4).map(|word| self.word(word)).collect()
    }

    /// Indices, which are 32-bit integers.
    fn integers(&self, name: &str, kind: u32, bytes: &[u8]) -> Result<Vec<u32>> {
        if !matches!(kind, 5 | 6) {
            return Err(self.error(name, "indices of type int32", format!("type {kind}"), DAMAGED));
        }
        Ok(self.words(bytes))
    }

    /// Numbers of any type; the file may store a variable in a narrower type than its class.
    fn numbers(&self, name: &str, kind: u32, bytes: &[u8]) -> Result<Vec<f64>> {
        macro_rules! read {
            ($number:ty) => {{
                let (chunks, _) = bytes.as_chunks::<{ size_of::<$number>() }>();
                self.fits(8 * chunks.len() as u64, name)?;
                let of = if self.big_endian { <$number>::from_be_bytes } else { <$number>::from_le_bytes };
                chunks.iter().map(|&chunk| of(chunk) as f64).collect()
            }};
        }
        Ok(match kind {
            1 => read!(i8),
            2 => read!(u8),
            3 => read!(i16),
            4 => read!(u16),
            5 => read!(i32),
            6 => read!(u32),
            7 => read!(f32),
            9 => read!(f64),
            12 => read!(i64),
            13 => read!(u64),
            other => return Err(self.error(name, "numbers", format!("data of type {other}"), DAMAGED)),
        })
    }
}

/// Whether the file is big-endian; an error for what is no file of level 5.
fn endianness(path: &Path, bytes: &[u8]) -> Result<bool> {
    const SAVE_V7: &str = "load it in MATLAB and `save -v7`, or in Python with scipy.io.savemat, which writes level 5";
    let refused = |found: &str| Err(Error::format(path, "header", "a MAT file of level 5", found, SAVE_V7));
    if bytes.starts_with(b"\x89HDF\r\n\x1a\n") || bytes.get(512..520) == Some(b"\x89HDF\r\n\x1a\n".as_slice()) {
        return refused("an HDF5 file (MATLAB's v7.3)");
    }
    let mark = bytes.get(124..128);
    match mark {
        Some([_, _, b'I', b'M']) => Ok(false),
        Some([_, _, b'M', b'I']) => Ok(true),
        // Level 4 has no header text: its first word counts thousands, hundreds, tens of types, each below 10.
        _ if bytes.len() >= 20 && bytes[..4].contains(&0) => refused("other bytes, perhaps a MAT file of level 4"),
        _ => refused("other bytes"),
    }
}
