//! What holds for forward and backward passes of all operators.

use burn::tensor::{DType, Tensor};
use graphsieve_kernels::testing::gradient::{
    attend_grad, gat_grad, gather_grad, linear_grad, pair_dot_grad, spmm_grad,
};
use graphsieve_kernels::testing::harness::{Trial, trial};
use graphsieve_kernels::testing::{
    AttendInput, Dtype, Fixture, GatInput, SpmmWeights, assert_close, oracle, probe, values_in,
};
use graphsieve_kernels::{
    Csr, DropEdge, GatConfig, GraphBackend, NodeSet, PairIndex, RowIndex, ScoreColumns, SelfTerm, SpmmConfig, attend,
    backward_from, gat, gather_rows, on_every_backend, pair_dot, row_dots, select_rows, spmm,
};

use crate::support::*;

/// The trials of this file.
pub fn trials() -> Vec<Trial> {
    on_every_backend!(
        "passes";
        masks_agree_with_the_host_in_every_pass,
        recomputing_changes_nothing,
        gradients_of_several_operators_add_up,
        a_gradient_that_others_hold_is_not_changed,
        repeating_a_pass_gives_the_same_bytes,
        strided_and_transposed_inputs_are_read_correctly,
    )
    .into_iter()
    .chain([trial(
        None,
        "passes::gradients_survive_backward_passes_of_other_threads",
        &[],
        gradients_survive_backward_passes_of_other_threads,
    )])
    .collect()
}

/// Reads the mask of a pass off its result: with features of one and no scaling, a row sums to its kept entries, and
/// with one source per column and a one-hot feature the entry itself shows.
pub fn masks_agree_with_the_host_in_every_pass<B: GraphBackend>(device: &B::Device) {
    let n = 97;
    // The complete graph: every (dst, src) pair once.
    let row_ptr: Vec<u64> = (0..=n as u64).map(|i| i * n as u64).collect();
    let col_idx: Vec<u32> = (0..n).flat_map(|_| 0..n as u32).collect();
    let csr = Csr::<Ad<B>>::from_host(&row_ptr, &col_idx, n, device).unwrap();
    let identity: Vec<f64> = (0..n * n).map(|k| f64::from(k / n == k % n)).collect();
    for rate in [0.15, 0.5, 0.85] {
        let drop = DropEdge::new(rate, 77, 3, 1, 4).unwrap().with_bases(123, 4_567);
        let want: Vec<bool> = (0..n * n).map(|k| drop.keeps((k / n) as u32, (k % n) as u32)).collect();
        assert!(want.iter().any(|&k| k) && want.iter().any(|&k| !k));

        let eye = up::<Ad<B>, 2>(&identity, [n, n], Dtype::F32, device).require_grad();
        let config = SpmmConfig { drop_edge: Some(drop), ..Default::default() };
        let sum = spmm(&csr, eye.clone(), None, config);
        let forward: Vec<bool> = down(sum.clone().inner()).into_iter().map(|v| v != 0.0).collect();
        assert!(forward == want, "spmm forward, rate {rate}");
        // d(sum_ij out_ij P_ij)/dX = A^T P; with P the identity that is A^T.
        let eye_constant = up::<Ad<B>, 2>(&identity, [n, n], Dtype::F32, device);
        let grads = (sum * eye_constant.clone()).sum().backward();
        let transposed = gradient::<B, 2>(&eye, &grads);
        let reverse: Vec<bool> = (0..n * n).map(|k| transposed[(k % n) * n + k / n] != 0.0).collect();
        assert!(reverse == want, "spmm backward, rate {rate}");

        let zero = up::<Ad<B>, 2>(&vec![0.0; n], [1, n], Dtype::F32, device);
        let h = up::<Ad<B>, 2>(&identity, [n, n], Dtype::F32, device).require_grad();
        let config = GatConfig { drop_edge: Some(drop), ..Default::default() };
        let attended = gat(&csr, h.clone(), eye_constant.clone(), zero.clone(), zero, config);
        let forward: Vec<bool> = down(attended.clone().inner()).into_iter().map(|v| v != 0.0).collect();
        assert!(forward == want, "gat forward, rate {rate}");
        let grads = (attended * eye_constant).sum().backward();
        let transposed = gradient::<B, 2>(&h, &grads);
        let reverse: Vec<bool> = (0..n * n).map(|k| transposed[(k % n) * n + k / n] != 0.0).collect();
        assert!(reverse == want, "gat backward, rate {rate}");
    }
}

