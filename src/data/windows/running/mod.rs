//! Windows that are kept as events come: the row of an event is looked up, equal to the byte to what
//! [`compute`](super::compute()) says of a table of all events.
//!
//! | file | holds |
//! |---|---|
//! | `facts.rs` | events by number |
//! | `tracks.rs` | the tracks of entities, and what is computed of them |
//! | `track.rs` | the events of one entity, with sums so far |
//! | `labels.rs` | their labels in the order in which they become known |
//! | `append.rs` | how an event gets in, and out again |
//! | `row.rs` | the columns of an event |
//! | `overlay.rs` | events that only one question knows of |
//!
//! A window is a difference of two sums, so that an entity with many events costs little more than one with few. Where
//! the events of one counterpart have to be told from those of others, the shorter one of two windows is walked
//! through: the entity's, and the counterpart's. Sums have about 32 digits; where values have no more than those,
//! another order of adding gives the same bytes.
//!
//! An event may come late: it stands where its time says. How unusual later events of its entities were is told anew.

mod append;
mod facts;
mod labels;
mod overlay;
mod row;
mod track;
mod tracks;

use std::collections::HashSet;

use rayon::prelude::*;

use self::append::{needed_labels, unusual_of_all};
use self::facts::{AllFacts, Facts};
pub(crate) use self::facts::{Fact, Guest};
use self::labels::Labels;
use self::overlay::Overlay;
use self::row::push_row;
use self::track::{Kind, Row, Track};
use self::tracks::{AllTracks, Rules, Tracks};
use super::columns::Plan;
use super::events::{EventColumns, Measure, OtherMeasure, WindowConfig};
use super::groups::{Groups, by_time};

/// Windows as events come.
pub(crate) struct Running {
    rules: Rules,
    facts: AllFacts,
    tracks: AllTracks,
}

impl Running {
    /// Of the events of a table, which have the numbers of their rows.
    ///
    /// # Panics
    /// As [`compute`](super::compute()), and for windows of later events.
    pub fn new(events: &EventColumns, config: &WindowConfig) -> Self {
        assert!(!config.ahead, "running windows: expected windows of earlier events");
        let plan = Plan::new(events, config);
        let labels = plan.labels;
        let layout = plan.into_layout();
        let of_windows = |measure| layout.windows.iter().any(|window| window.measures.contains(&measure));
        let of_one_hop = |measure| !layout.one_hop.is_empty() && layout.one_hop_measures.contains(&measure);
        let distinct = of_windows(Measure::Distinct) || of_one_hop(OtherMeasure::Distinct);
        let needs_unusual = layout.has_values && layout.needs_unusual();
        let unusual_over = layout.spans.iter().max().copied().filter(|_| needs_unusual);
        let delay = labels.and_then(|labels| labels.delay);
        let rules = Rules { layout, delay, distinct, unusual_over };

        let (count, entities) = (events.times.len(), events.entities.len());
        let fact = |event: usize| {
            let label = labels.and_then(|labels| labels.label[event]);
            let known = labels.map_or(i64::MAX, |labels| labels.known[event]);
            let value = events.values.map_or(f32::NAN, |values| values[event]);
            Fact { time: events.times[event], value, label, known }.checked()
        };
        let id = |at: usize| events.entities[at % entities].of_event[at / entities];
        let unusual = if rules.unusual_over.is_some() { vec![[f32::NAN; 2]; count * entities] } else { Vec::new() };
        let mut facts = AllFacts {
            facts: (0..count).into_par_iter().map(fact).collect(),
            entities,
            ids: (0..count * entities).into_par_iter().map(id).collect(),
            unusual,
        };
        let order = by_time(events.times);
        let groups: Vec<Groups> = events.entities.par_iter().map(|entity| Groups::new(&order, entity)).collect();
        drop(order);
        let mut tracks = Vec::with_capacity(entities);
        for (entity, groups) in groups.iter().enumerate() {
            let (facts, rules) = (&facts, &rules);
            let of_entity = |id: usize| {
                let row = |&event: &u32| {
                    let Fact { time, value, .. } = facts.fact(event);
                    Row { time, event, value }
                };
                let events = groups.of(id);
                let mut track = Track::of(events.iter().map(row).collect());
                // Sums of values alone so far: how unusual events were is told by them.
                track.marks_from(0, Kind { one_hop: false, ..rules.kind(entity) }, facts);
                track.labels = labels_of(rules, entity, facts, &track.rows);
                track
            };
            let ids = (0..events.entities[entity].count).into_par_iter().with_min_len(64);
            tracks.push(ids.map(of_entity).collect::<Vec<_>>());
        }
        if let Some(span) = rules.unusual_over {
            for (entity, tracks) in tracks.iter().enumerate() {
                for tracks in tracks.chunks(1 << 14) {
                    let found: Vec<_> =
                        tracks.par_iter().with_min_len(64).map(|track| unusual_of_all(span, track)).collect();
                    for (event, unusual) in found.into_iter().flatten() {
                        facts.set_unusual(entity, event, unusual);
                    }
                }
            }
        }
        for (entity, tracks) in tracks.iter_mut().enumerate() {
            let kind = rules.kind(entity);
            tracks.par_iter_mut().with_min_len(64).for_each(|track| {
                track.link(kind, &facts);
                track.mark_all_others(kind, &facts);
            });
        }
        Self { rules, facts, tracks: AllTracks(tracks) }
    }

