//! Sums of rows: of all heads of a row of edges, and over the entries of many rows.

use std::ops::Range;

use super::element::{Element, load_first, store_first};
use super::gathered::{EDGES_PER_BLOCK, NEAR_BYTES, Rows};
use super::isa::Kernel;
use super::vector::{MAX_LANES, Vector};

/// Factors of rows.
pub(super) trait Weights {
    /// Panics unless there is one for every of `count` rows, which makes [`Weights::get`] sound.
    fn check(&self, count: usize);

    /// That of the `k`-th row, in all lanes.
    ///
    /// # Safety
    /// That of [`Vector`]; `k` is below a count that [`Weights::check`] has passed.
    unsafe fn get<V: Vector>(&self, k: usize) -> V;
}

impl<T: AsRef<[f32]>> Weights for T {
    #[inline(always)]
    fn check(&self, count: usize) {
        assert_eq!(self.as_ref().len(), count);
    }

    #[inline(always)]
    unsafe fn get<V: Vector>(&self, k: usize) -> V {
        // SAFETY: by the contract.
        unsafe { V::splat(*self.as_ref().get_unchecked(k)) }
    }
}

/// The factor 1 of all rows.
pub(super) struct Ones;

impl Weights for Ones {
    #[inline(always)]
    fn check(&self, _: usize) {}

    #[inline(always)]
    unsafe fn get<V: Vector>(&self, _: usize) -> V {
        // SAFETY: that of this function.
        unsafe { V::splat(1.0) }
    }
}

/// Edges whose sums of a register do not wait for each other.
const APART: usize = 4;

/// The sum of sums apart.
///
/// # Safety
/// That of [`Vector`].
#[inline(always)]
unsafe fn sum_of_sums<V: Vector>(sums: [V; APART]) -> V {
    // SAFETY: by the contract.
    unsafe {
        let one = V::splat(1.0);
        let halves = [sums[2].mul_add(one, sums[0]), sums[3].mul_add(one, sums[1])];
        halves[1].mul_add(one, halves[0])
    }
}

/// [`Row::add_heads`](super::Row::add_heads) over some channels of the rows.
pub(super) struct AddRows<'a, E, W, const S: usize> {
    pub acc: [&'a mut [f32]; S],
    pub rows: Rows<'a, E>,
    /// By head.
    pub weights: [&'a [W]; S],
}

impl<E: Element, W: Weights, const S: usize> Kernel for AddRows<'_, E, W, S> {
    type Output = ();
    #[inline(always)]
    unsafe fn run<V: Vector>(mut self) {
        let (width, heads, num_edges) = (self.acc[0].len(), self.weights[0].len(), self.rows.ids.len());
        for s in 0..S {
            assert!(self.acc[s].len() == width && self.weights[s].len() == heads);
            self.weights[s].iter().for_each(|weight| weight.check(num_edges));
        }
        self.rows.check(width);
        let far = self.rows.far();
        let channels = width / heads;
        let together = heads_together::<V>(S, channels, heads);
        let one_pass = together == heads && channels <= V::LANES * most_registers::<V>(S, channels / V::LANES);
        // All channels of a block before the next: its rows are in L1 then.
        let block = if one_pass { num_edges.max(1) } else { EDGES_PER_BLOCK };
        for start in (0..num_edges).step_by(block) {
            let edges = start..num_edges.min(start + block);
            for h in (0..heads).step_by(together) {
                let weights = self.weights.map(|weights| &weights[h..h + together]);
                let (mut at, end) = (h * channels, (h + together) * channels);
                // SAFETY: lengths are checked, and a tile is given no more channels than are left.
                unsafe {
                    while end - at >= V::LANES {
                        let edges = edges.clone();
                        at += match (most_registers::<V>(S, (end - at) / V::LANES), together) {
                            (8, 8) => self.tile::<V, 8, 8>(at, weights, edges, far),
                            (8, 4) => self.tile::<V, 8, 4>(at, weights, edges, far),
                            (8, 2) => self.tile::<V, 8, 2>(at, weights, edges, far),
                            (8, _) => self.tile::<V, 8, 1>(at, weights, edges, far),
                            (4, 4) => self.tile::<V, 4, 4>(at, weights, edges, far),
                            (4, 2) => self.tile::<V, 4, 2>(at, weights, edges, far),
                            (4, _) => self.tile::<V, 4, 1>(at, weights, edges, far),
                            (2, 2) => self.tile::<V, 2, 2>(at, weights, edges, far),
                            (2, _) => self.tile::<V, 2, 1>(at, weights, edges, far),
                            _ => self.tile::<V, 1, 1>(at, weights, edges, far),
                        };
                    }
                    match end - at {
                        0 => {}
                        left if left <= <V::Half as Vector>::Half::LANES => {
                            self.tail::<<V::Half as Vector>::Half>(at..end, weights, edges.clone(), far);
                        }
                        left if left <= V::Half::LANES => self.tail::<V::Half>(at..end, weights, edges.clone(), far),
                        _ => self.tail::<V>(at..end, weights, edges.clone(), far),
                    }
                }
            }
        }
    }
}

