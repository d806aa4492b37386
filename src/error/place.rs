//! Where an error lies, with the line of text that it is about.

use std::fmt::{self, Display};
use std::ops::{Deref, Range};

/// Characters of a line that a snippet shows; a longer line is cut around the mark.
const WIDEST: usize = 100;

/// A place in words, such as `run.toml:14` or `row 3`; where it is a place in a text, with the line and a mark under it.
///
/// It compares, dereferences and prints as the words. A pointer, so that an error that carries one stays small.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place(Box<Inner>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Inner {
    words: String,
    snippet: Option<Snippet>,
}

/// One line of a text and the part of it that is meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Snippet {
    /// Counted from 1.
    line: usize,
    text: String,
    /// Characters before the mark, and under it.
    before: usize,
    marked: usize,
}

impl Place {
    /// With the line that the place is in.
    pub(crate) fn with_snippet(self, snippet: Snippet) -> Self {
        Self(Box::new(Inner { words: self.0.words, snippet: Some(snippet) }))
    }

    /// The line and the mark, each on a line of its own after a line end; nothing where there is none.
    pub(crate) fn snippet(&self) -> impl Display + '_ {
        fmt::from_fn(|f| self.0.snippet.as_ref().map_or(Ok(()), |snippet| snippet.fmt(f)))
    }
}

impl<T: Into<String>> From<T> for Place {
    fn from(words: T) -> Self {
        Self(Box::new(Inner { words: words.into(), snippet: None }))
    }
}

impl Deref for Place {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0.words
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self)
    }
}

impl PartialEq<str> for Place {
    fn eq(&self, other: &str) -> bool {
        **self == *other
    }
}

impl PartialEq<&str> for Place {
    fn eq(&self, other: &&str) -> bool {
        **self == **other
    }
}

impl PartialEq<String> for Place {
    fn eq(&self, other: &String) -> bool {
        **self == **other
    }
}

impl Snippet {
    /// The line of `text` that holds the byte `span.start`, with a mark under the part of `span` that is in it.
    pub(crate) fn of(text: &str, span: Range<usize>) -> Self {
        let start = floor_of_char(text, span.start);
        let line_start = text[..start].rfind('\n').map_or(0, |at| at + 1);
        let line_end = text[start..].find('\n').map_or(text.len(), |at| start + at);
        let end = floor_of_char(text, span.end.clamp(start, line_end));
        let line = text[line_start..line_end].trim_end();
        let (before, marked) = (text[line_start..start].chars().count(), text[start..end].trim_end().chars().count());
        Self { line: line_number(text, start), before, marked: marked.max(1), text: String::new() }.cut(line)
    }

    /// Takes the characters around the mark. What moves the cursor becomes a space, so that the mark stays under its text.
    fn cut(self, line: &str) -> Self {
        let skipped = if self.before + self.marked <= WIDEST { 0 } else { self.before.saturating_sub(WIDEST / 4) };
        let visible = |c: char| if c.is_control() { ' ' } else { c };
        let text: String = line.chars().skip(skipped).take(WIDEST).map(visible).collect();
        let (before, marked) =
            (self.before - skipped, self.marked.min(WIDEST - (self.before - skipped).min(WIDEST - 1)));
        Self { text, before, marked, ..self }
    }
}

impl fmt::Display for Snippet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { line, text, before, marked } = self;
        let width = line.to_string().len();
        write!(f, "\n{:width$} |\n{line} | {text}\n{:width$} | {:before$}{:^<marked$}", "", "", "", "")
    }
}

/// Number of the line that holds `byte`, from 1.
pub(crate) fn line_number(text: &str, byte: usize) -> usize {
    1 + text.bytes().take(byte).filter(|&b| b == b'\n').count()
}

/// The byte at which a line (from 1) and a column (bytes, from 1) of a text lie.
pub(crate) fn byte_at(text: &str, line: usize, column: usize) -> usize {
    let before: usize = text.split_inclusive('\n').take(line.saturating_sub(1)).map(str::len).sum();
    (before + column.saturating_sub(1)).min(text.len())
}

fn floor_of_char(text: &str, byte: usize) -> usize {
    let mut byte = byte.min(text.len());
    while !text.is_char_boundary(byte) {
        byte -= 1;
    }
    byte
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str, part: &str) -> String {
        let start = text.find(part).unwrap();
        let place = Place::from("x").with_snippet(Snippet::of(text, start..start + part.len()));
        place.snippet().to_string()
    }

    #[test]
    fn the_mark_lies_under_what_is_meant() {
        let text = "a = 1\nrate = 1.2 # why\n";
        assert_eq!(shown(text, "1.2"), "\n  |\n2 | rate = 1.2 # why\n  |        ^^^");
        assert_eq!(shown(text, "a"), "\n  |\n1 | a = 1\n  | ^");
        let tenth = format!("{}last = [1,\n2]", "\n".repeat(9));
        assert_eq!(shown(&tenth, "[1,\n2]"), "\n   |\n10 | last = [1,\n   |        ^^^", "up to the end of the line");
    }

    #[test]
    fn characters_and_not_bytes_count_and_tabs_take_one_column() {
        assert_eq!(shown("\tnäme = 3", "3"), "\n  |\n1 |  näme = 3\n  |         ^");
        assert_eq!(shown("a = \u{1b}[31m", "\u{1b}[31m"), "\n  |\n1 | a =  [31m\n  |     ^^^^^");
    }

    #[test]
    fn a_long_line_is_cut_around_the_mark() {
        let text = format!("{} wrong {}", "x".repeat(5000), "y".repeat(5000));
        let shown = shown(&text, "wrong");
        let lines: Vec<&str> = shown.lines().collect();
        let at = lines[3].find('^').unwrap();
        assert!(lines[2].len() < 120 && &lines[2][at..at + 5] == "wrong" && lines[3].ends_with("^^^^^"), "{shown}");
        let all = format!("a = {}", "z".repeat(5000));
        assert!(self::shown(&all, &"z".repeat(5000)).lines().all(|line| line.len() < 120));
    }

    #[test]
    fn a_span_outside_the_text_marks_its_end() {
        for span in [100..200, Range { start: 3, end: 1 }, 0..0] {
            let snippet = Snippet::of("a = ü", span.clone()).to_string();
            assert_eq!(snippet.matches('^').count(), 1, "{span:?}: {snippet}");
        }
        assert_eq!(Snippet::of("", 0..0).to_string(), "\n  |\n1 | \n  | ^");
        assert_eq!([byte_at("ab\ncd", 2, 2), byte_at("ab\ncd", 9, 9), byte_at("", 0, 0)], [4, 5, 0]);
    }
}
