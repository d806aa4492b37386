use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::events::{DAY, span_name};
use super::others::MOST_UNUSUAL;
use super::{Entity, EventColumns, KnownLabels, Measure, WindowConfig, WindowTable, column_names, compute};

/// A table of events that owns its columns.
#[derive(Clone)]
struct Table {
    times: Vec<i64>,
    values: Vec<f32>,
    label: Vec<Option<u8>>,
    known: Vec<i64>,
    delay: i64,
    entities: Vec<Vec<u32>>,
}

const NAMES: [&str; 3] = ["customer", "terminal", "device"];
const COUNT: u32 = 6;

impl Table {
    /// Events with ties, gaps, missing values, labels and entities, in random order of time.
    fn random(seed: u64, events: usize, entities: usize) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut table = Self {
            times: Vec::new(),
            values: Vec::new(),
            label: Vec::new(),
            known: Vec::new(),
            delay: rng.random_range(0..4) * DAY,
            entities: vec![Vec::new(); entities],
        };
        for _ in 0..events {
            table.push(&mut rng, 0..60 * 24);
        }
        table
    }

    fn push(&mut self, rng: &mut ChaCha8Rng, hours: std::ops::Range<i64>) {
        // Every other one of ten days has no events.
        let hour = rng.random_range(hours);
        let time = if hour % 480 < 240 { hour } else { hour - 240 } * 3_600;
        self.times.push(time);
        self.values.push(match rng.random_range(0..10) {
            0 => f32::NAN,
            1..4 => rng.random_range(-2..3) as f32,
            _ => rng.random_range(1.0..300.0),
        });
        self.label.push(match rng.random_range(0..5) {
            0 => None,
            other => Some(u8::from(other == 1)),
        });
        self.known.push(match rng.random_range(0..4) {
            0 => i64::MAX,
            1 => time + rng.random_range(0..9) * DAY,
            _ => time + self.delay,
        });
        for of_event in &mut self.entities {
            of_event.push(if rng.random_range(0..8) == 0 { u32::MAX } else { rng.random_range(0..COUNT) });
        }
    }

    fn events(&self) -> EventColumns<'_> {
        let entity = |(of_event, name)| Entity { name, of_event, count: COUNT as usize };
        EventColumns {
            times: &self.times,
            values: Some(&self.values),
            labels: Some(KnownLabels { label: &self.label, known: &self.known, delay: self.delay }),
            entities: self.entities.iter().map(Vec::as_slice).zip(NAMES).map(entity).collect(),
        }
    }

    fn compute(&self, config: &WindowConfig) -> WindowTable {
        compute(&self.events(), config, &|_, _| {})
    }

    /// Events of the same entity of type `entity` with a time in `[start, end)`, one after another in time.
    fn within(&self, event: usize, entity: usize, start: i64, end: i64) -> Vec<usize> {
        let own = self.entities[entity][event];
        let mut found: Vec<usize> = (0..self.times.len())
            .filter(|&other| self.entities[entity][other] == own && (start..end).contains(&self.times[other]))
            .collect();
        found.sort_by_key(|&other| (self.times[other], other));
        found
    }

    fn values_of(&self, events: &[usize]) -> Vec<f64> {
        events.iter().map(|&event| f64::from(self.values[event])).filter(|value| !value.is_nan()).collect()
    }

    /// Mean and deviation of a sample.
    fn moments(values: &[f64]) -> (f64, f64) {
        if values.is_empty() {
            return (f64::NAN, f64::NAN);
        }
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        if values.iter().all(|&value| value == values[0]) {
            return (values[0], if values.len() > 1 { 0.0 } else { f64::NAN });
        }
        let squares = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
        (mean, (squares / (values.len() as f64 - 1.0)).sqrt())
    }

    fn ratio(over: f64, under: f64) -> f64 {
        if under == 0.0 { f64::NAN } else { over / under }
    }

    /// z-score and ratio of an event over a span of its entity.
    fn unusual(&self, event: usize, entity: usize, span: i64) -> [f64; 2] {
        let (time, value) = (self.times[event], f64::from(self.values[event]));
        if self.entities[entity][event] == u32::MAX {
            return [f64::NAN; 2];
        }
        let (mean, deviation) = Self::moments(&self.values_of(&self.within(event, entity, time - span, time)));
        [Self::ratio(value - mean, deviation), Self::ratio(value, mean)]
    }

    /// Every column of an event by its definition: names and values.
    fn oracle(&self, event: usize, config: &WindowConfig) -> Vec<(String, f64)> {
        let (time, value) = (self.times[event], f64::from(self.values[event]));
        let mut columns = Vec::new();
        for (entity, name) in NAMES.into_iter().enumerate().take(self.entities.len()) {
            let named = self.entities[entity][event] != u32::MAX;
            let mut push = |column: String, value: f64| {
                columns.push((format!("{name}_{column}"), if named { value } else { f64::NAN }));
            };
            let others: Vec<usize> = (0..self.entities.len()).filter(|&other| other != entity).collect();
            let known = |events: &[usize]| -> Vec<u8> {
                events.iter().filter(|&&e| self.known[e] < time).filter_map(|&e| self.label[e]).collect()
            };
            for &span in &config.spans {
                let window = self.within(event, entity, time - span, time);
                let values = self.values_of(&window);
                let (mean, deviation) = Self::moments(&values);
                let span_text = span_name(span);
                for measure in &config.measures {
                    let of_window = match measure {
                        Measure::Count => window.len() as f64,
                        Measure::Sum => values.iter().sum(),
                        Measure::Mean => mean,
                        Measure::Deviation => deviation,
                        Measure::Largest => values.iter().copied().fold(f64::NAN, f64::max),
                        Measure::OverMean => Self::ratio(value, mean),
                        Measure::ZScore => Self::ratio(value - mean, deviation),
                        Measure::Distinct => {
                            for &other in &others {
                                let ids = window.iter().map(|&e| self.entities[other][e]);
                                let ids: std::collections::BTreeSet<u32> = ids.filter(|&id| id != u32::MAX).collect();
                                push(format!("{span_text}_distinct_{}", NAMES[other]), ids.len() as f64);
                            }
                            continue;
                        }
                    };
                    push(format!("{span_text}_{}", measure.name()), of_window);
                }
            }
            let before = self.within(event, entity, i64::MIN, time);
            for &last in &config.last {
                let window = &before[before.len().saturating_sub(last)..];
                if last > 1 {
                    push(format!("last_{last}_mean"), Self::moments(&self.values_of(window)).0);
                }
                let days =
                    if window.len() < last { f64::NAN } else { (time - self.times[window[0]]) as f64 / 86_400.0 };
                push(format!("last_{last}_days"), days);
            }
            let last_value = before.last().map_or(f64::NAN, |&last| f64::from(self.values[last]));
            push("so_far_count".into(), before.len() as f64);
            push("so_far_over_mean".into(), Self::ratio(value, Self::moments(&self.values_of(&before)).0));
            push("difference".into(), value - last_value);
            let same = before.iter().filter(|&&e| self.values[e] == self.values[event]).count() as f64;
            push("same_value".into(), if value.is_nan() { f64::NAN } else { same });
            for &span in &config.spans {
                let labels = known(&self.within(event, entity, time - self.delay - span, time - self.delay));
                let frauds = labels.iter().filter(|&&label| label == 1).count() as f64;
                push(format!("{}_known_frauds", span_name(span)), frauds);
                push(format!("{}_fraud_share", span_name(span)), frauds / labels.len() as f64);
            }
            let longest = *config.spans.iter().max().unwrap();
            let visible = |e: usize| self.known[e].max(self.times[e] + self.delay);
            let mut labels: Vec<usize> =
                before.iter().copied().filter(|&e| visible(e) < time && self.label[e].is_some()).collect();
            labels.sort_by_key(|&e| (visible(e), self.times[e], e));
            let is_fraud = |e: &&usize| self.label[**e] == Some(1);
            for &last in &config.last {
                let shown = &labels[labels.len().saturating_sub(last)..];
                let frauds = shown.iter().filter(is_fraud).count() as f64;
                push(format!("last_{last}_fraud_share"), frauds / shown.len() as f64);
            }
            let frauds: Vec<i64> = labels.iter().filter(is_fraud).map(|&e| self.times[e]).collect();
            let days =
                |happened: Option<&i64>| happened.map_or(f64::NAN, |happened| (time - happened) as f64 / 86_400.0);
            push("last_fraud_days".into(), days(frauds.iter().max()));
            let recent = frauds.iter().filter(|&&happened| happened >= time - self.delay - longest);
            push(format!("{}_first_fraud_days", span_name(longest)), days(recent.min()));
            for &other in &others {
                let own = self.entities[other][event];
                for &span in &config.one_hop {
                    let window = self.within(event, entity, time - span, time);
                    let unusual: Vec<[f64; 2]> = window
                        .into_iter()
                        .filter(|&e| self.entities[other][e] != own)
                        .map(|e| self.unusual(e, other, longest))
                        .collect();
                    for (which, what) in ["z", "over_mean"].into_iter().enumerate() {
                        let found: Vec<f64> = unusual.iter().map(|both| both[which]).filter(|x| !x.is_nan()).collect();
                        let most = f64::from(MOST_UNUSUAL);
                        let sum: f64 = found.iter().map(|x| x.clamp(-most, most)).sum();
                        push(format!("{}_other_{}_{what}", span_name(span), NAMES[other]), sum / found.len() as f64);
                    }
                }
            }
        }
        columns
    }
}

