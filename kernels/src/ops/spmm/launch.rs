//! SpMM on CubeCL devices: strides, vector width, chunks of rows, launch.

use burn::tensor::DType;
use burn_backend::TensorMetadata;
use burn_backend::tensor::{FloatTensor, IntTensor};
use burn_cubecl::CubeRuntime;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::{Float, Size};

use super::kernel::{
    EntryNodesArgs, OwnTermArgs, ScalesArgs, SpmmInputsArgs, SpmmShape, WeightInputsArgs, WeightInputsLaunch,
    WeightsArgs, shared_weight_gradient_kernel, spmm_kernel, weight_gradient_kernel,
};
use super::{EdgeWeight, OwnRows, SpmmArgs, SpmmBackend};
use crate::graph::csr::{EdgeIds, Topology, View};
use crate::graph::drop_edge::{DropEdgeKey, DropMode};
use crate::graph::row_index::Groups;
use crate::graph::row_schedule::kernel::EdgesArgs;
use crate::graph::row_schedule::{RowLaunch, padded_bytes, plane_launch, row_launches, scattered_launch};
use crate::runtime::args::array;
use crate::runtime::backends::impl_for_devices;
use crate::runtime::launch::{PlanePerRow, Rows, Target, address, empty, f32_vector, vector_width, zeros};

impl_for_devices! { SpmmBackend =>
    fn spmm_forward(
        view: &View<IntTensor<Self>>,
        x: FloatTensor<Self>,
        weight: Option<EdgeWeight<FloatTensor<Self>, IntTensor<Self>>>,
        own: Option<OwnRows<FloatTensor<Self>, IntTensor<Self>>>,
        args: &SpmmArgs<FloatTensor<Self>>,
        accumulate_into: Option<FloatTensor<Self>>,
    ) -> FloatTensor<Self> {
        let width = x.meta.shape()[1];
        let out = Target::of(accumulate_into, &x, [view.num_rows(), width], x.dtype);
        if out.rows.tensor.shape().num_elements() == 0 {
            return out.rows.tensor;
        }
        let (weight, edge_map) = match weight {
            Some(w) => (Some(w.weight), w.edge),
            None => (None, None),
        };
        // A team holds a row of f32 vectors, padded to whole planes.
        let row_launches = row_launches(view, padded_bytes(width, &x), args.drop_edge.is_some());
        let Topology { row_ptr, col_idx, .. } = &view.topology;
        let sparse = Sparse { row_ptr, col_idx, ends: view.topology.ends() };
        launch(sparse, row_launches, x, Factors { weight, edge_map, own }, args, out)
    }

    fn spmm_groups(
        groups: &Groups<IntTensor<Self>>,
        x: FloatTensor<Self>,
        weight: Option<FloatTensor<Self>>,
        num_rows: usize,
        accumulate_into: Option<FloatTensor<Self>>,
    ) -> FloatTensor<Self> {
        let shape = [num_rows, x.meta.shape()[1]];
        let is_given = accumulate_into.is_some();
        let accumulate_into = accumulate_into.unwrap_or_else(|| zeros(&x, shape, x.dtype));
        // Fresh zeros are not worth reading.
        let out = Target { accumulate_into: is_given, ..Target::of(Some(accumulate_into), &x, shape, x.dtype) };
        if shape[0] * shape[1] == 0 || groups.num_groups == 0 {
            return out.rows.tensor;
        }
        let edge_map = weight.is_some().then(|| EdgeIds::OfEntries(groups.position.clone()));
        let none = SpmmArgs { dst_scale: None, src_scale: None, drop_edge: None };
        let sparse = Sparse { row_ptr: &groups.row_ptr, col_idx: &groups.entry, ends: 1 };
        let row_launches = vec![scattered_launch(&groups.rows, groups.num_groups)];
        launch(sparse, row_launches, x, Factors { weight, edge_map, own: None }, &none, out)
    }

    fn spmm_weight_gradient(
        view: &View<IntTensor<Self>>,
        edge_map: Option<IntTensor<Self>>,
        g: FloatTensor<Self>,
        x: FloatTensor<Self>,
        args: &SpmmArgs<FloatTensor<Self>>,
        accumulate_into: Option<FloatTensor<Self>>,
    ) -> FloatTensor<Self> {
        let topology = &view.topology;
        // Edges of rows that are not selected are not visited.
        let (out, adds) = weight_target(accumulate_into, &x, topology.num_edges, view.rows.is_some());
        if topology.num_edges == 0 || view.num_rows() == 0 || view.num_cols() == 0 {
            return if adds { out } else { zeros(&x, [topology.num_edges], DType::F32) };
        }
        let pass = WeightPass::new(g, x, args, adds);
        let row_launch = plane_launch(view, None, 1);
        // SAFETY: every index stays inside: ids were checked against the sizes when the CSR was made.
        unsafe {
            weight_gradient_kernel::launch_unchecked::<R>(
                &out.client,
                row_launch.count.clone(),
                row_launch.dim,
                address(&[&topology.row_ptr, &topology.col_idx, &pass.of_rows.tensor, &pass.of_columns.tensor, &out]),
                pass.vector,
                topology.edges(),
                // An argument that the kernel does not read still needs a buffer.
                array(edge_map.as_ref().unwrap_or(&topology.row_ptr)),
                pass.inputs(args),
                array(&out),
                row_launch.rows(),
                row_launch.columns(),
                DropEdgeKey::launch(&args.drop_edge),
                pass.vectors,
                SpmmShape { edge_map: edge_map.is_some(), ..pass.shape },
                row_launch.schedule,
                [pass.of_rows.tensor.dtype.into(), topology.row_ptr.dtype.into()],
            );
        }
        out
    }

    fn spmm_shared_weight_gradient(
        view: &View<IntTensor<Self>>,
        sharers: &Topology<IntTensor<Self>>,
        g: FloatTensor<Self>,
        x: FloatTensor<Self>,
        args: &SpmmArgs<FloatTensor<Self>>,
        accumulate_into: Option<FloatTensor<Self>>,
    ) -> FloatTensor<Self> {
        let entries = view.topology.num_entries;
        let (out, adds) = weight_target(accumulate_into, &x, entries, false);
        if entries == 0 || view.num_rows() == 0 || view.num_cols() == 0 {
            return if adds { out } else { zeros(&x, [entries], DType::F32) };
        }
        let args = args.clone().reverse();
        let pass = WeightPass::new(x, g, &args, adds);
        let by_entry = View { topology: sharers.clone(), rows: None, cols: view.rows.clone() };
        let (node, position) = (&view.topology.col_idx, view.cols.as_ref().map(|cols| &cols.position));
        // A plane of a team hands over one sum.
        for row_launch in row_launches(&by_entry, size_of::<f32>(), args.drop_edge.is_some()) {
            // SAFETY: every index stays inside: ids were checked against the sizes when the CSR was made.
            unsafe {
                shared_weight_gradient_kernel::launch_unchecked::<R>(
                    &out.client,
                    row_launch.count.clone(),
                    row_launch.dim,
                    address(&[&sharers.row_ptr, &sharers.col_idx, node, &pass.of_rows.tensor, &pass.of_columns.tensor]),
                    pass.vector,
                    sharers.edges(),
                    EntryNodesArgs { node: array(node), position: array(position.unwrap_or(node)) }.launch(),
                    pass.inputs(&args),
                    array(&out),
                    row_launch.rows(),
                    row_launch.columns(),
                    DropEdgeKey::launch(&args.drop_edge),
                    pass.vectors,
                    pass.shape,
                    position.is_some(),
                    row_launch.schedule,
                    [pass.of_rows.tensor.dtype.into(), sharers.row_ptr.dtype.into()],
                );
            }
        }
        out
    }
}

