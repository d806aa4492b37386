use super::*;
use crate::graph::{Adjacency, IdMaps, Labels, RelationSpec, SplitRule, StoredSplit, TimeWindow};

const SHARE: f64 = 0.65;

/// Two accounts, then `count` payments, named backwards; a third of them are labelled 1.
fn dataset(count: usize, events: Option<Events>) -> (Dataset, Vec<(u32, u8)>) {
    let graph = HeteroGraph::new(vec![("account".into(), 2), ("payment".into(), count)], Vec::new()).unwrap();
    let entries: Vec<(u32, u8)> = (2..2 + count as u32).map(|node| (node, u8::from(node % 3 == 0))).collect();
    let named = |count: usize| (0..count).rev().map(|at| format!("p{at}")).collect::<Vec<_>>();
    let ids = Some(IdMaps(vec![vec!["p0".into(), "p1".into()], named(count)]));
    let labels = Some(Labels { entries: entries.clone() });
    (Dataset { events, ..Dataset::new(graph, None, labels, ids) }, entries)
}

/// Payment `k` happens at `7 k mod count` and is known 10 later.
fn events(count: usize) -> Events {
    let time: Vec<i64> = (0..count as i64).map(|at| at * 7 % count as i64).collect();
    let known = time.iter().map(|time| time + 10);
    let (before, never) = ([Events::NO_TIME; 2], [Events::NEVER; 2]);
    Events {
        known: never.into_iter().chain(known).collect(),
        time: before.into_iter().chain(time).collect(),
        amount: None,
        value: None,
        alert: None,
    }
}

fn seen_by(known: &KnownLabels, seen: &Seen) -> Vec<u32> {
    (0..known.places.len() as u32).filter(|&node| known.label(seen, node).is_some()).collect()
}

#[test]
fn without_times_a_node_is_scored_with_every_label_but_those_of_its_part() {
    let (data, entries) = dataset(60, None);
    let train: Vec<(u32, u8)> = entries.iter().filter(|(node, _)| node % 4 != 0).copied().collect();
    let known = KnownLabels::of(&data, &train, SHARE, 1);
    let passes = known.passes();
    assert_eq!(passes.len(), 4);
    let is_training = |node: u32| train.iter().any(|(other, _)| *other == node);
    for node in 0..62 {
        let seen = seen_by(&known, &passes[known.pass_of(node)]);
        assert!(!seen.contains(&node) && seen.iter().all(|&node| is_training(node)), "{node}");
        let expected = if is_training(node) { train.len() - train.len() / 3..=train.len() } else { 45..=45 };
        assert!(expected.contains(&seen.len()), "{node}: {} of {}", seen.len(), train.len());
    }
    // Both classes are in every part.
    for part in 0..3 {
        let of_part: Vec<u8> =
            known.entries.iter().filter(|entry| entry.fold == part).map(|entry| entry.label).collect();
        assert!(of_part.contains(&0) && of_part.contains(&1));
    }
}

#[test]
fn in_data_that_are_split_by_group_no_label_of_the_same_group_is_seen() {
    // Users 0 to 59 and 20 cards, each of three users.
    let has = Adjacency::from_edges(60, 20, &(0..60).map(|user| (user, user * 7 % 20)).collect::<Vec<_>>());
    let types = vec![("user".into(), 60), ("card".into(), 20)];
    let graph = HeteroGraph::new(types, vec![RelationSpec::new("has", 1, 0, has)]).unwrap();
    let train: Vec<(u32, u8)> = (0..60).map(|user| (user, u8::from(user % 5 < 2))).collect();
    let mut data = Dataset::new(graph, None, None, None);
    let rule = SplitRule::Group { groups: vec!["card".into()], seed: 1, train: 0.6, validation: 0.2, test: 0.2 };
    data.split = Some(StoredSplit::of_parts(rule, 80, [&train, &[], &[]]));
    let known = KnownLabels::of(&data, &train, SHARE, 1);
    let mates = |node: u32| (0..60).filter(move |user| user % 20 == node % 20);
    let passes = known.passes();
    for node in 0..60 {
        let seen = seen_by(&known, &passes[known.pass_of(node)]);
        assert!(mates(node).all(|mate| !seen.contains(&mate)) && seen.len() >= 30, "{node}: {seen:?}");
    }
    let epochs = (0..3).map(|epoch| known.of_epoch(SHARE, 1, epoch));
    for Masked { seen, learned } in epochs.chain(known.of_batches(5, SHARE, 1, 0)) {
        let seen = seen_by(&known, &seen);
        assert!(
            learned.iter().all(|&(node, _)| mates(node).all(|mate| !seen.contains(&mate))),
            "{learned:?}, {seen:?}"
        );
    }
    assert!(known.of_batches(5, SHARE, 1, 0).iter().all(|batch| !seen_by(&known, &batch.seen).is_empty()));
}

