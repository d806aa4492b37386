//! Laws of sampling on random graphs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proptest::prelude::*;

use graphsieve_kernels::{distinct, hash, repeated, repeated_by_weight, smallest, weighted_key};

use super::*;
use crate::config::Draw;
use crate::graph::{Adjacency, HeteroGraph, RelationSpec};

/// Users, items and tags, and four relations between them, some without an edge.
fn graph(edges: &[(u8, u32, u32)]) -> Arc<HeteroGraph> {
    let counts = [30usize, 20, 5];
    let ends = [(1usize, 0usize), (0, 1), (0, 0), (2, 1)];
    let spec = |at: usize| {
        let (src, dst) = ends[at];
        let of_relation = edges.iter().filter(|edge| edge.0 as usize == at);
        let pairs: Vec<(u32, u32)> = of_relation
            .map(|&(_, row, col)| (row % counts[dst] as u32, col % counts[src] as u32))
            .filter(|(row, col)| src != dst || row != col)
            .collect();
        let adjacency = Adjacency::from_edges(counts[dst], counts[src], &pairs);
        RelationSpec { name: format!("r{at}"), src, dst, stream: "all".into(), primary: true, adjacency }
    };
    let types = ["user", "item", "tag"].iter().zip(counts).map(|(name, count)| (name.to_string(), count)).collect();
    Arc::new(HeteroGraph::new(types, (0..4).map(spec).collect()).unwrap())
}

fn random_edges() -> impl Strategy<Value = Vec<(u8, u32, u32)>> {
    prop::collection::vec((0u8..3, any::<u32>(), any::<u32>()), 0..400)
}

fn seeds() -> impl Strategy<Value = Vec<Vec<u32>>> {
    let of_type =
        |count: u32| prop::collection::btree_set(0..count, 0..6).prop_map(|set| set.into_iter().rev().collect());
    (of_type(30), of_type(20), of_type(5)).prop_map(|(a, b, c)| vec![a, b, c])
}

fn fanout() -> impl Strategy<Value = Fanout> {
    prop_oneof![Just(Fanout::All), (1u32..7).prop_map(Fanout::Most)]
}

fn config() -> impl Strategy<Value = SamplerConfig> {
    let fanouts = prop::collection::vec(prop::collection::vec(fanout(), 4), 1..4);
    (fanouts, any::<bool>(), prop::option::of(1u32..5), any::<u64>()).prop_map(
        |(fanouts, replace, dependency, seed)| SamplerConfig {
            fanouts,
            replace: replace && dependency.is_none(),
            dependency,
            seed,
            ..SamplerConfig::default()
        },
    )
}

