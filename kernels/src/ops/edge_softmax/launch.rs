//! Edge softmax on CubeCL devices.

use burn_backend::TensorMetadata;
use burn_backend::tensor::{FloatTensor, IntTensor};
use burn_cubecl::CubeRuntime;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::Int;

use super::EdgeSoftmaxBackend;
use super::kernel::{BackwardInputsArgs, RowEdgesArgs, RowEdgesLaunch, softmax_backward_kernel, softmax_kernel};
use crate::graph::csr::Topology;
use crate::runtime::args::array;
use crate::runtime::backends::impl_for_devices;
use crate::runtime::launch::{PlanePerRow, Rows, address, empty};

impl_for_devices! { EdgeSoftmaxBackend =>
    fn edge_softmax_forward(
        topology: &Topology<IntTensor<Self>>,
        edge_map: Option<IntTensor<Self>>,
        logits: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        let out = empty(&logits, [topology.num_edges, logits.meta.shape()[1]], logits.dtype);
        if out.shape().num_elements() == 0 {
            return out;
        }
        let logits = Rows::of(logits);
        let geometry = PlanePerRow::of(&out.client);
        // SAFETY: every index stays inside: row pointers were checked when the CSR was made.
        unsafe {
            softmax_kernel::launch_unchecked::<R>(
                &out.client,
                geometry.count(topology.num_rows),
                geometry.dim,
                address(&[&topology.row_ptr, &logits.tensor, &out]),
                row_edges(topology, &edge_map),
                logits.table(),
                array(&out),
                logits.width,
                edge_map.is_some(),
                [logits.tensor.dtype.into(), topology.row_ptr.dtype.into()],
            );
        }
        out
    }

    fn edge_softmax_backward(
        topology: &Topology<IntTensor<Self>>,
        edge_map: Option<IntTensor<Self>>,
        softmax: FloatTensor<Self>,
        g: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        let out = empty(&softmax, softmax.shape(), softmax.dtype);
        if out.shape().num_elements() == 0 {
            return out;
        }
        let (softmax, g) = (Rows::of(softmax), Rows::of(g));
        let geometry = PlanePerRow::of(&out.client);
        // SAFETY: every index stays inside: row pointers were checked when the CSR was made.
        unsafe {
            softmax_backward_kernel::launch_unchecked::<R>(
                &out.client,
                geometry.count(topology.num_rows),
                geometry.dim,
                address(&[&topology.row_ptr, &softmax.tensor, &g.tensor, &out]),
                row_edges(topology, &edge_map),
                BackwardInputsArgs { softmax: softmax.table(), g: g.table() }.launch(),
                array(&out),
                softmax.width,
                edge_map.is_some(),
                [softmax.tensor.dtype.into(), topology.row_ptr.dtype.into()],
            );
        }
        out
    }
}

fn row_edges<P: Int, R: CubeRuntime>(
    topology: &Topology<CubeTensor<R>>,
    edge_map: &Option<CubeTensor<R>>,
) -> RowEdgesLaunch<P, R> {
    // An argument that the kernel does not read still needs a buffer.
    let edge_map = edge_map.as_ref().unwrap_or(&topology.row_ptr);
    RowEdgesArgs { row_ptr: array(&topology.row_ptr), edge_map: array(edge_map), count: topology.num_rows }.launch()
}
