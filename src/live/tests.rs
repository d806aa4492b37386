mod columns;
mod made;
mod reader;

use std::collections::{HashMap, HashSet};
use std::path::Path;

use half::f16;

use super::*;
use crate::data::tables::earlier;
use crate::graph::{
    Adjacency, Dataset, EdgeColumns, EdgeValues, Events, Features, HeteroGraph, IdMaps, Labels, RelationSpec, Values,
};
use crate::splitmix::nth;

const CUSTOMER: usize = 0;
const TERMINAL: usize = 1;
const PAYMENT: usize = 2;
const TYPES: [&str; 3] = ["customer", "terminal", "payment"];
/// Name, source, destination, and whether edges have weights and values.
const RELATIONS: [(&str, usize, usize, bool); 4] = [
    ("paid_by", CUSTOMER, PAYMENT, false),
    ("paid_at", TERMINAL, PAYMENT, false),
    ("knows", CUSTOMER, CUSTOMER, true),
    ("refers", PAYMENT, PAYMENT, false),
];
const KNOWS: usize = 2;
const REFERS: usize = 4;
const HISTORY: usize = 3;

fn independent() -> Independent {
    Independent { columns: 2, history: HISTORY }
}

fn payment(id: &str, time: i64) -> Row {
    Row::Node(NodeRow {
        node_type: PAYMENT,
        id: id.into(),
        features: vec![f16::from_f32((time % 1000) as f32 / 8.0), f16::NAN],
        time: Some(time),
        value: Some(1.5),
        amount: Some(2.5),
        label: (time % 3 == 0).then_some(1),
        known: (time % 3 == 0).then_some(time + 5),
    })
}

fn edge(relation: usize, src: &str, dst: &str) -> Row {
    let [first, last] = if relation == KNOWS { [src, dst] } else { [dst, src] }.map(|id| id.len() as f32);
    let carries = (KNOWS..=KNOWS + 1).contains(&relation);
    Row::Edge(EdgeRow {
        relation,
        src: src.into(),
        dst: dst.into(),
        weight: carries.then_some(first + 2.0 * last),
        time: None,
        values: if carries { vec![first, last] } else { Vec::new() },
    })
}

/// Batches of a random history: payments, some late, what they name, who knows whom, repeats.
fn batches(seed: u64, count: u64) -> Vec<Vec<Row>> {
    let mut at = seed << 20;
    let mut below = |bound: u64| {
        at += 1;
        (nth(at) >> 11) % bound
    };
    let customer = |at: u64| format!("c{}", "x".repeat(at as usize));
    let mut made = 0;
    let batch = |of: u64| {
        let mut rows: Vec<Row> = Vec::new();
        for _ in 0..below(4) + 1 {
            let id = format!("p{made}");
            made += 1;
            let late = if below(5) == 0 { below(30) as i64 } else { 0 };
            rows.push(payment(&id, 40 + 3 * of as i64 + below(3) as i64 - late));
            rows.push(edge(0, &customer(below(5)), &id));
            rows.extend((below(4) > 0).then(|| edge(1, &format!("t{}", below(3)), &id)));
            let other = format!("p{}", below(made));
            rows.extend((other != id).then(|| edge(REFERS, &other, &id)));
        }
        if below(2) == 0 {
            rows.push(edge(KNOWS, &customer(below(7)), &customer(below(7))));
        }
        if below(4) == 0 {
            rows.push(edge(KNOWS + 1, &customer(below(7)), &customer(below(7))));
        }
        if below(4) == 0 {
            let features = vec![f16::ONE, f16::from_f32(0.25)];
            let (id, node_type) = (customer(below(3)), CUSTOMER);
            let (time, value, amount, label, known) = (None, None, None, None, None);
            rows.push(Row::Node(NodeRow { node_type, id, features, time, value, amount, label, known }));
        }
        rows
    };
    (0..count).map(batch).collect()
}

