//! Attention with a score behind the non-linearity, a plane per row (a team of planes for a long one): lanes hold a
//! stretch of channels each, of a few edges at a time, which serve the score and the sum. Here is what all passes
//! share.

use cubecl::prelude::*;

use crate::graph::row_schedule::RowSchedule;
use crate::graph::row_schedule::sums::{lane_sum, load_vectors};
use crate::ops::gat::edges::kernel::{AgeMode, EdgeInputs, EdgeShape, edge_of, encode_age, read_values};
use crate::ops::gat::kernel::{HeadLayout, filled, leaky_relu, zeros};
use crate::runtime::args::{Matrix, launch_args};

/// Which slots and lanes hold the channels of a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum HeadSpan {
    /// All lanes of so many slots.
    Slots(usize),
    /// So many lanes beside each other, a power of two.
    Lanes(usize),
    /// Heads end anywhere.
    Any,
}

impl HeadSpan {
    /// Of `heads` heads of `head_vectors` vectors on planes of `plane` lanes with `slots` slots each.
    pub fn of(heads: usize, head_vectors: usize, plane: usize, slots: usize) -> Self {
        match head_vectors {
            _ if heads == 1 => HeadSpan::Slots(slots),
            n if n.is_multiple_of(plane) => HeadSpan::Slots(n / plane),
            n if n.is_power_of_two() && n < plane => HeadSpan::Lanes(n),
            _ => HeadSpan::Any,
        }
    }

    /// Slots of a lane that are of one head for sure.
    fn slots(self) -> usize {
        match self {
            HeadSpan::Slots(slots) => slots,
            _ => 1,
        }
    }

    /// Heads that a lane with `slots` slots has a part in; each has a softmax there.
    pub fn groups(self, slots: usize) -> usize {
        slots / self.slots()
    }
}

/// Entries whose rows are on their way at a time, where each has `rows` of them.
pub(super) fn batch(slots: usize, rows: usize, schedule: RowSchedule) -> usize {
    (schedule.in_flight / (slots * rows)).max(1)
}

launch_args! {
    /// The features of both ends, and the parameters: the attention vectors and the projection of what edges carry.
    V2Ends, V2EndsArgs<F: Float, N: Size> {
        src: Matrix<F, N>,
        dst: Matrix<F, N>,
        parameters: Array<Vector<f32, N>>,
    }
}

/// Row `row` of a matrix, zeros on lanes beyond it; all zeros unless `wanted`.
#[cube]
pub(super) fn own_row<F: Float, N: Size>(
    matrix: &Matrix<F, N>,
    row: usize,
    wanted: bool,
    layout: &HeadLayout,
    #[comptime] slots: usize,
    #[comptime] schedule: RowSchedule,
) -> Array<Vector<f32, N>> {
    let mut own = zeros::<N>(slots);
    #[unroll]
    for slot in 0..slots {
        let c = slot * schedule.plane + UNIT_POS_X as usize;
        if wanted && c < layout.vectors {
            own[slot] = Vector::<f32, N>::cast_from(matrix.values[row * matrix.stride + c]);
        }
    }
    own
}

/// The attention vectors, zeros on lanes beyond the row: so what these lanes compute counts nowhere.
#[cube]
pub(super) fn attention_of<N: Size>(
    parameters: &Array<Vector<f32, N>>,
    layout: &HeadLayout,
    #[comptime] slots: usize,
    #[comptime] schedule: RowSchedule,
) -> Array<Vector<f32, N>> {
    let mut attention = zeros::<N>(slots);
    #[unroll]
    for slot in 0..slots {
        let c = slot * schedule.plane + UNIT_POS_X as usize;
        if c < layout.vectors {
            attention[slot] = parameters[c];
        }
    }
    attention
}

/// The rows of a batch of entries, by entry and slot; lanes beyond a row have its first vector.
#[cube]
pub(super) fn rows_of<F: Float, N: Size>(
    matrix: &Matrix<F, N>,
    rows: &Array<usize>,
    layout: &HeadLayout,
    #[comptime] batch: usize,
    #[comptime] slots: usize,
    #[comptime] schedule: RowSchedule,
) -> Array<Vector<f32, N>> {
    let mut all = Array::<Vector<f32, N>>::new(comptime!(batch * slots));
    #[unroll]
    for slot in 0..slots {
        let c = slot * schedule.plane + UNIT_POS_X as usize;
        let values = load_vectors::<F, N>(matrix, layout.vectors, rows, c, batch);
        #[unroll]
        for u in 0..batch {
            all[u * slots + slot] = Vector::<f32, N>::cast_from(values[u]);
        }
    }
    all
}

