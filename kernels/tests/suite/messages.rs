//! General message passing.

use graphsieve_kernels::testing::Rng;
use graphsieve_kernels::testing::messages::{
    ADD, COPY, DIV, End, MUL, MessageOp, Messages, Reduction, SUB, add_heads, add_heads_grad, reduce, reduce_grad,
};
use graphsieve_kernels::{
    BinOp, EdgeValue, Message, Reduce, SegmentOffsets, Strategy, Target, edge_softmax_by_source, gsddmm, gspmm,
    segment_reduce,
};

use burn::tensor::Tensor;
use graphsieve_kernels::testing::gradient::{edge_softmax_grad, edge_softmax_grad_magnitude};
use graphsieve_kernels::testing::harness::Trial;
use graphsieve_kernels::testing::{
    Dtype, Fixture, assert_close, assert_close_at_scale, fixtures, oracle, probe, small_fixtures, values_in,
};
use graphsieve_kernels::{Csr, GraphBackend, NodeSet, edge_softmax, on_every_backend};

use crate::support::*;

/// The trials of this file.
pub fn trials() -> Vec<Trial> {
    on_every_backend!(
        "messages";
        gspmm_matches_the_oracle_for_every_message_and_reduction,
        gspmm_matches_the_oracle_on_every_fixture,
        gspmm_matches_the_oracle_for_every_width,
        gspmm_is_the_same_by_rows_and_by_edges,
        gspmm_takes_restricted_adjacencies,
        gspmm_without_selected_sources_is_zero,
        gsddmm_matches_the_oracle_for_every_operation_and_target,
        gsddmm_matches_the_oracle_on_every_fixture,
        gsddmm_matches_the_oracle_for_every_width,
        segments_reduce_like_the_oracle,
        edge_softmax_by_source_is_that_of_the_reverse,
        edges_keep_an_order_of_their_own,
        symmetric_rows_in_any_order_have_right_gradients,
    )
}

pub const REDUCTIONS: [(Reduce, Reduction); 4] = [
    (Reduce::Sum, Reduction::Sum),
    (Reduce::Mean, Reduction::Mean),
    (Reduce::Max, Reduction::Max),
    (Reduce::Min, Reduction::Min),
];

/// Numbers that every operation takes exactly in every type: equal messages are equal everywhere, and there are many.
fn coarse(seed: u64, n: usize) -> Vec<f64> {
    let mut rng = Rng::new(seed);
    let values = [-4.0, -2.0, -1.0, -0.5, 0.5, 1.0, 2.0, 4.0];
    (0..n).map(|_| values[rng.below(values.len())]).collect()
}

/// Numbers away from zero, which may divide.
fn inputs(dtype: Dtype, seed: u64, n: usize) -> Vec<f64> {
    values_in(dtype, seed, n).into_iter().map(|v| dtype.round(v + 0.5f64.copysign(v))).collect()
}

fn bin_op(op: &MessageOp) -> BinOp {
    match op.name {
        "add" => BinOp::Add,
        "sub" => BinOp::Sub,
        "mul" => BinOp::Mul,
        "div" => BinOp::Div,
        other => panic!("{other} has one operand"),
    }
}

/// An operand's gradient against the oracle's.
struct Check<'a> {
    name: String,
    f: &'a Fixture,
    dtype: Dtype,
}

impl Check<'_> {
    /// Terms behind an element of the gradient of an operand of some columns.
    fn len(&self, end: End, width: usize, columns: usize) -> usize {
        let (forward, reverse) = longest(self.f);
        let entries = match end {
            End::Source => reverse,
            End::Edge if self.f.spans.is_some() => reverse,
            End::Edge => 1,
            End::Destination => forward,
        };
        entries.max(1) * (width / columns)
    }

    fn gradients<B: GraphBackend>(
        &self,
        operands: &[Tensor<Ad<B>, 2>],
        messages: &Messages<'_>,
        through: &[f64],
        grads: &<Ad<B> as burn::tensor::backend::AutodiffBackend>::Gradients,
    ) {
        let of_entries = |of_edges: [Vec<f64>; 2]| {
            let [left, right] = of_edges;
            [(0, left), (1, right)].map(|(side, values)| match messages.ends[side] {
                End::Edge => self.f.by_entry(&values, messages.columns[side]),
                _ => values,
            })
        };
        let want = of_entries(messages.gradient(self.f, through));
        let scale = of_entries(messages.gradient_magnitude(self.f, through));
        for (side, operand) in operands.iter().enumerate() {
            let name = format!("{}: gradient of operand {side}", self.name);
            let len = self.len(messages.ends[side], messages.width, messages.columns[side]);
            let got = gradient::<B, 2>(operand, grads);
            assert_close_at_scale(&name, &got, &want[side], &scale[side], self.dtype, len);
        }
    }
}

