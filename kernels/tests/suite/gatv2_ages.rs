//! Attention with a score behind the non-linearity whose edges have an age: given per edge, or by the times of both
//! ends.

use std::panic::AssertUnwindSafe;

use burn::tensor::{DType, Int, Tensor, TensorData};
use graphsieve_kernels::testing::harness::{Trial, hardware};
use graphsieve_kernels::testing::pairs::{angles_grad, gatv2 as oracle_of, gatv2_grad, gatv2_grad_magnitude};
use graphsieve_kernels::testing::{
    Dtype, EdgeInput, Fixture, PairInput, Rng, assert_close, assert_close_at_scale, fixtures, oracle, probe,
    span_fixtures, values_in,
};
use graphsieve_kernels::{
    Activation, Age, Csr, Destinations, EdgeProjection, GatConfig, GraphBackend, NodeSet, Term, TimeEncoding, gatv2,
    linear, on_every_backend, sum_in_chunks,
};

use crate::edge_attention::{Ages, Carries};
use crate::support::*;

/// The trials of this file.
pub fn trials() -> Vec<Trial> {
    on_every_backend!(
        "gatv2_ages";
        ages_match_the_oracle,
        ages_match_the_oracle_between_selected_nodes,
        ages_of_nodes_match_the_oracle_on_spans,
        ages_in_chunks_are_those_of_the_operator,
        ages_of_many_heads_in_chunks_are_those_of_the_operator(hardware),
        ages_that_do_not_fit_are_refused_by_name,
    )
}

const BOTH: Carries = Carries { values: 3, ages: Ages::OfEdges, log_age: true, cosines: 2 };
const OF_NODES: Carries = Carries { values: 2, ages: Ages::OfNodes, log_age: false, cosines: 3 };
const COSINES: Carries = Carries { values: 0, ages: Ages::OfEdges, log_age: false, cosines: 4 };
const LOGARITHM: Carries = Carries { values: 0, ages: Ages::OfNodes, log_age: true, cosines: 0 };

/// Everything on the host.
struct Case {
    carries: Carries,
    shape: (usize, usize),
    /// Sources, destinations, attention vectors, values of all edges, and the projection.
    inputs: [Vec<f64>; 5],
    ages: Vec<f64>,
    times: [Vec<i32>; 2],
    angles: [Vec<f64>; 2],
}

fn scaled(seed: u64, n: usize, by: f64) -> Vec<f64> {
    values_in(Dtype::F32, seed, n).into_iter().map(|x| f64::from((by * x) as f32)).collect()
}

impl Case {
    fn new(
        f: &Fixture,
        [rows, cols]: [usize; 2],
        (heads, channels): (usize, usize),
        (carries, dtype): (Carries, Dtype),
        seed: u64,
    ) -> Self {
        let mut rng = Rng::new(40);
        let mut times = |nodes: usize| (0..nodes).map(|_| 1_600_000_000 + rng.below(20) as i32).collect::<Vec<i32>>();
        let times = [times(f.num_rows), times(f.num_cols)];
        let ages = match carries.ages {
            Ages::OfNodes => f.edges().map(|(_, i, j)| f64::from(times[0][i] - times[1][j])).collect(),
            _ => scaled(seed + 1, f.num_edges(), 4.0),
        };
        let width = heads * channels;
        let columns = carries.values + usize::from(carries.log_age) + carries.cosines;
        let stored = |seed, n, by| scaled(seed, n, by).into_iter().map(|x| dtype.round(x)).collect();
        let inputs = [
            stored(seed + 2, cols * width, 0.5),
            stored(seed + 3, rows * width, 0.5),
            scaled(seed + 4, width, 1.0 / (channels as f64).sqrt()),
            stored(seed + 5, f.num_edges() * carries.values, 1.0),
            scaled(seed + 6, columns * width, 0.25),
        ];
        let angles = [scaled(seed + 7, carries.cosines, 0.1), scaled(seed + 8, carries.cosines, 1.0)];
        Self { carries, shape: (heads, channels), inputs, ages, times, angles }
    }

    /// Whether messages have what edges carry: where the logarithm of the age is among it.
    fn in_messages(&self) -> bool {
        self.carries.log_age
    }

