//! The columns of an event, in the order of [`compute`](super::super::compute()).

use super::super::columns::{OwnWindow, Reach};
use super::super::events::{DAY, Measure, OtherMeasure};
use super::super::history::Moments;
use super::super::known::LabelCounts;
use super::facts::{Fact, Facts, Guest};
use super::labels::Labels;
use super::track::{OfOthers, Track};
use super::tracks::{Rules, Tracks};

/// Appends the columns of an event, as of its time.
pub(super) fn push_row(rules: &Rules, facts: &impl Facts, tracks: &impl Tracks, own: &Guest, row: &mut Vec<f32>) {
    let layout = &rules.layout;
    let none = Track::default();
    for (entity, &id) in own.ids.iter().enumerate() {
        if id == u32::MAX {
            let block = &layout.blocks[entity];
            let next = layout.blocks.get(entity + 1).map_or(layout.names.len(), |next| next.first);
            row.resize(row.len() + next - block.first, f32::NAN);
            continue;
        }
        let track = tracks.track(entity, id).unwrap_or(&none);
        push_own(rules, track, &own.fact, row);
        push_others(rules, facts, tracks, [entity, id as usize], own, track, row);
    }
}

/// Windows over the events of one entity.
fn push_own(rules: &Rules, track: &Track, fact: &Fact, row: &mut Vec<f32>) {
    let layout = &rules.layout;
    let Fact { time, value, .. } = *fact;
    let others = layout.entities.len() - 1;
    let end = track.end(time);
    let at_end = track.leading(end);
    let days = |happened: i64| (time.saturating_sub(happened) as f64 / DAY as f64) as f32;
    for OwnWindow { reach, measures } in &layout.windows {
        let start = match reach {
            Reach::Span(span) => track.end(time.saturating_sub(*span)).min(end),
            Reach::Last(last) => end.saturating_sub(*last),
        };
        let moments = match measures.iter().any(|measure| measure.is_of_moments()) {
            true => track.moments(start, &track.leading(start), &at_end),
            false => Moments::NONE,
        };
        for measure in measures {
            row.push(match measure {
                Measure::Count => (end - start) as f32,
                Measure::Sum => moments.sum as f32,
                Measure::Mean => moments.mean as f32,
                Measure::Deviation => moments.deviation as f32,
                Measure::Largest => known(track.largest(start, end)),
                Measure::OverMean => moments.over_mean(value),
                Measure::ZScore => moments.z(value),
                Measure::Distinct => {
                    row.extend((0..others).map(|nth| track.distinct(nth, others, start, end) as f32));
                    continue;
                }
            });
        }
        if let Reach::Last(last) = reach {
            row.push(end.checked_sub(*last).map_or(f32::NAN, |position| days(track.rows[position].time)));
        }
    }
    row.push(end as f32);
    if layout.has_values {
        row.push(track.moments(0, &track.leading(0), &at_end).over_mean(value));
        row.push(value - end.checked_sub(1).map_or(f32::NAN, |last| track.rows[last].value));
        row.push(if value.is_nan() { f32::NAN } else { track.same_value(value, end) as f32 });
    }
    if !layout.has_labels {
        return;
    }
    let none = Labels::default();
    let labels = track.labels.first().unwrap_or(&none);
    for span in &layout.spans {
        let counts = labels.within(time.saturating_sub(*span), time);
        row.extend([counts.frauds as f32, counts.share()]);
    }
    row.extend(layout.last.iter().map(|&last| labels.last(last, time).share()));
    row.push(labels.last_fraud(time).map_or(f32::NAN, days));
    if let Some(longest) = layout.spans.iter().max() {
        row.push(labels.first_fraud(time.saturating_sub(*longest), time).map_or(f32::NAN, days));
    }
    if layout.last_known {
        row.push(labels.last_known(time).map_or(f32::NAN, days));
    }
}

/// NaN for no value at all.
fn known(largest: f32) -> f32 {
    if largest == f32::NEG_INFINITY { f32::NAN } else { largest }
}

