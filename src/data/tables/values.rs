//! What cells mean: numbers, booleans, labels, times. An error is what was expected and a way out.

use std::ops::Range;
use std::path::Path;

use chrono::format::{Item, Parsed, StrftimeItems};
use chrono::{NaiveDate, NaiveTime};
use rayon::prelude::*;

use super::cells::{Batch, Column};
use super::description::{LabelColumn, TimeFormat, TimeUnit};
use super::files::TableFile;
use crate::error::{Error, Result};
use crate::graph::date;

/// Why a cell is refused: what was expected, and a way out.
pub(super) type Fault = (&'static str, &'static str);

/// Times beyond the year 9999 or before the year 0 are taken for times in another unit.
const EARLIEST: i64 = -62_167_219_200;
const LATEST: i64 = 253_402_300_799;

/// A number; an empty cell, `NaN`, `NA`, `n/a`, `null` and `none` are none.
pub(super) fn number(cell: &str) -> Result<Option<f32>, Fault> {
    const FAULT: Fault = ("a number", "write numbers with a decimal point and without units, or leave the cell empty");
    let cell = cell.trim();
    if is_no_value(cell) {
        return Ok(None);
    }
    let value: f64 = cell.parse().map_err(|_| FAULT)?;
    let narrow = value as f32;
    match narrow.is_finite() {
        true => Ok(Some(narrow)),
        false => Err(("a finite number of at most 3.4e38", "correct it or leave the cell empty")),
    }
}

/// A truth value; none as for [`number`].
pub(super) fn boolean(cell: &str) -> Result<Option<f32>, Fault> {
    let cell = cell.trim();
    if is_no_value(cell) {
        return Ok(None);
    }
    let one_of = |words: [&str; 5]| words.iter().any(|word| word.eq_ignore_ascii_case(cell));
    if one_of(["true", "1", "yes", "t", "y"]) {
        Ok(Some(1.0))
    } else if one_of(["false", "0", "no", "f", "n"]) {
        Ok(Some(0.0))
    } else {
        Err(("true, false, yes, no, 1 or 0", "declare the column as \"categorical\" if it has more values"))
    }
}

fn is_no_value(cell: &str) -> bool {
    is_missing(cell) || ["na", "n/a", "none"].iter().any(|word| word.eq_ignore_ascii_case(cell))
}

fn is_missing(cell: &str) -> bool {
    cell.is_empty() || ["nan", "null"].iter().any(|word| word.eq_ignore_ascii_case(cell))
}

/// The class of a labelled node.
pub(super) fn label(cell: &str, column: &LabelColumn) -> Result<Option<u8>, Fault> {
    // What a table calls True another one calls true, and a 1 beside missing cells often is 1.0.
    let plain = match cell.to_ascii_lowercase().as_str() {
        "true" => "true",
        "false" => "false",
        "1.0" => "1",
        "0.0" => "0",
        _ => cell,
    };
    let lists = [(&column.anomalous, Some(1)), (&column.normal, Some(0)), (&column.unknown, None)];
    let listed = |cell: &str| lists.iter().find(|(cells, _)| cells.iter().any(|known| known == cell));
    // As it is written first: a list may name both.
    match listed(cell).or_else(|| listed(plain)) {
        Some((_, class)) => Ok(*class),
        None if cell.is_empty() => Ok(None),
        None => {
            let help = "list it: label = { column = \"...\", anomalous = [...], normal = [...], unknown = [...] }";
            Err(("a label that is listed as anomalous, normal or unknown", help))
        }
    }
}

/// Reads times of one column.
pub(super) struct TimeReader<'a> {
    items: Option<Vec<Item<'a>>>,
    unit: TimeUnit,
}

impl<'a> TimeReader<'a> {
    /// `None` when the format is no `strftime` pattern.
    pub fn new(format: &'a TimeFormat) -> Option<Self> {
        let items = format.format.as_deref().map(|pattern| StrftimeItems::new(pattern).parse());
        Some(Self { items: items.transpose().ok()?, unit: format.unit })
    }

    /// As [`read`](Self::read); whatever the format, also ISO 8601. Of a single number of a unit below the second that
    /// lies in the first weeks of 1970, seconds were meant.
    pub fn read_one(&self, cell: &str, format: &TimeFormat) -> Result<Option<i64>, Fault> {
        let time = match self.read(cell, false) {
            Err(fault) => Some(of_iso(cell.trim()).filter(|time| (EARLIEST..=LATEST).contains(time)).ok_or(fault)?),
            Ok(time) => time,
        };
        match time.is_some_and(|time| time.abs() < WEEKS_OF_1970) && may_be_larger_unit(format) {
            true => Err((
                "a time in the unit that the description says, not in the first weeks of 1970",
                "numbers of a larger unit look like this: write RFC 3339, or the number in the declared unit",
            )),
            false => Ok(time),
        }
    }

