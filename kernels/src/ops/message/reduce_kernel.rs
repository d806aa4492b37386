//! A plane per row, per piece of a row, or a team of planes for a long one; lanes own a stretch of channels each, and
//! where these are few, several entries are under way beside each other.

use cubecl::prelude::*;

use super::kernel::{Entry, MessageShape, Operands, message};
use super::{Fold, NO_ENTRY};
use crate::graph::row_schedule::RowSchedule;
use crate::graph::row_schedule::kernel::{
    ColumnPositions, Edges, RowList, col_of, first_work, in_reach, result_of, row_of, span_of, team_rank, work_step,
};
use crate::graph::row_schedule::sums::team_sum;
use crate::runtime::args::{Matrix, Table, launch_args};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ReduceShape {
    pub message: MessageShape,
    /// The edge map has an edge per row, not per entry.
    pub edge_of_row: bool,
    pub fold: Fold,
    /// The result is added to the rows that are there.
    pub accumulate_into: bool,
    /// Lanes side by side on the channels of a row; a power of two that divides the plane.
    pub lanes: usize,
    /// Vectors of a row held by one lane.
    pub slots: usize,
    /// Messages of a lane that are under way at a time.
    pub in_flight: usize,
}

/// Whether `value` of `entry` takes the place of `best` of `held`.
#[cube]
fn is_better(value: f32, entry: u32, best: f32, held: u32, #[comptime] fold: Fold) -> bool {
    let better = match comptime!(fold) {
        Fold::Min => value < best,
        _ => value > best,
    };
    // Of equal values that of the first entry stays, whichever lane meets it.
    let earlier = value == best && entry < held;
    entry != NO_ENTRY && (held == NO_ENTRY || better || earlier)
}

/// Folds a vector into `values[slot]`; `entries` tells which entries its elements came from.
#[cube]
fn fold_into<N: Size>(
    values: &mut Array<Vector<f32, N>>,
    held: &mut Array<Vector<u32, N>>,
    slot: usize,
    other: Vector<f32, N>,
    entries: Vector<u32, N>,
    #[comptime] fold: Fold,
) {
    if comptime!(fold == Fold::Sum) {
        values[slot] += other;
    } else {
        let mut best = values[slot];
        let mut from = held[slot];
        #[unroll]
        for n in 0..best.size() {
            let better = is_better(other[n], entries[n], best[n], from[n], fold);
            best[n] = select(better, other[n], best[n]);
            from[n] = select(better, entries[n], from[n]);
        }
        values[slot] = best;
        held[slot] = from;
    }
}

launch_args! {
    /// The results, and the entries that the best values came from.
    Reduced, ReducedArgs<O: Float, N: Size> {
        values: Matrix<O, N>,
        entries: Array<Vector<u32, N>>,
    }
}

launch_args! {
    /// The vectors of a row, and the pieces that a row is cut into.
    Pieces, PiecesArgs {
        vectors: usize,
        parts: usize,
    }
}