/// Encodes the age of the edge of a lane, entry `e` between the nodes `row` and `col`, behind the columns of values in
/// `encoded`, with the slopes of its cosines by their angles in `slopes`; gives the age.
#[cube]
pub(super) fn encode_lane<F: Float, P: Int, M: Size>(
    carried: &EdgeInputs<F, P, M>,
    e: usize,
    kept: bool,
    row: usize,
    col: u32,
    encoded: &mut Array<f32>,
    slopes: &mut Array<f32>,
    #[comptime] with_slopes: bool,
    #[comptime] carries: EdgeShape,
) -> f32 {
    let mut age = 0.0f32;
    if comptime!(carries.age != AgeMode::Nowhere) {
        let col = col as usize;
        if kept {
            let edge = edge_of(carried, e, carries);
            age = encode_age(carried, edge, row, col, encoded, slopes, 0usize, with_slopes, carries);
        }
    }
    age
}

/// What a batch of entries of a tile carries, by entry: all lanes read the same values, and the lane of an entry hands
/// over the encoding of its age.
#[cube]
pub(super) fn values_of<F: Float, P: Int, M: Size>(
    carried: &EdgeInputs<F, P, M>,
    tile: usize,
    lanes: &Array<u32>,
    encoded: &Array<f32>,
    #[comptime] batch: usize,
    #[comptime] carries: EdgeShape,
) -> Array<f32> {
    let count = comptime!(carries.columns());
    let mut values = Array::<f32>::new(comptime!((batch * count).max(1)));
    if comptime!(carries.values > 0) {
        #[unroll]
        for u in 0..batch {
            let mut of_edge = Array::<f32>::new(comptime!(carries.values));
            let edge = edge_of(carried, tile + lanes[u] as usize, carries);
            read_values(carried, edge, &mut of_edge, carries);
            #[unroll]
            for k in 0..carries.values {
                values[u * count + k] = of_edge[k];
            }
        }
    }
    if comptime!(count > carries.values) {
        #[unroll]
        for u in 0..batch {
            #[unroll]
            for k in 0..comptime!(count - carries.values) {
                let column = comptime!(carries.values) + k;
                values[u * count + column] = plane_shuffle(encoded[column], lanes[u]);
            }
        }
    }
    values
}

/// Vector `c` of row `k` of the projection; the first one of lanes beyond the row.
#[cube]
pub(super) fn projection_at<N: Size>(
    parameters: &Array<Vector<f32, N>>,
    layout: &HeadLayout,
    k: usize,
    c: usize,
) -> Vector<f32, N> {
    parameters[(k + 1) * layout.vectors + select(c < layout.vectors, c, 0usize.runtime())]
}

/// Adds the projected values of a batch of entries to rows, by entry and slot.
#[cube]
pub(super) fn add_projected<N: Size>(
    rows: &mut Array<Vector<f32, N>>,
    values: &Array<f32>,
    parameters: &Array<Vector<f32, N>>,
    layout: &HeadLayout,
    #[comptime] batch: usize,
    #[comptime] slots: usize,
    #[comptime] count: usize,
    #[comptime] schedule: RowSchedule,
) {
    #[unroll]
    for slot in 0..slots {
        let c = slot * schedule.plane + UNIT_POS_X as usize;
        // A vector of the projection serves all entries of the batch.
        #[unroll]
        for k in 0..count {
            let weight = projection_at::<N>(parameters, layout, k, c);
            #[unroll]
            for u in 0..batch {
                rows[u * slots + slot] += weight * Vector::<f32, N>::empty().fill(values[u * count + k]);
            }
        }
    }
}

