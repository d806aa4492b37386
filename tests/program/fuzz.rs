//! Readers of files and requests under damaged input: the readers of `tests/fuzz` for some thousand cases each, and
//! arbitrary bytes through the program.

use std::env;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::support::{Said, Sandbox, repository};

#[path = "../fuzz/readers/mod.rs"]
mod readers;

use readers::{READERS, Reader};

/// Time that a reader gets for its cases; there are at least [`FEWEST`] of them, however slow the machine.
const CASES: u64 = 1500;
/// A case takes less than a millisecond.
const LONGEST: Duration = Duration::from_secs(5);
/// Kilobytes that a process may write to: a gigabyte, and what the test itself needs.
const MEMORY: &str = "1200000";
/// Set in the process that runs the cases.
const ALONE: &str = "GRAPHSIEVE_FUZZ_ALONE";
const NAME: &str = "fuzz::no_reader_panics_hangs_or_takes_a_gigabyte_whatever_it_is_given";

/// Numbers at which readers count on, wrap around or give up.
const NUMBERS: [u64; 12] =
    [0, 1, 7, 0x7f, 0x80, 0xff, 0xffff, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff, 0x7fff_ffff_ffff_ffff, u64::MAX];
const TEXTS: [&str; 12] =
    ["-1", "0", "18446744073709551616", "1e999", "NaN", "\"", "\n", "{", "[[", "\u{feff}", "\u{0}", "\\ud800"];

/// A seed with one to six changes.
fn changed(seeds: &[Vec<u8>], rng: &mut ChaCha8Rng) -> Vec<u8> {
    let mut bytes = seeds[rng.random_range(0..seeds.len())].clone();
    for _ in 0..rng.random_range(1..=6) {
        let at = rng.random_range(0..=bytes.len());
        let end = rng.random_range(at..=bytes.len().min(at + 64));
        let number = NUMBERS[rng.random_range(0..NUMBERS.len())].to_le_bytes();
        match rng.random_range(0..9) {
            0 if at < bytes.len() => bytes[at] ^= 1 << rng.random_range(0..8),
            1 if at < bytes.len() => bytes[at] = rng.random(),
            2 => bytes.truncate(at),
            3 => drop(bytes.drain(at..end)),
            4 => drop(bytes.splice(at..end, bytes[at..end].repeat(3))),
            5 => {
                let width = [1, 2, 4, 8][rng.random_range(0..4)].min(bytes.len() - at);
                bytes[at..at + width].copy_from_slice(&number[..width]);
            }
            6 => drop(bytes.splice(at..at, TEXTS[rng.random_range(0..TEXTS.len())].bytes())),
            7 => {
                let other = &seeds[rng.random_range(0..seeds.len())];
                let from = rng.random_range(0..=other.len());
                bytes.truncate(at);
                bytes.extend(&other[from..]);
            }
            _ => {
                // A number that is written in digits.
                let is_digit = |byte: &u8| byte.is_ascii_digit();
                let start = at + bytes[at..].iter().position(is_digit).unwrap_or(bytes.len() - at);
                let digits = bytes[start..].iter().take_while(|byte| is_digit(byte)).count();
                let text = NUMBERS[rng.random_range(0..NUMBERS.len())].to_string();
                bytes.splice(start..start + digits, text.bytes());
            }
        }
    }
    bytes
}

/// What a reader once failed at, by file.
fn kept(reader: &Reader) -> Vec<Vec<u8>> {
    let entries = fs::read_dir(repository("tests/fuzz/corpus").join(reader.name)).into_iter().flatten();
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.iter().map(|path| fs::read(path).unwrap()).collect()
}

/// Runs the cases of a reader; their number. `last` gets each case before it is run: an abort leaves nothing else.
fn run(reader: &Reader, number: u64, last: &Path) -> usize {
    let seeds = (reader.seeds)();
    let mut cases = [vec![Vec::new()], seeds.clone(), kept(reader)].concat();
    let mut rng = ChaCha8Rng::seed_from_u64(number);
    let whole = cases.len();
    let all = [&seeds[..], &cases[1 + seeds.len()..]].concat();
    cases.extend((0..CASES).map(|_| changed(&all, &mut rng)));
    let started = Instant::now();
    for (at, case) in cases.iter().enumerate() {
        fs::write(last, case).unwrap();
        let begun = Instant::now();
        let outcome = catch_unwind(AssertUnwindSafe(|| (reader.read)(case)));
        assert!(outcome.is_ok(), "{}: case {at} of {whole} seeds and {CASES} changes panics: {case:?}", reader.name);
        assert!(begun.elapsed() < LONGEST, "{}: case {at} takes {:?}: {case:?}", reader.name, begun.elapsed());
    }
    println!("{}: {} cases in {:.2} s", reader.name, cases.len(), started.elapsed().as_secs_f64());
    cases.len()
}

