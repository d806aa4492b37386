//! Models as JSON; numbers come back bit for bit.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::booster::Booster;
use super::check_model::{check_features, check_numbers, check_trees};
use super::forest::Forest;
use super::refuse;
use crate::error::{Error, Result};

/// Counted up when the layout changes.
const FORMAT: u32 = 1;

#[derive(Serialize, Deserialize)]
struct File<M> {
    format: u32,
    model: M,
}

impl Booster {
    /// The model as JSON.
    pub fn to_json(&self) -> String {
        write(self)
    }

    /// The model from JSON.
    ///
    /// # Errors
    /// [`Error::Format`] that says where the text is not a model.
    pub fn from_json(text: &str) -> Result<Self> {
        let booster: Booster = read(text)?;
        check_features(&booster.feature_names, &booster.feature_infos)?;
        check_numbers(&booster.trees, &[booster.start])?;
        check_trees(&booster.trees, booster.features())?;
        Ok(booster)
    }

    /// The model from a file: LightGBM's text when it begins with `tree`, JSON otherwise.
    ///
    /// # Errors
    /// [`Error::Io`] when the file cannot be read, [`Error::Format`] when it is no model.
    pub fn open(path: &Path) -> Result<Self> {
        open(path, Self::from_json, Self::from_lightgbm_text)
    }
}

impl Forest {
    /// The model as JSON.
    pub fn to_json(&self) -> String {
        write(self)
    }

    /// The model from JSON.
    ///
    /// # Errors
    /// [`Error::Format`] that says where the text is not a model.
    pub fn from_json(text: &str) -> Result<Self> {
        let forest: Forest = read(text)?;
        if forest.trees.is_empty() {
            return Err(refuse::model_text("trees", "at least one tree", 0, "save the model again"));
        }
        check_features(&forest.feature_names, &forest.feature_infos)?;
        check_numbers(&forest.trees, &[])?;
        check_trees(&forest.trees, forest.features())?;
        Ok(forest)
    }

    /// The model from a file: LightGBM's text when it begins with `tree`, JSON otherwise.
    ///
    /// # Errors
    /// [`Error::Io`] when the file cannot be read, [`Error::Format`] when it is no model.
    pub fn open(path: &Path) -> Result<Self> {
        open(path, Self::from_json, Self::from_lightgbm_text)
    }
}

fn open<M>(path: &Path, json: fn(&str) -> Result<M>, lightgbm: fn(&str) -> Result<M>) -> Result<M> {
    let text = fs::read_to_string(path).map_err(|error| Error::io(path, "read", error))?;
    let model = if text.starts_with("tree") { lightgbm(&text) } else { json(&text) };
    model.map_err(|error| match error {
        Error::Format { place, expected, found, help, .. } => Error::format(path, place, expected, found, help),
        other => other,
    })
}

fn write<M: Serialize>(model: &M) -> String {
    serde_json::to_string(&File { format: FORMAT, model }).expect("a model has only string keys and finite numbers")
}

fn read<M: for<'a> Deserialize<'a>>(text: &str) -> Result<M> {
    let file: File<M> = serde_json::from_str(text).map_err(|error| {
        let place = format!("line {} column {}", error.line(), error.column());
        refuse::model_text(place, "a model written by to_json", error, "save the model again")
    })?;
    if file.format != FORMAT {
        let help = "read it with the version that wrote it, or fit again";
        return Err(refuse::model_text("format", FORMAT, file.format, help));
    }
    Ok(file.model)
}
