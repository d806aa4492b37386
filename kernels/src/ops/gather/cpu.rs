//! Row gather on the CPU.

use burn::tensor::ops::{FloatTensor, IntTensor};
use burn_backend::TensorMetadata;
use burn_flex::{Flex, FlexTensor};
use rayon::prelude::*;

use super::GatherBackend;
use crate::runtime::flex::{self, Storage, with_storage};

impl GatherBackend for Flex {
    fn gather_forward(x: FloatTensor<Self>, index: &IntTensor<Self>, len: usize) -> FloatTensor<Self> {
        let x = x.to_contiguous();
        with_storage!(x.dtype(), E => forward::<E>(&x, &flex::ids(index)[..len]))
    }
}

fn forward<E: Storage>(x: &FlexTensor, index: &[i32]) -> FlexTensor {
    let d = x.shape()[1];
    let xs = flex::slice::<E>(x);
    let mut out = vec![E::default(); index.len() * d];
    if d > 0 {
        out.par_chunks_mut(d).with_min_len(flex::at_least(d)).zip(index).for_each(|(row, &i)| {
            row.copy_from_slice(&xs[i as usize * d..(i as usize + 1) * d]);
        });
    }
    flex::tensor(out, [index.len(), d])
}
