//! The figure that decides: what validation labels say of a candidate.

use crate::error::{Error, Result};
use crate::metrics::{Bootstrap, Estimate};
use crate::train::stretch::{Judged, report_of};

/// Share of the resamples within one standard error of a mean.
const ONE_ERROR: f64 = 0.682_689_492_137_086;

/// Average precision of anomalies, accuracy of classes, with its standard error: half of what the middle 68.3 % of the
/// resamples span, as if they were normal; `None` where a class has too few labels.
///
/// # Errors
/// [`Error::Data`] for labels of one class and for scores that are not finite.
pub fn figure(judged: &Judged) -> Result<(f64, Option<f64>)> {
    let bootstrap = Bootstrap { level: ONE_ERROR, ..Bootstrap::default() };
    let found = match judged {
        Judged::Classes { probabilities, labels, classes } => {
            Some(bootstrap.estimate_classes(&report_of(probabilities, labels, *classes)?).accuracy)
        }
        Judged::Anomalies { scores, labels } => bootstrap.estimate(scores, labels, 0.5, &[])?.average_precision,
    };
    let Estimate { value, interval } = found.ok_or_else(|| Error::Data {
        what: "validation labels".into(),
        expected: "at least one anomalous and one normal node".into(),
        found: "one class".into(),
        help: "label more nodes, or give validation a larger share".into(),
    })?;
    Ok((value, interval.map(|interval| (interval.high - interval.low) / 2.0)))
}
