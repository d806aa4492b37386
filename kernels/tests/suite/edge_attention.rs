//! Attention whose edges carry something: values, and times of edges or of nodes.

use std::panic::AssertUnwindSafe;

use burn::tensor::{DType, Int, Tensor, TensorData};
use graphsieve_kernels::testing::edges::{attend_edges as oracle_of, attend_edges_grad, attend_edges_grad_magnitude};
use graphsieve_kernels::testing::harness::{Trial, hardware};
use graphsieve_kernels::testing::{
    AttendInput, Dtype, EdgeInput, Fixture, Rng, assert_close, assert_close_at_scale, fixtures, oracle, probe,
    span_fixtures, values_in,
};
use graphsieve_kernels::{
    Activation, Age, Csr, Destinations, EdgeRows, EdgeTerm, GatConfig, GraphBackend, NodeSet, Term, TimeEncoding,
    attend, attend_edges, linear, on_every_backend, sum_in_chunks,
};

use crate::attention::Dropped;
use crate::support::*;

/// The trials of this file.
pub fn trials() -> Vec<Trial> {
    on_every_backend!(
        "edge_attention";
        edges_match_the_oracle_on_every_fixture,
        edges_match_the_oracle_for_every_shape,
        edges_match_the_oracle_for_more_shapes(hardware),
        edges_match_the_oracle_between_selected_nodes,
        ages_of_nodes_match_the_oracle_on_spans,
        edges_that_add_nothing_to_the_score_change_nothing,
        the_order_of_edges_changes_nothing_but_rounding,
        values_that_are_kept_change_nothing,
        a_repeated_forward_pass_gives_the_same_gradients,
        either_result_may_be_left_unused,
        ages_of_years_in_seconds_stay_exact_enough,
        a_layer_in_chunks_is_its_operators,
        edges_of_another_shape_are_refused_by_name,
    )
}

/// Where ages come from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Ages {
    Nowhere,
    OfEdges,
    OfNodes,
}

/// What the edges of a case carry.
#[derive(Clone, Copy, Debug)]
pub struct Carries {
    pub values: usize,
    pub ages: Ages,
    pub log_age: bool,
    pub cosines: usize,
}

/// Values alone.
fn values(values: usize) -> Carries {
    Carries { values, ages: Ages::Nowhere, log_age: false, cosines: 0 }
}

/// Values and the encoding of an age.
fn timed(values: usize, ages: Ages, log_age: bool, cosines: usize) -> Carries {
    Carries { values, ages, log_age, cosines }
}

/// Everything on the host.
struct Case {
    carries: Carries,
    values: Vec<f64>,
    ages: Vec<f64>,
    times: [Vec<i32>; 2],
    parameters: [Vec<f64>; 3],
}

impl Case {
    fn new(f: &Fixture, heads: usize, carries: Carries, dtype: Dtype) -> Self {
        let mut rng = Rng::new(40);
        let mut times = |nodes: usize| (0..nodes).map(|_| 1_600_000_000 + rng.below(20) as i32).collect::<Vec<i32>>();
        let times = [times(f.num_rows), times(f.num_cols)];
        let ages = match carries.ages {
            Ages::OfNodes => f.edges().map(|(_, i, j)| f64::from(times[0][i] - times[1][j])).collect(),
            _ => values_in(Dtype::F32, 41, f.num_edges()).into_iter().map(|age| 4.0 * age).collect(),
        };
        let columns = carries.values + usize::from(carries.log_age) + carries.cosines;
        let scaled = |seed, n: usize, by: f64| -> Vec<f64> {
            values_in(Dtype::F32, seed, n).into_iter().map(|x| f64::from((by * x) as f32)).collect()
        };
        let parameters = [
            scaled(42, heads * columns, 1.0 / (columns as f64).sqrt()),
            scaled(43, carries.cosines, 0.1),
            scaled(44, carries.cosines, 1.0),
        ];
        Self { carries, values: values_in(dtype, 45, f.num_edges() * carries.values), ages, times, parameters }
    }

