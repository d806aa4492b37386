//! Graph attention on CubeCL devices.

use burn::tensor::{DType, Shape};
use burn_backend::ops::FloatTensorOps;
use burn_backend::tensor::{FloatTensor, IntTensor};
use burn_cubecl::CubeRuntime;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::backward_kernel::{
    ArrivalInputsArgs, ArrivalSumsArgs, BackwardInputsArgs, GradientsArgs, gat_arrivals_kernel, gat_backward_kernel,
};
use super::edges::kernel::EdgeShape;
use super::edges::launch::Carried;
use super::edges::{self, EdgeBackward, EdgeGradients, EdgeParts, EdgeSums};
use super::inputs_kernel::{PartialSumsArgs, VectorInputsArgs, attention_vector_kernel};
use super::kernel::{
    AttentionArgs, AttentionLaunch, EdgeSumsArgs, EdgeSumsLaunch, GatShape, HeadLayout, PositiveShareArgs,
    gat_forward_kernel,
};
use super::launch_parts::{PartialLaunch, attended, handed_bytes, in_partial_sums, rules, score, score_target, shape};
use super::{GatArgs, GatBackend, GatForward, GatScalars, GatTargets, Inputs, Scores, arrival_columns};
use crate::graph::csr::View;
use crate::graph::drop_edge::DropEdge;
use crate::graph::row_schedule::{padded_bytes, row_launches};
use crate::ops::dropout::Dropout;
use crate::ops::head::column_sums;
use crate::runtime::args::array;
use crate::runtime::backends::impl_for_devices;
use crate::runtime::launch::{PlanePerRow, Rows, Target, address, empty, f32_vector, vector_width, zeros};

