//! Sparse graph operators for [Burn](https://burn.dev), with gradients, one implementation for training and inference.
//!
//! | operator | what it computes | gradient |
//! |---|---|---|
//! | [`spmm`] | `y_i = u_i sum_j v_j w_ij x_j + s_i h_i` | `x`, edge weights, `h` |
//! | [`gspmm`] | messages along edges, reduced to sums, means, maxima or minima | both operands |
//! | [`gsddmm`] | one row per edge from what is at its ends and on it | both operands |
//! | [`segment_reduce`] | sums, means, maxima or minima of contiguous rows | the rows |
//! | [`edge_softmax`] | softmax of edge logits over the in-edges of each row | logits |
//! | [`edge_softmax_by_source`] | the same over the out-edges of each column | logits |
//! | [`gat`] | fused graph attention: score, softmax, aggregation | features, attention vectors |
//! | [`attend`] | the same with scores given | features, both parts of the score |
//! | [`attend_edges`] | the same with values and times of edges | also logit, frequencies, phases and values of edges |
//! | [`gatv2`] | fused graph attention with a score of both ends, values and ages of edges together | all of them |
//! | [`attend_inputs`] | the same over data by one head | the vectors behind the scores |
//! | [`row_dots`] | dot products of every row with a few vectors | both |
//! | [`pair_dot`] | dot products of listed pairs of rows | both sides |
//! | [`gather_rows`] | listed rows of a matrix | the matrix |
//! | [`select_rows`] | rows of one [`NodeSet`] out of a matrix over another | the matrix |
//! | [`combine`] | `activation(scale (sum of matrices + bias))` in one pass | matrices, bias |
//! | [`combine_products`] | the same of products, which stay in registers on tensor cores | every `x` and `w`, bias |
//! | [`normalise_rows`] | rows of length one | the matrix |
//! | [`beside_pieces`] | columns in pieces, beside them | none |
//! | [`dropout`] | elements set to zero at random, the others scaled | the matrix |
//! | [`linear`] | `x w + b` with a split-K weight gradient for millions of rows | `x`, `w`, `b` |
//! | [`sum_in_chunks`] | a whole layer by chunks of rows: sums, projection, activation | all of its terms |
//! | [`bce_with_logits_sum`] | sum of cross-entropies of logits and targets | logits |
//! | [`focal_with_logits_sum`] | the same with weights of classes and less for what is sure | logits |
//! | [`smoothness_sum`] | weighted sum of squared differences of scores at the ends of edges | logits |
//!
//! Around them stand the parts of a training step that Burn's own operations do in many small launches: [`Segments`]
//! makes all parameters one vector, [`sum_of_squares`] is its squared norm, [`adam`] updates it in one pass.
//!
//! Vectors have [`reduce`], [`prefix_sum`], [`argsort`] and [`partition_by_flag`]; [`TreeEngine`] is what a grower of
//! gradient-boosted trees asks of a device: [`Histogram`]s in fixed point, [`best_splits`], rows parted in place;
//! [`BoostEngine`] keeps the margins of all rows there, too. None of
//! these has a gradient, and all but sums of floats give the same bits on every device.
//!
//! [`Csr::restrict`] and [`NodeMarks`] run the operators on the nodes that a result depends on, and on no others.
//! [`Csr::from_spans`] gives them rows that share entries, such as events that see what came before them: a start and
//! an end per row into lists that are stored once. What edges carry is stored by entry then.
//!
//! Several ranks that train one model exchange rows and sums through a [`Communicator`], with gradients.
//!
//! Every operator runs on the CPU ([`burn_flex::Flex`], rayon over rows) and, with the features `cuda` and `vulkan`,
//! as [CubeCL](https://github.com/tracel-ai/cubecl) kernels on CUDA and Vulkan devices. Wrap the backend in
//! [`burn::backend::Autodiff`] and the same call records its backward pass.
//!
//! ```
//! use burn::tensor::Tensor;
//! use burn_flex::Flex;
//! use graphsieve_kernels::{Csr, SpmmConfig, spmm};
//!
//! // Row 0 <- {1, 2}, row 1 <- {0}, row 2 has no in-neighbours.
//! let device = Default::default();
//! let csr = Csr::<Flex>::from_host(&[0, 2, 3, 3], &[1, 2, 0], 3, &device).unwrap();
//! let x = Tensor::<Flex, 2>::from_data([[1.0], [10.0], [100.0]], &device);
//! let y = spmm(&csr, x, None, SpmmConfig::default());
//! assert_eq!(y.into_data().to_vec::<f32>().unwrap(), [110.0, 1.0, 0.0]);
//! ```

mod collective;
mod graph;
mod ops;
mod runtime;
mod sampling;
#[cfg(feature = "testing")]
pub mod testing;
mod trees;

