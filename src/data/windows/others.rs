//! Windows over the events of others: at this terminal, what other customers paid, how unusual that was for them, and
//! how much of it is known to be fraud.
//!
//! What others' events add up to is what all events of a window add up to, less what those of this event's own
//! counterpart do. An event that names no counterpart is nobody's and counts nowhere.

use std::ops::Range;

use super::columns::Plan;
use super::events::{KnownLabels, OtherMeasure};
use super::history::{Alike, History, Moments};
use super::known::{LabelCounts, LabelWindows};
use super::sliding::{Distinct, Links, Maxima};
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
    /// By position; read once, as events of an entity lie anywhere.
    unusual_here: Vec<[f64; 2]>,
    needs: Needs,
    history: History,
    alike: Alike,
    /// By span, then by position: where the window begins.
    starts: Vec<u32>,
    all: Sums,
    /// Of one counterpart.
    same: Sums,
    /// Of the values and of their negatives, without those of one counterpart.
    largest: [Maxima; 2],
    links: Links,
    /// By span, then by position: different counterparts.
    distinct: Vec<u32>,
    labels: LabelWindows,
    /// By event, then by span.
    all_known: Vec<LabelCounts>,
    same_known: Vec<LabelCounts>,
    row: Vec<f32>,
}

/// What the columns are made of.
#[derive(Clone, Copy)]
struct Needs {
    counts: bool,
    sums: bool,
    squares: bool,
    largest: bool,
    distinct: bool,
    unusual: bool,
    labels: bool,
}

impl Needs {
    fn of(plan: &Plan) -> Self {
        let has = |measures: &[OtherMeasure]| plan.one_hop_measures.iter().any(|measure| measures.contains(measure));
        Self {
            counts: has(&[OtherMeasure::Count]),
            sums: has(&[OtherMeasure::Sum, OtherMeasure::Mean, OtherMeasure::Deviation]),
            squares: has(&[OtherMeasure::Deviation]),
            largest: has(&[OtherMeasure::Largest, OtherMeasure::Deviation]),
            distinct: has(&[OtherMeasure::Distinct]),
            unusual: plan.needs_unusual(),
            labels: has(&[OtherMeasure::FraudShare]),
        }
    }
}

/// The events of one entity, as those of their counterparts of one type.
struct Terms<'t> {
    events: &'t [u32],
    values: &'t [f32],
    of_event: &'t [u32],
    /// By position: z-score and ratio, where they are needed.
    unusual: &'t [[f64; 2]],
}

impl Terms<'_> {
    /// `u32::MAX` for none.
    fn counterpart(&self, position: usize) -> u32 {
        self.of_event[self.events[position] as usize]
    }

    fn is_named(&self, position: usize) -> bool {
        self.counterpart(position) != u32::MAX
    }

    /// NaN where it is missing or nobody's.
    fn value(&self, position: usize) -> f32 {
        if self.is_named(position) { self.values[position] } else { f32::NAN }
    }
}

/// Sums over the leading ones of some events.
#[derive(Default)]
struct Sums {
    counts: Prefix,
    values: Prefix,
    squares: Prefix,
    /// Of z-scores and of ratios.
    unusual: [Prefix; 2],
}

impl Sums {
    fn fill(&mut self, needs: Needs, terms: &Terms, positions: impl Iterator<Item = usize> + Clone) {
        let value = |position| f64::from(terms.value(position));
        if needs.counts {
            let one = |position| if terms.is_named(position) { 1.0 } else { f64::NAN };
            self.counts.fill(positions.clone().map(one));
        }
        if needs.sums {
            self.values.fill(positions.clone().map(value));
        }
        if needs.squares {
            self.squares.fill(positions.clone().map(|position| value(position).powi(2)));
        }
        for (which, prefix) in self.unusual.iter_mut().enumerate().filter(|_| needs.unusual) {
            prefix.fill(positions.clone().map(|position| terms.unusual[position][which]));
        }
    }
}

/// A window of an event.
struct Window {
    /// Positions among all events.
    all: Range<usize>,
    /// Positions among the events of its counterpart.
    same: Range<usize>,
    /// The different counterparts, its own among them.
    distinct: u32,
    /// Known labels of all, and of its counterpart.
    known: [LabelCounts; 2],
    is_named: bool,
}

