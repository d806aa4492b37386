//! `graphsieve score`

use std::path::PathBuf;

use clap::Args;

use super::{Console, check_new_file};
use crate::backend::{self, with_backend};
use crate::error::{Error, Result};
use crate::score::{self, ScoreOptions};

/// Score every node of a data directory with a trained model
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// Checkpoint file, or the directory of a run (its best checkpoint)
    #[arg(long, value_name = "FILE|RUN")]
    checkpoint: PathBuf,

    /// Data directory to score
    #[arg(long, value_name = "DIR")]
    data: PathBuf,

    /// Scores to write: float32, one per node, higher = more anomalous
    #[arg(long, value_name = "SCORES.npy")]
    out: PathBuf,

    /// Input of the model: embeddings (.npy) or a Stage-1 run [default: those that a RUN was trained on, else
    /// Z_embeddings_stage1.npy of the data directory]
    #[arg(long, value_name = "Z.npy|RUN")]
    input: Option<PathBuf>,

    /// Also write the refined embeddings of all nodes
    #[arg(long, value_name = "Z.npy")]
    embeddings: Option<PathBuf>,

    /// Where to compute: auto, cpu, cuda, cuda:N or vulkan; `graphsieve info` shows what there is
    #[arg(long, default_value = "auto")]
    device: String,

    /// Replace outputs that exist
    #[arg(long)]
    force: bool,
}

pub(super) fn run(arguments: Arguments, console: Console) -> Result<()> {
    let outputs = std::iter::once(&arguments.out).chain(&arguments.embeddings);
    outputs.into_iter().try_for_each(|path| check_new_file(path, arguments.force))?;
    if arguments.embeddings.as_ref() == Some(&arguments.out) {
        return Err(Error::Usage {
            argument: "--embeddings".into(),
            expected: "another file than --out".into(),
            found: arguments.out.display().to_string(),
            help: "scores and embeddings are two arrays".into(),
        });
    }
    let choice = backend::choose(&arguments.device)?;
    console.note(format_args!("device: {}; {}", backend::description(&choice.device), choice.reason));
    let options = ScoreOptions {
        checkpoint: arguments.checkpoint,
        data: arguments.data,
        out: arguments.out,
        embeddings_out: arguments.embeddings,
        input: arguments.input,
    };
    let written = with_backend!(choice.device, |B, d| score::run::<B>(&options, &d))?;
    console.note(format_args!("{} scores: {}", written.nodes, options.out.display()));
    if let Some(path) = &options.embeddings_out {
        console.note(format_args!("{} embeddings: {}", written.nodes, path.display()));
    }
    Ok(())
}
