//! Stage 2: what attention makes of the neighbours, in the words of the data.

use super::attention::{Attention, Attributed, Entry, Into, Limits, Path};
use super::explanation::{BlockPart, ColumnPart, Explanation, Method, NeighbourPart, PathPart, RelationPart};
use super::names::Names;
use super::network::Network;
use super::similar::Known;
use super::{MOST_NEIGHBOURS, MOST_PATHS, by_magnitude};
use crate::error::Result;
use crate::graph::Features;

const TEXT: &str = "\
    The logit is the bias plus what each neighbour adds, which is the sum over the paths of two edges that lead \
    over it, and over the columns of the features at their ends. Attention and the slopes of the activation are \
    held at their values, so these numbers add up exactly, but do not tell what the score would be without a \
    neighbour. `removal` does: the logit less that without all edges between the two, computed anew; removals do \
    not add up.";

/// The names of the model's input columns.
pub(super) enum Columns<'a> {
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
            Columns::Features(_) => "features",
            Columns::Embeddings => "embedding",
        }
    }
}

/// What explanations of a run start from.
pub(super) struct Model<'a> {
    pub names: &'a Names<'a>,
    pub network: &'a Network,
    pub features: &'a Features,
    pub into: &'a [Vec<Into>],
    pub columns: Columns<'a>,
    pub known: Option<&'a Known<'a>>,
}

impl Model<'_> {
    /// Explains the score of a node.
    ///
    /// # Errors
    /// A node without a score.
    pub fn explain(&self, probability: Option<f64>, node: u32) -> Result<Explanation> {
        let names = self.names;
        let method = Method { name: "attention and slopes held".into(), additive: true, text: TEXT.into() };
        let begun = Explanation::of(node, names, self.known, probability, method)?;
        let limits = Limits { neighbours: MOST_NEIGHBOURS, paths: MOST_PATHS };
        let attention = Attention::new(self.network, names.graph(), self.features, self.into);
        let found = attention.explain(node, limits);
        let relations = self.relations(&found);
        let (own, others): (Vec<Entry>, Vec<Entry>) = found.entries.into_iter().partition(|e| e.source == node);
        let rest = others.iter().skip(MOST_NEIGHBOURS).map(|entry| entry.contribution).sum();
        let more_neighbours = others.len().saturating_sub(MOST_NEIGHBOURS);
        let own_row: Vec<f32> = self.features.row(node as usize).collect();
        let column = |(column, &contribution): (usize, &f64)| ColumnPart {
            column: self.columns.name(column),
            block: self.columns.block().into(),
            value: own_row[column],
            contribution,
        };
        let mut columns: Vec<ColumnPart> = found.columns.iter().enumerate().map(column).collect();
        columns.sort_by(|a, b| by_magnitude(a.contribution, b.contribution));
        let types = names.graph().node_types();
        let of_type = |(t, &contribution): (usize, &f64)| {
            let block = format!("{} of {} nodes two edges away", self.columns.block(), types[t].name);
            BlockPart { block, contribution }
        };
        let mut blocks: Vec<BlockPart> = found.by_type.iter().enumerate().map(of_type).collect();
        blocks.push(BlockPart {
            block: format!("{} of the node itself", self.columns.block()),
            contribution: found.own_features,
        });
        blocks.retain(|part| part.contribution != 0.0);
        blocks.sort_by(|a, b| by_magnitude(a.contribution, b.contribution));
        Ok(Explanation {
            unit: "log-odds".into(),
            base: found.bias,
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

    fn relations(&self, found: &Attributed) -> Vec<RelationPart> {
        let of_relation = |relation: usize| {
            let entries = || found.entries.iter().filter(|entry| entry.relation == relation);
            RelationPart {
                relation: self.names.relation(relation),
                neighbours: entries().count(),
                contribution: entries().map(|entry| entry.contribution).sum(),
            }
        };
        let mut parts: Vec<RelationPart> = (0..self.names.graph().relations().len()).map(of_relation).collect();
        parts.retain(|part| part.neighbours > 0);
        parts.sort_by(|a, b| by_magnitude(a.contribution, b.contribution));
        parts
    }

    fn neighbour(&self, entry: Entry) -> NeighbourPart {
        let names = self.names;
        let path = |path: Path| PathPart {
            node: path.source,
            name: names.name(path.source),
            relation: names.relation(path.relation),
            attention: path.attention,
            contribution: path.contribution,
            score: names.score(path.source),
            label: names.label(path.source),
        };
        NeighbourPart {
            node: entry.source,
            name: names.name(entry.source),
            relation: names.relation(entry.relation),
            score: names.score(entry.source),
            label: names.label(entry.source),
            attention: Some(entry.attention),
            contribution: entry.contribution,
            removal: entry.removal,
            paths: entry.paths.into_iter().map(path).collect(),
            more_paths: entry.more_paths,
        }
    }
}
