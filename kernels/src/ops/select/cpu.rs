//! Selection on the CPU.

use burn::tensor::ops::{FloatTensor, IntTensor};
use burn_backend::TensorMetadata;
use burn_flex::{Flex, FlexTensor};

use super::{SelectBackend, Side};
use crate::runtime::flex::{self, ROWS_PER_TASK, Storage, axpy, with_storage};

impl SelectBackend for Flex {
    fn select_forward(
        x: FloatTensor<Self>,
        from: &Side<IntTensor<Self>>,
        to: &Side<IntTensor<Self>>,
        scale: Option<FloatTensor<Self>>,
        accumulate_into: Option<FloatTensor<Self>>,
    ) -> FloatTensor<Self> {
        let (x, scale) = (x.to_contiguous(), scale.map(|s| s.to_contiguous()));
        with_storage!(x.dtype(), E => forward::<E>(&x, from, to, scale.as_ref(), accumulate_into))
    }
}

fn forward<E: Storage>(
    x: &FlexTensor,
    from: &Side<FlexTensor>,
    to: &Side<FlexTensor>,
    scale: Option<&FlexTensor>,
    accumulate_into: Option<FlexTensor>,
) -> FlexTensor {
    let (rows, d) = (x.shape()[0], x.shape()[1]);
    let len = to.as_ref().map_or_else(|| from.as_ref().map_or(rows, |f| f.num_nodes), |t| t.len);
    let xs = flex::slice::<E>(x);
    let scale = scale.map(flex::slice::<f32>);
    let nodes = to.as_ref().map(|t| flex::ids(&t.rows));
    let place = from.as_ref().map(|f| flex::ids(&f.position));
    let adds = accumulate_into.is_some();
    flex::by_task::<E>(accumulate_into, [len, d], 2 * d, &|task, block| {
        let (mut sum, mut scratch) = (vec![0f32; d], vec![0f32; d]);
        for (r, row) in block.chunks_mut(d.max(1)).enumerate() {
            let k = task * ROWS_PER_TASK + r;
            let node = nodes.map_or(k, |n| n[k] as usize);
            let at = place.map_or(node as i32, |p| p[node]);
            if at < 0 {
                continue;
            }
            let from = &xs[at as usize * d..(at as usize + 1) * d];
            if scale.is_none() && !adds {
                row.copy_from_slice(from);
                continue;
            }
            E::widen(row, &mut sum);
            axpy(&mut sum, scale.map_or(1.0, |s| s[node]), E::row(from, &mut scratch));
            E::narrow(&sum, row);
        }
    })
}
