//! `graphsieve bench gad`

use std::path::PathBuf;

use clap::builder::PossibleValue;
use clap::{Args, ValueEnum};

use super::super::{Compute, Console, check_new_directory};
use super::Figures;
use crate::backend::with_backend;
use crate::bench::gad::{self, GadOptions, Model, Protocol};
use crate::error::Result;

/// Anomalous nodes on the ten splits of GADBench: AUROC, AUPRC and Rec@K of its forest and booster, and of all
/// candidates of a tournament, trees and networks
#[derive(Debug, Args)]
pub(in crate::cli) struct Arguments {
    /// Graph with features and labels 0 and 1: an .npz file or a data directory
    #[arg(long, value_name = "GRAPH")]
    data: PathBuf,

    /// Share of labelled nodes
    #[arg(long, value_enum, default_value_t = Protocol::Full)]
    protocol: Protocol,

    /// Models, separated by commas [default: all that suit the data]
    #[arg(long, value_enum, value_name = "MODEL", value_delimiter = ',')]
    models: Vec<Model>,

    /// Number of splits; the protocol has 10
    #[arg(long, value_name = "N", default_value_t = 10)]
    splits: usize,

    /// Share of the labels for training in `full`; 0.5 for the tolokers and questions of the benchmark
    #[arg(long, value_name = "X", default_value_t = 0.4)]
    train_share: f64,

    /// Share of the labels for validation in `full`; 0.25 for the tolokers and questions of the benchmark
    #[arg(long, value_name = "X", default_value_t = 0.2)]
    validation_share: f64,

    /// Also write columns, splits and settings to this new directory, for tests/peers/gad_trees.py
    #[arg(long, value_name = "DIR")]
    export: Option<PathBuf>,

    #[command(flatten)]
    compute: Compute,

    #[command(flatten)]
    figures: Figures,
}

impl ValueEnum for Model {
    fn value_variants<'a>() -> &'a [Self] {
        Model::all()
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.name()))
    }
}

pub(super) fn run(arguments: Arguments, console: Console) -> Result<()> {
    arguments.figures.check()?;
    if let Some(dir) = &arguments.export {
        check_new_directory(dir)?;
    }
    let (device, description) = arguments.compute.choose(console)?;
    let options = GadOptions {
        data: arguments.data,
        protocol: arguments.protocol,
        models: arguments.models,
        splits: arguments.splits,
        shares: [arguments.train_share, arguments.validation_share],
        export: arguments.export,
        description,
    };
    let note = |text: &str| console.note(text);
    let mode = console.progress();
    let report = with_backend!(device, |B, d| gad::run::<B>(&options, &d, mode, &note))?;
    arguments.figures.give(&report)
}
