//! Columns, splits and settings for other libraries: `tests/peers/gad_trees.py` fits theirs to them.

use std::io::Write;
use std::path::Path;

use ndarray::Array2;
use serde_json::{Value, json};

use super::reference::{Learner, Settings};
use super::{GadOptions, Inputs, Model, protocol};
use crate::data::split::{Part, Split};
use crate::error::{Error, Result};
use crate::features::FeatureTable;
use crate::graph::formats::atomic_write;
use crate::graph::{write_directory, write_npy, write_npy_f32};

/// Writes a new directory: `features.npy`, f32 `[nodes, columns]`; `labels.npy`, i8 `[nodes]`, -1 for none;
/// `splits.npy`, i8 `[nodes, splits]` with 0 for no part, 1 for training, 2 for validation and 3 for test;
/// `settings.json`: names of the columns, the columns of every input, seeds, and the settings of every model.
pub(super) fn write(dir: &Path, table: &FeatureTable, splits: &[Split], options: &GadOptions) -> Result<()> {
    let (nodes, columns) = (table.num_rows(), table.columns().len());
    let mut labels = vec![-1i8; nodes];
    let mut parts = Array2::<i8>::zeros((nodes, splits.len()));
    for (at, split) in splits.iter().enumerate() {
        for (part, entries) in [(1, &split.train), (2, &split.validation), (3, &split.test)] {
            for &(node, label) in entries {
                labels[node as usize] = label as i8;
                parts[[node as usize, at]] = part;
            }
        }
    }
    let values = (0..nodes).flat_map(|node| table.row(node)).collect();
    let features = Array2::from_shape_vec((nodes, columns), values);
    let features = features.map_err(|fault| Error::io(dir, "write", std::io::Error::other(fault)))?;
    let settings = settings(table, splits, options)?;
    write_directory(dir, |building| {
        write_npy_f32(building.join("features.npy"), &features)?;
        write_npy(building.join("labels.npy"), &ndarray::Array1::from(labels))?;
        write_npy(building.join("splits.npy"), &parts)?;
        atomic_write(building.join("settings.json"), |file| {
            serde_json::to_writer_pretty(&mut *file, &settings)?;
            file.write_all(b"\n")
        })?;
        Ok(["features.npy", "labels.npy", "splits.npy", "settings.json"].map(String::from).into())
    })?;
    Ok(())
}

fn settings(table: &FeatureTable, splits: &[Split], options: &GadOptions) -> Result<Value> {
    let columns_of = |inputs: Inputs| -> Vec<usize> {
        (0..table.columns().len()).filter(|&at| inputs.has(&table.columns()[at].block)).collect()
    };
    let (mut used, mut models) = (Vec::new(), Vec::new());
    for model in &options.models {
        let mut candidates = Vec::new();
        let mut found: Option<(Inputs, bool)> = None;
        match *model {
            Model::Gadbench(learner, inputs) => {
                // Other libraries take weights and seeds of each split by themselves.
                let settings = Settings::of(learner, columns_of(inputs).len(), 1.0, 0);
                found = Some((inputs, learner == Learner::GadbenchForest));
                candidates.push(settings.describe("as in GADBench"));
            }
            Model::Candidate(_) | Model::Chosen(..) => {
                for candidate in model.candidates() {
                    for inputs in Inputs::ALL {
                        let width = columns_of(inputs).len();
                        if let Some((settings, blocks)) = Settings::of_candidate(candidate, width)?
                            && blocks == inputs.blocks()
                        {
                            found = Some((inputs, matches!(settings, Settings::Forest(_))));
                            candidates.push(settings.describe(candidate.name));
                        }
                    }
                }
            }
            Model::Ensemble => {}
        }
        // Of networks, and of trees on other columns, there is nothing that other libraries could repeat.
        let Some((inputs, is_forest)) = found else { continue };
        used.push(inputs);
        models.push(json!({
            "name": model.name(),
            "learner": if is_forest { "forest" } else { "booster" },
            "inputs": inputs.name(),
            "candidates": candidates,
        }));
    }
    let inputs = Inputs::ALL.into_iter().filter(|inputs| used.contains(inputs));
    let inputs = inputs.map(|inputs| (inputs.name(), columns_of(inputs)));
    let parts = [Part::Train, Part::Validation, Part::Test].map(Part::name);
    Ok(json!({
        "protocol": options.protocol,
        "parts": parts,
        "seeds": (0..splits.len()).map(protocol::seed).collect::<Vec<_>>(),
        "columns": table.columns().iter().map(|column| &column.name).collect::<Vec<_>>(),
        "inputs": inputs.collect::<std::collections::BTreeMap<_, _>>(),
        "models": models,
    }))
}
