//! Per head, with `c_i = <g_i, y_i>` and `dz_ij = a_ij (f_ij <g_i, m_ij> - c_i)`: everything that a destination adds
//! up comes from one pass over its edges, what a source does from one over the reverse.

use burn_autodiff::Autodiff;
use burn_autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops, OpsKind};
use burn_backend::AutodiffBackend;
use burn_backend::tensor::{FloatTensor, IntTensor};

use super::{GatV2Backend, V2Backward, V2Inputs, V2RowGradients, V2Wanted};
use crate::graph::csr::{Csr, View};
use crate::ops::gat::{GatArgs, GatForward};

#[derive(Debug)]
struct GatV2;

/// What the backward pass starts from.
#[derive(Clone, Debug)]
struct Saved<B: GatV2Backend> {
    csr: Csr<B>,
    args: GatArgs,
    inputs: V2Inputs<FloatTensor<B>, IntTensor<B>>,
    /// Absent when it is to be repeated.
    forward: Option<GatForward<FloatTensor<B>>>,
}

impl<B: GatV2Backend> Saved<B> {
    fn run(&self) -> GatForward<FloatTensor<B>> {
        B::gatv2_forward(&self.csr.view(), self.inputs.of_rows(&self.csr), self.args)
    }
}

impl<B: GatV2Backend> Backward<B, 5> for GatV2 {
    type State = Saved<B>;

    fn backward(self, ops: Ops<Self::State, 5>, grads: &mut Gradients, _: &mut Checkpointer) {
        let [src, dst, parameters, angles, values] = ops.parents;
        let g = grads.consume::<B>(&ops.node);
        let mut saved = ops.state;
        let forward = saved.forward.take().unwrap_or_else(|| saved.run());
        let Saved { csr, args, inputs, .. } = saved;
        let delta = B::head_dot(g.clone(), forward.out, args.heads);
        let log_sum_exp = forward.log_sum_exp;
        let backward =
            |inputs| V2Backward { g: g.clone(), inputs, log_sum_exp: log_sum_exp.clone(), delta: delta.clone() };
        if [&dst, &parameters, &angles, &values].iter().any(|node| node.is_some()) {
            let wanted = V2Wanted { values: values.is_some(), angles: angles.is_some() };
            let found = B::gatv2_row_gradients(&csr.view(), backward(inputs.of_rows(&csr)), args, wanted);
            let V2RowGradients { dst: of_dst, parameters: of_parameters, angles: of_angles, values: of_values } = found;
            let found =
                [(dst, Some(of_dst)), (parameters, Some(of_parameters)), (angles, of_angles), (values, of_values)];
            for (node, gradient) in found {
                if let (Some(node), Some(gradient)) = (node, gradient) {
                    grads.register::<B>(node.id, gradient);
                }
            }
        }
        if let Some(node) = src {
            let backward = backward(inputs.of_reverse(&csr));
            grads.register::<B>(node.id, B::gatv2_source_gradient(&csr.reverse_view(), backward, args));
        }
    }
}

impl<B: GatV2Backend, C: CheckpointStrategy> GatV2Backend for Autodiff<B, C> {
    fn gatv2_forward(
        view: &View<IntTensor<Self>>,
        inputs: V2Inputs<FloatTensor<Self>, IntTensor<Self>>,
        args: GatArgs,
    ) -> GatForward<FloatTensor<Self>> {
        B::gatv2_forward(view, inputs.map(|f| f.primitive), args).map(Self::from_inner)
    }

    fn gatv2_row_gradients(
        view: &View<IntTensor<Self>>,
        inputs: V2Backward<FloatTensor<Self>, IntTensor<Self>>,
        args: GatArgs,
        wanted: V2Wanted,
    ) -> V2RowGradients<FloatTensor<Self>> {
        B::gatv2_row_gradients(view, inputs.map(|f| f.primitive), args, wanted).map(Self::from_inner)
    }

    fn gatv2_source_gradient(
        reverse: &View<IntTensor<Self>>,
        inputs: V2Backward<FloatTensor<Self>, IntTensor<Self>>,
        args: GatArgs,
    ) -> FloatTensor<Self> {
        Self::from_inner(B::gatv2_source_gradient(reverse, inputs.map(|f| f.primitive), args))
    }

    fn gatv2(csr: Csr<Self>, inputs: V2Inputs<FloatTensor<Self>, IntTensor<Self>>, args: GatArgs) -> FloatTensor<Self> {
        // Copies: tensors that are gone before the operator is recorded can lose their gradient to another thread's
        // pass.
        let mut saved =
            Saved::<B> { csr: csr.inner(), args, inputs: inputs.clone().map(|f| f.primitive), forward: None };
        let forward = saved.run();
        let out = forward.out.clone();
        // What is not there is stood in for by a constant, which gets no gradient.
        let constant = <Self as AutodiffBackend>::from_inner(out.clone());
        let V2Inputs { src, dst, parameters, edges, .. } = &inputs;
        let angles = if edges.cosines > 0 { &edges.parameters } else { &constant };
        let values = edges.values.as_ref().unwrap_or(&constant);
        let nodes = [src, dst, parameters, angles, values].map(|tensor| tensor.node.clone());
        match GatV2.prepare::<C>(nodes).compute_bound().stateful() {
            OpsKind::Tracked(prep) => {
                saved.forward = (!args.recompute).then_some(forward);
                prep.finish(saved, out)
            }
            OpsKind::UnTracked(prep) => prep.finish(out),
        }
    }
}
