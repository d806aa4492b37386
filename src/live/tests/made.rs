//! What is made of a node is good for as long as it would be made again.

use super::*;

/// Numbers that tell what is around a node.
fn row_of(part: &Part) -> Vec<f32> {
    let hash = draw::hash_of(&told(part));
    (0..4).map(|at| f32::from((hash >> (16 * at)) as u16)).collect()
}

fn name_of(part: &Part, node: u32) -> String {
    let graph = &part.dataset.graph;
    format!("{}:{}", graph.node_types()[graph.type_of(node as usize)].name, part.dataset.id_of(node))
}

fn names_of(part: &Part, nodes: &[u32]) -> HashSet<String> {
    nodes.iter().map(|&node| name_of(part, node)).collect()
}

/// The rows that can be appended: what refers to payments that are gone cannot.
fn fit(live: &Live, batch: &[Row]) -> Vec<Row> {
    let is_new = |id: &str| batch.iter().any(|row| matches!(row, Row::Node(node) if node.id == id));
    let is_there = |id: &str| live.part(&[key(&format!("payment:{id}"))], &[], &whole()).is_ok();
    let fits = |row: &&Row| match row {
        Row::Edge(edge) if edge.relation == REFERS => is_new(&edge.src) || is_there(&edge.src),
        _ => true,
    };
    batch.iter().filter(fits).cloned().collect()
}

/// Looks at all payments, makes what is not kept, and says how often something was kept.
fn look(live: &Live, overlay: &[Row]) -> usize {
    let (near, around) = (Draw { hops: 2, ..whole() }, Around { within: 1, reach: 2 });
    let own = |name: &str| live.part(&[key(name)], overlay, &near).unwrap();
    let mut kept = 0;
    for name in (0..60).map(|at| format!("payment:p{at}")) {
        let Ok(part) = live.part(&[key(&name)], overlay, &Draw { hops: 1, made: Some(around), ..whole() }) else {
            continue;
        };
        for node in part.within(1).into_iter().filter(|&node| part.refreshed[node as usize].is_none()) {
            let name = name_of(&part, node);
            let expected = row_of(&own(&name));
            let row = part.made.get(&node);
            if let Some(known) = row.and_then(MadeRow::get) {
                assert_eq!(known, expected, "{name} of {}", name_of(&part, part.targets[0]));
                kept += 1;
                continue;
            }
            let here = Part { targets: vec![node], ..part.clone() };
            let there = own(&name);
            assert_eq!(names_of(&here, &here.within(2)), names_of(&there, &there.within(2)), "{name}");
            row.iter().for_each(|row| row.put(expected.iter().copied()));
        }
    }
    kept
}

#[test]
fn what_was_made_of_a_node_is_what_would_be_made_of_it_now() {
    for seed in 0..6 {
        let batches = batches(seed, 14);
        let live = live(&batches[..4].concat());
        let parent = tempfile::tempdir().unwrap();
        let mut kept = 0;
        for (at, batch) in batches.iter().enumerate().skip(4) {
            let batch = fit(&live, batch);
            kept += look(&live, &batch);
            live.append(&batch).unwrap();
            kept += look(&live, &[]);
            match at {
                7 => {
                    live.forget(&key("payment:p6")).unwrap();
                }
                8 => drop(live.compact(&parent.path().join("base"), None).unwrap()),
                9 => assert!(live.refreshed(1)),
                11 => {
                    live.forget(&key("customer:c")).unwrap();
                }
                12 => assert!(live.drop_before(50) > 0),
                _ => {}
            }
            kept += look(&live, &[]);
        }
        assert!(kept > 20, "{kept} rows were kept");
    }
}