/// What stands before the leaky ReLU of a batch of entries, by entry and slot: both ends and the projected values.
/// Where messages have these they are added to the rows of sources, which so become the messages. The rows of an end
/// are so many elements apart from entry to entry, 0 where all entries share one.
#[cube]
pub(super) fn hidden_of<N: Size>(
    dst: &Array<Vector<f32, N>>,
    src: &mut Array<Vector<f32, N>>,
    values: &Array<f32>,
    parameters: &Array<Vector<f32, N>>,
    layout: &HeadLayout,
    #[comptime] batch: usize,
    #[comptime] slots: usize,
    #[comptime] count: usize,
    #[comptime] dst_apart: usize,
    #[comptime] src_apart: usize,
    #[comptime] messages: bool,
    #[comptime] schedule: RowSchedule,
) -> Array<Vector<f32, N>> {
    if comptime!(messages) {
        add_projected::<N>(src, values, parameters, layout, batch, slots, count, schedule);
    }
    let mut hidden = Array::<Vector<f32, N>>::new(comptime!(batch * slots));
    #[unroll]
    for slot in 0..slots {
        #[unroll]
        for u in 0..batch {
            hidden[u * slots + slot] = dst[u * dst_apart + slot] + src[u * src_apart + slot];
        }
    }
    if comptime!(!messages) {
        add_projected::<N>(&mut hidden, values, parameters, layout, batch, slots, count, schedule);
    }
    hidden
}

/// [`leaky_relu`] of every element.
#[cube]
pub(super) fn leaky_relus<N: Size>(vector: Vector<f32, N>, slope: f32) -> Vector<f32, N> {
    let mut out = vector;
    #[unroll]
    for n in 0..out.size() {
        out[n] = leaky_relu(vector[n], slope);
    }
    out
}

/// The derivative of [`leaky_relu`] at every element.
#[cube]
pub(super) fn leans<N: Size>(vector: Vector<f32, N>, slope: f32) -> Vector<f32, N> {
    let mut out = vector;
    #[unroll]
    for n in 0..out.size() {
        out[n] = select(vector[n] > 0.0f32, 1.0f32, slope);
    }
    out
}

/// `<own, row>` of the head of every group of slots, by entry and group: every lane has those of its own heads. Rows of
/// `own` are so many elements apart from entry to entry, 0 where all entries share one.
#[cube]
pub(super) fn head_dots<N: Size>(
    own: &Array<Vector<f32, N>>,
    rows: &Array<Vector<f32, N>>,
    head: &Array<usize>,
    #[comptime] apart: usize,
    #[comptime] batch: usize,
    #[comptime] slots: usize,
    #[comptime] heads: usize,
    #[comptime] span: HeadSpan,
) -> Array<f32> {
    let groups = comptime!(span.groups(slots));
    let each = comptime!(span.slots());
    let mut dots = filled(0.0f32, comptime!(batch * groups));
    #[unroll]
    for u in 0..batch {
        // A lane's share.
        #[unroll]
        for slot in 0..slots {
            dots[comptime!(u * groups + slot / each)] += lane_sum(own[u * apart + slot] * rows[u * slots + slot]);
        }
        match comptime!(span) {
            HeadSpan::Slots(_) =>
            {
                #[unroll]
                for group in 0..groups {
                    dots[u * groups + group] = plane_sum(dots[u * groups + group]);
                }
            }
            HeadSpan::Lanes(lanes) =>
            {
                #[unroll]
                for group in 0..groups {
                    let mut sum = dots[u * groups + group];
                    #[unroll]
                    for step in 0..comptime!(lanes.ilog2()) {
                        sum += plane_shuffle_xor(sum, comptime!(1u32 << step));
                    }
                    dots[u * groups + group] = sum;
                }
            }
            HeadSpan::Any => {
                let mut shares = Array::<f32>::new(groups);
                #[unroll]
                for group in 0..groups {
                    shares[group] = dots[u * groups + group];
                }
                #[unroll]
                for h in 0..heads {
                    let mut share = 0.0f32;
                    #[unroll]
                    for group in 0..groups {
                        share += select(head[group] == h, shares[group], 0.0f32);
                    }
                    let total = plane_sum(share);
                    #[unroll]
                    for group in 0..groups {
                        dots[u * groups + group] = select(head[group] == h, total, dots[u * groups + group]);
                    }
                }
            }
        }
    }
    dots
}
