//! Import of a table that is made up: CSV or parts of Parquet on the disk to a data directory beside it.

use std::fmt;
use std::io::{self, Write};
use std::path::Path;
use std::time::Instant;

use rayon::prelude::*;
use serde::Serialize;

use super::memory::{Peak, resident};
use super::{Note, Times};
use crate::data::parquet_file::{Cells, ParquetFile};
use crate::data::tables::{ImportOptions, import};
use crate::error::{Error, Result};
use crate::graph::atomic_write;
use crate::trees::counter;

/// Edges of a node, in the mean.
const DEGREE: usize = 5;

/// Rows of a group of a Parquet file.
const GROUP: usize = 1 << 18;

/// Edges with an amount and a time, between ids of one node type.
const DESCRIPTION: &str = "\
[[edges]]
name = \"pays\"
file = \"payments.csv\"
src = \"account.payer\"
dst = \"account.payee\"
weight = \"amount\"
time = \"time\"
";

/// How to measure.
#[derive(Clone, Copy, Debug)]
pub struct ImportBenchOptions {
    /// Rows of the table, each an edge, at least 1.
    pub edges: usize,
    /// So many Parquet files, with whole numbers as ids, at least 1; `None` for one CSV file.
    pub parts: Option<usize>,
    /// Timed runs, at least 1. None goes before them: an import happens once.
    pub runs: usize,
    /// Seed of the table.
    pub seed: u64,
}

/// What was measured.
#[derive(Clone, Debug, Serialize)]
pub struct ImportReport {
    pub edges: usize,
    pub nodes: usize,
    /// Parquet files of the table; `None` for one of CSV.
    pub parts: Option<usize>,
    /// Size of the table.
    pub table_bytes: u64,
    pub seed: u64,
    pub threads: usize,
    pub runs: usize,
    /// Reading, indexing and writing the data directory.
    pub times: Times,
    pub edges_per_s: f64,
    /// Largest resident set of the imports; `None` where the system does not tell.
    pub peak: Option<Peak>,
}

/// Writes a table to a temporary directory and imports it as often as `options` says.
///
/// # Errors
/// Settings out of range, or a temporary directory that cannot be written.
pub fn run(options: &ImportBenchOptions, note: Note) -> Result<ImportReport> {
    let &ImportBenchOptions { edges, parts, runs, seed } = options;
    for (argument, found) in [("--rows", edges), ("--runs", runs), ("--parts", parts.unwrap_or(1))] {
        if found == 0 {
            return Err(super::usage(argument, "at least 1", "0", "see `graphsieve bench --help`"));
        }
    }
    let sandbox = tempfile::tempdir().map_err(|source| Error::io(std::env::temp_dir(), "write", source))?;
    let [table, description] =
        [parts.map_or("payments.csv", |_| "payments"), "graph.toml"].map(|n| sandbox.path().join(n));
    note(&format!("writing {edges} edges to {}", table.display()));
    let table_bytes = match parts {
        None => write_table(&table, edges, seed)?,
        Some(parts) => write_parts(&table, edges, seed, parts)?,
    };
    let file = table.file_name().unwrap_or_default().to_string_lossy();
    let text = DESCRIPTION.replace("payments.csv", &file);
    atomic_write(&description, |file| file.write_all(text.as_bytes()))?;
    let mut nodes = 0;
    let mut times = Vec::with_capacity(runs);
    let ((), peak) = resident(|| {
        for run in 0..runs {
            note(&format!("import {} of {runs}", run + 1));
            let out = sandbox.path().join(format!("data-{run}"));
            let started = Instant::now();
            let found = import(&ImportOptions::new(&description), &|_| {})?;
            found.write(&out)?;
            times.push(started.elapsed().as_secs_f64() * 1e3);
            nodes = found.dataset.graph.num_nodes();
            std::fs::remove_dir_all(&out).map_err(|source| Error::io(&out, "remove", source))?;
        }
        Ok(())
    })?;
    let times = Times::of(times[0], times);
    Ok(ImportReport {
        edges,
        nodes,
        parts,
        table_bytes,
        seed,
        threads: rayon::current_num_threads(),
        runs,
        times,
        edges_per_s: edges as f64 / (times.median_ms / 1e3),
        peak,
    })
}

/// Payer, payee, cents and time of an edge, of which there are so many accounts.
fn edge(seed: u64, edge: u64, accounts: u64) -> [u64; 4] {
    let draw = |what: u64, bound: u64| counter::below(seed, &[edge, what], bound);
    [draw(0, accounts), draw(1, accounts), draw(2, 1_000_000), 1_600_000_000 + draw(3, 100_000_000)]
}

