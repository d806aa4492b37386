//! What every part of an ego network means for the logit: from the head back to the features.

use rayon::prelude::*;

use super::super::by_magnitude;
use super::edges::Row;
use super::ego::{Before, Ego, Level};
use super::parameters::{Coefficients, EdgeTransform, Head, axpy, dot};

/// Rows whose sums are added up one after the other: the result does not depend on the number of threads.
const CHUNK: usize = 64;
/// Rows that are worked on at the same time before what they mean for their sources is added up.
const BLOCK: usize = 1 << 10;

/// An in-neighbour over one relation, or what the node has of itself.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// None is the node's own transform.
    pub relation: Option<usize>,
    /// Global id.
    pub source: u32,
    /// Mean over heads, where coefficients are attention.
    pub attention: Option<f64>,
    pub contribution: f64,
    /// What the values of the edge have of it.
    pub of_values: f64,
    /// Logit less that without any edge between the two nodes, of the first entries.
    pub removal: Option<f64>,
    /// The strongest, of the first entries. All paths of an entry add up to its contribution less that of the bias
    /// which the neighbour has in the layer before, and less that of the values of its own edge.
    pub paths: Vec<Path>,
    /// Paths that are left out.
    pub more_paths: usize,
}

/// A path of two edges: what an in-neighbour of the neighbour adds.
#[derive(Clone, Debug)]
pub(crate) struct Path {
    /// None is the neighbour's own transform.
    pub relation: Option<usize>,
    /// Global id.
    pub source: u32,
    /// Of the neighbour to it; mean over heads, where coefficients are attention.
    pub attention: Option<f64>,
    pub contribution: f64,
}

/// Sums over all paths to the features, and over the biases on the way.
pub(super) struct Sums {
    pub columns: Vec<f64>,
    pub by_type: Vec<f64>,
    pub own: f64,
    pub biases: f64,
    /// `[relation]`: a number per value of its edges.
    pub edges: Vec<Vec<f64>>,
}

/// A row of a node, and what its sources mean for the logit.
pub(super) struct Part {
    pub row: Row,
    /// `[entries, heads]`
    coefficients: Vec<f64>,
    /// `[heads, input]`: what a unit of a source with a coefficient of one adds.
    of_heads: Vec<f64>,
    /// `[heads, values]`: the same of a unit of an edge's values.
    of_edges: Vec<f64>,
}

impl Part {
    fn heads(&self) -> usize {
        self.coefficients.len() / self.row.sources.len()
    }

    fn coefficients(&self, entry: usize) -> &[f64] {
        &self.coefficients[entry * self.heads()..(entry + 1) * self.heads()]
    }

    /// Adds what a unit of an entry's row adds to the logit to `to`.
    fn add_relevance(&self, entry: usize, to: &mut [f64]) {
        let heads = self.of_heads.chunks_exact(to.len()).zip(self.coefficients(entry));
        heads.for_each(|(of_head, &coefficient)| axpy(coefficient, of_head, to));
    }

    /// What the values of an entry's edge add.
    fn of_values(&self, entry: usize) -> f64 {
        let values = self.row.values_of(entry);
        if values.is_empty() {
            return 0.0;
        }
        let heads = self.of_edges.chunks_exact(values.len()).zip(self.coefficients(entry));
        heads.map(|(of_head, coefficient)| coefficient * dot(of_head, values)).sum()
    }

    /// What an entry with the row `x` adds, without the values of its edge.
    fn of_source(&self, entry: usize, x: &[f64]) -> f64 {
        let heads = self.of_heads.chunks_exact(x.len()).zip(self.coefficients(entry));
        heads.map(|(of_head, coefficient)| coefficient * dot(of_head, x)).sum()
    }

    /// What an entry with the row `x` adds.
    fn contribution(&self, entry: usize, x: &[f64]) -> f64 {
        self.of_source(entry, x) + self.of_values(entry)
    }

    fn attention(&self, entry: usize) -> f64 {
        self.coefficients(entry).iter().sum::<f64>() / self.heads() as f64
    }
}

