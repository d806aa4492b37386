//! Weights of a row of attention.

use super::isa::{Kernel, dispatch};
use super::softmax::{exp, greatest};
use super::vector::{MAX_LANES, Vector};

/// Columns of a table at rows: `table[ids[k] * stride + at ..]`.
#[derive(Clone, Copy)]
pub(crate) struct Columns<'a> {
    pub table: &'a [f32],
    pub stride: usize,
    pub at: usize,
    pub ids: &'a [u32],
}

impl Columns<'_> {
    /// Panics unless `width` columns of every row lie in the table, which makes [`Columns::row`] sound.
    #[inline(always)]
    fn check(&self, width: usize) {
        super::Rows::new(self.table, self.stride, self.at, self.ids, self.ids.len()).check(width);
    }

    /// Column `column` of the `k`-th row.
    ///
    /// # Safety
    /// [`Columns::check`] has passed for at least `column`, and `k < ids.len()`.
    #[inline(always)]
    unsafe fn row(&self, k: usize, column: usize) -> *const f32 {
        // SAFETY: by the contract.
        unsafe { self.table.as_ptr().add(*self.ids.get_unchecked(k) as usize * self.stride + self.at + column) }
    }

    /// Four columns from `column` on of the rows from the `k`-th on; `rest` stands for those that are not there.
    ///
    /// # Safety
    /// That of [`Vector`]; [`Columns::check`] has passed for `column + 4`.
    #[inline(always)]
    unsafe fn four<V: Vector>(&self, k: usize, column: usize, rest: [f32; 4]) -> [V; 4] {
        let mut rows = [rest.as_ptr(); MAX_LANES];
        // SAFETY: by the contract.
        unsafe {
            for l in 0..V::LANES {
                let row = self.row((k + l).min(self.ids.len() - 1), column);
                rows[l] = if k + l < self.ids.len() { row } else { rest.as_ptr() };
            }
            V::columns(rows)
        }
    }
}

/// `scores[h][k] = own[h] + source[k]` with the column of every head `h`.
///
/// # Panics
/// If a row does not lie in the table.
pub(crate) fn scores_of(scores: &mut [Vec<f32>], own: &[f32], source: Columns<'_>) {
    dispatch(Scores { scores, own, source });
}

/// What [`attention_weights`] finds.
pub(crate) struct Softmax {
    /// Of the leaky ReLUs; `f32::MIN` of none.
    pub max: f32,
    /// Of the exponentials of what they are below it; 0 of none.
    pub sum: f32,
    /// The weights of positive scores, added up.
    pub mass: f32,
}

/// `weights = softmax(leaky_relu(scores))`, and in `share` those of positive scores, 0 of others.
pub(crate) fn attention_weights(
    scores: &mut Vec<f32>,
    weights: &mut Vec<f32>,
    share: &mut Vec<f32>,
    slope: f32,
) -> Softmax {
    dispatch(SoftmaxRow { scores, weights, share, slope })
}

/// The weights of the edges out of a source again, for every head: `weights[k] = exp(leaky_relu(z_k) - l_k)` of the
/// score `z_k = own + s_k`, in `share` those of positive scores, and in `sums` `sum_k slope_k weights[k] c_k`. The
/// columns of an edge are `s_k`, `l_k` and `c_k`, [`PER_HEAD`] for a head, slopes are those of the leaky ReLU.
///
/// # Panics
/// If a row does not lie in the table.
pub(crate) fn weights_again(
    [weights, share]: [&mut [Vec<f32>]; 2],
    sums: &mut [f32],
    own: &[f32],
    arrivals: Columns<'_>,
    slope: f32,
) {
    dispatch(Again { weights, share, sums, own, arrivals, slope });
}

/// Columns of [`weights_again`].
const PER_HEAD: usize = 4;

/// Those of an edge that has no weight.
const NO_EDGE: [f32; PER_HEAD] = [0.0, f32::INFINITY, 0.0, 0.0];

/// `z` where it is positive, `slope z` elsewhere.
#[inline(always)]
pub(crate) fn leaky_relu(z: f32, slope: f32) -> f32 {
    if z > 0.0 { z } else { slope * z }
}

