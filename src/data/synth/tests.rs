use ndarray::{Array2, Axis, concatenate};

use super::*;
use crate::config::PipelineSynth;
use crate::data::logistic::LogisticRegression;
use crate::data::split::{Split, SplitFractions};
use crate::error::Error;

fn quickstart(seed: u64) -> Dataset {
    generate(&SynthConfig { seed, ..SynthConfig::default() }, &|_, _, _| {}).unwrap()
}

fn relation<'a>(graph: &'a HeteroGraph, name: &str) -> &'a Adjacency {
    &graph.relations().iter().find(|r| r.name == name).unwrap().forward
}

/// Probability that a positive scores above a negative, ties counting half.
fn roc_auc(scores: &[f32], labels: &[u8]) -> f64 {
    let of = |class: u8| scores.iter().zip(labels).filter(move |(_, l)| **l == class).map(|(s, _)| *s);
    let wins: f64 =
        of(1).map(|p| of(0).map(|n| f64::from(u8::from(p > n)) + 0.5 * f64::from(u8::from(p == n))).sum::<f64>()).sum();
    wins / (of(1).count() * of(0).count()) as f64
}

/// Mean over the in-neighbours of each relation, averaged over the relations that have any.
fn neighbour_mean(graph: &HeteroGraph, x: &Array2<f32>) -> Array2<f32> {
    let mut sum = Array2::<f32>::zeros(x.raw_dim());
    let mut relations = vec![0.0f32; x.nrows()];
    for r in graph.relations() {
        let (dst, src) = (graph.node_types()[r.dst].offset, graph.node_types()[r.src].offset);
        for i in (0..r.forward.num_rows()).filter(|&i| r.forward.degree(i) > 0) {
            let weight = 1.0 / r.forward.degree(i) as f32;
            r.forward.row(i).iter().for_each(|&j| sum.row_mut(dst + i).scaled_add(weight, &x.row(src + j as usize)));
            relations[dst + i] += 1.0;
        }
    }
    sum.outer_iter_mut().zip(relations).for_each(|(mut row, n)| row /= n.max(1.0));
    sum
}

fn test_auc(x: &Array2<f32>, split: &Split) -> f64 {
    let part = |nodes: &[(u32, u8)]| {
        let ids: Vec<usize> = nodes.iter().map(|(id, _)| *id as usize).collect();
        (x.select(Axis(0), &ids), nodes.iter().map(|(_, label)| *label).collect::<Vec<u8>>())
    };
    let (train, train_labels) = part(&split.train);
    let (test, test_labels) = part(&split.test);
    let model = LogisticRegression::fit(train.view(), &train_labels, 10.0).unwrap();
    roc_auc(&model.scores(test.view()), &test_labels)
}

#[test]
fn features_alone_say_little_and_neighbourhood_means_say_much() {
    let (mut raw, mut with_neighbours) = (0.0, 0.0);
    for seed in 0..2 {
        let data = quickstart(seed);
        let features = data.features.as_ref().unwrap();
        let x = Array2::from_shape_vec((5_000, 128), features.as_f16().iter().map(|v| v.to_f32()).collect()).unwrap();
        let one_hop = neighbour_mean(&data.graph, &x);
        let two_hops = neighbour_mean(&data.graph, &one_hop);
        let all = concatenate(Axis(1), &[x.view(), one_hop.view(), two_hops.view()]).unwrap();
        let type_of = |id: u32| data.graph.type_of(id as usize);
        let split = Split::stratified(&data.labels.unwrap().entries, type_of, SplitFractions::default(), seed).unwrap();
        raw += test_auc(&x, &split) / 2.0;
        with_neighbours += test_auc(&all, &split) / 2.0;
    }
    assert!((0.5..0.78).contains(&raw), "raw features: {raw}");
    assert!(with_neighbours > 0.9, "with neighbourhood means: {with_neighbours}");
}

#[test]
fn degrees_do_not_give_anomalies_away() {
    let data = quickstart(3);
    let entries = data.labels.unwrap().entries;
    for (name, node_type) in [("epu", 0), ("euu", 0), ("epu_T", 1)] {
        let offset = data.graph.node_types()[node_type].offset;
        let of_type: Vec<_> = entries.iter().filter(|(id, _)| data.graph.type_of(*id as usize) == node_type).collect();
        let degrees: Vec<f32> =
            of_type.iter().map(|(id, _)| relation(&data.graph, name).degree(*id as usize - offset) as f32).collect();
        let auc = roc_auc(&degrees, &of_type.iter().map(|(_, label)| *label).collect::<Vec<_>>());
        assert!((auc - 0.5).abs() < 0.06, "{name}: {auc}");
    }
}

#[test]
fn labels_are_balanced_distinct_and_cover_every_node_type() {
    let data = quickstart(4);
    let entries = data.labels.unwrap().entries;
    assert!((600..=900).contains(&entries.len()), "{}", entries.len());
    assert!(entries.windows(2).all(|pair| pair[0].0 < pair[1].0));
    for node_type in 0..3 {
        let count = |class| {
            entries.iter().filter(|(id, l)| *l == class && data.graph.type_of(*id as usize) == node_type).count()
        };
        assert!(count(1) >= 5 && count(0) == count(1), "type {node_type}: {} and {}", count(1), count(0));
    }
}

