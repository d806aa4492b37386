use super::super::running::{Fact, Guest, Running};
use super::oracle::Table;
use super::*;

fn fact(table: &Table, event: usize) -> Fact {
    let (time, value) = (table.times[event], table.values[event]);
    Fact { time, value, label: table.label[event], known: table.known[event] }
}

fn ids(table: &Table, event: usize) -> Vec<u32> {
    table.entities.iter().map(|of_event| of_event[event]).collect()
}

/// Some events of a table, in the order of `events`.
fn picked(table: &Table, events: &[usize]) -> Table {
    Table {
        times: events.iter().map(|&event| table.times[event]).collect(),
        values: events.iter().map(|&event| table.values[event]).collect(),
        label: events.iter().map(|&event| table.label[event]).collect(),
        known: events.iter().map(|&event| table.known[event]).collect(),
        delay: table.delay,
        entities: table.entities.iter().map(|ids| events.iter().map(|&event| ids[event]).collect()).collect(),
    }
}

fn append(running: &mut Running, table: &Table, event: usize) {
    running.append(Guest { event: event as u32, fact: fact(table, event), ids: &ids(table, event) });
}

/// The row of an event, with some guests.
fn row(running: &Running, table: &Table, event: usize, guests: &[usize]) -> Vec<u32> {
    let all: Vec<usize> = [event].into_iter().chain(guests.iter().copied().filter(|&guest| guest != event)).collect();
    let ids: Vec<Vec<u32>> = all.iter().map(|&event| ids(table, event)).collect();
    let facts = all.iter().map(|&event| (event as u32, fact(table, event)));
    let all: Vec<Guest> = facts.zip(&ids).map(|((event, fact), ids)| Guest { event, fact, ids: &ids[..] }).collect();
    let mut row = Vec::new();
    match guests {
        [] => running.row(all[0], &mut row),
        _ => running.rows(&all, |at, found| {
            if at == 0 {
                row = found.to_vec()
            }
        }),
    }
    row.iter().map(|value| value.to_bits()).collect()
}

fn assert_rows(what: &str, running: &Running, table: &Table, config: &WindowConfig, events: &[usize]) {
    let whole = table.compute(config);
    for &event in events {
        let (found, expected) = (row(running, table, event, &[]), bits(&whole, std::iter::once(event)));
        let differs = (0..whole.width).find(|&column| found[column] != expected[column]);
        let named = differs.map(|column| (&whole.names[column], [found[column], expected[column]].map(f32::from_bits)));
        assert!(found.len() == whole.width && named.is_none(), "{what}, event {event}: {named:?}");
    }
}

#[test]
fn rows_of_events_that_come_one_by_one_are_those_of_the_whole_table() {
    let few = WindowConfig { measures: vec![Measure::Count, Measure::Largest], ..WindowConfig::default() };
    for (seed, entities, count) in [(1, 2, 400), (2, 2, 400), (3, 3, 300), (5, 1, 300), (8, 2, 3_000)] {
        // Late ones too: times are in no order.
        let table = Table::random(seed, count, entities);
        for config in [&config(), &few] {
            let all: Vec<usize> = (0..count).collect();
            let base = picked(&table, &all[..count / 2]);
            let mut running = Running::new(&base.events(), config);
            assert_eq!(running.names(), table.compute(config).names);
            all[count / 2..].iter().for_each(|&event| append(&mut running, &table, event));
            assert_rows(&format!("seed {seed}"), &running, &table, config, &all);
        }
    }
}

#[test]
fn a_row_is_right_at_once_and_guests_count_as_if_they_had_come() {
    let mut table = Table::random(4, 240, 2);
    table.times.sort_unstable();
    let config = config();
    let (base, rest): (Vec<usize>, Vec<usize>) = ((0..160).collect(), (160..240).collect());
    let mut running = Running::new(&picked(&table, &base).events(), &config);
    for &event in &rest {
        let expected = bits(&table.compute(&config), std::iter::once(event));
        assert_eq!(row(&running, &table, event, &rest[..event - 160]), expected, "event {event} among guests");
    }
    for &event in &rest {
        append(&mut running, &table, event);
        let expected = bits(&table.compute(&config), std::iter::once(event));
        assert_eq!(row(&running, &table, event, &[]), expected, "event {event}");
    }
}