    /// What the edges of `left`, which are `edges` of the graph, carry; and their ages.
    fn carried(&self, left: &Fixture, edges: &[usize]) -> [Vec<f64>; 2] {
        let width = self.carries.values;
        let values: Vec<f64> = edges.iter().flat_map(|&e| self.inputs[3][e * width..][..width].to_vec()).collect();
        let ages: Vec<f64> = edges.iter().map(|&e| self.ages[e]).collect();
        let none = oracle::AttendInput {
            values: &[],
            score_dst: &[],
            score_src: &[],
            heads: 1,
            channels: 1,
            slope: 0.2,
            factors: None,
        };
        let input = EdgeInput {
            attend: none,
            values: &values,
            value_columns: width,
            ages: &ages,
            log_age: self.carries.log_age,
            frequency: &self.angles[0],
            phase: &self.angles[1],
            logit: &[],
        };
        [input.carried(left), ages]
    }

    fn input<'a>(&'a self, carried: &'a [f64], factors: &'a [f64]) -> PairInput<'a> {
        let [src, dst, attention, _, weight] = &self.inputs;
        let (heads, channels) = self.shape;
        let slope = f64::from(0.2f32);
        let (values, messages, factors) = (carried, self.in_messages(), Some(factors));
        PairInput { src, dst, attention, values, weight, messages, heads, channels, slope, factors }
    }

    /// On the device: what edges carry and both ends in `dtype`, what is learned, ages and times as they always are.
    fn tensors<B: GraphBackend>(&self, dtype: Dtype, device: &B::Device) -> Leaves<B> {
        let (heads, channels) = self.shape;
        let width = heads * channels;
        let leaf = |k: usize, width: usize| {
            let rows = self.inputs[k].len() / width;
            let dtype = if matches!(k, 2 | 4) { Dtype::F32 } else { dtype };
            up::<Ad<B>, 2>(&self.inputs[k], [rows, width], dtype, device).require_grad()
        };
        let vector = |values: &[f64]| up::<Ad<B>, 1>(values, [values.len()], Dtype::F32, device);
        let learned = |values: &[f64]| match values.is_empty() {
            true => vector(values),
            false => vector(values).require_grad(),
        };
        let times = |times: &[i32]| {
            let data = TensorData::new(times.to_vec(), [times.len()]);
            Tensor::<Ad<B>, 1, Int>::from_data(data, (device, DType::I32))
        };
        let age = match self.carries.ages {
            Ages::OfNodes => Age::Nodes { dst: times(&self.times[0]), src: times(&self.times[1]) },
            _ => Age::Edges(vector(&self.ages)),
        };
        let [frequency, phase] = self.angles.each_ref().map(|of| learned(of));
        let edges = EdgeProjection {
            values: (self.carries.values > 0).then(|| leaf(3, self.carries.values)),
            time: Some(TimeEncoding { age, log_age: self.carries.log_age, frequency, phase }),
            weight: leaf(4, width),
            messages: self.in_messages(),
        };
        Leaves { src: leaf(0, width), dst: leaf(1, width), attention: leaf(2, channels), edges }
    }
}

struct Leaves<B: GraphBackend> {
    src: Tensor<Ad<B>, 2>,
    dst: Tensor<Ad<B>, 2>,
    attention: Tensor<Ad<B>, 2>,
    edges: EdgeProjection<Ad<B>>,
}

impl<B: GraphBackend> Leaves<B> {
    /// The gradients of what edges carry: of the projection, of values, frequencies and phases where there are any.
    fn of_edges(&self, grads: &<Ad<B> as burn::tensor::backend::AutodiffBackend>::Gradients) -> Vec<Vec<f32>> {
        let mut all = vec![gradient::<B, 2>(&self.edges.weight, grads)];
        all.extend(self.edges.values.as_ref().map(|values| gradient::<B, 2>(values, grads)));
        let time = self.edges.time.as_ref().expect("edges have an age");
        if time.frequency.dims()[0] > 0 {
            all.extend([&time.frequency, &time.phase].map(|of| gradient::<B, 1>(of, grads)));
        }
        all
    }
}

