//! Attention with a score behind the non-linearity, without values of edges and with them.

use std::panic::AssertUnwindSafe;

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use graphsieve_kernels::testing::harness::{Trial, hardware};
use graphsieve_kernels::testing::pairs::{gatv2 as oracle_of, gatv2_grad, gatv2_grad_magnitude};
use graphsieve_kernels::testing::{
    Dtype, Fixture, PairInput, assert_close, assert_close_at_scale, fixtures, oracle, probe, span_fixtures, values_in,
};
use graphsieve_kernels::{
    Activation, Csr, Destinations, EdgeProjection, GatConfig, GraphBackend, MAX_V2_CHANNELS, NodeSet, Term, combine,
    gatv2, linear, on_every_backend, select_rows, sum_in_chunks,
};

use crate::attention::Dropped;
use crate::support::*;

/// The trials of this file.
pub fn trials() -> Vec<Trial> {
    on_every_backend!(
        "gatv2";
        pairs_match_the_oracle_on_every_fixture,
        pairs_match_the_oracle_for_every_shape,
        pairs_match_the_oracle_for_more_shapes(hardware),
        pairs_match_the_oracle_between_selected_nodes,
        pairs_match_the_oracle_on_spans,
        the_order_of_edges_changes_nothing_but_rounding,
        a_repeated_forward_pass_gives_the_same_gradients,
        one_gradient_alone_is_that_of_all,
        a_layer_in_chunks_is_its_operators,
        a_layer_of_many_heads_in_chunks_is_its_operators(hardware),
        scores_may_be_huge,
        pairs_of_another_shape_are_refused_by_name,
    )
}

/// Multiples of 1/64 that every storage type has. Sums of them, and of products of two, are exact in f32: so hidden
/// layers have the sign that the oracle's have, at zero, too.
fn exact(seed: u64, n: usize) -> Vec<f64> {
    values_in(Dtype::F32, seed, n).into_iter().map(|x| (64.0 * x).round().clamp(-127.0, 127.0) / 64.0).collect()
}

/// The same, a quarter as large and as fine.
fn small(seed: u64, n: usize) -> Vec<f64> {
    exact(seed, n).into_iter().map(|x| x / 4.0).collect()
}

/// Whether messages have the values of edges, of which there are so many: where these are even in number.
fn in_messages(columns: usize) -> bool {
    columns.is_multiple_of(2)
}

/// Everything on the host: features of both ends, attention vectors, values of edges and their projection.
struct Case {
    inputs: [Vec<f64>; 5],
    shape: (usize, usize, usize),
}

impl Case {
    fn new(edges: usize, [rows, cols]: [usize; 2], (heads, channels, columns): (usize, usize, usize)) -> Self {
        let width = heads * channels;
        let scale = 1.0 / (channels as f64).sqrt();
        let attention = values_in(Dtype::F32, 72, width).into_iter().map(|a| f64::from((scale * a) as f32)).collect();
        let (values, weight) = (small(73, edges * columns), small(74, columns * width));
        let inputs = [exact(70, cols * width), exact(71, rows * width), attention, values, weight];
        Self { inputs, shape: (heads, channels, columns) }
    }

    /// The same with other values of edges.
    fn input<'a>(&'a self, values: &'a [f64], factors: Option<&'a [f64]>) -> PairInput<'a> {
        let [src, dst, attention, _, weight] = &self.inputs;
        let (heads, channels, columns) = self.shape;
        let (messages, slope) = (in_messages(columns), f64::from(0.2f32));
        PairInput { src, dst, attention, values, weight, messages, heads, channels, slope, factors }
    }

    /// On the device: source, destination, attention vectors, values, projection.
    fn tensors<B: GraphBackend>(&self, dtype: Dtype, device: &B::Device) -> [Tensor<Ad<B>, 2>; 5] {
        let (heads, channels, columns) = self.shape;
        let width = heads * channels;
        let widths = [width, width, channels, columns, width];
        let dtypes = [dtype, dtype, Dtype::F32, dtype, Dtype::F32];
        std::array::from_fn(|k| {
            let rows = self.inputs[k].len().checked_div(widths[k]).unwrap_or(0);
            up::<Ad<B>, 2>(&self.inputs[k], [rows, widths[k]], dtypes[k], device).require_grad()
        })
    }
}

