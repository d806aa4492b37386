//! Edges drawn for loss terms: on the host and by counter, so that every device sees the same ones.

use std::collections::HashSet;

use rand::seq::{IndexedRandom, SliceRandom, index};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::shard::Shard;
use crate::data::edge_split::{EdgeSplit, HeldOut};
use crate::graph::{Adjacency, HeteroGraph, Relation};

/// Draws before the free destinations of a source are listed instead.
const MAX_DRAWS: usize = 32;

/// What a draw is for; each purpose has random numbers of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Positive and negative pairs of the auto-encoder's loss.
    Reconstruction = 1,
    /// Neighbours whose scores should agree.
    Smoothness = 2,
    /// Edges of the training and drawn pairs once more, for a figure of a finished auto-encoder.
    Evaluation = 3,
    /// Held-out edges and pairs that are no edges.
    HeldOut = 4,
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
        let (dst, src) = adjacency.edge(e);
        let dst = dst as u32;
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

impl LabelledPairs {
    /// Some of the positives of [`labelled_pairs`], with the negatives that were drawn for them.
    fn with(&self, own: impl ExactSizeIterator<Item = usize> + Clone) -> Self {
        let of = |nodes: &[u32]| {
            nodes.chunks(self.positives).flat_map(|nodes| own.clone().map(|at| nodes[at])).collect::<Vec<u32>>()
        };
        Self { relation: self.relation, dst: of(&self.dst), src: of(&self.src), positives: own.len() }
    }

    /// A part of the positives of [`labelled_pairs`], with the negatives that were drawn for them.
    fn part(&self, shard: Shard) -> Self {
        self.with(shard.of(self.positives))
    }
}

/// What mini-batch `part` of `of` has of `drawn`, which are [`labelled_pairs`]: they are in the order in which they
/// were drawn, and dealt out one after the other.
pub fn dealt(drawn: &[LabelledPairs], part: usize, of: usize) -> Vec<LabelledPairs> {
    let dealt = drawn.iter().map(|pairs| pairs.with((part..pairs.positives).step_by(of)));
    dealt.filter(|pairs| pairs.positives > 0).collect()
}

