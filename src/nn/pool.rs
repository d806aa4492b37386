//! One row per graph from the rows of its nodes.

use burn::tensor::Tensor;
use graphsieve_kernels::{GraphBackend, Reduce, SegmentOffsets, Strategy, segment_reduce};

/// Global pooling: `y_g = reduce x_i` over the nodes `i` of graph `g`, which stand one behind the other; 0 for a graph
/// without nodes.
///
/// # Shapes
/// `x` `[nodes of all graphs, channels]` in f32, f16 or bf16; `segments` has a segment per graph; result `[graphs,
/// channels]` in the same dtype.
///
/// # Gradient
/// As [`segment_reduce`]. Deterministic.
///
/// # Panics
/// If `x` does not have a row per row of the segments.
///
/// # Source
/// Xu et al., How powerful are graph neural networks? (ICLR 2019), section 4.2.
///
/// # Example
/// ```
/// use burn::tensor::Tensor;
/// use burn_flex::Flex;
/// use graphsieve::nn::global_pool;
/// use graphsieve_kernels::{Reduce, SegmentOffsets};
/// let device = Default::default();
/// let graphs = SegmentOffsets::from_host(&[0, 2, 3], &device).unwrap();
/// let x = Tensor::<Flex, 2>::from_data([[1.0], [3.0], [-5.0]], &device);
/// let y = global_pool(x.clone(), &graphs, Reduce::Mean);
/// assert_eq!(y.into_data().to_vec::<f32>().unwrap(), [2.0, -5.0]);
/// let y = global_pool(x, &graphs, Reduce::Max);
/// assert_eq!(y.into_data().to_vec::<f32>().unwrap(), [3.0, -5.0]);
/// ```
pub fn global_pool<B: GraphBackend>(x: Tensor<B, 2>, segments: &SegmentOffsets<B>, reduce: Reduce) -> Tensor<B, 2> {
    segment_reduce(x, segments, reduce, Strategy::Auto)
}
