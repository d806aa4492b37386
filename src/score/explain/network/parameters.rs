//! Layers over the relations of a graph as plain numbers: what is left of a model when one node is looked at closely.

use std::ops::Range;

use crate::models::layer_norm::NORM_EPSILON;

/// Layers of one kind, in f64. For a node `i` of type `t`
///
/// ```text
/// z_i = scale_t sum_r sum_j c_ij (W_r h_j [+ V_r e_ij])  [+ U_t h_i]  [+ b_t]
///                                                                  over the relations r into t and their sources j
/// h_i = activation(z_i)
/// ```
///
/// per head; heads stand side by side or are averaged. A relation may add `|D_r (h_i - sum_j c_ij h_j)|`, where `i` has
/// sources. `e_ij` are values of an edge, and what its age becomes. A [`Gate`]
/// weighs what arrives against `U_t h_i`, and [`Normalised`] rows have their mean 0 and their variance 1 before the
/// activation. A layer without transforms of relations reads nodes alone.
#[derive(Clone, Debug)]
pub(crate) struct Network {
    pub layers: Vec<Layer>,
    pub coefficients: Coefficients,
    /// Whether values of edges are weights, which coefficients are made of: no layer has an [`EdgeTransform`] then.
    pub weighted: bool,
    /// Whether every node is its own in-neighbour exactly once, over each relation of its type with itself; loops of
    /// the graph give way to these.
    pub loops: bool,
    /// `[relation]`: the place of its parameters in [`Layer::transforms`].
    pub transform_of: Vec<usize>,
    /// `[type]`: the factor of all that arrives over relations.
    pub scales: Vec<f64>,
    /// Whether the features of every node are divided by the sum of their absolute values.
    pub row_normalise: bool,
    /// In which pieces the own transforms of the first layer read the columns, too.
    pub pieces: Option<Pieces>,
}

/// The bounds of the pieces of columns.
#[derive(Clone, Debug)]
pub(crate) struct Pieces {
    /// `[columns, pieces + 1]`
    bounds: Vec<f64>,
    pieces: usize,
}

impl Pieces {
    pub fn new(pieces: usize, bounds: &[f32]) -> Self {
        Self { bounds: bounds.iter().map(|&bound| f64::from(bound)).collect(), pieces }
    }

    /// Columns that they add to a row.
    pub fn width(&self) -> usize {
        self.bounds.len() / (self.pieces + 1) * self.pieces
    }

    /// The column that piece `at` is of.
    pub fn column(&self, at: usize) -> usize {
        at / self.pieces
    }

    /// Adds the share of every piece that lies below the value of its column to a row.
    pub fn extend(&self, row: &mut Vec<f64>) {
        for (column, bounds) in self.bounds.chunks_exact(self.pieces + 1).enumerate() {
            let x = row[column];
            row.extend(bounds.windows(2).map(|piece| match piece[1] - piece[0] {
                0.0 => 0.0,
                length => ((x - piece[0]) / length).clamp(0.0, 1.0),
            }));
        }
    }
}

/// What the sources of a node count.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Coefficients {
    /// Softmax, over the sources of a relation, of `leaky_relu(<a_dst, W h_i> + <a_src, W h_j> [+ <a_edge, V e_ij>])`.
    Attention { negative_slope: f64 },
    /// `w_ij / sqrt(deg_i deg_j)`, where the degree is the sum of `w` over in-edges of the relation, 1 without any.
    /// `w_ij` is the weight of an edge, 1 without any and of loops that the network adds.
    Symmetric,
    /// `w_ij / sum_k w_ik` over the sources of a relation; 0 where that sum is.
    Mean,
}

/// One layer.
#[derive(Clone, Debug)]
pub(crate) struct Layer {
    pub input: usize,
    /// Width of the result, heads joined.
    pub output: usize,
    pub heads: usize,
    /// Whether heads are averaged, each as wide as the result, or stand side by side.
    pub averaged: bool,
    pub activation: Activation,
    pub transforms: Vec<Transform>,
    /// `[relation]`: what the values of its edges become; empty where no relation has any.
    pub edges: Vec<Option<EdgeTransform>>,
    /// `[type]`: what a node has of itself; empty where no type has anything.
    pub own: Vec<Option<Matrix>>,
    /// `[type]`; empty where there is none.
    pub bias: Vec<Vec<f64>>,
    /// `[type]`: how a node weighs its own transform; empty where no type does.
    pub gates: Vec<Option<Gate>>,
    pub norm: Option<Normalised>,
}

/// `beta U h_i + (1 - beta) n_i` instead of their sum, where `n_i` arrives over relations and
/// `beta = sigmoid(<own, U h_i> + <arrived, n_i>)`.
#[derive(Clone, Debug)]
pub(crate) struct Gate {
    pub own: Vec<f64>,
    pub arrived: Vec<f64>,
}

