//! A cube per feature and direction, a thread per threshold; then a cube per leaf.
//!
//! The arithmetic is that of `search.rs`. A compiler may fuse a product into an addition that follows, which rounds
//! once instead of twice, and that of NVIDIA's Vulkan driver takes sums and products in another order; [`kept`] hides
//! parts of them wherever that would change a bit. Products with powers of two are exact, fused or not.

use cubecl::prelude::*;

use super::table::{FEATURE_WORDS, ONE_HOT, ORDERED};
use crate::runtime::args::launch_args;
use crate::runtime::prims::Reduction;
use crate::runtime::prims::kernel::{THREADS, cube_prefix_sum, cube_reduce};
use crate::trees::histogram::WORDS;

/// Words of a rule: `lambda_l1`, `lambda_l2`, `max_delta_step`, `path_smooth`, `min_data_in_leaf`, `min_sum_hessian`,
/// epsilon, what a unit of gradient and of hessian is worth, all as the bits of doubles, and a zero.
pub(crate) const RULE_WORDS: usize = 10;

/// Words of a leaf: gradient, hessian, rows per hessian, score to exceed, output and its bounds as the bits of doubles;
/// gradient, hessian and count in fixed point.
pub(crate) const LEAF_WORDS: usize = 10;

/// What is written of a candidate: threshold, default side, left gradient, hessian and count.
pub(crate) const FOUND_WORDS: usize = 5;

/// What is read of a leaf: candidate or -1, the bits of its gain, the words of the candidate.
pub(crate) const WINNER_WORDS: usize = 2 + FOUND_WORDS;

/// A feature that a leaf does not look at, in place of the only threshold that may win.
pub(crate) const SKIP: i64 = -2;

/// Any threshold may win.
pub(crate) const ANY: i64 = -1;

/// Which parts of a rule are in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RuleShape {
    pub l1: bool,
    pub step: bool,
    pub smooth: bool,
    pub bounded: bool,
    pub estimated: bool,
}

#[derive(CubeType, Clone, Copy)]
struct Side {
    grad: f64,
    hess: f64,
    rows: f64,
}

#[cube]
pub(crate) fn double(words: &Array<i64>, at: usize) -> f64 {
    f64::reinterpret(words[at])
}

/// `x` by way of an integer; that `zero` is none, a compiler cannot know.
#[cube]
pub(crate) fn kept(x: f64, zero: i64) -> f64 {
    f64::reinterpret(i64::reinterpret(x) ^ zero)
}

/// `x` rounded to a whole number, ties to even; Vulkan leaves the ties of its own rounding open.
#[cube]
pub(crate) fn rounded(x: f64) -> f64 {
    let below = x.floor();
    let part = x - below;
    let half = below * 0.5f64;
    let odd = half.floor() != half;
    let up = part > 0.5f64 || (part == 0.5f64 && odd);
    select(up, below + 1.0f64, below)
}

#[cube]
fn shrunk(words: &Array<i64>, x: f64, #[comptime] shape: RuleShape) -> f64 {
    let mut t = x;
    if comptime!(shape.l1) {
        let magnitude = select(x < 0.0f64, -x, x) - double(words, 0usize);
        let rest = select(magnitude > 0.0f64, magnitude, 0.0f64);
        t = select(x < 0.0f64, -rest, rest);
    }
    t
}

#[cube]
fn rows_of(words: &Array<i64>, leaf: usize, count: i64, hess: f64, #[comptime] shape: RuleShape) -> f64 {
    let mut rows = f64::cast_from(count);
    if comptime!(shape.estimated) {
        rows = rounded(kept(hess * double(words, leaf + 2), words[RULE_WORDS - 1]));
    }
    rows
}

#[cube]
fn clipped(x: f64, low: f64, high: f64) -> f64 {
    select(x < low, low, select(x > high, high, x))
}

#[cube]
fn output_of(words: &Array<i64>, leaf: usize, side: Side, #[comptime] shape: RuleShape) -> f64 {
    let t = shrunk(words, side.grad, shape);
    let weight = side.hess + double(words, 1usize);
    let mut w = select(weight > 0.0f64, -t / weight, 0.0f64);
    if comptime!(shape.step) {
        let step = double(words, 2usize);
        w = clipped(w, -step, step);
    }
    if comptime!(shape.smooth) {
        let zero = words[RULE_WORDS - 1];
        let ratio = side.rows / double(words, 3usize);
        let own = kept(kept(w * ratio, zero) / (ratio + 1.0f64), zero);
        w = own + kept(double(words, leaf + 4) / (ratio + 1.0f64), zero);
    }
    clipped(w, double(words, leaf + 5), double(words, leaf + 6))
}

