//! Files for readers that take a path. Each reader has a directory of its own in every thread: it is made once, and the
//! one file that is under test is written anew for every input.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

thread_local! {
    static DIRECTORIES: RefCell<HashMap<&'static str, TempDir>> = RefCell::default();
}

/// The directory of a reader, which `make` has filled.
pub fn directory(reader: &'static str, make: impl FnOnce(&Path)) -> PathBuf {
    let known = DIRECTORIES.with_borrow(|all| all.get(reader).map(|dir| dir.path().to_owned()));
    known.unwrap_or_else(|| {
        let dir = tempfile::tempdir().expect("a temporary directory");
        make(dir.path());
        let path = dir.path().to_owned();
        DIRECTORIES.with_borrow_mut(|all| all.insert(reader, dir));
        path
    })
}

/// A file of this content in an otherwise empty directory of the reader.
pub fn file(reader: &'static str, name: &str, bytes: &[u8]) -> PathBuf {
    put(&directory(reader, |_| {}).join(name), bytes)
}

/// Writes a file; returns its path.
pub fn put(path: &Path, bytes: &[u8]) -> PathBuf {
    fs::write(path, bytes).unwrap_or_else(|fault| panic!("{}: {fault}", path.display()));
    path.to_owned()
}

/// The content of a file that a writer of the program made.
pub fn get(path: &Path) -> Vec<u8> {
    fs::read(path).unwrap_or_else(|fault| panic!("{}: {fault}", path.display()))
}
