//! Rows of CSV and TSV files.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::cells::{Batch, BatchBuilder, find_columns};
use super::input::{Limits, Unpacked, read_error};
use crate::error::{Error, Result};

/// Sends the rows of `path` in batches until the end or until `send` is no longer interested.
///
/// # Errors
/// [`Error::Io`]; [`Error::Format`] with the line of what is no table of UTF-8 text.
pub(super) fn read(
    path: &Arc<Path>,
    separator: u8,
    names: &[String],
    limits: Limits,
    send: &mut dyn FnMut(Batch) -> bool,
) -> Result<()> {
    let consumed = Arc::new(AtomicU64::new(0));
    let unpacked = Unpacked::open(path, limits, Arc::clone(&consumed))?;
    let position = unpacked.position();
    // Rows end at a line feed alone, so that lines can be counted; a carriage return before it is taken off below.
    let mut reader = csv::ReaderBuilder::new()
        .delimiter(separator)
        .terminator(csv::Terminator::Any(b'\n'))
        .flexible(true)
        .buffer_capacity(1 << 17)
        .from_reader(unpacked);
    let header = reader.byte_headers().map_err(|fault| malformed(path, 1, fault))?;
    let mut header: Vec<String> = header.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect();
    if let Some(last) = header.last_mut() {
        last.truncate(last.strip_suffix('\r').unwrap_or(last).len());
    }
    if header == [""] {
        header.clear();
    }
    if header.is_empty() {
        let help = "the first line of a table names its columns";
        return Err(Error::format(&**path, "line 1", "a header", "an empty table", help));
    }
    let positions = find_columns(path, &header, names)?;

    let mut rows = BatchBuilder::new(path, "line", names);
    let mut record = csv::ByteRecord::new();
    loop {
        position.row_end.set(reader.position().byte());
        let line = reader.position().line();
        if !reader.read_byte_record(&mut record).map_err(|fault| malformed(path, line, fault))? {
            break;
        }
        // The line in which the row starts: that of its end, less the line feeds since.
        let is_cut_off = reader.position().byte() == position.produced.get() && position.last_byte.get() != b'\n';
        let inside = record.as_slice().iter().filter(|&&byte| byte == b'\n').count() as u64;
        let line = reader.position().line() - inside - u64::from(!is_cut_off);
        if record.as_slice() == b"\r" {
            continue;
        }
        if record.len() != header.len() {
            let expected = format!("{} cells, as in the header", header.len());
            let found = format!("a ragged row of {}", record.len());
            let help = "quote cells that hold the separator, and look for rows that are cut off";
            return Err(Error::format(&**path, format!("line {line}"), expected, found, help));
        }
        for (at, &column) in positions.iter().enumerate() {
            let cell = record.get(column).unwrap_or_default();
            let cell = if column + 1 == header.len() { cell.strip_suffix(b"\r").unwrap_or(cell) } else { cell };
            rows.check_cell(at, line, cell)?;
            rows.columns[at].push(cell);
        }
        rows.places.push(line);
        if rows.is_full() && !send(rows.take(consumed.load(Relaxed))?) {
            return Ok(());
        }
    }
    send(rows.take(consumed.load(Relaxed))?);
    Ok(())
}

fn malformed(path: &Path, line: u64, fault: csv::Error) -> Error {
    let text = fault.to_string();
    match fault.into_kind() {
        csv::ErrorKind::Io(source) => read_error(path, line, source),
        _ => Error::format(path, format!("line {line}"), "a row of cells", text, "repair or remove the line"),
    }
}
