//! A look at the structures of a Parquet file before the `parquet` crate reads them.
//!
//! They are written in Thrift's compact protocol. The crate passes over a list of truth values that it does not know by
//! counting to its length, which a few bytes can call two thousand million, and a list of such lists takes hours.
//! Parquet has no such list in its footer and in the headers of its pages.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};

/// How deep structures lie in each other; the crate follows none as far.
const DEPTH: usize = 128;
const MAGIC: &[u8] = b"PAR1";

/// Whether the footer of a file of `size` bytes has such a list.
pub(super) fn is_endless_footer(file: &File, size: u64) -> bool {
    let footer = || -> io::Result<Walk> {
        let mut end = [0; 8];
        let mut at = file;
        at.seek(SeekFrom::Start(size.checked_sub(8).ok_or(io::ErrorKind::InvalidData)?))?;
        at.read_exact(&mut end)?;
        let [a, b, c, d, magic @ ..] = end;
        let length = u64::from(u32::from_le_bytes([a, b, c, d]));
        let start = (size - 8).checked_sub(length).filter(|_| magic == MAGIC).ok_or(io::ErrorKind::InvalidData)?;
        Walk::new(file, start, length)
    };
    // What is no Parquet file is for the crate to refuse.
    footer().is_ok_and(|mut walk| matches!(walk.structure(DEPTH), Err(Stop::Endless)))
}

/// Whether a header of a page has one, in the `length` bytes from `start` on that are pages of a column.
pub(super) fn has_endless_page(file: &File, start: u64, length: u64) -> bool {
    let Ok(mut walk) = Walk::new(file, start, length) else { return false };
    while walk.left > 0 {
        match walk.structure(DEPTH).and_then(|packed| walk.skip(packed.ok_or(Stop::Damaged)?)) {
            Ok(()) => {}
            Err(Stop::Damaged) => return false,
            Err(Stop::Endless) => return true,
        }
    }
    false
}

/// Why a walk ends early.
enum Stop {
    Damaged,
    Endless,
}

impl From<io::Error> for Stop {
    fn from(_: io::Error) -> Self {
        Self::Damaged
    }
}

/// A walk through some bytes of a file.
struct Walk<'a> {
    from: BufReader<&'a File>,
    left: u64,
}

impl<'a> Walk<'a> {
    fn new(file: &'a File, start: u64, length: u64) -> io::Result<Self> {
        let mut from = BufReader::new(file);
        from.seek(SeekFrom::Start(start))?;
        Ok(Self { from, left: length })
    }

    fn byte(&mut self) -> Result<u8, Stop> {
        self.left = self.left.checked_sub(1).ok_or(Stop::Damaged)?;
        let mut byte = [0];
        self.from.read_exact(&mut byte)?;
        Ok(byte[0])
    }

    fn skip(&mut self, bytes: u64) -> Result<(), Stop> {
        self.left = self.left.checked_sub(bytes).ok_or(Stop::Damaged)?;
        Ok(self.from.seek_relative(i64::try_from(bytes).map_err(|_| Stop::Damaged)?)?)
    }

