//! Windows over the earlier events of one entity.

use std::collections::VecDeque;

use super::columns::Plan;
use super::events::{DAY, Measure};
use super::history::{Alike, History, Moments};
use super::known::KnownWindows;

/// What computes the rows of one entity after another, with memory that is used again.
pub(super) struct OwnWindows<'a> {
    plan: &'a Plan<'a>,
    entity: usize,
    history: History,
    alike: Alike,
    /// By other entity type.
    links: Vec<Links>,
    /// By span.
    windows: Vec<Window>,
    known: KnownWindows,
    /// By position: how often its value occurred before.
    same_value: Vec<u32>,
    row: Vec<f32>,
}

/// By position: where the same counterpart occurs next before and behind; [`NONE`] where nowhere.
#[derive(Default)]
struct Links {
    before: Vec<u32>,
    behind: Vec<u32>,
    /// Whether the event names a counterpart at all.
    named: Vec<bool>,
}

/// No position.
const NONE: u32 = u32::MAX;

/// A window of time as it moves over positions.
#[derive(Default)]
struct Window {
    start: usize,
    /// Positions of which each has the largest value of the window from there on.
    largest: VecDeque<u32>,
    /// By other entity type: different ones in the window.
    distinct: Vec<u32>,
}

/// What events of others look at: how far this value lies from the entity's own, over the longest span.
#[derive(Clone, Copy)]
pub(super) struct Unusual {
    pub(super) z: f32,
    pub(super) over_mean: f32,
}

impl<'a> OwnWindows<'a> {
    pub(super) fn new(plan: &'a Plan<'a>, entity: usize) -> Self {
        Self {
            plan,
            entity,
            history: History::default(),
            alike: Alike::default(),
            links: plan.others(entity).map(|_| Links::default()).collect(),
            windows: Vec::new(),
            known: KnownWindows::default(),
            same_value: Vec::new(),
            row: Vec::with_capacity(plan.blocks[entity].own),
        }
    }

    /// Calls `write` with each of `events`, its row and how unusual its value is.
    pub(super) fn rows(&mut self, events: &[u32], mut write: impl FnMut(u32, &[f32], Unusual)) {
        let plan = self.plan;
        self.fill(events);
        let mut end = 0;
        for (position, &event) in events.iter().enumerate() {
            let time = self.history.times[position];
            while end < self.history.ends[position] as usize {
                self.enter(end);
                end += 1;
            }
            self.leave(time, end);
            self.row.clear();
            let value = self.history.values.get(position).copied().unwrap_or(f32::NAN);
            let unusual = self.push_spans(value, end);
            self.push_last(time, end);
            self.row.push(end as f32);
            if plan.has_values() {
                self.row.push(self.history.moments(0, end).over_mean(value));
                self.row.push(value - self.history.last_value(end));
                self.row.push(if value.is_nan() { f32::NAN } else { self.same_value[position] as f32 });
            }
            if let Some(labels) = plan.events.labels.filter(|_| plan.labels) {
                self.known.advance(time, labels.delay, &self.history.times, plan.spans);
                self.known.push_columns(plan, time, &self.history.times, &mut self.row);
            }
            write(event, &self.row, unusual);
        }
    }

    fn fill(&mut self, events: &[u32]) {
        let plan = self.plan;
        self.history.fill(plan, events);
        if let Some(labels) = plan.events.labels.filter(|_| plan.labels) {
            self.known.fill(&labels, events, &self.history.times, plan.spans.len());
        }
        self.windows.resize_with(plan.spans.len(), Window::default);
        for window in &mut self.windows {
            window.start = 0;
            window.largest.clear();
            window.distinct.clear();
            window.distinct.resize(self.links.len(), 0);
        }
        if plan.measures.contains(&Measure::Distinct) {
            for (links, other) in self.links.iter_mut().zip(plan.others(self.entity)) {
                let of_event = plan.events.entities[other].of_event;
                links.fill(&mut self.alike, events.iter().map(|&event| of_event[event as usize]));
            }
        }
        if plan.has_values() {
            self.alike.fill(self.history.values.iter().map(|value| value.to_bits()));
            self.same_value.clear();
            self.same_value.resize(events.len(), 0);
            for (_, positions) in self.alike.runs() {
                let mut earlier = positions.clone();
                let mut passed = 0;
                let mut next = earlier.next();
                for position in positions {
                    while next.is_some_and(|next| next < self.history.ends[position] as usize) {
                        passed += 1;
                        next = earlier.next();
                    }
                    self.same_value[position] = passed;
                }
            }
        }
    }

