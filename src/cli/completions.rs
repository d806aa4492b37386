//! `graphsieve completions`

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use super::{Cli, print};
use crate::error::Result;

/// Print what a shell needs to complete commands, arguments and values
#[derive(Debug, Args)]
#[command(after_help = "bash: graphsieve completions bash > ~/.local/share/bash-completion/completions/graphsieve\n\
                        zsh:  graphsieve completions zsh > DIR/_graphsieve, DIR being in $fpath\n\
                        fish: graphsieve completions fish > ~/.config/fish/completions/graphsieve.fish")]
pub(super) struct Arguments {
    /// Shell to complete in
    #[arg(value_enum)]
    shell: Shell,
}

pub(super) fn run(arguments: &Arguments) -> Result<()> {
    print(&script(arguments.shell))
}

fn script(shell: Shell) -> String {
    let mut command = Cli::command();
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, "graphsieve", &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;

    #[test]
    fn every_shell_completes_every_subcommand_and_its_arguments() {
        for shell in Shell::value_variants() {
            let script = script(*shell);
            for command in Cli::command().get_subcommands() {
                assert!(script.contains(command.get_name()), "{shell} lacks {}", command.get_name());
                for argument in command.get_arguments().filter_map(clap::Arg::get_long) {
                    assert!(script.contains(argument), "{shell} lacks {} --{argument}", command.get_name());
                }
            }
            assert!(script.contains("log-format") && script.contains("check"), "{shell}: global and nested ones");
        }
    }
}
