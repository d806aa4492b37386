//! The events of one entity, and what windows over them hold.

use super::columns::Plan;
use super::sums::Prefix;

/// The events of one entity in order of time. A window is a range of positions among them.
#[derive(Default)]
pub(super) struct History {
    pub(super) times: Vec<i64>,
    /// NaN where missing; without negative zeros. Empty in data without values.
    pub(super) values: Vec<f32>,
    /// By position: where events of the same time begin, which is where the windows of this event end.
    pub(super) ends: Vec<u32>,
    sums: Prefix,
    squares: Prefix,
    /// For the leading `i` events: the last position with a value, and from where on all values equal that one.
    runs: Vec<Run>,
}

#[derive(Clone, Copy, Default)]
struct Run {
    last: u32,
    from: u32,
}

/// Sum, mean and deviation of the values of a window.
#[derive(Clone, Copy)]
pub(super) struct Moments {
    pub(super) sum: f64,
    pub(super) mean: f64,
    pub(super) deviation: f64,
}

impl Moments {
    /// Of no values.
    pub(super) const NONE: Self = Self { sum: 0.0, mean: f64::NAN, deviation: f64::NAN };

    /// Of `count` values by their sum and that of their squares; `only` is the value that all of them are, if there is
    /// one.
    #[inline]
    pub(super) fn of(count: u32, sum: f64, only: Option<f32>, squares: impl FnOnce() -> f64) -> Self {
        match (count, only) {
            (0, _) => Self::NONE,
            (_, Some(value)) => {
                let (value, deviation) = (f64::from(value), if count > 1 { 0.0 } else { f64::NAN });
                Self { sum: value * f64::from(count), mean: value, deviation }
            }
            (_, None) => {
                let (squares, count) = (squares(), f64::from(count));
                let mean = sum / count;
                let deviation = ((squares - sum * mean).max(0.0) / (count - 1.0)).sqrt();
                Self { sum, mean, deviation }
            }
        }
    }

    /// `value` over the mean; NaN for a mean of 0.
    pub(super) fn over_mean(&self, value: f32) -> f32 {
        if self.mean == 0.0 { f32::NAN } else { (f64::from(value) / self.mean) as f32 }
    }

    /// `value` less the mean, over the deviation; NaN for a deviation of 0.
    pub(super) fn z(&self, value: f32) -> f32 {
        if self.deviation == 0.0 { f32::NAN } else { ((f64::from(value) - self.mean) / self.deviation) as f32 }
    }
}

impl History {
    /// Takes over the `events` of one entity, which are in order of time.
    pub(super) fn fill(&mut self, plan: &Plan, events: &[u32]) {
        self.fill_times(plan, events);
        self.fill_values(plan, events);
        if !plan.has_values {
            return;
        }
        let terms = || self.values.iter().map(|&value| f64::from(value));
        self.sums.fill(terms());
        self.squares.fill(terms().map(|value| value * value));
        self.runs.clear();
        let mut run = Run::default();
        self.runs.push(run);
        let mut any = false;
        for (position, &value) in self.values.iter().enumerate() {
            if !value.is_nan() {
                if any && self.values[run.last as usize] != value {
                    run.from = run.last + 1;
                }
                any = true;
                run.last = position as u32;
            }
            self.runs.push(run);
        }
    }

    /// The values alone, without what they add up to.
    pub(super) fn fill_values(&mut self, plan: &Plan, events: &[u32]) {
        self.values.clear();
        let Some(values) = plan.events.values else { return };
        let known = |value: f32| if value.is_finite() { value + 0.0 } else { f32::NAN };
        self.values.extend(events.iter().map(|&event| known(values[event as usize])));
    }

    /// The times alone.
    pub(super) fn fill_times(&mut self, plan: &Plan, events: &[u32]) {
        self.times.clear();
        self.times.extend(events.iter().map(|&event| plan.events.times[event as usize]));
        self.ends.clear();
        for position in 0..events.len() {
            let ties = position > 0 && self.times[position] == self.times[position - 1];
            self.ends.push(if ties { self.ends[position - 1] } else { position as u32 });
        }
    }

    /// Of the values from `start` to before `end`.
    #[inline]
    pub(super) fn moments(&self, start: usize, end: usize) -> Moments {
        let (sum, count) = self.sums.between(start, end);
        let run = self.runs[end];
        let only = (count > 0 && run.from as usize <= start).then(|| self.values[run.last as usize]);
        Moments::of(count, sum, only, || self.squares.between(start, end).0)
    }

    /// The value right before position `end`; NaN where there is none.
    pub(super) fn last_value(&self, end: usize) -> f32 {
        if end == 0 { f32::NAN } else { self.values[end - 1] }
    }
}

/// The positions of one entity's events with equal keys, in order of position.
#[derive(Default)]
pub(super) struct Alike {
    sorted: Vec<u64>,
}

impl Alike {
    pub(super) fn fill(&mut self, keys: impl Iterator<Item = u32>) {
        self.sorted.clear();
        self.sorted.extend(keys.enumerate().map(|(position, key)| u64::from(key) << 32 | position as u64));
        self.sorted.sort_unstable();
    }

    /// Per key that occurs: the key and its positions, in ascending order.
    pub(super) fn runs(&self) -> impl Iterator<Item = (u32, impl ExactSizeIterator<Item = usize> + Clone)> {
        let same = |a: &u64, b: &u64| a >> 32 == b >> 32;
        let position = |&entry: &u64| (entry & u64::from(u32::MAX)) as usize;
        self.sorted.chunk_by(same).map(move |run| ((run[0] >> 32) as u32, run.iter().map(position)))
    }
}
