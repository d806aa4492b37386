//! What the loops are written over: registers of the instruction sets.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;

use half::{bf16, f16};

/// The widest [`Vector`].
pub const MAX_LANES: usize = 16;

/// Rows are requested so many edges before their turn. Measured: the nearest L1 is best, and 8 to 24 edges do alike.
pub(super) const EDGES_AHEAD: usize = 16;

/// A register of f32 of one instruction set.
///
/// # Safety
/// Its methods may run only where that instruction set is enabled, which [`dispatch`](super::dispatch) sees to. They
/// read and write `LANES` elements, at any alignment.
pub trait Vector: Copy {
    /// A register half as long, for short rows: a load no longer than the row stays within its cache line. Itself where
    /// there is none.
    type Half: Vector;
    /// Numbers in a register.
    const LANES: usize;
    /// `value` in all lanes.
    unsafe fn splat(value: f32) -> Self;
    /// As stored.
    unsafe fn load(from: *const f32) -> Self;
    /// Widened.
    unsafe fn load_f16(from: *const f16) -> Self;
    /// Widened.
    unsafe fn load_bf16(from: *const bf16) -> Self;
    /// As it is.
    unsafe fn store(self, to: *mut f32);
    /// Rounded to nearest even.
    unsafe fn store_f16(self, to: *mut f16);
    /// `self * factor + sum`.
    unsafe fn mul_add(self, factor: Self, sum: Self) -> Self;
    /// The sums of the lanes of four registers.
    unsafe fn sums(of: [Self; 4]) -> [f32; 4];
    /// The greater of both; `self` where either is NaN.
    unsafe fn at_least(self, floor: Self) -> Self;
    /// The lesser of both; `self` where either is NaN.
    unsafe fn at_most(self, ceiling: Self) -> Self;
    /// Itself where `of` is positive, 0 elsewhere.
    unsafe fn where_positive(self, of: Self) -> Self;
    /// `2^n` of an integer `n` to which 1.5 * 2^23 was added, which leaves it in the low bits: 0 of -127, infinity of
    /// 128.
    unsafe fn power_of_two(self) -> Self;
    /// The first four elements of `LANES` rows, column by column.
    #[inline(always)]
    unsafe fn columns(rows: [*const f32; MAX_LANES]) -> [Self; 4] {
        let mut columns = [[0f32; MAX_LANES]; 4];
        for l in 0..Self::LANES {
            for c in 0..4 {
                // SAFETY: the contract of this trait.
                columns[c][l] = unsafe { *rows[l].add(c) };
            }
        }
        // SAFETY: as above.
        columns.map(|column| unsafe { Self::load(column.as_ptr()) })
    }
    /// Writes to `to` those of `ids` whose hash is below `threshold`; returns how many. All lanes may be written.
    #[inline(always)]
    unsafe fn keep(ids: &[i32; MAX_LANES], hash: &[u32; MAX_LANES], threshold: u32, to: *mut u32) -> usize {
        let mut len = 0;
        for (&id, &hash) in ids.iter().zip(hash) {
            // Written in any case, and overwritten unless kept: no branch to mispredict.
            // SAFETY: `len` is below the number of lanes.
            unsafe { to.add(len).write(id as u32) };
            len += usize::from(hash < threshold);
        }
        len
    }
}

