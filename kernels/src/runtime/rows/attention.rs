//! Weights of a row of attention, one head at a time.

use super::softmax::{Lanes, exp, greater, reduce};
use super::vector::{Kernel, MAX_LANES, Vector, dispatch};

/// Columns of a table at rows: `table[ids[k] * stride + at ..]`.
#[derive(Clone, Copy)]
pub(crate) struct Columns<'a> {
    pub table: &'a [f32],
    pub stride: usize,
    pub at: usize,
    pub ids: &'a [u32],
}

impl Columns<'_> {
    /// Panics unless `width` columns of every row lie in the table, which makes [`Columns::get`] sound.
    #[inline(always)]
    fn check(&self, width: usize) {
        super::Rows::new(self.table, self.stride, self.at, self.ids).check(width);
    }

    /// # Safety
    /// [`Columns::check`] has passed for more than `column`, and `k < ids.len()`.
    #[inline(always)]
    unsafe fn get(&self, k: usize, column: usize) -> f32 {
        // SAFETY: by the contract.
        unsafe { *self.table.get_unchecked(*self.ids.get_unchecked(k) as usize * self.stride + self.at + column) }
    }
}

/// `scores[k] = own + source[k]`
///
/// # Panics
/// If a row does not lie in the table.
pub(crate) fn scores_of(scores: &mut Vec<f32>, own: f32, source: Columns<'_>) {
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

/// The weights of the edges out of a source again: `weights[k] = exp(leaky_relu(z_k) - l_k)` of the score
/// `z_k = own + s_k`, and in `share` those of positive scores; returns `sum_k slope_k weights[k] c_k`. The columns of
/// an edge are `s_k`, `l_k` and `c_k`, slopes are those of the leaky ReLU.
///
/// # Panics
/// If a row does not lie in the table.
pub(crate) fn weights_again(
    weights: &mut Vec<f32>,
    share: &mut Vec<f32>,
    own: f32,
    arrivals: Columns<'_>,
    slope: f32,
) -> f32 {
    dispatch(Again { weights, share, own, arrivals, slope })
}

/// `z` where it is positive, `slope z` elsewhere.
#[inline(always)]
pub(crate) fn leaky_relu(z: f32, slope: f32) -> f32 {
    if z > 0.0 { z } else { slope * z }
}

/// One number of all `values`, whole blocks of lanes: those of each lane in order, then the lanes.
#[inline(always)]
fn by_lanes(values: &[f32], first: f32, of: impl Fn(f32, f32) -> f32) -> f32 {
    let mut lanes: Lanes = [first; MAX_LANES];
    for block in values.as_chunks::<MAX_LANES>().0 {
        for l in 0..MAX_LANES {
            lanes[l] = of(block[l], lanes[l]);
        }
    }
    reduce(lanes, of)
}

/// [`scores_of`].
struct Scores<'a> {
    scores: &'a mut Vec<f32>,
    own: f32,
    source: Columns<'a>,
}

impl Kernel for Scores<'_> {
    type Output = ();
    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        self.source.check(1);
        self.scores.resize(self.source.ids.len(), 0.0);
        for (k, score) in self.scores.iter_mut().enumerate() {
            // SAFETY: just checked.
            *score = self.own + unsafe { self.source.get(k, 0) };
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
        // What is behind the last score counts for nothing; blocks are whole with it.
        let (len, whole) = (self.scores.len(), self.scores.len().next_multiple_of(MAX_LANES));
        self.scores.resize(whole, f32::NEG_INFINITY);
        self.weights.resize(whole, 0.0);
        let (scores, weights) = (&self.scores[..whole], &mut self.weights[..whole]);
        // Loops over a whole row become vector code in any case, those over lanes where they are short.
        for (weight, &score) in weights.iter_mut().zip(scores) {
            *weight = leaky_relu(score, self.slope);
        }
        weights[len..].fill(f32::NEG_INFINITY);
        let max = by_lanes(weights, f32::MIN, greater);
        for weight in &mut *weights {
            *weight = exp::<V>(*weight - max);
        }
        let sum = by_lanes(weights, 0.0, |a, b| a + b);
        let scale = 1.0 / sum;
        for weight in &mut *weights {
            *weight *= scale;
        }
        self.share.resize(whole, 0.0);
        for (share, (&weight, &score)) in self.share.iter_mut().zip(weights.iter().zip(scores)) {
            *share = if score > 0.0 { weight } else { 0.0 };
        }
        let mass = by_lanes(self.share, 0.0, |a, b| a + b);
        self.share.truncate(len);
        self.scores.truncate(len);
        self.weights.truncate(len);
        Softmax { max, sum, mass }
    }
}

