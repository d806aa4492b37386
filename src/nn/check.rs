//! Checks of what a caller hands to a layer: a wrong shape panics with layer, argument, expected and got.

/// Panics unless `actual == expected`.
#[track_caller]
pub(super) fn size(layer: &str, argument: &str, expected: usize, actual: usize) {
    assert!(actual == expected, "{layer}: {argument}: expected {expected}, got {actual}");
}

/// Panics unless `actual > 0`.
#[track_caller]
pub(super) fn positive(layer: &str, argument: &str, actual: usize) {
    assert!(actual > 0, "{layer}: {argument}: expected at least 1, got {actual}");
}

/// Panics unless `actual` is in [0, 1).
#[track_caller]
pub(super) fn rate(layer: &str, argument: &str, actual: f64) {
    assert!((0.0..1.0).contains(&actual), "{layer}: {argument}: expected [0, 1), got {actual}");
}
