//! Models as JSON and in few bytes; numbers come back bit for bit.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::booster::Booster;
use super::check_model::{check_features, check_numbers, check_trees};
use super::compact::{self, Packed};
use super::forest::Forest;
use super::refuse;
use super::tree::Tree;
use crate::error::{Error, Result};

/// Counted up when the layout changes.
const FORMAT: u32 = 1;

#[derive(Serialize, Deserialize)]
struct File<M> {
    format: u32,
    model: M,
}

/// The two kinds of models, for what is the same in both.
trait Model: Serialize + for<'a> Deserialize<'a> {
    /// Name in a file.
    const KIND: &'static str;

    fn trees(&self) -> &Vec<Tree>;

    fn trees_mut(&mut self) -> &mut Vec<Tree>;

    /// Everything but the trees.
    fn frame(&self) -> Self;

    /// The model, if it can predict.
    fn checked(self) -> Result<Self>;
}

impl Model for Booster {
    const KIND: &'static str = "booster";

    fn trees(&self) -> &Vec<Tree> {
        &self.trees
    }

    fn trees_mut(&mut self) -> &mut Vec<Tree> {
        &mut self.trees
    }

    fn frame(&self) -> Self {
        Booster {
            objective: self.objective,
            start: self.start,
            trees: Vec::new(),
            feature_names: self.feature_names.clone(),
            feature_infos: self.feature_infos.clone(),
            history: self.history.clone(),
        }
    }

    fn checked(self) -> Result<Self> {
        check_features(&self.feature_names, &self.feature_infos)?;
        check_numbers(&self.trees, &[self.start])?;
        check_trees(&self.trees, self.features())?;
        Ok(self)
    }
}

impl Model for Forest {
    const KIND: &'static str = "forest";

    fn trees(&self) -> &Vec<Tree> {
        &self.trees
    }

    fn trees_mut(&mut self) -> &mut Vec<Tree> {
        &mut self.trees
    }

    fn frame(&self) -> Self {
        let (feature_names, feature_infos) = (self.feature_names.clone(), self.feature_infos.clone());
        Forest { trees: Vec::new(), feature_names, feature_infos }
    }

    fn checked(self) -> Result<Self> {
        if self.trees.is_empty() {
            return Err(refuse::model_text("trees", "at least one tree", 0, "save the model again"));
        }
        check_features(&self.feature_names, &self.feature_infos)?;
        check_numbers(&self.trees, &[])?;
        check_trees(&self.trees, self.features())?;
        Ok(self)
    }
}

macro_rules! files {
    ($model:ident) => {
        impl $model {
            /// The model as JSON: large, and readable by anything.
            pub fn to_json(&self) -> String {
                write(self)
            }

            /// The model from JSON.
            ///
            /// # Errors
            /// [`Error::Format`] that says where the text is not a model.
            pub fn from_json(text: &str) -> Result<Self> {
                read::<Self>(text)?.checked()
            }

            /// The model in few bytes, see [`compact`](super::compact). Numbers come back bit for bit.
            pub fn to_bytes(&self) -> Vec<u8> {
                self.pack(Value::Null)
            }

            /// The model from [`to_bytes`](Self::to_bytes).
            ///
            /// # Errors
            /// [`Error::Format`] that says where the bytes are not a model.
            pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
                Self::unpacked(compact::unpack(bytes)?)
            }

            /// [`to_bytes`](Self::to_bytes) with more in the header.
            pub(crate) fn pack(&self, more: Value) -> Vec<u8> {
                let model = serde_json::to_value(self.frame()).expect("a model has only string keys");
                let packed = Packed { kind: Self::KIND.into(), model, more, trees: Vec::new() };
                compact::pack(&packed, self.trees())
            }

            /// The model of a file that was read.
            ///
            /// # Errors
            /// [`Error::Format`] for a model of another kind, or one that cannot predict.
            pub(crate) fn unpacked(packed: Packed) -> Result<Self> {
                let help = "save the model again";
                if packed.kind != Self::KIND {
                    return Err(refuse::model_text("kind", Self::KIND, packed.kind, help));
                }
                let mut model: Self = serde_json::from_value(packed.model)
                    .map_err(|fault| refuse::model_text("header", "a model without its trees", fault, help))?;
                *model.trees_mut() = packed.trees;
                model.checked()
            }

            /// The model from a file: what [`to_bytes`](Self::to_bytes) made, LightGBM's text when it begins with
            /// `tree`, JSON otherwise.
            ///
            /// # Errors
            /// [`Error::Io`] when the file cannot be read, [`Error::Format`] when it is no model.
            pub fn open(path: &Path) -> Result<Self> {
                open(path, [Self::from_json, Self::from_lightgbm_text], Self::from_bytes)
            }
        }
    };
}

files!(Booster);
files!(Forest);

fn open<M>(path: &Path, of_text: [fn(&str) -> Result<M>; 2], of_bytes: fn(&[u8]) -> Result<M>) -> Result<M> {
    let bytes = fs::read(path).map_err(|error| Error::io(path, "read", error))?;
    let model = if bytes.starts_with(compact::MAGIC) {
        of_bytes(&bytes)
    } else {
        let text = String::from_utf8(bytes).map_err(|fault| {
            Error::format(path, "text", "a model", format!("no UTF-8: {fault}"), "save the model again")
        })?;
        of_text[usize::from(text.starts_with("tree"))](&text)
    };
    model.map_err(|error| error.in_file(path))
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
