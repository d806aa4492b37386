//! The import that another one takes its transforms from.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::description::Description;
use super::transforms::{Entry, Transforms};
use super::windowed::FittedWindows;
use crate::error::{Error, Result};
use crate::graph::json::read_json;
use crate::graph::{Events, date, digest};

/// What was learned and how, beside the data.
pub const IMPORT_FILE: &str = "import.json";
/// What of it is long.
pub const IMPORT_BINARY: &str = "import.bin";
/// Grows when an older program could not read it.
pub(super) const FORMAT: u32 = 1;

const HELP: &str = "give a run that was trained on imported tables, or the data directory of an import";

/// What of a description makes no column and no relation: it may be another one in an import that takes transforms.
const FREE: [&str; 6] = ["split", "file", "label", "id", "skip_empty", "ends"];

/// What tells one fit from another, of the import in a directory; none where there is none.
///
/// # Errors
/// [`Error::Io`]; [`Error::Format`] for a file that was changed.
pub fn fit_of(dir: &Path) -> Result<Option<String>> {
    let file = dir.join(IMPORT_FILE);
    if !file.is_file() {
        return Ok(None);
    }
    let content: Value = read_json(&file, "what an import learned", "the file was changed; import the tables again")?;
    let part = |key: &str| content.get(key).map(Value::to_string).unwrap_or_default();
    Ok(Some(digest::of_bytes([part("fitted"), part("binary"), part("columns")].concat().as_bytes())))
}

/// Rows of a column whose category no fitted row has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnknownCategories {
    pub column: String,
    /// Rows that have a category: those that nothing was learned from.
    pub rows: usize,
    pub unknown: usize,
}

/// Categories that the rows of an import have and its fitted rows lack, by column; none where `dir` holds no import.
///
/// # Errors
/// [`Error::Io`]; [`Error::Format`] for a file that was changed.
pub fn unknown_categories(dir: &Path) -> Result<Vec<UnknownCategories>> {
    Ok(Said::read(dir)?.unknown_categories)
}

/// First and last time of the events that an import learned from; none where `dir` holds no import, or one without
/// events.
///
/// # Errors
/// [`Error::Io`]; [`Error::Format`] for a file that was changed.
pub fn fitted_times(dir: &Path) -> Result<Option<[i64; 2]>> {
    Ok(Said::read(dir)?.fitted_times)
}

/// Whether an import made windows of later events, which are whole only once these have come; false where `dir` holds
/// no import.
///
/// # Errors
/// [`Error::Io`]; [`Error::Format`] for a file that was changed.
pub fn looks_ahead(dir: &Path) -> Result<bool> {
    let said = Said::read(dir)?.description;
    let windows = said.get("windows").and_then(Value::as_array);
    Ok(windows.into_iter().flatten().any(|table| table.get("ahead") == Some(&Value::Bool(true))))
}

/// What an import says of its rows and of how it made them.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Said {
    description: Value,
    unknown_categories: Vec<UnknownCategories>,
    fitted_times: Option<[i64; 2]>,
}

impl Said {
    /// Nothing where `dir` holds no import.
    fn read(dir: &Path) -> Result<Self> {
        let file = dir.join(IMPORT_FILE);
        if !file.is_file() {
            return Ok(Self::default());
        }
        read_json(&file, "what an import learned", "the file was changed; import the tables again")
    }
}

/// That all events lie before those that were learned from, in words.
pub fn earlier_in_words(learned: Option<[i64; 2]>, events: Option<&Events>) -> Option<String> {
    let ([begin, _], [first, last]) = (learned?, events?.ends(|_| true)?);
    (last < begin).then(|| {
        format!(
            "all events, from {} to {}, are earlier than those of the training, which begin at {}",
            date(first),
            date(last),
            date(begin)
        )
    })
}

/// Names of the common categories of columns of nodes, which explanations say; columns are called as what was learned.
pub(super) type CategoryNames = BTreeMap<String, Vec<String>>;

/// `import.bin` in `import.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct BinaryFile {
    pub bytes: usize,
    pub sha256: String,
}

/// The part of `import.json` that another import needs.
#[derive(Debug, Deserialize)]
struct File {
    format: u32,
    description: Value,
    columns: Vec<String>,
    fitted_rows: usize,
    held_out_rows: usize,
    #[serde(default)]
    fitted_times: Option<[i64; 2]>,
    fitted: Vec<Entry>,
    #[serde(default)]
    windows: Vec<FittedWindows>,
    #[serde(default)]
    category_names: CategoryNames,
    binary: Option<BinaryFile>,
}