/// What edges carry, where they do.
fn projection<B: Backend>(values: &Tensor<B, 2>, weight: &Tensor<B, 2>) -> Option<EdgeProjection<B>> {
    let (columns, values, weight) = (values.dims()[1], Some(values.clone()), weight.clone());
    (columns > 0).then(|| EdgeProjection { values, time: None, weight, messages: in_messages(columns) })
}

/// The operator on a case.
fn run<B: GraphBackend>(
    csr: &Csr<Ad<B>>,
    [src, dst, attention, values, weight]: &[Tensor<Ad<B>, 2>; 5],
    config: GatConfig,
) -> Tensor<Ad<B>, 2> {
    gatv2(csr, src.clone(), dst.clone(), attention.clone(), projection(values, weight), config)
}

/// The result and all gradients against the oracle, between the nodes of two lists.
fn check_between<B: GraphBackend>(
    f: &Fixture,
    lists: Option<[&[u32]; 2]>,
    shape: (usize, usize, usize),
    (dtype, dropped): (Dtype, Dropped),
    device: &B::Device,
) {
    let (heads, channels, columns) = shape;
    let width = heads * channels;
    let name = format!("{} {heads}x{channels}, {columns} values, {dtype:?} without {dropped:?}", f.name);
    let drops_edges = matches!(dropped, Dropped::Edges | Dropped::Both);
    let drops_weights = matches!(dropped, Dropped::Weights | Dropped::Both);
    let (drop, mask) = half_dropped(f);
    let (dropout, weightless) = half_weightless();
    let whole: [Vec<u32>; 2] = [(0..f.num_rows as u32).collect(), (0..f.num_cols as u32).collect()];
    let [rows, cols] = lists.unwrap_or([&whole[0], &whole[1]]);
    let case = Case::new(f.num_edges(), [rows.len(), cols.len()], shape);

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
    let factors = of_edges(&oracle::attention_factors(f, &weightless, heads), heads);
    let values = of_edges(&case.inputs[3], columns);
    let input = case.input(&values, drops_weights.then_some(&factors));
    let kept = oracle::keep_all(&left);

    let csr = csr_of::<Ad<B>>(f, device);
    let csr = match lists {
        Some([rows, cols]) => {
            csr.restrict(Some(&NodeSet::new(rows, f.num_rows, device)), Some(&NodeSet::new(cols, f.num_cols, device)))
        }
        None => csr,
    };
    let tensors = case.tensors::<B>(dtype, device);
    let config = GatConfig {
        drop_edge: drops_edges.then_some(drop),
        attention_dropout: drops_weights.then_some(dropout),
        ..Default::default()
    };
    let y = run::<B>(&csr, &tensors, config);
    assert_eq!(y.dims(), [rows.len(), width], "{name}");

    let (forward_len, reverse_len) = longest(&left);
    let (forward_len, reverse_len) = (forward_len + channels + columns, reverse_len + channels + columns);
    assert_close(&name, &down(y.clone().inner()), &oracle_of(&left, &input, &kept), dtype, forward_len);
    if rows.is_empty() {
        return; // Burn's own product and sum of the loss below do not take a matrix without rows.
    }
    let grads = backward::<B, 2>(y, dtype);
    let g: Vec<f64> = probe(rows.len() * width).iter().map(|&p| dtype.round(p)).collect();
    let want = gatv2_grad(&left, &input, &kept, &g);
    let scale = gatv2_grad_magnitude(&left, &input, &kept, &g);
    let close = |what: &str, k: usize, want: &[f64], scale: &[f64], len: usize| {
        let got = gradient::<B, 2>(&tensors[k], &grads);
        assert_close_at_scale(&format!("{name}: {what}"), &got, want, scale, dtype, len);
    };
    let all_len = left.num_edges() + channels + columns;
    close("dsrc", 0, &want.src, &scale.src, reverse_len);
    close("ddst", 1, &want.dst, &scale.dst, forward_len);
    close("dattention", 2, &want.attention, &scale.attention, all_len);
    if columns > 0 {
        // Edges that are left out have none.
        let back = |of_kept: &[f64]| {
            let mut all = vec![0.0; f.num_edges() * columns];
            for (&e, row) in edges.iter().zip(of_kept.chunks(columns)) {
                all[e * columns..(e + 1) * columns].copy_from_slice(row);
            }
            all
        };
        close("dvalues", 3, &back(&want.values), &back(&scale.values), width + channels);
        close("dweight", 4, &want.weight, &scale.weight, all_len);
    }
}

