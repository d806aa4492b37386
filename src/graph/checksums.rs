//! `SHA256SUMS` of a data directory: what its arrays were when they were written.
//!
//! A line has a digest and a name, as `sha256sum --check SHA256SUMS` reads them. Named are features, relations, values
//! of edges and times of events: arrays in which a flipped bit makes one number of another. Labels, ids and
//! descriptions are not, as they may be replaced by hand; no directory has to have the file.
//!
//! A file of more than 16 MiB has a second line with the digest [of its pieces](digest::in_pieces), which several
//! threads compare. To `sha256sum` that is a comment.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use rayon::prelude::*;

use super::digest;
use super::formats::{FEATURES_FILE, is_present, write_new};
use crate::error::{Error, Result};

/// The file.
pub(super) const CHECKSUMS_FILE: &str = "SHA256SUMS";

const HELP: &str = "the file was damaged or changed after the directory was written: restore it, or make the directory \
                    again; of a file that you changed yourself, remove the line in SHA256SUMS";

/// How a line begins that has the digest of pieces.
const PIECES: &str = "# in pieces of 16 MiB: ";

/// Digests of files by their names: of the whole file, or of its pieces.
#[derive(Default)]
pub(super) struct Checksums(BTreeMap<String, String>);

/// Digits of a digest.
const DIGITS: usize = 64;

/// The name and the digest of a line, where it has them. Behind the digest of pieces stands their number.
fn named(line: &str) -> Option<(String, String)> {
    let (digest, name) = line.split_once("  ")?;
    let (digits, number) = digest.split_once('-').unwrap_or((digest, "2"));
    let is_digest = digits.len() == DIGITS && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    let is_name = !name.is_empty() && !name.contains(['/', '\\']);
    (is_digest && is_number && is_name).then(|| (name.to_owned(), digest.to_ascii_lowercase()))
}

/// Whether a file of a data directory holds such an array.
fn is_array(name: &str) -> bool {
    name.ends_with(".bin") || name == FEATURES_FILE || name.starts_with("event_")
}

impl Checksums {
    /// Those of a data directory, none where it has no such file.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Format`] for another line.
    pub fn read(dir: &Path) -> Result<Self> {
        let path = dir.join(CHECKSUMS_FILE);
        if !is_present(&path) {
            return Ok(Self::default());
        }
        let text = fs::read_to_string(&path).map_err(|source| Error::io(&path, "read", source))?;
        let (mut sums, mut pieces) = (BTreeMap::new(), Vec::new());
        for (at, line) in text.lines().enumerate() {
            if let Some(line) = line.strip_prefix(PIECES) {
                pieces.extend(named(line).filter(|(_, digest)| digest.len() > DIGITS));
            } else if line.starts_with('#') {
                continue;
            } else if let Some((name, digest)) = named(line).filter(|(_, digest)| digest.len() == DIGITS) {
                sums.insert(name, digest);
            } else {
                let expected = "64 hexadecimal digits, two spaces and the name of a file of the directory";
                let help = "make it again with `sha256sum`, or remove it: then nothing is compared";
                return Err(Error::format(&path, format!("line {}", at + 1), expected, "something else", help));
            }
        }
        // Whoever changes a file removes its line, and need not know of the other.
        for (name, digest) in pieces {
            sums.entry(name).and_modify(|sum| *sum = digest);
        }
        Ok(Self(sums))
    }

