//! A moment on the command line.

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
