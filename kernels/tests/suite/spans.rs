//! Rows that are spans of one list of entries: every operator by the oracle, to the bit what a list per row gives, and
//! the same whatever comes later.

use std::panic::AssertUnwindSafe;

use burn::tensor::Tensor;
use graphsieve_kernels::testing::harness::Trial;
use graphsieve_kernels::testing::messages::{ADD, COPY, DIV, MUL};
use graphsieve_kernels::testing::{
    Dtype, Fixture, GatInput, Spans, SpmmWeights, assert_close, assert_close_at_scale, central_difference, oracle,
    probe, small_span_fixtures, span_fixtures, values_in, weighted_sum,
};
use graphsieve_kernels::{
    Activation, Csr, Destinations, EdgeValue, GatConfig, GraphBackend, LoopValue, Message, NodeMarks, NodeSet, Reduce,
    SpmmConfig, Strategy, Target, Term, attend, attend_inputs, edge_softmax, edge_softmax_by_source, gat, gsddmm,
    gspmm, on_every_backend, row_dots, spmm, sum_in_chunks,
};

use crate::attention::{Dropped, check_attended_inputs, check_gat};
use crate::messages::{GspmmCase, REDUCTIONS, check_gspmm};
use crate::selection::{check_marks, check_restricted};
use crate::spmm::check_spmm;
use crate::support::*;

/// The trials of this file.
pub fn trials() -> Vec<Trial> {
    on_every_backend!(
        "spans";
        spans_match_the_oracle,
        spans_give_to_the_bit_what_lists_give,
        gradients_of_spans_are_differences,
        what_comes_later_changes_no_bit_of_a_row,
        layers_of_spans_in_chunks,
        layers_of_spans_in_one_chunk,
        what_edges_carry_is_refused,
    )
}

/// Products, attention and messages, whole and between selected nodes, with all gradients.
fn spans_match_the_oracle<B: GraphBackend>(device: &B::Device) {
    check::<B>(Dtype::F32, device);
    check_marks::<B>(span_fixtures(), device);
    for f in span_fixtures() {
        check_spmm::<B>(&f, 4, Dtype::F32, false, false, device);
        check_spmm::<B>(&f, 34, Dtype::F32, true, true, device);
        check_gat::<B>(&f, (1, 32), Dtype::F32, Dropped::Nothing, device);
        for reduction in REDUCTIONS {
            let strategy = Strategy::Auto;
            let case = GspmmCase { f: &f, op: COPY, columns: [10, 0], reduction, dtype: Dtype::F32, strategy };
            check_gspmm::<B>(case, device);
            check_gspmm::<B>(GspmmCase { strategy: Strategy::Edges, ..case }, device);
        }
        let of_edges = [(COPY, [0, 3], 1), (MUL, [6, 1], 0), (MUL, [4, 2], 2), (DIV, [2, 4], 0)];
        for (op, columns, reduction) in of_edges {
            let (reduction, strategy) = (REDUCTIONS[reduction], Strategy::Auto);
            check_gspmm::<B>(GspmmCase { f: &f, op, columns, reduction, dtype: Dtype::F32, strategy }, device);
        }
    }
}

/// Every operator with positions of 64 bits, which the widths of vectors do not touch.
pub fn check_wide<B: GraphBackend>(device: &B::Device) {
    check::<B>(Dtype::F32, device);
    check_marks::<B>(span_fixtures(), device);
    for f in span_fixtures() {
        let by_edges = GspmmCase {
            f: &f,
            op: COPY,
            columns: [6, 0],
            reduction: REDUCTIONS[0],
            dtype: Dtype::F32,
            strategy: Strategy::Edges,
        };
        check_gspmm::<B>(by_edges, device);
        check_gspmm::<B>(GspmmCase { reduction: REDUCTIONS[3], ..by_edges }, device);
        let of_edges = GspmmCase { strategy: Strategy::Auto, ..by_edges };
        check_gspmm::<B>(GspmmCase { columns: [0, 3], reduction: REDUCTIONS[1], ..of_edges }, device);
        check_gspmm::<B>(GspmmCase { op: MUL, columns: [6, 1], ..of_edges }, device);
    }
}

