//! A node with all that its result is made of: every layer's rows of the nodes that the next one reads.

use std::borrow::Cow;
use std::ops::Range;

use rayon::prelude::*;

use super::edges::{Cut, Edges, Row};
use super::parameters::{Coefficients, EdgeTransform, Head, Matrix, Network, Pieces, axpy};
use crate::graph::Features;

/// A network, and the graph and the features that it reads.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    pub network: &'a Network,
    pub edges: &'a Edges<'a>,
    pub features: &'a Features,
}

/// A layer's rows of some nodes.
pub(super) struct Level {
    /// Ascending.
    pub nodes: Vec<u32>,
    width: usize,
    /// `[nodes, width]`: before the activation.
    z: Vec<f64>,
    /// `[nodes, width]`
    h: Vec<f64>,
    /// `[nodes]`
    held: Vec<Held>,
    /// `[nodes, transforms, heads]`: the source's part of the next layer's attention scores.
    scores: Vec<f64>,
}

/// What relevance holds of a row beside its coefficients.
#[derive(Clone, Copy)]
pub(super) struct Held {
    /// The factor of what arrives over relations.
    arrived: f64,
    /// The factor of the node's own transform.
    own: f64,
    /// The inverse of the deviation, where rows are normalised.
    pub inverse: f64,
}

impl Held {
    /// The factor of a row of sources.
    pub fn share(&self, row: &Row) -> f64 {
        if row.relation.is_some() { self.arrived } else { self.own }
    }
}

impl Level {
    pub fn position(&self, node: u32) -> Option<usize> {
        self.nodes.binary_search(&node).ok()
    }

    fn row_of<'l>(&self, values: &'l [f64], node: u32) -> Option<&'l [f64]> {
        let at = self.position(node)?;
        let width = values.len() / self.nodes.len();
        Some(&values[at * width..(at + 1) * width])
    }

    /// The row of a node, which is here.
    pub fn row(&self, node: u32) -> &[f64] {
        self.row_of(&self.h, node).unwrap_or_else(|| unreachable!("a level has the row of node {node}"))
    }

    /// Numbers of a row.
    pub fn width(&self) -> usize {
        self.width
    }
}

/// What a layer reads.
#[derive(Clone, Copy)]
pub(super) enum Before<'a> {
    Features,
    /// The rows of a level, where `changed` does not have others.
    Hidden {
        level: &'a Level,
        changed: Option<&'a Level>,
    },
}

impl<'a> Before<'a> {
    /// The row of a node after the layer before; nothing before the first layer.
    pub fn row(self, node: u32) -> &'a [f64] {
        self.hidden(|level| &level.h, node).unwrap_or_default()
    }

    /// The row of a node in an array of the levels.
    fn hidden(self, values: fn(&Level) -> &[f64], node: u32) -> Option<&'a [f64]> {
        let Before::Hidden { level, changed } = self else { return None };
        let of = |level: &'a Level| level.row_of(values(level), node);
        let row = changed.and_then(of).or_else(|| of(level));
        Some(row.unwrap_or_else(|| unreachable!("a level has all that the next one reads")))
    }
}

/// One head of what a row adds to a result: `factor W^T x`, some columns of `W`, and the same of values of edges.
pub(super) struct Slot<'a> {
    pub weight: Cow<'a, Matrix>,
    pub of_edges: Option<&'a Matrix>,
    pub first: usize,
    pub outputs: Range<usize>,
    pub factor: f64,
}

impl<'a> View<'a> {
    /// The row of a node before a layer; `buffer` is where features are widened.
    pub(super) fn read<'b>(&self, before: Before<'b>, node: u32, buffer: &'b mut Vec<f64>) -> &'b [f64] {
        if let Some(row) = before.hidden(|level| &level.h, node) {
            return row;
        }
        buffer.clear();
        buffer.extend(self.features.row(node as usize).map(f64::from));
        if self.network.row_normalise {
            let sum: f64 = buffer.iter().map(|x| x.abs()).sum();
            buffer.iter_mut().filter(|_| sum > 0.0).for_each(|x| *x /= sum);
        }
        buffer
    }

