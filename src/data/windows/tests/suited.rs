//! Windows that suit the data.

use super::super::events::DAY;
use super::super::{Entity, EventColumns, WindowConfig};

const HOUR: i64 = 3_600;

/// The windows that suit `per_entity` events of each of four entities, one every `step` seconds.
fn suited(per_entity: usize, step: i64) -> WindowConfig {
    let (times, of_event) = drawn(per_entity, step);
    of_fitted(&times, &of_event, &vec![true; times.len()])
}

fn drawn(per_entity: usize, step: i64) -> (Vec<i64>, Vec<u32>) {
    let events = || (0..per_entity as i64).flat_map(|at| (0..4).map(move |entity| (at, entity)));
    (events().map(|(at, _)| 1_000_000 + at * step).collect(), events().map(|(_, entity)| entity).collect())
}

fn of_fitted(times: &[i64], of_event: &[u32], is_fitted: &[bool]) -> WindowConfig {
    // Of the second type no entity comes again: it has no say.
    let alone: Vec<u32> = (0..times.len() as u32).collect();
    let entities = vec![
        Entity { name: "customer", of_event, count: 4 },
        Entity { name: "session", of_event: &alone, count: times.len() },
    ];
    WindowConfig::suited_to(&EventColumns { times, values: None, labels: None, entities }, is_fitted)
}

#[test]
fn months_of_events_that_come_every_day_have_the_default_windows() {
    assert_eq!(suited(400, DAY / 2), WindowConfig::default());
    assert_eq!(suited(10, 100 * DAY / 9).spans, WindowConfig::default().spans, "or every eleventh");
}

#[test]
fn spans_that_the_events_do_not_cover_are_left_out() {
    let config = suited(41, DAY / 2);
    assert_eq!(
        (config.spans, config.one_hop),
        ([1, 3, 7, 14].map(|days| days * DAY).to_vec(), vec![DAY, 3 * DAY, 7 * DAY])
    );
    let config = suited(7, DAY / 2);
    assert_eq!((config.spans, config.one_hop), (vec![DAY, 3 * DAY], vec![DAY, 3 * DAY]));
}

#[test]
fn hours_minutes_and_tens_of_days_take_the_place_of_days_where_events_cover_less_or_come_seldom() {
    let spans = |unit: i64| [1, 3, 7, 14, 30].map(|count| count * unit).to_vec();
    assert_eq!(suited(50, HOUR).spans, spans(HOUR));
    assert_eq!(suited(50, HOUR).one_hop, spans(HOUR)[..3]);
    assert_eq!(suited(101, 60).spans, spans(60));
    assert_eq!(suited(90, 1).spans, spans(1));
    // Ten years.
    assert_eq!(suited(730, 5 * DAY).spans, spans(DAY));
    assert_eq!(suited(74, 50 * DAY).spans, spans(10 * DAY));
    // A hundred years, every year.
    assert_eq!(suited(100, 365 * DAY).spans, spans(100 * DAY));
    // Seldom, but 30 tens of days are not covered.
    assert_eq!(suited(6, 50 * DAY).spans, spans(DAY));
}

#[test]
fn numbers_of_last_events_are_those_that_one_row_in_twenty_can_fill() {
    for (per_entity, last) in
        [(1, &[1][..]), (4, &[1, 3]), (5, &[1, 3]), (6, &[1, 3, 5]), (21, &[1, 3, 5]), (22, &[1, 3, 5, 20])]
    {
        let mut events = drawn(per_entity, DAY);
        // Two different times, whatever the number of events.
        events.0.push(0);
        events.1.push(u32::MAX);
        assert_eq!(of_fitted(&events.0, &events.1, &vec![true; 4 * per_entity + 1]).last, last, "{per_entity} events");
    }
}

#[test]
fn events_that_are_not_fitted_change_nothing_and_without_times_there_is_nothing_to_choose_by() {
    let (mut times, mut of_event) = drawn(50, HOUR);
    let expected = suited(50, HOUR);
    times.extend((0..900).map(|at| 10_000_000 + at * DAY));
    of_event.extend((0..900).map(|at| at % 4));
    let is_fitted: Vec<bool> = (0..times.len()).map(|event| event < 200).collect();
    assert_eq!(of_fitted(&times, &of_event, &is_fitted), expected);
    assert_ne!(of_fitted(&times, &of_event, &vec![true; times.len()]), expected);
    assert_eq!(of_fitted(&times, &of_event, &vec![false; times.len()]), WindowConfig::default());
    assert_eq!(suited(9, 0), WindowConfig::default());
}

/// A number of the row has no gaps and no repetitions; nothing that happens keeps to that.
#[test]
fn numbers_of_rows_have_no_spans_and_seconds_of_a_clock_have_some() {
    let suited = |times: &[i64], is_fitted: &dyn Fn(usize) -> bool| {
        let of_event: Vec<u32> = (0..times.len() as u32).map(|at| at % 4).collect();
        let is_fitted: Vec<bool> = (0..times.len()).map(is_fitted).collect();
        of_fitted(times, &of_event, &is_fitted)
    };
    let rows: Vec<i64> = (0..300).collect();
    let backwards: Vec<i64> = (0..300).rev().collect();
    let then_a_clock: Vec<i64> = (0..150).chain((0..150).map(|at| 1_000 + at * DAY)).collect();
    type IsFitted<'a> = &'a dyn Fn(usize) -> bool;
    // All, a draw, and what is before the end of training.
    let (all, drawn, first): (IsFitted, IsFitted, IsFitted) = (&|_| true, &|at| at % 2 == 0, &|at| at < 150);
    for (times, is_fitted) in [(&rows, all), (&backwards, all), (&rows, drawn), (&then_a_clock, first)] {
        let config = suited(times, is_fitted);
        assert_eq!((config.spans, config.one_hop, config.last), (vec![], vec![], vec![1, 3, 5, 20]));
    }
    let with_gap: Vec<i64> = (0..300).filter(|&at| at != 150).collect();
    let with_tie: Vec<i64> = (0..300).map(|at| if at == 10 { 9 } else { at }).collect();
    let [every_other, every_day] = [2, DAY].map(|step| (0..300).map(|at| at * step).collect::<Vec<i64>>());
    for times in [&with_gap[..], &with_tie, &every_other, &every_day, &rows[..99], &then_a_clock] {
        let config = suited(times, all);
        assert!(!config.spans.is_empty() && !config.one_hop.is_empty(), "{:?}", &times[..12]);
    }
}
