//! What an explanation says, the same for every stage.

use std::collections::HashMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::names::Names;
use super::similar::{Known, SimilarPart};
use super::{FEATURES, by_magnitude};
use crate::data::tables::{RowTables, Written};
use crate::error::Result;
use crate::features::Block;

/// Why a node has its score. Everything is sorted by magnitude.
///
/// `sum = base + sum of blocks = base + sum of columns`; and, where [`Method::additive`], `sum = base + own + sum of
/// neighbours + rest = base + sum of relations`. Stage 1 has no blocks and columns. Biases of hidden layers are a block
/// and a column of their own; what a node has of itself without an edge is a relation, `itself`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Explanation {
    /// Global number.
    pub node: u32,
    /// Name of the node's type.
    pub kind: String,
    /// The id that the node has in the data, or its number within the type.
    pub id: String,
    /// `type:id`
    pub name: String,
    /// Of a node classifier: the class that the score is of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<u32>,
    /// In [0, 1]; higher is more anomalous, or more of the class.
    pub score: f32,
    /// Of being anomalous, or of the class, where the run has a calibration.
    pub probability: Option<f64>,
    /// Where the numbers come from and what they mean.
    pub method: Method,
    /// What is summed, e.g. `log-odds`.
    pub unit: String,
    /// What a node has to which nothing is added.
    pub base: f64,
    /// `base` and all that is added.
    pub sum: f64,
    /// What the node's edges to itself and its own transform add.
    pub own: f64,
    /// What the neighbours add that are not listed.
    pub rest: f64,
    /// The first edge, by relation.
    pub relations: Vec<RelationPart>,
    /// Columns by what they belong to.
    pub blocks: Vec<BlockPart>,
    /// The columns that the model reads.
    pub columns: Vec<ColumnPart>,
    /// The strongest neighbours.
    pub neighbours: Vec<NeighbourPart>,
    /// Neighbours that are not listed.
    pub more_neighbours: usize,
    /// The nearest anomalies among the training labels.
    pub similar: Vec<SimilarPart>,
}

/// How the numbers were found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Method {
    /// E.g. `attention and slopes held`.
    pub name: String,
    /// Whether what neighbours add sums up. What columns add always does.
    pub additive: bool,
    /// What the numbers are, and where they do not add up.
    pub text: String,
}

/// All edges of one relation into the node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RelationPart {
    pub relation: String,
    /// Distinct neighbours; the node itself counts where it has an edge to itself.
    pub neighbours: usize,
    pub contribution: f64,
}

/// Some columns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BlockPart {
    pub block: String,
    pub contribution: f64,
}

/// One column. A bias is the weight of a column of ones.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ColumnPart {
    pub column: String,
    pub block: String,
    /// That of the node, as the model reads it.
    pub value: f32,
    /// What the table says there, where the column is the node's own and comes from an import that tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub written: Option<Written>,
    pub contribution: f64,
}

/// A line about a column, or about all columns that one cell of a table became.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// As the table calls it, where it tells.
    pub column: String,
    /// What is written there, or else what the model reads.
    pub value: String,
    pub block: String,
    pub contribution: f64,
}

/// A neighbour over one relation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NeighbourPart {
    pub node: u32,
    /// `type:id`
    pub name: String,
    pub relation: String,
    /// Its own score; `None` where the stage has none for it.
    pub score: Option<f32>,
    /// 1 is a known anomaly, or known to be of the class; 0 is known not to be.
    pub label: Option<u8>,
    /// Share of the relation's attention, mean over heads; `None` where layers convolve.
    pub attention: Option<f64>,
    pub contribution: f64,
    /// The sum less what it is without any edge between the two nodes, computed anew. Removals do not add up.
    pub removal: Option<f64>,
    /// The neighbour's own neighbours, and what it has of itself: what they add over it. A path that leads back to the
    /// node is among them.
    pub paths: Vec<PathPart>,
    /// Paths that are not listed.
    pub more_paths: usize,
}

/// A node two edges away, over one neighbour.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PathPart {
    pub node: u32,
    /// `type:id`
    pub name: String,
    pub relation: String,
    /// Share of the attention of the neighbour, mean over heads; `None` where layers convolve.
    pub attention: Option<f64>,
    pub contribution: f64,
    /// Its own score.
    pub score: Option<f32>,
    /// As that of a neighbour.
    pub label: Option<u8>,
}

