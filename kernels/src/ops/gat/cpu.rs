//! Graph attention on the CPU: rayon over rows, weights of a row in L1, one gather per edge and direction.

use burn::tensor::FloatDType;
use burn::tensor::ops::{FloatTensor, IntTensor};
use burn_backend::TensorMetadata;
use burn_backend::ops::FloatTensorOps;
use burn_flex::{Flex, FlexTensor};
use rayon::prelude::*;

use super::cpu_parts::{Factors, ROWS_PER_SUM, ScoreTable};
use super::edges::cpu::{Carried, RowOfEdges};
use super::edges::{self, EdgeBackward, EdgeGradients, EdgeParts, EdgeSums};
use super::{GatArgs, GatBackend, GatForward, GatScalars, GatTargets, Inputs, Scores, arrival_columns};
use crate::graph::csr::View;
use crate::graph::drop_edge::DropEdge;
use crate::graph::row_entries::RowEntries;
use crate::ops::dropout::Dropout;
use crate::ops::head::HeadBackend;
use crate::runtime::flex::{self, ROWS_PER_TASK, Storage, axpy, dot, with_storage};
use crate::runtime::rows::{
    Columns, Unwritten, attention_weights, exp_all, leaky_relu, runs, scores_of, weights_again, zeroed,
};

impl GatBackend for Flex {
    fn gat_forward(
        view: &View<IntTensor<Self>>,
        h_src: FloatTensor<Self>,
        dst_score: Scores<FloatTensor<Self>>,
        src_score: Scores<FloatTensor<Self>>,
        edges: Option<&EdgeParts<FloatTensor<Self>, IntTensor<Self>>>,
        args: GatArgs,
        positive: bool,
    ) -> GatForward<FloatTensor<Self>> {
        let (h_src, s, t) = (h_src.to_contiguous(), contiguous(dst_score), contiguous(src_score));
        let edges = edges.map(edges::cpu::contiguous);
        with_storage!(h_src.dtype(), E => forward::<E>(view, &h_src, [&s, &t], edges.as_ref(), args, positive))
    }

    fn gat_arrivals(
        g: FloatTensor<Self>,
        edges_g: Option<FloatTensor<Self>>,
        forward: &GatForward<FloatTensor<Self>>,
        dst_score: Scores<FloatTensor<Self>>,
        of_score: bool,
        accumulate_into: Option<FloatTensor<Self>>,
        args: GatArgs,
    ) -> (FloatTensor<Self>, Option<FloatTensor<Self>>) {
        let of_edges = |g: FloatTensor<Self>, sums: Option<&FlexTensor>| {
            let sums = sums.expect("the forward pass of edges that carry something gives their sums");
            Self::head_dot(g, sums.clone(), args.heads)
        };
        let mut delta = Self::head_dot(g.clone(), forward.out.clone(), args.heads);
        let sums = forward.edges.as_ref();
        if let Some(edges_g) = edges_g.clone() {
            delta = Self::float_add(delta, of_edges(edges_g, sums.map(|sums| &sums.out)));
        }
        let dst_score = contiguous(dst_score);
        let ds = of_score.then(|| {
            let (out, mass) = forward.positive.as_ref().expect("the recorded forward pass saves the positive share");
            let mut positive = Self::head_dot(g, out.clone(), args.heads);
            if let Some(edges_g) = edges_g.clone() {
                let sums = sums.and_then(|sums| sums.positive.as_ref());
                positive = Self::float_add(positive, of_edges(edges_g, sums));
            }
            score_gradient(&delta, &positive, mass, &dst_score, args, accumulate_into)
        });
        let edges_g = edges_g.map(|edges_g| Self::float_cast(edges_g, FloatDType::F32).to_contiguous());
        (arrivals(&dst_score, &forward.log_sum_exp, &delta, edges_g.as_ref(), args.heads), ds)
    }

