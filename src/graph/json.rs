//! JSON files that this program wrote.

use std::fs;
use std::path::Path;

use serde::de::DeserializeOwned;

use crate::error::{Error, Result};

/// Reads a JSON file; `expected` says what it holds, `help` what to do when it does not.
///
/// # Errors
/// [`Error::Io`] when the file cannot be read; [`Error::Format`] with line and column for other content.
pub fn read_json<T: DeserializeOwned>(file: &Path, expected: &str, help: &str) -> Result<T> {
    let text = fs::read_to_string(file).map_err(|source| Error::io(file, "read", source))?;
    serde_json::from_str(&text).map_err(|fault| {
        let place = format!("line {}, column {}", fault.line(), fault.column());
        Error::format(file, place, expected, fault.to_string(), help)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_read_names_the_file_and_the_place() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("numbers.json");
        assert!(matches!(read_json::<Vec<u32>>(&file, "numbers", "none"), Err(Error::Io { .. })));
        fs::write(&file, "[1,\n 2]").unwrap();
        assert_eq!(read_json::<Vec<u32>>(&file, "numbers", "none").unwrap(), [1, 2]);
        fs::write(&file, "[1,\n \"x\"]").unwrap();
        let error = read_json::<Vec<u32>>(&file, "numbers", "write numbers").unwrap_err().to_string();
        for part in ["numbers.json", "line 2, column 4", "expected numbers", "write numbers"] {
            assert!(error.contains(part), "{error}\nlacks {part}");
        }
    }
}
