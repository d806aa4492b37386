//! The feature matrix of all nodes: one block of columns per node type, zeros elsewhere.

use std::f32::consts::TAU;

use chrono::{DateTime, Datelike};
use half::f16;
use half::slice::HalfFloatSliceExt;
use rayon::prelude::*;
use serde::Serialize;

use super::description::{Encoding, FeatureKind, Scale};
use super::edge_list::EndFigures;
use super::fitting::{Scaler, quantile, signed_log};
use super::id_table::IdTable;
use super::nodes::{FeatureColumn, NodeType, Values};
use crate::data::text::hashing::{add_random_direction, hash_text};
use crate::data::text::ragged::Ragged;
use crate::data::text::{TextColumns, TfIdf};

/// Seed of directions of categories and of texts: the same in every import, so that columns mean the same.
const SEED: u64 = 42;
const DAY: i64 = 86_400;

/// What was learned from the training rows of one column.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Fitted {
    /// First of the names of its columns.
    pub column: String,
    /// What takes the place of a missing value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub median: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub centre: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spread: Option<f32>,
    /// The latest time, from which recency counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latest: Option<i64>,
}

/// Edges of one relation at one end.
pub(super) struct RelationEnd<'a> {
    /// Index of the node type at this end.
    pub node_type: usize,
    /// `pays.in` or `pays.out`.
    pub name: String,
    pub figures: &'a EndFigures,
}

/// The columns of one source, ready to be written node by node.
struct Encoder<'a> {
    start: usize,
    width: usize,
    fill: Fill<'a>,
}

