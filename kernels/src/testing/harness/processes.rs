//! The program once more for every group of its trials, and the output of all as one.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Result};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::time::Instant;

use super::GROUP;

const NAMES: [&str; 5] = ["passed", "failed", "ignored", "measured", "filtered out"];

/// What processes printed behind their trials.
#[derive(Debug, Default)]
struct End {
    /// Trials by [`NAMES`].
    counts: [u64; 5],
    /// Why trials failed.
    failures: Vec<String>,
    /// How many trials were ignored for what.
    ignored: BTreeMap<String, u64>,
    /// Groups whose process did not end well.
    failed: Vec<String>,
    /// Seconds of every group.
    seconds: Vec<(f64, String)>,
}

/// Groups that are named at the end with the time they took.
const SLOWEST: usize = 5;

/// Runs all groups, `count` of them at a time, with these variables where the environment does not have them.
pub fn run(groups: Vec<String>, count: usize, variables: &[(&str, &str)]) -> ExitCode {
    let started = Instant::now();
    let variables: Vec<_> = variables.iter().filter(|(name, _)| std::env::var_os(name).is_none()).copied().collect();
    let end = Mutex::new(End::default());
    let waiting = Mutex::new(groups.into_iter());
    let next = || waiting.lock().expect("taking a group does not panic").next();
    std::thread::scope(|scope| {
        for _ in 0..count {
            scope.spawn(|| {
                while let Some(group) = next() {
                    let started = Instant::now();
                    let succeeded = process(&group, &variables, &end);
                    let mut end = end.lock().expect("a line does not panic");
                    if !succeeded.as_ref().is_ok_and(|succeeded| *succeeded) {
                        let why = succeeded.err().map(|error| format!(": {error}")).unwrap_or_default();
                        end.failed.push(format!("{group}{why}"));
                    }
                    end.seconds.push((started.elapsed().as_secs_f64(), group));
                }
            });
        }
    });
    let End { counts, failures, ignored, failed, mut seconds } = end.into_inner().expect("a line does not panic");
    failures.iter().for_each(|line| println!("{line}"));
    failed.iter().for_each(|group| println!("failed: {group}"));
    let counts: Vec<String> = counts.iter().zip(NAMES).map(|(count, name)| format!("{count} {name}")).collect();
    let result = if failed.is_empty() { "ok" } else { "FAILED" };
    let all = started.elapsed().as_secs_f64();
    println!("\ntest result: {result}. {}; finished in {all:.2}s\n", counts.join("; "));
    ignored.iter().for_each(|(reason, count)| println!("ignored {count}: {reason}"));
    seconds.sort_unstable_by(|(a, _), (b, _)| b.total_cmp(a));
    seconds.iter().take(SLOWEST).for_each(|(seconds, group)| println!("{seconds:6.1} s: {group}"));
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(101) }
}

/// Runs the trials of a group; whether all succeeded.
fn process(group: &str, variables: &[(&str, &str)], end: &Mutex<End>) -> Result<bool> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(std::env::args_os().skip(1)).env(GROUP, group).envs(variables.iter().copied()).stdout(Stdio::piped());
    let mut child = command.spawn()?;
    if let Some(out) = child.stdout.take() {
        follow(out, end);
    }
    Ok(child.wait()?.success())
}

/// Prints the lines of a process as they come, up to the end of its trials.
fn follow(out: impl Read, end: &Mutex<End>) {
    let mut is_over = false;
    for line in BufReader::new(out).split(b'\n').map_while(Result::ok) {
        let line = String::from_utf8_lossy(&line).into_owned();
        is_over |= line == "failures:" || line.starts_with("test result: ");
        if line.is_empty() || line.starts_with("running ") {
            continue;
        }
        if !is_over {
            println!("{line}");
            continue;
        }
        let mut end = end.lock().expect("a line does not panic");
        let ignored = line.strip_prefix("ignored ").and_then(|of| of.split_once(": "));
        if let Some(counts) = counts(&line) {
            end.counts.iter_mut().zip(counts).for_each(|(sum, own)| *sum += own);
        } else if let Some((Ok(count), reason)) = ignored.map(|(count, reason)| (count.parse::<u64>(), reason)) {
            *end.ignored.entry(reason.into()).or_default() += count;
        } else {
            end.failures.push(line);
        }
    }
}

/// Those of the line with which a process ends.
fn counts(line: &str) -> Option<[u64; 5]> {
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
    fn counts_add_up_and_what_comes_behind_the_trials_is_kept() {
        let line = "test result: FAILED. 3 passed; 1 failed; 2 ignored; 0 measured; 12 filtered out; finished in 0.25s";
        assert_eq!(counts(line), Some([3, 1, 2, 0, 12]));
        assert_eq!(counts("test result: the name of a trial ... ok"), None);
        let output = format!("\nrunning 3 tests\n\nfailures:\n\n---- a ----\nit broke\n\n{line}\n\nignored 2: a GPU\n");
        let end = Mutex::new(End::default());
        follow(output.as_bytes(), &end);
        follow(output.as_bytes(), &end);
        let end = end.into_inner().unwrap();
        assert_eq!(end.counts, [6, 2, 4, 0, 24]);
        assert_eq!(end.failures, ["failures:", "---- a ----", "it broke", "failures:", "---- a ----", "it broke"]);
        assert_eq!(end.ignored, BTreeMap::from([("a GPU".to_owned(), 4)]));
    }
}