/// [`weights_again`].
struct Again<'a> {
    weights: &'a mut Vec<f32>,
    share: &'a mut Vec<f32>,
    own: f32,
    arrivals: Columns<'a>,
    slope: f32,
}

impl Kernel for Again<'_> {
    type Output = f32;
    #[inline(always)]
    unsafe fn run<V: Vector>(self) -> f32 {
        self.arrivals.check(3);
        let len = self.arrivals.ids.len();
        let whole = len.next_multiple_of(MAX_LANES);
        self.weights.resize(whole, 0.0);
        self.share.resize(whole, 0.0);
        let mut sum: Lanes = [0.0; MAX_LANES];
        let blocks = self.weights.as_chunks_mut::<MAX_LANES>().0.iter_mut();
        for (block, (weights, share)) in blocks.zip(self.share.as_chunks_mut::<MAX_LANES>().0).enumerate() {
            let first = block * MAX_LANES;
            let edges = (len - first).min(MAX_LANES);
            // What is behind the last edge has no weight.
            let mut scores: Lanes = [0.0; MAX_LANES];
            let mut logs: Lanes = [f32::INFINITY; MAX_LANES];
            let mut centres: Lanes = [0.0; MAX_LANES];
            for l in 0..edges {
                // SAFETY: just checked.
                unsafe {
                    scores[l] = self.own + self.arrivals.get(first + l, 0);
                    logs[l] = self.arrivals.get(first + l, 1);
                    centres[l] = self.arrivals.get(first + l, 2);
                }
            }
            for l in 0..MAX_LANES {
                let weight = exp::<V>(leaky_relu(scores[l], self.slope) - logs[l]);
                let positive = if scores[l] > 0.0 { weight } else { 0.0 };
                sum[l] += (positive + self.slope * (weight - positive)) * centres[l];
                (weights[l], share[l]) = (weight, positive);
            }
        }
        self.weights.truncate(len);
        self.share.truncate(len);
        reduce(sum, |a, b| a + b)
    }
}

#[cfg(test)]
mod tests {
    use super::super::vector::{Isa, run_on};
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
                    run_on(isa, Scores { scores: &mut scores, own: 0.5, source: columns });
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
                let (weights, share) = (&mut weights, &mut share);
                // SAFETY: as above.
                let sum = unsafe { run_on(isa, Again { weights, share, own: 0.5, arrivals: columns, slope }) };
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
    fn a_slope_of_zero_leaves_no_nan_and_a_row_outside_of_the_table_panics() {
        let (mut scores, mut weights) = (vec![-1.0, 2.0, -3.0], Vec::new());
        let found = attention_weights(&mut scores, &mut weights, &mut Vec::new(), 0.0);
        assert!(found.sum.is_finite() && weights.iter().all(|w| w.is_finite()));
        let outside = Columns { table: &[0.0; 8], stride: 4, at: 2, ids: &[1] };
        assert!(
            std::panic::catch_unwind(|| scores_of(&mut Vec::new(), 0.0, Columns { ids: &[2], ..outside })).is_err()
        );
        let again = || weights_again(&mut Vec::new(), &mut Vec::new(), 0.0, outside, 0.2);
        assert!(std::panic::catch_unwind(again).is_err());
    }
}
