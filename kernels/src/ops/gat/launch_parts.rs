//! What launches of attention have in common.

use burn::tensor::DType;
use burn_cubecl::CubeRuntime;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::kernel::{AttendedArgs, AttendedLaunch, GatShape, RulesArgs, RulesLaunch, ScoreArgs, ScoreLaunch};
use super::{GatArgs, GatForward, Scores};
use crate::graph::drop_edge::{DropEdge, DropEdgeKey, DropMode};
use crate::graph::row_schedule::RowLaunch;
use crate::ops::dropout::Dropout;
use crate::ops::dropout::kernel::DropoutKey;
use crate::runtime::args::array;
use crate::runtime::launch::{PlanePerRow, Target};

/// Cubes of a launch that leaves sums per plane: enough for every multiprocessor of a large GPU.
const PARTIAL_CUBES: usize = 1024;
/// Where the sums are few there are more cubes, which end closer together: these many bytes are added up in no time
/// beside the launch.
const PARTIAL_BYTES: usize = 16 << 20;

/// A launch whose planes leave a partial sum each.
pub(super) struct PartialLaunch<R: CubeRuntime> {
    pub row_launch: RowLaunch<R>,
    pub cubes: u32,
    /// Number of the first of its partial sums.
    pub first: usize,
}

/// The launches with a bounded number of planes, each of which leaves `width` sums and walks as many rows as it takes,
/// and the number of planes of all of them.
pub(super) fn in_partial_sums<R: CubeRuntime>(
    row_launches: Vec<RowLaunch<R>>,
    width: usize,
) -> (Vec<PartialLaunch<R>>, usize) {
    let mut planes = 0;
    let bounded = |row_launch: RowLaunch<R>| {
        let most = PARTIAL_BYTES / (row_launch.dim.y as usize * width * size_of::<f32>());
        let (cubes, first) = (row_launch.cubes().min(most.max(PARTIAL_CUBES) as u32), planes);
        planes += (cubes * row_launch.dim.y) as usize;
        PartialLaunch { row_launch, cubes, first }
    };
    let launches = row_launches.into_iter().map(bounded).collect();
    (launches, planes)
}

pub(super) fn score<R: CubeRuntime>(score: &Scores<CubeTensor<R>>) -> ScoreLaunch<R> {
    let (values, columns) = (array(&score.matrix), score.matrix.meta.shape()[1]);
    ScoreArgs { values, columns, first: score.first }.launch()
}

pub(super) fn rules<R: CubeRuntime>(
    args: &GatArgs,
    drop_edge: &Option<DropEdge>,
    dropout: &Option<Dropout>,
) -> RulesLaunch<R> {
    RulesArgs { slope: args.negative_slope, drop: DropEdgeKey::launch(drop_edge), dropout: DropoutKey::launch(dropout) }
        .launch()
}

pub(super) fn attended<F: Float, N: Size, R: CubeRuntime>(
    result: &GatForward<CubeTensor<R>>,
) -> AttendedLaunch<F, N, R> {
    AttendedArgs { out: array(&result.out), log_sum_exp: array(&result.log_sum_exp) }.launch()
}

/// Where the gradient of `scores` goes.
pub(super) fn score_target<R: CubeRuntime>(
    scores: &Scores<CubeTensor<R>>,
    accumulate_into: Option<CubeTensor<R>>,
) -> Target<R> {
    let shape = scores.matrix.meta.shape();
    Target::of(accumulate_into, &scores.matrix, [shape[0], shape[1]], DType::F32)
}

/// Shared memory per thread that hands over the weights of several heads; twice the weights covers the gaps between
/// heads.
pub(super) fn handed_bytes(heads: usize) -> usize {
    if heads == 1 { 0 } else { 2 * heads * size_of::<f32>() }
}

pub(super) fn shape(
    geometry: &PlanePerRow,
    args: &GatArgs,
    vectors: usize,
    drop_edge: &Option<DropEdge>,
    attention_dropout: &Option<Dropout>,
) -> GatShape {
    GatShape {
        heads: args.heads,
        slots: geometry.slots(vectors),
        second: false,
        through_score: false,
        whole: false,
        accumulate_features: false,
        accumulate_score: false,
        drop: DropMode::of(drop_edge),
        attention_dropout: DropMode::of(&attention_dropout.map(|dropout| dropout.key)),
    }
}