/// The result and all gradients against the oracle, between the nodes of two lists, with edges and weights left out.
fn check<B: GraphBackend>(
    f: &Fixture,
    lists: Option<[&[u32]; 2]>,
    (heads, channels): (usize, usize),
    (carries, dtype): (Carries, Dtype),
    device: &B::Device,
) {
    let width = heads * channels;
    let name = format!("{} {heads}x{channels} {carries:?} {dtype:?}", f.name);
    let (drop, mask) = half_dropped(f);
    let (dropout, weightless) = half_weightless();
    let whole: [Vec<u32>; 2] = [(0..f.num_rows as u32).collect(), (0..f.num_cols as u32).collect()];
    let [rows, cols] = lists.unwrap_or([&whole[0], &whole[1]]);
    let (mut left, mut edges) = (vec![Vec::new(); rows.len()], Vec::new());
    for (e, i, j) in f.edges() {
        if let (true, Ok(row), Ok(col)) = (mask[e], rows.binary_search(&(i as u32)), cols.binary_search(&(j as u32))) {
            left[row].push(col as u32);
            edges.push(e);
        }
    }
    let left = Fixture::from_rows(&name, cols.len(), &left);
    let all_factors = oracle::attention_factors(f, &weightless, heads);
    let factors: Vec<f64> = edges.iter().flat_map(|&e| all_factors[e * heads..][..heads].to_vec()).collect();
    let kept = oracle::keep_all(&left);
    // Cosines are not exact: no hidden layer may be so close to zero that rounding decides on which side it is.
    let off_the_kink = |case: &Case| {
        let [carried, _] = case.carried(&left, &edges);
        case.input(&carried, &factors).hidden(&left).iter().all(|u| u.abs() > 1e-5)
    };
    let of =
        |attempt: u64| Case::new(f, [rows.len(), cols.len()], (heads, channels), (carries, dtype), 100 + 20 * attempt);
    let case = (0..1_000).map(of).find(off_the_kink).expect("one of all has its hidden layers away from 0");
    let [carried, ages] = case.carried(&left, &edges);
    let input = case.input(&carried, &factors);

    let csr = csr_of::<Ad<B>>(f, device);
    let csr = match lists {
        Some([rows, cols]) => {
            csr.restrict(Some(&NodeSet::new(rows, f.num_rows, device)), Some(&NodeSet::new(cols, f.num_cols, device)))
        }
        None => csr,
    };
    let leaves = case.tensors::<B>(dtype, device);
    let config = GatConfig { drop_edge: Some(drop), attention_dropout: Some(dropout), ..Default::default() };
    let edges_of = Some(leaves.edges.clone());
    let y = gatv2(&csr, leaves.src.clone(), leaves.dst.clone(), leaves.attention.clone(), edges_of, config);

    let columns = input.columns();
    let (forward_len, reverse_len) = longest(&left);
    let (forward_len, reverse_len) = (forward_len + channels + columns, reverse_len + channels + columns);
    assert_close(&name, &down(y.clone().inner()), &oracle_of(&left, &input, &kept), dtype, forward_len);
    let grads = backward::<B, 2>(y, dtype);
    let g: Vec<f64> = probe(rows.len() * width).iter().map(|&p| dtype.round(p)).collect();
    let (want, scale) = (gatv2_grad(&left, &input, &kept, &g), gatv2_grad_magnitude(&left, &input, &kept, &g));
    let close = |what: &str, got: &[f32], want: &[f64], scale: &[f64], len: usize| {
        assert_close_at_scale(&format!("{name}: {what}"), got, want, scale, dtype, len);
    };
    let all_len = left.num_edges() + channels + columns;
    close("dsrc", &gradient::<B, 2>(&leaves.src, &grads), &want.src, &scale.src, reverse_len);
    close("ddst", &gradient::<B, 2>(&leaves.dst, &grads), &want.dst, &scale.dst, forward_len);
    close("dattention", &gradient::<B, 2>(&leaves.attention, &grads), &want.attention, &scale.attention, all_len);
    let mut found = leaves.of_edges(&grads).into_iter();
    close("dweight", &found.next().unwrap(), &want.weight, &scale.weight, all_len);
    if carries.values > 0 {
        // Edges that are left out have none, and columns of ages no place there.
        let back = |of_kept: &[f64]| {
            let mut all = vec![0.0; f.num_edges() * carries.values];
            for (&e, row) in edges.iter().zip(of_kept.chunks(columns)) {
                all[e * carries.values..][..carries.values].copy_from_slice(&row[..carries.values]);
            }
            all
        };
        close("dvalues", &found.next().unwrap(), &back(&want.values), &back(&scale.values), width + channels);
    }
    if carries.cosines > 0 {
        let angles = case.angles.each_ref().map(|of| &of[..]);
        let want = angles_grad(&want.values, &ages, angles, |x| x);
        let scale = angles_grad(&scale.values, &ages, angles, f64::abs);
        for (k, what) in ["dfrequency", "dphase"].into_iter().enumerate() {
            close(what, &found.next().unwrap(), &want[k], &scale[k], all_len + width);
        }
    }
    assert!(found.next().is_none());
}

