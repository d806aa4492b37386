//! A booster or a forest with what it needs to know of its columns: the checkpoint of Stage 3.

use std::fs;
use std::io::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::{Error, Result};
use crate::features::{Column, FeatureTable, NeighbourhoodConfig};
use crate::graph::formats::atomic_write;
use crate::trees::{Attributions, Booster, Forest, Importance, Matrix, Parts, compact};

/// Rows that are scored at a time.
const ROWS: usize = 1 << 16;

/// Extension of such a checkpoint.
pub const EXTENSION: &str = "trees";
/// That of the checkpoints of version 0.1.
const EARLIER_EXTENSION: &str = "json";

const HELP: &str = "give the checkpoint of a Stage-3 run (checkpoint/best.trees), or the run itself";

/// The columns that a tree ensemble reads, in the order in which they stand.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TreeInputs {
    /// Features of a node and of its surroundings.
    pub neighbourhood: NeighbourhoodConfig,
    /// Whether the Stage-1 embedding follows.
    pub embedding: bool,
    /// Whether the reconstruction error of Stage 1 follows.
    pub reconstruction: bool,
    /// Whether the score of Stage 2 follows.
    pub stage2_score: bool,
    /// Whether the embedding of Stage 2 follows.
    pub stage2_embedding: bool,
    /// Whether known labels of neighbours follow, last of all; the run keeps the labels.
    #[serde(default)]
    pub label_share: bool,
    /// The runs of Stage 2, relative to the run directory.
    pub folds: Vec<PathBuf>,
}

/// Trees.
#[derive(Clone, Debug, PartialEq)]
pub enum TreeEnsemble {
    /// Gradient boosting.
    Booster(Booster),
    /// Random forest.
    Forest(Forest),
}

impl TreeEnsemble {
    /// Names of the columns that it was fitted to.
    pub fn columns(&self) -> &[String] {
        match self {
            TreeEnsemble::Booster(booster) => &booster.feature_names,
            TreeEnsemble::Forest(forest) => &forest.feature_names,
        }
    }

    /// Number of trees.
    pub fn num_trees(&self) -> usize {
        match self {
            TreeEnsemble::Booster(booster) => booster.trees.len(),
            TreeEnsemble::Forest(forest) => forest.trees.len(),
        }
    }

    /// A score in [0, 1] for every row.
    ///
    /// # Errors
    /// [`Error::Data`] for another number of columns.
    pub fn predict(&self, x: &Matrix) -> Result<Vec<f32>> {
        let scores = match self {
            TreeEnsemble::Booster(booster) => booster.predict(x),
            TreeEnsemble::Forest(forest) => forest.predict(x),
        }?;
        Ok(scores.into_iter().map(|score| score as f32).collect())
    }

    /// A score in [0, 1] for every row of a table. Of columns in files some rows are in memory at a time.
    ///
    /// # Errors
    /// [`Error::Data`] for another number of columns.
    pub fn predict_table(&self, table: &FeatureTable) -> Result<Vec<f32>> {
        let mut scores = Vec::with_capacity(table.num_rows());
        for first in (0..table.num_rows()).step_by(ROWS) {
            let rows = first..table.num_rows().min(first + ROWS);
            scores.extend(self.predict(&Matrix::parts(&parts(table, rows))?)?);
            table.let_go();
        }
        Ok(scores)
    }

    /// What each column adds to the margin (booster) or score (forest) of every row.
    ///
    /// # Errors
    /// [`Error::Data`] for another number of columns.
    pub fn shap(&self, x: &Matrix) -> Result<Attributions> {
        match self {
            TreeEnsemble::Booster(booster) => booster.shap(x),
            TreeEnsemble::Forest(forest) => forest.shap(x),
        }
    }

    /// Importance of each column.
    pub fn importance(&self, kind: Importance) -> Vec<f64> {
        match self {
            TreeEnsemble::Booster(booster) => booster.importance(kind),
            TreeEnsemble::Forest(forest) => forest.importance(kind),
        }
    }

    /// The model in LightGBM's text format.
    pub fn to_lightgbm_text(&self) -> String {
        match self {
            TreeEnsemble::Booster(booster) => booster.to_lightgbm_text(),
            TreeEnsemble::Forest(forest) => forest.to_lightgbm_text(),
        }
    }
}