/// The data of some rows, made at once and by other means.
fn dataset(rows: &[Row]) -> Dataset {
    let mut ids: Vec<Vec<String>> = vec![Vec::new(); 3];
    let mut nodes: HashMap<(usize, &str), &NodeRow> = HashMap::new();
    for row in rows {
        if let Row::Node(row) = row
            && nodes.insert((row.node_type, &row.id), row).is_none()
        {
            ids[row.node_type].push(row.id.clone());
        }
    }
    let mut pairs: Vec<Vec<(u32, u32)>> = vec![Vec::new(); RELATIONS.len()];
    for row in rows {
        let Row::Edge(row) = row else { continue };
        let turned = row.relation == KNOWS + 1;
        let at = if row.relation > KNOWS { row.relation - 1 } else { row.relation };
        let (_, src, dst, _) = RELATIONS[at];
        let mut number = |t: usize, id: &String| {
            let known = ids[t].iter().position(|known| known == id);
            known.unwrap_or_else(|| {
                ids[t].push(id.clone());
                ids[t].len() - 1
            }) as u32
        };
        let ends = if turned { [&row.dst, &row.src] } else { [&row.src, &row.dst] };
        let (src, dst) = (number(src, ends[0]), number(dst, ends[1]));
        let time = |node: u32| nodes[&(PAYMENT, ids[PAYMENT][node as usize].as_str())].time;
        if (at != 3 || time(src) < time(dst)) && !pairs[at].contains(&(dst, src)) {
            pairs[at].push((dst, src));
        }
    }
    let counts: Vec<usize> = ids.iter().map(Vec::len).collect();
    let all: Vec<Option<&NodeRow>> = (0..3)
        .flat_map(|t| ids[t].iter().map(|id| nodes.get(&(t, id.as_str())).copied()).collect::<Vec<_>>())
        .collect();
    let mut specs = Vec::new();
    let mut edge_values = Vec::new();
    let mut push = |name: &str, src, dst, stream: &str, primary, adjacency| {
        specs.push(RelationSpec { name: name.into(), src, dst, stream: stream.into(), primary, adjacency });
    };
    let lists = |pairs: &[(u32, u32)], rows: usize, cols: usize| {
        let mut lists = vec![Vec::new(); rows];
        pairs.iter().for_each(|&(row, col)| lists[row as usize].push(col));
        let mut row_ptr = vec![0u64];
        lists.iter().for_each(|list| row_ptr.push(row_ptr[row_ptr.len() - 1] + list.len() as u64));
        Adjacency::new(row_ptr, lists.concat(), cols).unwrap()
    };
    for (&(name, src, dst, carries), pairs) in RELATIONS.iter().zip(&pairs) {
        let adjacency = lists(pairs, counts[dst], counts[src]);
        if carries {
            let length = |t: usize, node: u32| ids[t][node as usize].len() as f32;
            let ends = (0..counts[dst]).flat_map(|row| adjacency.row(row).iter().map(move |&col| (row as u32, col)));
            let ends: Vec<[f32; 2]> = ends.map(|(row, col)| [length(src, col), length(dst, row)]).collect();
            let weight = ends.iter().map(|[src, dst]| src + 2.0 * dst).collect();
            let columns =
                EdgeColumns { names: vec!["a".into(), "b".into()], values: Values::Made(ends.concat().into()) };
            let relation = name.to_owned();
            edge_values.push(EdgeValues {
                relation,
                weight: Some(Values::Made(weight)),
                time: None,
                columns: Some(columns),
            });
        }
        push(name, src, dst, name, true, adjacency);
        if carries {
            let turned: Vec<(u32, u32)> = pairs.iter().map(|&(dst, src)| (src, dst)).collect();
            push("knows_T", dst, src, name, false, lists(&turned, counts[src], counts[dst]));
        }
    }
    let offset = counts[0] + counts[1];
    let times: Vec<i64> = all[offset..].iter().map(|row| row.unwrap().time.unwrap()).collect();
    for (name, at, of) in [("earlier_paid_by", 0, CUSTOMER), ("earlier_paid_at", 1, TERMINAL)] {
        let mut of_event = vec![Events::NO_NODE; counts[PAYMENT]];
        pairs[at].iter().for_each(|&(dst, src)| of_event[dst as usize] = src);
        push(name, PAYMENT, PAYMENT, name, true, earlier(&of_event, &times, counts[of], HISTORY));
    }
    let types = TYPES.iter().map(|name| (*name).to_owned()).zip(counts.iter().copied()).collect();
    let graph = HeteroGraph::with_reverse_relations(types, specs, |_| true).unwrap();
    let feature = |row: &Option<&NodeRow>| row.map_or(vec![f16::ZERO; 2], |row| row.features.clone());
    let features = Features::from_vec(all.iter().flat_map(feature).collect(), all.len(), 2);
    let label = |(node, row): (usize, &Option<&NodeRow>)| Some((node as u32, row.as_ref()?.label?));
    let alert = {
        let mut alert = vec![Events::NO_NODE; all.len()];
        pairs[0].iter().for_each(|&(dst, src)| alert[offset + dst as usize] = src);
        alert
    };
    let events = Events {
        time: all.iter().map(|row| row.and_then(|row| row.time).unwrap_or(Events::NO_TIME)).collect(),
        known: all.iter().map(|row| row.and_then(|row| row.known).unwrap_or(Events::NEVER)).collect(),
        amount: Some(all.iter().map(|row| row.and_then(|row| row.amount).unwrap_or(f32::NAN)).collect()),
        value: None,
        alert: Some(alert),
    };
    let labels = Labels { entries: all.iter().enumerate().filter_map(label).collect() };
    Dataset {
        edge_values,
        events: Some(events),
        feature_names: Some(vec!["x".into(), "y".into()]),
        ..Dataset::new(graph, Some(features), Some(labels), Some(IdMaps(ids)))
    }
}