impl<'a, U: UnusualOf> OtherWindows<'a, U> {
    pub(super) fn new(plan: &'a Plan<'a>, entity: usize, unusual: &'a U) -> Self {
        Self {
            plan,
            entity,
            unusual,
            unusual_here: Vec::new(),
            needs: Needs::of(plan),
            history: History::default(),
            alike: Alike::default(),
            starts: Vec::new(),
            all: Sums::default(),
            same: Sums::default(),
            largest: Default::default(),
            links: Links::default(),
            distinct: Vec::new(),
            labels: LabelWindows::default(),
            all_known: Vec::new(),
            same_known: Vec::new(),
            row: Vec::new(),
        }
    }

    /// Calls `write` with each of `events`, a column among those of others, and the values from there on.
    pub(super) fn rows(&mut self, events: &[u32], mut write: impl FnMut(u32, usize, &[f32])) {
        let plan = self.plan;
        let spans = &plan.one_hop;
        self.fill(events);
        let values = std::mem::take(&mut self.history.values);
        // Out of its place, so that its runs can be gone through while the rest changes.
        let mut alike = std::mem::take(&mut self.alike);
        let mut unusual = std::mem::take(&mut self.unusual_here);
        for (index, other) in plan.others(self.entity).enumerate() {
            let of_event = plan.events.entities[other].of_event;
            if self.needs.unusual {
                let clamped = |value: f32| f64::from(value.clamp(-MOST_UNUSUAL, MOST_UNUSUAL));
                unusual.clear();
                unusual.extend(events.iter().map(|&event| self.unusual.of(other, event).map(clamped)));
            }
            let terms = Terms { events, values: &values, of_event, unusual: &unusual };
            alike.fill((0..events.len()).map(|position| terms.counterpart(position)));
            self.fill_all(&terms, &alike);
            for (counterpart, positions) in alike.runs() {
                let is_named = counterpart != u32::MAX;
                self.fill_same(&terms, is_named, positions.clone());
                for span in 0..spans.len() {
                    let of_span = span * events.len();
                    let (mut first, mut last) = (0, 0);
                    let (mut from, mut to) = (positions.clone().peekable(), positions.clone().peekable());
                    for (nth, position) in positions.clone().enumerate() {
                        let start = self.starts[of_span + position] as usize;
                        let end = self.history.ends[position] as usize;
                        while from.next_if(|&before| before < start).is_some() {
                            first += 1;
                        }
                        while to.next_if(|&before| before < end).is_some() {
                            last += 1;
                        }
                        let known = |counts: &[LabelCounts], event: usize| {
                            counts.get(event * spans.len() + span).copied().unwrap_or_default()
                        };
                        self.push(&Window {
                            all: start..end,
                            same: first..last,
                            distinct: self.distinct.get(of_span + position).copied().unwrap_or(0),
                            known: [known(&self.all_known, position), known(&self.same_known, nth)],
                            is_named,
                        });
                        write(events[position], (index * spans.len() + span) * self.row.len(), &self.row);
                    }
                }
                if self.needs.largest {
                    self.set_largest(positions, |position| terms.value(position));
                }
            }
        }
        (self.history.values, self.alike, self.unusual_here) = (values, alike, unusual);
    }

    /// Takes over the events of an entity.
    fn fill(&mut self, events: &[u32]) {
        match self.needs.sums || self.needs.largest {
            true => self.history.fill_values(self.plan, events),
            false => self.history.values.clear(),
        }
        let plan = self.plan;
        self.history.fill_times(plan, events);
        self.starts.clear();
        for span in &plan.one_hop {
            let mut start = 0;
            for &time in &self.history.times {
                while self.history.times[start] < time.saturating_sub(*span) {
                    start += 1;
                }
                self.starts.push(start as u32);
            }
        }
    }