#[cube]
fn score_of(words: &Array<i64>, side: Side, w: f64, #[comptime] shape: RuleShape) -> f64 {
    let t = shrunk(words, side.grad, shape);
    let weight = side.hess + double(words, 1usize);
    let zero = words[RULE_WORDS - 1];
    kept(-(kept(2.0f64 * t * w, zero) + kept(kept(weight * w, zero) * w, zero)), zero)
}

#[cube]
fn free_score(words: &Array<i64>, side: Side, #[comptime] shape: RuleShape) -> f64 {
    let t = shrunk(words, side.grad, shape);
    t * t / (side.hess + double(words, 1usize))
}

/// The sum of the scores of both sides; less than any other where the outputs run against the direction of the feature.
#[cube]
fn score_of_both(
    words: &Array<i64>,
    leaf: usize,
    monotone: f64,
    left: Side,
    right: Side,
    #[comptime] shape: RuleShape,
) -> f64 {
    if comptime!(shape.bounded || shape.step || shape.smooth) {
        let w_left = output_of(words, leaf, left, shape);
        let w_right = output_of(words, leaf, right, shape);
        let score = score_of(words, left, w_left, shape) + score_of(words, right, w_right, shape);
        let bounded = comptime!(shape.bounded).runtime();
        let against = bounded && (w_right - w_left) * monotone < 0.0f64;
        select(against, f64::min_value(), score)
    } else {
        free_score(words, left, shape) + free_score(words, right, shape)
    }
}

/// The gain of a split into these sides; -1 where it is not valid.
#[cube]
fn gain_of(
    words: &Array<i64>,
    leaf: usize,
    monotone: f64,
    left: Side,
    right: Side,
    #[comptime] shape: RuleShape,
) -> f64 {
    let min_rows = double(words, 4usize);
    let min_hess = double(words, 5usize);
    let few = left.rows < min_rows || left.hess < min_hess || right.rows < min_rows || right.hess < min_hess;
    let score = score_of_both(words, leaf, monotone, left, right, shape);
    let shift = double(words, leaf + 3);
    select(!few && score > shift, score - shift, f64::new(-1.0f32))
}

/// The place of the largest gain of all threads, of equal ones the smallest place.
#[cube]
fn cube_best(gain: f64, place: u32, gains: &mut SharedMemory<f64>, places: &mut SharedMemory<u32>) -> u32 {
    let unit = UNIT_POS as usize;
    gains[unit] = gain;
    places[unit] = place;
    sync_cube();
    let mut half = THREADS.runtime() / 2;
    while half > 0 {
        if unit < half {
            let other = gains[unit + half];
            let other_place = places[unit + half];
            let own = gains[unit];
            if other > own || (other == own && other_place < places[unit]) {
                gains[unit] = other;
                places[unit] = other_place;
            }
        }
        sync_cube();
        half /= 2;
    }
    let winner = places[0];
    sync_cube();
    winner
}

launch_args! {
    /// The histogram of a leaf, where the bins of features begin, what is known of features, and rule and leaves.
    SearchInputs, SearchInputsArgs {
        sums: Array<i64>,
        offsets: Array<i32>,
        table: Array<i32>,
        words: Array<i64>,
    }
}

launch_args! {
    /// The gain of every candidate of every leaf, and its split.
    Candidates, CandidatesArgs {
        gains: Array<f64>,
        found: Array<i64>,
    }
}

launch_args! {
    /// Which of so many leaves is searched.
    LeafPlace, LeafPlaceArgs {
        number: usize,
        count: usize,
        num_features: usize,
    }
}

launch_args! {
    /// The leaves, and the candidates of each.
    LeafCandidates, LeafCandidatesArgs {
        count: usize,
        candidates: usize,
    }
}