    /// Seconds since 1970, UTC unless the cell names an offset; an empty cell, `NaN` and `null` are no time.
    pub fn read(&self, cell: &str, is_seconds: bool) -> Result<Option<i64>, Fault> {
        let cell = cell.trim();
        if is_missing(cell) {
            return Ok(None);
        }
        let seconds = match &self.items {
            _ if is_seconds => cell.parse().map_err(|_| ("a time", "write the table again"))?,
            Some(items) => of_pattern(cell, items)
                .ok_or(("a time in the declared format", "correct the cell, or `format` in the description"))?,
            None => self.of_number(cell).or_else(|| of_iso(cell)).ok_or((
                "a time: ISO 8601 or a number since 1970",
                "say how the column is written: format = \"%d.%m.%Y %H:%M\"",
            ))?,
        };
        match (EARLIEST..=LATEST).contains(&seconds) {
            true => Ok(Some(seconds)),
            false => Err(("a time of the years 0 to 9999", "numbers are seconds since 1970 unless unit = \"ms\"")),
        }
    }

    fn of_number(&self, cell: &str) -> Option<i64> {
        let per_second = match self.unit {
            TimeUnit::S => 1,
            TimeUnit::Ms => 1_000,
            TimeUnit::Us => 1_000_000,
            TimeUnit::Ns => 1_000_000_000,
        };
        match cell.parse::<i64>() {
            Ok(number) => Some(number.div_euclid(per_second)),
            Err(_) => {
                let number: f64 = cell.parse().ok()?;
                number.is_finite().then(|| (number / per_second as f64).floor() as i64)
            }
        }
    }
}

