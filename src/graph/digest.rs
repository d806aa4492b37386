//! SHA-256 of files and of values: what tells whether something is still what it was.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read, Write};
use std::panic::resume_unwind;
use std::path::Path;
use std::thread;

use sha2::{Digest as _, Sha256};

use super::formats::map_file;
use crate::error::{Error, Result};

/// A SHA-256 under construction.
#[derive(Default)]
pub struct Digest(Sha256);

impl Digest {
    fn of(bytes: &[u8]) -> Self {
        let mut digest = Self::default();
        digest.bytes(bytes);
        digest
    }

    /// Adds a text with its length, so that two texts are not one longer one.
    pub fn text(&mut self, text: &str) -> &mut Self {
        self.number(text.len() as u64).bytes(text.as_bytes())
    }

    /// Adds a number.
    pub fn number(&mut self, number: u64) -> &mut Self {
        self.bytes(&number.to_le_bytes())
    }

    /// Adds bytes as they are.
    pub fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.update(bytes);
        self
    }

    /// Adds bytes; of more than 16 MiB the digest [of their pieces](in_pieces), which several threads take.
    pub fn large(&mut self, bytes: &[u8]) -> &mut Self {
        if bytes.len() <= PIECE {
            return self.bytes(bytes);
        }
        let mut pieces = Pieces::default();
        pieces.bytes(bytes);
        self.text(&pieces.finish())
    }

    /// In 64 hexadecimal digits.
    pub fn finish(self) -> String {
        self.0.finalize().iter().fold(String::with_capacity(64), |mut text, byte| {
            // Writing to a string does not fail.
            let _ = write!(text, "{byte:02x}");
            text
        })
    }
}

/// SHA-256 of some bytes.
pub fn of_bytes(bytes: &[u8]) -> String {
    Digest::of(bytes).finish()
}

/// SHA-256 of a file.
///
/// # Errors
/// [`Error::Io`].
pub fn of_file(path: &Path) -> Result<String> {
    let failed = |source| Error::io(path, "read", source);
    let mut file = File::open(path).map_err(failed)?;
    let mut digest = Digest::default();
    let mut buffer = vec![0; 1 << 20];
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok(digest.finish()),
            Ok(bytes) => digest.bytes(&buffer[..bytes]),
            Err(fault) if fault.kind() == io::ErrorKind::Interrupted => continue,
            Err(fault) => return Err(failed(fault)),
        };
    }
}

/// Bytes of a large file of which one thread takes the digest.
const PIECE: usize = 16 << 20;
/// Threads that do.
const THREADS: usize = 8;

/// SHA-256 of a file, of several threads: that of a file of more than 16 MiB is the SHA-256 of those of its pieces of
/// 16 MiB, and has their number behind it, `DIGEST-NUMBER`.
///
/// # Errors
/// [`Error::Io`].
pub fn in_pieces(path: &Path) -> Result<String> {
    let mut pieces = Pieces::default();
    pieces.bytes(&map_file(path)?);
    Ok(pieces.finish())
}

/// Digests of the pieces of a file.
#[derive(Default)]
struct Pieces {
    whole: Vec<Digest>,
    begun: Digest,
    /// Bytes of the piece that is begun.
    at: usize,
}

impl Pieces {
    fn bytes(&mut self, bytes: &[u8]) {
        let (first, rest) = bytes.split_at(bytes.len().min(PIECE - self.at));
        self.begin(first);
        let pieces = rest.chunks_exact(PIECE);
        let last = pieces.remainder();
        let pieces: Vec<&[u8]> = pieces.collect();
        thread::scope(|scope| {
            let each = pieces.len().div_ceil(THREADS).max(1);
            let of_thread = |pieces: &[&[u8]]| pieces.iter().map(|piece| Digest::of(piece)).collect::<Vec<_>>();
            let threads: Vec<_> = pieces.chunks(each).map(|some| scope.spawn(move || of_thread(some))).collect();
            let joined = threads.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
            self.whole.extend(joined.flatten());
        });
        self.begin(last);
    }