#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn reduce_kernel<F: Float, P: Int, O: Float, N: Size, VA: Size, VB: Size, VC: Size>(
    edges: &Edges<P>,
    edge_map: &Array<P>,
    operands: &Operands<F, N, VA, VB, VC>,
    out: &mut Reduced<O, N>,
    rows: &RowList,
    columns: &ColumnPositions,
    pieces: &Pieces,
    #[comptime] shape: ReduceShape,
    #[comptime] schedule: RowSchedule,
    #[define(F, P, O)] _types: [StorageType; 3],
) {
    let lane = UNIT_POS_X as usize;
    let channel = lane % shape.lanes;
    let beside = comptime!(schedule.plane / shape.lanes);
    let finds_best = comptime!(shape.fold != Fold::Sum);
    let mut shared = SharedMemory::<Vector<f32, N>>::new(comptime!(if schedule.team == 1 {
        1usize
    } else {
        schedule.team * schedule.plane * shape.slots
    }));
    let mut shared_entries = SharedMemory::<Vector<u32, N>>::new(comptime!(if schedule.team == 1 || !finds_best {
        1usize
    } else {
        schedule.team * schedule.plane * shape.slots
    }));
    let none = Vector::<u32, N>::empty().fill(NO_ENTRY);
    let mut work = first_work(schedule);
    while work < rows.end {
        let piece = work / pieces.parts;
        let part = work % pieces.parts;
        let row = row_of(piece, rows, schedule);
        let result = result_of(piece, row, rows, schedule);
        let (first, last) = span_of(edges, row, schedule.spans);
        if result >= 0i32 && in_reach(last - first, schedule) {
            let mut values = Array::<Vector<f32, N>>::new(shape.slots);
            let mut entries = Array::<Vector<u32, N>>::new(shape.slots);
            #[unroll]
            for slot in 0..shape.slots {
                values[slot] = Vector::<f32, N>::empty().fill(0.0f32);
                entries[slot] = none;
            }
            let share = (last - first).div_ceil(pieces.parts);
            let from = first + part * share;
            let to = select(from + share < last, from + share, last);
            let step = comptime!(beside * schedule.team);
            let mut e = from + team_rank(schedule) * beside + lane / shape.lanes;
            while e < to {
                let mut cols = Array::<usize>::new(shape.in_flight);
                let mut nodes = Array::<usize>::new(shape.in_flight);
                let mut edge_ids = Array::<usize>::new(shape.in_flight);
                let mut counts = Array::<bool>::new(shape.in_flight);
                #[unroll]
                for u in 0..shape.in_flight {
                    let there = e + u * step < to;
                    // A missing one repeats an entry that there is.
                    let at = select(there, e + u * step, e);
                    let mut col = 0i32;
                    let mut node = 0usize;
                    if comptime!(shape.message.reads_cols() || schedule.select_cols) {
                        node = usize::cast_from(edges.col_idx[at]);
                        col = col_of(node as u32, there, columns, schedule);
                    }
                    counts[u] = there && col >= 0i32;
                    nodes[u] = node;
                    cols[u] = usize::cast_from(select(col >= 0i32, col, 0i32));
                    let mut edge = at;
                    if shape.message.edge_map {
                        let named = if comptime!(shape.edge_of_row) { row } else { at };
                        edge = usize::cast_from(edge_map[named]);
                    }
                    edge_ids[u] = edge;
                }
                #[unroll]
                for slot in 0..shape.slots {
                    let vector = slot * shape.lanes + channel;
                    let vector = select(vector < pieces.vectors, vector, 0usize);
                    let mut messages = Array::<Vector<f32, N>>::new(shape.in_flight);
                    #[unroll]
                    for u in 0..shape.in_flight {
                        let entry = Entry {
                            row_node: row,
                            col_node: nodes[u],
                            row: usize::cast_from(result),
                            col: cols[u],
                            edge: edge_ids[u],
                        };
                        messages[u] =
                            message::<F, N, VA, VB, VC>(operands, &entry, vector, pieces.vectors, shape.message);
                    }
                    #[unroll]
                    for u in 0..shape.in_flight {
                        if counts[u] {
                            let entry = Vector::<u32, N>::empty().fill(edge_ids[u] as u32);
                            fold_into::<N>(&mut values, &mut entries, slot, messages[u], entry, shape.fold);
                        }
                    }
                }
                e += comptime!(step * shape.in_flight);
            }
            // Lanes beside each other hold different entries of the same channels.
            let mut apart = comptime!(shape.lanes as u32).runtime();
            while apart < comptime!(schedule.plane as u32) {
                #[unroll]
                for slot in 0..shape.slots {
                    let mine = values[slot];
                    let mine_entries = entries[slot];
                    let mut other = Vector::<f32, N>::empty().fill(0.0f32);
                    let mut other_entries = none;
                    #[unroll]
                    for n in 0..mine.size() {
                        other[n] = plane_shuffle_xor(mine[n], apart);
                        if finds_best {
                            other_entries[n] = plane_shuffle_xor(mine_entries[n], apart);
                        }
                    }
                    fold_into::<N>(&mut values, &mut entries, slot, other, other_entries, shape.fold);
                }
                apart *= 2u32;
            }
            if schedule.team > 1 {
                if finds_best {
                    team_best::<N>(&mut values, &mut entries, &mut shared, &mut shared_entries, shape, schedule);
                } else {
                    team_sum::<N>(&mut values, &mut shared, shape.slots, schedule);
                }
            }
            if team_rank(schedule) == 0 && lane < shape.lanes {
                #[unroll]
                for slot in 0..shape.slots {
                    let vector = slot * shape.lanes + channel;
                    if vector < pieces.vectors {
                        let target = usize::cast_from(result) * pieces.parts + part;
                        let at = target * out.values.stride + vector;
                        let mut value = values[slot];
                        if shape.accumulate_into {
                            value += Vector::<f32, N>::cast_from(out.values.values[at]);
                        }
                        out.values.values[at] = Vector::<O, N>::cast_from(value);
                        if finds_best {
                            out.entries[target * pieces.vectors + vector] = entries[slot];
                        }
                    }
                }
            }
        }
        work += work_step(schedule);
    }
}

