//! What moves with a window over positions: the largest value, different counterparts.

use std::collections::VecDeque;

use super::history::Alike;

/// No position.
const NONE: u32 = u32::MAX;

/// By position: where the same counterpart occurs next before and behind; [`NONE`] where nowhere.
#[derive(Default)]
pub(super) struct Links {
    before: Vec<u32>,
    behind: Vec<u32>,
    /// Whether the event names a counterpart at all.
    named: Vec<bool>,
}

impl Links {
    /// Of the counterparts of one entity's events; `alike` is memory for it.
    pub(super) fn fill(&mut self, alike: &mut Alike, counterparts: impl Iterator<Item = u32> + Clone) {
        alike.fill(counterparts.clone());
        self.fill_from(alike, counterparts);
    }

    /// The same, of the counterparts that `alike` holds.
    pub(super) fn fill_from(&mut self, alike: &Alike, counterparts: impl Iterator<Item = u32>) {
        self.named.clear();
        self.named.extend(counterparts.map(|id| id != u32::MAX));
        for links in [&mut self.before, &mut self.behind] {
            links.clear();
            links.resize(self.named.len(), NONE);
        }
        for (_, positions) in alike.runs() {
            for (position, next) in positions.clone().zip(positions.skip(1)) {
                self.behind[position] = next as u32;
                self.before[next] = position as u32;
            }
        }
    }
}

/// Different counterparts within a window that only moves on.
#[derive(Clone, Copy, Default)]
pub(super) struct Distinct {
    start: usize,
    end: usize,
    count: u32,
}

impl Distinct {
    /// Moves on to the positions from `start` to before `end` and counts.
    pub(super) fn advance(&mut self, links: &Links, start: usize, end: usize) -> u32 {
        while self.end < end {
            let before = links.before[self.end];
            let is_new = before == NONE || (before as usize) < self.start;
            self.count += u32::from(links.named[self.end] && is_new);
            self.end += 1;
        }
        while self.start < start {
            // `NONE` lies behind every end.
            let is_last = links.behind[self.start] as usize >= end;
            self.count -= u32::from(links.named[self.start] && is_last);
            self.start += 1;
        }
        self.count
    }
}

/// The largest value within a window that only moves on.
#[derive(Default)]
pub(super) struct Largest {
    end: usize,
    /// Positions of which each has the largest value of the window from there on.
    positions: VecDeque<u32>,
}

impl Largest {
    pub(super) fn clear(&mut self) {
        self.end = 0;
        self.positions.clear();
    }

    /// Moves on to the positions from `start` to before `end`: the largest of their `values`, NaN without any.
    pub(super) fn advance(&mut self, values: &[f32], start: usize, end: usize) -> f32 {
        while self.end < end {
            let value = values[self.end];
            if !value.is_nan() {
                while self.positions.back().is_some_and(|&last| values[last as usize] <= value) {
                    self.positions.pop_back();
                }
                self.positions.push_back(self.end as u32);
            }
            self.end += 1;
        }
        while self.positions.front().is_some_and(|&position| (position as usize) < start) {
            self.positions.pop_front();
        }
        self.positions.front().map_or(f32::NAN, |&position| values[position as usize])
    }
}

/// Largest values of ranges of positions, some of which may be left out: a tree of pairs.
#[derive(Default)]
pub(super) struct Maxima {
    leaves: usize,
    /// Node `i` has the larger of `2 i` and `2 i + 1`; leaves come last. Minus infinity where there is no value.
    nodes: Vec<f32>,
}

impl Maxima {
    /// Takes over values by position; NaN for none.
    pub(super) fn fill(&mut self, values: impl ExactSizeIterator<Item = f32>) {
        self.leaves = values.len();
        self.nodes.clear();
        self.nodes.resize(self.leaves, f32::NEG_INFINITY);
        self.nodes.extend(values.map(Self::known));
        for node in (1..self.leaves).rev() {
            self.nodes[node] = self.nodes[2 * node].max(self.nodes[2 * node + 1]);
        }
    }

    fn known(value: f32) -> f32 {
        if value.is_nan() { f32::NEG_INFINITY } else { value }
    }

    /// Replaces the value at a position; NaN takes it out.
    pub(super) fn set(&mut self, position: usize, value: f32) {
        let mut node = self.leaves + position;
        self.nodes[node] = Self::known(value);
        while node > 1 {
            node /= 2;
            self.nodes[node] = self.nodes[2 * node].max(self.nodes[2 * node + 1]);
        }
    }

    /// The largest value from `start` to before `end`; minus infinity without any.
    pub(super) fn between(&self, start: usize, end: usize) -> f32 {
        let (mut from, mut to) = (self.leaves + start, self.leaves + end);
        let mut largest = f32::NEG_INFINITY;
        while from < to {
            if from % 2 == 1 {
                largest = largest.max(self.nodes[from]);
                from += 1;
            }
            if to % 2 == 1 {
                to -= 1;
                largest = largest.max(self.nodes[to]);
            }
            (from, to) = (from / 2, to / 2);
        }
        largest
    }
}
