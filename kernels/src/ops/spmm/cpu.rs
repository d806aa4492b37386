//! SpMM on the CPU: rayon over blocks of rows, f32 sums in registers and L1.

use burn::tensor::ops::{FloatTensor, IntTensor};
use burn::tensor::{DType, Shape, TensorMetadata};
use burn_flex::{Flex, FlexTensor};
use rayon::prelude::*;

use super::{EdgeWeight, OwnRows, SpmmArgs, SpmmBackend};
use crate::graph::csr::{EdgeIds, Topology, View};
use crate::graph::row_entries::RowEntries;
use crate::graph::row_index::Groups;
use crate::runtime::flex::{self, Offsets, ROWS_PER_TASK, Storage, axpy, dot, with_storage};
use crate::runtime::rows::in_blocks;

impl SpmmBackend for Flex {
    fn spmm_forward(
        view: &View<IntTensor<Self>>,
        x: FloatTensor<Self>,
        weight: Option<EdgeWeight<FloatTensor<Self>, IntTensor<Self>>>,
        own: Option<OwnRows<FloatTensor<Self>, IntTensor<Self>>>,
        args: &SpmmArgs<FloatTensor<Self>>,
        accumulate_into: Option<FloatTensor<Self>>,
    ) -> FloatTensor<Self> {
        let x = x.to_contiguous();
        let own = own.map(|o| OwnRows { h: o.h.to_contiguous(), scale: o.scale.to_contiguous(), nodes: o.nodes });
        with_storage!(x.dtype(), E => forward::<E>(view, &x, weight, own.as_ref(), args, accumulate_into))
    }

    fn spmm_groups(
        groups: &Groups<IntTensor<Self>>,
        x: FloatTensor<Self>,
        weight: Option<FloatTensor<Self>>,
        num_rows: usize,
        accumulate_into: Option<FloatTensor<Self>>,
    ) -> FloatTensor<Self> {
        let x = x.to_contiguous();
        with_storage!(x.dtype(), E => group_sums::<E>(groups, &x, weight, num_rows, accumulate_into))
    }

    fn spmm_weight_gradient(
        view: &View<IntTensor<Self>>,
        edge_map: Option<IntTensor<Self>>,
        g: FloatTensor<Self>,
        x: FloatTensor<Self>,
        args: &SpmmArgs<FloatTensor<Self>>,
        accumulate_into: Option<FloatTensor<Self>>,
    ) -> FloatTensor<Self> {
        let (g, x) = (g.to_contiguous(), x.to_contiguous());
        let out = weight_target(accumulate_into, view.topology.num_edges);
        with_storage!(x.dtype(), E => weight_gradient::<E>(view, edge_map.as_ref(), &g, &x, args, out))
    }

    fn spmm_shared_weight_gradient(
        view: &View<IntTensor<Self>>,
        sharers: &Topology<IntTensor<Self>>,
        g: FloatTensor<Self>,
        x: FloatTensor<Self>,
        args: &SpmmArgs<FloatTensor<Self>>,
        accumulate_into: Option<FloatTensor<Self>>,
    ) -> FloatTensor<Self> {
        let (g, x) = (g.to_contiguous(), x.to_contiguous());
        let out = weight_target(accumulate_into, view.topology.num_entries);
        with_storage!(x.dtype(), E => shared_weight_gradient::<E>(view, sharers, &g, &x, args, out))
    }
}

/// Where gradients of weights go, as [`flex::target`] has it.
fn weight_target(accumulate_into: Option<FlexTensor>, len: usize) -> FlexTensor {
    let column = |so_far: FlexTensor| so_far.to_contiguous().reshape(Shape::new([len, 1]));
    flex::target::<f32>(accumulate_into.map(column), [len, 1])
}

