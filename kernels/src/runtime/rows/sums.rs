//! Sums of rows over the entries of many rows.

use super::vector::{Element, Kernel, Vector};
use super::{APART, AddRows, NEAR_BYTES, Ones, Rows, sum_of_sums};

/// Channels of a row that the least register holds. Rows that just fill it have a loop of their own: what is around a
/// row takes longest there.
const FEW: usize = 4;

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
            let rows = Rows::new(self.x, self.stride, 0, ahead, count);
            // SAFETY: that of this function.
            unsafe { AddRows { acc: [acc], rows, weights: [&[Ones]] }.run::<V>() };
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
        let rows = self.x.as_chunks::<FEW>().0;
        for (r, acc) in self.acc.as_chunks_mut::<FEW>().0.iter_mut().enumerate() {
            let (ids, count) = (self.ids)(r);
            let (together, rest) = ids[..count].as_chunks::<APART>();
            // SAFETY: all loads and stores are of `FEW` elements that are there.
            unsafe {
                let one = V::splat(1.0);
                let mut sums = [V::splat(0.0); APART];
                sums[0] = V::load(acc.as_ptr());
                for ids in together {
                    for u in 0..APART {
                        sums[u] = E::load::<V>(rows[ids[u] as usize].as_ptr()).mul_add(one, sums[u]);
                    }
                }
                for &id in rest {
                    sums[0] = E::load::<V>(rows[id as usize].as_ptr()).mul_add(one, sums[0]);
                }
                sum_of_sums(sums).store(acc.as_mut_ptr());
            }
        }
    }
}
