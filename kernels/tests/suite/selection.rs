//! Some of the nodes instead of all.

use graphsieve_kernels::testing::gradient::{attend_grad, attend_grad_magnitude, spmm_grad};
use graphsieve_kernels::testing::harness::Trial;
use graphsieve_kernels::testing::{
    AttendInput, Dtype, Fixture, SpmmWeights, assert_close, assert_close_at_scale, fixtures, oracle, probe, values_in,
};
use graphsieve_kernels::{
    GatConfig, GraphBackend, NodeMarks, NodeSet, SelfTerm, SpmmConfig, attend, on_every_backend, select_rows, spmm,
};

use crate::support::*;

/// The trials of this file.
pub fn trials() -> Vec<Trial> {
    on_every_backend!(
        "selection";
        selected_rows_move_between_sets,
        marks_find_the_sources_of_kept_edges,
        restricted_operators_match_the_oracle,
    )
}

fn selected_rows_move_between_sets<B: GraphBackend>(device: &B::Device) {
    check_selected::<B>(&[12, 1], Dtype::F32, device);
}

pub fn check_selected<B: GraphBackend>(widths: &[usize], dtype: Dtype, device: &B::Device) {
    let nodes = 301;
    for &width in widths {
        for from in node_lists(nodes) {
            for to in node_lists(nodes) {
                if from.is_empty() {
                    continue; // Nothing to differentiate.
                }
                let xs = values_in(dtype, 83, from.len() * width);
                let x = up::<Ad<B>, 2>(&xs, [from.len(), width], dtype, device).require_grad();
                let sets = [&from, &to].map(|list| NodeSet::<Ad<B>>::new(list, nodes, device));
                assert_eq!(sets[1].to_host(), to);
                let out = select_rows(x.clone(), Some(&sets[0]), Some(&sets[1]));
                let place = |node: &u32| from.binary_search(node).ok();
                let row = |at: Option<usize>, of: &[f64]| match at {
                    Some(at) => of[at * width..(at + 1) * width].to_vec(),
                    None => vec![0.0; width],
                };
                let want: Vec<f32> = to.iter().flat_map(|node| row(place(node), &xs)).map(|v| v as f32).collect();
                assert_eq!(down(out.clone().inner()), want, "{} of {} rows", to.len(), from.len());
                if to.is_empty() {
                    continue;
                }
                let grads = backward::<B, 2>(out, dtype);
                let g: Vec<f64> = probe(to.len() * width).iter().map(|&p| dtype.round(p)).collect();
                let want: Vec<f32> =
                    from.iter().flat_map(|node| row(to.binary_search(node).ok(), &g)).map(|v| v as f32).collect();
                assert_eq!(gradient::<B, 2>(&x, &grads), want, "gradient, {} of {} rows", to.len(), from.len());
            }
        }
    }
}

pub fn marks_find_the_sources_of_kept_edges<B: GraphBackend>(device: &B::Device) {
    check_marks::<B>(fixtures(), device);
    // More than one stretch of marks per launch, and none at all.
    let nodes = 5_000;
    for list in node_lists(nodes) {
        let mut marks = NodeMarks::<B>::new(nodes, device);
        marks.add(&NodeSet::new(&list, nodes, device));
        let (pending, other) =
            (NodeMarks::begin_sets(vec![NodeMarks::new(1, device), marks]), NodeMarks::<B>::new(2, device));
        assert!(NodeMarks::into_sets(vec![other])[0].is_empty());
        assert_eq!(pending.end().iter().map(NodeSet::to_host).collect::<Vec<_>>(), [Vec::new(), list]);
    }
}

pub fn check_marks<B: GraphBackend>(graphs: Vec<Fixture>, device: &B::Device) {
    for f in graphs.into_iter().filter(|f| f.num_rows > 0 && f.num_cols > 0) {
        let csr = csr_of::<B>(&f, device);
        let (drop, mask) = half_dropped(&f);
        for wanted in node_lists(f.num_rows) {
            for (drop_edge, kept) in [(None, oracle::keep_all(&f)), (Some(drop), mask.clone())] {
                let rows = NodeSet::new(&wanted, f.num_rows, device);
                let extra = NodeSet::new(&[f.num_cols as u32 - 1], f.num_cols, device);
                let mut marks = NodeMarks::new(f.num_cols, device);
                marks.add(&extra);
                marks.add_sources(&csr.restrict(Some(&rows), None), drop_edge);
                let set = NodeMarks::into_sets(vec![marks]).remove(0);
                let reached = |(e, i, j): (usize, usize, usize)| {
                    (kept[e] && wanted.binary_search(&(i as u32)).is_ok()).then_some(j as u32)
                };
                let mut want: Vec<u32> = f.edges().filter_map(reached).chain([f.num_cols as u32 - 1]).collect();
                want.sort_unstable();
                want.dedup();
                assert_eq!(set.to_host(), want, "{}", f.name);
                assert_eq!(set.len(), want.len(), "{}", f.name);
            }
        }
    }
}

