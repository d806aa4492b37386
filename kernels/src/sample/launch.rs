//! Sampling on CubeCL devices.

use burn::tensor::DType;
use burn_backend::tensor::IntTensor;
use burn_cubecl::element::BoolElement;
use burn_cubecl::tensor::CubeTensor;
use burn_cubecl::{CubeBackend, CubeRuntime, FloatElement, IntElement};
use cubecl::prelude::*;

use super::kernel::{
    ask_kernel, count_kernel, draw_kernel, first_kernel, keep_kernel, list_kernel, name_kernel, places_kernel,
    source_kernel, start_kernel,
};
use super::{SampleBackend, SampleStep, SampledParts, Words};
use crate::drop_edge::{DropEdgeKey, DropMode};
use crate::launch::{address, empty, flat};
use crate::prims::Prefix;
use crate::prims::kernel::Counted;
use crate::prims::launch::prefix_sum;

impl<R: CubeRuntime, F: FloatElement, I: IntElement, BT: BoolElement> SampleBackend for CubeBackend<R, F, I, BT> {
    const SAMPLES: bool = true;

    fn sample_relation(step: SampleStep<IntTensor<Self>>) -> SampledParts<IntTensor<Self>> {
        let SampleStep { row_ptr, col_idx, destinations, rows, draw, places, sources, counts, .. } = step;
        let (source_count, edge_count) = (step.source_count, step.edge_count);
        let reach = |words: &Words<CubeTensor<R>>| match words.pinned {
            true => AddressType::U64,
            false => address(&[&words.anchor]),
        };
        let client = destinations.client.clone();
        let words = |len: usize| empty(&destinations, [len], DType::I32);
        let (count, dim) = flat(rows + 1);
        let row_counts = words(rows + 1);
        // SAFETY: the loops end at the rows, which are nodes of the type; a relation has a row pointer for each of them.
        unsafe {
            count_kernel::launch_unchecked::<R>(
                &client,
                count.clone(),
                dim,
                reach(&row_ptr),
                row_ptr.anchor.clone().into_array_arg(),
                row_ptr.delta,
                destinations.clone().into_array_arg(),
                row_counts.clone().into_array_arg(),
                rows,
                draw.fanout.unwrap_or(0),
                draw.fanout.is_none(),
                draw.replace,
            );
        }
        let starts = prefix_sum(&row_counts, Counted::Value, Prefix::Exclusive);
        let len = match draw.fanout {
            Some(fanout) => rows * fanout as usize,
            // As many as there are: how many, only the device knows.
            None => total(&starts, rows),
        };
        let len = len.max(1);
        let (edges, cols, flags, owners) = (words(len), words(len), words(len + 1), words(len));
        let per_row = flat(rows);
        let (per_entry, entry_dim) = flat(len + 1);
        let mode = DropMode::of(&draw.drop_edge);
        // SAFETY: a row has as many entries as its start and the next one are apart, and `len` is not below their sum.
        unsafe {
            draw_kernel::launch_unchecked::<R>(
                &client,
                per_row.0,
                per_row.1,
                reach(&row_ptr),
                row_ptr.anchor.into_array_arg(),
                row_ptr.delta,
                destinations.clone().into_array_arg(),
                starts.clone().into_array_arg(),
                edges.clone().into_array_arg(),
                owners.clone().into_array_arg(),
                rows,
                (draw.key >> 32) as u32,
                draw.key as u32,
                draw.replace && draw.fanout.is_some(),
            );
            source_kernel::launch_unchecked::<R>(
                &client,
                per_entry.clone(),
                entry_dim,
                reach(&col_idx),
                col_idx.anchor.into_array_arg(),
                col_idx.delta,
                starts.clone().into_array_arg(),
                edges.clone().into_array_arg(),
                owners.into_array_arg(),
                cols.clone().into_array_arg(),
                flags.clone().into_array_arg(),
                DropEdgeKey::launch(&draw.drop_edge),
                rows,
                len,
                mode,
            );
        }
        let (starts, edges, cols) = match mode {
            DropMode::KeepAll => (starts, edges, cols),
            _ => {
                let ranks = prefix_sum(&flags, Counted::Value, Prefix::Exclusive);
                let (kept_starts, kept_edges, kept_cols) = (words(rows + 1), words(len), words(len));
                // SAFETY: the ranks are those of the flags of all entries; starts of rows are among them.
                unsafe {
                    keep_kernel::launch_unchecked::<R>(
                        &client,
                        per_entry.clone(),
                        entry_dim,
                        address(&[&edges, &ranks]),
                        ranks.clone().into_array_arg(),
                        edges.into_array_arg(),
                        cols.into_array_arg(),
                        kept_edges.clone().into_array_arg(),
                        kept_cols.clone().into_array_arg(),
                        len,
                    );
                    start_kernel::launch_unchecked::<R>(
                        &client,
                        count.clone(),
                        dim,
                        address(&[&ranks]),
                        ranks.into_array_arg(),
                        starts.into_array_arg(),
                        kept_starts.clone().into_array_arg(),
                        rows,
                    );
                }
                (kept_starts, kept_edges, kept_cols)
            }
        };
        let (count, dim) = (per_entry, entry_dim);
        let narrow = address(&[&cols, &flags, &places]);
        // SAFETY: places are there for every node, and the second loop ends at the length of the flags.
        unsafe {
            ask_kernel::launch_unchecked::<R>(
                &client,
                count.clone(),
                dim,
                narrow,
                cols.clone().into_array_arg(),
                starts.clone().into_array_arg(),
                places.clone().into_array_arg(),
                rows,
            );
            first_kernel::launch_unchecked::<R>(
                &client,
                count.clone(),
                dim,
                narrow,
                cols.clone().into_array_arg(),
                places.clone().into_array_arg(),
                starts.clone().into_array_arg(),
                flags.clone().into_array_arg(),
                rows,
                len,
            );
        }
        let ranks = prefix_sum(&flags, Counted::Value, Prefix::Exclusive);
        // SAFETY: a node is listed once, so there is room for all of them.
        unsafe {
            list_kernel::launch_unchecked::<R>(
                &client,
                count.clone(),
                dim,
                narrow,
                cols.clone().into_array_arg(),
                ranks.clone().into_array_arg(),
                counts.clone().into_array_arg(),
                places.clone().into_array_arg(),
                sources.clone().into_array_arg(),
                source_count,
                len,
            );
            name_kernel::launch_unchecked::<R>(
                &client,
                count,
                dim,
                narrow,
                cols.clone().into_array_arg(),
                places.clone().into_array_arg(),
                starts.clone().into_array_arg(),
                ranks.into_array_arg(),
                counts.clone().into_array_arg(),
                rows,
                len,
                source_count,
                edge_count,
            );
        }
        SampledParts { row_ptr: starts, cols, edges }
    }

    fn set_places(places: &IntTensor<Self>, nodes: &IntTensor<Self>, count: usize, forget: bool) {
        let (cubes, dim) = flat(count);
        // SAFETY: the nodes exist, and the loop ends at their number.
        unsafe {
            places_kernel::launch_unchecked::<R>(
                &places.client,
                cubes,
                dim,
                address(&[places, nodes]),
                nodes.clone().into_array_arg(),
                places.clone().into_array_arg(),
                count,
                forget,
            );
        }
    }
}

/// The number behind the starts of the rows; 0 of a device that has failed, which the next read reports.
fn total<R: CubeRuntime>(starts: &CubeTensor<R>, rows: usize) -> usize {
    let Ok(bytes) = starts.client.read_one(starts.handle.clone()) else { return 0 };
    let words: &[u32] = bytemuck::cast_slice(&bytes);
    words[rows] as usize
}
