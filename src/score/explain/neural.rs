//! Stage 2 and node classifiers: what their layers make of the neighbours, in the words of the data.

use super::explanation::{BlockPart, ColumnPart, Explanation, Method, NeighbourPart, PathPart, RelationPart};
use super::names::Names;
use super::network::{Attributed, Coefficients, EdgeTransform, Entry, Head, Joined, Limits, Path, ReadOut, View};
use super::similar::Known;
use super::{FEATURES, MOST_NEIGHBOURS, MOST_PATHS, by_magnitude};
use crate::error::Result;
use crate::graph::{NodeType, Relation};
use crate::run::known_labels::LABEL_COLUMNS;

/// A node's own transform, in place of a relation.
const ITSELF: &str = "itself";
const BIASES: &str = "biases of the hidden layers";
const EDGES: &str = "values of edges";
/// What the age of an edge becomes, in one.
const AGE: &str = "age";
const LABELS: &str = "known labels";

/// The names of the model's input columns.
#[derive(Clone, Copy)]
pub(in crate::score) enum Columns<'a> {
    /// Columns of the data, by their names where these are known.
    Features(Option<&'a [String]>),
    /// Embeddings of Stage 1, whose columns mean nothing on their own.
    Embeddings,
}

impl Columns<'_> {
    fn name(&self, column: usize) -> String {
        match self {
            Columns::Features(Some(names)) if column < names.len() => names[column].clone(),
            Columns::Features(_) => format!("feature {column}"),
            Columns::Embeddings => format!("embedding {column}"),
        }
    }

    fn block(&self) -> &'static str {
        match self {
            Columns::Features(_) => FEATURES,
            Columns::Embeddings => "embedding",
        }
    }
}

/// A network with what is said of its parts: what explanations of a run start from.
pub(in crate::score) struct Described<'a> {
    pub names: &'a Names<'a>,
    pub view: View<'a>,
    pub columns: Columns<'a>,
    /// `[relation]`: names of the values of its edges; empty where no relation has any.
    pub edge_columns: &'a [Vec<String>],
    /// Whether known labels stand behind the columns.
    pub labels: bool,
    pub known: Option<&'a Known<'a>>,
}

/// What is explained of a node.
pub(in crate::score) enum Question<'a> {
    /// The logit of a score.
    Score { head: &'a Head },
    /// One class of so many, which the last layer tells, or a layer behind it.
    Class { class: u32, classes: usize, read_out: Option<&'a ReadOut> },
}

impl Question<'_> {
    fn head(&self) -> Head {
        match *self {
            Question::Score { head } => head.clone(),
            Question::Class { class, classes, read_out } => {
                let mut weights = vec![-1.0 / classes.saturating_sub(1).max(1) as f64; classes];
                weights[class as usize] = 1.0;
                let head = Head { weights, bias: 0.0, joined: Joined::Nothing };
                read_out.map_or_else(|| head.clone(), |read_out| read_out.before(&head))
            }
        }
    }

    fn unit(&self) -> String {
        match self {
            Question::Class { class, classes, .. } if *classes > 2 => format!("margin of class {class}"),
            _ => "log-odds".into(),
        }
    }

    /// What the sum is, and its name in the rest of the text.
    fn sum(&self) -> [String; 2] {
        match self {
            Question::Score { .. } => [String::new(), "logit".into()],
            Question::Class { class, classes: 2, .. } => {
                let text = format!("The log-odds are the logit of class {class} less that of class {}. ", 1 - class);
                [text, "sum".into()]
            }
            Question::Class { class, .. } => {
                let text =
                    format!("The margin of class {class} is its logit less the mean of those of all other classes. ");
                [text, "margin".into()]
            }
        }
    }
}

