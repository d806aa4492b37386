//! Columns of events, and what to compute of them.

use serde::{Deserialize, Serialize};

/// Seconds of a day.
pub(super) const DAY: i64 = 86_400;

/// Default spans in days, or in what takes the place of a day.
pub(super) const SPANS: [i64; 5] = [1, 3, 7, 14, 30];
pub(super) const ONE_HOP: [i64; 3] = [1, 3, 7];
/// Default numbers of last events.
pub(super) const LAST: [usize; 5] = [1, 3, 5, 20, 100];

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
    /// Seconds after its event at which a label has its place in windows, at least 0; `None`: its place is where it
    /// became known.
    pub delay: Option<i64>,
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

/// A column per window over the entity's own events.
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

    /// Whether it follows from sum, mean and deviation.
    pub(super) fn is_of_moments(self) -> bool {
        !matches!(self, Measure::Count | Measure::Distinct | Measure::Largest)
    }
}

/// A column per window over the events of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OtherMeasure {
    /// Events of others within the window.
    Count,
    /// Sum of their values.
    Sum,
    /// Mean of their values.
    Mean,
    /// Standard deviation of their values, as of a sample.
    Deviation,
    /// Largest value.
    Largest,
    /// Different others.
    Distinct,
    /// Mean of what the z-score over the longest span was for each of them.
    #[serde(rename = "z")]
    ZScore,
    /// Mean of what the value over the mean of the longest span was for each of them.
    OverMean,
    /// Share of fraud among their labels that were known.
    FraudShare,
}

impl OtherMeasure {
    /// All measures, in the order of their columns.
    pub const ALL: [OtherMeasure; 9] = [
        OtherMeasure::Count,
        OtherMeasure::Sum,
        OtherMeasure::Mean,
        OtherMeasure::Deviation,
        OtherMeasure::Largest,
        OtherMeasure::Distinct,
        OtherMeasure::ZScore,
        OtherMeasure::OverMean,
        OtherMeasure::FraudShare,
    ];

    /// Name in columns and configurations.
    pub fn name(self) -> &'static str {
        match self {
            OtherMeasure::Count => "count",
            OtherMeasure::Sum => "sum",
            OtherMeasure::Mean => "mean",
            OtherMeasure::Deviation => "deviation",
            OtherMeasure::Largest => "largest",
            OtherMeasure::Distinct => "distinct",
            OtherMeasure::ZScore => "z",
            OtherMeasure::OverMean => "over_mean",
            OtherMeasure::FraudShare => "fraud_share",
        }
    }

    /// Whether it is about values and not about events alone.
    pub(super) fn needs_values(self) -> bool {
        !matches!(self, OtherMeasure::Count | OtherMeasure::Distinct | OtherMeasure::FraudShare)
    }

    /// Whether it says how unusual events were for whom they are of.
    pub(super) fn is_of_unusual(self) -> bool {
        matches!(self, OtherMeasure::ZScore | OtherMeasure::OverMean)
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
    /// What is computed over windows of the last events; over the very last alone only its ratio, because the
    /// difference tells the rest. Default the mean.
    pub last_measures: Vec<Measure>,
    /// Known frauds over the windows of time, where there are labels. Default true.
    pub labels: bool,
    /// Days since the last known label, where known frauds are counted. Default false.
    pub last_known: bool,
    /// Lengths of the windows of others' events in seconds, each above 0. Default 1, 3 and 7 days.
    pub one_hop: Vec<i64>,
    /// What is computed over windows of others' events. Default how unusual they were: z-score and ratio.
    pub one_hop_measures: Vec<OtherMeasure>,
    /// Windows over later events instead of earlier ones, as if time ran backwards; see the [module](super). Default
    /// false.
    pub ahead: bool,
}

impl Default for WindowConfig {
    fn default() -> Self {
        Self {
            spans: SPANS.map(|days| days * DAY).to_vec(),
            last: LAST.to_vec(),
            measures: Measure::ALL.to_vec(),
            last_measures: vec![Measure::Mean],
            labels: true,
            last_known: false,
            one_hop: ONE_HOP.map(|days| days * DAY).to_vec(),
            one_hop_measures: vec![OtherMeasure::ZScore, OtherMeasure::OverMean],
            ahead: false,
        }
    }
}

/// `7d`, `6h`, `5m` or `10s`.
pub(super) fn span_name(seconds: i64) -> String {
    let units = [(DAY, "d"), (3_600, "h"), (60, "m")];
    let unit = units.into_iter().find(|(unit, _)| seconds % unit == 0);
    unit.map_or_else(|| format!("{seconds}s"), |(unit, name)| format!("{}{name}", seconds / unit))
}