    fn gat_backward(
        reverse: &View<IntTensor<Self>>,
        g: FloatTensor<Self>,
        h_src: FloatTensor<Self>,
        attention_src: Option<FloatTensor<Self>>,
        scalars: GatScalars<FloatTensor<Self>>,
        args: GatArgs,
        targets: GatTargets<FloatTensor<Self>>,
    ) -> (Option<FloatTensor<Self>>, FloatTensor<Self>) {
        let (g, h_src, attention_src) =
            (g.to_contiguous(), h_src.to_contiguous(), attention_src.map(|a| a.to_contiguous()));
        let scalars =
            GatScalars { arrivals: scalars.arrivals.to_contiguous(), src_score: contiguous(scalars.src_score) };
        with_storage!(h_src.dtype(), E => {
            backward::<E>(reverse, &g, &h_src, attention_src.as_ref(), &scalars, args, targets)
        })
    }

    fn gat_edges_backward(
        reverse: &View<IntTensor<Self>>,
        inputs: EdgeBackward<FloatTensor<Self>, IntTensor<Self>>,
        args: GatArgs,
        targets: GatTargets<FloatTensor<Self>>,
    ) -> EdgeGradients<FloatTensor<Self>> {
        let edges = edges::cpu::contiguous(&inputs.edges);
        let inputs = EdgeBackward { edges, ..inputs }.map(|f| f.to_contiguous());
        with_storage!(inputs.h_src.dtype(), E => edges::cpu::backward::<E>(reverse, &inputs, args, targets))
    }

    fn attention_vector_gradient(
        view: &View<IntTensor<Self>>,
        g: FloatTensor<Self>,
        inputs: Inputs<FloatTensor<Self>>,
        forward: GatForward<FloatTensor<Self>>,
        args: GatArgs,
    ) -> FloatTensor<Self> {
        let (g, inputs) = (g.to_contiguous(), inputs.map(|f| f.to_contiguous()));
        with_storage!(g.dtype(), E => vector_gradient::<E>(view, &g, &inputs, &forward, args))
    }
}

fn contiguous(scores: Scores<FlexTensor>) -> Scores<FlexTensor> {
    scores.map(|matrix| matrix.to_contiguous())
}

