//! Node sets on the CPU.

use std::sync::atomic::{AtomicI32, Ordering};

use burn::tensor::ops::IntTensor;
use burn_flex::{Flex, FlexTensor};
use rayon::prelude::*;

use super::{NodeSetBackend, PendingCounts};
use crate::DropEdge;
use crate::graph::csr::View;
use crate::graph::row_entries::RowEntries;
use crate::runtime::flex::{self, ROWS_PER_TASK};

/// Marks that one task counts and lists.
const MARKS_PER_TASK: usize = 1 << 14;

fn ints(values: Vec<i32>) -> FlexTensor {
    let len = values.len();
    flex::int_tensor(values, [len])
}

impl NodeSetBackend for Flex {
    fn node_positions(rows: &IntTensor<Self>, len: usize, num_nodes: usize) -> IntTensor<Self> {
        let mut position = vec![-1i32; num_nodes.max(1)];
        for (k, &node) in flex::ids(rows)[..len].iter().enumerate() {
            position[node as usize] = k as i32;
        }
        ints(position)
    }

    fn mark_nodes(marks: IntTensor<Self>, rows: &IntTensor<Self>, len: usize) -> IntTensor<Self> {
        let mut marks = flex::ids(&marks).to_vec();
        for &node in &flex::ids(rows)[..len] {
            marks[node as usize] = 1;
        }
        ints(marks)
    }

    fn mark_sources(
        marks: IntTensor<Self>,
        view: &View<IntTensor<Self>>,
        drop_edge: Option<DropEdge>,
    ) -> IntTensor<Self> {
        let marks: Vec<AtomicI32> = flex::ids(&marks).iter().map(|&m| AtomicI32::new(m)).collect();
        let row_entries = RowEntries::new(view, drop_edge);
        (0..view.num_rows()).into_par_iter().with_min_len(ROWS_PER_TASK).for_each_init(Vec::new, |sources, r| {
            row_entries.sources(row_entries.node(r), sources);
            for &j in sources.iter() {
                // Every writer writes the same.
                marks[j as usize].store(1, Ordering::Relaxed);
            }
        });
        ints(marks.into_iter().map(AtomicI32::into_inner).collect())
    }

    fn compact_marks(marks: IntTensor<Self>, num_nodes: usize) -> (IntTensor<Self>, IntTensor<Self>, IntTensor<Self>) {
        let marks = &flex::ids(&marks)[..num_nodes];
        let mut next: Vec<i32> = marks.par_chunks(MARKS_PER_TASK).map(|chunk| chunk.iter().sum()).collect();
        let mut total = 0;
        for count in &mut next {
            total += std::mem::replace(count, total);
        }
        let mut position = vec![-1i32; num_nodes.max(1)];
        let lists: Vec<Vec<i32>> = position[..num_nodes]
            .par_chunks_mut(MARKS_PER_TASK)
            .zip(marks.par_chunks(MARKS_PER_TASK))
            .zip(&next)
            .enumerate()
            .map(|(task, ((position, marks), &first))| {
                let mut list = Vec::new();
                for (k, _) in marks.iter().enumerate().filter(|(_, mark)| **mark != 0) {
                    position[k] = first + list.len() as i32;
                    list.push((task * MARKS_PER_TASK + k) as i32);
                }
                list
            })
            .collect();
        let mut rows = lists.concat();
        if rows.is_empty() {
            rows.push(0);
        }
        (ints(rows), ints(position), ints(vec![total]))
    }

    fn begin_counts(counts: Vec<IntTensor<Self>>) -> PendingCounts {
        Box::new(move || counts.iter().map(|count| flex::ids(count)[0]).collect())
    }
}