    fn term<B: GraphBackend>(&self, heads: usize, dtype: Dtype, device: &B::Device) -> EdgeTerm<Ad<B>> {
        let Carries { values, ages, log_age, cosines } = self.carries;
        let [logit, frequency, phase] = &self.parameters;
        let columns = logit.len() / heads;
        let edges = self.ages.len();
        let vector = |values: &[f64]| up::<Ad<B>, 1>(values, [values.len()], Dtype::F32, device);
        let times = |times: &[i32]| {
            if times.is_empty() {
                // CUDA does not take nothing.
                return Tensor::empty([0], (device, DType::I32));
            }
            let data = TensorData::new(times.to_vec(), [times.len()]);
            Tensor::<Ad<B>, 1, Int>::from_data(data, (device, DType::I32))
        };
        let age = match ages {
            Ages::OfNodes => Age::Nodes { dst: times(&self.times[0]), src: times(&self.times[1]) },
            _ => Age::Edges(vector(&self.ages)),
        };
        let (frequency, phase) = (vector(frequency), vector(phase));
        let learned = |tensor: Tensor<Ad<B>, 1>| if cosines > 0 { tensor.require_grad() } else { tensor };
        let time = TimeEncoding { age, log_age, frequency: learned(frequency), phase: learned(phase) };
        EdgeTerm {
            values: (values > 0)
                .then(|| up::<Ad<B>, 2>(&self.values, [edges, values], dtype, device).require_grad().into()),
            time: (ages != Ages::Nowhere).then_some(time),
            logit: up::<Ad<B>, 2>(logit, [heads, columns], Dtype::F32, device).require_grad(),
        }
    }
}

/// The result and all gradients against the oracle, between the nodes of two lists.
fn check_between<B: GraphBackend>(
    f: &Fixture,
    lists: Option<[&[u32]; 2]>,
    (heads, channels): (usize, usize),
    carries: Carries,
    (dtype, dropped): (Dtype, Dropped),
    device: &B::Device,
) {
    let name = format!("{} {heads}x{channels} {carries:?} {dtype:?} without {dropped:?}", f.name);
    let drops_edges = matches!(dropped, Dropped::Edges | Dropped::Both);
    let drops_weights = matches!(dropped, Dropped::Weights | Dropped::Both);
    let (drop, mask) = half_dropped(f);
    let (dropout, weightless) = half_weightless();
    let case = Case::new(f, heads, carries, dtype);
    let whole: [Vec<u32>; 2] = [(0..f.num_rows as u32).collect(), (0..f.num_cols as u32).collect()];
    let [rows, cols] = lists.unwrap_or([&whole[0], &whole[1]]);

    // The kept edges between selected nodes, for the oracle.
    let mut left = vec![Vec::new(); rows.len()];
    let mut edges = Vec::new();
    for (e, i, j) in f.edges() {
        if let (true, Ok(row), Ok(col)) =
            (!drops_edges || mask[e], rows.binary_search(&(i as u32)), cols.binary_search(&(j as u32)))
        {
            left[row].push(col as u32);
            edges.push(e);
        }
    }
    let left = Fixture::from_rows(&name, cols.len(), &left);
    let of_edges = |all: &[f64], columns: usize| -> Vec<f64> {
        edges.iter().flat_map(|&e| all[e * columns..(e + 1) * columns].to_vec()).collect()
    };
    let all_factors = oracle::attention_factors(f, &weightless, heads);
    let (factors, edge_values, ages) =
        (of_edges(&all_factors, heads), of_edges(&case.values, carries.values), of_edges(&case.ages, 1));
    let width = heads * channels;
    let features = values_in(dtype, 46, cols.len() * width);
    let (s, t) = (values_in(Dtype::F32, 47, rows.len() * heads), values_in(Dtype::F32, 48, cols.len() * heads));
    let [logit, frequency, phase] = &case.parameters;
    let input = EdgeInput {
        attend: AttendInput {
            values: &features,
            score_dst: &s,
            score_src: &t,
            heads,
            channels,
            slope: f64::from(0.2f32),
            factors: drops_weights.then_some(&factors),
        },
        values: &edge_values,
        value_columns: carries.values,
        ages: &ages,
        log_age: carries.log_age,
        frequency,
        phase,
        logit,
    };
    let kept = oracle::keep_all(&left);

    let csr = csr_of::<Ad<B>>(f, device);
    let csr = match lists {
        Some([rows, cols]) => {
            csr.restrict(Some(&NodeSet::new(rows, f.num_rows, device)), Some(&NodeSet::new(cols, f.num_cols, device)))
        }
        None => csr,
    };
    let term = case.term::<B>(heads, dtype, device);
    let h = up::<Ad<B>, 2>(&features, [cols.len(), width], dtype, device).require_grad();
    let score =
        |values: &[f64], nodes: usize| up::<Ad<B>, 2>(values, [nodes, heads], Dtype::F32, device).require_grad();
    let (dst, src) = (score(&s, rows.len()), score(&t, cols.len()));
    let config = GatConfig {
        drop_edge: drops_edges.then_some(drop),
        attention_dropout: drops_weights.then_some(dropout),
        ..Default::default()
    };
    let (y, v) = attend_edges(&csr, h.clone(), columns(&dst, 0), columns(&src, 0), term.clone(), heads, config);
    let wide = heads * term.columns();
    assert_eq!((y.dims(), v.dims()), ([rows.len(), width], [rows.len(), wide]), "{name}");

    let [want_y, want_v] = oracle_of(&left, &input, &kept);
    let (forward_len, reverse_len) = longest(&left);
    let (forward_len, reverse_len) = (forward_len + channels, reverse_len + channels + wide);
    assert_close(&name, &down(y.clone().inner()), &want_y, dtype, forward_len);
    assert_close(&format!("{name}: v"), &down(v.clone().inner()), &want_v, dtype, forward_len);
    if rows.is_empty() {
        return; // Burn's own product and sum of the loss below do not take a matrix without rows.
    }
    let grads = (probed::<B, 2>(y, dtype) + probed::<B, 2>(v, dtype)).backward();
    let rounded = |n: usize| probe(n).iter().map(|&p| dtype.round(p)).collect::<Vec<f64>>();
    let (g, gv) = (rounded(rows.len() * width), rounded(rows.len() * wide));
    let want = attend_edges_grad(&left, &input, &kept, [&g, &gv]);
    let scale = attend_edges_grad_magnitude(&left, &input, &kept, [&g, &gv]);
    let close = |what: &str, got: Vec<f32>, want: &[f64], scale: &[f64], len: usize| {
        assert_close_at_scale(&format!("{name}: {what}"), &got, want, scale, dtype, len);
    };
    let all_len = left.num_edges() + channels + wide;
    close("dh", gradient::<B, 2>(&h, &grads), &want.features, &scale.features, reverse_len);
    close("ddst", gradient::<B, 2>(&dst, &grads), &want.score_dst, &scale.score_dst, forward_len + wide);
    close("dsrc", gradient::<B, 2>(&src, &grads), &want.score_src, &scale.score_src, reverse_len);
    close("dlogit", gradient::<B, 2>(&term.logit, &grads), &want.logit, &scale.logit, all_len);
    if let (Some(time), true) = (&term.time, carries.cosines > 0) {
        let of_frequency = gradient::<B, 1>(&time.frequency, &grads);
        close("dfrequency", of_frequency, &want.frequency, &scale.frequency, all_len);
        close("dphase", gradient::<B, 1>(&time.phase, &grads), &want.phase, &scale.phase, all_len);
    }
    if let Some(values) = &term.values {
        // Edges that are left out have none.
        let back = |of_kept: &[f64]| {
            let mut all = vec![0.0; f.num_edges() * carries.values];
            for (&e, row) in edges.iter().zip(of_kept.chunks(carries.values)) {
                all[e * carries.values..(e + 1) * carries.values].copy_from_slice(row);
            }
            all
        };
        let got = gradient::<B, 2>(values.tensor(), &grads);
        close("dvalues", got, &back(&want.values), &back(&scale.values), channels + wide);
    }
}