    /// The event at `position` has passed.
    fn enter(&mut self, position: usize) {
        let has = |measure| self.plan.measures.contains(&measure);
        let (largest, distinct) = (has(Measure::Largest), has(Measure::Distinct));
        for window in &mut self.windows {
            if largest {
                let value = self.history.values[position];
                if !value.is_nan() {
                    let values = &self.history.values;
                    while window.largest.back().is_some_and(|&last| values[last as usize] <= value) {
                        window.largest.pop_back();
                    }
                    window.largest.push_back(position as u32);
                }
            }
            if distinct {
                for (count, links) in window.distinct.iter_mut().zip(&self.links) {
                    let before = links.before[position];
                    let is_new = before == NONE || (before as usize) < window.start;
                    *count += u32::from(links.named[position] && is_new);
                }
            }
        }
    }

    /// Windows of an event at `time` begin; they end before position `end`.
    fn leave(&mut self, time: i64, end: usize) {
        let distinct = self.plan.measures.contains(&Measure::Distinct);
        for (window, span) in self.windows.iter_mut().zip(self.plan.spans) {
            let first = time.saturating_sub(*span);
            while window.start < end && self.history.times[window.start] < first {
                if distinct {
                    for (count, links) in window.distinct.iter_mut().zip(&self.links) {
                        // `NONE` lies behind every end.
                        let is_last = links.behind[window.start] as usize >= end;
                        *count -= u32::from(links.named[window.start] && is_last);
                    }
                }
                window.start += 1;
            }
            while window.largest.front().is_some_and(|&position| (position as usize) < window.start) {
                window.largest.pop_front();
            }
        }
    }

    fn push_spans(&mut self, value: f32, end: usize) -> Unusual {
        let plan = self.plan;
        let longest = plan.spans.iter().max();
        let mut unusual = Unusual { z: f32::NAN, over_mean: f32::NAN };
        for (window, span) in self.windows.iter().zip(plan.spans) {
            let moments = plan.has_values().then(|| self.history.moments(window.start, end));
            if let Some(moments) = moments.filter(|_| Some(span) == longest) {
                unusual = Unusual { z: moments.z(value), over_mean: moments.over_mean(value) };
            }
            for measure in &plan.measures {
                let of_values = |column: &dyn Fn(&Moments) -> f32| moments.as_ref().map_or(f32::NAN, column);
                match measure {
                    Measure::Count => self.row.push((end - window.start) as f32),
                    Measure::Sum => self.row.push(of_values(&|moments| moments.sum as f32)),
                    Measure::Mean => self.row.push(of_values(&|moments| moments.mean as f32)),
                    Measure::Deviation => self.row.push(of_values(&|moments| moments.deviation as f32)),
                    Measure::Largest => {
                        let largest = window.largest.front();
                        self.row.push(largest.map_or(f32::NAN, |&position| self.history.values[position as usize]));
                    }
                    Measure::Distinct => self.row.extend(window.distinct.iter().map(|&count| count as f32)),
                    Measure::OverMean => self.row.push(of_values(&|moments| moments.over_mean(value))),
                    Measure::ZScore => self.row.push(of_values(&|moments| moments.z(value))),
                }
            }
        }
        unusual
    }

    fn push_last(&mut self, time: i64, end: usize) {
        for &last in self.plan.last {
            if last > 1 && self.plan.has_values() {
                self.row.push(self.history.moments(end.saturating_sub(last), end).mean as f32);
            }
            let seconds = end.checked_sub(last).map(|position| time.saturating_sub(self.history.times[position]));
            self.row.push(seconds.map_or(f32::NAN, |seconds| (seconds as f64 / DAY as f64) as f32));
        }
    }
}

impl Links {
    fn fill(&mut self, alike: &mut Alike, counterparts: impl Iterator<Item = u32> + Clone) {
        self.named.clear();
        self.named.extend(counterparts.clone().map(|id| id != u32::MAX));
        alike.fill(counterparts);
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
