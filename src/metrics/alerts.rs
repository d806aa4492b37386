//! What a team that can look at so many alerts a day would find, and what that would save.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use serde::{Deserialize, Serialize};

/// Cards, or other units, that a team looks at each day unless told otherwise.
pub const ALERTS_PER_DAY: usize = 100;

/// A labelled event with its score.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AlertEvent {
    /// Day, in whole days since 1970.
    pub day: i64,
    /// What an alert is about and blocks, such as a card.
    pub unit: u32,
    pub score: f32,
    pub is_fraud: bool,
    /// What the event costs if it is a fraud; NaN where that is not known.
    pub amount: f32,
}

/// Alerts of every day: the units with the highest scores of that day's events, of each the highest one. A unit that is
/// found leaves the queue of the days that follow.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Alerts {
    /// Units that are looked at each day, or all of a day with fewer.
    pub per_day: usize,
    /// Days with events.
    pub days: usize,
    /// Share of the alerts that are about a unit with a fraud on that day, mean over the days.
    pub precision: f64,
    /// The most that any scores could reach.
    pub best_precision: f64,
    /// Share of the fraudulent amount that falls on units from the day on which they are found. `None` without amounts.
    pub stopped: Option<f64>,
}

impl Alerts {
    /// Of `events` in any order; `None` without any. Of equal scores the unit with the smaller number comes first.
    pub fn of(events: &[AlertEvent], per_day: usize) -> Option<Self> {
        let precision = precision(events, per_day, |event| event.score);
        let best = precision_of_best(events, per_day);
        let (precision, found, days) = precision?;
        let (mut stopped, mut total) = (0.0f64, 0.0f64);
        for event in events.iter().filter(|event| event.is_fraud && event.amount.is_finite()) {
            total += f64::from(event.amount);
            if found.get(&event.unit).is_some_and(|&day| day <= event.day) {
                stopped += f64::from(event.amount);
            }
        }
        let stopped = (total > 0.0).then(|| stopped / total);
        Some(Self { per_day, days, precision, best_precision: best?, stopped })
    }
}

fn precision_of_best(events: &[AlertEvent], per_day: usize) -> Option<f64> {
    precision(events, per_day, |event| f32::from(u8::from(event.is_fraud))).map(|(precision, ..)| precision)
}

/// Mean precision, the day on which each unit was found, and the number of days.
fn precision(
    events: &[AlertEvent],
    per_day: usize,
    score: impl Fn(&AlertEvent) -> f32,
) -> Option<(f64, HashMap<u32, i64>, usize)> {
    // By day and unit: the highest score, and whether there is a fraud.
    let mut days: BTreeMap<i64, BTreeMap<u32, (f32, bool)>> = BTreeMap::new();
    for event in events {
        let of_unit = days.entry(event.day).or_default().entry(event.unit).or_insert((f32::NEG_INFINITY, false));
        *of_unit = (of_unit.0.max(score(event)), of_unit.1 || event.is_fraud);
    }
    let mut found: HashMap<u32, i64> = HashMap::new();
    let mut sum = 0.0;
    for (&day, units) in &days {
        let waiting = units.iter().filter(|(unit, _)| !found.contains_key(unit));
        let mut queue: Vec<(u32, f32, bool)> = waiting.map(|(&unit, &(score, fraud))| (unit, score, fraud)).collect();
        queue.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        queue.truncate(per_day);
        let of_day: Vec<u32> = queue.iter().filter(|(.., fraud)| *fraud).map(|(unit, ..)| *unit).collect();
        sum += of_day.len() as f64 / queue.len().max(1) as f64;
        found.extend(of_day.into_iter().map(|unit| (unit, day)));
    }
    (!days.is_empty()).then(|| (sum / days.len() as f64, found, days.len()))
}

impl fmt::Display for Alerts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { per_day, days, precision, best_precision, stopped } = self;
        write!(f, "{per_day} alerts a day on {days} days: precision {precision:.4} (at best {best_precision:.4})")?;
        match stopped {
            Some(stopped) => write!(f, ", {:.1} % of the fraudulent amount stopped", 100.0 * stopped),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(day: i64, unit: u32, score: f32, is_fraud: bool, amount: f32) -> AlertEvent {
        AlertEvent { day, unit, score, is_fraud, amount }
    }

    #[test]
    fn a_found_unit_leaves_the_queue_and_what_it_spends_later_is_stopped() {
        let events = [
            event(0, 1, 0.9, true, 10.0),
            event(0, 2, 0.8, false, f32::NAN),
            event(0, 3, 0.1, true, 40.0),
            event(1, 1, 1.0, true, 30.0),
            event(1, 2, 0.7, false, 1.0),
            event(1, 3, 0.6, true, 20.0),
        ];
        // Day 0: units 1 (found) and 2; day 1: 1 is gone, so 2 and 3 (found).
        let alerts = Alerts::of(&events, 2).unwrap();
        assert_eq!((alerts.days, alerts.precision), (2, 0.5));
        // Units 1 and 3 on day 0, nobody is left on day 1 but unit 2.
        assert_eq!(alerts.best_precision, 0.5);
        assert_eq!(alerts.stopped, Some((10.0 + 30.0 + 20.0) / 100.0));
        assert_eq!(
            alerts.to_string(),
            "2 alerts a day on 2 days: precision 0.5000 (at best 0.5000), 60.0 % of the fraudulent amount stopped"
        );
    }

    #[test]
    fn the_highest_event_of_a_unit_counts_and_the_order_of_the_events_does_not() {
        let mut events = vec![
            event(5, 8, 0.2, true, 1.0),
            event(5, 8, 0.9, false, 1.0),
            event(5, 7, 0.9, false, 1.0),
            event(5, 6, 0.3, false, 1.0),
        ];
        let alerts = Alerts::of(&events, 1).unwrap();
        assert_eq!(alerts.precision, 0.0, "of equal scores the smaller number comes first");
        assert_eq!(Alerts::of(&events, 2).unwrap().precision, 0.5);
        events.reverse();
        assert_eq!(Alerts::of(&events, 1), Some(alerts));
        assert_eq!(Alerts::of(&[], 1), None);
    }
}