enum Fill<'a> {
    One,
    Number { values: &'a [Option<f32>], log: bool, median: f32, scaler: Scaler },
    Hash { codes: &'a [u32], names: &'a IdTable },
    Frequency { codes: &'a [u32], names: &'a IdTable, scaled: Vec<f32> },
    Time { values: &'a [Option<i64>], has_hour: bool, latest: i64, scaler: Scaler },
    Text(TextColumns, usize),
    Degree { degree: &'a [u32], scaler: Scaler },
    Weight { figures: &'a EndFigures, mean: Scaler, max: Scaler },
    Last { figures: &'a EndFigures, latest: i64, scaler: Scaler },
}

/// Features of all nodes, what their columns are called, and what was learned for them.
pub(super) struct FeatureMatrix {
    pub values: Vec<f16>,
    pub names: Vec<String>,
    pub fitted: Vec<Fitted>,
}

/// Makes the features of all `types`; `is_fitted` says of every node, over all types, whether it may be learned from.
pub(super) fn build(
    types: &mut [NodeType],
    ends: &[RelationEnd],
    is_fitted: &[bool],
    progress: &dyn Fn(u64, u64),
) -> FeatureMatrix {
    let total = types.iter().map(|node_type| node_type.columns.len()).sum::<usize>() + ends.len() + 1;
    let mut done = 0;
    let mut step = || {
        done += 1;
        progress(done, total as u64);
    };
    let mut builder = Builder::default();
    // Terms move into the encoders: they are the largest of all columns and needed no more.
    let mut terms: Vec<Option<Ragged<_>>> = Vec::new();
    for column in types.iter_mut().flat_map(|node_type| &mut node_type.columns) {
        terms.push(match &mut column.values {
            Values::Text(rows) => Some(std::mem::take(rows)),
            _ => None,
        });
    }
    let mut terms = terms.into_iter();
    let mut encoders: Vec<Vec<Encoder>> = Vec::with_capacity(types.len());
    let mut offset = 0;
    for (at, node_type) in types.iter().enumerate() {
        let nodes = node_type.ids.len();
        let is_fitted = &is_fitted[offset..offset + nodes];
        offset += nodes;
        let mut own = vec![builder.add(Fill::One, vec![format!("is_{}", node_type.name)])];
        for column in &node_type.columns {
            let name = format!("{}.{}", node_type.name, column.name);
            own.push(builder.column(column, name, terms.next().flatten(), is_fitted));
            step();
        }
        for end in ends.iter().filter(|end| end.node_type == at) {
            builder.end(end, is_fitted, &mut own);
            step();
        }
        encoders.push(own);
    }
    let dim = builder.names.len();
    let nodes: usize = types.iter().map(|node_type| node_type.ids.len()).sum();
    let mut values = vec![f16::ZERO; nodes * dim];
    let mut rest = &mut values[..];
    for (node_type, encoders) in types.iter().zip(&encoders) {
        let (own, behind) = rest.split_at_mut(node_type.ids.len() * dim);
        rest = behind;
        own.par_chunks_mut(dim).with_min_len(64).enumerate().for_each_init(
            || vec![0.0f32; dim],
            |wide, (node, row)| {
                wide.fill(0.0);
                for encoder in encoders {
                    encoder.fill.write(node, &mut wide[encoder.start..encoder.start + encoder.width]);
                }
                row.convert_from_f32_slice(wide);
            },
        );
    }
    step();
    FeatureMatrix { values, names: builder.names, fitted: builder.fitted }
}

#[derive(Default)]
struct Builder {
    names: Vec<String>,
    fitted: Vec<Fitted>,
}

impl Builder {
    fn add<'a>(&mut self, fill: Fill<'a>, names: Vec<String>) -> Encoder<'a> {
        let (start, width) = (self.names.len(), names.len());
        self.names.extend(names);
        Encoder { start, width, fill }
    }

    fn note(&mut self, column: &str, median: Option<f32>, scaler: Scaler, latest: Option<i64>) {
        let (centre, spread) = (Some(scaler.centre), Some(scaler.spread));
        self.fitted.push(Fitted { column: column.into(), median, centre, spread, latest });
    }

    fn column<'a>(
        &mut self,
        column: &'a FeatureColumn,
        name: String,
        terms: Option<Ragged<crate::data::text::terms::Term>>,
        is_fitted: &[bool],
    ) -> Encoder<'a> {
        let missing = format!("{name}_missing");
        let numbered = |width: usize| (0..width).map(|at| format!("{name}_{at}")).collect::<Vec<_>>();
        match (&column.kind, &column.values) {
            (FeatureKind::Numeric { scale, log }, Values::Number(values)) => {
                let mut known = fitted_values(values, is_fitted);
                if *log {
                    known.iter_mut().for_each(|value| *value = signed_log(*value));
                }
                let scaler = Scaler::fit(&mut known, *scale);
                let median = quantile(&known, 0.5) as f32;
                self.note(&name, Some(median), scaler, None);
                self.add(Fill::Number { values, log: *log, median, scaler }, vec![name, missing])
            }
            (_, Values::Number(values)) => {
                let mut known = fitted_values(values, is_fitted);
                // The more frequent value: the median of zeros and ones, without the half of a tie.
                known.sort_unstable_by(f32::total_cmp);
                let median = quantile(&known, 0.5).floor() as f32;
                self.note(&name, Some(median), Scaler::IDENTITY, None);
                let fill = Fill::Number { values, log: false, median, scaler: Scaler::IDENTITY };
                self.add(fill, vec![name, missing])
            }
            (FeatureKind::Categorical { encoding: Encoding::Frequency, .. }, Values::Category(codes, names)) => {
                let mut counts = vec![0u32; names.len()];
                let mut known = Vec::new();
                let rows =
                    codes.iter().zip(is_fitted).filter(|(code, fitted)| **fitted && !names.get(**code).is_empty());
                rows.clone().for_each(|(&code, _)| counts[code as usize] += 1);
                let log: Vec<f32> = counts.iter().map(|&count| (count as f32).ln_1p()).collect();
                known.extend(rows.map(|(&code, _)| log[code as usize]));
                let scaler = Scaler::fit(&mut known, Scale::Standard);
                self.note(&name, None, scaler, None);
                let scaled = log.iter().map(|&count| scaler.apply(count)).collect();
                self.add(Fill::Frequency { codes, names, scaled }, vec![format!("{name}_frequency"), missing])
            }
            (FeatureKind::Categorical { width, .. }, Values::Category(codes, names)) => {
                self.add(Fill::Hash { codes, names }, numbered(*width))
            }
            (FeatureKind::Timestamp { format, .. }, Values::Time(values)) => {
                let known =
                    || values.iter().zip(is_fitted).filter(|(_, fitted)| **fitted).filter_map(|(time, _)| *time);
                let latest = known().max().unwrap_or(0);
                let mut ages: Vec<f32> = known().map(|time| log_age(latest, time)).collect();
                let scaler = Scaler::fit(&mut ages, Scale::Standard);
                self.note(&format!("{name}_recency"), None, scaler, Some(latest));
                let has_hour = format.as_deref().is_none_or(names_hours);
                let hour = ["hour_sin", "hour_cos"].into_iter().filter(|_| has_hour);
                let parts =
                    hour.chain(["weekday_sin", "weekday_cos", "yearday_sin", "yearday_cos", "recency", "missing"]);
                let names = parts.map(|part| format!("{name}_{part}")).collect();
                self.add(Fill::Time { values, has_hour, latest, scaler }, names)
            }
            (FeatureKind::Text { width }, _) => {
                let terms = terms.unwrap_or_default();
                let rows = terms.num_rows();
                let fitted = (0..rows as u32).filter(|&row| is_fitted[row as usize]).collect();
                let columns = TextColumns::new(Box::new(TfIdf::fitted_on(terms, fitted)), *width, SEED, &|_, _| {});
                self.add(Fill::Text(columns, rows), numbered(*width))
            }
            // A column has the values of its kind.
            _ => self.add(Fill::One, Vec::new()),
        }
    }

    fn end<'a>(&mut self, end: &RelationEnd<'a>, is_fitted: &[bool], out: &mut Vec<Encoder<'a>>) {
        let figures = end.figures;
        let has_values = figures.has_weight || figures.has_time;
        let counts = [("degree", &figures.degree, true), ("count", &figures.count, has_values)];
        for (part, degree, _) in counts.into_iter().filter(|(_, _, has)| *has) {
            let name = format!("{}_{part}", end.name);
            let scaler = fit(is_fitted, |node| Some((degree[node] as f32).ln_1p()));
            self.note(&name, None, scaler, None);
            out.push(self.add(Fill::Degree { degree, scaler }, vec![name]));
        }
        if figures.has_weight {
            let names = ["mean_weight", "max_weight"].map(|part| format!("{}_{part}", end.name));
            let mean = fit(is_fitted, |node| mean_weight(figures, node));
            let max = fit(is_fitted, |node| (figures.count[node] > 0).then(|| signed_log(figures.weight_max[node])));
            self.note(&names[0], None, mean, None);
            self.note(&names[1], None, max, None);
            out.push(self.add(Fill::Weight { figures, mean, max }, names.into()));
        }
        if figures.has_time {
            let name = format!("{}_recency", end.name);
            let latest = figures.last.iter().copied().filter(|&last| last != i64::MIN).max().unwrap_or(0);
            let scaler = fit(is_fitted, |node| (figures.count[node] > 0).then(|| log_age(latest, figures.last[node])));
            self.note(&name, None, scaler, Some(latest));
            out.push(self.add(Fill::Last { figures, latest, scaler }, vec![name]));
        }
    }
}

