use std::env;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::thread;

use serde_json::json;

use super::*;
use crate::splitmix::nth;

fn label(number: u64) -> Record {
    Record::Label { node: format!("payment:p{number}").parse().unwrap(), label: 1, known: number as i64 }
}

fn labels(numbers: Range<u64>) -> Vec<Record> {
    numbers.map(label).collect()
}

fn open(dir: &Path) -> (Log, Recovered) {
    Log::open(dir, Position(0)).unwrap()
}

/// Positions and records behind `from`.
fn read(log: &Log, from: u64) -> Vec<(u64, Record)> {
    let mut found = Vec::new();
    log.replay(
        Position(from),
        |entry| entry,
        |entry| {
            found.push((entry.position.0, entry.record));
            Ok(())
        },
    )
    .unwrap();
    found
}

fn numbered(numbers: Range<u64>) -> Vec<(u64, Record)> {
    numbers.map(|number| (number, label(number))).collect()
}

/// Lets the next batch begin another file.
fn roll(log: &Log) {
    lock(&log.files).roll(&log.dir).unwrap();
}

/// Files of the log.
fn files(dir: &Path) -> Vec<PathBuf> {
    Segment::list(dir).unwrap().into_iter().map(|(_, path)| path).collect()
}

#[test]
fn what_was_appended_is_there_in_order_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let (log, recovered) = open(dir.path());
    assert_eq!((recovered.records, log.position()), (0, Position(0)));
    let appended = |position| Appended { position: Position(position), repeated: false };
    assert_eq!(log.append(&labels(1..4), None).unwrap(), appended(3));
    roll(&log);
    assert_eq!(log.append(&labels(4..6), None).unwrap(), appended(5));
    assert_eq!(log.append(&[], None).unwrap(), appended(5));
    assert_eq!(read(&log, 0), numbered(1..6));
    drop(log);
    let (log, recovered) = open(dir.path());
    assert_eq!((recovered.records, recovered.damage, log.position()), (5, vec![], Position(5)));
    assert_eq!(log.append(&labels(6..7), None).unwrap(), appended(6));
    assert_eq!((read(&log, 0), read(&log, 4)), (numbered(1..7), numbered(5..7)));
    let bytes = files(dir.path()).iter().map(|file| fs::metadata(file).unwrap().len()).sum::<u64>();
    assert_eq!((log.bytes(), log.syncs()), (bytes, 1));
}

#[test]
fn a_second_process_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (log, _) = open(dir.path());
    let error = Log::open(dir.path(), Position(0)).err().unwrap().to_string();
    assert!(error.contains("another process") && error.contains("--state"), "{error}");
    drop(log);
    open(dir.path());
}

#[test]
fn batches_that_wait_together_share_one_sync() {
    let dir = tempfile::tempdir().unwrap();
    let (log, _) = open(dir.path());
    let held = lock(&log.files);
    thread::scope(|scope| {
        let each: Vec<_> = (0..64u64)
            .map(|at| {
                let log = &log;
                scope.spawn(move || log.append(&[label(at)], Some(&Key::new(&at.to_string(), b""))).unwrap().position.0)
            })
            .collect();
        while lock(&log.waiting).len() < 64 {
            thread::yield_now();
        }
        drop(held);
        let positions: Vec<u64> = each.into_iter().map(|thread| thread.join().unwrap()).collect();
        let found = read(&log, 0);
        assert_eq!(found.len(), 64);
        for (at, position) in positions.into_iter().enumerate() {
            assert_eq!(found[position as usize - 1], (position, label(at as u64)));
        }
    });
    assert_eq!(log.syncs(), 1);
}

#[test]
fn a_repeat_is_answered_as_the_first_time_after_a_restart_and_without_its_records_too() {
    let dir = tempfile::tempdir().unwrap();
    let (log, _) = open(dir.path());
    let [key, other] = [b"x", b"y"].map(|body| Key::new("k", body));
    let batch = |records, key| Batch { records, key: Some(key) };
    let [one, two] = [labels(1..3), labels(3..4)];
    let answers = log.append_all(&[batch(&one, &key), batch(&one, &key), batch(&two, &other)]);
    let first = Appended { position: Position(2), repeated: false };
    let again = Appended { repeated: true, ..first };
    assert_eq!((answers[0].clone().unwrap(), answers[1].clone().unwrap()), (first, again));
    assert!(matches!(&answers[2], Err(LogError::KeyReused(key)) if key == "k"));
    drop(log);
    let (log, _) = open(dir.path());
    assert_eq!(log.append(&one, Some(&key)).unwrap(), again);
    log.drop_until(Position(2)).unwrap();
    assert_eq!((read(&log, 0), log.append(&one, Some(&key)).unwrap()), (vec![], again));
    drop(log);
    let (log, _) = open(dir.path());
    assert_eq!(log.append(&one, Some(&key)).unwrap(), again);
    assert_eq!((log.append(&two, None).unwrap().position, read(&log, 0)), (Position(3), vec![(3, label(3))]));
}