fn live(rows: &[Row]) -> Live {
    Live::open(dataset(rows), independent()).unwrap()
}

fn key(text: &str) -> NodeKey {
    text.parse().unwrap()
}

fn whole() -> Draw {
    Draw { hops: 3, makes: Makes::default(), fanouts: None, seed: 0, max_nodes: 1000, named: true }
}

fn drawn() -> Draw {
    Draw { hops: 2, makes: Makes::default(), fanouts: Some(vec![2, 1]), seed: 5, max_nodes: 1000, named: true }
}

/// All that a part says, to the byte, but where its nodes were refreshed.
fn told(part: &Part) -> String {
    let Part { dataset, targets, .. } = part;
    let rows = dataset.graph.relations().iter().map(|relation| {
        let rows = |of: &Adjacency| (0..of.num_rows()).map(|row| of.row(row).to_vec()).collect::<Vec<_>>();
        (relation.name.clone(), rows(&relation.forward), rows(&relation.reverse), relation.loops)
    });
    let features: Vec<u16> = dataset.features.as_ref().unwrap().as_f16().iter().map(|value| value.to_bits()).collect();
    let (ids, events, labels) = (&dataset.ids, &dataset.events, &dataset.labels);
    let rows: Vec<_> = rows.collect();
    format!("{targets:?} {rows:?} {features:?} {ids:?} {events:?} {labels:?} {:?}", dataset.edge_values)
}

/// What models see of the latest payments and of a customer.
fn parts(live: &Live, overlay: &[Row], draw: &Draw) -> Vec<String> {
    let keys: Vec<NodeKey> = (0..60).map(|at| key(&format!("payment:p{at}"))).chain([key("customer:c")]).collect();
    let of = |key: &NodeKey| live.part(std::slice::from_ref(key), overlay, draw).ok().map(|part| told(&part));
    keys.iter().filter_map(of).collect()
}