fn on_threads<T: Send>(threads: usize, work: impl FnOnce() -> T + Send) -> T {
    rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(work)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_batch_is_seeds_and_some_in_neighbours(
        edges in random_edges(), seeds in seeds(), config in config(), number: u64,
    ) {
        let graph = graph(&edges);
        let sampler = NeighbourSampler::new(graph.clone(), config.clone()).unwrap();
        let batch = sampler.sample(&mut sampler.scratch(), number, &seeds).unwrap();
        for (t, nodes) in batch.nodes.iter().enumerate() {
            prop_assert_eq!(&nodes[..seeds[t].len()], &seeds[t][..]);
            prop_assert_eq!(nodes.iter().collect::<BTreeSet<_>>().len(), nodes.len(), "distinct");
            prop_assert_eq!(batch.counts.last().unwrap()[t], nodes.len());
        }
        prop_assert_eq!(batch.blocks.len(), config.fanouts.len());
        for (layer, blocks) in batch.blocks.iter().enumerate() {
            let mut reached: Vec<BTreeSet<u32>> =
                (0..3).map(|t| batch.nodes[t][..batch.counts[layer][t]].iter().copied().collect()).collect();
            for (block, (relation, &fanout)) in
                blocks.iter().zip(graph.relations().iter().zip(&config.fanouts[layer]))
            {
                let rows = batch.counts[layer][relation.dst];
                prop_assert_eq!(block.row_ptr.len(), rows + 1);
                for row in 0..rows {
                    let node = batch.nodes[relation.dst][row] as usize;
                    let (span, degree) = (block.row(row), relation.forward.degree(node));
                    let wanted = match fanout {
                        Fanout::All => degree,
                        Fanout::Most(most) if config.replace && degree > 0 => most as usize,
                        Fanout::Most(most) => degree.min(most as usize),
                    };
                    prop_assert_eq!(span.len(), wanted);
                    let edges = &block.edges[span.clone()];
                    let ascend = |w: &[u64]| w[0] < w[1] || (config.replace && w[0] == w[1]);
                    prop_assert!(edges.windows(2).all(ascend), "{:?}", edges);
                    for (&edge, &col) in edges.iter().zip(&block.cols[span]) {
                        prop_assert!(relation.forward.entries(node).contains(&(edge as usize)));
                        let source = relation.forward.col_idx()[edge as usize];
                        prop_assert_eq!(batch.nodes[relation.src][col as usize], source);
                        reached[relation.src].insert(source);
                    }
                }
            }
            for (t, reached) in reached.iter().enumerate() {
                prop_assert_eq!(reached.len(), batch.counts[layer + 1][t], "nothing is there without an edge");
            }
        }
    }

    #[test]
    fn a_batch_depends_on_seed_number_and_nodes_alone(
        edges in random_edges(), first in seeds(), second in seeds(), config in config(), number in 0u64..1000,
    ) {
        let sampler = NeighbourSampler::new(graph(&edges), config).unwrap();
        let fresh = sampler.sample(&mut sampler.scratch(), number, &first).unwrap();
        let mut used = sampler.scratch();
        sampler.sample(&mut used, number + 1, &second).unwrap();
        let again = on_threads(3, || sampler.sample(&mut used, number, &first).unwrap());
        prop_assert_eq!(fresh, again);
    }
}

/// Counts of every set of `count` of `degree` places over draws by different keys.
fn sets(count: usize, degree: usize, draws: u64, draw: fn(&mut [u32], usize, u64)) -> BTreeMap<Vec<u32>, u64> {
    let mut sets = BTreeMap::new();
    let mut taken = vec![0; count];
    for key in 0..draws {
        draw(&mut taken, degree, hash(99, key));
        *sets.entry(taken.clone()).or_default() += 1;
    }
    sets
}

/// χ² of counts that should be alike, in standard deviations above its mean.
fn excess(counts: impl Iterator<Item = u64> + Clone) -> f64 {
    let (cells, sum) = (counts.clone().count() as f64, counts.clone().sum::<u64>() as f64);
    let expected = sum / cells;
    let chi = counts.map(|count| (count as f64 - expected).powi(2) / expected).sum::<f64>();
    (chi - (cells - 1.0)) / (2.0 * (cells - 1.0)).sqrt()
}

#[test]
fn every_set_of_places_is_drawn_as_often() {
    for (count, degree, number) in [(3, 7, 35), (2, 9, 36), (8, 9, 9), (1, 5, 5)] {
        let sets = sets(count, degree, 100_000, distinct);
        assert_eq!(sets.len(), number, "{count} of {degree}");
        let excess = excess(sets.values().copied());
        assert!(excess < 5.0, "{count} of {degree}: {excess}");
    }
    // With replacement single places are alike.
    let mut places = [0u64; 6];
    for (set, times) in sets(4, 6, 50_000, repeated) {
        set.iter().for_each(|&place| places[place as usize] += times);
    }
    assert!(excess(places.iter().copied()) < 5.0, "{places:?}");
}

#[test]
fn many_of_many_places_are_distinct_and_in_order() {
    for (count, degree) in [(200, 1000), (999, 1000), (1000, 1000), (65, 66), (64, 100_000)] {
        let mut taken = vec![0; count];
        distinct(&mut taken, degree, 5);
        assert!(taken.windows(2).all(|w| w[0] < w[1]) && taken[count - 1] < degree as u32, "{count} of {degree}");
    }
}

