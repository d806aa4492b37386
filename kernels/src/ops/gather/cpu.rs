//! Row gather on the CPU.

use burn::tensor::ops::{FloatTensor, IntTensor};
use burn_backend::TensorMetadata;
use burn_flex::{Flex, FlexTensor};
use rayon::prelude::*;

use super::GatherBackend;
use crate::runtime::flex::{self, Offsets, Storage, with_storage};

impl GatherBackend for Flex {
    fn gather_forward(x: FloatTensor<Self>, index: &IntTensor<Self>, len: usize) -> FloatTensor<Self> {
        let x = x.to_contiguous();
        with_storage!(x.dtype(), E => forward::<E>(&x, Offsets::of(index), len))
    }
}

fn forward<E: Storage>(x: &FlexTensor, index: Offsets<'_>, len: usize) -> FlexTensor {
    let d = x.shape()[1];
    let xs = flex::slice::<E>(x);
    let mut out = vec![E::default(); len * d];
    if d > 0 {
        out.par_chunks_mut(d).with_min_len(flex::at_least(d)).enumerate().for_each(|(p, row)| {
            row.copy_from_slice(&xs[index.get(p) * d..][..d]);
        });
    }
    flex::tensor(out, [len, d])
}
