//! Graph attention on CubeCL devices.

use burn::tensor::DType;
use burn_backend::tensor::{FloatTensor, IntTensor};
use burn_cubecl::element::BoolElement;
use burn_cubecl::{CubeBackend, CubeRuntime, FloatElement, IntElement};

use super::kernel::{GatShape, gat_backward_kernel, gat_forward_kernel};
use super::{GatArgs, GatBackend, GatForward, GatScalars};
use crate::csr::Topology;
use crate::drop_edge::{DropEdge, DropEdgeKey, DropMode};
use crate::launch::{PlanePerRow, Rows, address, chunks, empty, f32_vector, vector_width};

impl<R: CubeRuntime, F: FloatElement, I: IntElement, BT: BoolElement> GatBackend for CubeBackend<R, F, I, BT> {
    fn gat_forward(
        topology: &Topology<IntTensor<Self>>,
        h_src: FloatTensor<Self>,
        dst_score: FloatTensor<Self>,
        src_score: FloatTensor<Self>,
        args: GatArgs,
        positive: bool,
    ) -> GatForward<FloatTensor<Self>> {
        let (width, dtype) = (h_src.meta.shape()[1], h_src.dtype);
        let out = empty(&h_src, [topology.num_rows, width], dtype);
        let log_sum_exp = empty(&h_src, [topology.num_rows, args.heads], DType::F32);
        let positive = positive.then(|| {
            let mass = empty(&h_src, [topology.num_rows, args.heads], DType::F32);
            (empty(&h_src, [topology.num_rows, width], dtype), mass)
        });
        let result = GatForward { out, log_sum_exp, positive };
        if topology.num_rows == 0 {
            return result;
        }
        let h_src = Rows::of(h_src);
        let v = vector_width(width / args.heads, &[&h_src]);
        let geometry = PlanePerRow::of(&result.out.client);
        // What the kernel does not write still needs a buffer.
        let (out_positive, mass_positive) =
            result.positive.clone().unwrap_or_else(|| (result.out.clone(), result.log_sum_exp.clone()));
        for (start, end) in chunks(topology.num_rows, args.chunk_rows) {
            // SAFETY: every index stays inside: ids were checked against the sizes when the CSR was made.
            unsafe {
                gat_forward_kernel::launch_unchecked::<R>(
                    &result.out.client,
                    geometry.count(end - start),
                    geometry.dim,
                    address(&[&topology.row_ptr, &topology.col_idx, &h_src.tensor, &result.out]),
                    v,
                    topology.row_ptr.clone().into_array_arg(),
                    topology.col_idx.clone().into_array_arg(),
                    h_src.arg(),
                    dst_score.clone().into_array_arg(),
                    src_score.clone().into_array_arg(),
                    result.out.clone().into_array_arg(),
                    result.log_sum_exp.clone().into_array_arg(),
                    out_positive.clone().into_array_arg(),
                    mass_positive.clone().into_array_arg(),
                    DropEdgeKey::launch(&args.drop_edge),
                    args.negative_slope,
                    h_src.stride / v,
                    width / v,
                    width / args.heads / v,
                    start,
                    end,
                    shape(&geometry, args.heads, width / v, result.positive.is_some(), &args.drop_edge),
                    [dtype.into(), topology.row_ptr.dtype.into()],
                );
            }
        }
        result
    }

    fn gat_backward(
        reverse: &Topology<IntTensor<Self>>,
        g: FloatTensor<Self>,
        h_src: FloatTensor<Self>,
        attention_src: FloatTensor<Self>,
        scalars: GatScalars<FloatTensor<Self>>,
        args: GatArgs,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        let (width, dtype) = (h_src.meta.shape()[1], h_src.dtype);
        let dh = empty(&h_src, [reverse.num_rows, width], dtype);
        let dt = empty(&h_src, [reverse.num_rows, args.heads], DType::F32);
        if reverse.num_rows == 0 {
            return (dh, dt);
        }
        let (g, h_src) = (Rows::of(g), Rows::of(h_src));
        let v = vector_width(width / args.heads, &[&h_src, &g]);
        let geometry = PlanePerRow::of(&dh.client);
        let attention_src = f32_vector(attention_src);
        let drop = args.drop_edge.map(DropEdge::reverse);
        for (start, end) in chunks(reverse.num_rows, args.chunk_rows) {
            // SAFETY: every index stays inside: ids were checked against the sizes when the CSR was made.
            unsafe {
                gat_backward_kernel::launch_unchecked::<R>(
                    &dh.client,
                    geometry.count(end - start),
                    geometry.dim,
                    address(&[&reverse.row_ptr, &reverse.col_idx, &g.tensor, &h_src.tensor, &dh]),
                    v,
                    reverse.row_ptr.clone().into_array_arg(),
                    reverse.col_idx.clone().into_array_arg(),
                    g.arg(),
                    h_src.arg(),
                    attention_src.clone().into_array_arg(),
                    scalars.dst_score.clone().into_array_arg(),
                    scalars.src_score.clone().into_array_arg(),
                    scalars.log_sum_exp.clone().into_array_arg(),
                    scalars.centre.clone().into_array_arg(),
                    dh.clone().into_array_arg(),
                    dt.clone().into_array_arg(),
                    DropEdgeKey::launch(&drop),
                    args.negative_slope,
                    g.stride / v,
                    h_src.stride / v,
                    width / v,
                    width / args.heads / v,
                    start,
                    end,
                    shape(&geometry, args.heads, width / v, false, &drop),
                    [dtype.into(), reverse.row_ptr.dtype.into()],
                );
            }
        }
        (dh, dt)
    }
}

fn shape(
    geometry: &PlanePerRow,
    heads: usize,
    vectors: usize,
    positive: bool,
    drop_edge: &Option<DropEdge>,
) -> GatShape {
    GatShape {
        heads,
        slots: geometry.slots(vectors),
        ballot_words: (geometry.plane as usize).div_ceil(32),
        positive,
        drop: DropMode::of(drop_edge),
    }
}
