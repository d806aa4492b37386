//! One plane per selected row.

use cubecl::prelude::*;

use crate::runtime::args::{Extent, Matrix, launch_args};

/// What is given beside the matrix: the set it has rows for, the set that is wanted, a factor per node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SelectShape {
    pub from: bool,
    pub to: bool,
    pub scale: bool,
}

launch_args! {
    /// A matrix, the nodes of rows, where a node stands on the other side, and a factor per node of the whole graph.
    SelectInputs, SelectInputsArgs<F: Float, N: Size> {
        x: Matrix<F, N>,
        nodes: Array<i32>,
        place: Array<i32>,
        scale: Array<f32>,
    }
}

#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn select_kernel<F: Float, N: Size>(
    inputs: &SelectInputs<F, N>,
    out: &mut Array<Vector<F, N>>,
    extent: &Extent,
    #[comptime] shape: SelectShape,
    #[define(F)] _type: StorageType,
) {
    let mut row = CUBE_POS * CUBE_DIM_Y as usize + UNIT_POS_Y as usize;
    while row < extent.rows {
        let mut node = row;
        if shape.to {
            node = usize::cast_from(inputs.nodes[row]);
        }
        let mut at = i32::cast_from(node);
        if shape.from {
            at = inputs.place[node];
        }
        let present = at >= 0i32;
        let from = usize::cast_from(select(present, at, 0i32)) * inputs.x.stride;
        let mut factor = select(present, 1.0f32, 0.0f32);
        if shape.scale {
            factor *= inputs.scale[node];
        }
        let mut c = UNIT_POS_X as usize;
        while c < extent.vectors {
            let mut value = Vector::<F, N>::empty().fill(F::new(0.0f32));
            if present {
                value = inputs.x.values[from + c];
            }
            if shape.scale {
                let scaled = Vector::<f32, N>::cast_from(value) * Vector::<f32, N>::empty().fill(factor);
                value = Vector::<F, N>::cast_from(scaled);
            }
            out[row * extent.vectors + c] = value;
            c += CUBE_DIM_X as usize;
        }
        row += CUBE_COUNT * CUBE_DIM_Y as usize;
    }
}

/// Adds row `k` of `x`, scaled, to the row of its node in `out`, for nodes that have one. No two rows are of one node.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn add_kernel<F: Float, N: Size>(
    inputs: &SelectInputs<F, N>,
    out: &mut Matrix<F, N>,
    extent: &Extent,
    #[comptime] shape: SelectShape,
    #[define(F)] _type: StorageType,
) {
    let mut row = CUBE_POS * CUBE_DIM_Y as usize + UNIT_POS_Y as usize;
    while row < extent.rows {
        let mut node = row;
        if shape.from {
            node = usize::cast_from(inputs.nodes[row]);
        }
        let mut at = i32::cast_from(node);
        if shape.to {
            at = inputs.place[node];
        }
        if at >= 0i32 {
            let mut factor = 1.0f32;
            if shape.scale {
                factor = inputs.scale[node];
            }
            let to = usize::cast_from(at) * out.stride;
            let mut c = UNIT_POS_X as usize;
            while c < extent.vectors {
                let term = Vector::<f32, N>::cast_from(inputs.x.values[row * inputs.x.stride + c]);
                let sum =
                    Vector::<f32, N>::cast_from(out.values[to + c]) + term * Vector::<f32, N>::empty().fill(factor);
                out.values[to + c] = Vector::<F, N>::cast_from(sum);
                c += CUBE_DIM_X as usize;
            }
        }
        row += CUBE_COUNT * CUBE_DIM_Y as usize;
    }
}
