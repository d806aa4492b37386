//! What a model takes for granted of its data: columns by name and order, node types, relations.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::data::DataDigest;
use crate::error::{Error, Result};
use crate::graph::{Dataset, FeatureValues};

/// Names that a message lists before it stops.
const LISTED: usize = 5;

/// What data have to agree in with those that a model was trained on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schema {
    /// The feature matrix; none where there is none.
    pub features: Option<Columns>,
    /// Names in their order.
    pub node_types: Vec<String>,
    /// In their order, reverse ones included.
    pub relations: Vec<RelationFacts>,
    /// Whether nodes are events, which have a time.
    pub events: bool,
}

/// Columns of a feature matrix.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Columns {
    pub width: usize,
    /// How they are stored: `f16` or `f32`.
    pub dtype: String,
    /// In their order; none where the data do not name them.
    pub names: Option<Vec<String>>,
}

/// One relation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RelationFacts {
    pub name: String,
    pub src: String,
    pub dst: String,
    pub stream: String,
    /// Columns of values of its edges, in their order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
}

/// What a model reads of a data directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reads {
    /// Graph and features.
    Features,
    /// The graph alone: its input comes from elsewhere.
    Graph,
}

impl RelationFacts {
    fn words(&self) -> String {
        let Self { name, src, dst, stream, values } = self;
        let values = if values.is_empty() { String::new() } else { format!(", values {}", values.join(" ")) };
        format!("`{name}` ({dst} <- {src}, stream {stream}{values})")
    }
}

impl Schema {
    /// Of some data.
    pub fn of(dataset: &Dataset) -> Self {
        let types = dataset.graph.node_types();
        let relation = |of: &crate::graph::Relation| RelationFacts {
            name: of.name.clone(),
            src: types[of.src].name.clone(),
            dst: types[of.dst].name.clone(),
            stream: of.stream.clone(),
            values: dataset.value_names(&of.name).to_vec(),
        };
        Self {
            features: dataset.features.as_ref().map(|features| Columns {
                width: features.dim(),
                dtype: match features.values() {
                    FeatureValues::Half(_) => "f16".into(),
                    FeatureValues::Single(_) => "f32".into(),
                },
                names: dataset.feature_names.clone(),
            }),
            node_types: types.iter().map(|node_type| node_type.name.clone()).collect(),
            relations: dataset.graph.relations().iter().map(relation).collect(),
            events: dataset.events.is_some(),
        }
    }

    /// Refuses data, read from `data`, that a model of this schema cannot be used on; `model` is where it is stored.
    /// Returns what the user should know of data that can.
    ///
    /// # Errors
    /// [`Error::Format`] with the node type, relation or column that differs first, or that is missing or too many.
    pub fn check(&self, now: &Self, reads: Reads, data: &Path, model: &Path) -> Result<Vec<String>> {
        let names = |schema: &Self| schema.node_types.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>();
        let help = "score data with the node types and relations of the training, in their order";
        same("node types", &names(self), &names(now), data, model, help)?;
        let relations = |schema: &Self| schema.relations.iter().map(RelationFacts::words).collect::<Vec<_>>();
        same("relations", &relations(self), &relations(now), data, model, help)?;
        if self.events != now.events {
            let words = |events| if events { "nodes with times" } else { "nodes without times" };
            let (expected, found) = (words(self.events), words(now.events));
            return Err(Error::format(data, "events", format!("{expected}, as {} says", model.display()), found, help));
        }
        if reads == Reads::Graph {
            return Ok(Vec::new());
        }
        let help = "columns are those of the training, in their order: import the tables with `--with RUN`";
        let (known, found) = match (&self.features, &now.features) {
            (None, _) => return Ok(Vec::new()),
            (Some(known), Some(found)) => (known, found),
            (Some(known), None) => {
                let expected = format!("{} columns, as {} says", known.width, model.display());
                return Err(Error::format(data, "features", expected, "no features", help));
            }
        };
        let mut notes = Vec::new();
        match (&known.names, &found.names) {
            (Some(known), Some(found)) => {
                let quoted = |names: &[String]| names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>();
                same("feature columns", &quoted(known), &quoted(found), data, model, help)?;
            }
            (names, _) => {
                if known.width != found.width {
                    let expected = format!("{} columns, as {} says", known.width, model.display());
                    return Err(Error::format(data, "features", expected, found.width.to_string(), help));
                }
                let which = if names.is_some() { "the data" } else { "the data of the training" };
                notes.push(format!(
                    "{which} do not name their feature columns (feature_names.json): only their number, {}, could be \
                     compared",
                    known.width
                ));
            }
        }
        if known.dtype != found.dtype {
            notes.push(format!(
                "features are stored in {}, those of the training in {}: values are rounded in another way",
                found.dtype, known.dtype
            ));
        }
        Ok(notes)
    }
}