fn assert_same(a: &Live, b: &Live) {
    for draw in [whole(), drawn()] {
        let (a, b) = (parts(a, &[], &draw), parts(b, &[], &draw));
        assert!(a.len() > 5 && a.len() == b.len());
        a.iter().zip(&b).for_each(|(a, b)| assert_eq!(a, b));
    }
}

fn append_all(live: &Live, batches: &[Vec<Row>]) {
    for batch in batches {
        live.append(batch).unwrap();
    }
}

#[test]
fn an_edge_between_new_events_that_have_edges_to_themselves_is_in_the_order_of_time() {
    let adjacency = Adjacency::new(vec![0, 1, 2], vec![0, 1], 2).unwrap();
    let spec =
        RelationSpec { name: "refers".into(), src: 0, dst: 0, stream: "refers".into(), primary: true, adjacency };
    let graph = HeteroGraph::new(vec![("payment".into(), 2)], vec![spec]).unwrap();
    let [time, known] = [vec![10, 20], vec![Events::NEVER; 2]];
    let events = Some(Events { time, known, amount: None, value: None, alert: None });
    let (features, ids) = (Features::from_vec(vec![f16::ONE; 4], 2, 2), IdMaps(vec![vec!["a".into(), "b".into()]]));
    let data = Dataset { events, ..Dataset::new(graph, Some(features), None, Some(ids)) };
    let live = Live::open(data, independent()).unwrap();
    let of = |id: &str, time: i64| match payment(id, time) {
        Row::Node(row) => Row::Node(NodeRow { node_type: 0, ..row }),
        edge => edge,
    };
    let refers = |dst: &str| {
        let (src, dst) = ("p1".into(), dst.into());
        Row::Edge(EdgeRow { relation: 0, src, dst, weight: None, time: None, values: Vec::new() })
    };
    append_all(&live, &[vec![of("p1", 30), of("p2", 50), of("p3", 40)], vec![refers("p2")], vec![refers("p3")]]);
    for (id, expected) in [("p2", vec!["p1", "p2"]), ("p3", vec!["p1", "p3"])] {
        let part = live.part(&[key(&format!("payment:{id}"))], &[], &Draw { hops: 1, ..whole() }).unwrap();
        let mut names: Vec<_> = part.within(1).into_iter().map(|node| part.dataset.id_of(node).into_owned()).collect();
        names.sort();
        assert_eq!(names, expected);
    }
}

#[test]
fn parts_are_those_of_all_rows_at_once_whatever_was_appended_and_compacted_when() {
    for seed in 0..12 {
        let batches = batches(seed, 14);
        let all = live(&batches.concat());
        let grown = live(&batches[..5].concat());
        append_all(&grown, &batches[5..9]);
        // One that is asked for is not there afterwards.
        let before = grown.stats();
        let overlaid = parts(&grown, &batches[9], &whole());
        assert_eq!(grown.stats(), before);
        append_all(&grown, &batches[9..10]);
        assert_eq!(overlaid, parts(&grown, &[], &whole()));
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("base");
        grown.mark(10);
        let compacted = grown.compact(&dir, None).unwrap();
        assert_eq!((compacted.generation, compacted.mark), (1, 10));
        assert!(grown.stats().nodes.iter().all(|count| count.appended == 0));
        append_all(&grown, &batches[10..]);
        assert_same(&grown, &all);
        // All rows once more are known, in whatever order.
        for batch in batches.iter().rev() {
            let Appended { nodes, edges, .. } = grown.append(batch).unwrap();
            assert_eq!((nodes, edges), (0, 0));
        }
        assert_same(&grown, &all);
        let again = Live::open(Dataset::open(&dir).unwrap(), independent()).unwrap();
        append_all(&again, &batches[8..]);
        assert_same(&again, &all);
    }
}

