//! Readers of files and requests under damaged input: the readers of `tests/fuzz` for some thousand cases each, and
//! arbitrary bytes through the program.

use std::env;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::support::{Said, Sandbox, repository};

#[path = "../fuzz/readers/mod.rs"]
mod readers;

use readers::{READERS, Reader};

/// Changed inputs of each reader, where `GRAPHSIEVE_FUZZ_CASES` says no other number.
const CASES: u64 = 200;
/// Those that make features of a whole catalogue every time get fewer.
const SLOW: [&str; 2] = ["reviews", "metadata"];
/// Kilobytes that the process of the cases may write to, a gigabyte and what the test itself needs, and its seconds on
/// a CPU, of which it takes some ten: what hangs or takes more is killed, however busy the machine is.
const LIMITS: &str = "ulimit -d 1200000 && ulimit -t 600 && exec \"$@\"";
/// Set in the process of the cases.
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

/// Runs the cases of a reader; their number. Each is written to `last` before: an abort leaves nothing else.
fn run(reader: &Reader, number: u64, last: &Path) -> usize {
    let begun = Instant::now();
    let seeds = (reader.seeds)();
    for (at, seed) in seeds.iter().enumerate() {
        assert!((reader.read)(seed), "{}: what its writer made is refused, seed {at}", reader.name);
    }
    let whole = [seeds, kept(reader)].concat();
    let mut rng = ChaCha8Rng::seed_from_u64(number);
    let number = match env::var("GRAPHSIEVE_FUZZ_CASES") {
        Ok(number) => number.parse().expect("GRAPHSIEVE_FUZZ_CASES is a number"),
        Err(_) if SLOW.contains(&reader.name) => CASES / 5,
        Err(_) => CASES,
    };
    let changes = (0..number).map(|_| changed(&whole, &mut rng));
    let mut cases = 0;
    for case in whole.iter().cloned().chain([Vec::new()]).chain(changes) {
        fs::write(last, &case).unwrap();
        (reader.read)(&case);
        cases += 1;
    }
    println!("{}: {cases} cases in {:.2} s", reader.name, begun.elapsed().as_secs_f64());
    cases
}

#[test]
fn no_reader_panics_hangs_or_takes_a_gigabyte_whatever_it_is_given() {
    if env::var_os(ALONE).is_some() {
        let last = env::temp_dir().join("case");
        let wanted = env::var("GRAPHSIEVE_FUZZ").ok();
        let is_wanted = |reader: &Reader| wanted.as_deref().is_none_or(|name| name == reader.name);
        let readers: Vec<(&Reader, u64)> = READERS.iter().zip(0..).filter(|(reader, _)| is_wanted(reader)).collect();
        let total: usize = readers.iter().map(|&(reader, number)| run(reader, number, &last)).sum();
        assert!(total > 0, "GRAPHSIEVE_FUZZ names no reader");
        return println!("{total} cases of {} readers", readers.len());
    }
    // In memory where there is such a directory: readers get their files there.
    let shared = Path::new("/dev/shm");
    let scratch = if shared.is_dir() { tempfile::tempdir_in(shared) } else { tempfile::tempdir() }.unwrap();
    let mut alone = Command::new("sh");
    alone.args(["-c", LIMITS, "sh"]).arg(env::current_exe().unwrap()).args(["--exact", NAME, "--nocapture"]);
    let said = Said::from(alone.env(ALONE, "1").env("TMPDIR", scratch.path()).output().unwrap());
    let Said { code, stdout, stderr } = &said;
    let last = fs::read(scratch.path().join("case")).unwrap_or_default();
    assert_eq!(*code, Some(0), "{stdout}{stderr}\nthe last case: \"{}\"", last.escape_ascii());
    assert!(stdout.contains(" 1 passed"), "{stdout}");
    print!("{stdout}");
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
            let escape = said.stderr.chars().find(|sign| sign.is_control() && !"\n\t".contains(*sign));
            assert_eq!(escape, None, "{command:?}: {:?}", said.stderr);
            assert!(sandbox.files() == before, "{command:?} left or changed files: {:?}", sandbox.files().keys());
        }
    }
}