/// What every type is checked with.
pub fn check<B: GraphBackend>(dtype: Dtype, device: &B::Device) {
    for f in span_fixtures() {
        check_spmm::<B>(&f, 33, dtype, true, dtype != Dtype::F32, device);
        check_gat::<B>(&f, (3, 5), dtype, Dropped::Both, device);
        let case =
            GspmmCase { f: &f, op: COPY, columns: [6, 0], reduction: REDUCTIONS[2], dtype, strategy: Strategy::Auto };
        check_gspmm::<B>(case, device);
        check_gspmm::<B>(GspmmCase { op: ADD, columns: [2, 4], reduction: REDUCTIONS[1], ..case }, device);
        if f.num_edges() > 0 {
            let (rows, cols) = (node_lists(f.num_rows), node_lists(f.num_cols));
            check_restricted::<B>(&f, &rows[0], &cols[1], dtype, device);
            check_attended_inputs::<B>(&f, [&rows[1], &cols[0]], 12, dtype, device);
        }
    }
}

/// What operators give on an adjacency, by name. `rows` destinations see `x`, a row per source, and have own rows and
/// scores as their numbers say: nothing here depends on how many there are.
fn results<B: GraphBackend>(csr: &Csr<Ad<B>>, x: &Tensor<Ad<B>, 2>) -> Vec<(String, Tensor<Ad<B>, 2>)> {
    let (device, [cols, width]) = (x.device(), x.dims());
    let whole = csr.reverse().degrees().dims()[0];
    let destinations = csr.degrees().dims()[0];
    let numbered = |seed: u64, rows: usize, columns: usize| {
        let row = |row: usize| values_in(Dtype::F32, seed + 1000 * row as u64, columns);
        let values: Vec<f64> = (0..rows).flat_map(row).collect();
        up::<Ad<B>, 2>(&values, [rows, columns], Dtype::F32, &device)
    };
    let scale = |seed, rows| numbered(seed, rows, 1).abs().reshape([rows]);
    let (drop_edge, _) = half_dropped(&Fixture::from_rows("none", 0, &[]));
    let (dropout, _) = half_weightless();
    let own = numbered(3, csr.num_rows(), width);
    let vector = |seed, heads: usize| {
        up::<Ad<B>, 2>(&values_in(Dtype::F32, seed, width), [heads, width / heads], Dtype::F32, &device)
    };
    let scaled = SpmmConfig {
        dst_scale: Some(scale(1, destinations)),
        src_scale: Some(scale(2, whole)),
        drop_edge: Some(drop_edge),
        own: None,
    };
    let dropped = GatConfig { drop_edge: Some(drop_edge), attention_dropout: Some(dropout), ..GatConfig::default() };
    let attended = |heads: usize, config: &GatConfig| {
        gat(csr, x.clone(), own.clone(), vector(5, heads), vector(6, heads), config.clone())
    };
    let scores = [numbered(7, csr.num_rows(), 2), numbered(8, cols, 2)];
    let all_dst = numbered(9, destinations, width);
    let vectors = up::<Ad<B>, 2>(&values_in(Dtype::F32, 10, 2 * width), [2, width], Dtype::F32, &device);
    let of_data = [row_dots(all_dst.clone(), vectors.clone()), row_dots(x.clone(), vectors.clone())];
    let of_data = [columns(&of_data[0], 0), columns(&of_data[1], 1)];
    let mut all = vec![
        ("spmm".into(), spmm(csr, x.clone(), None, SpmmConfig::default())),
        ("spmm, scaled and dropped".into(), spmm(csr, x.clone(), None, scaled)),
        ("gat".into(), attended(1, &GatConfig::default())),
        ("gat of two heads, dropped".into(), attended(2, &dropped)),
        ("gat, recomputed".into(), attended(1, &GatConfig { recompute: true, ..GatConfig::default() })),
        ("attend".into(), attend(csr, x.clone(), columns(&scores[0], 1), columns(&scores[1], 0), 1, dropped.clone())),
        ("attend_inputs".into(), attend_inputs(csr, x.clone().detach(), all_dst.detach(), vectors, of_data, dropped)),
    ];
    for (reduce, _) in REDUCTIONS {
        all.push((format!("gspmm {reduce:?}"), gspmm(csr, Message::CopyU(x.clone()), reduce, Strategy::Auto)));
    }
    all
}

fn sources<B: GraphBackend>(rows: usize, width: usize, device: &B::Device) -> Tensor<Ad<B>, 2> {
    let values: Vec<f64> = (0..rows).flat_map(|row| values_in(Dtype::F32, 77 + row as u64, width)).collect();
    up::<Ad<B>, 2>(&values, [rows, width], Dtype::F32, device)
}