/// The same of every lane.
///
/// # Safety
/// That of [`Vector`].
#[inline(always)]
unsafe fn leaky<V: Vector>(z: V, slope: V) -> V {
    // SAFETY: by the contract.
    unsafe {
        let zero = V::splat(0.0);
        z.at_most(zero).mul_add(slope, z.at_least(zero))
    }
}

/// Room for `len` elements and a register behind them. Their number is set once they are written.
#[inline(always)]
fn room<V: Vector>(row: &mut Vec<f32>, len: usize) -> *mut f32 {
    row.clear();
    row.reserve(len + V::LANES);
    row.as_mut_ptr()
}

/// [`scores_of`].
struct Scores<'a> {
    scores: &'a mut [Vec<f32>],
    own: &'a [f32],
    source: Columns<'a>,
}

impl Kernel for Scores<'_> {
    type Output = ();
    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        let (heads, len) = (self.own.len(), self.source.ids.len());
        assert_eq!(self.scores.len(), heads);
        self.source.check(heads);
        let four = heads / 4 * 4;
        // SAFETY: columns are checked; all have room for a register behind `len` elements.
        unsafe {
            for h in (0..four).step_by(4) {
                let scores = [0, 1, 2, 3].map(|c| room::<V>(&mut self.scores[h + c], len));
                for at in (0..len).step_by(V::LANES) {
                    let columns = self.source.four::<V>(at, h, [0.0; 4]);
                    for c in 0..4 {
                        columns[c].mul_add(V::splat(1.0), V::splat(self.own[h + c])).store(scores[c].add(at));
                    }
                }
            }
            for h in four..heads {
                let scores = room::<V>(&mut self.scores[h], len);
                (0..len).for_each(|k| scores.add(k).write(self.own[h] + *self.source.row(k, h)));
            }
            self.scores.iter_mut().for_each(|scores| scores.set_len(len));
        }
    }
}

/// [`attention_weights`].
struct SoftmaxRow<'a> {
    scores: &'a mut Vec<f32>,
    weights: &'a mut Vec<f32>,
    share: &'a mut Vec<f32>,
    slope: f32,
}

impl Kernel for SoftmaxRow<'_> {
    type Output = Softmax;
    #[inline(always)]
    unsafe fn run<V: Vector>(self) -> Softmax {
        let len = self.scores.len();
        self.scores.reserve(V::LANES);
        let scores = self.scores.as_mut_ptr();
        let (weights, share) = (room::<V>(self.weights, len), room::<V>(self.share, len));
        let blocks = || (0..len).step_by(V::LANES);
        // SAFETY: by the contract; all have room for a register behind `len` elements.
        unsafe {
            let (zero, one, slope) = (V::splat(0.0), V::splat(1.0), V::splat(self.slope));
            // The least number behind the last score is not above the greatest.
            V::splat(f32::MIN).store(scores.add(len));
            let mut max = V::splat(f32::MIN);
            for at in blocks() {
                let leaning = leaky(V::load(scores.add(at)), slope);
                leaning.store(weights.add(at));
                max = max.at_least(leaning);
            }
            let max = greatest(max);
            // It has no weight, either.
            V::splat(f32::NEG_INFINITY).store(weights.add(len));
            let (mut sum, mut mass) = (zero, zero);
            for at in blocks() {
                let weight = exp(V::load(weights.add(at)).mul_add(one, V::splat(-max)));
                let positive = weight.where_positive(V::load(scores.add(at)));
                (sum, mass) = (weight.mul_add(one, sum), positive.mul_add(one, mass));
                weight.store(weights.add(at));
                positive.store(share.add(at));
            }
            let [sum, mass, ..] = V::sums([sum, mass, zero, zero]);
            let scale = if len == 0 { 0.0 } else { 1.0 / sum };
            for at in blocks() {
                for row in [weights, share] {
                    V::load(row.add(at)).mul_add(V::splat(scale), zero).store(row.add(at));
                }
            }
            self.weights.set_len(len);
            self.share.set_len(len);
            Softmax { max, sum, mass: mass * scale }
        }
    }
}

/// [`weights_again`].
struct Again<'a> {
    weights: &'a mut [Vec<f32>],
    share: &'a mut [Vec<f32>],
    sums: &'a mut [f32],
    own: &'a [f32],
    arrivals: Columns<'a>,
    slope: f32,
}

