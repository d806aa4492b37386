//! Where there is no room to write, nothing half-written is left and nothing is said to be well.

use std::fs;
use std::process::{Command, Stdio};

use crate::support::{Said, Sandbox};

/// A limit on the size of files stands for a full disk: writing stops in the middle of a file.
#[test]
fn a_disk_that_fills_up_leaves_nothing_half_written() {
    let sandbox = Sandbox::new();
    let script = "trap '' XFSZ; ulimit -f 16; exec \"$0\" --quiet synth --scale 0.1 --out new/data";
    let mut shell = Command::new("sh");
    shell.args(["-c", script, env!("CARGO_BIN_EXE_graphsieve")]).current_dir(sandbox.path(""));
    Said::from(shell.output().unwrap()).is_refused(1, &["cannot write", "File too large"]);
    let left: Vec<_> = fs::read_dir(sandbox.path("new")).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_full_stdout_is_an_error_and_a_closed_one_is_not() {
    let sandbox = Sandbox::with_data();
    let mut info = Command::new(env!("CARGO_BIN_EXE_graphsieve"));
    info.args(["info", "--data", "data"]).current_dir(sandbox.path(""));
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let said = Said::from(info.stdout(full).output().unwrap());
    said.is_refused(1, &["stdout: cannot write: No space left on device"]);
    let mut child = info.stdout(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    assert!(child.wait().unwrap().success());
}