#[test]
fn records_that_are_in_the_base_leave_and_the_numbers_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let (log, _) = open(dir.path());
    for first in [1, 3, 5] {
        log.append(&labels(first..first + 2), None).unwrap();
        roll(&log);
    }
    log.drop_until(Position(3)).unwrap();
    assert_eq!((read(&log, 0), files(dir.path()).len()), (numbered(4..7), 3));
    log.drop_until(Position(6)).unwrap();
    assert_eq!((read(&log, 0), files(dir.path()).len(), log.bytes()), (vec![], 1, 0));
    drop(log);
    let (log, recovered) = open(dir.path());
    assert_eq!((recovered.records, log.position()), (0, Position(6)));
    log.append(&labels(7..9), None).unwrap();
    drop(log);
    // A base that has more than the log, after damage for example: nothing new is taken for old.
    let (log, _) = Log::open(dir.path(), Position(20)).unwrap();
    assert_eq!((read(&log, 0), log.append(&labels(21..22), None).unwrap().position), (vec![], Position(21)));
    assert_eq!(read(&log, 20), numbered(21..22));
}

#[test]
fn bytes_of_a_forgotten_node_are_gone_from_old_and_new_files() {
    let (dir, links) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (log, _) = open(dir.path());
    let row = |value| Record::Change(serde_json::from_value(value).unwrap());
    let card = row(json!({"type": "card", "id": "secret-7", "name": "N"}));
    let payment = row(json!({"type": "payment", "id": "p", "card": "secret-7", "Amount": 1.5}));
    log.append(&[label(1), card], None).unwrap();
    roll(&log);
    log.append(&[payment, label(4)], None).unwrap();
    for (at, file) in files(dir.path()).iter().enumerate() {
        fs::hard_link(file, links.path().join(at.to_string())).unwrap();
    }
    let columns = [("payment".into(), vec![("card".into(), "card".into())])].into();
    let ends = Ends { columns, ..Ends::default() };
    assert_eq!(log.forget(&"card:secret-7".parse().unwrap(), &ends).unwrap(), 2);
    let left = row(json!({"type": "payment", "id": "p", "card": null, "Amount": 1.5}));
    let expected = vec![(1, label(1)), (3, left), (4, label(4))];
    assert_eq!(read(&log, 0), expected);
    let old = fs::read_dir(links.path()).unwrap().map(|entry| entry.unwrap().path());
    let all: Vec<PathBuf> = old.chain(files(dir.path())).collect();
    assert_eq!(all.len(), 5);
    for file in all {
        let bytes = fs::read(&file).unwrap();
        assert!(!bytes.windows(8).any(|part| part == b"secret-7"), "{}", file.display());
    }
    log.append(&labels(5..6), None).unwrap();
    // Files that do not have an id stay as they are, the one that grows, too.
    let kept = files(dir.path());
    assert_eq!((log.forget(&"card:nobody".parse().unwrap(), &ends).unwrap(), files(dir.path())), (0, kept));
    drop(log);
    assert_eq!(read(&open(dir.path()).0, 0), [expected, numbered(5..6)].concat());
}

#[test]
fn damage_is_told_and_costs_the_batches_that_it_is_in() {
    let dir = tempfile::tempdir().unwrap();
    let (log, _) = open(dir.path());
    let mut ends = vec![0];
    for first in [1, 3, 5, 7] {
        log.append(&labels(first..first + 2), None).unwrap();
        ends.push(log.bytes());
    }
    drop(log);
    let file = &files(dir.path())[0];
    let whole = fs::read(file).unwrap();
    for at in (0..whole.len()).step_by(7) {
        let hit = ends.iter().filter(|&&end| end <= at as u64).count();
        let mut changed = whole.clone();
        changed[at] ^= 1;
        fs::write(file, changed).unwrap();
        let (log, recovered) = open(dir.path());
        let cut = hit == 4;
        let expected = Damage { file: file.clone(), bytes: ends[hit - 1]..ends[hit], cut };
        assert_eq!(recovered.damage, [expected], "{at}");
        let first = 2 * hit as u64 - 1;
        assert_eq!(read(&log, 0), [numbered(1..first), numbered(first + 2..9)].concat());
        // It goes on behind what is left.
        let next = if cut { 7 } else { 9 };
        log.append(&labels(next..next + 1), None).unwrap();
        assert_eq!(read(&log, next - 1), numbered(next..next + 1));
    }
    for length in (0..whole.len()).step_by(5) {
        fs::write(file, &whole[..length]).unwrap();
        let (log, recovered) = open(dir.path());
        let kept = ends.iter().filter(|&&end| end <= length as u64).count() - 1;
        let next = 2 * kept as u64 + 1;
        assert_eq!(recovered.damage.len(), usize::from(ends[kept] != length as u64), "{length}");
        assert_eq!(read(&log, 0), numbered(1..next));
        log.append(&labels(next..next + 3), None).unwrap();
        drop(log);
        let (log, recovered) = open(dir.path());
        assert_eq!((read(&log, 0), recovered.damage), (numbered(1..next + 3), vec![]));
    }
}