/// Where gradients of `len` weights go, and whether they are added to those that are there. Where only some are
/// written, all start from zero.
fn weight_target<R: CubeRuntime>(
    accumulate_into: Option<CubeTensor<R>>,
    like: &CubeTensor<R>,
    len: usize,
    some: bool,
) -> (CubeTensor<R>, bool) {
    match accumulate_into {
        Some(so_far) => {
            let so_far = f32_vector(so_far);
            (if so_far.can_mut() || len == 0 { so_far } else { so_far.copy() }, true)
        }
        None if some => (zeros(like, [len], DType::F32), false),
        None => (empty(like, [len], DType::F32), false),
    }
}

/// A pass over the products of two matrices for the gradient of weights.
struct WeightPass<R: CubeRuntime> {
    of_rows: Rows<R>,
    of_columns: Rows<R>,
    vector: usize,
    vectors: usize,
    shape: SpmmShape,
}

impl<R: CubeRuntime> WeightPass<R> {
    fn new(
        of_rows: CubeTensor<R>,
        of_columns: CubeTensor<R>,
        args: &SpmmArgs<CubeTensor<R>>,
        accumulate_into: bool,
    ) -> Self {
        let (of_rows, of_columns) = (Rows::of(of_rows), Rows::of(of_columns));
        let geometry = PlanePerRow::of(&of_rows.tensor.client);
        let vector = geometry.vector_width(of_rows.width, &[&of_rows, &of_columns]);
        let vectors = of_rows.width / vector;
        let shape = SpmmShape {
            dst_scale: args.dst_scale.is_some(),
            src_scale: args.src_scale.is_some(),
            weight: false,
            edge_map: false,
            edge_of_row: false,
            own: false,
            own_position: false,
            accumulate_into,
            drop: DropMode::of(&args.drop_edge),
            slots: geometry.slots(vectors),
            lanes: geometry.plane as usize,
        };
        Self { of_rows, of_columns, vector, vectors, shape }
    }

