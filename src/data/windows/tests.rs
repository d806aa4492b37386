use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::events::DAY;
use super::others::MOST_UNUSUAL;
use super::{
    Entity, EventColumns, KnownLabels, Measure, OtherMeasure, WindowConfig, WindowTable, column_names, compute,
};

mod ahead;
mod oracle;
mod running;
mod suited;

use oracle::{COUNT, Table};

/// Windows that random tables fill and leave empty.
fn config() -> WindowConfig {
    WindowConfig {
        spans: vec![12 * 3_600, 3 * DAY, 7 * DAY, 30 * DAY],
        last: vec![1, 2, 5, 20],
        one_hop: vec![DAY, 10 * DAY],
        last_measures: Measure::ALL.to_vec(),
        one_hop_measures: OtherMeasure::ALL.to_vec(),
        last_known: true,
        ..WindowConfig::default()
    }
}

/// Compares every cell with what `oracle` says of its event.
fn assert_columns(what: &str, found: &WindowTable, oracle: impl Fn(usize) -> Vec<(String, f64)>) {
    assert_eq!(found.width, found.names.len());
    let mut known = vec![0; found.width];
    for (event, row) in found.values.chunks(found.width).enumerate() {
        let expected = oracle(event);
        assert_eq!(expected.iter().map(|(name, _)| name).collect::<Vec<_>>(), found.names.iter().collect::<Vec<_>>());
        for (column, ((name, expected), &found)) in expected.iter().zip(row).enumerate() {
            known[column] += usize::from(!expected.is_nan());
            // Means of how unusual others were take f32 of up to this size, which may cancel.
            let is_of_unusual = name.contains("_other_") && (name.ends_with("_z") || name.ends_with("_over_mean"));
            let terms = if is_of_unusual { MOST_UNUSUAL } else { 0.0 };
            let tolerance = 1e-5 * expected.abs().max(1e-3) + f64::from(terms * f32::EPSILON);
            let close = (f64::from(found) - expected).abs() <= tolerance;
            let same = if expected.is_nan() { found.is_nan() } else { close };
            assert!(same, "{what}, event {event}, {name}: expected {expected}, found {found}");
        }
    }
    let empty = found.names.iter().zip(&known).find(|(_, known)| **known < 20);
    assert!(empty.is_none(), "{what}: {empty:?} is hardly ever known: the comparison says nothing of it");
}

#[test]
fn every_column_is_what_its_definition_says() {
    // What one hop sees is unusual whether or not it is a column.
    let few = WindowConfig {
        measures: vec![Measure::Count, Measure::Largest],
        last_measures: vec![Measure::Distinct, Measure::Sum],
        one_hop_measures: vec![OtherMeasure::OverMean, OtherMeasure::Sum, OtherMeasure::FraudShare],
        ..config()
    };
    let defaults = WindowConfig {
        last_measures: WindowConfig::default().last_measures,
        one_hop_measures: WindowConfig::default().one_hop_measures,
        ..config()
    };
    for (seed, entities, config) in
        [(1, 1, &config()), (2, 2, &config()), (3, 2, &few), (4, 3, &config()), (5, 3, &few), (6, 2, &defaults)]
    {
        let table = Table::random(seed, 400, entities);
        assert_columns(&format!("seed {seed}"), &table.compute(config), |event| table.oracle(event, config));
    }
}

#[test]
fn names_tell_the_columns_and_columns_without_data_are_left_out() {
    let table = Table::random(1, 10, 2);
    let mut events = table.events();
    let names = column_names(&events, &WindowConfig::default());
    for name in ["customer_7d_mean", "terminal_30d_fraud_share", "terminal_3d_other_customer_z", "customer_last_5_days"]
    {
        assert!(names.iter().any(|found| found == name), "{name} is not among {names:?}");
    }
    let mut sorted = names.clone();
    sorted.sort();
    sorted.dedup();
    assert_eq!(sorted.len(), names.len());

    events.values = None;
    events.labels = None;
    events.entities.truncate(1);
    let config = WindowConfig { spans: vec![600, 7_200], last: vec![1, 3], ..WindowConfig::default() };
    let expected = ["10m_count", "2h_count", "last_1_days", "last_3_days", "so_far_count"];
    assert_eq!(column_names(&events, &config), expected.map(|name| format!("customer_{name}")));
    let found = compute(&events, &config, &|_, _| {});
    assert_eq!(found.values.len(), 10 * expected.len());
}

