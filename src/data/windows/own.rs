//! Windows over the earlier events of one entity.

use super::columns::{OwnWindow, Plan, Reach};
use super::events::{DAY, Measure};
use super::history::{Alike, History, Moments};
use super::known::KnownWindows;
use super::sliding::{Distinct, Largest, Links};

/// What computes the rows of one entity after another, with memory that is used again.
pub(super) struct OwnWindows<'a> {
    plan: &'a Plan<'a>,
    entity: usize,
    history: History,
    alike: Alike,
    /// By other entity type; filled where different ones are counted.
    links: Vec<Links>,
    /// By window of the plan.
    windows: Vec<Window>,
    known: KnownWindows,
    /// By position: how often its value occurred before.
    same_value: Vec<u32>,
    row: Vec<f32>,
}

/// A window as it moves over positions.
#[derive(Default)]
struct Window {
    /// Whether it says how unusual a value is, and whether anything looks at sums of values.
    is_longest: bool,
    needs_moments: bool,
    start: usize,
    largest: Largest,
    /// By other entity type.
    distinct: Vec<Distinct>,
}

/// What events of others look at: how far this value lies from the entity's own, over the longest span.
#[derive(Clone, Copy)]
pub(super) struct Unusual {
    pub(super) z: f32,
    pub(super) over_mean: f32,
}

impl<'a> OwnWindows<'a> {
    pub(super) fn new(plan: &'a Plan<'a>, entity: usize) -> Self {
        let longest = plan.spans.iter().max().filter(|_| plan.has_values && plan.needs_unusual());
        let window = |OwnWindow { reach, measures }: &OwnWindow| {
            let is_longest = longest.is_some_and(|&longest| *reach == Reach::Span(longest));
            let needs_moments = is_longest || measures.iter().any(|measure| measure.is_of_moments());
            Window { is_longest, needs_moments, ..Window::default() }
        };
        Self {
            plan,
            entity,
            history: History::default(),
            alike: Alike::default(),
            links: plan.others(entity).map(|_| Links::default()).collect(),
            windows: plan.windows.iter().map(window).collect(),
            known: KnownWindows::default(),
            same_value: Vec::new(),
            row: Vec::with_capacity(plan.blocks[entity].own),
        }
    }

    /// Calls `write` with each of `events`, its row and how unusual its value is.
    pub(super) fn rows(&mut self, events: &[u32], mut write: impl FnMut(u32, &[f32], Unusual)) {
        let plan = self.plan;
        self.fill(events);
        for (position, &event) in events.iter().enumerate() {
            let time = self.history.times[position];
            let end = self.history.ends[position] as usize;
            self.row.clear();
            let value = self.history.values.get(position).copied().unwrap_or(f32::NAN);
            let unusual = self.push_windows(time, value, end);
            self.row.push(end as f32);
            if plan.has_values {
                self.row.push(self.history.moments(0, end).over_mean(value));
                self.row.push(value - self.history.last_value(end));
                self.row.push(if value.is_nan() { f32::NAN } else { self.same_value[position] as f32 });
            }
            if plan.labels.is_some() {
                self.known.advance(time, &plan.spans);
                self.known.push_columns(plan, time, &mut self.row);
            }
            write(event, &self.row, unusual);
        }
    }

    fn fill(&mut self, events: &[u32]) {
        let plan = self.plan;
        self.history.fill(plan, events);
        if let Some(labels) = &plan.labels {
            self.known.fill(labels, events, &self.history.times, plan.spans.len());
        }
        for window in &mut self.windows {
            window.start = 0;
            window.largest.clear();
            window.distinct.clear();
            window.distinct.resize(self.links.len(), Distinct::default());
        }
        if plan.windows.iter().any(|window| window.measures.contains(&Measure::Distinct)) {
            for (links, other) in self.links.iter_mut().zip(plan.others(self.entity)) {
                let of_event = plan.events.entities[other].of_event;
                links.fill(&mut self.alike, events.iter().map(|&event| of_event[event as usize]));
            }
        }
        if plan.has_values {
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

    /// Columns of the windows of an event at `time`, which end before position `end`.
    fn push_windows(&mut self, time: i64, value: f32, end: usize) -> Unusual {
        let plan = self.plan;
        let mut unusual = Unusual { z: f32::NAN, over_mean: f32::NAN };
        let times = &self.history.times;
        for (window, OwnWindow { reach, measures }) in self.windows.iter_mut().zip(&plan.windows) {
            match reach {
                Reach::Span(span) => {
                    let first = time.saturating_sub(*span);
                    while window.start < end && times[window.start] < first {
                        window.start += 1;
                    }
                }
                Reach::Last(last) => window.start = end.saturating_sub(*last),
            }
            let start = window.start;
            let moments = if window.needs_moments { self.history.moments(start, end) } else { Moments::NONE };
            if window.is_longest {
                unusual = Unusual { z: moments.z(value), over_mean: moments.over_mean(value) };
            }
            for measure in measures {
                self.row.push(match measure {
                    Measure::Count => (end - start) as f32,
                    Measure::Sum => moments.sum as f32,
                    Measure::Mean => moments.mean as f32,
                    Measure::Deviation => moments.deviation as f32,
                    Measure::Largest => window.largest.advance(&self.history.values, start, end),
                    Measure::OverMean => moments.over_mean(value),
                    Measure::ZScore => moments.z(value),
                    Measure::Distinct => {
                        let counts = window.distinct.iter_mut().zip(&self.links);
                        self.row.extend(counts.map(|(count, links)| count.advance(links, start, end) as f32));
                        continue;
                    }
                });
            }
            if let Reach::Last(last) = reach {
                let seconds = end.checked_sub(*last).map(|position| time.saturating_sub(times[position]));
                self.row.push(seconds.map_or(f32::NAN, |seconds| (seconds as f64 / DAY as f64) as f32));
            }
        }
        unusual
    }
}