impl_for_devices! { GatBackend =>
    fn gat_forward(
        view: &View<IntTensor<Self>>,
        h_src: FloatTensor<Self>,
        dst_score: Scores<FloatTensor<Self>>,
        src_score: Scores<FloatTensor<Self>>,
        edges: Option<&EdgeParts<FloatTensor<Self>, IntTensor<Self>>>,
        args: GatArgs,
        positive: bool,
    ) -> GatForward<FloatTensor<Self>> {
        let (width, dtype) = (h_src.meta.shape()[1], h_src.dtype);
        let (topology, rows) = (&view.topology, view.num_rows());
        let out = empty(&h_src, [rows, width], dtype);
        let log_sum_exp = empty(&h_src, [rows, args.heads], DType::F32);
        let positive = positive.then(|| {
            let mass = empty(&h_src, [rows, args.heads], DType::F32);
            (empty(&h_src, [rows, width], dtype), mass)
        });
        let edge_sums = edges.map(|edges| {
            let sums = || empty(&h_src, [rows, args.heads * edges.columns()], dtype);
            EdgeSums { out: sums(), positive: positive.is_some().then(sums) }
        });
        let result = GatForward { out, log_sum_exp, positive, edges: edge_sums };
        if rows == 0 {
            return result;
        }
        let h_src = Rows::of(h_src);
        let geometry = PlanePerRow::of(&result.out.client);
        let v = geometry.vector_width(width / args.heads, &[&h_src]);
        // What the kernel does not write still needs a buffer.
        let (out_positive, mass_positive) =
            result.positive.clone().unwrap_or_else(|| (result.out.clone(), result.log_sum_exp.clone()));
        let (dst, src) = (dst_score.map(f32_vector), src_score.map(f32_vector));
        let shape = GatShape {
            second: result.positive.is_some(),
            whole: dst.whole,
            ..shape(&geometry, &args, width / v, &args.drop_edge, &args.attention_dropout)
        };
        let handed = handed_bytes(args.heads);
        let carried = edges.map(|edges| Carried::of(edges, false));
        let carries = carried.as_ref().map_or_else(EdgeShape::default, |carried| carried.shape);
        let mut addressed = vec![&topology.row_ptr, &topology.col_idx, &h_src.tensor, &result.out];
        addressed.extend(carried.iter().flat_map(Carried::tensors));
        for row_launch in
            row_launches(view, padded_bytes(width, &result.out) + handed, args.drop_edge.is_some())
        {
            // SAFETY: every index stays inside: ids were checked against the sizes when the CSR was made.
            unsafe {
                gat_forward_kernel::launch_unchecked::<R>(
                    &result.out.client,
                    row_launch.count.clone(),
                    row_launch.dim,
                    address(&addressed),
                    v,
                    carried.as_ref().map_or(1, |carried| carried.vector),
                    topology.edges(),
                    h_src.matrix(v),
                    carried.as_ref().map(Carried::launch).into(),
                    attention(&dst, &src, &args, &args.drop_edge, &args.attention_dropout),
                    attended(&result),
                    PositiveShareArgs { out: array(&out_positive), mass: array(&mass_positive) }.launch(),
                    result.edges.as_ref().map(edge_sums_of).into(),
                    row_launch.rows(),
                    row_launch.columns(),
                    HeadLayout::of(width, args.heads, v),
                    shape,
                    carries,
                    row_launch.schedule,
                    [dtype.into(), topology.row_ptr.dtype.into()],
                );
            }
        }
        result
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
        let (rows, width) = (g.meta.shape()[0], g.meta.shape()[1]);
        let edge_columns = edges_g.as_ref().map_or(0, |edges_g| edges_g.meta.shape()[1] / args.heads);
        let arrivals = empty(&g, [rows, args.heads * arrival_columns(edge_columns)], DType::F32);
        let ds = of_score.then(|| score_target(&dst_score, accumulate_into));
        if rows == 0 {
            return (arrivals, ds.map(|ds| ds.rows.tensor));
        }
        let (g, dst_score) = (Rows::of(g), dst_score.map(f32_vector));
        let geometry = PlanePerRow::of(&arrivals.client);
        let v = geometry.vector_width(width / args.heads, &[&g]);
        // What the kernel does not read or write still needs a buffer.
        let (out_positive, mass_positive) = match (&ds, &forward.positive) {
            (Some(_), Some((out, mass))) => (out.clone(), mass.clone()),
            _ => (forward.out.clone(), forward.log_sum_exp.clone()),
        };
        let accumulate_into = ds.as_ref().is_some_and(|ds| ds.accumulate_into);
        let positive = ds.is_some();
        let of_edges = edges_g.map(|edges_g| {
            let sums = forward.edges.as_ref().expect("the forward pass of edges that carry something gives their sums");
            (into_contiguous(edges_g), sums)
        });
        let of_edges = of_edges.map(|(g, sums)| {
            let positive = sums.positive.as_ref().unwrap_or(&sums.out);
            ArrivalSumsArgs { g: array(&g), out: array(&sums.out), positive: array(positive) }.launch()
        });
        let written = ds.map_or_else(|| Rows::of(arrivals.clone()), |ds| ds.rows);
        // SAFETY: the loop ends at the number of rows.
        unsafe {
            gat_arrivals_kernel::launch_unchecked::<R>(
                &arrivals.client,
                geometry.count(rows),
                geometry.dim,
                address(&[&g.tensor, &forward.out, &dst_score.matrix, &arrivals, &written.tensor]),
                v,
                g.matrix(v),
                ArrivalInputsArgs {
                    score: score(&dst_score),
                    out: array(&forward.out),
                    log_sum_exp: array(&forward.log_sum_exp),
                    positive: PositiveShareArgs { out: array(&out_positive), mass: array(&mass_positive) }.launch(),
                }
                .launch(),
                of_edges.into(),
                array(&arrivals),
                written.table(),
                args.negative_slope,
                HeadLayout::of(width, args.heads, v),
                rows,
                args.heads,
                geometry.slots(width / v),
                edge_columns,
                positive,
                accumulate_into,
                g.tensor.dtype.into(),
            );
        }
        (arrivals, positive.then_some(written.tensor))
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
        let (width, dtype) = (h_src.meta.shape()[1], h_src.dtype);
        let (topology, rows) = (&reverse.topology, reverse.num_rows());
        let dh = targets.features.then(|| Target::of(targets.accumulate_features, &h_src, [rows, width], dtype));
        let src = scalars.src_score.map(f32_vector);
        let Target { rows: dt, accumulate_into: accumulate_score } = score_target(&src, targets.accumulate_score);
        if rows == 0 {
            return (dh.map(|dh| dh.rows.tensor), dt.tensor);
        }
        let (g, h_src, arrivals) = (Rows::of(g), Rows::of(h_src), Rows::of(scalars.arrivals));
        let accumulate_features = dh.as_ref().is_some_and(|dh| dh.accumulate_into);
        // What the kernel does not read or write still needs a buffer.
        let dh = dh.map_or_else(|| Rows::of(h_src.tensor.clone()), |dh| dh.rows);
        let geometry = PlanePerRow::of(&dt.tensor.client);
        let v = geometry.vector_width(width / args.heads, &[&h_src, &g, &dh]);
        let arrivals_vector = vector_width(arrival_columns(0), &[&arrivals]);
        let through_score = attention_src.is_some();
        let attention_src = attention_src.map_or_else(|| dt.tensor.clone(), f32_vector);
        let drop = args.drop_edge.map(DropEdge::reverse);
        let dropout = args.attention_dropout.map(Dropout::reverse);
        let shape = GatShape {
            second: targets.features,
            through_score,
            accumulate_features,
            accumulate_score,
            ..shape(&geometry, &args, width / v, &drop, &dropout)
        };
        let handed = handed_bytes(args.heads);
        let mut addressed = vec![&topology.row_ptr, &topology.col_idx, &g.tensor, &h_src.tensor, &dh.tensor];
        addressed.extend([&dt.tensor, &arrivals.tensor]);
        for row_launch in
            row_launches(reverse, padded_bytes(width, &dt.tensor) + handed, args.drop_edge.is_some())
        {
            // SAFETY: every index stays inside: ids were checked against the sizes when the CSR was made.
            unsafe {
                gat_backward_kernel::launch_unchecked::<R>(
                    &dt.tensor.client,
                    row_launch.count.clone(),
                    row_launch.dim,
                    address(&addressed),
                    v,
                    arrivals_vector,
                    topology.edges(),
                    BackwardInputsArgs {
                        g: g.matrix(v),
                        h_src: h_src.matrix(v),
                        score: score(&src),
                        arrivals: arrivals.matrix(arrivals_vector),
                    }
                    .launch(),
                    array(&attention_src),
                    rules(&args, &drop, &dropout),
                    GradientsArgs { dh: dh.matrix(v), dt: dt.table() }.launch(),
                    row_launch.rows(),
                    row_launch.columns(),
                    HeadLayout::of(width, args.heads, v),
                    shape,
                    row_launch.schedule,
                    [dtype.into(), topology.row_ptr.dtype.into()],
                );
            }
        }
        (targets.features.then_some(dh.tensor), dt.tensor)
    }

    fn gat_edges_backward(
        reverse: &View<IntTensor<Self>>,
        inputs: EdgeBackward<FloatTensor<Self>, IntTensor<Self>>,
        args: GatArgs,
        targets: GatTargets<FloatTensor<Self>>,
    ) -> EdgeGradients<FloatTensor<Self>> {
        edges::launch::backward(reverse, inputs, args, targets)
    }

    fn attention_vector_gradient(
        view: &View<IntTensor<Self>>,
        g: FloatTensor<Self>,
        inputs: Inputs<FloatTensor<Self>>,
        forward: GatForward<FloatTensor<Self>>,
        args: GatArgs,
    ) -> FloatTensor<Self> {
        let (width, dtype) = (g.meta.shape()[1], g.dtype);
        let topology = &view.topology;
        if view.num_rows() == 0 {
            return zeros(&g, [2, width], DType::F32);
        }
        let (g, x_src, x_dst) = (Rows::of(g), Rows::of(inputs.x_src), Rows::of(inputs.x_dst));
        let (dst, src) = (inputs.dst_score.map(f32_vector), inputs.src_score.map(f32_vector));
        let geometry = PlanePerRow::of(&forward.out.client);
        let v = geometry.vector_width(width, &[&g, &x_src, &x_dst]);
        let shape = GatShape {
            whole: dst.whole,
            ..shape(&geometry, &args, width / v, &args.drop_edge, &args.attention_dropout)
        };
        let row_launches = row_launches(view, padded_bytes(width, &forward.out), args.drop_edge.is_some());
        let (launches, planes) = in_partial_sums(row_launches, 2 * width);
        let partial = empty(&forward.out, [planes, 2 * width], DType::F32);
        for PartialLaunch { row_launch, cubes, first } in launches {
            // SAFETY: every index stays inside: ids were checked against the sizes when the CSR was made.
            unsafe {
                attention_vector_kernel::launch_unchecked::<R>(
                    &partial.client,
                    CubeCount::Static(cubes, 1, 1),
                    row_launch.dim,
                    address(&[&topology.row_ptr, &topology.col_idx, &g.tensor, &x_src.tensor, &x_dst.tensor]),
                    v,
                    topology.edges(),
                    VectorInputsArgs {
                        g: g.matrix(v),
                        results: attended(&forward),
                        x_src: x_src.matrix(v),
                        x_dst: x_dst.matrix(v),
                    }
                    .launch(),
                    attention(&dst, &src, &args, &args.drop_edge, &args.attention_dropout),
                    array(&partial),
                    row_launch.rows(),
                    row_launch.columns(),
                    PartialSumsArgs { first, vectors: width / v }.launch(),
                    shape,
                    row_launch.schedule,
                    [dtype.into(), topology.row_ptr.dtype.into()],
                );
            }
        }
        Self::float_reshape(column_sums(partial), Shape::new([2, width]))
    }
}

fn attention<R: CubeRuntime>(
    dst: &Scores<CubeTensor<R>>,
    src: &Scores<CubeTensor<R>>,
    args: &GatArgs,
    drop_edge: &Option<DropEdge>,
    dropout: &Option<Dropout>,
) -> AttentionLaunch<R> {
    AttentionArgs { dst: score(dst), src: score(src), rules: rules(args, drop_edge, dropout) }.launch()
}

fn edge_sums_of<F: Float, R: CubeRuntime>(sums: &EdgeSums<CubeTensor<R>>) -> EdgeSumsLaunch<F, R> {
    let positive = sums.positive.as_ref().unwrap_or(&sums.out);
    EdgeSumsArgs { out: array(&sums.out), positive: array(positive) }.launch()
}