fn spans_give_to_the_bit_what_lists_give<B: GraphBackend>(device: &B::Device) {
    for f in span_fixtures().into_iter().filter(|f| f.num_rows > 0) {
        let (spans, lists) = (csr_of::<Ad<B>>(&f, device), csr_of::<Ad<B>>(&f.as_lists(), device));
        assert_eq!(spans.num_edges(), lists.num_edges(), "{}", f.name);
        let degrees = |csr: &Csr<Ad<B>>| down(csr.clone().inner().degrees());
        assert_eq!(degrees(&spans), degrees(&lists), "{}", f.name);
        assert_eq!(degrees(&spans.reverse()), degrees(&lists.reverse()), "{}: reverse", f.name);
        for width in [4, 34] {
            let x = sources::<B>(f.num_cols, width, device);
            for ((name, got), (_, want)) in results::<B>(&spans, &x).into_iter().zip(results::<B>(&lists, &x)) {
                assert!(down(got.inner()) == down(want.inner()), "{name} of width {width} on {}", f.name);
            }
        }
        if f.num_rows == f.num_cols {
            let loops = |csr: &Csr<Ad<B>>| down(csr.clone().inner().self_loops());
            assert_eq!(loops(&spans), loops(&lists), "{}", f.name);
            let x = sources::<B>(f.num_cols, 4, device);
            let looped = |csr: &Csr<Ad<B>>| {
                down(spmm(&csr.with_self_loops().csr, x.clone(), None, SpmmConfig::default()).inner())
            };
            assert!(looped(&spans) == looped(&lists), "{} with loops", f.name);
        }
        // Sums are those of the reverse in another order.
        let grads = |csr: &Csr<Ad<B>>, recompute: bool| {
            let x = sources::<B>(f.num_cols, 4, device).require_grad();
            let a = up::<Ad<B>, 2>(&values_in(Dtype::F32, 5, 4), [1, 4], Dtype::F32, device);
            let own = up::<Ad<B>, 2>(&values_in(Dtype::F32, 6, 4 * f.num_rows), [f.num_rows, 4], Dtype::F32, device);
            let config = GatConfig { recompute, ..GatConfig::default() };
            let out = gat(csr, x.clone(), own, a.clone(), a, config);
            gradient::<B, 2>(&x, &backward::<B, 2>(out, Dtype::F32))
        };
        let want: Vec<f64> = grads(&lists, false).into_iter().map(f64::from).collect();
        let len = longest(&f).1.max(1);
        assert_close(&format!("{}: gradient", f.name), &grads(&spans, false), &want, Dtype::F32, 16 * len);
        assert!(grads(&spans, true) == grads(&spans, false), "{}: recomputed", f.name);
    }
}

