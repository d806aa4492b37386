//! Columns of events, and what to compute of them.

use serde::{Deserialize, Serialize};

/// Seconds of a day.
pub(super) const DAY: i64 = 86_400;

/// Columns of a table of events, in any order of time.
#[derive(Clone, Debug)]
pub struct EventColumns<'a> {
    /// When each event happened, in seconds.
    pub times: &'a [i64],
    /// What each event is worth, such as an amount; NaN where it is missing.
    pub values: Option<&'a [f32]>,
    pub labels: Option<KnownLabels<'a>>,
    /// What each event names, such as its customer and its terminal.
    pub entities: Vec<Entity<'a>>,
}

/// Labels and when they became known.
#[derive(Clone, Copy, Debug)]
pub struct KnownLabels<'a> {
    /// 1 for fraud, 0 for none; `None` where there never is a label.
    pub label: &'a [Option<u8>],
    /// When each label became known; `i64::MAX` for never.
    pub known: &'a [i64],
    /// Seconds that windows of labels end before the event, at least 0.
    pub delay: i64,
}

/// Entities of one type, as events name them.
#[derive(Clone, Copy, Debug)]
pub struct Entity<'a> {
    /// Name of the type, the first part of its columns.
    pub name: &'a str,
    /// The entity that each event names, below `count`; `u32::MAX` for none.
    pub of_event: &'a [u32],
    pub count: usize,
}

/// A column per span of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// Events within the window.
    Count,
    /// Sum of their values.
    Sum,
    /// Mean of their values.
    Mean,
    /// Standard deviation of their values, as of a sample.
    Deviation,
    /// Largest value.
    Largest,
    /// Different entities of every other type that they name.
    Distinct,
    /// This value over their mean.
    OverMean,
    /// This value less their mean, over their deviation.
    #[serde(rename = "z")]
    ZScore,
}

impl Measure {
    /// All measures, in the order of their columns.
    pub const ALL: [Measure; 8] = [
        Measure::Count,
        Measure::Sum,
        Measure::Mean,
        Measure::Deviation,
        Measure::Largest,
        Measure::Distinct,
        Measure::OverMean,
        Measure::ZScore,
    ];

    /// Name in columns and configurations.
    pub fn name(self) -> &'static str {
        match self {
            Measure::Count => "count",
            Measure::Sum => "sum",
            Measure::Mean => "mean",
            Measure::Deviation => "deviation",
            Measure::Largest => "largest",
            Measure::Distinct => "distinct",
            Measure::OverMean => "over_mean",
            Measure::ZScore => "z",
        }
    }

    /// Whether it is about values and not about events alone.
    pub(super) fn needs_values(self) -> bool {
        !matches!(self, Measure::Count | Measure::Distinct)
    }
}

/// Which windows to compute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WindowConfig {
    /// Lengths of the windows of time in seconds, each above 0. Default 1, 3, 7, 14 and 30 days.
    pub spans: Vec<i64>,
    /// How many events the windows of the last events hold, each above 0. Default 1, 3, 5, 20 and 100.
    pub last: Vec<usize>,
    /// What is computed over windows of time. Default all.
    pub measures: Vec<Measure>,
    /// Known frauds over the windows of time, where there are labels. Default true.
    pub labels: bool,
    /// Lengths of the windows of others' events in seconds, each above 0. Default 1, 3 and 7 days.
    pub one_hop: Vec<i64>,
}

impl Default for WindowConfig {
    fn default() -> Self {
        Self {
            spans: [1, 3, 7, 14, 30].map(|days| days * DAY).to_vec(),
            last: vec![1, 3, 5, 20, 100],
            measures: Measure::ALL.to_vec(),
            labels: true,
            one_hop: [1, 3, 7].map(|days| days * DAY).to_vec(),
        }
    }
}

/// `7d`, `6h`, `5m` or `10s`.
pub(super) fn span_name(seconds: i64) -> String {
    let units = [(DAY, "d"), (3_600, "h"), (60, "m")];
    let unit = units.into_iter().find(|(unit, _)| seconds % unit == 0);
    unit.map_or_else(|| format!("{seconds}s"), |(unit, name)| format!("{}{name}", seconds / unit))
}