#[derive(Clone, Copy)]
pub struct GspmmCase<'a> {
    pub f: &'a Fixture,
    pub op: MessageOp,
    /// Of `u` and `e`; one of them is 0 for a copy of the other.
    pub columns: [usize; 2],
    pub reduction: (Reduce, Reduction),
    pub dtype: Dtype,
    pub strategy: Strategy,
}

pub fn check_gspmm<B: GraphBackend>(case: GspmmCase<'_>, device: &B::Device) {
    let GspmmCase { f, op, columns, reduction: (reduce_by, reduction), dtype, strategy } = case;
    let name = format!("gspmm {} of {columns:?} {reduction:?} {dtype:?} {strategy:?} on {}", op.name, f.name);
    let width = columns[0].max(columns[1]);
    let finds_best = matches!(reduction, Reduction::Max | Reduction::Min);
    let ends = if columns[0] == 0 { [End::Edge; 2] } else { [End::Source, End::Edge] };
    let has_two = columns[0] > 0 && columns[1] > 0;
    let columns = if has_two { columns } else { [width; 2] };
    // Rows that share an entry share what it carries.
    let rows = ends.map(|end| if end == End::Edge { f.num_entries() } else { end.rows(f) });
    let given = [0, 1].map(|side| {
        let n = rows[side] * columns[side];
        if finds_best { coarse(side as u64 + 1, n) } else { inputs(dtype, side as u64 + 1, n) }
    });
    let operand = |side: usize| up::<Ad<B>, 2>(&given[side], [rows[side], columns[side]], dtype, device).require_grad();
    let operands: Vec<_> = (0..1 + usize::from(has_two)).map(operand).collect();
    let values = [0, 1].map(|side| match ends[side] {
        End::Edge => f.by_edge(&given[side], columns[side]),
        _ => given[side].clone(),
    });
    let message = match (&operands[..], ends[0]) {
        ([u, e], _) => Message::Binary(bin_op(&op), u.clone(), e.clone()),
        ([u], End::Source) => Message::CopyU(u.clone()),
        (all, _) => Message::CopyE(all[0].clone()),
    };
    let out = gspmm(&csr_of::<Ad<B>>(f, device), message, reduce_by, strategy);
    assert_eq!(out.dims(), [f.num_rows, width], "{name}");

    let messages = Messages { op, ends, columns, values: [&values[0], &values[1]], width };
    let computed = messages.compute(f);
    let want = reduce(f, &computed, width, reduction);
    let sizes: Vec<f64> = computed.iter().map(|m| m.abs()).collect();
    let scale = if finds_best { want.clone() } else { reduce(f, &sizes, width, reduction) };
    assert_close_at_scale(&name, &down(out.clone().inner()), &want, &scale, dtype, f.max_degree());
    if f.num_rows == 0 {
        return; // Burn's own product and sum of the loss below do not take a matrix without rows.
    }
    let grads = backward::<B, 2>(out, dtype);
    let g: Vec<f64> = probe(f.num_rows * width).iter().map(|&p| dtype.round(p)).collect();
    let through = reduce_grad(f, &computed, width, reduction, &g);
    Check { name, f, dtype }.gradients::<B>(&operands, &messages, &through, &grads);
}

fn gspmm_matches_the_oracle_for_every_message_and_reduction<B: GraphBackend>(device: &B::Device) {
    let f = Fixture::random(12, 40, 90, 500);
    for reduction in REDUCTIONS {
        let case =
            GspmmCase { f: &f, op: COPY, columns: [12, 0], reduction, dtype: Dtype::F32, strategy: Strategy::Auto };
        check_gspmm::<B>(case, device);
        check_gspmm::<B>(GspmmCase { columns: [0, 12], ..case }, device);
        for op in [ADD, SUB, MUL, DIV] {
            for columns in [[12, 1], [12, 3], [12, 12]] {
                check_gspmm::<B>(GspmmCase { op, columns, ..case }, device);
            }
        }
    }
}