/// Compares lists of names in words.
fn same(what: &str, known: &[String], found: &[String], data: &Path, model: &Path, help: &str) -> Result<()> {
    let Some(at) = (0..known.len().max(found.len())).find(|&at| known.get(at) != found.get(at)) else { return Ok(()) };
    let without = |these: &[String], those: &[String]| -> Vec<String> {
        let others: std::collections::HashSet<&String> = those.iter().collect();
        these.iter().filter(|name| !others.contains(name)).cloned().collect()
    };
    let listed = |names: &[String]| {
        let more = names.len().saturating_sub(LISTED);
        let shown = names[..names.len() - more].join(", ");
        if more > 0 { format!("{shown} and {more} more") } else { shown }
    };
    let (missing, extra) = (without(known, found), without(found, known));
    let of_model = format!("as {} says", model.display());
    let (place, expected, seen) = if missing.is_empty() && extra.is_empty() && known.len() == found.len() {
        let place = format!("{what}, number {}", at + 1);
        (place, format!("{}, {of_model}", known[at]), format!("{}: they are in another order", found[at]))
    } else {
        let parts = [("without", &missing), ("with", &extra)];
        let parts: Vec<String> = parts
            .into_iter()
            .filter(|(_, names)| !names.is_empty())
            .map(|(word, names)| format!("{word} {}", listed(names)))
            .collect();
        let difference = if parts.is_empty() { "one of them twice".into() } else { parts.join(" and ") };
        (
            what.to_owned(),
            format!("the {} of the training, {of_model}", known.len()),
            format!("{}: {difference}", found.len()),
        )
    };
    Err(Error::format(data, place, expected, seen, help))
}

/// Which parts of the data are no longer what they were, in words: `graph`, `features`, `labels`.
pub fn changed(before: &DataDigest, now: &DataDigest) -> Vec<&'static str> {
    let parts = [
        ("graph", before.graph == now.graph),
        ("features", before.features == now.features),
        ("labels", before.labels == now.labels),
    ];
    parts.into_iter().filter(|(_, same)| !same).map(|(name, _)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema(columns: &[&str], types: &[&str]) -> Schema {
        let names = |all: &[&str]| all.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let columns = Columns { width: columns.len(), dtype: "f16".into(), names: Some(names(columns)) };
        let relation =
            RelationFacts { name: "r".into(), src: "a".into(), dst: "b".into(), stream: "r".into(), values: vec![] };
        Schema { features: Some(columns), node_types: names(types), relations: vec![relation], events: false }
    }

    fn fault(known: &Schema, found: &Schema) -> String {
        let error = known.check(found, Reads::Features, Path::new("data"), Path::new("run/model.json")).unwrap_err();
        assert_eq!(error.exit_code(), 1);
        error.to_string()
    }

    #[test]
    fn columns_in_another_order_missing_and_extra_ones_are_named() {
        let known = schema(&["x", "y", "z"], &["a", "b"]);
        assert_eq!(known.check(&known, Reads::Features, Path::new(""), Path::new("")).unwrap(), [""; 0]);
        let swapped = fault(&known, &schema(&["x", "z", "y"], &["a", "b"]));
        let expected = "data: feature columns, number 2: expected `y`, as run/model.json says, found `z`: they are in \
                        another order";
        assert!(swapped.contains(expected), "{swapped}");
        let other = fault(&known, &schema(&["x", "y", "w"], &["a", "b"]));
        assert!(
            other.contains("the 3 of the training") && other.contains("found 3: without `z` and with `w`"),
            "{other}"
        );
        let fewer = fault(&known, &schema(&["x"], &["a", "b"]));
        assert!(fewer.contains("found 1: without `y`, `z`"), "{fewer}");
        let types = fault(&known, &schema(&["x", "y", "z"], &["b", "a"]));
        assert!(types.contains("node types, number 1: expected `a`"), "{types}");
        let mut relation = known.clone();
        relation.relations[0].src = "b".into();
        let error = fault(&known, &relation);
        assert!(error.contains("relations: ") && error.contains("without `r` (b <- a, stream r)"), "{error}");
        let mut values = known.clone();
        values.relations[0].values = vec!["amount".into(), "kind".into()];
        let error = fault(&known, &values);
        assert!(error.contains("with `r` (b <- a, stream r, values amount kind)"), "{error}");
        let graph_alone = known.check(&schema(&["q"], &["a", "b"]), Reads::Graph, Path::new(""), Path::new(""));
        assert!(graph_alone.is_ok());
    }

    #[test]
    fn columns_without_names_are_counted_and_that_is_said() {
        let known = schema(&["x", "y"], &["a"]);
        let mut nameless = known.clone();
        let columns = nameless.features.as_mut().unwrap();
        (columns.names, columns.dtype) = (None, "f32".into());
        let notes = known.check(&nameless, Reads::Features, Path::new(""), Path::new("")).unwrap();
        assert!(notes[0].starts_with("the data do not name") && notes[1].contains("in f32"), "{notes:?}");
        nameless.features.as_mut().unwrap().width = 3;
        assert!(fault(&known, &nameless).contains("features: expected 2 columns"));
    }
}
