//! The labels of one entity's events as they become known.

use super::super::known::LabelCounts;
use super::facts::{Fact, Facts};

/// A label that becomes known.
#[derive(Clone, Copy)]
struct Seen {
    /// From when on it counts; later events alone see it.
    visible: i64,
    event: u32,
    /// Frauds up to this one.
    frauds: u32,
}

/// A fraud that becomes known.
#[derive(Clone, Copy)]
struct Fraud {
    visible: i64,
    place: i64,
    happened: i64,
    /// When the last of the frauds up to this one happened.
    last: i64,
}

/// Labels in the order in which they become known.
#[derive(Clone, Default)]
pub(super) struct Labels {
    seen: Vec<Seen>,
    /// Of labels that become known after their place: when, and that place.
    late: Vec<(i64, i64)>,
    frauds: Vec<Fraud>,
    /// By label, when the last event of the labels up to it happened.
    latest: Vec<i64>,
}

impl Fact {
    /// The place of its label in windows and from when on it counts, if it ever does.
    pub(super) fn places(&self, delay: Option<i64>) -> Option<[i64; 2]> {
        self.label.filter(|_| self.known != i64::MAX)?;
        // No label is known before its event.
        let known = self.known.max(self.time);
        let place = delay.map_or(known, |delay| self.time.saturating_add(delay));
        Some([place, known.max(place)])
    }
}

impl Labels {
    /// Of some events.
    pub(super) fn of(events: impl Iterator<Item = u32>, facts: &impl Facts, delay: Option<i64>) -> Self {
        let mut labels = Self::default();
        let known = events.filter_map(|event| {
            let [_, visible] = facts.fact(event).places(delay)?;
            Some(Seen { visible, event, frauds: 0 })
        });
        labels.seen.extend(known);
        labels.seen.sort_by_key(|seen| Self::key(seen, facts, delay));
        labels.add_up(0, i64::MIN, facts, delay);
        labels
    }

    /// The order of labels.
    fn key(seen: &Seen, facts: &impl Facts, delay: Option<i64>) -> [i64; 4] {
        let fact = facts.fact(seen.event);
        let [place, _] = fact.places(delay).unwrap_or([seen.visible; 2]);
        [seen.visible, place, fact.time, i64::from(seen.event)]
    }

    /// Where an event stands or would stand.
    fn at(&self, own: &Seen, facts: &impl Facts, delay: Option<i64>) -> usize {
        let key = Self::key(own, facts, delay);
        self.seen.partition_point(|seen| {
            seen.visible < own.visible || seen.visible == own.visible && Self::key(seen, facts, delay) < key
        })
    }

    /// Adds the label of an event, if it ever becomes known.
    pub(super) fn insert(&mut self, event: u32, facts: &impl Facts, delay: Option<i64>) {
        let Some([_, visible]) = facts.fact(event).places(delay) else { return };
        let own = Seen { visible, event, frauds: 0 };
        let at = self.at(&own, facts, delay);
        self.seen.insert(at, own);
        self.add_up(at, visible, facts, delay);
    }

    /// Takes the label of an event out, which `facts` still have.
    pub(super) fn remove(&mut self, event: u32, facts: &impl Facts, delay: Option<i64>) {
        let Some([_, visible]) = facts.fact(event).places(delay) else { return };
        let at = self.at(&Seen { visible, event, frauds: 0 }, facts, delay);
        if self.seen.get(at).is_some_and(|seen| seen.event == event) {
            self.seen.remove(at);
            self.add_up(at, visible, facts, delay);
        }
    }

    /// Adds up from a position on, whose labels become known from `first` on.
    fn add_up(&mut self, at: usize, first: i64, facts: &impl Facts, delay: Option<i64>) {
        let mut frauds = at.checked_sub(1).map_or(0, |before| self.seen[before].frauds);
        self.frauds.truncate(frauds as usize);
        self.latest.truncate(at);
        // Of what becomes known at one time some may stay and some not: all of it is added anew.
        let kept = self.late.partition_point(|&(visible, _)| visible < first);
        self.late.truncate(kept);
        let same = self.seen[..at].iter().rev().take_while(|seen| seen.visible == first).count();
        for position in at - same..self.seen.len() {
            let Seen { visible, event, .. } = self.seen[position];
            let fact = facts.fact(event);
            let [place, _] = fact.places(delay).unwrap_or([visible; 2]);
            if place < visible {
                self.late.push((visible, place));
            }
            if position < at {
                continue;
            }
            self.latest.push(self.latest.last().map_or(fact.time, |&latest| latest.max(fact.time)));
            if fact.label == Some(1) {
                frauds += 1;
                let last = self.frauds.last().map_or(fact.time, |fraud| fraud.last.max(fact.time));
                self.frauds.push(Fraud { visible, place, happened: fact.time, last });
            }
            self.seen[position].frauds = frauds;
        }
    }

