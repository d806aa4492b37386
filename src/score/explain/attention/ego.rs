//! A node and its in-neighbours: the second layer, and what every part of it means for the logit.

use rayon::prelude::*;

use super::super::by_magnitude;
use super::super::network::{axpy, dot, elu, elu_slope};
use super::{Attention, CHUNK, Entry, Path, Row};

/// A node, its in-neighbours, and the first layer of all of them.
pub(super) struct Ego<'a> {
    of: Attention<'a>,
    node: u32,
    /// Weight of each stream's sum.
    share: f64,
    rows: Vec<Row<'a>>,
    /// The node and its in-neighbours, ascending.
    nodes: Vec<u32>,
    /// `[nodes, hidden]`: the first layer before its activation.
    z: Vec<f64>,
    /// `[nodes, hidden]`: the first layer.
    h: Vec<f64>,
    /// Per row, `[entries, heads]`: the source's part of the second layer's scores.
    source_scores: Vec<Vec<f64>>,
}

/// The second layer of a node.
pub(super) struct Second {
    pub logit: f64,
    z: Vec<f64>,
    /// Per row, `[entries, heads]`.
    weights: Vec<Vec<f64>>,
}

/// What the entries of a row mean for the logit.
pub(super) struct Relevance {
    /// `[heads, hidden]`: what a unit of `h` with attention one adds.
    of_heads: Vec<f64>,
    /// `[entries, heads]`
    weights: Vec<f64>,
}

pub(super) struct Sums {
    pub columns: Vec<f64>,
    pub by_type: Vec<f64>,
    pub own: f64,
}

impl<'a> Ego<'a> {
    pub fn around(of: Attention<'a>, node: u32) -> Self {
        let (share, rows) = of.rows(node);
        let mut nodes: Vec<u32> =
            rows.iter().flat_map(|row| row.sources.iter().map(|source| row.into.first + source)).collect();
        nodes.push(node);
        nodes.sort_unstable();
        nodes.dedup();
        let hidden = of.network.layers[0].output;
        let mut z = vec![0.0; nodes.len() * hidden];
        z.par_chunks_mut(hidden).zip(&nodes).for_each(|(z, &node)| z.copy_from_slice(&of.first_layer(node, None)));
        let h: Vec<f64> = z.par_iter().with_min_len(1 << 12).map(|&z| elu(z)).collect();
        let mut ego = Self { of, node, share, rows, nodes, z, h, source_scores: Vec::new() };
        ego.source_scores = ego.rows.iter().map(|row| ego.source_scores(row)).collect();
        ego
    }

    fn at(&self, node: u32) -> usize {
        self.nodes
            .binary_search(&node)
            .unwrap_or_else(|_| unreachable!("every source of the node is in its ego network"))
    }

    fn h(&self, node: u32) -> &[f64] {
        let hidden = self.of.network.layers[0].output;
        &self.h[self.at(node) * hidden..][..hidden]
    }

    fn source_scores(&self, row: &Row) -> Vec<f64> {
        let heads = self.of.network.heads;
        let stream = &self.of.network.layers[1].streams[row.into.stream];
        let mut scores = vec![0.0; row.sources.len() * heads];
        scores.par_chunks_mut(heads).enumerate().with_min_len(CHUNK).for_each(|(entry, scores)| {
            stream.source_scores(self.h(row.source(entry)), scores);
        });
        scores
    }

    /// The second layer, without the edges between the node and `without`. These change no first layer but that of the
    /// node and of `without`, which the node sees no more.
    pub fn second_layer(&self, without: Option<u32>) -> Second {
        let network = self.of.network;
        let layer = &network.layers[1];
        let own: Vec<f64>;
        let own = match without {
            None => self.h(self.node),
            Some(_) => {
                own = self.of.first_layer(self.node, without).into_iter().map(elu).collect();
                &own[..]
            }
        };
        let mut z = vec![0.0; layer.output];
        let mut weights = Vec::with_capacity(self.rows.len());
        for (row, of_sources) in self.rows.iter().zip(&self.source_scores) {
            let stream = &layer.streams[row.into.stream];
            let mut of_sources = of_sources.clone();
            for (entry, scores) in of_sources.chunks_exact_mut(network.heads).enumerate() {
                if without.is_some() && row.source(entry) == self.node {
                    stream.source_scores(own, scores);
                }
            }
            let keep = |entry: usize| Some(row.source(entry)) != without;
            let of_row = network.attention(&stream.destination_scores(own), &of_sources, keep);
            let mut attended = vec![0.0; network.heads * layer.input];
            for (entry, weights) in of_row.chunks_exact(network.heads).enumerate().filter(|(entry, _)| keep(*entry)) {
                let source = row.source(entry);
                let h = if source == self.node { own } else { self.h(source) };
                attended.chunks_exact_mut(layer.input).zip(weights).for_each(|(to, &weight)| axpy(weight, h, to));
            }
            let heads = attended.chunks_exact(layer.input).zip(z.chunks_exact_mut(layer.output / network.heads));
            heads.enumerate().for_each(|(head, (inputs, z))| stream.project(inputs, head, self.share, z));
            weights.push(of_row);
        }
        let logit = network.head_bias + network.head.iter().zip(&z).map(|(w, &z)| w * elu(z)).sum::<f64>();
        Second { logit, z, weights }
    }

