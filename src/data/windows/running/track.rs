//! The events of one entity in order of time, with sums so far, so that a window is looked up and not walked through.

use std::collections::HashMap;
use std::ops::Range;

use super::super::columns::Layout;
use super::super::history::Moments;
use super::super::others::MOST_UNUSUAL;
use super::super::sums::Sum;
use super::facts::Facts;
use super::labels::Labels;

/// Events between two sums that are kept.
const BLOCK: usize = 16;
/// Events from which on equal values are counted.
const MANY: usize = 256;

/// An event.
#[derive(Clone, Copy)]
pub(super) struct Row {
    pub(super) time: i64,
    pub(super) event: u32,
    /// NaN where it is missing.
    pub(super) value: f32,
}

/// A sum of the terms that are not NaN, and their number.
#[derive(Clone, Copy, Default)]
pub(super) struct Partial {
    pub(super) sum: Sum,
    pub(super) count: u32,
}

impl Partial {
    pub(super) fn add(&mut self, term: f64) {
        if !term.is_nan() {
            *self = Self { sum: self.sum.plus(term), count: self.count + 1 };
        }
    }
}

/// Sums over the leading events of an entity.
#[derive(Clone, Copy, Default)]
pub(super) struct Leading {
    values: Partial,
    squares: Partial,
    /// The last position with a value, and from where on all values equal that one.
    last: u32,
    from: u32,
}

/// Sums over those of the leading events that name somebody of another type.
#[derive(Clone, Copy, Default)]
pub(super) struct OfOthers {
    pub(super) named: u32,
    pub(super) values: Partial,
    pub(super) squares: Partial,
    /// Of z-scores and of ratios.
    pub(super) unusual: [Partial; 2],
}

impl OfOthers {
    /// Adds an event that names somebody, with how unusual it was for whom it names.
    pub(super) fn add(&mut self, value: f32, unusual: [f32; 2]) {
        self.named += 1;
        let value = f64::from(value);
        self.values.add(value);
        self.squares.add(value.powi(2));
        for (sum, term) in self.unusual.iter_mut().zip(unusual) {
            sum.add(f64::from(term.clamp(-MOST_UNUSUAL, MOST_UNUSUAL)));
        }
    }
}

/// What is kept behind every [`BLOCK`] events.
#[derive(Clone, Copy)]
struct Mark {
    leading: Leading,
    /// Of the values of the block that ends here; infinite where there is none.
    largest: f32,
    smallest: f32,
}

#[derive(Clone, Default)]
pub(super) struct Track {
    pub(super) rows: Vec<Row>,
    /// Event by event, by other entity type: one more than the position of the last event before that names the same,
    /// 0 for none, `u32::MAX` where the event names none. Empty where different ones are not counted.
    before: Vec<u32>,
    marks: Vec<Mark>,
    /// Mark by mark, by other entity type.
    others: Vec<OfOthers>,
    /// Of all events, then of those that name somebody of each other type, where anything looks at them.
    pub(super) labels: Vec<Labels>,
    /// How often each value occurs, once there are many events.
    counts: Option<HashMap<u32, u32>>,
}

/// What tracks of one entity type are about.
#[derive(Clone, Copy)]
pub(super) struct Kind<'l> {
    pub(super) layout: &'l Layout,
    /// Index of the entity type.
    pub(super) entity: usize,
    pub(super) distinct: bool,
    pub(super) one_hop: bool,
}

impl Kind<'_> {
    fn others(&self) -> usize {
        self.layout.entities.len() - 1
    }
}

impl Track {
    /// Where an event stands or would stand.
    pub(super) fn place(&self, time: i64, event: u32) -> usize {
        self.rows.partition_point(|row| (row.time, row.event) < (time, event))
    }

    /// Where the events of a time and later ones begin.
    pub(super) fn end(&self, time: i64) -> usize {
        // An event that comes as it happens is behind all others.
        match self.rows.last() {
            Some(last) if last.time >= time => self.rows.partition_point(|row| row.time < time),
            _ => self.rows.len(),
        }
    }

