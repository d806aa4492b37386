//! Files that start the server elsewhere.

use std::fs;

use clap::Parser;
use graphsieve::cli::Cli;

use crate::support::repository;

fn is_taken(arguments: &[String]) {
    assert!(arguments.iter().any(|argument| argument == "serve"), "{arguments:?}");
    if let Err(refused) = Cli::try_parse_from(arguments) {
        panic!("{arguments:?}: {refused}");
    }
}

#[test]
fn the_program_takes_the_command_lines_of_the_unit_and_of_the_container() {
    let read = |file: &str| fs::read_to_string(repository("src/serve/deploy").join(file)).unwrap();
    let unit = read("graphsieve.service");
    let line = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
    is_taken(&line.split(' ').map(str::to_owned).collect::<Vec<_>>());
    let container = read("Containerfile");
    let line = container.lines().find_map(|line| line.strip_prefix("ENTRYPOINT ")).unwrap();
    is_taken(&serde_json::from_str::<Vec<String>>(line).unwrap());
}