fn gradients_of_spans_are_differences<B: GraphBackend>(device: &B::Device) {
    for f in small_span_fixtures().into_iter().filter(|f| f.num_edges() > 0) {
        let (heads, channels) = (2, 3);
        let width = heads * channels;
        let inputs = vec![
            values_in(Dtype::F32, 1, f.num_cols * width),
            values_in(Dtype::F32, 2, f.num_rows * width),
            values_in(Dtype::F32, 3, width),
            values_in(Dtype::F32, 4, width),
            values_in(Dtype::F32, 5, f.num_entries()),
        ];
        let probes = probe(f.num_rows * width);
        let up = |which: usize, rows: usize| {
            let shape = [rows, inputs[which].len() / rows];
            up::<Ad<B>, 2>(&inputs[which], shape, Dtype::F32, device).require_grad()
        };
        let tensors = [up(0, f.num_cols), up(1, f.num_rows), up(2, heads), up(3, heads)];
        let csr = csr_of::<Ad<B>>(&f, device);
        let (drop, mask) = half_dropped(&f);
        let kept_edges = [None, Some(drop)];
        for drop_edge in kept_edges {
            let kept = if drop_edge.is_some() { mask.clone() } else { oracle::keep_all(&f) };
            let slope = f64::from(0.2f32);
            let attention = |of: &[Vec<f64>]| {
                let [h_src, h_dst, att_src, att_dst] = [0, 1, 2, 3].map(|which| &of[which][..]);
                let input = GatInput { h_src, h_dst, att_src, att_dst, heads, channels, slope, factors: None };
                weighted_sum(&oracle::gat(&f, &input, &kept).out, &probes)
            };
            let [h_src, h_dst, a_src, a_dst] = tensors.clone();
            let config = GatConfig { drop_edge, ..GatConfig::default() };
            let grads = backward::<B, 2>(gat(&csr, h_src, h_dst, a_src, a_dst, config), Dtype::F32);
            for (which, tensor) in tensors.iter().enumerate() {
                let want = central_difference(attention, &inputs, which);
                let got = gradient::<B, 2>(tensor, &grads);
                // Gradients of scores are differences of sums: where one source takes all, zero.
                let terms: Vec<f64> = want.iter().map(|v| v.abs().max(1.0)).collect();
                let name = format!("gat on {}: input {which}", f.name);
                assert_close_at_scale(&name, &got, &want, &terms, Dtype::F32, 64);
            }
            let product = |of: &[Vec<f64>]| {
                let of_edges = f.by_edge(&of[4], 1);
                let weights = SpmmWeights { edge_weight: Some(&of_edges), ..SpmmWeights::default() };
                weighted_sum(&oracle::spmm(&f, &of[0], width, &weights, &kept), &probes)
            };
            let config = SpmmConfig { drop_edge, ..SpmmConfig::default() };
            let weight = up(4, 1).reshape([f.num_entries()]).detach().require_grad();
            let grads = backward::<B, 2>(spmm(&csr, tensors[0].clone(), Some(weight.clone()), config), Dtype::F32);
            let got = [gradient::<B, 2>(&tensors[0], &grads), gradient::<B, 1>(&weight, &grads)];
            for (which, got) in [0, 4].into_iter().zip(got) {
                let want = central_difference(product, &inputs, which);
                assert_close(&format!("spmm on {}: input {which}", f.name), &got, &want, Dtype::F32, 64);
            }
        }
    }
}

/// Lists of entities that grow, and rows that come to see them: what each row sees is fixed when it comes.
struct Growing {
    /// Entries of every list by time, and the rows: list, start and end in it.
    lists: Vec<Vec<u32>>,
    rows: Vec<(usize, usize, usize)>,
}

impl Growing {
    /// After so many entries of every list: all rows that end there.
    fn until(lens: [usize; 3], rows: &[(usize, usize, usize)]) -> Self {
        // Source `3 k + list` is entry `k` of a list.
        let list = |(at, len): (usize, &usize)| (0..*len as u32).map(|k| 3 * k + at as u32).collect();
        Self { lists: lens.iter().enumerate().map(list).collect(), rows: rows.to_vec() }
    }

    fn fixture(&self, num_cols: usize) -> Fixture {
        let mut first = vec![0];
        self.lists.iter().for_each(|list| first.push(first[first.len() - 1] + list.len()));
        let span = |&(list, start, end): &(usize, usize, usize)| (first[list] + start, first[list] + end);
        let spans: Vec<(usize, usize)> = self.rows.iter().map(span).collect();
        Fixture::from_spans("growing lists", num_cols, &spans, self.lists.concat())
    }
}

