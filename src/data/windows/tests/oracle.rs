//! Events by chance, and every column of theirs by its definition.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::super::events::{DAY, span_name};
use super::super::others::MOST_UNUSUAL;
use super::super::{Entity, EventColumns, KnownLabels, Measure, OtherMeasure, WindowConfig, WindowTable, compute};

/// A table of events that owns its columns.
#[derive(Clone)]
pub(super) struct Table {
    pub(super) times: Vec<i64>,
    pub(super) values: Vec<f32>,
    pub(super) label: Vec<Option<u8>>,
    pub(super) known: Vec<i64>,
    pub(super) delay: Option<i64>,
    pub(super) entities: Vec<Vec<u32>>,
}

const NAMES: [&str; 3] = ["customer", "terminal", "device"];
pub(super) const COUNT: u32 = 6;

impl Table {
    /// Events with ties, gaps, missing values, labels and entities, in random order of time. Labels of every third seed
    /// have no delay.
    pub(super) fn random(seed: u64, events: usize, entities: usize) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut table = Self {
            times: Vec::new(),
            values: Vec::new(),
            label: Vec::new(),
            known: Vec::new(),
            delay: Some(rng.random_range(0..4) * DAY).filter(|_| seed % 3 != 2),
            entities: vec![Vec::new(); entities],
        };
        for _ in 0..events {
            table.push(&mut rng, 0..60 * 24);
        }
        table
    }

    pub(super) fn push(&mut self, rng: &mut ChaCha8Rng, hours: std::ops::Range<i64>) {
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
            // Some of them before the event.
            1 => time + rng.random_range(-2..9) * DAY,
            _ => time + self.delay.unwrap_or_else(|| rng.random_range(0..5) * DAY),
        });
        for of_event in &mut self.entities {
            of_event.push(if rng.random_range(0..8) == 0 { u32::MAX } else { rng.random_range(0..COUNT) });
        }
    }

    /// As if time ran backwards; a label that is ever known is known from its event on.
    pub(super) fn backwards(&self) -> Self {
        let times: Vec<i64> = self.times.iter().map(|time| -time).collect();
        let known = self.known.iter().zip(&times).map(|(&known, &time)| if known == i64::MAX { known } else { time });
        Self { known: known.collect(), delay: None, times, ..self.clone() }
    }

    pub(super) fn events(&self) -> EventColumns<'_> {
        let entity = |(of_event, name)| Entity { name, of_event, count: COUNT as usize };
        EventColumns {
            times: &self.times,
            values: Some(&self.values),
            labels: Some(KnownLabels { label: &self.label, known: &self.known, delay: self.delay }),
            entities: self.entities.iter().map(Vec::as_slice).zip(NAMES).map(entity).collect(),
        }
    }

    pub(super) fn compute(&self, config: &WindowConfig) -> WindowTable {
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
    pub(super) fn oracle(&self, event: usize, config: &WindowConfig) -> Vec<(String, f64)> {
        let (time, value) = (self.times[event], f64::from(self.values[event]));
        let mut columns = Vec::new();
        for (entity, name) in NAMES.into_iter().enumerate().take(self.entities.len()) {
            let named = self.entities[entity][event] != u32::MAX;
            let mut push = |column: String, value: f64| {
                columns.push((format!("{name}_{column}"), if named { value } else { f64::NAN }));
            };
            let others: Vec<usize> = (0..self.entities.len()).filter(|&other| other != entity).collect();
            for &span in &config.spans {
                let window = self.within(event, entity, time - span, time);
                self.push_measures(event, entity, &window, &config.measures, &span_name(span), &mut push);
            }
            let before = self.within(event, entity, i64::MIN, time);
            for &last in &config.last {
                let window = &before[before.len().saturating_sub(last)..];
                let mut measures = config.last_measures.clone();
                measures.retain(|&measure| last > 1 || measure == Measure::OverMean);
                self.push_measures(event, entity, window, &measures, &format!("last_{last}"), &mut push);
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
                let labels = self.labels_within(event, entity, span);
                let frauds = labels.iter().filter(|&&e| self.label[e] == Some(1)).count() as f64;
                push(format!("{}_known_frauds", span_name(span)), frauds);
                push(format!("{}_fraud_share", span_name(span)), frauds / labels.len() as f64);
            }
            let longest = *config.spans.iter().max().unwrap();
            let labels = self.labels_within(event, entity, i64::MAX);
            let is_fraud = |e: &&usize| self.label[**e] == Some(1);
            for &last in &config.last {
                let shown = &labels[labels.len().saturating_sub(last)..];
                let frauds = shown.iter().filter(is_fraud).count() as f64;
                push(format!("last_{last}_fraud_share"), frauds / shown.len() as f64);
            }
            let days =
                |happened: Option<i64>| happened.map_or(f64::NAN, |happened| (time - happened) as f64 / 86_400.0);
            push("last_fraud_days".into(), days(labels.iter().filter(is_fraud).map(|&e| self.times[e]).max()));
            let recent = self.labels_within(event, entity, longest);
            let first = recent.iter().filter(is_fraud).min_by_key(|&&e| (self.place(e), self.times[e], e));
            push(format!("{}_first_fraud_days", span_name(longest)), days(first.map(|&e| self.times[e])));
            if config.last_known {
                push("last_known_days".into(), days(labels.iter().map(|&e| self.times[e]).max()));
            }
            for &other in &others {
                let is_of_another = |e: &usize| {
                    let of = self.entities[other][*e];
                    of != u32::MAX && of != self.entities[other][event]
                };
                for &span in &config.one_hop {
                    let mut window = self.within(event, entity, time - span, time);
                    window.retain(is_of_another);
                    let mut labels = self.labels_within(event, entity, span);
                    labels.retain(is_of_another);
                    let values = self.values_of(&window);
                    let (mean, deviation) = Self::moments(&values);
                    let mean_unusual = |which: usize| {
                        let unusual = window.iter().map(|&e| self.unusual(e, other, longest)[which]);
                        let found: Vec<f64> = unusual.filter(|x| !x.is_nan()).collect();
                        let most = f64::from(MOST_UNUSUAL);
                        found.iter().map(|x| x.clamp(-most, most)).sum::<f64>() / found.len() as f64
                    };
                    for measure in &config.one_hop_measures {
                        let of_window = match measure {
                            OtherMeasure::Count => window.len() as f64,
                            OtherMeasure::Sum => values.iter().sum(),
                            OtherMeasure::Mean => mean,
                            OtherMeasure::Deviation => deviation,
                            OtherMeasure::Largest => values.iter().copied().fold(f64::NAN, f64::max),
                            OtherMeasure::Distinct => self.distinct(&window, other) as f64,
                            OtherMeasure::ZScore => mean_unusual(0),
                            OtherMeasure::OverMean => mean_unusual(1),
                            OtherMeasure::FraudShare => {
                                let frauds = labels.iter().filter(|&&e| self.label[e] == Some(1)).count();
                                frauds as f64 / labels.len() as f64
                            }
                        };
                        push(format!("{}_other_{}_{}", span_name(span), NAMES[other], measure.name()), of_window);
                    }
                }
            }
        }
        columns
    }

    /// Columns over a window of the entity's own events.
    fn push_measures(
        &self,
        event: usize,
        entity: usize,
        window: &[usize],
        measures: &[Measure],
        name: &str,
        push: &mut impl FnMut(String, f64),
    ) {
        let (value, values) = (f64::from(self.values[event]), self.values_of(window));
        let (mean, deviation) = Self::moments(&values);
        for measure in measures {
            let of_window = match measure {
                Measure::Count => window.len() as f64,
                Measure::Sum => values.iter().sum(),
                Measure::Mean => mean,
                Measure::Deviation => deviation,
                Measure::Largest => values.iter().copied().fold(f64::NAN, f64::max),
                Measure::OverMean => Self::ratio(value, mean),
                Measure::ZScore => Self::ratio(value - mean, deviation),
                Measure::Distinct => {
                    for other in (0..self.entities.len()).filter(|&other| other != entity) {
                        push(format!("{name}_distinct_{}", NAMES[other]), self.distinct(window, other) as f64);
                    }
                    continue;
                }
            };
            push(format!("{name}_{}", measure.name()), of_window);
        }
    }

    fn distinct(&self, events: &[usize], entity: usize) -> usize {
        let ids = events.iter().map(|&event| self.entities[entity][event]);
        ids.filter(|&id| id != u32::MAX).collect::<std::collections::BTreeSet<u32>>().len()
    }

    /// The place of a label in windows: a delay after its event, or where it became known.
    fn place(&self, event: usize) -> i64 {
        self.delay.map_or(self.known[event].max(self.times[event]), |delay| self.times[event] + delay)
    }

    /// Events of the same entity whose labels lie within `span` before an event and are known to it, one after another
    /// as they came to be seen.
    fn labels_within(&self, event: usize, entity: usize, span: i64) -> Vec<usize> {
        let time = self.times[event];
        let mut found = self.within(event, entity, i64::MIN, time);
        found.retain(|&e| {
            let place = self.place(e);
            self.label[e].is_some() && self.known[e] < time && place < time && place >= time.saturating_sub(span)
        });
        found.sort_by_key(|&e| (self.known[e].max(self.place(e)), self.place(e), self.times[e], e));
        found
    }
}
