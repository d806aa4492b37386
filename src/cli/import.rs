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
    source: Format,
}

#[derive(Debug, Subcommand)]
enum Format {
    Tables(tables::Arguments),
    Npz(files::Npz),
    Mat(files::Mat),
    Amazon(amazon::Arguments),
}

pub(super) fn run(arguments: Arguments, console: Console) -> Result<()> {
    match arguments.source {
        Format::Tables(arguments) => tables::run(arguments, console),
        Format::Npz(arguments) => arguments.run(console),
        Format::Mat(arguments) => arguments.run(console),
        Format::Amazon(arguments) => amazon::run(arguments, console),
    }
}
