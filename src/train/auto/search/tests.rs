//! The search with candidates whose figures and times are made up.

use super::*;
use crate::config::Prefer;
use crate::run::tournament::{Averaged, Figure};

/// A candidate: the figure after each round, seconds for all of it, whether it stops in time.
#[derive(Clone)]
struct Made {
    values: [f64; 3],
    seconds: f64,
    stops: bool,
    network: bool,
    complete_at: f64,
    fails: bool,
}

impl Made {
    fn new(values: [f64; 3], seconds: f64) -> Self {
        Self { values, seconds, stops: true, network: false, complete_at: 1.0, fails: false }
    }
}

struct Fake {
    made: Vec<Made>,
    /// Share that each has so far.
    shares: Vec<f64>,
    clock: f64,
    /// Attempts that were made: candidate and share.
    tried: Vec<(usize, f64)>,
    interrupt_after: usize,
    kept: usize,
}

impl Fake {
    fn of(made: &[Made]) -> Self {
        let shares = vec![0.0; made.len()];
        Self { made: made.to_vec(), shares, clock: 0.0, tried: Vec::new(), interrupt_after: usize::MAX, kept: 0 }
    }
}

impl Contest for Fake {
    fn attempt(&mut self, at: usize, share: f64, time: Option<Duration>) -> Result<Attempt> {
        let round = SHARES.iter().position(|&of| of == share).unwrap();
        self.tried.push((at, share));
        let made = &self.made[at];
        if made.fails {
            self.clock += 1.0;
            return Err(Error::Data {
                what: "candidate".into(),
                expected: "luck".into(),
                found: "none".into(),
                help: "".into(),
            });
        }
        // Trees begin anew, networks go on.
        let begun = if made.stops { self.shares[at] } else { 0.0 };
        let wanted = (share - begun).max(0.0) * made.seconds;
        let took = time.filter(|_| made.stops).map_or(wanted, |time| wanted.min(time.as_secs_f64()));
        self.clock += took;
        self.shares[at] = begun + took / made.seconds;
        Ok(Attempt {
            value: made.values[round],
            error: Some(0.02),
            done: (100.0 * self.shares[at]).round() as usize,
            memory: None,
            device_memory: None,
            complete: self.shares[at] >= made.complete_at - 1e-9,
        })
    }

    fn stops(&self, at: usize) -> bool {
        self.made[at].stops
    }

    fn is_network(&self, at: usize) -> bool {
        self.made[at].network
    }

    fn now(&self) -> Duration {
        Duration::from_secs_f64(self.clock)
    }

    fn interrupted(&self) -> bool {
        self.tried.len() >= self.interrupt_after
    }

    fn keep(&mut self, _: &Tournament, _: Option<usize>) -> Result<()> {
        self.kept += 1;
        Ok(())
    }
}

fn tournament(names: usize, minutes: f64) -> Tournament {
    let entry = |at| Entry { name: format!("c{at}"), about: String::new(), rounds: Vec::new(), fault: None };
    Tournament {
        figure: Figure::AveragePrecision,
        validation_labels: 100,
        minutes,
        seconds: 0.0,
        prefer: Prefer::Best,
        candidates: (0..names).map(entry).collect(),
        ensemble: None,
        complete: false,
        device_memory: false,
        model: None,
    }
}

fn flat(values: &[f64], seconds: f64) -> Vec<Made> {
    values.iter().map(|&value| Made::new([value; 3], seconds)).collect()
}

#[test]
fn the_better_half_of_a_round_goes_on_and_the_simplest_come_first() {
    let made = flat(&[0.5, 0.9, 0.6, 0.8, 0.7], 1.0);
    let (mut of, mut fake) = (tournament(5, 10.0), Fake::of(&made));
    search(&mut of, &mut fake).unwrap();
    let of_share = |share: f64| fake.tried.iter().filter(|t| t.1 == share).map(|t| t.0).collect::<Vec<_>>();
    assert_eq!([of_share(0.25), of_share(0.5)], [vec![0, 1, 2, 3, 4], vec![1, 3, 4]]);
    assert_eq!(of_share(1.0), [1, 3, 4, 2, 0], "and where there is time the others, the best first");
    assert!(fake.tried.is_sorted_by(|a, b| a.1 <= b.1), "one round after the other");
    assert!(of.complete && fake.kept == fake.tried.len());
    assert_eq!((of.best().unwrap().name.as_str(), of.candidates[1].rounds.len()), ("c1", 3));
}

