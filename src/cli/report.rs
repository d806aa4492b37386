//! `graphsieve report`

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::Args;

use super::{Compute, Console, check_new_file};
use crate::backend::with_backend;
use crate::error::Result;
use crate::graph::formats::atomic_write;
use crate::report;
use crate::run::tournament::Tournament;
use crate::score::explain::{Coverage, explain_run};
use crate::score::{Judged, ScoredRun, SideBySide};

/// Write a report of a run: one HTML file that a browser shows without network or server
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// Directory of a finished run: of Stage 1, 2 or 3, of node classification, of a pipeline or a tournament
    #[arg(value_name = "RUN")]
    run: PathBuf,

    /// Where the data of the run are now, if they were moved
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,

    /// Of a node classifier: look at this class against the rest [default: class 1 of two; of more the predicted class
    /// of each node]
    #[arg(long, value_name = "C")]
    class: Option<u32>,

    /// Where to write it [default: RUN/report.html]
    #[arg(long, value_name = "FILE.html")]
    out: Option<PathBuf>,

    /// Another run of the same kind whose test figures stand beside those of this one, e.g. of another window of the
    /// split; may be given several times
    #[arg(long, value_name = "RUN")]
    beside: Vec<PathBuf>,

    /// Number of the highest scores that are listed, of nodes without a label
    #[arg(long, value_name = "N", default_value_t = 25)]
    top: usize,

    /// List labelled nodes too, among the others
    #[arg(long)]
    all: bool,

    /// Leave out the drawings and the reasons of the list
    #[arg(long)]
    no_explanations: bool,

    #[command(flatten)]
    compute: Compute,

    /// Show it in the browser
    #[arg(long)]
    open: bool,

    /// Replace the file where it exists
    #[arg(long)]
    force: bool,
}

pub(super) fn run(arguments: Arguments, console: Console) -> Result<()> {
    let out = arguments.out.unwrap_or_else(|| arguments.run.join("report.html"));
    let scored = ScoredRun::open_at(&arguments.run, arguments.class, arguments.data.as_deref())?;
    check_new_file(&out, arguments.force)?;
    let mut data = report::of_run(&scored, arguments.top, arguments.all)?;
    if !arguments.no_explanations && !data.anomalies.is_empty() {
        let (device, _) = arguments.compute.choose(console)?;
        let nodes: Vec<u32> = data.anomalies.iter().map(|anomaly| anomaly.node).collect();
        let explanations = with_backend!(device, |B, d| explain_run::<B>(&scored, &nodes, &d))?;
        data.explain(explanations.iter().map(report::explained));
        data.coverage = Coverage::of(&scored)?;
    }
    data.tournament = Tournament::of_run(&arguments.run)?;
    if !arguments.beside.is_empty() {
        let runs = std::iter::once(&arguments.run).chain(&arguments.beside);
        let figures = runs.map(|run| Ok(Judged::open(run)?.own_figures())).collect::<Result<_>>()?;
        data.beside = SideBySide::new(false, figures)?.models;
    }
    let page = report::render(&data);
    atomic_write(&out, |file| file.write_all(page.as_bytes()))?;
    super::print(&out.display())?;
    if arguments.open {
        show(&out, console);
    }
    Ok(())
}

/// Asks the system to show a file. A report that cannot be shown is still there, so this is no error.
fn show(path: &Path, console: Console) {
    let program = match std::env::consts::OS {
        "macos" => "open",
        "windows" => "explorer",
        _ => "xdg-open",
    };
    let mut command = Command::new(program);
    command.arg(path).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    if let Err(refused) = command.spawn() {
        console.note(format_args!("cannot show it ({program}: {refused}); open it in a browser yourself"));
    }
}
