//! `graphsieve config`

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::print;
use crate::config::RunConfig;
use crate::error::Result;

/// Show or check configuration files
#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    Show(Show),
    Check(Check),
}

/// Print a configuration with every default and override written out; it runs as it is
#[derive(Debug, Args)]
struct Show {
    /// TOML file, see configs/README.md
    #[arg(value_name = "FILE")]
    config: PathBuf,

    /// Replace a key, e.g. train.epochs=20; the last one wins
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
}

/// Check configuration files without running them
#[derive(Debug, Args)]
struct Check {
    /// TOML files
    #[arg(value_name = "FILE", required = true)]
    configs: Vec<PathBuf>,
}

pub(super) fn run(arguments: Arguments) -> Result<()> {
    match arguments.action {
        Action::Show(Show { config, set }) => print(&RunConfig::load(&config, &set)?.to_toml()?),
        Action::Check(Check { configs }) => check(&configs),
    }
}

/// Checks all files, so that one run finds every file that is wrong; the last error is the result.
fn check(configs: &[PathBuf]) -> Result<()> {
    let mut wrong = None;
    for config in configs {
        match RunConfig::load(config, &[]) {
            Ok(_) => print(&format_args!("{}: ok", config.display()))?,
            Err(error) => {
                if let Some(earlier) = wrong.replace(error) {
                    eprintln!("error: {earlier}");
                }
            }
        }
    }
    wrong.map_or(Ok(()), Err)
}