#[test]
fn what_is_refused_changes_nothing() {
    let live = live(&batches(1, 6).concat());
    let before = (live.stats(), parts(&live, &[], &whole()));
    let far = 1 << 40;
    let changed = |change: fn(&mut NodeRow)| {
        let Row::Node(mut row) = payment("new", 50) else { panic!("a node") };
        change(&mut row);
        Row::Node(row)
    };
    let knows = |weight: Option<f32>| {
        let Row::Edge(row) = edge(KNOWS, "c", "cnew") else { panic!("an edge") };
        Row::Edge(EdgeRow { weight, ..row })
    };
    let cases: [(Vec<Row>, &str); 12] = [
        (vec![payment("p0", 7)], "duplicate node `payment:p0`: expected what the node had before, found another time"),
        (vec![changed(|row| row.features[0] = f16::ONE), payment("new", 50)], "duplicate node `payment:new`"),
        (vec![payment("new", far)], "a time up to now"),
        (vec![changed(|row| row.time = None)], "expected a time, found none"),
        (vec![changed(|row| row.features.truncate(1))], "expected 2 features, found 1"),
        (vec![changed(|row| row.features[1] = f16::INFINITY)], "finite features"),
        (vec![changed(|row| row.label = Some(2))], "a label of 0 or 1"),
        (vec![changed(|row| row.id.clear())], "1 to 1024 bytes"),
        (vec![edge(0, "c", "nowhere")], "an event with a row, found `payment:nowhere`"),
        (vec![knows(None)], "a weight: one"),
        (vec![knows(Some(1.0)), knows(Some(2.0))], "duplicate edge of `knows`"),
        (vec![payment("new", 50), edge(0, "c", "new"), edge(0, "cx", "new")], "expected one source"),
    ];
    for (mut rows, expected) in cases {
        rows.insert(0, payment("good", 60));
        for error in [live.append(&rows).unwrap_err(), live.check(&rows).unwrap_err()] {
            assert!(error.to_string().contains(expected), "{error}\nlacks {expected}");
            assert_eq!(error.fault == Fault::Duplicate, error.to_string().starts_with("duplicate"), "{error}");
        }
        assert!(live.part(&[key("payment:good")], &rows, &whole()).is_err());
    }
    assert_eq!((live.stats(), parts(&live, &[], &whole())), before);
    let small = Draw { max_nodes: 2, ..whole() };
    let error = live.part(&[key("payment:p0")], &[], &small).unwrap_err();
    assert_eq!(error.fault, Fault::TooLarge);
    let error = error.to_string();
    assert!(error.starts_with("neighbourhood of `payment:p0`: expected at most 2 nodes"), "{error}");
    let error = live.part(&[key("payment:none")], &[], &whole()).unwrap_err();
    assert_eq!(error.fault, Fault::Unknown);
    let error = error.to_string();
    assert!(error.starts_with("target `payment:none`"), "{error}");
}

#[test]
fn draws_do_not_change_with_what_is_appended_elsewhere() {
    let batches = batches(3, 10);
    let small = live(&batches[..8].concat());
    let before = parts(&small, &[], &drawn());
    let others: Vec<Row> = (0..40)
        .flat_map(|at| {
            let id = format!("other{at}");
            [payment(&id, 500), edge(0, &format!("new{}", at % 3), &id), edge(1, "new", &id)]
        })
        .collect();
    small.append(&others).unwrap();
    assert_eq!(parts(&small, &[], &drawn()), before);
    let seeds: HashSet<Vec<String>> = (0..5).map(|seed| parts(&small, &[], &Draw { seed, ..drawn() })).collect();
    assert!(seeds.len() > 1);
}

/// Rows without a node and its edges.
fn without(rows: &[Row], gone: impl Fn(usize, &str) -> bool) -> Vec<Row> {
    let ends = |relation: usize| {
        let at = if relation > KNOWS { relation - 1 } else { relation };
        [RELATIONS[at].1, RELATIONS[at].2]
    };
    let stays = |row: &&Row| match row {
        Row::Node(row) => !gone(row.node_type, &row.id),
        Row::Edge(row) => !gone(ends(row.relation)[0], &row.src) && !gone(ends(row.relation)[1], &row.dst),
    };
    rows.iter().filter(stays).cloned().collect()
}

