//! How an event gets into the tracks of its entities, and out again.

use std::collections::{HashMap, HashSet};

use super::super::events::OtherMeasure;
use super::facts::Facts;
use super::labels::Labels;
use super::track::{Leading, Row, Track};
use super::tracks::{Rules, Tracks};

/// How unusual an event of a track was for its entity, over the longest span.
pub(super) fn unusual_of(rules: &Rules, track: &Track, row: &Row) -> [f32; 2] {
    let Some(span) = rules.unusual_over else { return [f32::NAN; 2] };
    let end = track.end(row.time);
    let start = track.end(row.time.saturating_sub(span)).min(end);
    unusual_among(track, row, start, &track.leading(start), &track.leading(end))
}

/// The same among the events from `start`, where the sums are `from`, to where they are `to`.
fn unusual_among(track: &Track, row: &Row, start: usize, from: &Leading, to: &Leading) -> [f32; 2] {
    let moments = track.moments(start, from, to);
    [moments.z(row.value), moments.over_mean(row.value)]
}

/// How unusual all events of a track were over a span, with their numbers.
pub(super) fn unusual_of_all(span: i64, track: &Track) -> Vec<(u32, [f32; 2])> {
    let (mut start, mut from) = (0, Leading::default());
    let (mut end, mut to) = (0, Leading::default());
    // Where the events of a time and later ones begin, and the sums before, from what was found for an earlier time.
    let reach = |position: &mut usize, sums: &mut Leading, time: i64| {
        let first = *position;
        let before = track.rows[first..].iter().take_while(|row| row.time < time).count();
        *position += before;
        track.add_up(sums, first..*position);
    };
    let of_row = |row: &Row| {
        reach(&mut end, &mut to, row.time);
        reach(&mut start, &mut from, row.time.saturating_sub(span));
        (row.event, unusual_among(track, row, start, &from, &to))
    };
    track.rows.iter().map(of_row).collect()
}

/// The labels that columns of an entity type look at, made by `of` from what says which events count: of all events,
/// then of those that name somebody of each other type.
pub(super) fn needed_labels(
    rules: &Rules,
    entity: usize,
    facts: &impl Facts,
    of: impl Fn(&dyn Fn(u32) -> bool) -> Labels,
) -> Vec<Labels> {
    let layout = &rules.layout;
    if !layout.has_labels {
        return Vec::new();
    }
    let mut labels = vec![of(&|_| true)];
    if !layout.one_hop.is_empty() && layout.one_hop_measures.contains(&OtherMeasure::FraudShare) {
        for other in layout.others(entity) {
            labels.push(of(&|event| facts.id(other, event) != u32::MAX));
        }
    }
    labels
}

/// Goes through the labels that an event counts in.
pub(super) fn each_labels<F: Facts>(
    rules: &Rules,
    facts: &F,
    tracks: &mut impl Tracks,
    event: u32,
    f: impl Fn(&mut Labels, &F),
) {
    for entity in 0..rules.layout.entities.len() {
        let id = facts.id(entity, event);
        if id == u32::MAX {
            continue;
        }
        let track = tracks.track_mut(entity, id);
        if track.labels.is_empty() {
            track.labels = needed_labels(rules, entity, facts, |_| Labels::default());
        }
        let mut others = rules.layout.others(entity);
        for (nth, labels) in track.labels.iter_mut().enumerate() {
            let counts = nth == 0 || others.next().is_some_and(|other| facts.id(other, event) != u32::MAX);
            if counts {
                f(labels, facts);
            }
        }
    }
}

/// One more than the place of the last event of an entity that names the same one of another type as a new event does;
/// 0 for none.
fn last_alike(facts: &impl Facts, tracks: &impl Tracks, [entity, id]: [usize; 2], [other, named]: [usize; 2]) -> u32 {
    let (Some(own), Some(theirs)) = (tracks.track(entity, id as u32), tracks.track(other, named as u32)) else {
        return 0;
    };
    if own.rows.len() <= theirs.rows.len() {
        let at = own.rows.iter().rposition(|row| facts.id(other, row.event) == named as u32);
        return at.map_or(0, |at| at as u32 + 1);
    }
    let row = theirs.rows.iter().rev().find(|row| facts.id(entity, row.event) == id as u32);
    row.map_or(0, |row| own.place(row.time, row.event) as u32 + 1)
}