/// The best of what the planes of a team hold; the first plane has it afterwards. All of the cube calls it.
#[cube]
fn team_best<N: Size>(
    values: &mut Array<Vector<f32, N>>,
    entries: &mut Array<Vector<u32, N>>,
    shared: &mut SharedMemory<Vector<f32, N>>,
    shared_entries: &mut SharedMemory<Vector<u32, N>>,
    #[comptime] shape: ReduceShape,
    #[comptime] schedule: RowSchedule,
) {
    let lane = UNIT_POS_X as usize;
    let rank = UNIT_POS_Y as usize;
    sync_cube();
    #[unroll]
    for slot in 0..shape.slots {
        let at = (rank * shape.slots + slot) * schedule.plane + lane;
        shared[at] = values[slot];
        shared_entries[at] = entries[slot];
    }
    sync_cube();
    if rank == 0 {
        for other in 1..schedule.team {
            #[unroll]
            for slot in 0..shape.slots {
                let at = (other * shape.slots + slot) * schedule.plane + lane;
                fold_into::<N>(values, entries, slot, shared[at], shared_entries[at], shape.fold);
            }
        }
    }
}

launch_args! {
    /// Values, and the entries that they came from.
    MergeInputs, MergeInputsArgs {
        values: Array<f32>,
        entries: Array<u32>,
    }
}

launch_args! {
    /// Folded values, and the entries that they came from.
    Merged, MergedArgs<O: Float> {
        values: Table<O>,
        entries: Array<u32>,
    }
}

launch_args! {
    /// The sizes of the result, and where the `parts` values that become one stand: so many elements from one to the
    /// next.
    MergeSteps, MergeStepsArgs {
        rows: usize,
        columns: usize,
        parts: usize,
        row: usize,
        column: usize,
        part: usize,
    }
}

/// Folds `parts` values into each of `rows` x `columns`; those of one are `steps.part` apart.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn merge_kernel<O: Float>(
    values: &MergeInputs,
    out: &mut Merged<O>,
    steps: &MergeSteps,
    #[comptime] fold: Fold,
    #[comptime] accumulate_into: bool,
    #[define(O)] _type: StorageType,
) {
    let mut k = ABSOLUTE_POS;
    while k < steps.rows * steps.columns {
        let row = k / steps.columns;
        let column = k % steps.columns;
        let first = row * steps.row + column * steps.column;
        let mut value = 0.0f32;
        let mut held = NO_ENTRY.runtime();
        for part in 0..steps.parts {
            let at = first + part * steps.part;
            if comptime!(fold == Fold::Sum) {
                value += values.values[at];
            } else {
                let better = is_better(values.values[at], values.entries[at], value, held, fold);
                value = select(better, values.values[at], value);
                held = select(better, values.entries[at], held);
            }
        }
        let at = row * out.values.stride + column;
        if accumulate_into {
            value += f32::cast_from(out.values.values[at]);
        }
        out.values.values[at] = O::cast_from(value);
        if comptime!(fold != Fold::Sum) {
            out.entries[k] = held;
        }
        k += CUBE_COUNT * CUBE_DIM as usize;
    }
}
