//! Rows of a matrix that edges gather by their ids.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
use std::ops::Range;

use super::element::Element;
use super::vector::EDGES_AHEAD;

/// Edges whose rows stay in L1 while their channels are gone through in several passes: 8 KiB of 128 channels of f32,
/// beside as many that are on their way.
pub(super) const EDGES_PER_BLOCK: usize = EDGES_AHEAD;

/// Stretches of a list of edges whose rows fit in L1 together.
pub(crate) fn runs(edges: usize) -> impl Iterator<Item = Range<usize>> {
    (0..edges).step_by(EDGES_PER_BLOCK).map(move |start| start..edges.min(start + EDGES_PER_BLOCK))
}

/// A matrix of so many bytes stays in a second-level cache, where a request costs more than it saves.
pub(super) const NEAR_BYTES: usize = 1 << 19;

/// The rows `ids` of a matrix, from channel `from` on.
#[derive(Clone, Copy)]
pub(super) struct Rows<'a, E> {
    pub x: &'a [E],
    stride: usize,
    from: usize,
    pub ids: &'a [u32],
    /// The same ids, and those of rows that may come next.
    ahead: &'a [u32],
}

impl<'a, E: Element> Rows<'a, E> {
    /// Those of the first `count` of the ids.
    #[inline(always)]
    pub fn new(x: &'a [E], stride: usize, from: usize, ids: &'a [u32], count: usize) -> Self {
        Self { x, stride, from, ids: &ids[..count], ahead: ids }
    }

    /// Panics unless `width` channels of every row lie in the matrix, which makes [`Rows::get`] sound.
    #[inline(always)]
    pub fn check(&self, width: usize) {
        let last = self.ids.iter().fold(0, |max: u32, &id| max.max(id)) as usize;
        let end = last.checked_mul(self.stride).and_then(|at| at.checked_add(self.from)?.checked_add(width));
        let fits = end.is_some_and(|end| end <= self.x.len());
        assert!(fits || self.ids.is_empty(), "channels of row {last} lie outside of the matrix");
    }

    /// Whether rows are worth a request.
    #[inline(always)]
    pub fn far(&self) -> bool {
        size_of_val(self.x) > NEAR_BYTES
    }

    /// Channel `at` of the `k`-th row.
    ///
    /// # Safety
    /// [`Rows::check`] has passed for a width of at least `at`, and `k < ids.len()`.
    #[inline(always)]
    pub unsafe fn get(&self, k: usize, at: usize) -> *const E {
        // SAFETY: by the contract the channel lies in `x`, or just behind it.
        unsafe { self.x.as_ptr().add(*self.ids.get_unchecked(k) as usize * self.stride + self.from + at) }
    }

    /// Requests `count` channels from `at` on of the row that comes [`EDGES_AHEAD`] of the `k`-th.
    #[inline(always)]
    pub fn prefetch(&self, k: usize, at: usize, count: usize) {
        if let Some(&id) = self.ahead.get(k + EDGES_AHEAD) {
            self.request(id, at, count);
        }
    }

    /// Requests `count` channels of a row from `at` on.
    #[inline(always)]
    pub fn request(&self, id: u32, at: usize, count: usize) {
        let row = self.x.as_ptr().wrapping_add(id as usize * self.stride + self.from + at).cast::<i8>();
        for byte in (0..count * size_of::<E>()).step_by(64) {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: a hint, which no address makes fault.
            unsafe {
                _mm_prefetch::<_MM_HINT_T0>(row.wrapping_add(byte));
            }
            #[cfg(not(target_arch = "x86_64"))]
            let _ = (row, byte);
        }
    }
}
