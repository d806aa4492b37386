//! Attention over features that are data: only the vectors behind the scores are learnt.

use burn::tensor::ops::{FloatTensor, IntTensor};
use burn::tensor::{DType, Tensor, TensorMetadata, TensorPrimitive};
use burn_autodiff::Autodiff;
use burn_autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops, OpsKind};

use super::{GatArgs, GatBackend, GatConfig, GatForward, ScoreColumns, Scores};
use crate::graph::csr::{Csr, View};
use crate::runtime::check;

/// What [`attend_inputs`] reads, as primitives.
#[derive(Clone, Debug)]
pub struct Inputs<F> {
    pub x_src: F,
    /// A row per destination of the whole graph.
    pub x_dst: F,
    pub dst_score: Scores<F>,
    pub src_score: Scores<F>,
}

impl<F> Inputs<F> {
    pub(super) fn map<G>(self, f: impl Fn(F) -> G) -> Inputs<G> {
        Inputs {
            x_src: f(self.x_src),
            x_dst: f(self.x_dst),
            dst_score: self.dst_score.map(&f),
            src_score: self.src_score.map(&f),
        }
    }
}

#[derive(Debug)]
struct AttendInputs;

/// The second parent is data, which says how deep the step is.
impl<B: GatBackend> Backward<B, 2> for AttendInputs {
    /// The forward pass is absent when it is to be repeated.
    type State = (Csr<B>, GatArgs, Inputs<FloatTensor<B>>, Option<GatForward<FloatTensor<B>>>);

    fn backward(self, ops: Ops<Self::State, 2>, grads: &mut Gradients, _: &mut Checkpointer) {
        let g = grads.consume::<B>(&ops.node);
        let (csr, args, inputs, forward) = ops.state;
        if let [Some(vectors), _] = ops.parents {
            let view = csr.view();
            let forward = forward.unwrap_or_else(|| inputs_forward::<B>(&view, &inputs, args));
            grads.register::<B>(vectors.id, B::attention_vector_gradient(&view, g, inputs, forward, args));
        }
    }
}

pub(super) fn inputs_forward<B: GatBackend>(
    view: &View<IntTensor<B>>,
    inputs: &Inputs<FloatTensor<B>>,
    args: GatArgs,
) -> GatForward<FloatTensor<B>> {
    let (dst_score, src_score) = (inputs.dst_score.clone(), inputs.src_score.clone());
    B::gat_forward(view, inputs.x_src.clone(), dst_score, src_score, None, args, false)
}

/// [`GatBackend::attend_inputs`] of a backend that differentiates.
pub(super) fn record<B: GatBackend, C: CheckpointStrategy>(
    csr: Csr<Autodiff<B, C>>,
    inputs: Inputs<FloatTensor<Autodiff<B, C>>>,
    vectors: FloatTensor<Autodiff<B, C>>,
    args: GatArgs,
) -> FloatTensor<Autodiff<B, C>> {
    assert!(
        !inputs.x_src.is_tracked() && !inputs.x_dst.is_tracked(),
        "attend_inputs: x_src, x_dst: expected data, got features that need a gradient; use attend"
    );
    let data = inputs.x_src.node.clone();
    let (csr, inputs) = (csr.inner(), inputs.map(|f| f.primitive));
    let forward = inputs_forward::<B>(&csr.view(), &inputs, args);
    let out = forward.out.clone();
    match AttendInputs.prepare::<C>([vectors.node.clone(), data]).compute_bound().stateful() {
        OpsKind::Tracked(prep) => prep.finish((csr, args, inputs, (!args.recompute).then_some(forward)), out),
        OpsKind::UnTracked(prep) => prep.finish(out),
    }
}