fn size_of_file(path: &Path) -> Result<u64> {
    path.metadata().map(|metadata| metadata.len()).map_err(|source| Error::io(path, "read", source))
}

/// Writes the table as CSV and returns its bytes.
fn write_table(path: &Path, edges: usize, seed: u64) -> Result<u64> {
    let accounts = edges.div_ceil(DEGREE) as u64;
    atomic_write(path, |file| {
        writeln!(file, "payer,payee,amount,time")?;
        for number in 0..edges as u64 {
            let [payer, payee, cents, time] = edge(seed, number, accounts);
            writeln!(file, "A{payer},A{payee},{}.{:02},{time}", cents / 100, cents % 100)?;
        }
        Ok(())
    })?;
    size_of_file(path)
}

/// Writes the table as Parquet files in the new directory `dir` and returns their bytes.
fn write_parts(dir: &Path, edges: usize, seed: u64, parts: usize) -> Result<u64> {
    const COLUMNS: [&str; 4] =
        ["required int64 payer", "required int64 payee", "optional double amount", "required int64 time"];
    let accounts = edges.div_ceil(DEGREE) as u64;
    std::fs::create_dir(dir).map_err(|source| Error::io(dir, "create", source))?;
    let of_part = edges.div_ceil(parts);
    let write = |part: usize| {
        let path = dir.join(format!("part-{part:05}.parquet"));
        atomic_write(&path, |file| {
            let mut rows = ParquetFile::new(file, &COLUMNS).map_err(io::Error::other)?;
            let end = ((part + 1) * of_part).min(edges);
            for start in ((part * of_part).min(end)..end).step_by(GROUP) {
                let drawn: Vec<[u64; 4]> =
                    (start..(start + GROUP).min(end)).map(|number| edge(seed, number as u64, accounts)).collect();
                let whole = |at: usize| Cells::Int64(drawn.iter().map(|row| row[at] as i64).collect());
                let amount = Cells::Double(drawn.iter().map(|row| Some(row[2] as f64 / 100.0)).collect());
                rows.write(&[whole(0), whole(1), amount, whole(3)]).map_err(io::Error::other)?;
            }
            rows.finish().map_err(io::Error::other).map(|_| ())
        })?;
        size_of_file(&path)
    };
    (0..parts).into_par_iter().map(write).sum()
}

impl fmt::Display for ImportReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { edges, nodes, seed, threads, runs, times, .. } = self;
        let megabytes = self.table_bytes as f64 / 1e6;
        let layout = self.parts.map_or("CSV".into(), |parts| format!("Parquet in {parts} parts"));
        writeln!(
            f,
            "{edges} edges between {nodes} nodes, {megabytes:.1} MB of {layout}, seed {seed}; {threads} threads\n"
        )?;
        writeln!(f, "import       {:9.2} s  median of {runs}", times.median_ms / 1e3)?;
        let quartiles = [times.lower_quartile_ms, times.upper_quartile_ms].map(|ms| ms / 1e3);
        writeln!(f, "quartiles    {:9.2} s to {:.2} s", quartiles[0], quartiles[1])?;
        writeln!(f, "edges        {:9.2} M/s", self.edges_per_s / 1e6)?;
        self.peak.map_or(Ok(()), |peak| writeln!(f, "peak memory  {:9.1} MB", peak.bytes as f64 / 1e6))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_of_the_table_becomes_an_edge() {
        let options = ImportBenchOptions { edges: 1000, parts: None, runs: 2, seed: 1 };
        let report = run(&options, &|_| {}).unwrap();
        assert!(report.nodes > 150 && report.nodes <= 200, "{report}");
        assert!(report.table_bytes > 20_000 && report.edges_per_s > 0.0, "{report}");
        let in_parts = run(&ImportBenchOptions { parts: Some(3), ..options }, &|_| {}).unwrap();
        assert_eq!((in_parts.nodes, in_parts.edges), (report.nodes, report.edges));
        for wrong in [ImportBenchOptions { runs: 0, ..options }, ImportBenchOptions { parts: Some(0), ..options }] {
            assert!(run(&wrong, &|_| {}).is_err());
        }
    }

    #[test]
    fn a_table_depends_on_its_seed_alone() {
        let dir = tempfile::tempdir().unwrap();
        let table = |seed: u64| {
            let path = dir.path().join("t.csv");
            write_table(&path, 50, seed).unwrap();
            let text = std::fs::read_to_string(&path).unwrap();
            std::fs::remove_file(path).unwrap();
            text
        };
        assert_eq!(table(1), table(1));
        assert_ne!(table(1), table(2));
        assert_eq!(table(1).lines().count(), 51);
    }
}