/// Windows that random tables fill and leave empty.
fn config() -> WindowConfig {
    WindowConfig {
        spans: vec![12 * 3_600, 3 * DAY, 7 * DAY, 30 * DAY],
        last: vec![1, 2, 5, 20],
        one_hop: vec![DAY, 10 * DAY],
        ..WindowConfig::default()
    }
}

#[test]
fn every_column_is_what_its_definition_says() {
    for (seed, entities) in [(1, 1), (2, 2), (3, 2), (4, 3)] {
        let table = Table::random(seed, 400, entities);
        // What one hop sees is unusual whether or not it is a column.
        let measures = if seed == 3 { vec![Measure::Count, Measure::Largest] } else { Measure::ALL.to_vec() };
        let config = WindowConfig { measures, ..config() };
        let found = table.compute(&config);
        assert_eq!(found.width, found.names.len());
        let mut known = vec![0; found.width];
        for (event, row) in found.values.chunks(found.width).enumerate() {
            let expected = table.oracle(event, &config);
            assert_eq!(
                expected.iter().map(|(name, _)| name).collect::<Vec<_>>(),
                found.names.iter().collect::<Vec<_>>()
            );
            for (column, ((name, expected), &found)) in expected.iter().zip(row).enumerate() {
                known[column] += usize::from(!expected.is_nan());
                // Means of others take f32 of up to this size, which may cancel.
                let terms = if name.contains("_other_") { MOST_UNUSUAL } else { 0.0 };
                let tolerance = 1e-5 * expected.abs().max(1e-3) + f64::from(terms * f32::EPSILON);
                let close = (f64::from(found) - expected).abs() <= tolerance;
                let same = if expected.is_nan() { found.is_nan() } else { close };
                assert!(same, "seed {seed}, event {event}, {name}: expected {expected}, found {found}");
            }
        }
        let empty = found.names.iter().zip(&known).find(|(_, known)| **known < 20);
        assert!(empty.is_none(), "{empty:?} is hardly ever known: the comparison says nothing of it");
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
            labels: Some(KnownLabels { label: &[Some(1), Some(1), Some(1)], known, delay: 10 }),
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