/// [`attend`](crate::attend) by one head over features that are data, such as the input of a model:
///
/// ```text
/// e_ij = leaky_relu(<v_0, x_dst_i> + <v_1, x_src_j>)      y_i = sum_j softmax_j(e_ij) x_src_j
/// ```
///
/// Only `v` gets a gradient, and one pass over the destinations gives it: no reverse pass over all sources, no gradient
/// per node.
///
/// # Shapes
/// `x_src` `[num_cols, d]`, f32, f16 or bf16; `x_dst` `[destinations, d]` of the same dtype and `dst` `[destinations,
/// any]` have a row for every destination **of the whole graph**, also where `csr` is restricted; `src` `[num_cols,
/// any]`; `vectors` `[2, d]`, f32; result `[num_rows, d]`. `dst` and `src` name the columns that hold `<v_0, x_dst_i>`
/// and `<v_1, x_src_j>`: many relations share one pass of [`row_dots`](crate::row_dots) over a matrix.
///
/// # Gradient
/// Of `vectors`, also for what the scores are made of: `dv_0 = sum_i (sum_j dz_ij) x_dst_i`, `dv_1 = sum_ij dz_ij
/// x_src_j` with `dz_ij` as for [`gat`](crate::gat). The scores themselves get none: give them detached. Saved: the
/// result and a value per row. Deterministic: no atomics.
///
/// # Panics
/// If a shape or dtype does not fit, or if the features need a gradient.
///
/// # Example
/// ```
/// use burn::tensor::Tensor;
/// use burn_flex::Flex;
/// use graphsieve_kernels::{Csr, GatConfig, ScoreColumns, attend_inputs, row_dots};
/// let device = Default::default();
/// let csr = Csr::<Flex>::from_host(&[0, 2, 2], &[0, 1], 2, &device).unwrap();
/// let x = Tensor::<Flex, 2>::from_data([[0.0], [1.0]], &device);
/// let vectors = Tensor::<Flex, 2>::from_data([[0.0], [3.0f32.ln()]], &device);
/// let scores = row_dots(x.clone(), vectors.clone());
/// let column = |first| ScoreColumns { scores: scores.clone(), first };
/// let y = attend_inputs(&csr, x.clone(), x, vectors, [column(0), column(1)], GatConfig::default());
/// let y = y.into_data().to_vec::<f32>().unwrap();
/// assert!((y[0] - 0.75).abs() < 1e-6 && y[1] == 0.0);
/// ```
pub fn attend_inputs<B: GatBackend>(
    csr: &Csr<B>,
    x_src: Tensor<B, 2>,
    x_dst: Tensor<B, 2>,
    vectors: Tensor<B, 2>,
    [dst, src]: [ScoreColumns<B>; 2],
    config: GatConfig,
) -> Tensor<B, 2> {
    const OP: &str = "attend_inputs";
    let (x_src, x_dst) = (x_src.into_primitive().tensor(), x_dst.into_primitive().tensor());
    check::storage::<B>(OP, "x_src", &x_src);
    check::same_dtype(OP, "x_dst", &x_dst, &x_src);
    let [rows, width] = check::matrix(OP, "x_src", &x_src);
    let destinations = csr.topology().num_rows;
    check::size(OP, "rows of x_src", csr.num_cols(), rows);
    check::size(OP, "rows of x_dst", destinations, check::matrix(OP, "x_dst", &x_dst)[0]);
    check::size(OP, "columns of x_dst", width, x_dst.shape()[1]);
    let vectors = vectors.into_primitive().tensor();
    check::dtype(OP, "vectors", &vectors, DType::F32);
    let [count, vector_width] = check::matrix(OP, "vectors", &vectors);
    check::size(OP, "rows of vectors", 2, count);
    check::size(OP, "columns of vectors", width, vector_width);
    let dst_score = Scores { whole: true, ..super::scores(OP, "dst", dst, destinations, 1) };
    let src_score = super::scores(OP, "src", src, rows, 1);
    let inputs = Inputs { x_src, x_dst, dst_score, src_score };
    let out = B::attend_inputs(csr.clone(), inputs, vectors, GatArgs::new(1, &config));
    Tensor::from_primitive(TensorPrimitive::Float(out))
}
