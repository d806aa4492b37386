//! Known labels on a device, and scores of all nodes none of which was told its own.

use burn::tensor::backend::Backend;
use burn::tensor::{Tensor, TensorData};

use crate::error::Result;
use crate::graph::{Features, Spill};
use crate::run::known_labels::{KnownLabels, LABEL_COLUMNS, Seen};

/// Scores of every node, by global id, and the refined embeddings.
pub struct HostScored {
    /// In [0, 1]; higher is more anomalous. NaN where the network overflows.
    pub scores: Vec<f32>,
    /// `[nodes, width]` in f32; without columns where they were not asked for.
    pub embeddings: Features,
}

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
/// which `pass` computes within what is left of `spill`. Nothing of any where the passes give none, since another rank
/// gets them.
///
/// # Errors
/// What a pass or a file of `spill` runs into.
pub fn by_passes(
    known: &KnownLabels,
    nodes: usize,
    wanted: Option<&[u32]>,
    spill: &Spill,
    mut pass: impl FnMut(&Seen, &Spill) -> Result<HostScored>,
) -> Result<HostScored> {
    let passes = known.passes();
    let mut of_pass: Vec<Vec<u32>> = vec![Vec::new(); passes.len()];
    match wanted {
        Some(wanted) => wanted.iter().for_each(|&node| of_pass[known.pass_of(node)].push(node)),
        None => (0..nodes as u32).for_each(|node| of_pass[known.pass_of(node)].push(node)),
    }
    for nodes in &mut of_pass {
        nodes.sort_unstable();
        nodes.dedup();
    }
    let mut all: Option<HostScored> = None;
    for (seen, nodes) in passes.iter().zip(&of_pass).filter(|(_, nodes)| !nodes.is_empty()) {
        let held = all.as_ref().map_or(0, |all| all.embeddings.bytes_in_memory());
        let HostScored { scores, embeddings } = pass(seen, &spill.beside(held))?;
        let Some(before) = all.take().filter(|_| !scores.is_empty()) else {
            all = Some(HostScored { scores, embeddings });
            continue;
        };
        let mut merged = before.scores;
        nodes.iter().for_each(|&node| merged[node as usize] = scores[node as usize]);
        let embeddings = with_rows(before.embeddings, nodes, &embeddings, spill)?;
        all = Some(HostScored { scores: merged, embeddings });
    }
    Ok(all.unwrap_or_else(|| HostScored { scores: Vec::new(), embeddings: Features::from_f32(Vec::new(), 0, 0) }))
}

/// Rows that are written at a time.
const PIECE_ROWS: usize = 1 << 16;

/// A matrix with the rows of `nodes`, which ascend, from another one.
fn with_rows(rows: Features, nodes: &[u32], others: &Features, spill: &Spill) -> Result<Features> {
    let [count, dim] = [rows.num_rows(), rows.dim()];
    if rows.bytes_in_memory() > 0 || dim == 0 {
        let (mut values, others) = (rows.into_f32(), others.as_f32());
        for node in nodes.iter().map(|&node| node as usize) {
            let row = &mut values[node * dim..(node + 1) * dim];
            row.iter_mut().zip(others.row(node)).for_each(|(to, from)| *to = *from);
        }
        return Ok(Features::from_f32(values, count, dim));
    }
    let mut merged = spill.zeros(count, dim)?;
    let [rows, others] = [&rows, others].map(Features::as_f32);
    let mut nodes = nodes.iter().map(|&node| node as usize).peekable();
    for first in (0..count).step_by(PIECE_ROWS) {
        merged.fill(first..count.min(first + PIECE_ROWS), |to| {
            for (node, to) in (first..).zip(to.chunks_exact_mut(dim)) {
                let from = if nodes.next_if_eq(&node).is_some() { others.row(node) } else { rows.row(node) };
                to.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
            }
        })?;
    }
    merged.finish()
}