/// How many heads of so many `channels` go through the rows together: those that fill a tile.
#[inline(always)]
fn heads_together<V: Vector>(sums: usize, channels: usize, heads: usize) -> usize {
    let registers = channels / V::LANES;
    if channels != registers * V::LANES || !registers.is_power_of_two() {
        return 1;
    }
    let together = (most_registers::<V>(sums, registers * heads) / registers).max(1);
    if heads.is_multiple_of(together) { together } else { 1 }
}

/// How many registers of a row to go through at a time where `left` of them are left and there are `sums` for each.
#[inline(always)]
fn most_registers<V: Vector>(sums: usize, left: usize) -> usize {
    match left {
        // With AVX2 there are 16 in all.
        8.. if sums == 1 || V::LANES == MAX_LANES => 8,
        4.. => 4,
        2.. => 2,
        _ => 1,
    }
}

impl<E: Element, W: Weights, const S: usize> AddRows<'_, E, W, S> {
    /// Sums `N` registers of channels from `at` on over `edges`, those of `HEADS` heads with `weights` of their own;
    /// returns how many channels these are. Where rows are `far`, requests the same channels of later ones.
    ///
    /// # Safety
    /// That of [`Kernel::run`], where the lengths are checked.
    #[inline(always)]
    unsafe fn tile<V: Vector, const N: usize, const HEADS: usize>(
        &mut self,
        at: usize,
        weights: [&[W]; S],
        edges: Range<usize>,
        far: bool,
    ) -> usize {
        // SAFETY: so many channels are left of every accumulator and row.
        unsafe {
            let mut sums = [[V::splat(0.0); N]; S];
            for s in 0..S {
                for n in 0..N {
                    sums[s][n] = V::load(self.acc[s].as_ptr().add(at + n * V::LANES));
                }
            }
            for k in edges {
                if far {
                    self.rows.prefetch(k, at, N * V::LANES);
                }
                let row = self.rows.get(k, at);
                for h in 0..HEADS {
                    let mut weight = [V::splat(0.0); S];
                    for s in 0..S {
                        weight[s] = weights[s].get_unchecked(h).get(k);
                    }
                    for n in h * (N / HEADS)..(h + 1) * (N / HEADS) {
                        let v = E::load::<V>(row.add(n * V::LANES));
                        for s in 0..S {
                            sums[s][n] = v.mul_add(weight[s], sums[s][n]);
                        }
                    }
                }
            }
            for s in 0..S {
                for n in 0..N {
                    sums[s][n].store(self.acc[s].as_mut_ptr().add(at + n * V::LANES));
                }
            }
        }
        N * V::LANES
    }

    /// Sums `channels` of one head, no more than a register has. Where rows are `far`, requests the same channels of
    /// later ones.
    ///
    /// # Safety
    /// That of [`Kernel::run`], where the lengths are checked.
    #[inline(always)]
    unsafe fn tail<V: Vector>(&mut self, channels: Range<usize>, weights: [&[W]; S], edges: Range<usize>, far: bool) {
        let (at, count) = (channels.start, channels.len());
        let weights = weights.map(|weights| &weights[0]);
        // What is left fills the register, so no load of it leaves the matrix.
        let room = if count == V::LANES { 1 } else { V::LANES };
        let last = self.rows.x.as_ptr().wrapping_add((self.rows.x.len() + 1).saturating_sub(room));
        // SAFETY: so many channels are left of every accumulator and row.
        unsafe {
            let mut sums = [[V::splat(0.0); APART]; S];
            for s in 0..S {
                sums[s][0] = load_first(self.acc[s].as_ptr().add(at), count);
            }
            let whole = edges.start + edges.len() / APART * APART;
            for first in (edges.start..whole).step_by(APART) {
                for u in 0..APART {
                    self.add_tail(&mut sums, u, weights, first + u, (at, count, last), far);
                }
            }
            for k in whole..edges.end {
                self.add_tail(&mut sums, 0, weights, k, (at, count, last), far);
            }
            for s in 0..S {
                store_first(sum_of_sums(sums[s]), self.acc[s].as_mut_ptr().add(at), count);
            }
        }
    }

    /// Adds `count` channels of one row to the `u`-th sums; from `last` on a whole register would leave the matrix.
    ///
    /// # Safety
    /// That of [`AddRows::tail`].
    #[inline(always)]
    unsafe fn add_tail<V: Vector>(
        &self,
        sums: &mut [[V; APART]; S],
        u: usize,
        weights: [&W; S],
        k: usize,
        (at, count, last): (usize, usize, *const E),
        far: bool,
    ) {
        // SAFETY: by the contract.
        unsafe {
            if far {
                self.rows.prefetch(k, at, count);
            }
            let row = self.rows.get(k, at);
            // A whole register where the matrix goes on for so long: the lanes behind the row are not stored.
            let v = if row < last { E::load::<V>(row) } else { load_first::<V, E>(row, count) };
            for s in 0..S {
                sums[s][u] = v.mul_add(weights[s].get(k), sums[s][u]);
            }
        }
    }
}

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
