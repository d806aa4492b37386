//! `graphsieve synth`

use std::path::PathBuf;

use clap::Args;

use super::{Console, check_new_directory, print};
use crate::data::synth::payments::{self, PaymentsConfig};
use crate::data::synth::{DEFAULT_SEED, Preset, SynthConfig, generate_with_rings, split_by_rings};
use crate::error::{Error, Result, nearest_name};
use crate::graph::Statistics;
use crate::run::progress::{StageProgress, Unit};

/// Make a synthetic marketplace with planted review fraud, or tables of card payments with planted fraud
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// Shape and size: quickstart (5,000 nodes), luxury-beauty (16,000), electronics (1.5 million), or payments (tables
    /// of 1.78 million payments, for `graphsieve import tables`)
    #[arg(long, default_value = Preset::Quickstart.name())]
    preset: String,

    /// Factor on the number of nodes, of payments on customers and terminals; above 0
    #[arg(long, value_name = "X", default_value_t = 1.0)]
    scale: f64,

    /// Seed of everything random
    #[arg(long, default_value_t = DEFAULT_SEED)]
    seed: u64,

    /// Of a marketplace: store a split of the labels in which no review ring has members on two sides, for figures
    /// about rings that a training never saw [default: the configuration of a training divides the labels at random]
    #[arg(long)]
    split_by_rings: bool,

    /// Directory to make; absent or empty
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

/// The preset that makes tables.
const PAYMENTS: &str = "payments";

/// What a preset makes.
enum World {
    Marketplace(Preset),
    Payments,
}

impl World {
    fn named(name: &str) -> Result<Self> {
        let names = || Preset::ALL.map(Preset::name).into_iter().chain([PAYMENTS]);
        match Preset::ALL.into_iter().find(|preset| preset.name() == name) {
            Some(preset) => Ok(Self::Marketplace(preset)),
            None if name == PAYMENTS => Ok(Self::Payments),
            None => Err(Error::Usage {
                argument: "--preset".into(),
                expected: names().collect::<Vec<_>>().join(", "),
                found: format!("{name:?}"),
                help: match nearest_name(name, names()) {
                    Some(nearest) => format!("did you mean {nearest}?"),
                    None => "`graphsieve synth --help` says what each of them is".into(),
                },
            }),
        }
    }
}

pub(super) fn run(arguments: Arguments, console: Console) -> Result<()> {
    let world = World::named(&arguments.preset)?;
    if !(arguments.scale.is_finite() && arguments.scale > 0.0) {
        return Err(Error::Usage {
            argument: "--scale".into(),
            expected: "a number above 0".into(),
            found: arguments.scale.to_string(),
            help: "1 is the size of the preset".into(),
        });
    }
    check_new_directory(&arguments.out)?;
    let progress = StageProgress::with_mode(Unit::Items, console.progress());
    let wrote = |files: usize| console.note(format_args!("wrote {files} files to {}", arguments.out.display()));
    match world {
        World::Marketplace(preset) => {
            let config = SynthConfig { seed: arguments.seed, ..SynthConfig::preset(preset).scaled(arguments.scale) };
            let (mut dataset, rings) = generate_with_rings(&config, &progress.callback())?;
            if arguments.split_by_rings {
                dataset.split = Some(split_by_rings(&dataset, &rings, arguments.seed)?);
            }
            wrote(dataset.write(&arguments.out)?.len());
            print(&Statistics::of(&dataset))
        }
        World::Payments if arguments.split_by_rings => Err(Error::Usage {
            argument: "--split-by-rings".into(),
            expected: "a marketplace".into(),
            found: format!("--preset {PAYMENTS}"),
            help: "its graph.toml has a [split]".into(),
        }),
        World::Payments => {
            let config = PaymentsConfig { seed: arguments.seed, ..PaymentsConfig::default().scaled(arguments.scale) };
            let payments = payments::generate(&config, &progress.callback())?;
            wrote(payments::write(&config, &payments, &arguments.out)?.len());
            print(&payments::Summary::of(&config, &payments))
        }
    }
}