    /// The event whose place that is; `before` is by other entity type, for the last one.
    pub(super) fn insert(&mut self, at: usize, row: Row, before: &[u32], kind: Kind, facts: &impl Facts) {
        let is_last = at == self.rows.len();
        self.rows.insert(at, row);
        if let Some(counts) = &mut self.counts {
            *counts.entry(row.value.to_bits()).or_insert(0) += 1;
        }
        if is_last {
            self.before.extend(before);
            if self.rows.len().is_multiple_of(BLOCK) {
                self.mark(self.rows.len() / BLOCK, kind, facts);
            }
        } else {
            self.link(kind, facts);
            self.marks_from(at, kind, facts);
        }
        self.count_values();
    }

    /// Takes an event out.
    pub(super) fn remove(&mut self, at: usize, kind: Kind, facts: &impl Facts) {
        self.rows.remove(at);
        self.counts = None;
        self.link(kind, facts);
        self.marks_from(at, kind, facts);
        self.count_values();
    }

    /// Of rows in their order.
    pub(super) fn of(rows: Vec<Row>) -> Self {
        Self { rows, ..Self::default() }
    }

    fn count_values(&mut self) {
        if self.counts.is_none() && self.rows.len() >= MANY {
            let mut counts = HashMap::new();
            self.rows.iter().for_each(|row| *counts.entry(row.value.to_bits()).or_insert(0) += 1);
            self.counts = Some(counts);
        }
    }

    /// Finds anew which events name the same.
    pub(super) fn link(&mut self, kind: Kind, facts: &impl Facts) {
        self.count_values();
        if !kind.distinct {
            return;
        }
        let others = kind.others();
        self.before.clear();
        self.before.resize(self.rows.len() * others, u32::MAX);
        for (nth, other) in kind.layout.others(kind.entity).enumerate() {
            // Those that name the same lie side by side, in order.
            let named = self.rows.iter().map(|row| facts.id(other, row.event)).zip(0u32..);
            let mut named: Vec<(u32, u32)> = named.filter(|(id, _)| *id != u32::MAX).collect();
            named.sort_unstable();
            for same in named.chunk_by(|a, b| a.0 == b.0) {
                let mut last = 0;
                for &(_, at) in same {
                    self.before[at as usize * others + nth] = last;
                    last = at + 1;
                }
            }
        }
    }

    /// Adds up anew from the block of a position on.
    pub(super) fn marks_from(&mut self, at: usize, kind: Kind, facts: &impl Facts) {
        let first = at / BLOCK;
        self.marks.truncate(first);
        self.others.truncate(first * kind.others());
        (first + 1..=self.rows.len() / BLOCK).for_each(|block| self.mark(block, kind, facts));
    }

    /// Adds up to the end of a block, the first of which is 1.
    fn mark(&mut self, block: usize, kind: Kind, facts: &impl Facts) {
        let end = block * BLOCK;
        let leading = self.leading(end);
        let values = || self.rows[end - BLOCK..end].iter().map(|row| row.value);
        let largest = values().fold(f32::NEG_INFINITY, f32::max);
        let smallest = values().fold(f32::INFINITY, f32::min);
        self.marks.push(Mark { leading, largest, smallest });
        self.mark_others(block, kind, facts);
    }

    fn mark_others(&mut self, block: usize, kind: Kind, facts: &impl Facts) {
        if kind.one_hop {
            let end = block * BLOCK;
            let sums = (0..kind.others()).map(|nth| self.of_others(end, nth, kind, facts)).collect::<Vec<_>>();
            self.others.extend(sums);
        }
    }

    /// Adds up those that name somebody of another type anew.
    pub(super) fn mark_all_others(&mut self, kind: Kind, facts: &impl Facts) {
        self.others.clear();
        (1..=self.rows.len() / BLOCK).for_each(|block| self.mark_others(block, kind, facts));
    }

    /// The sums before a position that are kept, and where they end.
    fn kept(&self, position: usize) -> usize {
        (position / BLOCK).min(self.marks.len())
    }

    pub(super) fn leading(&self, position: usize) -> Leading {
        let kept = self.kept(position);
        let mut sums = kept.checked_sub(1).map_or(Leading::default(), |mark| self.marks[mark].leading);
        self.add_up(&mut sums, kept * BLOCK..position);
        sums
    }

