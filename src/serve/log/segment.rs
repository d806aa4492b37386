//! A file of the log: one frame per batch.
//!
//! ```text
//! frame    mark (4 bytes)  length of the payload (u32)  CRC-32 of length and payload (u32)  payload
//! payload  number of its first record (u64)  time of receipt (i64)  records (u32)
//!          length of the key (u32)  key  digest of the body (16 bytes, with a key only)
//!          per record: length (u32), JSON
//! ```
//! Numbers are little-endian. A record that was taken out has length 0, so that the others keep their numbers. Behind
//! damage the next mark is looked for; no record can hold one with a length behind it, because JSON has no zero bytes.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::graph::digest::of_bytes;
use crate::graph::formats::{atomic_write, parent_of, sync_directory};

const MARK: [u8; 4] = *b"gsl\x01";
const HEAD: usize = 12;
const EXTENSION: &str = "log";
/// No log comes to this number of a record; behind a damaged one there would be none to count on with.
pub(in crate::serve) const LAST_NUMBER: u64 = 1 << 62;

/// Number of a record, from 1; as a place in the log what stands behind that record. 0 is the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Position(pub u64);

/// A key of a client and what tells whether it comes again with the same request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    pub(super) text: String,
    pub(super) digest: [u8; 16],
}

/// One batch.
#[derive(Debug, PartialEq)]
pub(super) struct Frame<'b> {
    /// Number of its first record.
    pub first: u64,
    /// When it came, in seconds since 1970.
    pub received: i64,
    pub key: Option<Key>,
    /// JSON of each; empty where a record was taken out.
    pub records: Vec<&'b [u8]>,
}

/// What a stretch of a file is.
pub(super) enum Piece<'b> {
    Frame(Frame<'b>),
    Damage,
}

impl Key {
    /// `text` is what the client sent as its key, `body` the whole request.
    pub fn new(text: &str, body: &[u8]) -> Self {
        let mut digest = [0; 16];
        digest.iter_mut().zip(of_bytes(body).bytes()).for_each(|(to, from)| *to = from);
        Self { text: text.into(), digest }
    }
}

impl<'b> Frame<'b> {
    /// Number of its last record.
    pub fn last(&self) -> u64 {
        (self.first + self.records.len() as u64).saturating_sub(1)
    }

    pub fn write(&self, to: &mut Vec<u8>) {
        let start = to.len();
        to.extend(MARK);
        to.extend([0; HEAD - MARK.len()]);
        to.extend(self.first.to_le_bytes());
        to.extend(self.received.to_le_bytes());
        to.extend((self.records.len() as u32).to_le_bytes());
        let key = self.key.as_ref().map_or(&[][..], |key| key.text.as_bytes());
        to.extend((key.len() as u32).to_le_bytes());
        to.extend(key);
        to.extend(self.key.iter().flat_map(|key| key.digest));
        for record in &self.records {
            to.extend((record.len() as u32).to_le_bytes());
            to.extend(*record);
        }
        let length = ((to.len() - start - HEAD) as u32).to_le_bytes();
        to[start + 4..start + 8].copy_from_slice(&length);
        let sum = checksum(&length, &to[start + HEAD..]).to_le_bytes();
        to[start + 8..start + HEAD].copy_from_slice(&sum);
    }

    /// The frame at the start of `bytes` and its length, if there is a whole one.
    fn read(bytes: &'b [u8]) -> Option<(Self, usize)> {
        let head = bytes.get(..HEAD)?;
        let length: [u8; 4] = head[4..8].try_into().ok()?;
        let end = HEAD.checked_add(u32::from_le_bytes(length) as usize)?;
        let payload = bytes.get(HEAD..end)?;
        if head[..4] != MARK || head[8..] != checksum(&length, payload).to_le_bytes() {
            return None;
        }
        let mut rest = payload;
        let first = u64::from_le_bytes(take(&mut rest)?);
        let received = i64::from_le_bytes(take(&mut rest)?);
        let count = u32::from_le_bytes(take(&mut rest)?);
        if first > LAST_NUMBER {
            return None;
        }
        let length = u32::from_le_bytes(take(&mut rest)?);
        let key = match split(&mut rest, length as usize)? {
            [] => None,
            text => Some(Key { text: String::from_utf8(text.to_vec()).ok()?, digest: take(&mut rest)? }),
        };
        let mut record = || {
            let length = u32::from_le_bytes(take(&mut rest)?);
            split(&mut rest, length as usize)
        };
        let records = (0..count).map(|_| record()).collect::<Option<_>>()?;
        Some((Self { first, received, key, records }, end))
    }
}

fn checksum(length: &[u8], payload: &[u8]) -> u32 {
    let mut sum = crc32fast::Hasher::new();
    sum.update(length);
    sum.update(payload);
    sum.finalize()
}

fn split<'b>(rest: &mut &'b [u8], length: usize) -> Option<&'b [u8]> {
    let (taken, behind) = rest.split_at_checked(length)?;
    *rest = behind;
    Some(taken)
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    split(rest, N)?.try_into().ok()
}

/// Frames of a file and damaged stretches between them, in their order.
pub(super) fn pieces(bytes: &[u8]) -> impl Iterator<Item = (Range<usize>, Piece<'_>)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let start = at;
        if start == bytes.len() {
            return None;
        }
        if let Some((frame, length)) = Frame::read(&bytes[start..]) {
            at += length;
            return Some((start..at, Piece::Frame(frame)));
        }
        let is_next = |at: &usize| bytes[*at..].starts_with(&MARK) && Frame::read(&bytes[*at..]).is_some();
        at = (start + 1..bytes.len()).find(is_next).unwrap_or(bytes.len());
        Some((start..at, Piece::Damage))
    })
}

