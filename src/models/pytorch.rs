//! What a PyTorch checkpoint is allowed to hold, checked before it is read: its reader follows whatever the file says.

use std::collections::HashMap;
use std::io::{self, Cursor, Read};

use zip::{CompressionMethod, ZipArchive};

/// Deepest nesting of what is pickled; a state dict has less than ten.
const MAX_DEPTH: u64 = 100;
/// Most objects that a pickle makes, those copied by references to its memo included.
const MAX_OBJECTS: u64 = 10_000_000;

/// What was expected of a part of the file, and what was found.
#[derive(Debug, PartialEq)]
pub(super) struct Refused {
    pub place: String,
    pub expected: String,
    pub found: String,
}

fn refused(place: &str, expected: impl Into<String>, found: impl ToString) -> Refused {
    Refused { place: place.into(), expected: expected.into(), found: found.to_string() }
}

/// Refuses what is no archive as `torch.save` has written it since PyTorch 1.6, entries that were changed or unpack to
/// more than the file has, and pickles that nest or copy without end.
pub(super) fn check(bytes: &[u8]) -> Result<(), Refused> {
    let save = "an archive, as torch.save writes since PyTorch 1.6";
    let mut archive = ZipArchive::new(Cursor::new(bytes)).map_err(|fault| refused("archive", save, fault))?;
    let mut total = 0u64;
    for at in 0..archive.len() {
        let mut entry = archive.by_index(at).map_err(|fault| refused("archive", save, fault))?;
        let name = entry.name().to_owned();
        if entry.compression() != CompressionMethod::Stored {
            return Err(refused(&name, "bytes as they are, as torch.save stores them", entry.compression()));
        }
        total = total.saturating_add(entry.size());
        if total > bytes.len() as u64 {
            return Err(refused(&name, format!("no more than the {} bytes of the file", bytes.len()), total));
        }
        let whole = "the bytes whose CRC-32 the archive tells";
        if name.ends_with(".pkl") {
            let mut pickle = Vec::new();
            entry.read_to_end(&mut pickle).map_err(|fault| refused(&name, whole, fault))?;
            check_pickle(&pickle).map_err(|(expected, found)| refused(&name, expected, found))?;
        } else {
            // The reader of the weights looks at no checksum.
            io::copy(&mut entry, &mut io::sink()).map_err(|fault| refused(&name, whole, fault))?;
        }
    }
    Ok(())
}

/// Depth of an object, and how many it is made of.
#[derive(Clone, Copy)]
struct Size {
    depth: u64,
    objects: u64,
}

const ATOM: Size = Size { depth: 1, objects: 1 };

/// What a pickle has on its stack, in sizes.
#[derive(Default)]
struct Stack {
    /// `None` is a mark.
    sizes: Vec<Option<Size>>,
    memo: HashMap<u32, Size>,
    /// Made so far.
    made: u64,
}

impl Stack {
    fn push(&mut self, size: Size) -> Result<(), (String, u64)> {
        self.made = self.made.saturating_add(size.objects);
        if size.depth > MAX_DEPTH {
            return Err((format!("objects within at most {MAX_DEPTH} others"), size.depth));
        }
        if self.made > MAX_OBJECTS {
            return Err((format!("at most {MAX_OBJECTS} objects"), self.made));
        }
        self.sizes.push(Some(size));
        Ok(())
    }

    /// Makes one object of those on top: `count` of them, or all down to the mark; into the one below where it is
    /// `into`.
    fn gather(&mut self, count: Option<usize>, into: bool) -> Result<Option<()>, (String, u64)> {
        let from = match count {
            Some(count) => self.sizes.len().checked_sub(count),
            None => self.sizes.iter().rposition(Option::is_none),
        };
        let Some(from) = from else { return Ok(None) };
        let gathered = self.sizes.split_off(from).into_iter().flatten();
        let mut size = gathered.fold(ATOM, |size, part| Size {
            depth: size.depth.max(part.depth + 1),
            objects: size.objects.saturating_add(part.objects),
        });
        if into {
            let Some(Some(below)) = self.sizes.pop() else { return Ok(None) };
            size.depth = size.depth.max(below.depth);
            size.objects = size.objects.saturating_add(below.objects);
        }
        self.push(size).map(Some)
    }
}

