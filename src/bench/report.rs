//! What a measurement found, as a table and as JSON.

use std::fmt;
use std::path::PathBuf;

use serde::Serialize;

use super::Work;
use super::clock::Times;
use super::memory::Peak;
use crate::config::Precision;
use crate::error::{Error, Result};

/// All results of one `graphsieve bench`.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub work: Work,
    /// Name and model.
    pub device: String,
    /// Storage of features and activations.
    pub dtype: Precision,
    /// Timed runs of every row.
    pub runs: usize,
    /// Runs before them.
    pub warm_up: usize,
    /// Read and written together, by a plain copy on this device.
    pub copy_gb_per_s: f64,
    pub graph: GraphFacts,
    pub rows: Vec<Row>,
}

/// What was worked on.
#[derive(Clone, Debug, Serialize)]
pub struct GraphFacts {
    pub data: PathBuf,
    /// The relation of the operators; `None` for work on the whole graph.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub relation: Option<String>,
    /// Destination rows.
    pub rows: usize,
    /// Source rows.
    pub cols: usize,
    pub edges: usize,
    /// Entries of the longest row.
    pub longest_row: usize,
    /// Width of the features; unknown to a training, whose model is configured elsewhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub channels: Option<usize>,
}

/// One operator, epoch or inference.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub name: String,
    #[serde(flatten)]
    pub times: Times,
    /// Edges of the graph visited per second, dropped ones included; `None` for work without a graph.
    pub edges_per_s: Option<f64>,
    /// Bytes that have to be moved.
    pub bytes: Option<u64>,
    /// Time that a plain copy takes to move as many.
    pub floor_ms: Option<f64>,
    /// Median over floor.
    pub ratio: Option<f64>,
    pub peak: Option<Peak>,
    /// Largest difference from f64 over the largest f64 value, of the checked rows; infinite when one is not a number.
    pub error: Option<f64>,
    /// What `error` may be at most.
    pub error_bound: Option<f64>,
    /// Whether `error` is within its bound.
    pub correct: Option<bool>,
}

impl Row {
    /// A row of times alone.
    pub fn new(name: impl Into<String>, times: Times) -> Self {
        Self {
            name: name.into(),
            times,
            edges_per_s: None,
            bytes: None,
            floor_ms: None,
            ratio: None,
            peak: None,
            error: None,
            error_bound: None,
            correct: None,
        }
    }

    /// With a number of edges that one run visits.
    pub fn with_edges(self, edges: usize) -> Self {
        Self { edges_per_s: Some(edges as f64 / (self.times.median_ms / 1e3)), ..self }
    }

    /// With the bytes that one run has to move at `bandwidth` bytes per second.
    pub fn with_bytes(self, bytes: u64, bandwidth: f64) -> Self {
        let floor = bytes as f64 / bandwidth * 1e3;
        let ratio = self.times.median_ms / floor;
        Self { bytes: Some(bytes), floor_ms: Some(floor), ratio: Some(ratio), ..self }
    }

    /// With the peak memory.
    pub fn with_peak(self, peak: Option<Peak>) -> Self {
        Self { peak, ..self }
    }

    /// With an error against f64 and what it may be.
    pub fn with_error(self, error: f64, bound: f64) -> Self {
        // A comparison with something that is not a number is false.
        Self { error: Some(error), error_bound: Some(bound), correct: Some(error <= bound), ..self }
    }
}

/// Largest error of the sampled rows that rounding explains: of the storage, or of f32 sums.
pub fn error_bound(precision: Precision) -> f64 {
    match precision {
        Precision::F32 => 1e-4,
        Precision::F16 => 1e-2,
        Precision::BF16 => 5e-2,
    }
}

impl Report {
    /// Fails when a result is wrong.
    ///
    /// # Errors
    /// [`Error::Data`] that names the rows.
    pub fn verdict(&self) -> Result<()> {
        let wrong: Vec<String> = self
            .rows
            .iter()
            .filter(|row| row.correct == Some(false))
            .map(|row| format!("{} ({:.1e})", row.name, row.error.unwrap_or(f64::NAN)))
            .collect();
        if wrong.is_empty() {
            return Ok(());
        }
        Err(Error::Data {
            what: format!("results on {}", self.device),
            expected: format!("errors against f64 of at most {:.0e}", error_bound(self.dtype)),
            found: wrong.join(", "),
            help: "this device computes wrongly or this program has a bug; please report it with the table above"
                .into(),
        })
    }
}

/// What a row shows in a column.
type Cell = fn(&Row) -> Option<String>;