pub fn check_half_gspmm<B: GraphBackend>(dtype: Dtype, device: &B::Device) {
    let f = Fixture::random(12, 40, 90, 500);
    for reduction in REDUCTIONS {
        for (op, columns) in [(COPY, [12, 0]), (COPY, [0, 12]), (ADD, [6, 6]), (MUL, [12, 3]), (DIV, [4, 12])] {
            let strategy = Strategy::Auto;
            check_gspmm::<B>(GspmmCase { f: &f, op, columns, reduction, dtype, strategy }, device);
        }
    }
}

pub fn gspmm_matches_the_oracle_on_every_fixture<B: GraphBackend>(device: &B::Device) {
    for f in fixtures() {
        let case = |op, columns, reduction: usize| GspmmCase {
            f: &f,
            op,
            columns,
            reduction: REDUCTIONS[reduction],
            dtype: Dtype::F32,
            strategy: Strategy::Auto,
        };
        check_gspmm::<B>(case(MUL, [10, 2], 0), device);
        check_gspmm::<B>(case(ADD, [33, 33], 2), device);
        check_gspmm::<B>(case(COPY, [33, 0], 3), device);
        check_gspmm::<B>(case(COPY, [0, 3], 1), device);
    }
}

fn gspmm_matches_the_oracle_for_every_width<B: GraphBackend>(device: &B::Device) {
    let f = Fixture::power_law(5, 60);
    for width in [1, 3, 31, 32, 128, 500] {
        for (op, columns, reduction) in [(SUB, [width, width], 2), (DIV, [width, 1], 0), (COPY, [0, width], 0)] {
            let reduction = REDUCTIONS[reduction];
            let case = GspmmCase { f: &f, op, columns, reduction, dtype: Dtype::F32, strategy: Strategy::Auto };
            check_gspmm::<B>(case, device);
        }
    }
}

pub fn gspmm_is_the_same_by_rows_and_by_edges<B: GraphBackend>(device: &B::Device) {
    // Few rows, so that each is cut into pieces; and more than one sweep of tasks.
    let few = Fixture::with_degrees("few long rows", 15, 1700, &[1500, 0, 3000, 3]);
    for f in [few, Fixture::random(16, 100, 50, 900)] {
        for strategy in [Strategy::Rows, Strategy::Edges, Strategy::Auto] {
            for reduction in REDUCTIONS {
                for (op, columns) in [(COPY, [5, 0]), (MUL, [6, 1]), (ADD, [2, 4])] {
                    check_gspmm::<B>(GspmmCase { f: &f, op, columns, reduction, dtype: Dtype::F32, strategy }, device);
                }
            }
        }
    }
}

