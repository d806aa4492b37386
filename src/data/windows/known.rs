//! Known labels within windows of time.
//!
//! Where labels have a delay, a label has its place in windows a delay after its event, whether or not it is known by
//! then; otherwise where it became known. It counts once its place has passed and it is known.

use std::collections::VecDeque;

use super::columns::Plan;
use super::events::{DAY, KnownLabels};

/// A label of an event.
#[derive(Clone, Copy)]
struct Entry {
    /// When its event happened.
    happened: i64,
    /// Its place in windows.
    place: i64,
    /// From when on it counts; later events alone see it.
    visible: i64,
    is_fraud: bool,
}

/// How many labels of a window are known, and how many of them are frauds.
#[derive(Clone, Copy, Default)]
pub(super) struct LabelCounts {
    pub(super) known: u32,
    pub(super) frauds: u32,
}

/// Windows over the known labels of some events, moving with time.
#[derive(Default)]
pub(super) struct LabelWindows {
    /// In order of place.
    entries: Vec<Entry>,
    /// Entries in order of `visible`.
    order: Vec<u32>,
    /// How many of `order` are visible.
    seen: usize,
    windows: Vec<Window>,
}

#[derive(Clone, Copy, Default)]
struct Window {
    /// Entries before this one have left the window.
    start: usize,
    counts: LabelCounts,
}

impl LabelWindows {
    /// Takes over events in order of time, each with its time.
    pub(super) fn fill(&mut self, known: &KnownLabels, events: impl Iterator<Item = (u32, i64)>, spans: usize) {
        self.entries.clear();
        self.entries.extend(events.filter_map(|(event, happened)| {
            let is_fraud = known.label[event as usize]? == 1;
            // No label is known before its event.
            let known_at = known.known[event as usize].max(happened);
            let place = known.delay.map_or(known_at, |delay| happened.saturating_add(delay));
            Some(Entry { happened, place, visible: known_at.max(place), is_fraud })
        }));
        if !self.entries.is_sorted_by_key(|entry| entry.place) {
            self.entries.sort_by_key(|entry| entry.place);
        }
        self.order.clear();
        self.order.extend(0..self.entries.len() as u32);
        if !self.entries.is_sorted_by_key(|entry| entry.visible) {
            self.order.sort_unstable_by_key(|&entry| (self.entries[entry as usize].visible, entry));
        }
        self.seen = 0;
        self.windows.clear();
        self.windows.resize(spans, Window::default());
    }

    /// Moves on to `time`, which never goes back, and tells of every label that became visible.
    fn advance_seeing(&mut self, time: i64, spans: &[i64], mut seen: impl FnMut(u32, &Entry)) {
        while let Some(&next) = self.order.get(self.seen) {
            let entry = &self.entries[next as usize];
            if entry.visible >= time {
                break;
            }
            for window in self.windows.iter_mut().filter(|window| next as usize >= window.start) {
                window.counts.known += 1;
                window.counts.frauds += u32::from(entry.is_fraud);
            }
            seen(next, entry);
            self.seen += 1;
        }
        for (window, span) in self.windows.iter_mut().zip(spans) {
            let first = time.saturating_sub(*span);
            while let Some(entry) = self.entries.get(window.start).filter(|entry| entry.place < first) {
                if entry.visible < time {
                    window.counts.known -= 1;
                    window.counts.frauds -= u32::from(entry.is_fraud);
                }
                window.start += 1;
            }
        }
    }

    /// Moves on to each of `times`, which never go back: `out` becomes the counts by time, then by span.
    pub(super) fn counts_at(&mut self, times: impl Iterator<Item = i64>, spans: &[i64], out: &mut Vec<LabelCounts>) {
        out.clear();
        for time in times {
            self.advance_seeing(time, spans, |_, _| {});
            out.extend(self.counts());
        }
    }

    /// By span.
    fn counts(&self) -> impl Iterator<Item = LabelCounts> {
        self.windows.iter().map(|window| window.counts)
    }
}

/// All that one entity's known labels tell.
#[derive(Default)]
pub(super) struct KnownWindows {
    labels: LabelWindows,
    /// Frauds among the leading visible labels.
    frauds: Vec<u32>,
    /// When the last known fraud happened, and the last event with a known label.
    last_fraud: Option<i64>,
    last_known: Option<i64>,
    /// Entries of the known frauds within the longest window, in ascending order.
    in_longest: VecDeque<u32>,
}

impl KnownWindows {
    /// Takes over the `events` of one entity, which happened at `times`.
    pub(super) fn fill(&mut self, known: &KnownLabels, events: &[u32], times: &[i64], spans: usize) {
        self.labels.fill(known, events.iter().copied().zip(times.iter().copied()), spans);
        self.frauds.clear();
        self.frauds.push(0);
        (self.last_fraud, self.last_known) = (None, None);
        self.in_longest.clear();
    }

    /// Moves on to `time`, which never goes back.
    pub(super) fn advance(&mut self, time: i64, spans: &[i64]) {
        let Self { labels, frauds, last_fraud, last_known, in_longest } = self;
        labels.advance_seeing(time, spans, |at, entry| {
            frauds.push(frauds[frauds.len() - 1] + u32::from(entry.is_fraud));
            *last_known = (*last_known).max(Some(entry.happened));
            if entry.is_fraud {
                *last_fraud = (*last_fraud).max(Some(entry.happened));
                let place = in_longest.partition_point(|&other| other < at);
                in_longest.insert(place, at);
            }
        });
        let longest = labels.windows.iter().map(|window| window.start).min().unwrap_or(labels.entries.len());
        while in_longest.front().is_some_and(|&fraud| (fraud as usize) < longest) {
            in_longest.pop_front();
        }
    }

    /// The columns as of `time`.
    pub(super) fn push_columns(&self, plan: &Plan, time: i64, row: &mut Vec<f32>) {
        row.extend(self.labels.counts().flat_map(|counts| [counts.frauds as f32, counts.share()]));
        let known = self.frauds.len() - 1;
        for last in &plan.last {
            let first = known.saturating_sub(*last);
            let frauds = self.frauds[known] - self.frauds[first];
            row.push(LabelCounts { known: (known - first) as u32, frauds }.share());
        }
        let days = |happened: i64| (time.saturating_sub(happened) as f64 / DAY as f64) as f32;
        row.push(self.last_fraud.map_or(f32::NAN, days));
        if !plan.spans.is_empty() {
            let first = self.in_longest.front().map(|&fraud| self.labels.entries[fraud as usize].happened);
            row.push(first.map_or(f32::NAN, days));
        }
        if plan.last_known {
            row.push(self.last_known.map_or(f32::NAN, days));
        }
    }
}

impl LabelCounts {
    /// Share of frauds; NaN where no label is known.
    pub(super) fn share(self) -> f32 {
        if self.known == 0 { f32::NAN } else { self.frauds as f32 / self.known as f32 }
    }

    /// Without those of a part.
    pub(super) fn less(self, part: Self) -> Self {
        Self { known: self.known - part.known, frauds: self.frauds - part.frauds }
    }
}
