//! The worst moments: the program is killed, the disk is full or rights are missing at any system call that changes a
//! file. What was there before stays byte for byte, what was interrupted goes on to the same bytes, and nothing is left
//! over.
//!
//! A few of the calls meet a fault each; with `GRAPHSIEVE_CRASH_ALL=1` every call meets every fault that it can meet.

#[cfg(feature = "serve")]
mod server;
mod tracer;

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::ffi::OsStr;
use std::fmt::Debug;
use std::fs::{self, File};
use std::io::{Read, Seek};
use std::path::{Component, Path, PathBuf};
use std::process::{Command, Output};
use std::time::SystemTime;

use self::tracer::{Call, Fault};
use crate::events::{BY_TIME, EVENTS, payments, tables};
use crate::support::{Said, Sandbox};

/// So many calls of a subject meet a fault where not all do.
const SOME: usize = 10;

/// Files that tell of times, or have checksums of what does.
const OF_TIMES: [&str; 3] = ["meta.json", "model.json", "best.trees"];

type Files = BTreeMap<PathBuf, Vec<u8>>;

/// The places at which `calls` meet a fault, and which.
fn faults(calls: &[Call]) -> Vec<(usize, Fault)> {
    let of_call = |at: usize| {
        let call = &calls[at];
        let faults = [
            (true, Fault::Killed),
            (true, Fault::Once(libc::ENOSPC)),
            (call.asks_rights(), Fault::Once(libc::EACCES)),
            (call.writes(), Fault::Torn),
            (!call.removes(), Fault::FromHere(libc::ENOSPC)),
            (call.asks_rights(), Fault::FromHere(libc::EACCES)),
        ];
        faults.into_iter().filter(|(can_be, _)| *can_be).map(move |(_, fault)| (at, fault)).collect::<Vec<_>>()
    };
    let span = |text: String| {
        let (first, last) = text.split_once('-').expect("1, or FIRST-LAST");
        let [first, last] = [first, last].map(|of| of.parse::<usize>().expect("the number of a system call"));
        first..calls.len().min(last + 1)
    };
    match env::var("GRAPHSIEVE_CRASH_ALL").ok().filter(|text| !text.is_empty()) {
        Some(text) if text == "1" => return (0..calls.len()).flat_map(of_call).collect(),
        Some(text) => return span(text).flat_map(of_call).collect(),
        None => {}
    }
    let one = |nth: usize| {
        let all = of_call(nth * calls.len() / SOME);
        all[nth % all.len()]
    };
    (0..SOME.min(calls.len())).map(one).collect()
}

/// Meets all of them, and says at once what was wrong: all of them take long.
fn meet(subject: &str, faults: &[(usize, Fault)], mut check: impl FnMut(usize, Fault) -> Result<(), String>) {
    let mut is_wrong =
        |&(at, fault): &(usize, Fault)| check(at, fault).inspect_err(|said| eprintln!("{said}")).is_err();
    let wrong = faults.iter().filter(|&of| is_wrong(of)).count();
    let count = |is: fn(Fault) -> bool| faults.iter().filter(|(_, fault)| is(*fault)).count();
    println!(
        "{subject}: {} kills, {} times no room, {} times no rights; {wrong} wrong",
        count(|fault| fault.kills()),
        count(|fault| fault.error() == Some(libc::ENOSPC)),
        count(|fault| fault.error() == Some(libc::EACCES)),
    );
    assert_eq!(wrong, 0, "see above");
}

/// Runs a command in a sandbox with a fault; its calls and what it said.
fn disturbed(
    sandbox: &Sandbox,
    mut command: Command,
    fault: Option<(usize, Fault)>,
    begun: impl FnOnce(u32, [File; 2]),
) -> (Vec<Call>, Said) {
    let mut streams = [(); 2].map(|()| tempfile::tempfile().unwrap());
    let clones = || streams.each_ref().map(|stream| stream.try_clone().unwrap());
    let ([stdout, stderr], told) = (clones(), clones());
    command.stdout(stdout).stderr(stderr);
    let root = sandbox.path("").canonicalize().unwrap();
    let traced = tracer::run(command, &root, fault, |process| begun(process, told));
    let (calls, status) = traced.expect("a process may be traced here (a container may need --cap-add SYS_PTRACE)");
    let [stdout, stderr] = streams.each_mut().map(|stream| {
        let mut bytes = Vec::new();
        stream.rewind().unwrap();
        stream.read_to_end(&mut bytes).unwrap();
        bytes
    });
    (calls, Said::from(Output { status, stdout, stderr }))
}