fn forward<E: Storage>(
    view: &View<FlexTensor>,
    h_src: &FlexTensor,
    [dst_score, src_score]: [&Scores<FlexTensor>; 2],
    edges: Option<&EdgeParts<FlexTensor, FlexTensor>>,
    args: GatArgs,
    positive: bool,
) -> GatForward<FlexTensor> {
    let (rows, width, heads) = (view.num_rows(), h_src.shape()[1], args.heads);
    let hs = flex::slice::<E>(h_src);
    let (s, t) = (ScoreTable::of(dst_score), ScoreTable::of(src_score));
    let row_entries = RowEntries::new(view, args.drop_edge);
    let carried = edges.map(|edges| Carried::<E>::of(edges, args.heads, false));
    let edge_width = edges.map_or(0, |edges| heads * edges.columns());

    let block = ROWS_PER_TASK;
    let tasks = rows.div_ceil(block);
    let mut out = Unwritten::<E>::new(rows * width, block * width);
    let mut log_sum_exp = Unwritten::<f32>::new(rows * heads, block * heads);
    // Empty slices stand in for what is not asked for.
    let mut out_positive = Unwritten::<E>::new(if positive { rows * width } else { 0 }, block * width);
    let mut mass_positive = Unwritten::<f32>::new(if positive { rows * heads } else { 0 }, block * heads);
    let mut edge_out = zeroed::<E>(rows * edge_width);
    let mut edge_positive = zeroed::<E>(if positive { rows * edge_width } else { 0 });
    let mut edge_blocks = edges::cpu::blocks(&mut edge_out, &mut edge_positive, block * edge_width, tasks);
    let mut positive_blocks: Vec<_> = if positive {
        out_positive.blocks().zip(mass_positive.blocks()).map(Some).collect()
    } else {
        (0..tasks).map(|_| None).collect()
    };
    out.blocks()
        .zip(log_sum_exp.blocks())
        .zip(positive_blocks.par_iter_mut())
        .zip(edge_blocks.par_iter_mut())
        .enumerate()
        .for_each(|(task, (((out, lse), positive), edge_sums))| {
            let (out, lse) = (out.open(), lse.open());
            let mut positive = positive.take().map(|(out, mass)| (out.open(), mass.open()));
            let mut row_edges = RowOfEdges::new(edge_width);
            let (mut acc, mut acc_positive) = (vec![0f32; width], vec![0f32; width]);
            let (mut sources, mut scores) = (Vec::new(), vec![Vec::new(); heads]);
            let (mut weights, mut share) = (vec![Vec::new(); heads], vec![Vec::new(); heads]);
            let mut factors = Factors::new(args.attention_dropout, heads);
            for (r, out_row) in out.chunks_mut(width).enumerate() {
                let i = task * block + r;
                match &carried {
                    Some(carried) => carried.row(&row_entries, row_entries.node(i), &mut sources, &mut row_edges),
                    None => row_entries.sources(row_entries.node(i), &mut sources),
                }
                factors.of_row(row_entries.node(i), &sources);
                row_entries.locate(&mut sources);
                E::request_first(hs, width, &sources);
                acc.fill(0.0);
                acc_positive.fill(0.0);
                let scored = if dst_score.whole { row_entries.node(i) } else { i };
                scores_of(&mut scores, s.row(scored, heads), t.at(&sources));
                for h in 0..heads {
                    if let Some(carried) = &carried {
                        carried.add_scores(h, &row_edges, &mut scores[h]);
                    }
                    let found = attention_weights(&mut scores[h], &mut weights[h], &mut share[h], args.negative_slope);
                    lse[r * heads + h] = if sources.is_empty() { f32::MAX } else { found.max + found.sum.ln() };
                    if let Some((_, mass)) = &mut positive {
                        mass[r * heads + h] = found.mass;
                    }
                    factors.apply(h, &mut share[h]);
                    factors.apply(h, &mut weights[h]);
                    if carried.is_some() {
                        row_edges.add(h, &weights[h], positive.is_some().then_some(&share[h][..]));
                    }
                }
                if carried.is_some() {
                    edge_sums.put(r, &mut row_edges);
                }
                match &mut positive {
                    Some((out_positive, _)) => {
                        E::add_heads([&mut acc, &mut acc_positive], hs, &sources, [&weights, &share]);
                        E::narrow(&acc_positive, &mut out_positive[r * width..(r + 1) * width]);
                    }
                    None => E::add_heads([&mut acc], hs, &sources, [&weights]),
                }
                E::narrow(&acc, out_row);
            }
        });
    let tensor = |values: Unwritten<E>| flex::tensor(values.written(), [rows, width]);
    let of_heads = |values: Unwritten<f32>| flex::tensor(values.written(), [rows, heads]);
    GatForward {
        out: tensor(out),
        log_sum_exp: of_heads(log_sum_exp),
        positive: positive.then(|| (tensor(out_positive), of_heads(mass_positive))),
        edges: edges.map(|_| EdgeSums {
            out: flex::tensor(edge_out, [rows, edge_width]),
            positive: positive.then(|| flex::tensor(edge_positive, [rows, edge_width])),
        }),
    }
}

/// Adds `ds_i = (1 - slope) (<g_i, y+_i> - c_i A+_i)` to the columns of `score`.
fn score_gradient(
    delta: &FlexTensor,
    positive: &FlexTensor,
    mass: &FlexTensor,
    score: &Scores<FlexTensor>,
    args: GatArgs,
    accumulate_into: Option<FlexTensor>,
) -> FlexTensor {
    let (rows, columns) = (score.matrix.shape()[0], score.matrix.shape()[1]);
    let parts = [delta, positive, mass].map(flex::slice::<f32>);
    let mut ds = flex::target::<f32>(accumulate_into, [rows, columns]);
    flex::slice_mut::<f32>(&mut ds).par_chunks_mut(columns).enumerate().with_min_len(flex::at_least(columns)).for_each(
        |(i, row)| {
            let [delta, positive, mass] = parts.map(|part| &part[i * args.heads..(i + 1) * args.heads]);
            for (h, ds) in row[score.first..score.first + args.heads].iter_mut().enumerate() {
                *ds += (1.0 - args.negative_slope) * (positive[h] - delta[h] * mass[h]);
            }
        },
    );
    ds
}