/// Rows of a table of the terminal, and paths of a neighbour in it.
const ROWS: usize = 12;
const PATHS: usize = 2;
/// Columns of running text there.
const TEXT_WIDTH: usize = 100;

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.name)?;
        if let Some(class) = self.class {
            write!(f, "  class {class}")?;
        }
        write!(f, "  score {:.4}", self.score)?;
        if let Some(probability) = self.probability {
            write!(f, "  probability {probability:.3}")?;
        }
        writeln!(f, "\n{}: {:+.4} = {:+.4} of any node, and what is below", self.unit, self.sum, self.base)?;
        for line in wrapped(&self.method.text, TEXT_WIDTH) {
            writeln!(f, "{line}")?;
        }
        self.fmt_neighbours(f)?;
        let width = |longest: usize| longest.clamp(20, 48) + 2;
        if !self.blocks.is_empty() {
            let name = width(self.blocks.iter().map(|part| part.block.chars().count()).max().unwrap_or(0));
            writeln!(f, "\n{:<name$}{:>10}", "block", "adds")?;
            for part in self.blocks.iter().take(ROWS) {
                writeln!(f, "{:<name$}{:>+10.4}", part.block, part.contribution)?;
            }
        }
        let mut lines = self.lines();
        lines.truncate(ROWS);
        if !lines.is_empty() {
            let widest =
                |text: fn(&Line) -> &str| lines.iter().map(|line| text(line).chars().count()).max().unwrap_or(0);
            let (name, block) = (width(widest(|line| &line.column)), widest(|line| &line.block).max(5) + 2);
            writeln!(f, "\n{:<name$}{:<block$}{:>10}  its value", "column", "block", "adds")?;
            for Line { column, value, block: of, contribution } in &lines {
                writeln!(f, "{column:<name$}{of:<block$}{contribution:>+10.4}  {value}")?;
            }
        }
        if !self.similar.is_empty() {
            let name = width(self.similar.iter().map(|part| part.name.chars().count()).max().unwrap_or(0));
            writeln!(f, "\n{:<name$}{:>10}", "nearest known anomaly", "cosine")?;
            for part in &self.similar {
                writeln!(f, "{:<name$}{:>10.4}", part.name, part.similarity)?;
            }
        }
        Ok(())
    }
}

impl Explanation {
    /// Who the node is and what its score is, and nothing that adds to it yet.
    ///
    /// # Errors
    /// A node without a score.
    pub(super) fn of(
        node: u32,
        names: &Names,
        known: Option<&Known>,
        probability: Option<f64>,
        method: Method,
    ) -> Result<Self> {
        let [kind, id] = names.kind_and_id(node);
        Ok(Self {
            node,
            kind,
            id,
            name: names.name(node),
            class: None,
            score: names.own_score(node)?,
            probability,
            method,
            unit: String::new(),
            base: 0.0,
            sum: 0.0,
            own: 0.0,
            rest: 0.0,
            relations: Vec::new(),
            blocks: Vec::new(),
            columns: Vec::new(),
            neighbours: Vec::new(),
            more_neighbours: 0,
            similar: known.map(|known| known.nearest_to(node, names)).unwrap_or_default(),
        })
    }

    /// Says of the node's own columns what the tables say; `row` are its features, whose columns are called `names`.
    pub(in crate::score) fn add_written(&mut self, tables: &RowTables, names: &[String], row: &[f32]) {
        let places: HashMap<&str, usize> = names.iter().enumerate().map(|(at, name)| (name.as_str(), at)).collect();
        let written = tables.written(&self.kind, row);
        let raw = Block::Raw.to_string();
        for part in self.columns.iter_mut().filter(|part| part.block == FEATURES || part.block == raw) {
            part.written = places.get(part.column.as_str()).and_then(|&at| written.get(at)?.clone());
        }
    }

    /// The columns that add something, the weightiest first, as the tables call them and with what is written there;
    /// what one cell became is one line.
    pub fn lines(&self) -> Vec<Line> {
        let mut lines: Vec<Line> = Vec::new();
        let mut of_cells: HashMap<(&Written, &str), usize> = HashMap::new();
        for part in self.columns.iter().filter(|part| part.contribution != 0.0) {
            let line = Line {
                column: part.written.as_ref().map_or(&part.column, |written| &written.column).clone(),
                value: match &part.written {
                    Some(Written { value: Some(value), is_rounded, .. }) => {
                        format!("{}{value}", if *is_rounded { "≈" } else { "" })
                    }
                    Some(Written { value: None, .. }) => "nothing".into(),
                    None => format!("{:.5} in the model", part.value),
                },
                block: part.block.clone(),
                contribution: part.contribution,
            };
            let cell = part.written.as_ref().map(|written| (written, part.block.as_str()));
            match cell.map(|cell| *of_cells.entry(cell).or_insert(lines.len())) {
                Some(at) if at < lines.len() => lines[at].contribution += part.contribution,
                _ => lines.push(line),
            }
        }
        lines.sort_by(|a, b| by_magnitude(a.contribution, b.contribution));
        lines
    }