#[test]
fn trees_that_learn_faster_do_not_end_networks() {
    let mut made = flat(&[0.9, 0.8, 0.85, 0.7], 1.0);
    made.extend([Made::new([0.1, 0.2, 0.3], 100.0), Made::new([0.2, 0.6, 0.95], 30.0)]);
    made[4..].iter_mut().for_each(|made| made.network = true);
    let (mut of, mut fake) = (tournament(6, 1.0), Fake::of(&made));
    search(&mut of, &mut fake).unwrap();
    let of_share = |share: f64| fake.tried.iter().filter(|t| t.1 == share).map(|t| t.0).collect::<Vec<_>>();
    assert_eq!(of_share(0.5), [0, 2, 5], "the better half of the trees and of the networks");
    assert_eq!(of_share(1.0)[..2], [0, 5]);
    assert_eq!(of.best().unwrap().name, "c5");
    assert!(fake.clock <= 60.0 + 1e-6, "{}", fake.clock);
}

#[test]
fn of_equal_candidates_the_simplest_go_on_and_win() {
    let (mut of, mut fake) = (tournament(4, 10.0), Fake::of(&flat(&[0.5; 4], 1.0)));
    search(&mut of, &mut fake).unwrap();
    assert_eq!(fake.tried[4..], [(0, 0.5), (1, 0.5), (0, 1.0), (1, 1.0), (2, 1.0), (3, 1.0)]);
    assert_eq!(of.best().unwrap().name, "c0");
}

#[test]
fn a_candidate_that_does_better_later_on_wins_by_its_latest_round() {
    let made = [Made::new([0.6, 0.6, 0.6], 1.0), Made::new([0.7, 0.5, 0.5], 1.0), Made::new([0.1; 3], 1.0)];
    let (mut of, mut fake) = (tournament(3, 10.0), Fake::of(&made));
    search(&mut of, &mut fake).unwrap();
    assert_eq!(of.best().unwrap().name, "c0");
}

#[test]
fn networks_stop_when_their_part_of_the_time_is_over_and_the_budget_holds() {
    // Each would take an hour.
    let (mut of, mut fake) = (tournament(6, 1.0), Fake::of(&flat(&[0.1, 0.2, 0.3, 0.4, 0.5, 0.6], 3600.0)));
    search(&mut of, &mut fake).unwrap();
    assert!(fake.clock <= 60.0 + 1e-6 && fake.clock > 59.0, "{}", fake.clock);
    assert!(of.candidates.iter().all(|entry| !entry.rounds.is_empty()), "each is tried");
    assert_eq!(of.best().unwrap().name, "c5");
    assert!((of.seconds - fake.clock).abs() < 1e-9);
}

#[test]
fn what_one_does_not_need_the_others_have() {
    let mut made = flat(&[0.1, 0.9], 1.0);
    made[1].seconds = 58.0;
    let (mut of, mut fake) = (tournament(2, 1.0), Fake::of(&made));
    search(&mut of, &mut fake).unwrap();
    assert_eq!(of.candidates[1].latest().unwrap().done, 100, "{:?}", of.candidates[1]);
}

#[test]
fn trees_that_would_overrun_the_budget_keep_what_they_have() {
    let mut made = flat(&[0.9, 0.5], 100.0);
    made.iter_mut().for_each(|made| made.stops = false);
    let (mut of, mut fake) = (tournament(2, 1.0), Fake::of(&made));
    search(&mut of, &mut fake).unwrap();
    // 25 s each in round 1; 50 s are more than the 10 s that are left.
    assert_eq!(fake.tried, [(0, 0.25), (1, 0.25)]);
    assert_eq!(of.best().unwrap().rounds.len(), 1);
    assert!(of.complete);
}

#[test]
fn the_first_candidate_is_tried_however_little_time_there_is_and_no_other() {
    let mut made = flat(&[0.5, 0.6], 100.0);
    made[0].stops = false;
    let (mut of, mut fake) = (tournament(2, 1e-4), Fake::of(&made));
    search(&mut of, &mut fake).unwrap();
    assert_eq!(fake.tried, [(0, 0.25)]);
    assert_eq!(of.preferred().unwrap().name, "c0");
    assert_eq!(of.cells(&of.candidates[1])[3], "-");
}

