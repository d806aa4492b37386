//! How one value becomes columns, the same in an import and in a row that is read alone. Columns are zero before.

use std::f32::consts::TAU;

use chrono::{DateTime, Datelike};

use super::fitting::{Scaler, signed_log};
use crate::data::text::hashing::{add_random_direction, hash_text};

/// Seed of directions of categories and of texts: the same in every import, so that columns mean the same.
pub(super) const SEED: u64 = 42;
const DAY: i64 = 86_400;

/// A number, or the median of scaled ones; then whether it is missing.
pub(super) fn number(value: Option<f32>, log: bool, median: f32, scaler: Scaler, out: &mut [f32]) {
    // The median is one of scaled values already.
    let known = value.map_or(median, |value| if log { signed_log(value) } else { value });
    out[0] = scaler.apply(known);
    out[1] = f32::from(value.is_none());
}

/// A category as a random direction; an empty name is none.
pub(super) fn hashed(name: &str, out: &mut [f32]) {
    if !name.is_empty() {
        direction(hash_text(name), out);
    }
}

/// The direction of the category with a hash.
pub(super) fn direction(hash: u64, out: &mut [f32]) {
    add_random_direction(hash, SEED, 1.0, out);
}

/// How frequent a category is that `rows` fitted rows have.
pub(super) fn scaled_frequency(rows: u32, scaler: Scaler) -> f32 {
    scaler.apply((rows as f32).ln_1p())
}

/// A category as its [`scaled_frequency`]; then whether it is missing.
pub(super) fn frequency(scaled: Option<f32>, out: &mut [f32]) {
    match scaled {
        Some(scaled) => out[0] = scaled,
        None => out[1] = 1.0,
    }
}

/// A time.
pub(super) fn time(value: Option<i64>, has_hour: bool, latest: i64, scaler: Scaler, out: &mut [f32]) {
    let Some(time) = value else {
        if let Some(missing) = out.last_mut() {
            *missing = 1.0;
        }
        return;
    };
    let [hour, weekday, yearday] = cycles(time);
    let mut at = 0;
    for share in has_hour.then_some(hour).into_iter().chain([weekday, yearday]) {
        put_angle(out, at, share);
        at += 2;
    }
    out[at] = scaler.apply(log_age(latest, time));
}

/// A number of neighbours or edges.
pub(super) fn degree(degree: u32, scaler: Scaler) -> f32 {
    scaler.apply((degree as f32).ln_1p())
}

/// The mean of weights that add up to `sum`, before it is scaled; `None` without edges.
pub(super) fn mean_weight(sum: f64, count: u32) -> Option<f32> {
    (count > 0).then(|| signed_log((sum / f64::from(count)) as f32))
}

/// A windowed feature; NaN where nothing is known.
pub(super) fn window(value: f32, scaler: Scaler) -> f32 {
    if value.is_nan() { 0.0 } else { scaler.apply(signed_log(value)) }
}

/// `ln(1 + seconds since)`; what is later than the latest is as recent as it.
pub(super) fn log_age(latest: i64, time: i64) -> f32 {
    (latest.saturating_sub(time).max(0) as f32).ln_1p()
}

fn put_angle(out: &mut [f32], at: usize, share: f32) {
    (out[at], out[at + 1]) = (TAU * share).sin_cos();
}

/// Hour of day, day of week (from Monday) and day of year, as shares of the whole.
fn cycles(time: i64) -> [f32; 3] {
    let day = time.div_euclid(DAY);
    let date = DateTime::from_timestamp(time, 0).unwrap_or_default().date_naive();
    // The first day of 1970 was a Thursday.
    let weekday = (day + 3).rem_euclid(7);
    let days = if date.leap_year() { 366.0 } else { 365.0 };
    [time.rem_euclid(DAY) as f32 / DAY as f32, weekday as f32 / 7.0, date.ordinal0() as f32 / days]
}
