use super::model::Model;
use super::*;
use crate::config::{LoaderMode, Precision, Rows, Stage2Config};
use crate::graph::{Degrees, NodeType, RelationSizes};

/// `synth --preset electronics`, its degrees in four groups of about as many edges.
fn electronics() -> Sizes {
    let node_type = |name: &str, offset, count| NodeType { name: name.into(), offset, count };
    let groups: [&[(u64, u64)]; 5] = [
        &[(6, 291_558), (8, 203_853), (11, 143_749), (18, 89_559)],
        &[(0, 587_300), (12, 134_437), (66, 24_668), (232, 7_028), (617, 2_644)],
        &[(0, 19_607), (1, 736_470)],
        &[(0, 1_189), (4, 49_183), (38, 4_810), (406, 454), (4_280, 43)],
        &[(29, 370_157), (64, 169_720), (93, 117_067), (151, 71_775)],
    ];
    let relation = |(at, (src, dst, stream, partner)): (usize, (usize, usize, &str, usize))| {
        let degrees = [at, partner].map(|of| Degrees(groups[of].to_vec()));
        let words = degrees[0].edges() + groups[at].iter().map(|(_, nodes)| nodes).sum::<u64>() + 1;
        let primary = at % 2 == 0;
        RelationSizes { src, dst, stream: stream.into(), primary, degrees, words, partner: Some(partner) }
    };
    let relations = [(1, 0, "pu", 1), (0, 1, "pu", 0), (2, 1, "ps", 3), (1, 2, "ps", 2), (0, 0, "uu", 4)];
    Sizes {
        node_types: vec![
            node_type("user", 0, 728_719),
            node_type("product", 728_719, 756_077),
            node_type("seller", 1_484_796, 55_679),
        ],
        features: Some([128, 2]),
        relations: relations.into_iter().enumerate().map(relation).collect(),
        labels: vec![8_794, 4_424, 376],
    }
}

/// The table in `src/bench/RESULTS.md`, "Several devices". Its epochs on two devices have fitted the one constant; its
/// memory has fitted nothing.
#[test]
fn epochs_and_memory_on_two_devices_are_within_a_fifth_of_what_was_measured() {
    let mut config = Stage2Config::new("electronics");
    config.data.input = Stage2Input::Features;
    let (sizes, mut reachable) = (electronics(), config.clone());
    let mut sampled = config.clone();
    (config.train.rows, reachable.train.rows) = (Rows::All, Rows::Reachable);
    sampled.loader.mode = LoaderMode::Sampled;
    let mut half = config.clone();
    half.train.precision = Precision::F16;
    let measured: [(&Stage2Config, f64, [f64; 2], [f64; 2]); 5] = [
        (&config, 1.0, [32.2, 32.6], [8.49, 6.21]),
        (&half, 1.0, [22.7, 28.3], [4.40, 3.72]),
        (&config, 4.0, [120.6, 89.7], [33.9, 23.4]),
        (&reachable, 1.0, [9.6, 9.6], [1.97, 1.71]),
        (&sampled, 1.0, [44.0, 63.5], [1.14, 0.95]),
    ];
    for (config, scale, [one, two], memory) in measured {
        let model = Model { config, sizes: &sizes, width: 128, scale, memory: None };
        let rows = [1, 2].map(|ranks| model.row(ranks, 2, Rates::default(), Some(one)));
        let error = rows[1].epoch_ms / two - 1.0;
        assert!(error.abs() < 0.2 && rows[0].epoch_ms == one, "{error}: {:?}", rows[1]);
        // When two devices were measured the first scored alone: by the whole graph, and by no part of it.
        let then = match model.way() {
            Way::AllRows => model.graph_bytes(),
            Way::ReachableRows => -model.graph_bytes(),
            Way::MiniBatches => 0.0,
        };
        for ((row, measured), then) in rows.iter().zip(memory).zip([0.0, then]) {
            let error = (row.memory.epoch() + then) / (1e9 * measured) - 1.0;
            assert!(error.abs() < 0.2, "{error}: {row:?}");
        }
    }
    // What `bench scale` counted there.
    let model = Model { config: &config, sizes: &sizes, width: 128, scale: 1.0, memory: None };
    let row = model.row(2, 2, Rates::default(), None);
    assert_eq!((row.calls, (row.bytes / 1e8).round()), (10.0, 12.0));
}

#[test]
fn more_hosts_exchange_no_faster_and_what_fits_is_what_epoch_and_scores_need() {
    let (sizes, mut config) = (electronics(), Stage2Config::new("electronics"));
    config.train.rows = Rows::All;
    let model = |memory| Model { config: &config, sizes: &sizes, width: 128, scale: 1.0, memory: Some(memory) };
    let row = |memory, ranks, per_host| model(memory).row(ranks, per_host, Rates::default(), Some(30.0));
    let ms = |per_host| row(80.0, 8, per_host).exchange_ms;
    assert!(ms(8) < ms(4) && ms(4) < ms(1));
    assert_eq!((row(80.0, 8, 4).hosts, row(80.0, 8, 4).bottleneck), (2, Bottleneck::Network));
    // Features and hidden rows of all nodes need 2 GB however many there are.
    let on = |memory, ranks| row(memory, ranks, 64).fits;
    assert_eq!([on(9.0, 1), on(8.0, 1), on(8.0, 2), on(2.0, 64)].map(Option::unwrap), [true, false, true, false]);
    let memory = row(4.5, 64, 64).memory;
    assert!(memory.epoch() < 4.5e9 && memory.scoring.is_some_and(|scoring| scoring < memory.epoch()));
}

#[test]
fn features_that_one_device_does_not_hold_are_divided_over_those_of_a_host() {
    let (sizes, mut config) = (electronics(), Stage2Config::new("electronics"));
    config.data.input = Stage2Input::Features;
    config.loader.mode = LoaderMode::Sampled;
    // Of 1.2 GB features may take 0.3; they take 0.39, a half and the hot ones 0.28.
    let model = Model { config: &config, sizes: &sizes, width: 128, scale: 1.0, memory: Some(1.2) };
    let row = |ranks, per_host| model.row(ranks, per_host, Rates::default(), None);
    let gb = |ranks, per_host| (row(ranks, per_host).memory.features / 1e7).round() / 100.0;
    assert_eq!([gb(1, 2), gb(2, 2), gb(2, 1)], [0.08, 0.28, 0.08]);
    assert_eq!(row(2, 2).calls - row(2, 1).calls, 3.0 * model.steps());
}