/// What is under temporary names.
fn leftovers(files: &Files) -> Vec<&PathBuf> {
    let is_temporary = |part: Component| part.as_os_str().as_encoded_bytes().starts_with(b".graphsieve-");
    files.keys().filter(|path| path.components().any(is_temporary)).collect()
}

/// Names of runs tell no time and no number behind it, in a path or in a text.
fn without_times(text: &[u8]) -> Vec<u8> {
    let is_time = |part: &[u8]| {
        part.iter().enumerate().all(|(at, byte)| match at {
            8 | 15 => *byte == b'-',
            _ => byte.is_ascii_digit(),
        })
    };
    let (mut rest, mut kept) = (text, Vec::with_capacity(text.len()));
    while let Some((&byte, behind)) = rest.split_first() {
        if !rest.get(..16).is_some_and(is_time) {
            kept.push(byte);
            rest = behind;
            continue;
        }
        let end = rest.iter().position(|byte| !byte.is_ascii_alphanumeric() && *byte != b'-').unwrap_or(rest.len());
        let name = &rest[16..end];
        kept.extend(name.strip_suffix(b"-2").unwrap_or(name));
        rest = &rest[end..];
    }
    kept
}

/// A command that meets faults.
struct Subject<'a> {
    sandbox: Sandbox,
    command: &'a [&'a str],
    /// The directory that it makes, besides runs.
    makes: Option<&'a str>,
    /// All files before it.
    before: Files,
    /// What it writes, undisturbed.
    expected: Files,
    /// The calls that it makes then.
    calls: Vec<Call>,
}

