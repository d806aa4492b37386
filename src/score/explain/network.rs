//! The attention network of Stage 2 as plain numbers: what is left of a model when one node is looked at closely.

/// Two layers of relation-wise attention and a linear head, in f64; see [`crate::models::TripleStreamGat`] for the
/// formula.
#[derive(Clone, Debug)]
pub(crate) struct Network {
    pub heads: usize,
    /// Slope of the leaky ReLU on attention scores.
    pub negative_slope: f64,
    pub layers: [Layer; 2],
    /// `[output]`
    pub head: Vec<f64>,
    pub head_bias: f64,
}

/// One layer: a projection and an attention vector per stream, in the order of the graph's streams.
#[derive(Clone, Debug)]
pub(crate) struct Layer {
    pub input: usize,
    pub output: usize,
    pub streams: Vec<Stream>,
}

/// The parameters of a stream, with the attention vectors folded into the projection: `<a, W x> = <W^T a, x>`.
#[derive(Clone, Debug)]
pub(crate) struct Stream {
    /// `[input, output]`
    projection: Vec<f64>,
    /// `[heads, input]`: the part of the score that belongs to the destination.
    of_destination: Vec<f64>,
    /// `[heads, input]`: that of the source.
    of_source: Vec<f64>,
}

impl Stream {
    /// Of a projection `[output, input]`, as a state dict holds it, and an attention vector `[2 * output]`, for the
    /// destination and then for the source; the outputs lie in `heads` equal parts.
    pub fn new([input, output]: [usize; 2], heads: usize, projection: &[f32], attention: &[f32]) -> Self {
        let channels = output / heads;
        let mut transposed = vec![0.0; input * output];
        let mut folded = [vec![0.0; heads * input], vec![0.0; heads * input]];
        for c in 0..output {
            let row = &projection[c * input..(c + 1) * input];
            for (i, &weight) in row.iter().enumerate() {
                transposed[i * output + c] = f64::from(weight);
                for (role, folded) in folded.iter_mut().enumerate() {
                    folded[c / channels * input + i] += f64::from(weight) * f64::from(attention[role * output + c]);
                }
            }
        }
        let [of_destination, of_source] = folded;
        Self { projection: transposed, of_destination, of_source }
    }

    /// `[heads]`: the destination's part of the attention scores.
    pub fn destination_scores(&self, x: &[f64]) -> Vec<f64> {
        self.of_destination.chunks_exact(x.len()).map(|a| dot(a, x)).collect()
    }

    /// Writes the source's part, a number per head.
    pub fn source_scores(&self, x: &[f64], to: &mut [f64]) {
        to.iter_mut().zip(self.of_source.chunks_exact(x.len())).for_each(|(to, a)| *to = dot(a, x));
    }

    /// Adds `factor * (W^T x)` over the outputs of one head to `to`.
    pub fn project(&self, x: &[f64], head: usize, factor: f64, to: &mut [f64]) {
        let (output, channels) = (self.projection.len() / x.len(), to.len());
        for (i, &x) in x.iter().enumerate() {
            let from = i * output + head * channels;
            axpy(factor * x, &self.projection[from..from + channels], to);
        }
    }

    /// Adds `W g` for a `g` over the outputs of one head to `to`, a number per input.
    pub fn project_back(&self, g: &[f64], head: usize, to: &mut [f64]) {
        let (output, channels) = (self.projection.len() / to.len(), g.len());
        for (i, to) in to.iter_mut().enumerate() {
            let from = i * output + head * channels;
            *to += dot(&self.projection[from..from + channels], g);
        }
    }
}

impl Network {
    /// Attention coefficients `[entries, heads]` of a row: softmax over the entries that `keep` keeps, 0 for the
    /// others.
    pub fn attention(&self, of_destination: &[f64], of_sources: &[f64], keep: impl Fn(usize) -> bool) -> Vec<f64> {
        let mut weights = vec![0.0; of_sources.len()];
        for head in 0..self.heads {
            let logit = |entry: usize| {
                let z = of_destination[head] + of_sources[entry * self.heads + head];
                if z >= 0.0 { z } else { self.negative_slope * z }
            };
            let kept = || (0..of_sources.len() / self.heads).filter(|&entry| keep(entry));
            let highest = kept().map(logit).fold(f64::NEG_INFINITY, f64::max);
            let mut sum = 0.0;
            for entry in kept() {
                let weight = (logit(entry) - highest).exp();
                weights[entry * self.heads + head] = weight;
                sum += weight;
            }
            kept().for_each(|entry| weights[entry * self.heads + head] /= sum);
        }
        weights
    }
}

/// The activation of both layers.
pub(crate) fn elu(z: f64) -> f64 {
    if z > 0.0 { z } else { z.exp_m1() }
}

/// `elu(z) / z`, which carries a share of `elu(z)` to everything that `z` is the sum of; 1 at 0.
pub(crate) fn elu_slope(z: f64) -> f64 {
    if z >= 0.0 { 1.0 } else { z.exp_m1() / z }
}

/// In four sums, which a processor adds side by side.
pub(crate) fn dot(a: &[f64], b: &[f64]) -> f64 {
    let (mut sums, [a4, b4]) = ([0.0; 4], [a, b].map(|v| v.chunks_exact(4)));
    let rest: f64 = a4.remainder().iter().zip(b4.remainder()).map(|(a, b)| a * b).sum();
    a4.zip(b4).for_each(|(a, b)| (0..4).for_each(|k| sums[k] += a[k] * b[k]));
    sums.iter().sum::<f64>() + rest
}

/// `to += factor * x`
pub(crate) fn axpy(factor: f64, x: &[f64], to: &mut [f64]) {
    to.iter_mut().zip(x).for_each(|(to, x)| *to += factor * x);
}
