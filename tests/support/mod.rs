//! Runs the program in a directory of its own and looks at what it says and leaves behind.
#![allow(dead_code, reason = "each test program uses a part of it")]

pub mod http;

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// A directory in which the program runs; removed at the end.
pub struct Sandbox(TempDir);

/// What a run of the program said.
#[derive(Debug)]
pub struct Said {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Sandbox {
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// With a small synthetic marketplace in `data`: 260 users, 220 products, 20 sellers.
    pub fn with_data() -> Self {
        let sandbox = Self::new();
        sandbox.succeeds(["--quiet", "synth", "--scale", "0.1", "--out", "data"]);
        sandbox
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        fs::write(self.path(name), content).unwrap();
    }

    pub fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).unwrap()
    }

    /// The only run under `runs`, as the program is told it.
    pub fn only_run(&self, runs: &str) -> String {
        let names = self.runs(runs);
        assert_eq!(names.len(), 1, "{names:?}");
        names[0].clone()
    }

    /// All of them, in any order.
    pub fn runs(&self, runs: &str) -> Vec<String> {
        let names = fs::read_dir(self.path(runs)).unwrap().map(|entry| entry.unwrap().file_name());
        names.map(|name| format!("{runs}/{}", name.to_str().unwrap())).collect()
    }

    /// Replaces a file by `change` of its bytes.
    pub fn edit(&self, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let mut bytes = self.read(name);
        change(&mut bytes);
        self.write(name, bytes);
    }

    /// Writes scores of all nodes, as the program would: a `.npy` array of f32.
    pub fn write_scores(&self, name: &str, scores: &[f32]) {
        let data: Vec<u8> = scores.iter().flat_map(|score| score.to_le_bytes()).collect();
        self.write(name, npy("<f4", &format!("({},)", scores.len()), &data));
    }

    pub fn run<I: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = I>) -> Said {
        Said::from(self.command(arguments).output().unwrap())
    }

    /// The program with these arguments, not yet started. `GRAPHSIEVE_PROGRAM` names it where the tests were built
    /// elsewhere.
    pub fn command<I: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = I>) -> Command {
        let built = env!("CARGO_BIN_EXE_graphsieve");
        let mut command = Command::new(std::env::var_os("GRAPHSIEVE_PROGRAM").unwrap_or(built.into()));
        command.args(arguments).current_dir(self.0.path());
        command
    }

    /// Runs what has to work.
    pub fn succeeds<I: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = I>) -> Said {
        let said = self.run(arguments);
        assert_eq!(said.code, Some(0), "{}", said.stderr);
        said
    }

    /// Runs the program `until` something holds, asks it by SIGTERM to stop, and waits for its end. Signals that these
    /// tests ignore, such as under `nohup`, are as usual in the program: nothing has to be skipped.
    #[cfg(unix)]
    pub fn interrupted<I: AsRef<OsStr>>(
        &self,
        arguments: impl IntoIterator<Item = I>,
        until: impl Fn() -> bool,
    ) -> Said {
        self.told_to_stop(arguments, until, 1)
    }

    /// The same, told so many times, a moment after each other.
    #[cfg(unix)]
    pub fn told_to_stop<I: AsRef<OsStr>>(
        &self,
        arguments: impl IntoIterator<Item = I>,
        until: impl Fn() -> bool,
        times: usize,
    ) -> Said {
        let mut command = Command::new("env");
        command.args(["--default-signal=HUP,INT,TERM", env!("CARGO_BIN_EXE_graphsieve")]).args(arguments);
        command.current_dir(self.0.path()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let begun = Instant::now();
        while !until() {
            let has_ended = child.try_wait().unwrap().is_some();
            if has_ended || begun.elapsed() > Duration::from_secs(120) {
                child.kill().unwrap();
                panic!("never in the state to be interrupted in: {:?}", child.wait_with_output().unwrap());
            }
            sleep(Duration::from_millis(2));
        }
        for time in 0..times {
            if time > 0 {
                sleep(Duration::from_millis(200));
            }
            assert!(Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap().success());
        }
        Said::from(child.wait_with_output().unwrap())
    }

    /// Runs what has to be refused with exit status `code` and a message that holds all `parts`, without a panic,
    /// without a result, and without a change to any file.
    pub fn refuses<I: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = I>, code: i32, parts: &[&str]) {
        let before = self.files();
        let said = self.run(arguments);
        said.is_refused(code, parts);
        assert!(said.stdout.is_empty(), "a result in spite of the error: {}", said.stdout);
        assert!(self.files() == before, "files were left or changed: {:?}", self.files().keys());
    }

    /// Every file and directory with its content.
    pub fn files(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut files = BTreeMap::new();
        let mut open = vec![self.0.path().to_path_buf()];
        while let Some(directory) = open.pop() {
            for entry in fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                // A file that may not be read has the error as its content.
                let read = |path: &PathBuf| fs::read(path).unwrap_or_else(|fault| fault.to_string().into_bytes());
                let content = if path.is_file() { read(&path) } else { Vec::new() };
                if path.is_dir() {
                    open.push(path.clone());
                }
                files.insert(path, content);
            }
        }
        files
    }
}