    /// Names of the columns.
    pub fn names(&self) -> &[String] {
        &self.rules.layout.names
    }

    /// Number of events, the next one's number.
    pub fn len(&self) -> u32 {
        self.facts.facts.len() as u32
    }

    /// Takes an event, which names entities by type (`u32::MAX` for none); its number is [`len`](Self::len) or above.
    /// Returns the events whose columns may be others than before: where it comes late, those behind it.
    pub fn append(&mut self, Guest { event, fact, ids }: Guest) -> Vec<u32> {
        let AllFacts { facts, entities, ids: all, unusual } = &mut self.facts;
        let count = event as usize + 1;
        facts.resize(count.max(facts.len()), Fact::NONE);
        all.resize(facts.len() * *entities, u32::MAX);
        if self.rules.unusual_over.is_some() {
            unusual.resize(facts.len() * *entities, [f32::NAN; 2]);
        }
        facts[event as usize] = fact.checked();
        all[event as usize * *entities..][..*entities].copy_from_slice(ids);
        let touched = append::append(&self.rules, &mut self.facts, &mut self.tracks, event, ids);
        self.since(touched, fact.time).collect()
    }

    /// The columns of an event, as of its time. `row` becomes them.
    pub fn row(&self, own: Guest, row: &mut Vec<f32>) {
        row.clear();
        push_row(&self.rules, &self.facts, &self.tracks, &Guest { fact: own.fact.checked(), ..own }, row);
    }

    /// Gives the columns of events to `each`, by their places, every event as if all others had been appended. One
    /// after another as they happened, so that many cost no more than as many appended ones.
    pub fn rows(&self, guests: &[Guest], mut each: impl FnMut(usize, &[f32])) {
        let mut order: Vec<usize> = (0..guests.len()).collect();
        order.sort_by_key(|&at| guests[at].fact.time);
        let (mut overlay, mut row) = (Overlay::new(&self.facts, &self.tracks), Vec::new());
        for of_one_time in order.chunk_by(|&a, &b| guests[a].fact.time == guests[b].fact.time) {
            for &at in of_one_time {
                let own = Guest { fact: guests[at].fact.checked(), ..guests[at] };
                row.clear();
                push_row(&self.rules, &overlay.facts, &overlay.tracks, &own, &mut row);
                each(at, &row);
            }
            for &at in of_one_time.iter().filter(|&&at| guests[at].event >= self.len()) {
                overlay.add(&self.rules, &guests[at]);
            }
        }
    }

