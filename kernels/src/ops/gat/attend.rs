//! Attention from scores that are given.

use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{DType, Tensor, TensorPrimitive};

use super::{GatArgs, GatBackend, GatConfig, Scores, widest};
use crate::graph::csr::Csr;
use crate::runtime::check;

/// Columns of a matrix that hold one part of the score of [`attend`], one per head.
#[derive(Clone, Debug)]
pub struct ScoreColumns<B: Backend> {
    /// A row per node, f32. It may hold scores of other relations, too.
    pub scores: Tensor<B, 2>,
    /// The column of the first head.
    pub first: usize,
}

/// [`gat`](crate::gat) with the two parts of the score given: `e_ij = leaky_relu(dst_i + src_j)`, softmax over the kept
/// in-edges, `y_i = sum_j a_ij h_src_j`.
///
/// Where features are wide and the output is narrow, or few destinations are wanted, attention comes before projection:
/// `sum_j a_ij (x_j w) = (sum_j a_ij x_j) w`, and the score `<a, x_j w>` is `<w a, x_j>`
/// ([`row_dots`](crate::row_dots)).
///
/// # Shapes
/// `h_src` `[num_cols, heads * channels]`, f32, f16 or bf16; `dst` `[num_rows, any]` and `src` `[num_cols, any]`, of
/// which `heads` columns are read; result `[num_rows, heads * channels]` in the dtype of `h_src`.
///
/// # Gradient
/// Of all three, as for [`gat`](crate::gat): `dh_src_j = sum_i a_ij g_i`, `ddst_i = sum_j dz_ij`,
/// `dsrc_j = sum_i dz_ij`. Deterministic: no atomics.
///
/// # Panics
/// If a shape or dtype does not fit.
///
/// # Source
/// As [`gat`](crate::gat).
///
/// # Example
/// ```
/// use burn::tensor::Tensor;
/// use burn_flex::Flex;
/// use graphsieve_kernels::{Csr, GatConfig, ScoreColumns, attend};
/// let device = Default::default();
/// let csr = Csr::<Flex>::from_host(&[0, 2], &[0, 1], 2, &device).unwrap();
/// let h = Tensor::<Flex, 2>::from_data([[1.0], [3.0]], &device);
/// let dst = ScoreColumns { scores: Tensor::<Flex, 2>::from_data([[0.0]], &device), first: 0 };
/// // The second source counts three times.
/// let src = ScoreColumns { scores: Tensor::<Flex, 2>::from_data([[0.0], [3.0f32.ln()]], &device), first: 0 };
/// let y = attend(&csr, h, dst, src, 1, GatConfig::default());
/// assert!((y.into_scalar() - 2.5).abs() < 1e-6);
/// ```
pub fn attend<B: GatBackend>(
    csr: &Csr<B>,
    h_src: Tensor<B, 2>,
    dst: ScoreColumns<B>,
    src: ScoreColumns<B>,
    heads: usize,
    config: GatConfig,
) -> Tensor<B, 2> {
    const OP: &str = "attend";
    let h_src = h_src.into_primitive().tensor();
    check::storage::<B>(OP, "h_src", &h_src);
    let [rows, width] = check::matrix(OP, "h_src", &h_src);
    check::size(OP, "rows of h_src", csr.num_cols(), rows);
    assert!(heads > 0 && width % heads == 0, "{OP}: h_src: expected columns in {heads} equal heads, got {width}");
    let (dst, src) = (scores(OP, "dst", dst, csr.num_rows(), heads), scores(OP, "src", src, csr.num_cols(), heads));
    let args = GatArgs::new(heads, &config);
    let channels = width / heads;
    let widest = widest(channels);
    if width <= widest {
        return Tensor::from_primitive(TensorPrimitive::Float(B::attend(csr.clone(), h_src, dst, src, args)));
    }
    // Heads do not know of each other, and the channels of a head have nothing but the scores in common.
    let h_src = Tensor::<B, 2>::from_primitive(TensorPrimitive::Float(h_src));
    let pieces = (0..heads).flat_map(|head| {
        let starts = (0..channels).step_by(widest);
        starts.map(move |start| (head, head * channels + start, widest.min(channels - start)))
    });
    let attended = pieces.map(|(head, start, len)| {
        let piece = h_src.clone().narrow(1, start, len).into_primitive().tensor();
        let of_head = |part: &Scores<FloatTensor<B>>| Scores { first: part.first + head, ..part.clone() };
        let attention_dropout = args.attention_dropout.map(|dropout| dropout.of_heads(heads, head));
        let args = GatArgs { heads: 1, attention_dropout, ..args };
        let out = B::attend(csr.clone(), piece, of_head(&dst), of_head(&src), args);
        Tensor::from_primitive(TensorPrimitive::Float(out))
    });
    Tensor::cat(attended.collect(), 1)
}

/// Checks one part of the score: a row for each of `rows` nodes, a column per head.
pub(crate) fn scores<B: GatBackend>(
    op: &str,
    name: &str,
    part: ScoreColumns<B>,
    rows: usize,
    heads: usize,
) -> Scores<FloatTensor<B>> {
    let matrix = part.scores.into_primitive().tensor();
    check::dtype(op, name, &matrix, DType::F32);
    let [score_rows, columns] = check::matrix(op, name, &matrix);
    check::size(op, &format!("rows of {name}"), rows, score_rows);
    assert!(
        part.first + heads <= columns,
        "{op}: {name}: expected {heads} columns from {} on, got {columns} columns",
        part.first
    );
    Scores { matrix, first: part.first, whole: false }
}
