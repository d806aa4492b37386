//! The calibration of a run: from its scores to probabilities, fitted to the validation labels.

use std::io::Write;

use ndarray::Array2;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::RunDir;
use crate::data::class_split::ClassSplit;
use crate::data::split::Split;
use crate::error::{Error, Result};
use crate::graph::formats::atomic_write;
use crate::graph::json::read_json;
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

/// Fits a calibration to every class against the rest: of class `c`, column `c` of `probabilities` (`[nodes, classes]`)
/// to whether a validation node is of class `c`. `None` for a class where all validation nodes or none are of it.
///
/// # Source
/// Zadrozny and Elkan, Transforming classifier scores into accurate multiclass probability estimates (KDD 2002),
/// without their normalisation: each class has the probability of its own question.
pub fn calibrate_classes(probabilities: &Array2<f32>, split: &ClassSplit) -> Vec<Option<Calibration>> {
    let of_class = |class: usize| {
        let nodes = split.validation.iter();
        let pairs = nodes.map(|&(node, own)| (probabilities[[node as usize, class]], u8::from(own == class as u32)));
        let (scores, labels): (Vec<f32>, Vec<u8>) = pairs.unzip();
        Calibration::fit(&scores, &labels).ok()
    };
    (0..probabilities.ncols()).map(of_class).collect()
}

/// Writes what [`calibrate`] finds into the run.
///
/// # Errors
/// As for [`calibrate`]; [`Error::Io`].
pub fn write_calibration(run: &RunDir, scores: &[f32], split: &Split) -> Result<()> {
    write(run, &calibrate(scores, split)?)
}

/// Writes what [`calibrate_classes`] finds into the run: an array by class.
///
/// # Errors
/// [`Error::Io`].
pub fn write_class_calibrations(run: &RunDir, probabilities: &Array2<f32>, split: &ClassSplit) -> Result<()> {
    write(run, &calibrate_classes(probabilities, split))
}

fn write(run: &RunDir, calibration: &impl Serialize) -> Result<()> {
    atomic_write(run.output(CALIBRATION), |file| {
        serde_json::to_writer_pretty(&mut *file, calibration)?;
        file.write_all(b"\n")
    })
}

/// The calibration that a run has written; runs of Stage 1 write none.
///
/// # Errors
/// [`Error::Io`]; [`Error::Format`] for a file that was changed.
pub fn read_calibration(run: &RunDir) -> Result<Option<Calibration>> {
    read(run, "a calibration")
}

/// The calibrations by class that a run of node classification has written; older runs have none.
///
/// # Errors
/// [`Error::Io`]; [`Error::Format`] for a file that was changed, or that has not one calibration or `null` per class.
pub fn read_class_calibrations(run: &RunDir, classes: usize) -> Result<Option<Vec<Option<Calibration>>>> {
    let Some(found) = read::<Vec<Option<Calibration>>>(run, "a calibration or null per class")? else {
        return Ok(None);
    };
    if found.len() != classes {
        let expected = format!("{classes} calibrations, one per class of the run");
        return Err(Error::format(run.output(CALIBRATION), "array", expected, found.len().to_string(), CHANGED));
    }
    Ok(Some(found))
}

const CHANGED: &str = "the file was changed after the run wrote it; remove it, then it is fitted anew";

fn read<T: DeserializeOwned>(run: &RunDir, expected: &str) -> Result<Option<T>> {
    let file = run.output(CALIBRATION);
    if !file.is_file() {
        return Ok(None);
    }
    read_json(&file, expected, CHANGED).map(Some)
}

#[cfg(test)]
mod tests {
    use ndarray::array;

    use super::*;
    use crate::run::Meta;

    #[test]
    fn classes_are_calibrated_one_against_the_rest_and_read_as_they_were_written() {
        let dir = tempfile::tempdir().unwrap();
        let run = RunDir::create(dir.path(), "classify", "", Meta::now("cpu", 1)).unwrap();
        let probabilities =
            array![[0.7f32, 0.2, 0.1], [0.2, 0.7, 0.1], [0.6, 0.3, 0.1], [0.3, 0.6, 0.1], [0.1, 0.1, 0.8]];
        let split =
            ClassSplit { train: vec![(4, 2)], validation: vec![(0, 0), (1, 1), (2, 1), (3, 0)], test: Vec::new() };
        let found = calibrate_classes(&probabilities, &split);
        let first = Calibration::fit(&[0.7, 0.2, 0.6, 0.3], &[1, 0, 0, 1]).unwrap();
        assert_eq!(found[0], Some(first));
        assert!(found[1].is_some() && found[2].is_none(), "no validation node is of class 2");
        assert_eq!(read_class_calibrations(&run, 3).unwrap(), None);
        write_class_calibrations(&run, &probabilities, &split).unwrap();
        assert_eq!(read_class_calibrations(&run, 3).unwrap(), Some(found));
        let error = read_class_calibrations(&run, 4).unwrap_err().to_string();
        assert!(error.contains("expected 4 calibrations, one per class of the run, found 3"), "{error}");
        let error = read_calibration(&run).unwrap_err().to_string();
        assert!(error.contains("calibration.json") && error.contains("expected a calibration"), "{error}");
    }
}
