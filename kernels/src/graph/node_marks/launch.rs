//! Node sets on CubeCL devices.

use std::future::{Future, poll_fn};
use std::task::{Context, Poll, Waker};

use burn::tensor::DType;
use burn_backend::tensor::IntTensor;
use burn_cubecl::CubeRuntime;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;
use cubecl::reader::read_sync;

use super::kernel::{
    MarkSizesArgs, MarkedArgs, NodeListArgs, count_kernel, fill_kernel, list_kernel, mark_sources_kernel, scan_kernel,
    scatter_kernel,
};
use super::{NodeSetBackend, PendingCounts};
use crate::DropEdge;
use crate::graph::csr::View;
use crate::graph::drop_edge::{DropEdgeKey, DropMode};
use crate::graph::row_schedule::row_launches;
use crate::runtime::args::array;
use crate::runtime::backends::impl_for_devices;
use crate::runtime::launch::{PlanePerRow, address, empty, flat};

/// Nodes that one plane counts and lists: a multiple of those that all lanes of any plane read at a time.
const STRETCH: usize = 1024;
/// Nodes that a lane reads at a time.
const PER_LANE: usize = 8;

fn scatter<R: CubeRuntime>(rows: &CubeTensor<R>, len: usize, out: &CubeTensor<R>, place: bool) {
    if len == 0 {
        return;
    }
    let (count, dim) = flat(len);
    // SAFETY: the set was made of nodes of this type.
    unsafe {
        scatter_kernel::launch_unchecked::<R>(&out.client, count, dim, array(rows), array(out), len, place);
    }
}

impl_for_devices! { NodeSetBackend =>
    fn node_positions(rows: &IntTensor<Self>, len: usize, num_nodes: usize) -> IntTensor<Self> {
        let out = empty(rows, [num_nodes.max(1)], DType::I32);
        let (count, dim) = flat(num_nodes.max(1));
        // SAFETY: the loop ends at the length of the array.
        unsafe {
            fill_kernel::launch_unchecked::<R>(&out.client, count, dim, array(&out), -1, num_nodes.max(1));
        }
        scatter(rows, len, &out, true);
        out
    }

    fn mark_nodes(marks: IntTensor<Self>, rows: &IntTensor<Self>, len: usize) -> IntTensor<Self> {
        scatter(rows, len, &marks, false);
        marks
    }

    fn mark_sources(
        marks: IntTensor<Self>,
        view: &View<IntTensor<Self>>,
        drop_edge: Option<DropEdge>,
    ) -> IntTensor<Self> {
        let topology = &view.topology;
        for row_launch in row_launches(view, 0, true) {
            // SAFETY: every index stays inside: ids were checked against the sizes when the CSR was made.
            unsafe {
                mark_sources_kernel::launch_unchecked::<R>(
                    &marks.client,
                    row_launch.count.clone(),
                    row_launch.dim,
                    address(&[&topology.row_ptr, &topology.col_idx]),
                    topology.edges(),
                    row_launch.rows(),
                    array(&marks),
                    DropEdgeKey::launch(&drop_edge),
                    DropMode::of(&drop_edge),
                    row_launch.schedule,
                    topology.row_ptr.dtype.into(),
                );
            }
        }
        marks
    }

    fn compact_marks(marks: IntTensor<Self>, num_nodes: usize) -> (IntTensor<Self>, IntTensor<Self>, IntTensor<Self>) {
        let list = empty(&marks, [num_nodes.max(1)], DType::I32);
        let position = empty(&marks, [num_nodes.max(1)], DType::I32);
        let total = empty(&marks, [1], DType::I32);
        let stretches = num_nodes.div_ceil(STRETCH);
        let counts = empty(&marks, [stretches.max(1)], DType::I32);
        let sizes = || MarkSizesArgs { nodes: num_nodes, stretches }.launch();
        let geometry = PlanePerRow::of(&marks.client);
        let client = &marks.client;
        let one_plane = CubeDim { x: geometry.plane, y: 1, z: 1 };
        // SAFETY: the loops end at the number of nodes and of stretches.
        unsafe {
            if stretches > 0 {
                count_kernel::launch_unchecked::<R>(
                    client,
                    geometry.count(stretches),
                    geometry.dim,
                    array(&marks),
                    array(&counts),
                    sizes(),
                    STRETCH,
                    PER_LANE,
                );
            }
            scan_kernel::launch_unchecked::<R>(
                client,
                CubeCount::Static(1, 1, 1),
                one_plane,
                array(&counts),
                array(&total),
                stretches,
            );
            if stretches > 0 {
                list_kernel::launch_unchecked::<R>(
                    client,
                    geometry.count(stretches),
                    geometry.dim,
                    MarkedArgs { marks: array(&marks), firsts: array(&counts) }.launch(),
                    NodeListArgs { rows: array(&list), position: array(&position) }.launch(),
                    sizes(),
                    STRETCH,
                    PER_LANE,
                );
            }
        }
        (list, position, total)
    }

    fn begin_counts(counts: Vec<IntTensor<Self>>) -> PendingCounts {
        let Some(client) = counts.first().map(|count| count.client.clone()) else { return Box::new(Vec::new) };
        let handles = counts.into_iter().map(|count| count.handle).collect();
        let mut reading = Box::pin(async move {
            // The first poll comes as far as the first `await`: the copy is queued, and nothing is waited for.
            let copied = client.read_async(handles);
            let mut is_queued = false;
            let second = |_: &mut Context<'_>| match std::mem::replace(&mut is_queued, true) {
                true => Poll::Ready(()),
                false => Poll::Pending,
            };
            poll_fn(second).await;
            copied.await
        });
        _ = reading.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        Box::new(move || {
            let copied = read_sync(reading).expect("the numbers of marked nodes can be read");
            copied.iter().map(|bytes| i32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])).collect()
        })
    }
}