#[cfg(target_arch = "x86_64")]
impl Vector for __m512 {
    type Half = __m256;
    const LANES: usize = 16;
    #[inline(always)]
    unsafe fn splat(value: f32) -> Self {
        // SAFETY: the contract of `Vector`.
        unsafe { _mm512_set1_ps(value) }
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: the contract of `Vector`.
        unsafe { _mm512_loadu_ps(from) }
    }
    #[inline(always)]
    unsafe fn load_f16(from: *const f16) -> Self {
        // SAFETY: the contract of `Vector`.
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(from.cast())) }
    }
    #[inline(always)]
    unsafe fn load_bf16(from: *const bf16) -> Self {
        // SAFETY: the contract of `Vector`.
        unsafe {
            let wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(from.cast()));
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(wide))
        }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: the contract of `Vector`.
        unsafe { _mm512_storeu_ps(to, self) }
    }
    #[inline(always)]
    unsafe fn store_f16(self, to: *mut f16) {
        // SAFETY: the contract of `Vector`.
        unsafe { _mm256_storeu_si256(to.cast(), _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(self)) }
    }
    #[inline(always)]
    unsafe fn mul_add(self, factor: Self, sum: Self) -> Self {
        // SAFETY: the contract of `Vector`.
        unsafe { _mm512_fmadd_ps(self, factor, sum) }
    }
    #[inline(always)]
    unsafe fn sums(of: [Self; 4]) -> [f32; 4] {
        // SAFETY: the contract of `Vector`.
        unsafe {
            let mut halves = [_mm256_setzero_ps(); 4];
            for r in 0..4 {
                halves[r] = _mm256_add_ps(_mm512_castps512_ps256(of[r]), _mm512_extractf32x8_ps::<1>(of[r]));
            }
            __m256::sums(halves)
        }
    }
    #[inline(always)]
    unsafe fn keep(ids: &[i32; 16], hash: &[u32; 16], threshold: u32, to: *mut u32) -> usize {
        // SAFETY: the contract of `Vector`.
        unsafe {
            let hash = _mm512_loadu_si512(hash.as_ptr().cast());
            let kept = _mm512_cmplt_epu32_mask(hash, _mm512_set1_epi32(threshold as i32));
            let ids = _mm512_maskz_compress_epi32(kept, _mm512_loadu_si512(ids.as_ptr().cast()));
            _mm512_storeu_si512(to.cast(), ids);
            kept.count_ones() as usize
        }
    }
    #[inline(always)]
    unsafe fn at_least(self, floor: Self) -> Self {
        // SAFETY: the contract of `Vector`.
        unsafe { _mm512_max_ps(floor, self) }
    }
    #[inline(always)]
    unsafe fn at_most(self, ceiling: Self) -> Self {
        // SAFETY: the contract of `Vector`.
        unsafe { _mm512_min_ps(ceiling, self) }
    }
    #[inline(always)]
    unsafe fn where_positive(self, of: Self) -> Self {
        // SAFETY: the contract of `Vector`.
        unsafe { _mm512_maskz_mov_ps(_mm512_cmp_ps_mask::<_CMP_GT_OQ>(of, _mm512_setzero_ps()), self) }
    }
    #[inline(always)]
    unsafe fn power_of_two(self) -> Self {
        // SAFETY: the contract of `Vector`.
        unsafe {
            let biased = _mm512_add_epi32(_mm512_castps_si512(self), _mm512_set1_epi32(127));
            _mm512_castsi512_ps(_mm512_slli_epi32::<23>(biased))
        }
    }
    #[inline(always)]
    unsafe fn columns(rows: [*const f32; MAX_LANES]) -> [Self; 4] {
        // SAFETY: the contract of `Vector`.
        unsafe {
            let mut of = [Self::splat(0.0); 4];
            for r in 0..4 {
                let quarters = [0, 4, 8, 12].map(|q| _mm_loadu_ps(rows[q + r]));
                of[r] = _mm512_castps128_ps512(quarters[0]);
                of[r] = _mm512_insertf32x4::<1>(of[r], quarters[1]);
                of[r] = _mm512_insertf32x4::<2>(of[r], quarters[2]);
                of[r] = _mm512_insertf32x4::<3>(of[r], quarters[3]);
            }
            let (low, high) = (
                [_mm512_unpacklo_ps(of[0], of[1]), _mm512_unpacklo_ps(of[2], of[3])],
                [_mm512_unpackhi_ps(of[0], of[1]), _mm512_unpackhi_ps(of[2], of[3])],
            );
            [
                _mm512_shuffle_ps::<0x44>(low[0], low[1]),
                _mm512_shuffle_ps::<0xEE>(low[0], low[1]),
                _mm512_shuffle_ps::<0x44>(high[0], high[1]),
                _mm512_shuffle_ps::<0xEE>(high[0], high[1]),
            ]
        }
    }
}

