//! Windows over later events.

use super::super::{Entity, EventColumns, WindowConfig, compute};
use super::oracle::Table;
use super::{assert_columns, config};

#[test]
fn windows_ahead_are_those_of_a_table_whose_time_runs_backwards() {
    // The labels of the second have no delay.
    for (seed, entities) in [(1, 1), (2, 2), (4, 3)] {
        let table = Table::random(seed, 400, entities);
        let backwards = table.backwards();
        let found = table.compute(&WindowConfig { ahead: true, ..config() });
        assert_columns(&format!("seed {seed}"), &found, |event| {
            let columns = backwards.oracle(event, &config()).into_iter();
            let ahead = columns.map(|(name, value)| {
                let (entity, what) = name.split_once('_').unwrap();
                (format!("{entity}_ahead_{what}"), value)
            });
            ahead.collect()
        });
    }
}

#[test]
fn windows_ahead_take_every_time_and_events_of_one_second_do_not_see_each_other() {
    let events = EventColumns {
        times: &[i64::MIN, 5, 5, i64::MAX],
        values: Some(&[1.0, 2.0, 3.0, 7.0]),
        labels: None,
        entities: vec![Entity { name: "card", of_event: &[0; 4], count: 1 }],
    };
    let config = WindowConfig { spans: vec![100], last: vec![2], ahead: true, ..WindowConfig::default() };
    let table = compute(&events, &config, &|_, _| {});
    let column = |name: &str| {
        let at = table.names.iter().position(|found| found == name).unwrap();
        [0, 1, 2, 3].map(|event| table.values[event * table.width + at])
    };
    assert_eq!(column("card_ahead_so_far_count"), [3.0, 1.0, 1.0, 0.0]);
    assert_eq!(column("card_ahead_100s_count"), [0.0; 4]);
    // Of one second the last row of the table is the nearest.
    assert_eq!(column("card_ahead_difference")[..3], [-2.0, -5.0, -4.0]);
    assert_eq!(column("card_ahead_last_2_mean")[..3], [2.5, 7.0, 7.0]);
    assert!(column("card_ahead_difference")[3].is_nan());
}