fn ages_match_the_oracle<B: GraphBackend>(device: &B::Device) {
    // Rows of every length that a kernel branches on, of which the long ones have a team of planes.
    for f in fixtures().into_iter().filter(|f| f.num_rows > 0 && (1..4_000).contains(&f.num_edges())) {
        check::<B>(&f, None, (2, 4), (BOTH, Dtype::F32), device);
        check::<B>(&f, None, (1, 3), (OF_NODES, Dtype::F32), device);
    }
    let f = Fixture::power_law(8, 60);
    for (shape, carries) in
        [((1, 33), COSINES), ((3, 5), LOGARITHM), ((4, 64), BOTH), ((6, 48), OF_NODES), ((40, 1), COSINES)]
    {
        check::<B>(&f, None, shape, (carries, Dtype::F32), device);
    }
}

/// Both ends and values in a type of two bytes.
pub fn check_half<B: GraphBackend>(dtype: Dtype, device: &B::Device) {
    let f = Fixture::power_law(9, 200);
    for (shape, carries) in [((1, 33), COSINES), ((4, 32), BOTH), ((3, 5), OF_NODES)] {
        check::<B>(&f, None, shape, (carries, dtype), device);
    }
}

fn ages_match_the_oracle_between_selected_nodes<B: GraphBackend>(device: &B::Device) {
    let f = Fixture::random(16, 60, 50, 500);
    let (rows, cols) = (node_lists(f.num_rows), node_lists(f.num_cols));
    for (rows, cols, carries) in
        [(&rows[0], &cols[3], BOTH), (&rows[3], &cols[1], OF_NODES), (&rows[1], &cols[0], LOGARITHM)]
    {
        check::<B>(&f, Some([rows, cols]), (2, 6), (carries, Dtype::F32), device);
    }
}

fn ages_of_nodes_match_the_oracle_on_spans<B: GraphBackend>(device: &B::Device) {
    let carries = Carries { values: 0, ..OF_NODES };
    for f in span_fixtures().into_iter().filter(|f| f.num_rows > 0 && (1..4_000).contains(&f.num_edges())) {
        check::<B>(&f, None, (2, 4), (carries, Dtype::F32), device);
    }
}

/// Behind a projection of the destinations that changes nothing.
fn ages_in_chunks_are_those_of_the_operator<B: GraphBackend>(device: &B::Device) {
    check_chunks::<B>(&[((2, 4), BOTH), ((2, 4), OF_NODES)], device);
}

/// More than the registers hold.
fn ages_of_many_heads_in_chunks_are_those_of_the_operator<B: GraphBackend>(device: &B::Device) {
    check_chunks::<B>(&[((2, 192), BOTH)], device);
}

