//! Graph attention on CubeCL devices.

use burn::tensor::{DType, Shape};
use burn_backend::ops::FloatTensorOps;
use burn_backend::tensor::{FloatTensor, IntTensor};
use burn_cubecl::element::BoolElement;
use burn_cubecl::tensor::CubeTensor;
use burn_cubecl::{CubeBackend, CubeRuntime, FloatElement, IntElement};
use cubecl::prelude::CubeCount;

use super::backward_kernel::{gat_backward_kernel, gat_centre_kernel};
use super::inputs_kernel::attention_vector_kernel;
use super::kernel::{GatShape, gat_forward_kernel};
use super::{GatArgs, GatBackend, GatForward, GatScalars, GatTargets, Inputs, Scores, ScoresSoFar};
use crate::graph::csr::View;
use crate::graph::drop_edge::{DropEdge, DropEdgeKey, DropMode};
use crate::graph::row_schedule::{RowLaunch, padded_bytes, row_launches};
use crate::ops::dropout::Dropout;
use crate::ops::dropout::kernel::DropoutKey;
use crate::ops::head::column_sums;
use crate::runtime::launch::{PlanePerRow, Rows, Target, address, empty, f32_vector, zeros};

/// Cubes of a launch that leaves a sum per plane: enough for every multiprocessor of a large GPU.
const MAX_PARTIAL_CUBES: u32 = 1024;

impl<R: CubeRuntime, F: FloatElement, I: IntElement, BT: BoolElement> GatBackend for CubeBackend<R, F, I, BT> {
    fn gat_forward(
        view: &View<IntTensor<Self>>,
        h_src: FloatTensor<Self>,
        dst_score: Scores<FloatTensor<Self>>,
        src_score: Scores<FloatTensor<Self>>,
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
        let result = GatForward { out, log_sum_exp, positive };
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
        for row_launch in
            row_launches(view, args.chunk_rows, padded_bytes(width, &result.out) + handed, args.drop_edge.is_some())
        {
            // SAFETY: every index stays inside: ids were checked against the sizes when the CSR was made.
            unsafe {
                gat_forward_kernel::launch_unchecked::<R>(
                    &result.out.client,
                    row_launch.count,
                    row_launch.dim,
                    address(&[&topology.row_ptr, &topology.col_idx, &h_src.tensor, &result.out]),
                    v,
                    topology.row_ptr.clone().into_array_arg(),
                    topology.col_idx.clone().into_array_arg(),
                    h_src.arg(),
                    dst.matrix.clone().into_array_arg(),
                    src.matrix.clone().into_array_arg(),
                    result.out.clone().into_array_arg(),
                    result.log_sum_exp.clone().into_array_arg(),
                    out_positive.clone().into_array_arg(),
                    mass_positive.clone().into_array_arg(),
                    row_launch.list.into_array_arg(),
                    row_launch.position.into_array_arg(),
                    row_launch.col_position.into_array_arg(),
                    DropEdgeKey::launch(&args.drop_edge),
                    DropoutKey::launch(&args.attention_dropout),
                    args.negative_slope,
                    h_src.stride / v,
                    dst.matrix.meta.shape()[1],
                    dst.first,
                    src.matrix.meta.shape()[1],
                    src.first,
                    width / v,
                    width / args.heads / v,
                    row_launch.start,
                    row_launch.end,
                    shape,
                    row_launch.schedule,
                    [dtype.into(), topology.row_ptr.dtype.into()],
                );
            }
        }
        result
    }