/// Windows over the events of others at an entity.
fn push_others(
    rules: &Rules,
    facts: &impl Facts,
    tracks: &impl Tracks,
    [entity, id]: [usize; 2],
    own: &Guest,
    track: &Track,
    row: &mut Vec<f32>,
) {
    let layout = &rules.layout;
    let kind = rules.kind(entity);
    let time = own.fact.time;
    let others = layout.entities.len() - 1;
    if layout.one_hop.is_empty() {
        return;
    }
    let has = |measures: &[OtherMeasure]| layout.one_hop_measures.iter().any(|measure| measures.contains(measure));
    let needs_largest = has(&[OtherMeasure::Largest, OtherMeasure::Deviation]);
    let needs_squares = has(&[OtherMeasure::Deviation]);
    let (none, no_labels) = (Track::default(), Labels::default());
    let end = track.end(time);
    for (nth, other) in layout.others(entity).enumerate() {
        let named = own.ids[other];
        let theirs = if named == u32::MAX { &none } else { tracks.track(other, named).unwrap_or(&none) };
        let at_end = track.of_others(end, nth, kind, facts);
        for span in &layout.one_hop {
            let first = time.saturating_sub(*span);
            let start = track.end(first).min(end);
            let at_start = track.of_others(start, nth, kind, facts);
            let same = same_of(facts, [entity, id], [other, named as usize], &track.rows[start..end], {
                let end = theirs.end(time);
                &theirs.rows[theirs.end(first).min(end)..end]
            });
            let sum = |of: fn(&OfOthers) -> super::track::Partial| {
                let (from, to, own) = (of(&at_start), of(&at_end), of(&same));
                (to.sum.less(from.sum).less(own.sum).rounded(), to.count - from.count - own.count)
            };
            let mean_of_unusual = |which: usize| {
                let (from, to, own) = (at_start.unusual[which], at_end.unusual[which], same.unusual[which]);
                let others = to.count - from.count - own.count;
                let sum = to.sum.minus(from.sum) - own.sum.rounded();
                if others == 0 { f32::NAN } else { (sum / f64::from(others)) as f32 }
            };
            let (largest, smallest) = match needs_largest {
                true => track.extremes(start, end, |row| {
                    let of_row = facts.id(other, row.event);
                    of_row != u32::MAX && of_row != named
                }),
                false => (f32::NAN, f32::NAN),
            };
            let (values, count) = sum(|sums| sums.values);
            let only = (needs_squares && largest == smallest).then_some(largest);
            let squares = || if needs_squares { sum(|sums| sums.squares).0 } else { f64::NAN };
            let moments = Moments::of(count, values, only, squares);
            row.extend(layout.one_hop_measures.iter().map(|measure| match measure {
                OtherMeasure::Count => (at_end.named - at_start.named - same.named) as f32,
                OtherMeasure::Sum => moments.sum as f32,
                OtherMeasure::Mean => moments.mean as f32,
                OtherMeasure::Deviation => moments.deviation as f32,
                OtherMeasure::Largest => known(largest),
                OtherMeasure::Distinct => (track.distinct(nth, others, start, end) - u32::from(same.named > 0)) as f32,
                OtherMeasure::ZScore => mean_of_unusual(0),
                OtherMeasure::OverMean => mean_of_unusual(1),
                OtherMeasure::FraudShare => {
                    let all = track.labels.get(1 + nth).unwrap_or(&no_labels).within(first, time);
                    let [here, there] =
                        [track, theirs].map(|track| track.labels.first().unwrap_or(&no_labels).events(first, time));
                    all.less(same_labels(rules, facts, [entity, id], [other, named as usize], here, there, first))
                        .share()
                }
            }));
        }
    }
}

/// Sums over the events of an entity that name the same one of another type, in a window of either: the shorter one is
/// gone through.
fn same_of(
    facts: &impl Facts,
    [entity, id]: [usize; 2],
    [other, named]: [usize; 2],
    here: &[super::track::Row],
    there: &[super::track::Row],
) -> OfOthers {
    let mut sums = OfOthers::default();
    let (rows, of, wanted) = if here.len() <= there.len() { (here, other, named) } else { (there, entity, id) };
    for row in rows.iter().filter(|row| facts.id(of, row.event) == wanted as u32 && named != u32::MAX as usize) {
        sums.add(row.value, facts.unusual(other, row.event));
    }
    sums
}

/// Known labels of the same events.
fn same_labels(
    rules: &Rules,
    facts: &impl Facts,
    [entity, id]: [usize; 2],
    [other, named]: [usize; 2],
    here: impl ExactSizeIterator<Item = u32>,
    there: impl ExactSizeIterator<Item = u32>,
    first: i64,
) -> LabelCounts {
    if named == u32::MAX as usize {
        return LabelCounts::default();
    }
    let count = |events: &mut dyn Iterator<Item = u32>| Labels::count(events, first, facts, rules.delay);
    match here.len() <= there.len() {
        true => count(&mut here.filter(|&event| facts.id(other, event) == named as u32)),
        false => count(&mut there.filter(|&event| facts.id(entity, event) == id as u32)),
    }
}