#[test]
fn an_interrupted_search_goes_on_without_trying_anything_twice() {
    let made = flat(&[0.5, 0.9, 0.6, 0.8, 0.7], 1.0);
    let (mut whole, mut fake) = (tournament(5, 10.0), Fake::of(&made));
    search(&mut whole, &mut fake).unwrap();
    for stop in 0..fake.tried.len() {
        let (mut of, mut first) = (tournament(5, 10.0), Fake::of(&made));
        first.interrupt_after = stop;
        assert!(matches!(search(&mut of, &mut first), Err(Error::Interrupted { .. })), "{stop}");
        assert!(!of.complete);
        // As it is read again.
        let text = serde_json::to_string(&of).unwrap();
        let mut of: Tournament = serde_json::from_str(&text).unwrap();
        let mut second = Fake { tried: Vec::new(), interrupt_after: usize::MAX, ..first };
        search(&mut of, &mut second).unwrap();
        assert_eq!(second.tried, fake.tried[stop..]);
        assert_eq!(of.best().unwrap().name, whole.best().unwrap().name);
    }
}

#[test]
fn what_is_trained_to_its_end_is_not_trained_again() {
    let mut made = flat(&[0.9, 0.2], 1.0);
    made[0].complete_at = 0.25;
    let (mut of, mut fake) = (tournament(2, 10.0), Fake::of(&made));
    search(&mut of, &mut fake).unwrap();
    assert_eq!(fake.tried, [(0, 0.25), (1, 0.25), (1, 1.0)]);
    let latest = of.best().unwrap().latest().unwrap();
    assert_eq!((latest.round, latest.value, latest.seconds), (3, 0.9, 0.0));
}

#[test]
fn a_candidate_that_fails_is_left_out_and_all_that_fail_are_an_error() {
    let mut made = flat(&[0.9, 0.2, 0.3], 1.0);
    made[0].fails = true;
    let (mut of, mut fake) = (tournament(3, 10.0), Fake::of(&made));
    search(&mut of, &mut fake).unwrap();
    assert_eq!(of.best().unwrap().name, "c2");
    assert!(of.candidates[0].fault.as_ref().unwrap().contains("luck"));
    assert_eq!(fake.tried.iter().filter(|tried| tried.0 == 0).count(), 1);
    made.iter_mut().for_each(|made| made.fails = true);
    let (mut of, mut fake) = (tournament(3, 10.0), Fake::of(&made));
    assert!(matches!(search(&mut of, &mut fake), Err(Error::Data { .. })));
}

#[test]
fn an_ensemble_is_compared_as_any_other_and_can_be_asked_for() {
    let mut of = tournament(2, 10.0);
    search(&mut of, &mut Fake::of(&flat(&[0.5, 0.6], 1.0))).unwrap();
    let averaged = |value| {
        let mut entry = of.candidates[1].clone();
        entry.name = "ensemble".into();
        entry.rounds.last_mut().unwrap().value = value;
        Some(Averaged { entry, members: vec!["c1".into(), "c0".into()] })
    };
    let (better, worse) = (averaged(0.7), averaged(0.55));
    let model = |of: &Tournament| of.preferred().unwrap().name.clone();
    of.ensemble = better;
    assert_eq!(model(&of), "ensemble");
    assert!(of.why().contains("the mean of c1, c0") && of.to_string().contains("\nensemble "), "{of}");
    of.ensemble = worse;
    assert_eq!(model(&of), "c1");
    of.prefer = Prefer::Ensemble;
    assert_eq!(model(&of), "ensemble");
    of.prefer = Prefer::Simplest;
    assert_eq!(model(&of), "c1");
    (of.prefer, of.ensemble) = (Prefer::Ensemble, None);
    assert_eq!(model(&of), "c1", "there is none");
}