impl From<Output> for Said {
    fn from(output: Output) -> Self {
        let [stdout, stderr] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
        Self { code: output.status.code(), stdout, stderr }
    }
}

impl Said {
    /// The last error names all `parts`, and a way out.
    pub fn is_refused(&self, code: i32, parts: &[&str]) {
        let Self { stderr, .. } = self;
        assert_eq!(self.code, Some(code), "{stderr}");
        assert!(stderr.contains("error: "), "{stderr}");
        assert!(stderr.contains("help: ") || stderr.contains("try '--help'"), "no way out: {stderr}");
        for trace in ["panicked", "internal error", "RUST_BACKTRACE"] {
            assert!(!stderr.contains(trace), "{stderr}");
        }
        for part in parts {
            assert!(stderr.contains(part), "{stderr}\nlacks {part:?}");
        }
    }
}

/// Bytes of a `.npy` file.
pub fn npy(dtype: &str, shape: &str, data: &[u8]) -> Vec<u8> {
    let mut header = format!("{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}");
    let padding = 63 - (10 + header.len()) % 64;
    header.extend(std::iter::repeat_n(' ', padding));
    header.push('\n');
    let length = u16::try_from(header.len()).unwrap().to_le_bytes();
    [b"\x93NUMPY\x01\x00".as_slice(), &length, header.as_bytes(), data].concat()
}

/// Bytes of `labels.npy`.
pub fn labels_npy(entries: &[(i64, i64)]) -> Vec<u8> {
    let data: Vec<u8> =
        entries.iter().flat_map(|(id, label)| [id.to_le_bytes(), label.to_le_bytes()].concat()).collect();
    npy("<i8", &format!("({}, 2)", entries.len()), &data)
}

/// Whether this process runs the test `name` alone. If not, runs it in such a process: for tests that count what the
/// whole process holds.
pub fn runs_alone(name: &str) -> bool {
    const ALONE: &str = "GRAPHSIEVE_TEST_ALONE";
    if env::var_os(ALONE).is_some() {
        return true;
    }
    let mut alone = Command::new(env::current_exe().unwrap());
    let said = Said::from(alone.args(["--exact", name, "--nocapture"]).env(ALONE, "1").output().unwrap());
    assert_eq!(said.code, Some(0), "{}{}", said.stdout, said.stderr);
    assert!(said.stdout.contains(" 1 passed"), "{}", said.stdout);
    false
}

/// Path of a file of this repository, whose root is the working directory of a test: programs that were built elsewhere
/// find it, too.
pub fn repository(path: &str) -> PathBuf {
    std::path::absolute(path).expect("there is a working directory")
}