fn recomputing_changes_nothing<B: GraphBackend>(device: &B::Device) {
    let f = Fixture::power_law(15, 120);
    let run = |recompute: bool| {
        let (drop_edge, _) = half_dropped(&f);
        let h = up::<Ad<B>, 2>(&values_in(Dtype::F32, 73, 120 * 24), [120, 24], Dtype::F32, device).require_grad();
        let a = up::<Ad<B>, 2>(&values_in(Dtype::F32, 74, 24), [3, 8], Dtype::F32, device).require_grad();
        let config = GatConfig { drop_edge: Some(drop_edge), recompute, ..Default::default() };
        let y = gat(&csr_of::<Ad<B>>(&f, device), h.clone(), h.clone(), a.clone(), a.clone(), config);
        let grads = backward::<B, 2>(y, Dtype::F32);
        (gradient::<B, 2>(&h, &grads), gradient::<B, 2>(&a, &grads))
    };
    assert!(run(true) == run(false));
}

/// One matrix feeds many operators: whichever comes first in the backward pass, the others add to what it leaves.
fn gradients_of_several_operators_add_up<B: GraphBackend>(device: &B::Device) {
    check_sums::<B>(orders, 12, Dtype::F32, device);
}

pub fn check_sums<B: GraphBackend>(orders: Orders, width: usize, dtype: Dtype, device: &B::Device) {
    for restricted in [false, true] {
        check_sum_of_gradients::<B>(restricted, orders, width, dtype, device);
    }
}

