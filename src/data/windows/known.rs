//! Known labels within windows that end a delay before the event.

use std::collections::VecDeque;

use super::columns::Plan;
use super::events::{DAY, KnownLabels};

/// Windows over the known labels of one entity's events, moving with time.
#[derive(Default)]
pub(super) struct KnownWindows {
    labels: Vec<Option<u8>>,
    /// From when on a label counts: the window's delay has passed and the label is known. Later events alone see it.
    visible: Vec<i64>,
    /// Positions in order of `visible`.
    order: Vec<u32>,
    /// How many of `order` are visible.
    seen: usize,
    windows: Vec<Window>,
    /// Frauds among the leading visible labels.
    frauds: Vec<u32>,
    /// When the last known fraud happened.
    last_fraud: Option<i64>,
    /// Positions of the known frauds within the longest window, in ascending order.
    in_longest: VecDeque<u32>,
}

#[derive(Clone, Copy, Default)]
struct Window {
    /// Positions before this one have left the window.
    start: usize,
    known: u32,
    frauds: u32,
}

impl KnownWindows {
    /// Takes over the `events` of one entity, which happened at `times`.
    pub(super) fn fill(&mut self, known: &KnownLabels, events: &[u32], times: &[i64], spans: usize) {
        self.labels.clear();
        self.labels.extend(events.iter().map(|&event| known.label[event as usize]));
        let visible = |(&event, &time): (&u32, &i64)| known.known[event as usize].max(time.saturating_add(known.delay));
        self.visible.clear();
        self.visible.extend(events.iter().zip(times).map(visible));
        self.order.clear();
        self.order.extend(0..events.len() as u32);
        if !self.visible.is_sorted() {
            self.order.sort_unstable_by_key(|&position| (self.visible[position as usize], position));
        }
        self.seen = 0;
        self.windows.clear();
        self.windows.resize(spans, Window::default());
        self.frauds.clear();
        self.frauds.push(0);
        self.last_fraud = None;
        self.in_longest.clear();
    }

    /// Moves on to `time`, which never goes back.
    pub(super) fn advance(&mut self, time: i64, delay: i64, times: &[i64], spans: &[i64]) {
        while let Some(&position) = self.order.get(self.seen).filter(|&&next| self.visible[next as usize] < time) {
            let label = self.labels[position as usize];
            for window in &mut self.windows {
                if position as usize >= window.start {
                    window.count(label, 1);
                }
            }
            if let Some(label) = label {
                self.frauds.push(self.frauds[self.frauds.len() - 1] + u32::from(label == 1));
                if label == 1 {
                    let happened = times[position as usize];
                    self.last_fraud = Some(self.last_fraud.map_or(happened, |last| last.max(happened)));
                    let place = self.in_longest.partition_point(|&other| other < position);
                    self.in_longest.insert(place, position);
                }
            }
            self.seen += 1;
        }
        let mut longest = times.len();
        for (window, span) in self.windows.iter_mut().zip(spans) {
            let first = time.saturating_sub(delay).saturating_sub(*span);
            while times.get(window.start).is_some_and(|&earlier| earlier < first) {
                if self.visible[window.start] < time {
                    window.count(self.labels[window.start], -1);
                }
                window.start += 1;
            }
            longest = longest.min(window.start);
        }
        while self.in_longest.front().is_some_and(|&fraud| (fraud as usize) < longest) {
            self.in_longest.pop_front();
        }
    }

    /// The columns as of `time`.
    pub(super) fn push_columns(&self, plan: &Plan, time: i64, times: &[i64], row: &mut Vec<f32>) {
        for window in &self.windows {
            let frauds = window.frauds as f32;
            row.extend([frauds, if window.known == 0 { f32::NAN } else { frauds / window.known as f32 }]);
        }
        let known = self.frauds.len() - 1;
        for last in plan.last {
            let first = known.saturating_sub(*last);
            let frauds = self.frauds[known] - self.frauds[first];
            row.push(if known == 0 { f32::NAN } else { frauds as f32 / (known - first) as f32 });
        }
        let days = |happened: i64| (time.saturating_sub(happened) as f64 / DAY as f64) as f32;
        row.push(self.last_fraud.map_or(f32::NAN, days));
        if !plan.spans.is_empty() {
            row.push(self.in_longest.front().map_or(f32::NAN, |&fraud| days(times[fraud as usize])));
        }
    }
}

impl Window {
    fn count(&mut self, label: Option<u8>, step: i32) {
        if let Some(label) = label {
            self.known = self.known.wrapping_add_signed(step);
            self.frauds = self.frauds.wrapping_add_signed(if label == 1 { step } else { 0 });
        }
    }
}
