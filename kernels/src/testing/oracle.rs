//! Every operator as a plain loop over edges in f64: slow, and short enough to be checked by reading.
//!
//! Sums run over *kept* edges: `kept[e]` says whether edge `e` takes part ([`keep_all`], [`Drop::mask`]).

use super::fixtures::{Fixture, Rng};

/// DropEdge: an edge is kept if a hash of its two ends is below `threshold`. Parallel edges share a fate; the edge
/// (i, j) and its reverse (j, i) do not.
///
/// Keys must come from a generator, not a counter: `key1 ^ 1` only swaps the fates of sources 2k and 2k + 1 within
/// every row, so masks of nearby keys have the same count in almost every row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drop {
    /// Key mixed into the destination id.
    pub key0: u32,
    /// Key mixed into the source id.
    pub key1: u32,
    /// Kept fraction times 2^32. `u32::MAX` still drops one edge in 2^32: to keep all, use [`keep_all`].
    pub threshold: u32,
}

impl Drop {
    /// A mask that keeps the fraction `p_keep` in [0, 1) of the edges, with keys drawn from `seed`.
    pub fn new(seed: u64, p_keep: f64) -> Self {
        let keys = Rng::new(seed).next_u64();
        Drop { key0: (keys >> 32) as u32, key1: keys as u32, threshold: (p_keep * 32f64.exp2()) as u32 }
    }

    /// The hash of an edge. Bit-exact contract with the kernels; `dst` and `src` are *global* ids.
    pub fn hash(&self, dst: u32, src: u32) -> u32 {
        let mut h = (dst ^ self.key0).wrapping_mul(0x9E37_79B1);
        h ^= h >> 16;
        h = h.wrapping_add(src ^ self.key1).wrapping_mul(0x85EB_CA6B);
        h ^= h >> 13;
        h = h.wrapping_mul(0xC2B2_AE35);
        h ^ (h >> 16)
    }

    /// Whether the edge between two global ids is kept.
    pub fn keep(&self, dst: u32, src: u32) -> bool {
        self.hash(dst, src) < self.threshold
    }

    /// The fate of every edge `[E]`, where global ids are local ids plus the base of their node type.
    pub fn mask(&self, f: &Fixture, dst_base: u32, src_base: u32) -> Vec<bool> {
        f.edges().map(|(_, i, j)| self.keep(dst_base + i as u32, src_base + j as u32)).collect()
    }
}

/// The factors of dropout on attention `[E, H]`: head `h` of an edge is column `src * H + h` of row `dst`.
pub fn attention_factors(f: &Fixture, drop: &Drop, heads: usize) -> Vec<f64> {
    let scale = 32f64.exp2() / f64::from(drop.threshold);
    let kept = |i: usize, j: usize, h: usize| drop.keep(i as u32, (j * heads + h) as u32);
    let of_edge = |(_, i, j)| (0..heads).map(move |h| if kept(i, j, h) { scale } else { 0.0 });
    f.edges().flat_map(of_edge).collect()
}

/// The mask `[E]` that drops nothing.
pub fn keep_all(f: &Fixture) -> Vec<bool> {
    vec![true; f.num_edges()]
}

/// The kept edges as (edge id, destination, source).
pub(super) fn kept_edges<'a>(f: &'a Fixture, kept: &'a [bool]) -> impl Iterator<Item = (usize, usize, usize)> + 'a {
    assert_eq!(kept.len(), f.num_edges(), "{}: the mask needs one entry per edge", f.name);
    f.edges().filter(|&(e, _, _)| kept[e])
}

pub(super) fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// `y += scale x`.
pub(super) fn add_scaled(y: &mut [f64], scale: f64, x: &[f64]) {
    y.iter_mut().zip(x).for_each(|(y, x)| *y += scale * x);
}

/// The factors of an SpMM; an absent one is 1.
#[derive(Clone, Copy, Debug, Default)]
pub struct SpmmWeights<'a> {
    /// u, one per row.
    pub dst_scale: Option<&'a [f64]>,
    /// v, one per column.
    pub src_scale: Option<&'a [f64]>,
    /// w, one per edge.
    pub edge_weight: Option<&'a [f64]>,
}

