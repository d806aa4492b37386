//! Models in few bytes; numbers come back bit for bit.
//!
//! # The file
//! All integers are little-endian.
//!
//! | bytes | |
//! |---|---|
//! | 0 to 7 | `GSTREES` and a zero byte |
//! | 8 to 11 | version of the layout, 1 |
//! | from 12 on | one zstd frame with a checksum of what is in it |
//!
//! In the frame there are the length of the header (u64), the header (JSON: the model without its trees) and the
//! columns below. A column holds one number of every node, or leaf, of all trees in a row. It begins with the number of
//! bytes per value (u8: 1, 2, 4 or 8) and the number of values (u64); then come the lowest bytes of all values, the
//! second lowest, and so on. Where there are few different values of more than two bytes, the first byte is 16, and two
//! columns follow: the different values in ascending order, and the place of each value among them.
//!
//! 1. Nodes of every tree; it has one leaf more. Shrinkage of every tree, as the bits of the f64.
//! 2. Of leaves: value, weight, count.
//! 3. Of nodes: feature; 1 where missing values go left, plus 2 times what is missing (0 nothing, 1 zero, 2 NaN), plus
//!    8 for a set of categories; left child; right child. A child is twice a node less its parent, or twice the zigzag
//!    of a leaf less the parent, plus 1.
//! 4. Thresholds: how many edges each feature has, all edges by feature in ascending order of their bits, and per node
//!    the place of its threshold among those of its feature. Sets: words of every set, and the words.
//! 5. Of nodes: value, weight, count and gain, each as the zigzag of what it has more than its children tell:
//!    `(v_l w_l + v_r w_r) / w`, `w_l + w_r`, `n_l + n_r` and `v_l^2 w_l + v_r^2 w_r - v^2 w`, of f64 the bits as
//!    integers, 0 for those of NaN. Where that is exact or nearly so the highest bytes are 0, which takes no space.

mod read;
#[cfg(test)]
mod tests;
mod told;
mod write;

use std::io::{Read, Write};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use self::read::{HELP, Reader};
use self::write::columns;
use super::refuse;
use super::tree::Tree;
use crate::error::Result;

/// What such a file begins with.
pub(crate) const MAGIC: &[u8; 8] = b"GSTREES\0";
/// Counted up when the layout changes.
const VERSION: u32 = 1;
/// More takes longer and gains little.
const LEVEL: i32 = 6;

/// How many times its size a file may unpack to, beyond [`HARMLESS_BYTES`].
const MAX_RATIO: u64 = 1000;
/// Its columns become numbers of eight bytes and nodes: together below a gigabyte.
const HARMLESS_BYTES: u64 = 1 << 25;

/// A model with its trees apart.
#[derive(Serialize, Deserialize)]
pub(crate) struct Packed {
    /// `booster` or `forest`.
    pub kind: String,
    /// The model without its trees.
    pub model: Value,
    /// What else belongs to it.
    pub more: Value,
    #[serde(skip)]
    pub trees: Vec<Tree>,
}

/// The bytes of a file; the trees are those of `trees`, not of `packed`.
pub(crate) fn pack(packed: &Packed, trees: &[Tree]) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    out.extend(VERSION.to_le_bytes());
    let write = || -> std::io::Result<Vec<u8>> {
        let mut encoder = zstd::Encoder::new(out, LEVEL)?;
        encoder.include_checksum(true)?;
        let header = serde_json::to_vec(packed)?;
        encoder.write_all(&(header.len() as u64).to_le_bytes())?;
        encoder.write_all(&header)?;
        encoder.write_all(&columns(trees))?;
        encoder.finish()
    };
    write().expect("a vector takes every byte, and a header has only string keys and finite numbers")
}

/// Reads what [`pack`] wrote.
///
/// # Errors
/// [`Error::Format`] for bytes of another kind or version, and for damaged ones.
pub(crate) fn unpack(bytes: &[u8]) -> Result<Packed> {
    let bad = |place: &str, expected: &str, found: String| refuse::model_text(place, expected, found, HELP);
    let Some(rest) = bytes.strip_prefix(MAGIC) else {
        return Err(bad(
            "first bytes",
            "GSTREES",
            format!("{:?}", String::from_utf8_lossy(&bytes[..bytes.len().min(8)])),
        ));
    };
    let Some((version, frame)) = rest.split_first_chunk() else {
        return Err(bad("version", "four bytes", format!("{} bytes", rest.len())));
    };
    let version = u32::from_le_bytes(*version);
    if version != VERSION {
        let help = "read it with the version that wrote it, or train again";
        return Err(refuse::model_text("version", VERSION, version, help));
    }
    let most = (frame.len() as u64).saturating_mul(MAX_RATIO).max(HARMLESS_BYTES);
    let mut content = Vec::new();
    let read = zstd::Decoder::new(frame).and_then(|unpacked| unpacked.take(most + 1).read_to_end(&mut content));
    read.map_err(|fault| bad("content", "a whole zstd frame", fault.to_string()))?;
    if content.len() as u64 > most {
        return Err(bad("content", &format!("at most {most} bytes"), "more".into()));
    }
    let mut reader = Reader { rest: &content };
    let length = reader.u64("header")?;
    let header = reader.bytes(length, "header")?;
    let mut packed: Packed =
        serde_json::from_slice(header).map_err(|fault| bad("header", "the header of a model", fault.to_string()))?;
    packed.trees = reader.trees()?;
    match reader.rest.len() {
        0 => Ok(packed),
        more => Err(bad("end", "nothing after the trees", format!("{more} bytes"))),
    }
}