/// An import whose transforms are applied.
#[derive(Debug)]
pub(super) struct Stored {
    file: PathBuf,
    pub description: Value,
    pub columns: Vec<String>,
    pub fitted_rows: usize,
    pub held_out_rows: usize,
    pub fitted_times: Option<[i64; 2]>,
    pub transforms: Transforms,
    /// How far windows reach, by `[[windows]]` table.
    pub windows: Vec<FittedWindows>,
    pub category_names: CategoryNames,
}

impl Stored {
    /// Reads the import in the directory of a run or of data.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Format`] for a directory without an import, for one of another version, and for files
    /// that were changed or cut.
    pub fn read(dir: &Path) -> Result<Self> {
        let file = dir.join(IMPORT_FILE);
        if !file.is_file() {
            return Err(Error::format(dir, IMPORT_FILE, "the import of tables", "no such file", HELP));
        }
        let changed = "the file was changed or is of another version; import the tables again";
        let content: Value = read_json(&file, "what an import learned", changed)?;
        let found = content.get("format").map_or("none".into(), Value::to_string);
        if found != FORMAT.to_string() {
            let help = "import the training tables again with this version and train again";
            return Err(Error::format(&file, "format", format!("version {FORMAT}"), found, help));
        }
        let content: File = serde_json::from_value(content)
            .map_err(|fault| Error::format(&file, "content", "what an import learned", fault.to_string(), changed))?;
        debug_assert_eq!(content.format, FORMAT);
        let path = dir.join(IMPORT_BINARY);
        let bytes = match &content.binary {
            None => Vec::new(),
            Some(known) => {
                let bytes = fs::read(&path).map_err(|source| Error::io(&path, "read", source))?;
                let (expected, found) = (&known.sha256, digest::of_bytes(&bytes));
                if *expected != found {
                    let help = "the file was changed, cut or is of another import; restore it beside its import.json";
                    let expected = format!("{expected} ({} bytes)", known.bytes);
                    return Err(Error::format(&path, "SHA-256", expected, format!("{found} ({})", bytes.len()), help));
                }
                bytes
            }
        };
        Ok(Self {
            description: content.description,
            columns: content.columns,
            fitted_rows: content.fitted_rows,
            held_out_rows: content.held_out_rows,
            fitted_times: content.fitted_times,
            transforms: Transforms::from_stored(content.fitted, &bytes, &path)?,
            windows: content.windows,
            category_names: content.category_names,
            file,
        })
    }

    /// Refuses a description, read from `origin`, whose columns or relations would not be those of the stored one.
    ///
    /// # Errors
    /// [`Error::Config`] with the first key that differs.
    pub fn check_description(&self, description: &Description, origin: &Path) -> Result<()> {
        let now = serde_json::to_value(description).unwrap_or_default();
        let Some(Difference { key, stored, now }) = difference("", &self.description, &now) else { return Ok(()) };
        Err(Error::Config {
            origin: origin.display().to_string().into(),
            key,
            expected: format!("{stored}, as {} says", self.file.display()),
            found: now,
            help:
                "a model takes the columns and relations that it was trained on: files, ids, labels and the split may \
                   be others, everything else has to be the same"
                    .into(),
        })
    }

    /// Refuses columns other than the stored ones.
    ///
    /// # Errors
    /// [`Error::Format`] with the first that differs.
    pub fn check_columns(&self, names: &[String]) -> Result<()> {
        let at = (0..names.len().max(self.columns.len())).find(|&at| names.get(at) != self.columns.get(at));
        let Some(at) = at else { return Ok(()) };
        let name = |names: &[String]| names.get(at).map_or("no column".into(), |name| format!("`{name}`"));
        Err(Error::format(
            &self.file,
            format!("column {}", at + 1),
            name(names),
            name(&self.columns),
            "the file was changed or is of another version; import the training tables again and train again",
        ))
    }

    /// The error of a source that nothing was learned for.
    pub fn lacks(&self, column: &str) -> Error {
        Error::format(
            &self.file,
            "fitted",
            format!("what was learned for `{column}`"),
            "nothing",
            "the file was changed or is of another version; import the training tables again and train again",
        )
    }
}

/// Where two descriptions say something else.
#[derive(Debug, PartialEq)]
struct Difference {
    key: String,
    stored: String,
    now: String,
}

