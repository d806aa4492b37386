//! `graphsieve config`

mod init;

use std::io::Write;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use self::init::InitTask;
use super::{Console, check_new_file, print, report_error};
use crate::config::RunConfig;
use crate::error::Result;
use crate::graph::{Dataset, atomic_write};

/// Make, show or check configuration files
#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    Init(Init),
    Show(Show),
    Check(Check),
}

/// Write a commented configuration that trains on the data at hand as they are
#[derive(Debug, Args)]
struct Init {
    /// Data directory or .npz file to train on
    #[arg(long, value_name = "DIR")]
    data: PathBuf,

    /// What to train [default: stage 2 where labels allow it, else classes, else stage 1]
    #[arg(long, value_enum)]
    stage: Option<Stage>,

    /// File to write [default: stdout]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,

    /// Replace the file if it exists
    #[arg(long)]
    force: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Stage {
    /// The auto-encoder, without labels
    #[value(name = "1")]
    One,
    /// Graph attention on a few labels
    #[value(name = "2")]
    Two,
    /// Trees on the surroundings of nodes
    #[value(name = "3")]
    Three,
    /// A class for every node
    Classify,
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

pub(super) fn run(arguments: Arguments, console: Console) -> Result<()> {
    match arguments.action {
        Action::Init(arguments) => init(&arguments, console),
        Action::Show(Show { config, set }) => print(&RunConfig::load(&config, &set)?.to_toml()?),
        Action::Check(Check { configs }) => check(&configs),
    }
}

fn init(arguments: &Init, console: Console) -> Result<()> {
    if let Some(out) = &arguments.out {
        check_new_file(out, arguments.force)?;
    }
    let task = arguments.stage.map(|stage| match stage {
        Stage::One => InitTask::Stage1,
        Stage::Two => InitTask::Stage2,
        Stage::Three => InitTask::Stage3,
        Stage::Classify => InitTask::Classify,
    });
    let dataset = Dataset::open(&arguments.data)?;
    dataset.notes.iter().for_each(|note| console.note(note));
    let text = init::init(&dataset, &arguments.data, task)?;
    let Some(out) = &arguments.out else { return print(&text) };
    atomic_write(out, |file| file.write_all(text.as_bytes()))?;
    console.note(format_args!("wrote {0}; next: graphsieve train {0}", out.display()));
    Ok(())
}

/// Checks all files, so that one run finds every file that is wrong; the last error is the result.
fn check(configs: &[PathBuf]) -> Result<()> {
    let mut wrong = None;
    for config in configs {
        match RunConfig::load(config, &[]) {
            Ok(_) => print(&format_args!("{}: ok", config.display()))?,
            Err(error) => {
                if let Some(earlier) = wrong.replace(error) {
                    report_error(&earlier);
                }
            }
        }
    }
    wrong.map_or(Ok(()), Err)
}