    /// Seven bits a byte, the lowest first.
    fn number(&mut self) -> Result<u64, Stop> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 127) << shift;
            if byte < 128 {
                return Ok(number);
            }
        }
        Err(Stop::Damaged)
    }

    /// Its third field, where that is a number of 32 bits above zero: of the header of a page how long the page is.
    fn structure(&mut self, depth: usize) -> Result<Option<u64>, Stop> {
        let (mut id, mut third) = (0, None);
        loop {
            let field = self.byte()?;
            let kind = field & 15;
            if kind == 0 {
                return Ok(third);
            }
            id = match field >> 4 {
                // Signs stand in the lowest bit.
                0 => self.number()? >> 1,
                more => id + u64::from(more),
            };
            match (id, kind) {
                (3, 5) => third = Some(self.number()?).filter(|packed| packed & 1 == 0).map(|packed| packed >> 1),
                _ => self.value(kind, depth)?,
            }
        }
    }

    fn value(&mut self, kind: u8, depth: usize) -> Result<(), Stop> {
        let inner = depth.checked_sub(1).ok_or(Stop::Damaged)?;
        match kind {
            1 | 2 => Ok(()),
            3 => self.skip(1),
            4..=6 => self.number().map(drop),
            7 => self.skip(8),
            8 => {
                let length = self.number()?;
                self.skip(length)
            }
            9 | 10 => {
                let header = self.byte()?;
                let count = if header >> 4 == 15 { self.number()? } else { u64::from(header >> 4) };
                self.values(count, &[header & 15], inner)
            }
            11 => match self.number()? {
                0 => Ok(()),
                count => {
                    let kinds = self.byte()?;
                    self.values(count, &[kinds >> 4, kinds & 15], inner)
                }
            },
            12 => self.structure(inner).map(drop),
            13 => self.skip(16),
            _ => Err(Stop::Damaged),
        }
    }

    /// So many values of each of these kinds.
    fn values(&mut self, count: u64, kinds: &[u8], depth: usize) -> Result<(), Stop> {
        if count > 0 && kinds.iter().all(|kind| matches!(kind, 1 | 2)) {
            return Err(Stop::Endless);
        }
        // Each has a byte at least, so that the end of the file is the end of this.
        (0..count).try_for_each(|_| kinds.iter().try_for_each(|&kind| self.value(kind, depth)))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn file(bytes: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    /// The first field is a list of 2^31 - 1 truth values.
    const ENDLESS: [u8; 8] = [0x19, 0xf2, 0xff, 0xff, 0xff, 0xff, 0x07, 0];

    fn is_endless(footer: &[u8]) -> bool {
        let bytes = [MAGIC, footer, &(footer.len() as u32).to_le_bytes(), MAGIC].concat();
        is_endless_footer(&file(&bytes), bytes.len() as u64)
    }

    #[test]
    fn a_footer_with_a_list_of_truth_values_is_found_wherever_it_lies() {
        assert!(is_endless(&ENDLESS));
        // Behind a number, eight bytes and a text; in a structure; in a list of lists; as a map of truth values.
        assert!(is_endless(&[&[0x15, 6, 0x17, 1, 2, 3, 4, 5, 6, 7, 8, 0x18, 2, 65, 66], &ENDLESS[..]].concat()));
        assert!(is_endless(&[&[0x1c], &ENDLESS[..], &[0]].concat()));
        assert!(is_endless(&[0x19, 0x29, 0x12, 0x12, 0]));
        assert!(is_endless(&[0x1b, 0x7f, 0x11, 0]));
        // Truth values that are fields have no bytes; an empty list, a map with texts and damaged bytes are no loop.
        assert!(!is_endless(&[0x11, 0x12, 0x19, 0x02, 0x1b, 1, 0x18, 1, 65, 0]));
        for damaged in [&[][..], &[0x18, 0xff, 0xff, 0x03, 0], &[0x1e], &[0x15, 255, 255], &[0x1c; 999]] {
            assert!(!is_endless(damaged), "{damaged:?}");
        }
        assert!(!is_endless_footer(&file(b"PAR1"), 4) && !is_endless_footer(&file(&[0; 99]), 99));
    }

    #[test]
    fn a_page_is_looked_at_behind_the_ones_before_it() {
        // Two pages of two bytes each, whose header says so in its third field.
        let pages = [0x35, 4, 0, 9, 9, 0x15, 0, 0x25, 4, 0, 9, 9];
        let all = file(&[&[7; 5], &pages[..], &ENDLESS[..]].concat());
        assert!(has_endless_page(&all, 5, 20));
        assert!(!has_endless_page(&all, 5, 12), "behind the last page of the column");
        assert!(!has_endless_page(&all, 1 << 40, 1 << 50) && !has_endless_page(&file(&[0]), 0, 1));
    }
}