fn check<B: GraphBackend>(
    f: &Fixture,
    shape: (usize, usize),
    carries: Carries,
    how: (Dtype, Dropped),
    device: &B::Device,
) {
    check_between::<B>(f, None, shape, carries, how, device);
}

pub fn edges_match_the_oracle_on_every_fixture<B: GraphBackend>(device: &B::Device) {
    for f in fixtures() {
        check::<B>(&f, (1, 32), values(4), (Dtype::F32, Dropped::Nothing), device);
        check::<B>(&f, (3, 5), timed(1, Ages::OfEdges, true, 2), (Dtype::F32, Dropped::Both), device);
        check::<B>(&f, (1, 4), timed(0, Ages::OfNodes, false, 3), (Dtype::F32, Dropped::Edges), device);
    }
}

pub fn edges_match_the_oracle_for_every_shape<B: GraphBackend>(device: &B::Device) {
    check_shapes::<B>(
        &[
            (values(1), (1, 128)),
            (values(8), (8, 8)),
            // More sums than a lane has registers: head by head.
            (timed(16, Ages::OfNodes, true, 16), (3, 31)),
            (timed(0, Ages::OfEdges, true, 0), (4, 32)),
            (timed(5, Ages::OfEdges, false, 4), (40, 1)),
            // Channels that do not fit a row together.
            (values(2), (2, 515)),
        ],
        device,
    );
}

fn edges_match_the_oracle_for_more_shapes<B: GraphBackend>(device: &B::Device) {
    check_shapes::<B>(
        &[
            (values(3), (1, 200)),
            (values(16), (1, 31)),
            (timed(16, Ages::OfEdges, true, 16), (1, 33)),
            (timed(2, Ages::OfNodes, true, 0), (2, 16)),
            (timed(0, Ages::OfEdges, false, 1), (1, 4)),
        ],
        device,
    );
}

fn check_shapes<B: GraphBackend>(cases: &[(Carries, (usize, usize))], device: &B::Device) {
    let f = Fixture::power_law(8, 60);
    for &(carries, shape) in cases {
        check::<B>(&f, shape, carries, (Dtype::F32, Dropped::Both), device);
    }
}

