//! What is made of a node is good for as long as it would be made again.

use super::*;

/// Numbers that tell what is around a node, but for labels, which no network here reads.
fn row_of(part: &Part) -> Vec<f32> {
    let mut part = part.clone();
    part.dataset.labels = None;
    part.dataset.events.iter_mut().for_each(|events| events.known.clear());
    let hash = draw::hash_of(&told(&part));
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

/// Looks at all payments as so many networks behind embeddings do, makes what is not kept, and says how often something
/// was kept.
fn look(live: &Live, overlay: &[Row], networks: usize) -> usize {
    let makes = Makes { embeddings: Some(Around { within: 1, reach: 2 }), networks };
    let draw = Draw { hops: if networks > 0 { 2 } else { 1 }, makes, ..whole() };
    let own = |name: &str, hops| live.part(&[key(name)], overlay, &Draw { hops, ..whole() }).unwrap();
    let mut kept = 0;
    for name in (0..60).map(|at| format!("payment:p{at}")) {
        let Ok(part) = live.part(&[key(&name)], overlay, &draw) else { continue };
        let row = |node: u32, layer: Layer| part.made.get(&node).and_then(|rows| rows.get(layer));
        let keep = |node: u32, layer: Layer, made: &[f32]| {
            part.made.get(&node).into_iter().for_each(|rows| rows.put(layer, made));
        };
        // What is kept would be made now, and of the rest everything is there that it is made of.
        let hidden = |node: u32, layer: Layer| -> usize {
            let name = name_of(&part, node);
            let there = own(&name, 1);
            if let Some(known) = row(node, layer) {
                assert_eq!(known, row_of(&there), "{layer:?} of {name} around {}", name_of(&part, part.targets[0]));
                return 1;
            }
            assert_eq!(names_of(&part, &part.around(&[node], 1)), names_of(&there, &there.within(1)), "{name}");
            keep(node, layer, &row_of(&there));
            0
        };
        for node in part.within(1) {
            kept += (0..networks).map(|at| hidden(node, Layer::Network(at))).sum::<usize>();
            if part.refreshed[node as usize].is_some() {
                continue;
            }
            let expected = row_of(&own(&name_of(&part, node), 2));
            match row(node, Layer::Embedding) {
                Some(known) => {
                    assert_eq!(known, expected, "{} around {}", name_of(&part, node), name_of(&part, part.targets[0]));
                    kept += 1;
                }
                None => {
                    kept += part.around(&[node], 1).into_iter().map(|at| hidden(at, Layer::Encoder)).sum::<usize>();
                    keep(node, Layer::Embedding, &expected);
                }
            }
        }
    }
    kept
}

#[test]
fn what_was_made_of_a_node_is_what_would_be_made_of_it_now() {
    for (seed, networks) in (0..6).map(|seed| (seed, seed as usize % 3)) {
        let batches = batches(seed, 14);
        let live = live(&batches[..4].concat());
        let parent = tempfile::tempdir().unwrap();
        let mut kept = 0;
        for (at, batch) in batches.iter().enumerate().skip(4) {
            let batch = fit(&live, batch);
            kept += look(&live, &batch, networks);
            live.append(&batch).unwrap();
            kept += look(&live, &[], networks);
            match at {
                6 => live.set_label(&key("payment:p3"), 1, 1000).unwrap(),
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
            kept += look(&live, &[], networks);
        }
        assert!(kept > 20, "{kept} rows were kept");
    }
}
