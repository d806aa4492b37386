//! The feature matrix of all nodes: one block of columns per node type, zeros elsewhere.

use half::f16;
use half::slice::HalfFloatSliceExt;
use rayon::prelude::*;

use super::description::{Encoding, FeatureKind, Scale};
use super::edge_list::EndFigures;
use super::encode::{self, SEED, log_age, mean_weight};
use super::fitting::{Scaler, quantile, signed_log};
use super::naming::{column_names, has_hour};
use super::nodes::{FeatureColumn, NodeType, Values};
use super::stored::{CategoryNames, Stored, UnknownCategories};
use super::text_table::TextTable;
use super::transforms::{Categories, Fitted, Transforms};
use super::windowed::Windowed;
use crate::data::text::TextDirections;
use crate::data::text::ragged::Ragged;
use crate::data::text::terms::Term;
use crate::data::windows::WindowTable;
use crate::error::Result;

/// Edges of one relation at one end.
pub(super) struct RelationEnd<'a> {
    /// Index of the node type at this end.
    pub node_type: usize,
    /// `pays.in` or `pays.out`.
    pub name: String,
    pub figures: &'a EndFigures,
}

/// The columns of one source, ready to be written node by node.
pub(super) struct Encoder<'a> {
    start: usize,
    width: usize,
    fill: Fill<'a>,
}

impl Encoder<'_> {
    /// Writes its columns of a node into a row of all columns, which is zero before.
    pub fn write(&self, node: usize, row: &mut [f32]) {
        self.fill.write(node, &mut row[self.start..self.start + self.width]);
    }
}

