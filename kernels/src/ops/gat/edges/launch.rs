//! What edges carry, on CubeCL devices.

use burn::tensor::DType;
use burn_cubecl::CubeRuntime;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::backward_kernel::{EdgeTargetsArgs, gat_edges_backward_kernel};
use super::kernel::{AgeMode, EdgeInputsArgs, EdgeInputsLaunch, EdgeShape, NodeTimesArgs};
use super::{AgeParts, EdgeBackward, EdgeGradients, EdgeParts};
use crate::graph::csr::View;
use crate::graph::drop_edge::DropEdge;
use crate::graph::row_schedule::{padded_bytes, row_launches};
use crate::ops::dropout::Dropout;
use crate::ops::gat::backward_kernel::{BackwardInputsArgs, GradientsArgs};
use crate::ops::gat::kernel::{GatShape, HeadLayout};
use crate::ops::gat::launch_parts::{PartialLaunch, handed_bytes, in_partial_sums, rules, score, score_target, shape};
use crate::ops::gat::{GatArgs, GatTargets, arrival_columns};
use crate::ops::head::column_sums;
use crate::runtime::args::array;
use crate::runtime::launch::{PlanePerRow, Rows, Target, address, empty, f32_vector, part, vector_width, zeros};

/// [`EdgeParts`] as a launch takes them.
pub(in crate::ops::gat) struct Carried<R: CubeRuntime> {
    values: Option<Rows<R>>,
    /// Elements of a vector of values.
    pub vector: usize,
    edge_map: Option<CubeTensor<R>>,
    age: Option<AgeParts<CubeTensor<R>, CubeTensor<R>>>,
    parameters: CubeTensor<R>,
    pub shape: EdgeShape,
}

impl<R: CubeRuntime> Carried<R> {
    pub(in crate::ops::gat) fn of(edges: &EdgeParts<CubeTensor<R>, CubeTensor<R>>, rows_are_sources: bool) -> Self {
        let values = edges.values.clone().map(|values| Rows::of(bound(values)));
        let vector = values.as_ref().map_or(1, |values| vector_width(values.width, &[values]));
        let age = edges.age.clone().map(|age| match age {
            AgeParts::Edges(ages) => AgeParts::Edges(f32_vector(bound(ages))),
            AgeParts::Nodes { dst, src } => {
                AgeParts::Nodes { dst: into_contiguous(bound(dst)), src: into_contiguous(bound(src)) }
            }
        });
        let shape = EdgeShape {
            values: edges.value_columns,
            age: match &age {
                None => AgeMode::Nowhere,
                Some(AgeParts::Edges(_)) => AgeMode::OfEdges,
                Some(AgeParts::Nodes { .. }) if rows_are_sources => AgeMode::RowsAreSources,
                Some(AgeParts::Nodes { .. }) => AgeMode::RowsAreDestinations,
            },
            log_age: edges.log_age,
            cosines: edges.cosines,
            edge_map: edges.edge_map.is_some(),
        };
        let (edge_map, parameters) = (edges.edge_map.clone(), f32_vector(edges.parameters.clone()));
        Self { values, vector, edge_map, age, parameters, shape }
    }

    pub(in crate::ops::gat) fn launch<F: Float, P: Int, M: Size>(&self) -> EdgeInputsLaunch<F, P, M, R> {
        let (ages, times) = match &self.age {
            None => (None, None),
            Some(AgeParts::Edges(ages)) => (Some(array(ages)), None),
            Some(AgeParts::Nodes { dst, src }) => {
                (None, Some(NodeTimesArgs { dst: array(dst), src: array(src) }.launch()))
            }
        };
        EdgeInputsArgs {
            values: self.values.as_ref().map(|values| values.matrix(self.vector)).into(),
            edge_map: self.edge_map.as_ref().map(array).into(),
            ages: ages.into(),
            times: times.into(),
            parameters: array(&self.parameters),
        }
        .launch()
    }

    /// What decides about the width of addresses.
    pub(in crate::ops::gat) fn tensors(&self) -> Vec<&CubeTensor<R>> {
        let ages = match &self.age {
            Some(AgeParts::Edges(ages)) => Some(ages),
            _ => None,
        };
        self.values.as_ref().map(|values| &values.tensor).into_iter().chain(&self.edge_map).chain(ages).collect()
    }
}

/// What is of no edge or no node: no kernel reads it, but a buffer of zero bytes cannot be bound.
fn bound<R: CubeRuntime>(tensor: CubeTensor<R>) -> CubeTensor<R> {
    let shape = tensor.meta.shape().clone();
    if shape.num_elements() > 0 { tensor } else { empty(&tensor, shape, tensor.dtype) }
}