fn check_sum_of_gradients<B: GraphBackend>(
    restricted: bool,
    orders: Orders,
    width: usize,
    dtype: Dtype,
    device: &B::Device,
) {
    // Every row names the first source, so several planes share its gradient; nobody names the last ones.
    let nodes = 640u32;
    let rows: Vec<Vec<u32>> = (0..nodes).map(|i| vec![0, (i * 7 + 1) % (nodes / 2)]).collect();
    let f = Fixture::from_rows("one source for all", nodes as usize, &rows);
    let (held, wanted): (Vec<u32>, Vec<u32>) = match restricted {
        true => ((0..nodes).step_by(2).collect(), (0..nodes).step_by(6).collect()),
        false => ((0..nodes).collect(), (0..nodes).collect()),
    };
    let held_len = held.len();
    let set = |nodes: &[u32]| restricted.then(|| NodeSet::<Ad<B>>::new(nodes, f.num_rows, device));
    let (held_set, wanted_set) = (set(&held), set(&wanted));
    let csr = csr_of::<Ad<B>>(&f, device).restrict(wanted_set.as_ref(), held_set.as_ref());

    let hs = values_in(dtype, 101, held_len * width);
    let vs = values_in(Dtype::F32, 102, 3 * width);
    let scale: Vec<f64> =
        values_in(Dtype::F32, 103, f.num_rows).iter().map(|v| f64::from((v.abs() + 0.1) as f32)).collect();
    let (left, right): (Vec<u32>, Vec<u32>) =
        (0..50u32).map(|p| (p * p % held_len as u32, p * 3 % held_len as u32)).unzip();
    let pairs = PairIndex::<Ad<B>>::new(&left, &right, held_len, held_len, device);
    let index = RowIndex::<Ad<B>>::new(&left, held_len, device);
    let vectors = up::<Ad<B>, 2>(&vs, [3, width], Dtype::F32, device);
    // Not a result of a cast, behind which the backward pass would put the operator in every order.
    let other = Tensor::<Ad<B>, 2>::from_inner(up::<B, 2>(&hs, [held_len, width], dtype, device));
    let config = |own: Tensor<Ad<B>, 2>| SpmmConfig {
        own: Some(SelfTerm {
            h: own,
            scale: up::<Ad<B>, 1>(&scale, [scale.len()], Dtype::F32, device),
            nodes: held_set.clone(),
        }),
        ..Default::default()
    };
    let uses: [Use<'_, B, 1>; 5] = [
        &|h| probed::<B, 2>(spmm(&csr, h.clone(), None, config(h)), dtype),
        &|h| probed::<B, 2>(spmm(&csr, other.clone(), None, config(h)), dtype),
        &|h| probed::<B, 2>(select_rows(h, held_set.as_ref(), wanted_set.as_ref()), dtype),
        &|h| probed::<B, 2>(row_dots(h, vectors.clone()), Dtype::F32),
        &|h| {
            let gathered = probed::<B, 2>(gather_rows(h.clone(), &index), dtype).cast(DType::F32);
            gathered + probed::<B, 1>(pair_dot(h.clone(), h, &pairs), Dtype::F32)
        },
    ];

    let held_part = |node: &u32| held.binary_search(node).ok();
    let part: Vec<Vec<u32>> =
        (wanted.iter()).map(|&i| rows[i as usize].iter().filter_map(held_part).map(|j| j as u32).collect()).collect();
    let part = Fixture::from_rows("part", held_len, &part);
    let rounded = |n: usize| -> Vec<f64> { probe(n).iter().map(|&p| dtype.round(p)).collect() };
    let g = rounded(wanted.len() * width);
    let product = spmm_grad(&part, &hs, width, &SpmmWeights::default(), &oracle::keep_all(&part), &g).x;
    let transposed: Vec<f64> = (0..width * 3).map(|k| vs[k % 3 * width + k / 3]).collect();
    let (dots, _, _) = linear_grad(&hs, &transposed, width, 3, &probe(held_len * 3));
    let (by_left, by_right) = pair_dot_grad(&hs, &hs, width, &left, &right, &probe(left.len()));
    let gathered = gather_grad(held_len, width, &left, &rounded(left.len() * width));
    let mut want: Vec<f64> =
        (0..hs.len()).map(|k| product[k] + dots[k] + by_left[k] + by_right[k] + gathered[k]).collect();
    for (r, node) in wanted.iter().enumerate() {
        let at = held_part(node).expect("what is wanted is held");
        for c in 0..width {
            // Two self terms and the selection.
            want[at * width + c] += (2.0 * scale[*node as usize] + 1.0) * g[r * width + c];
        }
    }

    for order in orders(uses.len()) {
        let h = up::<Ad<B>, 2>(&hs, [held_len, width], dtype, device).require_grad();
        let losses = order.iter().map(|&k| uses[k](h.clone()).cast(DType::F32));
        let grads = losses.reduce(|a, b| a + b).expect("there are uses").backward();
        let name = format!("order {order:?}, restricted {restricted}, width {width}, {dtype:?}");
        assert_close(&name, &gradient::<B, 2>(&h, &grads), &want, dtype, f.num_rows);
    }
}