pub use collective::{
    Begun, COLLECTIVE_DEADLINE, Call, Collective, CollectiveBackend, CollectiveError, CollectiveFault,
    CollectiveOperation, Communicator, Gathering, Hosts, LaunchEnvironment, LaunchError, Link, Place, Rendezvous,
    Traffic, at_depth, depth_of, host_identity,
};
#[cfg(feature = "cuda")]
pub use collective::{NcclConfig, probe_nccl};
pub use graph::csr::self_loops::{LoopValue, SelfLoops};
pub use graph::csr::{Csr, CsrArrays, CsrError};
pub use graph::drop_edge::DropEdge;
pub use graph::node_marks::{NodeMarks, NodeSetBackend, PendingCounts, PendingSets};
pub use graph::node_set::NodeSet;
pub use graph::row_index::{PairIndex, PairList, RowIndex, RowList};
pub use graph::upload::{RowIds, RowNumbers, upload_together};
pub use ops::adam::{AdamBackend, AdamConfig, AdamState, Clip, adam};
pub use ops::combine::{Activation, CombineBackend, combine};
pub use ops::dropout::{Dropout, DropoutBackend, dropout};
pub use ops::edge_softmax::{EdgeSoftmaxBackend, edge_softmax, edge_softmax_by_source};
pub use ops::gat::edges::{Age, EdgeRows, EdgeTerm, MAX_EDGE_COLUMNS, TimeEncoding, attend_edges};
pub use ops::gat::v2::{EdgeProjection, GatV2Backend, MAX_V2_CHANNELS, gatv2};
pub use ops::gat::{GatBackend, GatConfig, ScoreColumns, attend, attend_inputs, gat};
pub use ops::gather::{GatherBackend, gather_rows};
pub use ops::in_chunks::{ChunkBackend, Destinations, Term, sum_in_chunks};
pub use ops::linear::{LinearBackend, Part, combine_products, linear};
pub use ops::loss::{Focus, LossBackend, bce_with_logits_sum, focal_with_logits_sum, smoothness_sum};
pub use ops::message::{
    BinOp, EdgeValue, Message, MessageBackend, Reduce, SegmentOffsets, Strategy, Target, gsddmm, gspmm, segment_reduce,
};
pub use ops::normalise::{NormaliseBackend, normalise_rows};
pub use ops::pair_dot::{PairDotBackend, pair_dot};
pub use ops::pieces::{PiecesBackend, beside_pieces};
pub use ops::row_dots::{RowDotsBackend, row_dots};
pub use ops::segments::{Segments, SegmentsBackend};
pub use ops::select::{SelectBackend, select_rows};
pub use ops::spmm::{SelfTerm, SpmmBackend, SpmmConfig, spmm};
pub use ops::sum::{SumBackend, sum_of_squares};
#[cfg(feature = "cuda")]
pub use runtime::backends::Cuda;
#[cfg(feature = "vulkan")]
pub use runtime::backends::Vulkan;
pub use runtime::device;
pub use runtime::hash::splitmix64;
pub use runtime::lists::UploadBackend;
pub use runtime::memory::{DeviceMemory, MemoryBackend, MemoryProbe};
pub use runtime::prims::{NumberKind, Prefix, PrimsBackend, Reduction, argsort, partition_by_flag, prefix_sum, reduce};
pub use runtime::start_gradient::backward_from;
pub use runtime::turn::{AutodiffTurn, autodiff_turn};
#[cfg(feature = "testing")]
pub use runtime::upload::PIECE as UPLOAD_PIECE;
pub use runtime::upload::{download, upload, upload_data, upload_ints};
pub use sampling::backend::SampleBackend;
pub use sampling::collect::{RowCollector, RowSource};
pub use sampling::row_buffer::{PinnedRows, RowBuffer, RowBufferBackend};
pub use sampling::sample::{
    DeviceSample, DeviceSampler, MAX_FANOUT, NodeDraw, PackedSample, SampleRelation, SampleRows, SampleValues,
    SampleWeights, SampledCsr, SampledRelation, below, distinct, hash, repeated, repeated_by_weight, smallest,
    weighted_key,
};
pub use trees::boosting::{BoostBackend, BoostLoss, BoostTargets, boost_derivatives};
pub use trees::engine::{BoostEngine, LeafTask, TreeEngine};
pub use trees::histogram::{
    BinColumn, BinValues, FixedGradients, GradientSum, Histogram, HistogramBackend, TreeBins, TreeRows, gradients_agree,
};
pub use trees::partition::PartitionBackend;
pub use trees::split::{
    Counts, Cut, FeatureMask, GradientScale, Missing, Split, SplitBackend, SplitFeature, SplitFeatures, SplitLeaf,
    SplitRule, SplitSide, SplitTask, best_split, best_splits, better_split, finds_splits, root_output,
};
pub use trees::tree_device::{NoDoublePrecision, TreeBackend, TreeDevice};

macro_rules! graph_backend {
    ($($part:ident)+) => {
        /// A backend on which every operator of this crate runs.
        pub trait GraphBackend: $($part +)+ {}

        impl<B: $($part +)+> GraphBackend for B {}
    };
}

graph_backend! {
    MemoryBackend UploadBackend NodeSetBackend SelectBackend RowBufferBackend SampleBackend SpmmBackend
    EdgeSoftmaxBackend MessageBackend GatBackend GatV2Backend RowDotsBackend PairDotBackend GatherBackend
    LinearBackend CombineBackend NormaliseBackend PiecesBackend DropoutBackend LossBackend SumBackend SegmentsBackend
    AdamBackend ChunkBackend CollectiveBackend
}
