//! What the edge of a lane carries, in registers: values as they are read, and the encoding of its age.

use cubecl::prelude::*;

use crate::runtime::args::{Matrix, launch_args};

/// Where the age of an edge comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum AgeMode {
    #[default]
    Nowhere,
    OfEdges,
    /// From the times of both ends.
    RowsAreDestinations,
    RowsAreSources,
}

/// What edges carry, as far as it is fixed when a kernel is compiled. All zero without anything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct EdgeShape {
    /// Columns of values.
    pub values: usize,
    pub age: AgeMode,
    /// Whether `ln(1 + age)` is a column.
    pub log_age: bool,
    pub cosines: usize,
    /// Whether edges are not in the order of the entries.
    pub edge_map: bool,
}

impl EdgeShape {
    pub fn columns(&self) -> usize {
        self.values + self.log_age as usize + self.cosines
    }

    /// The first column of a cosine.
    pub fn first_cosine(&self) -> usize {
        self.values + self.log_age as usize
    }
}

launch_args! {
    /// Times of nodes of the whole graph.
    NodeTimes, NodeTimesArgs {
        dst: Array<i32>,
        src: Array<i32>,
    }
}

launch_args! {
    /// What edges carry. What is read depends on the [`EdgeShape`].
    EdgeInputs, EdgeInputsArgs<F: Float, P: Int, M: Size> {
        values: ComptimeOption<Matrix<F, M>>,
        edge_map: ComptimeOption<Array<P>>,
        ages: ComptimeOption<Array<f32>>,
        times: ComptimeOption<NodeTimes>,
        /// The logit vectors of all heads, if any, frequencies, phases.
        parameters: Array<f32>,
    }
}

/// The cosine and the sine of an angle of any size, by reduction to an eighth of a turn in three steps: what devices
/// offer is right to 11 bits only, and only near zero. Polynomials as in Moshier's Cephes.
#[cube]
fn cosine_and_sine(angle: f32) -> (f32, f32) {
    let quarters = (angle * std::f32::consts::FRAC_2_PI).round();
    let r = angle - quarters * 1.5703125f32;
    let r = r - quarters * 4.837_513e-4f32;
    let r = r - quarters * 7.549_79e-8f32;
    let square = r * r;
    let sine = r + r * square * (-1.666_665_5e-1f32 + square * (8.332_161e-3f32 - square * 1.951_529_6e-4f32));
    let cosine = 1.0f32 - square * 0.5f32
        + square * square * (4.166_664_6e-2f32 + square * (-1.388_731_6e-3f32 + square * 2.443_315_7e-5f32));
    let quarter = u32::cast_from(i32::cast_from(quarters)) & 3u32;
    let odd = (quarter & 1u32) != 0u32;
    let cos = select(odd, sine, cosine);
    let sin = select(odd, cosine, sine);
    let cos_sign = select(quarter == 1u32 || quarter == 2u32, -1.0f32, 1.0f32);
    let sin_sign = select(quarter >= 2u32, -1.0f32, 1.0f32);
    (cos * cos_sign, sin * sin_sign)
}

/// The edge of entry `e`.
#[cube]
pub(crate) fn edge_of<F: Float, P: Int, M: Size>(
    inputs: &EdgeInputs<F, P, M>,
    e: usize,
    #[comptime] shape: EdgeShape,
) -> usize {
    let mut edge = e;
    if comptime!(shape.edge_map) {
        #[comptime]
        if let ComptimeOption::Some(map) = &inputs.edge_map {
            edge = usize::cast_from(map[e]);
        }
    }
    edge
}

/// The edge of entry `e` of a row that ends before `last`, any behind it: for a tile ahead, as ids of columns are read.
#[cube]
pub(crate) fn edge_ahead<F: Float, P: Int, M: Size>(
    inputs: &EdgeInputs<F, P, M>,
    e: usize,
    last: usize,
    #[comptime] shape: EdgeShape,
) -> usize {
    let mut edge = 0usize.runtime();
    if e < last {
        edge = edge_of(inputs, e, shape);
    }
    edge
}