#[test]
fn an_epoch_shows_a_share_of_the_labels_and_learns_the_others() {
    let (data, train) = dataset(60, None);
    let known = KnownLabels::of(&data, &train, SHARE, 1);
    let mut learned_once = [false; 62];
    for epoch in 1..30 {
        let Masked { seen, learned } = known.of_epoch(SHARE, 5, epoch);
        let shown = seen_by(&known, &seen);
        assert_eq!((shown.len(), learned.len()), (39, 21));
        assert!(learned.iter().all(|entry| train.contains(entry) && !shown.contains(&entry.0)));
        learned.iter().for_each(|(node, _)| learned_once[*node as usize] = true);
        assert_eq!(known.of_epoch(SHARE, 5, epoch).learned, learned);
        assert_ne!(known.of_epoch(SHARE, 5, epoch + 1).learned, learned);
        assert_ne!(known.of_epoch(SHARE, 6, epoch).learned, learned);
    }
    assert!(learned_once[2..].iter().all(|&learned| learned));
}

#[test]
fn mini_batches_learn_every_label_once_and_none_that_they_see() {
    for (times, asked, expected) in [(None, 1, 3), (None, 7, 7), (Some(events(60)), 6, 6)] {
        let (data, train) = dataset(60, times.clone());
        let known = KnownLabels::of(&data, &train, SHARE, 1);
        let batches = known.of_batches(asked, SHARE, 5, 2);
        assert_eq!(batches.len(), expected);
        let mut all: Vec<(u32, u8)> = batches.iter().flat_map(|batch| batch.learned.clone()).collect();
        all.sort_unstable();
        assert_eq!(all, train);
        let mut shown = 0;
        for Masked { seen, learned } in &batches {
            let nodes = seen_by(&known, seen);
            shown += nodes.len();
            assert!(learned.iter().all(|(node, _)| !nodes.contains(node)));
            if let Some(events) = &times {
                let first = learned.iter().map(|(node, _)| events.time[*node as usize]).min().unwrap();
                assert!(nodes.iter().all(|&node| events.known[node as usize] < first));
            }
        }
        assert!(shown > 0);
        assert_ne!(known.of_batches(asked, SHARE, 5, 3), batches);
    }
}

#[test]
fn an_event_sees_what_was_known_before_it() {
    let (data, train) = dataset(200, Some(events(200)));
    let rule = SplitRule::Time {
        windows: vec![TimeWindow { train: [0, 100], validation: [110, 140], test: [150, 200] }],
        blocked: None,
    };
    let split = Some(StoredSplit { rule, windows: vec![vec![0; 202]], window: 0 });
    for (data, most) in [(Dataset { split, ..data }, 6), (dataset(200, Some(events(200))).0, 16)] {
        let events = data.events.clone().unwrap();
        let of_training = |node: u32| data.split.is_none() || events.time[node as usize] < 100;
        let train: Vec<(u32, u8)> = train.iter().filter(|(node, _)| of_training(*node)).copied().collect();
        let known = KnownLabels::of(&data, &train, SHARE, 1);
        let passes = known.passes();
        assert_eq!(passes.len(), most);
        for node in 2..202 {
            let (time, seen) = (events.time[node as usize], seen_by(&known, &passes[known.pass_of(node)]));
            assert!(seen.iter().all(|&other| events.known[other as usize] < time), "{node} at {time}");
            // No label is more than a step late.
            let step = if data.split.is_some() { 50 } else { 14 };
            let missed =
                |&&(other, _): &&(u32, u8)| events.known[other as usize] < time - step && !seen.contains(&other);
            assert_eq!(train.iter().find(missed), None, "{node} at {time}");
        }
        for epoch in 1..20 {
            let Masked { seen, learned } = known.of_epoch(SHARE, 5, epoch);
            let first = learned.iter().map(|(node, _)| events.time[*node as usize]).min().unwrap();
            assert!(seen_by(&known, &seen).iter().all(|&node| events.known[node as usize] < first));
            assert!(learned.len() as f64 >= (1.0 - SHARE) * train.len() as f64);
        }
    }
}

#[test]
fn among_events_a_label_of_an_entity_is_learned_and_never_seen() {
    let (data, mut train) = dataset(60, Some(events(60)));
    train.insert(0, (1, 1));
    let known = KnownLabels::of(&data, &train, SHARE, 1);
    let steps: Vec<Masked> = (1..9).map(|epoch| known.of_epoch(SHARE, 5, epoch)).collect();
    assert!(steps.iter().all(|step| step.learned.contains(&(1, 1))));
    let batches: Vec<Masked> = known.of_batches(4, SHARE, 5, 1);
    assert_eq!(batches.iter().filter(|batch| batch.learned.contains(&(1, 1))).count(), 1);
    assert!(steps.iter().chain(&batches).all(|step| known.label(&step.seen, 1).is_none()));
    assert!(known.passes().iter().all(|seen| known.label(seen, 1).is_none()));
}