impl Gate {
    /// Of both vectors, one behind the other.
    pub fn new(values: &[f32]) -> Self {
        let (own, arrived) = values.split_at(values.len() / 2);
        let [own, arrived] = [own, arrived].map(|part| part.iter().map(|&value| f64::from(value)).collect());
        Self { own, arrived }
    }

    /// `beta`.
    pub fn share(&self, own: &[f64], arrived: &[f64]) -> f64 {
        1.0 / (1.0 + (-dot(&self.own, own) - dot(&self.arrived, arrived)).exp())
    }
}

/// `scale * (z - mean(z)) / deviation(z) + shift` of the last columns of a row, as many as `scale` has; those before
/// them stay as they are.
#[derive(Clone, Debug)]
pub(crate) struct Normalised {
    pub scale: Vec<f64>,
    pub shift: Vec<f64>,
}

impl Normalised {
    /// Normalises a row, and returns the inverse of its deviation.
    pub fn apply(&self, z: &mut [f64]) -> f64 {
        let first = z.len() - self.scale.len();
        let z = &mut z[first..];
        let mean = z.iter().sum::<f64>() / z.len() as f64;
        let variance = z.iter().map(|z| (z - mean).powi(2)).sum::<f64>() / z.len() as f64;
        let inverse = 1.0 / (variance + NORM_EPSILON).sqrt();
        let parts = self.scale.iter().zip(&self.shift);
        z.iter_mut().zip(parts).for_each(|(z, (scale, shift))| *z = scale * (*z - mean) * inverse + shift);
        inverse
    }

    /// What the shift adds, and what units before add, where those after add `of_z` and the deviation is held.
    pub fn back(&self, mut of_z: Vec<f64>, inverse: f64) -> (f64, Vec<f64>) {
        let first = of_z.len() - self.scale.len();
        let after = &mut of_z[first..];
        let of_shift = dot(&self.shift, after);
        after.iter_mut().zip(&self.scale).for_each(|(of_z, scale)| *of_z *= scale * inverse);
        let mean = after.iter().sum::<f64>() / after.len() as f64;
        after.iter_mut().for_each(|of_z| *of_z -= mean);
        (of_shift, of_z)
    }
}

impl Network {
    /// How many edges far it looks.
    pub fn reach(&self) -> usize {
        self.layers.iter().filter(|layer| layer.meets()).count()
    }
}

impl Layer {
    /// Whether nodes meet their neighbours in it.
    pub fn meets(&self) -> bool {
        !self.transforms.is_empty()
    }

    /// Channels of one head.
    pub fn channels(&self) -> usize {
        if self.averaged { self.output } else { self.output / self.heads }
    }

    /// The outputs that a head adds to.
    pub fn outputs(&self, head: usize) -> Range<usize> {
        let first = if self.averaged { 0 } else { head * self.channels() };
        first..first + self.channels()
    }
}

/// The parameters of a relation.
#[derive(Clone, Debug)]
pub(crate) struct Transform {
    /// `[input, heads * channels]`
    pub weight: Matrix,
    /// `[input, output]`: of the difference between a node and its sources, whose size is added.
    pub apart: Option<Matrix>,
    /// `[heads, input]`: the destination's and the source's part of the attention scores, the vectors folded into the
    /// weight: `<a, W x> = <W^T a, x>`. Empty where there is no attention.
    scores: [Vec<f64>; 2],
}

/// The parameters of the values and ages of a relation's edges.
#[derive(Clone, Debug)]
pub(crate) struct EdgeTransform {
    /// `[values, heads * channels]`
    pub weight: Matrix,
    /// `[heads, values]`: the edge's part of the attention scores, folded as those of a [`Transform`].
    scores: Vec<f64>,
    pub time: Option<TimeTransform>,
}

/// What an age becomes: its logarithm, and a cosine for each frequency and phase.
#[derive(Clone, Debug)]
pub(crate) struct TimeTransform {
    pub frequency: Vec<f64>,
    pub phase: Vec<f64>,
}

impl TimeTransform {
    /// The columns of an age, last in those of an edge.
    pub fn of(&self, age: f64) -> impl Iterator<Item = f64> {
        let cosines = self.frequency.iter().zip(&self.phase).map(move |(w, p)| (w * age + p).cos());
        std::iter::once(age.max(0.0).ln_1p()).chain(cosines)
    }

    fn columns(&self) -> usize {
        1 + self.frequency.len()
    }
}

impl EdgeTransform {
    /// With the vector `[heads * channels]`.
    pub fn new(weight: Matrix, heads: usize, vector: &[f32], time: Option<TimeTransform>) -> Self {
        let scores = folded(&weight, heads, vector);
        Self { weight, scores, time }
    }

