//! Windows over the events of others: at this terminal, how unusual the payments of other customers were for them.

use super::columns::Plan;
use super::history::{Alike, History};
use super::sums::Prefix;

/// How far a z-score or a ratio counts in a mean: an entity with hardly any events before has arbitrarily large ones.
pub(super) const MOST_UNUSUAL: f32 = 10.0;

/// How unusual the value of each event was for its entity of one type: z-score and value over mean.
pub(super) trait UnusualOf: Sync {
    /// Of `event` for its entity of type `entity`, each NaN where it is not known.
    fn of(&self, entity: usize, event: u32) -> [f32; 2];
}

/// What computes the rows of one entity after another, with memory that is used again.
pub(super) struct OtherWindows<'a, U> {
    plan: &'a Plan<'a>,
    entity: usize,
    unusual: &'a U,
    history: History,
    alike: Alike,
    /// By span, then by position: where the window begins.
    starts: Vec<u32>,
    /// Of z-scores and of ratios, in order of position.
    all: [Prefix; 2],
    /// The same for the events of one counterpart.
    same: [Prefix; 2],
}

impl<'a, U: UnusualOf> OtherWindows<'a, U> {
    pub(super) fn new(plan: &'a Plan<'a>, entity: usize, unusual: &'a U) -> Self {
        let (history, alike) = (History::default(), Alike::default());
        Self {
            plan,
            entity,
            unusual,
            history,
            alike,
            starts: Vec::new(),
            all: Default::default(),
            same: Default::default(),
        }
    }

    /// Calls `write` with each of `events`, a column among those of others, and the values from there on.
    pub(super) fn rows(&mut self, events: &[u32], mut write: impl FnMut(u32, usize, [f32; 2])) {
        let spans = self.plan.one_hop;
        self.history.fill_times(self.plan, events);
        self.starts.clear();
        for span in spans {
            let mut start = 0;
            for &time in &self.history.times {
                while self.history.times[start] < time.saturating_sub(*span) {
                    start += 1;
                }
                self.starts.push(start as u32);
            }
        }
        for (index, other) in self.plan.others(self.entity).enumerate() {
            let of_event = self.plan.events.entities[other].of_event;
            self.alike.fill(events.iter().map(|&event| of_event[event as usize]));
            let source = self.unusual;
            let unusual = |position: usize, which: usize| {
                let value = source.of(other, events[position])[which];
                f64::from(value.clamp(-MOST_UNUSUAL, MOST_UNUSUAL))
            };
            for (which, prefix) in self.all.iter_mut().enumerate() {
                prefix.fill((0..events.len()).map(|position| unusual(position, which)));
            }
            for (_, positions) in self.alike.runs() {
                for (which, prefix) in self.same.iter_mut().enumerate() {
                    prefix.fill(positions.clone().map(|position| unusual(position, which)));
                }
                for (span, starts) in self.starts.chunks(events.len()).enumerate() {
                    let (mut first, mut last) = (0, 0);
                    let (mut from, mut to) = (positions.clone().peekable(), positions.clone().peekable());
                    for position in positions.clone() {
                        let (start, end) = (starts[position] as usize, self.history.ends[position] as usize);
                        while from.next_if(|&before| before < start).is_some() {
                            first += 1;
                        }
                        while to.next_if(|&before| before < end).is_some() {
                            last += 1;
                        }
                        let mean = |which: usize| {
                            let (sum, count) = self.all[which].between(start, end);
                            let (own, own_count) = self.same[which].between(first, last);
                            let others = count - own_count;
                            if others == 0 { f32::NAN } else { ((sum - own) / f64::from(others)) as f32 }
                        };
                        write(events[position], 2 * (index * spans.len() + span), [mean(0), mean(1)]);
                    }
                }
            }
        }
    }
}
