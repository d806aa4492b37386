//! Windowed features of events that are made up.

use std::fmt;
use std::time::Instant;

use serde::Serialize;

use super::memory::{Peak, resident};
use super::{Note, Times};
use crate::data::windows::{Entity, EventColumns, KnownLabels, WindowConfig, column_names, compute};
use crate::error::Result;
use crate::trees::counter;

const DAY: i64 = 86_400;

/// Days from the first event to the last.
const DAYS: i64 = 183;

/// Events of a customer and of a terminal, in the mean: those of the synthetic payments.
const OF_CUSTOMER: usize = 350;
const OF_TERMINAL: usize = 175;

/// Days until a label is known.
const DELAY: i64 = 7 * DAY;

/// How to measure.
#[derive(Clone, Debug)]
pub struct WindowBenchOptions {
    /// Events, each of a customer and a terminal, at least 1.
    pub events: usize,
    /// Timed runs, at least 1. None goes before them.
    pub runs: usize,
    /// Seed of the events.
    pub seed: u64,
}

/// What was measured.
#[derive(Clone, Debug, Serialize)]
pub struct WindowReport {
    pub events: usize,
    pub customers: usize,
    pub terminals: usize,
    /// Columns of the features.
    pub columns: usize,
    pub seed: u64,
    pub threads: usize,
    pub runs: usize,
    pub times: Times,
    pub events_per_s: f64,
    /// Largest resident set of the runs, the events included; `None` where the system does not tell.
    pub peak: Option<Peak>,
}

/// Computes the windows of the default configuration as often as `options` says.
///
/// # Errors
/// Settings out of range.
pub fn run(options: &WindowBenchOptions, note: Note) -> Result<WindowReport> {
    let &WindowBenchOptions { events, runs, seed } = options;
    for (argument, found) in [("--events", events), ("--runs", runs)] {
        if found == 0 {
            return Err(super::usage(argument, "at least 1", "0", "see `graphsieve bench --help`"));
        }
    }
    let (customers, terminals) = (events.div_ceil(OF_CUSTOMER), events.div_ceil(OF_TERMINAL));
    note(&format!("drawing {events} events"));
    let draw = |what: u64, bound: usize| {
        (0..events as u64).map(move |event| counter::below(seed, &[event, what], bound as u64))
    };
    let mut times: Vec<i64> = draw(0, (DAYS * DAY) as usize).map(|time| time as i64).collect();
    times.sort_unstable();
    let values: Vec<f32> = draw(1, 30_000).map(|cents| cents as f32 / 100.0).collect();
    let label: Vec<Option<u8>> = draw(2, 100).map(|percent| Some(u8::from(percent == 0))).collect();
    let known: Vec<i64> = times.iter().map(|time| time + DELAY).collect();
    let [of_customer, of_terminal] = [(3, customers), (4, terminals)]
        .map(|(what, count)| draw(what, count).map(|id| id as u32).collect::<Vec<u32>>());
    let columns = EventColumns {
        times: &times,
        values: Some(&values),
        labels: Some(KnownLabels { label: &label, known: &known, delay: Some(DELAY) }),
        entities: vec![
            Entity { name: "customer", of_event: &of_customer, count: customers },
            Entity { name: "terminal", of_event: &of_terminal, count: terminals },
        ],
    };
    let config = WindowConfig::default();
    let mut milliseconds = Vec::with_capacity(runs);
    let ((), peak) = resident(|| {
        for run in 0..runs {
            note(&format!("run {} of {runs}", run + 1));
            let started = Instant::now();
            std::hint::black_box(compute(&columns, &config, &|_, _| {}));
            milliseconds.push(started.elapsed().as_secs_f64() * 1e3);
        }
        Ok(())
    })?;
    let times = Times::of(milliseconds[0], milliseconds);
    Ok(WindowReport {
        events,
        customers,
        terminals,
        columns: column_names(&columns, &config).len(),
        seed,
        threads: rayon::current_num_threads(),
        runs,
        times,
        events_per_s: events as f64 / (times.median_ms / 1e3),
        peak,
    })
}

impl fmt::Display for WindowReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { events, customers, terminals, columns, seed, threads, runs, times, .. } = self;
        writeln!(
            f,
            "{events} events of {customers} customers and {terminals} terminals, seed {seed}; {threads} threads\n"
        )?;
        writeln!(f, "windows      {:9.2} s  median of {runs}, {columns} columns", times.median_ms / 1e3)?;
        let quartiles = [times.lower_quartile_ms, times.upper_quartile_ms].map(|ms| ms / 1e3);
        writeln!(f, "quartiles    {:9.2} s to {:.2} s", quartiles[0], quartiles[1])?;
        writeln!(f, "events       {:9.2} M/s", self.events_per_s / 1e6)?;
        self.peak.map_or(Ok(()), |peak| writeln!(f, "peak memory  {:9.1} MB", peak.bytes as f64 / 1e6))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_has_a_row_of_all_columns() {
        let options = WindowBenchOptions { events: 2_000, runs: 2, seed: 1 };
        let report = run(&options, &|_| {}).unwrap();
        assert_eq!((report.customers, report.terminals), (6, 12));
        assert!(report.columns > 100 && report.events_per_s > 0.0, "{report}");
        assert!(run(&WindowBenchOptions { events: 0, ..options }, &|_| {}).is_err());
    }
}
