//! The calibration of a run: from its scores to probabilities, fitted to the validation labels.

use std::fs;
use std::io::Write;

use super::RunDir;
use crate::data::split::Split;
use crate::error::{Error, Result};
use crate::graph::formats::atomic_write;
use crate::metrics::Calibration;

/// Probabilities of a run: what [`Calibration`] was fitted to its validation labels.
const CALIBRATION: &str = "calibration.json";

/// Fits a calibration to the validation part.
///
/// # Errors
/// As for [`Calibration::fit`]. Nodes without a score are left out.
pub fn calibrate(scores: &[f32], split: &Split) -> Result<Calibration> {
    let scored = split.validation.iter().map(|&(node, label)| (scores[node as usize], label));
    let (scores, labels): (Vec<f32>, Vec<u8>) = scored.filter(|(score, _)| !score.is_nan()).unzip();
    Calibration::fit(&scores, &labels)
}

/// Writes what [`calibrate`] finds into the run.
///
/// # Errors
/// As for [`calibrate`]; [`Error::Io`].
pub fn write_calibration(run: &RunDir, scores: &[f32], split: &Split) -> Result<()> {
    let calibration = calibrate(scores, split)?;
    atomic_write(run.output(CALIBRATION), |file| {
        serde_json::to_writer_pretty(&mut *file, &calibration)?;
        file.write_all(b"\n")
    })
}

/// The calibration that a run has written; runs of Stage 1 write none.
///
/// # Errors
/// [`Error::Io`]; [`Error::Format`] for a file that was changed.
pub fn read_calibration(run: &RunDir) -> Result<Option<Calibration>> {
    let file = run.output(CALIBRATION);
    if !file.is_file() {
        return Ok(None);
    }
    let text = fs::read_to_string(&file).map_err(|source| Error::io(&file, "read", source))?;
    serde_json::from_str(&text).map(Some).map_err(|fault| {
        let place = format!("line {}, column {}", fault.line(), fault.column());
        let help = "the file was changed after the run wrote it; remove it, then it is fitted anew";
        Error::format(&file, place, "a calibration", fault.to_string(), help)
    })
}