impl SpmmWeights<'_> {
    /// (u_i, v_j, w_e).
    pub(super) fn of(&self, e: usize, i: usize, j: usize) -> (f64, f64, f64) {
        let at = |x: Option<&[f64]>, k: usize| x.map_or(1.0, |x| x[k]);
        (at(self.dst_scale, i), at(self.src_scale, j), at(self.edge_weight, e))
    }
}

/// SpMM: `y_i = u_i sum_j v_j w_ij x_j`. `x` is `[num_cols, width]`, the result `[num_rows, width]`.
pub fn spmm(f: &Fixture, x: &[f64], width: usize, weights: &SpmmWeights, kept: &[bool]) -> Vec<f64> {
    assert_eq!(x.len(), f.num_cols * width, "x is [num_cols, width]");
    let mut y = vec![0.0; f.num_rows * width];
    for (e, i, j) in kept_edges(f, kept) {
        let (u, v, w) = weights.of(e, i, j);
        add_scaled(&mut y[i * width..][..width], u * v * w, &x[j * width..][..width]);
    }
    y
}

/// `ln sum_j exp(logit_ij)` of every row and head `[num_rows, H]`; +infinity, not -infinity, for a row without kept
/// edges, so that `exp(logit - lse)` is 0 there.
pub fn log_sum_exp(f: &Fixture, logits: &[f64], heads: usize, kept: &[bool]) -> Vec<f64> {
    assert_eq!(logits.len(), f.num_edges() * heads, "logits are [E, H]");
    let mut max = vec![f64::NEG_INFINITY; f.num_rows * heads];
    for (e, i, _) in kept_edges(f, kept) {
        for h in 0..heads {
            max[i * heads + h] = max[i * heads + h].max(logits[e * heads + h]);
        }
    }
    let mut sum = vec![0.0; f.num_rows * heads];
    for (e, i, _) in kept_edges(f, kept) {
        for h in 0..heads {
            sum[i * heads + h] += (logits[e * heads + h] - max[i * heads + h]).exp();
        }
    }
    max.iter().zip(&sum).map(|(m, s)| if *s > 0.0 { m + s.ln() } else { f64::INFINITY }).collect()
}

/// Softmax over the kept edges of every row, separately for each head: `alpha_ij = exp(logit_ij) / sum_k
/// exp(logit_ik)`. `logits` and the result are `[E, H]`; dropped edges get 0.
pub fn edge_softmax(f: &Fixture, logits: &[f64], heads: usize, kept: &[bool]) -> Vec<f64> {
    let lse = log_sum_exp(f, logits, heads, kept);
    let mut alpha = vec![0.0; logits.len()];
    for (e, i, _) in kept_edges(f, kept) {
        for h in 0..heads {
            alpha[e * heads + h] = (logits[e * heads + h] - lse[i * heads + h]).exp();
        }
    }
    alpha
}

/// Inputs of [`attend`].
#[derive(Clone, Copy, Debug)]
pub struct AttendInput<'a> {
    /// Source features `[num_cols, H * D]`.
    pub values: &'a [f64],
    /// s `[num_rows, H]`.
    pub score_dst: &'a [f64],
    /// t `[num_cols, H]`.
    pub score_src: &'a [f64],
    /// H.
    pub heads: usize,
    /// D.
    pub channels: usize,
    /// Slope of the leaky ReLU below zero.
    pub slope: f64,
    /// Factors of the attention after the softmax `[E, H]`; an absent one is 1.
    pub factors: Option<&'a [f64]>,
}

