//! A resolved configuration as TOML that loads again to an equal one.

use serde::Serialize;
use toml::{Table, Value};

use super::reader::unwritable;
use super::schema::RunConfig;
use crate::error::Result;

/// Keys of a stage that repeat what the file around it says itself.
const SHARED: [&str; 3] = ["name", "seed", "output"];

impl RunConfig {
    /// The whole configuration as TOML, every key written out: what a run directory keeps.
    ///
    /// Loading the text gives an equal configuration. A pipeline no longer refers to its stage files.
    ///
    /// # Errors
    /// [`Error::Config`] for what TOML cannot hold: a path that is not UTF-8, a seed of 2^63 or more. Neither can come
    /// from a file.
    pub fn to_toml(&self) -> Result<String> {
        let mut table = Table::try_from(self).map_err(unwritable)?;
        if let RunConfig::Pipeline(_) | RunConfig::Stage3(_) = self {
            for stage in ["stage1", "stage2", "stage3"] {
                if let Some(Value::Table(mut section)) = table.remove(stage) {
                    section.remove("stage2");
                    let mut section = stage_section(section);
                    if matches!(self, RunConfig::Stage3(_)) || stage == "stage3" {
                        section.retain(|key, _| !key.starts_with("split."));
                    }
                    table.insert(stage.to_string(), Value::Table(section));
                }
            }
        }
        let (sections, scalars): (Vec<_>, Vec<_>) = table.into_iter().partition(|(_, value)| value.is_table());
        let mut text = String::new();
        for (key, value) in scalars {
            push_line(&mut text, &key, &value)?;
        }
        for (name, section) in sections {
            text.push_str(&format!("\n[{name}]\n"));
            for (key, value) in section.as_table().into_iter().flatten() {
                push_line(&mut text, key, value)?;
            }
        }
        Ok(text)
    }
}

/// The keys of a stage as a pipeline's section holds them: dotted, without those that the pipeline decides.
fn stage_section(stage: Table) -> Table {
    let mut flat = Table::new();
    for (section, keys) in stage {
        if SHARED.contains(&section.as_str()) {
            continue;
        }
        for (key, value) in keys.as_table().cloned().into_iter().flatten() {
            let key = format!("{section}.{key}");
            if !["data.path", "data.window", "data.embeddings"].contains(&key.as_str()) {
                flat.insert(key, value);
            }
        }
    }
    flat
}

fn push_line(text: &mut String, key: &str, value: &Value) -> Result<()> {
    let mut written = String::new();
    value.serialize(toml::ser::ValueSerializer::new(&mut written)).map_err(unwritable)?;
    text.push_str(&format!("{key} = {written}\n"));
    Ok(())
}