fn check<B: GraphBackend>(f: &Fixture, shape: (usize, usize, usize), how: (Dtype, Dropped), device: &B::Device) {
    check_between::<B>(f, None, shape, how, device);
}

pub fn pairs_match_the_oracle_on_every_fixture<B: GraphBackend>(device: &B::Device) {
    for f in fixtures() {
        check::<B>(&f, (1, 32, 0), (Dtype::F32, Dropped::Nothing), device);
        check::<B>(&f, (4, 8, 4), (Dtype::F32, Dropped::Both), device);
        check::<B>(&f, (3, 5, 1), (Dtype::F32, Dropped::Edges), device);
    }
}

fn pairs_match_the_oracle_for_every_shape<B: GraphBackend>(device: &B::Device) {
    check_shapes::<B>(
        &[
            (1, 128, 4),
            (1, 31, 16),
            // Heads that span slots of all lanes, some lanes, one lane, and what fits none of these.
            (4, 64, 2),
            (2, 16, 5),
            (40, 1, 1),
            (5, 7, 0),
            // More than the registers hold: a few heads at a time.
            (6, 48, 16),
        ],
        device,
    );
}

fn pairs_match_the_oracle_for_more_shapes<B: GraphBackend>(device: &B::Device) {
    check_shapes::<B>(&[(1, 1, 0), (1, 200, 3), (1, 33, 0), (3, 24, 8), (2, MAX_V2_CHANNELS, 2)], device);
}

fn check_shapes<B: GraphBackend>(shapes: &[(usize, usize, usize)], device: &B::Device) {
    let f = Fixture::power_law(8, 60);
    for &shape in shapes {
        check::<B>(&f, shape, (Dtype::F32, Dropped::Both), device);
    }
}

pub fn pairs_match_the_oracle_between_selected_nodes<B: GraphBackend>(device: &B::Device) {
    for f in fixtures().into_iter().filter(|f| f.num_edges() > 0) {
        let (rows, cols) = (node_lists(f.num_rows), node_lists(f.num_cols));
        for (rows, cols, columns) in
            [(&rows[0], &cols[3], 4), (&rows[3], &cols[1], 0), (&rows[1], &cols[0], 1), (&rows[2], &cols[0], 1)]
        {
            check_between::<B>(&f, Some([rows, cols]), (2, 6, columns), (Dtype::F32, Dropped::Both), device);
        }
    }
}

fn pairs_match_the_oracle_on_spans<B: GraphBackend>(device: &B::Device) {
    for f in span_fixtures() {
        check::<B>(&f, (1, 32, 0), (Dtype::F32, Dropped::Nothing), device);
        check::<B>(&f, (2, 5, 0), (Dtype::F32, Dropped::Both), device);
    }
}

pub fn check_half<B: GraphBackend>(dtype: Dtype, device: &B::Device) {
    let f = Fixture::power_law(9, 200);
    for shape in [(1, 128, 0), (4, 32, 4), (3, 7, 3)] {
        check::<B>(&f, shape, (dtype, Dropped::Both), device);
    }
}