impl Described<'_> {
    /// Explains the score of a node.
    ///
    /// # Errors
    /// A node without a score.
    pub fn explain(&self, probability: Option<f64>, node: u32, question: &Question) -> Result<Explanation> {
        let names = self.names;
        let begun = Explanation::of(node, names, self.known, probability, self.method(question))?;
        let limits = Limits { neighbours: MOST_NEIGHBOURS, paths: MOST_PATHS };
        let found = self.view.explain(node, &question.head(), limits);
        let (columns, blocks) = (self.columns_of(node, &found), self.blocks(&found));
        let relations = self.relations(&found);
        let (own, others): (Vec<Entry>, Vec<Entry>) = found.entries.into_iter().partition(|e| e.source == node);
        let rest = others.iter().skip(MOST_NEIGHBOURS).map(|entry| entry.contribution).sum();
        let more_neighbours = others.len().saturating_sub(MOST_NEIGHBOURS);
        Ok(Explanation {
            class: match *question {
                Question::Score { .. } => None,
                Question::Class { class, .. } => Some(class),
            },
            unit: question.unit(),
            base: found.base,
            sum: found.logit,
            own: own.iter().map(|entry| entry.contribution).sum(),
            rest,
            relations,
            blocks,
            columns,
            neighbours: others.into_iter().take(MOST_NEIGHBOURS).map(|entry| self.neighbour(entry)).collect(),
            more_neighbours,
            ..begun
        })
    }

    fn method(&self, question: &Question) -> Method {
        let [begin, sum] = question.sum();
        let network = self.view.network;
        let coefficients = match network.coefficients {
            Coefficients::Attention { .. } => "attention",
            Coefficients::Symmetric | Coefficients::Mean => "weights of edges",
        };
        let [own_bias, biases] = match network.layers.iter().any(|layer| !layer.bias.is_empty() || layer.norm.is_some())
        {
            true => [" and of its own bias", " and the biases of the hidden layers"],
            false => ["", ""],
        };
        let reads_edges = network.layers.iter().any(|layer| layer.edges.iter().any(Option::is_some));
        let [own_values, values] = match reads_edges {
            true => [" and of the values of its edge", " and the values of the edges"],
            false => ["", ""],
        };
        let gates = match network.layers.iter().any(|layer| layer.gates.iter().any(Option::is_some)) {
            true => ", the gates",
            false => "",
        };
        let deviations = match network.layers.iter().any(|layer| layer.norm.is_some()) {
            true => ", the deviations that rows are divided by",
            false => "",
        };
        let signs = match network.layers.iter().any(|layer| layer.transforms.iter().any(|of| of.apart.is_some())) {
            true => ", the signs of differences",
            false => "",
        };
        let paths = match network.reach() {
            1 => String::new(),
            _ => format!(
                "What a neighbour adds is the sum over the paths of two edges that lead over it{own_bias}{own_values}. "
            ),
        };
        let text = format!(
            "{begin}The {sum} is a bias plus what each neighbour and the node itself add; this is also \
             the sum over the columns of all features within {reach}{values}{biases}. {paths}The {coefficients}{gates}{deviations}{signs} and the slopes \
             of the activation are held at their values, so these numbers add up exactly, but do not tell what the \
             score would be without a neighbour. `removal` does: the {sum} less that without all edges between the two, \
             computed anew; removals do not add up.",
            reach = self.reach()
        );
        Method { name: format!("{coefficients} and slopes held"), additive: true, text }
    }

    /// How far the network looks.
    fn reach(&self) -> String {
        match self.view.network.reach() {
            1 => "one edge".into(),
            2 => "two edges".into(),
            more => format!("{more} edges"),
        }
    }

    fn columns_of(&self, node: u32, found: &Attributed) -> Vec<ColumnPart> {
        let own = self.view.features.row(node as usize);
        let labels = found.columns.len() - if self.labels { LABEL_COLUMNS.len() } else { 0 };
        let column = |(column, (&contribution, value)): (usize, (&f64, f32))| ColumnPart {
            column: match column.checked_sub(labels) {
                Some(label) => LABEL_COLUMNS[label].into(),
                None => self.columns.name(column),
            },
            block: if column < labels { self.columns.block().into() } else { LABELS.into() },
            value,
            written: None,
            contribution,
        };
        let mut columns: Vec<ColumnPart> = found.columns.iter().zip(own).enumerate().map(column).collect();
        for (relation, of_edges) in found.edges.iter().enumerate() {
            let read = self.view.network.layers.iter().find_map(|layer| layer.edges.get(relation)?.as_ref());
            let (of_values, of_ages) = of_edges.split_at(read.map_or(0, EdgeTransform::values));
            let column = |name: &str, value: f32, contribution: f64| {
                let column = format!("{}: {name}", self.names.relation(relation));
                ColumnPart { column, block: EDGES.into(), value, written: None, contribution }
            };
            let values = of_values.iter().zip(&self.edge_columns[relation]).enumerate();
            columns.extend(values.map(|(at, (&contribution, name))| {
                let value =
                    |of: &Relation, entry: usize, _, _| of.values.as_ref().map_or(0.0, |v| v.row(entry)[at].into());
                column(name, self.mean(node, relation, value), contribution)
            }));
            if !of_ages.is_empty() {
                let graph = self.view.edges.graph();
                let age = |of: &Relation, entry, row, source| graph.age(of, entry, row, source).unwrap_or_default();
                columns.push(column(AGE, self.mean(node, relation, age), of_ages.iter().sum()));
            }
        }
        if found.biases != 0.0 {
            let (column, block) = (BIASES.into(), BIASES.into());
            columns.push(ColumnPart { column, block, value: 1.0, written: None, contribution: found.biases });
        }
        columns.sort_by(|a, b| by_magnitude(a.contribution, b.contribution));
        columns
    }

    /// Mean over the edges of a relation into a node of what `value` says of an entry, its row and its source; 0 where
    /// there are none.
    fn mean(&self, node: u32, relation: usize, value: impl Fn(&Relation, usize, usize, u32) -> f64) -> f32 {
        let graph = self.view.edges.graph();
        let of = &graph.relations()[relation];
        let own = &graph.node_types()[of.dst];
        let Some(row) = (node as usize).checked_sub(own.offset).filter(|&row| row < own.count) else { return 0.0 };
        let entries = of.forward.entries(row).zip(of.forward.row(row));
        let count = entries.len().max(1) as f64;
        (entries.map(|(entry, &source)| value(of, entry, row, source)).sum::<f64>() / count) as f32
    }

    fn blocks(&self, found: &Attributed) -> Vec<BlockPart> {
        let (features, reach) = (self.columns.block(), self.reach());
        let types = self.names.graph().node_types();
        let of_type = |(of_type, &contribution): (&NodeType, &f64)| {
            let nodes = if types.len() == 1 { "other" } else { &of_type.name };
            BlockPart { block: format!("{features} of {nodes} nodes within {reach}"), contribution }
        };
        let mut blocks: Vec<BlockPart> = types.iter().zip(&found.by_type).map(of_type).collect();
        let own = format!("{features} of the node itself");
        blocks.push(BlockPart { block: own, contribution: found.own_features });
        blocks.push(BlockPart { block: BIASES.into(), contribution: found.biases });
        blocks.push(BlockPart { block: EDGES.into(), contribution: found.edges.iter().flatten().sum() });
        blocks.retain(|part| part.contribution != 0.0);
        blocks.sort_by(|a, b| by_magnitude(a.contribution, b.contribution));
        blocks
    }

    fn relation(&self, relation: Option<usize>) -> String {
        relation.map_or_else(|| ITSELF.into(), |relation| self.names.relation(relation))
    }

    fn relations(&self, found: &Attributed) -> Vec<RelationPart> {
        let of_relation = |relation: Option<usize>| {
            let entries = || found.entries.iter().filter(|entry| entry.relation == relation);
            RelationPart {
                relation: self.relation(relation),
                neighbours: entries().count(),
                contribution: entries().map(|entry| entry.contribution).sum(),
            }
        };
        let relations = (0..self.view.edges.graph().relations().len()).map(Some).chain([None]);
        let mut parts: Vec<RelationPart> = relations.map(of_relation).collect();
        parts.retain(|part| part.neighbours > 0);
        parts.sort_by(|a, b| by_magnitude(a.contribution, b.contribution));
        parts
    }

    fn neighbour(&self, entry: Entry) -> NeighbourPart {
        let names = self.names;
        let path = |path: Path| PathPart {
            node: path.source,
            name: names.name(path.source),
            relation: self.relation(path.relation),
            attention: path.attention,
            contribution: path.contribution,
            score: names.score(path.source),
            label: names.label(path.source),
        };
        NeighbourPart {
            node: entry.source,
            name: names.name(entry.source),
            relation: self.relation(entry.relation),
            score: names.score(entry.source),
            label: names.label(entry.source),
            attention: entry.attention,
            contribution: entry.contribution,
            removal: entry.removal,
            paths: entry.paths.into_iter().map(path).collect(),
            more_paths: entry.more_paths,
        }
    }
}
