//! Memory of large outputs.

use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicUsize, Ordering};

use rayon::prelude::*;

use super::element::Element;

/// `len` zeros, on huge pages where the kernel grants them: a large output is then faulted in by 2 MiB, not by 4 KiB.
pub(crate) fn zeroed<T: Element>(len: usize) -> Vec<T> {
    let layout = std::alloc::Layout::array::<T>(len).expect("the output is larger than the address space");
    if layout.size() < 2 * HUGE_PAGE {
        return vec![T::default(); len];
    }
    // SAFETY: the layout is that of a Vec<T> of this capacity, and not empty; every element is initialised, since the
    // contract of Element is that zero bytes are a value.
    unsafe {
        let start = std::alloc::alloc_zeroed(layout);
        if start.is_null() {
            std::alloc::handle_alloc_error(layout);
        }
        advise_huge_pages(start, layout.size());
        Vec::from_raw_parts(start.cast(), len, len)
    }
}

/// Memory of an output that is written block by block. A block is zeros when it is opened, in the nearest cache: zeros
/// of the whole would go to memory and back first, by one thread.
pub(crate) struct Unwritten<T> {
    values: Vec<T>,
    len: usize,
    block: usize,
    opened: AtomicUsize,
}

/// A block of [`Unwritten`] memory.
pub(crate) struct UnwrittenBlock<'a, T> {
    room: &'a mut [MaybeUninit<T>],
    opened: &'a AtomicUsize,
}

impl<T: Element> Unwritten<T> {
    /// Room for `len` elements in blocks of `block`, the last of which may be shorter.
    pub(crate) fn new(len: usize, block: usize) -> Self {
        let mut values = Vec::<T>::with_capacity(len);
        if len * size_of::<T>() >= 2 * HUGE_PAGE {
            advise_huge_pages(values.as_mut_ptr().cast(), len * size_of::<T>());
        }
        Self { values, len, block: block.max(1), opened: AtomicUsize::new(0) }
    }

    /// The blocks, in order.
    pub(crate) fn blocks(&mut self) -> impl IndexedParallelIterator<Item = UnwrittenBlock<'_, T>> {
        let (room, opened) = (&mut self.values.spare_capacity_mut()[..self.len], &self.opened);
        opened.store(0, Ordering::Relaxed);
        room.par_chunks_mut(self.block).map(move |room| UnwrittenBlock { room, opened })
    }

    /// What was written.
    ///
    /// # Panics
    /// Unless all blocks were opened.
    pub(crate) fn written(mut self) -> Vec<T> {
        assert_eq!(self.opened.into_inner(), self.len.div_ceil(self.block), "blocks that were not opened");
        // SAFETY: a block is opened once, which fills it, and all of them were.
        unsafe { self.values.set_len(self.len) };
        self.values
    }
}

impl<'a, T: Element> UnwrittenBlock<'a, T> {
    /// The block, all zeros.
    pub(crate) fn open(self) -> &'a mut [T] {
        self.room.fill(MaybeUninit::zeroed());
        self.opened.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the contract of Element is that zero bytes are a value.
        unsafe { self.room.assume_init_mut() }
    }
}

/// What `make` leaves in blocks of `block` of `len` elements, zeros before, and what it returns for each, by block; a
/// thread takes `fewest` blocks at least. Of any `make` it is one function: what divides the work is long to compile.
pub(crate) fn in_blocks<T: Element, R: Send>(
    len: usize,
    block: usize,
    fewest: usize,
    make: &(dyn Fn(usize, &mut [T]) -> R + Sync),
) -> (Vec<T>, Vec<R>) {
    let mut values = Unwritten::new(len, block);
    let blocks = values.blocks().with_min_len(fewest).enumerate();
    let made = blocks.map(|(k, block)| make(k, block.open())).collect();
    (values.written(), made)
}

/// Of x86-64, and of AArch64 with pages of 4 KiB.
const HUGE_PAGE: usize = 2 << 20;

/// Asks for huge pages wherever whole ones fit between `start` and `start + size`.
fn advise_huge_pages(start: *mut u8, size: usize) {
    #[cfg(target_os = "linux")]
    {
        const MADV_HUGEPAGE: i32 = 14;
        unsafe extern "C" {
            fn madvise(start: *mut u8, size: usize, advice: i32) -> i32;
        }
        let skip = start.align_offset(HUGE_PAGE);
        let whole = size.saturating_sub(skip) / HUGE_PAGE * HUGE_PAGE;
        // SAFETY: the range lies in our allocation, whose contents the advice does not change. It may be refused, which
        // is no error.
        unsafe { madvise(start.wrapping_add(skip), whole, MADV_HUGEPAGE) };
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (start, size);
}

#[cfg(test)]
mod tests {
    use half::bf16;

    use super::*;

    #[test]
    fn any_length_is_zero_writable_and_freed() {
        for len in [0, 1, 1000, HUGE_PAGE, 2 * HUGE_PAGE + 1, 5 * HUGE_PAGE / 2 + 3] {
            let mut values: Vec<f32> = zeroed(len);
            assert!(values.len() == len && values.iter().all(|&v| v == 0.0));
            values.fill(1.0);
            values.push(2.0);
            assert!(zeroed::<bf16>(len).iter().all(|&v| v == bf16::ZERO));
        }
    }

    #[test]
    fn blocks_are_zero_before_they_are_made_and_keep_their_order() {
        for (len, block) in [(0, 3), (1, 4), (1000, 7), (HUGE_PAGE / 2 + 1, 1 << 12)] {
            let (values, firsts) = in_blocks::<f32, _>(len, block, 1, &|k, block| {
                assert!(block.iter().all(|&v| v == 0.0));
                block.iter_mut().enumerate().for_each(|(at, v)| *v = at as f32);
                k
            });
            assert!(values.len() == len && values.iter().enumerate().all(|(at, &v)| v == (at % block) as f32));
            assert!(firsts.into_iter().eq(0..len.div_ceil(block)));
        }
    }
}
