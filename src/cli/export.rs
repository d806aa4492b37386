//! `graphsieve export`

use std::io::Write;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::{Console, check_new_directory, check_new_file, print};
use crate::data::tables::{self, ExportOptions, TableFormat};
use crate::error::{Error, Result};
use crate::graph::Dataset;
use crate::graph::formats::atomic_write;
use crate::models::tree_ensemble::TreeCheckpoint;
use crate::run::ensemble::ENSEMBLE_FILE;
use crate::run::model::model_of;

/// Turn a data directory into tables, or trees into LightGBM's text
#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(subcommand)]
    target: Target,
}

#[derive(Debug, Subcommand)]
enum Target {
    Tables(Tables),
    Lightgbm(Lightgbm),
}

/// One table of nodes per type, one of edges per relation, and the description that imports them again. Features
/// are left out, and values of edges are as models read them: scaled, and no longer what the tables said
#[derive(Debug, Args)]
struct Tables {
    /// Data directory to read
    #[arg(value_name = "DIR")]
    data: PathBuf,

    /// Directory to make; absent or empty
    #[arg(long, value_name = "OUT")]
    out: PathBuf,

    /// How to write the tables
    #[arg(long, value_enum, default_value_t = Written::Csv)]
    format: Written,

    /// Write every table as a directory of parts of so many rows instead of one file
    #[arg(long, value_name = "N")]
    part_rows: Option<NonZeroUsize>,
}

/// The trees of a Stage-3 run in LightGBM's text format, which LightGBM and its bindings load
#[derive(Debug, Args)]
struct Lightgbm {
    /// Directory of a run of Stage 3, of a pipeline that ends with it, or its checkpoint
    #[arg(value_name = "RUN|FILE")]
    checkpoint: PathBuf,

    /// File to write
    #[arg(long, value_name = "FILE")]
    out: PathBuf,

    /// Replace the file where it exists
    #[arg(long)]
    force: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Written {
    /// Text
    Csv,
    /// Parquet
    Parquet,
}

pub(super) fn run(arguments: Arguments, console: Console) -> Result<()> {
    match arguments.target {
        Target::Tables(arguments) => tables(arguments, console),
        Target::Lightgbm(arguments) => lightgbm(&arguments, console),
    }
}

fn tables(Tables { data, out, format, part_rows }: Tables, console: Console) -> Result<()> {
    check_new_directory(&out)?;
    let format = match format {
        Written::Csv => TableFormat::Csv,
        Written::Parquet => TableFormat::Parquet,
    };
    let summary = tables::export(&Dataset::open(&data)?, &out, ExportOptions { format, part_rows })?;
    console.note(format_args!("wrote {} files to {}", summary.files.len(), out.display()));
    print(&summary)
}

fn lightgbm(Lightgbm { checkpoint, out, force }: &Lightgbm, console: Console) -> Result<()> {
    check_new_file(out, *force)?;
    let model = model_of(checkpoint)?;
    let file = TreeCheckpoint::file_of(&model).ok_or_else(|| {
        let (found, help) = match model.join(ENSEMBLE_FILE).is_file() {
            true => {
                ("an ensemble", format!("give the run of a member with trees: they lie beside {}", model.display()))
            }
            false => ("none", "give a finished run of Stage 3, or its checkpoint/best.trees".into()),
        };
        let (argument, expected) = (checkpoint.display().to_string(), "the trees of a run of Stage 3".into());
        Error::Usage { argument, expected, found: found.into(), help }
    })?;
    let ensemble = TreeCheckpoint::read(&file)?.ensemble;
    let text = ensemble.to_lightgbm_text();
    atomic_write(out, |file| file.write_all(text.as_bytes()))?;
    console.note(format_args!("{} trees: {}", ensemble.num_trees(), out.display()));
    Ok(())
}