pub fn gspmm_takes_restricted_adjacencies<B: GraphBackend>(device: &B::Device) {
    let f = Fixture::with_degrees("hubs", 17, 700, &[600, 2, 0, 40, 5]);
    let (rows, cols) = ([0u32, 2, 3], (0..700).filter(|j| j % 3 != 0).collect::<Vec<u32>>());
    let width = 6;
    let set = |nodes: &[u32], n| NodeSet::<Ad<B>>::new(nodes, n, device);
    let csr = csr_of::<Ad<B>>(&f, device).restrict(Some(&set(&rows, 5)), Some(&set(&cols, 700)));
    let lists = rows.iter().map(|&i| {
        let sources = &f.col_idx[f.row_ptr[i as usize] as usize..f.row_ptr[i as usize + 1] as usize];
        sources.iter().filter_map(|j| cols.binary_search(j).ok().map(|at| at as u32)).collect()
    });
    let part = Fixture::from_rows("selected", cols.len(), &lists.collect::<Vec<Vec<u32>>>());
    let values = coarse(1, cols.len() * width);
    for (reduce_by, reduction) in REDUCTIONS {
        for strategy in [Strategy::Rows, Strategy::Edges] {
            let u = up::<Ad<B>, 2>(&values, [cols.len(), width], Dtype::F32, device).require_grad();
            let out = gspmm(&csr, Message::CopyU(u.clone()), reduce_by, strategy);
            let ends = [End::Source; 2];
            let messages = Messages { op: COPY, ends, columns: [width; 2], values: [&values; 2], width };
            let computed = messages.compute(&part);
            // The mean is over all entries of a row, whether selected or not.
            let whole = |r: usize| part.degree(r) as f64 / f.degree(rows[r] as usize).max(1) as f64;
            let share = |r: usize| if reduction == Reduction::Mean { whole(r) } else { 1.0 };
            let weigh =
                |of: Vec<f64>| -> Vec<f64> { of.iter().enumerate().map(|(k, v)| v * share(k / width)).collect() };
            let want = weigh(reduce(&part, &computed, width, reduction));
            let name = format!("restricted {reduction:?} {strategy:?}");
            assert_close(&name, &down(out.clone().inner()), &want, Dtype::F32, 600);
            let grads = backward::<B, 2>(out, Dtype::F32);
            let through = reduce_grad(&part, &computed, width, reduction, &weigh(probe(rows.len() * width)));
            Check { name, f: &part, dtype: Dtype::F32 }.gradients::<B>(&[u], &messages, &through, &grads);
        }
    }
    // What edges carry counts as they do: of others, nothing, and these have no gradient.
    let of_all = inputs(Dtype::F32, 3, f.num_edges() * 2);
    let chosen: Vec<usize> = (f.edges())
        .filter(|&(_, i, j)| rows.contains(&(i as u32)) && cols.contains(&(j as u32)))
        .map(|(e, ..)| e)
        .collect();
    let of_part: Vec<f64> = chosen.iter().flat_map(|&e| of_all[2 * e..2 * e + 2].to_vec()).collect();
    for (columns, op, reduction) in [([width, 2], DIV, 0), ([width, 2], MUL, 2)] {
        let u = up::<Ad<B>, 2>(&values, [cols.len(), width], Dtype::F32, device).require_grad();
        let e = up::<Ad<B>, 2>(&of_all, [f.num_edges(), 2], Dtype::F32, device).require_grad();
        let (reduce_by, reduction) = REDUCTIONS[reduction];
        let out = gspmm(&csr, Message::Binary(bin_op(&op), u.clone(), e.clone()), reduce_by, Strategy::Auto);
        let ends = [End::Source, End::Edge];
        let messages = Messages { op, ends, columns, values: [&values, &of_part], width };
        let computed = messages.compute(&part);
        let name = format!("restricted {} {reduction:?}", op.name);
        let sizes: Vec<f64> = computed.iter().map(|m| m.abs()).collect();
        let of = |messages: &[f64]| reduce(&part, messages, width, reduction);
        let scale = if reduction == Reduction::Sum { of(&sizes) } else { of(&computed) };
        assert_close_at_scale(&name, &down(out.clone().inner()), &of(&computed), &scale, Dtype::F32, 600);
        let grads = backward::<B, 2>(out, Dtype::F32);
        let through = reduce_grad(&part, &computed, width, reduction, &probe(rows.len() * width));
        let want = messages.gradient(&part, &through);
        let mut of_edges = vec![0.0; of_all.len()];
        for (k, &edge) in chosen.iter().enumerate() {
            of_edges[2 * edge..2 * edge + 2].copy_from_slice(&want[1][2 * k..2 * k + 2]);
        }
        let scale = messages.gradient_magnitude(&part, &through);
        let name = format!("{name}: gradient");
        assert_close_at_scale(&name, &gradient::<B, 2>(&u, &grads), &want[0], &scale[0], Dtype::F32, width * 8);
        assert_close(&name, &gradient::<B, 2>(&e, &grads), &of_edges, Dtype::F32, width);
    }
}

fn gspmm_without_selected_sources_is_zero<B: GraphBackend>(device: &B::Device) {
    let f = Fixture::random(21, 30, 20, 100);
    let none = NodeSet::<B>::new(&[], 20, device);
    let csr = csr_of::<B>(&f, device).restrict(None, Some(&none));
    for (reduce_by, _) in REDUCTIONS {
        let out = gspmm(&csr, Message::CopyU(up::<B, 2>(&[], [0, 5], Dtype::F32, device)), reduce_by, Strategy::Auto);
        assert_eq!(down(out), [0.0; 150], "{reduce_by:?}");
    }
}

fn target<B: GraphBackend>(end: End, values: Tensor<B, 2>) -> Target<B> {
    match end {
        End::Source => Target::Source(values),
        End::Edge => Target::Edge(values),
        End::Destination => Target::Destination(values),
    }
}