pub fn edges_match_the_oracle_between_selected_nodes<B: GraphBackend>(device: &B::Device) {
    for f in fixtures().into_iter().filter(|f| f.num_edges() > 0) {
        let (rows, cols) = (node_lists(f.num_rows), node_lists(f.num_cols));
        for (rows, cols, carries) in [
            (&rows[0], &cols[3], values(4)),
            (&rows[3], &cols[1], timed(2, Ages::OfEdges, true, 2)),
            (&rows[1], &cols[0], timed(1, Ages::OfNodes, false, 2)),
            (&rows[2], &cols[0], values(4)),
        ] {
            check_between::<B>(&f, Some([rows, cols]), (2, 6), carries, (Dtype::F32, Dropped::Both), device);
        }
    }
}

pub fn ages_of_nodes_match_the_oracle_on_spans<B: GraphBackend>(device: &B::Device) {
    for f in span_fixtures() {
        check::<B>(&f, (1, 32), timed(0, Ages::OfNodes, true, 4), (Dtype::F32, Dropped::Nothing), device);
        check::<B>(&f, (2, 5), timed(0, Ages::OfNodes, false, 2), (Dtype::F32, Dropped::Both), device);
    }
}

pub fn check_half<B: GraphBackend>(dtype: Dtype, device: &B::Device) {
    let f = Fixture::power_law(9, 200);
    for (shape, carries) in [
        ((1, 128), values(4)),
        ((4, 32), timed(3, Ages::OfNodes, true, 2)),
        ((3, 7), timed(2, Ages::OfEdges, false, 2)),
    ] {
        check::<B>(&f, shape, carries, (dtype, Dropped::Both), device);
    }
}

/// Inputs of attention with two heads of eight channels.
fn inputs<B: GraphBackend>(f: &Fixture, device: &B::Device) -> [Tensor<Ad<B>, 2>; 3] {
    let matrix = |seed: u64, rows: usize, columns: usize| {
        let values = values_in(Dtype::F32, seed, rows * columns);
        up::<Ad<B>, 2>(&values, [rows, columns], Dtype::F32, device).require_grad()
    };
    [matrix(50, f.num_cols, 16), matrix(51, f.num_rows, 2), matrix(52, f.num_cols, 2)]
}

fn edges_that_add_nothing_to_the_score_change_nothing<B: GraphBackend>(device: &B::Device) {
    for f in [Fixture::power_law(10, 200), Fixture::random(3, 40, 30, 2000)] {
        let csr = csr_of::<Ad<B>>(&f, device);
        let (drop_edge, _) = half_dropped(&f);
        let config = || GatConfig { drop_edge: Some(drop_edge), ..Default::default() };
        let case = Case::new(&f, 2, timed(4, Ages::OfEdges, true, 3), Dtype::F32);
        let plain = inputs::<B>(&f, device);
        let [h, s, t] = &plain;
        let want = attend(&csr, h.clone(), columns(s, 0), columns(t, 0), 2, config());
        let carried = inputs::<B>(&f, device);
        let [h, s, t] = &carried;
        let mut term = case.term::<B>(2, Dtype::F32, device);
        term.logit = term.logit.zeros_like();
        let (got, _) = attend_edges(&csr, h.clone(), columns(s, 0), columns(t, 0), term, 2, config());
        assert_eq!(down(got.clone().inner()), down(want.clone().inner()), "{}: to the bit", f.name);
        let (got, want) = (backward::<B, 2>(got, Dtype::F32), backward::<B, 2>(want, Dtype::F32));
        for (k, (carried, plain)) in carried.iter().zip(&plain).enumerate() {
            let want: Vec<f64> = gradient::<B, 2>(plain, &want).into_iter().map(f64::from).collect();
            let name = format!("{}: gradient {k}", f.name);
            assert_close(&name, &gradient::<B, 2>(carried, &got), &want, Dtype::F32, f.num_edges());
        }
    }
}