/// Values of the nodes that may be learned from.
fn fitted_values(values: &[Option<f32>], is_fitted: &[bool]) -> Vec<f32> {
    values.iter().zip(is_fitted).filter(|(_, fitted)| **fitted).filter_map(|(value, _)| *value).collect()
}

fn fit(is_fitted: &[bool], value: impl Fn(usize) -> Option<f32>) -> Scaler {
    let mut known: Vec<f32> = (0..is_fitted.len()).filter(|&node| is_fitted[node]).filter_map(value).collect();
    Scaler::fit(&mut known, Scale::Standard)
}

fn mean_weight(figures: &EndFigures, node: usize) -> Option<f32> {
    let count = figures.count[node];
    (count > 0).then(|| signed_log((figures.weight_sum[node] / f64::from(count)) as f32))
}

/// `ln(1 + seconds since)`; what is later than the latest is as recent as it.
fn log_age(latest: i64, time: i64) -> f32 {
    (latest.saturating_sub(time).max(0) as f32).ln_1p()
}

/// Whether a pattern names the time of day.
fn names_hours(pattern: &str) -> bool {
    ["%H", "%I", "%k", "%l", "%T", "%R", "%r", "%X", "%c", "%s", "%+"].iter().any(|part| pattern.contains(part))
}

fn put_angle(out: &mut [f32], at: usize, share: f32) {
    (out[at], out[at + 1]) = (TAU * share).sin_cos();
}

