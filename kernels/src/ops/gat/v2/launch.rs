//! Attention with a score behind the non-linearity on CubeCL devices.

use burn::tensor::{DType, Shape};
use burn_backend::ops::FloatTensorOps;
use burn_backend::tensor::{FloatTensor, IntTensor};
use burn_cubecl::CubeRuntime;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::backward_kernel::{
    V2ArrivalsArgs, V2ArrivalsLaunch, V2RowTargetsArgs, gatv2_rows_kernel, gatv2_sources_kernel,
};
use super::forward_kernel::gatv2_forward_kernel;
use super::kernel::{HeadSpan, V2EndsArgs, V2EndsLaunch};
use super::{GatV2Backend, V2Backward, V2Inputs, V2RowGradients, V2Wanted};
use crate::graph::csr::View;
use crate::graph::drop_edge::DropEdge;
use crate::graph::row_schedule::{RowLaunch, padded_bytes, row_launches};
use crate::ops::dropout::Dropout;
use crate::ops::gat::edges::launch::Carried;
use crate::ops::gat::kernel::{GatShape, HeadLayout, HeadLayoutLaunch, RulesLaunch};
use crate::ops::gat::launch_parts::{PartialLaunch, attended, in_partial_sums, rules, shape};
use crate::ops::gat::{GatArgs, GatForward};
use crate::ops::head::column_sums;
use crate::runtime::args::array;
use crate::runtime::backends::impl_for_devices;
use crate::runtime::launch::{PlanePerRow, Rows, address, empty, f32_vector, part, zeros};

/// What every pass reads, as a launch takes it.
struct Ends<R: CubeRuntime> {
    src: Rows<R>,
    dst: Rows<R>,
    parameters: CubeTensor<R>,
    carried: Carried<R>,
    messages: bool,
    /// Rules of the pass: those of the reverse where rows are sources.
    args: GatArgs,
    /// Elements of a vector.
    v: usize,
    shape: GatShape,
    span: HeadSpan,
}

impl<R: CubeRuntime> Ends<R> {
    /// `also` are the matrices that the pass has beside the ends, with rows as wide.
    fn of(inputs: V2Inputs<CubeTensor<R>, CubeTensor<R>>, also: &[&Rows<R>], args: GatArgs, reversed: bool) -> Self {
        let V2Inputs { src, dst, parameters, edges, messages } = inputs;
        let (src, dst) = (Rows::of(src), Rows::of(dst));
        let args = match reversed {
            true => GatArgs {
                drop_edge: args.drop_edge.map(DropEdge::reverse),
                attention_dropout: args.attention_dropout.map(Dropout::reverse),
                ..args
            },
            false => args,
        };
        let geometry = PlanePerRow::of(&src.tensor.client);
        let channels = src.width / args.heads;
        let matrices: Vec<&Rows<R>> = [&src, &dst].into_iter().chain(also.iter().copied()).collect();
        let v = geometry.vector_width(channels, &matrices);
        let shape = shape(&geometry, &args, src.width / v, &args.drop_edge, &args.attention_dropout);
        let span = HeadSpan::of(args.heads, channels / v, geometry.plane as usize, shape.slots);
        let carried = Carried::of(&edges, reversed);
        Self { src, dst, parameters: f32_vector(parameters), carried, messages, args, v, shape, span }
    }

    fn width(&self) -> usize {
        self.src.width
    }

    /// Rows of the parameters.
    fn parameter_rows(&self) -> usize {
        self.parameters.meta.shape()[0]
    }

    /// The launches over the rows of `view`.
    fn row_launches(&self, view: &View<CubeTensor<R>>) -> Vec<RowLaunch<R>> {
        // A row of sums, and a maximum.
        let bytes = padded_bytes(self.width(), &self.parameters) + size_of::<f32>();
        row_launches(view, bytes, self.args.drop_edge.is_some())
    }

    /// The address width of everything that is read, and of `also`.
    fn address(&self, view: &View<CubeTensor<R>>, also: &[&CubeTensor<R>]) -> AddressType {
        let topology = &view.topology;
        let mut addressed = vec![&topology.row_ptr, &topology.col_idx, &self.src.tensor, &self.dst.tensor];
        addressed.extend(self.carried.tensors());
        addressed.extend(also);
        address(&addressed)
    }

