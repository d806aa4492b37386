//! What is known of the labels of neighbours: how many, and which share of them is anomalous.

use rayon::prelude::*;

use super::columns::{Block, Column};
use super::view::views;
use crate::config::NeighbourhoodConfig;
use crate::error::Result;
use crate::graph::HeteroGraph;

/// Hops beyond which walks reach most labels from most nodes.
const MOST_HOPS: usize = 2;

/// A label that is known, and the fold that it is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoldedLabel {
    pub node: u32,
    /// 1 for anomalous, 0 for normal.
    pub label: u8,
    pub fold: u32,
}

/// Columns of known labels among the ends of walks of 1 and, with `config.hops` above 1, of 2 edges, over each graph
/// that `config` makes blocks over: `label_share1`, the share of anomalous ones, NaN where no label is known, and
/// `label_count1`, how many are known. An end counts as often as walks lead there.
///
/// A node with a label sees those of all folds but its own: its own label and those of its fold reach it on no walk,
/// however long. Every other node sees the labels of all folds; its count is multiplied by `(folds - 1) / folds`, so
/// that it means the same for both. The values are `[nodes, columns]`, row-major.
///
/// # Errors
/// As for [`Neighbourhood::new`](super::Neighbourhood::new).
pub fn label_shares(
    graph: &HeteroGraph,
    config: &NeighbourhoodConfig,
    labels: &[FoldedLabel],
    folds: u32,
) -> Result<(Vec<Column>, Vec<f32>)> {
    let (nodes, folds) = (graph.num_nodes(), folds as usize);
    // By node, then by fold: anomalous ones, and all that are known.
    let mut start = vec![[0f64; 2]; nodes * folds];
    let mut fold_of = vec![None; nodes];
    for &FoldedLabel { node, label, fold } in labels {
        start[node as usize * folds + fold as usize] = [f64::from(label), 1.0];
        fold_of[node as usize] = Some(fold as usize);
    }
    let over = NeighbourhoodConfig { mean: true, ..config.clone() };
    let views: Vec<_> = views(graph, &over)?.into_iter().filter(|view| view.in_blocks).collect();
    let hops = config.hops.min(MOST_HOPS);
    let (mut columns, width) = (Vec::new(), 2 * hops * views.len());
    let mut values = vec![0f32; nodes * width];
    for view in &views {
        let mut sums = start.clone();
        for hop in 1..=hops {
            let mut next = vec![[0f64; 2]; nodes * folds];
            let of_node = |neighbours: &mut Vec<u32>, (node, next): (usize, &mut [[f64; 2]])| {
                view.neighbours(node, neighbours);
                for &neighbour in neighbours.iter() {
                    let there = &sums[neighbour as usize * folds..][..folds];
                    next.iter_mut().zip(there).for_each(|(sum, there)| {
                        sum.iter_mut().zip(there).for_each(|(sum, there)| *sum += there);
                    });
                }
            };
            next.par_chunks_exact_mut(folds).enumerate().with_min_len(64).for_each_init(Vec::new, of_node);
            sums = next;
            let first = columns.len();
            values.par_chunks_exact_mut(width).enumerate().for_each(|(node, row)| {
                let seen = sums[node * folds..][..folds].iter().enumerate();
                let seen = seen.filter(|(fold, _)| fold_of[node] != Some(*fold)).map(|(_, sum)| sum);
                let [anomalous, known] = seen.fold([0.0; 2], |all, sum| [all[0] + sum[0], all[1] + sum[1]]);
                let as_of_some = if fold_of[node].is_some() { 1.0 } else { (folds - 1) as f64 / folds as f64 };
                row[first] = if known > 0.0 { (anomalous / known) as f32 } else { f32::NAN };
                row[first + 1] = (known * as_of_some) as f32;
            });
            let column = |what: &str| Column::new(format!("{}label_{what}{hop}", view.prefix), Block::Labels);
            columns.extend(["share", "count"].map(column));
        }
    }
    Ok((columns, values))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Over;
    use crate::graph::{Adjacency, RelationSpec};

    /// 0-1, 0-2, 0-3 and 3-4 in both directions, and a loop at 1.
    fn graph() -> HeteroGraph {
        let pairs = [(0, 1), (0, 2), (0, 3), (3, 4)];
        let edges: Vec<(u32, u32)> = pairs.iter().flat_map(|&(a, b)| [(a, b), (b, a)]).chain([(1, 1)]).collect();
        let adjacency = Adjacency::from_edges(6, 6, &edges);
        let edge = RelationSpec::new("edge", 0, 0, adjacency);
        HeteroGraph::new(vec![("node".into(), 6)], vec![edge]).unwrap()
    }

    fn shares(labels: &[(u32, u8, u32)], over: Over) -> (Vec<String>, Vec<Vec<f32>>) {
        let labels: Vec<_> = labels.iter().map(|&(node, label, fold)| FoldedLabel { node, label, fold }).collect();
        let config = NeighbourhoodConfig { over, ..Default::default() };
        let (columns, values) = label_shares(&graph(), &config, &labels, 2).unwrap();
        (columns.iter().map(|c| c.name.clone()).collect(), values.chunks(columns.len()).map(Vec::from).collect())
    }

    #[test]
    fn shares_and_counts_are_those_of_the_other_folds() {
        let (names, rows) = shares(&[(1, 1, 0), (2, 0, 1), (3, 1, 1), (4, 0, 0)], Over::Union);
        assert_eq!(names, ["label_share1", "label_count1", "label_share2", "label_count2"]);
        // Node 0 has no label: its neighbours 1, 2 and 3 do, of which half of the folds would be seen.
        assert_eq!(rows[0][..2], [2.0 / 3.0, 1.5]);
        // Its walks of two edges end at 1 (by the loop) and 4.
        assert_eq!(rows[0][2..], [0.5, 1.0]);
        // Node 1 is in fold 0: of its neighbours 0 and itself no label of fold 1 is known, over two edges 2 and 3 are.
        assert!(rows[1][0].is_nan() && rows[1][1] == 0.0);
        assert_eq!(rows[1][2..], [0.5, 2.0]);
        assert!(rows[5].iter().step_by(2).all(|share| share.is_nan()), "no neighbours");
        let (names, of_relations) = shares(&[(1, 1, 0), (2, 0, 1), (3, 1, 1), (4, 0, 0)], Over::Relations);
        assert_eq!(names[0], "edge.label_share1");
        assert_eq!(of_relations[0], rows[0]);
    }

    #[test]
    fn no_label_changes_a_row_of_its_own_node_or_fold() {
        let labels = [(0, 0, 1), (1, 1, 0), (2, 0, 1), (3, 1, 1), (4, 0, 0)];
        let bits = |labels: &[(u32, u8, u32)]| -> Vec<Vec<u32>> {
            let rows = shares(labels, Over::Both).1;
            rows.into_iter().map(|row| row.into_iter().map(f32::to_bits).collect()).collect()
        };
        let before = bits(&labels);
        for at in 0..labels.len() {
            let mut other = labels;
            other[at].1 = 1 - other[at].1;
            let after = bits(&other);
            for (node, _, fold) in labels {
                assert!(fold != labels[at].2 || after[node as usize] == before[node as usize], "{at}: node {node}");
            }
            assert_ne!(before, after, "somebody sees it");
        }
    }
}