impl Kernel for Again<'_> {
    type Output = ();
    #[inline(always)]
    unsafe fn run<V: Vector>(mut self) {
        let (heads, len) = (self.own.len(), self.arrivals.ids.len());
        assert!(self.weights.len() == heads && self.share.len() == heads && self.sums.len() == heads);
        self.arrivals.check(PER_HEAD * heads);
        let four = heads / 4 * 4;
        // SAFETY: edges and columns are checked, and the heads are there.
        unsafe {
            for h in (0..four).step_by(4) {
                self.of_heads::<V, 4>(h, len);
            }
            for h in four..heads {
                self.of_heads::<V, 1>(h, len);
            }
        }
    }
}

impl Again<'_> {
    /// Those of `N` heads from `first` on, whose columns of an edge are fetched together.
    ///
    /// # Safety
    /// That of [`Kernel::run`], where the edges are checked; so many heads are there.
    #[inline(always)]
    unsafe fn of_heads<V: Vector, const N: usize>(&mut self, first: usize, len: usize) {
        // SAFETY: by the contract; rows of both have room for a register behind `len` elements.
        unsafe {
            let (slope, zero, one, minus) = (V::splat(self.slope), V::splat(0.0), V::splat(1.0), V::splat(-1.0));
            let rows = std::array::from_fn::<_, N, _>(|h| {
                let [weights, share] = [&mut *self.weights, &mut *self.share];
                (room::<V>(&mut weights[first + h], len), room::<V>(&mut share[first + h], len))
            });
            let (mut sums, mut positives) = ([zero; N], [zero; N]);
            for at in (0..len).step_by(V::LANES) {
                for h in 0..N {
                    let column = PER_HEAD * (first + h);
                    let [score, log, centre, _] = self.arrivals.four::<V>(at, column, NO_EDGE);
                    let score = score.mul_add(one, V::splat(self.own[first + h]));
                    let weight = exp(log.mul_add(minus, leaky(score, slope)));
                    let positive = weight.where_positive(score);
                    sums[h] = weight.mul_add(centre, sums[h]);
                    positives[h] = positive.mul_add(centre, positives[h]);
                    weight.store(rows[h].0.add(at));
                    positive.store(rows[h].1.add(at));
                }
            }
            for h in 0..N {
                let [sum, positive, ..] = V::sums([sums[h], positives[h], zero, zero]);
                self.sums[first + h] = positive + self.slope * (sum - positive);
                self.weights[first + h].set_len(len);
                self.share[first + h].set_len(len);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::isa::{Isa, run_on};
    use super::*;

    fn close(found: f32, want: f64) {
        assert!((f64::from(found) - want).abs() <= 2e-6 * (1e-3 + want.abs()), "{found} instead of {want}");
    }

    #[test]
    fn weights_and_their_sums_are_those_of_f64() {
        let slope = 0.2f32;
        let leaky = |z: f64| if z > 0.0 { z } else { f64::from(slope) * z };
        let table: Vec<f32> = (0..40 * 8).map(|i| ((i * 37 + 11) % 101) as f32 * 0.1 - 5.0).collect();
        for isa in Isa::ALL.into_iter().filter(|isa| isa.available()) {
            // Lengths grow and shrink: nothing may be left of a longer row.
            for len in [0, 1, 33, 3, 16, 15, 17, 100, 0, 64] {
                let ids: Vec<u32> = (0..len).map(|k| (k * 7 + 3) % 40).collect();
                let columns = Columns { table: &table, stride: 8, at: 2, ids: &ids };
                let at = |k: usize, column: usize| f64::from(table[ids[k] as usize * 8 + 2 + column]);
                let len = len as usize;
                let (mut scores, mut weights, mut share) = (vec![7.0; 5], vec![7.0; 90], vec![7.0; 20]);
                // SAFETY: the instruction set is available.
                let found = unsafe {
                    run_on(isa, Scores { scores: std::slice::from_mut(&mut scores), own: &[0.5], source: columns });
                    let (scores, weights, share) = (&mut scores, &mut weights, &mut share);
                    run_on(isa, SoftmaxRow { scores, weights, share, slope })
                };
                let z: Vec<f64> = (0..len).map(|k| 0.5 + at(k, 0)).collect();
                let sum: f64 = z.iter().map(|&z| (leaky(z) - f64::from(found.max)).exp()).sum();
                assert!([scores.len(), weights.len(), share.len()] == [len; 3], "{isa:?} {len}");
                close(found.sum, sum);
                for k in 0..len {
                    let want = (leaky(z[k]) - f64::from(found.max)).exp() / sum;
                    close(weights[k], want);
                    assert_eq!(share[k], if z[k] > 0.0 { weights[k] } else { 0.0 });
                }
                close(found.mass, share.iter().map(|&s| f64::from(s)).sum());
                let (mut weights, mut share, mut sums) = ([weights], [share], [0.0]);
                let (all, some, own) = (&mut weights, &mut share, &[0.5]);
                // SAFETY: as above.
                unsafe {
                    run_on(isa, Again { weights: all, share: some, sums: &mut sums, own, arrivals: columns, slope })
                };
                let ([weights], [share], [sum]) = (weights, share, sums);
                let mut wanted = 0.0;
                for k in 0..len {
                    let want = (leaky(z[k]) - at(k, 1)).exp();
                    close(weights[k], want);
                    assert_eq!(share[k], if z[k] > 0.0 { weights[k] } else { 0.0 });
                    wanted += want * at(k, 2) * if z[k] > 0.0 { 1.0 } else { f64::from(slope) };
                }
                let size: f64 = (0..len).map(|k| f64::from(weights[k]) * at(k, 2).abs()).sum();
                assert!((f64::from(sum) - wanted).abs() <= 2e-6 * size, "{isa:?} {len}: {sum}, not {wanted}");
            }
        }
    }

    #[test]
    fn weights_of_several_heads_are_those_of_each_alone() {
        for (heads, len) in [2, 4, 5, 9].into_iter().flat_map(|heads| [0, 1, 15, 16, 33].map(|len| (heads, len))) {
            let stride = heads * PER_HEAD;
            let table: Vec<f32> = (0..20 * stride).map(|i| ((i * 37 + 11) % 101) as f32 * 0.04 - 2.0).collect();
            let ids: Vec<u32> = (0..len).map(|k| (k * 7 + 3) % 20).collect();
            let own: Vec<f32> = (0..heads).map(|h| h as f32 * 0.5 - 1.0).collect();
            for isa in Isa::ALL.into_iter().filter(|isa| isa.available()) {
                let again = |own: &[f32], at: usize| {
                    let [mut weights, mut share] = [(); 2].map(|()| vec![Vec::new(); own.len()]);
                    let mut sums = vec![0f32; own.len()];
                    let (all, some) = (&mut weights, &mut share);
                    let arrivals = Columns { table: &table, stride, at, ids: &ids };
                    let again = Again { weights: all, share: some, sums: &mut sums, own, arrivals, slope: 0.2 };
                    // SAFETY: the instruction set is available.
                    unsafe { run_on(isa, again) };
                    (weights, share, sums)
                };
                let (weights, share, sums) = again(&own, 0);
                for h in 0..heads {
                    let alone = again(&own[h..=h], h * PER_HEAD);
                    assert_eq!(
                        (&weights[h], &share[h], sums[h]),
                        (&alone.0[0], &alone.1[0], alone.2[0]),
                        "{isa:?} {h}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_slope_of_zero_leaves_no_nan_and_a_row_outside_of_the_table_panics() {
        let (mut scores, mut weights) = (vec![-1.0, 2.0, -3.0], Vec::new());
        let found = attention_weights(&mut scores, &mut weights, &mut Vec::new(), 0.0);
        assert!(found.sum.is_finite() && weights.iter().all(|w| w.is_finite()));
        let outside = Columns { table: &[0.0; 8], stride: 4, at: 2, ids: &[1] };
        assert!(
            std::panic::catch_unwind(|| scores_of(&mut [Vec::new()], &[0.0], Columns { ids: &[2], ..outside }))
                .is_err()
        );
        let again = || weights_again([&mut [Vec::new()], &mut [Vec::new()]], &mut [0.0], &[0.0], outside, 0.2);
        assert!(std::panic::catch_unwind(again).is_err());
    }
}