    /// How many labels are known before a time.
    fn known(&self, time: i64) -> usize {
        self.seen.partition_point(|seen| seen.visible < time)
    }

    /// Frauds among the first labels.
    fn frauds(&self, known: usize) -> u32 {
        known.checked_sub(1).map_or(0, |last| self.seen[last].frauds)
    }

    /// Labels with a place from `first` on that are known before `time`.
    pub(super) fn within(&self, first: i64, time: i64) -> LabelCounts {
        let [from, to] = [first, time].map(|time| self.known(time));
        let to = to.max(from);
        let mut counts = LabelCounts { known: (to - from) as u32, frauds: self.frauds(to) - self.frauds(from) };
        let at = |time| self.late.partition_point(|&(visible, _)| visible < time);
        let late = self.late.get(at(first)..at(time)).unwrap_or_default();
        let left = late.iter().filter(|(_, place)| *place < first).count() as u32;
        if left > 0 {
            let at = |time| self.frauds.partition_point(|fraud| fraud.visible < time);
            let frauds = self.frauds[at(first)..at(time)].iter().filter(|fraud| fraud.place < first).count() as u32;
            counts = LabelCounts { known: counts.known - left, frauds: counts.frauds - frauds };
        }
        counts
    }

    /// Of the last labels that are known before `time`.
    pub(super) fn last(&self, last: usize, time: i64) -> LabelCounts {
        let known = self.known(time);
        let first = known.saturating_sub(last);
        LabelCounts { known: (known - first) as u32, frauds: self.frauds(known) - self.frauds(first) }
    }

    /// When the last fraud happened that is known before `time`.
    pub(super) fn last_fraud(&self, time: i64) -> Option<i64> {
        let known = self.frauds.partition_point(|fraud| fraud.visible < time);
        Some(self.frauds[known.checked_sub(1)?].last)
    }

    /// When the first fraud happened that has a place from `first` on and is known before `time`.
    pub(super) fn first_fraud(&self, first: i64, time: i64) -> Option<i64> {
        let at = |time| self.frauds.partition_point(|fraud| fraud.visible < time);
        let within = self.frauds.get(at(first)..at(time))?.iter().filter(|fraud| fraud.place >= first);
        within.min_by_key(|fraud| (fraud.place, fraud.happened)).map(|fraud| fraud.happened)
    }

    /// When the last event with a label happened that is known before `time`.
    pub(super) fn last_known(&self, time: i64) -> Option<i64> {
        Some(self.latest[self.known(time).checked_sub(1)?])
    }

    /// The events whose labels become known from `first` to before `time`.
    pub(super) fn events(&self, first: i64, time: i64) -> impl ExactSizeIterator<Item = u32> {
        let [from, to] = [first, time].map(|time| self.known(time));
        self.seen[from.min(to)..to].iter().map(|seen| seen.event)
    }

    /// Of some events, those with a place from `first` on.
    pub(super) fn count(
        events: impl Iterator<Item = u32>,
        first: i64,
        facts: &impl Facts,
        delay: Option<i64>,
    ) -> LabelCounts {
        let mut counts = LabelCounts::default();
        for event in events {
            let fact = facts.fact(event);
            if fact.places(delay).is_some_and(|[place, _]| place >= first) {
                counts.known += 1;
                counts.frauds += u32::from(fact.label == Some(1));
            }
        }
        counts
    }

    pub(super) fn num_bytes(&self) -> usize {
        size_of::<Self>()
            + self.seen.capacity() * size_of::<Seen>()
            + self.late.capacity() * 16
            + self.frauds.capacity() * size_of::<Fraud>()
            + self.latest.capacity() * 8
    }
}