    /// Number of values, without the columns of an age.
    pub fn values(&self) -> usize {
        self.weight.input() - self.time.as_ref().map_or(0, TimeTransform::columns)
    }

    /// The values of a row's edges with the columns of their ages behind them.
    pub fn columns_of(&self, values: &[f64], ages: &[f64]) -> Vec<f64> {
        let Some(time) = &self.time else { return values.to_vec() };
        let width = values.len() / ages.len().max(1);
        let of = |(at, &age): (usize, &f64)| values[at * width..(at + 1) * width].iter().copied().chain(time.of(age));
        ages.iter().enumerate().flat_map(of).collect()
    }

    /// Adds the edge's part of the attention scores, a number per head.
    pub fn add_scores(&self, values: &[f64], to: &mut [f64]) {
        to.iter_mut().zip(self.scores.chunks_exact(values.len())).for_each(|(to, a)| *to += dot(a, values));
    }
}

/// A vector `[heads * channels]` folded into a weight, head by head: `<a, W x> = <W^T a, x>`.
fn folded(weight: &Matrix, heads: usize, vector: &[f32]) -> Vec<f64> {
    let channels = weight.output / heads;
    let mut folded = vec![0.0; heads * weight.input];
    for (head, (folded, a)) in folded.chunks_exact_mut(weight.input).zip(vector.chunks_exact(channels)).enumerate() {
        let a: Vec<f64> = a.iter().map(|&a| f64::from(a)).collect();
        weight.project_back(&a, head * channels, 1.0, folded);
    }
    folded
}

impl Transform {
    /// Of a convolution.
    pub fn new(weight: Matrix) -> Self {
        Self { weight, apart: None, scores: Default::default() }
    }

    /// The same with one of differences.
    pub fn with_apart(self, apart: Option<Matrix>) -> Self {
        Self { apart, ..self }
    }

    /// Of attention, with the vectors `[heads * channels]` of the destination and of the source.
    pub fn with_attention(weight: Matrix, heads: usize, vectors: [&[f32]; 2]) -> Self {
        let scores = vectors.map(|vector| folded(&weight, heads, vector));
        Self { weight, apart: None, scores }
    }

    /// The destination's part of the attention scores, a number per head.
    pub fn destination_scores(&self, x: &[f64]) -> Vec<f64> {
        self.scores[0].chunks_exact(x.len()).map(|a| dot(a, x)).collect()
    }

    /// Writes the source's part.
    pub fn source_scores(&self, x: &[f64], to: &mut [f64]) {
        to.iter_mut().zip(self.scores[1].chunks_exact(x.len())).for_each(|(to, a)| *to = dot(a, x));
    }
}

/// `[input, output]`, row-major.
#[derive(Clone, Debug)]
pub(crate) struct Matrix {
    values: Vec<f64>,
    input: usize,
    output: usize,
}

impl Matrix {
    /// Of values `[input, output]`.
    pub fn new([input, output]: [usize; 2], values: &[f32]) -> Self {
        assert_eq!(values.len(), input * output, "Matrix: expected {input} x {output} values");
        Self { values: values.iter().map(|&value| f64::from(value)).collect(), input, output }
    }

    /// Of values `[output, input]`.
    pub fn transposed([input, output]: [usize; 2], values: &[f32]) -> Self {
        let transposed = (0..input).flat_map(|i| (0..output).map(move |o| values[o * input + i]));
        Self::new([input, output], &transposed.collect::<Vec<f32>>())
    }

    /// Without an effect.
    pub fn zeros([input, output]: [usize; 2]) -> Self {
        Self { values: vec![0.0; input * output], input, output }
    }

    /// The same among zeros, its first input and output at these places of `[input, output]`.
    pub fn placed(self, [input, output]: [usize; 2], [row, column]: [usize; 2]) -> Self {
        let mut placed = Self::zeros([input, output]);
        let rows = placed.values.chunks_exact_mut(output).skip(row).zip(self.values.chunks_exact(self.output));
        rows.for_each(|(to, from)| to[column..column + self.output].copy_from_slice(from));
        placed
    }

    /// `x` itself.
    pub fn identity(width: usize) -> Self {
        Self::zeros([width; 2]).plus_identity()
    }

    /// The same with the first inputs added to the result.
    pub fn plus_identity(mut self) -> Self {
        self.values.iter_mut().step_by(self.output + 1).take(self.output).for_each(|value| *value += 1.0);
        self
    }

    /// The same with another one added, times `factor`.
    pub fn plus(mut self, other: &Self, factor: f64) -> Self {
        axpy(factor, &other.values, &mut self.values);
        self
    }