#[cfg(target_arch = "x86_64")]
impl Vector for __m256 {
    type Half = __m128;
    const LANES: usize = 8;
    #[inline(always)]
    unsafe fn splat(value: f32) -> Self {
        // SAFETY: the contract of `Vector`.
        unsafe { _mm256_set1_ps(value) }
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: the contract of `Vector`.
        unsafe { _mm256_loadu_ps(from) }
    }
    #[inline(always)]
    unsafe fn load_f16(from: *const f16) -> Self {
        // SAFETY: the contract of `Vector`.
        unsafe { _mm256_cvtph_ps(_mm_loadu_si128(from.cast())) }
    }
    #[inline(always)]
    unsafe fn load_bf16(from: *const bf16) -> Self {
        // SAFETY: the contract of `Vector`.
        unsafe {
            let wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(from.cast()));
            _mm256_castsi256_ps(_mm256_slli_epi32::<16>(wide))
        }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: the contract of `Vector`.
        unsafe { _mm256_storeu_ps(to, self) }
    }
    #[inline(always)]
    unsafe fn store_f16(self, to: *mut f16) {
        // SAFETY: the contract of `Vector`.
        unsafe { _mm_storeu_si128(to.cast(), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(self)) }
    }
    #[inline(always)]
    unsafe fn mul_add(self, factor: Self, sum: Self) -> Self {
        // SAFETY: the contract of `Vector`.
        unsafe { _mm256_fmadd_ps(self, factor, sum) }
    }
    #[inline(always)]
    unsafe fn sums(of: [Self; 4]) -> [f32; 4] {
        // SAFETY: the contract of `Vector`.
        unsafe {
            let pairs = _mm256_hadd_ps(_mm256_hadd_ps(of[0], of[1]), _mm256_hadd_ps(of[2], of[3]));
            let sums = _mm_add_ps(_mm256_castps256_ps128(pairs), _mm256_extractf128_ps::<1>(pairs));
            let mut out = [0.0; 4];
            _mm_storeu_ps(out.as_mut_ptr(), sums);
            out
        }
    }
    #[inline(always)]
    unsafe fn at_least(self, floor: Self) -> Self {
        // SAFETY: the contract of `Vector`.
        unsafe { _mm256_max_ps(floor, self) }
    }
    #[inline(always)]
    unsafe fn at_most(self, ceiling: Self) -> Self {
        // SAFETY: the contract of `Vector`.
        unsafe { _mm256_min_ps(ceiling, self) }
    }
    #[inline(always)]
    unsafe fn where_positive(self, of: Self) -> Self {
        // SAFETY: the contract of `Vector`.
        unsafe { _mm256_and_ps(self, _mm256_cmp_ps::<_CMP_GT_OQ>(of, _mm256_setzero_ps())) }
    }
    #[inline(always)]
    unsafe fn power_of_two(self) -> Self {
        // SAFETY: the contract of `Vector`.
        unsafe {
            let biased = _mm256_add_epi32(_mm256_castps_si256(self), _mm256_set1_epi32(127));
            _mm256_castsi256_ps(_mm256_slli_epi32::<23>(biased))
        }
    }
    #[inline(always)]
    unsafe fn columns(rows: [*const f32; MAX_LANES]) -> [Self; 4] {
        // SAFETY: the contract of `Vector`.
        unsafe {
            let mut of = [Self::splat(0.0); 4];
            for r in 0..4 {
                of[r] = _mm256_set_m128(_mm_loadu_ps(rows[4 + r]), _mm_loadu_ps(rows[r]));
            }
            let (low, high) = (
                [_mm256_unpacklo_ps(of[0], of[1]), _mm256_unpacklo_ps(of[2], of[3])],
                [_mm256_unpackhi_ps(of[0], of[1]), _mm256_unpackhi_ps(of[2], of[3])],
            );
            [
                _mm256_shuffle_ps::<0x44>(low[0], low[1]),
                _mm256_shuffle_ps::<0xEE>(low[0], low[1]),
                _mm256_shuffle_ps::<0x44>(high[0], high[1]),
                _mm256_shuffle_ps::<0xEE>(high[0], high[1]),
            ]
        }
    }
}

