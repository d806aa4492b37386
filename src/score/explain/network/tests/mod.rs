mod classifier;
mod stage2;

use super::*;

const ALL: Limits = Limits { neighbours: usize::MAX, paths: usize::MAX };

/// Every way to add up what an explanation has gives the logit.
fn assert_adds_up(node: u32, found: &Attributed, logit: f64) {
    let of_edges: f64 = found.edges.iter().flatten().sum();
    let sums = [
        found.entries.iter().map(|entry| entry.contribution).sum::<f64>(),
        found.columns.iter().sum::<f64>() + of_edges + found.biases,
        found.by_type.iter().sum::<f64>() + found.own_features + of_edges + found.biases,
    ];
    for sum in [found.base + sums[0], found.base + sums[1], found.base + sums[2], found.logit] {
        assert!((sum - logit).abs() < 1e-9, "node {node}: {} with {sums:?}, {}, and {logit}", found.base, found.logit);
    }
}