/// The best threshold of every feature in both directions: the first scan of a feature in one cube, the second in the
/// next.
#[cube(launch_unchecked)]
pub(crate) fn search_kernel(
    inputs: &SearchInputs,
    out: &mut Candidates,
    leaves: &LeafPlace,
    #[comptime] shape: RuleShape,
) {
    let mut shared = SharedMemory::<i64>::new(THREADS);
    let mut shared_gains = SharedMemory::<f64>::new(THREADS);
    let mut shared_places = SharedMemory::<u32>::new(THREADS);
    let unit = UNIT_POS as usize;
    let zero = i64::cast_from(0i32);
    let leaf = RULE_WORDS + leaves.number * LEAF_WORDS;
    let leaf_grad = inputs.words[leaf + 7];
    let leaf_hess = inputs.words[leaf + 8];
    let leaf_count = inputs.words[leaf + 9];
    let epsilon = double(&inputs.words, 6usize);
    let grad_unit = double(&inputs.words, 7usize);
    let hess_unit = double(&inputs.words, 8usize);

    let mut task = CUBE_POS;
    while task < 2 * leaves.num_features {
        let feature = task / 2;
        let reverse = task % 2 == 1;
        let about = feature * FEATURE_WORDS;
        let num_bin = inputs.table[about];
        let bin_0_unstored = inputs.table[about + 1] != 0i32;
        let zero_bin = inputs.table[about + 2];
        let missing = inputs.table[about + 3];
        let monotone = f64::cast_from(inputs.table[about + 4]);
        let kind = inputs.table[about + 5];
        let only = inputs.words[RULE_WORDS + leaves.count * LEAF_WORDS + leaves.number * leaves.num_features + feature];
        let first = usize::cast_from(inputs.offsets[feature]);

        let ordered = kind == comptime!(ORDERED);
        let one_hot = kind == comptime!(ONE_HOT);
        let both_ways = missing != 0i32 && num_bin > 2i32;
        let looks = only != i64::cast_from(comptime!(SKIP as i32));
        let active = looks && ((ordered && (reverse || both_ways)) || (one_hot && !reverse));
        let skips_zero = ordered && both_ways && missing == 1i32;
        let na_last = ordered && both_ways && missing == 2i32;
        let last = num_bin - 1i32 - select(reverse && na_last, 1i32, 0i32);
        let count = select(active, last, 0i32);

        // A most frequent bin 0 that is not stored is what the others leave of the leaf.
        let derives = active && bin_0_unstored && ordered && !reverse;
        let mut grad_0 = zero;
        let mut hess_0 = zero;
        let mut count_0 = zero;
        if derives {
            let mut grad = zero;
            let mut hess = zero;
            let mut rows = zero;
            let mut k = unit + 1;
            while k < usize::cast_from(num_bin) {
                let at = WORDS * (first + k);
                grad += inputs.sums[at];
                hess += inputs.sums[at + 1];
                rows += inputs.sums[at + 2];
                k += THREADS;
            }
            grad_0 = leaf_grad - cube_reduce::<i64>(grad, &mut shared, Reduction::Sum);
            hess_0 = leaf_hess - cube_reduce::<i64>(hess, &mut shared, Reduction::Sum);
            count_0 = leaf_count - cube_reduce::<i64>(rows, &mut shared, Reduction::Sum);
        }

        let mut best = f64::new(-1.0f32);
        let mut best_place = u32::MAX.runtime();
        let mut best_grad = zero;
        let mut best_hess = zero;
        let mut best_count = zero;
        let mut before_grad = zero;
        let mut before_hess = zero;
        let mut before_count = zero;
        let mut tile = 0i32;
        while tile < count {
            let place = tile + UNIT_POS as i32;
            let bin = select(reverse, last - place, select(one_hot, place + 1i32, place));
            let included = place < count && !(skips_zero && bin == zero_bin);
            let mut grad = zero;
            let mut hess = zero;
            let mut rows = zero;
            if included {
                if derives && bin == 0i32 {
                    grad = grad_0;
                    hess = hess_0;
                    rows = count_0;
                } else {
                    let at = WORDS * (first + usize::cast_from(bin));
                    grad = inputs.sums[at];
                    hess = inputs.sums[at + 1];
                    rows = inputs.sums[at + 2];
                }
            }
            let empty = grad == zero && hess == zero && rows == zero;
            if !one_hot {
                grad = before_grad + cube_prefix_sum::<i64>(grad, &mut shared);
                before_grad += shared[THREADS - 1];
                sync_cube();
                hess = before_hess + cube_prefix_sum::<i64>(hess, &mut shared);
                before_hess += shared[THREADS - 1];
                sync_cube();
                rows = before_count + cube_prefix_sum::<i64>(rows, &mut shared);
                before_count += shared[THREADS - 1];
                sync_cube();
            }
            let threshold = select(reverse, bin - 1i32, bin);
            // A threshold that adds an empty bin repeats the candidate before it.
            let repeats = empty && !one_hot;
            let any = only < zero;
            let wanted = included && ((any && !repeats) || (!any && only == i64::cast_from(threshold)));
            if wanted {
                let side_grad = f64::cast_from(grad) * grad_unit;
                let side_hess = f64::cast_from(hess) * hess_unit + epsilon;
                let side_rows = rows_of(&inputs.words, leaf, rows, side_hess, shape);
                let side = Side { grad: side_grad, hess: side_hess, rows: side_rows };
                let rest = Side {
                    grad: double(&inputs.words, leaf) - side_grad,
                    hess: double(&inputs.words, leaf + 1) - side_hess,
                    rows: f64::cast_from(leaf_count) - side_rows,
                };
                let gain = if reverse {
                    gain_of(&inputs.words, leaf, monotone, rest, side, shape)
                } else {
                    gain_of(&inputs.words, leaf, monotone, side, rest, shape)
                };
                if gain > best {
                    best = gain;
                    best_place = u32::cast_from(place);
                    best_grad = grad;
                    best_hess = hess;
                    best_count = rows;
                }
            }
            tile += comptime!(THREADS as i32);
        }

        let winner = cube_best(best, best_place, &mut shared_gains, &mut shared_places);
        let at = leaves.number * 2 * leaves.num_features + task;
        if UNIT_POS == 0 && winner == u32::MAX {
            out.gains[at] = f64::new(-1.0f32);
        }
        if winner != u32::MAX && winner == best_place {
            let place = i32::cast_from(winner);
            let threshold = select(reverse, last - place - 1i32, select(one_hot, place + 1i32, place));
            let default_left = reverse && (both_ways || missing != 2i32);
            let to = at * FOUND_WORDS;
            out.gains[at] = best;
            out.found[to] = i64::cast_from(threshold);
            out.found[to + 1] = i64::cast_from(select(default_left, 1i32, 0i32));
            out.found[to + 2] = select(reverse, leaf_grad - best_grad, best_grad);
            out.found[to + 3] = select(reverse, leaf_hess - best_hess, best_hess);
            out.found[to + 4] = select(reverse, leaf_count - best_count, best_count);
        }
        sync_cube();
        task += CUBE_COUNT;
    }
}