/// A checkpoint of Stage 3.
#[derive(Clone, Debug, PartialEq)]
pub struct TreeCheckpoint {
    /// What the columns are made of.
    pub inputs: TreeInputs,
    /// The trees.
    pub ensemble: TreeEnsemble,
}

/// What runs of version 0.1 wrote: everything as JSON.
#[derive(Deserialize)]
struct Stored {
    kind: String,
    inputs: TreeInputs,
    trees: Value,
}

impl TreeCheckpoint {
    /// The file at `path`, or that of the run directory `path`; `None` where `path` is a checkpoint of another kind.
    pub fn file_of(path: &Path) -> Option<PathBuf> {
        let file = |extension: &str| match path.is_dir() {
            true => path.join("checkpoint").join(format!("best.{extension}")),
            false => path.into(),
        };
        let of_trees = |extension: &&str| {
            let file = file(extension);
            file.extension().is_some_and(|found| found == *extension) && file.is_file()
        };
        [EXTENSION, EARLIER_EXTENSION].iter().find(|extension| of_trees(extension)).map(|extension| file(extension))
    }

    /// Reads a checkpoint.
    ///
    /// # Errors
    /// [`Error::Io`] when the file cannot be read, [`Error::Format`] when it is damaged.
    pub fn read(file: &Path) -> Result<Self> {
        let bytes = fs::read(file).map_err(|source| Error::io(file, "read", source))?;
        let read = match bytes.starts_with(compact::MAGIC) {
            true => Self::from_bytes(&bytes),
            false => Self::from_json(&bytes),
        };
        read.map_err(|error| error.in_file(file))
    }

    fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let mut packed = compact::unpack(bytes)?;
        let inputs = serde_json::from_value(packed.more.take())
            .map_err(|fault| Error::format("model", "header", "a checkpoint of Stage 3", fault.to_string(), HELP))?;
        let ensemble = match packed.kind.as_str() {
            "booster" => TreeEnsemble::Booster(Booster::unpacked(packed)?),
            _ => TreeEnsemble::Forest(Forest::unpacked(packed)?),
        };
        Ok(Self { inputs, ensemble })
    }

    fn from_json(bytes: &[u8]) -> Result<Self> {
        let stored: Stored = serde_json::from_slice(bytes).map_err(|fault| {
            let place = format!("line {} column {}", fault.line(), fault.column());
            Error::format("model", place, "a checkpoint of Stage 3", fault.to_string(), HELP)
        })?;
        let trees = stored.trees.to_string();
        let ensemble = match stored.kind.as_str() {
            "booster" => TreeEnsemble::Booster(Booster::from_json(&trees)?),
            "forest" => TreeEnsemble::Forest(Forest::from_json(&trees)?),
            other => return Err(Error::format("model", "kind", "booster or forest", format!("{other:?}"), HELP)),
        };
        Ok(Self { inputs: stored.inputs, ensemble })
    }

    /// Writes the checkpoint, replacing the file atomically.
    ///
    /// # Errors
    /// [`Error::Io`] when the file cannot be written.
    pub fn write(&self, file: &Path) -> Result<()> {
        atomic_write(file, |out| {
            let inputs = serde_json::to_value(&self.inputs)?;
            out.write_all(&match &self.ensemble {
                TreeEnsemble::Booster(booster) => booster.pack(inputs),
                TreeEnsemble::Forest(forest) => forest.pack(inputs),
            })
        })
    }

    /// Refuses columns other than those that the trees were fitted to; `data` is where they come from.
    ///
    /// # Errors
    /// [`Error::Format`] that names the first column that differs.
    pub fn check_columns(&self, columns: &[Column], data: &Path) -> Result<()> {
        let help = "score data with the features and relations of the training";
        let known = self.ensemble.columns();
        if let Some((known, column)) = known.iter().zip(columns).find(|(known, column)| **known != column.name) {
            let place = format!("column `{}`", column.name);
            return Err(Error::format(data, place, format!("`{known}`"), "another column", help));
        }
        if known.len() != columns.len() {
            let expected = format!("{} columns, as the trees were fitted to", known.len());
            return Err(Error::format(data, "features", expected, columns.len().to_string(), help));
        }
        Ok(())
    }
}