    /// The relevance of every row's entries, from that of the logit.
    pub fn relevance(&self, second: &Second) -> Vec<(&Row<'a>, Relevance)> {
        let network = self.of.network;
        let layer = &network.layers[1];
        let of_outputs: Vec<f64> =
            network.head.iter().zip(&second.z).map(|(w, &z)| w * elu_slope(z) * self.share).collect();
        let of_row = |(row, weights): (&'_ Row<'a>, &Vec<f64>)| {
            let stream = &layer.streams[row.into.stream];
            let mut of_heads = vec![0.0; network.heads * layer.input];
            let heads =
                of_heads.chunks_exact_mut(layer.input).zip(of_outputs.chunks_exact(layer.output / network.heads));
            heads.enumerate().for_each(|(head, (to, of_outputs))| stream.project_back(of_outputs, head, to));
            Relevance { of_heads, weights: weights.clone() }
        };
        self.rows.iter().zip(&second.weights).map(|(row, weights)| (row, of_row((row, weights)))).collect()
    }

    /// What a unit of the first layer of a row's entry adds: `[hidden]`, added to `to`.
    fn add_relevance(&self, relevance: &Relevance, entry: usize, to: &mut [f64]) {
        let heads = self.of.network.heads;
        let weights = &relevance.weights[entry * heads..(entry + 1) * heads];
        relevance.of_heads.chunks_exact(to.len()).zip(weights).for_each(|(of_head, &weight)| axpy(weight, of_head, to));
    }

    /// One per source: repeated edges are one entry.
    pub fn entries(&self, row: &Row, relevance: &Relevance) -> Vec<Entry> {
        let heads = self.of.network.heads;
        let hidden = self.of.network.layers[0].output;
        let of_entry = |entry: usize| {
            let weights = &relevance.weights[entry * heads..(entry + 1) * heads];
            let h = self.h(row.source(entry));
            let of_heads = relevance.of_heads.chunks_exact(hidden).zip(weights);
            Entry {
                relation: row.into.relation,
                source: row.source(entry),
                attention: weights.iter().sum::<f64>() / heads as f64,
                contribution: of_heads.map(|(of_head, weight)| weight * dot(of_head, h)).sum(),
                removal: None,
                paths: Vec::new(),
                more_paths: 0,
            }
        };
        let mut entries: Vec<Entry> =
            (0..row.sources.len()).into_par_iter().with_min_len(CHUNK).map(of_entry).collect();
        entries.sort_by_key(|entry| entry.source);
        entries.dedup_by(|repeated, entry| {
            let same = repeated.source == entry.source;
            if same {
                entry.attention += repeated.attention;
                entry.contribution += repeated.contribution;
            }
            same
        });
        entries
    }

    /// What each column of the inputs of a node adds, where a unit of its first layer adds `relevance`: per relation
    /// and head `[input]`.
    fn input_relevance(&self, node: u32, mut relevance: Vec<f64>) -> (Vec<Row<'a>>, Vec<Vec<f64>>) {
        let network = self.of.network;
        let layer = &network.layers[0];
        let (share, rows) = self.of.rows(node);
        let z = &self.z[self.at(node) * layer.output..][..layer.output];
        relevance.iter_mut().zip(z).for_each(|(relevance, &z)| *relevance *= share * elu_slope(z));
        let of_row = |row: &Row| {
            let mut of_heads = vec![0.0; network.heads * layer.input];
            let heads =
                of_heads.chunks_exact_mut(layer.input).zip(relevance.chunks_exact(layer.output / network.heads));
            let stream = &layer.streams[row.into.stream];
            heads.enumerate().for_each(|(head, (to, relevance))| stream.project_back(relevance, head, to));
            of_heads
        };
        let of_rows = rows.iter().map(of_row).collect();
        (rows, of_rows)
    }