/// The gradient that the caller gives is that of `h` and of the operator's result at once: the operator comes to `h`
/// when two others hold what is there.
fn a_gradient_that_others_hold_is_not_changed<B: GraphBackend>(device: &B::Device) {
    let (n, width) = (60, 8);
    let f = Fixture::power_law(17, n);
    let csr = csr_of::<Ad<B>>(&f, device);
    let all = NodeSet::<Ad<B>>::new(&(0..n as u32).collect::<Vec<_>>(), n, device);
    let turned: Vec<u32> = (0..n as u32).rev().collect();
    let index = RowIndex::<Ad<B>>::new(&turned, n, device);
    let ones = vec![1.0; n];
    let hs = values_in(Dtype::F32, 111, n * width);
    let gs = values_in(Dtype::F32, 112, n * width);
    let vs = values_in(Dtype::F32, 113, width * width);
    let vectors = up::<Ad<B>, 2>(&vs, [width, width], Dtype::F32, device);
    let zeros = Tensor::<Ad<B>, 2>::zeros([n, width], device);
    let own = |h: Tensor<Ad<B>, 2>| SpmmConfig {
        own: Some(SelfTerm { h, scale: up::<Ad<B>, 1>(&ones, [n], Dtype::F32, device), nodes: None }),
        ..Default::default()
    };
    let transposed: Vec<f64> = (0..width * width).map(|k| vs[k % width * width + k / width]).collect();
    let all_edges = oracle::keep_all(&f);
    let product = spmm_grad(&f, &hs, width, &SpmmWeights::default(), &all_edges, &gs).x;
    let (a_src, a_dst) = (values_in(Dtype::F32, 114, width), values_in(Dtype::F32, 115, width));
    let vector = |a: &[f64]| up::<Ad<B>, 2>(a, [1, width], Dtype::F32, device);
    let slope = f64::from(0.2f32);
    let input = GatInput {
        h_src: &hs,
        h_dst: &hs,
        att_src: &a_src,
        att_dst: &a_dst,
        heads: 1,
        channels: width,
        slope,
        factors: None,
    };
    let through_gat = gat_grad(&f, &input, &all_edges, &gs);
    let through_gat = through_gat.h_src.iter().zip(&through_gat.h_dst).map(|(a, b)| a + b).collect();
    let scores = values_in(Dtype::F32, 116, n);
    let score = || ScoreColumns { scores: up::<Ad<B>, 2>(&scores, [n, 1], Dtype::F32, device), first: 0 };
    let input = AttendInput {
        values: &hs,
        score_dst: &scores,
        score_src: &scores,
        heads: 1,
        channels: width,
        slope,
        factors: None,
    };
    let through_attend = attend_grad(&f, &input, &all_edges, &gs).values;
    let attended = |h: Tensor<Ad<B>, 2>| attend(&csr, h, score(), score(), 1, GatConfig::default());
    let gat_of = |h: Tensor<Ad<B>, 2>| gat(&csr, h.clone(), h, vector(&a_src), vector(&a_dst), GatConfig::default());
    let cases: [(&str, Use<'_, B, 2>, Vec<f64>); 7] = [
        ("attend", &attended, through_attend),
        ("gat", &gat_of, through_gat),
        ("product", &|h| spmm(&csr, h, None, SpmmConfig::default()), product),
        ("self term", &|h| spmm(&csr, zeros.clone(), None, own(h)), gs.clone()),
        ("select_rows", &|h| select_rows(h, Some(&all), Some(&all)), gs.clone()),
        ("row_dots", &|h| row_dots(h, vectors.clone()), linear_grad(&hs, &transposed, width, width, &gs).0),
        ("gather_rows", &|h| gather_rows(h, &index), gather_grad(n, width, &turned, &gs)),
    ];
    for (name, operator, through) in cases {
        let h = up::<Ad<B>, 2>(&hs, [n, width], Dtype::F32, device).require_grad();
        let g = up::<B, 2>(&gs, [n, width], Dtype::F32, device);
        let before = down(g.clone());
        let grads = backward_from(h.clone() + operator(h.clone()), g.clone());
        let want: Vec<f64> = through.iter().zip(&gs).map(|(a, b)| a + b).collect();
        assert_close(name, &gradient::<B, 2>(&h, &grads), &want, Dtype::F32, f.max_degree() + width);
        assert_eq!(down(g), before, "{name} changed what the caller holds");
    }
}

fn repeating_a_pass_gives_the_same_bytes<B: GraphBackend>(device: &B::Device) {
    let f = Fixture::power_law(13, 300);
    let run = || {
        let h = up::<Ad<B>, 2>(&values_in(Dtype::F32, 81, 300 * 32), [300, 32], Dtype::F32, device).require_grad();
        let a = up::<Ad<B>, 2>(&values_in(Dtype::F32, 82, 32), [1, 32], Dtype::F32, device).require_grad();
        let y = gat(&csr_of::<Ad<B>>(&f, device), h.clone(), h.clone(), a.clone(), a.clone(), GatConfig::default());
        let grads = backward::<B, 2>(y, Dtype::F32);
        let bits = |v: Vec<f32>| v.into_iter().map(f32::to_bits).collect::<Vec<_>>();
        (bits(gradient::<B, 2>(&h, &grads)), bits(gradient::<B, 2>(&a, &grads)))
    };
    let first = run();
    for _ in 0..3 {
        assert!(run() == first);
    }
}

fn strided_and_transposed_inputs_are_read_correctly<B: GraphBackend>(device: &B::Device) {
    // CUDA pads rows; other devices never do, so make padding and transposition by hand.
    let f = Fixture::random(14, 20, 30, 150);
    let csr = csr_of::<B>(&f, device);
    let wide = up::<B, 2>(&values_in(Dtype::F32, 91, 30 * 64), [30, 64], Dtype::F32, device);
    let dense: Vec<f64> = down(wide.clone()).into_iter().map(f64::from).collect();
    for (from, to) in [(0, 40), (3, 36), (8, 40), (63, 64)] {
        let width = to - from;
        let part: Vec<f64> = (0..30).flat_map(|i| dense[i * 64 + from..i * 64 + to].to_vec()).collect();
        let want = oracle::spmm(&f, &part, width, &SpmmWeights::default(), &oracle::keep_all(&f));
        let sliced = wide.clone().slice([0..30, from..to]);
        let out = spmm(&csr, sliced, None, SpmmConfig::default());
        assert_close(&format!("columns {from}..{to}"), &down(out), &want, Dtype::F32, f.max_degree());
        let turned = up::<B, 2>(&part, [30, width], Dtype::F32, device).transpose().reshape([width, 30]).transpose();
        let out = spmm(&csr, turned, None, SpmmConfig::default());
        assert_close(&format!("transposed {width}"), &down(out), &want, Dtype::F32, f.max_degree());
    }
}

/// Burn frees what no tensor refers to in the graphs of *all* threads after every backward pass: an operator that lets
/// go of its inputs before it is recorded loses their gradients now and then.
fn gradients_survive_backward_passes_of_other_threads() {
    use burn::backend::Autodiff;
    use burn::tensor::Tensor;
    use burn_flex::Flex;
    use graphsieve_kernels::{Activation, combine};
    use std::sync::atomic::{AtomicBool, Ordering};
    type Ad = Autodiff<Flex>;
    let device = Default::default();
    let done = AtomicBool::new(false);
    let other = || {
        while !done.load(Ordering::Relaxed) {
            let x = Tensor::<Ad, 1>::from_data([1.0, 2.0], &device).require_grad();
            (x.clone() * x).sum().backward();
        }
    };
    let leaf = |values: [[f32; 2]; 2]| Tensor::<Ad, 2>::from_data(values, &device).require_grad();
    std::thread::scope(|scope| {
        (0..3).for_each(|_| drop(scope.spawn(other)));
        let lost = (0..2000).filter(|_| {
            let leaves: Vec<_> = (0..6).map(|_| leaf([[1.0, 2.0], [3.0, 4.0]])).collect();
            let bias = Tensor::<Ad, 1>::from_data([1.0, 1.0], &device).require_grad();
            let layer = |x: Tensor<Ad, 2>, y: &Tensor<Ad, 2>| {
                combine(vec![x, y.clone() + 1.0], Some(bias.clone()), 1.0, Activation::Relu)
            };
            // One graph after the other joins those before.
            let first = leaves[0].clone();
            let out = leaves[1..].iter().fold(first, layer);
            let grads = out.sum().backward();
            // The bias counts once per layer.
            let sum = bias.grad(&grads).map(|g| g.into_data().into_vec::<f32>().unwrap());
            sum != Some(vec![10.0; 2]) || leaves.iter().any(|leaf| leaf.grad(&grads).is_none())
        });
        let lost = lost.count();
        done.store(true, Ordering::Relaxed);
        assert_eq!(lost, 0, "passes of 2000 that lost a gradient");
    });
}
