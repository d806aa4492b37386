//! Inner loops of the CPU operators: sums of gathered rows, dot products with gathered rows, softmax, DropEdge.
//!
//! Each loop is written once, as a [`Kernel`] over a [`Vector`], and compiled for AVX-512, for AVX2 and for any
//! machine. Memory bounds them, so what counts is that every row is read once, that sums stay in registers meanwhile,
//! and that the rows to come are already on their way.
#![allow(clippy::needless_range_loop, reason = "an index of lanes or registers runs over several arrays at once")]

mod attention;
mod element;
mod gathered;
mod hidden;
mod isa;
mod keep;
mod softmax;
mod sums;
mod vector;
mod zeroed;

pub(crate) use attention::{Columns, attention_weights, leaky_relu, scores_of, weights_again};
use element::{Element, load_first, store_first};
use gathered::Rows;
pub(crate) use gathered::runs;
pub(crate) use hidden::{hidden_rows, lean_rows};
pub(crate) use isa::{Kernel, dispatch};
pub(crate) use keep::{KeepKey, keep_into};
pub(crate) use softmax::{elu_all, exp_all, exp_weights};
use sums::{AddRows, SumRows};
use vector::EDGES_AHEAD;
pub(crate) use vector::Vector;
pub(crate) use zeroed::{Unwritten, in_blocks, zeroed};

/// A storage type of features; arithmetic is f32.
pub(crate) trait Row: Element {
    /// `dst = src`, widened.
    fn widen(src: &[Self], dst: &mut [f32]) {
        dispatch(Convert { src, dst });
    }

    /// `dst = src`, rounded to nearest even.
    fn narrow(src: &[f32], dst: &mut [Self]) {
        dispatch(Convert { src, dst });
    }

    /// `acc[c] += sum_k weight[k] * x[ids[k] * stride + from + c]`, in an order of summation that depends on the
    /// numbers of rows and channels only. What `ids` has behind the last weight are rows that may be next.
    ///
    /// To find all heads of a row in L1, call for each of them on one of the [`runs`] of the edges.
    ///
    /// # Panics
    /// If a row does not lie in `x`, or there are more weights than ids.
    fn add_rows(acc: &mut [f32], x: &[Self], stride: usize, from: usize, ids: &[u32], weight: &[f32]) {
        dispatch(AddRows { acc: [acc], rows: Rows::new(x, stride, from, ids, weight.len()), weights: [&[weight]] });
    }

    /// [`Row::add_rows`] for all heads, whose rows lie one behind another in every row of `x`, with several weights by
    /// head at once: those `weights[s]` into `acc[s]`.
    fn add_heads<const S: usize>(acc: [&mut [f32]; S], x: &[Self], ids: &[u32], weights: [&[Vec<f32>]; S]) {
        let rows = Rows::new(x, acc[0].len(), 0, ids, weights[0][0].len());
        dispatch(AddRows { acc, rows, weights });
    }

    /// [`Row::add_rows`] with weights of 1 and `from == 0`, into every row of `acc`: those of the `r`-th are the first
    /// `count` of the ids `ids(r) = (ids, count)`, and rows that may be next the ones behind.
    fn sum_rows<'a>(acc: &mut [f32], x: &[Self], stride: usize, ids: impl Fn(usize) -> (&'a [u32], usize)) {
        dispatch(SumRows { acc, x, stride, ids });
    }

    /// Requests the rows that a sum over all channels of `ids` begins with: those after them are requested on the way.
    fn request_first(x: &[Self], stride: usize, ids: &[u32]) {
        let rows = Rows::new(x, stride, 0, ids, 0);
        if rows.far() {
            ids.iter().take(EDGES_AHEAD).for_each(|&id| rows.request(id, 0, stride));
        }
    }

    /// `dots[k] = <own, x[ids[k] * stride + from ..]>` over `own.len()` channels, in an order of summation that depends
    /// on their number only. What `ids` has behind the last product are rows that may be next.
    ///
    /// # Panics
    /// If a row does not lie in `x`, or there are more products than ids.
    fn dot_rows(dots: &mut [f32], own: &[f32], x: &[Self], stride: usize, from: usize, ids: &[u32]) {
        let rows = Rows::new(x, stride, from, ids, dots.len());
        dispatch(DotRows { dots, own, rows });
    }
}

impl<E: Element> Row for E {}

/// Elements of `src` as those of `dst`.
struct Convert<'a, S, D> {
    src: &'a [S],
    dst: &'a mut [D],
}