/// Reads the values of edge `edge` into `columns`.
#[cube]
pub(crate) fn read_values<F: Float, P: Int, M: Size>(
    inputs: &EdgeInputs<F, P, M>,
    edge: usize,
    columns: &mut Array<f32>,
    #[comptime] shape: EdgeShape,
) {
    #[comptime]
    if let ComptimeOption::Some(values) = &inputs.values {
        read_vectors(&values.values, edge * values.stride, columns, shape.values);
    }
}

/// Reads what edge `edge` between the nodes `row` and `col` carries into `columns`, and with `slopes` the slopes of its
/// cosines by their angles there; gives its age.
#[cube]
pub(crate) fn read_edge<F: Float, P: Int, M: Size>(
    inputs: &EdgeInputs<F, P, M>,
    edge: usize,
    row: usize,
    col: usize,
    columns: &mut Array<f32>,
    slopes: &mut Array<f32>,
    #[comptime] heads: usize,
    #[comptime] with_slopes: bool,
    #[comptime] shape: EdgeShape,
) -> f32 {
    read_values(inputs, edge, columns, shape);
    let frequencies = comptime!(heads * shape.columns());
    encode_age(inputs, edge, row, col, columns, slopes, frequencies, with_slopes, shape)
}

/// Puts the encoding of the age of edge `edge` between the nodes `row` and `col` behind the values in `columns`, and
/// with `slopes` the slopes of its cosines by their angles there; gives the age. Frequencies stand among the parameters
/// from `frequencies` on, phases behind them.
#[cube]
pub(crate) fn encode_age<F: Float, P: Int, M: Size>(
    inputs: &EdgeInputs<F, P, M>,
    edge: usize,
    row: usize,
    col: usize,
    columns: &mut Array<f32>,
    slopes: &mut Array<f32>,
    #[comptime] frequencies: usize,
    #[comptime] with_slopes: bool,
    #[comptime] shape: EdgeShape,
) -> f32 {
    let mut age = 0.0f32;
    if comptime!(shape.age == AgeMode::OfEdges) {
        #[comptime]
        if let ComptimeOption::Some(ages) = &inputs.ages {
            age = ages[edge];
        }
    }
    #[comptime]
    if let ComptimeOption::Some(times) = &inputs.times {
        // Whole numbers: two times of years apart from the origin have an exact difference.
        if comptime!(shape.age == AgeMode::RowsAreSources) {
            age = f32::cast_from(times.dst[col] - times.src[row]);
        } else {
            age = f32::cast_from(times.dst[row] - times.src[col]);
        }
    }
    if comptime!(shape.log_age) {
        columns[comptime!(shape.values)] = (1.0f32 + age.max(0.0f32)).ln();
    }
    #[unroll]
    for k in 0..shape.cosines {
        let frequency = inputs.parameters[comptime!(frequencies) + k];
        let phase = inputs.parameters[comptime!(frequencies + shape.cosines) + k];
        let (cosine, sine) = cosine_and_sine(frequency * age + phase);
        columns[comptime!(shape.first_cosine()) + k] = cosine;
        if comptime!(with_slopes) {
            slopes[k] = -sine;
        }
    }
    age
}

/// What the edge adds to the score of head `h`.
#[cube]
pub(crate) fn edge_score<F: Float, P: Int, M: Size>(
    inputs: &EdgeInputs<F, P, M>,
    columns: &Array<f32>,
    #[comptime] h: usize,
    #[comptime] shape: EdgeShape,
) -> f32 {
    let mut score = 0.0f32;
    #[unroll]
    for k in 0..shape.columns() {
        score += inputs.parameters[comptime!(h * shape.columns()) + k] * columns[k];
    }
    score
}

/// Reads the first `len` elements of the vectors from `at` on.
#[cube]
pub(in crate::ops::gat) fn read_vectors<F: Float, N: Size>(
    values: &Array<Vector<F, N>>,
    at: usize,
    to: &mut Array<f32>,
    #[comptime] len: usize,
) {
    let width = N::value();
    #[unroll]
    for v in 0..comptime!(len / width) {
        let vector = Vector::<f32, N>::cast_from(values[at + v]);
        #[unroll]
        for k in 0..width {
            to[v * width + k] = vector[k];
        }
    }
}
