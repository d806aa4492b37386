//! What a message is made of, and one value per edge: some lanes each.

use cubecl::prelude::*;

use super::{Place, Term};
use crate::graph::row_schedule::kernel::Edges;
use crate::graph::row_schedule::sums::lane_sum;
use crate::runtime::args::launch_args;

/// What a message reads; each combination is a kernel of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct MessageShape {
    pub term: Term,
    /// Those of operands that the term does not have are not read.
    pub places: [Place; 3],
    /// Operands with a value per channel.
    pub full: [bool; 3],
    pub scale: Option<Place>,
    pub winners: Option<Place>,
    pub edge_map: bool,
}

impl MessageShape {
    /// Whether anything is found by the column of an entry.
    pub fn reads_cols(&self) -> bool {
        self.reads(Place::Col)
    }

    /// Whether anything is found by the row of an entry.
    pub fn reads_rows(&self) -> bool {
        self.reads(Place::Row)
    }

    fn reads(&self, place: Place) -> bool {
        self.places[..self.term.arity()].contains(&place) || self.scale == Some(place) || self.winners == Some(place)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct EdgeShape {
    pub message: MessageShape,
    /// Lanes that share a value: a power of two, and 1 where channels are not added up.
    pub lanes: usize,
    /// Vectors of a value that a lane reads at a time.
    pub steps: usize,
    /// The channels of an output column are added up.
    pub adds_up: bool,
    pub plane: usize,
    pub by_rows: bool,
    /// Rows and columns are looked up in selections; messages of what is not in them are zero.
    pub select_rows: bool,
    pub select_cols: bool,
}

launch_args! {
    /// A matrix that messages read: how far its rows are apart, and how many vectors of channels share a value.
    Operand, OperandArgs<F: Float, N: Size> {
        values: Array<Vector<F, N>>,
        stride: usize,
        share: usize,
    }
}

launch_args! {
    /// What messages are made of.
    Operands, OperandsArgs<F: Float, N: Size, VA: Size, VB: Size, VC: Size> {
        a: Operand<F, VA>,
        b: Operand<F, VB>,
        c: Operand<F, VC>,
        scale: Array<f32>,
        winners: Array<Vector<u32, N>>,
    }
}

launch_args! {
    /// Where the nodes of both sides stand in selections; unread unless they are selected.
    EndPositions, EndPositionsArgs {
        rows: Array<i32>,
        columns: Array<i32>,
    }
}

/// Where the operands of an entry stand.
#[derive(CubeType, Clone, Copy)]
pub(crate) struct Entry {
    pub row_node: usize,
    pub col_node: usize,
    pub row: usize,
    pub col: usize,
    pub edge: usize,
}

#[cube]
fn at_place(entry: &Entry, #[comptime] place: Place) -> usize {
    match comptime!(place) {
        Place::Row => entry.row,
        Place::Col => entry.col,
        Place::Edge => entry.edge,
    }
}

/// Vector `c` of the channels of a row.
#[cube]
fn channels<F: Float, N: Size, M: Size>(
    operand: &Operand<F, M>,
    row: usize,
    c: usize,
    #[comptime] full: bool,
) -> Vector<f32, N> {
    if full {
        Vector::<f32, N>::cast_from(operand.values[row * operand.stride + c])
    } else {
        let value = operand.values[row * operand.stride + c / operand.share];
        Vector::<f32, N>::empty().fill(f32::cast_from(value[0]))
    }
}

/// Vector `vector` of the message of `entry`.
#[cube]
pub(crate) fn message<F: Float, N: Size, VA: Size, VB: Size, VC: Size>(
    operands: &Operands<F, N, VA, VB, VC>,
    entry: &Entry,
    vector: usize,
    vectors: usize,
    #[comptime] shape: MessageShape,
) -> Vector<f32, N> {
    let a = channels::<F, N, VA>(&operands.a, at_place(entry, shape.places[0]), vector, shape.full[0]);
    let mut value = match comptime!(shape.term) {
        Term::Copy => a,
        Term::Negate => Vector::<f32, N>::empty().fill(0.0f32) - a,
        _ => {
            let b = channels::<F, N, VB>(&operands.b, at_place(entry, shape.places[1]), vector, shape.full[1]);
            match comptime!(shape.term) {
                Term::Add => a + b,
                Term::Sub => a - b,
                Term::Mul => a * b,
                Term::Div => a / b,
                _ => {
                    let c = channels::<F, N, VC>(&operands.c, at_place(entry, shape.places[2]), vector, shape.full[2]);
                    Vector::<f32, N>::empty().fill(0.0f32) - a * b / (c * c)
                }
            }
        }
    };
    if comptime!(shape.scale.is_some()) {
        let node = match comptime!(shape.scale) {
            Some(Place::Col) => entry.col_node,
            _ => entry.row_node,
        };
        value *= Vector::<f32, N>::empty().fill(operands.scale[node]);
    }
    if comptime!(shape.winners.is_some()) {
        let at = match comptime!(shape.winners) {
            Some(Place::Col) => entry.col,
            _ => entry.row,
        };
        let winner = operands.winners[at * vectors + vector];
        #[unroll]
        for n in 0..value.size() {
            value[n] = select(winner[n] == entry.edge as u32, value[n], 0.0f32);
        }
    }
    value
}

/// The row of entry `e`, which is `low` or a later one.
#[cube]
fn find_row<P: Int>(row_ptr: &Array<P>, low: usize, num_rows: usize, e: usize) -> usize {
    let mut low = low;
    let mut high = num_rows;
    while high > low + 1 {
        let middle = low + (high - low) / 2;
        let before = usize::cast_from(row_ptr[middle]) <= e;
        low = select(before, middle, low);
        high = select(before, high, middle);
    }
    low
}

launch_args! {
    /// How the values of edges are divided: `cells` of an edge, each of `share` vectors; pieces of work up to `end`, of
    /// a row or of `stretch` entries.
    EdgeWork, EdgeWorkArgs {
        cells: usize,
        share: usize,
        num_rows: usize,
        num_edges: usize,
        stretch: usize,
        end: usize,
    }
}

/// One value per edge and output column; `cells` of them per edge, each of `share` vectors. A plane takes a row or
/// `stretch` entries.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn edge_kernel<F: Float, P: Int, N: Size, VA: Size, VB: Size, VC: Size, VO: Size>(
    edges: &Edges<P>,
    edge_map: &Array<P>,
    operands: &Operands<F, N, VA, VB, VC>,
    out: &mut Array<Vector<F, VO>>,
    positions: &EndPositions,
    work: &EdgeWork,
    #[comptime] shape: EdgeShape,
    #[define(F, P)] _types: [StorageType; 2],
) {
    let lane = UNIT_POS_X as usize;
    let within = lane % shape.lanes;
    let step = comptime!(shape.plane / shape.lanes);
    let mut piece = CUBE_POS * CUBE_DIM_Y as usize + UNIT_POS_Y as usize;
    while piece < work.end {
        let mut row = piece;
        let mut first = piece * work.stretch;
        let mut last = select(first + work.stretch < work.num_edges, first + work.stretch, work.num_edges);
        if shape.by_rows {
            first = usize::cast_from(edges.row_ptr[piece]);
            last = usize::cast_from(edges.row_ptr[piece + 1]);
        } else {
            row = 0usize.runtime();
            if comptime!(shape.message.reads_rows() || shape.select_rows) {
                row = find_row(&edges.row_ptr, 0usize, work.num_rows, first);
            }
        }
        let all = (last - first) * work.cells;
        // All lanes take part in every step: some lanes add up together.
        let mut base = 0usize;
        while base < all {
            let k = base + lane / shape.lanes;
            let there = k < all;
            let k = select(there, k, 0usize);
            let e = first + k / work.cells;
            let cell = k % work.cells;
            let looks_up = comptime!((shape.message.reads_rows() || shape.select_rows) && !shape.by_rows);
            if looks_up && there && usize::cast_from(edges.row_ptr[row + 1]) <= e {
                row = find_row(&edges.row_ptr, row, work.num_rows, e);
            }
            let mut col = 0usize;
            if comptime!(shape.message.reads_cols() || shape.select_cols) {
                col = usize::cast_from(edges.col_idx[e]);
            }
            let mut edge = e;
            if shape.message.edge_map {
                edge = usize::cast_from(edge_map[e]);
            }
            let mut at_row = i32::cast_from(row);
            let mut at_col = i32::cast_from(col);
            if shape.select_rows {
                at_row = positions.rows[row];
            }
            if shape.select_cols {
                at_col = positions.columns[col];
            }
            let selected = at_row >= 0i32 && at_col >= 0i32;
            let entry = Entry {
                row_node: row,
                col_node: col,
                row: usize::cast_from(select(selected, at_row, 0i32)),
                col: usize::cast_from(select(selected, at_col, 0i32)),
                edge,
            };
            let mut sum = Vector::<f32, N>::empty().fill(0.0f32);
            let mut v = within;
            while v < work.share {
                // All at once: they are on their way together.
                let mut terms = Array::<Vector<f32, N>>::new(shape.steps);
                #[unroll]
                for s in 0..shape.steps {
                    let at = v + s * shape.lanes;
                    let vector = cell * work.share + select(at < work.share, at, v);
                    terms[s] =
                        message::<F, N, VA, VB, VC>(operands, &entry, vector, work.cells * work.share, shape.message);
                }
                #[unroll]
                for s in 0..shape.steps {
                    if v + s * shape.lanes < work.share {
                        sum += terms[s];
                    }
                }
                v += comptime!(shape.lanes * shape.steps);
            }
            if comptime!(shape.select_rows || shape.select_cols) && !selected {
                sum = Vector::<f32, N>::empty().fill(0.0f32);
            }
            if shape.adds_up {
                let mut total = lane_sum(sum);
                let mut apart = 1u32;
                while apart < comptime!(shape.lanes as u32) {
                    total += plane_shuffle_xor(total, apart);
                    apart *= 2u32;
                }
                if there && within == 0 {
                    out[edge * work.cells + cell] = Vector::<F, VO>::empty().fill(F::cast_from(total));
                }
            } else if there {
                out[edge * work.cells + cell] = Vector::<F, VO>::cast_from(sum);
            }
            base += step;
        }
        piece += CUBE_COUNT * CUBE_DIM_Y as usize;
    }
}
