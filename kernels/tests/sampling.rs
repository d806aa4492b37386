//! What a device samples is what the rule says, on every backend of the build that samples.

#[macro_use]
mod backends;

use std::collections::BTreeSet;

use graphsieve_kernels::{
    DeviceSampler, DropEdge, MAX_FANOUT, NodeDraw, SampleBackend, SampleRelation, distinct, hash, repeated,
};

on_every_backend!(
    crate;
    rows_are_drawn_by_the_rule,
    new_nodes_are_listed_in_the_order_of_their_first_edge,
);

/// Rows of so many entries; sources are `7 k % sources`.
fn graph(degrees: &[usize], sources: usize) -> (Vec<u64>, Vec<u32>) {
    let mut row_ptr = vec![0];
    for degree in degrees {
        row_ptr.push(row_ptr[row_ptr.len() - 1] + *degree as u64);
    }
    let entries = row_ptr[degrees.len()] as usize;
    (row_ptr, (0..entries).map(|k| (k * 7 % sources) as u32).collect())
}

/// A sampler of one relation between two types; `None`, said aloud, where the device samples nothing.
fn sampler<B: SampleBackend>(
    degrees: &[usize],
    sources: usize,
    pinned: bool,
    device: &B::Device,
) -> Option<DeviceSampler<B>> {
    let (row_ptr, col_idx) = graph(degrees, sources);
    let relation = SampleRelation::new([1, 0], &row_ptr, &col_idx, pinned, device);
    match relation.and_then(|relation| DeviceSampler::new(vec![relation], &[degrees.len(), sources], device)) {
        Ok(sampler) => Some(sampler),
        Err(reason) => {
            assert!(pinned || !B::SAMPLES, "{reason}");
            eprintln!("skipped, pinned {pinned}: {reason}");
            None
        }
    }
}

pub fn rows_are_drawn_by_the_rule<B: SampleBackend>(device: &B::Device) {
    let degrees: Vec<usize> = (0..300).map(|row| [0, 1, 2, 5, 40, 63, 64, 65, 1000][row % 9] + row % 4).collect();
    let (row_ptr, col_idx) = graph(&degrees, 5000);
    for pinned in [false, true] {
        let Some(mut sampler) = sampler::<B>(&degrees, 5000, pinned, device) else { continue };
        for (fanout, replace) in [
            (Some(1), false),
            (Some(5), false),
            (Some(MAX_FANOUT), false),
            (None, false),
            (Some(7), true),
            (None, true),
        ] {
            for (rate, key) in [(0.0, 3u64), (0.5, u64::MAX - 4)] {
                let drop_edge = DropEdge::new(rate, 2, 1, 0, 0);
                let rows: Vec<u32> = (0..300).rev().collect();
                let seeds = [rows.clone(), vec![]];
                let draw = NodeDraw { fanout, replace, key, drop_edge };
                let sample = sampler.sample(&seeds, 1, |_, _| draw);
                let [starts, cols, edges] = sample.blocks[0][0].to_host();
                let nodes = &sample.nodes_to_host()[1];
                assert_eq!(nodes.iter().collect::<BTreeSet<_>>().len(), nodes.len(), "distinct");
                let name = format!("fanout {fanout:?}, replace {replace}, rate {rate}, pinned {pinned}");
                let mut at = 0;
                for (k, &row) in rows.iter().enumerate() {
                    let degree = degrees[row as usize];
                    let count = match fanout {
                        None => degree,
                        Some(fanout) if replace => fanout as usize * usize::from(degree > 0),
                        Some(fanout) => degree.min(fanout as usize),
                    };
                    let mut taken = vec![0; count];
                    match replace && fanout.is_some() {
                        true => repeated(&mut taken, degree, hash(key, row.into())),
                        false => distinct(&mut taken, degree, hash(key, row.into())),
                    }
                    let first = row_ptr[row as usize] as u32;
                    let kept = |edge: &u32| drop_edge.is_none_or(|drop| drop.keeps(row, col_idx[*edge as usize]));
                    let want: Vec<u32> = taken.into_iter().map(|place| first + place).filter(kept).collect();
                    assert_eq!(starts[k] as usize, at, "{name}: start of row {row}");
                    assert_eq!(edges[at..at + want.len()], want, "{name}: row {row} of {degree} entries");
                    for entry in at..at + want.len() {
                        assert_eq!(nodes[cols[entry] as usize], col_idx[edges[entry] as usize], "{name}");
                    }
                    at += want.len();
                }
                assert_eq!((starts[300] as usize, edges.len()), (at, at), "{name}");
            }
        }
    }
}

pub fn new_nodes_are_listed_in_the_order_of_their_first_edge<B: SampleBackend>(device: &B::Device) {
    let degrees = vec![40; 5000];
    let Some(mut sampler) = sampler::<B>(&degrees, 900, false, device) else { return };
    let draw = NodeDraw { fanout: Some(6), replace: false, key: 9, drop_edge: None };
    // Again and again: nothing is left of the batch before.
    for seeds in [4000u32, 3, 5000, 0, 900] {
        let known = vec![17, 899, 0];
        let sample = sampler.sample(&[(0..seeds).collect(), known.clone()], 1, |_, _| draw);
        let [_, cols, edges] = sample.blocks[0][0].to_host();
        let mut nodes = known;
        for (&col, &edge) in cols.iter().zip(&edges) {
            let source = edge * 7 % 900;
            let place = nodes.iter().position(|&node| node == source).unwrap_or_else(|| {
                nodes.push(source);
                nodes.len() - 1
            });
            assert_eq!(col as usize, place);
        }
        assert_eq!(sample.nodes_to_host()[1], nodes);
        assert_eq!(sample.counts, [[seeds as usize, 3], [seeds as usize, nodes.len()]]);
    }
}