#[test]
fn columns_stand_behind_the_features_in_their_type() {
    let (data, train) = dataset(4, None);
    let known = KnownLabels::of(&data, &train[..3], SHARE, 1);
    let seen = Seen::Without(vec![4]);
    let labels = [[0.0, 0.0], [0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 0.0], [0.0, 0.0]];
    assert_eq!(known.by_type(&seen, data.graph.node_types()), [labels[..2].concat(), labels[2..].concat()]);
    let values: Vec<f32> = (0..12).map(|value| value as f32).collect();
    let halves = values.iter().map(|&value| half::f16::from_f32(value)).collect();
    for features in [Features::from_f32(values.clone(), 6, 2), Features::from_vec(halves, 6, 2)] {
        let beside = known.beside(&features, &seen);
        let is_half = |features: &Features| matches!(features.values(), FeatureValues::Half(_));
        assert_eq!((beside.dim(), is_half(&beside)), (4, is_half(&features)));
        for (node, labels) in labels.iter().enumerate() {
            let row: Vec<f32> = features.row(node).chain(labels.iter().copied()).collect();
            assert_eq!(beside.row(node).collect::<Vec<_>>(), row);
        }
    }
}

#[test]
fn labels_stay_with_the_model_and_find_their_nodes_by_type_and_id() {
    let dir = tempfile::tempdir().unwrap();
    let (data, train) = dataset(30, Some(events(30)));
    let known = KnownLabels::of(&data, &train[..20], SHARE, 1);
    known.write(dir.path(), &data).unwrap();
    let read = |data: &Dataset| KnownLabels::read(dir.path(), data, Path::new("later"));
    assert_eq!(read(&data).unwrap(), known);
    // The same payments in another order and with later ones: p29 was node 2, and is behind accounts and ten others.
    let (later, _) = dataset(40, Some(events(40)));
    let found = read(&later).unwrap();
    assert_eq!((found.label(&Seen::All, 12), found.label(&Seen::All, 2)), (Some(0), None));
    assert_eq!(seen_by(&found, &Seen::All), (12..32).collect::<Vec<u32>>());
    assert_eq!(found.label(&Seen::All, 13), known.label(&Seen::All, 3));
    assert_eq!(found.label(&Seen::Before(11), 12), Some(0), "what was known when they were learned");

    let strangers =
        Dataset { ids: Some(IdMaps(vec![vec!["a".into(); 2], vec!["b".into(); 30]])), ..dataset(30, None).0 };
    let error = read(&strangers).unwrap_err().to_string();
    assert!(error.contains("later") && error.contains("import the earlier events, too"), "{error}");
    let timeless = read(&dataset(30, None).0).unwrap_err().to_string();
    assert!(timeless.contains("nodes without times"), "{timeless}");
}

#[test]
fn without_ids_labels_are_those_of_the_same_graph_alone() {
    let dir = tempfile::tempdir().unwrap();
    let nameless = |count: usize| Dataset { ids: None, ..dataset(count, None).0 };
    let (_, train) = dataset(30, None);
    let known = KnownLabels::of(&nameless(30), &train, SHARE, 1);
    known.write(dir.path(), &nameless(30)).unwrap();
    assert_eq!(KnownLabels::read(dir.path(), &nameless(30), Path::new("same")).unwrap(), known);
    let error = KnownLabels::read(dir.path(), &nameless(40), Path::new("other")).unwrap_err().to_string();
    assert!(error.contains("other") && error.contains("have no ids"), "{error}");
}

#[test]
fn folds_labels_and_cuts_that_no_training_writes_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let damaged = |data: &Dataset, train: &[(u32, u8)], from: &str, to: &str| {
        KnownLabels::of(data, train, SHARE, 1).write(dir.path(), data).unwrap();
        let file = dir.path().join(KNOWN_LABELS_FILE);
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(text.contains(from), "{text}");
        std::fs::write(&file, text.replacen(from, to, 1)).unwrap();
        KnownLabels::read(dir.path(), data, Path::new("data")).err().map(|error| error.to_string()).unwrap_or_default()
    };
    let (data, train) = dataset(30, None);
    for (from, to, found) in [
        ("\"folds\":3", "\"folds\":4000000000", "2 to 10 folds, found 4000000000"),
        ("\"folds\":3", "\"folds\":1", "2 to 10 folds, found 1"),
        ("\"fold\":2", "\"fold\":3", "each of one of the folds"),
        ("\"label\":1", "\"label\":7", "labels 0 and 1"),
    ] {
        let error = damaged(&data, &train, from, to);
        assert!(error.contains(found) && error.contains(KNOWN_LABELS_FILE), "{to}: {error}");
    }
    let (data, train) = dataset(30, Some(events(30)));
    let error = damaged(&data, &train, "\"cuts\":[", "\"cuts\":[99,");
    assert!(error.contains("in the order of time"), "{error}");
}
