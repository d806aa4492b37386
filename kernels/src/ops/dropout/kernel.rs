//! A thread per vector of a row.

use cubecl::prelude::*;

use super::Dropout;
use crate::graph::drop_edge::{DropEdgeKey, DropMode};
use crate::runtime::args::{Extent, Matrix, launch_args};
use crate::runtime::hash::mix_cube;

launch_args! {
    /// [`Dropout`] as kernels see it.
    DropoutKey, DropoutKeyArgs {
        key: DropEdgeKey,
        /// What is kept is multiplied by it.
        scale: f32,
        /// Of attention weights: all heads, and the first of those at hand.
        heads: u32,
        first_head: u32,
    }
}

impl DropoutKey {
    pub(crate) fn launch<R: Runtime>(dropout: &Option<Dropout>) -> DropoutKeyLaunch<R> {
        let key = DropEdgeKey::launch(&dropout.map(|dropout| dropout.key));
        let (scale, [heads, first_head]) = dropout.map_or((1.0, [1, 0]), |dropout| (dropout.scale(), dropout.heads));
        DropoutKeyArgs { key, scale, heads, first_head }.launch()
    }
}

/// [`Dropout::factor`] on the device.
#[cube]
pub(crate) fn factor(dropout: &DropoutKey, row: u32, column: u32) -> f32 {
    let hash = mix_cube(row ^ dropout.key.key0, column ^ dropout.key.key1);
    select(hash < dropout.key.threshold, dropout.scale, 0.0f32)
}

/// [`Dropout::edge_factor`] on the device.
#[cube]
pub(crate) fn edge_factor(dropout: &DropoutKey, row: u32, col: u32, head: usize, #[comptime] mode: DropMode) -> f32 {
    let row = row + dropout.key.row_base;
    let col = col + dropout.key.col_base;
    let head = dropout.first_head + head as u32;
    match comptime!(mode) {
        DropMode::KeepAll => 1.0f32.runtime(),
        DropMode::RowsAreDestinations => factor(dropout, row, col * dropout.heads + head),
        DropMode::RowsAreSources => factor(dropout, col, row * dropout.heads + head),
    }
}

#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn dropout_kernel<F: Float, N: Size>(
    x: &Matrix<F, N>,
    out: &mut Array<Vector<F, N>>,
    dropout: &DropoutKey,
    extent: &Extent,
    #[define(F)] _type: StorageType,
) {
    let mut k = ABSOLUTE_POS;
    while k < extent.rows * extent.vectors {
        let row = k / extent.vectors;
        let vector = k % extent.vectors;
        let mut value = Vector::<f32, N>::cast_from(x.values[row * x.stride + vector]);
        #[unroll]
        for n in 0..value.size() {
            let column = (vector * N::value() + n) as u32;
            value[n] *= factor(dropout, row as u32 + dropout.key.row_base, column);
        }
        out[k] = Vector::<F, N>::cast_from(value);
        k += CUBE_COUNT * CUBE_DIM as usize;
    }
}
