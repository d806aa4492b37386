use proptest::prelude::*;

use crate::graph::{Adjacency, AdjacencyError, Rows};

fn edges_of(adjacency: &Adjacency) -> Vec<(usize, u32)> {
    (0..adjacency.num_rows()).flat_map(|i| adjacency.row(i).iter().map(move |&col| (i, col))).collect()
}

fn sorted_rows(adjacency: &Adjacency) -> Vec<Vec<u32>> {
    let row = |i: usize| {
        let mut row = adjacency.row(i).to_vec();
        row.sort_unstable();
        row
    };
    (0..adjacency.num_rows()).map(row).collect()
}

/// Any spans of any entries.
fn any_spans() -> impl Strategy<Value = Adjacency> {
    (1..9u32, 0..14usize).prop_flat_map(|(cols, entries)| {
        let span = (0..=entries as u64, 0..=entries as u64).prop_map(|(a, b)| (a.min(b), a.max(b)));
        let col_idx = prop::collection::vec(0..cols, entries);
        (prop::collection::vec(span, 0..12), col_idx).prop_map(move |(spans, col_idx)| {
            let (start, end) = spans.into_iter().unzip();
            Adjacency::from_spans(start, end, col_idx, cols as usize).unwrap()
        })
    })
}

/// The latest earlier ones of the events of some entities: `most` of them, or all.
fn histories() -> impl Strategy<Value = Adjacency> {
    (prop::collection::vec((0..4u32, 0..9i64), 1..40), prop::option::of(0..4usize)).prop_map(|(events, most)| {
        let mut order: Vec<u32> = (0..events.len() as u32).collect();
        order.sort_by_key(|&event| (events[event as usize], event));
        let before = |key: (u32, i64)| order.partition_point(|&event| events[event as usize] < key) as u64;
        let (start, end): (Vec<u64>, Vec<u64>) = events
            .iter()
            .map(|&(entity, time)| {
                let (first, end) = (before((entity, 0)), before((entity, time)));
                (most.map_or(first, |most| first.max(end.saturating_sub(most as u64))), end)
            })
            .unzip();
        Adjacency::from_spans(start, end, order, events.len()).unwrap()
    })
}