fn forward<E: Storage>(
    view: &View<FlexTensor>,
    x: &FlexTensor,
    weight: Option<EdgeWeight<FlexTensor, FlexTensor>>,
    own: Option<&OwnRows<FlexTensor, FlexTensor>>,
    args: &SpmmArgs<FlexTensor>,
    accumulate_into: Option<FlexTensor>,
) -> FlexTensor {
    let (rows, d) = (view.num_rows(), x.shape()[1]);
    let xs = flex::slice::<E>(x);
    let row_entries = RowEntries::new(view, args.drop_edge);
    let weights = weight.as_ref().map(|w| w.weight.to_contiguous());
    let weights = weights.as_ref().map(flex::slice::<f32>);
    let (edges, of_rows) = weight.as_ref().and_then(|w| w.edge.clone()).map(EdgeIds::split).unzip();
    let (edges, of_rows) = (edges.as_ref().map(Offsets::of), of_rows.unwrap_or(false));
    let (dst_scale, src_scale) = (contiguous(&args.dst_scale), contiguous(&args.src_scale));
    let (dst_scale, src_scale) =
        (dst_scale.as_ref().map(flex::slice::<f32>), src_scale.as_ref().map(flex::slice::<f32>));

    let own = own.map(|o| {
        (flex::slice::<E>(&o.h), flex::slice::<f32>(&o.scale), o.nodes.as_ref().map(|set| flex::ids(&set.position)))
    });

    let adds = accumulate_into.is_some();
    let plain = row_entries.plain() && weights.is_none() && src_scale.is_none();
    // Whether a row is the sum over its entries as it is.
    let bare = E::dtype() == DType::F32 && !adds && own.is_none() && dst_scale.is_none();
    // What follows the sum over the entries of node `i`.
    let finish = |i: usize, is_empty: bool, acc: &mut [f32], out_row: &mut [E], scratch: &mut [f32]| {
        if adds && is_empty && own.is_none() {
            return;
        }
        if let Some(u) = dst_scale {
            acc.iter_mut().for_each(|a| *a *= u[i]);
        }
        if let Some((h, scale, position)) = own {
            let at = position.map_or(i as i32, |p| p[i]);
            if at >= 0 && scale[i] != 0.0 {
                E::add_rows(acc, h, d, 0, &[at as u32], &[scale[i]]);
            }
        }
        if adds {
            axpy(acc, 1.0, E::row(out_row, scratch));
        }
        E::narrow(acc, out_row);
    };
    // Rows have ten entries or so at least, else they cost little.
    flex::by_task::<E>(accumulate_into, [rows, d], 10 * d, &|task, block| {
        let node = |r: usize| row_entries.node(task * ROWS_PER_TASK + r);
        let ids = |r: usize| row_entries.entries_ahead(node(r));
        if plain && bare {
            return E::sum_rows(bytemuck::cast_slice_mut(block), xs, d, ids);
        }
        let mut scratch = vec![0f32; d];
        if plain {
            let mut sums = vec![0f32; block.len()];
            E::sum_rows(&mut sums, xs, d, ids);
            let each = sums.chunks_mut(d.max(1)).zip(block.chunks_mut(d.max(1))).enumerate();
            return each.for_each(|(r, (acc, row))| finish(node(r), ids(r).1 == 0, acc, row, &mut scratch));
        }
        let (mut acc, mut sources, mut factors, mut entries) = (vec![0f32; d], Vec::new(), Vec::new(), Vec::new());
        for (r, out_row) in block.chunks_mut(d.max(1)).enumerate() {
            let i = node(r);
            acc.fill(0.0);
            factors.clear();
            match weights {
                // Weights belong to positions among the entries, which a list of sources does not tell.
                Some(weights) => {
                    row_entries.sources_and_entries(i, &mut sources, &mut entries);
                    let edge = |e: usize| edges.map_or(e, |map| map.get(if of_rows { i } else { e }));
                    factors.extend(entries.iter().map(|&e| weights[edge(e)]));
                }
                None => {
                    row_entries.sources(i, &mut sources);
                    factors.resize(sources.len(), 1.0);
                }
            }
            if let Some(v) = src_scale {
                factors.iter_mut().zip(&sources).for_each(|(f, &j)| *f *= v[j as usize]);
            }
            row_entries.locate(&mut sources);
            E::add_rows(&mut acc, xs, d, 0, &sources, &factors);
            finish(i, sources.is_empty(), &mut acc, out_row, &mut scratch);
        }
    })
}

fn group_sums<E: Storage>(
    groups: &Groups<FlexTensor>,
    x: &FlexTensor,
    weight: Option<FlexTensor>,
    num_rows: usize,
    accumulate_into: Option<FlexTensor>,
) -> FlexTensor {
    let d = x.shape()[1];
    let xs = flex::slice::<E>(x);
    let weight = weight.map(|w| w.to_contiguous());
    let weight = weight.as_ref().map(flex::slice::<f32>);
    let (rows, row_ptr) = (flex::ids(&groups.rows), Offsets::of(&groups.row_ptr));
    let (entry, position) = (flex::ids(&groups.entry), flex::ids(&groups.position));
    let mut out = flex::target::<E>(accumulate_into, [num_rows, d]);
    let values = flex::slice_mut::<E>(&mut out);
    let fewest = flex::at_least(ROWS_PER_TASK * 2 * d);
    let (sums, _) = in_blocks::<E, _>(groups.num_groups * d, (ROWS_PER_TASK * d).max(1), fewest, &|task, block| {
        let (mut acc, mut scratch) = (vec![0f32; d], vec![0f32; d]);
        for (r, sum) in block.chunks_mut(d.max(1)).enumerate() {
            let g = task * ROWS_PER_TASK + r;
            acc.fill(0.0);
            for k in row_ptr.row(g) {
                let j = entry[k] as usize;
                let w = weight.map_or(1.0, |w| w[position[k] as usize]);
                axpy(&mut acc, w, E::row(&xs[j * d..(j + 1) * d], &mut scratch));
            }
            let row = rows[g] as usize;
            axpy(&mut acc, 1.0, E::row(&values[row * d..(row + 1) * d], &mut scratch));
            E::narrow(&acc, sum);
        }
    });
    for (sum, &row) in sums.chunks_exact(d.max(1)).zip(rows) {
        values[row as usize * d..][..d].copy_from_slice(sum);
    }
    out
}

/// Rows whose products are made before they are written: enough for all threads, few enough to hold.
const ROWS_AT_A_TIME: usize = 1 << 14;

