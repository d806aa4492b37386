//! All windows of all events.

use std::sync::atomic::{AtomicU32, Ordering};

use rayon::prelude::*;

use super::columns::Plan;
use super::events::{EventColumns, KnownLabels, WindowConfig};
use super::groups::{Groups, by_time};
use super::others::{OtherWindows, UnusualOf};
use super::own::OwnWindows;

/// Events between two calls of the progress, about.
const PART: usize = 1 << 18;

/// Windowed features: a row per event, in the order of the events.
#[derive(Clone, Debug)]
pub struct WindowTable {
    pub names: Vec<String>,
    /// Columns.
    pub width: usize,
    /// `[events, width]`, row by row; NaN where nothing is known.
    pub values: Vec<f32>,
}

/// Columns of f32 that many threads write, each cell by one of them.
struct Cells(Vec<AtomicU32>);

impl Cells {
    fn unknown(count: usize) -> Self {
        Self((0..count).into_par_iter().map(|_| AtomicU32::new(f32::NAN.to_bits())).collect())
    }

    fn store(&self, first: usize, values: &[f32]) {
        for (cell, value) in self.0[first..].iter().zip(values) {
            cell.store(value.to_bits(), Ordering::Relaxed);
        }
    }

    fn load(&self, index: usize) -> f32 {
        f32::from_bits(self.0[index].load(Ordering::Relaxed))
    }

    fn into_values(self) -> Vec<f32> {
        self.0.into_iter().map(|cell| f32::from_bits(cell.into_inner())).collect()
    }
}

/// By entity type: z-score and value over mean of each event.
struct UnusualEvents(Vec<Cells>);

impl UnusualOf for UnusualEvents {
    fn of(&self, entity: usize, event: u32) -> [f32; 2] {
        [0, 1].map(|which| self.0[entity].load(2 * event as usize + which))
    }
}

/// Computes the columns that `config` asks for and the events have something for; see the [module](super).
///
/// Time grows with the number of events times that of the columns, and with the logarithm of the events of an entity;
/// memory is that of the result and about 40 bytes an event. `progress` is called from this thread with `(done,
/// total)`. The result does not depend on the number of threads.
///
/// # Panics
/// When columns differ in length, an entity's id is not below its count, the delay of the labels is negative, or a span
/// or number of last events is not above 0.
pub fn compute(events: &EventColumns, config: &WindowConfig, progress: &dyn Fn(u64, u64)) -> WindowTable {
    if !config.ahead {
        return in_order(events, config, progress);
    }
    // -1 - time: unlike -time there is one for every time.
    let times: Vec<i64> = events.times.iter().map(|time| !time).collect();
    let known = events.labels.iter().flat_map(|labels| labels.known.iter().zip(&times));
    let known: Vec<i64> = known.map(|(&known, &time)| if known == i64::MAX { known } else { time }).collect();
    let labels = events.labels.map(|labels| KnownLabels { known: &known, delay: None, ..labels });
    in_order(&EventColumns { times: &times, labels, ..events.clone() }, config, progress)
}

/// Windows over what has a smaller time.
fn in_order(events: &EventColumns, config: &WindowConfig, progress: &dyn Fn(u64, u64)) -> WindowTable {
    let plan = Plan::new(events, config);
    let (count, width) = (events.times.len(), plan.names.len());
    let groups: Vec<Groups> = {
        let order = by_time(events.times);
        events.entities.iter().map(|entity| Groups::new(&order, entity)).collect()
    };
    let (has_others, needs_unusual) = (!plan.one_hop.is_empty(), plan.needs_unusual());
    let passes = if has_others { 2 } else { 1 };
    let total = passes * groups.iter().map(|groups| groups.num_events() as u64).sum::<u64>();
    let mut done = 0;
    let mut advance = |part: &[&[u32]]| {
        done += part.iter().map(|events| events.len() as u64).sum::<u64>();
        progress(done, total);
    };
    let cells = Cells::unknown(count * width);
    let unusual = |_| Cells::unknown(if needs_unusual { 2 * count } else { 0 });
    let unusual = UnusualEvents((0..groups.len()).map(unusual).collect());
    for (entity, groups) in groups.iter().enumerate() {
        let first = plan.blocks[entity].first;
        for part in groups.parts(PART) {
            let windows = || OwnWindows::new(&plan, entity);
            part.par_iter().for_each_init(windows, |windows, events| {
                windows.rows(events, |event, row, of_value| {
                    cells.store(event as usize * width + first, row);
                    if needs_unusual {
                        unusual.0[entity].store(2 * event as usize, &[of_value.z, of_value.over_mean]);
                    }
                });
            });
            advance(&part);
        }
    }
    for (entity, groups) in groups.iter().enumerate().filter(|_| has_others) {
        let first = plan.blocks[entity].first + plan.blocks[entity].own;
        for part in groups.parts(PART) {
            let windows = || OtherWindows::new(&plan, entity, &unusual);
            part.par_iter().for_each_init(windows, |windows, events| {
                windows.rows(events, |event, column, values| {
                    cells.store(event as usize * width + first + column, values);
                });
            });
            advance(&part);
        }
    }
    WindowTable { names: plan.into_layout().names, width, values: cells.into_values() }
}
