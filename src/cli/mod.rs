//! The command line: one file per subcommand, which reads its arguments, calls the library and shows the result.
//!
//! Results go to stdout, everything else to stderr: through the `log` crate (see `logging`), so that it is text or JSON
//! as the user wants.

mod bench;
mod completions;
mod config;
mod embed;
mod eval;
mod explain;
mod export;
mod import;
mod info;
mod logging;
mod man;
mod moment;
mod plan;
mod processes;
mod report;
mod room;
mod score;
mod serve;
mod synth;
mod train;

use std::fmt::Display;
use std::fs;
use std::io::{self, Write};
use std::path::Path;

use clap::{Args, Parser, Subcommand, ValueEnum};
use log::LevelFilter;
use serde::Serialize;

use crate::backend::{self, Device};
use crate::error::{Error, Result};
use crate::run::progress::Mode;
use crate::timing::timed;

use self::logging::{LogFormat, plain};
pub use self::logging::{refuse, report_error};

/// Place in a help of what all commands have: behind the options of their own.
const LAST: usize = 900;

/// Finds anomalous users, products and sellers in marketplace graphs.
#[derive(Debug, Parser)]
#[command(name = "graphsieve", version, propagate_version = true, arg_required_else_help = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,

    /// Show no progress and no notes, only results and errors
    #[arg(long, global = true, display_order = LAST)]
    quiet: bool,

    /// Also say which files are read and written, and how long it takes
    #[arg(long, global = true, display_order = LAST + 1, conflicts_with = "quiet")]
    verbose: bool,

    /// What is said on stderr: text, or one JSON object per line
    #[arg(long, global = true, display_order = LAST + 2, value_enum, value_name = "FORMAT", default_value_t = LogFormat::Text)]
    log_format: LogFormat,
}

#[derive(Debug, Subcommand)]
enum Command {
    Import(import::Arguments),
    Synth(synth::Arguments),
    Train(train::Arguments),
    Embed(embed::Arguments),
    Score(score::Arguments),
    Serve(serve::Arguments),
    Eval(eval::Arguments),
    Explain(explain::Arguments),
    Report(report::Arguments),
    Export(export::Arguments),
    Info(info::Arguments),
    Plan(plan::Arguments),
    Bench(bench::Arguments),
    #[command(hide = true)]
    Benchmark(bench::Benchmark),
    Config(config::Arguments),
    Completions(completions::Arguments),
    Man(man::Arguments),
}

/// Runs a command line.
///
/// # Errors
/// What the command reports; [`Error::exit_code`] is the exit status.
pub fn run(cli: Cli) -> Result<()> {
    let console = Console { quiet: cli.quiet, format: cli.log_format };
    let most = match (cli.quiet, cli.verbose) {
        (true, _) => LevelFilter::Warn,
        (_, true) => LevelFilter::Debug,
        _ => LevelFilter::Info,
    };
    logging::start(cli.log_format, most);
    timed("the command", || run_command(cli.command, console))
}

fn run_command(command: Command, console: Console) -> Result<()> {
    match command {
        Command::Import(arguments) => import::run(arguments, console),
        Command::Synth(arguments) => synth::run(arguments, console),
        Command::Train(arguments) => train::run(arguments, console),
        Command::Embed(arguments) => embed::run(arguments, console),
        Command::Score(arguments) => score::run(arguments, console),
        Command::Serve(arguments) => serve::run(arguments, console),
        Command::Eval(arguments) => eval::run(arguments, console),
        Command::Explain(arguments) => explain::run(arguments, console),
        Command::Report(arguments) => report::run(arguments, console),
        Command::Export(arguments) => export::run(arguments, console),
        Command::Info(arguments) => info::run(arguments),
        Command::Plan(arguments) => plan::run(arguments),
        Command::Bench(arguments) => bench::run(arguments, console),
        Command::Benchmark(renamed) => bench::run(renamed.into(), console),
        Command::Config(arguments) => config::run(arguments, console),
        Command::Completions(arguments) => completions::run(&arguments),
        Command::Man(arguments) => man::run(&arguments, console),
    }
}

/// How a result is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people
    Table,
    /// For machines
    Json,
}

impl Format {
    /// Shows `result` on stdout.
    fn print(self, result: &(impl Display + Serialize)) -> Result<()> {
        match self {
            Format::Table => print(result),
            Format::Json => {
                let text = serde_json::to_string_pretty(result);
                print(&text.map_err(|fault| Error::io("stdout", "write", fault.into()))?)
            }
        }
    }
}

/// Writes a result to stdout, ending in one line end.
fn print(result: &impl Display) -> Result<()> {
    let text = plain(&result.to_string());
    let mut stdout = Stdout(io::stdout());
    let written = writeln!(stdout, "{}", text.trim_end_matches('\n')).and_then(|()| stdout.flush());
    written.map_err(|source| Error::io("stdout", "write", source))
}

/// Stdout, whose reader may have seen enough, as `head` has: what comes then is left out.
struct Stdout(io::Stdout);

impl Stdout {
    fn enough<T>(written: io::Result<T>, left_out: T) -> io::Result<T> {
        match written {
            Err(refused) if refused.kind() == io::ErrorKind::BrokenPipe => Ok(left_out),
            other => other,
        }
    }
}

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Self::enough(self.0.write(bytes), bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Self::enough(self.0.flush(), ())
    }
}

