//! `graphsieve export`

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::{Console, check_new_directory, print};
use crate::data::tables::{self, TableFormat};
use crate::error::Result;
use crate::graph::Dataset;

/// Turn a data directory into tables
#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(subcommand)]
    target: Target,
}

#[derive(Debug, Subcommand)]
enum Target {
    Tables(Tables),
}

/// One table of nodes per type, one of edges per relation, and the description that imports them again
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
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Written {
    /// Text
    Csv,
    /// Parquet
    Parquet,
}

pub(super) fn run(arguments: Arguments, console: Console) -> Result<()> {
    let Target::Tables(Tables { data, out, format }) = arguments.target;
    check_new_directory(&out)?;
    let format = match format {
        Written::Csv => TableFormat::Csv,
        Written::Parquet => TableFormat::Parquet,
    };
    let summary = tables::export(&Dataset::open(&data)?, &out, format)?;
    console.note(format_args!("wrote {} files to {}", summary.files.len(), out.display()));
    print(&summary)
}