proptest! {
    #[test]
    fn spans_are_the_lists_that_they_stand_for(spans in prop_oneof![any_spans(), histories()]) {
        let lists = spans.expanded();
        prop_assert!(spans.is_spans() && !lists.is_spans());
        prop_assert_eq!(spans.num_edges(), lists.num_entries());
        let edges = edges_of(&spans);
        prop_assert_eq!(&edges, &edges_of(&lists));
        for (e, edge) in edges.iter().enumerate() {
            prop_assert_eq!((spans.edge(e), lists.edge(e)), (*edge, *edge));
        }
        prop_assert_eq!(spans.edge_hash(), lists.edge_hash());
        let keep = |row: u32, col: u32| !(row + 2 * col).is_multiple_of(3);
        prop_assert_eq!(spans.filtered(keep), if lists.filtered(keep) == lists { spans.clone() } else { lists.filtered(keep) });
        let key = |col: u32| col * 7 % 5;
        let ascends = (0..lists.num_rows()).all(|row| lists.row(row).is_sorted_by_key(|&col| key(col)));
        prop_assert_eq!((spans.rows_ascend_by(key), lists.rows_ascend_by(key)), (ascends, ascends));
    }

    #[test]
    fn the_reverse_holds_the_same_edges(spans in prop_oneof![any_spans(), histories()]) {
        let (reverse, expected) = (spans.reverse(), spans.expanded().reverse());
        prop_assert_eq!(sorted_rows(&reverse), sorted_rows(&expected));
        prop_assert!(spans.is_reverse_of(&reverse) && reverse.is_reverse_of(&spans) && spans.is_reverse_of(&expected));
        prop_assert_eq!(sorted_rows(&reverse.reverse()), sorted_rows(&spans));
        prop_assert_eq!(spans.is_reverse_of(&spans), sorted_rows(&expected) == sorted_rows(&spans));
    }

    #[test]
    fn the_reverse_of_histories_has_an_entry_per_event_at_most(spans in histories()) {
        let reverse = spans.reverse();
        prop_assert!(reverse.is_spans() && reverse.num_entries() <= spans.num_rows());
        prop_assert!(reverse.reverse().is_spans());
    }

    #[test]
    fn the_part_on_some_nodes_is_that_of_the_lists(
        (spans, rows, cols) in (prop_oneof![any_spans(), histories()], any::<u64>(), any::<u64>())
    ) {
        let kept: Vec<usize> = (0..spans.num_rows()).filter(|&row| rows >> row & 1 == 1).collect();
        let column = |col: u32| (cols >> col & 1 == 1).then(|| (0..col).filter(|&c| cols >> c & 1 == 1).count() as u32);
        let left = (0..spans.num_cols() as u32).filter_map(column).count();
        let part = spans.restricted(kept.iter().copied(), column, left);
        prop_assert!(part.is_spans() && part.num_entries() <= spans.num_entries());
        prop_assert_eq!(edges_of(&part), edges_of(&spans.expanded().restricted(kept.into_iter(), column, left)));
    }

    #[test]
    fn loops_are_counted_once_per_edge(spans in histories()) {
        let shifted = |by: u64| -> Adjacency {
            let Rows::Spans { start, end } = spans.rows() else { panic!("spans") };
            let most = spans.num_entries() as u64;
            let end = end.into_iter().map(|end| (end + by).min(most)).collect();
            Adjacency::from_spans(start.to_vec(), end, spans.col_idx().to_vec(), spans.num_cols()).unwrap()
        };
        for spans in [shifted(0), shifted(1), shifted(3)] {
            let loops = edges_of(&spans).iter().filter(|&&(row, col)| row == col as usize).count();
            prop_assert_eq!((spans.num_loops(), spans.expanded().num_loops()), (loops, loops));
        }
    }
}

#[test]
fn a_source_that_stands_twice_has_a_list_of_rows() {
    let spans = Adjacency::from_spans(vec![0, 1], vec![2, 3], vec![0, 1, 0], 2).unwrap();
    assert_eq!(spans.reverse(), Adjacency::new(vec![0, 2, 4], vec![0, 1, 0, 1], 2).unwrap());
    // The second row lies within the first: the rows that an entry stands in need not be neighbours.
    let nested = Adjacency::from_spans(vec![0, 1, 3], vec![4, 2, 4], vec![0, 1, 2, 3], 4).unwrap();
    assert_eq!(sorted_rows(&nested.reverse()), [vec![0], vec![0, 1], vec![0], vec![0, 2]]);
}

#[test]
fn spans_that_are_none_are_named_by_row() {
    use AdjacencyError::*;
    let build = |start: &[u64], end: &[u64], col_idx: &[u32]| {
        Adjacency::from_spans(start.to_vec(), end.to_vec(), col_idx.to_vec(), 3).map(|made| made.num_edges())
    };
    assert_eq!(build(&[0, 1], &[2, 2], &[0, 1]), Ok(3));
    assert_eq!(build(&[0, 0], &[1], &[0]), Err(LengthsDiffer { starts: 2, ends: 1 }));
    assert_eq!(build(&[0, 2], &[1, 1], &[0, 1]), Err(Decreasing { row: 1, start: 2, end: 1 }));
    assert_eq!(build(&[0, 2], &[1, 3], &[0, 1]), Err(SpanOverrun { row: 1, end: 3, entries: 2 }));
    assert_eq!(build(&[0], &[1], &[0, 3]), Err(ColumnOutOfRange { entry: 1, col: 3, num_cols: 3 }));
    assert_eq!(build(&[], &[], &[]), Ok(0));
}