/// Where a command computes.
#[derive(Debug, Args)]
struct Compute {
    /// Where to compute: auto, cpu, cuda, cuda:N or vulkan; `graphsieve info` shows what there is
    #[arg(long, default_value = "auto")]
    device: String,
}

impl Compute {
    /// The device and its description; says which it is and why.
    fn choose(&self, console: Console) -> Result<(Device, String)> {
        let choice = timed("looking for devices", || backend::choose(&self.device))?;
        let description = backend::description(&choice.device);
        console.note(format_args!("device: {description}; {}", choice.reason));
        Ok((choice.device, description))
    }
}

/// What is said besides results.
#[derive(Debug, Clone, Copy)]
struct Console {
    quiet: bool,
    format: LogFormat,
}

impl Console {
    fn progress(self) -> Mode {
        match self.format {
            _ if self.quiet => Mode::Quiet,
            LogFormat::Json => Mode::Json,
            LogFormat::Text => Mode::detect(),
        }
    }

    /// The same of a process that leaves the word to another.
    fn silenced(self) -> Self {
        log::set_max_level(log::LevelFilter::Warn.min(log::max_level()));
        Self { quiet: true, ..self }
    }

    /// A line on stderr that the user may miss.
    fn note(self, text: impl Display) {
        log::info!("{text}");
    }

    /// Says what is being done.
    fn step(self, text: &str) {
        self.note(format_args!("{text} ..."));
    }
}

/// A number of bytes: `4G`.
fn size(text: &str) -> std::result::Result<u64, String> {
    let digits = text.trim_end_matches(|last: char| last.is_ascii_alphabetic());
    let power = match &text[digits.len()..] {
        "" => Some(0),
        "K" => Some(1),
        "M" => Some(2),
        "G" => Some(3),
        "T" => Some(4),
        _ => None,
    };
    let bytes = power.and_then(|power| digits.parse::<u64>().ok()?.checked_mul(1024u64.pow(power)));
    bytes.ok_or_else(|| "expected a number of bytes, such as 4G, 512M or 65536".into())
}

/// Refuses an output directory that could not be written in the end, before any work is done.
fn check_new_directory(dir: &Path) -> Result<()> {
    match fs::read_dir(dir) {
        Ok(mut entries) => match entries.next() {
            None => Ok(()),
            Some(_) => exists(dir, "choose another directory, or remove this one yourself"),
        },
        Err(refused) if refused.kind() == io::ErrorKind::NotFound => check_ancestor(dir),
        Err(refused) => Err(Error::io(dir, "create", refused)),
    }
}

/// Refuses an output file that exists (unless `force`) or that could not be written in the end.
fn check_new_file(path: &Path, force: bool) -> Result<()> {
    match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => Err(Error::io(path, "write", io::ErrorKind::IsADirectory.into())),
        Ok(_) if force => Ok(()),
        Ok(_) => exists(path, "choose another name, or give --force to replace it"),
        Err(refused) if refused.kind() == io::ErrorKind::NotFound => check_ancestor(path),
        Err(refused) => Err(Error::io(path, "write", refused)),
    }
}

/// The nearest ancestor that exists has to be a directory.
fn check_ancestor(path: &Path) -> Result<()> {
    match path.ancestors().skip(1).find(|ancestor| ancestor.exists()) {
        Some(ancestor) if !ancestor.is_dir() => Err(Error::io(path, "create", io::ErrorKind::NotADirectory.into())),
        _ => Ok(()),
    }
}

fn exists(path: &Path, help: &str) -> Result<()> {
    Err(Error::Exists { path: path.into(), help: help.into() })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_argument_is_explained() {
        fn check(command: &clap::Command) {
            assert!(command.get_about().is_some(), "{} has no description", command.get_name());
            for argument in command.get_arguments() {
                assert!(argument.get_help().is_some(), "{} {}", command.get_name(), argument.get_id());
            }
            command.get_subcommands().for_each(check);
        }
        check(&Cli::command());
    }

    #[test]
    fn what_all_commands_have_stands_behind_their_own_options() {
        let of_all = ["--quiet", "--verbose", "--log-format", "--help", "--version"];
        let mut cli = Cli::command();
        cli.build();
        for command in cli.get_subcommands_mut() {
            let help = command.render_help().to_string();
            let options = help.lines().map(str::trim_start).filter(|line| line.starts_with('-'));
            assert!(options.map(|line| of_all.iter().any(|name| line.contains(name))).is_sorted(), "{help}");
        }
    }

    #[test]
    fn an_output_that_cannot_be_written_is_refused_at_once() {
        let dir = tempfile::tempdir().unwrap();
        assert!(check_new_directory(dir.path()).is_ok(), "an empty directory is taken");
        assert!(check_new_directory(&dir.path().join("a/b")).is_ok());
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(matches!(check_new_directory(dir.path()), Err(Error::Exists { .. })));
        assert!(matches!(check_new_directory(&file), Err(Error::Io { .. })));
        assert!(matches!(check_new_directory(&file.join("below/it")), Err(Error::Io { .. })));
        assert!(matches!(check_new_file(&file, false), Err(Error::Exists { .. })));
        assert!(check_new_file(&file, true).is_ok() && check_new_file(&dir.path().join("new"), false).is_ok());
        assert!(matches!(check_new_file(dir.path(), true), Err(Error::Io { .. })));
    }
}