fn holds(dir: &Path, text: &str) -> bool {
    let files = std::fs::read_dir(dir).unwrap().map(|entry| std::fs::read(entry.unwrap().path()).unwrap());
    files.into_iter().any(|bytes| bytes.windows(text.len()).any(|part| part == text.as_bytes()))
}

#[test]
fn a_node_that_is_forgotten_leaves_no_trace() {
    for seed in 0..4 {
        let mut batches = batches(seed, 10);
        // A customer and a payment of either the base or what is appended, with ids that occur nowhere else.
        batches[if seed % 2 == 0 { 1 } else { 7 }].extend([
            payment("gone payment", 45),
            edge(0, "c", "gone payment"),
            edge(REFERS, "gone payment", "last"),
            payment("last", 49),
            edge(0, "gone customer", "last"),
            edge(KNOWS, "gone customer", "c"),
            edge(KNOWS, "c", "gone customer"),
        ]);
        let rows = batches.concat();
        let grown = live(&batches[..5].concat());
        append_all(&grown, &batches[5..]);
        for gone in ["payment:gone payment", "customer:gone customer"] {
            assert!(grown.node(&key(gone), 9).is_some());
            assert!(grown.forget(&key(gone)).unwrap() && !grown.forget(&key(gone)).unwrap());
            assert!(grown.node(&key(gone), 9).is_none());
        }
        let rest = live(&without(&rows, |_, id| id.starts_with("gone")));
        assert_same(&grown, &rest);
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("base");
        grown.compact(&dir, None).unwrap();
        assert!(!holds(&dir, "gone") && holds(&dir, "last"));
        assert_same(&grown, &rest);
        // It can come again.
        grown.append(&[payment("gone payment", 45)]).unwrap();
        assert!(grown.node(&key("payment:gone payment"), 9).unwrap().relations.is_empty());
    }
    assert!(live(&batches(0, 3).concat()).forget(&key("nothing:x")).is_err());
}

#[test]
fn what_is_older_than_is_kept_leaves_graph_and_files() {
    for seed in 0..4 {
        let batches = batches(seed, 12);
        let rows = batches.concat();
        let grown = live(&batches[..6].concat());
        append_all(&grown, &batches[6..]);
        let old: HashSet<&str> = rows
            .iter()
            .filter_map(|row| match row {
                Row::Node(row) if row.time.is_some_and(|time| time < 55) => Some(row.id.as_str()),
                _ => None,
            })
            .collect();
        assert_eq!((grown.drop_before(55), grown.drop_before(55)), (old.len(), 0));
        let rest = live(&without(&rows, |node_type, id| node_type == PAYMENT && old.contains(id)));
        assert_same(&grown, &rest);
        let error = grown.append(&[payment("old", 54)]).unwrap_err().to_string();
        assert!(error.contains("a time from 55 on"), "{error}");
        let parent = tempfile::tempdir().unwrap();
        grown.compact(&parent.path().join("base"), None).unwrap();
        assert_same(&grown, &rest);
    }
}

#[test]
fn memory_stays_as_it_is_while_events_come_and_go() {
    let grown = live(&batches(0, 3).concat());
    let parent = tempfile::tempdir().unwrap();
    let sizes = (0..6i64).map(|round| {
        let first = 100 * round;
        for at in first..first + 100 {
            let id = format!("round {at:09}");
            let customer = format!("c{}", at % 7);
            grown.append(&[payment(&id, 200 + at), edge(0, &customer, &id), edge(1, "t", &id)]).unwrap();
        }
        grown.drop_before(200 + first);
        let full = grown.stats().appended_bytes;
        grown.compact(&parent.path().join(round.to_string()), None).unwrap();
        let stats = grown.stats();
        assert!(stats.appended_bytes < full);
        (stats.nodes.iter().map(|count| count.base).collect::<Vec<_>>(), stats.appended_bytes)
    });
    let sizes: Vec<_> = sizes.collect();
    assert!(sizes[1..].iter().all(|size| *size == sizes[1]), "{sizes:?}");
    assert_eq!(sizes[1].0[PAYMENT], 100);
}

