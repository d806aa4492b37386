//! The program once more, as several processes with a part of the trials each, and their output as one.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Instant;

use super::PROCESS;

/// What the last line of a process counts: passed, failed, ignored, measured, filtered out.
type Counts = [u64; 5];

const NAMES: [&str; 5] = ["passed", "failed", "ignored", "measured", "filtered out"];

/// What a process printed behind its trials.
#[derive(Debug, Default)]
struct End {
    counts: Counts,
    /// Why trials failed or were ignored.
    lines: Vec<String>,
}

/// Runs this program as `count` processes.
pub fn run(count: usize) -> ExitCode {
    let started = Instant::now();
    match (0..count).map(|number| start(number, count)).collect::<std::io::Result<Vec<Child>>>() {
        Ok(mut children) => {
            let outputs: Vec<_> = children.iter_mut().map(|child| child.stdout.take()).collect();
            let ends: Vec<End> = std::thread::scope(|scope| {
                let readers: Vec<_> = outputs.into_iter().flatten().map(|out| scope.spawn(|| follow(out))).collect();
                readers.into_iter().map(|reader| reader.join().expect("printing does not fail")).collect()
            });
            let succeeded = children.iter_mut().map(|child| child.wait().is_ok_and(|status| status.success()));
            let succeeded = succeeded.collect::<Vec<bool>>().into_iter().all(|succeeded| succeeded);
            ends.iter().flat_map(|end| &end.lines).for_each(|line| println!("{line}"));
            let counts = NAMES.iter().enumerate().map(|(k, name)| {
                let of_all: u64 = ends.iter().map(|end| end.counts[k]).sum();
                format!("{of_all} {name}")
            });
            let counts = counts.collect::<Vec<_>>().join("; ");
            let result = if succeeded { "ok" } else { "FAILED" };
            println!("\ntest result: {result}. {counts}; finished in {:.2}s\n", started.elapsed().as_secs_f64());
            if succeeded { ExitCode::SUCCESS } else { ExitCode::from(101) }
        }
        Err(error) => {
            eprintln!("this program does not start a second time: {error}");
            ExitCode::FAILURE
        }
    }
}

fn start(number: usize, count: usize) -> std::io::Result<Child> {
    Command::new(std::env::current_exe()?)
        .args(std::env::args_os().skip(1))
        .env(PROCESS, format!("{number}/{count}"))
        .stdout(Stdio::piped())
        .spawn()
}

/// Prints the lines of a process as they come, up to the end of its trials.
fn follow(out: impl Read) -> End {
    let mut end = End::default();
    let mut is_over = false;
    for line in BufReader::new(out).split(b'\n').map_while(Result::ok) {
        let line = String::from_utf8_lossy(&line).into_owned();
        is_over |= line == "failures:";
        match counts(&line) {
            Some(counts) => (is_over, end.counts) = (true, counts),
            None if is_over => end.lines.push(line),
            None if line.is_empty() || line.starts_with("running ") => {}
            None => println!("{line}"),
        }
    }
    end.lines.retain(|line| !line.is_empty());
    end
}

/// Those of the line with which a process ends.
fn counts(line: &str) -> Option<Counts> {
    let (_, counts) = line.strip_prefix("test result: ")?.split_once(". ")?;
    let mut all = [0; 5];
    for (count, (of, name)) in counts.split("; ").zip(all.iter_mut().zip(NAMES)) {
        *of = count.strip_suffix(name)?.trim().parse().ok()?;
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_and_what_comes_behind_the_trials_is_kept_to_the_end() {
        let line = "test result: FAILED. 3 passed; 1 failed; 2 ignored; 0 measured; 12 filtered out; finished in 0.25s";
        assert_eq!(counts(line), Some([3, 1, 2, 0, 12]));
        assert_eq!(counts("test result: the name of a trial ... ok"), None);
        assert_eq!(counts("test cpu::a ... ok"), None);
        let output = format!("\nrunning 3 tests\n\nfailures:\n\n---- a ----\nit broke\n\n{line}\n\nignored 2: a GPU\n");
        let end = follow(output.as_bytes());
        assert_eq!(end.counts, [3, 1, 2, 0, 12]);
        assert_eq!(end.lines, ["failures:", "---- a ----", "it broke", "ignored 2: a GPU"]);
    }
}