/// A list of edges in two orders, each with its values: results, and gradients of the values edge by edge.
fn the_order_of_edges_changes_nothing_but_rounding<B: GraphBackend>(device: &B::Device) {
    let f = Fixture::power_law(12, 150);
    let case = Case::new(&f, 2, timed(3, Ages::OfEdges, true, 2), Dtype::F32);
    let run = |order: &[u32]| {
        let ends = |side: &dyn Fn(usize) -> u32| order.iter().map(|&e| side(e as usize)).collect::<Vec<u32>>();
        let row_idx = f.row_idx();
        let (dst, src) = (ends(&|e| row_idx[e]), ends(&|e| f.col_idx[e]));
        let csr = Csr::<Ad<B>>::from_edges(&dst, &src, [f.num_rows, f.num_cols], device).unwrap();
        let moved = |all: &[f64], columns: usize| -> Vec<f64> {
            order.iter().flat_map(|&e| all[e as usize * columns..(e as usize + 1) * columns].to_vec()).collect()
        };
        let (values, ages) = (moved(&case.values, 3), moved(&case.ages, 1));
        let case = Case { values, ages, times: case.times.clone(), parameters: case.parameters.clone(), ..case };
        let term = case.term::<B>(2, Dtype::F32, device);
        let [h, s, t] = &inputs::<B>(&f, device);
        let (y, v) = attend_edges(&csr, h.clone(), columns(s, 0), columns(t, 0), term.clone(), 2, Default::default());
        let found = [down(y.clone().inner()), down(v.clone().inner())];
        let grads = (probed::<B, 2>(y, Dtype::F32) + probed::<B, 2>(v, Dtype::F32)).backward();
        let of_values = gradient::<B, 2>(term.values.as_ref().unwrap().tensor(), &grads);
        let mut by_edge = vec![0.0; of_values.len()];
        for (row, &e) in of_values.chunks(3).zip(order) {
            by_edge[e as usize * 3..e as usize * 3 + 3].copy_from_slice(row);
        }
        let [y, v] = found;
        [y, v, gradient::<B, 2>(h, &grads), gradient::<B, 2>(&term.logit, &grads), by_edge]
    };
    let in_order: Vec<u32> = (0..f.num_edges() as u32).collect();
    let shuffled = Rng::new(5).permutation(f.num_edges());
    for (k, (got, want)) in run(&shuffled).into_iter().zip(run(&in_order)).enumerate() {
        let want: Vec<f64> = want.into_iter().map(f64::from).collect();
        assert_close(&format!("part {k}"), &got, &want, Dtype::F32, f.num_edges());
    }
}

/// Values that are kept in the order of the reverse and the same looked up edge by edge, to the bit: of both
/// directions, of a list of edges, whole and restricted, whatever else the edges carry, at once and in chunks.
fn values_that_are_kept_change_nothing<B: GraphBackend>(device: &B::Device) {
    check_kept_values::<B>(&[0, 1, 2, 3], device);
}

/// Of four cases those with these numbers.
pub fn check_kept_values<B: GraphBackend>(numbers: &[usize], device: &B::Device) {
    let f = Fixture::power_law(16, 120);
    let row_idx = f.row_idx();
    let list = Csr::<Ad<B>>::from_edges(&f.col_idx, &row_idx, [f.num_cols, f.num_rows], device).unwrap();
    let rows = csr_of::<Ad<B>>(&f, device);
    let [some, others] = [2, 3].map(|every: usize| {
        let nodes: Vec<u32> = (0..f.num_rows as u32).step_by(every).collect();
        NodeSet::new(&nodes, f.num_rows, device)
    });
    let (heads, width) = (2, 8);
    let (drop_edge, _) = half_dropped(&f);
    let config = GatConfig { drop_edge: Some(drop_edge), ..Default::default() };
    let cases = [
        (rows.clone(), values(4), Dtype::F32),
        (rows.reverse(), values(4), Dtype::F16),
        (list.clone(), timed(3, Ages::OfNodes, true, 2), Dtype::F32),
        (list.reverse(), timed(2, Ages::OfEdges, true, 0), Dtype::F32),
    ];
    for (whole, carries, dtype) in numbers.iter().map(|&number| &cases[number]) {
        let (carries, dtype) = (*carries, *dtype);
        let case = Case::new(&f, heads, carries, dtype);
        let of_edges = up::<Ad<B>, 2>(&case.values, [f.num_edges(), carries.values], dtype, device);
        let kept = EdgeRows::kept(whole, of_edges.clone());
        let run = |csr: &Csr<Ad<B>>, values: EdgeRows<Ad<B>>, chunk_rows: Option<usize>| {
            let leaf = |seed: u64, rows: usize, columns: usize, dtype: Dtype| {
                up::<Ad<B>, 2>(&values_in(dtype, seed, rows * columns), [rows, columns], dtype, device).require_grad()
            };
            let h = leaf(60, csr.num_cols(), width, dtype);
            let (s, t) = (leaf(61, csr.num_rows(), heads, Dtype::F32), leaf(62, csr.num_cols(), heads, Dtype::F32));
            let term = EdgeTerm { values: Some(values), ..case.term::<B>(heads, dtype, device) };
            let scores = [columns(&s, 0), columns(&t, 0)];
            let results = match chunk_rows {
                None => {
                    let [dst, src] = scores;
                    let (y, v) = attend_edges(csr, h.clone(), dst, src, term.clone(), heads, config.clone());
                    vec![y, v]
                }
                Some(chunk_rows) => {
                    let (w, of_edges) = (leaf(63, width, 4, dtype), leaf(64, term.columns(), 4, dtype));
                    let layer = Term::attend_edges(csr, h.clone(), scores, (&term, of_edges), heads, w, &config);
                    let to = Destinations::of(csr);
                    vec![sum_in_chunks(vec![layer], None, 1.0, Activation::Identity, to, chunk_rows)]
                }
            };
            let mut all: Vec<Vec<f32>> = results.iter().map(|y| down(y.clone().inner())).collect();
            let loss = results.into_iter().map(|y| probed::<B, 2>(y, dtype)).reduce(|a, b| a + b);
            let grads = loss.expect("a result").backward();
            all.extend([&h, &s, &t, &term.logit].map(|of| gradient::<B, 2>(of, &grads)));
            all
        };
        for csr in [whole.clone(), whole.restrict(Some(&some), Some(&others))] {
            let name = format!("{csr:?} {carries:?} {dtype:?}");
            let want = run(&csr, of_edges.clone().into(), None);
            assert!(want.iter().all(|values| values.iter().any(|value| *value != 0.0)), "{name}");
            assert_eq!(run(&csr, kept.clone(), None), want, "{name}");
            let [got, want] = [kept.clone(), of_edges.clone().into()].map(|values| run(&csr, values, Some(25)));
            assert_eq!(got, want, "{name}, in chunks");
        }
    }
}