    fn gat_centre(
        g: FloatTensor<Self>,
        forward: &GatForward<FloatTensor<Self>>,
        dst_score: Option<ScoresSoFar<FloatTensor<Self>>>,
        args: GatArgs,
    ) -> (FloatTensor<Self>, Option<FloatTensor<Self>>) {
        let (rows, width) = (g.meta.shape()[0], g.meta.shape()[1]);
        let centre = empty(&g, [rows, args.heads], DType::F32);
        let first = dst_score.as_ref().map_or(0, |(score, _)| score.first);
        let ds = dst_score.map(|(score, onto)| score_target(&score, onto));
        if rows == 0 {
            return (centre, ds.map(|ds| ds.rows.tensor));
        }
        let g = Rows::of(g);
        let geometry = PlanePerRow::of(&centre.client);
        let v = geometry.vector_width(width / args.heads, &[&g]);
        // What the kernel does not read or write still needs a buffer.
        let (out_positive, mass_positive) = match (&ds, &forward.positive) {
            (Some(_), Some((out, mass))) => (out.clone(), mass.clone()),
            _ => (forward.out.clone(), centre.clone()),
        };
        let onto = ds.as_ref().is_some_and(|ds| ds.onto);
        let positive = ds.is_some();
        let written = ds.map_or_else(|| Rows::of(centre.clone()), |ds| ds.rows);
        // SAFETY: the loop ends at the number of rows.
        unsafe {
            gat_centre_kernel::launch_unchecked::<R>(
                &centre.client,
                geometry.count(rows),
                geometry.dim,
                address(&[&g.tensor, &forward.out, &written.tensor]),
                v,
                g.arg(),
                forward.out.clone().into_array_arg(),
                out_positive.into_array_arg(),
                mass_positive.into_array_arg(),
                centre.clone().into_array_arg(),
                written.arg(),
                args.negative_slope,
                g.stride / v,
                written.stride,
                written.width,
                first,
                width / v,
                width / args.heads / v,
                rows,
                args.heads,
                geometry.slots(width / v),
                positive,
                onto,
                g.tensor.dtype.into(),
            );
        }
        (centre, positive.then_some(written.tensor))
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
        let dh = targets.features.then(|| Target::of(targets.onto_features, &h_src, [rows, width], dtype));
        let (dst, src) = (scalars.dst_score.map(f32_vector), scalars.src_score.map(f32_vector));
        // Those of chunks that were put together may have gaps between their rows.
        let [log_sum_exp, centre] = [scalars.log_sum_exp, scalars.centre].map(f32_vector);
        let Target { rows: dt, onto: onto_score } = score_target(&src, targets.onto_score);
        if rows == 0 {
            return (dh.map(|dh| dh.rows.tensor), dt.tensor);
        }
        let (g, h_src) = (Rows::of(g), Rows::of(h_src));
        let onto_features = dh.as_ref().is_some_and(|dh| dh.onto);
        // What the kernel does not read or write still needs a buffer.
        let dh = dh.map_or_else(|| Rows::of(h_src.tensor.clone()), |dh| dh.rows);
        let geometry = PlanePerRow::of(&dt.tensor.client);
        let v = geometry.vector_width(width / args.heads, &[&h_src, &g, &dh]);
        let through_score = attention_src.is_some();
        let attention_src = attention_src.map_or_else(|| dt.tensor.clone(), f32_vector);
        let drop = args.drop_edge.map(DropEdge::reverse);
        let dropout = args.attention_dropout.map(Dropout::reverse);
        let shape = GatShape {
            second: targets.features,
            through_score,
            onto_features,
            onto_score,
            ..shape(&geometry, &args, width / v, &drop, &dropout)
        };
        let handed = handed_bytes(args.heads);
        for row_launch in
            row_launches(reverse, args.chunk_rows, padded_bytes(width, &dt.tensor) + handed, args.drop_edge.is_some())
        {
            // SAFETY: every index stays inside: ids were checked against the sizes when the CSR was made.
            unsafe {
                gat_backward_kernel::launch_unchecked::<R>(
                    &dt.tensor.client,
                    row_launch.count,
                    row_launch.dim,
                    address(&[&topology.row_ptr, &topology.col_idx, &g.tensor, &h_src.tensor, &dh.tensor, &dt.tensor]),
                    v,
                    topology.row_ptr.clone().into_array_arg(),
                    topology.col_idx.clone().into_array_arg(),
                    g.arg(),
                    h_src.arg(),
                    attention_src.clone().into_array_arg(),
                    dst.matrix.clone().into_array_arg(),
                    src.matrix.clone().into_array_arg(),
                    log_sum_exp.clone().into_array_arg(),
                    centre.clone().into_array_arg(),
                    dh.arg(),
                    dt.arg(),
                    row_launch.list.into_array_arg(),
                    row_launch.position.into_array_arg(),
                    row_launch.col_position.into_array_arg(),
                    DropEdgeKey::launch(&drop),
                    DropoutKey::launch(&dropout),
                    args.negative_slope,
                    g.stride / v,
                    h_src.stride / v,
                    dh.stride / v,
                    dt.stride,
                    dst.matrix.meta.shape()[1],
                    dst.first,
                    src.matrix.meta.shape()[1],
                    src.first,
                    width / v,
                    width / args.heads / v,
                    row_launch.start,
                    row_launch.end,
                    shape,
                    row_launch.schedule,
                    [dtype.into(), topology.row_ptr.dtype.into()],
                );
            }
        }
        (targets.features.then_some(dh.tensor), dt.tensor)
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
        let row_launches: Vec<_> =
            (row_launches(view, None, padded_bytes(width, &forward.out), args.drop_edge.is_some()).into_iter())
                .map(|row_launch| {
                    // A plane leaves one partial sum, however many rows it walks.
                    let CubeCount::Static(cubes, ..) = row_launch.count else {
                        unreachable!("row launches count their cubes")
                    };
                    (cubes.min(MAX_PARTIAL_CUBES), row_launch)
                })
                .collect();
        let planes = |(cubes, row_launch): &(u32, RowLaunch<R>)| (*cubes * row_launch.dim.y) as usize;
        let partial = empty(&forward.out, [row_launches.iter().map(planes).sum(), 2 * width], DType::F32);
        let mut first_partial = 0;
        for work in row_launches {
            let own_planes = planes(&work);
            let (cubes, row_launch) = work;
            // SAFETY: every index stays inside: ids were checked against the sizes when the CSR was made.
            unsafe {
                attention_vector_kernel::launch_unchecked::<R>(
                    &partial.client,
                    CubeCount::Static(cubes, 1, 1),
                    row_launch.dim,
                    address(&[&topology.row_ptr, &topology.col_idx, &g.tensor, &x_src.tensor, &x_dst.tensor]),
                    v,
                    topology.row_ptr.clone().into_array_arg(),
                    topology.col_idx.clone().into_array_arg(),
                    g.arg(),
                    forward.out.clone().into_array_arg(),
                    x_src.arg(),
                    x_dst.arg(),
                    dst.matrix.clone().into_array_arg(),
                    src.matrix.clone().into_array_arg(),
                    forward.log_sum_exp.clone().into_array_arg(),
                    partial.clone().into_array_arg(),
                    row_launch.list.into_array_arg(),
                    row_launch.position.into_array_arg(),
                    row_launch.col_position.into_array_arg(),
                    DropEdgeKey::launch(&args.drop_edge),
                    DropoutKey::launch(&args.attention_dropout),
                    args.negative_slope,
                    g.stride / v,
                    x_src.stride / v,
                    x_dst.stride / v,
                    dst.matrix.meta.shape()[1],
                    dst.first,
                    src.matrix.meta.shape()[1],
                    src.first,
                    width / v,
                    first_partial,
                    row_launch.start,
                    row_launch.end,
                    shape,
                    row_launch.schedule,
                    [dtype.into(), topology.row_ptr.dtype.into()],
                );
            }
            first_partial += own_planes;
        }
        Self::float_reshape(column_sums(partial), Shape::new([2, width]))
    }
}

/// Where the gradient of `scores` goes.
fn score_target<R: CubeRuntime>(scores: &Scores<CubeTensor<R>>, onto: Option<CubeTensor<R>>) -> Target<R> {
    let shape = scores.matrix.meta.shape();
    Target::of(onto, &scores.matrix, [shape[0], shape[1]], DType::F32)
}

/// Shared memory per thread that hands over the weights of several heads; twice the weights covers the gaps between heads.
fn handed_bytes(heads: usize) -> usize {
    if heads == 1 { 0 } else { 2 * heads * size_of::<f32>() }
}

fn shape(
    geometry: &PlanePerRow,
    args: &GatArgs,
    vectors: usize,
    drop_edge: &Option<DropEdge>,
    attention_dropout: &Option<Dropout>,
) -> GatShape {
    GatShape {
        heads: args.heads,
        slots: geometry.slots(vectors),
        second: false,
        through_score: false,
        whole: false,
        onto_features: false,
        onto_score: false,
        drop: DropMode::of(drop_edge),
        attention_dropout: DropMode::of(&attention_dropout.map(|dropout| dropout.key)),
    }
}