/// Title and value of every column after the name.
const COLUMNS: [(&str, Cell); 11] = [
    ("first ms", |row| Some(number(row.times.first_ms))),
    ("min ms", |row| Some(number(row.times.min_ms))),
    ("q1 ms", |row| Some(number(row.times.lower_quartile_ms))),
    ("median ms", |row| Some(number(row.times.median_ms))),
    ("q3 ms", |row| Some(number(row.times.upper_quartile_ms))),
    ("M edges/s", |row| row.edges_per_s.map(|rate| number(rate / 1e6))),
    ("MB", |row| row.bytes.map(|bytes| number(bytes as f64 / 1e6))),
    ("floor ms", |row| row.floor_ms.map(number)),
    ("x floor", |row| row.ratio.map(|ratio| format!("{ratio:.2}"))),
    ("peak MB", |row| row.peak.map(|peak| number(peak.bytes as f64 / 1e6))),
    ("error", |row| {
        row.error.map(|error| format!("{error:.1e}{}", if row.correct == Some(false) { " !" } else { "" }))
    }),
];

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let GraphFacts { data, relation, rows, cols, edges, longest_row, channels } = &self.graph;
        let of = relation.as_ref().map_or(String::new(), |name| format!(", relation {name}"));
        let width = channels.map_or(String::new(), |channels| format!(", {channels} channels"));
        writeln!(f, "{} in {} on {}", self.work.name(), self.dtype.name(), self.device)?;
        writeln!(f, "{}{of}: {rows} <- {cols} nodes, {edges} edges, longest row {longest_row}{width}", data.display())?;
        writeln!(f, "median of {} runs after {}; copy {:.1} GB/s\n", self.runs, self.warm_up, self.copy_gb_per_s)?;
        // A column that no row fills says nothing.
        let columns: Vec<_> =
            COLUMNS.iter().filter(|(_, cell)| self.rows.iter().any(|row| cell(row).is_some())).collect();
        let mut table = vec![vec![String::new()]];
        table[0].extend(columns.iter().map(|(title, _)| title.to_string()));
        for row in &self.rows {
            let cells = columns.iter().map(|(_, cell)| cell(row).unwrap_or_else(|| "-".into()));
            table.push(std::iter::once(row.name.clone()).chain(cells).collect());
        }
        let widths: Vec<usize> =
            (0..table[0].len()).map(|column| table.iter().map(|row| row[column].len()).max().unwrap_or(0)).collect();
        for row in table {
            write!(f, "{:<1$}", row[0], widths[0])?;
            for (cell, width) in row.iter().zip(&widths).skip(1) {
                write!(f, "  {cell:>width$}")?;
            }
            writeln!(f)?;
        }
        let reserved = self.rows.iter().filter_map(|row| row.peak?.reserved_bytes).max();
        reserved
            .map_or(Ok(()), |bytes| writeln!(f, "\nreserved by the allocator: up to {} MB", number(bytes as f64 / 1e6)))
    }
}

/// Four significant digits, or all before the point.
fn number(value: f64) -> String {
    let digits = match value.abs() {
        v if v >= 1000.0 => 0,
        v if v >= 100.0 => 1,
        v if v >= 10.0 => 2,
        v if v >= 1.0 => 3,
        _ => 4,
    };
    format!("{value:.digits$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let times = Times::of(50.0, vec![2.0, 4.0, 3.0]);
        let good = Row::new("spmm forward", times).with_edges(6_000_000).with_bytes(3_000_000, 2e9);
        let good = good.with_error(1e-7, 1e-4).with_peak(Some(Peak { bytes: 12_000_000, reserved_bytes: None }));
        Report {
            work: Work::Kernels,
            device: "cpu".into(),
            dtype: Precision::F32,
            runs: 3,
            warm_up: 3,
            copy_gb_per_s: 2.0,
            graph: GraphFacts {
                data: "data".into(),
                relation: Some("euu".into()),
                rows: 10,
                cols: 20,
                edges: 6_000_000,
                longest_row: 7,
                channels: Some(128),
            },
            rows: vec![good, Row::new("elu", times)],
        }
    }

    #[test]
    fn floor_and_ratio_follow_from_bytes_and_bandwidth() {
        let report = report();
        let row = &report.rows[0];
        assert_eq!((row.floor_ms, row.ratio), (Some(1.5), Some(2.0)));
        assert_eq!(row.edges_per_s, Some(2e9));
    }

    #[test]
    fn the_table_is_aligned_and_marks_what_is_missing_or_wrong() {
        let mut report = report();
        let text = report.to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "kernels in f32 on cpu");
        assert_eq!(lines[1], "data, relation euu: 10 <- 20 nodes, 6000000 edges, longest row 7, 128 channels");
        assert_eq!(lines[2], "median of 3 runs after 3; copy 2.0 GB/s");
        let of = |line: &str| line.split_whitespace().map(String::from).collect::<Vec<_>>();
        let figures =
            ["50.00", "2.000", "2.500", "3.000", "3.500", "2000", "3.000", "1.500", "2.00", "12.00", "1.0e-7"];
        assert_eq!(of(lines[5])[2..], figures);
        assert_eq!(of(lines[6])[6..], ["-"; 6]);
        assert!(lines[4..].iter().all(|line| line.len() == lines[4].len()), "{text}");
        report.rows[0] = report.rows[0].clone().with_error(2e-4, 1e-4);
        assert!(report.to_string().contains("2.0e-4 !"));
    }

    #[test]
    fn a_wrong_result_fails_and_so_does_one_that_is_no_number() {
        let mut report = report();
        assert!(report.verdict().is_ok());
        for error in [2e-4, f64::INFINITY, f64::NAN] {
            report.rows[0] = report.rows[0].clone().with_error(error, 1e-4);
            let refused = report.verdict().unwrap_err();
            assert!(refused.to_string().contains("spmm forward") && refused.exit_code() == 1, "{refused}");
        }
    }

    #[test]
    fn it_serialises_for_machines() {
        let json = serde_json::to_value(report()).unwrap();
        assert_eq!((&json["work"], &json["dtype"]), (&"kernels".into(), &"f32".into()));
        let row = &json["rows"][0];
        assert_eq!((&row["median_ms"], &row["bytes"], &row["correct"]), (&3.0.into(), &3_000_000.into(), &true.into()));
        assert!(json["rows"][1]["error"].is_null());
    }
}
