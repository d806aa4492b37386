//! Rows of CSV and TSV files: one thread cuts the text behind rows, others make cells of the pieces.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::cells::{Batch, BatchBuilder, find_columns};
use super::input::{Limits, Unpacked, read_error};
use crate::error::{Error, Result};

/// Bytes of a piece, at least; a row that is longer makes a longer one.
const PIECE: usize = 1 << 20;
/// Bytes that are asked for at once.
const READ: usize = 1 << 17;
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// Whole rows of one file.
pub(super) struct Piece {
    header: Arc<Header>,
    text: Vec<u8>,
    /// The line that it begins with, counted from 1.
    line: u64,
    /// Whether cells may be quoted.
    has_quotes: bool,
    /// Bytes of the file that are read so far.
    consumed: u64,
}

struct Header {
    path: Arc<Path>,
    separator: u8,
    names: Arc<[String]>,
    /// Number of all columns, and the positions of those that are asked for.
    width: usize,
    positions: Vec<usize>,
}

/// Finds the ends of rows as the reader of rows does: a quote counts at the beginning of a cell, a line feed in quotes
/// does not.
#[derive(Clone, Copy, Default, PartialEq)]
enum Scan {
    #[default]
    Start,
    Cell,
    Quoted,
    /// Behind a quote inside of quotes, which ends them or stands for itself.
    Closing,
}

impl Scan {
    fn after(self, byte: u8, separator: u8) -> Self {
        match (self, byte) {
            (Self::Quoted, b'"') => Self::Closing,
            (Self::Quoted, _) | (Self::Start | Self::Closing, b'"') => Self::Quoted,
            (_, b'\n') => Self::Start,
            (_, byte) if byte == separator => Self::Start,
            _ => Self::Cell,
        }
    }
}

/// A file as text, and how far its rows are known.
struct Cutter {
    unpacked: Unpacked,
    separator: u8,
    /// What is read and not cut yet.
    text: Vec<u8>,
    /// Bytes of it that are scanned, and the end of the last whole row.
    scanned: usize,
    whole: usize,
    scan: Scan,
    has_quotes: bool,
    is_done: bool,
    /// Bytes that are cut off, and their lines.
    cut: u64,
    lines: u64,
}

fn count_lines(text: &[u8]) -> u64 {
    text.chunks(1 << 12).map(|part| part.iter().map(|&byte| u64::from(byte == b'\n')).sum::<u64>()).sum()
}

impl Cutter {
    fn new(unpacked: Unpacked, separator: u8) -> Self {
        Self {
            unpacked,
            separator,
            text: Vec::new(),
            scanned: 0,
            whole: 0,
            scan: Scan::Start,
            has_quotes: false,
            is_done: false,
            cut: 0,
            lines: 0,
        }
    }

    /// Reads on until rows of `least` bytes are whole or the file ends. What is left there is a row, too.
    fn fill(&mut self, path: &Path, least: usize) -> Result<()> {
        while self.whole < least && !self.is_done {
            let before = self.text.len();
            self.text.resize(before + READ, 0);
            let count = self.unpacked.read(&mut self.text[before..]);
            let count = count
                .map_err(|source| read_error(path, self.lines + count_lines(&self.text[..self.whole]) + 1, source))?;
            self.text.truncate(before + count);
            if self.cut == 0 && before == 0 && self.text.starts_with(BYTE_ORDER_MARK) {
                self.text.drain(..BYTE_ORDER_MARK.len());
                self.cut = BYTE_ORDER_MARK.len() as u64;
            }
            self.is_done = count == 0;
            let new = &self.text[self.scanned..];
            if self.scan != Scan::Quoted && self.scan != Scan::Closing && !new.contains(&b'"') {
                if let Some(end) = new.iter().rposition(|&byte| byte == b'\n') {
                    self.whole = self.scanned + end + 1;
                }
                self.scan = new.last().map_or(self.scan, |&last| Scan::Cell.after(last, self.separator));
            } else {
                self.has_quotes = true;
                for (at, &byte) in new.iter().enumerate() {
                    let is_quoted = self.scan == Scan::Quoted;
                    self.scan = self.scan.after(byte, self.separator);
                    if byte == b'\n' && !is_quoted {
                        self.whole = self.scanned + at + 1;
                    }
                }
            }
            self.scanned = self.text.len();
            if self.is_done {
                self.whole = self.text.len();
            }
            self.unpacked.position().row_end.set(self.cut + self.whole as u64);
        }
        Ok(())
    }

