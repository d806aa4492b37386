//! `graphsieve import`

mod amazon;
mod files;
mod tables;

use clap::{Args, Subcommand};

use super::Console;
use crate::error::Result;

/// Turn raw data into a data directory: graph, features and labels
#[derive(Debug, Args)]
#[command(alias = "prepare")]
pub(super) struct Arguments {
    #[command(subcommand)]
    source: Source,
}

#[derive(Debug, Subcommand)]
enum Source {
    Tables(tables::Arguments),
    Npz(files::Npz),
    Mat(files::Mat),
    Amazon(amazon::Arguments),
}

pub(super) fn run(arguments: Arguments, console: Console) -> Result<()> {
    match arguments.source {
        Source::Tables(arguments) => tables::run(arguments, console),
        Source::Npz(arguments) => arguments.run(console),
        Source::Mat(arguments) => arguments.run(console),
        Source::Amazon(arguments) => amazon::run(arguments, console),
    }
}
