//! The numbers that registers load and store.

use half::{bf16, f16};

use super::vector::{MAX_LANES, Vector};

/// A number that [`Vector`]s load and store.
///
/// # Safety
/// The value of all zero bytes is valid, and is zero.
pub unsafe trait Element: Copy + Default + Send + Sync {
    /// `V::LANES` elements, widened.
    ///
    /// # Safety
    /// That of [`Vector`].
    unsafe fn load<V: Vector>(from: *const Self) -> V;
    /// Writes `V::LANES` elements, rounded to nearest even.
    ///
    /// # Safety
    /// That of [`Vector`].
    unsafe fn store<V: Vector>(v: V, to: *mut Self);
}

// SAFETY: 0.0 is all zero bytes.
unsafe impl Element for f32 {
    #[inline(always)]
    unsafe fn load<V: Vector>(from: *const f32) -> V {
        // SAFETY: the contract of `Vector`.
        unsafe { V::load(from) }
    }
    #[inline(always)]
    unsafe fn store<V: Vector>(v: V, to: *mut f32) {
        // SAFETY: the contract of `Vector`.
        unsafe { v.store(to) }
    }
}

// SAFETY: 0.0 is all zero bytes.
unsafe impl Element for f16 {
    #[inline(always)]
    unsafe fn load<V: Vector>(from: *const f16) -> V {
        // SAFETY: the contract of `Vector`.
        unsafe { V::load_f16(from) }
    }
    #[inline(always)]
    unsafe fn store<V: Vector>(v: V, to: *mut f16) {
        // SAFETY: the contract of `Vector`.
        unsafe { v.store_f16(to) }
    }
}

// SAFETY: 0.0 is all zero bytes.
unsafe impl Element for bf16 {
    #[inline(always)]
    unsafe fn load<V: Vector>(from: *const bf16) -> V {
        // SAFETY: the contract of `Vector`.
        unsafe { V::load_bf16(from) }
    }
    #[inline(always)]
    unsafe fn store<V: Vector>(v: V, to: *mut bf16) {
        let mut lanes = [0f32; MAX_LANES];
        // SAFETY: `lanes` holds the widest; the contract of `Vector`.
        unsafe { v.store(lanes.as_mut_ptr()) };
        for (l, lane) in lanes[..V::LANES].iter().enumerate() {
            let bits = lane.to_bits();
            let rounded = bits.wrapping_add(0x7FFF + (bits >> 16 & 1)) >> 16;
            // Rounding could carry a NaN over into infinity.
            let quiet = bits >> 16 | 0x40;
            let narrow = if lane.is_nan() { quiet } else { rounded };
            // SAFETY: `l < LANES`; the contract of `Vector`.
            unsafe { to.add(l).write(bf16::from_bits(narrow as u16)) };
        }
    }
}

/// The first `count <= LANES` elements, then zeros.
///
/// # Safety
/// That of [`Vector`], with `count` elements to read.
#[inline(always)]
pub unsafe fn load_first<V: Vector, E: Element>(from: *const E, count: usize) -> V {
    if count == V::LANES {
        // SAFETY: the contract of `Vector`.
        return unsafe { E::load(from) };
    }
    let mut lanes = [E::default(); MAX_LANES];
    // SAFETY: `count <= LANES <= MAX_LANES`; the contract of `Vector`.
    unsafe {
        std::ptr::copy_nonoverlapping(from, lanes.as_mut_ptr(), count);
        E::load(lanes.as_ptr())
    }
}

/// The first `count <= LANES` lanes.
///
/// # Safety
/// That of [`Vector`], with `count` elements to write.
#[inline(always)]
pub unsafe fn store_first<V: Vector, E: Element>(v: V, to: *mut E, count: usize) {
    if count == V::LANES {
        // SAFETY: the contract of `Vector`.
        return unsafe { E::store(v, to) };
    }
    let mut lanes = [E::default(); MAX_LANES];
    // SAFETY: `count <= LANES <= MAX_LANES`; the contract of `Vector`.
    unsafe {
        E::store(v, lanes.as_mut_ptr());
        std::ptr::copy_nonoverlapping(lanes.as_ptr(), to, count);
    }
}