    /// The same with another one added, its columns times `factors`.
    pub fn plus_columns(mut self, other: &Self, factors: impl Iterator<Item = f64> + Clone) -> Self {
        let rows = self.values.chunks_exact_mut(self.output).zip(other.values.chunks_exact(self.output));
        rows.for_each(|(to, from)| {
            to.iter_mut().zip(from.iter().zip(factors.clone())).for_each(|(to, (x, factor))| *to += factor * x);
        });
        self
    }

    /// `W g`, for a `g` over all outputs: a number per input.
    pub fn back(&self, g: &[f64]) -> Vec<f64> {
        self.values.chunks_exact(self.output).map(|row| dot(row, g)).collect()
    }

    /// Number of inputs.
    pub fn input(&self) -> usize {
        self.input
    }

    /// Adds `factor W^T x`, as many outputs from `first` on as `to` has, to `to`.
    pub fn project(&self, x: &[f64], first: usize, factor: f64, to: &mut [f64]) {
        for (row, &x) in self.values.chunks_exact(self.output).zip(x).filter(|(_, x)| **x != 0.0) {
            axpy(factor * x, &row[first..first + to.len()], to);
        }
    }

    /// Adds `factor W g`, for a `g` over some outputs from `first` on, to `to`, a number per input.
    pub fn project_back(&self, g: &[f64], first: usize, factor: f64, to: &mut [f64]) {
        for (row, to) in self.values.chunks_exact(self.output).zip(to) {
            *to += factor * dot(&row[first..first + g.len()], g);
        }
    }
}

/// What a score is read from: `bias + <weights, h>` of the last layer, or of what it is [`Joined`] to.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    pub weights: Vec<f64>,
    pub bias: f64,
    pub joined: Joined,
}

/// A linear layer behind the last one, from which classes are read.
#[derive(Clone, Debug)]
pub(crate) struct ReadOut {
    /// `[width of the last layer, classes]`
    pub weight: Matrix,
    pub bias: Vec<f64>,
}

impl ReadOut {
    /// A head on the last layer that reads what a head on the classes reads.
    pub fn before(&self, of_classes: &Head) -> Head {
        let Head { weights, bias, joined } = of_classes;
        Head { weights: self.weight.back(weights), bias: bias + dot(&self.bias, weights), joined: joined.clone() }
    }
}

/// What the row of the last layer is joined to.
#[derive(Clone, Debug)]
pub(crate) enum Joined {
    Nothing,
    /// The row of the layer before it has these weights.
    Beside(Vec<f64>),
    /// The larger values of both.
    Largest,
}

impl Head {
    /// Weights of a node's rows after the layer before the last one and after the last one. They are those of the
    /// larger values where these are read: which ones they are is held.
    pub fn weights_of(&self, hidden: &[f64], last: &[f64]) -> [Vec<f64>; 2] {
        match &self.joined {
            Joined::Nothing => [Vec::new(), self.weights.clone()],
            Joined::Beside(weights) => [weights.clone(), self.weights.clone()],
            Joined::Largest => [false, true].map(|of_last| {
                let rows = self.weights.iter().zip(hidden.iter().zip(last));
                rows.map(|(&weight, (hidden, last))| if (last >= hidden) == of_last { weight } else { 0.0 }).collect()
            }),
        }
    }

    /// The logit of these rows.
    pub fn logit(&self, hidden: &[f64], last: &[f64]) -> f64 {
        let [of_hidden, of_last] = self.weights_of(hidden, last);
        self.bias + dot(&of_hidden, hidden) + dot(&of_last, last)
    }
}

/// What follows a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Activation {
    Identity,
    Relu,
    Elu,
}

impl Activation {
    pub fn of(self, z: f64) -> f64 {
        match self {
            Activation::Identity => z,
            Activation::Relu => z.max(0.0),
            Activation::Elu if z > 0.0 => z,
            Activation::Elu => z.exp_m1(),
        }
    }

    /// `activation(z) / z`, which carries a share of the activation to everything that `z` is the sum of; 1 at 0.
    pub fn slope(self, z: f64) -> f64 {
        match self {
            Activation::Elu if z < 0.0 => z.exp_m1() / z,
            Activation::Relu if z < 0.0 => 0.0,
            _ => 1.0,
        }
    }
}

/// In four sums, which a processor adds side by side.
pub(super) fn dot(a: &[f64], b: &[f64]) -> f64 {
    let (mut sums, [a4, b4]) = ([0.0; 4], [a, b].map(|v| v.chunks_exact(4)));
    let rest: f64 = a4.remainder().iter().zip(b4.remainder()).map(|(a, b)| a * b).sum();
    a4.zip(b4).for_each(|(a, b)| (0..4).for_each(|k| sums[k] += a[k] * b[k]));
    sums.iter().sum::<f64>() + rest
}

/// `to += factor * x`
pub(super) fn axpy(factor: f64, x: &[f64], to: &mut [f64]) {
    to.iter_mut().zip(x).for_each(|(to, x)| *to += factor * x);
}
