//! Graph attention on the CPU: rayon over rows, scores of a row in L1, one gather per edge and direction.

use burn::tensor::ops::{FloatTensor, IntTensor};
use burn_backend::TensorMetadata;
use burn_flex::{Flex, FlexTensor};
use rayon::prelude::*;

use super::{GatArgs, GatBackend, GatForward, GatScalars};
use crate::csr::Topology;
use crate::drop_edge::DropEdge;
use crate::flex::{self, Offsets, ROWS_PER_TASK, Storage, axpy, dot, with_storage};

impl GatBackend for Flex {
    fn gat_forward(
        topology: &Topology<IntTensor<Self>>,
        h_src: FloatTensor<Self>,
        dst_score: FloatTensor<Self>,
        src_score: FloatTensor<Self>,
        args: GatArgs,
        positive: bool,
    ) -> GatForward<FloatTensor<Self>> {
        let h_src = h_src.to_contiguous();
        with_storage!(h_src.dtype(), E => forward::<E>(topology, &h_src, &dst_score, &src_score, args, positive))
    }

    fn gat_backward(
        reverse: &Topology<IntTensor<Self>>,
        g: FloatTensor<Self>,
        h_src: FloatTensor<Self>,
        attention_src: FloatTensor<Self>,
        scalars: GatScalars<FloatTensor<Self>>,
        args: GatArgs,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        let (g, h_src, attention_src) = (g.to_contiguous(), h_src.to_contiguous(), attention_src.to_contiguous());
        with_storage!(h_src.dtype(), E => backward::<E>(reverse, &g, &h_src, &attention_src, &scalars, args))
    }
}

fn leaky_relu(z: f32, slope: f32) -> f32 {
    if z > 0.0 { z } else { slope * z }
}

fn keeps(drop: Option<DropEdge>, row: usize, col: usize) -> bool {
    drop.is_none_or(|d| d.keeps(row as u32, col as u32))
}

fn forward<E: Storage>(
    topology: &Topology<FlexTensor>,
    h_src: &FlexTensor,
    dst_score: &FlexTensor,
    src_score: &FlexTensor,
    args: GatArgs,
    positive: bool,
) -> GatForward<FlexTensor> {
    let (rows, width, heads) = (topology.num_rows, h_src.shape()[1], args.heads);
    let channels = width / heads;
    let hs = flex::slice::<E>(h_src);
    let (s, t) = (flex::slice::<f32>(dst_score), flex::slice::<f32>(src_score));
    let (row_ptr, col_idx) = (Offsets::of(&topology.row_ptr), flex::ids(&topology.col_idx));

    let mut out = vec![E::default(); rows * width];
    let mut log_sum_exp = vec![0f32; rows * heads];
    // Empty slices stand in for what is not asked for.
    let mut out_positive = vec![E::default(); if positive { rows * width } else { 0 }];
    let mut mass_positive = vec![0f32; if positive { rows * heads } else { 0 }];
    let block = ROWS_PER_TASK;
    let tasks = rows.div_ceil(block);
    let mut positive_blocks: Vec<_> = if positive {
        out_positive.chunks_mut(block * width).zip(mass_positive.chunks_mut(block * heads)).map(Some).collect()
    } else {
        (0..tasks).map(|_| None).collect()
    };
    out.par_chunks_mut(block * width)
        .zip(log_sum_exp.par_chunks_mut(block * heads))
        .zip(positive_blocks.par_iter_mut())
        .enumerate()
        .for_each(|(task, ((out, lse), mut positive))| {
            let (mut acc, mut acc_positive, mut scratch) = (vec![0f32; width], vec![0f32; width], vec![0f32; width]);
            let mut sources = Vec::new();
            let mut weights = Vec::new();
            let mut is_positive = Vec::new();
            for (r, out_row) in out.chunks_mut(width).enumerate() {
                let i = task * block + r;
                sources.clear();
                let kept = row_ptr.row(i).map(|e| col_idx[e] as usize).filter(|&j| keeps(args.drop_edge, i, j));
                sources.extend(kept);
                weights.clear();
                weights.resize(sources.len() * heads, 0f32);
                is_positive.clear();
                is_positive.resize(sources.len() * heads, false);
                for h in 0..heads {
                    let own = s[i * heads + h];
                    let mut max = f32::MIN;
                    for (k, &j) in sources.iter().enumerate() {
                        let z = own + t[j * heads + h];
                        is_positive[k * heads + h] = z > 0.0;
                        weights[k * heads + h] = leaky_relu(z, args.negative_slope);
                        max = max.max(weights[k * heads + h]);
                    }
                    let mut sum = 0f32;
                    for k in 0..sources.len() {
                        let w = &mut weights[k * heads + h];
                        *w = (*w - max).exp();
                        sum += *w;
                    }
                    lse[r * heads + h] = if sources.is_empty() { f32::MAX } else { max + sum.ln() };
                    for k in 0..sources.len() {
                        weights[k * heads + h] /= sum;
                    }
                }
                acc.fill(0.0);
                acc_positive.fill(0.0);
                for (k, &j) in sources.iter().enumerate() {
                    let row = E::row(&hs[j * width..(j + 1) * width], &mut scratch);
                    for h in 0..heads {
                        let head = h * channels..(h + 1) * channels;
                        let w = weights[k * heads + h];
                        axpy(&mut acc[head.clone()], w, &row[head.clone()]);
                        if is_positive[k * heads + h]
                            && let Some((_, mass)) = &mut positive
                        {
                            axpy(&mut acc_positive[head.clone()], w, &row[head]);
                            mass[r * heads + h] += w;
                        }
                    }
                }
                E::narrow(&acc, out_row);
                if let Some((out_positive, _)) = &mut positive {
                    E::narrow(&acc_positive, &mut out_positive[r * width..(r + 1) * width]);
                }
            }
        });
    GatForward {
        out: flex::tensor(out, [rows, width]),
        log_sum_exp: flex::tensor(log_sum_exp, [rows, heads]),
        positive: positive
            .then(|| (flex::tensor(out_positive, [rows, width]), flex::tensor(mass_positive, [rows, heads]))),
    }
}