    /// The row of a source of `row` before a layer.
    pub(super) fn read_source<'b>(
        &self,
        row: &Row,
        before: Before<'b>,
        source: u32,
        buffer: &'b mut Vec<f64>,
    ) -> &'b [f64] {
        match (before, self.pieces_of(row)) {
            (Before::Features, Some(pieces)) => {
                self.read(before, source, buffer);
                pieces.extend(buffer);
                buffer
            }
            _ => self.read(before, source, buffer),
        }
    }

    /// The pieces in which a row of the first layer is read, too: that of the node itself.
    pub(super) fn pieces_of(&self, row: &Row) -> Option<&'a Pieces> {
        self.network.pieces.as_ref().filter(|_| row.relation.is_none())
    }

    /// Width of the rows of the sources of `row` before a layer.
    pub(super) fn input_of(&self, layer: usize, row: &Row) -> usize {
        let pieces = self.pieces_of(row).filter(|_| layer == 0);
        self.network.layers[layer].input + pieces.map_or(0, Pieces::width)
    }

    /// How a row of a node becomes part of a layer's result, head by head. The size of a difference is one way or the
    /// other the difference itself, output by output: its two parts belong to the node and to its sources.
    pub(super) fn slots(&self, layer: usize, node: u32, row: &Row, before: Before, cut: Option<&Cut>) -> Vec<Slot<'a>> {
        let t = self.edges.graph().type_of(node as usize);
        let of = &self.network.layers[layer];
        let Some(relation) = row.relation else {
            let own = of.own[t].as_ref().unwrap_or_else(|| unreachable!("a node has its own row where its type has"));
            let mut weight = Cow::Borrowed(own);
            if of.transforms.iter().any(|transform| transform.apart.is_some()) {
                for row in self.edges.rows(node, cut) {
                    if let Some((apart, signs)) = self.apart(layer, node, &row, before, cut) {
                        weight = Cow::Owned(weight.into_owned().plus_columns(apart, signs.iter().copied()));
                    }
                }
            }
            return vec![Slot { weight, of_edges: None, first: 0, outputs: 0..of.output, factor: 1.0 }];
        };
        let weight = &of.transforms[self.network.transform_of[relation]].weight;
        let weight = match self.apart(layer, node, row, before, cut) {
            Some((apart, signs)) => Cow::Owned(weight.clone().plus_columns(apart, signs.iter().map(|sign| -sign))),
            None => Cow::Borrowed(weight),
        };
        let factor = self.network.scales[t] / if of.averaged { of.heads as f64 } else { 1.0 };
        let of_edges = self.edge_transform(layer, row).map(|edges| &edges.weight);
        let slot = |head: usize| Slot {
            weight: weight.clone(),
            of_edges,
            first: head * of.channels(),
            outputs: of.outputs(head),
            factor,
        };
        (0..of.heads).map(slot).collect()
    }

    /// The transform of the difference between a node and the sources of a row, and the signs of its outputs.
    fn apart(
        &self,
        layer: usize,
        node: u32,
        row: &Row,
        before: Before,
        cut: Option<&Cut>,
    ) -> Option<(&'a Matrix, Vec<f64>)> {
        let of = &self.network.layers[layer];
        let apart = of.transforms[self.network.transform_of[row.relation?]].apart.as_ref()?;
        let mut difference = self.weighed(layer, row, &self.coefficients(layer, node, row, before, cut), before);
        let mut buffer = Vec::new();
        let x = self.read(before, node, &mut buffer);
        difference.iter_mut().zip(x).for_each(|(mean, x)| *mean = x - *mean);
        let mut signs = vec![0.0; of.output];
        apart.project(&difference, 0, 1.0, &mut signs);
        signs.iter_mut().for_each(|d| *d = if *d < 0.0 { -1.0 } else { 1.0 });
        Some((apart, signs))
    }

    /// What a layer makes of the values of a row's edges; `None` where it reads none.
    fn edge_transform(&self, layer: usize, row: &Row) -> Option<&'a EdgeTransform> {
        self.network.layers[layer].edges.get(row.relation?)?.as_ref()
    }

    /// What the sources of a row count, `[entries, heads]`.
    pub(super) fn coefficients(
        &self,
        layer: usize,
        node: u32,
        row: &Row,
        before: Before,
        cut: Option<&Cut>,
    ) -> Vec<f64> {
        let Some(relation) = row.relation else { return vec![1.0] };
        match self.network.coefficients {
            Coefficients::Mean => {
                let sum = row.weight_sum();
                let share = |entry: usize| if sum > 0.0 { row.weight(entry) / sum } else { 0.0 };
                (0..row.sources.len()).map(share).collect()
            }
            Coefficients::Symmetric => {
                let degree = |node: u32| self.edges.degree(relation, node, cut);
                let own = degree(node);
                let of = |(entry, &source): (usize, &u32)| row.weight(entry) / (own * degree(source)).sqrt();
                row.sources.iter().enumerate().map(of).collect()
            }
            Coefficients::Attention { negative_slope } => {
                let (of, transform) = (&self.network.layers[layer], self.network.transform_of[relation]);
                let mut buffer = Vec::new();
                let x = self.read(before, node, &mut buffer);
                let of_destination = of.transforms[transform].destination_scores(x);
                let mut scores = vec![0.0; row.sources.len() * of.heads];
                let of_edges = self.edge_transform(layer, row);
                let entries = row.sources.iter().zip(scores.chunks_exact_mut(of.heads));
                for (entry, (&source, scores)) in entries.enumerate() {
                    match before.hidden(|level| &level.scores, source) {
                        Some(known) => scores.copy_from_slice(&known[transform * of.heads..][..of.heads]),
                        None => {
                            of.transforms[transform].source_scores(self.read(before, source, &mut buffer), scores);
                        }
                    }
                    if let Some(of_edges) = of_edges {
                        of_edges.add_scores(row.values_of(entry), scores);
                    }
                }
                softmax(&mut scores, &of_destination, negative_slope);
                scores
            }
        }
    }

    /// The rows of the sources before a layer, weighed and added up, `[heads, input]`.
    pub(super) fn weighed(&self, layer: usize, row: &Row, coefficients: &[f64], before: Before) -> Vec<f64> {
        let (input, heads) = (self.input_of(layer, row), coefficients.len() / row.sources.len());
        let (mut sums, mut buffer) = (vec![0.0; heads * input], Vec::new());
        for (&source, coefficients) in row.sources.iter().zip(coefficients.chunks_exact(heads)) {
            let x = self.read_source(row, before, source, &mut buffer);
            sums.chunks_exact_mut(input).zip(coefficients).for_each(|(to, &factor)| axpy(factor, x, to));
        }
        sums
    }

    /// The values of a row's edges, weighed and added up, `[heads, values]`; none where the network reads none.
    pub(super) fn weighed_values(&self, row: &Row, coefficients: &[f64]) -> Vec<f64> {
        let (width, heads) = (row.values.len() / row.sources.len(), coefficients.len() / row.sources.len());
        let mut sums = vec![0.0; heads * width];
        for (entry, coefficients) in coefficients.chunks_exact(heads).enumerate().filter(|_| width > 0) {
            let to = sums.chunks_exact_mut(width).zip(coefficients);
            to.for_each(|(to, &factor)| axpy(factor, row.values_of(entry), to));
        }
        sums
    }

    /// What arrives at a node, with the values of edges as a layer reads them; no row is empty.
    pub(super) fn rows(&self, layer: usize, node: u32, cut: Option<&Cut>) -> Vec<Row> {
        if !self.network.layers[layer].meets() {
            return self.edges.own_row(node).into_iter().collect();
        }
        let read = |row: Row| match self.edge_transform(layer, &row) {
            Some(of) => Row { values: of.columns_of(&row.values, &row.ages), ..row },
            None => row,
        };
        self.edges.rows(node, cut).into_iter().map(read).collect()
    }

    /// The nodes whose rows a layer reads for those of some nodes, ascending.
    pub(super) fn sources(&self, layer: usize, nodes: &[u32], cut: Option<&Cut>) -> Vec<u32> {
        let met = if self.network.layers[layer].meets() { nodes } else { &[] };
        let met = met.par_iter().flat_map_iter(|&node| self.edges.sources(node, cut));
        let mut sources: Vec<u32> = met.chain(nodes.par_iter().copied()).collect();
        sources.par_sort_unstable();
        sources.dedup();
        sources
    }

    /// A layer's row of a node, before the activation.
    fn forward(&self, layer: usize, node: u32, before: Before, cut: Option<&Cut>) -> (Vec<f64>, Held) {
        let of = &self.network.layers[layer];
        let t = self.edges.graph().type_of(node as usize);
        let [mut z, mut own] = [(); 2].map(|()| vec![0.0; of.output]);
        for row in self.rows(layer, node, cut) {
            let coefficients = self.coefficients(layer, node, &row, before, cut);
            let sums = self.weighed(layer, &row, &coefficients, before);
            let of_edges = self.weighed_values(&row, &coefficients);
            let z = if row.relation.is_some() { &mut z } else { &mut own };
            let input = self.input_of(layer, &row);
            for (head, (sum, slot)) in
                sums.chunks_exact(input).zip(self.slots(layer, node, &row, before, cut)).enumerate()
            {
                if let Some(weight) = slot.of_edges {
                    let sum = &of_edges[head * weight.input()..(head + 1) * weight.input()];
                    weight.project(sum, slot.first, slot.factor, &mut z[slot.outputs.clone()]);
                }
                slot.weight.project(sum, slot.first, slot.factor, &mut z[slot.outputs]);
            }
        }
        let mut held = Held { arrived: 1.0, own: 1.0, inverse: 1.0 };
        if let Some(gate) = of.gates.get(t).and_then(Option::as_ref) {
            held.own = gate.share(&own, &z);
            held.arrived = 1.0 - held.own;
        }
        z.iter_mut().zip(&own).for_each(|(z, own)| *z = held.arrived * *z + held.own * own);
        if let Some(bias) = of.bias.get(t) {
            axpy(1.0, bias, &mut z);
        }
        if let Some(norm) = &of.norm {
            held.inverse = norm.apply(&mut z);
        }
        (z, held)
    }

    /// A layer's rows of some nodes.
    pub(super) fn level(&self, layer: usize, nodes: Vec<u32>, before: Before, cut: Option<&Cut>) -> Level {
        let of = &self.network.layers[layer];
        let rows: Vec<_> = nodes.par_iter().map(|&node| self.forward(layer, node, before, cut)).collect();
        let (z, held): (Vec<_>, Vec<_>) = rows.into_iter().unzip();
        let z = z.concat();
        let h: Vec<f64> = z.par_iter().with_min_len(1 << 12).map(|&z| of.activation.of(z)).collect();
        let scores = self.source_scores(layer + 1, &nodes, &h);
        Level { nodes, width: of.output, z, h, held, scores }
    }

    fn source_scores(&self, layer: usize, nodes: &[u32], h: &[f64]) -> Vec<f64> {
        let Some(of) = self.network.layers.get(layer) else { return Vec::new() };
        if !matches!(self.network.coefficients, Coefficients::Attention { .. }) {
            return Vec::new();
        }
        let graph = self.edges.graph();
        let width = of.transforms.len() * of.heads;
        let mut scores = vec![0.0; nodes.len() * width];
        let rows = scores.par_chunks_mut(width).zip(nodes).zip(h.par_chunks(of.input)).with_min_len(64);
        rows.for_each(|((scores, &node), h)| {
            let t = graph.type_of(node as usize);
            let leaves = |transform: usize| {
                let mut relations = graph.relations().iter().zip(&self.network.transform_of);
                relations.any(|(relation, &its)| relation.src == t && its == transform)
            };
            for (transform, scores) in scores.chunks_exact_mut(of.heads).enumerate().filter(|(at, _)| leaves(*at)) {
                of.transforms[transform].source_scores(h, scores);
            }
        });
        scores
    }
}

