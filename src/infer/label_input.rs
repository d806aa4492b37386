//! Known labels on a device, and what is said of all nodes none of which was told its own.

use std::path::Path;

use burn::tensor::backend::Backend;
use burn::tensor::{DType, Tensor, TensorData};
use ndarray::Array2;

use super::layerwise::HostScored;
use crate::error::{Error, Result};
use crate::graph::{Dataset, NodeType};
use crate::run::known_labels::{KnownLabels, LABEL_COLUMNS, Seen};

/// The labels that a model of the run at `checkpoint` reads, for a `dataset`, which was read from `data`.
///
/// # Errors
/// A checkpoint outside of its run, and as for [`KnownLabels::read`].
pub fn labels_of_run(checkpoint: &Path, dataset: &Dataset, data: &Path) -> Result<KnownLabels> {
    if !checkpoint.is_dir() {
        let help = "give the directory of the run: it holds the labels that the model reads";
        return Err(Error::format(checkpoint, "known labels", "the directory of a run", "a checkpoint alone", help));
    }
    KnownLabels::read(checkpoint, dataset, data)
}

/// Two columns of labels on a device.
fn uploaded<B: Backend>(columns: Vec<f32>, rows: usize, dtype: DType, device: &B::Device) -> Tensor<B, 2> {
    let shape = [rows, LABEL_COLUMNS.len()];
    let made = || Tensor::from_data(TensorData::new(columns, shape).convert_dtype(dtype), (device, dtype));
    unless_empty(shape, dtype, device, made)
}

/// What is `made`, but of a type without nodes nothing: no device takes a launch over nothing.
fn unless_empty<B: Backend>(
    shape: [usize; 2],
    dtype: DType,
    device: &B::Device,
    made: impl FnOnce() -> Tensor<B, 2>,
) -> Tensor<B, 2> {
    if shape[0] == 0 { Tensor::empty(shape, (device, dtype)) } else { made() }
}

/// Rows of every type with columns of labels behind theirs.
///
/// # Shapes
/// `x` `[rows, width]` and `columns` `rows * 2` values per type; the result is `[rows, width + 2]`.
pub fn beside<B: Backend>(x: &[Tensor<B, 2>], columns: Vec<Vec<f32>>) -> Vec<Tensor<B, 2>> {
    let of_type = |(x, columns): (&Tensor<B, 2>, Vec<f32>)| {
        let ([rows, width], device, dtype) = (x.dims(), x.device(), x.dtype());
        let made = || Tensor::cat(vec![x.clone(), uploaded(columns, rows, dtype, &device)], 1);
        unless_empty([rows, width + LABEL_COLUMNS.len()], dtype, &device, made)
    };
    x.iter().zip(columns).map(of_type).collect()
}

/// Of every type, `[nodes, 2]`: whether a node is known to be anomalous, and whether `seen` shows no label of it.
pub fn partition<B: Backend>(
    known: &KnownLabels,
    seen: &Seen,
    types: &[NodeType],
    dtype: DType,
    device: &B::Device,
) -> Vec<Tensor<B, 2>> {
    let of_type = |(of, columns): (&NodeType, Vec<f32>)| {
        let row = |row: &[f32]| [row[0], 1.0 - row[0] - row[1]];
        let columns = columns.chunks_exact(LABEL_COLUMNS.len()).flat_map(row).collect();
        uploaded(columns, of.count, dtype, device)
    };
    types.iter().zip(known.by_type(seen, types)).map(of_type).collect()
}

/// What is said of all nodes, or at least of those in `wanted`: of each by the pass that does not see its label. `pass`
/// computes one for all nodes, and `take` takes over what another says of a node; `None` where no node is wanted.
///
/// # Errors
/// What a pass runs into.
pub fn by_passes<T>(
    known: &KnownLabels,
    nodes: usize,
    wanted: Option<&[u32]>,
    mut pass: impl FnMut(&Seen) -> Result<T>,
    take: impl Fn(&mut T, &T, usize),
) -> Result<Option<T>> {
    let passes = known.passes();
    let mut of_pass: Vec<Vec<u32>> = vec![Vec::new(); passes.len()];
    match wanted {
        Some(wanted) => wanted.iter().for_each(|&node| of_pass[known.pass_of(node)].push(node)),
        None => (0..nodes as u32).for_each(|node| of_pass[known.pass_of(node)].push(node)),
    }
    let mut all: Option<T> = None;
    for (seen, nodes) in passes.iter().zip(&of_pass).filter(|(_, nodes)| !nodes.is_empty()) {
        let said = pass(seen)?;
        match &mut all {
            None => all = Some(said),
            Some(all) => nodes.iter().for_each(|&node| take(all, &said, node as usize)),
        }
    }
    Ok(all)
}

/// [`by_passes`] of scores and embeddings.
///
/// # Errors
/// What a pass runs into.
pub fn scored_by_passes(
    known: &KnownLabels,
    nodes: usize,
    wanted: Option<&[u32]>,
    pass: impl FnMut(&Seen) -> Result<HostScored>,
) -> Result<HostScored> {
    let all = by_passes(known, nodes, wanted, pass, |all, scored, node| {
        all.scores[node] = scored.scores[node];
        all.embeddings.row_mut(node).assign(&scored.embeddings.row(node));
    })?;
    Ok(all.unwrap_or_else(|| HostScored { scores: Vec::new(), embeddings: Array2::zeros((0, 0)) }))
}
