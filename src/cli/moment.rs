//! Moments and lengths of time on the command line.

use std::time::Duration;

use chrono::{DateTime, NaiveDate, NaiveDateTime};

/// Seconds since 1970 of a date (`2026-11-17`, its first second), a time (`2026-11-17T09:30:00`, with `Z` or an offset
/// if it is not UTC), or a number of seconds.
pub(super) fn moment(text: &str) -> Result<i64, String> {
    if let Ok(seconds) = text.parse::<i64>() {
        return Ok(seconds);
    }
    if let Ok(time) = DateTime::parse_from_rfc3339(text) {
        return Ok(time.timestamp());
    }
    let naive = ["%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M"];
    let naive = naive.iter().find_map(|format| NaiveDateTime::parse_from_str(text, format).ok());
    let time = naive.or_else(|| NaiveDate::parse_from_str(text, "%Y-%m-%d").ok()?.and_hms_opt(0, 0, 0));
    time.map(|time| time.and_utc().timestamp())
        .ok_or_else(|| "expected a date (2026-11-17), a time (2026-11-17T09:30:00) or seconds since 1970".into())
}

/// A length of time: `2ms`, `90d`.
pub(super) fn time(text: &str) -> Result<Duration, String> {
    const UNITS: [(&str, u64); 6] =
        [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000), ("w", 604_800_000)];
    let digits = text.trim_end_matches(|last: char| last.is_ascii_alphabetic());
    let unit = UNITS.iter().find(|(unit, _)| *unit == &text[digits.len()..]);
    let milliseconds = unit.and_then(|(_, factor)| digits.parse::<u64>().ok()?.checked_mul(*factor));
    // A century and more is no time that anybody waits: sums with it could not be told.
    let milliseconds = milliseconds.filter(|time| *time < 100 * 366 * UNITS[4].1);
    milliseconds
        .map(Duration::from_millis)
        .ok_or_else(|| "expected a length of time, such as 2ms, 10s, 1h or 90d".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_times_and_seconds_are_moments() {
        let day = 1_794_873_600;
        for text in ["2026-11-17", "2026-11-17T00:00", "2026-11-17 00:00:00", "2026-11-17T01:00:00+01:00", "1794873600"]
        {
            assert_eq!(moment(text), Ok(day), "{text}");
        }
        assert_eq!(moment("2026-11-17T09:30:00Z"), Ok(day + 34_200));
        assert_eq!(moment("-1"), Ok(-1));
        for text in ["", "2026-13-01", "17.11.2026", "soon", "2026-11-17T25:00"] {
            assert!(moment(text).unwrap_err().contains("2026-11-17T09:30:00"), "{text}");
        }
    }
}
