//! What is said on stderr: text or JSON, more or less of it, never a colour in a pipe.

use std::process::Command;

use serde_json::Value;

use crate::support::Sandbox;

/// Every line as an object with a time, a known level and a message.
fn objects(stderr: &str) -> Vec<Value> {
    let object = |line: &str| -> Value {
        let object: Value = serde_json::from_str(line).unwrap_or_else(|fault| panic!("{fault}: {line}"));
        assert!(object["time"].as_str().is_some_and(|time| time.ends_with('Z')), "{line}");
        assert!(object["message"].is_string(), "{line}");
        let levels = ["detail", "note", "progress", "warning", "error"];
        assert!(levels.contains(&object["level"].as_str().unwrap()), "{line}");
        object
    };
    stderr.lines().map(object).collect()
}

#[test]
fn every_line_for_machines_is_an_object() {
    let sandbox = Sandbox::new();
    let said = sandbox.succeeds(["--log-format", "json", "synth", "--scale", "0.1", "--out", "data"]);
    let objects = objects(&said.stderr);
    let progress: Vec<&Value> = objects.iter().filter(|object| object["level"] == "progress").collect();
    assert!(!progress.is_empty(), "{}", said.stderr);
    for object in progress {
        assert!(object["stage"].is_string() && object["rate"].is_number(), "{object}");
        assert!(object["done"].as_u64() <= object["total"].as_u64(), "{object}");
    }
    assert!(objects.iter().any(|object| object["level"] == "note"), "{}", said.stderr);
    assert!(said.stdout.contains("node type"), "results stay text: {}", said.stdout);
}

#[test]
fn libraries_say_nothing_beside_the_objects_where_there_is_no_desktop() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_graphsieve"));
    command.args(["--log-format", "json", "info"]).env_remove("XDG_RUNTIME_DIR");
    objects(&String::from_utf8(command.output().unwrap().stderr).unwrap());
}

#[test]
fn errors_for_machines_are_objects_too() {
    let sandbox = Sandbox::new();
    sandbox.write("run.toml", "task = \"stage2\"\n[data]\npath = \"d\"\n[drop_edge]\nrate = 1.2\n");
    let error = |arguments: &[&str], code: i32| {
        let said = sandbox.run([&["--log-format=json"], arguments].concat());
        assert_eq!(said.code, Some(code), "{}", said.stderr);
        let objects = objects(&said.stderr);
        assert_eq!(objects.last().unwrap()["level"], "error", "{}", said.stderr);
        objects.last().unwrap()["message"].as_str().unwrap().to_owned()
    };
    assert!(error(&["config", "check", "run.toml"], 2).contains("run.toml:5: drop_edge.rate = 1.2"));
    assert!(error(&["config", "chek"], 2).starts_with("unrecognized subcommand"));
    assert!(error(&["config", "init", "--data", "nowhere"], 1).contains("nowhere: cannot open"));
}

#[test]
fn a_configuration_error_shows_its_line_with_a_mark() {
    let sandbox = Sandbox::new();
    sandbox.write("run.toml", "task = \"stage2\"\n\n[drop_edge]\nrate = 1.2 # dense\n");
    let shown =
        "run.toml:4: drop_edge.rate = 1.2: expected a number in [0, 1)\n  |\n4 | rate = 1.2 # dense\n  |        ^^^\n";
    sandbox.refuses(["config", "check", "run.toml"], 2, &[shown]);
    sandbox.write("run.toml", "task = \"stage2\"\n[trian]\nepochs = 3\n");
    sandbox.refuses(["config", "check", "run.toml"], 2, &["\n3 | epochs = 3\n  | ^^^^^^\n", "did you mean"]);
    sandbox.write("run.toml", "task = = 1\n");
    sandbox.refuses(["config", "check", "run.toml"], 2, &["\n1 | task = = 1\n  |        ^\n"]);
}

#[test]
fn verbose_says_what_was_written_and_quiet_says_nothing() {
    let sandbox = Sandbox::new();
    let said = sandbox.succeeds(["--verbose", "synth", "--scale", "0.1", "--out", "data"]);
    assert!(said.stderr.contains("wrote data/labels.npy, ") && said.stderr.contains("the command took "), "{said:?}");
    let said = sandbox.succeeds(["synth", "--scale", "0.1", "--out", "more"]);
    assert!(!said.stderr.contains("labels.npy") && said.stderr.contains("wrote "), "{said:?}");
    for format in ["text", "json"] {
        let out = format!("quiet-{format}");
        let said = sandbox.succeeds(["--quiet", "--log-format", format, "synth", "--scale", "0.1", "--out", &out]);
        assert_eq!(said.stderr, "");
    }
    sandbox.refuses(["--quiet", "--verbose", "config", "check", "x"], 2, &["cannot be used with"]);
}

#[test]
fn a_pipe_gets_no_colours() {
    for no_color in [None, Some("1")] {
        for arguments in [&["--help"][..], &["trian"], &["config", "check", "nowhere.toml"]] {
            let mut command = Command::new(env!("CARGO_BIN_EXE_graphsieve"));
            command.args(arguments).env_remove("NO_COLOR").env_remove("CLICOLOR_FORCE");
            no_color.map(|value| command.env("NO_COLOR", value));
            let output = command.output().unwrap();
            assert!(!output.stdout.contains(&0x1b) && !output.stderr.contains(&0x1b), "{arguments:?}");
        }
    }
}