    /// What is known of a node with a label: in a table, and in a sentence.
    pub fn known(&self, label: Option<u8>) -> Option<[&'static str; 2]> {
        Some(match (label? == 1, self.class.is_some()) {
            (true, false) => ["anomaly", "known anomaly"],
            (false, false) => ["normal", "known to be normal"],
            (true, true) => ["of the class", "known to be of the class"],
            (false, true) => ["of another", "known to be of another class"],
        })
    }

    fn fmt_neighbours(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.neighbours.is_empty() {
            return Ok(());
        }
        let listed = || self.neighbours.iter().take(ROWS);
        let paths = || listed().flat_map(|part| part.paths.iter().take(PATHS));
        let from = |path: &PathPart| {
            let name = if path.node == self.node { "itself" } else { &path.name };
            format!("  <- {name}")
        };
        let names =
            listed().map(|part| part.name.chars().count()).chain(paths().map(|path| from(path).chars().count()));
        let name = names.max().unwrap_or(0).clamp(14, 48) + 2;
        let relations = listed().map(|part| &part.relation).chain(paths().map(|path| &path.relation));
        let by = relations.map(|relation| relation.len()).max().unwrap_or(0).max(8) + 2;
        let optional = |value: Option<f64>, digits: usize, sign: bool| match (value, sign) {
            (None, _) => "-".into(),
            (Some(value), true) => format!("{value:+.digits$}"),
            (Some(value), false) => format!("{value:.digits$}"),
        };
        let head = ["adds", "attention", "removal", "score", "known"];
        writeln!(
            f,
            "\n{:<name$}{:<by$}{:>10}{:>11}{:>10}{:>8}  {}",
            "neighbour", "relation", head[0], head[1], head[2], head[3], head[4]
        )?;
        for part in listed() {
            let [known, _] = self.known(part.label).unwrap_or_default();
            let (attention, removal) = (optional(part.attention, 3, false), optional(part.removal, 4, true));
            let score = optional(part.score.map(f64::from), 3, false);
            let line = format!(
                "{:<name$}{:<by$}{:>+10.4}{attention:>11}{removal:>10}{score:>8}  {known}",
                part.name, part.relation, part.contribution
            );
            writeln!(f, "{}", line.trim_end())?;
            for path in part.paths.iter().take(PATHS) {
                let from = from(path);
                let score = optional(path.score.map(f64::from), 3, false);
                let [known, _] = self.known(path.label.filter(|&label| label == 1)).unwrap_or_default();
                let (relation, attention) = (&path.relation, optional(path.attention, 3, false));
                let numbers = format!("{:>+10.4}{attention:>11}{:>10}{score:>8}  {known}", path.contribution, "");
                writeln!(f, "{from:<name$}{relation:<by$}{}", numbers.trim_end())?;
            }
        }
        let (own, rest) =
            (self.own, self.rest + self.neighbours.iter().skip(ROWS).map(|n| n.contribution).sum::<f64>());
        if !self.method.additive {
            return match self.more_neighbours + self.neighbours.len().saturating_sub(ROWS) {
                0 => Ok(()),
                more => writeln!(f, "and {more} neighbours with lower scores"),
            };
        }
        if own != 0.0 {
            writeln!(f, "{:<name$}{:<by$}{own:>+10.4}", "itself", "")?;
        }
        match self.more_neighbours + self.neighbours.len().saturating_sub(ROWS) {
            0 => Ok(()),
            more => {
                let others = format!("{more} others");
                writeln!(f, "{others:<name$}{:<by$}{rest:>+10.4}", "")
            }
        }
    }
}

/// Lines of at most `width` characters, broken between words.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_broken_between_words() {
        assert_eq!(wrapped("one two  three four", 8), ["one two", "three", "four"]);
        assert_eq!(wrapped("a-word-that-is-too-long x", 8), ["a-word-that-is-too-long", "x"]);
    }
}
