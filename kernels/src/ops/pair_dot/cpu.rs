//! Pair dot products on the CPU.

use burn::tensor::ops::{FloatTensor, IntTensor};
use burn_backend::TensorMetadata;
use burn_flex::{Flex, FlexTensor};
use rayon::prelude::*;

use super::PairDotBackend;
use crate::graph::row_index::PairIndexParts;
use crate::runtime::flex::{self, Storage, dot, with_storage};

/// Pairs of one rayon task.
const PAIRS_PER_TASK: usize = 512;

impl PairDotBackend for Flex {
    fn pair_dot_forward(
        left: FloatTensor<Self>,
        right: FloatTensor<Self>,
        pairs: &PairIndexParts<IntTensor<Self>>,
    ) -> FloatTensor<Self> {
        let (left, right) = (left.to_contiguous(), right.to_contiguous());
        with_storage!(left.dtype(), E => forward::<E>(&left, &right, pairs))
    }
}

fn forward<E: Storage>(left: &FlexTensor, right: &FlexTensor, pairs: &PairIndexParts<FlexTensor>) -> FlexTensor {
    let d = left.shape()[1];
    let (ls, rs) = (flex::slice::<E>(left), flex::slice::<E>(right));
    let (i, j) = (flex::ids(&pairs.left), flex::ids(&pairs.right));
    let mut out = vec![0f32; pairs.len];
    out.par_chunks_mut(PAIRS_PER_TASK).enumerate().for_each(|(task, block)| {
        let (mut a, mut b) = (vec![0f32; d], vec![0f32; d]);
        for (k, y) in block.iter_mut().enumerate() {
            let p = task * PAIRS_PER_TASK + k;
            let (i, j) = (i[p] as usize, j[p] as usize);
            *y = dot(E::row(&ls[i * d..(i + 1) * d], &mut a), E::row(&rs[j * d..(j + 1) * d], &mut b));
        }
    });
    flex::tensor(out, [pairs.len])
}
