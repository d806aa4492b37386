//! Windows that are kept as events come: the row of an event is looked up, equal to the byte to what
//! [`compute`](super::compute()) says of a table of all events.
//!
//! | file | holds |
//! |---|---|
//! | `track.rs` | the events of one entity, with sums so far |
//! | `labels.rs` | their labels in the order in which they become known |
//! | `append.rs` | how an event gets in, and out again |
//! | `row.rs` | the columns of an event |
//! | `overlay.rs` | events that only one question knows of |
//!
//! A window is a difference of two sums, so that an entity with many events costs little more than one with few. Where
//! the events of one counterpart have to be told from those of others, the shorter one of two windows is walked through:
//! the entity's, and the counterpart's. Sums have about 32 digits; where values have no more than those, another order
//! of adding gives the same bytes.
//!
//! An event may come late: it stands where its time says. How unusual later events of its entities were is told anew.

mod append;
mod labels;
mod overlay;
mod row;
mod track;

use std::collections::HashSet;

use rayon::prelude::*;

use self::append::{needed_labels, unusual_of};
use self::labels::Labels;
use self::overlay::Overlay;
use self::row::push_row;
use self::track::{Kind, Row, Track};
use super::columns::{Layout, Plan};
use super::events::{EventColumns, Measure, OtherMeasure, WindowConfig};
use super::groups::{Groups, by_time};

/// What windows know of an event.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Fact {
    pub time: i64,
    /// NaN where it is missing.
    pub value: f32,
    /// 1 for fraud, 0 for none.
    pub label: Option<u8>,
    /// When the label became known; `i64::MAX` for never.
    pub known: i64,
}

impl Fact {
    /// Of an event that there is not.
    const NONE: Self = Self { time: i64::MIN, value: f32::NAN, label: None, known: i64::MAX };

    /// With a value that is finite and no negative zero, or missing.
    fn checked(self) -> Self {
        Self { value: if self.value.is_finite() { self.value + 0.0 } else { f32::NAN }, ..self }
    }
}

/// Events by number.
trait Facts: Sync {
    fn fact(&self, event: u32) -> Fact;

    /// The entity of a type that an event names; `u32::MAX` for none.
    fn id(&self, entity: usize, event: u32) -> u32;

    /// How unusual an event was for its entity of a type: z-score and ratio.
    fn unusual(&self, entity: usize, event: u32) -> [f32; 2];

    fn set_unusual(&mut self, entity: usize, event: u32, unusual: [f32; 2]);
}

/// The events of entities, by type and number.
trait Tracks {
    /// `None` for an entity without events.
    fn track(&self, entity: usize, id: u32) -> Option<&Track>;

    /// An empty one where there is none yet.
    fn track_mut(&mut self, entity: usize, id: u32) -> &mut Track;
}

/// What is computed.
struct Rules {
    layout: Layout,
    /// Seconds after its event at which a label has its place.
    delay: Option<i64>,
    /// Whether different counterparts are counted.
    distinct: bool,
    /// The longest span, where it is asked how unusual events were.
    unusual_over: Option<i64>,
}

impl Rules {
    fn kind(&self, entity: usize) -> Kind<'_> {
        let Self { layout, distinct, .. } = self;
        let has_others = layout.entities.len() > 1;
        Kind { layout, entity, distinct: *distinct && has_others, one_hop: !layout.one_hop.is_empty() }
    }
}

/// All events.
#[derive(Default)]
struct AllFacts {
    facts: Vec<Fact>,
    entities: usize,
    /// Event by event, by entity type.
    ids: Vec<u32>,
    /// Likewise; empty where nobody asks.
    unusual: Vec<[f32; 2]>,
}

impl Facts for AllFacts {
    fn fact(&self, event: u32) -> Fact {
        self.facts[event as usize]
    }

    fn id(&self, entity: usize, event: u32) -> u32 {
        self.ids[event as usize * self.entities + entity]
    }

    fn unusual(&self, entity: usize, event: u32) -> [f32; 2] {
        self.unusual.get(event as usize * self.entities + entity).copied().unwrap_or([f32::NAN; 2])
    }

    fn set_unusual(&mut self, entity: usize, event: u32, unusual: [f32; 2]) {
        if let Some(place) = self.unusual.get_mut(event as usize * self.entities + entity) {
            *place = unusual;
        }
    }
}

/// By entity type.
struct AllTracks(Vec<Vec<Track>>);

impl Tracks for AllTracks {
    fn track(&self, entity: usize, id: u32) -> Option<&Track> {
        self.0[entity].get(id as usize)
    }

    fn track_mut(&mut self, entity: usize, id: u32) -> &mut Track {
        let tracks = &mut self.0[entity];
        if tracks.len() <= id as usize {
            tracks.resize_with(id as usize + 1, Track::default);
        }
        &mut tracks[id as usize]
    }
}

