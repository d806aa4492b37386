//! Values of the edges of a graph that has one self-loop per node.

use burn::tensor::Tensor;
use graphsieve_kernels::testing::harness::Trial;
use graphsieve_kernels::testing::{Dtype, Fixture, assert_close, fixtures, probe, values_in};
use graphsieve_kernels::{GraphBackend, LoopValue, on_every_backend};

use crate::support::*;

/// The trials of this file.
pub fn trials() -> Vec<Trial> {
    on_every_backend!("self_loops"; values_match_their_definition)
}

fn values_match_their_definition<B: GraphBackend>(device: &B::Device) {
    check_values::<B>(Dtype::F32, device);
}

/// What goes into each entry of the graph with loops: edges and their shares, and a number.
fn shares(f: &Fixture, value: LoopValue) -> Vec<(Vec<(usize, f64)>, f64)> {
    let mut all = Vec::new();
    for i in 0..f.num_rows {
        let entries = f.row_ptr[i] as usize..f.row_ptr[i + 1] as usize;
        let (loops, others): (Vec<usize>, Vec<usize>) = entries.partition(|&e| f.col_idx[e] as usize == i);
        all.extend(others.iter().map(|&e| (vec![(e, 1.0)], 0.0)));
        let (averaged, fill) = match value {
            LoopValue::Mean => (others, 0.0),
            LoopValue::Kept(fill) => (loops, f64::from(fill)),
        };
        let share = 1.0 / averaged.len() as f64;
        let fill = if averaged.is_empty() { fill } else { 0.0 };
        all.push((averaged.into_iter().map(|e| (e, share)).collect(), fill));
    }
    all
}

pub fn check_values<B: GraphBackend>(dtype: Dtype, device: &B::Device) {
    for f in fixtures().into_iter().filter(|f| f.num_rows == f.num_cols && f.num_edges() > 0) {
        for (width, value) in [(1, LoopValue::Mean), (5, LoopValue::Mean), (3, LoopValue::Kept(0.5))] {
            let name = format!("self-loops {value:?} {dtype:?} of width {width} on {}", f.name);
            let looped = csr_of::<Ad<B>>(&f, device).with_self_loops();
            let shares = shares(&f, value);
            assert_eq!(looped.csr.num_edges(), shares.len(), "{name}");
            let xs = values_in(dtype, 141, f.num_edges() * width);
            let x: Tensor<Ad<B>, 2> = up(&xs, [f.num_edges(), width], dtype, device).require_grad();
            let out = looped.edge_values(x.clone(), value);
            let sum = |(edges, fill): &(Vec<(usize, f64)>, f64), c: usize| {
                fill + edges.iter().map(|(e, share)| share * xs[e * width + c]).sum::<f64>()
            };
            let want: Vec<f64> = shares.iter().flat_map(|entry| (0..width).map(move |c| sum(entry, c))).collect();
            assert_close(&name, &down(out.clone().inner()), &want, dtype, f.max_degree());
            let grads = backward::<B, 2>(out, dtype);
            let g: Vec<f64> = probe(want.len()).iter().map(|&p| dtype.round(p)).collect();
            let mut want = vec![0.0; xs.len()];
            for ((edges, _), g) in shares.iter().zip(g.chunks(width)) {
                for (e, share) in edges {
                    (0..width).for_each(|c| want[e * width + c] += share * g[c]);
                }
            }
            assert_close(&format!("{name}: dx"), &gradient::<B, 2>(&x, &grads), &want, dtype, f.max_degree());
        }
    }
}