/// Hour of day, day of week (from Monday) and day of year, as shares of the whole.
fn cycles(time: i64) -> [f32; 3] {
    let day = time.div_euclid(DAY);
    let date = DateTime::from_timestamp(time, 0).unwrap_or_default().date_naive();
    // The first day of 1970 was a Thursday.
    let weekday = (day + 3).rem_euclid(7);
    let days = if date.leap_year() { 366.0 } else { 365.0 };
    [time.rem_euclid(DAY) as f32 / DAY as f32, weekday as f32 / 7.0, date.ordinal0() as f32 / days]
}

impl Fill<'_> {
    /// Writes the columns of a node, which are zero before; nodes behind the declared ones have no values.
    fn write(&self, node: usize, out: &mut [f32]) {
        match self {
            Fill::One => out.fill(1.0),
            Fill::Number { values, log, median, scaler } => {
                let value = values.get(node).copied().flatten();
                // The median is one of scaled values already.
                let known = value.map_or(*median, |value| if *log { signed_log(value) } else { value });
                out[0] = scaler.apply(known);
                out[1] = f32::from(value.is_none());
            }
            Fill::Hash { codes, names } => {
                let name = codes.get(node).map_or("", |&code| names.get(code));
                if !name.is_empty() {
                    add_random_direction(hash_text(name), SEED, 1.0, out);
                }
            }
            Fill::Frequency { codes, names, scaled } => {
                match codes.get(node).filter(|&&code| !names.get(code).is_empty()) {
                    Some(&code) => out[0] = scaled[code as usize],
                    None => out[1] = 1.0,
                }
            }
            Fill::Time { values, has_hour, latest, scaler } => {
                let Some(time) = values.get(node).copied().flatten() else {
                    if let Some(missing) = out.last_mut() {
                        *missing = 1.0;
                    }
                    return;
                };
                let [hour, weekday, yearday] = cycles(time);
                let mut at = 0;
                for share in has_hour.then_some(hour).into_iter().chain([weekday, yearday]) {
                    put_angle(out, at, share);
                    at += 2;
                }
                out[at] = scaler.apply(log_age(*latest, time));
            }
            Fill::Text(columns, rows) => {
                if node < *rows {
                    columns.write(node, out);
                }
            }
            Fill::Degree { degree, scaler } => out[0] = scaler.apply((degree[node] as f32).ln_1p()),
            Fill::Weight { figures, mean, max } => {
                if let Some(weight) = mean_weight(figures, node) {
                    out[0] = mean.apply(weight);
                    out[1] = max.apply(signed_log(figures.weight_max[node]));
                }
            }
            Fill::Last { figures, latest, scaler } => {
                if figures.count[node] > 0 {
                    out[0] = scaler.apply(log_age(*latest, figures.last[node]));
                }
            }
        }
    }
}