impl<'a> Subject<'a> {
    /// Runs it to its end twice: first for what is expected, and then to count its calls. Runs of the first time stay,
    /// as earlier ones that must not be touched.
    fn new(sandbox: Sandbox, command: &'a [&'a str], makes: Option<&'a str>) -> Self {
        let (before, expected, calls) = (sandbox.files(), Files::new(), Vec::new());
        let mut subject = Self { sandbox, command, makes, before, expected, calls };
        subject.sandbox.succeeds(command);
        subject.expected = subject.written();
        if let Some(makes) = makes {
            fs::remove_dir_all(subject.sandbox.path(makes)).unwrap();
        }
        if subject.sandbox.path("runs").exists() {
            fs::rename(subject.sandbox.path("runs"), subject.sandbox.path("earlier")).unwrap();
        }
        subject.before = subject.sandbox.files();
        let (calls, said) = disturbed(&subject.sandbox, subject.sandbox.command(command), None, |_, _| {});
        assert_eq!(said.code, Some(0), "{}", said.stderr);
        assert_eq!(subject.differing(), BTreeSet::new(), "the same bytes again");
        subject.clear();
        subject.calls = calls;
        subject
    }

    /// What is there now and was not before.
    fn new_files(&self) -> Files {
        let mut files = self.sandbox.files();
        files.retain(|path, _| !self.before.contains_key(path));
        files
    }

    /// The files of it that tell no time. A run with nothing but its settings, which a pipeline that was killed there
    /// does not know of, is none.
    fn written(&self) -> Files {
        let files = self.new_files();
        let settings = ["config.toml", "meta.json"].map(OsStr::new);
        let is_empty = |run: &Path| {
            let mut within = files.keys().filter(|path| path.parent() == Some(run));
            run.join("meta.json").exists() && within.all(|path| settings.contains(&path.file_name().unwrap()))
        };
        let is_compared = |path: &Path| {
            path.is_file() && !OF_TIMES.iter().any(|name| path.ends_with(name)) && !is_empty(path.parent().unwrap())
        };
        let root = self.sandbox.path("");
        let named = files.iter().filter(|(path, _)| is_compared(path)).map(|(path, bytes)| {
            let name = without_times(path.strip_prefix(&root).unwrap().to_str().unwrap().as_bytes());
            (PathBuf::from(String::from_utf8(name).unwrap()), without_times(bytes))
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

    fn is_untouched(&self) -> bool {
        let files = self.sandbox.files();
        self.before.iter().all(|(path, bytes)| files.get(path) == Some(bytes))
    }

    /// Whether what the command makes besides runs is there as a whole or not at all.
    fn is_whole(&self) -> bool {
        let made = self.makes.filter(|makes| self.sandbox.path(makes).exists());
        made.is_none_or(|makes| !self.differing().iter().any(|name| name.starts_with(makes)))
    }

    /// Lets the command meet a fault, and does what a user does then.
    fn check(&self, at: usize, fault: Fault) -> Result<(), String> {
        let (calls, said) = disturbed(&self.sandbox, self.sandbox.command(self.command), Some((at, fault)), |_, _| {});
        let call = &calls[at];
        let holds = |holds: bool, what: &str, found: &dyn Debug| match holds {
            true => Ok(()),
            false => Err(format!("{fault:?} at {at}, {call}: {what}: {found:?}\n{}", said.stderr)),
        };
        holds(self.is_untouched(), "what was there before was changed", &"")?;
        holds(self.is_whole(), "something half-made has its name", &self.differing())?;
        let left = self.new_files();
        let left = leftovers(&left);
        if fault.kills() {
            holds(said.code.is_none(), "it was not killed", &said.code)?;
        } else if said.code == Some(0) {
            // Nobody needs what failed.
            holds(self.differing().is_empty(), "no error, and other files", &self.differing())?;
        } else {
            let (path, parent) = (call.path.display().to_string(), call.path.parent().map(Path::display));
            let names = [path, parent.map_or(".: cannot".into(), |parent| parent.to_string())];
            let is_named = names.iter().any(|name| !name.is_empty() && said.stderr.contains(name.as_str()));
            let words = if fault.error() == Some(libc::ENOSPC) { "free some space" } else { "check the permissions" };
            let is_good = is_named && said.stderr.contains("error: ") && said.stderr.contains(words);
            holds(said.code == Some(1) && is_good, "no error that helps", &said.code)?;
            // Without rights nothing can be removed.
            let is_clean = left.is_empty() || call.removes() || fault == Fault::FromHere(libc::EACCES);
            holds(is_clean, "left over", &left)?;
        }
        // A day goes by: then nobody writes to them any more.
        for path in left {
            File::open(path).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
        }
        let root = self.sandbox.path("");
        let run_of = |path: PathBuf| {
            let run = path.strip_prefix(&root).unwrap().parent().unwrap().to_str().unwrap().to_owned();
            // One that has no name yet is none.
            (path.ends_with("meta.json") && !run.contains("/.graphsieve-")).then_some(run)
        };
        // The outermost run is the one that goes on.
        let run = self.new_files().into_keys().filter_map(run_of).min_by_key(String::len);
        let again = match run {
            Some(run) => Some(self.sandbox.run(["--quiet", "train", "--device", "cpu", "--resume", &run])),
            None => (!self.differing().is_empty()).then(|| self.sandbox.run(self.command)),
        };
        holds(again.as_ref().is_none_or(|again| again.code == Some(0)), "it does not go on", &again)?;
        holds(self.is_untouched(), "what was there before was changed by going on", &"")?;
        holds(self.differing().is_empty(), "other bytes", &self.differing())?;
        let files = self.new_files();
        let is_clean = again.is_none() || leftovers(&files).is_empty();
        holds(is_clean, "left over behind the next command", &leftovers(&files))
    }

    fn meet_faults(&self, name: &str) {
        meet(name, &faults(&self.calls), |at, fault| {
            let outcome = self.check(at, fault);
            self.clear();
            outcome
        });
    }
}

#[test]
fn an_import_is_there_as_a_whole_or_not_at_all() {
    let sandbox = tables(&payments(150), &format!("{BY_TIME}{EVENTS}"));
    let command = ["--quiet", "import", "tables", "graph.toml", "--out", "imported"];
    Subject::new(sandbox, &command, Some("imported")).meet_faults("import");
}

const STAGE2: &str = r#"task = "stage2"
name = "one"
[data]
path = "data"
input = "features"
[model]
hidden = 4
out = 4
[train]
epochs = 3
validate_every = 1
checkpoint_every = 1
[output]
dir = "runs"
"#;

const TRAIN: [&str; 5] = ["--quiet", "train", "run.toml", "--device", "cpu"];

#[test]
fn a_training_goes_on_from_any_moment() {
    let sandbox = Sandbox::with_data();
    sandbox.write("run.toml", STAGE2);
    Subject::new(sandbox, &TRAIN, None).meet_faults("training");
}

const PIPELINE: &str = r#"task = "pipeline"
name = "all"
[data]
path = "market"
[synth]
preset = "quickstart"
scale = 0.1
[stage1]
model.hidden = 4
model.out = 4
train.epochs = 2
train.checkpoint_every = 1
[stage2]
model.hidden = 4
model.out = 4
train.epochs = 2
train.validate_every = 1
train.checkpoint_every = 1
[stage3]
features.stage2_folds = 2
model.trees = 3
[output]
dir = "runs"
plots = false
"#;

#[test]
fn a_pipeline_goes_on_from_any_moment() {
    let sandbox = Sandbox::new();
    sandbox.write("run.toml", PIPELINE);
    Subject::new(sandbox, &TRAIN, Some("market")).meet_faults("pipeline");
}