#[test]
fn readers_see_a_batch_as_a_whole_or_not_at_all_while_the_graph_grows_and_is_compacted() {
    const OF_BATCH: usize = 4;
    let grown = live(&[payment("p", 40), edge(0, "other", "p"), edge(1, "t", "p")]);
    let parent = tempfile::tempdir().unwrap();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for batch in 0..60usize {
                let rows = (0..OF_BATCH).flat_map(|at| {
                    let id = format!("b{batch} {at}");
                    [payment(&id, 50 + (4 * batch + at) as i64), edge(0, "c", &id), edge(1, "t", &id)]
                });
                grown.append(&rows.collect::<Vec<_>>()).unwrap();
            }
        });
        let compactor = scope.spawn(|| {
            for at in 0..3 {
                grown.compact(&parent.path().join(at.to_string()), None).unwrap();
            }
        });
        let reader = || {
            let mut seen = 0;
            while seen < 60 * OF_BATCH {
                let Some(node) = grown.node(&key("customer:c"), 1) else { continue };
                let count = node.relations[0].neighbours;
                assert!(count.is_multiple_of(OF_BATCH) && count >= seen, "{count} after {seen}");
                seen = count;
                let latest = grown.part(&[node.neighbours[0].node.clone()], &[], &whole()).unwrap();
                assert!(latest.dataset.graph.num_edges() >= 2);
            }
        };
        let readers = [scope.spawn(reader), scope.spawn(reader)];
        readers.into_iter().for_each(|reader| reader.join().unwrap());
        writer.join().unwrap();
        compactor.join().unwrap();
    });
    assert_eq!(grown.stats().nodes[PAYMENT].base + grown.stats().nodes[PAYMENT].appended, 1 + 60 * OF_BATCH);
}

#[test]
fn labels_come_later_and_rows_of_the_last_refresh_stay_known() {
    let batches = batches(2, 8);
    let grown = live(&batches[..4].concat());
    append_all(&grown, &batches[4..6]);
    grown.append(&[payment("late", 50), edge(0, "c", "late")]).unwrap();
    for id in ["payment:p0", "payment:late"] {
        let time = grown.node(&key(id), 0).unwrap().time.unwrap();
        assert!(grown.set_label(&key(id), 1, time - 1).is_err() && grown.set_label(&key(id), 2, time).is_err());
        grown.set_label(&key(id), 0, time + 9).unwrap();
        let node = grown.node(&key(id), 0).unwrap();
        assert_eq!((node.label, node.known), (Some(0), Some(time + 9)));
    }
    assert!(grown.set_label(&key("payment:none"), 1, 99).is_err());
    let refreshed = |id: &str| {
        let part = grown.part(&[key(id)], &[], &Draw { hops: 0, ..whole() }).unwrap();
        part.refreshed[part.targets[0] as usize]
    };
    let before = refreshed("payment:p0");
    assert!(before.is_some() && refreshed("payment:late").is_none());
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("base");
    let Compacted { generation, .. } = grown.compact(&dir, None).unwrap();
    assert_eq!([refreshed("payment:p0"), refreshed("payment:late")], [before, None]);
    assert_eq!(grown.node(&key("payment:late"), 0).unwrap().label, Some(0));
    let again = Live::open(Dataset::open(&dir).unwrap(), independent()).unwrap();
    again.restore(&dir).unwrap();
    let part = again.part(&[key("payment:p0")], &[], &whole()).unwrap();
    assert_eq!(part.refreshed[part.targets[0] as usize], before);
    assert!(!grown.is_refreshed());
    assert!(grown.refreshed(generation) && !grown.refreshed(generation - 1) && grown.is_refreshed());
    assert!(refreshed("payment:late").is_some());
    // So is a base that has the same nodes.
    grown.compact(&parent.path().join("next"), None).unwrap();
    assert!(!grown.is_refreshed() && refreshed("payment:late").is_some());
}