    /// Adds the values at positions to the sums before the first of them.
    pub(super) fn add_up(&self, sums: &mut Leading, positions: Range<usize>) {
        for at in positions {
            let value = self.rows[at].value;
            if value.is_nan() {
                continue;
            }
            if sums.values.count > 0 && self.rows[sums.last as usize].value != value {
                sums.from = sums.last + 1;
            }
            sums.last = at as u32;
            sums.values.add(f64::from(value));
            sums.squares.add(f64::from(value) * f64::from(value));
        }
    }

    /// Of the values from `start`, where the sums are `from`, to where they are `to`.
    pub(super) fn moments(&self, start: usize, from: &Leading, to: &Leading) -> Moments {
        let count = to.values.count - from.values.count;
        let only = (count > 0 && to.from as usize <= start).then(|| self.rows[to.last as usize].value);
        Moments::of(count, to.values.sum.minus(from.values.sum), only, || to.squares.sum.minus(from.squares.sum))
    }

    /// Sums of the leading events over those that name somebody of the `nth` other type.
    pub(super) fn of_others(&self, position: usize, nth: usize, kind: Kind, facts: &impl Facts) -> OfOthers {
        let (kept, others) = (self.others.len() / kind.others(), kind.others());
        let kept = (position / BLOCK).min(kept);
        let mut sums = kept.checked_sub(1).map_or(OfOthers::default(), |mark| self.others[mark * others + nth]);
        let other = kind.layout.others(kind.entity).nth(nth).unwrap_or_default();
        for row in &self.rows[kept * BLOCK..position] {
            if facts.id(other, row.event) != u32::MAX {
                sums.add(row.value, facts.unusual(other, row.event));
            }
        }
        sums
    }

    /// The largest value from `start` to before `end`; minus infinity without any.
    pub(super) fn largest(&self, start: usize, end: usize) -> f32 {
        self.extremes(start, end, |_| true).0
    }

    /// The largest and the smallest value from `start` to before `end` of the events that `counts` names; infinite
    /// without any.
    pub(super) fn extremes(&self, start: usize, end: usize, counts: impl Fn(&Row) -> bool) -> (f32, f32) {
        let (mut largest, mut smallest) = (f32::NEG_INFINITY, f32::INFINITY);
        let mut at = start;
        while at < end {
            let block = at / BLOCK;
            let next = ((block + 1) * BLOCK).min(end);
            let is_useless = |mark: &Mark| mark.largest <= largest && mark.smallest >= smallest;
            if !self.marks.get(block).is_some_and(is_useless) {
                for row in self.rows[at..next].iter().filter(|row| counts(row)) {
                    // NaN changes neither.
                    (largest, smallest) = (largest.max(row.value), smallest.min(row.value));
                }
            }
            at = next;
        }
        (largest, smallest)
    }

    /// How often a value occurs before a position.
    pub(super) fn same_value(&self, value: f32, end: usize) -> u32 {
        let bits = value.to_bits();
        let among = |rows: &[Row]| rows.iter().filter(|row| row.value.to_bits() == bits).count() as u32;
        match &self.counts {
            Some(counts) if end > self.rows.len() / 2 => {
                counts.get(&bits).map_or(0, |all| all - among(&self.rows[end..]))
            }
            _ => among(&self.rows[..end]),
        }
    }

    /// Different ones of the `nth` other type from `start` to before `end`.
    pub(super) fn distinct(&self, nth: usize, others: usize, start: usize, end: usize) -> u32 {
        let is_first = |before: &&u32| **before <= start as u32;
        self.before[start * others..end * others].iter().skip(nth).step_by(others).filter(is_first).count() as u32
    }

    pub(super) fn num_bytes(&self) -> usize {
        let of_labels: usize = self.labels.iter().map(Labels::num_bytes).sum();
        size_of::<Self>()
            + self.rows.capacity() * size_of::<Row>()
            + self.before.capacity() * 4
            + self.marks.capacity() * size_of::<Mark>()
            + self.others.capacity() * size_of::<OfOthers>()
            + of_labels
            + self.counts.as_ref().map_or(0, |counts| counts.capacity() * 9)
    }
}
