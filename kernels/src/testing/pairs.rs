//! Attention with a score behind the non-linearity, in f64: the loop over edges, its gradient, the size of the
//! gradient's terms.

use super::fixtures::Fixture;
use super::gradient::softmax_backward;
use super::oracle::{add_scaled, dot, edge_softmax, kept_edges};

/// Inputs of [`gatv2`].
#[derive(Clone, Copy, Debug)]
pub struct PairInput<'a> {
    /// Source features `[num_cols, H * D]`.
    pub src: &'a [f64],
    /// Destination features `[num_rows, H * D]`.
    pub dst: &'a [f64],
    /// `[H, D]`.
    pub attention: &'a [f64],
    /// `[E, K]`, and `[K, H * D]`, both empty without any.
    pub values: &'a [f64],
    pub weight: &'a [f64],
    /// Whether messages have what edges carry, projected, too.
    pub messages: bool,
    /// H.
    pub heads: usize,
    /// D.
    pub channels: usize,
    /// Slope of the leaky ReLU below zero.
    pub slope: f64,
    /// Factors of the attention after the softmax `[E, H]`; an absent one is 1.
    pub factors: Option<&'a [f64]>,
}

impl PairInput<'_> {
    fn width(&self) -> usize {
        self.heads * self.channels
    }

    /// K.
    pub fn columns(&self) -> usize {
        self.weight.len() / self.width()
    }

    fn factor(&self, k: usize) -> f64 {
        self.factors.map_or(1.0, |factors| factors[k])
    }

    fn leaky_relu(&self, x: f64) -> f64 {
        if x > 0.0 { x } else { self.slope * x }
    }

    /// `u_ij = src_j + dst_i + e_ij weight` `[E, H * D]`, what stands before the leaky ReLU.
    pub fn hidden(&self, f: &Fixture) -> Vec<f64> {
        let (width, columns) = (self.width(), self.columns());
        let mut all = Vec::with_capacity(f.num_edges() * width);
        for (e, i, j) in f.edges() {
            let mut hidden = self.src[j * width..][..width].to_vec();
            add_scaled(&mut hidden, 1.0, &self.dst[i * width..][..width]);
            for k in 0..columns {
                add_scaled(&mut hidden, self.values[e * columns + k], &self.weight[k * width..][..width]);
            }
            all.extend(hidden);
        }
        all
    }

    /// `m_ij = src_j [+ e_ij weight]` `[H * D]` of edge `e` from `j`.
    fn message(&self, e: usize, j: usize) -> Vec<f64> {
        let (width, columns) = (self.width(), self.columns());
        let mut message = self.src[j * width..][..width].to_vec();
        for k in (0..columns).filter(|_| self.messages) {
            add_scaled(&mut message, self.values[e * columns + k], &self.weight[k * width..][..width]);
        }
        message
    }

    fn alpha(&self, f: &Fixture, kept: &[bool]) -> Vec<f64> {
        let active: Vec<f64> = self.hidden(f).into_iter().map(|u| self.leaky_relu(u)).collect();
        let score = |k: usize| {
            let attention = &self.attention[k % self.heads * self.channels..][..self.channels];
            dot(attention, &active[k * self.channels..][..self.channels])
        };
        let scores: Vec<f64> = (0..f.num_edges() * self.heads).map(score).collect();
        edge_softmax(f, &scores, self.heads, kept)
    }
}

/// `y_i = sum_j f_ij alpha_ij m_ij` `[num_rows, H * D]`, with `alpha` the softmax of `<attention, leaky_relu(u_ij)>`.
pub fn gatv2(f: &Fixture, input: &PairInput, kept: &[bool]) -> Vec<f64> {
    let alpha = input.alpha(f, kept);
    let mut out = vec![0.0; f.num_rows * input.width()];
    for (e, i, j) in kept_edges(f, kept) {
        let message = input.message(e, j);
        for (h, row) in message.chunks(input.channels).enumerate() {
            let (k, to) = (e * input.heads + h, (i * input.heads + h) * input.channels);
            add_scaled(&mut out[to..][..input.channels], input.factor(k) * alpha[k], row);
        }
    }
    out
}