    fn launch<F: Float, N: Size>(&self) -> V2EndsLaunch<F, N, R> {
        V2EndsArgs { src: self.src.matrix(self.v), dst: self.dst.matrix(self.v), parameters: array(&self.parameters) }
            .launch()
    }

    fn rules(&self) -> RulesLaunch<R> {
        rules(&self.args, &self.args.drop_edge, &self.args.attention_dropout)
    }

    fn layout(&self) -> HeadLayoutLaunch<R> {
        HeadLayout::of(self.width(), self.args.heads, self.v)
    }
}

/// What the backward pass reads of destinations.
struct Arrivals<R: CubeRuntime> {
    g: Rows<R>,
    log_sum_exp: CubeTensor<R>,
    delta: CubeTensor<R>,
}

impl<R: CubeRuntime> Arrivals<R> {
    fn launch<F: Float, N: Size>(&self, v: usize) -> V2ArrivalsLaunch<F, N, R> {
        V2ArrivalsArgs { g: self.g.matrix(v), log_sum_exp: array(&self.log_sum_exp), delta: array(&self.delta) }
            .launch()
    }
}

/// The two halves of what the backward pass reads.
fn parts<R: CubeRuntime>(
    inputs: V2Backward<CubeTensor<R>, CubeTensor<R>>,
) -> (Arrivals<R>, V2Inputs<CubeTensor<R>, CubeTensor<R>>) {
    let V2Backward { g, inputs, log_sum_exp, delta } = inputs;
    (Arrivals { g: Rows::of(g), log_sum_exp: f32_vector(log_sum_exp), delta: f32_vector(delta) }, inputs)
}

