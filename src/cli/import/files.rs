//! `graphsieve import npz` and `graphsieve import mat`

use std::path::PathBuf;

use clap::Args;

use crate::cli::{Console, check_new_directory, print};
use crate::data::mat::{self, MatOptions};
use crate::error::Result;
use crate::graph::{Dataset, EdgeReading, Statistics};

/// A graph in one .npz file of NumPy arrays: node_features, node_labels, edges, masks
#[derive(Debug, Args)]
pub(super) struct Npz {
    /// File that np.savez wrote
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Data directory to make; absent or empty
    #[arg(long, value_name = "DIR")]
    out: PathBuf,

    /// Keep edges one-way instead of adding their mirror images
    #[arg(long)]
    directed: bool,
}

/// A graph in a MATLAB file of level 5 (save -v7): fraud graphs such as YelpChi, anomaly benchmarks
#[derive(Debug, Args)]
pub(super) struct Mat {
    /// File that MATLAB or scipy.io.savemat wrote
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Data directory to make; absent or empty
    #[arg(long, value_name = "DIR")]
    out: PathBuf,

    /// Variable of the features [default: features, Attributes or X]
    #[arg(long, value_name = "NAME")]
    features: Option<String>,

    /// Variable of the labels [default: label, Label, gnd or y]
    #[arg(long, value_name = "NAME")]
    labels: Option<String>,

    /// Variables of the relations [default: Network or A, else every square sparse matrix but homo]
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    relations: Vec<String>,
}

impl Npz {
    /// Reads the file and writes the directory.
    pub(super) fn run(self, console: Console) -> Result<()> {
        check_new_directory(&self.out)?;
        let dataset = Dataset::open_with(&self.file, EdgeReading { directed: self.directed })?;
        write(dataset, self.out, console)
    }
}

impl Mat {
    /// Reads the file and writes the directory.
    pub(super) fn run(self, console: Console) -> Result<()> {
        check_new_directory(&self.out)?;
        let Self { file: path, features, labels, relations, out } = self;
        write(mat::read(&MatOptions { path, features, labels, relations })?, out, console)
    }
}

fn write(dataset: Dataset, out: PathBuf, console: Console) -> Result<()> {
    let files = dataset.write(&out)?;
    console.note(format_args!("wrote {} files to {}", files.len(), out.display()));
    // With the notes of reading.
    print(&Statistics::of(&dataset))
}