enum Fill<'a> {
    One,
    Number { values: &'a [Option<f32>], log: bool, median: f32, scaler: Scaler },
    Hash { codes: &'a [u32], names: &'a TextTable },
    Frequency { codes: &'a [u32], names: &'a TextTable, scaled: Vec<f32> },
    Time { values: &'a [Option<i64>], has_hour: bool, latest: i64, scaler: Scaler },
    Text { terms: Ragged<Term>, directions: TextDirections },
    Degree { degree: &'a [u32], scaler: Scaler },
    Weight { figures: &'a EndFigures, mean: Scaler, max: Scaler },
    Last { figures: &'a EndFigures, latest: i64, scaler: Scaler },
    Windows { table: &'a WindowTable, scalers: Vec<Scaler> },
}

/// Features of all nodes, what their columns are called, and what was learned for them.
pub(super) struct FeatureMatrix {
    pub values: Vec<f16>,
    pub names: Vec<String>,
    pub transforms: Transforms,
    pub unknown: Vec<UnknownCategories>,
    pub category_names: CategoryNames,
}

/// Makes the features of all `types`. What their columns need to know is taken from the import `with`; without one it
/// is learned from the nodes that `is_fitted` says of, over all types. `claim` is told how many bytes the matrix takes.
///
/// # Errors
/// A stored import that lacks a column; what `claim` refuses.
pub(super) fn build(
    types: &mut [NodeType],
    ends: &[RelationEnd],
    windowed: &[Windowed],
    is_fitted: &[bool],
    with: Option<&Stored>,
    claim: &dyn Fn(u64) -> Result<()>,
    progress: &dyn Fn(u64, u64),
) -> Result<FeatureMatrix> {
    let total = types.iter().map(|node_type| node_type.columns.len()).sum::<usize>();
    let total = total + ends.len() + windowed.len() + 1;
    let mut done = 0;
    let mut step = || {
        done += 1;
        progress(done, total as u64);
    };
    let mut builder = Builder { with, ..Builder::default() };
    let terms: Vec<Option<Ragged<_>>> =
        types.iter_mut().flat_map(|node_type| &mut node_type.columns).map(take_terms).collect();
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
            own.push(builder.column(column, name, terms.next().flatten(), is_fitted)?);
            step();
        }
        for end in ends.iter().filter(|end| end.node_type == at) {
            builder.end(end, is_fitted, &mut own)?;
            step();
        }
        for of_events in windowed.iter().filter(|of_events| of_events.node_type == at) {
            own.push(builder.windows(&node_type.name, &of_events.table, is_fitted)?);
            step();
        }
        encoders.push(own);
    }
    let dim = builder.names.len();
    let nodes: usize = types.iter().map(|node_type| node_type.ids.len()).sum();
    claim((nodes * dim * size_of::<f16>()) as u64)?;
    let mut values = vec![f16::ZERO; nodes * dim];
    let mut rest = &mut values[..];
    for (node_type, encoders) in types.iter().zip(&encoders) {
        let (own, behind) = rest.split_at_mut(node_type.ids.len() * dim);
        rest = behind;
        own.par_chunks_mut(dim).with_min_len(64).enumerate().for_each_init(
            || vec![0.0f32; dim],
            |wide, (node, row)| {
                wide.fill(0.0);
                encoders.iter().for_each(|encoder| encoder.write(node, wide));
                row.convert_from_f32_slice(wide);
            },
        );
    }
    step();
    let Builder { names, made, unknown, category_names, .. } = builder;
    Ok(FeatureMatrix { values, names, transforms: made, unknown, category_names })
}

/// Terms move into the encoders: they are the largest of all columns and needed no more.
pub(super) fn take_terms(column: &mut FeatureColumn) -> Option<Ragged<Term>> {
    match &mut column.values {
        Values::Text(rows) => Some(std::mem::take(rows)),
        _ => None,
    }
}

/// What makes encoders, and what it learned for them.
#[derive(Default)]
pub(super) struct Builder<'w> {
    /// Where to take what is needed from, instead of learning it.
    pub with: Option<&'w Stored>,
    pub names: Vec<String>,
    pub made: Transforms,
    pub unknown: Vec<UnknownCategories>,
    pub category_names: CategoryNames,
}

impl Builder<'_> {
    fn add<'a>(&mut self, fill: Fill<'a>, names: Vec<String>) -> Encoder<'a> {
        let (start, width) = (self.names.len(), names.len());
        self.names.extend(names);
        Encoder { start, width, fill }
    }

    /// What a source of columns needs to know: as stored, or what `fit` learns.
    fn fitted(&mut self, column: &str, fit: impl FnOnce() -> Fitted) -> Result<&Fitted> {
        let fitted = match self.with {
            None => Fitted { column: column.into(), ..fit() },
            Some(stored) => stored.transforms.get(column).cloned().ok_or_else(|| stored.lacks(column))?,
        };
        Ok(self.made.push(fitted))
    }

    /// The scale of a column whose values are given by node; `None` is not learned from.
    fn scaler(
        &mut self,
        column: &str,
        is_fitted: &[bool],
        value: impl Fn(usize) -> Option<f32> + Sync,
    ) -> Result<Scaler> {
        Ok(self.fitted(column, || Fitted::scale(column, fit(is_fitted, value)))?.scaler())
    }

    /// The encoder of a column, whose columns and what was learned for them are called after `name`.
    ///
    /// # Errors
    /// A stored import that lacks it.
    pub fn column<'a>(
        &mut self,
        column: &'a FeatureColumn,
        name: String,
        terms: Option<Ragged<Term>>,
        is_fitted: &[bool],
    ) -> Result<Encoder<'a>> {
        let names_of = column_names(&column.kind, &name);
        Ok(match (&column.kind, &column.values) {
            (FeatureKind::Numeric { scale, log }, Values::Number(values)) => {
                let fitted = self.fitted(&name, || {
                    let mut known = fitted_values(values, is_fitted);
                    if *log {
                        known.iter_mut().for_each(|value| *value = signed_log(*value));
                    }
                    let scaler = Scaler::fit(&mut known, *scale);
                    Fitted { median: Some(quantile(&known, 0.5) as f32), ..Fitted::scale(&name, scaler) }
                })?;
                let (median, scaler) = (fitted.median.unwrap_or(0.0), fitted.scaler());
                self.add(Fill::Number { values, log: *log, median, scaler }, names_of)
            }
            (_, Values::Number(values)) => {
                let fitted = self.fitted(&name, || {
                    let mut known = fitted_values(values, is_fitted);
                    // The more frequent value: the median of zeros and ones, without the half of a tie.
                    known.sort_unstable_by(f32::total_cmp);
                    let median = quantile(&known, 0.5).floor() as f32;
                    Fitted { median: Some(median), ..Fitted::scale(&name, Scaler::IDENTITY) }
                })?;
                let (median, scaler) = (fitted.median.unwrap_or(0.0), fitted.scaler());
                self.add(Fill::Number { values, log: false, median, scaler }, names_of)
            }
            (FeatureKind::Categorical { encoding, .. }, Values::Category(codes, names)) => {
                let with = self.with;
                let fitted = self.fitted(&name, || {
                    let rows = codes.iter().zip(is_fitted).filter(|(_, fitted)| **fitted).map(|(code, _)| *code);
                    let categories = Categories::count(rows, names);
                    let scaler = (*encoding == Encoding::Frequency).then(|| {
                        let logs = categories.counts().iter().map(|&count| ((count as f32).ln_1p(), count as usize));
                        let mut known =
                            logs.flat_map(|(log, count)| std::iter::repeat_n(log, count)).collect::<Vec<_>>();
                        Scaler::fit(&mut known, Scale::Standard)
                    });
                    Fitted { scaler, categories: Some(categories), ..Fitted::default() }
                })?;
                let (scaler, none) = (fitted.scaler(), Categories::default());
                let categories = fitted.categories.as_ref().unwrap_or(&none);
                let rows: Vec<u32> = names.iter().map(|name| categories.rows_of(name)).collect();
                let common = match with {
                    None => Categories::common(names, &rows),
                    Some(stored) => stored.category_names.get(&name).cloned().unwrap_or_default(),
                };
                self.note_unknown(&name, codes, names, &rows, is_fitted);
                self.category_names.extend((!common.is_empty()).then(|| (name.clone(), common)));
                match encoding {
                    Encoding::Hash => self.add(Fill::Hash { codes, names }, names_of),
                    Encoding::Frequency => {
                        let scaled = rows.iter().map(|&rows| encode::scaled_frequency(rows, scaler)).collect();
                        self.add(Fill::Frequency { codes, names, scaled }, names_of)
                    }
                }
            }
            (FeatureKind::Timestamp { format, .. }, Values::Time(values)) => {
                let fitted = self.fitted(&format!("{name}_recency"), || {
                    let known =
                        || values.iter().zip(is_fitted).filter(|(_, fitted)| **fitted).filter_map(|(time, _)| *time);
                    let latest = known().max().unwrap_or(0);
                    let mut ages: Vec<f32> = known().map(|time| log_age(latest, time)).collect();
                    let scaler = Some(Scaler::fit(&mut ages, Scale::Standard));
                    Fitted { scaler, latest: Some(latest), ..Fitted::default() }
                })?;
                let (latest, scaler) = (fitted.latest.unwrap_or(0), fitted.scaler());
                let has_hour = has_hour(format.as_deref());
                self.add(Fill::Time { values, has_hour, latest, scaler }, names_of)
            }
            (FeatureKind::Text { width }, _) => {
                let mut terms = terms.unwrap_or_default();
                let fitted = self.fitted(&name, || {
                    let rows = (0..terms.num_rows() as u32).filter(|&row| is_fitted[row as usize]).collect();
                    let (directions, all) = TextDirections::fit(std::mem::take(&mut terms), rows, *width, SEED);
                    terms = all;
                    Fitted { text: Some(directions), ..Fitted::default() }
                })?;
                match fitted.text.clone() {
                    Some(directions) if directions.width() == *width => {
                        self.add(Fill::Text { terms, directions }, names_of)
                    }
                    _ => return Err(self.with.map_or_else(|| unreachable!("it was just fitted"), |s| s.lacks(&name))),
                }
            }
            // A column has the values of its kind.
            _ => self.add(Fill::One, Vec::new()),
        })
    }

    /// Counts rows whose category is new, `rows` being how many fitted rows each of `names` has.
    fn note_unknown(&mut self, name: &str, codes: &[u32], names: &TextTable, rows: &[u32], is_fitted: &[bool]) {
        let of_others = codes.iter().zip(is_fitted).filter(|(_, fitted)| self.with.is_some() || !**fitted);
        let of_others = of_others.map(|(code, _)| *code).filter(|&code| !names.get(code).is_empty());
        let (mut all, mut unknown) = (0, 0);
        for code in of_others {
            all += 1;
            unknown += usize::from(rows[code as usize] == 0);
        }
        self.unknown.push(UnknownCategories { column: name.into(), rows: all, unknown });
    }

    /// Columns over windows: standardised `sign(x) ln(1 + |x|)`, 0 where nothing is known.
    fn windows<'a>(&mut self, node_type: &str, table: &'a WindowTable, is_fitted: &[bool]) -> Result<Encoder<'a>> {
        let names: Vec<String> = table.names.iter().map(|name| format!("{node_type}.{name}")).collect();
        let mut scalers = Vec::with_capacity(names.len());
        for (at, name) in names.iter().enumerate() {
            let value = |event: usize| table.values[event * table.width + at];
            let known = |event| Some(value(event)).filter(|value| !value.is_nan()).map(signed_log);
            scalers.push(self.scaler(name, is_fitted, known)?);
        }
        Ok(self.add(Fill::Windows { table, scalers }, names))
    }

    fn end<'a>(&mut self, end: &RelationEnd<'a>, is_fitted: &[bool], out: &mut Vec<Encoder<'a>>) -> Result<()> {
        let figures = end.figures;
        let has_values = figures.has_weight || figures.has_time;
        let counts = [("degree", &figures.degree, true), ("count", &figures.count, has_values)];
        for (part, degree, _) in counts.into_iter().filter(|(_, _, has)| *has) {
            let name = format!("{}_{part}", end.name);
            let scaler = self.scaler(&name, is_fitted, |node| Some((degree[node] as f32).ln_1p()))?;
            out.push(self.add(Fill::Degree { degree, scaler }, vec![name]));
        }
        if figures.has_weight {
            let names = ["mean_weight", "max_weight"].map(|part| format!("{}_{part}", end.name));
            let mean = self.scaler(&names[0], is_fitted, |node| mean_weight_of(figures, node))?;
            let max = |node| (figures.count[node] > 0).then(|| signed_log(figures.weight_max[node]));
            let max = self.scaler(&names[1], is_fitted, max)?;
            out.push(self.add(Fill::Weight { figures, mean, max }, names.into()));
        }
        if figures.has_time {
            let name = format!("{}_recency", end.name);
            let fitted = self.fitted(&name, || {
                let latest = figures.last.iter().copied().filter(|&last| last != i64::MIN).max().unwrap_or(0);
                let age = |node| (figures.count[node] > 0).then(|| log_age(latest, figures.last[node]));
                Fitted { latest: Some(latest), ..Fitted::scale(&name, fit(is_fitted, age)) }
            })?;
            let (latest, scaler) = (fitted.latest.unwrap_or(0), fitted.scaler());
            out.push(self.add(Fill::Last { figures, latest, scaler }, vec![name]));
        }
        Ok(())
    }
}

