//! `graphsieve explain`

use std::io::Write;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde::Serialize;

use super::{Compute, Console, check_new_file, print};
use crate::backend::with_backend;
use crate::error::{Error, Result};
use crate::graph::formats::atomic_write;
use crate::score::explain::{Coverage, Explanation, drawing, explain_members, node_of, open_run};

/// Say which neighbours and which features made the score of a node (runs of Stage 1, 2 and 3 and of node
/// classification)
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// Directory of a run
    #[arg(value_name = "RUN")]
    run: PathBuf,

    /// The node: a global number, TYPE:ID or an id of the data
    #[arg(long, value_name = "NODE")]
    node: String,

    /// Of a node classifier: the class whose probability is explained [default: class 1 of two; of more the class that
    /// is predicted of the node]
    #[arg(long, value_name = "C")]
    class: Option<u32>,

    /// Data of the node [default: what the run was trained on]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,

    /// Embeddings of Stage 1 for these data [default: those that the run was trained on]
    #[arg(long, value_name = "Z.npy|RUN")]
    input: Option<PathBuf>,

    /// How to say it; svg draws the node with its neighbours [default: by the extension of --out, else table]
    #[arg(long, value_enum)]
    format: Option<OutputFormat>,

    /// File to write [default: stdout]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,

    /// Replace the file of --out where it exists
    #[arg(long, requires = "out")]
    force: bool,

    #[command(flatten)]
    compute: Compute,
}

/// How an explanation is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum OutputFormat {
    /// For people
    Table,
    /// For machines
    Json,
    /// A drawing of the neighbourhood
    Svg,
}

impl OutputFormat {
    fn of(arguments: &Arguments) -> Self {
        let by_name = |path: &PathBuf| match path.extension()?.to_str()?.to_lowercase().as_str() {
            "json" => Some(OutputFormat::Json),
            "svg" => Some(OutputFormat::Svg),
            _ => None,
        };
        let named = arguments.format.or_else(|| arguments.out.as_ref().and_then(by_name));
        named.unwrap_or(OutputFormat::Table)
    }

    fn text(self, explanation: &Explanation) -> Result<String> {
        Ok(match self {
            OutputFormat::Table => explanation.to_string(),
            OutputFormat::Json => serde_json::to_string_pretty(explanation)
                .map_err(|fault| Error::io("the explanation", "write", fault.into()))?,
            OutputFormat::Svg => drawing::neighbourhood(explanation),
        })
    }
}

/// What an ensemble says of a node.
#[derive(Serialize)]
struct OfEnsemble<'a> {
    node: u32,
    /// The mean of the calibrated scores of its members.
    score: f32,
    members: Vec<OfMember<'a>>,
    /// Names of the models that it averages, too.
    not_explained: &'a [String],
}

/// And one of its members.
#[derive(Serialize)]
struct OfMember<'a> {
    member: &'a str,
    explanation: &'a Explanation,
}

impl OutputFormat {
    /// What each member of an ensemble says, one after the other, and which models within them say nothing.
    fn texts(self, score: f32, coverage: &Coverage, members: &[(String, Vec<Explanation>)]) -> Result<String> {
        let told = members.iter().filter_map(|(name, own)| own.first().map(|explanation| (name, explanation)));
        match self {
            OutputFormat::Table => {
                let names = coverage.members.join(", ");
                let mut text = format!("score {score:.4}: the mean of the probabilities of {names}\n");
                if !coverage.not_explained.is_empty() {
                    text += &format!("not explained: {}\n", coverage.not_explained.join(", "));
                }
                for (name, explanation) in told {
                    text += &format!("\n{name}\n{explanation}");
                }
                Ok(text)
            }
            OutputFormat::Json => {
                let members: Vec<OfMember> =
                    told.map(|(member, explanation)| OfMember { member, explanation }).collect();
                let node = members.first().map_or(0, |of| of.explanation.node);
                let not_explained = &coverage.not_explained[..];
                serde_json::to_string_pretty(&OfEnsemble { node, score, members, not_explained })
                    .map_err(|fault| Error::io("the explanation", "write", fault.into()))
            }
            OutputFormat::Svg => Err(Error::Usage {
                argument: "--format svg".into(),
                expected: "table or json with an ensemble: each of its members has a drawing of its own".into(),
                found: "svg".into(),
                help: "give the run of a member, beside that of the ensemble in RUN/candidates".into(),
            }),
        }
    }
}

pub(super) fn run(arguments: Arguments, console: Console) -> Result<()> {
    if let Some(path) = &arguments.out {
        check_new_file(path, arguments.force)?;
    }
    let path = &arguments.run;
    let (device, _) = arguments.compute.choose(console)?;
    let (score, coverage, members) = with_backend!(device, |B, d| {
        let Arguments { class, data, input, .. } = &arguments;
        open_run::<B>(path, *class, data.as_deref(), input.as_deref(), &d).and_then(|run| {
            let node = node_of(&run.dataset, &arguments.node)?;
            let coverage = Coverage::of(&run)?;
            explain_members::<B>(&run, &[node], &d).map(|said| (run.scores[node as usize], coverage, said))
        })
    })?;
    let format = OutputFormat::of(&arguments);
    let text = match &coverage {
        None => format.text(&members[0].1[0])?,
        Some(coverage) => format.texts(score, coverage, &members)?,
    };
    match &arguments.out {
        None => print(&text),
        Some(path) => {
            atomic_write(path, |file| writeln!(file, "{}", text.trim_end_matches('\n')))?;
            console.note(format_args!("explained: {}", path.display()));
            Ok(())
        }
    }
}