    /// The whole rows so far, the line that they begin with and whether they may hold quotes.
    fn take(&mut self) -> (Vec<u8>, u64, bool) {
        let rest = self.text[self.whole..].to_vec();
        let mut rows = std::mem::replace(&mut self.text, rest);
        rows.truncate(self.whole);
        let line = self.lines + 1;
        self.cut += self.whole as u64;
        self.lines += count_lines(&rows);
        self.scanned -= self.whole;
        self.whole = 0;
        let has_quotes = self.has_quotes;
        // A row that is not whole yet may have begun with a quote.
        self.has_quotes = self.text.contains(&b'"');
        (rows, line, has_quotes)
    }
}

/// A reader of rows. They end at a line feed alone, so that lines can be counted; a carriage return before it is taken
/// off later.
fn rows_of(text: &[u8], separator: u8) -> csv::Reader<&[u8]> {
    csv::ReaderBuilder::new()
        .delimiter(separator)
        .terminator(csv::Terminator::Any(b'\n'))
        .has_headers(false)
        .flexible(true)
        .from_reader(text)
}

/// The names of the columns, taken off the front of `cutter`.
fn take_header(path: &Path, cutter: &mut Cutter) -> Result<Vec<String>> {
    cutter.fill(path, 1)?;
    if cutter.text.starts_with(&[0xff, 0xfe]) || cutter.text.starts_with(&[0xfe, 0xff]) {
        let help = "save the table in the encoding UTF-8, a spreadsheet's \"CSV UTF-8\"";
        return Err(Error::format(path, "line 1", "UTF-8 text", "UTF-16 text", help));
    }
    let mut record = csv::ByteRecord::new();
    let mut reader = rows_of(&cutter.text[..cutter.whole], cutter.separator);
    reader.read_byte_record(&mut record).map_err(|fault| malformed(path, 1, &fault))?;
    let end = reader.position().byte() as usize;
    let mut header: Vec<String> = record.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect();
    if let Some(last) = header.last_mut() {
        last.truncate(last.strip_suffix('\r').unwrap_or(last).len());
    }
    if header == [""] {
        header.clear();
    }
    if header.is_empty() {
        let help = "the first line of a table names its columns";
        return Err(Error::format(path, "line 1", "a header", "an empty table", help));
    }
    cutter.lines += count_lines(&cutter.text[..end]);
    cutter.text.drain(..end);
    cutter.cut += end as u64;
    cutter.scanned -= end;
    cutter.whole -= end;
    Ok(header)
}

/// The names of the columns of a file.
///
/// # Errors
/// [`Error::Io`]; [`Error::Format`] for what is no table.
pub(super) fn header_of(path: &Path, separator: u8, limits: Limits) -> Result<Vec<String>> {
    take_header(path, &mut Cutter::new(Unpacked::open(path, limits, Arc::default())?, separator))
}

/// Sends the rows of `path` in pieces until the end or until `send` is no longer interested, which it returns.
///
/// # Errors
/// [`Error::Io`]; [`Error::Format`] for packed text that is damaged or too large, and for a header without the columns.
pub(super) fn cut(
    path: &Arc<Path>,
    separator: u8,
    names: &Arc<[String]>,
    limits: Limits,
    send: &mut dyn FnMut(Piece) -> bool,
) -> Result<bool> {
    let consumed = Arc::new(AtomicU64::new(0));
    let mut cutter = Cutter::new(Unpacked::open(path, limits, Arc::clone(&consumed))?, separator);
    let header = take_header(path, &mut cutter)?;
    let positions = find_columns(path, &header, names)?;
    let (path, names, width) = (Arc::clone(path), Arc::clone(names), header.len());
    let header = Arc::new(Header { path, separator, names, width, positions });
    loop {
        let filled = cutter.fill(&header.path, PIECE);
        // Rows before what cannot be read are read.
        let (text, line, has_quotes) = cutter.take();
        let consumed = consumed.load(Relaxed);
        let is_empty = text.is_empty();
        if !is_empty && !send(Piece { header: Arc::clone(&header), text, line, has_quotes, consumed }) {
            return Ok(false);
        }
        filled?;
        if is_empty && cutter.is_done {
            return Ok(true);
        }
    }
}

