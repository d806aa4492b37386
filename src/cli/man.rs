//! `graphsieve man`

use std::io::{self, Write};
use std::path::PathBuf;

use clap::{Args, Command, CommandFactory};
use clap_mangen::Man;

use super::{Cli, Console, check_new_file, print};
use crate::error::{Error, Result};
use crate::graph::atomic_write;

/// Write manual pages: the main page to stdout, or those of all commands to a directory
#[derive(Debug, Args)]
#[command(after_help = "For example: graphsieve man --out ~/.local/share/man/man1; then: man graphsieve-train")]
pub(super) struct Arguments {
    /// Directory for the pages of all commands
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// Replace pages that exist
    #[arg(long)]
    force: bool,
}

pub(super) fn run(arguments: &Arguments, console: Console) -> Result<()> {
    let pages = pages().map_err(|source| Error::io("manual page", "make", source))?;
    let Some(dir) = &arguments.out else {
        let main = pages.first().map(|page| String::from_utf8_lossy(&page.text)).unwrap_or_default();
        return print(&main);
    };
    for page in &pages {
        check_new_file(&dir.join(&page.file), arguments.force)?;
    }
    for page in &pages {
        atomic_write(dir.join(&page.file), |file| file.write_all(&page.text))?;
    }
    console.note(format_args!("wrote {} pages to {}", pages.len(), dir.display()));
    Ok(())
}

/// A page in roff.
struct Page {
    file: String,
    text: Vec<u8>,
}

/// The main page first, then those of all commands, the nested ones behind the one that they belong to.
fn pages() -> io::Result<Vec<Page>> {
    fn add(command: &Command, pages: &mut Vec<Page>) -> io::Result<()> {
        let man = Man::new(command.clone());
        let mut text = Vec::new();
        man.render(&mut text)?;
        pages.push(Page { file: man.get_filename(), text });
        command.get_subcommands().try_for_each(|nested| add(nested, pages))
    }
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    let mut pages = Vec::new();
    add(&command, &mut pages)?;
    Ok(pages)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page_with_its_arguments() {
        fn check(command: &Command, name: &str, pages: &[Page]) {
            let file = format!("{name}.1");
            let page = pages.iter().find(|page| page.file == file).unwrap_or_else(|| panic!("no {file}"));
            let text = String::from_utf8(page.text.clone()).unwrap().replace('\\', "");
            for argument in command.get_arguments().filter_map(clap::Arg::get_long) {
                assert!(text.contains(&format!("--{argument}")), "{file} lacks --{argument}");
            }
            command.get_subcommands().for_each(|nested| check(nested, &format!("{name}-{}", nested.get_name()), pages));
        }
        let pages = pages().unwrap();
        assert_eq!(pages[0].file, "graphsieve.1");
        check(&Cli::command(), "graphsieve", &pages);
    }
}
