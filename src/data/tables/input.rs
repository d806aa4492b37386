//! Table files as streams of bytes: decompressed, counted, and stopped before they fill the memory.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, BufReader, Cursor, ErrorKind, Read};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use flate2::read::MultiGzDecoder;

use crate::data::counted::Counted;
use crate::error::{Error, Result};

/// The largest cell.
pub(super) const MAX_CELL_BYTES: usize = 1 << 20;
/// The longest row of a text table. What a quote that is never closed swallows ends here.
const MAX_ROW_BYTES: u64 = 64 << 20;
/// Text below this size is never taken for a bomb.
const HARMLESS_BYTES: u64 = 1 << 30;
/// How many times its size a file may unpack to, beyond [`HARMLESS_BYTES`].
const MAX_RATIO: u64 = 1000;

/// How a table is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Layout {
    /// Text with one row per line and this byte between cells.
    Separated(u8),
    Parquet,
}

/// How much of a file may be unpacked.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Bytes of one file after unpacking.
    pub max_bytes: u64,
    harmless_bytes: u64,
}

impl Limits {
    pub fn new(max_bytes: u64) -> Self {
        Self { max_bytes, harmless_bytes: HARMLESS_BYTES }
    }

    /// Whether `unpacked` bytes of a file of `size` bytes are too many.
    fn check(self, unpacked: u64, size: u64) -> std::result::Result<(), Refusal> {
        if unpacked > self.max_bytes {
            return Err(Refusal::TooLarge { max: self.max_bytes });
        }
        if unpacked > self.harmless_bytes && unpacked / MAX_RATIO > size {
            return Err(Refusal::Bomb { unpacked, size });
        }
        Ok(())
    }

    /// [`check`](Self::check) for readers that know the numbers.
    pub fn refuse_beyond(self, path: &Path, unpacked: u64, size: u64) -> Result<()> {
        self.check(unpacked, size).map_err(|refusal| refusal.error(path))
    }
}

/// Why a stream was stopped.
#[derive(Debug, Clone, Copy, thiserror::Error)]
pub(super) enum Refusal {
    #[error("more than {max} bytes")]
    TooLarge { max: u64 },
    #[error("{unpacked} bytes out of {size}")]
    Bomb { unpacked: u64, size: u64 },
    #[error("a row of more than {MAX_ROW_BYTES} bytes")]
    LongRow,
}

impl Refusal {
    fn error(self, path: &Path) -> Error {
        match self {
            Self::TooLarge { max } => Error::format(
                path,
                "unpacked size",
                format!("at most {max} bytes"),
                "more",
                "raise --max-bytes if the table is as large as that",
            ),
            Self::Bomb { unpacked, size } => Error::format(
                path,
                "unpacked size",
                format!("at most {MAX_RATIO} times the size of the file, {size} bytes, beyond 1 GiB"),
                format!("{unpacked} bytes and more to come"),
                "the file looks like a zip bomb; unpack it yourself if it is none",
            ),
            Self::LongRow => Error::format(
                path,
                "rows",
                "rows of at most 64 MiB",
                "a longer one",
                "look for a quote that is never closed",
            ),
        }
    }
}

/// The layout that a file's name promises: `.csv`, `.tsv`, `.parquet`, behind `.gz` or `.zst` for the first two.
pub(super) fn layout_of(path: &Path) -> Result<Layout> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    let bare = name.strip_suffix(".gz").or_else(|| name.strip_suffix(".zst")).unwrap_or(&name);
    match bare.rsplit_once('.').map(|(_, extension)| extension) {
        Some("csv") => Ok(Layout::Separated(b',')),
        Some("tsv") => Ok(Layout::Separated(b'\t')),
        Some("parquet" | "pq") if bare == name => Ok(Layout::Parquet),
        _ => Err(Error::format(
            path,
            "file name",
            "a name that ends in .csv, .tsv (with .gz or .zst behind it or not) or .parquet",
            format!("{name:?}"),
            "rename the file after what it holds",
        )),
    }
}

/// Opens a file that is one: a pipe would block, a directory says little.
pub(super) fn open(path: &Path) -> Result<(File, u64)> {
    let failed = |source| Error::io(path, "read", source);
    let metadata = std::fs::metadata(path).map_err(failed)?;
    if metadata.is_dir() {
        return Err(failed(ErrorKind::IsADirectory.into()));
    }
    if !metadata.is_file() {
        return Err(failed(io::Error::other("not a regular file")));
    }
    if metadata.len() == 0 {
        let help = "the first line of a table names its columns";
        return Err(Error::format(path, "file length", "a table", "0 bytes", help));
    }
    Ok((File::open(path).map_err(failed)?, metadata.len()))
}

/// The text of a file, whatever it is packed with.
pub(super) struct Unpacked {
    inner: Box<dyn Read>,
    size: u64,
    limits: Limits,
    position: Rc<Position>,
}

/// What a stream and the reader of its rows tell each other.
#[derive(Debug, Default)]
pub(super) struct Position {
    /// Bytes that came out so far, and the last of them.
    pub produced: Cell<u64>,
    pub last_byte: Cell<u8>,
    /// Bytes of the rows so far; set by the reader of rows.
    pub row_end: Cell<u64>,
}

