//! A layer by chunks of rows against its operators one by one, and against differences.

use burn::tensor::{DType, Tensor};
use graphsieve_kernels::testing::gradient::{linear_grad, spmm_grad};
use graphsieve_kernels::testing::harness::Trial;
use graphsieve_kernels::testing::{Dtype, Fixture, SpmmWeights, assert_close, oracle, probe, values_in};
use graphsieve_kernels::{
    Activation, Csr, Destinations, Dropout, GatConfig, GraphBackend, NodeSet, ScoreColumns, SelfTerm, SpmmConfig, Term,
    attend, attend_inputs, combine, linear, on_every_backend, row_dots, select_rows, spmm, sum_in_chunks,
};

use crate::support::*;

/// The trials of this file.
pub fn trials() -> Vec<Trial> {
    on_every_backend!(
        "in_chunks";
        a_layer_in_chunks_is_its_operators,
        dropout_of_attention_does_not_depend_on_chunks,
        in_half_precision_too,
        weights_match_the_oracle_in_half_precision,
        gradients_are_differences,
        without_rows_or_sources,
    )
}

const INPUT: usize = 12;
const WIDTH: usize = 8;

/// Some nodes of each side of the layer, or all.
#[derive(Clone, Copy)]
struct Sides {
    /// The destinations are every so many-th node.
    to: Option<usize>,
    /// The rows before the layer, of the type of the destinations.
    before: Option<usize>,
    /// The sources of the other type.
    sources: Option<usize>,
}

const WHOLE: Sides = Sides { to: None, before: None, sources: None };
const SOME: Sides = Sides { to: Some(4), before: Some(2), sources: Some(3) };

struct Layer<B: GraphBackend> {
    /// Among the nodes of one type.
    own: Csr<Ad<B>>,
    /// From another type.
    other: Csr<Ad<B>>,
    to: Option<NodeSet<Ad<B>>>,
    before: Option<NodeSet<Ad<B>>>,
    data: [Tensor<Ad<B>, 2>; 2],
    factors: [Tensor<Ad<B>, 1>; 2],
    spmm: SpmmConfig<Ad<B>>,
    /// Of the edges of `own`, where they weigh something.
    edge_weight: Option<Tensor<Ad<B>, 1>>,
    gat: GatConfig,
    heads: usize,
    nodes: usize,
}

/// What is learnt: rows of both types, a weight per term, the vectors behind the scores, a bias.
#[derive(Clone)]
struct Leaves<B: GraphBackend> {
    matrices: Vec<Tensor<Ad<B>, 2>>,
    bias: Tensor<Ad<B>, 1>,
}

impl<B: GraphBackend> Layer<B> {
    fn new(sides: Sides, heads: usize, dtype: Dtype, device: &B::Device) -> (Self, Leaves<B>) {
        let (nodes, others) = (70, 45);
        let (f, g) = (Fixture::power_law(21, nodes), Fixture::random(22, nodes, others, 300));
        let set = |every: Option<usize>, nodes: usize| {
            every.map(|every| NodeSet::new(&(0..nodes as u32).step_by(every).collect::<Vec<_>>(), nodes, device))
        };
        let (to, before, sources) = (set(sides.to, nodes), set(sides.before, nodes), set(sides.sources, others));
        let values = |seed: u64, rows: usize, columns: usize, dtype: Dtype| {
            up::<Ad<B>, 2>(&values_in(dtype, seed, rows * columns), [rows, columns], dtype, device)
        };
        let positive: Vec<f64> = values_in(Dtype::F32, 31, nodes).iter().map(|v| v.abs() + 0.1).collect();
        let factors = [0; 2].map(|_| up::<Ad<B>, 1>(&positive, [nodes], Dtype::F32, device));
        let (drop_edge, _) = half_dropped(&f);
        let attention_dropout = Dropout::new(0.3, 5, 1, 0, 1);
        let layer = Self {
            own: csr_of::<Ad<B>>(&f, device).restrict(to.as_ref(), before.as_ref()),
            other: csr_of::<Ad<B>>(&g, device).restrict(to.as_ref(), sources.as_ref()),
            data: [
                values(32, sources.as_ref().map_or(others, NodeSet::len), INPUT, dtype),
                values(33, nodes, INPUT, dtype),
            ],
            spmm: SpmmConfig { dst_scale: Some(factors[0].clone()), drop_edge: Some(drop_edge), ..Default::default() },
            edge_weight: None,
            gat: GatConfig { drop_edge: Some(drop_edge), attention_dropout, ..Default::default() },
            to,
            before,
            factors,
            heads,
            nodes,
        };
        let before = layer.before.as_ref().map_or(nodes, NodeSet::len);
        let other = layer.other.num_cols();
        let shapes = [(before, INPUT), (other, INPUT), (2 * heads, INPUT), (2 * heads, INPUT)];
        let mut matrices: Vec<_> = (shapes.into_iter().enumerate())
            .map(|(k, (rows, columns))| values(40 + k as u64, rows, columns, if k < 2 { dtype } else { Dtype::F32 }))
            .collect();
        matrices.extend((0..4).map(|k| values(50 + k, INPUT, WIDTH, Dtype::F32)));
        let matrices = matrices.into_iter().map(Tensor::require_grad).collect();
        let bias = up::<Ad<B>, 1>(&values_in(Dtype::F32, 60, WIDTH), [WIDTH], Dtype::F32, device).require_grad();
        (layer, Leaves { matrices, bias })
    }

