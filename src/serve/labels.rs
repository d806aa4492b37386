//! How good the scores were, from labels that came in later.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::Serialize;

use crate::live::NodeKey;
use crate::metrics::Ranking;

/// Scored nodes that wait for a label, at most; the oldest leave first.
const MOST_SCORED: usize = 100_000;
/// The figures are those of the last nodes that were labelled, so many at most.
const MOST_LABELLED: usize = 10_000;

/// Scores that were given, and the labels of some of them.
///
/// A score counts that was given before the label came: afterwards a model may have read the label.
#[derive(Debug)]
pub struct Labels {
    threshold: f32,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    scored: Latest<f32>,
    labelled: Latest<(f32, u8)>,
}

/// Of the last nodes that were labelled.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figures {
    /// Nodes that have a score and no label yet.
    pub waiting: usize,
    pub labelled: usize,
    pub anomalous: usize,
    /// From this score on a node is flagged.
    pub threshold: f32,
    pub flagged: usize,
    /// Share of the flagged nodes that are anomalous; none where none is flagged.
    pub precision: Option<f64>,
    /// Share of the anomalous nodes that are flagged; none without anomalous ones.
    pub recall: Option<f64>,
    /// None unless both classes are there.
    pub average_precision: Option<f64>,
}

impl Labels {
    pub fn new(threshold: f32) -> Self {
        let inner = Inner { scored: Latest::new(MOST_SCORED), labelled: Latest::new(MOST_LABELLED) };
        Self { threshold, inner: inner.into() }
    }

    /// A node was scored; only the last score before its label counts.
    pub fn scored(&self, node: &NodeKey, score: f32) {
        let mut inner = self.lock();
        if score.is_finite() && inner.labelled.get(node).is_none() {
            inner.scored.insert(node.clone(), score);
        }
    }

    /// A label came in, 1 of an anomalous node and 0 of a normal one; it corrects an earlier one. Without effect for a
    /// node that was not scored lately.
    pub fn label(&self, node: &NodeKey, label: u8) {
        let mut inner = self.lock();
        let labelled = inner.labelled.get(node).map(|(score, _)| *score);
        if let Some(score) = labelled.or_else(|| inner.scored.remove(node)) {
            inner.labelled.insert(node.clone(), (score, label));
        }
    }

    pub fn forget(&self, node: &NodeKey) {
        let mut inner = self.lock();
        inner.scored.forget(node);
        inner.labelled.forget(node);
    }