fn a_repeated_forward_pass_gives_the_same_gradients<B: GraphBackend>(device: &B::Device) {
    let f = Fixture::power_law(13, 100);
    let csr = csr_of::<Ad<B>>(&f, device);
    let case = Case::new(&f, 2, timed(2, Ages::OfNodes, true, 2), Dtype::F32);
    let [kept, repeated] = [false, true].map(|recompute| {
        let (inputs, term) = (inputs::<B>(&f, device), case.term::<B>(2, Dtype::F32, device));
        let [h, s, t] = &inputs;
        let config = GatConfig { recompute, attention_dropout: Some(half_weightless().0), ..Default::default() };
        let (y, v) = attend_edges(&csr, h.clone(), columns(s, 0), columns(t, 0), term.clone(), 2, config);
        let grads = (probed::<B, 2>(y, Dtype::F32) + probed::<B, 2>(v, Dtype::F32)).backward();
        let mut all: Vec<Vec<f32>> = inputs.iter().map(|input| gradient::<B, 2>(input, &grads)).collect();
        all.push(gradient::<B, 2>(&term.logit, &grads));
        all.push(gradient::<B, 2>(term.values.as_ref().unwrap().tensor(), &grads));
        all
    });
    assert_eq!(kept, repeated);
}

/// The gradient of one result is that of both with zeros for the other.
fn either_result_may_be_left_unused<B: GraphBackend>(device: &B::Device) {
    let f = Fixture::power_law(14, 100);
    let csr = csr_of::<Ad<B>>(&f, device);
    let case = Case::new(&f, 2, values(3), Dtype::F32);
    let run = |of_y: Option<f32>, of_v: Option<f32>| {
        let (inputs, term) = (inputs::<B>(&f, device), case.term::<B>(2, Dtype::F32, device));
        let [h, s, t] = &inputs;
        // Both parts of the score depend on one matrix that is no leaf, as in a model.
        let (s, t) = (s.clone() * 2.0, t.clone() * 2.0);
        let (y, v) = attend_edges(&csr, h.clone(), columns(&s, 0), columns(&t, 0), term.clone(), 2, Default::default());
        let part = |result: Tensor<Ad<B>, 2>, by: Option<f32>| by.map(|by| probed::<B, 2>(result, Dtype::F32) * by);
        let parts = [part(y, of_y), part(v, of_v)];
        let grads = parts.into_iter().flatten().reduce(|a, b| a + b).expect("one of them").backward();
        let mut all: Vec<Vec<f32>> = inputs.iter().map(|input| gradient::<B, 2>(input, &grads)).collect();
        all.push(gradient::<B, 2>(&term.logit, &grads));
        all.push(gradient::<B, 2>(term.values.as_ref().unwrap().tensor(), &grads));
        all
    };
    // Two kernels, in which a driver may round a product and a sum together or one after the other.
    let same = |name: &str, got: Vec<Vec<f32>>, want: Vec<Vec<f32>>| {
        for (k, (got, want)) in got.iter().zip(want).enumerate() {
            let want: Vec<f64> = want.into_iter().map(f64::from).collect();
            assert_close(&format!("{name}, gradient {k}"), got, &want, Dtype::F32, 1);
        }
    };
    same("y alone", run(Some(1.0), None), run(Some(1.0), Some(0.0)));
    same("v alone", run(None, Some(1.0)), run(Some(0.0), Some(1.0)));
    assert_ne!(run(Some(1.0), None), run(Some(1.0), Some(1.0)));
}