/// Puts an event, which `facts` know, into the tracks of the entities that it names. Returns the tracks, by entity type
/// and id, in which there are later ones: none where events come as they happen.
pub(super) fn append<F: Facts>(
    rules: &Rules,
    facts: &mut F,
    tracks: &mut impl Tracks,
    event: u32,
    ids: &[u32],
) -> HashSet<(usize, u32)> {
    let mut touched = HashSet::new();
    let layout = &rules.layout;
    let fact = facts.fact(event);
    let row = Row { time: fact.time, event, value: fact.value };
    let named = || ids.iter().copied().enumerate().filter(|(_, id)| *id != u32::MAX);
    // All of this is as of before.
    let mut before = Vec::new();
    for (entity, id) in named() {
        if let Some(track) = tracks.track(entity, id) {
            let unusual = unusual_of(rules, track, &row);
            facts.set_unusual(entity, event, unusual);
        }
        if rules.kind(entity).distinct {
            let of_other = |other: usize| match ids[other] {
                u32::MAX => u32::MAX,
                named => last_alike(facts, tracks, [entity, id as usize], [other, named as usize]),
            };
            before.push(layout.others(entity).map(of_other).collect::<Vec<_>>());
        } else {
            before.push(Vec::new());
        }
    }
    for ((entity, id), before) in named().zip(&before) {
        let track = tracks.track_mut(entity, id);
        let at = track.place(row.time, event);
        track.insert(at, row, before, rules.kind(entity), facts);
        if at + 1 < track.rows.len() {
            touched.insert((entity, id));
            touched.extend(tell_anew(rules, facts, tracks, [entity, id as usize], at + 1, row.time));
        }
    }
    if layout.has_labels {
        each_labels(rules, facts, tracks, event, |labels, facts| labels.insert(event, facts, rules.delay));
    }
    touched
}

/// Takes an event, which `facts` still know, out of the tracks of its entities. Returns the tracks, by entity type and
/// id, that are others than before.
pub(super) fn remove<F: Facts>(
    rules: &Rules,
    facts: &mut F,
    tracks: &mut impl Tracks,
    event: u32,
) -> HashSet<(usize, u32)> {
    let mut touched = HashSet::new();
    let fact = facts.fact(event);
    if rules.layout.has_labels {
        each_labels(rules, facts, tracks, event, |labels, facts| labels.remove(event, facts, rules.delay));
    }
    for entity in 0..rules.layout.entities.len() {
        let id = facts.id(entity, event);
        if id == u32::MAX {
            continue;
        }
        let track = tracks.track_mut(entity, id);
        let at = track.place(fact.time, event);
        if track.rows.get(at).is_some_and(|row| row.event == event) {
            track.remove(at, rules.kind(entity), facts);
            touched.insert((entity, id));
            touched.extend(tell_anew(rules, facts, tracks, [entity, id as usize], at, fact.time));
        }
    }
    touched
}

/// Tells anew how unusual the events of an entity were from a position on that have one of `time` in their window, and
/// adds up anew what looks at it: the tracks that it returns.
fn tell_anew<F: Facts>(
    rules: &Rules,
    facts: &mut F,
    tracks: &mut impl Tracks,
    [entity, id]: [usize; 2],
    from: usize,
    time: i64,
) -> Vec<(usize, u32)> {
    let Some(span) = rules.unusual_over else { return Vec::new() };
    let Some(track) = tracks.track(entity, id as u32) else { return Vec::new() };
    let rows = track.rows[from..].iter().take_while(|row| row.time <= time.saturating_add(span));
    let changed: Vec<(Row, [f32; 2])> = rows.map(|row| (*row, unusual_of(rules, track, row))).collect();
    let mut stale = HashMap::new();
    for (row, unusual) in changed {
        let before = facts.unusual(entity, row.event);
        if before.map(f32::to_bits) == unusual.map(f32::to_bits) {
            continue;
        }
        facts.set_unusual(entity, row.event, unusual);
        for other in rules.layout.others(entity) {
            let named = facts.id(other, row.event);
            if let Some(track) = tracks.track(other, named).filter(|_| named != u32::MAX) {
                let at = track.place(row.time, row.event);
                stale.entry((other, named)).and_modify(|first: &mut usize| *first = at.min(*first)).or_insert(at);
            }
        }
    }
    for (&(other, named), &at) in &stale {
        tracks.track_mut(other, named).marks_from(at, rules.kind(other), facts);
    }
    stale.into_keys().collect()
}
