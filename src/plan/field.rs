//! The rows and edges that a layer visits, estimated from degrees.
//!
//! Sources of edges are drawn in proportion to their degree: of `n` edges a node of degree `d` is met with probability
//! `1 - exp(-n d / edges)`. What is known of how nodes were drawn is kept for the relation that it biases.

use super::network::Loss;
use super::work::Visited;
use crate::graph::{Degrees, Sizes};

/// Some nodes of a type.
#[derive(Clone, Debug, Default)]
pub struct Nodes {
    pub count: f64,
    drawn: Vec<Drawn>,
}

/// Nodes that were found in one way.
#[derive(Clone, Debug)]
struct Drawn {
    count: f64,
    /// The relation in which they have more edges than others, and the number of edges that they were drawn by.
    by: Option<(usize, f64)>,
}

/// A graph `scale` times as large.
#[derive(Clone, Copy, Debug)]
pub struct Scaled<'a> {
    pub sizes: &'a Sizes,
    pub scale: f64,
}

impl Scaled<'_> {
    /// Nodes of type `t`.
    pub fn nodes(self, t: usize) -> f64 {
        self.sizes.node_types[t].count as f64 * self.scale
    }

    /// The sum of `value` of the degree over the nodes that `draws` edges of these meet; over all without a number.
    fn sum(self, degrees: &Degrees, draws: Option<f64>, value: impl Fn(f64) -> f64) -> f64 {
        let edges = degrees.edges() as f64 * self.scale;
        let met = |degree: f64| draws.map_or(1.0, |draws| -(-draws * degree / edges.max(1.0)).exp_m1());
        degrees.0.iter().map(|&(d, nodes)| nodes as f64 * self.scale * met(d as f64) * value(d as f64)).sum()
    }

    /// The nodes that a `share` of a loss reads.
    pub fn of_loss(self, loss: &Loss, share: f64) -> Vec<Nodes> {
        let mut drawn: Vec<Vec<Drawn>> =
            loss.labels.iter().map(|&count| vec![Drawn { count: share * count, by: None }]).collect();
        for &(relation, draws) in &loss.edges {
            let (of, draws) = (&self.sizes.relations[relation], share * draws);
            let ends = [(of.dst, Some(relation)), (of.src, of.partner)];
            for ((t, by), degrees) in ends.into_iter().zip(&of.degrees) {
                let count = self.sum(degrees, Some(draws), |_| 1.0);
                drawn[t].push(Drawn { count, by: by.map(|by| (by, draws)) });
            }
        }
        for &(t, draws) in &loss.drawn {
            let all = self.nodes(t).max(1.0);
            drawn[t].push(Drawn { count: -all * (-share * draws / all).exp_m1(), by: None });
        }
        self.united(drawn)
    }

    /// By type, the union of its parts, which overlap as if they were drawn independently.
    fn united(self, drawn: Vec<Vec<Drawn>>) -> Vec<Nodes> {
        let unite = |(t, drawn): (usize, Vec<Drawn>)| {
            let all = self.nodes(t).max(1.0);
            let missed: f64 = drawn.iter().map(|part| 1.0 - (part.count / all).min(1.0)).product();
            Nodes { count: all * (1.0 - missed), drawn }
        };
        drawn.into_iter().enumerate().map(unite).collect()
    }

    /// What a layer visits to compute the nodes `after`, where `kept` of the edges of a node are kept; and the nodes
    /// that it reads.
    pub fn visit(self, after: &[Nodes], kept: impl Fn(f64) -> f64) -> (Vec<Visited>, Vec<Nodes>) {
        let mut before: Vec<Vec<Drawn>> = after.iter().map(|nodes| nodes.drawn.clone()).collect();
        let mut visited = Vec::new();
        for (at, of) in self.sizes.relations.iter().enumerate() {
            let (nodes, degrees) = (&after[of.dst], &of.degrees[0]);
            let mean = |part: &Drawn, value: &dyn Fn(f64) -> f64| {
                let draws = part.by.filter(|(by, _)| *by == at).map(|(_, draws)| draws);
                self.sum(degrees, draws, value) / self.sum(degrees, draws, |_| 1.0).max(1.0)
            };
            // Parts overlap.
            let parts: f64 = nodes.drawn.iter().map(|part| part.count).sum();
            let share = if parts > 0.0 { nodes.count / parts } else { 0.0 };
            let total = |value: &dyn Fn(f64) -> f64| -> f64 {
                nodes.drawn.iter().map(|part| share * part.count * mean(part, value)).sum()
            };
            let (edges, kept) = (total(&|d| d), total(&kept));
            let count = self.sum(&of.degrees[1], Some(kept), |_| 1.0);
            before[of.src].push(Drawn { count, by: of.partner.map(|partner| (partner, kept)) });
            visited.push(Visited { rows: nodes.count, edges, kept });
        }
        (visited, self.united(before))
    }

    /// What a layer visits that computes all nodes.
    pub fn all(self, kept: impl Fn(f64) -> f64) -> Vec<Visited> {
        let of = |relation: &crate::graph::RelationSizes| {
            let degrees = &relation.degrees[0];
            let sum = |value: &dyn Fn(f64) -> f64| self.sum(degrees, None, value);
            Visited { rows: self.nodes(relation.dst), edges: sum(&|d| d), kept: sum(&kept) }
        };
        self.sizes.relations.iter().map(of).collect()
    }
}