/// Attended rows and what edges add up to, each behind a weight, by chunks of three sizes: one by one for every head.
pub fn a_layer_in_chunks_is_its_operators<B: GraphBackend>(device: &B::Device) {
    let f = Fixture::random(15, 40, 30, 300);
    let lists = (node_lists(f.num_rows), node_lists(f.num_cols));
    let (input, width) = (6, 8);
    for (heads, ages, selected) in [(1, Ages::OfEdges, false), (2, Ages::OfNodes, false), (2, Ages::OfEdges, true)] {
        let whole = csr_of::<Ad<B>>(&f, device);
        let csr = match selected {
            true => whole.restrict(
                Some(&NodeSet::new(&lists.0[0], f.num_rows, device)),
                Some(&NodeSet::new(&lists.1[1], f.num_cols, device)),
            ),
            false => whole,
        };
        let case = Case::new(&f, heads, timed(3, ages, true, 2), Dtype::F32);
        let (drop_edge, _) = half_dropped(&f);
        let attention_dropout = Some(half_weightless().0);
        let config = GatConfig { drop_edge: Some(drop_edge), attention_dropout, ..Default::default() };
        let run = |chunk_rows: Option<usize>| {
            let leaf = |seed: u64, rows: usize, columns: usize| {
                let values = values_in(Dtype::F32, seed, rows * columns);
                up::<Ad<B>, 2>(&values, [rows, columns], Dtype::F32, device).require_grad()
            };
            let (x, s, t) =
                (leaf(60, csr.num_cols(), input), leaf(61, csr.num_rows(), heads), leaf(62, csr.num_cols(), heads));
            let term = case.term::<B>(heads, Dtype::F32, device);
            let (w, we) = (leaf(63, input, width), leaf(64, term.columns(), width));
            let y = match chunk_rows {
                Some(chunk_rows) => {
                    let scores = [columns(&s, 0), columns(&t, 0)];
                    let edges = (&term, we.clone());
                    let layer = Term::attend_edges(&csr, x.clone(), scores, edges, heads, w.clone(), &config);
                    let to = Destinations::of(&csr);
                    sum_in_chunks(vec![layer], None, 1.0, Activation::Identity, to, chunk_rows)
                }
                // All heads read every column: side by side they are as many copies of it.
                None => {
                    let h = Tensor::cat(vec![x.clone(); heads], 1);
                    let scores = [columns(&s, 0), columns(&t, 0)];
                    let [dst, src] = scores;
                    let (y, v) = attend_edges(&csr, h, dst, src, term.clone(), heads, config.clone());
                    let own = width / heads;
                    let of_head = |head: usize| {
                        let part = |all: &Tensor<Ad<B>, 2>| {
                            let columns = all.dims()[1] / heads;
                            all.clone().narrow(1, head * columns, columns)
                        };
                        let weight = |all: &Tensor<Ad<B>, 2>| all.clone().narrow(1, head * own, own);
                        linear(part(&y), weight(&w), None) + linear(part(&v), weight(&we), None)
                    };
                    Tensor::cat((0..heads).map(of_head).collect(), 1)
                }
            };
            let value = down(y.clone().inner());
            let grads = backward::<B, 2>(y, Dtype::F32);
            let time = term.time.as_ref().unwrap();
            let mut all = vec![value];
            all.extend(
                [&x, &s, &t, &term.logit, term.values.as_ref().unwrap().tensor(), &w, &we]
                    .map(|of| gradient::<B, 2>(of, &grads)),
            );
            all.extend([&time.frequency, &time.phase].map(|of| gradient::<B, 1>(of, &grads)));
            all
        };
        let want = run(None);
        for chunk_rows in [7, 16, 1000] {
            for (k, (got, want)) in run(Some(chunk_rows)).into_iter().zip(&want).enumerate() {
                let want: Vec<f64> = want.iter().copied().map(f64::from).collect();
                let name = format!("{heads} heads, chunks of {chunk_rows}, part {k}");
                assert_close(&name, &got, &want, Dtype::F32, f.num_edges());
            }
        }
    }
}