/// The result and all gradients.
fn everything<B: GraphBackend>(csr: &Csr<Ad<B>>, tensors: &[Tensor<Ad<B>, 2>; 5], config: GatConfig) -> Vec<Vec<f32>> {
    let y = run::<B>(csr, tensors, config);
    let value = down(y.clone().inner());
    let grads = backward::<B, 2>(y, Dtype::F32);
    let gradients = tensors.iter().map(|tensor| gradient::<B, 2>(tensor, &grads));
    [value].into_iter().chain(gradients).collect()
}

/// A list of edges in any order, each with its values: results, and gradients of the values edge by edge.
fn the_order_of_edges_changes_nothing_but_rounding<B: GraphBackend>(device: &B::Device) {
    let f = Fixture::random(13, 50, 40, 700);
    let (rows, cols): (Vec<u32>, Vec<u32>) = f.edges().map(|(_, i, j)| (i as u32, j as u32)).unzip();
    let case = Case::new(f.num_edges(), [f.num_rows, f.num_cols], (2, 8, 3));
    let want =
        everything::<B>(&csr_of::<Ad<B>>(&f, device), &case.tensors::<B>(Dtype::F32, device), Default::default());
    // Place k of the list has edge order[k].
    let order = graphsieve_kernels::testing::Rng::new(14).permutation(f.num_edges());
    let in_order = |all: &[u32]| order.iter().map(|&e| all[e as usize]).collect::<Vec<u32>>();
    let csr = Csr::<Ad<B>>::from_edges(&in_order(&rows), &in_order(&cols), [f.num_rows, f.num_cols], device).unwrap();
    let mut shuffled = Case { inputs: case.inputs.clone(), shape: case.shape };
    shuffled.inputs[3] = order.iter().flat_map(|&e| case.inputs[3][e as usize * 3..][..3].to_vec()).collect();
    let mut got = everything::<B>(&csr, &shuffled.tensors::<B>(Dtype::F32, device), Default::default());
    let mut of_values = vec![0.0; got[4].len()];
    for (&e, row) in order.iter().zip(got[4].chunks(3)) {
        of_values[e as usize * 3..][..3].copy_from_slice(row);
    }
    got[4] = of_values;
    for (k, (got, want)) in got.iter().zip(&want).enumerate() {
        let want: Vec<f64> = want.iter().copied().map(f64::from).collect();
        assert_close(&format!("part {k}"), got, &want, Dtype::F32, f.num_edges());
    }
}

fn a_repeated_forward_pass_gives_the_same_gradients<B: GraphBackend>(device: &B::Device) {
    let f = Fixture::power_law(11, 200);
    let csr = csr_of::<Ad<B>>(&f, device);
    let (drop_edge, _) = half_dropped(&f);
    let attention_dropout = Some(half_weightless().0);
    let run = |recompute: bool| {
        let case = Case::new(f.num_edges(), [f.num_rows, f.num_cols], (2, 8, 4));
        let config = GatConfig { drop_edge: Some(drop_edge), attention_dropout, recompute, ..Default::default() };
        everything::<B>(&csr, &case.tensors::<B>(Dtype::F32, device), config)
    };
    assert_eq!(run(true), run(false), "to the bit");
}

fn one_gradient_alone_is_that_of_all<B: GraphBackend>(device: &B::Device) {
    let f = Fixture::power_law(12, 100);
    let csr = csr_of::<Ad<B>>(&f, device);
    let case = Case::new(f.num_edges(), [f.num_rows, f.num_cols], (2, 8, 4));
    let want = everything::<B>(&csr, &case.tensors::<B>(Dtype::F32, device), Default::default());
    for k in 0..5 {
        let constants = case.tensors::<B>(Dtype::F32, device).map(|tensor| Tensor::from_inner(tensor.inner()));
        let mut tensors = constants;
        tensors[k] = tensors[k].clone().require_grad();
        let grads = backward::<B, 2>(run::<B>(&csr, &tensors, Default::default()), Dtype::F32);
        assert_eq!(gradient::<B, 2>(&tensors[k], &grads), want[k + 1], "input {k}");
        let others = tensors.iter().enumerate().filter(|&(other, _)| other != k);
        assert!(others.into_iter().all(|(_, tensor)| tensor.grad(&grads).is_none()), "input {k} alone");
    }
}