/// A file that is complete.
#[derive(Clone, Debug)]
pub(super) struct Segment {
    pub path: PathBuf,
    /// Number of its first record, of which it has its name.
    pub first: u64,
    /// Number of its last record; one less than the first where it has none.
    pub last: u64,
    pub bytes: u64,
    /// When the last batch with a key came.
    pub newest_key: Option<i64>,
}

impl Segment {
    /// Where the file lies whose first record has the number `first`.
    pub fn path(dir: &Path, first: u64) -> PathBuf {
        dir.join(format!("{first:020}.{EXTENSION}"))
    }

    /// The files of `dir`, by the numbers of their first records.
    pub fn list(dir: &Path) -> Result<Vec<(u64, PathBuf)>> {
        let failed = |source| Error::io(dir, "read", source);
        let mut found = Vec::new();
        for entry in fs::read_dir(dir).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            let is_log = path.extension().is_some_and(|extension| extension == EXTENSION);
            let first = path.file_stem().and_then(|stem| stem.to_str()?.parse().ok());
            found.extend(first.filter(|&first| is_log && first <= LAST_NUMBER).map(|first| (first, path)));
        }
        found.sort_unstable();
        Ok(found)
    }

    /// Without records as yet.
    pub fn new(path: PathBuf, first: u64, bytes: usize) -> Self {
        Self { path, first, last: first.saturating_sub(1), bytes: bytes as u64, newest_key: None }
    }

    pub fn read(path: &Path) -> Result<Vec<u8>> {
        fs::read(path).map_err(|source| Error::io(path, "read", source))
    }

    /// Counts a frame that it has.
    pub fn add(&mut self, frame: &Frame) {
        self.last = self.last.max(frame.last());
        self.newest_key = self.newest_key.max(frame.key.as_ref().map(|_| frame.received));
    }

    /// Puts `content` in the place of the file, or removes it where there is none; [`erase`](Self::erase) takes what
    /// was there.
    pub fn replace(&self, content: &[u8]) -> Result<File> {
        let failed = |source| Error::io(&self.path, "write", source);
        let old = File::options().write(true).open(&self.path).map_err(failed)?;
        if content.is_empty() {
            fs::remove_file(&self.path).map_err(failed)?;
        } else {
            atomic_write(&self.path, |file| file.write_all(content))?;
        }
        Ok(old)
    }

    /// Makes [`replace`](Self::replace) durable, and overwrites what the file held with zeros, so that free blocks of
    /// the disk do not have it.
    pub fn erase(&self, mut old: File) -> Result<()> {
        sync_directory(parent_of(&self.path))?;
        let zeros = io::copy(&mut io::repeat(0).take(self.bytes), &mut old).and_then(|_| old.sync_data());
        zeros.map_err(|source| Error::io(&self.path, "overwrite", source))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames() -> (Vec<u8>, Vec<usize>) {
        let (mut bytes, mut ends) = (Vec::new(), Vec::new());
        for first in [1, 3, 5, 7] {
            let key = (first == 3).then(|| Key::new("a key", b"x"));
            Frame { first, received: -7, key, records: vec![b"{\"a\":1}", b""] }.write(&mut bytes);
            ends.push(bytes.len());
        }
        (bytes, ends)
    }

    /// First numbers of whole frames, and damaged stretches.
    fn found(bytes: &[u8]) -> (Vec<u64>, Vec<Range<usize>>) {
        let (mut firsts, mut damage) = (Vec::new(), Vec::new());
        for (range, piece) in pieces(bytes) {
            match piece {
                Piece::Frame(frame) => firsts.push(frame.first),
                Piece::Damage => damage.push(range),
            }
        }
        (firsts, damage)
    }

    #[test]
    fn frames_are_read_as_they_were_written() {
        let (bytes, ends) = frames();
        assert_eq!(found(&bytes), (vec![1, 3, 5, 7], vec![]));
        let (second, length) = Frame::read(&bytes[ends[0]..]).unwrap();
        assert_eq!(length, ends[1] - ends[0]);
        assert_eq!((second.last(), second.received, &second.records[..]), (4, -7, &[&b"{\"a\":1}"[..], b""][..]));
        assert_eq!(second.key, Some(Key::new("a key", b"x")));
        assert_ne!(second.key, Some(Key::new("a key", b"y")));
    }

    #[test]
    fn one_changed_byte_costs_the_frame_that_it_is_in() {
        let (bytes, ends) = frames();
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 0x40;
            let hit = ends.iter().filter(|&&end| end <= at).count();
            let start = if hit == 0 { 0 } else { ends[hit - 1] };
            let left = [1, 3, 5, 7].into_iter().filter(|&first| first != 2 * hit as u64 + 1).collect();
            assert_eq!(found(&changed), (left, Vec::from_iter(Some(start..ends[hit]))), "{at}");
        }
    }

    #[test]
    fn a_file_that_ends_early_has_the_frames_that_are_whole() {
        let (bytes, ends) = frames();
        for length in 0..bytes.len() {
            let whole = ends.iter().filter(|&&end| end <= length).count();
            let (firsts, damage) = found(&bytes[..length]);
            assert_eq!(firsts.len(), whole);
            let start = if whole == 0 { 0 } else { ends[whole - 1] };
            assert_eq!(damage, Vec::from_iter((start < length).then_some(start..length)));
        }
    }
}
