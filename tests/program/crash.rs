//! The worst moments: the program is killed, the disk is full or rights are missing at any system call that changes a
//! file. What was there before stays byte for byte, what was interrupted goes on to the same bytes, and nothing is left
//! over.
//!
//! Some of the calls are tried, with `GRAPHSIEVE_CRASH_ALL=1` all of them.

mod tracer;

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fmt::Debug;
use std::fs::{self, File};
use std::io::{Read, Seek};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Output};
use std::time::SystemTime;

use self::tracer::{Call, Fault};
use crate::events::{BY_TIME, EVENTS, payments, tables};
use crate::support::{Sandbox, Said};

/// So many calls are tried where not all are.
const SOME: usize = 6;

/// Files that tell of times, or have checksums of what does.
const OF_TIMES: [&str; 3] = ["meta.json", "model.json", "best.trees"];

type Files = BTreeMap<PathBuf, Vec<u8>>;

/// The bytes of a file with names of runs that tell no time.
fn without_times(mut bytes: Vec<u8>) -> Vec<u8> {
    let is_timed = |part: &[u8]| part.iter().enumerate().all(|(at, byte)| if at == 8 || at == 15 { *byte == b'-' } else { byte.is_ascii_digit() });
    let mut at = 0;
    while let Some(part) = bytes.get(at..at + 16) {
        if is_timed(part) { bytes.drain(at..at + 16); }
        at += 1;
    }
    bytes
}

/// A command that is disturbed.
struct Subject<'a> {
    sandbox: Sandbox,
    command: &'a [&'a str],
    /// The directory that it makes once, besides runs.
    makes: &'a str,
    /// All files before it.
    before: Files,
    /// What it writes, undisturbed.
    expected: Files,
    /// The calls that it makes then.
    calls: Vec<Call>,
}