#[derive(Clone, Copy)]
struct GsddmmCase<'a> {
    f: &'a Fixture,
    op: MessageOp,
    ends: [End; 2],
    columns: [usize; 2],
    /// The channels of each are added up: a dot product.
    heads: Option<usize>,
    dtype: Dtype,
    strategy: Strategy,
}

fn check_gsddmm<B: GraphBackend>(case: GsddmmCase<'_>, device: &B::Device) {
    let GsddmmCase { f, op, ends, columns, heads, dtype, strategy } = case;
    let name =
        format!("gsddmm {} {ends:?} of {columns:?}, heads {heads:?} {dtype:?} {strategy:?} on {}", op.name, f.name);
    let width = columns[0].max(columns[1]);
    let values = [0, 1].map(|side| inputs(dtype, side as u64 + 1, ends[side].rows(f) * columns[side]));
    let operand =
        |side: usize| up::<Ad<B>, 2>(&values[side], [ends[side].rows(f), columns[side]], dtype, device).require_grad();
    let operands: Vec<_> = (0..if op.name == "copy" { 1 } else { 2 }).map(operand).collect();
    let value = match (&operands[..], heads) {
        ([l, r], Some(heads)) => EdgeValue::dot(target(ends[0], l.clone()), target(ends[1], r.clone()), heads),
        ([l, r], None) => EdgeValue::Binary(bin_op(&op), target(ends[0], l.clone()), target(ends[1], r.clone())),
        (all, _) => EdgeValue::Copy(target(ends[0], all[0].clone())),
    };
    let out = gsddmm(&csr_of::<Ad<B>>(f, device), value, strategy);
    let out_width = heads.unwrap_or(width);
    assert_eq!(out.dims(), [f.num_edges(), out_width], "{name}");

    let messages = Messages { op, ends, columns, values: [&values[0], &values[1]], width };
    let computed = messages.compute(f);
    let sizes: Vec<f64> = computed.iter().map(|m| m.abs()).collect();
    let (want, scale) = (add_heads(&computed, width, out_width), add_heads(&sizes, width, out_width));
    assert_close_at_scale(&name, &down(out.clone().inner()), &want, &scale, dtype, width / out_width);
    if f.num_edges() == 0 {
        return; // As above.
    }
    let grads = backward::<B, 2>(out, dtype);
    let g: Vec<f64> = probe(want.len()).iter().map(|&p| dtype.round(p)).collect();
    let through = add_heads_grad(&g, width, out_width);
    Check { name, f, dtype }.gradients::<B>(&operands, &messages, &through, &grads);
}

fn gsddmm_matches_the_oracle_for_every_operation_and_target<B: GraphBackend>(device: &B::Device) {
    let f = Fixture::random(18, 30, 50, 300);
    let all = [End::Source, End::Edge, End::Destination];
    let (dtype, strategy) = (Dtype::F32, Strategy::Auto);
    for left in all {
        let case = GsddmmCase { f: &f, op: COPY, ends: [left; 2], columns: [12; 2], heads: None, dtype, strategy };
        check_gsddmm::<B>(case, device);
        for right in all {
            let case = GsddmmCase { ends: [left, right], ..case };
            for op in [ADD, SUB, MUL, DIV] {
                let columns = if op.name == "mul" { [12, 12] } else { [12, 3] };
                check_gsddmm::<B>(GsddmmCase { op, columns, ..case }, device);
            }
            check_gsddmm::<B>(GsddmmCase { op: MUL, heads: Some(3), ..case }, device);
        }
    }
    for columns in [[12, 1], [1, 12], [12, 3], [3, 12], [12, 12]] {
        let ends = [End::Source, End::Destination];
        for op in [ADD, SUB, MUL, DIV] {
            check_gsddmm::<B>(GsddmmCase { f: &f, op, ends, columns, heads: None, dtype, strategy }, device);
        }
        for heads in [1, 3, 6] {
            let case = GsddmmCase { f: &f, op: MUL, ends, columns, heads: Some(heads), dtype, strategy };
            check_gsddmm::<B>(case, device);
        }
    }
}