/// The best candidate of every leaf.
#[cube(launch_unchecked)]
pub(crate) fn winner_kernel(candidates: &Candidates, winners: &mut Array<i64>, leaves: &LeafCandidates) {
    let mut shared_gains = SharedMemory::<f64>::new(THREADS);
    let mut shared_places = SharedMemory::<u32>::new(THREADS);
    let mut leaf = CUBE_POS;
    while leaf < leaves.count {
        let mut best = f64::new(-1.0f32);
        let mut best_place = u32::MAX.runtime();
        let mut k = UNIT_POS as usize;
        while k < leaves.candidates {
            let gain = candidates.gains[leaf * leaves.candidates + k];
            if gain > best {
                best = gain;
                best_place = k as u32;
            }
            k += THREADS;
        }
        let winner = cube_best(best, best_place, &mut shared_gains, &mut shared_places);
        let to = leaf * WINNER_WORDS;
        if UNIT_POS == 0 && winner == u32::MAX {
            winners[to] = i64::cast_from(-1i32);
            // The whole record is read back.
            for word in 1..WINNER_WORDS {
                winners[to + word] = i64::cast_from(0i32);
            }
        }
        if winner != u32::MAX && winner == best_place {
            winners[to] = i64::cast_from(winner);
            winners[to + 1] = i64::reinterpret(best);
            let from = (leaf * leaves.candidates + winner as usize) * FOUND_WORDS;
            for word in 0..FOUND_WORDS {
                winners[to + 2 + word] = candidates.found[from + word];
            }
        }
        leaf += CUBE_COUNT;
    }
}