fn backward<E: Storage>(
    reverse: &Topology<FlexTensor>,
    g: &FlexTensor,
    h_src: &FlexTensor,
    attention_src: &FlexTensor,
    scalars: &GatScalars<FlexTensor>,
    args: GatArgs,
) -> (FlexTensor, FlexTensor) {
    let (rows, width, heads) = (reverse.num_rows, h_src.shape()[1], args.heads);
    let channels = width / heads;
    let (gs, hs, a) = (flex::slice::<E>(g), flex::slice::<E>(h_src), flex::slice::<f32>(attention_src));
    let (s, t) = (flex::slice::<f32>(&scalars.dst_score), flex::slice::<f32>(&scalars.src_score));
    let (lse, centre) = (flex::slice::<f32>(&scalars.log_sum_exp), flex::slice::<f32>(&scalars.centre));
    let (row_ptr, col_idx) = (Offsets::of(&reverse.row_ptr), flex::ids(&reverse.col_idx));
    let drop = args.drop_edge.map(DropEdge::reverse);

    let mut dh = vec![E::default(); rows * width];
    let mut dt = vec![0f32; rows * heads];
    dh.par_chunks_mut(ROWS_PER_TASK * width).zip(dt.par_chunks_mut(ROWS_PER_TASK * heads)).enumerate().for_each(
        |(task, (dh, dt))| {
            let (mut own, mut acc, mut scratch) = (vec![0f32; width], vec![0f32; width], vec![0f32; width]);
            for (r, dh_row) in dh.chunks_mut(width).enumerate() {
                let j = task * ROWS_PER_TASK + r;
                let dt = &mut dt[r * heads..(r + 1) * heads];
                E::widen(&hs[j * width..(j + 1) * width], &mut own);
                acc.fill(0.0);
                for e in row_ptr.row(j) {
                    let i = col_idx[e] as usize;
                    if !keeps(drop, j, i) {
                        continue;
                    }
                    let g_row = E::row(&gs[i * width..(i + 1) * width], &mut scratch);
                    for h in 0..heads {
                        let head = h * channels..(h + 1) * channels;
                        let at = i * heads + h;
                        let z = s[at] + t[j * heads + h];
                        let alpha = (leaky_relu(z, args.negative_slope) - lse[at]).exp();
                        let p = dot(&g_row[head.clone()], &own[head.clone()]);
                        let slope = if z > 0.0 { 1.0 } else { args.negative_slope };
                        dt[h] += alpha * (p - centre[at]) * slope;
                        axpy(&mut acc[head.clone()], alpha, &g_row[head]);
                    }
                }
                for (h, &dt) in dt.iter().enumerate() {
                    let head = h * channels..(h + 1) * channels;
                    axpy(&mut acc[head.clone()], dt, &a[head]);
                }
                E::narrow(&acc, dh_row);
            }
        },
    );
    (flex::tensor(dh, [rows, width]), flex::tensor(dt, [rows, heads]))
}
