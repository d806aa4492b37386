//! Known labels on a device, and scores of all nodes none of which was told its own.

use burn::tensor::backend::Backend;
use burn::tensor::{Tensor, TensorData};
use ndarray::Array2;

use super::layerwise::HostScored;
use crate::error::Result;
use crate::run::known_labels::{KnownLabels, LABEL_COLUMNS, Seen};

/// Rows of every type with columns of labels behind theirs.
///
/// # Shapes
/// `x` `[rows, width]` and `columns` `rows * 2` values per type; the result is `[rows, width + 2]`.
pub fn beside<B: Backend>(x: &[Tensor<B, 2>], columns: Vec<Vec<f32>>) -> Vec<Tensor<B, 2>> {
    let of_type = |(x, columns): (&Tensor<B, 2>, Vec<f32>)| {
        let ([rows, width], device, dtype) = (x.dims(), x.device(), x.dtype());
        if rows == 0 {
            // No device takes a launch over nothing.
            return Tensor::empty([0, width + LABEL_COLUMNS.len()], (&device, dtype));
        }
        let data = TensorData::new(columns, [rows, LABEL_COLUMNS.len()]).convert_dtype(dtype);
        Tensor::cat(vec![x.clone(), Tensor::from_data(data, (&device, dtype))], 1)
    };
    x.iter().zip(columns).map(of_type).collect()
}

/// Scores and embeddings of all nodes, or at least of those in `wanted`: each by the pass that does not see its label,
/// which `pass` computes.
///
/// # Errors
/// What a pass runs into.
pub fn by_passes(
    known: &KnownLabels,
    nodes: usize,
    wanted: Option<&[u32]>,
    mut pass: impl FnMut(&Seen) -> Result<HostScored>,
) -> Result<HostScored> {
    let passes = known.passes();
    let mut of_pass: Vec<Vec<u32>> = vec![Vec::new(); passes.len()];
    match wanted {
        Some(wanted) => wanted.iter().for_each(|&node| of_pass[known.pass_of(node)].push(node)),
        None => (0..nodes as u32).for_each(|node| of_pass[known.pass_of(node)].push(node)),
    }
    let mut all: Option<HostScored> = None;
    for (seen, nodes) in passes.iter().zip(&of_pass).filter(|(_, nodes)| !nodes.is_empty()) {
        let scored = pass(seen)?;
        match &mut all {
            None => all = Some(scored),
            Some(all) => {
                for node in nodes.iter().map(|&node| node as usize) {
                    all.scores[node] = scored.scores[node];
                    all.embeddings.row_mut(node).assign(&scored.embeddings.row(node));
                }
            }
        }
    }
    Ok(all.unwrap_or_else(|| HostScored { scores: Vec::new(), embeddings: Array2::zeros((0, 0)) }))
}