    pub fn figures(&self) -> Figures {
        let inner = self.lock();
        let (scores, labels): (Vec<f32>, Vec<u8>) = inner.labelled.values().copied().unzip();
        let waiting = inner.scored.len();
        drop(inner);
        let count = |wanted: &dyn Fn(f32, u8) -> bool| {
            scores.iter().zip(&labels).filter(|(score, label)| wanted(**score, **label)).count()
        };
        let flagged = count(&|score, _| score >= self.threshold);
        let anomalous = count(&|_, label| label == 1);
        let found = count(&|score, label| score >= self.threshold && label == 1);
        let share = |of: usize| (of > 0).then(|| found as f64 / of as f64);
        // Refused only without both classes.
        let average_precision = Ranking::new(&scores, &labels).ok().and_then(|ranking| ranking.average_precision());
        Figures {
            waiting,
            labelled: labels.len(),
            anomalous,
            threshold: self.threshold,
            flagged,
            precision: share(flagged),
            recall: share(anomalous),
            average_precision,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Values of the nodes that were inserted last.
#[derive(Debug)]
struct Latest<V> {
    most: usize,
    values: HashMap<NodeKey, (u64, V)>,
    /// By the number of the insertion; one that is no longer a node's last is left for a while.
    order: VecDeque<(u64, NodeKey)>,
    next: u64,
}

impl<V> Latest<V> {
    fn new(most: usize) -> Self {
        Self { most, values: HashMap::new(), order: VecDeque::new(), next: 0 }
    }

    fn get(&self, node: &NodeKey) -> Option<&V> {
        self.values.get(node).map(|(_, value)| value)
    }

    fn insert(&mut self, node: NodeKey, value: V) {
        self.order.push_back((self.next, node.clone()));
        self.values.insert(node, (self.next, value));
        self.next += 1;
        // Nodes count, not insertions: one that is inserted again and again drives out no other.
        while self.values.len() > self.most
            && let Some((number, node)) = self.order.pop_front()
        {
            if self.is_last(number, &node) {
                self.values.remove(&node);
            }
        }
        if self.order.len() > 2 * self.most {
            let order = std::mem::take(&mut self.order);
            self.order = order.into_iter().filter(|(number, node)| self.is_last(*number, node)).collect();
        }
    }

    fn is_last(&self, number: u64, node: &NodeKey) -> bool {
        self.values.get(node).is_some_and(|(last, _)| *last == number)
    }

    /// Removes it with all that tells of it.
    fn forget(&mut self, node: &NodeKey) {
        self.values.remove(node);
        self.order.retain(|(_, other)| other != node);
    }

    fn remove(&mut self, node: &NodeKey) -> Option<V> {
        let (number, value) = self.values.remove(node)?;
        // By ascending number.
        if let Ok(at) = self.order.binary_search_by_key(&number, |(number, _)| *number) {
            self.order.remove(at);
        }
        Some(value)
    }

    fn len(&self) -> usize {
        self.values.len()
    }

    fn values(&self) -> impl Iterator<Item = &V> {
        self.values.values().map(|(_, value)| value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(number: usize) -> NodeKey {
        NodeKey { node_type: "payment".into(), id: number.to_string() }
    }

    #[test]
    fn labels_join_the_scores_that_were_given_before_them() {
        let labels = Labels::new(0.5);
        let none = labels.figures();
        assert_eq!((none.labelled, none.precision, none.recall, none.average_precision), (0, None, None, None));
        for (at, score) in [0.9, 0.2, 0.7, 0.6, 0.1, f32::NAN].into_iter().enumerate() {
            labels.scored(&node(at), score);
        }
        labels.scored(&node(1), 0.4);
        for (at, label) in [(0, 1), (1, 1), (2, 0), (3, 0), (9, 1), (5, 1)] {
            labels.label(&node(at), label);
        }
        // What the model says when it may know the label does not count.
        labels.scored(&node(1), 1.0);
        let figures = labels.figures();
        assert_eq!((figures.waiting, figures.labelled, figures.anomalous, figures.flagged), (1, 4, 2, 3));
        assert_eq!((figures.precision, figures.recall), (Some(1.0 / 3.0), Some(0.5)));
        assert_eq!(figures.average_precision, Some((1.0 + 2.0 / 4.0) / 2.0));
        // A correction, and a node that is forgotten.
        labels.label(&node(2), 1);
        assert_eq!(labels.figures().precision, Some(2.0 / 3.0));
        labels.forget(&node(0));
        labels.forget(&node(4));
        let figures = labels.figures();
        assert_eq!((figures.waiting, figures.labelled, figures.flagged), (0, 3, 2));
    }

    #[test]
    fn the_oldest_leave_and_a_new_value_makes_a_node_new() {
        let mut latest = Latest::new(3);
        for (at, value) in [(1, 'a'), (2, 'b'), (1, 'c'), (3, 'd')] {
            latest.insert(node(at), value);
        }
        assert_eq!([1, 2, 3].map(|at| latest.get(&node(at)).copied()), [Some('c'), Some('b'), Some('d')]);
        latest.insert(node(4), 'e');
        assert_eq!([1, 2, 3, 4].map(|at| latest.get(&node(at)).copied()), [Some('c'), None, Some('d'), Some('e')]);
        assert_eq!(latest.remove(&node(3)), Some('d'));
        (5..100).for_each(|at| latest.insert(node(at), 'f'));
        assert_eq!((latest.len(), latest.order.len()), (3, 3));
        (0..100).for_each(|_| latest.insert(node(99), 'g'));
        assert_eq!([97, 98, 99].map(|at| latest.get(&node(at)).copied()), [Some('f'), Some('f'), Some('g')]);
        assert!(latest.order.len() <= 6);
        latest.forget(&node(99));
        assert!(latest.len() == 2 && latest.order.iter().all(|(_, other)| *other != node(99)));
    }
}