impl<S: Element, D: Element> Kernel for Convert<'_, S, D> {
    type Output = ();
    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        let len = self.src.len();
        assert_eq!(len, self.dst.len());
        let (src, dst) = (self.src.as_ptr(), self.dst.as_mut_ptr());
        let whole = len / V::LANES * V::LANES;
        // SAFETY: all accesses are below `len`.
        unsafe {
            for at in (0..whole).step_by(V::LANES) {
                D::store(S::load::<V>(src.add(at)), dst.add(at));
            }
            if whole < len {
                store_first(load_first::<V, S>(src.add(whole), len - whole), dst.add(whole), len - whole);
            }
        }
    }
}

/// The ids of rows that lie one behind another.
pub(crate) const fn consecutive<const N: usize>() -> [u32; N] {
    let mut ids = [0; N];
    let mut k = 0;
    while k < N {
        ids[k] = k as u32;
        k += 1;
    }
    ids
}

/// [`Row::dot_rows`].
struct DotRows<'a, E> {
    dots: &'a mut [f32],
    own: &'a [f32],
    rows: Rows<'a, E>,
}

impl<E: Element> Kernel for DotRows<'_, E> {
    type Output = ();
    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        // SAFETY: that of this function.
        unsafe {
            match self.own.len() {
                width if width <= <V::Half as Vector>::Half::LANES => self.run_on::<<V::Half as Vector>::Half>(),
                width if width <= V::Half::LANES => self.run_on::<V::Half>(),
                _ => self.run_on::<V>(),
            }
        }
    }
}

