//! Stage 1: the edges that the embeddings explain badly.

use ndarray::ArrayView2;

use super::explanation::{Explanation, Method, NeighbourPart, RelationPart};
use super::names::Names;
use super::similar::Known;
use super::{MOST_NEIGHBOURS, by_magnitude};
use crate::error::Result;
use crate::metrics::softplus;

const TEXT: &str = "\
    Score = 1 - exp(-mean loss), where the loss of an edge is -ln of the probability that the embeddings of its \
    two ends give it; the embeddings were made with every edge. A neighbour adds its edges' loss divided by the number of edges; these numbers add up \
    exactly. `removal` is the mean loss less that without the neighbour, with the embeddings as they are; \
    removals do not add up.";

/// The loss of one edge, and where it leads.
struct Edge {
    relation: usize,
    source: u32,
    loss: f64,
}

/// Explains the score of a node from the embeddings of all nodes.
///
/// # Errors
/// A node without a score: it has no edges.
pub(in crate::score) fn explain(
    names: &Names,
    z: ArrayView2<f32>,
    probability: Option<f64>,
    known: Option<&Known>,
    node: u32,
) -> Result<Explanation> {
    let method = Method { name: "losses of edges".into(), additive: true, text: TEXT.into() };
    let begun = Explanation::of(node, names, known, probability, method)?;
    let mut edges = edges_into(names, z, node);
    let count = edges.len() as f64;
    let total: f64 = edges.iter().map(|edge| edge.loss).sum();
    edges.sort_by_key(|edge| (edge.relation, edge.source));
    let mut relations: Vec<RelationPart> = Vec::new();
    let mut own = 0.0;
    let mut neighbours: Vec<NeighbourPart> = Vec::new();
    for of_relation in edges.chunk_by(|a, b| a.relation == b.relation) {
        let relation = names.relation(of_relation[0].relation);
        let mut distinct = 0;
        for of_source in of_relation.chunk_by(|a, b| a.source == b.source) {
            distinct += 1;
            let source = of_source[0].source;
            let contribution = of_source.iter().map(|edge| edge.loss).sum::<f64>() / count;
            if source == node {
                own += contribution;
                continue;
            }
            neighbours.push(NeighbourPart {
                node: source,
                name: names.name(source),
                relation: relation.clone(),
                score: names.score(source),
                label: names.label(source),
                attention: None,
                contribution,
                removal: None,
                paths: Vec::new(),
                more_paths: 0,
            });
        }
        let contribution = of_relation.iter().map(|edge| edge.loss).sum::<f64>() / count;
        relations.push(RelationPart { relation, neighbours: distinct, contribution });
    }
    neighbours.sort_by(|a, b| {
        let by_size = by_magnitude(a.contribution, b.contribution);
        by_size.then(a.node.cmp(&b.node)).then_with(|| a.relation.cmp(&b.relation))
    });
    relations.sort_by(|a, b| by_magnitude(a.contribution, b.contribution));
    let more_neighbours = neighbours.len().saturating_sub(MOST_NEIGHBOURS);
    let rest = neighbours.iter().skip(MOST_NEIGHBOURS).map(|part| part.contribution).sum();
    neighbours.truncate(MOST_NEIGHBOURS);
    for part in &mut neighbours {
        let without = edges.iter().filter(|edge| edge.source != part.node);
        let (left, losses) = without.fold((0.0, 0.0), |(left, losses), edge| (left + 1.0, losses + edge.loss));
        // Without any edge there is no score to compare with.
        part.removal = (left > 0.0).then(|| total / count - losses / left);
    }
    Ok(Explanation {
        unit: "mean loss of an edge (nats)".into(),
        sum: total / count,
        own,
        rest,
        relations,
        neighbours,
        more_neighbours,
        ..begun
    })
}

fn edges_into(names: &Names, z: ArrayView2<f32>, node: u32) -> Vec<Edge> {
    let types = names.graph().node_types();
    let t = names.graph().type_of(node as usize);
    let into = names.graph().relations().iter().enumerate().filter(|(_, relation)| relation.dst == t);
    let own = z.row(node as usize);
    let of_relation = into.flat_map(|(at, relation)| {
        let first = types[relation.src].offset as u32;
        let sources = relation.forward.row(node as usize - types[t].offset);
        sources.iter().map(move |&source| (at, first + source))
    });
    let edge = |(relation, source): (usize, u32)| {
        let pairs = own.iter().zip(z.row(source as usize));
        let logit: f64 = pairs.map(|(&a, &b)| f64::from(a) * f64::from(b)).sum();
        Edge { relation, source, loss: softplus(-logit) }
    };
    of_relation.map(edge).collect()
}

#[cfg(test)]
mod tests {
    use ndarray::array;

    use super::*;
    use crate::graph::{Adjacency, Dataset, HeteroGraph, RelationSpec};

    fn loss(logit: f64) -> f64 {
        (1.0 + (-logit).exp()).ln()
    }

    #[test]
    fn the_losses_of_a_nodes_edges_add_up_to_its_mean_loss() {
        let spec = |name: &str, edges: &[(u32, u32)]| RelationSpec::new(name, 0, 0, Adjacency::from_edges(4, 4, edges));
        let relations = vec![spec("pays", &[(0, 1), (0, 2), (0, 0)]), spec("knows", &[(0, 1)])];
        let graph = HeteroGraph::new(vec![("account".into(), 4)], relations).unwrap();
        let dataset = Dataset::new(graph, None, None, None);
        let z = array![[2.0f32, 0.0], [-1.0, 5.0], [0.5, 3.0], [0.0, 0.0]];
        let scores = [0.5, 0.5, 0.5, f32::NAN];
        let names = Names::new(&dataset, &scores);
        let found = explain(&names, z.view(), None, None, 0).unwrap();
        let mean = (loss(-2.0) + loss(1.0) + loss(4.0) + loss(-2.0)) / 4.0;
        assert!((found.sum - mean).abs() < 1e-12);
        assert!((found.own + found.neighbours.iter().map(|part| part.contribution).sum::<f64>() - mean).abs() < 1e-12);
        assert!((found.relations.iter().map(|part| part.contribution).sum::<f64>() - mean).abs() < 1e-12);
        let first = &found.neighbours[0];
        assert_eq!((first.node, found.neighbours.len()), (1, 3));
        // Both edges to account 1 go, of whatever relation.
        assert!((first.removal.unwrap() - (mean - (loss(1.0) + loss(4.0)) / 2.0)).abs() < 1e-12);
        assert!(explain(&names, z.view(), None, None, 3).unwrap_err().to_string().contains("account:3"));
    }
}