/// Scores of sources `[entries, heads]` become coefficients: per head the softmax of the leaky ReLU of both parts.
fn softmax(scores: &mut [f64], of_destination: &[f64], negative_slope: f64) {
    let heads = of_destination.len();
    for (head, of_destination) in of_destination.iter().enumerate() {
        let mut highest = f64::NEG_INFINITY;
        for score in scores.iter_mut().skip(head).step_by(heads) {
            let sum = *score + of_destination;
            *score = if sum >= 0.0 { sum } else { negative_slope * sum };
            highest = highest.max(*score);
        }
        let mut sum = 0.0;
        for score in scores.iter_mut().skip(head).step_by(heads) {
            *score = (*score - highest).exp();
            sum += *score;
        }
        scores.iter_mut().skip(head).step_by(heads).for_each(|score| *score /= sum);
    }
}

/// A node and the rows of every layer that its result is made of.
pub(super) struct Ego<'a> {
    pub view: View<'a>,
    pub node: u32,
    /// One per layer; the last one has the node alone.
    pub levels: Vec<Level>,
}

impl<'a> Ego<'a> {
    pub fn around(view: View<'a>, node: u32) -> Self {
        let layers = view.network.layers.len();
        let mut nodes = vec![vec![node]];
        for layer in (1..layers).rev() {
            nodes.push(view.sources(layer, nodes.last().map_or(&[][..], |nodes| nodes), None));
        }
        let mut ego = Self { view, node, levels: Vec::with_capacity(layers) };
        for (layer, nodes) in nodes.into_iter().rev().enumerate() {
            let level = view.level(layer, nodes, ego.before(layer), None);
            ego.levels.push(level);
        }
        ego
    }

    /// What a layer reads.
    pub fn before(&self, layer: usize) -> Before<'_> {
        match layer.checked_sub(1) {
            None => Before::Features,
            Some(layer) => Before::Hidden { level: &self.levels[layer], changed: None },
        }
    }

    /// A layer's row of a node before the activation, and what is held of it.
    pub fn z(&self, layer: usize, node: u32) -> (&[f64], Held) {
        let level = &self.levels[layer];
        let found = level.row_of(&level.z, node).zip(level.position(node).map(|at| level.held[at]));
        found.unwrap_or_else(|| unreachable!("node {node} is read by layer {}", layer + 1))
    }

    /// The rows of the node itself after the layer before the last one and after the last one.
    pub fn own_rows(&self) -> [&[f64]; 2] {
        let last = self.levels.len() - 1;
        [self.before(last).row(self.node), self.levels[last].row(self.node)]
    }

    pub fn logit(&self, head: &Head) -> f64 {
        let [hidden, last] = self.own_rows();
        head.logit(hidden, last)
    }
}
