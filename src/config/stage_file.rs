//! The task of a document, and the documents of stages that are part of a larger task.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::document::{self, COMMAND_LINE, Entry, Table, Value};
use super::reader::Document;
use crate::error::Result;

pub(super) const STAGE1: &str = "stage1";
pub(super) const STAGE2: &str = "stage2";
pub(super) const STAGE3: &str = "stage3";

#[derive(Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Task {
    Stage1,
    Stage2,
    Stage3,
    Pipeline,
    Classify,
    Auto,
}

/// The task of a document; its absence is an error because nothing else can be checked without it.
pub(super) fn task(document: &Document) -> Result<Task> {
    document.choice("task")?.ok_or_else(|| {
        let expected = "\"stage1\" or \"stage2\" or \"stage3\" or \"pipeline\" or \"classify\" or \"auto\"";
        document.error("task", expected, "see the first lines of configs/quickstart.toml for an example")
    })
}

/// One stage of a larger task: the file that `config` names with the section's own keys on top. `decided` lists the
/// keys that the file at `path` decides.
pub(super) fn stage_document(
    stage: &str,
    section: Option<Table>,
    path: &Path,
    decided: &[(&str, &str)],
    strict: bool,
) -> Result<Document> {
    let mut own = section.unwrap_or_default();
    let mut document = match own.remove("config") {
        Some(entry) => read_stage_file(stage, &entry, path, strict)?,
        None => Document { table: Table::default(), file: path.display().to_string(), strict },
    };
    for (key, help) in decided {
        if let Some(entry) = own.get(key) {
            let expected = format!("`{key}` to be left to the file that has this section");
            return Err(entry.key_error(expected, *help));
        }
        document.table.remove(key);
    }
    document.table.overlay(own);
    Ok(document)
}

fn read_stage_file(stage: &str, entry: &Entry, pipeline: &Path, strict: bool) -> Result<Document> {
    let Value::Leaf(toml::Value::String(name)) = &entry.value else {
        return Err(entry.error("a path in quotes", format!("for example config = \"{stage}.toml\"")));
    };
    // A path in the file is relative to the file, a path on the command line to the working directory.
    let base = if entry.origin == COMMAND_LINE { None } else { pipeline.parent() };
    let path = base.map_or_else(|| PathBuf::from(name), |base| base.join(name));
    if !path.is_file() {
        let expected = format!("the file of a {stage} run");
        return Err(entry.error(expected, format!("there is no file {}", path.display())));
    }
    let file = path.display().to_string();
    let document = Document { table: Table::parse(&document::read(&path)?, &file)?, file, strict };
    task(&document)?;
    match document.table.get("task").map(|entry| entry.value.plain()) {
        Some(toml::Value::String(task)) if task == stage => Ok(document),
        _ => {
            let help = format!("{} names this file as its {stage}", pipeline.display());
            Err(document.error("task", format!("\"{stage}\""), help))
        }
    }
}