/// Follows a pickle without making its objects. Where it ends, the reader ends, too, and says so; what is not
/// understood here is refused, as the reader might go on.
fn check_pickle(pickle: &[u8]) -> Result<(), (String, u64)> {
    let mut stack = Stack::default();
    let mut rest = pickle;
    while let Some((&code, after)) = rest.split_first() {
        let at = pickle.len() - rest.len();
        rest = after;
        let taken = |rest: &[u8], count: usize| -> Option<u64> {
            let bytes = rest.get(..count)?;
            Some(bytes.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte)))
        };
        let line = |rest: &[u8]| rest.iter().position(|&byte| byte == b'\n').map(|at| at + 1);
        // Bytes of the argument, and the number that they begin with.
        let argument = match code {
            0x80 | b'q' | b'K' | b'h' => taken(rest, 1).map(|value| (1, value)),
            b'M' => Some((2, 0)),
            b'J' | b'r' | b'j' => taken(rest, 4).map(|value| (4, value)),
            b'G' => Some((8, 0)),
            b'U' | 0x8a => taken(rest, 1).map(|length| (1 + length as usize, 0)),
            b'X' => taken(rest, 4).map(|length| (4 + length as usize, 0)),
            b'I' => line(rest).map(|length| (length, 0)),
            b'c' => line(rest).and_then(|first| Some((first + line(&rest[first..])?, 0))),
            _ => Some((0, 0)),
        };
        let Some((length, value)) = argument else { return Ok(()) };
        let Some(after) = rest.get(length..) else {
            return Err((format!("{length} more bytes"), rest.len() as u64));
        };
        rest = after;
        let key = value as u32;
        let known = match code {
            b'.' => return Ok(()),
            0x80 => Some(()),
            b'(' => {
                stack.sizes.push(None);
                Some(())
            }
            b'N' | b')' | b']' | b'}' | b'X' | b'U' | b'J' | b'I' | b'K' | b'M' | b'G' | b'c' | 0x88..=0x8a => {
                stack.push(ATOM).map(Some)?
            }
            b'h' | b'j' => match stack.memo.get(&key).copied() {
                Some(size) => stack.push(size).map(Some)?,
                None => None,
            },
            b'q' | b'r' | 0x94 => match stack.sizes.last() {
                Some(Some(size)) => {
                    stack.made = stack.made.saturating_add(size.objects);
                    let key = if code == 0x94 { stack.memo.len() as u32 } else { key };
                    stack.memo.insert(key, *size);
                    Some(())
                }
                _ => None,
            },
            b't' | b'l' | b'd' => stack.gather(None, false)?,
            0x85 | b'Q' => stack.gather(Some(1), false)?,
            0x86 | b'R' | 0x81 => stack.gather(Some(2), false)?,
            0x87 => stack.gather(Some(3), false)?,
            b'a' | b'b' => stack.gather(Some(1), true)?,
            b's' => stack.gather(Some(2), true)?,
            b'e' | b'u' => stack.gather(None, true)?,
            _ => None,
        };
        if known.is_none() {
            return Err((format!("an instruction that makes a state dict at byte {at}"), u64::from(code)));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pickles_that_nest_or_copy_without_end_are_refused() {
        let nested = |depth: usize| [vec![b']'; depth], vec![b'a'; depth.saturating_sub(1)], vec![b'.']].concat();
        assert_eq!(check_pickle(&nested(MAX_DEPTH as usize)), Ok(()));
        assert_eq!(check_pickle(&nested(1_000_000)).unwrap_err().1, MAX_DEPTH + 1);
        let doubled = [&b")q\0"[..], &b"h\0h\0\x86q\0".repeat(40)].concat();
        assert!(check_pickle(&doubled).unwrap_err().0.contains("objects"));
        assert_eq!(check_pickle(b"X\xff\xff\xff\xffabc").unwrap_err().1, 7);
        for ended in [&b""[..], b"c\n", b"X\0", b".\xfe"] {
            assert_eq!(check_pickle(ended), Ok(()), "its reader ends there");
        }
        for unlike in [&b"a"[..], b"h\x07.", b"\xfe", b"te", b"(r\0\0\0\0X\xff\xff\xff\x7f"] {
            assert!(check_pickle(unlike).unwrap_err().0.contains("instruction"));
        }
    }
}