    /// Gives an event another label, or takes it; it counts from `known` on. An event that there is not has none.
    /// Returns the events whose columns may be others than before: those that happened when one of both was known.
    pub fn label(&mut self, event: u32, label: Option<u8>, known: i64) -> Vec<u32> {
        let fact = self.facts.facts.get(event as usize).copied().filter(|fact| fact.time != i64::MIN);
        let Some(fact) = fact.filter(|_| self.rules.layout.has_labels) else { return Vec::new() };
        let Self { rules, facts, tracks } = self;
        append::each_labels(rules, facts, tracks, event, |labels, facts| labels.remove(event, facts, rules.delay));
        let next = Fact { label, known, ..fact };
        facts.facts[event as usize] = next;
        append::each_labels(rules, facts, tracks, event, |labels, facts| labels.insert(event, facts, rules.delay));
        let visible = [fact, next].iter().filter_map(|fact| fact.places(rules.delay)).map(|[_, visible]| visible).min();
        let Some(visible) = visible else { return Vec::new() };
        let named = (0..rules.layout.entities.len()).map(|entity| (entity, facts.id(entity, event)));
        let touched = named.filter(|(_, id)| *id != u32::MAX).collect();
        self.since(touched, visible.saturating_add(1)).collect()
    }

    /// Takes an event out, as if it had never been. Returns the events whose columns may be others than before.
    pub fn forget(&mut self, event: u32) -> Vec<u32> {
        let known = self.facts.facts.get(event as usize).filter(|fact| fact.time != i64::MIN);
        let Some(&Fact { time, .. }) = known else { return Vec::new() };
        let touched = append::remove(&self.rules, &mut self.facts, &mut self.tracks, event);
        let entities = self.facts.entities;
        self.facts.facts[event as usize] = Fact::NONE;
        self.facts.ids[event as usize * entities..][..entities].fill(u32::MAX);
        self.since(touched, time).collect()
    }

    /// Leaves an entity out: its events name none of its type from now on. Returns the events whose columns may be
    /// others than before.
    pub fn forget_entity(&mut self, entity: usize, id: u32) -> Vec<u32> {
        let Self { rules, facts, tracks } = self;
        let Some(track) = tracks.0[entity].get_mut(id as usize) else { return Vec::new() };
        let rows = std::mem::take(track).rows;
        let Some(first) = rows.first().map(|row| row.time) else { return Vec::new() };
        let entities = facts.entities;
        let mut touched = HashSet::new();
        for row in &rows {
            facts.ids[row.event as usize * entities + entity] = u32::MAX;
            facts.set_unusual(entity, row.event, [f32::NAN; 2]);
            let others = rules.layout.others(entity).map(|other| (other, facts.id(other, row.event)));
            touched.extend(others.filter(|(_, id)| *id != u32::MAX));
        }
        for &(other, id) in &touched {
            let kind = rules.kind(other);
            let track = tracks.track_mut(other, id);
            track.link(kind, facts);
            track.marks_from(0, kind, facts);
            track.labels = labels_of(rules, other, facts, &track.rows);
        }
        rows.into_iter().map(|row| row.event).chain(self.since(touched, first)).collect()
    }

    /// The events of some tracks from a time on.
    fn since(&self, tracks: HashSet<(usize, u32)>, time: i64) -> impl Iterator<Item = u32> + '_ {
        let tracks = tracks.into_iter().filter_map(move |(entity, id)| self.tracks.track(entity, id));
        tracks.flat_map(move |track| track.rows[track.end(time)..].iter().map(|row| row.event))
    }

    /// Bytes that it takes.
    pub fn num_bytes(&self) -> usize {
        let AllFacts { facts, ids, unusual, .. } = &self.facts;
        let of_facts = facts.capacity() * size_of::<Fact>() + ids.capacity() * 4 + unusual.capacity() * 8;
        let of_tracks: usize = self.tracks.0.iter().flatten().map(Track::num_bytes).sum();
        of_facts + of_tracks
    }
}

/// All labels of an entity's events that columns look at.
fn labels_of(rules: &Rules, entity: usize, facts: &AllFacts, rows: &[Row]) -> Vec<Labels> {
    needed_labels(rules, entity, facts, |counts| {
        let events = rows.iter().map(|row| row.event).filter(|&event| counts(event));
        Labels::of(events, facts, rules.delay)
    })
}
