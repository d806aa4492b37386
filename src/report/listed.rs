//! Every node by its score: histograms, and the list of the highest.

use super::data::{Anomaly, Histogram, NodeClass, Question};
use super::held_out::labelled;
use crate::score::explain::between;
use crate::score::ranking::Scored;

/// Bins of a histogram.
const HISTOGRAM_BINS: usize = 40;

/// One histogram of all nodes, then one per node type where there are several; beside it the `test` labels.
pub(super) fn histograms(scored: &Scored, question: Question, test: &[(u32, u8)]) -> Vec<Histogram> {
    let finite = || scored.scores.iter().copied().filter(|score| score.is_finite());
    if finite().next().is_none() {
        return Vec::new();
    }
    // Scores are shares; others get the range that they have.
    let low = f64::from(finite().fold(0.0, f32::min));
    let high = f64::from(finite().fold(1.0, f32::max));
    let bin = |score: f32| {
        let place = (f64::from(score) - low) / (high - low) * HISTOGRAM_BINS as f64;
        (place as usize).min(HISTOGRAM_BINS - 1)
    };
    let graph = &scored.dataset.graph;
    let empty = |name: &str| Histogram {
        name: name.into(),
        low,
        high,
        all: vec![0; HISTOGRAM_BINS],
        normal: vec![0; HISTOGRAM_BINS],
        anomalous: vec![0; HISTOGRAM_BINS],
    };
    let types = graph.node_types();
    let mut made: Vec<Histogram> =
        std::iter::once(empty("all types")).chain(types.iter().map(|node_type| empty(&node_type.name))).collect();
    for (node, &score) in scored.scores.iter().enumerate().filter(|(_, score)| score.is_finite()) {
        for at in [0, 1 + graph.type_of(node)] {
            made[at].all[bin(score)] += 1;
        }
    }
    let test = labelled(scored.scores, test);
    let conspicuous = if question == Question::Predicted { 0 } else { 1 };
    for ((&node, &score), &label) in test.nodes.iter().zip(&test.scores).zip(&test.labels) {
        for at in [0, 1 + graph.type_of(node as usize)] {
            let counts = if label == conspicuous { &mut made[at].anomalous } else { &mut made[at].normal };
            counts[bin(score)] += 1;
        }
    }
    made.truncate(if types.len() > 1 { made.len() } else { 1 });
    made.retain(|histogram| histogram.all.iter().any(|&count| count > 0));
    made
}

/// The `top` highest scores; of equal ones the lowest node first.
pub(super) fn anomalies(scored: &Scored, top: usize, labels: &[Option<u32>], with_labelled: bool) -> Vec<Anomaly> {
    let Scored { dataset, scores, classes, .. } = *scored;
    let listed = |node: u32| scores[node as usize].is_finite() && (with_labelled || labels[node as usize].is_none());
    let mut order: Vec<u32> = (0..scores.len() as u32).filter(|&node| listed(node)).collect();
    let compare = |a: &u32, b: &u32| scores[*b as usize].total_cmp(&scores[*a as usize]).then(a.cmp(b));
    if top < order.len() {
        if top > 0 {
            order.select_nth_unstable_by(top - 1, compare);
        }
        order.truncate(top);
    }
    order.sort_unstable_by(compare);
    let graph = &dataset.graph;
    let anomaly = |(at, &node): (usize, &u32)| {
        let node_type = &graph.node_types()[graph.type_of(node as usize)];
        let known = labels[node as usize];
        let class = classes.map(|view| NodeClass { predicted: view.predicted()[node as usize], known });
        let label = known.map(|label| match class {
            Some(class) => (label != class.predicted, scored.part_of(node)),
            None => (label == 1, scored.part_of(node)),
        });
        Anomaly {
            rank: at + 1,
            node,
            node_type: node_type.name.clone(),
            id: dataset.id_of(node).into_owned(),
            between: between(dataset, node),
            score: f64::from(scores[node as usize]),
            probability: scored.probability(node),
            label,
            class,
            explanation: None,
        }
    };
    order.iter().enumerate().map(anomaly).collect()
}