    fn begin(&mut self, bytes: &[u8]) {
        self.begun.bytes(bytes);
        self.at += bytes.len();
        if self.at == PIECE {
            self.whole.push(std::mem::take(&mut self.begun));
            self.at = 0;
        }
    }

    fn finish(mut self) -> String {
        if self.at > 0 || self.whole.is_empty() {
            self.whole.push(self.begun);
        }
        let number = self.whole.len();
        if number == 1 {
            return self.whole.swap_remove(0).finish();
        }
        let mut digest = Digest::default();
        for piece in self.whole {
            digest.bytes(&piece.0.finalize());
        }
        format!("{}-{number}", digest.finish())
    }
}

/// Writes to a file, and takes its digest [in pieces](in_pieces) meanwhile.
pub(crate) struct Digesting<W> {
    to: W,
    pieces: Pieces,
}

impl<W: Write> Digesting<W> {
    pub(crate) fn new(to: W) -> Self {
        Self { to, pieces: Pieces::default() }
    }

    pub(crate) fn finish(self) -> String {
        self.pieces.finish()
    }
}

impl<W: Write> Write for Digesting<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Self { to, pieces } = self;
        let mut digest = || pieces.bytes(bytes);
        thread::scope(|scope| {
            match bytes.len() > PIECE {
                true => drop(scope.spawn(digest)),
                false => digest(),
            }
            to.write_all(bytes).map(|()| bytes.len())
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_those_of_the_standard() {
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(of_bytes(b"abc"), abc);
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "abc").unwrap();
        assert_eq!(of_file(file.path()).unwrap(), abc);
        assert!(matches!(of_file(Path::new("no such file")), Err(Error::Io { .. })));
    }

    #[test]
    fn texts_are_told_apart_by_their_lengths() {
        let of = |texts: [&str; 2]| {
            let mut digest = Digest::default();
            texts.iter().for_each(|text| {
                digest.text(text);
            });
            digest.finish()
        };
        assert_ne!(of(["ab", "c"]), of(["a", "bc"]));
    }

    #[test]
    fn large_files_have_the_digest_of_those_of_their_pieces() {
        let bytes: Vec<u8> = (0..3 * PIECE + 5).map(|at| (at >> 7) as u8).collect();
        let file = tempfile::NamedTempFile::new().unwrap();
        for length in [0, 3, PIECE, PIECE + 1, 3 * PIECE, 3 * PIECE + 5] {
            let bytes = &bytes[..length];
            std::fs::write(file.path(), bytes).unwrap();
            let pieces: Vec<u8> = bytes.chunks(PIECE).flat_map(|piece| Sha256::digest(piece).to_vec()).collect();
            let expected = match length {
                ..=PIECE => of_bytes(bytes),
                _ => format!("{}-{}", of_bytes(&pieces), pieces.len() / 32),
            };
            assert_eq!(in_pieces(file.path()).unwrap(), expected, "{length}");
            let (mut large, mut named) = (Digest::default(), Digest::default());
            large.large(bytes);
            named.text(&expected);
            assert_eq!(large.finish(), if length > PIECE { named.finish() } else { expected.clone() }, "{length}");
            // However it is written.
            let [first, second] = [length.min(7), length.min(2 * PIECE + 9)];
            for parts in [[0, length], [first, second], [second, second]] {
                let mut digesting = Digesting::new(Vec::new());
                for part in [&bytes[..parts[0]], &bytes[parts[0]..parts[1]], &bytes[parts[1]..]] {
                    digesting.write_all(part).unwrap();
                }
                assert_eq!((digesting.to == bytes, digesting.pieces.finish()), (true, expected.clone()), "{parts:?}");
            }
        }
        assert!(matches!(in_pieces(Path::new("no such file")), Err(Error::Io { .. })));
    }
}
