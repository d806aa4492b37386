//! Edge softmax on the CPU: rows in parallel, each writes its own stretch of entries.

use burn::tensor::ops::{FloatTensor, IntTensor};
use burn_backend::TensorMetadata;
use burn_flex::{Flex, FlexTensor};
use rayon::prelude::*;

use super::EdgeSoftmaxBackend;
use crate::csr::Topology;
use crate::flex::{self, Offsets, ROWS_PER_TASK, Storage, in_edges, in_rows, with_storage};

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
    let logits_of = flex::slice::<E>(logits);
    rows::<E>(topology, logits, |heads, h, range, out| {
        let mut values = vec![0f32; out.len()];
        E::widen(&logits_of[range.start * heads..range.end * heads], &mut values);
        let own = || (h..values.len()).step_by(heads);
        let max = own().map(|k| values[k]).fold(f32::MIN, f32::max);
        let sum: f32 = own().map(|k| (values[k] - max).exp()).sum();
        own().for_each(|k| out[k] = (values[k] - max).exp() / sum);
    })
}

fn backward<E: Storage>(topology: &Topology<FlexTensor>, softmax: &FlexTensor, g: &FlexTensor) -> FlexTensor {
    let (softmax_of, g_of) = (flex::slice::<E>(softmax), flex::slice::<E>(g));
    rows::<E>(topology, softmax, |heads, h, range, out| {
        let (mut a, mut da) = (vec![0f32; out.len()], vec![0f32; out.len()]);
        E::widen(&softmax_of[range.start * heads..range.end * heads], &mut a);
        E::widen(&g_of[range.start * heads..range.end * heads], &mut da);
        let own = || (h..a.len()).step_by(heads);
        let dot: f32 = own().map(|k| a[k] * da[k]).sum();
        own().for_each(|k| out[k] = a[k] * (da[k] - dot));
    })
}

/// Fills the entries of every row and head with `fill(heads, head, entries of the row, values of the row)`.
fn rows<E: Storage>(
    topology: &Topology<FlexTensor>,
    like: &FlexTensor,
    fill: impl Fn(usize, usize, std::ops::Range<usize>, &mut [f32]) + Sync,
) -> FlexTensor {
    let heads = like.shape()[1];
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
    stretches.into_par_iter().for_each(|(first, last, stretch)| {
        let start = row_ptr.get(first);
        let mut values = Vec::new();
        for i in first..last {
            let range = row_ptr.row(i);
            values.clear();
            values.resize(range.len() * heads, 0f32);
            for h in 0..heads {
                fill(heads, h, range.clone(), &mut values);
            }
            E::narrow(&values, &mut stretch[(range.start - start) * heads..(range.end - start) * heads]);
        }
    });
    flex::tensor(out, [topology.num_edges, heads])
}