/// More entries of every list, more rows, a row that becomes the first long one: rows from before keep every bit, whole
/// and selected.
fn what_comes_later_changes_no_bit_of_a_row<B: GraphBackend>(device: &B::Device) {
    let ends = [0, 1, 5, 31, 32, 33, 100, 400];
    let early: Vec<_> = ends.iter().flat_map(|&end| [(0, 0, end), (1, end.max(7) - 7, end)]).collect();
    let grown: Vec<_> = [450, 512].iter().map(|&end| (2, 0, end)).collect();
    let late: Vec<_> = [513, 700, 1400].iter().flat_map(|&end| [(0, 0, end), (2, end - 513, end)]).collect();
    let many: Vec<_> = (0..300).map(|k| (1, 0, 900 + k)).collect();
    let stages = [
        ([401, 401, 3], early.clone()),
        ([401, 420, 512], [early.clone(), grown.clone()].concat()),
        ([1400, 430, 1400], [early.clone(), grown.clone(), late.clone()].concat()),
        ([1500, 1200, 1401], [early, grown, late, many].concat()),
    ];
    let mut before: Option<(usize, Vec<Vec<Vec<f32>>>)> = None;
    for (lens, rows) in stages {
        let num_cols = 3 * lens.iter().max().expect("there are three");
        let f = Growing::until(lens, &rows).fixture(num_cols);
        let csr = csr_of::<Ad<B>>(&f, device);
        // The first rows alone, and what they see.
        let some = NodeSet::<Ad<B>>::new(&(0..16).collect::<Vec<_>>(), f.num_rows, device);
        let mut marks = NodeMarks::new(num_cols, device);
        marks.add_sources(&csr.restrict(Some(&some), None), None);
        let seen = NodeMarks::into_sets(vec![marks]).remove(0);
        let restricted = csr.restrict(Some(&some), None);
        let narrow = csr.restrict(Some(&some), Some(&seen));
        let all_rows = |csr: &Csr<Ad<B>>, width: usize, sources: Tensor<Ad<B>, 2>| {
            let of_operator = |(name, out): (String, Tensor<Ad<B>, 2>)| {
                let out = down(out.inner());
                assert_eq!(out.len(), csr.num_rows() * width, "{name}");
                out
            };
            results::<B>(csr, &sources).into_iter().map(of_operator).collect::<Vec<_>>()
        };
        let mut now = Vec::new();
        for width in [4, 34] {
            let x = sources::<B>(num_cols, width, device);
            let whole = all_rows(&csr, width, x.clone());
            // Which rows are selected has nothing to do with their width.
            if width == 34 {
                let selected = all_rows(&restricted, width, x.clone());
                for (whole, selected) in whole.iter().zip(&selected) {
                    assert!(whole[..16 * width] == selected[..], "selected rows");
                }
                // Sources are numbered by their places here: results are others, and still the same later.
                now.push(all_rows(&narrow, width, sources::<B>(seen.len(), width, device)));
            }
            now.push(whole);
        }
        if let Some((rows, before)) = before {
            for (before, now) in before.iter().zip(&now) {
                for (operator, (before, now)) in before.iter().zip(now).enumerate() {
                    let width = before.len() / rows.min(before.len().max(1));
                    let same = before.len().min(width * rows);
                    assert!(before[..same] == now[..same], "operator {operator} of {rows} rows, then {}", f.num_rows);
                }
            }
        }
        before = Some((f.num_rows, now));
    }
}

fn layers_of_spans_in_chunks<B: GraphBackend>(device: &B::Device) {
    check_layers::<B>(|f| f.num_rows / 2 + 1, device);
}

fn layers_of_spans_in_one_chunk<B: GraphBackend>(device: &B::Device) {
    check_layers::<B>(|_| usize::MAX, device);
}

/// Layers in chunks of so many rows.
fn check_layers<B: GraphBackend>(chunk: fn(&Fixture) -> usize, device: &B::Device) {
    for f in span_fixtures().into_iter().filter(|f| f.num_edges() > 100 && f.num_rows < 200) {
        let of_entries = values_in(Dtype::F32, 5, f.num_entries());
        let chunk = chunk(&f);
        let run = |of: &Fixture| {
            let csr = csr_of::<Ad<B>>(of, device);
            let weights_of_edges = if of.spans.is_some() { of_entries.clone() } else { f.by_edge(&of_entries, 1) };
            let edge_weight =
                up::<Ad<B>, 1>(&weights_of_edges, [weights_of_edges.len()], Dtype::F32, device).require_grad();
            let x = sources::<B>(f.num_cols, 6, device).require_grad();
            let up = |seed, rows: usize, columns: usize| {
                let values = values_in(Dtype::F32, seed, rows * columns);
                up::<Ad<B>, 2>(&values, [rows, columns], Dtype::F32, device).require_grad()
            };
            let (dst, src, weights) = (up(1, f.num_rows, 1), up(2, f.num_cols, 1), [up(3, 6, 4), up(4, 6, 4)]);
            let (drop_edge, _) = half_dropped(&f);
            let config = GatConfig { drop_edge: Some(drop_edge), ..GatConfig::default() };
            let product = SpmmConfig { drop_edge: Some(drop_edge), ..SpmmConfig::default() };
            let scores = [columns(&dst, 0), columns(&src, 0)];
            let terms = vec![
                Term::spmm(&csr, x.clone(), Some(edge_weight.clone()), product, weights[0].clone()),
                Term::attend(&csr, x.clone(), scores, 1, weights[1].clone(), &config),
            ];
            let out = sum_in_chunks(terms, None, 1.0, Activation::Elu, Destinations::of(&csr), chunk);
            let grads = backward::<B, 2>(out.clone(), Dtype::F32);
            let leaves = [x, dst, src].into_iter().chain(weights);
            let mut found: Vec<_> = leaves.map(|leaf| gradient::<B, 2>(&leaf, &grads)).collect();
            let of_edges = gradient::<B, 1>(&edge_weight, &grads);
            found.push(match of.spans.is_some() {
                true => of_edges,
                false => {
                    let of_edges: Vec<f64> = of_edges.into_iter().map(f64::from).collect();
                    f.by_entry(&of_edges, 1).into_iter().map(|sum| sum as f32).collect()
                }
            });
            (down(out.inner()), found)
        };
        let ((got, grads), (want, of_lists)) = (run(&f), run(&f.as_lists()));
        assert!(got == want, "{} in chunks of {chunk}", f.name);
        for (leaf, (got, want)) in grads.iter().zip(&of_lists).enumerate() {
            let scale = want.iter().fold(0f32, |scale, v| scale.max(v.abs()));
            let apart = got.iter().zip(want).fold(0f32, |apart, (a, b)| apart.max((a - b).abs()));
            assert!(apart <= 2e-5 * scale, "{}, chunks of {chunk}, leaf {leaf}: {apart} of {scale}", f.name);
        }
    }
}