#[test]
fn the_graph_has_the_shape_of_five_core_reviews() {
    let graph = quickstart(5).graph;
    let (epu, eps, euu) = (relation(&graph, "epu"), relation(&graph, "eps"), relation(&graph, "euu"));
    assert_eq!((epu.num_rows(), epu.num_cols(), eps.num_cols(), euu.num_rows()), (2_600, 2_200, 200, 2_600));
    assert!((0..2_600).all(|user| epu.degree(user) >= 5));
    let mean = epu.num_edges() as f64 / 2_600.0;
    assert!((8.5..10.5).contains(&mean), "mean reviews {mean}");
    assert!((0..2_200).all(|product| eps.degree(product) <= 1));
    assert!((0..2_600).all(|user| euu.row(user).contains(&(user as u32))), "everyone has one loop");
    assert!(euu.is_reverse_of(euu), "co-reviews are symmetric");
}

#[test]
fn the_result_depends_on_the_seed_and_not_on_the_number_of_threads() {
    let with_threads = |n, seed| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(n).build().unwrap();
        let config = SynthConfig { seed, ..SynthConfig::default().scaled(0.5) };
        pool.install(|| generate(&config, &|_, _, _| {}).unwrap())
    };
    let (one, three, other) = (with_threads(1, 6), with_threads(3, 6), with_threads(3, 7));
    for name in ["epu", "eps_T", "euu"] {
        assert_eq!(relation(&one.graph, name).col_idx(), relation(&three.graph, name).col_idx(), "{name}");
    }
    assert_eq!(one.labels.unwrap().entries, three.labels.unwrap().entries);
    assert!(one.features.as_ref().unwrap().as_f16() == three.features.unwrap().as_f16());
    assert_ne!(relation(&one.graph, "epu").col_idx(), relation(&other.graph, "epu").col_idx());
    assert!(one.features.unwrap().as_f16() != other.features.unwrap().as_f16());
}

#[test]
fn presets_have_the_published_sizes_and_names_that_parse() {
    let nodes = Preset::ALL.map(|preset| SynthConfig::preset(preset).num_nodes());
    assert_eq!(nodes, [5_000, 15_937, 1_540_475]);
    for preset in Preset::ALL {
        assert_eq!(preset.to_string().parse::<Preset>().unwrap(), preset);
    }
    let error = "electronic".parse::<Preset>().unwrap_err().to_string();
    assert!(error.contains("did you mean electronics?"), "{error}");
}

#[test]
fn ids_are_distinct_and_sorted_like_their_nodes() {
    let ids = quickstart(0).ids.unwrap().0;
    assert_eq!((ids[0][123].as_str(), ids[2][7].as_str()), ("U000123", "brand-00007"));
    assert!(ids.iter().all(|names| names.is_sorted_by(|a, b| a < b)));
}

#[test]
fn progress_of_every_stage_ends_at_its_total() {
    let calls = std::cell::RefCell::new(Vec::new());
    let config = SynthConfig::default().scaled(0.2);
    generate(&config, &|stage, done, total| calls.borrow_mut().push((stage, done, total))).unwrap();
    for stage in ["reviews", "panels", "co-reviews", "features"] {
        let last = calls.borrow().iter().rfind(|call| call.0 == stage).copied().unwrap();
        assert_eq!(last.1, last.2, "{stage}");
    }
}

#[test]
fn impossible_configurations_are_usage_errors_and_odd_ones_run() {
    let base = SynthConfig::default;
    let refused = |config: SynthConfig| matches!(generate(&config, &|_, _, _| {}), Err(Error::Usage { .. }));
    assert!(refused(base().scaled(0.01)));
    assert!(refused(base().scaled(f64::INFINITY)));
    assert!(refused(base().scaled(f64::NAN)));
    assert!(refused(SynthConfig { mean_reviews: 4.0, ..base() }));
    assert!(refused(SynthConfig { fraud_share: 0.5, ..base() }));
    assert!(refused(SynthConfig { brandless_share: 1.0, ..base() }));
    assert!(refused(SynthConfig { co_review_cap: 1_001, ..base() }));
    let small = SynthConfig { users: 200, products: 200, sellers: 8, ..base() };
    for config in [
        SynthConfig { fraud_share: 0.1, mean_reviews: 100.0, reviewed_share: 1.0, ..small.clone() },
        SynthConfig { fraud_share: 1e-9, popularity_exponent: 3.0, reviewed_share: 1e-6, ..small.clone() },
        SynthConfig { sellers: 5_000, co_review_cap: 0, brandless_share: 0.99, ..small },
    ] {
        assert!(!refused(config));
    }
}

#[test]
fn a_pipeline_describes_its_marketplace() {
    let section = PipelineSynth { preset: Preset::Electronics, scale: 0.5, seed: 3 };
    let marketplace = SynthConfig::from(&section);
    assert_eq!((marketplace.users, marketplace.seed), (364_360, 3));
}
