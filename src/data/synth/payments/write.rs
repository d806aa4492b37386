//! The tables on the disk.

use std::io::Write;
use std::path::{Path, PathBuf};

use chrono::DateTime;

use super::{Payment, PaymentsConfig};
use crate::error::Result;
use crate::graph::{atomic_write, write_directory};

/// How `graphsieve import tables` reads the table.
const DESCRIPTION: &str = include_str!("graph.toml");

/// Writes the new directory `dir` with `payments.csv`, a row per payment in order of time, and `graph.toml`, which
/// describes it to `graphsieve import tables`. Returns the paths of both.
///
/// # Errors
/// [`Error::Exists`](crate::Error::Exists) unless `dir` is absent or empty; [`Error::Io`](crate::Error::Io).
pub fn write(config: &PaymentsConfig, payments: &[Payment], dir: &Path) -> Result<Vec<PathBuf>> {
    let width = |count: usize| count.saturating_sub(1).to_string().len();
    let [customers, terminals] = [width(config.customers), width(config.terminals)];
    write_directory(dir, |dir| {
        atomic_write(dir.join("payments.csv"), |file| {
            writeln!(file, "id,time,customer,terminal,amount,fraud,kind")?;
            for (id, payment) in payments.iter().enumerate() {
                let Payment { time, customer, terminal, cents, fraud } = *payment;
                let time = DateTime::from_timestamp(time, 0).unwrap_or_default().format("%Y-%m-%d %H:%M:%S");
                let (units, hundredths) = (cents / 100, cents % 100);
                let (label, kind) = (u8::from(fraud.is_some()), fraud.map_or("", |kind| kind.name()));
                write!(file, "{id},{time},C{customer:0customers$},T{terminal:0terminals$},")?;
                writeln!(file, "{units}.{hundredths:02},{label},{kind}")?;
            }
            Ok(())
        })?;
        atomic_write(dir.join("graph.toml"), |file| file.write_all(DESCRIPTION.as_bytes()))?;
        Ok(vec!["payments.csv".into(), "graph.toml".into()])
    })
}
