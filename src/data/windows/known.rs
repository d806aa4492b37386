//! Known labels within windows that end a delay before the event.

use super::events::KnownLabels;

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
    }

    /// Moves on to `time`, which never goes back.
    pub(super) fn advance(&mut self, time: i64, delay: i64, times: &[i64], spans: &[i64]) {
        while let Some(&position) = self.order.get(self.seen).filter(|&&next| self.visible[next as usize] < time) {
            for window in &mut self.windows {
                if position as usize >= window.start {
                    window.count(self.labels[position as usize], 1);
                }
            }
            self.seen += 1;
        }
        for (window, span) in self.windows.iter_mut().zip(spans) {
            let first = time.saturating_sub(delay).saturating_sub(*span);
            while times.get(window.start).is_some_and(|&earlier| earlier < first) {
                if self.visible[window.start] < time {
                    window.count(self.labels[window.start], -1);
                }
                window.start += 1;
            }
        }
    }

    /// By span: known frauds and their share among the known.
    pub(super) fn columns(&self) -> impl Iterator<Item = [f32; 2]> {
        self.windows.iter().map(|window| {
            let frauds = window.frauds as f32;
            [frauds, if window.known == 0 { f32::NAN } else { frauds / window.known as f32 }]
        })
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