#[test]
fn a_record_says_in_words_why_the_model_is_what_it_is() {
    let mut of = tournament(3, 10.0);
    search(&mut of, &mut Fake::of(&flat(&[0.5, 0.59, 0.6], 1.0))).unwrap();
    let says = |of: &Tournament, parts: &[&str]| {
        let why = of.why();
        parts.iter().for_each(|part| assert!(why.contains(part), "{why}\nlacks {part}"));
    };
    let single = "c2 has the highest validation average precision of 3 candidates, 0.6000 ± 0.0200, on 100 labels.";
    let simplest = "The simplest within a standard error of the highest figure is c1, 0.5900 ± 0.0200";
    let would = format!("{simplest}: auto.prefer = \"simplest\" would take it.");
    says(&of, &["The model is c2: auto.prefer = \"best\" takes the highest figure.", single, &would, "is optimistic"]);
    of.prefer = Prefer::Simplest;
    says(&of, &["The model is c1: auto.prefer = \"simplest\" takes it.", single, &format!("{simplest}.")]);
    of.prefer = Prefer::Ensemble;
    says(&of, &["The model is c2, with the highest figure, as there is no ensemble.", single, &would]);
    let mut entry = of.candidates[2].clone();
    entry.name = "ensemble".into();
    entry.rounds.last_mut().unwrap().value = 0.58;
    of.ensemble = Some(Averaged { entry, members: vec!["c2".into(), "c1".into()] });
    // It is taken though its figure is not the highest, which the words do not hide.
    let default =
        "The model is the ensemble: by default (auto.prefer = \"ensemble\") it is taken wherever there is one.";
    says(&of, &[default, single, "The ensemble is the mean of c2, c1 and has 0.5800 ± 0.0200: ", &would]);
    of.ensemble.as_mut().unwrap().entry.rounds.last_mut().unwrap().value = 0.7;
    let alone = "The simplest within a standard error of the highest figure is ensemble, 0.7000 ± 0.0200.";
    says(&of, &[default, single, alone]);
}

#[test]
fn the_simplest_within_one_standard_error_of_the_best() {
    let round = |value, error| Round {
        round: 1,
        share: 1.0,
        done: 1,
        value,
        error,
        seconds: 1.0,
        memory: None,
        device_memory: None,
        complete: true,
    };
    let simplest = |values: &[f64], error: Option<f64>| {
        let mut of = tournament(values.len(), 1.0);
        of.prefer = Prefer::Simplest;
        for (entry, value) in of.candidates.iter_mut().zip(values) {
            entry.rounds.push(round(*value, error));
        }
        of.preferred().unwrap().name.clone()
    };
    assert_eq!(simplest(&[0.70, 0.79, 0.80, 0.75], Some(0.02)), "c1");
    assert_eq!(simplest(&[0.78, 0.79, 0.80], Some(0.02)), "c0", "as near as the error is near enough");
    assert_eq!(simplest(&[0.70, 0.79, 0.80], Some(0.001)), "c2");
    assert_eq!(simplest(&[0.70, 0.79, 0.80], None), "c2", "without an error nothing is as good as the best");
    let mut of = tournament(3, 1.0);
    assert!(of.preferred().is_none() && of.why().starts_with("No candidate"));
    of.candidates[1].rounds.push(round(0.5, None));
    assert_eq!(of.best().unwrap().name, "c1", "what was not tried does not count");
}

#[test]
fn memory_of_the_device_has_a_column_where_the_device_tells() {
    let mut of = tournament(1, 1.0);
    of.candidates[0].rounds = [Some(3_000_000), Some(2_000_000), None]
        .map(|device_memory| Round {
            round: 1,
            share: 1.0,
            done: 1,
            value: 0.5,
            error: None,
            seconds: 1.0,
            memory: Some(5_000_000),
            device_memory,
            complete: true,
        })
        .to_vec();
    let shown = |of: &Tournament| (of.header(), of.line(&of.candidates[0]), of.to_string());
    let (header, line, table) = shown(&of);
    assert!(header.ends_with("  memory") && line.ends_with("  5 MB") && !table.contains("device memory"), "{table}");
    of.device_memory = true;
    let (header, line, table) = shown(&of);
    assert!(header.ends_with("  device memory") && line.ends_with("  3 MB"), "{header}\n{line}");
    assert!(table.contains("device memory") && table.contains("3 MB"), "{table}");
    of.candidates[0].rounds.remove(0);
    of.candidates[0].rounds.remove(0);
    assert!(of.line(&of.candidates[0]).ends_with("  -"), "a device that tells nothing of this one");
}