    /// Writes those of the arrays among some files of a new directory. Returns the name of the file.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn write(dir: &Path, names: &[String]) -> Result<String> {
        let arrays = names.par_iter().filter(|name| is_array(name));
        let lines = arrays.map(|name| {
            let path = dir.join(name);
            let pieces = digest::in_pieces(&path)?;
            // Of one piece it is the same.
            let whole = if pieces.len() == DIGITS { pieces.clone() } else { digest::of_file(&path)? };
            Ok((name, [whole, pieces]))
        });
        let lines: BTreeMap<&String, [String; 2]> = lines.collect::<Result<_>>()?;
        write_new(&dir.join(CHECKSUMS_FILE), |file| {
            lines.iter().try_for_each(|(name, [whole, pieces])| {
                writeln!(file, "{whole}  {name}")?;
                if pieces == whole { Ok(()) } else { writeln!(file, "{PIECES}{pieces}  {name}") }
            })
        })?;
        Ok(CHECKSUMS_FILE.to_owned())
    }

    /// Refuses files of a directory that hold something else than when it was written, all `but` some.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub fn check_all(&self, dir: &Path, but: &[PathBuf]) -> Result<()> {
        let paths: Vec<PathBuf> = self.0.keys().map(|name| dir.join(name)).filter(|path| !but.contains(path)).collect();
        let checked: Vec<Result<()>> = paths.par_iter().map(|path| self.check(path)).collect();
        // The first by name, whichever was found first.
        checked.into_iter().collect()
    }

    /// Refuses a file that holds something else than when its directory was written. That there is none, those say who
    /// read it.
    ///
    /// # Errors
    /// [`Error::Format`] with the beginning of both digests; [`Error::Io`].
    pub fn check(&self, path: &Path) -> Result<()> {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let Some(expected) = self.0.get(name).filter(|_| path.is_file()) else { return Ok(()) };
        let found = if expected.len() == DIGITS { digest::of_file(path)? } else { digest::in_pieces(path)? };
        if found == *expected {
            return Ok(());
        }
        let [expected, found] = [expected, &found].map(|digest| format!("SHA-256 {}...", &digest[..12]));
        Err(Error::format(path, "content", format!("what was written, {expected}"), found, HELP))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_that_changed_are_named_and_other_files_may_change() {
        let dir = tempfile::tempdir().unwrap();
        let names = ["a_col_idx.bin", "X_combined.memmap", "event_time.npy", "labels.npy", "graph.toml"];
        let put = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
        names.iter().for_each(|name| put(name, name));
        assert!(Checksums::read(dir.path()).unwrap().0.is_empty());
        assert_eq!(Checksums::write(dir.path(), &names.map(str::to_owned)).unwrap(), CHECKSUMS_FILE);
        let sums = Checksums::read(dir.path()).unwrap();
        assert_eq!(sums.0.keys().collect::<Vec<_>>(), ["X_combined.memmap", "a_col_idx.bin", "event_time.npy"]);
        sums.check_all(dir.path(), &[]).unwrap();
        names.iter().skip(1).for_each(|name| put(name, "other"));
        fs::remove_file(dir.path().join("event_time.npy")).unwrap();
        let refused = sums.check_all(dir.path(), &[]).unwrap_err().to_string();
        assert!(refused.contains("X_combined.memmap: content: expected what was written, SHA-256 "), "{refused}");
        sums.check_all(dir.path(), &[dir.path().join("X_combined.memmap")]).unwrap();

        let long = dir.path().join("a_values.bin");
        let content = vec![7u8; (16 << 20) + 1];
        fs::write(&long, &content).unwrap();
        fs::remove_file(dir.path().join(CHECKSUMS_FILE)).unwrap();
        Checksums::write(dir.path(), &["a_values.bin".to_owned()]).unwrap();
        let text = fs::read_to_string(dir.path().join(CHECKSUMS_FILE)).unwrap();
        let [whole, pieces] = [digest::of_bytes(&content), digest::in_pieces(&long).unwrap()];
        assert_eq!(text, format!("{whole}  a_values.bin\n# in pieces of 16 MiB: {pieces}  a_values.bin\n"));
        let refuses = |text: &str, words: &str| {
            put(CHECKSUMS_FILE, text);
            let refused = Checksums::read(dir.path()).unwrap().check_all(dir.path(), &[]).err();
            assert_eq!(refused.is_some(), !words.is_empty(), "{text}");
            assert!(refused.is_none_or(|refused| refused.to_string().contains(words)), "{text}");
        };
        refuses(&text, "");
        fs::write(&long, &content[1..]).unwrap();
        refuses(&text, &format!("SHA-256 {}...", &pieces[..12]));
        // Without the second line the whole file is compared, without the first one nothing.
        let (first, second) = text.split_once('\n').unwrap();
        refuses(first, &format!("SHA-256 {}...", &whole[..12]));
        refuses(&format!("# {first}\n{second}"), "");

        let digest = digest::of_bytes(b"");
        for line in ["", "abc  a.bin", &digest, &format!("{digest}  "), &format!("{digest}  ../a.bin")] {
            put(CHECKSUMS_FILE, &format!("{digest}  b.bin\n{line}\n"));
            let refused = Checksums::read(dir.path()).err().unwrap().to_string();
            assert!(refused.contains("SHA256SUMS: line 2: expected 64 hexadecimal digits"), "{refused}");
        }
    }
}
