//! Relations whose rows are spans, and their union.

use super::*;

/// Cards 0-2 and payments 3-9; each payment has the earlier ones of its card, two at most, as a span.
fn histories() -> HeteroGraph {
    let of_card = [0, 0, 1, 0, 1, 0, 1];
    let order = vec![0, 1, 3, 5, 2, 4, 6];
    let place = |payment: u64| order.iter().position(|&at| at == payment as u32).unwrap() as u64;
    let end: Vec<u64> = (0..7).map(place).collect();
    let first = |payment: usize| if of_card[payment] == 0 { 0 } else { 4 };
    let start = (0..7).map(|payment| end[payment].saturating_sub(2).max(first(payment))).collect();
    let earlier = Adjacency::from_spans(start, end, order, 7).unwrap();
    let paid: Vec<(u32, u32)> = of_card.iter().zip(0..).map(|(&card, payment)| (payment, card)).collect();
    let types = vec![("card".into(), 3), ("payment".into(), 7)];
    let relations =
        vec![relation("paid", [0, 1], Adjacency::from_edges(7, 3, &paid)), relation("earlier", [1, 1], earlier)];
    HeteroGraph::new(types, relations).unwrap()
}

/// All values, row by row.
fn all_of(table: &FeatureTable) -> Vec<f32> {
    (0..table.num_rows()).flat_map(|node| table.row(node)).collect()
}

#[test]
fn a_relation_of_spans_has_a_view_of_spans_and_the_columns_of_lists() {
    let spans = histories();
    let types = spans.node_types().iter().map(|t| (t.name.clone(), t.count)).collect();
    let lists = spans.relations().iter().map(|r| relation(&r.name, [r.src, r.dst], r.forward.expanded())).collect();
    let lists = HeteroGraph::new(types, lists).unwrap();
    let values = (0..20).map(|at| ((at * 7) % 11) as f32 / 4.0 - 1.0).collect();
    let features = Features::from_f32(values, 10, 2);
    for over in [Over::Union, Over::Relations, Over::Both] {
        let config = NeighbourhoodConfig { max: true, sum: true, over, ..NeighbourhoodConfig::default() };
        let [of_spans, of_lists] = [&spans, &lists].map(|graph| {
            let plan = Neighbourhood::new(graph, &features, &config).unwrap();
            let shared = plan.views.iter().filter(|view| view.plus.iter().any(Adjacency::is_spans)).count();
            let expected = if over == Over::Relations { 1 } else { 2 };
            assert_eq!(shared, if std::ptr::eq(graph, &spans) { expected } else { 0 }, "{over:?}");
            plan.table::<Flex>(&FlexDevice, Execution::default()).unwrap()
        });
        assert_eq!(of_spans.columns(), of_lists.columns());
        let differ = |(a, b): (&f32, &f32)| (a - b).abs() > 1e-6 * b.abs().max(1.0);
        assert!(!all_of(&of_spans).iter().zip(&all_of(&of_lists)).any(differ), "{over:?}");
    }
    let raw = NeighbourhoodConfig { raw: true, ..NeighbourhoodConfig::none() };
    assert!(Neighbourhood::new(&spans, &features, &raw).unwrap().views.is_empty(), "nothing looks at an edge");
}

/// Payments in the order of time; payment `i` has the earlier ones of the same `i % of` as a span, `most` at most.
fn same(name: &str, payments: usize, of: usize, most: usize) -> RelationSpec {
    let order: Vec<u32> = (0..of).flat_map(|key| (key..payments).step_by(of)).map(|at| at as u32).collect();
    let mut place = vec![0; payments];
    order.iter().enumerate().for_each(|(at, &payment)| place[payment as usize] = at);
    let span = |payment: usize| (place[payment] - most.min(payment / of), place[payment]);
    let (start, end) = (0..payments).map(span).map(|(start, end)| (start as u64, end as u64)).unzip();
    relation(name, [0, 0], Adjacency::from_spans(start, end, order, payments).unwrap())
}