/// Gradients of [`gatv2`].
#[derive(Clone, Debug, PartialEq)]
pub struct PairGrad {
    pub src: Vec<f64>,
    pub dst: Vec<f64>,
    pub attention: Vec<f64>,
    /// `[E, K]`; 0 for dropped edges.
    pub values: Vec<f64>,
    pub weight: Vec<f64>,
}

impl PairGrad {
    /// Everything, for a loop over it.
    pub fn all(&self) -> [(&'static str, &Vec<f64>); 5] {
        [
            ("src", &self.src),
            ("dst", &self.dst),
            ("attention", &self.attention),
            ("values", &self.values),
            ("weight", &self.weight),
        ]
    }
}

/// See [`PairGrad`]; `g` is `[num_rows, H * D]`.
pub fn gatv2_grad(f: &Fixture, input: &PairInput, kept: &[bool], g: &[f64]) -> PairGrad {
    backward(f, input, kept, g, |x| x, -1.0)
}

/// Sizes of the terms that [`gatv2_grad`] sums.
pub fn gatv2_grad_magnitude(f: &Fixture, input: &PairInput, kept: &[bool], g: &[f64]) -> PairGrad {
    backward(f, input, kept, g, f64::abs, 1.0)
}

/// The gradients of frequencies and phases from those of what edges carry, `[E, K]`, whose last columns are
/// `cos(frequency age + phase)`: sums of `-de sin(frequency age + phase)`, times the age for a frequency. `size` is
/// applied to every factor.
pub fn angles_grad(de: &[f64], ages: &[f64], [frequency, phase]: [&[f64]; 2], size: fn(f64) -> f64) -> [Vec<f64>; 2] {
    let (columns, cosines) = (de.len() / ages.len().max(1), frequency.len());
    let mut sums = [vec![0.0; cosines], vec![0.0; cosines]];
    for (row, &age) in de.chunks(columns.max(1)).zip(ages) {
        for (k, &de) in row[columns - cosines..].iter().enumerate() {
            let of_angle = size(de) * size(-(frequency[k] * age + phase[k]).sin());
            sums[0][k] += of_angle * size(age);
            sums[1][k] += of_angle;
        }
    }
    sums
}

/// `size` is applied to every factor.
fn backward(f: &Fixture, input: &PairInput, kept: &[bool], g: &[f64], size: fn(f64) -> f64, sign: f64) -> PairGrad {
    let all = |x: &[f64]| x.iter().map(|&x| size(x)).collect::<Vec<f64>>();
    let (heads, channels, width, columns) = (input.heads, input.channels, input.width(), input.columns());
    let (alpha, hidden) = (input.alpha(f, kept), input.hidden(f));
    let [g, src, attention, values, weight] = [g, input.src, input.attention, input.values, input.weight].map(all);
    let mut d = PairGrad {
        src: vec![0.0; src.len()],
        dst: vec![0.0; input.dst.len()],
        attention: vec![0.0; width],
        values: vec![0.0; values.len()],
        weight: vec![0.0; weight.len()],
    };
    let sized = PairInput { src: &src, values: &values, weight: &weight, ..*input };
    let mut p = vec![0.0; alpha.len()];
    for (e, i, j) in kept_edges(f, kept) {
        for (h, message) in sized.message(e, j).chunks(channels).enumerate() {
            let k = e * heads + h;
            p[k] = input.factor(k) * dot(&g[(i * heads + h) * channels..][..channels], message);
        }
    }
    let dz = softmax_backward(f, &alpha, heads, &p, sign);
    for (e, i, j) in kept_edges(f, kept) {
        let mut du = vec![0.0; width];
        for (c, du) in du.iter_mut().enumerate() {
            let (dz, u) = (dz[e * heads + c / channels], hidden[e * width + c]);
            *du = dz * attention[c] * if u > 0.0 { 1.0 } else { input.slope };
            d.attention[c] += dz * size(input.leaky_relu(u));
        }
        // Of the message, and of the values projected.
        let mut dm = vec![0.0; width];
        for (h, dm) in dm.chunks_mut(channels).enumerate() {
            let k = e * heads + h;
            add_scaled(dm, input.factor(k) * alpha[k], &g[(i * heads + h) * channels..][..channels]);
        }
        add_scaled(&mut dm, 1.0, &du);
        let de = if input.messages { &dm } else { &du };
        add_scaled(&mut d.src[j * width..][..width], 1.0, &dm);
        add_scaled(&mut d.dst[i * width..][..width], 1.0, &du);
        for k in 0..columns {
            add_scaled(&mut d.weight[k * width..][..width], values[e * columns + k], de);
            d.values[e * columns + k] = dot(&weight[k * width..][..width], de);
        }
    }
    d
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::fixtures::{small_fixtures, values};
    use crate::testing::gradient::{assert_gradient, probe, weighted_sum};
    use crate::testing::oracle::{Drop, attention_factors, keep_all};

    fn input<'a>(x: &'a [Vec<f64>], messages: bool, factors: &'a [f64]) -> PairInput<'a> {
        let (src, dst, attention, values, weight) = (&x[0], &x[1], &x[2], &x[3], &x[4]);
        let factors = Some(factors);
        PairInput { src, dst, attention, values, weight, messages, heads: 2, channels: 3, slope: 0.2, factors }
    }

    #[test]
    fn gradients_match_differences_and_stay_within_their_magnitudes() {
        let mut edges = 0;
        for f in small_fixtures() {
            let dropped = Drop::new(4, 0.66).mask(&f, 3, 8);
            for (kept, columns, messages) in [(keep_all(&f), 2, false), (dropped, 2, true), (keep_all(&f), 0, false)] {
                let sizes = [f.num_cols * 6, f.num_rows * 6, 6, f.num_edges() * columns, columns * 6];
                let factors = attention_factors(&f, &Drop::new(3, 0.6), 2);
                let inputs = (0..10_000u64).map(|attempt| -> Vec<Vec<f64>> {
                    sizes.iter().enumerate().map(|(k, &n)| values(10 * attempt + k as u64, n)).collect()
                });
                // A difference must not straddle the kink of the leaky ReLU.
                let off_the_kink =
                    |x: &Vec<Vec<f64>>| input(x, messages, &factors).hidden(&f).iter().all(|u| u.abs() > 1e-4);
                let inputs =
                    inputs.into_iter().find(off_the_kink).expect("one of all has its hidden layers away from 0");
                let g = probe(f.num_rows * 6);
                let loss = |x: &[Vec<f64>]| weighted_sum(&gatv2(&f, &input(x, messages, &factors), &kept), &g);
                let input = input(&inputs, messages, &factors);
                let d = gatv2_grad(&f, &input, &kept, &g);
                let sizes = gatv2_grad_magnitude(&f, &input, &kept, &g);
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
    fn gradients_of_angles_match_differences() {
        for f in small_fixtures().into_iter().filter(|f| f.num_edges() > 0) {
            let ages = &values(5, f.num_edges())[..];
            let inputs = [values(6, 2), values(7, 2)];
            let g = probe(f.num_edges() * 3);
            // Columns as they are carried: one that is no cosine, and two that are.
            let loss = |x: &[Vec<f64>]| {
                let of_edge = |&age: &f64| [age, (x[0][0] * age + x[1][0]).cos(), (x[0][1] * age + x[1][1]).cos()];
                weighted_sum(&ages.iter().flat_map(of_edge).collect::<Vec<f64>>(), &g)
            };
            let angles = [&inputs[0][..], &inputs[1][..]];
            let found = angles_grad(&g, ages, angles, |x| x);
            let sizes = angles_grad(&g, ages, angles, f64::abs);
            for (which, (d, size)) in found.iter().zip(&sizes).enumerate() {
                assert_gradient(&f.name, loss, &inputs, which, d);
                assert!(size.iter().zip(d).all(|(size, d)| *size >= d.abs() - 1e-12), "{}", f.name);
            }
        }
    }
}
