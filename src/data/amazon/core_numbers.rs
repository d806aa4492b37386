//! Core numbers of a bipartite graph.

use crate::graph::Adjacency;

/// Core number of every row node and then of every column node: the largest k such that the node belongs to a
/// subgraph in which everyone has at least k neighbours. Peels the node of smallest degree first, in O(nodes + edges).
///
/// `columns` must be the reverse of `rows`.
///
/// # Source
/// Batagelj & Zaveršnik, "An O(m) algorithm for cores decomposition of networks", 2003.
pub(super) fn core_numbers(rows: &Adjacency, columns: &Adjacency) -> (Vec<u32>, Vec<u32>) {
    let num_rows = rows.num_rows();
    let count = num_rows + columns.num_rows();
    let neighbours = |node: usize| match node.checked_sub(num_rows) {
        None => (rows.row(node), num_rows),
        Some(column) => (columns.row(column), 0),
    };
    let mut degree: Vec<u32> = (0..count).map(|node| neighbours(node).0.len() as u32).collect();

    // Nodes sorted by degree; `start[d]` is the first position of degree d, kept true while degrees fall.
    let mut start = vec![0_usize; degree.iter().max().map_or(1, |&max| max as usize + 2)];
    degree.iter().for_each(|&d| start[d as usize + 1] += 1);
    for d in 1..start.len() {
        start[d] += start[d - 1];
    }
    let (mut order, mut place) = (vec![0_usize; count], vec![0_usize; count]);
    let mut next = start.clone();
    for node in 0..count {
        place[node] = next[degree[node] as usize];
        order[place[node]] = node;
        next[degree[node] as usize] += 1;
    }

    for position in 0..count {
        let node = order[position];
        let (list, offset) = neighbours(node);
        for &neighbour in list {
            let neighbour = neighbour as usize + offset;
            if degree[neighbour] <= degree[node] {
                continue;
            }
            // Move the neighbour to the front of its degree class, then shrink the class from the left.
            let class = degree[neighbour] as usize;
            let (from, to) = (place[neighbour], start[class]);
            let displaced = order[to];
            order.swap(from, to);
            (place[displaced], place[neighbour]) = (from, to);
            start[class] = to + 1;
            degree[neighbour] -= 1;
        }
    }
    let of_columns = degree.split_off(num_rows);
    (degree, of_columns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    /// By definition: for every k, delete nodes with fewer than k neighbours until none is left to delete.
    fn by_definition(num_rows: usize, num_cols: usize, edges: &[(u32, u32)]) -> (Vec<u32>, Vec<u32>) {
        let (mut rows, mut cols) = (vec![0; num_rows], vec![0; num_cols]);
        for k in 1.. {
            let mut left: Vec<(u32, u32)> = edges.to_vec();
            loop {
                let degree = |f: &dyn Fn(&(u32, u32)) -> bool| left.iter().filter(|e| f(e)).count();
                let keep: Vec<(u32, u32)> = left
                    .iter()
                    .filter(|&&(r, c)| degree(&|e| e.0 == r) >= k && degree(&|e| e.1 == c) >= k)
                    .copied()
                    .collect();
                if keep.len() == left.len() {
                    break;
                }
                left = keep;
            }
            if left.is_empty() {
                return (rows, cols);
            }
            for &(r, c) in &left {
                (rows[r as usize], cols[c as usize]) = (k as u32, k as u32);
            }
        }
        unreachable!("some k exceeds every degree")
    }

    #[test]
    fn peeling_agrees_with_the_definition_on_random_graphs() {
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        for round in 0..30 {
            let (num_rows, num_cols) = (rng.random_range(1..12), rng.random_range(1..12));
            let mut edges: Vec<(u32, u32)> = (0..round * 3)
                .map(|_| (rng.random_range(0..num_rows) as u32, rng.random_range(0..num_cols) as u32))
                .collect();
            edges.sort_unstable();
            edges.dedup();
            let rows = Adjacency::from_edges(num_rows, num_cols, &edges);
            assert_eq!(core_numbers(&rows, &rows.reverse()), by_definition(num_rows, num_cols, &edges));
        }
    }

    #[test]
    fn a_complete_part_with_a_tail_has_two_levels() {
        // Users 0..3 all bought products 0..3; user 3 bought product 3 only; product 4 was bought by nobody.
        let mut edges: Vec<(u32, u32)> = (0..3).flat_map(|u| (0..3).map(move |p| (u, p))).collect();
        edges.extend([(3, 3), (0, 3)]);
        let rows = Adjacency::from_edges(4, 5, &edges);
        assert_eq!(core_numbers(&rows, &rows.reverse()), (vec![3, 3, 3, 1], vec![3, 3, 3, 1, 0]));
    }
}