pub fn check_half_gsddmm<B: GraphBackend>(dtype: Dtype, device: &B::Device) {
    let f = Fixture::random(18, 30, 50, 300);
    for strategy in [Strategy::Rows, Strategy::Edges] {
        let ends = [End::Source, End::Destination];
        let case = GsddmmCase { f: &f, op: MUL, ends, columns: [12; 2], heads: Some(3), dtype, strategy };
        check_gsddmm::<B>(case, device);
        check_gsddmm::<B>(GsddmmCase { op: SUB, heads: None, ..case }, device);
        let ends = [End::Edge, End::Source];
        check_gsddmm::<B>(GsddmmCase { op: DIV, ends, columns: [12, 3], heads: None, ..case }, device);
        check_gsddmm::<B>(GsddmmCase { op: COPY, ends: [End::Destination; 2], heads: None, ..case }, device);
    }
}

pub fn gsddmm_matches_the_oracle_on_every_fixture<B: GraphBackend>(device: &B::Device) {
    for f in fixtures() {
        for strategy in [Strategy::Rows, Strategy::Edges] {
            let ends = [End::Source, End::Destination];
            let case =
                GsddmmCase { f: &f, op: MUL, ends, columns: [10; 2], heads: Some(2), dtype: Dtype::F32, strategy };
            check_gsddmm::<B>(case, device);
            let ends = [End::Edge, End::Destination];
            check_gsddmm::<B>(GsddmmCase { op: DIV, ends, columns: [3, 3], heads: None, ..case }, device);
        }
    }
}

fn gsddmm_matches_the_oracle_for_every_width<B: GraphBackend>(device: &B::Device) {
    let f = Fixture::power_law(5, 60);
    for width in [1, 3, 31, 32, 33, 128, 500] {
        let ends = [End::Source, End::Destination];
        let (dtype, strategy) = (Dtype::F32, Strategy::Auto);
        let dot = GsddmmCase { f: &f, op: MUL, ends, columns: [width; 2], heads: Some(1), dtype, strategy };
        check_gsddmm::<B>(dot, device);
        check_gsddmm::<B>(GsddmmCase { op: ADD, heads: None, ..dot }, device);
    }
}

fn segments_reduce_like_the_oracle<B: GraphBackend>(device: &B::Device) {
    check_segments::<B>(Dtype::F32, device);
}

pub fn check_segments<B: GraphBackend>(dtype: Dtype, device: &B::Device) {
    for f in fixtures().iter().filter(|f| f.num_rows > 0) {
        for (reduce_by, reduction) in REDUCTIONS {
            let (width, n) = (5, f.num_edges());
            let values = coarse(1, n * width);
            let x = up::<Ad<B>, 2>(&values, [n, width], dtype, device).require_grad();
            let offsets = SegmentOffsets::from_host(&f.row_ptr, device).expect("fixtures are valid");
            assert_eq!((offsets.num_segments(), offsets.num_rows()), (f.num_rows, n));
            let out = segment_reduce(x.clone(), &offsets, reduce_by, Strategy::Auto);
            let name = format!("segment_reduce {reduction:?} {dtype:?} on {}", f.name);
            let want = reduce(f, &values, width, reduction);
            assert_close(&name, &down(out.clone().inner()), &want, dtype, f.max_degree());
            let grads = backward::<B, 2>(out, dtype);
            let g: Vec<f64> = probe(f.num_rows * width).iter().map(|&p| dtype.round(p)).collect();
            let want = reduce_grad(f, &values, width, reduction, &g);
            assert_close(&format!("{name}: dx"), &gradient::<B, 2>(&x, &grads), &want, dtype, 1);
        }
    }
}

fn edge_softmax_by_source_is_that_of_the_reverse<B: GraphBackend>(device: &B::Device) {
    check_by_source::<B>(&[3], Dtype::F32, device);
}