/// The first difference that matters between two descriptions or parts of them. Tables of a list are called by their
/// name or type.
fn difference(key: &str, stored: &Value, now: &Value) -> Option<Difference> {
    let differ = |key: &str, stored: &dyn ToString, now: &dyn ToString| {
        Some(Difference { key: key.into(), stored: stored.to_string(), now: now.to_string() })
    };
    let joined = |part: &str| if key.is_empty() { part.to_owned() } else { format!("{key}.{part}") };
    match (stored, now) {
        (Value::Object(stored), Value::Object(now)) => {
            // A column may be called as a key is.
            let is_features = key.ends_with(".features") || key.ends_with(".values");
            let kept = |map: &Map<String, Value>| -> Vec<String> {
                map.keys().filter(|key| is_features || !FREE.contains(&key.as_str())).cloned().collect()
            };
            for name in kept(stored).into_iter().chain(kept(now)) {
                let part = joined(&name);
                let missing = |value: Option<&Value>| value.map_or("nothing".into(), Value::to_string);
                match (stored.get(&name), now.get(&name)) {
                    (Some(stored), Some(now)) => {
                        if let Some(found) = difference(&part, stored, now) {
                            return Some(found);
                        }
                    }
                    (stored, now) => return differ(&part, &missing(stored), &missing(now)),
                }
            }
            // Windows of known labels end a delay before the event.
            let when = |map: &Map<String, Value>| {
                ["delay", "known"].map(|key| map.get("label").and_then(|of| of.get(key)).cloned())
            };
            if let (Some(Value::Object(_)), Some(Value::Object(_))) = (stored.get("label"), now.get("label"))
                && when(stored) != when(now)
            {
                let said =
                    |map| when(map).into_iter().flatten().map(|value| value.to_string()).collect::<Vec<_>>().join(", ");
                return differ(&joined("label"), &format!("labels known after {}", said(stored)), &said(now));
            }
            let (before, after) = (kept(stored), kept(now));
            // Columns lie in the order of the description.
            if is_features && before != after {
                return differ(key, &format!("the order {}", before.join(", ")), &after.join(", "));
            }
            None
        }
        (Value::Array(stored), Value::Array(now)) => {
            let name = |table: &Value| {
                let of = |key: &str| table.get(key).and_then(Value::as_str);
                of("name").or_else(|| of("type")).or_else(|| of("column")).map(str::to_owned)
            };
            for (at, (stored, now)) in stored.iter().zip(now).enumerate() {
                let place = format!("{key}[{}]", name(stored).unwrap_or_else(|| at.to_string()));
                if let Some(found) = difference(&place, stored, now) {
                    return Some(found);
                }
            }
            let tables = |count: usize| format!("{count} of them");
            (stored.len() != now.len()).then(|| differ(key, &tables(stored.len()), &tables(now.len())))?
        }
        _ if stored == now => None,
        _ => differ(key, stored, now),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_first_key_that_matters_is_named() {
        let stored = json!({
            "split": { "seed": 1 },
            "nodes": [{ "type": "tx", "file": ["a.csv"], "label": "L",
                "features": { "Amount": { "kind": "numeric", "log": false }, "file": { "kind": "boolean" } } }],
            "edges": [{ "name": "pays", "src": { "type": "account", "column": "S" } }],
        });
        let mut now = stored.clone();
        now["split"] = json!({ "seed": 2 });
        now["nodes"][0]["file"] = json!(["b.csv", "c.csv"]);
        now["nodes"][0].as_object_mut().unwrap().remove("label");
        assert_eq!(difference("", &stored, &now), None);
        let found = |change: &dyn Fn(&mut Value)| {
            let mut changed = now.clone();
            change(&mut changed);
            let found = difference("", &stored, &changed).unwrap();
            [found.key, found.stored, found.now]
        };
        let kind = found(&|all| all["nodes"][0]["features"]["Amount"]["log"] = json!(true));
        assert_eq!(kind, ["nodes[tx].features.Amount.log", "false", "true"]);
        let column = found(&|all| all["nodes"][0]["features"]["file"] = json!({ "kind": "numeric" }));
        assert_eq!(column, ["nodes[tx].features.file.kind", "\"boolean\"", "\"numeric\""]);
        let order = found(&|all| {
            let features = all["nodes"][0]["features"].as_object_mut().unwrap();
            let amount = features.remove("Amount").unwrap();
            features.insert("Amount".into(), amount);
        });
        assert_eq!(order, ["nodes[tx].features", "the order Amount, file", "file, Amount"]);
        let missing = found(&|all| drop(all["edges"][0].as_object_mut().unwrap().remove("src")));
        assert_eq!(missing[0], "edges[pays].src");
        let more = found(&|all| all["edges"].as_array_mut().unwrap().push(json!({ "name": "x" })));
        assert_eq!(more, ["edges", "1 of them", "2 of them"]);
    }
}
