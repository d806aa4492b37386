//! Windows that suit the data.

use super::WindowConfig;
use super::events::{DAY, EventColumns, LAST, ONE_HOP, SPANS};
use super::groups::{Groups, by_time};

/// What takes the place of a day where the events cover less: an hour, a minute, a second.
const SHORTER: [i64; 3] = [3_600, 60, 1];

/// So many events, one every second without a gap, are not told by a clock.
const NUMBERED: usize = 100;

impl WindowConfig {
    /// The default windows, chosen by the events that `is_fitted` says of, such as those before the end of training:
    ///
    /// - Spans are 1, 3, 7, 14 and 30 units, those of one hop 1, 3 and 7; of these all that are no longer than the time
    ///   from the first of the events to the last. The unit is a day. Where the events cover less than three of them it
    ///   is an hour, then a minute, then a second. Where more than half of the events follow the one before of the same
    ///   entity after more than 30 units, for every type of entities, and the events cover 300 units, it is ten times
    ///   as long, and so on.
    /// - Windows of the last 1, 3, 5, 20 and 100 events: those that for some type of entities one in twenty of the
    ///   events can fill with earlier ones, and 1.
    /// - No spans where times are numbers of rows: a span of them says no more than a number of last events. They
    ///   are numbers where from the first of the events to the last, whether fitted or not, each follows the one before
    ///   after exactly one second, 100 events or more. A clock is not that even, and what comes once a day has days.
    ///
    /// Without two different times there is nothing to choose by: these are the windows of [`Default`].
    ///
    /// # Panics
    /// As [`compute`](super::compute()), and unless `is_fitted` has a value per event.
    pub fn suited_to(events: &EventColumns, is_fitted: &[bool]) -> Self {
        assert_eq!(is_fitted.len(), events.times.len(), "windows: one of `is_fitted` per event");
        let default = Self::default();
        let all = by_time(events.times);
        let order: Vec<u32> = all.iter().copied().filter(|&event| is_fitted[event as usize]).collect();
        let time = |event: &u32| events.times[*event as usize];
        let [first, last] = [order.first(), order.last()].map(|event| event.map_or(0, time));
        let covered = last.saturating_sub(first);
        if covered == 0 {
            return default;
        }
        let within: Vec<i64> = all.iter().map(time).filter(|time| (first..=last).contains(time)).collect();
        let is_numbered =
            within.len() >= NUMBERED && within.windows(2).all(|pair| pair[1].saturating_sub(pair[0]) == 1);
        let types: Vec<Repeats> =
            events.entities.iter().map(|entity| Repeats::of(&Groups::new(&order, entity), events.times)).collect();
        let longest = SPANS[SPANS.len() - 1];
        let shorter = SHORTER.into_iter().find(|unit| covered >= 3 * unit).unwrap_or(1);
        let mut unit = if covered >= 3 * DAY { DAY } else { shorter };
        let typical = types.iter().filter_map(|repeats| repeats.typical).min();
        while typical.is_some_and(|typical| typical > longest * unit) && covered >= 10 * longest * unit {
            unit *= 10;
        }
        let is_span = |span: &i64| !is_numbered && *span <= covered;
        let spans = |counts: &[i64]| counts.iter().map(|count| count * unit).filter(is_span).collect();
        let is_filled = |&last: &usize| last == 1 || types.iter().any(|repeats| repeats.fill(last));
        Self {
            spans: spans(&SPANS),
            one_hop: spans(&ONE_HOP),
            last: LAST.into_iter().filter(is_filled).collect(),
            ..default
        }
    }
}

/// How often entities of one type come again.
struct Repeats {
    /// By entity that has events: their number.
    counts: Vec<usize>,
    /// Median of the seconds between an event and the next one of its entity.
    typical: Option<i64>,
}

impl Repeats {
    fn of(groups: &Groups, times: &[i64]) -> Self {
        let parts = groups.parts(usize::MAX);
        let entities = || parts.iter().flatten();
        let between = |pair: &[u32]| times[pair[1] as usize].saturating_sub(times[pair[0] as usize]);
        let mut gaps: Vec<i64> = entities().flat_map(|events| events.windows(2).map(between)).collect();
        let middle = gaps.len() / 2;
        let typical = (!gaps.is_empty()).then(|| *gaps.select_nth_unstable(middle).1);
        Self { counts: entities().map(|events| events.len()).collect(), typical }
    }

    /// Whether one in twenty events has `last` earlier ones.
    fn fill(&self, last: usize) -> bool {
        let all: usize = self.counts.iter().sum();
        let filled: usize = self.counts.iter().map(|count| count.saturating_sub(last)).sum();
        20 * filled >= all && filled > 0
    }
}