fn check_chunks<B: GraphBackend>(cases: &[((usize, usize), Carries)], device: &B::Device) {
    let f = Fixture::random(17, 40, 30, 300);
    let csr = csr_of::<Ad<B>>(&f, device);
    for &(shape, carries) in cases {
        let width = shape.0 * shape.1;
        let case = Case::new(&f, [f.num_rows, f.num_cols], shape, (carries, Dtype::F32), 100);
        let config = GatConfig { attention_dropout: Some(half_weightless().0), ..Default::default() };
        let identity = || Tensor::<Ad<B>, 2>::eye(width, device);
        let run = |chunk_rows: Option<usize>| {
            let leaves = case.tensors::<B>(Dtype::F32, device);
            let (src, dst, attention) = (leaves.src.clone(), leaves.dst.clone(), leaves.attention.clone());
            let edges = Some(leaves.edges.clone());
            let y = match chunk_rows {
                Some(chunk_rows) => {
                    let term = Term::gatv2(&csr, src, (dst, None), (identity(), None), attention, edges, &config);
                    let to = Destinations::of(&csr);
                    sum_in_chunks(vec![term], None, 1.0, Activation::Identity, to, chunk_rows)
                }
                None => gatv2(&csr, src, linear(dst, identity(), None), attention, edges, config.clone()),
            };
            let mut all = vec![down(y.clone().inner())];
            let grads = backward::<B, 2>(y, Dtype::F32);
            let ends = [&leaves.src, &leaves.dst, &leaves.attention];
            all.extend(ends.map(|leaf| gradient::<B, 2>(leaf, &grads)));
            all.extend(leaves.of_edges(&grads));
            all
        };
        let want = run(None);
        for chunk_rows in [1, 7, 1000] {
            let got = run(Some(chunk_rows));
            assert_eq!(got.len(), want.len());
            for (k, (got, want)) in got.into_iter().zip(&want).enumerate() {
                let want: Vec<f64> = want.iter().copied().map(f64::from).collect();
                let name = format!("{shape:?} {carries:?}, chunks of {chunk_rows}, part {k}");
                assert_close(&name, &got, &want, Dtype::F32, f.num_edges());
            }
        }
    }
}

fn ages_that_do_not_fit_are_refused_by_name<B: GraphBackend>(device: &B::Device) {
    let csr = Csr::<B>::from_host(&[0, 2, 3], &[0, 1, 1], 2, device).unwrap();
    let spans = Csr::<B>::from_spans(&[0, 0], &[2, 3], &[0, 1, 1], 2, device).unwrap();
    let matrix = |rows: usize| zeros::<B, 2>([rows, 4], device);
    let vector = |len: usize| zeros::<B, 1>([len], device);
    let times = |len: usize| Tensor::<B, 1, Int>::zeros([len], (device, DType::I32));
    let refusal = |csr: &Csr<B>, age: Age<B>, cosines: usize, weight: usize| {
        let time = TimeEncoding { age, log_age: false, frequency: vector(cosines), phase: vector(cosines) };
        let edges = Some(EdgeProjection { values: None, time: Some(time), weight: matrix(weight), messages: false });
        let attention = Tensor::<B, 2>::zeros([2, 2], device);
        let run = || gatv2(csr, matrix(2), matrix(2), attention, edges, Default::default());
        let refused = std::panic::catch_unwind(AssertUnwindSafe(run)).expect_err("ages that do not fit");
        refused.downcast_ref::<String>().expect("a message in words").clone()
    };
    let nodes = |dst, src| Age::Nodes { dst: times(dst), src: times(src) };
    for (found, want) in [
        (refusal(&csr, Age::Edges(vector(2)), 1, 1), "gatv2: ages of edges: expected a vector of 3"),
        (refusal(&spans, Age::Edges(vector(5)), 1, 1), "gatv2: ages of edges: takes an adjacency with a list per row"),
        (refusal(&csr, nodes(3, 2), 1, 1), "gatv2: times of destinations: expected a vector of 2"),
        (refusal(&csr, nodes(2, 1), 1, 1), "gatv2: times of sources: expected a vector of 2"),
        (refusal(&csr, nodes(2, 2), 17, 17), "gatv2: frequency: expected 0 to 16, got 17"),
        (refusal(&csr, nodes(2, 2), 2, 1), "gatv2: rows of weight: expected 2, got 1"),
        (refusal(&csr, nodes(2, 2), 0, 1), "gatv2: edges: expected values or a time encoding with columns, got none"),
    ] {
        assert!(found.starts_with(want), "expected {want:?}, got {found:?}");
    }
}