fn what_edges_carry_is_refused<B: GraphBackend>(device: &B::Device) {
    let f = Fixture::from_spans("two rows", 3, &[(0, 3), (0, 2)], vec![2, 0, 1]);
    let csr = csr_of::<B>(&f, device);
    let edges = || up::<B, 2>(&[1.0; 5], [5, 1], Dtype::F32, device);
    let x = || up::<B, 2>(&[1.0; 6], [3, 2], Dtype::F32, device);
    let twos = || up::<B, 2>(&[1.0; 4], [2, 2], Dtype::F32, device);
    let square = Fixture::from_spans("square", 2, &[(0, 2), (0, 1)], vec![1, 0]);
    let looped = csr_of::<B>(&square, device).with_self_loops();
    let twice = Fixture::from_spans("twice", 2, &[(0, 2), (1, 3)], vec![1, 0, 1]);
    let twice = csr_of::<B>(&twice, device).reverse();
    let refused: [(&str, &dyn Fn()); 8] = [
        ("spmm: edge_weight: takes a reverse that is spans, too", &|| {
            drop(spmm(&twice, twos(), Some(Tensor::ones([4], device)), SpmmConfig::default()))
        }),
        ("gspmm: e: takes a reverse that is spans, too", &|| {
            drop(gspmm(&twice, Message::CopyE(Tensor::ones([4, 1], device)), Reduce::Sum, Strategy::Auto))
        }),
        ("gspmm: e: expected spans of all sources", &|| {
            let csr = csr.restrict(None, Some(&NodeSet::new(&[0, 2], 3, device)));
            drop(gspmm(&csr, Message::u_add_e(twos(), Tensor::ones([3, 1], device)), Reduce::Sum, Strategy::Auto))
        }),
        ("gsddmm: csr: takes an adjacency with a list per row", &|| {
            drop(gsddmm(&csr, EdgeValue::Copy(Target::Source(x())), Strategy::Auto))
        }),
        ("edge_softmax: logits: takes an adjacency with a list per row", &|| drop(edge_softmax(&csr, edges()))),
        ("edge_softmax_by_source: logits: takes an adjacency with a list per row", &|| {
            drop(edge_softmax_by_source(&csr.reverse(), edges()))
        }),
        ("SelfLoops::edge_values: values: takes an adjacency with a list per row", &|| {
            drop(looped.edge_values(edges(), LoopValue::Mean))
        }),
        ("gspmm: csr: Max takes a reverse that is spans, too", &|| {
            drop(gspmm(&twice, Message::CopyU(twos()), Reduce::Max, Strategy::Auto))
        }),
    ];
    for (want, run) in refused {
        let found = std::panic::catch_unwind(AssertUnwindSafe(run)).expect_err(want);
        let found = found.downcast_ref::<String>().expect("a message in words");
        assert!(found.starts_with(want), "{found}");
    }
    assert_eq!(format!("{csr:?}"), "Csr(2 x 3, 5 edges in spans of 3 entries)");
    let Some(Spans { start, end, entries }) = &f.spans else { unreachable!("spans were given") };
    assert_eq!((start.len(), end.len(), csr.num_entries()), (csr.num_rows(), 2, entries.len()));
}