/// Short rows where the instruction set is that of one of the longer registers.
#[cfg(target_arch = "x86_64")]
impl Vector for __m128 {
    type Half = Self;
    const LANES: usize = 4;
    #[inline(always)]
    unsafe fn splat(value: f32) -> Self {
        // SAFETY: the contract of `Vector`.
        unsafe { _mm_set1_ps(value) }
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: the contract of `Vector`.
        unsafe { _mm_loadu_ps(from) }
    }
    #[inline(always)]
    unsafe fn load_f16(from: *const f16) -> Self {
        // SAFETY: the contract of `Vector`.
        unsafe { _mm_cvtph_ps(_mm_loadl_epi64(from.cast())) }
    }
    #[inline(always)]
    unsafe fn load_bf16(from: *const bf16) -> Self {
        // SAFETY: the contract of `Vector`.
        unsafe { _mm_castsi128_ps(_mm_slli_epi32::<16>(_mm_cvtepu16_epi32(_mm_loadl_epi64(from.cast())))) }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: the contract of `Vector`.
        unsafe { _mm_storeu_ps(to, self) }
    }
    #[inline(always)]
    unsafe fn store_f16(self, to: *mut f16) {
        // SAFETY: the contract of `Vector`.
        unsafe { _mm_storel_epi64(to.cast(), _mm_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(self)) }
    }
    #[inline(always)]
    unsafe fn mul_add(self, factor: Self, sum: Self) -> Self {
        // SAFETY: the contract of `Vector`.
        unsafe { _mm_fmadd_ps(self, factor, sum) }
    }
    #[inline(always)]
    unsafe fn sums(of: [Self; 4]) -> [f32; 4] {
        let mut out = [0.0; 4];
        // SAFETY: the contract of `Vector`.
        unsafe {
            let pairs = _mm_hadd_ps(_mm_hadd_ps(of[0], of[1]), _mm_hadd_ps(of[2], of[3]));
            _mm_storeu_ps(out.as_mut_ptr(), pairs);
        }
        out
    }
    #[inline(always)]
    unsafe fn at_least(self, floor: Self) -> Self {
        // SAFETY: the contract of `Vector`.
        unsafe { _mm_max_ps(floor, self) }
    }
    #[inline(always)]
    unsafe fn at_most(self, ceiling: Self) -> Self {
        // SAFETY: the contract of `Vector`.
        unsafe { _mm_min_ps(ceiling, self) }
    }
    #[inline(always)]
    unsafe fn where_positive(self, of: Self) -> Self {
        // SAFETY: the contract of `Vector`.
        unsafe { _mm_and_ps(self, _mm_cmpgt_ps(of, _mm_setzero_ps())) }
    }
    #[inline(always)]
    unsafe fn power_of_two(self) -> Self {
        // SAFETY: the contract of `Vector`.
        unsafe {
            let biased = _mm_add_epi32(_mm_castps_si128(self), _mm_set1_epi32(127));
            _mm_castsi128_ps(_mm_slli_epi32::<23>(biased))
        }
    }
}

/// Any machine: four lanes are what most have.
impl Vector for [f32; 4] {
    type Half = Self;
    const LANES: usize = 4;
    #[inline(always)]
    unsafe fn splat(value: f32) -> Self {
        [value; 4]
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: the contract of `Vector`.
        unsafe { from.cast::<Self>().read() }
    }
    #[inline(always)]
    unsafe fn load_f16(from: *const f16) -> Self {
        // SAFETY: the contract of `Vector`.
        unsafe { from.cast::<[f16; 4]>().read() }.map(f16::to_f32)
    }
    #[inline(always)]
    unsafe fn load_bf16(from: *const bf16) -> Self {
        // SAFETY: the contract of `Vector`.
        unsafe { from.cast::<[bf16; 4]>().read() }.map(bf16::to_f32)
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: the contract of `Vector`.
        unsafe { to.cast::<Self>().write(self) }
    }
    #[inline(always)]
    unsafe fn store_f16(self, to: *mut f16) {
        // SAFETY: the contract of `Vector`.
        unsafe { to.cast::<[f16; 4]>().write(self.map(f16::from_f32)) }
    }
    #[inline(always)]
    unsafe fn mul_add(self, factor: Self, sum: Self) -> Self {
        let mut out = sum;
        for l in 0..4 {
            out[l] += self[l] * factor[l];
        }
        out
    }
    #[inline(always)]
    unsafe fn sums(of: [Self; 4]) -> [f32; 4] {
        of.map(|v| (v[0] + v[2]) + (v[1] + v[3]))
    }
    #[inline(always)]
    unsafe fn at_least(mut self, floor: Self) -> Self {
        for l in 0..4 {
            self[l] = if floor[l] > self[l] { floor[l] } else { self[l] };
        }
        self
    }
    #[inline(always)]
    unsafe fn at_most(mut self, ceiling: Self) -> Self {
        for l in 0..4 {
            self[l] = if ceiling[l] < self[l] { ceiling[l] } else { self[l] };
        }
        self
    }
    #[inline(always)]
    unsafe fn where_positive(mut self, of: Self) -> Self {
        for l in 0..4 {
            self[l] = if of[l] > 0.0 { self[l] } else { 0.0 };
        }
        self
    }
    #[inline(always)]
    unsafe fn power_of_two(self) -> Self {
        self.map(|v| f32::from_bits(v.to_bits().wrapping_add(127) << 23))
    }
}
