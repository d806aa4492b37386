//! `graphsieve embed`

use std::path::PathBuf;

use clap::Args;

use super::{Compute, Console, check_new_file, size};
use crate::backend::with_backend;
use crate::config::RunConfig;
use crate::error::{Error, Result};
use crate::graph::formats::parent_of;
use crate::graph::{Dataset, Spill, write_npy_f32};
use crate::infer::embed::Stage1;
use crate::run::bundle::{Bundle, Reads, STAGE1_DIR};
use crate::run::model::embedder_of;

/// Write Stage-1 embeddings of a graph that the training need not have seen
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// Directory of a run of Stage 1 or of a pipeline, or of one that holds a copy of its weights, or a checkpoint file
    #[arg(value_name = "RUN|FILE")]
    checkpoint: PathBuf,

    /// Data directory with the node types, relations and feature columns of the training [default: the data of the run]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,

    /// File to write: a float32 row per node
    #[arg(long, value_name = "Z.npy")]
    out: PathBuf,

    /// Embed layer by layer, with at most so much memory for the rows between layers: a layer that needs more lies in a
    /// temporary file beside --out. In bytes, or with K, M, G or T for powers of 1024
    #[arg(long, value_name = "SIZE", value_parser = size)]
    memory: Option<u64>,

    #[command(flatten)]
    compute: Compute,

    /// Replace the file where it exists
    #[arg(long)]
    force: bool,
}

pub(super) fn run(mut arguments: Arguments, console: Console) -> Result<()> {
    check_new_file(&arguments.out, arguments.force)?;
    arguments.checkpoint = embedder_of(&arguments.checkpoint)?;
    let run = &arguments.checkpoint;
    let bundle = if run.is_dir() { Bundle::open(run)? } else { None };
    let (copy, config) = (run.join(STAGE1_DIR), run.join("config.toml"));
    let own = config.is_file().then(|| RunConfig::load_kept(&config, &[])).transpose()?;
    if own.as_ref().is_some_and(|own| !matches!(own, RunConfig::Stage1(_))) && !copy.is_dir() {
        return Err(Error::Usage {
            argument: run.display().to_string(),
            expected: "a run of Stage 1 or of a pipeline, or one that holds a copy of its weights".into(),
            found: "a run of another task".into(),
            help: "embeddings are made by a run of Stage 1; give its directory or its checkpoint".into(),
        });
    }
    let stage1 = Stage1::open(if copy.is_dir() { &copy } else { run })?;
    let own = own.map(|config| config.data_path().to_path_buf());
    let data = arguments.data.clone().or(own).ok_or_else(|| Error::Usage {
        argument: "--data".into(),
        expected: "the data to embed: a checkpoint file does not know them".into(),
        found: "none".into(),
        help: "give --data DIR, or the directory of a run instead of a file".into(),
    })?;
    let dataset = Dataset::open(&data)?;
    if let Some(bundle) = bundle {
        bundle.check(run, &dataset, &data, Reads::Features)?;
    }
    let (device, _) = arguments.compute.choose(console)?;
    let spill = Spill::new(arguments.memory, parent_of(&arguments.out));
    let z = with_backend!(device, |B, d| stage1.embed::<B>(&dataset, &data, &spill, &d))?;
    write_npy_f32(&arguments.out, &z.as_f32())?;
    console.note(format_args!("{} embeddings of {} columns: {}", z.num_rows(), z.dim(), arguments.out.display()));
    Ok(())
}
