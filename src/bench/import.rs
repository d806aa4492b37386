//! Import of a table that is made up: CSV on the disk to a data directory beside it.

use std::fmt;
use std::io::Write;
use std::path::Path;
use std::time::Instant;

use serde::Serialize;

use super::memory::{Peak, resident};
use super::{Note, Times};
use crate::data::tables::{ImportOptions, import};
use crate::error::{Error, Result};
use crate::graph::atomic_write;
use crate::trees::counter;

/// Edges of a node, in the mean.
const DEGREE: usize = 5;

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
#[derive(Clone, Debug)]
pub struct ImportBenchOptions {
    /// Rows of the table, each an edge, at least 1.
    pub edges: usize,
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
    let &ImportBenchOptions { edges, runs, seed } = options;
    for (argument, found) in [("--rows", edges), ("--runs", runs)] {
        if found == 0 {
            return Err(super::usage(argument, "at least 1", "0", "see `graphsieve bench --help`"));
        }
    }
    let sandbox = tempfile::tempdir().map_err(|source| Error::io(std::env::temp_dir(), "write", source))?;
    let [table, description] = ["payments.csv", "graph.toml"].map(|name| sandbox.path().join(name));
    note(&format!("writing {edges} edges to {}", table.display()));
    write_table(&table, edges, seed)?;
    atomic_write(&description, |file| file.write_all(DESCRIPTION.as_bytes()))?;
    let table_bytes = table.metadata().map_err(|source| Error::io(&table, "read", source))?.len();
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
        table_bytes,
        seed,
        threads: rayon::current_num_threads(),
        runs,
        times,
        edges_per_s: edges as f64 / (times.median_ms / 1e3),
        peak,
    })
}

fn write_table(path: &Path, edges: usize, seed: u64) -> Result<()> {
    let accounts = edges.div_ceil(DEGREE) as u64;
    atomic_write(path, |file| {
        writeln!(file, "payer,payee,amount,time")?;
        for edge in 0..edges as u64 {
            let draw = |what: u64, bound: u64| counter::below(seed, &[edge, what], bound);
            let (payer, payee) = (draw(0, accounts), draw(1, accounts));
            let (cents, seconds) = (draw(2, 1_000_000), draw(3, 100_000_000));
            writeln!(file, "A{payer},A{payee},{}.{:02},{}", cents / 100, cents % 100, 1_600_000_000 + seconds)?;
        }
        Ok(())
    })
}

impl fmt::Display for ImportReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { edges, nodes, seed, threads, runs, times, .. } = self;
        let megabytes = self.table_bytes as f64 / 1e6;
        writeln!(f, "{edges} edges between {nodes} nodes, {megabytes:.1} MB of CSV, seed {seed}; {threads} threads\n")?;
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
        let options = ImportBenchOptions { edges: 1000, runs: 2, seed: 1 };
        let report = run(&options, &|_| {}).unwrap();
        assert!(report.nodes > 150 && report.nodes <= 200, "{report}");
        assert!(report.table_bytes > 20_000 && report.edges_per_s > 0.0, "{report}");
        assert!(run(&ImportBenchOptions { runs: 0, ..options }, &|_| {}).is_err());
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