    fn inputs<F: Float, N: Size>(&self, args: &SpmmArgs<CubeTensor<R>>) -> WeightInputsLaunch<F, N, R> {
        // An argument that the kernel does not read still needs a buffer.
        let unread = || self.of_rows.tensor.clone();
        let scale = |s: &Option<CubeTensor<R>>| s.clone().map_or_else(unread, f32_vector).into_array_arg();
        WeightInputsArgs {
            of_rows: self.of_rows.matrix(self.vector),
            of_columns: self.of_columns.matrix(self.vector),
            scales: ScalesArgs { dst: scale(&args.dst_scale), src: scale(&args.src_scale) }.launch(),
        }
        .launch()
    }
}

struct Sparse<'a, R: CubeRuntime> {
    row_ptr: &'a CubeTensor<R>,
    col_idx: &'a CubeTensor<R>,
    ends: usize,
}

struct Factors<R: CubeRuntime> {
    weight: Option<CubeTensor<R>>,
    edge_map: Option<EdgeIds<CubeTensor<R>>>,
    own: Option<OwnRows<CubeTensor<R>, CubeTensor<R>>>,
}

/// The width of a vector and the lanes that hold a row of them, where so few do that a plane takes several rows at a
/// time.
fn narrow_rows<R: CubeRuntime>(geometry: &PlanePerRow, rows: &[&Rows<R>]) -> Option<(usize, usize)> {
    let width = rows[0].width;
    let v = vector_width(width, rows);
    let lanes = (width / v).next_power_of_two();
    (lanes <= NARROW && 2 * lanes <= geometry.plane as usize).then_some((v, lanes))
}

/// The most lanes of a narrow row: with more, a lane would have too many rows under way.
const NARROW: usize = 8;

fn launch<R: CubeRuntime>(
    sparse: Sparse<'_, R>,
    row_launches: Vec<RowLaunch<R>>,
    x: CubeTensor<R>,
    factors: Factors<R>,
    args: &SpmmArgs<CubeTensor<R>>,
    out: Target<R>,
) -> CubeTensor<R> {
    let (accumulate_into, out) = (out.accumulate_into, out.rows);
    let x = Rows::of(x);
    let (edge_map, edge_of_row) = factors.edge_map.map(EdgeIds::split).unzip();
    let own = factors.own.as_ref().map_or_else(|| Rows::of(x.tensor.clone()), |own| Rows::of(own.h.clone()));
    let geometry = PlanePerRow::of(&out.tensor.client);
    let (v, lanes) = narrow_rows(&geometry, &[&x, &own, &out])
        .unwrap_or_else(|| (geometry.vector_width(x.width, &[&x, &own, &out]), geometry.plane as usize));
    let shape = SpmmShape {
        dst_scale: args.dst_scale.is_some(),
        src_scale: args.src_scale.is_some(),
        weight: factors.weight.is_some(),
        edge_map: edge_map.is_some(),
        edge_of_row: edge_of_row.unwrap_or(false),
        own: factors.own.is_some(),
        own_position: factors.own.as_ref().is_some_and(|own| own.nodes.is_some()),
        accumulate_into,
        drop: DropMode::of(&args.drop_edge),
        slots: geometry.slots(x.width / v),
        lanes,
    };
    // An argument that the kernel does not read still needs a buffer.
    let float = |t: &Option<CubeTensor<R>>| t.clone().map_or_else(|| x.tensor.clone(), f32_vector);
    let (dst_scale, src_scale, weight) = (float(&args.dst_scale), float(&args.src_scale), float(&factors.weight));
    let edge_map = edge_map.unwrap_or_else(|| sparse.row_ptr.clone());
    let own_scale = float(&factors.own.as_ref().map(|own| own.scale.clone()));
    let own_position =
        factors.own.and_then(|own| own.nodes).map_or_else(|| sparse.col_idx.clone(), |n| n.position.clone());
    for row_launch in row_launches {
        // SAFETY: every index stays inside: ids were checked against the sizes when the CSR was made.
        unsafe {
            spmm_kernel::launch_unchecked::<R>(
                &out.tensor.client,
                row_launch.count.clone(),
                row_launch.dim,
                address(&[sparse.row_ptr, sparse.col_idx, &x.tensor, &out.tensor]),
                v,
                EdgesArgs { row_ptr: array(sparse.row_ptr), col_idx: array(sparse.col_idx), ends: sparse.ends }
                    .launch(),
                SpmmInputsArgs {
                    x: x.matrix(v),
                    scales: ScalesArgs { dst: array(&dst_scale), src: array(&src_scale) }.launch(),
                    weight: WeightsArgs { values: array(&weight), edge_map: array(&edge_map) }.launch(),
                    own: OwnTermArgs { h: own.matrix(v), scale: array(&own_scale), position: array(&own_position) }
                        .launch(),
                }
                .launch(),
                out.matrix(v),
                row_launch.rows(),
                row_launch.columns(),
                DropEdgeKey::launch(&args.drop_edge),
                x.width / v,
                shape,
                row_launch.schedule,
                [x.tensor.dtype.into(), sparse.row_ptr.dtype.into()],
            );
        }
    }
    out.tensor
}