#[test]
fn a_union_of_histories_has_the_columns_of_a_dense_loop_and_no_list_of_its_edges() {
    // Two of the last list's edges are in a history, too, one is the other way round, and one is a loop.
    let others = Adjacency::from_edges(30, 30, &[(6, 4), (9, 0), (4, 9), (3, 3), (1, 29)]);
    let relations = vec![
        same("card", 30, 2, 30),
        same("shop", 30, 3, 4),
        same("day", 30, 4, 30),
        relation("other", [0, 0], others),
    ];
    let graph = HeteroGraph::new(vec![("payment".into(), 30)], relations).unwrap();
    let names = ["card", "shop", "day", "other"];
    for self_loops in [false, true] {
        let all = dense(&graph, &names, self_loops);
        let mut want = expected(&all, &features(30, 3).1, "", 2);
        want.push(degrees("", &all));
        want.extend(names.map(|name| degrees(&format!("{name}."), &dense(&graph, &[name], self_loops))));
        let config = NeighbourhoodConfig { self_loops, ..everything(Over::Union) };
        check(&graph, &config, DType::F32, &want);
        check(&graph, &config, DType::F16, &want);
        let (x, _) = features(30, 3);
        let plan = Neighbourhood::new(&graph, &x, &config).unwrap();
        let [lists, spans] = [false, true]
            .map(|of| plan.views[0].plus.iter().filter(|adjacency| adjacency.is_spans() == of).collect::<Vec<_>>());
        // Edges of the last list that are in no history, and the loops.
        assert_eq!(lists[0].num_edges(), if self_loops { 32 } else { 3 });
        // What all three have in common is there once more, and what two have is taken off.
        assert_eq!((lists.len(), spans.len(), plan.views[0].minus.len()), (1, 4, 3));
        let mut neighbours = Vec::new();
        for (node, row) in all.iter().enumerate() {
            plan.views[0].neighbours(node, &mut neighbours);
            let want: Vec<u32> = (0..30).filter(|&j| row[j as usize] > 0.0).collect();
            assert_eq!((&neighbours, plan.views[0].num_neighbours(node)), (&want, want.len()));
        }
    }
}

#[test]
fn values_that_are_missing_are_left_out_of_a_union_of_histories_as_of_lists() {
    let relations = || vec![same("card", 30, 2, 30), same("shop", 30, 3, 4)];
    let listed = relations().into_iter().map(|spec| RelationSpec { adjacency: spec.adjacency.expanded(), ..spec });
    let value = |at: usize| if at.is_multiple_of(3) || at < 12 { f32::NAN } else { (at % 7) as f32 - 2.5 };
    let x = Features::from_f32((0..60).map(value).collect(), 30, 2);
    let config = NeighbourhoodConfig { quantiles: vec![0.5], ..everything(Over::Union) };
    let [spans, lists] = [relations(), listed.collect()].map(|relations| {
        let graph = HeteroGraph::new(vec![("payment".into(), 30)], relations).unwrap();
        Neighbourhood::new(&graph, &x, &config).unwrap().table::<Flex>(&FlexDevice, Execution::default()).unwrap()
    });
    let missing = all_of(&spans).iter().filter(|value| value.is_nan()).count();
    assert!(missing > 40, "{missing}");
    let same = |(a, b): (&f32, &f32)| a.is_nan() && b.is_nan() || (a - b).abs() <= 1e-5 * b.abs().max(1.0);
    assert!(all_of(&spans).iter().zip(&all_of(&lists)).all(same));
}

#[test]
fn a_union_of_more_edges_than_can_be_listed_has_its_degrees() {
    // 37 billion edges, 30 billion without repetitions.
    let payments = 300_000;
    let relations = vec![same("card", payments, 2, payments), same("shop", payments, 3, payments)];
    let graph = HeteroGraph::new(vec![("payment".into(), payments)], relations).unwrap();
    assert!(graph.num_edges() > 37_000_000_000);
    let x = Features::from_f32(vec![0.0; payments], payments, 1);
    let config = NeighbourhoodConfig { log_degree: true, ..NeighbourhoodConfig::none() };
    let plan = Neighbourhood::new(&graph, &x, &config).unwrap();
    let parts = || plan.views[0].plus.iter().chain(&plan.views[0].minus);
    assert!(parts().count() == 3 && parts().all(|adjacency| adjacency.num_words() <= 3 * payments));
    let table = plan.table::<Flex>(&FlexDevice, Execution::default()).unwrap();
    let at = table.columns().iter().position(|column| column.name == "log_degree").unwrap();
    for payment in (0..payments).step_by(997) {
        let degree = payment / 2 + payment / 3 - payment / 6;
        assert_eq!(table.row(payment)[at], (degree as f32).ln_1p());
    }
}