fn weight_gradient<E: Storage>(
    view: &View<FlexTensor>,
    edge_map: Option<&FlexTensor>,
    g: &FlexTensor,
    x: &FlexTensor,
    args: &SpmmArgs<FlexTensor>,
    mut out: FlexTensor,
) -> FlexTensor {
    let d = x.shape()[1];
    let (gs, xs) = (flex::slice::<E>(g), flex::slice::<E>(x));
    let row_entries = RowEntries::new(view, args.drop_edge);
    let edges = edge_map.map(Offsets::of);
    let (dst_scale, src_scale) = (contiguous(&args.dst_scale), contiguous(&args.src_scale));
    let (dst_scale, src_scale) =
        (dst_scale.as_ref().map(flex::slice::<f32>), src_scale.as_ref().map(flex::slice::<f32>));
    let of_row = |r: usize| {
        let i = row_entries.node(r);
        let (mut sources, mut entries, mut own) = (Vec::new(), Vec::new(), vec![0f32; d]);
        row_entries.sources_and_entries(i, &mut sources, &mut entries);
        E::widen(&gs[r * d..(r + 1) * d], &mut own);
        let mut scales: Vec<f32> = vec![dst_scale.map_or(1.0, |u| u[i]); sources.len()];
        if let Some(v) = src_scale {
            scales.iter_mut().zip(&sources).for_each(|(scale, &j)| *scale *= v[j as usize]);
        }
        row_entries.locate(&mut sources);
        let mut products = vec![0f32; sources.len()];
        E::dot_rows(&mut products, &own, xs, d, 0, &sources);
        products.iter_mut().zip(scales).for_each(|(product, scale)| *product *= scale);
        (entries, products)
    };
    let values = flex::slice_mut::<f32>(&mut out);
    let rows = view.num_rows();
    for start in (0..rows).step_by(ROWS_AT_A_TIME) {
        let some = start..rows.min(start + ROWS_AT_A_TIME);
        let found: Vec<_> = some.into_par_iter().with_min_len(ROWS_PER_TASK).map(of_row).collect();
        for (entries, products) in found {
            for (entry, product) in entries.into_iter().zip(products) {
                values[edges.map_or(entry, |map| map.get(entry))] += product;
            }
        }
    }
    out.reshape(Shape::new([view.topology.num_edges]))
}

fn shared_weight_gradient<E: Storage>(
    view: &View<FlexTensor>,
    sharers: &Topology<FlexTensor>,
    g: &FlexTensor,
    x: &FlexTensor,
    args: &SpmmArgs<FlexTensor>,
    mut out: FlexTensor,
) -> FlexTensor {
    let d = x.shape()[1];
    let (gs, xs) = (flex::slice::<E>(g), flex::slice::<E>(x));
    let (dst_scale, src_scale) = (contiguous(&args.dst_scale), contiguous(&args.src_scale));
    let (dst_scale, src_scale) =
        (dst_scale.as_ref().map(flex::slice::<f32>), src_scale.as_ref().map(flex::slice::<f32>));
    let (nodes, rows) = (flex::ids(&view.topology.col_idx), flex::ids(&sharers.col_idx));
    let (row_ptr, ends) = (Offsets::of(&sharers.row_ptr), sharers.ends());
    let [row_position, col_position] =
        [&view.rows, &view.cols].map(|set| set.as_ref().map(|set| flex::ids(&set.position)));
    let place = |position: Option<&[i32]>, node: i32| position.map_or(node, |position| position[node as usize]);
    let values = flex::slice_mut::<f32>(&mut out);
    values.par_chunks_mut(ROWS_PER_TASK).enumerate().for_each(|(task, gradients)| {
        let (mut ids, mut factors) = (Vec::new(), Vec::new());
        let (mut sums, mut scratch) = (vec![0f32; d], vec![0f32; d]);
        for (k, gradient) in gradients.iter_mut().enumerate() {
            let entry = task * ROWS_PER_TASK + k;
            let (j, at) = (nodes[entry] as usize, place(col_position, nodes[entry]));
            if at < 0 {
                continue;
            }
            ids.clear();
            factors.clear();
            for &i in &rows[row_ptr.get(entry)..row_ptr.get(entry + ends)] {
                let r = place(row_position, i);
                if r >= 0 && args.drop_edge.is_none_or(|drop| drop.keeps(i as u32, j as u32)) {
                    ids.push(r as u32);
                    factors.push(dst_scale.map_or(1.0, |u| u[i as usize]));
                }
            }
            if ids.is_empty() {
                continue;
            }
            sums.fill(0.0);
            E::add_rows(&mut sums, gs, d, 0, &ids, &factors);
            let own = E::row(&xs[at as usize * d..][..d], &mut scratch);
            *gradient += src_scale.map_or(1.0, |v| v[j]) * dot(&sums, own);
        }
    });
    out.reshape(Shape::new([view.topology.num_entries]))
}

fn contiguous(tensor: &Option<FlexTensor>) -> Option<FlexTensor> {
    tensor.as_ref().map(FlexTensor::to_contiguous)
}