/// Rows as bits, so that NaN equals itself.
fn bits(table: &WindowTable, events: impl Iterator<Item = usize>) -> Vec<u32> {
    let row = |event: usize| &table.values[event * table.width..(event + 1) * table.width];
    events.flat_map(|event| row(event).iter().map(|value| value.to_bits())).collect()
}

#[test]
fn rows_before_a_time_do_not_change_with_anything_later() {
    for seed in 0..8 {
        let table = Table::random(seed, 300, 2);
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let now = 25 * DAY;
        let before: Vec<usize> = (0..300).filter(|&event| table.times[event] <= now).collect();
        assert!((100..200).contains(&before.len()));
        let reference = bits(&table.compute(&config()), before.iter().copied());

        // Values, labels and entities of later events, events that are new, and labels that become known later.
        let mut changed = table.clone();
        for event in 0..300 {
            if table.times[event] > now {
                changed.times[event] += rng.random_range(0..9) * DAY;
                changed.values[event] = rng.random_range(-1e6..1e6);
                changed.label[event] = Some(1);
                changed.known[event] = changed.times[event];
                changed.entities.iter_mut().for_each(|of_event| of_event[event] = rng.random_range(0..COUNT));
            } else if table.known[event] >= now {
                changed.label[event] = [None, Some(0), Some(1)][rng.random_range(0..3)];
                changed.known[event] = rng.random_range(now..90 * DAY);
            }
        }
        (0..200).for_each(|_| changed.push(&mut rng, 40 * 24..90 * 24));
        assert!(changed.times[300..].iter().all(|&time| time > now));
        assert_eq!(bits(&changed.compute(&config()), before.iter().copied()), reference, "seed {seed}: changed");

        // Nothing later at all.
        let keep = |column: &[u32]| before.iter().map(|&event| column[event]).collect();
        let removed = Table {
            times: before.iter().map(|&event| table.times[event]).collect(),
            values: before.iter().map(|&event| table.values[event]).collect(),
            label: before.iter().map(|&event| table.label[event]).collect(),
            known: before.iter().map(|&event| table.known[event]).collect(),
            delay: table.delay,
            entities: table.entities.iter().map(|of_event| keep(of_event)).collect(),
        };
        assert_eq!(bits(&removed.compute(&config()), 0..before.len()), reference, "seed {seed}: removed");
    }
}

#[test]
fn an_event_sees_neither_itself_nor_others_of_its_second_nor_labels_of_that_second() {
    let event = |times: &'static [i64], values: &'static [f32], known: &'static [i64]| {
        let events = EventColumns {
            times,
            values: Some(values),
            labels: Some(KnownLabels { label: &[Some(1), Some(1), Some(1)], known, delay: Some(10) }),
            entities: vec![Entity { name: "card", of_event: &[0, 0, 0], count: 1 }],
        };
        let config = WindowConfig { spans: vec![100], last: vec![], ..WindowConfig::default() };
        let table = compute(&events, &config, &|_, _| {});
        let column = |name: &str| table.names.iter().position(|found| found == name).unwrap();
        let of_last = |name: &str| table.values[2 * table.width + column(name)];
        [of_last("card_100s_count"), of_last("card_100s_known_frauds")]
    };
    assert_eq!(event(&[0, 20, 20], &[1.0, 2.0, 3.0], &[10, 10, 10]), [1.0, 1.0]);
    // The window begins with time 0 and the label is known at 20: one second later it is seen, or the event is gone.
    assert_eq!(event(&[0, 20, 20], &[1.0, 2.0, 3.0], &[20, 10, 10]), [1.0, 0.0]);
    assert_eq!(event(&[0, 20, 100], &[1.0, 2.0, 3.0], &[99, 30, 10]), [2.0, 2.0]);
    assert_eq!(event(&[0, 20, 101], &[1.0, 2.0, 3.0], &[100, 30, 10]), [1.0, 2.0]);
    // The labels' window is the other one, a delay earlier.
    assert_eq!(event(&[0, 20, 111], &[1.0, 2.0, 3.0], &[10, 30, 10]), [1.0, 1.0]);
    assert_eq!(event(&[0, 95, 100], &[1.0, 2.0, 3.0], &[10, 95, 10]), [2.0, 1.0]);
}