/// An event that one question knows of: its number, which no other has, what is known of it, and the entities that it
/// names, by type.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Guest<'a> {
    pub event: u32,
    pub fact: Fact,
    pub ids: &'a [u32],
}

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
        let groups: Vec<Groups> = events.entities.iter().map(|entity| Groups::new(&order, entity)).collect();
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
        if rules.unusual_over.is_some() {
            for (entity, tracks) in tracks.iter().enumerate() {
                let of_track = |track: &Track| {
                    let rows = track.rows.iter();
                    rows.map(|row| (row.event, unusual_of(&rules, track, row))).collect::<Vec<_>>()
                };
                for tracks in tracks.chunks(1 << 14) {
                    let found: Vec<_> = tracks.par_iter().with_min_len(64).map(of_track).collect();
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
                if kind.one_hop {
                    track.marks_from(0, kind, &facts);
                }
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
    pub fn append(&mut self, Guest { event, fact, ids }: Guest) {
        let AllFacts { facts, entities, ids: all, unusual } = &mut self.facts;
        let count = event as usize + 1;
        facts.resize(count.max(facts.len()), Fact::NONE);
        all.resize(facts.len() * *entities, u32::MAX);
        if self.rules.unusual_over.is_some() {
            unusual.resize(facts.len() * *entities, [f32::NAN; 2]);
        }
        facts[event as usize] = fact.checked();
        all[event as usize * *entities..][..*entities].copy_from_slice(ids);
        append::append(&self.rules, &mut self.facts, &mut self.tracks, event, ids);
    }

    /// The columns of an event, as of its time; `guests` count as if they had been appended. `row` becomes them.
    pub fn row(&self, own: Guest, guests: &[Guest], row: &mut Vec<f32>) {
        let own = Guest { fact: own.fact.checked(), ..own };
        row.clear();
        let shares = |guest: &Guest| guest.ids.iter().zip(own.ids).any(|(guest, own)| guest == own && *own != u32::MAX);
        if !guests.iter().any(|guest| guest.event != own.event && guest.fact.time < own.fact.time && shares(guest)) {
            return push_row(&self.rules, &self.facts, &self.tracks, &own, row);
        }
        let mut overlay = Overlay::new(&self.facts, &self.tracks);
        for guest in guests.iter().filter(|guest| guest.event >= self.len()) {
            overlay.add(&self.rules, guest);
        }
        push_row(&self.rules, &overlay.facts, &overlay.tracks, &own, row);
    }

    /// Gives an event another label, or takes it; it counts from `known` on. An event that there is not has none.
    pub fn label(&mut self, event: u32, label: Option<u8>, known: i64) {
        let Some(fact) = self.facts.facts.get(event as usize).copied() else { return };
        if !self.rules.layout.has_labels || fact.time == i64::MIN {
            return;
        }
        let Self { rules, facts, tracks } = self;
        append::each_labels(rules, facts, tracks, event, |labels, facts| labels.remove(event, facts, rules.delay));
        facts.facts[event as usize] = Fact { label, known, ..fact };
        append::each_labels(rules, facts, tracks, event, |labels, facts| labels.insert(event, facts, rules.delay));
    }

    /// Takes an event out, as if it had never been.
    pub fn forget(&mut self, event: u32) {
        if self.facts.facts.get(event as usize).is_none_or(|fact| fact.time == i64::MIN) {
            return;
        }
        append::remove(&self.rules, &mut self.facts, &mut self.tracks, event);
        let entities = self.facts.entities;
        self.facts.facts[event as usize] = Fact::NONE;
        self.facts.ids[event as usize * entities..][..entities].fill(u32::MAX);
    }

    /// Leaves an entity out: its events name none of its type from now on.
    pub fn forget_entity(&mut self, entity: usize, id: u32) {
        let Self { rules, facts, tracks } = self;
        let Some(track) = tracks.0[entity].get_mut(id as usize) else { return };
        let rows = std::mem::take(track).rows;
        let entities = facts.entities;
        let mut touched = HashSet::new();
        for row in &rows {
            facts.ids[row.event as usize * entities + entity] = u32::MAX;
            facts.set_unusual(entity, row.event, [f32::NAN; 2]);
            let others = rules.layout.others(entity).map(|other| (other, facts.id(other, row.event)));
            touched.extend(others.filter(|(_, id)| *id != u32::MAX));
        }
        for (other, id) in touched {
            let kind = rules.kind(other);
            let track = tracks.track_mut(other, id);
            track.link(kind, facts);
            track.marks_from(0, kind, facts);
            track.labels = labels_of(rules, other, facts, &track.rows);
        }
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
