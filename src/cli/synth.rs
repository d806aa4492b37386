//! `graphsieve synth`

use std::path::PathBuf;

use clap::Args;

use super::{Console, check_new_directory, print};
use crate::data::synth::{DEFAULT_SEED, Preset, SynthConfig, generate};
use crate::error::{Error, Result};
use crate::graph::Statistics;
use crate::run::progress::{StageProgress, Unit};

/// Make a synthetic marketplace with planted review fraud
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// Shape and size: quickstart (5,000 nodes), luxury-beauty (16,000) or electronics (1.5 million)
    #[arg(long, default_value = Preset::Quickstart.name())]
    preset: String,

    /// Factor on the number of nodes, above 0
    #[arg(long, value_name = "X", default_value_t = 1.0)]
    scale: f64,

    /// Seed of everything random
    #[arg(long, default_value_t = DEFAULT_SEED)]
    seed: u64,

    /// Data directory to make; absent or empty
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

pub(super) fn run(arguments: Arguments, console: Console) -> Result<()> {
    let preset: Preset = arguments.preset.parse()?;
    if !(arguments.scale.is_finite() && arguments.scale > 0.0) {
        return Err(Error::Usage {
            argument: "--scale".into(),
            expected: "a number above 0".into(),
            found: arguments.scale.to_string(),
            help: "1 is the size of the preset".into(),
        });
    }
    check_new_directory(&arguments.out)?;
    let config = SynthConfig { seed: arguments.seed, ..SynthConfig::preset(preset).scaled(arguments.scale) };
    let progress = StageProgress::with_mode(Unit::Items, console.progress());
    let dataset = generate(&config, &progress.callback())?;
    let files = dataset.write(&arguments.out)?;
    console.note(format_args!("wrote {} files to {}", files.len(), arguments.out.display()));
    print(&Statistics::of(&dataset))
}
