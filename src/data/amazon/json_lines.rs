//! Files of one JSON object per line, plain or gzip, read in blocks and parsed in parallel.

use std::fs::File;
use std::io::{self, BufReader, ErrorKind, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};

use flate2::read::MultiGzDecoder;
use rayon::prelude::*;
use serde::Serialize;

use crate::data::Progress;
use crate::data::counted::Counted;
use crate::error::{Error, Result};

/// Bytes of text parsed at once: some thousand records, enough to keep all cores busy.
const BLOCK_BYTES: usize = 4 << 20;
/// No record is as long; a file without line ends is stopped here instead of filling the memory.
const MAX_LINE_BYTES: usize = 256 << 20;
/// How many line numbers of malformed lines are remembered.
const REMEMBERED: usize = 5;

/// What was found while reading one file.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LineReport {
    /// Lines that are not blank.
    pub lines: u64,
    /// Lines that were skipped: not JSON, not UTF-8, or without a required field.
    pub malformed: u64,
    /// Numbers (from 1) of the first malformed lines.
    pub first_malformed: Vec<u64>,
}

/// Why a line cannot be used.
#[derive(Debug)]
pub(super) struct Malformed {
    pub expected: &'static str,
    pub found: String,
}

/// Which file is read, and what the progress display calls it.
pub(super) struct JsonLines<'a> {
    pub path: &'a Path,
    pub stage: &'static str,
    /// A malformed line is an error instead of being skipped.
    pub strict: bool,
}

/// Calls `parse` on every line that is not blank (in parallel) and `consume` on every record (in file order).
///
/// # Errors
/// [`Error::Io`] when the file cannot be read; [`Error::Format`] for damaged gzip data, for a line beyond 256 MiB and,
/// when `source.strict`, for the first malformed line.
pub(super) fn read<T: Send>(
    source: &JsonLines,
    progress: &dyn Fn(Progress),
    parse: impl Fn(&str) -> Result<T, Malformed> + Sync,
    mut consume: impl FnMut(T),
) -> Result<LineReport> {
    let path = source.path;
    let file = File::open(path).map_err(|e| Error::io(path, "read", e))?;
    let total = file.metadata().map_err(|e| Error::io(path, "read", e))?.len();
    let consumed = Arc::new(AtomicU64::new(0));
    let counted = Counted { file, consumed: Arc::clone(&consumed) };
    let report_progress = |done| progress(Progress { stage: source.stage, done, total });
    report_progress(0);

    let mut report = LineReport::default();
    std::thread::scope(|scope| {
        // Two blocks wait at most: reading and decompressing overlap with parsing, memory stays bounded.
        let (sender, blocks) = sync_channel(2);
        scope.spawn(move || send_blocks(counted, &sender));
        let mut line_number = 0_u64;
        for block in blocks {
            let block = block.map_err(|e| read_error(path, consumed.load(Ordering::Relaxed), e))?;
            let lines: Vec<&[u8]> = block.split(|&byte| byte == b'\n').collect();
            let records: Vec<Option<Result<T, Malformed>>> =
                lines.par_iter().map(|line| parse_line(line, &parse)).collect();
            for (i, record) in records.into_iter().enumerate() {
                let number = line_number + 1 + i as u64;
                match record {
                    None => continue,
                    Some(Ok(record)) => consume(record),
                    Some(Err(Malformed { expected, found })) if source.strict => {
                        let help = "repair or remove the line, or run without --strict to skip such lines";
                        return Err(Error::format(path, format!("line {number}"), expected, found, help));
                    }
                    Some(Err(_)) => {
                        report.malformed += 1;
                        if report.first_malformed.len() < REMEMBERED {
                            report.first_malformed.push(number);
                        }
                    }
                }
                report.lines += 1;
            }
            // Every block ends behind a line end, except the last of a file without one.
            line_number += lines.len() as u64 - 1;
            report_progress(consumed.load(Ordering::Relaxed).min(total));
        }
        Ok(())
    })?;
    report_progress(total);
    Ok(report)
}