/// A graph in which every one of 200 nodes has 50 in-neighbours.
fn regular() -> Arc<HeteroGraph> {
    let pairs: Vec<(u32, u32)> = (0..200).flat_map(|row| (1..=50).map(move |k| (row, (row + k * 3) % 200))).collect();
    let adjacency = Adjacency::from_edges(200, 200, &pairs);
    let spec = RelationSpec { name: "r".into(), src: 0, dst: 0, stream: "all".into(), primary: true, adjacency };
    Arc::new(HeteroGraph::new(vec![("node".into(), 200)], vec![spec]).unwrap())
}

#[test]
fn batches_that_depend_on_each_other_share_nodes() {
    let sampled = |dependency: Option<u32>, number: u64| {
        let graph = regular();
        let fanouts = SamplerConfig::new(&[Fanout::Most(5)], graph.relations().len());
        let sampler = NeighbourSampler::new(graph, SamplerConfig { dependency, ..fanouts }).unwrap();
        let seeds = vec![(0..20).collect::<Vec<u32>>()];
        sampler.sample(&mut sampler.scratch(), number, &seeds).unwrap()
    };
    // Variates of sources are the same for all seeds: neighbourhoods that overlap choose alike.
    assert!(sampled(Some(1), 0).num_nodes() * 3 < sampled(None, 0).num_nodes() * 2);
    // Eight batches in a row draw alike, the ninth does not.
    let nodes = |number| sampled(Some(8), number).nodes;
    assert_eq!((nodes(0), nodes(9)), (nodes(7), nodes(15)));
    assert_ne!(nodes(7), nodes(8));
    assert_ne!(sampled(None, 0).nodes, sampled(None, 1).nodes);
}