/// Whether this process is the one that the test `name` starts itself in; the directory that it works in.
fn started() -> Option<PathBuf> {
    env::var_os("GRAPHSIEVE_LOG_TEST").map(PathBuf::from)
}

/// The test `name` in a process of its own.
fn start(name: &str, dir: &Path) -> Command {
    let mut command = Command::new(env::current_exe().unwrap());
    let name = format!("serve::log::tests::{name}");
    command.args(["--exact", &name, "--nocapture", "--test-threads", "1"]).env("GRAPHSIEVE_LOG_TEST", dir);
    command
}

#[test]
fn a_kill_at_any_moment_loses_and_doubles_nothing_that_was_acknowledged() {
    if let Some(dir) = started() {
        // Appends until it is killed. A batch repeats its key, as a client that got no answer would.
        let (log, _) = open(&dir);
        for batch in log.position().0.. {
            let key = Key::new(&batch.to_string(), b"");
            let first = log.position().0 + 1;
            let records = labels(first..first + 1 + nth(batch) % 3);
            let appended = log.append(&records, Some(&key)).unwrap();
            assert!(log.append(&records, Some(&key)).unwrap().repeated);
            println!("acknowledged {}", appended.position.0);
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let name = "a_kill_at_any_moment_loses_and_doubles_nothing_that_was_acknowledged";
    for round in 0..50 {
        let mut child = start(name, dir.path()).stdout(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let mut acknowledged = 0;
        let mut hear = |line: String| {
            acknowledged =
                line.strip_prefix("acknowledged ").and_then(|number| number.parse().ok()).unwrap_or(acknowledged);
        };
        // What the harness prints comes first.
        said.by_ref().take(4 + (nth(round) % 30) as usize).for_each(&mut hear);
        thread::sleep(std::time::Duration::from_micros(nth(round + 1_000) % 3_000));
        child.kill().unwrap();
        child.wait().unwrap();
        said.for_each(hear);
        assert!(acknowledged > 0);
        let (log, recovered) = open(dir.path());
        assert!(recovered.damage.iter().all(|damage| damage.cut), "{:?}", recovered.damage);
        let found = read(&log, 0);
        assert!(found.len() as u64 >= acknowledged, "{} of {acknowledged}", found.len());
        assert_eq!(found, numbered(1..found.len() as u64 + 1));
    }
}

#[test]
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn a_full_disk_refuses_the_batch_and_the_log_goes_on() {
    const NAME: &str = "a_full_disk_refuses_the_batch_and_the_log_goes_on";
    let Some(dir) = started() else {
        let dir = tempfile::tempdir().unwrap();
        let said = start(NAME, dir.path()).output().unwrap();
        assert!(said.status.success(), "{said:?}");
        return;
    };
    let limit = |bytes| {
        // SAFETY: both calls only change limits and signals of this process, which runs this test alone.
        unsafe {
            libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
            let limit = libc::rlimit { rlim_cur: bytes, rlim_max: libc::RLIM_INFINITY };
            assert_eq!(libc::setrlimit(libc::RLIMIT_FSIZE, &limit), 0);
        }
    };
    let (log, _) = open(&dir);
    log.append(&labels(1..11), None).unwrap();
    let before = log.bytes();
    limit(before + 300);
    let key = Key::new("k", b"");
    for _ in 0..3 {
        let refused = log.append(&labels(11..40), Some(&key)).unwrap_err();
        assert!(matches!(refused, LogError::Full(_)), "{refused}");
        assert_eq!((log.bytes(), log.position(), log.is_usable()), (before, Position(10), true));
    }
    // What fits is taken, and what did not comes later with its key.
    log.append(&labels(11..12), None).unwrap();
    assert!(log.append(&labels(12..40), Some(&key)).is_err());
    limit(libc::RLIM_INFINITY);
    assert!(!log.append(&labels(12..40), Some(&key)).unwrap().repeated);
    drop(log);
    let (log, recovered) = open(&dir);
    assert_eq!((read(&log, 0), recovered.damage), (numbered(1..40), vec![]));
}