    /// The same with edges that weigh something.
    fn weighted(mut self, device: &B::Device) -> Self {
        let edges = self.own.num_edges();
        let values = up::<Ad<B>, 1>(&values_in(Dtype::F32, 34, edges), [edges], Dtype::F32, device);
        self.edge_weight = Some(values.require_grad());
        self
    }

    fn own_term(&self, h: &Tensor<Ad<B>, 2>) -> SpmmConfig<Ad<B>> {
        let own = SelfTerm { h: h.clone(), scale: self.factors[1].clone(), nodes: self.before.clone() };
        SpmmConfig { own: Some(own), ..self.spmm.clone() }
    }

    /// The scores of attention to rows, and of attention to data.
    fn scores(&self, leaves: &Leaves<B>) -> [[Tensor<Ad<B>, 2>; 2]; 2] {
        let [h, z, vectors, of_data] = [0, 1, 2, 3].map(|k| leaves.matrices[k].clone());
        let dst = select_rows(row_dots(h, vectors.clone()), self.before.as_ref(), self.to.as_ref());
        let of_data = of_data.detach();
        let [x, x_dst] = self.data.clone();
        [[dst, row_dots(z, vectors)], [row_dots(x_dst, of_data.clone()), row_dots(x, of_data)]]
    }

    /// Column `head` of both parts.
    fn columns(&self, [dst, src]: &[Tensor<Ad<B>, 2>; 2], head: usize) -> [ScoreColumns<Ad<B>>; 2] {
        [
            ScoreColumns { scores: dst.clone(), first: head },
            ScoreColumns { scores: src.clone(), first: self.heads + head },
        ]
    }

    fn in_chunks(&self, leaves: &Leaves<B>, chunk_rows: usize) -> Tensor<Ad<B>, 2> {
        let [h, z, _, vectors] = [0, 1, 2, 3].map(|k| leaves.matrices[k].clone());
        let weight = |k: usize| leaves.matrices[4 + k].clone();
        let [rows, data] = self.scores(leaves).map(|scores| self.columns(&scores, 0));
        let terms = vec![
            Term::rows(h.clone(), self.before.as_ref(), weight(0)),
            Term::spmm(&self.own, h.clone(), self.edge_weight.clone(), self.own_term(&h), weight(1)),
            Term::attend(&self.other, z, rows, self.heads, weight(2), &self.gat),
            Term::attend_inputs(&self.other, self.data.clone(), vectors, data, self.heads, weight(3), &self.gat),
        ];
        let to = Destinations::new(self.nodes, self.to.as_ref());
        sum_in_chunks(terms, Some(leaves.bias.clone()), 0.5, Activation::Elu, to, chunk_rows)
    }

