//! Edges drawn for loss terms: on the host and by counter, so that every device sees the same ones.

use rand::seq::index;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::graph::{HeteroGraph, Relation};

/// What a draw is for; each purpose has random numbers of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Positive and negative pairs of the auto-encoder's loss.
    Reconstruction = 1,
    /// Neighbours whose scores should agree.
    Smoothness = 2,
    /// Pairs on which a finished auto-encoder is judged.
    Evaluation = 3,
}

/// The random numbers of one purpose, epoch and relation.
fn generator(seed: u64, purpose: Purpose, epoch: u64, relation: usize) -> ChaCha8Rng {
    let mut key = [0u8; 32];
    for (part, value) in key.chunks_exact_mut(8).zip([seed, purpose as u64, epoch, relation as u64]) {
        part.copy_from_slice(&value.to_le_bytes());
    }
    ChaCha8Rng::from_seed(key)
}

/// Distinct edges of a relation, self-loops left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EdgeSample {
    /// Local ids of the destinations.
    pub dst: Vec<u32>,
    /// Local ids of the sources.
    pub src: Vec<u32>,
}

impl EdgeSample {
    /// Number of edges.
    pub fn len(&self) -> usize {
        self.dst.len()
    }

    /// Whether nothing was drawn.
    pub fn is_empty(&self) -> bool {
        self.dst.is_empty()
    }
}

/// `count` edges of the relation with index `id`, fewer when it has fewer.
pub fn sample_edges(
    relation: &Relation,
    id: usize,
    count: usize,
    seed: u64,
    purpose: Purpose,
    epoch: u64,
) -> (EdgeSample, ChaCha8Rng) {
    let mut rng = generator(seed, purpose, epoch, id);
    let adjacency = &relation.forward;
    let edges = adjacency.num_edges();
    let loops = relation.loops.in_range;
    // Enough spare draws for the loops that will be thrown away: twice their share and a few.
    let spare = if loops == 0 { 0 } else { 2 * count * loops / edges.max(1) + 64 };
    let draws = edges.min(count + spare);
    let mut sample = EdgeSample::default();
    for e in index::sample(&mut rng, edges, draws) {
        let (dst, src) = (adjacency.row_of_edge(e as u64) as u32, adjacency.col_idx()[e]);
        if sample.len() < count && (relation.src != relation.dst || dst != src) {
            sample.dst.push(dst);
            sample.src.push(src);
        }
    }
    (sample, rng)
}

/// Pairs of one relation with a label each: positives first, then `negatives` per positive, whose destination is drawn
/// anew from the destination type.
#[derive(Clone, Debug)]
pub struct LabelledPairs {
    /// Index of the relation.
    pub relation: usize,
    pub dst: Vec<u32>,
    pub src: Vec<u32>,
    pub positives: usize,
}

/// Positive and negative pairs of every primary relation.
pub fn labelled_pairs(
    graph: &HeteroGraph,
    count: impl Fn(&Relation) -> usize,
    negatives: usize,
    seed: u64,
    purpose: Purpose,
    epoch: u64,
) -> Vec<LabelledPairs> {
    let primary = graph.relations().iter().enumerate().filter(|(_, r)| r.primary);
    primary
        .map(|(id, relation)| {
            let (sample, mut rng) = sample_edges(relation, id, count(relation), seed, purpose, epoch);
            let (positives, mut pairs) = (sample.len(), sample);
            let num_dst = graph.node_types()[relation.dst].count as u32;
            for _ in 0..negatives {
                for p in 0..positives {
                    pairs.dst.push(rng.random_range(0..num_dst));
                    pairs.src.push(pairs.src[p]);
                }
            }
            LabelledPairs { relation: id, dst: pairs.dst, src: pairs.src, positives }
        })
        .filter(|pairs| pairs.positives > 0)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Adjacency;

    fn graph() -> HeteroGraph {
        let epu = Adjacency::from_edges(3, 2, &[(0, 0), (0, 1), (1, 1), (2, 0)]);
        let eps = Adjacency::from_edges(2, 1, &[(0, 0)]);
        let euu = Adjacency::from_edges(3, 3, &[(0, 0), (1, 1), (2, 2), (0, 1), (1, 0)]);
        HeteroGraph::marketplace(3, 2, 1, epu, eps, euu).unwrap()
    }

    #[test]
    fn a_small_relation_gives_all_its_edges_once_and_no_loop() {
        let graph = graph();
        for relation in graph.relations() {
            let (sample, _) = sample_edges(relation, 0, 100, 1, Purpose::Smoothness, 1);
            let mut pairs: Vec<_> = sample.dst.iter().zip(&sample.src).collect();
            pairs.sort_unstable();
            pairs.dedup();
            assert_eq!(pairs.len(), sample.len());
            assert_eq!(sample.len(), relation.forward.num_edges() - relation.loops.in_range, "{}", relation.name);
        }
    }

    #[test]
    fn draws_depend_on_seed_purpose_epoch_and_relation_alone() {
        let relation = &graph().relations()[0].clone();
        let draw = |id, seed, purpose, epoch| sample_edges(relation, id, 2, seed, purpose, epoch).0;
        let first = draw(0, 1, Purpose::Smoothness, 1);
        assert_eq!(first, draw(0, 1, Purpose::Smoothness, 1));
        let changed = (1..40).filter(|&epoch| draw(0, 1, Purpose::Smoothness, epoch) != first).count();
        assert!(changed > 20);
    }

    #[test]
    fn negatives_keep_the_source_and_stay_inside_the_destination_type() {
        let graph = graph();
        for pairs in labelled_pairs(&graph, |_| 10, 2, 5, Purpose::Reconstruction, 3) {
            let n = pairs.positives;
            assert_eq!(pairs.dst.len(), 3 * n);
            assert_eq!(pairs.src[..n], pairs.src[n..2 * n]);
            let relation = &graph.relations()[pairs.relation];
            assert!(pairs.dst.iter().all(|&d| (d as usize) < graph.node_types()[relation.dst].count));
        }
    }
}