/// [`GatScalars::arrivals`].
fn arrivals(
    score: &Scores<FlexTensor>,
    log_sum_exp: &FlexTensor,
    delta: &FlexTensor,
    edges_g: Option<&FlexTensor>,
    heads: usize,
) -> FlexTensor {
    let (score, [log_sum_exp, delta]) = (ScoreTable::of(score), [log_sum_exp, delta].map(flex::slice::<f32>));
    let sums = edges_g.map_or(0, |edges_g| edges_g.shape()[1] / heads);
    let edges_g: &[f32] = edges_g.map_or(&[], flex::slice::<f32>);
    let columns = arrival_columns(sums);
    let mut arrivals = zeroed::<f32>(delta.len() * columns);
    arrivals.par_chunks_exact_mut(columns).enumerate().with_min_len(flex::at_least(columns)).for_each(|(at, row)| {
        row[..3].copy_from_slice(&[score.get(at / heads, at % heads), log_sum_exp[at], delta[at]]);
        row[3..3 + sums].copy_from_slice(&edges_g[at * sums..(at + 1) * sums]);
    });
    flex::tensor(arrivals, [delta.len() / heads, heads * columns])
}

/// `dt_j = <sum_i f_ij a_ij l_ij g_i, h_j> - sum_i a_ij l_ij c_i` with `l_ij` the slope of the leaky ReLU and `f_ij`
/// the factor of dropout: two sums of rows instead of a product per edge.
fn backward<E: Storage>(
    reverse: &View<FlexTensor>,
    g: &FlexTensor,
    h_src: &FlexTensor,
    attention_src: Option<&FlexTensor>,
    scalars: &GatScalars<FlexTensor>,
    args: GatArgs,
    targets: GatTargets<FlexTensor>,
) -> (Option<FlexTensor>, FlexTensor) {
    let (rows, width, heads) = (reverse.num_rows(), h_src.shape()[1], args.heads);
    let channels = width / heads;
    let (gs, hs) = (flex::slice::<E>(g), flex::slice::<E>(h_src));
    let attention = attention_src.map(flex::slice::<f32>);
    let (arrivals, t) = (flex::slice::<f32>(&scalars.arrivals), ScoreTable::of(&scalars.src_score));
    let row_entries = RowEntries::new(reverse, args.drop_edge.map(DropEdge::reverse));

    let block = ROWS_PER_TASK;
    let columns = t.columns;
    let adds = targets.accumulate_features.is_some();
    let mut dh = targets.features.then(|| flex::target::<E>(targets.accumulate_features, [rows, width]));
    let mut dt = flex::target::<f32>(targets.accumulate_score, [rows, columns]);
    let mut dh_blocks: Vec<Option<&mut [E]>> = match &mut dh {
        Some(dh) => flex::slice_mut::<E>(dh).chunks_mut(block * width).map(Some).collect(),
        None => (0..rows.div_ceil(block)).map(|_| None).collect(),
    };
    let dt_blocks = flex::slice_mut::<f32>(&mut dt).par_chunks_mut(block * columns);
    dt_blocks.zip(dh_blocks.par_iter_mut()).enumerate().for_each(|(task, (dt, dh))| {
        let (mut own, mut acc, mut acc_positive) = (vec![0f32; width], vec![0f32; width], vec![0f32; width]);
        let (mut targets, mut centres) = (Vec::new(), vec![0f32; heads]);
        let (mut weights, mut share) = (vec![Vec::new(); heads], vec![Vec::new(); heads]);
        let mut factors = Factors::new(args.attention_dropout.map(Dropout::reverse), heads);
        for (r, row) in dt.chunks_mut(columns).enumerate() {
            let j = task * block + r;
            row_entries.sources(row_entries.node(j), &mut targets);
            if targets.is_empty() {
                continue;
            }
            factors.of_row(row_entries.node(j), &targets);
            row_entries.locate(&mut targets);
            E::request_first(gs, width, &targets);
            E::widen(&hs[j * width..(j + 1) * width], &mut own);
            acc.fill(0.0);
            acc_positive.fill(0.0);
            let slope = |w: f32, positive: f32| positive + args.negative_slope * (w - positive);
            let arriving = Columns { table: arrivals, stride: heads * arrival_columns(0), at: 0, ids: &targets };
            weights_again([&mut weights, &mut share], &mut centres, t.row(j, heads), arriving, args.negative_slope);
            for h in 0..heads {
                factors.apply(h, &mut weights[h]);
                factors.apply(h, &mut share[h]);
            }
            E::add_heads([&mut acc, &mut acc_positive], gs, &targets, [&weights, &share]);
            for (h, (dt, centre)) in row[t.first..].iter_mut().zip(&centres).enumerate() {
                let head = h * channels..(h + 1) * channels;
                let own = &own[head.clone()];
                let sum = slope(dot(&acc[head.clone()], own), dot(&acc_positive[head.clone()], own)) - centre;
                *dt += sum;
                if let Some(attention) = attention {
                    axpy(&mut acc[head.clone()], sum, &attention[head]);
                }
            }
            if let Some(dh) = dh {
                let row = &mut dh[r * width..(r + 1) * width];
                if adds {
                    axpy(&mut acc, 1.0, E::row(row, &mut own));
                }
                E::narrow(&acc, row);
            }
        }
    });
    (dh, dt)
}

