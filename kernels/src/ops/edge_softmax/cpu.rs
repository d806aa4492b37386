//! Edge softmax on the CPU: rows in parallel, each writes its own stretch of entries.

use burn::tensor::ops::{FloatTensor, IntTensor};
use burn_backend::TensorMetadata;
use burn_flex::{Flex, FlexTensor};
use rayon::prelude::*;

use super::EdgeSoftmaxBackend;
use crate::graph::csr::Topology;
use crate::runtime::flex::{self, Offsets, ROWS_PER_TASK, Storage, dot, in_edges, in_rows, with_storage};
use crate::runtime::rows::exp_weights;

impl EdgeSoftmaxBackend for Flex {
    fn edge_softmax_forward(
        topology: &Topology<IntTensor<Self>>,
        edge_map: Option<IntTensor<Self>>,
        logits: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        with_storage!(logits.dtype(), E => {
            let logits = in_rows::<E>(edge_map.as_ref(), logits);
            in_edges::<E>(edge_map.as_ref(), forward::<E>(topology, &logits))
        })
    }

    fn edge_softmax_backward(
        topology: &Topology<IntTensor<Self>>,
        edge_map: Option<IntTensor<Self>>,
        softmax: FloatTensor<Self>,
        g: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        with_storage!(softmax.dtype(), E => {
            let [softmax, g] = [softmax, g].map(|values| in_rows::<E>(edge_map.as_ref(), values));
            in_edges::<E>(edge_map.as_ref(), backward::<E>(topology, &softmax, &g))
        })
    }
}

fn forward<E: Storage>(topology: &Topology<FlexTensor>, logits: &FlexTensor) -> FlexTensor {
    rows::<E, 1>(topology, [logits], |[values]| {
        let (_, sum) = exp_weights(values);
        values.iter_mut().for_each(|value| *value /= sum);
    })
}

fn backward<E: Storage>(topology: &Topology<FlexTensor>, softmax: &FlexTensor, g: &FlexTensor) -> FlexTensor {
    rows::<E, 2>(topology, [softmax, g], |[a, da]| {
        let sum = dot(a, da);
        a.iter_mut().zip(da).for_each(|(a, da)| *a *= *da - sum);
    })
}

/// Runs `head` on the entries of every row and head of `inputs`; what it leaves in the first of them is the result.
fn rows<E: Storage, const N: usize>(
    topology: &Topology<FlexTensor>,
    inputs: [&FlexTensor; N],
    head: impl Fn([&mut [f32]; N]) + Sync,
) -> FlexTensor {
    let heads = inputs[0].shape()[1];
    let inputs = inputs.map(|input| flex::slice::<E>(input));
    let row_ptr = Offsets::of(&topology.row_ptr);
    let mut out = vec![E::default(); topology.num_edges * heads];
    // Rows own disjoint stretches of the output; split it once so that each task holds its own.
    let mut stretches = Vec::with_capacity(topology.num_rows.div_ceil(ROWS_PER_TASK));
    let mut rest = out.as_mut_slice();
    for first in (0..topology.num_rows).step_by(ROWS_PER_TASK) {
        let last = (first + ROWS_PER_TASK).min(topology.num_rows);
        let (stretch, tail) = rest.split_at_mut((row_ptr.get(last) - row_ptr.get(first)) * heads);
        stretches.push((first, last, stretch));
        rest = tail;
    }
    stretches.into_par_iter().for_each(|(first, last, mut rest)| {
        let mut wide: [Vec<f32>; N] = std::array::from_fn(|_| Vec::new());
        let mut columns: [Vec<f32>; N] = std::array::from_fn(|_| Vec::new());
        for i in first..last {
            let range = row_ptr.row(i);
            let len = range.len() * heads;
            for (wide, input) in wide.iter_mut().zip(inputs) {
                wide.resize(len, 0.0);
                E::widen(&input[range.start * heads..range.end * heads], wide);
            }
            if heads == 1 {
                head(wide.each_mut().map(Vec::as_mut_slice));
            } else {
                for h in 0..heads {
                    for (column, wide) in columns.iter_mut().zip(&wide) {
                        column.clear();
                        column.extend(wide[h.min(len)..].iter().step_by(heads));
                    }
                    head(columns.each_mut().map(Vec::as_mut_slice));
                    wide[0][h.min(len)..].iter_mut().step_by(heads).zip(&columns[0]).for_each(|(v, &of)| *v = of);
                }
            }
            let (row, tail) = rest.split_at_mut(len);
            E::narrow(&wide[0], row);
            rest = tail;
        }
    });
    flex::tensor(out, [topology.num_edges, heads])
}
