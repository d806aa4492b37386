//! Attention whose edges carry something, in f64: the loop over edges, its gradient, the size of the gradient's terms.

use super::fixtures::Fixture;
use super::gradient::softmax_backward;
use super::oracle::{AttendInput, add_scaled, dot, edge_softmax, kept_edges};

/// Inputs of [`attend_edges`]. An edge carries `K` columns: values, the logarithm of its age, cosines.
#[derive(Clone, Copy, Debug)]
pub struct EdgeInput<'a> {
    /// Features, scores and factors.
    pub attend: AttendInput<'a>,
    /// `[E, value_columns]`.
    pub values: &'a [f64],
    pub value_columns: usize,
    /// `[E]`; unread without a column that depends on it.
    pub ages: &'a [f64],
    /// Whether `ln(1 + max(age, 0))` is a column.
    pub log_age: bool,
    /// One per cosine.
    pub frequency: &'a [f64],
    pub phase: &'a [f64],
    /// `[H, K]`.
    pub logit: &'a [f64],
}

impl EdgeInput<'_> {
    /// K.
    pub fn columns(&self) -> usize {
        self.value_columns + usize::from(self.log_age) + self.frequency.len()
    }

    fn first_cosine(&self) -> usize {
        self.value_columns + usize::from(self.log_age)
    }

    fn angle(&self, e: usize, k: usize) -> f64 {
        self.frequency[k] * self.ages[e] + self.phase[k]
    }

    /// What every edge carries `[E, K]`.
    pub fn carried(&self, f: &Fixture) -> Vec<f64> {
        let mut all = Vec::new();
        for (e, _, _) in f.edges() {
            all.extend_from_slice(&self.values[e * self.value_columns..][..self.value_columns]);
            if self.log_age {
                all.push((1.0 + self.ages[e].max(0.0)).ln());
            }
            all.extend((0..self.frequency.len()).map(|k| self.angle(e, k).cos()));
        }
        all
    }

    /// `z_ij = s_i + t_j + <logit, e_ij>` `[E, H]`, the logits before the leaky ReLU.
    pub fn sums(&self, f: &Fixture) -> Vec<f64> {
        let (heads, columns, carried) = (self.attend.heads, self.columns(), self.carried(f));
        let of_edge = |k: usize| {
            let (e, h) = (k / heads, k % heads);
            dot(&self.logit[h * columns..][..columns], &carried[e * columns..][..columns])
        };
        self.attend.sums(f).iter().enumerate().map(|(k, z)| z + of_edge(k)).collect()
    }

    fn alpha(&self, f: &Fixture, kept: &[bool]) -> Vec<f64> {
        let leaky_relu = |z: f64| if z > 0.0 { z } else { self.attend.slope * z };
        let logits: Vec<f64> = self.sums(f).into_iter().map(leaky_relu).collect();
        edge_softmax(f, &logits, self.attend.heads, kept)
    }
}

/// `out_i = sum_j f_ij alpha_ij values_j` `[num_rows, H * D]` and `v_i = sum_j f_ij alpha_ij e_ij` `[num_rows, H * K]`.
pub fn attend_edges(f: &Fixture, input: &EdgeInput, kept: &[bool]) -> [Vec<f64>; 2] {
    let (heads, channels, columns) = (input.attend.heads, input.attend.channels, input.columns());
    let (alpha, carried) = (input.alpha(f, kept), input.carried(f));
    let mut out = vec![0.0; f.num_rows * heads * channels];
    let mut v = vec![0.0; f.num_rows * heads * columns];
    for (e, i, j) in kept_edges(f, kept) {
        for h in 0..heads {
            let weight = input.attend.factor(e * heads + h) * alpha[e * heads + h];
            let row = &input.attend.values[(j * heads + h) * channels..][..channels];
            add_scaled(&mut out[(i * heads + h) * channels..][..channels], weight, row);
            add_scaled(&mut v[(i * heads + h) * columns..][..columns], weight, &carried[e * columns..][..columns]);
        }
    }
    [out, v]
}