impl_for_devices! { GatV2Backend =>
    fn gatv2_forward(
        view: &View<IntTensor<Self>>,
        inputs: V2Inputs<FloatTensor<Self>, IntTensor<Self>>,
        args: GatArgs,
    ) -> GatForward<FloatTensor<Self>> {
        let (rows, width, dtype) = (view.num_rows(), inputs.src.meta.shape()[1], inputs.src.dtype);
        let out = empty(&inputs.src, [rows, width], dtype);
        let log_sum_exp = empty(&inputs.src, [rows, args.heads], DType::F32);
        let result = GatForward { out, log_sum_exp, positive: None, edges: None };
        if rows == 0 {
            return result;
        }
        let ends = Ends::of(inputs, &[], args, false);
        for row_launch in ends.row_launches(view) {
            // SAFETY: every index stays inside: ids were checked against the sizes when the CSR was made.
            unsafe {
                gatv2_forward_kernel::launch_unchecked::<R>(
                    &result.out.client,
                    row_launch.count.clone(),
                    row_launch.dim,
                    ends.address(view, &[&result.out]),
                    ends.v,
                    ends.carried.vector,
                    view.topology.edges(),
                    ends.launch(),
                    ends.carried.launch(),
                    ends.rules(),
                    attended(&result),
                    row_launch.rows(),
                    row_launch.columns(),
                    ends.layout(),
                    ends.shape,
                    ends.span,
                    ends.carried.shape,
                    ends.messages,
                    row_launch.schedule,
                    [dtype.into(), view.topology.row_ptr.dtype.into()],
                );
            }
        }
        result
    }

    fn gatv2_row_gradients(
        view: &View<IntTensor<Self>>,
        inputs: V2Backward<FloatTensor<Self>, IntTensor<Self>>,
        args: GatArgs,
        wanted: V2Wanted,
    ) -> V2RowGradients<FloatTensor<Self>> {
        let (arrivals, inputs) = parts(inputs);
        let (rows, width, dtype) = (view.num_rows(), inputs.src.meta.shape()[1], inputs.src.dtype);
        let dst = Rows::of(empty(&inputs.src, [rows, width], dtype));
        // Edges that no launch comes to have no gradient.
        let values = inputs.edges.values.as_ref().filter(|_| wanted.values);
        let values = values.map(|values| zeros(values, values.meta.shape().clone(), dtype));
        let angles = 2 * inputs.edges.cosines;
        if rows == 0 {
            let parameters = zeros(&inputs.parameters, inputs.parameters.meta.shape().clone(), DType::F32);
            let angles = wanted.angles.then(|| zeros(&inputs.parameters, [angles], DType::F32));
            return V2RowGradients { dst: dst.tensor, parameters, angles, values };
        }
        let ends = Ends::of(inputs, &[&arrivals.g, &dst], args, false);
        let parameters = ends.parameter_rows();
        let (launches, planes) = in_partial_sums(ends.row_launches(view), parameters * width);
        let partial = empty(&dst.tensor, [planes, parameters * width], DType::F32);
        let of_angles = wanted.angles.then(|| empty(&dst.tensor, [planes, angles], DType::F32));
        let mut also = vec![&arrivals.g.tensor, &dst.tensor, &partial];
        also.extend(values.iter().chain(&of_angles));
        for PartialLaunch { row_launch, cubes, first } in launches {
            // SAFETY: every index stays inside: ids were checked against the sizes when the CSR was made.
            unsafe {
                gatv2_rows_kernel::launch_unchecked::<R>(
                    &partial.client,
                    CubeCount::Static(cubes, 1, 1),
                    row_launch.dim,
                    ends.address(view, &also),
                    ends.v,
                    ends.carried.vector,
                    view.topology.edges(),
                    ends.launch(),
                    arrivals.launch(ends.v),
                    ends.carried.launch(),
                    ends.rules(),
                    V2RowTargetsArgs {
                        dst: dst.matrix(ends.v),
                        partial: array(&partial),
                        first,
                        angles: of_angles.as_ref().map(array).into(),
                        values: values.as_ref().map(array).into(),
                    }
                    .launch(),
                    row_launch.rows(),
                    row_launch.columns(),
                    ends.layout(),
                    ends.shape,
                    ends.span,
                    ends.carried.shape,
                    ends.messages,
                    wanted,
                    row_launch.schedule,
                    [dtype.into(), view.topology.row_ptr.dtype.into()],
                );
            }
        }
        // As a vector.
        let angles = of_angles.map(|of_angles| part(&column_sums(of_angles), 0, angles));
        let parameters = Self::float_reshape(column_sums(partial), Shape::new([parameters, width]));
        V2RowGradients { dst: dst.tensor, parameters, angles, values }
    }

    fn gatv2_source_gradient(
        reverse: &View<IntTensor<Self>>,
        inputs: V2Backward<FloatTensor<Self>, IntTensor<Self>>,
        args: GatArgs,
    ) -> FloatTensor<Self> {
        let (arrivals, inputs) = parts(inputs);
        let (rows, width, dtype) = (reverse.num_rows(), inputs.src.meta.shape()[1], inputs.src.dtype);
        let gradient = Rows::of(empty(&inputs.src, [rows, width], dtype));
        if rows == 0 {
            return gradient.tensor;
        }
        let ends = Ends::of(inputs, &[&arrivals.g, &gradient], args, true);
        for row_launch in ends.row_launches(reverse) {
            // SAFETY: every index stays inside: ids were checked against the sizes when the CSR was made.
            unsafe {
                gatv2_sources_kernel::launch_unchecked::<R>(
                    &gradient.tensor.client,
                    row_launch.count.clone(),
                    row_launch.dim,
                    ends.address(reverse, &[&arrivals.g.tensor, &gradient.tensor]),
                    ends.v,
                    ends.carried.vector,
                    reverse.topology.edges(),
                    ends.launch(),
                    arrivals.launch(ends.v),
                    ends.carried.launch(),
                    ends.rules(),
                    gradient.matrix(ends.v),
                    row_launch.rows(),
                    row_launch.columns(),
                    ends.layout(),
                    ends.shape,
                    ends.span,
                    ends.carried.shape,
                    ends.messages,
                    row_launch.schedule,
                    [dtype.into(), reverse.topology.row_ptr.dtype.into()],
                );
            }
        }
        gradient.tensor
    }
}