impl Piece {
    /// Bytes of its text.
    pub fn len(&self) -> usize {
        self.text.len()
    }

    /// The rows as cells.
    ///
    /// # Errors
    /// [`Error::Format`] with the line of a row of another length than the header, and of what is no UTF-8.
    pub fn read(self) -> Result<Batch> {
        let mut rows = BatchBuilder::new(&self.header.path, "line", &self.header.names);
        if self.has_quotes { self.read_quoted(&mut rows) } else { self.read_plain(&mut rows) }?;
        rows.take(self.consumed)
    }

    fn ragged(&self, line: u64, found: usize) -> Error {
        let expected = format!("{} cells, as in the header", self.header.width);
        let found = format!("a ragged row of {found}");
        let help = "quote cells that hold the separator, and look for rows that are cut off";
        Error::format(&*self.header.path, format!("line {line}"), expected, found, help)
    }

    fn push<'a>(&self, rows: &mut BatchBuilder, line: u64, cell: impl Fn(usize) -> &'a [u8]) -> Result<()> {
        for (at, &column) in self.header.positions.iter().enumerate() {
            let bytes = cell(column);
            let is_last = column + 1 == self.header.width;
            let bytes = if is_last { bytes.strip_suffix(b"\r").unwrap_or(bytes) } else { bytes };
            rows.check_cell(at, line, bytes)?;
            rows.columns[at].push(bytes);
        }
        rows.places.push(line);
        Ok(())
    }

    /// Without quotes a line is a row and separators are where they stand.
    fn read_plain(&self, rows: &mut BatchBuilder) -> Result<()> {
        let separator = self.header.separator;
        let mut ends = Vec::with_capacity(self.header.width);
        for (line, text) in (self.line..).zip(self.text.split(|&byte| byte == b'\n')) {
            if text.is_empty() || text == b"\r" {
                continue;
            }
            ends.clear();
            ends.extend(text.iter().enumerate().filter(|(_, byte)| **byte == separator).map(|(at, _)| at));
            ends.push(text.len());
            if ends.len() != self.header.width {
                return Err(self.ragged(line, ends.len()));
            }
            self.push(rows, line, |column| {
                let start = column.checked_sub(1).map_or(0, |before| ends[before] + 1);
                &text[start..ends[column]]
            })?;
        }
        Ok(())
    }

    fn read_quoted(&self, rows: &mut BatchBuilder) -> Result<()> {
        let path = &self.header.path;
        // The reader takes a mark at the beginning for one of the whole file: an empty line before it keeps it.
        let kept = self.text.starts_with(BYTE_ORDER_MARK).then(|| [b"\n", &self.text[..]].concat());
        let text = kept.as_deref().unwrap_or(&self.text);
        let before = self.line - u64::from(kept.is_some()) - 1;
        let mut reader = rows_of(text, self.header.separator);
        let mut record = csv::ByteRecord::new();
        loop {
            let line = before + reader.position().line();
            if !reader.read_byte_record(&mut record).map_err(|fault| malformed(path, line, &fault))? {
                return Ok(());
            }
            // The line in which the row starts: that of its end, less the line feeds since.
            let is_cut_off = reader.position().byte() == text.len() as u64 && text.last() != Some(&b'\n');
            let inside = record.as_slice().iter().filter(|&&byte| byte == b'\n').count() as u64;
            let line = before + reader.position().line() - inside - u64::from(!is_cut_off);
            if record.as_slice() == b"\r" {
                continue;
            }
            if record.len() != self.header.width {
                return Err(self.ragged(line, record.len()));
            }
            self.push(rows, line, |column| record.get(column).unwrap_or_default())?;
        }
    }
}

fn malformed(path: &Path, line: u64, fault: &csv::Error) -> Error {
    Error::format(path, format!("line {line}"), "a row of cells", fault.to_string(), "repair or remove the line")
}