/// A cosine that turns once a day, after up to ten years of seconds.
fn ages_of_years_in_seconds_stay_exact_enough<B: GraphBackend>(device: &B::Device) {
    let ages = [0, 1, 43_200, 86_399, 31_557_600, 157_788_123, 315_576_001];
    let n = ages.len();
    // A row per age, so that `v` is what its only edge carries.
    let csr = Csr::<B>::from_host(&(0..=n as u64).collect::<Vec<_>>(), &vec![0; n], 1, device).unwrap();
    let frequency = (std::f64::consts::TAU / 86_400.0) as f32;
    let times: Vec<i32> = ages.iter().map(|age| 1_000_000_000 + age).collect();
    let int = |times: Vec<i32>| {
        let len = times.len();
        Tensor::<B, 1, Int>::from_data(TensorData::new(times, [len]), (device, DType::I32))
    };
    let zeros = |rows: usize, columns: usize| Tensor::<B, 2>::zeros([rows, columns], device);
    let time = TimeEncoding {
        age: Age::Nodes { dst: int(times), src: int(vec![1_000_000_000]) },
        log_age: true,
        frequency: Tensor::from_data([frequency], device),
        phase: Tensor::from_data([0.5f32], device),
    };
    let term = EdgeTerm { values: None, time: Some(time), logit: zeros(1, 2) };
    let (dst, src) = (columns(&zeros(n, 1), 0), columns(&zeros(1, 1), 0));
    let (_, v) = attend_edges(&csr, zeros(1, 4), dst, src, term, 1, Default::default());
    for (got, age) in down(v).chunks(2).zip(ages) {
        let (age, angle) = (f64::from(age), f64::from(frequency) * f64::from(age) + 0.5);
        let log = (1.0 + age).ln();
        assert!((f64::from(got[0]) - log).abs() <= 4e-7 * log, "ln(1 + {age}): got {}, want {log}", got[0]);
        let bound = 4e-7 + angle * 2f64.powi(-22);
        let cosine = angle.cos();
        assert!((f64::from(got[1]) - cosine).abs() <= bound, "age {age}: got {}, want {cosine}", got[1]);
    }
}

fn edges_of_another_shape_are_refused_by_name<B: GraphBackend>(device: &B::Device) {
    let csr = Csr::<B>::from_host(&[0, 2, 3], &[0, 1, 1], 2, device).unwrap();
    let spans = Csr::<B>::from_spans(&[0, 0], &[2, 3], &[0, 1, 1], 2, device).unwrap();
    let matrix = |rows: usize, columns: usize| zeros::<B, 2>([rows, columns], device);
    let vector = |len: usize| zeros::<B, 1>([len], device);
    let int = |len: usize| Tensor::<B, 1, Int>::zeros([len], (device, DType::I32));
    let attended = |csr: &Csr<B>, term: EdgeTerm<B>| {
        let (dst, src) = (columns(&matrix(2, 1), 0), columns(&matrix(2, 1), 0));
        let run = || attend_edges(csr, matrix(2, 4), dst, src, term, 1, Default::default());
        let refused = std::panic::catch_unwind(AssertUnwindSafe(run)).expect_err("a wrong shape");
        refused.downcast_ref::<String>().expect("a message in words").clone()
    };
    let of_values = |values: Tensor<B, 2>, logit: usize| EdgeTerm {
        values: Some(values.into()),
        time: None,
        logit: matrix(1, logit),
    };
    let of_rows = |rows: EdgeRows<B>| EdgeTerm { values: Some(rows), time: None, logit: matrix(1, 1) };
    let of_time = |age: Age<B>, cosines: [usize; 2]| {
        let [frequency, phase] = cosines.map(vector);
        let time = TimeEncoding { age, log_age: false, frequency, phase };
        EdgeTerm { values: None, time: Some(time), logit: matrix(1, cosines[0]) }
    };
    let nodes = |dst, src| Age::Nodes { dst: int(dst), src: int(src) };
    for (found, want) in [
        (attended(&csr, of_values(matrix(2, 1), 1)), "attend_edges: rows of values: expected 3, got 2"),
        (attended(&csr, of_values(matrix(3, 17), 17)), "attend_edges: columns of values: expected 1 to 16, got 17"),
        (attended(&csr, of_values(matrix(3, 2), 3)), "attend_edges: columns of logit: expected 2, got 3"),
        (attended(&csr, of_rows(EdgeRows::kept(&csr.reverse(), matrix(3, 1)))), "attend_edges: values: expected those"),
        (attended(&csr, of_time(nodes(3, 2), [1, 1])), "attend_edges: times of destinations: expected a vector of 2"),
        (attended(&csr, of_time(nodes(2, 1), [1, 1])), "attend_edges: times of sources: expected a vector of 2"),
        (attended(&csr, of_time(nodes(2, 2), [1, 2])), "attend_edges: elements of phase: expected 1, got 2"),
        (attended(&csr, of_time(nodes(2, 2), [17, 17])), "attend_edges: frequency: expected 0 to 16, got 17"),
        (attended(&csr, of_time(nodes(2, 2), [0, 0])), "attend_edges: term: expected values or a time encoding"),
        (attended(&csr, of_time(Age::Edges(vector(2)), [1, 1])), "attend_edges: ages of edges: expected a vector of 3"),
        (attended(&spans, of_time(Age::Edges(vector(5)), [1, 1])), "attend_edges: ages of edges: takes an adjacency"),
        (attended(&spans, of_values(matrix(5, 1), 1)), "attend_edges: values: takes an adjacency with a list per row"),
    ] {
        assert!(found.starts_with(want), "expected {want:?}, got {found:?}");
    }
}