#[test]
fn no_reader_panics_hangs_or_takes_a_gigabyte_whatever_it_is_given() {
    if env::var_os(ALONE).is_none() {
        let dir = tempfile::tempdir().unwrap();
        // In memory where there is such a directory: readers get their files there.
        let shared = Path::new("/dev/shm");
        let scratch = tempfile::tempdir_in(if shared.is_dir() { shared } else { dir.path() }).unwrap();
        let mut alone = Command::new("sh");
        alone.args(["-c", "ulimit -d $0 && exec \"$@\"", MEMORY]).arg(env::current_exe().unwrap());
        alone.args(["--exact", NAME, "--nocapture"]).env(ALONE, "1").env("TMPDIR", scratch.path());
        let said = Said::from(alone.output().unwrap());
        assert_eq!(said.code, Some(0), "{}{}", said.stdout, said.stderr);
        assert!(said.stdout.contains(" 1 passed"), "{}", said.stdout);
        return print!("{}", said.stdout);
    }
    let last = env::temp_dir().join("case");
    let (done, next) = channel();
    let cases = last.clone();
    let worker = thread::spawn(move || {
        READERS
            .iter()
            .zip(0..)
            .for_each(|(reader, number)| done.send((reader.name, run(reader, number, &cases))).unwrap());
    });
    let (mut readers, mut total) = (0, 0);
    loop {
        match next.recv_timeout(Duration::from_secs(120)) {
            Ok((_, cases)) => (readers, total) = (readers + 1, total + cases),
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                panic!("{readers} readers are done, the next hangs: {:?}", fs::read(&last))
            }
        }
    }
    assert!(worker.join().is_ok(), "see above");
    assert_eq!(readers, READERS.len());
    println!("{total} cases of {readers} readers");
}

/// How formats begin: behind it their readers look at the rest.
const BEGINNINGS: [&[u8]; 10] = [
    b"",
    b"\x93NUMPY\x01\x00v\x00{",
    b"PK\x03\x04",
    b"PAR1",
    b"GSTREES\0\x01\0\0\0",
    b"{\"",
    b"[[nodes]]\n",
    b"tree\n",
    b"id,label\n",
    b"\x1f\x8b\x08",
];

/// Bytes of no format: any, or those of a keyboard.
fn arbitrary(rng: &mut ChaCha8Rng) -> Vec<u8> {
    let mut bytes = BEGINNINGS[rng.random_range(0..BEGINNINGS.len())].to_vec();
    let is_text = rng.random();
    let byte = |rng: &mut ChaCha8Rng| if is_text { rng.random_range(b'\t'..=b'~') } else { rng.random() };
    bytes.extend((0..rng.random_range(0..600)).map(|_| byte(rng)));
    bytes
}

#[test]
fn arbitrary_bytes_are_refused_by_every_command_that_reads_a_file() {
    let sandbox = Sandbox::with_data();
    sandbox.write(
        "tables.toml",
        "[[nodes]]\ntype = \"a\"\nfile = \"any.csv\"\nid = \"id\"\nfeatures = { x = \"numeric\" }\n",
    );
    let files =
        ["any.toml", "any.csv", "any.json", "any.npz", "any.npy", "any.bpk", "any.safetensors", "any.pt", "any.trees"];
    let commands: [&[&str]; 12] = [
        &["import", "tables", "any.toml", "--out", "out"],
        &["import", "tables", "tables.toml", "--out", "out"],
        &["import", "amazon", "--reviews", "any.json", "--metadata", "any.json", "--out", "out"],
        &["import", "mat", "any.npy", "--out", "out"],
        &["train", "any.toml", "--device", "cpu"],
        &["info", "--data", "any.npz"],
        &["eval", "--scores", "any.npy", "--data", "data"],
        &["eval", "--scores", "scores.npy", "--data", "data", "--labels", "any.csv"],
        &["score", "any.bpk", "--data", "data", "--device", "cpu"],
        &["score", "any.safetensors", "--data", "data", "--device", "cpu"],
        &["score", "any.pt", "--data", "data", "--device", "cpu"],
        &["score", "any.trees", "--data", "data", "--device", "cpu"],
    ];
    sandbox.write_scores("scores.npy", &[0.5; 500]);
    let mut rng = ChaCha8Rng::seed_from_u64(7);
    for _ in 0..3 {
        let bytes = arbitrary(&mut rng);
        files.iter().for_each(|name| sandbox.write(name, &bytes));
        let before = sandbox.files();
        for command in commands {
            let said = sandbox.run([&["--quiet"], command].concat());
            let code = said.code.filter(|code| [1, 2].contains(code));
            said.is_refused(code.unwrap_or_else(|| panic!("{command:?} of {bytes:?}: {said:?}")), &[]);
            assert!(said.stdout.is_empty(), "{command:?}: {}", said.stdout);
            let escape = said.stderr.chars().find(|sign| sign.is_control() && *sign != '\n');
            assert_eq!(escape, None, "{command:?}: {:?}", said.stderr);
            assert!(sandbox.files() == before, "{command:?} left or changed files: {:?}", sandbox.files().keys());
        }
    }
}
