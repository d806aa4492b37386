//! `graphsieve import tables`

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;

use crate::cli::{Console, Format, check_new_directory, size};
use crate::data::tables::{self, ImportOptions, MemoryLimit};
use crate::error::{Error, Result};
use crate::graph::formats::parent_of;
use crate::run::bundle::Bundle;
use crate::run::model::model_of;
use crate::run::progress::{StageProgress, Unit};

const EXAMPLE: &str = "\
The description of one table of transactions:

  [[nodes]]
  type = \"transaction\"
  file = \"transactions.csv\"      # .csv .tsv, also .gz .zst of them, .parquet, or a directory of such parts
  id = \"TxId\"                    # left out: the number of the row
  label = { column = \"Labels\", anomalous = [\"1\"], normal = [\"0\"], unknown = [\"2\"] }
  features = { Amount = \"numeric\", Type = \"categorical\", Time = \"timestamp\", Memo = \"text\" }

  [[edges]]
  name = \"pays\"                  # makes the nodes of type `account`
  src = \"account.Source\"         # type and column
  dst = \"transaction\"            # the row itself
  weight = \"Amount\"

  [[shared]]                     # transactions of one location are joined through a node that stands for it
  column = \"Location\"

  [[edges]]                      # with a label every edge is scored; `time` makes it an event
  name = \"transfer\"
  file = \"transfers.csv\"
  src = \"account.From\"
  dst = \"account.To\"
  label = \"Fraud\"
  values = [\"Amount\"]

All keys: src/data/tables/TABLES.md, or the documentation of `graphsieve::data::tables`.";

/// Tables of nodes and edges: CSV or Parquet, described by a TOML file
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLE)]
pub(super) struct Arguments {
    /// Description of the tables
    #[arg(value_name = "GRAPH.toml")]
    description: PathBuf,

    /// Data directory to make; absent or empty
    #[arg(long, value_name = "DIR")]
    out: PathBuf,

    /// Apply the medians, scales, categories and texts that this run or data directory was fitted with, instead of
    /// fitting them to these tables: the same row then has the same features. GRAPH.toml has to describe the same
    /// columns and relations; files, ids, labels and the split may be others
    #[arg(long, value_name = "RUN|DIR")]
    with: Option<PathBuf>,

    /// Refuse edges to ids that the node table of their type does not hold, instead of creating the nodes
    #[arg(long)]
    strict: bool,

    /// Bytes to which one file may unpack
    #[arg(long, value_name = "N", default_value_t = tables::MAX_BYTES)]
    max_bytes: u64,

    /// Memory that the import may take: edges that need more are sorted in temporary files beside DIR. In bytes, or
    /// with K, M, G or T for powers of 1024. Ids, columns and features of nodes have to fit it; pieces of tables that
    /// are being read come on top
    #[arg(long, value_name = "SIZE", value_parser = size)]
    memory: Option<u64>,

    /// How to print the summary
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

pub(super) fn run(arguments: Arguments, console: Console) -> Result<()> {
    check_new_directory(&arguments.out)?;
    let started = Instant::now();
    let Arguments { description, strict, max_bytes, with, .. } = arguments;
    let with = with.as_deref().map(model_of).transpose()?;
    let memory = arguments.memory.map(|bytes| limit(bytes, &arguments.out)).transpose()?;
    let options = ImportOptions { description, strict, max_bytes, with, memory };
    if let Some(run) = options.with.as_deref().filter(|dir| dir.is_dir()) {
        Bundle::open(run)?;
    }
    let [read, made] = [Unit::Bytes, Unit::Items].map(|unit| StageProgress::with_mode(unit, console.progress()));
    let mut import = tables::import(&options, &|progress| {
        let stages = if progress.stage == "features" { &made } else { &read };
        stages.report(progress.stage, progress.done, progress.total);
    })?;
    let files = import.write(&arguments.out)?;
    let (files, seconds) = (files.len(), started.elapsed().as_secs_f64());
    console.note(format_args!("wrote {files} files to {} in {seconds:.1} s", arguments.out.display()));
    import.summary.measure_memory();
    arguments.format.print(&import.summary)
}

/// Temporary files lie beside the directory that is made: it needs as much room.
fn limit(bytes: u64, out: &Path) -> Result<MemoryLimit> {
    let dir = parent_of(out);
    fs::create_dir_all(dir).map_err(|source| Error::io(dir, "create", source))?;
    Ok(MemoryLimit { bytes, dir: dir.to_owned() })
}