/// `dv_0 = sum_i (sum_j dz_ij) x_i`, `dv_1 = sum_ij dz_ij x_j` with `dz_ij = a_ij l_ij (f_ij <g_i, x_j> - <g_i, y_i>)`.
fn vector_gradient<E: Storage>(
    view: &View<FlexTensor>,
    g: &FlexTensor,
    inputs: &Inputs<FlexTensor>,
    forward: &GatForward<FlexTensor>,
    args: GatArgs,
) -> FlexTensor {
    let (rows, width) = (view.num_rows(), g.shape()[1]);
    let (gs, ys) = (flex::slice::<E>(g), flex::slice::<E>(&forward.out));
    let (x_src, x_dst) = (flex::slice::<E>(&inputs.x_src), flex::slice::<E>(&inputs.x_dst));
    let (s, t) = (ScoreTable::of(&inputs.dst_score), ScoreTable::of(&inputs.src_score));
    let lse = flex::slice::<f32>(&forward.log_sum_exp);
    let row_entries = RowEntries::new(view, args.drop_edge);
    let task = |first: usize| {
        let mut sums = vec![0f32; 2 * width];
        let (to_dst, to_src) = sums.split_at_mut(width);
        let (mut own, mut wide) = (vec![0f32; width], vec![0f32; width]);
        let (mut sources, mut weights, mut products) = (Vec::new(), Vec::new(), Vec::new());
        let mut factors = Factors::new(args.attention_dropout, 1);
        for (i, &own_log) in lse.iter().enumerate().skip(first).take(ROWS_PER_SUM) {
            let node = row_entries.node(i);
            row_entries.sources(node, &mut sources);
            factors.of_row(node, &sources);
            row_entries.locate(&mut sources);
            if sources.is_empty() {
                continue;
            }
            let row = i * width..(i + 1) * width;
            E::widen(&gs[row.clone()], &mut own);
            let delta = dot(&own, E::row(&ys[row], &mut wide));
            let scored = if inputs.dst_score.whole { node } else { i };
            let score = |j: u32| s.get(scored, 0) + t.get(j as usize, 0);
            weights.clear();
            weights.extend(sources.iter().map(|&j| leaky_relu(score(j), args.negative_slope) - own_log));
            exp_all(&mut weights);
            products.resize(sources.len(), 0.0);
            let mut ds = 0.0;
            for run in runs(sources.len()) {
                let ids = &sources[run.start..];
                E::dot_rows(&mut products[run.clone()], &own, x_src, width, 0, ids);
                for (k, &j) in run.clone().zip(ids) {
                    let slope = if score(j) > 0.0 { 1.0 } else { args.negative_slope };
                    weights[k] *= slope * (factors.of(0, k) * products[k] - delta);
                    ds += weights[k];
                }
                E::add_rows(to_src, x_src, width, 0, ids, &weights[run]);
            }
            axpy(to_dst, ds, E::row(&x_dst[node * width..(node + 1) * width], &mut wide));
        }
        sums
    };
    let starts: Vec<usize> = (0..rows).step_by(ROWS_PER_SUM).collect();
    let parts: Vec<Vec<f32>> = starts.into_par_iter().map(task).collect();
    let mut sums = vec![0f32; 2 * width];
    for part in &parts {
        axpy(&mut sums, 1.0, part);
    }
    flex::tensor(sums, [2, width])
}