#[test]
fn labels_that_become_known_a_delay_after_their_events_need_no_delay_that_says_so() {
    for seed in [1, 3] {
        let mut table = Table::random(seed, 300, 2);
        table.known = table.times.iter().map(|time| time + 2 * DAY).collect();
        let of_delay = |delay| bits(&Table { delay, ..table.clone() }.compute(&config()), 0..300);
        assert_eq!(of_delay(None), of_delay(Some(2 * DAY)));
        assert_ne!(of_delay(None), of_delay(Some(3 * DAY)));
    }
}

#[test]
fn without_a_delay_a_label_is_in_the_windows_that_hold_the_moment_it_became_known() {
    let shares = |known: [i64; 3]| {
        let events = EventColumns {
            times: &[0, 50, 200],
            values: None,
            labels: Some(KnownLabels { label: &[Some(1), Some(0), None], known: &known, delay: None }),
            entities: vec![Entity { name: "card", of_event: &[0, 0, 0], count: 1 }],
        };
        let config = WindowConfig { spans: vec![100], last: vec![], ..WindowConfig::default() };
        let table = compute(&events, &config, &|_, _| {});
        let column = table.names.iter().position(|name| name == "card_100s_fraud_share").unwrap();
        [0, 1, 2].map(|event| table.values[event * table.width + column])
    };
    let of_last = |known: [i64; 2]| shares([known[0], known[1], 0])[2];
    assert_eq!(of_last([100, 199]), 0.5);
    assert_eq!(of_last([99, 199]), 0.0, "it became known too long ago");
    assert_eq!(of_last([199, 200]), 1.0, "one second is too early");
    assert!(of_last([99, i64::MAX]).is_nan());
    // The label of the second event is said to be known before it: no event until then sees it.
    assert!(shares([i64::MAX, 10, 0])[1].is_nan());
}

/// What others paid is what is left of far larger sums.
#[test]
fn the_values_of_others_are_exact_beside_far_larger_ones() {
    let (times, values) = ([0, 1, 2, 3, 4], [3e7_f32, 0.1, 0.1, 2e7, 5.0]);
    let events = EventColumns {
        times: &times,
        values: Some(&values),
        labels: None,
        entities: vec![
            Entity { name: "shop", of_event: &[0; 5], count: 1 },
            Entity { name: "card", of_event: &[0, 1, 2, 0, 0], count: 3 },
        ],
    };
    let config = WindowConfig { one_hop: vec![50], one_hop_measures: OtherMeasure::ALL.to_vec(), ..config() };
    let table = compute(&events, &config, &|_, _| {});
    let of_last = |what: &str| {
        let column = table.names.iter().position(|name| *name == format!("shop_50s_other_card_{what}")).unwrap();
        table.values[4 * table.width + column]
    };
    assert_eq!([of_last("count"), of_last("distinct")], [2.0, 2.0]);
    assert_eq!([of_last("sum"), of_last("mean"), of_last("largest")], [0.2, 0.1, 0.1]);
    assert_eq!(of_last("deviation"), 0.0);
}