/// Users who buy things over time, and both directions.
fn bought(rows: &[(u32, u32, i64)]) -> Dataset {
    let counts = [4usize, 3];
    let lists = |at: usize| {
        let mut lists = vec![Vec::new(); counts[at]];
        rows.iter().for_each(|&(user, thing, _)| {
            let ends = [user, thing];
            lists[ends[at] as usize].push(ends[1 - at]);
        });
        let mut row_ptr = vec![0u64];
        lists.iter().for_each(|list| row_ptr.push(row_ptr[row_ptr.len() - 1] + list.len() as u64));
        Adjacency::new(row_ptr, lists.concat(), counts[1 - at]).unwrap()
    };
    let mut by_thing = rows.to_vec();
    by_thing.sort_by_key(|&(_, thing, _)| thing);
    let spec = |name: &str, src, dst, primary, adjacency| RelationSpec {
        name: name.into(),
        src,
        dst,
        stream: "buys".into(),
        primary,
        adjacency,
    };
    let specs = vec![spec("buys", 0, 1, true, lists(1)), spec("buys_T", 1, 0, false, lists(0))];
    let types = vec![("user".into(), counts[0]), ("thing".into(), counts[1])];
    let graph = HeteroGraph::with_reverse_relations(types, specs, |_| true).unwrap();
    let time = Some(Values::Made(by_thing.iter().map(|&(.., time)| time).collect()));
    let edge_values = vec![EdgeValues { relation: "buys".into(), weight: None, time, columns: None }];
    let mut dataset = Dataset { edge_values, ..Dataset::new(graph, None, None, None) };
    dataset.load_ages("model.time_encoding").unwrap();
    dataset
}

#[test]
fn edges_with_times_of_their_own_have_the_ages_of_the_whole_graph_and_leave_when_they_are_old() {
    let all = [(0, 0, 5), (1, 0, 6), (0, 1, 7), (2, 0, 9), (0, 0, 12), (3, 2, 13), (1, 0, 20)];
    let row = |&(user, thing, time): &(u32, u32, i64)| {
        let (src, dst) = (user.to_string(), thing.to_string());
        Row::Edge(EdgeRow { relation: 0, src, dst, weight: None, time: Some(time), values: Vec::new() })
    };
    let derived = Independent { columns: 0, history: 0 };
    let open = |rows: &[(u32, u32, i64)]| Live::open(bought(rows), derived).unwrap();
    let ages = |live: &Live, id: &str| {
        let part = live.part(&[key(id)], &[], &Draw { hops: 2, ..whole() }).unwrap();
        let of = part.dataset.graph.relations().iter().map(|of| of.ages_of_edges().unwrap().values().to_vec());
        let times = part.dataset.edge_times("buys").unwrap().map(|times| times.into_owned());
        (part.dataset.ids.clone().unwrap(), of.collect::<Vec<_>>(), times)
    };
    let grown = open(&all[..4]);
    grown.append(&all[4..].iter().map(row).collect::<Vec<_>>()).unwrap();
    let whole = open(&all);
    for id in ["user:0", "user:1", "thing:0", "thing:2"] {
        assert_eq!(ages(&grown, id), ages(&whole, id));
    }
    assert_eq!(ages(&grown, "thing:0").1[0][0], 15.0);
    assert_eq!(grown.append(&[row(&all[5])]).unwrap(), Appended { repeated: 1, ..Appended::default() });
    grown.drop_before(7);
    let rest = open(&all[2..]);
    assert_eq!(ages(&grown, "thing:0"), ages(&rest, "thing:0"));
    let parent = tempfile::tempdir().unwrap();
    grown.compact(&parent.path().join("base"), None).unwrap();
    assert_eq!(ages(&grown, "thing:0"), ages(&rest, "thing:0"));
}