    /// Adds up over all events.
    fn fill_all(&mut self, terms: &Terms, alike: &Alike) {
        let count = terms.events.len();
        self.all.fill(self.needs, terms, 0..count);
        if self.needs.largest {
            let [largest, smallest] = &mut self.largest;
            largest.fill((0..count).map(|position| terms.value(position)));
            smallest.fill((0..count).map(|position| -terms.value(position)));
        }
        if self.needs.distinct {
            self.links.fill_from(alike, (0..count).map(|position| terms.counterpart(position)));
            self.distinct.clear();
            for starts in self.starts.chunks(count) {
                let mut distinct = Distinct::default();
                let ends = starts.iter().zip(&self.history.ends).map(|(&start, &end)| [start as usize, end as usize]);
                self.distinct.extend(ends.map(|[start, end]| distinct.advance(&self.links, start, end)));
            }
        }
        if let Some(labels) = self.labels_of_plan() {
            let named = (0..count).filter(|&position| terms.is_named(position));
            let of_events = named.map(|position| (terms.events[position], self.history.times[position]));
            self.labels.fill(&labels, of_events, self.plan.one_hop.len());
            self.labels.counts_at(self.history.times.iter().copied(), &self.plan.one_hop, &mut self.all_known);
        }
    }

    /// Adds up over the events of one counterpart, which are at `positions`, and takes their values out of the largest.
    fn fill_same(&mut self, terms: &Terms, is_named: bool, positions: impl Iterator<Item = usize> + Clone) {
        self.same.fill(self.needs, terms, positions.clone());
        if self.needs.largest {
            self.set_largest(positions.clone(), |_| f32::NAN);
        }
        if let Some(labels) = self.labels_of_plan() {
            let times = &self.history.times;
            let of_events = positions.clone().map(|position| (terms.events[position], times[position]));
            self.labels.fill(&labels, of_events.filter(|_| is_named), self.plan.one_hop.len());
            let times = positions.map(|position| times[position]);
            self.labels.counts_at(times, &self.plan.one_hop, &mut self.same_known);
        }
    }

    fn labels_of_plan(&self) -> Option<KnownLabels<'a>> {
        self.plan.labels.filter(|_| self.needs.labels)
    }

    fn set_largest(&mut self, positions: impl Iterator<Item = usize>, value: impl Fn(usize) -> f32) {
        let [largest, smallest] = &mut self.largest;
        for position in positions {
            largest.set(position, value(position));
            smallest.set(position, -value(position));
        }
    }

    /// The columns of a window become the row.
    fn push(&mut self, window: &Window) {
        let (plan, all, same) = (self.plan, &self.all, &self.same);
        let others = |of: fn(&Sums) -> &Prefix| of(all).between_less(&window.all, of(same), &window.same);
        let mean_of_unusual = |which: usize| {
            let (sum, count) = all.unusual[which].between(window.all.start, window.all.end);
            let (own, own_count) = same.unusual[which].between(window.same.start, window.same.end);
            let others = count - own_count;
            if others == 0 { f32::NAN } else { ((sum - own) / f64::from(others)) as f32 }
        };
        let [largest, smallest] = match self.needs.largest {
            true => self.largest.each_ref().map(|largest| largest.between(window.all.start, window.all.end)),
            false => [f32::NAN; 2],
        };
        let moments = match self.needs.sums {
            true => {
                let (sum, count) = others(|sums| &sums.values);
                let only = (self.needs.squares && largest == -smallest).then_some(largest);
                let squares = || if self.needs.squares { others(|sums| &sums.squares).0 } else { f64::NAN };
                Moments::of(count, sum, only, squares)
            }
            false => Moments::NONE,
        };
        self.row.clear();
        self.row.extend(plan.one_hop_measures.iter().map(|measure| match measure {
            OtherMeasure::Count => others(|sums| &sums.counts).0 as f32,
            OtherMeasure::Sum => moments.sum as f32,
            OtherMeasure::Mean => moments.mean as f32,
            OtherMeasure::Deviation => moments.deviation as f32,
            OtherMeasure::Largest if largest == f32::NEG_INFINITY => f32::NAN,
            OtherMeasure::Largest => largest,
            OtherMeasure::Distinct => (window.distinct - u32::from(window.is_named && !window.same.is_empty())) as f32,
            OtherMeasure::ZScore => mean_of_unusual(0),
            OtherMeasure::OverMean => mean_of_unusual(1),
            OtherMeasure::FraudShare => window.known[0].less(window.known[1]).share(),
        }));
    }
}