impl Ego<'_> {
    /// What the biases of a layer add to the row of a node, and what a unit of the sum over its sources adds, where a
    /// unit of the row adds `relevance`.
    fn of_sum(&self, layer: usize, node: u32, relevance: &[f64]) -> (f64, Vec<f64>) {
        let of = &self.view.network.layers[layer];
        let (z, held) = self.z(layer, node);
        let of_z: Vec<f64> =
            relevance.iter().zip(z).map(|(relevance, &z)| relevance * of.activation.slope(z)).collect();
        let (of_shift, of_sum) = match &of.norm {
            None => (0.0, of_z),
            Some(norm) => norm.back(of_z, held.inverse),
        };
        let t = self.view.edges.graph().type_of(node as usize);
        (of_shift + of.bias.get(t).map_or(0.0, |bias| dot(bias, &of_sum)), of_sum)
    }

    /// What a unit of the node's row in the last layer adds, and of its row before that layer where the head reads it.
    fn of_head(&self, head: &Head) -> [Vec<f64>; 2] {
        let [hidden, last] = self.own_rows();
        head.weights_of(hidden, last)
    }

    /// What the node has without any source: the bias of the head and of the last layer.
    pub fn base(&self, head: &Head) -> f64 {
        let [_, of_last] = self.of_head(head);
        head.bias + self.of_sum(self.levels.len() - 1, self.node, &of_last).0
    }

    /// The rows of a node where a unit of the sum over them adds `of_sum`.
    fn parts(&self, layer: usize, node: u32, of_sum: &[f64]) -> Vec<Part> {
        let (view, before, held) = (self.view, self.before(layer), self.z(layer, node).1);
        let part = |row: Row| {
            let input = view.input_of(layer, &row);
            let (slots, share) = (view.slots(layer, node, &row, before, None), held.share(&row));
            let mut of_heads = vec![0.0; slots.len() * input];
            let mut of_edges = Vec::new();
            for (to, slot) in of_heads.chunks_exact_mut(input).zip(slots) {
                let (of_sum, factor) = (&of_sum[slot.outputs], slot.factor * share);
                slot.weight.project_back(of_sum, slot.first, factor, to);
                if let Some(weight) = slot.of_edges {
                    let from = of_edges.len();
                    of_edges.resize(from + weight.input(), 0.0);
                    weight.project_back(of_sum, slot.first, factor, &mut of_edges[from..]);
                }
            }
            Part { coefficients: view.coefficients(layer, node, &row, before, None), row, of_heads, of_edges }
        };
        view.rows(layer, node, None).into_iter().map(part).collect()
    }

    /// The rows of the node itself in the last layer. Where the head reads the layer before, too, its row of the node
    /// reaches the head as through a transform of the node itself.
    pub fn last_parts(&self, head: &Head) -> Vec<Part> {
        let layer = self.levels.len() - 1;
        let [of_hidden, of_last] = self.of_head(head);
        let mut parts = self.parts(layer, self.node, &self.of_sum(layer, self.node, &of_last).1);
        if of_hidden.is_empty() {
            return parts;
        }
        match parts.iter_mut().find(|part| part.row.relation.is_none()) {
            Some(own) => axpy(1.0, &of_hidden, &mut own.of_heads),
            None => parts.push(Part {
                row: Row::of_itself(self.node),
                coefficients: vec![1.0],
                of_heads: of_hidden,
                of_edges: Vec::new(),
            }),
        }
        parts
    }

    /// The attention of an entry, where that is what coefficients are.
    fn attention(&self, part: &Part, entry: usize) -> Option<f64> {
        let attends = matches!(self.view.network.coefficients, Coefficients::Attention { .. });
        (attends && part.row.relation.is_some()).then(|| part.attention(entry))
    }

    /// One per source: repeated edges are one entry.
    pub fn entries(&self, part: &Part) -> Vec<Entry> {
        let before = self.before(self.levels.len() - 1);
        let of_entry = |buffer: &mut Vec<f64>, (at, &source): (usize, &u32)| Entry {
            relation: part.row.relation,
            source,
            attention: self.attention(part, at),
            contribution: part.contribution(at, self.view.read_source(&part.row, before, source, buffer)),
            of_values: part.of_values(at),
            removal: None,
            paths: Vec::new(),
            more_paths: 0,
        };
        let sources = part.row.sources.par_iter().enumerate().with_min_len(CHUNK);
        let mut entries: Vec<Entry> = sources.map_init(Vec::new, of_entry).collect();
        entries.sort_by_key(|entry| entry.source);
        entries.dedup_by(|repeated, entry| {
            let same = repeated.source == entry.source;
            if same {
                entry.attention = entry.attention.zip(repeated.attention).map(|(a, b)| a + b);
                entry.contribution += repeated.contribution;
                entry.of_values += repeated.of_values;
            }
            same
        });
        entries
    }

    /// Gives an entry its strongest paths: none where the network looks one edge far.
    pub fn paths(&self, entry: &mut Entry, last: &[Part], most: usize) {
        let layers = &self.view.network.layers;
        let Some(layer) = layers.len().checked_sub(2).filter(|&layer| layers[layer].meets()) else { return };
        let mut relevance = vec![0.0; self.view.network.layers[layer].output];
        for part in last.iter().filter(|part| part.row.relation == entry.relation) {
            let sources = part.row.sources.iter().enumerate().filter(|(_, source)| **source == entry.source);
            sources.for_each(|(at, _)| part.add_relevance(at, &mut relevance));
        }
        let (_, of_sum) = self.of_sum(layer, entry.source, &relevance);
        let (mut paths, mut buffer) = (Vec::new(), Vec::new());
        for part in self.parts(layer, entry.source, &of_sum) {
            for (at, &source) in part.row.sources.iter().enumerate() {
                paths.push(Path {
                    relation: part.row.relation,
                    source,
                    attention: self.attention(&part, at),
                    contribution: {
                        let x = self.view.read_source(&part.row, self.before(layer), source, &mut buffer);
                        part.contribution(at, x)
                    },
                });
            }
        }
        paths.sort_by(|a, b| {
            let by_size = by_magnitude(a.contribution, b.contribution);
            by_size.then(a.source.cmp(&b.source)).then(a.relation.cmp(&b.relation))
        });
        entry.more_paths = paths.len().saturating_sub(most);
        paths.truncate(most);
        entry.paths = paths;
    }

    /// Goes back from the head, layer by layer.
    pub fn sums(&self, head: &Head) -> Sums {
        let mut sums = self.no_sums();
        let mut relevance = head.weights.clone();
        for layer in (0..self.levels.len()).rev() {
            let level = &self.levels[layer];
            let Before::Hidden { level: below, .. } = self.before(layer) else {
                self.add_inputs(head, &relevance, &mut sums);
                break;
            };
            let mut of_below = vec![0.0; below.nodes.len() * below.width()];
            for (nodes, relevance) in level.nodes.chunks(BLOCK).zip(relevance.chunks(BLOCK * level.width())) {
                let rows = nodes.par_iter().zip(relevance.par_chunks(level.width()));
                let parts: Vec<(f64, Vec<Part>)> =
                    rows.map(|(&node, relevance)| self.bias_and_parts(head, layer, node, relevance)).collect();
                for (bias, parts) in parts {
                    sums.biases += bias;
                    parts.iter().for_each(|part| {
                        self.add_values(part, &mut sums);
                        part.add_to_sources(below, &mut of_below);
                    });
                }
            }
            relevance = of_below;
        }
        sums
    }

    fn no_sums(&self) -> Sums {
        let graph = self.view.edges.graph();
        let of_values = |at: &Option<EdgeTransform>| vec![0.0; at.as_ref().map_or(0, |edges| edges.weight.input())];
        Sums {
            columns: vec![0.0; self.view.features.dim()],
            by_type: vec![0.0; graph.node_types().len()],
            own: 0.0,
            biases: 0.0,
            edges: self.view.network.layers.first().map_or(Vec::new(), |of| of.edges.iter().map(of_values).collect()),
        }
    }

    /// What the biases of a layer add to a node, and the rows of the node. Those of the last layer belong to the base.
    fn bias_and_parts(&self, head: &Head, layer: usize, node: u32, relevance: &[f64]) -> (f64, Vec<Part>) {
        if layer + 1 == self.levels.len() {
            return (0.0, self.last_parts(head));
        }
        if relevance.iter().all(|&relevance| relevance == 0.0) {
            return (0.0, Vec::new());
        }
        let (bias, of_sum) = self.of_sum(layer, node, relevance);
        (bias, self.parts(layer, node, &of_sum))
    }

    /// The end of the way back: adds what the features add.
    fn add_inputs(&self, head: &Head, relevance: &[f64], sums: &mut Sums) {
        let level = &self.levels[0];
        let rows = level.nodes.par_chunks(CHUNK).zip(relevance.par_chunks(CHUNK * level.width()));
        let chunks = rows.map(|(nodes, relevance)| {
            let mut sums = self.no_sums();
            for (&node, relevance) in nodes.iter().zip(relevance.chunks_exact(level.width())) {
                let (bias, parts) = self.bias_and_parts(head, 0, node, relevance);
                sums.biases += bias;
                parts.iter().for_each(|part| self.add_input(part, &mut sums));
            }
            sums
        });
        for chunk in chunks.collect::<Vec<Sums>>() {
            axpy(1.0, &chunk.columns, &mut sums.columns);
            axpy(1.0, &chunk.by_type, &mut sums.by_type);
            sums.own += chunk.own;
            sums.biases += chunk.biases;
            sums.edges.iter_mut().zip(&chunk.edges).for_each(|(to, of)| axpy(1.0, of, to));
        }
    }

    /// Adds what the values of a row's edges add, value by value.
    fn add_values(&self, part: &Part, sums: &mut Sums) {
        let Some(to) = part.row.relation.and_then(|relation| sums.edges.get_mut(relation)) else { return };
        let weighed = self.view.weighed_values(&part.row, &part.coefficients);
        if !to.is_empty() {
            let heads = part.of_edges.chunks_exact(to.len()).zip(weighed.chunks_exact(to.len()));
            for (of_head, weighed) in heads {
                to.iter_mut().zip(of_head.iter().zip(weighed)).for_each(|(to, (a, b))| *to += a * b);
            }
        }
    }

    fn add_input(&self, part: &Part, sums: &mut Sums) {
        self.add_values(part, sums);
        let (view, row) = (self.view, &part.row);
        let (width, columns) = (view.input_of(0, row), sums.columns.len());
        let column_of = |at: usize| match (at.checked_sub(columns), view.pieces_of(row)) {
            (Some(at), Some(pieces)) => pieces.column(at),
            _ => at,
        };
        let inputs = view.weighed(0, row, &part.coefficients, Before::Features);
        let mut of_type = 0.0;
        for (of_head, inputs) in part.of_heads.chunks_exact(width).zip(inputs.chunks_exact(width)) {
            for (at, (relevance, input)) in of_head.iter().zip(inputs).enumerate() {
                sums.columns[column_of(at)] += relevance * input;
                of_type += relevance * input;
            }
        }
        let mut own = 0.0;
        if row.sources.contains(&self.node) {
            let mut buffer = Vec::new();
            let x = view.read_source(row, Before::Features, self.node, &mut buffer);
            let itself = row.sources.iter().enumerate().filter(|(_, source)| **source == self.node);
            own = itself.map(|(at, _)| part.of_source(at, x)).sum();
        }
        sums.own += own;
        sums.by_type[view.edges.graph().type_of(row.sources[0] as usize)] += of_type - own;
    }
}

impl Part {
    /// Adds what every source means for the logit to the rows of the level below, one per node.
    fn add_to_sources(&self, below: &Level, to: &mut [f64]) {
        let width = below.width();
        for (entry, &source) in self.row.sources.iter().enumerate() {
            let at = below.position(source).unwrap_or_else(|| unreachable!("a level has all that the next one reads"));
            self.add_relevance(entry, &mut to[at * width..(at + 1) * width]);
        }
    }
}
