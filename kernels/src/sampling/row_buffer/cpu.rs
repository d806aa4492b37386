//! Rows in host memory.

use burn::tensor::ops::{FloatTensor, IntTensor};
use burn_backend::TensorMetadata;
use burn_flex::{Flex, FlexTensor};
use rayon::prelude::*;

use super::RowBufferBackend;
use crate::runtime::flex::{self, ROWS_PER_TASK, Storage, with_storage};

impl RowBufferBackend for Flex {
    fn put_rows(
        target: FloatTensor<Self>,
        source: FloatTensor<Self>,
        from: Option<IntTensor<Self>>,
        to: IntTensor<Self>,
        len: usize,
    ) -> FloatTensor<Self> {
        let source = source.to_contiguous();
        with_storage!(target.dtype(), E => put_rows::<E>(target, &source, from.as_ref(), &to, len))
    }

    fn move_rows(
        target: FloatTensor<Self>,
        from: IntTensor<Self>,
        to: IntTensor<Self>,
        len: usize,
    ) -> FloatTensor<Self> {
        with_storage!(target.dtype(), E => move_rows::<E>(target, &from, &to, len))
    }

    fn rows_at(target: &FloatTensor<Self>, first: usize, rows: usize) -> FloatTensor<Self> {
        target.narrow(0, first, rows)
    }
}

/// The elements of a matrix that tasks write rows of.
#[derive(Clone, Copy)]
struct Elements<E>(*mut E);

// SAFETY: every task writes rows of its own, see `put_rows`.
unsafe impl<E> Send for Elements<E> {}
// SAFETY: as above.
unsafe impl<E> Sync for Elements<E> {}

impl<E> Elements<E> {
    /// The first element of a row.
    ///
    /// # Safety
    /// The row exists.
    unsafe fn row(&self, row: usize, width: usize) -> *mut E {
        // SAFETY: the caller's.
        unsafe { self.0.add(row * width) }
    }
}

fn put_rows<E: Storage>(
    mut target: FlexTensor,
    source: &FlexTensor,
    from: Option<&FlexTensor>,
    to: &FlexTensor,
    len: usize,
) -> FlexTensor {
    let width = target.shape()[1];
    let (from, to) = (from.map(flex::ids), flex::ids(to));
    let rows = flex::slice::<E>(source);
    let out = Elements(flex::slice_mut::<E>(&mut target).as_mut_ptr());
    (0..len).into_par_iter().with_min_len(ROWS_PER_TASK).for_each(|k| {
        let at = from.map_or(k, |from| from[k] as usize);
        let row = &rows[at * width..(at + 1) * width];
        // SAFETY: `RowBuffer` checked that the row exists; the rows of `to` are distinct, so no other task writes it.
        unsafe { std::ptr::copy_nonoverlapping(row.as_ptr(), out.row(to[k] as usize, width), width) };
    });
    target
}

fn move_rows<E: Storage>(mut target: FlexTensor, from: &FlexTensor, to: &FlexTensor, len: usize) -> FlexTensor {
    let width = target.shape()[1];
    let (from, to) = (flex::ids(from), flex::ids(to));
    let values = flex::slice_mut::<E>(&mut target);
    for k in 0..len {
        let at = from[k] as usize * width;
        values.copy_within(at..at + width, to[k] as usize * width);
    }
    target
}