impl Unpacked {
    /// Opens `path`; gzip and Zstandard are recognised by their first bytes. `consumed` counts the bytes taken from the
    /// file itself.
    pub fn open(path: &Path, limits: Limits, consumed: Arc<AtomicU64>) -> Result<Self> {
        let (file, size) = open(path)?;
        let failed = |source| Error::io(path, "read", source);
        let mut counted = Counted { file, consumed };
        let mut magic = Vec::with_capacity(4);
        counted.by_ref().take(4).read_to_end(&mut magic).map_err(failed)?;
        let packing = match magic[..] {
            [0x1f, 0x8b, ..] => Some(false),
            [0x28, 0xb5, 0x2f, 0xfd] => Some(true),
            _ => None,
        };
        let whole = BufReader::with_capacity(1 << 18, Cursor::new(magic).chain(counted));
        let inner: Box<dyn Read> = match packing {
            Some(false) => Box::new(MultiGzDecoder::new(whole)),
            Some(true) => Box::new(zstd::stream::read::Decoder::with_buffer(whole).map_err(failed)?),
            None => Box::new(whole),
        };
        Ok(Self { inner, size, limits, position: Rc::default() })
    }

    /// How far the stream and its reader are.
    pub fn position(&self) -> Rc<Position> {
        Rc::clone(&self.position)
    }
}

impl Read for Unpacked {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        let produced = self.position.produced.get() + count as u64;
        self.position.produced.set(produced);
        if let Some(&last) = buffer[..count].last() {
            self.position.last_byte.set(last);
        }
        self.limits.check(produced, self.size).map_err(io::Error::other)?;
        if produced.saturating_sub(self.position.row_end.get()) > MAX_ROW_BYTES {
            return Err(io::Error::other(Refusal::LongRow));
        }
        Ok(count)
    }
}

/// What a failed read of packed text means.
pub(super) fn read_error(path: &Path, line: u64, source: io::Error) -> Error {
    if let Some(refusal) = source.get_ref().and_then(|inner| inner.downcast_ref::<Refusal>()) {
        return match (*refusal, refusal.error(path)) {
            (Refusal::LongRow, Error::Format { path, expected, found, help, .. }) => {
                Error::Format { path, place: format!("line {line}").into(), expected, found, help }
            }
            (_, error) => error,
        };
    }
    let help = "the file is cut off or damaged; copy it again";
    match source.kind() {
        ErrorKind::UnexpectedEof => Error::format(
            path,
            format!("behind line {line}"),
            "the rest of the packed data",
            "the end of the file",
            help,
        ),
        // Decoders say what they dislike in these kinds.
        ErrorKind::InvalidInput | ErrorKind::InvalidData | ErrorKind::Other => {
            Error::format(path, format!("behind line {line}"), "packed text", source.to_string(), help)
        }
        _ => Error::io(path, "read", source),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn layouts_are_told_by_name() {
        let layout = |name: &str| layout_of(Path::new(name)).ok();
        assert_eq!(layout("a/B.CSV"), Some(Layout::Separated(b',')));
        assert_eq!(layout("b.tsv.gz"), Some(Layout::Separated(b'\t')));
        assert_eq!(layout("b.v2.csv.zst"), Some(Layout::Separated(b',')));
        assert_eq!(layout("c.parquet"), Some(Layout::Parquet));
        assert_eq!([layout("c.parquet.gz"), layout("d.xlsx"), layout("e")], [None; 3]);
    }

    #[test]
    fn a_bomb_is_stopped_while_it_is_unpacked() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let line = [b"a,b\n".repeat(1 << 12)].concat();
        let mut encoder = zstd::Encoder::new(file.reopen().unwrap(), 1).unwrap();
        (0..4096).for_each(|_| encoder.write_all(&line).unwrap());
        encoder.finish().unwrap();
        let limits = Limits { max_bytes: u64::MAX, harmless_bytes: 1 << 20 };
        let consumed = Arc::default();
        let mut unpacked = Unpacked::open(file.path(), limits, Arc::clone(&consumed)).unwrap();
        let position = unpacked.position();
        let (mut buffer, mut produced) = (vec![0; 1 << 16], 0);
        let refused = loop {
            match unpacked.read(&mut buffer) {
                Ok(count) => {
                    assert!(count > 0, "unpacked {produced} bytes");
                    produced += count as u64;
                    position.row_end.set(produced);
                }
                Err(refused) => break refused,
            }
        };
        let error = read_error(file.path(), 7, refused).to_string();
        assert!(error.contains("zip bomb"), "{error}");
        assert!(produced < 8 << 20, "stopped after {produced} bytes only");
    }

    #[test]
    fn an_endless_row_is_stopped() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut encoder = zstd::Encoder::new(file.reopen().unwrap(), 1).unwrap();
        (0..80).for_each(|_| encoder.write_all(&vec![b'x'; 1 << 20]).unwrap());
        encoder.finish().unwrap();
        let mut unpacked = Unpacked::open(file.path(), Limits::new(u64::MAX), Arc::default()).unwrap();
        let refused = io::copy(&mut unpacked, &mut io::sink()).unwrap_err();
        let error = read_error(file.path(), 7, refused).to_string();
        assert!(error.contains("line 7: expected rows of at most 64 MiB"), "{error}");
    }
}