/// Values of the nodes that may be learned from.
fn fitted_values(values: &[Option<f32>], is_fitted: &[bool]) -> Vec<f32> {
    values.iter().zip(is_fitted).filter(|(_, fitted)| **fitted).filter_map(|(value, _)| *value).collect()
}

fn fit(is_fitted: &[bool], value: impl Fn(usize) -> Option<f32> + Sync) -> Scaler {
    let nodes = (0..is_fitted.len()).into_par_iter().with_min_len(1 << 12);
    let mut known: Vec<f32> = nodes.filter(|&node| is_fitted[node]).filter_map(&value).collect();
    Scaler::fit(&mut known, Scale::Standard)
}

fn mean_weight_of(figures: &EndFigures, node: usize) -> Option<f32> {
    mean_weight(figures.weight_sum[node], figures.count[node])
}

impl Fill<'_> {
    /// Writes the columns of a node, which are zero before; nodes behind the declared ones have no values.
    fn write(&self, node: usize, out: &mut [f32]) {
        match self {
            Fill::One => out.fill(1.0),
            Fill::Number { values, log, median, scaler } => {
                encode::number(values.get(node).copied().flatten(), *log, *median, *scaler, out);
            }
            Fill::Hash { codes, names } => encode::hashed(codes.get(node).map_or("", |&code| names.get(code)), out),
            Fill::Frequency { codes, names, scaled } => {
                let code = codes.get(node).filter(|&&code| !names.get(code).is_empty());
                encode::frequency(code.map(|&code| scaled[code as usize]), out);
            }
            Fill::Time { values, has_hour, latest, scaler } => {
                encode::time(values.get(node).copied().flatten(), *has_hour, *latest, *scaler, out);
            }
            Fill::Text { terms, directions } => {
                if node < terms.num_rows() {
                    directions.write(terms.row(node), out);
                }
            }
            Fill::Degree { degree, scaler } => out[0] = encode::degree(degree[node], *scaler),
            Fill::Weight { figures, mean, max } => {
                if let Some(weight) = mean_weight_of(figures, node) {
                    out[0] = mean.apply(weight);
                    out[1] = max.apply(signed_log(figures.weight_max[node]));
                }
            }
            Fill::Last { figures, latest, scaler } => {
                if figures.count[node] > 0 {
                    out[0] = scaler.apply(log_age(*latest, figures.last[node]));
                }
            }
            Fill::Windows { table, scalers } => {
                let values = &table.values[node * table.width..(node + 1) * table.width];
                for ((out, &value), scaler) in out.iter_mut().zip(values).zip(scalers) {
                    *out = encode::window(value, *scaler);
                }
            }
        }
    }
}