impl AttendInput<'_> {
    /// The factor of attention `k`, which is that of edge `k / H` and head `k % H`.
    pub(super) fn factor(&self, k: usize) -> f64 {
        self.factors.map_or(1.0, |factors| factors[k])
    }

    /// `z_ij = s_i + t_j` `[E, H]`, the logits before the leaky ReLU.
    pub fn sums(&self, f: &Fixture) -> Vec<f64> {
        let width = self.heads * self.channels;
        assert_eq!(self.values.len(), f.num_cols * width, "values (h_src) are [num_cols, H * D]");
        assert_eq!(self.score_dst.len(), f.num_rows * self.heads, "score_dst is [num_rows, H]");
        assert_eq!(self.score_src.len(), f.num_cols * self.heads, "score_src is [num_cols, H]");
        let of_edge = |(_, i, j)| {
            (0..self.heads).map(move |h| self.score_dst[i * self.heads + h] + self.score_src[j * self.heads + h])
        };
        f.edges().flat_map(of_edge).collect()
    }
}

/// Result of [`attend`] and [`gat`].
#[derive(Clone, Debug, PartialEq)]
pub struct Attention {
    /// `[num_rows, H * D]`; 0 for rows without kept edges.
    pub out: Vec<f64>,
    /// Log-sum-exp of the logits `[num_rows, H]`; +infinity for rows without kept edges.
    pub lse: Vec<f64>,
    /// Attention `[E, H]`; 0 for dropped edges.
    pub alpha: Vec<f64>,
}

/// Graph attention on given scores: `e_ij = leaky_relu(s_i + t_j)`, `alpha = edge_softmax(e)`,
/// `out_i = sum_j f_ij alpha_ij values_j`, each head on its own D channels.
pub fn attend(f: &Fixture, input: &AttendInput, kept: &[bool]) -> Attention {
    let (heads, channels) = (input.heads, input.channels);
    let logits: Vec<f64> = input.sums(f).iter().map(|&z| if z > 0.0 { z } else { input.slope * z }).collect();
    let alpha = edge_softmax(f, &logits, heads, kept);
    let mut out = vec![0.0; f.num_rows * heads * channels];
    for (e, i, j) in kept_edges(f, kept) {
        for h in 0..heads {
            let value = &input.values[(j * heads + h) * channels..][..channels];
            let weight = input.factor(e * heads + h) * alpha[e * heads + h];
            add_scaled(&mut out[(i * heads + h) * channels..][..channels], weight, value);
        }
    }
    Attention { out, lse: log_sum_exp(f, &logits, heads, kept), alpha }
}

/// Inputs of [`gat`].
#[derive(Clone, Copy, Debug)]
pub struct GatInput<'a> {
    /// Transformed source features `[num_cols, H * D]`.
    pub h_src: &'a [f64],
    /// Transformed destination features `[num_rows, H * D]`.
    pub h_dst: &'a [f64],
    /// Attention vector of sources `[H * D]`.
    pub att_src: &'a [f64],
    /// Attention vector of destinations `[H * D]`.
    pub att_dst: &'a [f64],
    /// H.
    pub heads: usize,
    /// D.
    pub channels: usize,
    /// Slope of the leaky ReLU below zero.
    pub slope: f64,
    /// Factors of the attention after the softmax `[E, H]`; an absent one is 1.
    pub factors: Option<&'a [f64]>,
}

impl<'a> GatInput<'a> {
    /// The scores s and t.
    pub fn scores(&self) -> (Vec<f64>, Vec<f64>) {
        let score = |x, attention| head_dot(x, attention, self.heads, self.channels);
        (score(self.h_dst, self.att_dst), score(self.h_src, self.att_src))
    }