impl<'a> Subject<'a> {
    /// Runs it to its end twice: first for what is expected, and then to count its calls. The first run stays, as an
    /// earlier one that must not be touched.
    fn new(sandbox: Sandbox, command: &'a [&'a str], makes: &'a str) -> Self {
        let (before, expected, calls) = (sandbox.files(), Files::new(), Vec::new());
        let mut subject = Self { sandbox, command, makes, before, expected, calls };
        subject.sandbox.succeeds(command);
        subject.expected = subject.written();
        if !makes.is_empty() {
            fs::remove_dir_all(subject.sandbox.path(makes)).unwrap();
        }
        if subject.sandbox.path("runs").exists() {
            fs::rename(subject.sandbox.path("runs"), subject.sandbox.path("earlier")).unwrap();
        }
        subject.before = subject.sandbox.files();
        let (calls, said) = subject.disturbed(None);
        assert_eq!(said.code, Some(0), "{}", said.stderr);
        assert_eq!(subject.differing(), BTreeSet::new(), "the same bytes again");
        subject.clear();
        subject.calls = calls;
        subject
    }

    /// Runs the command with a fault.
    fn disturbed(&self, fault: Option<(usize, Fault)>) -> (Vec<Call>, Said) {
        let mut streams = [(); 2].map(|()| tempfile::tempfile().unwrap());
        let mut command = self.sandbox.command(self.command);
        command.stdout(streams[0].try_clone().unwrap()).stderr(streams[1].try_clone().unwrap());
        let root = self.sandbox.path("").canonicalize().unwrap();
        let (calls, status) = tracer::run(command, &root, fault).unwrap();
        let [stdout, stderr] = streams.each_mut().map(|stream| {
            let mut bytes = Vec::new();
            stream.rewind().unwrap();
            stream.read_to_end(&mut bytes).unwrap();
            bytes
        });
        (calls, Said::from(Output { status: ExitStatus::from_raw(status), stdout, stderr }))
    }

    /// What is there now and was not before.
    fn new_files(&self) -> Files {
        let mut files = self.sandbox.files();
        files.retain(|path, _| !self.before.contains_key(path));
        files
    }

    /// The files of them, with names of runs that tell no time; but for what tells of times itself.
    fn written(&self) -> Files {
        let root = self.sandbox.path("");
        let is_compared = |path: &PathBuf| path.is_file() && !OF_TIMES.iter().any(|end| path.to_str().unwrap().ends_with(end));
        let written = self.new_files().into_iter().filter(|(path, _)| is_compared(path));
        let named = written.map(|(path, bytes)| {
            let name = path.strip_prefix(&root).unwrap().components().map(|part| {
                let part = part.as_os_str().to_str().unwrap();
                let is_timed = part.len() > 16 && part.starts_with("20") && part.as_bytes()[15] == b'-';
                if is_timed { &part[16..] } else { part }
            });
            (name.collect(), without_times(bytes))
        });
        named.collect()
    }

    /// Names of files that are not as an undisturbed command writes them.
    fn differing(&self) -> BTreeSet<PathBuf> {
        let found = self.written();
        let names: BTreeSet<PathBuf> = found.keys().chain(self.expected.keys()).cloned().collect();
        names.into_iter().filter(|name| found.get(name) != self.expected.get(name)).collect()
    }

    /// Removes what is new.
    fn clear(&self) {
        for path in self.new_files().keys().rev() {
            if path.is_dir() { fs::remove_dir(path) } else { fs::remove_file(path) }.unwrap();
        }
    }

    fn leftovers(&self) -> Vec<PathBuf> {
        let is_temporary = |path: &PathBuf| path.components().any(|part| part.as_os_str().to_str().unwrap().starts_with(".graphsieve-"));
        self.new_files().into_keys().filter(is_temporary).collect()
    }

    fn is_untouched(&self) -> bool {
        let files = self.sandbox.files();
        self.before.iter().all(|(path, bytes)| files.get(path) == Some(bytes))
    }

    /// Whether what the command makes once is there as a whole or not at all.
    fn is_whole(&self) -> bool {
        let made = !self.makes.is_empty() && self.sandbox.path(self.makes).exists();
        !made || !self.differing().iter().any(|name| name.starts_with(self.makes))
    }

    /// What is wrong after a fault at a call, and after what the user does then.
    fn check(&self, at: usize, fault: Fault) -> Result<(), String> {
        let (calls, said) = self.disturbed(Some((at, fault)));
        let call = &calls[at];
        let holds = |holds: bool, what: &str, more: &dyn Debug| match holds {
            true => Ok(()),
            false => Err(format!("{fault:?} at {at}, {call}: {what}: {more:?}\n{}", said.stderr)),
        };
        holds(self.is_untouched(), "what was there before was changed", &"")?;
        holds(self.is_whole(), "something half-made has its name", &self.differing())?;
        // What may not be removed stays as if it were killed.
        let leaves = matches!(fault, Fault::Killed | Fault::Torn | Fault::FromHere(libc::EACCES)) || call.removes();
        if leaves {
            // A day goes by.
            for path in self.leftovers() {
                File::open(path).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
            }
        }
        if matches!(fault, Fault::Killed | Fault::Torn) {
            holds(said.code.is_none(), "it was killed", &said.code)?;
        } else if said.code == Some(0) {
            if fault == Fault::Once(libc::ENOSPC) || fault == Fault::Once(libc::EACCES) { println!("tolerated {fault:?} {call} {}", said.stderr); }
            // Nobody needs what failed, or it was tried again.
            holds(self.differing().is_empty(), "no error, and other files", &self.differing())?;
        } else {
            holds(said.code == Some(1) && said.stderr.contains("error: "), "no error", &said.code)?;
            let (path, words) = (&call.path, if format!("{fault:?}").contains(&format!("({})", libc::EACCES)) { "ermission" } else { "free some space" });
            let names = [Some(&**path), path.parent()].into_iter().flatten().map(|path| path.display().to_string());
            let is_named = names.into_iter().any(|name| !name.is_empty() && said.stderr.contains(&name));
            holds(is_named && said.stderr.contains("help: ") && said.stderr.contains(words), "no good error", &"")?;
            holds(leaves || self.leftovers().is_empty(), "left over", &self.leftovers())?;
        }
        // The outermost run is the one that goes on.
        let runs = self.new_files().into_keys().filter(|path| path.ends_with("meta.json"));
        let root = self.sandbox.path("");
        let name = |meta: PathBuf| meta.parent().unwrap().strip_prefix(&root).unwrap().to_str().unwrap().to_owned();
        let run = runs.map(name).min_by_key(String::len);
        let again = match run {
            Some(run) => self.sandbox.run(["--quiet", "train", "--device", "cpu", "--resume", &run]),
            None if !self.differing().is_empty() => self.sandbox.run(self.command),
            None => Said { code: Some(0), stdout: String::new(), stderr: String::new() },
        };
        holds(again.code == Some(0), "it does not go on", &again)?;
        holds(self.is_untouched(), "what was there before was changed by going on", &"")?;
        holds(self.differing().is_empty(), "other bytes", &self.differing())?;
        holds(self.leftovers().is_empty(), "left over behind the next command", &self.leftovers())
    }

    /// Tries faults at some calls or at all, each with what it leaves.
    fn check_all(&self) {
        let all = env::var_os("GRAPHSIEVE_CRASH_ALL").is_some_and(|value| value == "1");
        let (mut tried, mut wrong) = (BTreeMap::<String, usize>::new(), Vec::new());
        let step = if all { 1 } else { self.calls.len().div_ceil(SOME) };
        let only = env::var("CRASH_ONLY").unwrap_or_default();
        for at in (0..self.calls.len()).step_by(step) {
            let call = &self.calls[at];
            let faults = [
                (true, Fault::Killed),
                (call.writes(), Fault::Torn),
                (true, Fault::Once(libc::ENOSPC)),
                (!call.removes(), Fault::FromHere(libc::ENOSPC)),
                (call.asks_rights(), Fault::Once(libc::EACCES)),
                (call.asks_rights(), Fault::FromHere(libc::EACCES)),
            ];
            for (_, fault) in faults.into_iter().filter(|(is_tried, _)| *is_tried) {
                if !format!("{fault:?}").contains(&only) { continue; }
                *tried.entry(format!("{fault:?}")).or_default() += 1;
                wrong.extend(self.check(at, fault).err());
                self.clear();
            }
        }
        println!("{} calls; tried {tried:?}", self.calls.len());
        assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
    }
}

