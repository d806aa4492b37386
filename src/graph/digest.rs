//! SHA-256 of files and of values: what tells whether something is still what it was.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use sha2::{Digest as _, Sha256};

use crate::error::{Error, Result};

/// A SHA-256 under construction.
#[derive(Default)]
pub struct Digest(Sha256);

impl Digest {
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
    let mut digest = Digest::default();
    digest.bytes(bytes);
    digest.finish()
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
}