/// A part of `drawn`, which are [`labelled_pairs`], and the weight of one of its pairs in the mean over all of them.
/// A part without pairs gets some, of weight 0.
pub fn part_of(drawn: &[LabelledPairs], shard: Shard) -> (Vec<LabelledPairs>, f64) {
    let total: usize = drawn.iter().map(|pairs| pairs.dst.len()).sum();
    let own: Vec<_> = drawn.iter().map(|pairs| pairs.part(shard)).filter(|pairs| pairs.positives > 0).collect();
    match own.is_empty() {
        false => (own, 1.0 / total as f64),
        true => {
            (drawn.iter().take(1).map(|pairs| pairs.part(Shard { rank: 0, ranks: pairs.positives })).collect(), 0.0)
        }
    }
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

/// The held-out edges of `graph` against pairs that no relation of it joins: of a primary relation at most `count`
/// edges, each pair of nodes once, and for each of them a pair of the same source, where that is not joined to every
/// destination.
pub fn held_out_pairs(
    graph: &HeteroGraph,
    split: &EdgeSplit,
    count: impl Fn(&Relation) -> usize,
    seed: u64,
) -> Vec<LabelledPairs> {
    let of_relation = |held_out: HeldOut| {
        let id = held_out.relation;
        let relation = &graph.relations()[id];
        let global = Global::of(graph, relation);
        let mut rng = generator(seed, Purpose::HeldOut, 0, id);
        let mut edges: Vec<(u32, u32)> = match held_out.edges.is_spans() {
            true => drawn(&held_out.edges, count(relation), &mut rng),
            false => {
                let mut all: Vec<_> = held_out.pairs().collect();
                all.shuffle(&mut rng);
                all
            }
        };
        let mut seen = HashSet::new();
        let is_new = |&(dst, src): &(u32, u32)| {
            let (a, b) = global.pair(dst, src);
            seen.insert((a.min(b), a.max(b)))
        };
        edges = edges.into_iter().filter(is_new).take(count(relation)).collect();
        let positives = edges.len();
        for p in 0..positives {
            let src = edges[p].1;
            edges.extend(unjoined(graph, &global, src, &mut rng).map(|dst| (dst, src)));
        }
        let (dst, src) = edges.into_iter().unzip();
        LabelledPairs { relation: id, dst, src, positives }
    };
    split.held_out(graph).into_iter().map(of_relation).collect()
}

/// `count` edges of `adjacency` as `(destination, source)`, fewer when it has fewer. No others are listed: spans can
/// stand for very many.
fn drawn(adjacency: &Adjacency, count: usize, rng: &mut ChaCha8Rng) -> Vec<(u32, u32)> {
    let edges = adjacency.num_edges();
    let edge = |e: usize| {
        let (dst, src) = adjacency.edge(e);
        (dst as u32, src)
    };
    index::sample(rng, edges, edges.min(count)).into_iter().map(edge).collect()
}

/// A destination that no edge joins to the source `src`, if there is one.
fn unjoined(graph: &HeteroGraph, global: &Global, src: u32, rng: &mut ChaCha8Rng) -> Option<u32> {
    let free = |dst: &u32| {
        let (a, b) = global.pair(*dst, src);
        a != b && !graph.are_joined(a, b)
    };
    let drawn = (0..MAX_DRAWS).map(|_| rng.random_range(0..global.destinations)).find(free);
    drawn.or_else(|| {
        let joined = graph.joined_to(global.from + src);
        let is_free = |dst: &u32| {
            let (a, b) = global.pair(*dst, src);
            a != b && !joined[a as usize]
        };
        (0..global.destinations).filter(is_free).collect::<Vec<_>>().choose(rng).copied()
    })
}

/// Turns the local ids of a relation into global ones.
struct Global {
    to: u32,
    from: u32,
    destinations: u32,
}

impl Global {
    fn of(graph: &HeteroGraph, relation: &Relation) -> Self {
        let [dst, src] = [relation.dst, relation.src].map(|t| &graph.node_types()[t]);
        Self { to: dst.offset as u32, from: src.offset as u32, destinations: dst.count as u32 }
    }

    fn pair(&self, dst: u32, src: u32) -> (u32, u32) {
        (self.to + dst, self.from + src)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::RelationSpec;

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

    #[test]
    fn parts_of_pairs_are_all_of_them_with_their_negatives_and_count_as_much() {
        let drawn = labelled_pairs(&graph(), |_| 10, 2, 5, Purpose::Reconstruction, 3);
        let each = |pairs: &LabelledPairs| {
            let of = |at: usize| (pairs.relation, at < pairs.positives, pairs.dst[at], pairs.src[at]);
            (0..pairs.dst.len()).map(of).collect::<Vec<_>>()
        };
        let mut whole: Vec<_> = drawn.iter().flat_map(each).collect();
        whole.sort_unstable();
        for ranks in [1, 2, 9] {
            let parts = (0..ranks).map(|rank| part_of(&drawn, Shard { rank, ranks }));
            let (counted, idle): (Vec<_>, Vec<_>) = parts.partition(|(_, weight)| *weight > 0.0);
            assert!(counted.iter().all(|(_, weight)| (weight * whole.len() as f64 - 1.0).abs() < 1e-12));
            let mut all: Vec<_> = counted.iter().flat_map(|(part, _)| part.iter().flat_map(each)).collect();
            all.sort_unstable();
            assert_eq!(all, whole, "{ranks}");
            assert_eq!(idle.is_empty(), ranks < 9);
            assert!(idle.iter().all(|(part, _)| part.len() == 1 && part[0].positives == 1));
        }
        assert!(part_of(&[], Shard { rank: 1, ranks: 2 }).0.is_empty());
    }

    #[test]
    fn mini_batches_have_all_pairs_once_with_their_negatives() {
        let drawn = labelled_pairs(&graph(), |_| 10, 2, 5, Purpose::Reconstruction, 3);
        let of = |pairs: &LabelledPairs, at: usize| (pairs.relation, pairs.dst[at], pairs.src[at]);
        // A positive and what was drawn for it.
        let each = |pairs: &LabelledPairs| {
            let n = pairs.positives;
            (0..n).map(|at| [0, n, 2 * n].map(|first| of(pairs, first + at))).collect::<Vec<_>>()
        };
        let mut whole: Vec<_> = drawn.iter().flat_map(each).collect();
        whole.sort_unstable();
        for count in [1, 2, 3] {
            let batches: Vec<_> = (0..count).map(|part| dealt(&drawn, part, count)).collect();
            let mut all: Vec<_> = batches.iter().flatten().flat_map(each).collect();
            all.sort_unstable();
            assert_eq!(all, whole, "{count}");
            assert!(batches.iter().all(|batch| !batch.is_empty()));
        }
        assert!(dealt(&[], 0, 2).is_empty());
    }

    #[test]
    fn held_out_pairs_are_held_out_edges_once_and_pairs_that_nothing_joins() {
        let graph = graph();
        let global = |pairs: &LabelledPairs, p: usize| {
            Global::of(&graph, &graph.relations()[pairs.relation]).pair(pairs.dst[p], pairs.src[p])
        };
        let mut negatives = 0;
        for seed in 0..50 {
            let split = EdgeSplit::new(0.6, seed).unwrap();
            for pairs in held_out_pairs(&graph, &split, |_| 2, seed) {
                let n = pairs.positives;
                assert!((1..=2).contains(&n) && pairs.dst.len() <= 2 * n);
                let positives: HashSet<_> = (0..n).map(|p| global(&pairs, p)).collect();
                assert!(positives.iter().all(|&(a, b)| split.holds_out(a, b) && graph.are_joined(a, b)));
                assert!(positives.iter().all(|&(a, b)| !positives.contains(&(b, a))), "one pair in both directions");
                assert!(
                    (n..pairs.dst.len()).map(|p| global(&pairs, p)).all(|(a, b)| a != b && !graph.are_joined(a, b))
                );
                negatives += pairs.dst.len() - n;
            }
        }
        assert!(negatives > 0);
    }

    #[test]
    fn a_source_that_is_joined_to_all_but_one_finds_that_one() {
        let all: Vec<(u32, u32)> = (0..500).filter(|&dst| dst != 77).map(|dst| (dst, 0)).collect();
        let adjacency = Adjacency::from_edges(500, 1, &all);
        let spec = RelationSpec::new("r", 1, 0, adjacency);
        let graph = HeteroGraph::new(vec![("a".into(), 500), ("b".into(), 1)], vec![spec]).unwrap();
        let pairs = &held_out_pairs(&graph, &EdgeSplit::new(0.1, 1).unwrap(), |_| 9, 1)[0];
        assert_eq!((pairs.positives, &pairs.dst[9..]), (9, &[77; 9][..]));
    }

    #[test]
    fn histories_of_more_edges_than_can_be_listed_are_divided_and_drawn_from() {
        // Two cards of 150,000 payments, each with all earlier ones of its card: 22 billion edges.
        let each = 150_000u64;
        let nodes = 2 * each as usize;
        let start = (0..2 * each).map(|at| at / each * each).collect();
        let adjacency =
            Adjacency::from_spans(start, (0..2 * each).collect(), (0..nodes as u32).collect(), nodes).unwrap();
        let spec = RelationSpec::new("r", 0, 0, adjacency);
        let graph = HeteroGraph::new(vec![("payment".into(), nodes)], vec![spec]).unwrap();
        assert!(graph.num_edges() > 20_000_000_000);
        let split = EdgeSplit::new(0.05, 3).unwrap();
        let training = split.training_graph(&graph);
        let relation = &training.relations()[0];
        assert!([&relation.forward, &relation.reverse].iter().all(|adjacency| adjacency.num_words() <= 3 * nodes));
        let left = training.num_edges() as f64 / graph.num_edges() as f64;
        assert!((left - 0.95).abs() < 0.005, "{left}");
        let pairs = &held_out_pairs(&graph, &split, |_| 50, 3)[0];
        assert_eq!((pairs.positives, pairs.dst.len()), (50, 100));
        for (p, (&dst, &src)) in pairs.dst.iter().zip(&pairs.src).enumerate() {
            assert_eq!(graph.are_joined(dst, src), p < 50);
            assert!(!training.are_joined(dst, src));
        }
        let pairs = &labelled_pairs(&training, |_| 50, 1, 3, Purpose::Reconstruction, 1)[0];
        assert_eq!(pairs.positives, 50);
        assert!((0..50).all(|p| training.are_joined(pairs.dst[p], pairs.src[p])));
    }
}
