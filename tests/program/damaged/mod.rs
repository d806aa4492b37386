//! Damaged, contradictory and missing inputs, through the program. The tables beside this file say what is there, how
//! it is damaged, what is run, and what the answer holds: the file, key or line, and what is expected there. No
//! refusal leaves or changes anything. A case is a line of a table; those of `accepted.toml` only look damaged.

mod bases;
mod change;

use std::fs;
use std::io::{Write as _, stderr};
use std::os::unix::process::CommandExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{available_parallelism, scope};

use serde::Deserialize;

use self::bases::Bases;
use self::change::Change;
use crate::support::{Said, Sandbox, repository};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    group: Vec<Group>,
}

/// Cases that begin with the same inputs and run the same command.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Group {
    /// The inputs before the damage, see [`Bases`].
    base: String,
    /// Damage of every case.
    #[serde(default)]
    before: Vec<Change>,
    /// The command line, to which a case may add.
    run: String,
    /// Exit status.
    code: i32,
    /// The file of `texts` and `edits`.
    #[serde(default)]
    file: String,
    /// Further arguments, then words.
    #[serde(default)]
    lines: Vec<Vec<String>>,
    /// Another text of `file`, then words.
    #[serde(default)]
    texts: Vec<Vec<String>>,
    /// What is replaced in `file`, by what, then words.
    #[serde(default)]
    edits: Vec<Vec<String>>,
    #[serde(default)]
    cases: Vec<Case>,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    #[serde(default)]
    change: Vec<Change>,
    #[serde(default)]
    arguments: Vec<String>,
    /// Variables with their value, or without one those that are not there.
    #[serde(default)]
    environment: Vec<Vec<String>>,
    says: Vec<String>,
}

impl Group {
    fn all(&self) -> Vec<Case> {
        let case = |name: String, change, arguments, says: &[String]| Case {
            name,
            change,
            arguments,
            environment: Vec::new(),
            says: says.to_vec(),
        };
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect();
        let lines = self.lines.iter().map(|row| case(row[0].clone(), Vec::new(), words(&row[0]), &row[1..]));
        let texts = self.texts.iter().map(|row| {
            let change = Change::Write(self.file.clone(), row[0].clone());
            case(format!("{} = {:?}", self.file, row[0]), vec![change], Vec::new(), &row[1..])
        });
        let edits = self.edits.iter().map(|row| {
            let change = Change::Replace(self.file.clone(), row[0].clone(), row[1].clone());
            case(format!("{}: {:?} -> {:?}", self.file, row[0], row[1]), vec![change], Vec::new(), &row[2..])
        });
        lines.chain(texts).chain(edits).chain(self.cases.iter().cloned()).collect()
    }

    /// Panics where the program does something else.
    fn check(&self, case: &Case, bases: &Bases) {
        assert!(!case.says.is_empty(), "no words are expected");
        let sandbox = Sandbox::new();
        bases.copy(&self.base, &sandbox);
        self.before.iter().chain(&case.change).for_each(|change| change.make(&sandbox));
        let before = sandbox.files();
        // A server that was not refused would wait for requests.
        let mut command = Command::new("timeout");
        command.args(["60", env!("CARGO_BIN_EXE_graphsieve")]);
        command.args(self.run.split_whitespace()).args(&case.arguments).current_dir(sandbox.path(""));
        for variable in &case.environment {
            match &variable[..] {
                [name, value] => command.env(name, value),
                names => command.env_remove(&names[0]),
            };
        }
        without_privilege(&mut command);
        let said = Said::from(command.output().unwrap());
        let mut after = sandbox.files();
        if self.code == 0 {
            assert_eq!(said.code, Some(0), "{}", said.stderr);
            let all = said.stdout + &said.stderr;
            case.says.iter().for_each(|part| assert!(all.contains(part), "{all}\nlacks {part:?}"));
            after.retain(|path, _| before.contains_key(path));
        } else {
            said.is_refused(self.code, &case.says.iter().map(String::as_str).collect::<Vec<_>>());
            assert!(said.stdout.is_empty(), "a result in spite of the error: {}", said.stdout);
        }
        assert!(before == after, "files were left or changed: {:?}", after.keys());
    }
}

/// Takes from root, for whom permissions are no obstacle, the right to override them.
fn without_privilege(command: &mut Command) {
    const CAP_DAC_OVERRIDE: libc::c_ulong = 1;
    const CAP_DAC_READ_SEARCH: libc::c_ulong = 2;
    // SAFETY: system calls alone; for other users they fail and change nothing.
    unsafe {
        command.pre_exec(|| {
            for capability in [CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH] {
                libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0);
            }
            Ok(())
        });
    }
}

/// The tables beside this file, by their names.
fn tables() -> Vec<(String, Table)> {
    let paths = fs::read_dir(repository("tests/program/damaged")).unwrap().map(|entry| entry.unwrap().path());
    let is_left_out = |path: &Path| !cfg!(feature = "serve") && path.ends_with("server.toml");
    let is_table = |path: &PathBuf| path.extension().is_some_and(|it| it == "toml") && !is_left_out(path);
    let mut paths: Vec<_> = paths.filter(is_table).collect();
    paths.sort();
    let read = |path: PathBuf| {
        let name = path.display().to_string();
        let table =
            toml::from_str(&fs::read_to_string(path).unwrap()).unwrap_or_else(|fault| panic!("{name}: {fault}"));
        (name, table)
    };
    paths.into_iter().map(read).collect()
}

#[test]
fn every_damaged_input_is_refused_with_words_that_help_and_changes_nothing() {
    let (bases, tables) = (Bases::new(), tables());
    let groups = tables.iter().flat_map(|(table, of)| of.group.iter().map(move |group| (table, group)));
    let cases: Vec<_> =
        groups.flat_map(|(table, group)| group.all().into_iter().map(move |case| (table, group, case))).collect();
    let next = AtomicUsize::new(0);
    let work = || {
        let mut lost = Vec::new();
        while let Some((table, group, case)) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
            // All that are lost are told, not the first one alone.
            if catch_unwind(AssertUnwindSafe(|| group.check(case, &bases))).is_err() {
                lost.push(format!("{table}: {} {}: {}", group.run, case.arguments.join(" "), case.name));
            }
        }
        lost
    };
    let lost: Vec<String> = scope(|scope| {
        let threads: Vec<_> = (0..available_parallelism().map_or(1, usize::from)).map(|_| scope.spawn(work)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let accepted = cases.iter().filter(|(_, group, _)| group.code == 0).count();
    let damaged = cases.len() - accepted;
    assert!(lost.is_empty(), "{} of {} are lost:\n{}", lost.len(), cases.len(), lost.join("\n"));
    assert!(damaged >= 300, "{damaged}");
    let told = format!(
        "{damaged} tried, {damaged} refused with the expected words, 0 lost; {accepted} only look damaged and are read"
    );
    // Past the harness, which keeps what a test prints to itself.
    writeln!(stderr(), "damaged inputs: {told}").unwrap();
}