    /// The operators one by one. Dropout of one head alone is not to be had from outside: it is left to one head.
    fn one_by_one(&self, leaves: &Leaves<B>) -> Tensor<Ad<B>, 2> {
        let [h, z, _, vectors] = [0, 1, 2, 3].map(|k| leaves.matrices[k].clone());
        let own = WIDTH / self.heads;
        let weight = |k: usize, head: usize| leaves.matrices[4 + k].clone().narrow(1, head * own, own);
        let whole = |k: usize| leaves.matrices[4 + k].clone();
        let [rows, data] = self.scores(leaves);
        let heads =
            |of_head: &dyn Fn(usize) -> Tensor<Ad<B>, 2>| Tensor::cat((0..self.heads).map(of_head).collect(), 1);
        let attended = heads(&|head| {
            let [dst, src] = self.columns(&rows, head);
            linear(attend(&self.other, z.clone(), dst, src, 1, self.gat.clone()), weight(2, head), None)
        });
        let of_data = heads(&|head| {
            let pair = Tensor::cat(
                vec![vectors.clone().narrow(0, head, 1), vectors.clone().narrow(0, self.heads + head, 1)],
                0,
            );
            let [x, x_dst] = self.data.clone();
            let scores = self.columns(&data, head);
            linear(attend_inputs(&self.other, x, x_dst, pair, scores, self.gat.clone()), weight(3, head), None)
        });
        let parts = vec![
            linear(select_rows(h.clone(), self.before.as_ref(), self.to.as_ref()), whole(0), None),
            linear(spmm(&self.own, h.clone(), self.edge_weight.clone(), self.own_term(&h)), whole(1), None),
            attended,
            of_data,
        ];
        combine(parts, Some(leaves.bias.clone()), 0.5, Activation::Elu)
    }
}

/// The result and all gradients.
fn results<B: GraphBackend>(
    layer: &Layer<B>,
    out: Tensor<Ad<B>, 2>,
    leaves: &Leaves<B>,
    dtype: Dtype,
) -> Vec<Vec<f32>> {
    let grads = backward::<B, 2>(out.clone(), dtype);
    let mut all = vec![down(out.inner())];
    all.extend(leaves.matrices.iter().map(|leaf| gradient::<B, 2>(leaf, &grads)));
    all.push(gradient::<B, 1>(&leaves.bias, &grads));
    all.extend(layer.edge_weight.iter().map(|weight| gradient::<B, 1>(weight, &grads)));
    all
}

fn largest(values: impl Iterator<Item = f32>) -> f32 {
    values.fold(0.0, |largest, v| largest.max(v.abs()))
}

fn apart(got: &[f32], want: &[f32]) -> f32 {
    largest(got.iter().zip(want).map(|(a, b)| a - b))
}

fn assert_near(name: &str, got: &[Vec<f32>], want: &[Vec<f32>], tolerance: f32) {
    for (which, (got, want)) in got.iter().zip(want).enumerate() {
        assert_eq!(got.len(), want.len(), "{name}: {which}");
        let scale = largest(want.iter().copied());
        assert!(scale > 1e-3, "{name}: {which} is all but zero");
        let apart = apart(got, want);
        assert!(apart <= tolerance * scale, "{name}: result or gradient {which}: {apart} apart of {scale}");
    }
}

fn a_layer_in_chunks_is_its_operators<B: GraphBackend>(device: &B::Device) {
    for (name, sides) in [("whole", WHOLE), ("restricted", SOME)] {
        for (heads, weighted) in [(1, false), (2, false), (1, true)] {
            let (mut layer, leaves) = Layer::<B>::new(sides, heads, Dtype::F32, device);
            if heads > 1 {
                layer.gat.attention_dropout = None;
            }
            let layer = if weighted { layer.weighted(device) } else { layer };
            let want = results(&layer, layer.one_by_one(&leaves), &leaves, Dtype::F32);
            for chunk in [1, 7, 18, 64, 70, usize::MAX] {
                let got = results(&layer, layer.in_chunks(&leaves, chunk), &leaves, Dtype::F32);
                let name = format!("{name}, {heads} heads, weights {weighted}, chunks of {chunk}");
                assert_near(&name, &got, &want, 2e-5);
            }
        }
    }
}

fn dropout_of_attention_does_not_depend_on_chunks<B: GraphBackend>(device: &B::Device) {
    let (layer, leaves) = Layer::<B>::new(WHOLE, 2, Dtype::F32, device);
    let whole = results(&layer, layer.in_chunks(&leaves, 70), &leaves, Dtype::F32);
    let pieces = results(&layer, layer.in_chunks(&leaves, 9), &leaves, Dtype::F32);
    assert_near("dropout of two heads", &pieces, &whole, 2e-5);
}