#[test]
fn an_import_is_there_as_a_whole_or_not_at_all() {
    let sandbox = tables(&payments(150), &format!("{BY_TIME}{EVENTS}"));
    let command = ["--quiet", "import", "tables", "graph.toml", "--out", "imported"];
    Subject::new(sandbox, &command, "imported").check_all();
}

const STAGE2: &str = "task = \"stage2\"\nname = \"one\"\n[data]\npath = \"data\"\ninput = \"features\"\n[model]\n\
                      hidden = 4\nout = 4\n[train]\nepochs = 3\nvalidate_every = 1\ncheckpoint_every = 1\n\
                      [output]\ndir = \"runs\"\n";
const TRAIN: [&str; 5] = ["--quiet", "train", "run.toml", "--device", "cpu"];

#[test]
fn a_training_goes_on_from_any_moment() {
    let sandbox = Sandbox::with_data();
    sandbox.write("run.toml", STAGE2);
    Subject::new(sandbox, &TRAIN, "").check_all();
}

const PIPELINE: &str = "task = \"pipeline\"\nname = \"all\"\n[data]\npath = \"market\"\n[synth]\npreset = \"quickstart\"\n\
                        scale = 0.1\n[stage1]\nmodel.hidden = 4\nmodel.out = 4\ntrain.epochs = 2\n\
                        train.checkpoint_every = 1\n[stage2]\nmodel.hidden = 4\nmodel.out = 4\ntrain.epochs = 2\n\
                        train.validate_every = 1\ntrain.checkpoint_every = 1\n[stage3]\nfeatures.stage2_folds = 2\n\
                        model.trees = 3\n[output]\ndir = \"runs\"\nplots = false\n";

#[test]
fn a_pipeline_goes_on_from_any_moment() {
    let sandbox = Sandbox::new();
    sandbox.write("run.toml", PIPELINE);
    Subject::new(sandbox, &TRAIN, "market").check_all();
}