#[test]
fn what_cannot_be_sampled_is_refused_by_name() {
    let graph = regular();
    let relations = graph.relations().len();
    let config = |fanouts: &[Fanout]| SamplerConfig::new(fanouts, relations);
    let refused = |config: SamplerConfig, part: &str| {
        let error = NeighbourSampler::new(graph.clone(), config).unwrap_err().to_string();
        assert!(error.contains(part) && error.contains("help"), "{error}");
    };
    refused(config(&[]), "at least one layer");
    refused(config(&[Fanout::Most(0)]), "at least 1");
    refused(SamplerConfig::new(&[Fanout::All], relations + 1), "one per relation");
    refused(SamplerConfig { dependency: Some(0), ..config(&[Fanout::All]) }, "dependency = 0");
    refused(SamplerConfig { dependency: Some(2), replace: true, ..config(&[Fanout::All]) }, "replace = true");
    let edges = graph.relations()[0].forward.num_edges();
    let weighted = |weights: Vec<f32>| {
        let mut all = vec![None; relations];
        all[0] = Some(weights.into());
        SamplerConfig { weights: all, ..config(&[Fanout::All]) }
    };
    refused(weighted(vec![1.0; edges - 1]), "weights of relation r");
    refused(weighted((0..edges).map(|edge| if edge == 4 { -1.0 } else { 1.0 }).collect()), "weight of entry 4");
    refused(weighted(vec![f32::NAN; edges]), "weight of entry 0");
    let none = SamplerConfig { weights: vec![None; relations + 1], ..config(&[Fanout::All]) };
    refused(none, "one per relation");
    let sampler = NeighbourSampler::new(graph.clone(), config(&[Fanout::All])).unwrap();
    for (seeds, part) in
        [(vec![], "node types"), (vec![vec![200]], "nodes below 200"), (vec![vec![3, 4, 3]], "3 twice")]
    {
        let error = sampler.sample(&mut sampler.scratch(), 0, &seeds).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn weights_decide_how_often_a_place_is_drawn() {
    let weights = [4.0f32, 0.0, 1.0, 2.0, 1.0];
    let total: f64 = 8.0;
    let draws = 200_000u64;
    // Without replacement two of four, one after the other.
    let mut pairs: BTreeMap<Vec<u32>, f64> = BTreeMap::new();
    let (mut taken, mut keyed) = (vec![0; 2], Vec::new());
    for draw in 0..draws {
        let positive = weights.iter().zip(0..).filter(|(w, _)| **w > 0.0);
        let key = |at: u32| hash(hash(7, draw), at.into());
        smallest(&mut taken, positive.map(|(&w, at)| (weighted_key(key(at), w), at)), &mut keyed);
        *pairs.entry(taken.clone()).or_default() += 1.0;
    }
    assert_eq!(pairs.len(), 6);
    for (pair, times) in &pairs {
        let [a, b] = [pair[0], pair[1]].map(|at| f64::from(weights[at as usize]));
        let expected = a / total * b / (total - a) + b / total * a / (total - b);
        let deviation = (expected * (1.0 - expected) / draws as f64).sqrt();
        assert!((times / draws as f64 - expected).abs() < 5.0 * deviation, "{pair:?}: {times} of {draws}, {expected}");
    }
    // With replacement in proportion.
    let (mut places, mut sums) = ([0.0; 5], Vec::new());
    let mut taken = vec![0; 4];
    for draw in 0..draws / 4 {
        repeated_by_weight(&mut taken, &weights, hash(8, draw), &mut sums);
        taken.iter().for_each(|&place| places[place as usize] += 1.0 / draws as f64);
    }
    for (&weight, share) in weights.iter().zip(places) {
        assert!((share - f64::from(weight) / total).abs() < 0.006, "{places:?}");
    }
}

#[test]
fn entries_without_weight_are_never_taken() {
    let graph = regular();
    let relations = graph.relations().len();
    for (replace, dependency) in [(false, None), (true, None), (false, Some(3))] {
        // One entry in three counts; of the other relation none does.
        let weights = (0..relations).map(|at| {
            let edges = graph.relations()[at].forward.num_edges();
            Some((0..edges).map(|edge| if at == 0 && edge % 3 == 0 { 1.0 + edge as f32 } else { 0.0 }).collect())
        });
        let config = SamplerConfig::new(&[Fanout::Most(8), Fanout::All], relations);
        let config = SamplerConfig { weights: weights.collect(), replace, dependency, ..config };
        let sampler = NeighbourSampler::new(graph.clone(), config).unwrap();
        let batch = sampler.sample(&mut sampler.scratch(), 0, &[vec![5, 9]]).unwrap();
        let layers = &batch.blocks;
        assert_eq!(layers[0][0].row(0).len(), 8);
        assert!(layers.iter().all(|layer| layer[0].edges.iter().all(|edge| edge % 3 == 0)));
        assert!(layers.iter().all(|layer| layer[1..].iter().all(|block| block.cols.is_empty())));
        let node = batch.nodes[0][0] as usize;
        let positive = graph.relations()[0].forward.entries(node).filter(|edge| edge % 3 == 0).count();
        assert_eq!(layers[1][0].row(0).len(), positive, "all of them");
    }
}

/// Events 0.. of some entities in the order of time, each with all earlier ones of its entity.
fn histories(entities: &[u32]) -> Adjacency {
    let mut order: Vec<u32> = (0..entities.len() as u32).collect();
    order.sort_by_key(|&event| entities[event as usize]);
    let place = |wanted: (u32, u32)| order.partition_point(|&e| (entities[e as usize], e) < wanted) as u64;
    let (start, end) = entities.iter().zip(0..).map(|(&of, event)| (place((of, 0)), place((of, event)))).unzip();
    Adjacency::from_spans(start, end, order, entities.len()).unwrap()
}

fn of_events(earlier: Adjacency) -> Arc<HeteroGraph> {
    let events = earlier.num_rows();
    let others: Vec<(u32, u32)> = (0..events as u32).flat_map(|event| (0..9).map(move |shop| (event, shop))).collect();
    let spec = |name: &str, [src, dst]: [usize; 2], adjacency| RelationSpec::new(name, src, dst, adjacency);
    let relations =
        vec![spec("at", [0, 1], Adjacency::from_edges(events, 9, &others)), spec("earlier", [1, 1], earlier)];
    Arc::new(HeteroGraph::new(vec![("shop".into(), 9), ("event".into(), events)], relations).unwrap())
}

proptest! {
    #[test]
    fn spans_give_the_batches_of_the_lists_that_they_stand_for(
        entities in prop::collection::vec(0..4u32, 1..60), number: u64, replace: bool, kappa in prop::option::of(1..3u32),
    ) {
        let earlier = histories(&entities);
        let seeds = vec![vec![], vec![entities.len() as u32 - 1]];
        let batch = |adjacency: Adjacency| {
            let fanouts = SamplerConfig::new(&[Fanout::Most(3), Fanout::Most(2)], 2);
            let (replace, dependency) = (replace && kappa.is_none(), kappa);
            let sampler = NeighbourSampler::new(of_events(adjacency), SamplerConfig { replace, dependency, ..fanouts }).unwrap();
            let mut batch = sampler.sample(&mut sampler.scratch(), number, &seeds).unwrap();
            // Where an edge stands among the entries is another matter.
            batch.blocks.iter_mut().flatten().for_each(|block| block.edges.clear());
            batch
        };
        prop_assert_eq!(batch(earlier.clone()), batch(earlier.expanded()));
    }

    #[test]
    fn the_latest_are_the_last_of_a_row_whatever_the_draw(
        entities in prop::collection::vec(0..4u32, 1..60), number: u64, seed: u64, replace: bool, most in 1..6u32,
    ) {
        let graph = of_events(histories(&entities));
        let config = SamplerConfig { draw: Draw::Latest, seed, replace, ..SamplerConfig::new(&[Fanout::Most(most)], 2) };
        let sampler = NeighbourSampler::new(graph.clone(), config).unwrap();
        let events: Vec<u32> = (0..entities.len() as u32).collect();
        let batch = sampler.sample(&mut sampler.scratch(), number, &[vec![], events.clone()]).unwrap();
        let block = &batch.blocks[0][1];
        for (row, &event) in events.iter().enumerate() {
            let all: Vec<u32> = (0..event).filter(|&e| entities[e as usize] == entities[row]).collect();
            let taken: Vec<u32> = block.row(row).map(|at| batch.nodes[1][block.cols[at] as usize]).collect();
            prop_assert_eq!(taken, &all[all.len().saturating_sub(most as usize)..]);
            let forward = &graph.relations()[1].forward;
            let entries: Vec<u64> = forward.entries(row).map(|entry| entry as u64).collect();
            prop_assert_eq!(&block.edges[block.row(row)], &entries[entries.len() - block.row(row).len()..]);
        }
        // Shops have no order: they are drawn.
        prop_assert!(batch.blocks[0][0].row_ptr.windows(2).all(|row| row[1] - row[0] == most));
    }
}

#[test]
fn the_latest_are_refused_where_rows_have_no_order() {
    let refused = |graph: Arc<HeteroGraph>, config: SamplerConfig| {
        let config = SamplerConfig { draw: Draw::Latest, ..config };
        NeighbourSampler::new(graph, config).unwrap_err().to_string()
    };
    let (histories, config) = (histories(&[0, 1, 0]), SamplerConfig::new(&[Fanout::Most(2)], 2));
    let error = refused(of_events(histories.expanded()), config.clone());
    assert!(error.contains("loader.draw") && error.contains("import them again"), "{error}");
    let weights = vec![None, Some(vec![1.0; 3].into())];
    let error = refused(of_events(histories), SamplerConfig { weights, ..config });
    assert!(error.contains("some for earlier"), "{error}");
}