fn in_half_precision_too<B: GraphBackend>(device: &B::Device) {
    let (layer, leaves) = Layer::<B>::new(SOME, 1, Dtype::F16, device);
    let want = results(&layer, layer.one_by_one(&leaves), &leaves, Dtype::F16);
    let got = results(&layer, layer.in_chunks(&leaves, 5), &leaves, Dtype::F16);
    // Gradients go through matrices in f16 in another order: a few of its steps, 2^-11 each.
    let vectors = 3;
    assert_near("f16", &got[..vectors], &want[..vectors], 4e-3);
    assert_near("f16, the rest", &got[vectors + 1..], &want[vectors + 1..], 4e-3);
    // Those of the scores cancel, all but: what is summed up to them is as large as the largest of the others.
    let (apart, scale) = (apart(&got[vectors], &want[vectors]), largest(want.iter().flatten().copied()));
    assert_eq!(got[vectors].len(), want[vectors].len());
    assert!(apart <= 1e-3 * scale, "vectors of scores: {apart} apart, {scale} is the largest");
}

/// A weighted sum and its projection, by chunks and one by one, each against the oracle. Weights have both signs; what
/// is rounded to f16 on the way is a sum in one of them and its projection in the other.
fn weights_match_the_oracle_in_half_precision<B: GraphBackend>(device: &B::Device) {
    let f = Fixture::power_law(21, 70);
    let (nodes, edges) = (f.num_rows, f.num_edges());
    // The projection is of numbers that f16 has.
    let (xs, ws) = (values_in(Dtype::F16, 70, nodes * INPUT), values_in(Dtype::F16, 71, INPUT * WIDTH));
    let of_edges = values_in(Dtype::F32, 72, edges);
    let weights = SpmmWeights { edge_weight: Some(&of_edges), ..SpmmWeights::default() };
    let kept = oracle::keep_all(&f);
    let sums = oracle::spmm(&f, &xs, INPUT, &weights, &kept);
    let (of_sums, of_projection, _) = linear_grad(&sums, &ws, INPUT, WIDTH, &probe(nodes * WIDTH));
    let of_product = spmm_grad(&f, &xs, INPUT, &weights, &kept, &of_sums);
    let result = oracle::linear(&sums, &ws, &[0.0; WIDTH], INPUT);
    let want = [result, of_product.x, of_projection, of_product.edge_weight];

    let csr = csr_of::<Ad<B>>(&f, device);
    for chunk_rows in [None, Some(5), Some(nodes)] {
        let x = up::<Ad<B>, 2>(&xs, [nodes, INPUT], Dtype::F16, device).require_grad();
        let w = up::<Ad<B>, 2>(&ws, [INPUT, WIDTH], Dtype::F32, device).require_grad();
        let edge_weight = up::<Ad<B>, 1>(&of_edges, [edges], Dtype::F32, device).require_grad();
        let (weight, config) = (Some(edge_weight.clone()), SpmmConfig::default());
        let out = match chunk_rows {
            None => linear(spmm(&csr, x.clone(), weight, config), w.clone(), None),
            Some(chunk_rows) => {
                let term = Term::spmm(&csr, x.clone(), weight, config, w.clone());
                sum_in_chunks(vec![term], None, 1.0, Activation::Identity, Destinations::of(&csr), chunk_rows)
            }
        };
        let grads = backward::<B, 2>(out.clone(), Dtype::F16);
        let [of_x, of_w] = [&x, &w].map(|of| gradient::<B, 2>(of, &grads));
        let of_edges = gradient::<B, 1>(&edge_weight, &grads);
        let (forward, reverse) = longest(&f);
        let lens = [forward + INPUT, reverse + WIDTH, forward + nodes, INPUT + WIDTH];
        for (at, got) in [down(out.inner()), of_x, of_w, of_edges].iter().enumerate() {
            let name = format!("chunks of {chunk_rows:?}: result or gradient {at}");
            assert_close(&name, got, &want[at], Dtype::F16, lens[at]);
        }
    }
}