    /// Sums over all paths, by column and by the type of the node at their end.
    pub fn sums(&self, relevance: &[(&Row, Relevance)]) -> Sums {
        let hidden = self.of.network.layers[0].output;
        // A node may be a neighbour over several relations.
        let mut of_nodes = vec![0.0; self.nodes.len() * hidden];
        for (row, of_row) in relevance {
            for entry in 0..row.sources.len() {
                let at = self.at(row.source(entry)) * hidden;
                self.add_relevance(of_row, entry, &mut of_nodes[at..at + hidden]);
            }
        }
        let zero = || Sums {
            columns: vec![0.0; self.of.features.dim()],
            by_type: vec![0.0; self.of.graph.node_types().len()],
            own: 0.0,
        };
        let chunks = self.nodes.par_chunks(CHUNK).zip(of_nodes.par_chunks(CHUNK * hidden)).map(|(nodes, of_nodes)| {
            let mut sums = zero();
            for (&node, relevance) in nodes.iter().zip(of_nodes.chunks_exact(hidden)) {
                if relevance.iter().any(|&relevance| relevance != 0.0) {
                    self.add_sums(node, relevance.to_vec(), &mut sums);
                }
            }
            sums
        });
        let chunks: Vec<Sums> = chunks.collect();
        chunks.iter().fold(zero(), |mut sums, chunk| {
            axpy(1.0, &chunk.columns, &mut sums.columns);
            axpy(1.0, &chunk.by_type, &mut sums.by_type);
            sums.own += chunk.own;
            sums
        })
    }

    fn add_sums(&self, node: u32, relevance: Vec<f64>, sums: &mut Sums) {
        let (heads, input) = (self.of.network.heads, self.of.features.dim());
        let (rows, of_rows) = self.input_relevance(node, relevance);
        let mut x = Vec::new();
        self.of.features_of(self.node, &mut x);
        for (row, of_row) in rows.iter().zip(&of_rows).filter(|(row, _)| !row.sources.is_empty()) {
            let attended = self.of.attended(node, row, None);
            let mut of_type = 0.0;
            for (column, (relevance, input_sum)) in of_row.iter().zip(&attended.inputs).enumerate() {
                sums.columns[column % input] += relevance * input_sum;
                of_type += relevance * input_sum;
            }
            let mut own = 0.0;
            for (entry, weights) in attended.weights.chunks_exact(heads).enumerate() {
                if row.source(entry) == self.node {
                    let of_heads = of_row.chunks_exact(input).zip(weights);
                    own += of_heads.map(|(of_head, weight)| weight * dot(of_head, &x)).sum::<f64>();
                }
            }
            sums.own += own;
            sums.by_type[row.into.src] += of_type - own;
        }
    }

    /// Gives an entry its strongest paths.
    pub fn paths(&self, entry: &mut Entry, relevance: &[(&Row, Relevance)], most: usize) {
        let (heads, input) = (self.of.network.heads, self.of.features.dim());
        let mut of_entry = vec![0.0; self.of.network.layers[0].output];
        for (row, of_row) in relevance.iter().filter(|(row, _)| row.into.relation == entry.relation) {
            for at in (0..row.sources.len()).filter(|&at| row.source(at) == entry.source) {
                self.add_relevance(of_row, at, &mut of_entry);
            }
        }
        let (rows, of_rows) = self.input_relevance(entry.source, of_entry);
        let mut paths = Vec::new();
        let mut x = Vec::with_capacity(input);
        for (row, of_row) in rows.iter().zip(&of_rows).filter(|(row, _)| !row.sources.is_empty()) {
            let attended = self.of.attended(entry.source, row, None);
            for (at, weights) in attended.weights.chunks_exact(heads).enumerate() {
                self.of.features_of(row.source(at), &mut x);
                let of_heads = of_row.chunks_exact(input).zip(weights);
                paths.push(Path {
                    relation: row.into.relation,
                    source: row.source(at),
                    attention: weights.iter().sum::<f64>() / heads as f64,
                    contribution: of_heads.map(|(of_head, weight)| weight * dot(of_head, &x)).sum(),
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
}
