//! Memory of large outputs.

use super::vector::Element;

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
}