/// Attention behind a projection of the destinations, beside their own rows, by chunks of several sizes.
fn a_layer_in_chunks_is_its_operators<B: GraphBackend>(device: &B::Device) {
    // One of them has no values of edges.
    check_chunks::<B>(&[((2, 4, 3), false), ((2, 4, 0), true), ((2, 6, 2), true)], device);
}

/// More than the registers hold.
fn a_layer_of_many_heads_in_chunks_is_its_operators<B: GraphBackend>(device: &B::Device) {
    check_chunks::<B>(&[((6, 48, 16), false)], device);
}

fn check_chunks<B: GraphBackend>(cases: &[((usize, usize, usize), bool)], device: &B::Device) {
    let f = Fixture::random(15, 40, 40, 400);
    let lists = node_lists(f.num_rows);
    let whole = csr_of::<Ad<B>>(&f, device);
    let input = 6;
    for &(shape, selected) in cases {
        let (heads, channels, columns) = shape;
        let width = heads * channels;
        let set = |list: &[u32]| selected.then(|| NodeSet::<Ad<B>>::new(list, f.num_rows, device));
        let (to, before, cols) = (set(&lists[0]), set(&lists[3]), set(&lists[1]));
        let csr = whole.restrict(to.as_ref(), cols.as_ref());
        let case = Case::new(f.num_edges(), [csr.num_rows(), csr.num_cols()], shape);
        let config = GatConfig {
            drop_edge: Some(half_dropped(&f).0),
            attention_dropout: Some(half_weightless().0),
            ..Default::default()
        };
        let run = |chunk_rows: Option<usize>| {
            let leaf = |values: &[f64], rows: usize, columns: usize| {
                up::<Ad<B>, 2>(values, [rows, columns], Dtype::F32, device).require_grad()
            };
            let [src, _, attention, values, weight] = case.tensors::<B>(Dtype::F32, device);
            // Products of these are exact, too: hidden layers have one sign however they are added up.
            let (x, w, own) = (
                leaf(&exact(80, f.num_rows * input), f.num_rows, input),
                leaf(&small(81, input * width), input, width),
                leaf(&exact(82, input * width), input, width),
            );
            let bias = up::<Ad<B>, 1>(&small(83, width), [width], Dtype::F32, device).require_grad();
            let edges = projection(&values, &weight);
            let y = match chunk_rows {
                Some(chunk_rows) => {
                    let (x_dst, dst) = ((x.clone(), before.as_ref()), (w.clone(), Some(bias.clone())));
                    let terms = vec![
                        Term::gatv2(&csr, src.clone(), x_dst, dst, attention.clone(), edges, &config),
                        Term::rows(x.clone(), before.as_ref(), own.clone()),
                    ];
                    sum_in_chunks(terms, None, 1.0, Activation::Elu, Destinations::of(&csr), chunk_rows)
                }
                None => {
                    let rows = select_rows(x.clone(), before.as_ref(), to.as_ref());
                    let dst = linear(rows.clone(), w.clone(), Some(bias.clone()));
                    let y = gatv2(&csr, src.clone(), dst, attention.clone(), edges, config.clone());
                    combine(vec![y, linear(rows, own.clone(), None)], None, 1.0, Activation::Elu)
                }
            };
            let value = down(y.clone().inner());
            let grads = backward::<B, 2>(y, Dtype::F32);
            let mut all = vec![value, gradient::<B, 1>(&bias, &grads)];
            all.extend([&src, &attention, &x, &w, &own].map(|leaf| gradient::<B, 2>(leaf, &grads)));
            if columns > 0 {
                all.extend([&values, &weight].map(|leaf| gradient::<B, 2>(leaf, &grads)));
            }
            all
        };
        let want = run(None);
        for chunk_rows in [1, 7, 16, 1000] {
            for (k, (got, want)) in run(Some(chunk_rows)).into_iter().zip(&want).enumerate() {
                let want: Vec<f64> = want.iter().copied().map(f64::from).collect();
                assert!(want.iter().any(|v| v.abs() > 1e-3), "{shape:?}: part {k} is all but zero");
                let name = format!("{shape:?}, some nodes {selected}, chunks of {chunk_rows}, part {k}");
                assert_close(&name, &got, &want, Dtype::F32, f.num_edges());
            }
        }
    }
}