/// Some rows of what trees read, in the parts that the columns lie in.
///
/// # Panics
/// For rows that are not there.
pub fn parts(table: &FeatureTable, rows: Range<usize>) -> Parts<'_> {
    Parts::new(rows.len(), table.pieces(rows))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trees::{BinRule, BoosterParams, Dataset, Fit, ForestParams};

    /// A booster and a forest on one noisy column.
    fn checkpoints() -> [TreeCheckpoint; 2] {
        let values: Vec<f32> = (0..400).map(|i| (i * 37 % 101) as f32).collect();
        let labels: Vec<f32> =
            values.iter().enumerate().map(|(i, &v)| f32::from(u8::from(v + (i % 30) as f32 > 70.0))).collect();
        let data = Dataset::new(&Matrix::f32(&values, 1).unwrap(), &BinRule::default()).unwrap();
        let booster =
            Booster::fit(&data, Fit::labels(&labels), &BoosterParams { rounds: 4, ..Default::default() }).unwrap();
        let forest =
            Forest::fit(&data, &labels, None, &ForestParams { trees: 3, ..ForestParams::sklearn_like(1) }).unwrap();
        let inputs = TreeInputs {
            neighbourhood: NeighbourhoodConfig::default(),
            embedding: false,
            reconstruction: false,
            stage2_score: true,
            stage2_embedding: false,
            label_share: false,
            folds: vec!["folds/1".into()],
        };
        [TreeEnsemble::Booster(booster), TreeEnsemble::Forest(forest)]
            .map(|ensemble| TreeCheckpoint { inputs: inputs.clone(), ensemble })
    }

    #[test]
    fn checkpoints_come_back_whole_from_this_form_and_from_json() {
        let dir = tempfile::tempdir().unwrap();
        for checkpoint in checkpoints() {
            let (run, file) = (dir.path(), dir.path().join("checkpoint/best.trees"));
            fs::create_dir_all(run.join("checkpoint")).unwrap();
            checkpoint.write(&file).unwrap();
            assert_eq!(TreeCheckpoint::file_of(run).as_deref(), Some(&*file));
            assert_eq!(TreeCheckpoint::read(&file).unwrap(), checkpoint);
            fs::remove_file(&file).unwrap();

            let (kind, trees) = match &checkpoint.ensemble {
                TreeEnsemble::Booster(booster) => ("booster", booster.to_json()),
                TreeEnsemble::Forest(forest) => ("forest", forest.to_json()),
            };
            let inputs = serde_json::to_string(&checkpoint.inputs).unwrap();
            let earlier = run.join("checkpoint/best.json");
            fs::write(&earlier, format!(r#"{{"kind":"{kind}","inputs":{inputs},"trees":{trees}}}"#)).unwrap();
            assert_eq!(TreeCheckpoint::file_of(run).as_deref(), Some(&*earlier));
            assert_eq!(TreeCheckpoint::read(&earlier).unwrap(), checkpoint);
            fs::write(&earlier, r#"{"kind":"bush","inputs":{},"trees":[]}"#).unwrap();
            assert!(TreeCheckpoint::read(&earlier).unwrap_err().to_string().contains("best.json"));
        }
    }

    #[test]
    fn every_damaged_byte_and_every_shorter_file_is_an_error_that_names_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("best.trees");
        for checkpoint in checkpoints() {
            checkpoint.write(&file).unwrap();
            let whole = fs::read(&file).unwrap();
            let damaged = dir.path().join("damaged.trees");
            let refused = |bytes: &[u8]| {
                fs::write(&damaged, bytes).unwrap();
                let error = TreeCheckpoint::read(&damaged).unwrap_err();
                assert!(
                    matches!(error, Error::Format { .. }) && error.to_string().contains("damaged.trees"),
                    "{error}"
                );
            };
            for at in (0..whole.len()).step_by(7).chain([whole.len() - 1]) {
                refused(&whole[..at]);
                let mut bytes = whole.clone();
                bytes[at] ^= 0x41;
                refused(&bytes);
            }
            refused(&[&whole[..], &[0]].concat());
            let mut newer = whole.clone();
            newer[8] = 2;
            fs::write(&damaged, newer).unwrap();
            assert!(TreeCheckpoint::read(&damaged).unwrap_err().to_string().contains("version: expected 1, found 2"));
        }
    }
}
