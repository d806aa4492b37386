//! What is done to a file.

use std::fs::{self, Permissions};
use std::mem::take;
use std::os::unix::fs::{PermissionsExt, symlink};

use serde::Deserialize;
use zip::CompressionMethod;

use crate::support::{Sandbox, npy};
use crate::trust::archive;

/// One step of damage; the file comes first.
#[derive(Clone, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Change {
    /// Has this text, is new or is replaced.
    Write(String, String),
    /// Ends with this text, too.
    Append(String, String),
    /// Holds a text, everywhere, instead of another one that it does hold.
    Replace(String, String, String),
    /// Holds a text so many times.
    Repeat(String, String, usize),
    /// Has this text in another encoding, `utf-16` or `latin-1`.
    Encode(String, String),
    /// Has its first bytes alone, or lacks so many at its end.
    Cut(String, i64),
    /// Has another bit in this byte, counted from the end if negative.
    Flip(String, i64),
    /// Holds these bytes, in hexadecimal, from this one on.
    Bytes(String, i64, String),
    /// Has this little-endian i32 at this index.
    Int(String, usize, i32),
    /// Is a NumPy array of this dtype and shape, of these entries so many times.
    Npy(String, String, String, Vec<f64>, usize),
    /// Is an archive of all arrays that lie there.
    Pack(String),
    /// Is not there.
    Remove(String),
    /// Is an empty directory.
    Directory(String),
    /// May be read and written by those alone, as a number.
    Mode(String, u32),
    /// Is what is called so elsewhere.
    Copy(String, String),
    /// Is a symbolic link to something.
    Link(String, String),
}

fn array(dtype: &str, shape: &str, values: &[f64], times: usize) -> Vec<u8> {
    let one = |value: f64| match &dtype[1..] {
        "f4" => (value as f32).to_le_bytes().to_vec(),
        "f8" => value.to_le_bytes().to_vec(),
        "i4" => (value as i32).to_le_bytes().to_vec(),
        "i8" => (value as i64).to_le_bytes().to_vec(),
        "u1" | "b1" | "S1" => vec![value as u8],
        "c8" => vec![0; 8],
        other => panic!("{other}"),
    };
    npy(dtype, shape, &values.iter().flat_map(|&value| one(value)).collect::<Vec<_>>().repeat(times))
}

/// A place in bytes, counted from the end if negative.
fn place(bytes: &[u8], at: i64) -> usize {
    let from = if at < 0 { bytes.len() as i64 } else { 0 };
    usize::try_from(from + at).unwrap()
}

impl Change {
    pub(super) fn make(&self, sandbox: &Sandbox) {
        match self {
            Self::Write(file, text) => sandbox.write(file, text),
            Self::Append(file, text) => sandbox.edit(file, |bytes| bytes.extend(text.as_bytes())),
            Self::Replace(file, from, to) => sandbox.edit(file, |bytes| {
                let text = String::from_utf8(take(bytes)).unwrap();
                assert!(text.contains(from), "{file} lacks {from:?}");
                *bytes = text.replace(from, to).into_bytes();
            }),
            Self::Repeat(file, text, times) => sandbox.write(file, text.repeat(*times)),
            Self::Encode(file, encoding) => sandbox.edit(file, |bytes| {
                let text = String::from_utf8(take(bytes)).unwrap();
                *bytes = match encoding.as_str() {
                    "utf-16" => std::iter::once(0xfeff).chain(text.encode_utf16()).flat_map(u16::to_le_bytes).collect(),
                    "latin-1" => text.chars().map(|c| u8::try_from(c).unwrap()).collect(),
                    other => panic!("{other}"),
                };
            }),
            Self::Cut(file, to) => sandbox.edit(file, |bytes| bytes.truncate(place(bytes, *to))),
            Self::Flip(file, at) => sandbox.edit(file, |bytes| {
                let at = place(bytes, *at);
                bytes[at] ^= 4;
            }),
            Self::Bytes(file, at, hex) => sandbox.edit(file, |bytes| {
                let new: Vec<u8> = hex
                    .as_bytes()
                    .chunks(2)
                    .map(|two| u8::from_str_radix(str::from_utf8(two).unwrap(), 16).unwrap())
                    .collect();
                let at = place(bytes, *at);
                bytes.resize(bytes.len().max(at + new.len()), 0);
                bytes[at..at + new.len()].copy_from_slice(&new);
            }),
            Self::Int(file, at, value) => {
                sandbox.edit(file, |bytes| bytes[at * 4..at * 4 + 4].copy_from_slice(&value.to_le_bytes()));
            }
            Self::Npy(file, dtype, shape, values, times) => sandbox.write(file, array(dtype, shape, values, *times)),
            Self::Pack(file) => {
                let files = sandbox.files();
                let entries: Vec<_> = files
                    .iter()
                    .map(|(path, bytes)| {
                        let name = path.file_name().unwrap().to_str().unwrap();
                        (name, &bytes[..], CompressionMethod::Deflated)
                    })
                    .collect();
                sandbox.write(file, archive(&entries));
            }
            Self::Remove(name) => {
                let path = sandbox.path(name);
                if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }.unwrap();
            }
            Self::Directory(name) => fs::create_dir_all(sandbox.path(name)).unwrap(),
            Self::Mode(name, mode) => fs::set_permissions(sandbox.path(name), Permissions::from_mode(*mode)).unwrap(),
            Self::Copy(name, from) => sandbox.write(name, sandbox.read(from)),
            Self::Link(name, to) => symlink(to, sandbox.path(name)).unwrap(),
        }
    }
}