/// Gradients of [`attend_edges`].
#[derive(Clone, Debug, PartialEq)]
pub struct EdgeGrad {
    pub features: Vec<f64>,
    pub score_dst: Vec<f64>,
    pub score_src: Vec<f64>,
    /// `[H, K]`: `sum_ij dz_ij e_ij`.
    pub logit: Vec<f64>,
    pub frequency: Vec<f64>,
    pub phase: Vec<f64>,
    /// `[E, value_columns]`; 0 for dropped edges.
    pub values: Vec<f64>,
}

impl EdgeGrad {
    /// Everything, for a loop over it.
    pub fn all(&self) -> [(&'static str, &Vec<f64>); 7] {
        [
            ("features", &self.features),
            ("score_dst", &self.score_dst),
            ("score_src", &self.score_src),
            ("logit", &self.logit),
            ("frequency", &self.frequency),
            ("phase", &self.phase),
            ("values", &self.values),
        ]
    }
}

/// See [`EdgeGrad`]; `g` is `[num_rows, H * D]`, `gv` `[num_rows, H * K]`.
pub fn attend_edges_grad(f: &Fixture, input: &EdgeInput, kept: &[bool], [g, gv]: [&[f64]; 2]) -> EdgeGrad {
    backward(f, input, kept, [g, gv], |x| x, -1.0)
}

/// Sizes of the terms that [`attend_edges_grad`] sums.
pub fn attend_edges_grad_magnitude(f: &Fixture, input: &EdgeInput, kept: &[bool], [g, gv]: [&[f64]; 2]) -> EdgeGrad {
    backward(f, input, kept, [g, gv], f64::abs, 1.0)
}

/// `size` is applied to every factor.
fn backward(
    f: &Fixture,
    input: &EdgeInput,
    kept: &[bool],
    [g, gv]: [&[f64]; 2],
    size: fn(f64) -> f64,
    sign: f64,
) -> EdgeGrad {
    let all = |x: &[f64]| x.iter().map(|&x| size(x)).collect::<Vec<f64>>();
    let (heads, channels, columns) = (input.attend.heads, input.attend.channels, input.columns());
    let (alpha, z) = (input.alpha(f, kept), input.sums(f));
    let [g, gv, carried, logit, rows] = [g, gv, &input.carried(f), input.logit, input.attend.values].map(all);
    let mut d = EdgeGrad {
        features: vec![0.0; rows.len()],
        score_dst: vec![0.0; f.num_rows * heads],
        score_src: vec![0.0; f.num_cols * heads],
        logit: vec![0.0; logit.len()],
        frequency: vec![0.0; input.frequency.len()],
        phase: vec![0.0; input.phase.len()],
        values: vec![0.0; f.num_edges() * input.value_columns],
    };
    let mut p = vec![0.0; alpha.len()];
    for (e, i, j) in kept_edges(f, kept) {
        for h in 0..heads {
            let (factor, row) = (input.attend.factor(e * heads + h), (j * heads + h) * channels);
            let g = &g[(i * heads + h) * channels..][..channels];
            let to_edge = dot(&gv[(i * heads + h) * columns..][..columns], &carried[e * columns..][..columns]);
            p[e * heads + h] = factor * (dot(g, &rows[row..][..channels]) + to_edge);
            add_scaled(&mut d.features[row..][..channels], factor * alpha[e * heads + h], g);
        }
    }
    let of_softmax = softmax_backward(f, &alpha, heads, &p, sign);
    for (e, i, j) in kept_edges(f, kept) {
        let mut of_columns = vec![0.0; columns];
        for h in 0..heads {
            let k = e * heads + h;
            let dz = of_softmax[k] * if z[k] > 0.0 { 1.0 } else { input.attend.slope };
            d.score_dst[i * heads + h] += dz;
            d.score_src[j * heads + h] += dz;
            add_scaled(&mut d.logit[h * columns..][..columns], dz, &carried[e * columns..][..columns]);
            add_scaled(&mut of_columns, dz, &logit[h * columns..][..columns]);
            let weight = input.attend.factor(k) * alpha[k];
            add_scaled(&mut of_columns, weight, &gv[(i * heads + h) * columns..][..columns]);
        }
        d.values[e * input.value_columns..][..input.value_columns].copy_from_slice(&of_columns[..input.value_columns]);
        for k in 0..input.frequency.len() {
            let of_angle = of_columns[input.first_cosine() + k] * size(-input.angle(e, k).sin());
            d.frequency[k] += of_angle * size(input.ages[e]);
            d.phase[k] += of_angle;
        }
    }
    d
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::fixtures::{small_fixtures, values};
    use crate::testing::gradient::{assert_gradient, probe, weighted_sum};
    use crate::testing::oracle::{Drop, attend, attention_factors, keep_all};

    fn input<'a>(x: &'a [Vec<f64>], ages: &'a [f64], factors: &'a [f64]) -> EdgeInput<'a> {
        let (values, score_dst, score_src) = (&x[0], &x[1], &x[2]);
        let factors = Some(factors);
        let attend = AttendInput { values, score_dst, score_src, heads: 2, channels: 3, slope: 0.2, factors };
        let (logit, frequency, phase, values) = (&x[3], &x[4], &x[5], &x[6]);
        EdgeInput { attend, values, value_columns: 2, ages, log_age: true, frequency, phase, logit }
    }

    #[test]
    fn gradients_match_differences_and_stay_within_their_magnitudes() {
        let mut edges = 0;
        for f in small_fixtures() {
            for kept in [keep_all(&f), Drop::new(4, 0.66).mask(&f, 3, 8)] {
                let sizes = [f.num_cols * 6, f.num_rows * 2, f.num_cols * 2, 2 * 6, 3, 3, f.num_edges() * 2];
                let factors = attention_factors(&f, &Drop::new(3, 0.6), 2);
                let ages: Vec<f64> = values(90, f.num_edges()).into_iter().map(|age| 2.0 * age).collect();
                let inputs = (0..100u64).map(|attempt| -> Vec<Vec<f64>> {
                    sizes.iter().enumerate().map(|(k, &n)| values(10 * attempt + k as u64, n)).collect()
                });
                // A difference must not straddle the kink of the leaky ReLU.
                let off_the_kink =
                    |x: &Vec<Vec<f64>>| input(x, &ages, &factors).sums(&f).iter().all(|z| z.abs() > 1e-3);
                let inputs = inputs.into_iter().find(off_the_kink).expect("one of 100 has all its logits away from 0");
                let (g, gv) = (probe(f.num_rows * 6), values(91, f.num_rows * 12));
                let loss = |x: &[Vec<f64>]| {
                    let [out, v] = attend_edges(&f, &input(x, &ages, &factors), &kept);
                    weighted_sum(&out, &g) + weighted_sum(&v, &gv)
                };
                let input = input(&inputs, &ages, &factors);
                let d = attend_edges_grad(&f, &input, &kept, [&g, &gv]);
                let sizes = attend_edges_grad_magnitude(&f, &input, &kept, [&g, &gv]);
                for (which, ((name, d), (_, size))) in d.all().into_iter().zip(sizes.all()).enumerate() {
                    assert_gradient(&format!("{} {name}", f.name), loss, &inputs, which, d);
                    assert!(size.iter().zip(d).all(|(size, d)| *size >= d.abs() - 1e-12), "{} {name}", f.name);
                }
                edges += f.num_edges();
            }
        }
        assert!(edges > 100);
    }

    #[test]
    fn edges_that_add_nothing_to_the_score_change_no_attention() {
        for f in small_fixtures() {
            let sizes = [f.num_cols * 6, f.num_rows * 2, f.num_cols * 2, 0, 3, 3, f.num_edges() * 2];
            let mut x: Vec<Vec<f64>> = sizes.iter().enumerate().map(|(k, &n)| values(k as u64, n)).collect();
            x[3] = vec![0.0; 12];
            let (ages, factors) = (values(90, f.num_edges()), vec![1.0; f.num_edges() * 2]);
            let (input, kept) = (input(&x, &ages, &factors), keep_all(&f));
            assert_eq!(attend_edges(&f, &input, &kept)[0], attend(&f, &input.attend, &kept).out, "{}", f.name);
        }
    }
}