impl<E: Element> DotRows<'_, E> {
    /// # Safety
    /// That of [`Kernel::run`].
    #[inline(always)]
    unsafe fn run_on<V: Vector>(self) {
        // Four rows at a time: four independent sums, and one reduction of lanes for all of them.
        const R: usize = 4;
        let (width, num_edges) = (self.own.len(), self.rows.ids.len());
        assert_eq!(self.dots.len(), num_edges);
        self.rows.check(width);
        let far = self.rows.far();
        let own = self.own.as_ptr();
        for (block, dots) in self.dots.chunks_mut(R).enumerate() {
            // SAFETY: channels are below `width`, the length of `own`, for which the rows are checked.
            unsafe {
                let mut row = [std::ptr::null(); R];
                for r in 0..R {
                    if far {
                        self.rows.prefetch(block * R + r, 0, width);
                    }
                    // The last block repeats its last row.
                    row[r] = self.rows.get((block * R + r).min(num_edges - 1), 0);
                }
                let mut sums = [V::splat(0.0); R];
                let whole = width / V::LANES * V::LANES;
                for at in (0..whole).step_by(V::LANES) {
                    let own = V::load(own.add(at));
                    for r in 0..R {
                        sums[r] = E::load::<V>(row[r].add(at)).mul_add(own, sums[r]);
                    }
                }
                if whole < width {
                    let own = load_first::<V, f32>(own.add(whole), width - whole);
                    for r in 0..R {
                        sums[r] = load_first::<V, E>(row[r].add(whole), width - whole).mul_add(own, sums[r]);
                    }
                }
                dots.copy_from_slice(&V::sums(sums)[..dots.len()]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Debug;

    use half::{bf16, f16};

    use super::isa::{Isa, run_on};
    use super::sums::Ones;
    use super::*;

    const WIDTHS: [usize; 17] = [1, 3, 4, 7, 8, 15, 16, 31, 32, 33, 64, 65, 100, 128, 200, 511, 1000];

    /// Runs `$body` with `$isa` bound to every instruction set of this machine.
    macro_rules! on_each_isa {
        ($isa:ident => $body:expr) => {
            for $isa in Isa::ALL {
                if $isa.available() {
                    $body
                }
            }
        };
    }

    fn numbers(count: usize, seed: u32) -> Vec<f32> {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / 8_388_608.0 - 1.0
        };
        (0..count).map(|_| next()).collect()
    }

    fn ids(count: usize, rows: usize) -> Vec<u32> {
        numbers(count, 5).iter().map(|v| ((v + 1.0) / 2.0 * rows as f32) as u32 % rows as u32).collect()
    }

    fn matrix<E: Row + Default>(len: usize) -> (Vec<E>, Vec<f64>) {
        let (mut x, mut widened) = (vec![E::default(); len], vec![0f32; len]);
        E::narrow(&numbers(len, 1), &mut x);
        E::widen(&x, &mut widened);
        (x, widened.into_iter().map(f64::from).collect())
    }

    fn close(found: f32, expected: f64, terms: usize) {
        let bound = 1e-6 * (1.0 + expected.abs() + (terms as f64).sqrt());
        assert!((f64::from(found) - expected).abs() < bound, "{found} instead of {expected}");
    }

    fn check_sums_and_dots<E: Row>() {
        const ROWS: usize = 40;
        // Duplicates abound; 200 edges are several blocks.
        for (width, num_edges) in WIDTHS.into_iter().flat_map(|w| [0, 1, 3, 9, 62, 200].map(|n| (w, n))) {
            for (stride, from) in [(width, 0), (width + 5, 3), (2 * width, width)] {
                let (x, wide) = matrix::<E>(ROWS * stride);
                let ids = ids(num_edges, ROWS);
                let rows = Rows::new(&x, stride, from, &ids, num_edges);
                let at = |k: usize, c: usize| wide[ids[k] as usize * stride + from + c];
                let w0 = numbers(num_edges, 2);
                let w1 = numbers(num_edges, 3);
                let start = numbers(width, 4);
                let sum = |w: &[f32], c: usize| {
                    f64::from(start[c]) + (0..num_edges).map(|k| f64::from(w[k]) * at(k, c)).sum::<f64>()
                };
                on_each_isa!(isa => {
                    let (mut once, mut first, mut second) = (start.clone(), start.clone(), start.clone());
                    let (mut plain, mut ones) = (start.clone(), start.clone());
                    let ones_of = vec![1.0; num_edges];
                    let mut dots = vec![f32::NAN; num_edges];
                    let mut in_rows = vec![0f32; 2 * stride];
                    // SAFETY: the instruction set is available.
                    unsafe {
                        run_on(isa, AddRows { acc: [&mut once], rows, weights: [&[&w0[..]]] });
                        let acc = [&mut first[..], &mut second];
                        run_on(isa, AddRows { acc, rows, weights: [&[&w0[..]], &[&w1]] });
                        run_on(isa, AddRows { acc: [&mut plain], rows, weights: [&[Ones]] });
                        run_on(isa, AddRows { acc: [&mut ones], rows, weights: [&[&ones_of[..]]] });
                        let few = num_edges / 2;
                        let of_row = |r: usize| if r == 0 { (&ids[..], few) } else { (&ids[few..], num_edges - few) };
                        run_on(isa, SumRows { acc: &mut in_rows, x: &x[..], stride, ids: of_row });
                        run_on(isa, DotRows { dots: &mut dots, own: &start, rows });
                    }
                    assert_eq!(plain, ones);
                    if stride == width {
                        // Sums of one call and of a call for each row are the same to the bit.
                        let (mut alone, few) = (vec![0f32; width], num_edges / 2);
                        let rows = Rows::new(&x, stride, from, &ids[few..], num_edges - few);
                        // SAFETY: as above.
                        unsafe { run_on(isa, AddRows { acc: [&mut alone], rows, weights: [&[Ones]] }) };
                        assert_eq!(alone, in_rows[width..]);
                    }
                    for c in 0..width {
                        close(once[c], sum(&w0, c), num_edges);
                        close(first[c], sum(&w0, c), num_edges);
                        close(second[c], sum(&w1, c), num_edges);
                        let both = in_rows[from + c] + in_rows[stride + from + c];
                        close(both, sum(&ones_of, c) - f64::from(start[c]), num_edges);
                    }
                    for k in 0..num_edges {
                        close(dots[k], (0..width).map(|c| f64::from(start[c]) * at(k, c)).sum(), width);
                    }
                });
            }
        }
    }

    #[test]
    fn sums_and_dots_are_those_of_f64() {
        check_sums_and_dots::<f32>();
        check_sums_and_dots::<f16>();
        check_sums_and_dots::<bf16>();
    }

    fn check_heads<E: Row + Default>() {
        const ROWS: usize = 50;
        for (heads, channels) in [2, 3, 4, 8].into_iter().flat_map(|h| [1, 4, 8, 16, 20, 32, 64].map(|c| (h, c))) {
            let width = heads * channels;
            let (x, ids) = (matrix::<E>(ROWS * width).0, ids(61, ROWS));
            let weights =
                |seed: usize| -> Vec<Vec<f32>> { (0..heads).map(|h| numbers(ids.len(), (seed + h) as u32)).collect() };
            let (all, some) = (weights(10), weights(20));
            on_each_isa!(isa => {
                let mut sums = [(); 3].map(|()| vec![0f32; width]);
                let [first, second, once] = &mut sums;
                let rows = Rows::new(&x, width, 0, &ids, ids.len());
                // SAFETY: the instruction set is available.
                unsafe {
                    run_on(isa, AddRows { acc: [first, second], rows, weights: [&all, &some] });
                    run_on(isa, AddRows { acc: [once], rows, weights: [&all] });
                }
                for h in 0..heads {
                    let rows = Rows::new(&x, width, h * channels, &ids, ids.len());
                    for (sum, weight) in sums.iter().zip([&all, &some, &all]) {
                        let mut alone = vec![0f32; channels];
                        // SAFETY: as above.
                        unsafe { run_on(isa, AddRows { acc: [&mut alone], rows, weights: [&[&weight[h][..]]] }) };
                        let of_head = &sum[h * channels..][..channels];
                        alone.iter().zip(of_head).for_each(|(&want, &found)| close(found, want.into(), ids.len()));
                    }
                }
            });
        }
    }

    #[test]
    fn heads_that_go_through_the_rows_together_have_the_sums_of_each_alone() {
        check_heads::<f32>();
        check_heads::<f16>();
        check_heads::<bf16>();
    }

    #[test]
    fn the_public_functions_reach_the_kernels() {
        let (x, ids) = ([1f32, 2.0, 3.0, 4.0, 5.0, 6.0], [2u32, 0]);
        let (mut acc, mut dots) = ([1f32], [0f32; 2]);
        f32::add_rows(&mut acc, &x, 2, 1, &ids, &[10.0, 1.0]);
        assert_eq!(acc, [63.0]);
        let (mut all, mut some) = ([1f32, 0.0], [0f32; 2]);
        let weights = [vec![10.0, 1.0], vec![0.0, 3.0]];
        f32::add_heads([&mut all, &mut some], &x, &ids, [&weights, &[vec![1.0, 0.0], vec![0.0; 2]]]);
        assert_eq!((all, some), ([52.0, 6.0], [5.0, 0.0]));
        let mut sums = [0f32; 4];
        f32::sum_rows(&mut sums, &x, 2, |r| (&ids, 2 - r));
        assert_eq!(sums, [6.0, 8.0, 5.0, 6.0]);
        f32::dot_rows(&mut dots, &[1.0, 2.0], &x, 2, 0, &ids);
        assert_eq!(dots, [17.0, 5.0]);
    }

    fn check_conversion<E: Row + Default + PartialEq + Debug>(of: fn(f32) -> E, back: fn(E) -> f32) {
        let special = [0.0, -0.0, 1e-8, 6e-8, 1e-40, 65_519.0, 65_520.0, 3.4e38, f32::INFINITY, f32::NEG_INFINITY];
        // Half way between two neighbours of either type: ties go to even.
        let ties = (0..32).map(|i| 1.0 + i as f32 / 4096.0).chain((0..32).map(|i| 1.0 + i as f32 / 512.0));
        let values: Vec<f32> = numbers(1000, 7).into_iter().chain(special).chain(ties).collect();
        let expected: Vec<E> = values.iter().map(|&v| of(v)).collect();
        let widened: Vec<f32> = expected.iter().map(|&v| back(v)).collect();
        on_each_isa!(isa => for len in WIDTHS.into_iter().chain([0, values.len()]) {
            let (mut narrow, mut wide, mut nan) = (vec![E::default(); len], vec![0f32; len], [E::default()]);
            // SAFETY: the instruction set is available.
            unsafe {
                run_on(isa, Convert { src: &values[values.len() - len..], dst: &mut narrow });
                run_on(isa, Convert { src: &narrow, dst: &mut wide });
                run_on(isa, Convert { src: &[f32::from_bits(0x7F80_0001)], dst: &mut nan });
            }
            assert_eq!(narrow, expected[values.len() - len..]);
            assert_eq!(wide, widened[values.len() - len..]);
            assert!(back(nan[0]).is_nan());
        });
    }

    #[test]
    fn conversions_round_to_nearest_even() {
        check_conversion::<f32>(|v| v, |v| v);
        check_conversion::<f16>(f16::from_f32, f16::to_f32);
        check_conversion::<bf16>(bf16::from_f32, bf16::to_f32);
    }

    #[test]
    fn rows_outside_of_the_matrix_panic() {
        let x = [0f32; 32];
        for (stride, from, id) in [(8, 0, 4), (8, 1, 3), (8, usize::MAX, 0), (usize::MAX, 0, 2), (0, 25, 0)] {
            assert!(
                std::panic::catch_unwind(|| f32::add_rows(&mut [0.0; 8], &x, stride, from, &[0, id], &[1.0; 2]))
                    .is_err()
            );
            assert!(
                std::panic::catch_unwind(|| f32::dot_rows(&mut [0.0; 2], &[0.0; 8], &x, stride, from, &[id, 0]))
                    .is_err()
            );
        }
        assert!(std::panic::catch_unwind(|| f32::add_rows(&mut [0.0; 8], &x, 8, 0, &[0, 1], &[1.0; 3])).is_err());
        f32::add_rows(&mut [0.0; 8], &[], 8, 0, &[], &[]);
        f32::add_rows(&mut [0.0; 8], &x, 0, 24, &[u32::MAX], &[1.0]);
    }
}