/// The columns that models were trained on keep their names and their places.
#[test]
fn measures_of_last_events_and_of_others_are_there_only_where_they_are_asked_for() {
    let table = Table::random(1, 10, 2);
    let names =
        column_names(&table.events(), &WindowConfig { spans: vec![DAY], last: vec![1, 5], ..Default::default() });
    let of = |start: &str| -> Vec<String> {
        names.iter().filter_map(|name| name.strip_prefix(start).map(str::to_owned)).collect()
    };
    assert_eq!(of("customer_last_1_"), ["days", "fraud_share"]);
    assert_eq!(of("customer_last_5_"), ["mean", "days", "fraud_share"]);
    assert_eq!(of("customer_7d_other_terminal_"), ["z", "over_mean"]);
    assert_eq!(column_names(&table.events(), &WindowConfig::default()).len(), 152);
}

#[test]
fn equal_values_have_a_deviation_of_zero_whatever_was_before() {
    let values = [3e7_f32, 1e-3, 0.1, 0.1, 0.1, 0.1];
    let times = [0, 1, 100, 101, 102, 103];
    let events = EventColumns {
        times: &times,
        values: Some(&values),
        labels: None,
        entities: vec![Entity { name: "card", of_event: &[0; 6], count: 1 }],
    };
    let config = WindowConfig { spans: vec![50], last: vec![2], ..WindowConfig::default() };
    let table = compute(&events, &config, &|_, _| {});
    let column = |name: &str| table.names.iter().position(|found| found == name).unwrap();
    let at = |event: usize, name: &str| table.values[event * table.width + column(name)];
    assert_eq!([4, 5].map(|event| at(event, "card_50s_deviation")), [0.0, 0.0]);
    assert_eq!(at(5, "card_50s_mean"), 0.1);
    assert!(at(5, "card_50s_z").is_nan() && at(3, "card_50s_deviation").is_nan());
    assert_eq!(at(5, "card_50s_over_mean"), 1.0);
    assert_eq!(at(5, "card_same_value"), 3.0);
}

#[test]
fn the_result_does_not_depend_on_the_number_of_threads() {
    let table = Table::random(5, 2_000, 3);
    let with = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        bits(&pool.install(|| table.compute(&config())), 0..2_000)
    };
    let one = with(1);
    assert_eq!(with(2), one);
    assert_eq!(with(7), one);
}

#[test]
fn the_order_of_the_rows_does_not_matter() {
    let table = Table::random(6, 300, 2);
    // No ties: among events of one second the place in the table decides which is the last.
    let table = Table { times: table.times.iter().enumerate().map(|(i, time)| time + i as i64).collect(), ..table };
    let reversed = Table {
        times: table.times.iter().rev().copied().collect(),
        values: table.values.iter().rev().copied().collect(),
        label: table.label.iter().rev().copied().collect(),
        known: table.known.iter().rev().copied().collect(),
        delay: table.delay,
        entities: table.entities.iter().map(|of_event| of_event.iter().rev().copied().collect()).collect(),
    };
    let found = bits(&reversed.compute(&config()), (0..300).rev());
    assert_eq!(found, bits(&table.compute(&config()), 0..300));
}

#[test]
fn progress_ends_with_all_done_and_empty_tables_have_no_rows() {
    let table = Table::random(7, 200, 2);
    let calls = std::cell::RefCell::new(Vec::new());
    compute(&table.events(), &config(), &|done, total| calls.borrow_mut().push((done, total)));
    let (done, total) = calls.borrow().last().copied().unwrap();
    assert!(done == total && total > 600, "{done} of {total}");
    let empty = Table::random(7, 0, 2).compute(&config());
    assert!(empty.values.is_empty() && empty.width == empty.names.len());
}

#[test]
#[should_panic(expected = "`terminal` has 6 entities")]
fn an_entity_that_there_is_not_is_refused() {
    let mut table = Table::random(1, 10, 2);
    table.entities[1][3] = COUNT;
    table.compute(&config());
}