pub fn check_by_source<B: GraphBackend>(heads: &[usize], dtype: Dtype, device: &B::Device) {
    for f in fixtures().iter().filter(|f| f.num_edges() > 0) {
        for &heads in heads {
            let name = format!("edge_softmax_by_source {} {dtype:?}", f.name);
            let values = values_in(dtype, 11, f.num_edges() * heads);
            let logits = up::<Ad<B>, 2>(&values, [f.num_edges(), heads], dtype, device).require_grad();
            let out = edge_softmax_by_source(&csr_of::<Ad<B>>(f, device), logits.clone());
            let (reverse, edges) = f.reverse();
            let in_rows = |of: &[f64]| -> Vec<f64> {
                edges.iter().flat_map(|&e| of[e as usize * heads..][..heads].to_vec()).collect()
            };
            let in_edges = |of: Vec<f64>| {
                let mut out = vec![0.0; of.len()];
                for (row, &e) in of.chunks(heads).zip(&edges) {
                    out[e as usize * heads..][..heads].copy_from_slice(row);
                }
                out
            };
            let (kept, values) = (oracle::keep_all(&reverse), in_rows(&values));
            let want = in_edges(oracle::edge_softmax(&reverse, &values, heads, &kept));
            assert_close(&name, &down(out.clone().inner()), &want, dtype, reverse.max_degree());
            let grads = backward::<B, 2>(out, dtype);
            let g: Vec<f64> = probe(want.len()).iter().map(|&p| dtype.round(p)).collect();
            let g = in_rows(&g);
            let want = in_edges(edge_softmax_grad(&reverse, &values, heads, &kept, &g));
            let scale = in_edges(edge_softmax_grad_magnitude(&reverse, &values, heads, &kept, &g));
            let got = gradient::<B, 2>(&logits, &grads);
            assert_close_at_scale(&format!("{name}: gradient"), &got, &want, &scale, dtype, reverse.max_degree());
        }
    }
}

/// A shuffled list of edges against the same edges in the order of the adjacency: results, and the gradients of what
/// nodes and what edges carry.
pub fn edges_keep_an_order_of_their_own<B: GraphBackend>(device: &B::Device) {
    let in_order = small_fixtures().into_iter().chain([Fixture::random(12, 400, 90, 2000)]);
    let all = fixtures().into_iter().map(|f| (f, true)).chain(in_order.map(|f| (f, false)));
    for (f, shuffled) in all {
        let edges = f.num_edges();
        let mut order: Vec<usize> = (0..edges).collect();
        if shuffled {
            let mut rng = Rng::new(19);
            (1..edges).rev().for_each(|k| order.swap(k, rng.below(k + 1)));
        }
        let rows = f.row_idx();
        let (dst, src): (Vec<u32>, Vec<u32>) = order.iter().map(|&e| (rows[e], f.col_idx[e])).unzip();
        let listed =
            Csr::<Ad<B>>::from_edges(&dst, &src, [f.num_rows, f.num_cols], device).expect("fixtures are valid");
        // Entries of a row keep the order of the list, so the sorted adjacency is that of the list, too.
        let (row_ptr, position) = by_row(&dst, f.num_rows);
        let cols: Vec<u32> = position.iter().map(|&k| src[k]).collect();
        let sorted = Csr::<Ad<B>>::from_host(&row_ptr, &cols, f.num_cols, device).expect("fixtures are valid");

        let (heads, width) = (2, 6);
        let u = values_in(Dtype::F32, 1, f.num_cols * width);
        let v = values_in(Dtype::F32, 2, f.num_rows * width);
        let e = coarse(3, edges * heads);
        let in_rows = |of: &[f64], n: usize| -> Vec<f64> {
            position.iter().flat_map(|&k| of[k * n..(k + 1) * n].to_vec()).collect()
        };
        let run = |csr: &Csr<Ad<B>>, e: &[f64], pass: usize| {
            let up = |values: &[f64], n, k| up::<Ad<B>, 2>(values, [n, k], Dtype::F32, device).require_grad();
            let inputs = [up(&u, f.num_cols, width), up(&v, f.num_rows, width), up(e, edges, heads)];
            let [u, v, e] = inputs.clone();
            let by = |reduce| gspmm(csr, Message::u_mul_e(u.clone(), e.clone()), reduce, Strategy::Auto);
            let out = match pass {
                0 => by(Reduce::Sum),
                1 => by(Reduce::Max),
                2 => gspmm(csr, Message::u_mul_e(u, e.narrow(1, 0, 1)), Reduce::Mean, Strategy::Rows),
                3 => gsddmm(csr, EdgeValue::dot(Target::Source(u), Target::Destination(v), heads), Strategy::Auto),
                4 => gsddmm(csr, EdgeValue::mul(Target::Destination(v), Target::Edge(e)), Strategy::Rows),
                5 => edge_softmax(csr, e),
                6 => edge_softmax_by_source(csr, e),
                _ => gspmm(&csr.reverse(), Message::u_mul_e(v, e), Reduce::Max, Strategy::Auto),
            };
            let per_edge = (3..7).contains(&pass);
            (out, inputs, per_edge)
        };
        for pass in 0..8 {
            let name = format!("pass {pass} of a list of edges on {}", f.name);
            // Without a list, edges of the reverse have the order of its entries.
            if f.num_rows == 0 || edges == 0 || pass == 7 {
                continue;
            }
            let (got, got_inputs, per_edge) = run(&listed, &e, pass);
            let (want, want_inputs, _) = run(&sorted, &in_rows(&e, heads), pass);
            let columns = got.dims()[1];
            let as_f64 = |of: Vec<f32>| -> Vec<f64> { of.into_iter().map(f64::from).collect() };
            let sort = |of: Vec<f64>, n: usize, sorts: bool| if sorts { in_rows(&of, n) } else { of };
            let values = sort(as_f64(down(got.clone().inner())), columns, per_edge);
            let wanted = as_f64(down(want.clone().inner()));
            assert_eq!(values, wanted, "{name}");
            // The same probe of every edge, wherever it stands.
            let probes = probe(values.len());
            let probe_of =
                |csr_order: bool| if per_edge && csr_order { in_rows(&probes, columns) } else { probes.clone() };
            let grads = |out: Tensor<Ad<B>, 2>, probes: Vec<f64>| {
                let shape = out.dims();
                (out * up::<Ad<B>, 2>(&probes, shape, Dtype::F32, device)).sum().backward()
            };
            let (got, want) = (grads(got, probe_of(false)), grads(want, probe_of(true)));
            for (k, (got_input, want_input)) in got_inputs.iter().zip(&want_inputs).enumerate() {
                let (Some(got), Some(want)) = (got_input.grad(&got), want_input.grad(&want)) else { continue };
                let n = got.dims()[1];
                let (got, want) = (sort(as_f64(down(got)), n, k == 2), as_f64(down(want)));
                assert_eq!(got, want, "{name}: gradient of input {k}");
            }
        }
        if edges > 0 {
            // Both directions of a list share the order of its edges.
            let (forward, [_, v, e], _) = run(&listed, &e, 7);
            let flipped = Csr::<Ad<B>>::from_edges(&src, &dst, [f.num_cols, f.num_rows], device).expect("valid");
            let again = gspmm(&flipped, Message::u_mul_e(v.clone(), e.clone()), Reduce::Max, Strategy::Auto);
            assert_eq!(down(forward.clone().inner()), down(again.clone().inner()), "{}: the reverse of a list", f.name);
            // Of equal messages, and there are many, that of the first edge of the list has the gradient.
            let [got, want] = [forward, again].map(|out| {
                let grads = backward::<B, 2>(out, Dtype::F32);
                [gradient::<B, 2>(&v, &grads), gradient::<B, 2>(&e, &grads)]
            });
            for (got, want) in got.iter().zip(want) {
                let want: Vec<f64> = want.into_iter().map(f64::from).collect();
                assert_close(&format!("{}: gradients of the reverse", f.name), got, &want, Dtype::F32, f.max_degree());
            }
        }
    }
}