#[test]
fn labels_come_later_change_and_go_and_events_and_entities_are_forgotten() {
    for seed in [3, 5] {
        let table = Table::random(seed, 400, 2);
        let config = config();
        let all: Vec<usize> = (0..400).collect();
        let mut before = table.clone();
        for event in 0..400 {
            before.label[event] = [None, Some(1), Some(0)][event % 3];
            before.known[event] = before.times[event] + (event as i64 % 5) * DAY;
        }
        let mut running = Running::new(&before.events(), &config);
        let is_kept = |event: &usize| event % 7 != 2;
        let rows = |running: &Running| all.iter().map(|&event| row(running, &table, event, &[])).collect::<Vec<_>>();
        // Which events have another row, of those that are there: all of them are told.
        let changed = |before: &[Vec<u32>], running: &Running, told: &[u32], gone: usize| {
            let (after, is_there) = (rows(running), |event: usize| is_kept(&event) || event > gone);
            let differs: Vec<usize> = (0..400).filter(|&at| is_there(at) && before[at] != after[at]).collect();
            assert!(differs.iter().all(|&event| told.contains(&(event as u32))), "seed {seed}: {differs:?}, {told:?}");
            differs.len()
        };
        let mut others = 0;
        for &event in &all {
            let before = (event % 49 == 2).then(|| rows(&running));
            let told = running.label(event as u32, table.label[event], table.known[event]);
            others += before.map_or(0, |before| changed(&before, &running, &told, 400));
        }
        assert_rows("labels", &running, &table, &config, &all);
        assert!(others > 0);

        let mut others = 0;
        for &event in all.iter().filter(|event| !is_kept(event)) {
            let before = (event % 49 == 2).then(|| rows(&running));
            let told = running.forget(event as u32);
            others += before.map_or(0, |before| changed(&before, &running, &told, event));
        }
        let before = rows(&running);
        let told = running.forget_entity(1, 3);
        assert!(others > 0 && changed(&before, &running, &told, 400) > 0);
        let kept: Vec<usize> = all.iter().copied().filter(is_kept).collect();
        let mut left = picked(&table, &kept);
        left.entities[1].iter_mut().filter(|id| **id == 3).for_each(|id| *id = u32::MAX);
        let whole = left.compute(&config);
        for (place, &event) in kept.iter().enumerate() {
            let own = Guest { event: event as u32, fact: fact(&left, place), ids: &ids(&left, place) };
            let mut found = Vec::new();
            running.row(own, &mut found);
            let found: Vec<u32> = found.iter().map(|value| value.to_bits()).collect();
            assert_eq!(found, bits(&whole, std::iter::once(place)), "seed {seed}, event {event}");
        }
    }
}

#[test]
fn an_entity_of_many_events_costs_little_more_than_its_rows() {
    // One customer, two terminals, a payment a minute: windows hold up to all of them.
    let count = 20_000;
    let table = Table {
        times: (0..count).map(|event| event * 60).collect(),
        values: (0..count).map(|event| (event * 7919 % 1000) as f32 * 0.01).collect(),
        label: (0..count).map(|event| Some(u8::from(event % 50 == 0))).collect(),
        known: (0..count).map(|event| event * 60 + DAY).collect(),
        delay: Some(DAY),
        entities: vec![vec![0; count as usize], (0..count as u32).map(|event| event % 2).collect()],
    };
    let config = WindowConfig { one_hop_measures: OtherMeasure::ALL.to_vec(), ..WindowConfig::default() };
    let all: Vec<usize> = (0..count as usize).collect();
    let mut running = Running::new(&picked(&table, &all[..19_000]).events(), &config);
    all[19_000..].iter().for_each(|&event| append(&mut running, &table, event));
    assert_rows("many events", &running, &table, &config, &all[19_900..]);
    let bytes = running.num_bytes() / count as usize;
    assert!(bytes < 600, "{bytes} bytes an event");
}