fn parse_line<T>(line: &[u8], parse: impl Fn(&str) -> Result<T, Malformed>) -> Option<Result<T, Malformed>> {
    let line = line.trim_ascii();
    let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
    if line.is_empty() {
        return None;
    }
    Some(match std::str::from_utf8(line) {
        Ok(text) => parse(text),
        Err(e) => {
            Err(Malformed { expected: "UTF-8 text", found: format!("a bad byte at column {}", e.valid_up_to() + 1) })
        }
    })
}

/// Sends blocks of whole lines until the end of the file, an error, or the receiver hangs up.
fn send_blocks(counted: Counted, sender: &SyncSender<io::Result<Vec<u8>>>) {
    if let Err(e) = try_send_blocks(counted, sender) {
        // Nobody listens any more when the receiver has stopped at an error of its own.
        let _ = sender.send(Err(e));
    }
}

fn try_send_blocks(counted: Counted, sender: &SyncSender<io::Result<Vec<u8>>>) -> io::Result<()> {
    let mut reader = decoded(counted)?;
    let mut block = Vec::with_capacity(BLOCK_BYTES);
    loop {
        let read =
            reader.by_ref().take((BLOCK_BYTES - block.len().min(BLOCK_BYTES / 2)) as u64).read_to_end(&mut block)?;
        if read == 0 {
            let _ = sender.send(Ok(block));
            return Ok(());
        }
        match block.iter().rposition(|&byte| byte == b'\n') {
            Some(end) => {
                let rest = block.split_off(end + 1);
                if sender.send(Ok(std::mem::replace(&mut block, rest))).is_err() {
                    return Ok(());
                }
            }
            None if block.len() > MAX_LINE_BYTES => return Err(io::Error::new(ErrorKind::FileTooLarge, "line")),
            None => {}
        }
    }
}

/// The file's text: gzip is recognised by its first two bytes, whatever the name says.
fn decoded(mut counted: Counted) -> io::Result<Box<dyn Read + Send>> {
    let mut magic = Vec::with_capacity(2);
    counted.by_ref().take(2).read_to_end(&mut magic)?;
    let is_gzip = magic == [0x1f, 0x8b];
    let whole = BufReader::with_capacity(1 << 18, io::Cursor::new(magic).chain(counted));
    Ok(if is_gzip { Box::new(MultiGzDecoder::new(whole)) } else { Box::new(whole) })
}

fn read_error(path: &Path, byte: u64, error: io::Error) -> Error {
    let place = format!("compressed byte {byte}");
    match error.kind() {
        ErrorKind::UnexpectedEof => Error::format(
            path,
            place,
            "the rest of the gzip data",
            "the end of the file",
            "the file was cut off; download or copy it again",
        ),
        ErrorKind::InvalidInput | ErrorKind::InvalidData => {
            let help = "the file is damaged; download or copy it again";
            Error::format(path, format!("near {place}"), "gzip data", error.to_string(), help)
        }
        ErrorKind::FileTooLarge => Error::format(
            path,
            format!("near byte {byte}"),
            "one JSON object per line",
            "a line of more than 256 MiB",
            "give the file as published: one review or product per line",
        ),
        _ => Error::io(path, "read", error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_numbered_across_blocks_whatever_their_length() {
        // About three blocks, one of them a single line that is longer than a block.
        let mut text: String = (0..200_000).map(|i| format!("{{\"number\": {i}}}\r\n")).collect();
        text += &format!("[\"{}\"]\n\n", "x".repeat(BLOCK_BYTES + 10));
        text += "bad\nlast";
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), &text).unwrap();
        let source = JsonLines { path: file.path(), stage: "test", strict: false };
        let parse = |line: &str| match line {
            "bad" => Err(Malformed { expected: "good", found: line.into() }),
            _ => Ok(line.len()),
        };
        let mut lengths = Vec::new();
        let report = read(&source, &|_| {}, parse, |length| lengths.push(length)).unwrap();
        assert_eq!(report, LineReport { lines: 200_003, malformed: 1, first_malformed: vec![200_003] });
        assert_eq!((lengths.len(), lengths[9], lengths[200_000], lengths[200_001]), (200_002, 13, BLOCK_BYTES + 14, 4));
    }
}