/// Where the rows of a list of edges start, and their positions in the list.
fn by_row(dst: &[u32], num_rows: usize) -> (Vec<u64>, Vec<usize>) {
    let mut position: Vec<usize> = (0..dst.len()).collect();
    position.sort_by_key(|&k| dst[k]);
    let starts = (0..=num_rows as u32).map(|row| position.partition_point(|&k| dst[k] < row) as u64);
    (starts.collect(), position)
}

/// Rows of an undirected graph need not ascend; what edges carry is found all the same.
pub fn symmetric_rows_in_any_order_have_right_gradients<B: GraphBackend>(device: &B::Device) {
    // 0 - 1, 0 - 2; row 0 lists 2 first.
    let (row_ptr, col_idx) = ([0, 2, 3, 4], [2, 1, 0, 0]);
    let csr = Csr::<Ad<B>>::from_host_symmetric(&row_ptr, &col_idx, device).expect("a graph");
    let e = up::<Ad<B>, 2>(&[1.0, 10.0, 100.0, 1000.0], [4, 1], Dtype::F32, device);
    let u = up::<Ad<B>, 2>(&[0.0; 6], [3, 2], Dtype::F32, device).require_grad();
    let y = gspmm(&csr, Message::u_mul_e(u.clone(), e), Reduce::Sum, Strategy::Auto);
    let du = gradient::<B, 2>(&u, &y.sum().backward());
    // Node 0 is read by rows 1 and 2, node 1 and node 2 by row 0.
    assert_eq!(du, [1100.0, 1100.0, 10.0, 10.0, 1.0, 1.0]);
}