/// `2024-01-31`; behind `T` or a space a time, `09:26`, `09:26:56`, `09:26:56.5` or `092656`; and behind a time with
/// seconds an offset, `Z`, `+01`, `+0100` or `+01:00`.
fn of_iso(cell: &str) -> Option<i64> {
    let cell = cell.as_bytes();
    let number = |range: Range<usize>| {
        let digits = cell.get(range)?;
        digits.iter().try_fold(0, |sum, byte| byte.is_ascii_digit().then(|| sum * 10 + u32::from(byte - b'0')))
    };
    let two = |start: usize| number(start..start + 2);
    let is = |at: usize, marks: &[u8]| cell.get(at).is_some_and(|byte| marks.contains(byte));
    if !is(4, b"-") || !is(7, b"-") {
        return None;
    }
    let date = NaiveDate::from_ymd_opt(number(0..4)? as i32, two(5)?, two(8)?)?;
    if cell.len() == 10 {
        return Some(date.and_time(NaiveTime::MIN).and_utc().timestamp());
    }
    let (minute, second, mut end) = match is(13, b":") {
        // Minutes are as far as many tables go.
        true if cell.len() == 16 => (two(14)?, 0, 16),
        true if is(16, b":") => (two(14)?, two(17)?, 19),
        true => return None,
        false => (two(13)?, two(15)?, 17),
    };
    // A leap second counts as the one before it.
    let time = NaiveTime::from_hms_opt(two(11)?, minute, if second == 60 { 59 } else { second })?;
    if end == 19 && is(end, b".") {
        let digits = cell[end + 1..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        end += 1 + digits;
        if digits == 0 {
            return None;
        }
    }
    let offset = match &cell[end..] {
        [] | [b'Z' | b'z'] => 0,
        rest => offset_of(rest.trim_ascii_start())?,
    };
    is(10, b"Tt ").then(|| date.and_time(time).and_utc().timestamp() - offset)
}

/// Seconds east of Greenwich.
fn offset_of(text: &[u8]) -> Option<i64> {
    let (sign, digits) = match text {
        [sign, h0, h1] => (sign, [h0, h1, &b'0', &b'0']),
        [sign, h0, h1, m0, m1] | [sign, h0, h1, b':', m0, m1] => (sign, [h0, h1, m0, m1]),
        _ => return None,
    };
    let [h0, h1, m0, m1] = digits.map(|digit| i64::from(*digit) - i64::from(b'0'));
    let seconds = (10 * h0 + h1) * 3600 + (10 * m0 + m1) * 60;
    let is_offset = digits.iter().all(|digit| digit.is_ascii_digit()) && seconds < 86_400;
    match sign {
        b'+' if is_offset => Some(seconds),
        b'-' if is_offset => Some(-seconds),
        _ => None,
    }
}

fn of_pattern(cell: &str, items: &[Item]) -> Option<i64> {
    let mut parsed = Parsed::new();
    chrono::format::parse(&mut parsed, cell, items.iter()).ok()?;
    if let Some(timestamp) = parsed.timestamp() {
        return Some(timestamp);
    }
    let date = parsed.to_naive_date().ok()?;
    let has_time = parsed.hour_div_12().is_some() || parsed.hour_mod_12().is_some();
    let time = if has_time { time_of(parsed.clone())? } else { NaiveTime::MIN };
    let offset = i64::from(parsed.offset().unwrap_or(0));
    Some(date.and_time(time).and_utc().timestamp() - offset)
}

/// Minutes that the pattern does not name are zero.
fn time_of(mut parsed: Parsed) -> Option<NaiveTime> {
    if parsed.minute().is_none() {
        parsed.set_minute(0).ok()?;
    }
    parsed.to_naive_time().ok()
}

/// Reads a whole column in parallel; the error is that of the first cell that has one.
pub(super) fn read_column<T: Send>(
    batch: &Batch,
    at: usize,
    name: &str,
    read: impl Fn(&Column, usize) -> Result<T, Fault> + Sync,
) -> Result<Vec<T>> {
    let column = &batch.columns[at];
    let values: Result<Vec<T>, Fault> =
        (0..column.len()).into_par_iter().with_min_len(512).map(|row| read(column, row)).collect();
    if let Ok(values) = values {
        return Ok(values);
    }
    // Threads meet errors in any order: look again in the order of the rows.
    let mut values = Vec::with_capacity(column.len());
    for row in 0..column.len() {
        match read(column, row) {
            Ok(value) => values.push(value),
            Err((expected, help)) => return Err(batch.error(row, name, expected, column.get(row), help)),
        }
    }
    Ok(values)
}

/// Numbers of a unit below the second that are all nearer to the beginning of 1970 than this are in a larger unit:
/// seconds of the years 1809 to 2131 read as milliseconds, and so on for smaller units.
const WEEKS_OF_1970: i64 = 59 * 86_400;

/// Whether times in the first weeks of 1970 tell of another unit.
fn may_be_larger_unit(format: &TimeFormat) -> bool {
    !format.in_1970 && format.format.is_none() && format.unit != TimeUnit::S
}

/// Refuses a whole column of times in the first weeks of 1970 where the unit that the description names explains them.
///
/// # Errors
/// [`Error::Format`] with the first and the last time.
pub(super) fn check_unit(
    files: &[TableFile],
    column: &str,
    format: &TimeFormat,
    times: impl Iterator<Item = i64>,
) -> Result<()> {
    if !may_be_larger_unit(format) {
        return Ok(());
    }
    let ends = times.fold(None, |ends: Option<[i64; 2]>, time| {
        let [first, last] = ends.unwrap_or([time; 2]);
        Some([time.min(first), time.max(last)])
    });
    let Some([first, last]) = ends.filter(|ends| ends.iter().all(|time| time.abs() < WEEKS_OF_1970)) else {
        return Ok(());
    };
    let unit = format.unit.name();
    Err(Error::format(
        files.first().map_or(Path::new(""), |file| &file.path),
        format!("column `{column}`"),
        format!("times in the unit \"{unit}\", as the description says"),
        format!("none outside of the first weeks of 1970: {} to {}", date(first), date(last)),
        "numbers of a larger unit look like this: leave `unit` out for seconds; if these times are meant, write \
         in_1970 = true beside the unit",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_booleans_and_gaps() {
        assert_eq!(
            ["1", " -2.5e3 ", "+.5", "", "NaN", "null", "N/A", "none"].map(|c| number(c).unwrap()),
            [Some(1.0), Some(-2500.0), Some(0.5), None, None, None, None, None]
        );
        assert!(["1,5", "12 EUR", "inf", "1e39", "0x1"].iter().all(|cell| number(cell).is_err()));
        assert_eq!(["True", "no", ""].map(|c| boolean(c).unwrap()), [Some(1.0), Some(0.0), None]);
        assert!(boolean("2").is_err());
    }

    #[test]
    fn labels_are_what_the_description_lists() {
        let cells = |cells: &[&str]| cells.iter().map(|&cell| cell.to_owned()).collect();
        let of = |unknown: &[&str]| LabelColumn {
            column: "L".into(),
            anomalous: cells(&["1", "true"]),
            normal: cells(&["0", "false"]),
            unknown: cells(unknown),
            delay: None,
            known: None,
        };
        let labels = ["1", "0", "", "True", "FALSE"].map(|cell| label(cell, &of(&[])).unwrap());
        assert_eq!(labels, [Some(1), Some(0), None, Some(1), Some(0)]);
        assert_eq!(label("2", &of(&["2"])), Ok(None));
        assert_eq!(["1.0", "0.0"].map(|cell| label(cell, &of(&[])).unwrap()), [Some(1), Some(0)]);
        let both = LabelColumn { anomalous: cells(&["1"]), normal: cells(&["1.0"]), ..of(&[]) };
        assert_eq!(["1", "1.0"].map(|cell| label(cell, &both).unwrap()), [Some(1), Some(0)]);
        assert!(label("2", &of(&[])).is_err());
    }

    #[test]
    fn times_have_their_known_values() {
        let read = |pattern: Option<&str>, unit, cell: &str| {
            let format = TimeFormat { format: pattern.map(Into::into), unit, in_1970: false };
            TimeReader::new(&format).unwrap().read(cell, false).ok().flatten()
        };
        // `date -u -d "2009-02-13 23:31:30" +%s`
        let known = 1_234_567_890;
        let iso =
            ["2009-02-13T23:31:30Z", "2009-02-13 23:31:30", "2009-02-14T00:31:30+01:00", "2009-02-13T23:31:30.75"];
        for cell in iso {
            assert_eq!(read(None, TimeUnit::S, cell), Some(known), "{cell}");
        }
        assert_eq!(read(None, TimeUnit::S, "2009-02-13"), Some(known - known % 86_400));
        assert_eq!(read(None, TimeUnit::S, "2009-02-13 23:31"), Some(known - 30));
        assert_eq!(read(None, TimeUnit::S, "1234567890"), Some(known));
        assert_eq!(read(None, TimeUnit::S, "1234567890.9"), Some(known));
        assert_eq!(read(None, TimeUnit::Ms, "1234567890123"), Some(known));
        assert_eq!(read(None, TimeUnit::S, "-1"), Some(-1));
        assert_eq!(read(None, TimeUnit::S, "1234567890123"), None, "milliseconds are no seconds");
        assert_eq!(read(Some("%d.%m.%Y %H:%M:%S"), TimeUnit::S, "13.02.2009 23:31:30"), Some(known));
        assert_eq!(read(Some("%d/%m/%y"), TimeUnit::S, "13/02/09"), Some(known - known % 86_400));
        assert_eq!(read(Some("%Y-%m-%d %H:%M %z"), TimeUnit::S, "2009-02-14 00:31 +0100"), Some(known - 30));
        assert_eq!(read(Some("%s"), TimeUnit::S, "1234567890"), Some(known));
        let offsets = ["2009-02-14 003130+01", "2009-02-14t00:31:30.123456789012 +0100", "2009-02-13 18:01:30-05:30"];
        for cell in offsets {
            assert_eq!(read(None, TimeUnit::S, cell), Some(known), "{cell}");
        }
        assert_eq!(read(None, TimeUnit::S, "2009-02-13T23:31:60z"), Some(known + 29));
        let bad = ["2009-02-30", "13.02.2009", "yesterday", "2009-13-01T00:00:00Z", "2009-02-13T24:00:00"];
        let signs = ["2009-02-13T23:31:30.", "2009-02-13T23:31:30 Z", "2009-02-13T23:31:30+1", "2009-02-13_23:31:30"];
        let digits = ["2009-02-1 23:31:30", "2009-02-13 2:31:30", "2009-02-13 23:31:61", "2009-02-13 23:31:30+24:00"];
        for bad in [&bad[..], &signs, &digits, &["+009-02-13", "2009-02-13T", "2009-02-13T23", "é2009-02-13"]].concat()
        {
            assert_eq!(read(None, TimeUnit::S, bad), None, "{bad}");
        }
        assert_eq!(read(Some("%d.%m.%Y"), TimeUnit::S, "31.02.2009"), None);
        assert!(TimeReader::new(&TimeFormat { format: Some("%Q".into()), ..TimeFormat::default() }).is_none());
    }
}
