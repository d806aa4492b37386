//! Events that only one question knows of, over those that are there.

use std::collections::HashMap;

use super::append::append;
use super::facts::{AllFacts, Fact, Facts, Guest};
use super::track::Track;
use super::tracks::{AllTracks, Rules, Tracks};

pub(super) struct Overlay<'a> {
    pub(super) facts: MoreFacts<'a>,
    pub(super) tracks: MoreTracks<'a>,
}

/// Facts of more events.
pub(super) struct MoreFacts<'a> {
    below: &'a AllFacts,
    more: HashMap<u32, (Fact, Vec<u32>)>,
    unusual: HashMap<(usize, u32), [f32; 2]>,
}

impl Facts for MoreFacts<'_> {
    fn fact(&self, event: u32) -> Fact {
        self.more.get(&event).map_or_else(|| self.below.fact(event), |(fact, _)| *fact)
    }

    fn id(&self, entity: usize, event: u32) -> u32 {
        self.more.get(&event).map_or_else(|| self.below.id(entity, event), |(_, ids)| ids[entity])
    }

    fn unusual(&self, entity: usize, event: u32) -> [f32; 2] {
        let below = || if self.more.contains_key(&event) { [f32::NAN; 2] } else { self.below.unusual(entity, event) };
        self.unusual.get(&(entity, event)).copied().unwrap_or_else(below)
    }

    fn set_unusual(&mut self, entity: usize, event: u32, unusual: [f32; 2]) {
        self.unusual.insert((entity, event), unusual);
    }
}

/// Tracks that were touched are copies.
pub(super) struct MoreTracks<'a> {
    below: &'a AllTracks,
    touched: HashMap<(usize, u32), Track>,
}

impl Tracks for MoreTracks<'_> {
    fn track(&self, entity: usize, id: u32) -> Option<&Track> {
        self.touched.get(&(entity, id)).or_else(|| self.below.track(entity, id))
    }

    fn track_mut(&mut self, entity: usize, id: u32) -> &mut Track {
        let below = self.below;
        self.touched.entry((entity, id)).or_insert_with(|| below.track(entity, id).cloned().unwrap_or_default())
    }
}

impl<'a> Overlay<'a> {
    pub(super) fn new(facts: &'a AllFacts, tracks: &'a AllTracks) -> Self {
        Self {
            facts: MoreFacts { below: facts, more: HashMap::new(), unusual: HashMap::new() },
            tracks: MoreTracks { below: tracks, touched: HashMap::new() },
        }
    }

    pub(super) fn add(&mut self, rules: &Rules, guest: &Guest) {
        self.facts.more.insert(guest.event, (guest.fact.checked(), guest.ids.to_vec()));
        append(rules, &mut self.facts, &mut self.tracks, guest.event, guest.ids);
    }
}
