use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

fn edges_of(adjacency: &Adjacency) -> Vec<(u32, u32)> {
    (0..adjacency.num_rows()).flat_map(|i| adjacency.row(i).iter().map(move |&col| (i as u32, col))).collect()
}

#[test]
fn from_edges_sorts_rows_and_drops_duplicates() {
    let adjacency = Adjacency::from_edges(4, 3, &[(2, 1), (0, 2), (2, 0), (0, 2), (2, 2)]);
    assert_eq!(adjacency.rows(), Rows::Lists { row_ptr: &[0, 1, 1, 4, 4] });
    assert_eq!(adjacency.col_idx(), [2, 0, 1, 2]);
    assert_eq!((adjacency.num_rows(), adjacency.num_cols(), adjacency.num_edges()), (4, 3, 4));
    assert_eq!((adjacency.degree(1), adjacency.degree(2), adjacency.row(2)), (0, 3, &[0, 1, 2][..]));
}

#[test]
#[should_panic(expected = "column 3 is out of range")]
fn from_edges_panics_on_a_column_out_of_range() {
    Adjacency::from_edges(1, 3, &[(0, 3)]);
}

#[test]
fn the_row_of_an_edge_is_not_an_empty_one() {
    let adjacency = Adjacency::from_edges(6, 9, &[(1, 0), (1, 8), (4, 3)]);
    assert_eq!([0, 1, 2].map(|e| adjacency.edge(e)), [(1, 0), (1, 8), (4, 3)]);
}

#[test]
fn new_names_the_first_broken_place() {
    use AdjacencyError::*;
    let build = |row_ptr: &[u64], col_idx: &[u32]| Adjacency::new(row_ptr.to_vec(), col_idx.to_vec(), 3);
    assert_eq!(build(&[], &[]), Err(Empty));
    assert_eq!(build(&[1, 2], &[0, 1]), Err(FirstNotZero { found: 1 }));
    assert_eq!(build(&[0, 2, 1, 2], &[0, 1]), Err(Decreasing { row: 1, start: 2, end: 1 }));
    assert_eq!(build(&[0, 1, 3], &[0, 1]), Err(Overrun { end: 3, entries: 2 }));
    let bad = ColumnOutOfRange { entry: 2, col: 3, num_cols: 3 };
    assert_eq!(build(&[0, 1, 1, 4], &[0, 1, 3, 9]), Err(bad));
    assert!(build(&[0], &[]).is_ok());
}

#[test]
fn reverse_of_a_large_graph_with_a_hub_is_sorted_and_complete() {
    // Larger than GRAIN, so that work is split; column 7 is a hub, most rows are empty.
    let edges: Vec<(u32, u32)> = (0..60_000u32)
        .map(|e| (e.wrapping_mul(2_654_435_761) % 70_000, if e % 3 == 0 { 7 } else { e % 501 }))
        .collect();
    let adjacency = Adjacency::from_edges(70_000, 501, &edges);
    let expected: BTreeSet<(u32, u32)> = edges.iter().map(|&(row, col)| (col, row)).collect();
    assert_eq!(edges_of(&adjacency.reverse()), expected.into_iter().collect::<Vec<_>>());
    assert!(adjacency.is_reverse_of(&adjacency.reverse()));
}

#[test]
fn reverse_keeps_repeated_edges() {
    let adjacency = Adjacency::new(vec![0, 2, 3], vec![1, 1, 0], 2).unwrap();
    assert_eq!(edges_of(&adjacency.reverse()), [(0, 1), (1, 0), (1, 0)]);
}

#[test]
fn is_reverse_of_ignores_the_order_inside_rows() {
    let sorted = Adjacency::new(vec![0, 2], vec![0, 1], 2).unwrap();
    let unsorted = Adjacency::new(vec![0, 2], vec![1, 0], 2).unwrap();
    assert!(unsorted.is_reverse_of(&sorted.reverse()));
}

fn graphs() -> impl Strategy<Value = (usize, usize, Vec<(u32, u32)>)> {
    (1..20usize, 1..20usize).prop_flat_map(|(rows, cols)| {
        let edges = prop::collection::vec((0..rows as u32, 0..cols as u32), 0..60);
        (Just(rows), Just(cols), edges)
    })
}

proptest! {
    #[test]
    fn from_edges_holds_the_set_of_edges((rows, cols, edges) in graphs()) {
        let adjacency = Adjacency::from_edges(rows, cols, &edges);
        let set: BTreeSet<_> = edges.into_iter().collect();
        prop_assert_eq!(edges_of(&adjacency), set.into_iter().collect::<Vec<_>>());
        let Rows::Lists { row_ptr } = adjacency.rows() else { panic!("lists") };
        prop_assert_eq!(Adjacency::new(row_ptr.to_vec(), adjacency.col_idx().to_vec(), cols), Ok(adjacency.clone()));
    }

    #[test]
    fn reversing_twice_changes_nothing((rows, cols, edges) in graphs()) {
        let adjacency = Adjacency::from_edges(rows, cols, &edges);
        prop_assert_eq!(adjacency.reverse().reverse(), adjacency);
    }

    #[test]
    fn only_the_exact_reverse_is_a_reverse((rows, cols, edges) in graphs()) {
        let adjacency = Adjacency::from_edges(rows, cols, &edges);
        let reverse = adjacency.reverse();
        prop_assert!(adjacency.is_reverse_of(&reverse) && reverse.is_reverse_of(&adjacency));
        for missing in 0..adjacency.num_edges() {
            let mut fewer = edges_of(&adjacency);
            let (row, col) = fewer[missing];
            fewer[missing] = (row, (col + 1) % cols as u32);
            let other = Adjacency::from_edges(rows, cols, &fewer);
            prop_assert_eq!(other.is_reverse_of(&reverse), other == adjacency);
        }
    }

    #[test]
    fn every_edge_lies_in_its_row((rows, cols, edges) in graphs()) {
        let adjacency = Adjacency::from_edges(rows, cols, &edges);
        for (e, (row, col)) in edges_of(&adjacency).into_iter().enumerate() {
            prop_assert_eq!(adjacency.edge(e), (row as usize, col));
        }
    }
}
