//! A booster or a forest with what it needs to know of its columns: the checkpoint of Stage 3.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::{Error, Result};
use crate::features::{Column, FeatureTable, NeighbourhoodConfig};
use crate::graph::formats::atomic_write;
use crate::trees::{Attributions, Booster, Forest, Importance, Matrix};

/// Extension of such a checkpoint.
pub const EXTENSION: &str = "json";

const HELP: &str = "give the checkpoint of a Stage-3 run (checkpoint/best.json), or the run itself";

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
    fn kind(&self) -> &'static str {
        match self {
            TreeEnsemble::Booster(_) => "booster",
            TreeEnsemble::Forest(_) => "forest",
        }
    }

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

#[derive(Serialize, Deserialize)]
struct Stored {
    kind: String,
    inputs: TreeInputs,
    trees: Value,
}

impl TreeCheckpoint {
    /// The file at `path`, or that of the run directory `path`; `None` where `path` is a checkpoint of another kind.
    pub fn file_of(path: &Path) -> Option<PathBuf> {
        let file = if path.is_dir() { path.join("checkpoint").join(format!("best.{EXTENSION}")) } else { path.into() };
        (file.extension().is_some_and(|extension| extension == EXTENSION) && file.is_file()).then_some(file)
    }

    /// Reads a checkpoint.
    ///
    /// # Errors
    /// [`Error::Io`] when the file cannot be read, [`Error::Format`] when it is damaged.
    pub fn read(file: &Path) -> Result<Self> {
        let text = fs::read_to_string(file).map_err(|source| Error::io(file, "read", source))?;
        let stored: Stored = serde_json::from_str(&text).map_err(|fault| {
            let place = format!("line {} column {}", fault.line(), fault.column());
            Error::format(file, place, "a checkpoint of Stage 3", fault.to_string(), HELP)
        })?;
        let trees = stored.trees.to_string();
        let ensemble = match stored.kind.as_str() {
            "booster" => TreeEnsemble::Booster(Booster::from_json(&trees)?),
            "forest" => TreeEnsemble::Forest(Forest::from_json(&trees)?),
            other => return Err(Error::format(file, "kind", "booster or forest", format!("{other:?}"), HELP)),
        };
        Ok(Self { inputs: stored.inputs, ensemble })
    }

    /// Writes the checkpoint, replacing the file atomically.
    ///
    /// # Errors
    /// [`Error::Io`] when the file cannot be written.
    pub fn write(&self, file: &Path) -> Result<()> {
        let trees = match &self.ensemble {
            TreeEnsemble::Booster(booster) => booster.to_json(),
            TreeEnsemble::Forest(forest) => forest.to_json(),
        };
        atomic_write(file, |out| {
            let stored = Stored {
                kind: self.ensemble.kind().into(),
                inputs: self.inputs.clone(),
                trees: serde_json::from_str(&trees)?,
            };
            Ok(serde_json::to_writer(out, &stored)?)
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

/// The matrix that trees read.
///
/// # Errors
/// [`Error::Data`] for a table without columns.
pub fn matrix(table: &FeatureTable) -> Result<Matrix<'_>> {
    Matrix::f32(table.values(), table.columns().len())
}