    /// The same layer with its scores computed by [`GatInput::scores`].
    pub fn attend_input(&self, (score_dst, score_src): &'a (Vec<f64>, Vec<f64>)) -> AttendInput<'a> {
        let GatInput { heads, channels, slope, factors, .. } = *self;
        AttendInput { values: self.h_src, score_dst, score_src, heads, channels, slope, factors }
    }
}

/// GAT layer after the linear maps: [`attend`] with `s_i = <h_dst_i, att_dst>` and `t_j = <h_src_j, att_src>` per head.
pub fn gat(f: &Fixture, input: &GatInput, kept: &[bool]) -> Attention {
    attend(f, &input.attend_input(&input.scores()), kept)
}

/// `<x_n, attention>` of every head: `x` is `[N, H * D]`, `attention` `[H * D]`, the result `[N, H]`.
pub fn head_dot(x: &[f64], attention: &[f64], heads: usize, channels: usize) -> Vec<f64> {
    assert_eq!(attention.len(), heads * channels, "attention is [H * D]");
    x.chunks(channels).enumerate().map(|(k, x)| dot(x, &attention[k % heads * channels..][..channels])).collect()
}

/// `out_p = <a[ia_p], b[ib_p]>`: `a` and `b` are `[_, width]`, the result `[P]`. With `ia` = [`Fixture::row_idx`] and
/// `ib` = `col_idx` this is the dot-product SDDMM.
pub fn pair_dot(a: &[f64], b: &[f64], width: usize, ia: &[u32], ib: &[u32]) -> Vec<f64> {
    assert_eq!(ia.len(), ib.len(), "one index on each side per pair");
    let row = |x: &[f64], k: u32| x[k as usize * width..][..width].to_vec();
    ia.iter().zip(ib).map(|(&p, &q)| dot(&row(a, p), &row(b, q))).collect()
}

/// Row `index[k]` of `x` `[N, width]` as row `k` of the result.
pub fn gather(x: &[f64], width: usize, index: &[u32]) -> Vec<f64> {
    index.iter().flat_map(|&k| x[k as usize * width..][..width].to_vec()).collect()
}

/// `y = x w + b`: `x` is `[N, in_width]`, `w` `[in_width, out_width]`, `b` `[out_width]`.
pub fn linear(x: &[f64], w: &[f64], b: &[f64], in_width: usize) -> Vec<f64> {
    let out_width = b.len();
    assert_eq!(w.len(), in_width * out_width, "w is [in_width, out_width]");
    let row = |x: &[f64]| {
        let mut y = b.to_vec();
        x.iter().enumerate().for_each(|(k, &x)| add_scaled(&mut y, x, &w[k * out_width..][..out_width]));
        y
    };
    x.chunks(in_width).flat_map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::fixtures::{fixtures, values};

    const RATES: [f64; 3] = [0.15, 0.5, 0.85];

    /// Fates (1.0 kept) of all edges between 1,000 destinations and 1,000 sources, row-major, behind bases such as node
    /// types have.
    fn fates(drop: &Drop) -> Vec<f64> {
        let keep = |k: u32| if drop.keep(40_000 + k / 1000, 730_000 + k % 1000) { 1.0 } else { 0.0 };
        (0..1_000_000).map(keep).collect()
    }

    /// Correlation of two fates times sqrt(n): standard normal if they are independent.
    fn correlation_sigmas(pairs: impl Iterator<Item = (f64, f64)>, p: f64) -> f64 {
        let (sum, n) = pairs.fold((0.0, 0.0), |(sum, n), (a, b)| (sum + (a - p) * (b - p), n + 1.0));
        sum / (p * (1.0 - p)) / f64::sqrt(n)
    }

    /// Sum over 1,000 groups of 1,000 fates of (count - mean)^2 / variance, in deviations from the 1,000 expected.
    fn chi_square_sigmas(counts: impl Iterator<Item = f64>, p: f64) -> f64 {
        let chi_square: f64 = counts.map(|k| (k - 1000.0 * p).powi(2) / (1000.0 * p * (1.0 - p))).sum();
        (chi_square - 1000.0) / 2000f64.sqrt()
    }

    #[test]
    fn the_hash_is_bit_exact() {
        // From an independent implementation in Python integers.
        let hash = |dst, src, key0, key1| Drop { key0, key1, threshold: 0 }.hash(dst, src);
        assert_eq!(hash(1, 0, 0, 0), 0x11FD_02EB);
        assert_eq!(hash(0, 1, 0, 0), 0x514E_28B7);
        assert_eq!(hash(1_540_474, 728_719, 0x1234_5678, 0x9ABC_DEF0), 0x2AA5_4F57);
        assert_eq!(hash(u32::MAX, u32::MAX, 0, u32::MAX), 0x171E_E435);
    }

    #[test]
    fn the_kept_fraction_and_its_spread_over_rows_and_columns_are_binomial() {
        for p in RATES {
            for seed in 0..4 {
                let kept = fates(&Drop::new(seed, p));
                let total = (kept.iter().sum::<f64>() - 1e6 * p) / (1e6 * p * (1.0 - p)).sqrt();
                let rows = chi_square_sigmas(kept.chunks(1000).map(|row| row.iter().sum()), p);
                let columns = chi_square_sigmas((0..1000).map(|j| kept.iter().skip(j).step_by(1000).sum()), p);
                for (what, sigmas) in [("total", total), ("rows", rows), ("columns", columns)] {
                    assert!(sigmas.abs() < 5.0, "p {p}, seed {seed}: {what} off by {sigmas} sigma");
                }
            }
        }
    }

    #[test]
    fn the_fate_of_an_edge_says_nothing_about_its_reverse_its_neighbours_or_other_keys() {
        for p in RATES {
            let drop = Drop::new(5, p);
            let keep = |i, j| if drop.keep(i, j) { 1.0 } else { 0.0 };
            let reverse = (1..1500).flat_map(|i| (0..i).map(move |j| (keep(i, j), keep(j, i))));
            let kept = fates(&drop);
            let shifted = |by: usize| kept.iter().copied().zip(kept[by..].iter().copied());
            let other_keys = |other: Drop| kept.iter().copied().zip(fates(&other));
            let all_sigmas = [
                ("reverse", correlation_sigmas(reverse, p)),
                ("next source", correlation_sigmas(shifted(1), p)),
                ("next destination", correlation_sigmas(shifted(1000), p)),
                ("other keys", correlation_sigmas(other_keys(Drop::new(6, p)), p)),
                ("neighbouring key0", correlation_sigmas(other_keys(Drop { key0: drop.key0 ^ 1, ..drop }), p)),
            ];
            for (pair, sigmas) in all_sigmas {
                assert!(sigmas.abs() < 5.0, "p {p}, {pair}: {sigmas} sigma");
            }
        }
    }

    #[test]
    fn a_mask_hashes_global_ids_and_is_the_same_from_both_directions() {
        let drop = Drop::new(3, 0.5);
        for f in fixtures() {
            let kept = drop.mask(&f, 10, 2000);
            let (reversed, edge_ids) = f.reverse();
            for (k, j, i) in reversed.edges() {
                assert_eq!(kept[edge_ids[k] as usize], drop.keep(10 + i as u32, 2000 + j as u32), "{}", f.name);
            }
        }
    }

    /// 3 destinations, 2 sources; row 1 is empty and the edge (2, 0) occurs twice.
    fn example() -> Fixture {
        Fixture::from_rows("example", 2, &[vec![1, 0], vec![], vec![0, 0]])
    }

    #[test]
    fn spmm_matches_a_hand_computed_example() {
        let (f, x) = (example(), [1.0, 2.0, 10.0, 20.0]);
        assert_eq!(spmm(&f, &x, 2, &SpmmWeights::default(), &keep_all(&f)), [11.0, 22.0, 0.0, 0.0, 2.0, 4.0]);
        let (u, v, w) = ([2.0, 5.0, 3.0], [0.5, 0.25], [4.0, 8.0, 1.0, 2.0]);
        let weights = SpmmWeights { dst_scale: Some(&u), src_scale: Some(&v), edge_weight: Some(&w) };
        // Row 0 keeps only source 0: 2 * 0.5 * 8 x_0. Row 2: 3 * 0.5 * (1 + 2) x_0.
        let y = spmm(&f, &x, 2, &weights, &[false, true, true, true]);
        assert_eq!(y, [8.0, 16.0, 0.0, 0.0, 4.5, 9.0]);
    }

    #[test]
    fn attention_matches_a_hand_computed_example() {
        // Row 0: z = [ln 3, -2 ln 2], with slope 1/2 the logits are [ln 3, -ln 2], so the weights are 3 and 1/2.
        let (score_dst, score_src) = ([0.0, 0.0, -9.0], [-2.0 * 2f64.ln(), 3f64.ln()]);
        let (values, slope) = ([7.0, 14.0], 0.5);
        let (score_dst, score_src) = (&score_dst, &score_src);
        let input = AttendInput { values: &values, score_dst, score_src, heads: 1, channels: 1, slope, factors: None };
        let close = |got: &[f64], want: &[f64]| got.iter().zip(want).all(|(a, b)| a == b || (a - b).abs() < 1e-14);
        let got = attend(&example(), &input, &[true; 4]);
        assert!(close(&got.out, &[13.0, 0.0, 7.0]), "{:?}", got.out);
        assert!(close(&got.alpha, &[6.0 / 7.0, 1.0 / 7.0, 0.5, 0.5]), "{:?}", got.alpha);
        assert!(close(&got.lse[..2], &[3.5f64.ln(), f64::INFINITY]), "{:?}", got.lse);
        let masked = attend(&example(), &input, &[false, true, false, false]);
        assert_eq!((masked.out, masked.alpha), (vec![7.0, 0.0, 0.0], vec![0.0, 1.0, 0.0, 0.0]));
    }

    #[test]
    fn softmax_sums_to_one_over_the_kept_edges_even_for_huge_logits() {
        let heads = 3;
        for f in fixtures() {
            let kept = Drop::new(1, 0.4).mask(&f, 0, 0);
            for scale in [1.0, 1e4] {
                let logits: Vec<f64> = values(2, f.num_edges() * heads).iter().map(|x| x * scale).collect();
                let alpha = edge_softmax(&f, &logits, heads, &kept);
                assert!((0..alpha.len()).all(|k| kept[k / heads] || alpha[k] == 0.0), "{}", f.name);
                for i in 0..f.num_rows {
                    let edges = f.row_ptr[i] as usize..f.row_ptr[i + 1] as usize;
                    let want = if edges.clone().any(|e| kept[e]) { 1.0 } else { 0.0 };
                    for h in 0..heads {
                        let sum: f64 = edges.clone().map(|e| alpha[e * heads + h]).sum();
                        assert!((sum - want).abs() < 1e-10, "{}: row {i} sums to {sum}", f.name);
                    }
                }
            }
        }
    }

    #[test]
    fn gat_heads_are_independent_layers() {
        let f = Fixture::random(1, 6, 5, 20);
        let inputs = [values(1, 5 * 6), values(2, 6 * 6), values(3, 6), values(4, 6)];
        let run = |x: &[Vec<f64>], heads| {
            let (h_src, h_dst, att_src, att_dst) = (&x[0], &x[1], &x[2], &x[3]);
            let input = GatInput { h_src, h_dst, att_src, att_dst, heads, channels: 2, slope: 0.2, factors: None };
            gat(&f, &input, &keep_all(&f)).out
        };
        let all = run(&inputs, 3);
        for h in 0..3 {
            let columns = |x: &Vec<f64>| x.chunks(6).flat_map(|row| row[h * 2..][..2].to_vec()).collect::<Vec<_>>();
            assert_eq!(columns(&all), run(&inputs.each_ref().map(columns), 1), "head {h}");
        }
    }

    #[test]
    fn dense_operators_match_hand_computed_examples() {
        let (a, b) = ([1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0, 9.0, 10.0]);
        assert_eq!(pair_dot(&a, &b, 2, &[0, 1, 1], &[2, 0, 0]), [29.0, 39.0, 39.0]);
        assert_eq!(gather(&b, 2, &[2, 0, 2]), [9.0, 10.0, 5.0, 6.0, 9.0, 10.0]);
        assert_eq!(linear(&a, &b, &[0.5, 0.0, -1.0], 2), [21.5, 24.0, 26.0, 47.5, 54.0, 60.0]);
        assert_eq!(head_dot(&b, &[1.0, -1.0, 2.0], 3, 1), [5.0, -6.0, 14.0, 8.0, -9.0, 20.0]);
    }
}
