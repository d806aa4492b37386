//! `graphsieve explain`

use std::path::PathBuf;

use clap::Args;

use super::{Console, Format, check_new_file};
use crate::backend::{self, with_backend};
use crate::config::RunConfig;
use crate::error::{Error, Result};
use crate::graph::Dataset;
use crate::models::tree_ensemble::TreeCheckpoint;
use crate::score::explain::{explain, node_of};
use crate::score::trees::TableOptions;
use crate::train::plots;

/// Say which features and which neighbours made the score of a node (runs of Stage 3)
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// Directory of a Stage-3 run
    #[arg(value_name = "RUN")]
    run: PathBuf,

    /// The node: a global number, TYPE:ID or an id of the data
    #[arg(long, value_name = "NODE")]
    node: String,

    /// Data of the node [default: what the run was trained on]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,

    /// Embeddings of Stage 1 for these data [default: those that the run was trained on]
    #[arg(long, value_name = "Z.npy|RUN")]
    input: Option<PathBuf>,

    /// Draw the explanation to this file
    #[arg(long, value_name = "FILE.svg")]
    svg: Option<PathBuf>,

    /// Replace the file of --svg where it exists
    #[arg(long, requires = "svg")]
    force: bool,

    /// Where to compute: auto, cpu, cuda, cuda:N or vulkan; `graphsieve info` shows what there is
    #[arg(long, default_value = "auto")]
    device: String,

    /// How to print the explanation
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

pub(super) fn run(arguments: Arguments, console: Console) -> Result<()> {
    if let Some(path) = &arguments.svg {
        check_new_file(path, arguments.force)?;
    }
    let Some(file) = TreeCheckpoint::file_of(&arguments.run) else {
        return Err(Error::Usage {
            argument: arguments.run.display().to_string(),
            expected: "the directory of a Stage-3 run, with checkpoint/best.json".into(),
            found: "another path".into(),
            help: "train one: graphsieve train configs/stage3.toml".into(),
        });
    };
    let checkpoint = TreeCheckpoint::read(&file)?;
    let data = match arguments.data {
        Some(data) => data,
        None => match RunConfig::load(&arguments.run.join("config.toml"), &[])? {
            RunConfig::Stage3(config) => config.data.path,
            _ => {
                return Err(Error::format(
                    &arguments.run,
                    "config.toml",
                    "task = \"stage3\"",
                    "another",
                    "give --data",
                ));
            }
        },
    };
    let dataset = Dataset::open(&data)?;
    let node = node_of(&dataset, &arguments.node)?;
    let choice = backend::choose(&arguments.device)?;
    console.note(format_args!("device: {}; {}", backend::description(&choice.device), choice.reason));
    let options = TableOptions {
        checkpoint: &arguments.run,
        run: arguments.run.is_dir().then_some(arguments.run.as_path()),
        data: &data,
        input: arguments.input.as_deref(),
    };
    let explanation = with_backend!(choice.device, |B, d| explain::<B>(&options, &checkpoint, &dataset, node, &d))?;
    if let Some(path) = &arguments.svg {
        plots::explanation(path, &explanation)?;
        console.note(format_args!("drawn: {}", path.display()));
    }
    arguments.format.print(&explanation)
}