/// The reverse pass.
pub(in crate::ops::gat) fn backward<R: CubeRuntime>(
    reverse: &View<CubeTensor<R>>,
    inputs: EdgeBackward<CubeTensor<R>, CubeTensor<R>>,
    args: GatArgs,
    targets: GatTargets<CubeTensor<R>>,
) -> EdgeGradients<CubeTensor<R>> {
    let sum_columns = inputs.sum_columns();
    let EdgeBackward { g, h_src, scalars, edges, of_values, .. } = inputs;
    let (width, dtype) = (h_src.meta.shape()[1], h_src.dtype);
    let (topology, rows) = (&reverse.topology, reverse.num_rows());
    let dh = targets.features.then(|| Target::of(targets.accumulate_features, &h_src, [rows, width], dtype));
    let src = scalars.src_score.map(f32_vector);
    let Target { rows: dt, accumulate_into: accumulate_score } = score_target(&src, targets.accumulate_score);
    // Edges that no launch comes to have no gradient.
    let values = edges.values.as_ref().filter(|_| of_values);
    let values = values.map(|values| zeros(values, values.meta.shape().clone(), dtype));
    let parameters = edges.parameters.meta.shape()[0];
    if rows == 0 {
        let parameters = zeros(&dt.tensor, [parameters], DType::F32);
        return EdgeGradients { features: dh.map(|dh| dh.rows.tensor), score: dt.tensor, parameters, values };
    }
    let (g, h_src, arrivals) = (Rows::of(g), Rows::of(h_src), Rows::of(scalars.arrivals));
    let carried = Carried::of(&edges, true);
    let accumulate_features = dh.as_ref().is_some_and(|dh| dh.accumulate_into);
    // What the kernel does not read or write still needs a buffer.
    let dh = dh.map_or_else(|| Rows::of(h_src.tensor.clone()), |dh| dh.rows);
    let geometry = PlanePerRow::of(&dt.tensor.client);
    let v = geometry.vector_width(width / args.heads, &[&h_src, &g, &dh]);
    let drop = args.drop_edge.map(DropEdge::reverse);
    let dropout = args.attention_dropout.map(Dropout::reverse);
    let shape = GatShape {
        second: targets.features,
        accumulate_features,
        accumulate_score,
        ..shape(&geometry, &args, width / v, &drop, &dropout)
    };
    let shared = padded_bytes(width, &dt.tensor) + handed_bytes(args.heads);
    let (launches, planes) = in_partial_sums(row_launches(reverse, shared, args.drop_edge.is_some()), parameters);
    let arrivals_vector = vector_width(arrival_columns(sum_columns), &[&arrivals]);
    let partial = empty(&dt.tensor, [planes, parameters], DType::F32);
    let mut addressed =
        vec![&topology.row_ptr, &topology.col_idx, &g.tensor, &h_src.tensor, &arrivals.tensor, &dh.tensor];
    addressed.push(&dt.tensor);
    addressed.extend(carried.tensors());
    let address = address(&addressed);
    for PartialLaunch { row_launch, cubes, first } in launches {
        // SAFETY: every index stays inside: ids were checked against the sizes when the CSR was made.
        unsafe {
            gat_edges_backward_kernel::launch_unchecked::<R>(
                &partial.client,
                CubeCount::Static(cubes, 1, 1),
                row_launch.dim,
                address,
                v,
                carried.vector,
                arrivals_vector,
                topology.edges(),
                BackwardInputsArgs {
                    g: g.matrix(v),
                    h_src: h_src.matrix(v),
                    score: score(&src),
                    arrivals: arrivals.matrix(arrivals_vector),
                }
                .launch(),
                carried.launch(),
                rules(&args, &drop, &dropout),
                GradientsArgs { dh: dh.matrix(v), dt: dt.table() }.launch(),
                EdgeTargetsArgs { partial: array(&partial), first, values: values.as_ref().map(array).into() }.launch(),
                row_launch.rows(),
                row_launch.columns(),
                HeadLayout::of(width, args.heads, v),
                shape,
                carried.shape,
                sum_columns,
                row_launch.schedule,
                [dtype.into(), topology.row_ptr.dtype.into()],
            );
        }
    }
    let sums = column_sums(partial);
    // As a vector.
    let parameters = part(&sums, 0, parameters);
    EdgeGradients { features: targets.features.then_some(dh.tensor), score: dt.tensor, parameters, values }
}