/// The slope along a direction in the space of all leaves against a central difference.
fn gradients_are_differences<B: GraphBackend>(device: &B::Device) {
    let (layer, leaves) = Layer::<B>::new(SOME, 2, Dtype::F32, device);
    let layer = layer.weighted(device);
    let weights = |out: &Tensor<Ad<B>, 2>| values_in(Dtype::F32, 90, out.dims().iter().product());
    let loss = |leaves: &Leaves<B>| -> f64 {
        let out = layer.in_chunks(leaves, 5);
        let weights = weights(&out);
        down(out.inner()).iter().zip(&weights).map(|(v, w)| f64::from(*v) * w).sum()
    };
    let out = layer.in_chunks(&leaves, 5);
    let shape = out.dims();
    let probe = up::<B, 2>(&weights(&out), shape, Dtype::F32, device);
    let grads = (out * Tensor::from_inner(probe)).sum().backward();
    let step = 2e-3;
    for which in 0..leaves.matrices.len() {
        let leaf = &leaves.matrices[which];
        let shape = leaf.dims();
        let direction = values_in(Dtype::F32, 100 + which as u64, shape[0] * shape[1]);
        let moved = |by: f64| {
            let by: Vec<f64> = direction.iter().map(|d| d * by).collect();
            let mut leaves = leaves.clone();
            let moved = leaf.clone().inner() + up::<B, 2>(&by, shape, Dtype::F32, device);
            leaves.matrices[which] = Tensor::from_inner(moved).require_grad();
            loss(&leaves)
        };
        // The vectors behind the scores of data: these are detached where the scores are made, and follow the vectors
        // here.
        let difference = (moved(step) - moved(-step)) / (2.0 * step);
        let slope: f64 = gradient::<B, 2>(leaf, &grads).iter().zip(&direction).map(|(g, d)| f64::from(*g) * d).sum();
        let scale: f64 =
            gradient::<B, 2>(leaf, &grads).iter().zip(&direction).map(|(g, d)| (f64::from(*g) * d).powi(2)).sum();
        let apart = (slope - difference).abs();
        assert!(apart <= 1e-2 * scale.sqrt().max(1.0), "leaf {which}: slope {slope}, difference {difference}");
    }
}

fn without_rows_or_sources<B: GraphBackend>(device: &B::Device) {
    let weight = || up::<Ad<B>, 2>(&values_in(Dtype::F32, 1, 12), [3, 4], Dtype::F32, device).require_grad();
    let x = |rows: usize| up::<Ad<B>, 2>(&values_in(Dtype::F32, 2, rows * 3), [rows, 3], Dtype::F32, device);
    // Nobody points at the second destination, and no edge comes from the last source.
    let csr = Csr::<Ad<B>>::from_host(&[0, 2, 2], &[0, 1], 3, device).unwrap();
    for chunk in [1, 5] {
        let (w, h) = (weight(), x(3).require_grad());
        let to = Destinations::of(&csr);
        let term = Term::spmm(&csr, h.clone(), None, SpmmConfig::default(), w.clone());
        let y = sum_in_chunks(vec![term], None, 1.0, Activation::Identity, to, chunk);
        let grads = backward::<B, 2>(y.clone(), Dtype::F32);
        let (out, dh) = (down(y.inner()), gradient::<B, 2>(&h, &grads));
        assert!(out[..4].iter().any(|v| *v != 0.0) && out[4..] == [0.0; 4], "{out:?}");
        assert!(dh[..6].iter().any(|v| *v != 0.0) && dh[6..] == [0.0; 3], "{dh:?}");
        assert_eq!(gradient::<B, 2>(&w, &grads).len(), 12);
    }
    let none = NodeSet::new(&[], 2, device);
    let to = Destinations::new(2, Some(&none));
    assert!(to.is_empty());
    let weights = Tensor::<Ad<B>, 1>::ones([2], device);
    let term = Term::spmm(&csr.restrict(Some(&none), None), x(3), Some(weights), SpmmConfig::default(), weight());
    let y = sum_in_chunks(vec![term], None, 1.0, Activation::Relu, to, 2);
    assert_eq!((y.dims(), y.dtype()), ([0, 4], DType::F32));
}