fn scores_may_be_huge<B: GraphBackend>(device: &B::Device) {
    // Scores of +-10,000: without the running maximum every exponential overflows or vanishes.
    let csr = Csr::<B>::from_host(&[0, 3], &[0, 1, 2], 3, device).unwrap();
    let src = Tensor::<B, 2>::from_data([[1.0f32], [-1.0], [0.5]], device);
    let dst = Tensor::<B, 2>::from_data([[0.0f32]], device);
    let attention = |a: f32| Tensor::<B, 2>::from_data([[a]], device);
    let attended = |a: f32| down(gatv2(&csr, src.clone(), dst.clone(), attention(a), None, GatConfig::default()));
    assert_eq!([attended(10_000.0), attended(-50_000.0)], [[1.0], [-1.0]]);
}

fn pairs_of_another_shape_are_refused_by_name<B: GraphBackend>(device: &B::Device) {
    let csr = Csr::<B>::from_host(&[0, 2, 3], &[0, 1, 1], 2, device).unwrap();
    let spans = Csr::<B>::from_spans(&[0, 0], &[2, 3], &[0, 1, 1], 2, device).unwrap();
    let matrix = |rows: usize, columns: usize| Tensor::<B, 2>::zeros([rows, columns], device);
    let refusal = |csr: &Csr<B>, [src, dst]: [Tensor<B, 2>; 2], attention, edges: Option<[Tensor<B, 2>; 2]>| {
        let edges =
            edges.map(|[values, weight]| EdgeProjection { values: Some(values), time: None, weight, messages: false });
        let run = || gatv2(csr, src, dst, attention, edges, Default::default());
        let refused = std::panic::catch_unwind(AssertUnwindSafe(run)).expect_err("a wrong shape");
        refused.downcast_ref::<String>().expect("a message in words").clone()
    };
    let ends = || [matrix(2, 4), matrix(2, 4)];
    let of_edges = |csr: &Csr<B>, values, weight| refusal(csr, ends(), matrix(2, 2), Some([values, weight]));
    let wide = MAX_V2_CHANNELS + 1;
    for (found, want) in [
        (refusal(&csr, [matrix(3, 4), matrix(2, 4)], matrix(2, 2), None), "gatv2: rows of src: expected 2, got 3"),
        (refusal(&csr, [matrix(2, 4), matrix(2, 6)], matrix(2, 2), None), "gatv2: columns of dst: expected 4, got 6"),
        (
            refusal(&csr, [matrix(2, wide), matrix(2, wide)], matrix(1, wide), None),
            "gatv2: channels of attention: expected 1 to 512, got 513",
        ),
        (of_edges(&csr, matrix(2, 1), matrix(1, 4)), "gatv2: rows of values: expected 3, got 2"),
        (of_edges(&csr, matrix(3, 17), matrix(17, 4)), "gatv2: columns of values: expected 1 to 16, got 17"),
        (of_edges(&csr, matrix(3, 2), matrix(3, 4)), "gatv2: rows of weight: expected 2, got 3"),
        (of_edges(&csr, matrix(3, 2), matrix(2, 5)), "gatv2: columns of weight: expected 4, got 5"),
        (of_edges(&spans, matrix(5, 1), matrix(1, 4)), "gatv2: values: takes an adjacency with a list per row"),
    ] {
        assert!(found.starts_with(want), "expected {want:?}, got {found:?}");
    }
}
