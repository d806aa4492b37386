//! Sums of rows in several parts: over the entries of many rows, and over edges of two kinds.

use super::divided::Split;
use super::vector::{Element, Kernel, Vector};
use super::{APART, AddRows, EDGES_PER_BLOCK, NEAR_BYTES, Ones, Rows, sum_of_sums};

/// Channels of a row that the least register holds. Rows that just fill it have a loop of their own: what is around a
/// row takes longest there.
const FEW: usize = 4;

/// [`Row::add_split`](super::Row::add_split).
pub(super) struct AddSplit<'a, E> {
    pub acc: [&'a mut [f32]; 2],
    pub x: &'a [E],
    pub stride: usize,
    pub from: usize,
    pub split: &'a Split,
}

impl<E: Element> Kernel for AddSplit<'_, E> {
    type Output = ();
    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        let Split { ids, weights, positive } = self.split;
        for (acc, edges) in self.acc.into_iter().zip([0..*positive, *positive..weights.len()]) {
            let rows = Rows::new(self.x, self.stride, self.from, &ids[edges.clone()]);
            let (rows, weight) = (Rows { ahead: &ids[edges.start..], ..rows }, &weights[edges]);
            // SAFETY: that of this function.
            unsafe { AddRows { acc, rows, weight }.run::<V>() };
        }
    }
}

/// [`Row::sum_rows`](super::Row::sum_rows).
pub(super) struct SumRows<'a, E, I> {
    pub acc: &'a mut [f32],
    pub x: &'a [E],
    pub stride: usize,
    pub ids: I,
}

impl<'a, E: Element, I: Fn(usize) -> (&'a [u32], usize)> Kernel for SumRows<'_, E, I> {
    type Output = ();
    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        if self.stride == FEW && V::LANES > FEW && size_of_val(self.x) <= NEAR_BYTES {
            // SAFETY: that of this function; half of a half has so many lanes in all longer registers.
            return unsafe { self.run_on::<<V::Half as Vector>::Half>() };
        }
        for (r, acc) in self.acc.chunks_exact_mut(self.stride.max(1)).enumerate() {
            let (ahead, count) = (self.ids)(r);
            let rows = Rows { ahead, ..Rows::new(self.x, self.stride, 0, &ahead[..count]) };
            // SAFETY: that of this function.
            unsafe { AddRows { acc, rows, weight: Ones }.run::<V>() };
        }
    }
}

impl<'a, E: Element, I: Fn(usize) -> (&'a [u32], usize)> SumRows<'_, E, I> {
    /// Rows of [`FEW`] channels in a matrix that is near, in the order of [`AddRows::tail`].
    ///
    /// # Safety
    /// That of [`Kernel::run`], with registers of [`FEW`] lanes.
    #[inline(always)]
    unsafe fn run_on<V: Vector>(self) {
        for (r, acc) in self.acc.as_chunks_mut::<FEW>().0.iter_mut().enumerate() {
            let (ids, count) = (self.ids)(r);
            let ids = &ids[..count];
            Rows::new(self.x, FEW, 0, ids).check(FEW);
            // SAFETY: just checked.
            unsafe {
                let (one, x) = (V::splat(1.0), self.x.as_ptr());
                let mut sum = V::load(acc.as_ptr());
                for block in ids.chunks(EDGES_PER_BLOCK) {
                    let mut sums = [V::splat(0.0); APART];
                    sums[0] = sum;
                    let (together, rest) = block.as_chunks::<APART>();
                    for ids in together {
                        for u in 0..APART {
                            sums[u] = E::load::<V>(x.add(ids[u] as usize * FEW)).mul_add(one, sums[u]);
                        }
                    }
                    for &id in rest {
                        sums[0] = E::load::<V>(x.add(id as usize * FEW)).mul_add(one, sums[0]);
                    }
                    sum = sum_of_sums(sums);
                }
                sum.store(acc.as_mut_ptr());
            }
        }
    }
}
