//! On the CPU: rayon over rows.

use burn::tensor::ops::FloatTensor;
use burn_backend::TensorMetadata;
use burn_flex::{Flex, FlexTensor};

use super::PiecesBackend;
use crate::runtime::flex::{self, ROWS_PER_TASK, Storage, with_storage};

impl PiecesBackend for Flex {
    fn beside_pieces(x: FloatTensor<Self>, bounds: FloatTensor<Self>) -> FloatTensor<Self> {
        let (x, bounds) = (x.to_contiguous(), bounds.to_contiguous());
        with_storage!(x.dtype(), E => beside::<E>(&x, &bounds))
    }
}

fn beside<E: Storage>(x: &FlexTensor, bounds: &FlexTensor) -> FlexTensor {
    let (rows, width, ends) = (x.shape()[0], x.shape()[1], bounds.shape()[1]);
    let pieces = bounds.shape()[0] * (ends - 1);
    // By piece: where it begins, and one over its length.
    let of_columns = flex::slice::<f32>(bounds).chunks_exact(ends);
    let of_pieces = of_columns.flat_map(|ends| ends.windows(2));
    let of_pieces: Vec<[f32; 2]> = of_pieces.map(|ends| [ends[0], inverse(ends[1] - ends[0])]).collect();
    let (xs, wide) = (flex::slice::<E>(x), width + pieces);
    flex::by_task::<E>(None, [rows, wide], wide, &|task, block| {
        let (mut room, mut shares) = (vec![0f32; width], vec![0f32; pieces]);
        for (r, out) in block.chunks_mut(wide.max(1)).enumerate() {
            let row = task * ROWS_PER_TASK + r;
            let stored = &xs[row * width..(row + 1) * width];
            let x = E::row(stored, &mut room);
            let of_columns = of_pieces.chunks_exact(ends - 1).zip(shares.chunks_exact_mut(ends - 1));
            for ((of_pieces, shares), x) in of_columns.zip(x) {
                for (share, [begin, inverse]) in shares.iter_mut().zip(of_pieces) {
                    *share = ((x - begin) * inverse).clamp(0.0, 1.0);
                }
            }
            out[..width].copy_from_slice(stored);
            E::narrow(&shares, &mut out[width..]);
        }
    })
}

/// One over the length of a piece; an empty one is never entered.
fn inverse(length: f32) -> f32 {
    if length > 0.0 { length.recip() } else { 0.0 }
}
