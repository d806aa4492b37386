//! Dropout on the CPU: rayon over rows, hashes of a row side by side in vector registers.

use burn::tensor::ops::FloatTensor;
use burn_backend::TensorMetadata;
use burn_flex::{Flex, FlexTensor};

use super::{Dropout, DropoutBackend};
use crate::runtime::flex::{self, ROWS_PER_TASK, Storage, with_storage};
use crate::runtime::hash::mix;
use crate::runtime::rows::{Kernel, Vector, dispatch};

impl DropoutBackend for Flex {
    fn dropout(x: FloatTensor<Self>, dropout: Dropout) -> FloatTensor<Self> {
        let x = x.to_contiguous();
        with_storage!(x.dtype(), E => drop::<E>(&x, dropout))
    }
}

fn drop<E: Storage>(x: &FlexTensor, dropout: Dropout) -> FlexTensor {
    let (rows, width) = (x.shape()[0], x.shape()[1]);
    let xs = flex::slice::<E>(x);
    flex::by_task::<E>(None, [rows, width], width, &|task, block| {
        let (mut room, mut dropped) = (vec![0f32; width], vec![0f32; width]);
        for (r, out) in block.chunks_mut(width.max(1)).enumerate() {
            let row = task * ROWS_PER_TASK + r;
            let x = E::row(&xs[row * width..(row + 1) * width], &mut room);
            dispatch(DropRow { x, out: &mut dropped, row: row as u32, dropout });
            E::narrow(&dropped, out);
        }
    })
}

struct DropRow<'a> {
    x: &'a [f32],
    out: &'a mut [f32],
    row: u32,
    dropout: Dropout,
}

impl Kernel for DropRow<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        let (key, scale) = (self.dropout.key, self.dropout.scale());
        let row = self.row.wrapping_add(key.row_base) ^ key.key0;
        for (column, (out, &x)) in self.out.iter_mut().zip(self.x).enumerate() {
            let kept = mix(row, column as u32 ^ key.key1) < key.threshold;
            *out = if kept { x * scale } else { 0.0 };
        }
    }
}