/// A restricted product or attention is that of the graph whose other edges do not exist.
pub fn restricted_operators_match_the_oracle<B: GraphBackend>(device: &B::Device) {
    check_restrictions::<B>(&[(0, 3), (1, 0), (3, 1), (1, 1), (3, 3)], Dtype::F32, device);
}

/// Pairs of numbers of [`node_lists`].
pub fn check_restrictions<B: GraphBackend>(pairs: &[(usize, usize)], dtype: Dtype, device: &B::Device) {
    for f in fixtures().into_iter().filter(|f| f.num_edges() > 0) {
        for &(rows, cols) in pairs {
            let (rows, cols) = (node_lists(f.num_rows)[rows].clone(), node_lists(f.num_cols)[cols].clone());
            check_restricted::<B>(&f, &rows, &cols, dtype, device);
        }
    }
}

pub fn check_restricted<B: GraphBackend>(f: &Fixture, rows: &[u32], cols: &[u32], dtype: Dtype, device: &B::Device) {
    let width = 12;
    let name = format!("{} {dtype:?} between {} and {} nodes", f.name, rows.len(), cols.len());
    // The sub-graph with nodes numbered anew, and its DropEdge fates under the numbers of the whole.
    let (drop, mask) = half_dropped(f);
    let (mut kept, mut edges) = (Vec::new(), Vec::new());
    let part: Vec<Vec<u32>> = (rows.iter())
        .map(|&i| {
            let entries = f.row_ptr[i as usize] as usize..f.row_ptr[i as usize + 1] as usize;
            entries
                .filter_map(|e| {
                    let j = cols.binary_search(&f.col_idx[e]).ok()?;
                    kept.push(mask[e]);
                    edges.push(e as u32);
                    Some(j as u32)
                })
                .collect()
        })
        .collect();
    let part = Fixture::from_rows(&name, cols.len(), &part);
    let sets = (NodeSet::<Ad<B>>::new(rows, f.num_rows, device), NodeSet::<Ad<B>>::new(cols, f.num_cols, device));
    let csr = csr_of::<Ad<B>>(f, device).restrict(Some(&sets.0), Some(&sets.1));
    assert_eq!((csr.num_rows(), csr.num_cols()), (rows.len(), cols.len()), "{name}");
    let xs = values_in(dtype, 84, cols.len() * width);
    let weights: Vec<f64> = probe(rows.len() * width).iter().map(|&p| dtype.round(p)).collect();
    let (forward_len, reverse_len) = longest(&part);

    // SpMM with scales over the whole graph and a self term, and with weights of all edges.
    let scale = |seed, n: usize| -> Vec<f64> {
        values_in(Dtype::F32, seed, n).iter().map(|v| f64::from((v.abs() + 0.1) as f32)).collect()
    };
    let (u, v, s) = (scale(85, f.num_rows), scale(86, f.num_cols), scale(87, f.num_rows));
    let pick = |of: &[f64], nodes: &[u32]| -> Vec<f64> { nodes.iter().map(|&n| of[n as usize]).collect() };
    let own_nodes = node_lists(f.num_rows)[0].clone();
    let hs = values_in(dtype, 88, own_nodes.len() * width);
    let vector = |values: &[f64]| up::<Ad<B>, 1>(values, [values.len()], Dtype::F32, device);
    let (u_part, v_part) = (pick(&u, rows), pick(&v, cols));
    let of_entries = values_in(Dtype::F32, 89, f.num_entries());
    let weight_part = pick(&f.by_edge(&of_entries, 1), &edges);
    for weighted in [false, true] {
        let name = format!("spmm {name}, weights {weighted}");
        let x = up::<Ad<B>, 2>(&xs, [cols.len(), width], dtype, device).require_grad();
        let h = up::<Ad<B>, 2>(&hs, [own_nodes.len(), width], dtype, device).require_grad();
        let config = SpmmConfig {
            dst_scale: Some(vector(&u)),
            src_scale: Some(vector(&v)),
            own: Some(SelfTerm {
                h: h.clone(),
                scale: vector(&s),
                nodes: Some(NodeSet::new(&own_nodes, f.num_rows, device)),
            }),
            drop_edge: Some(drop),
        };
        let edge_weight = weighted.then(|| vector(&of_entries).require_grad());
        let out = spmm(&csr, x.clone(), edge_weight.clone(), config);
        let of_edges = weighted.then_some(&weight_part[..]);
        let factors = SpmmWeights { dst_scale: Some(&u_part), src_scale: Some(&v_part), edge_weight: of_edges };
        let mut want = oracle::spmm(&part, &xs, width, &factors, &kept);
        let mut dh = vec![0.0; hs.len()];
        for (r, node) in rows.iter().enumerate() {
            if let Ok(at) = own_nodes.binary_search(node) {
                for c in 0..width {
                    want[r * width + c] += s[*node as usize] * hs[at * width + c];
                    dh[at * width + c] = s[*node as usize] * weights[r * width + c];
                }
            }
        }
        assert_close(&name, &down(out.clone().inner()), &want, dtype, forward_len + 1);
        let grads = backward::<B, 2>(out, dtype);
        let want = spmm_grad(&part, &xs, width, &factors, &kept, &weights);
        assert_close(&format!("{name}: dx"), &gradient::<B, 2>(&x, &grads), &want.x, dtype, reverse_len);
        assert_close(&format!("{name}: dh"), &gradient::<B, 2>(&h, &grads), &dh, dtype, 1);
        if let Some(edge_weight) = edge_weight {
            // Edges of nodes that are not selected have no gradient.
            let of_part = |size: &dyn Fn(f64) -> f64| {
                let mut all = vec![0.0; f.num_edges()];
                edges.iter().zip(&want.edge_weight).for_each(|(&e, dw)| all[e as usize] = size(*dw));
                f.by_entry(&all, 1)
            };
            let (dw, sizes) = (of_part(&|dw| dw), of_part(&f64::abs));
            let (got, len) = (gradient::<B, 1>(&edge_weight, &grads), width * reverse_len.max(1));
            assert_close_at_scale(&format!("{name}: dw"), &got, &dw, &sizes, Dtype::F32, len);
        }
    }

    // Attention from scores, in f64 on the part that is kept.
    let heads = 3;
    let (ss, ts) = (values_in(dtype, 95, rows.len() * heads), values_in(dtype, 96, cols.len() * heads));
    let x = up::<Ad<B>, 2>(&xs, [cols.len(), width], dtype, device).require_grad();
    let score = |values: &[f64], n: usize| up::<Ad<B>, 2>(values, [n, heads], Dtype::F32, device).require_grad();
    let (s, t) = (score(&ss, rows.len()), score(&ts, cols.len()));
    let config = GatConfig { drop_edge: Some(drop), ..Default::default() };
    let out = attend(&csr, x.clone(), columns(&s, 0), columns(&t, 0), heads, config);
    let input = AttendInput {
        values: &xs,
        score_dst: &ss,
        score_src: &ts,
        heads,
        channels: width / heads,
        slope: f64::from(0.2f32),
        factors: None,
    };
    let (forward_len, reverse_len) = (forward_len + width, reverse_len + width);
    let want = oracle::attend(&part, &input, &kept).out;
    assert_close(&format!("attend {name}"), &down(out.clone().inner()), &want, dtype, forward_len);
    let grads = backward::<B, 2>(out, dtype);
    let want = attend_grad(&part, &input, &kept, &weights);
    // Gradients are differences of sums; their terms give the scale.
    let terms = attend_grad_magnitude(&part, &input, &kept, &weights);
    let close = |what: &str, got: Vec<f32>, want: &[f64], terms: &[f64], len: usize| {
        assert_close_at_scale(&format!("attend {name}: {what}"), &got, want, terms, dtype, len);
    };
    close("dx", gradient::<B, 2>(&x, &grads), &want.values, &terms.values, reverse_len);
    close("ds", gradient::<B, 2>(&s, &grads), &want.score_dst, &terms.score_dst, forward_len);
    close("dt", gradient::<B, 2>(&t, &grads), &want.score_src, &terms.score_src, reverse_len);
}
