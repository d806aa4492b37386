//! Successive halving: every candidate for a part of its epochs or trees, the better half for more, until some are
//! trained to their end; then the others, the best first, as long as there is time. Networks and trees are halved each
//! among themselves: after a few epochs a network says little of what it will be, when trees are nearly what they are.

use std::time::Duration;

use crate::error::{Error, Result};
use crate::run::tournament::{Entry, Round, Tournament};

/// What a round asks for, of all epochs or trees. The better half of the networks of a round and of its trees goes on
/// to the next; the last is for those that were left behind.
const SHARES: [f64; 4] = [0.25, 0.5, 1.0, 1.0];
/// The round of those that were left behind.
const LAST: usize = SHARES.len();

/// Seconds that are as good as no limit.
const LONGEST: f64 = 1e9;

/// What is tried, and the clock.
pub trait Contest {
    /// Trains candidate `at` until it has `share` of its epochs or trees, for no longer than `time` if it can stop
    /// before, and judges it by the validation labels.
    ///
    /// # Errors
    /// What the training runs into; an interruption ends the search, anything else the candidate.
    fn attempt(&mut self, at: usize, share: f64, time: Option<Duration>) -> Result<Attempt>;

    /// Whether a candidate stops when its time is over.
    fn stops(&self, at: usize) -> bool;

    /// Whether a candidate is a network, and no trees.
    fn is_network(&self, at: usize) -> bool;

    /// Time since any fixed moment.
    fn now(&self) -> Duration;

    /// Whether the user asked to stop.
    fn interrupted(&self) -> bool;

    /// Keeps what is known so far; `tried` is the candidate that a round has just ended for.
    ///
    /// # Errors
    /// A record that cannot be written.
    fn keep(&mut self, tournament: &Tournament, tried: Option<usize>) -> Result<()>;
}

/// What a candidate reached.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Attempt {
    pub value: f64,
    pub error: Option<f64>,
    pub done: usize,
    pub memory: Option<u64>,
    pub device_memory: Option<u64>,
    pub complete: bool,
}

/// Goes through the rounds that are left. The first candidate, the simplest, is tried in any case.
///
/// What is left of the time is shared by the attempts that are left, in proportion to what each adds to its
/// candidate; what one does not need the others have. A candidate that cannot stop is not gone on with if the time that
/// it took so far says that it would take more than is left.
///
/// # Errors
/// [`Error::Interrupted`]; the error of the last candidate where none could be trained.
pub fn search(tournament: &mut Tournament, contest: &mut impl Contest) -> Result<()> {
    let budget = 60.0 * tournament.minutes;
    let mut last_error = None;
    let networks: Vec<bool> = (0..tournament.candidates.len()).map(|at| contest.is_network(at)).collect();
    for round in 1..=LAST {
        let entrants = entrants(&tournament.candidates, &networks, round);
        let of_networks = entrants.iter().filter(|&&at| networks[at]).count();
        let families = [of_networks, entrants.len() - of_networks];
        for (place, &at) in entrants.iter().enumerate() {
            let entry = &tournament.candidates[at];
            let before = entry.latest().copied();
            if entry.fault.is_some() || before.is_some_and(|before| before.round >= round) {
                continue;
            }
            let share = SHARES[round - 1];
            if let Some(before) = before.filter(|before| before.complete) {
                // What is trained to its end is what it is.
                tournament.candidates[at].rounds.push(Round { round, share, seconds: 0.0, ..before });
                continue;
            }
            if contest.interrupted() {
                return Err(interrupted());
            }
            let first = tournament.candidates.iter().all(|entry| entry.latest().is_none());
            let left = (budget - tournament.seconds).clamp(0.0, LONGEST);
            let expected = before.filter(|_| !contest.stops(at)).map(|before| before.seconds / before.share * share);
            if !first && (left == 0.0 || expected.is_some_and(|expected| expected > left)) {
                continue;
            }
            let part = weight(round) / weight_left(round, entrants.len() - place, families);
            let time = (!first || contest.stops(at)).then(|| Duration::from_secs_f64(left * part));
            let started = contest.now();
            let attempt = contest.attempt(at, share, time);
            let seconds = contest.now().saturating_sub(started).as_secs_f64();
            tournament.seconds += seconds;
            let entry = &mut tournament.candidates[at];
            match attempt {
                Ok(Attempt { value, error, done, memory, device_memory, complete }) => {
                    entry.rounds.push(Round {
                        round,
                        share,
                        done,
                        value,
                        error,
                        seconds,
                        memory,
                        device_memory,
                        complete,
                    });
                }
                Err(Error::Interrupted { .. }) => {
                    contest.keep(tournament, None)?;
                    return Err(interrupted());
                }
                Err(error) => {
                    entry.fault = Some(error.to_string());
                    last_error = Some(error);
                }
            }
            contest.keep(tournament, Some(at))?;
        }
    }
    match (tournament.best(), last_error) {
        (None, Some(error)) => Err(error),
        _ => {
            tournament.complete = true;
            Ok(())
        }
    }
}

/// Of a tournament, which has no epochs.
fn interrupted() -> Error {
    Error::Interrupted { saved: "everything so far".into(), resume: String::new() }
}

/// The candidates of a round, the simplest first: all of them, or of the round before the better half of the `networks`
/// and that of the others. Candidates that the round before had no time for are out. In the last round all that are not
/// trained to their end, the best first.
fn entrants(candidates: &[Entry], networks: &[bool], round: usize) -> Vec<usize> {
    if round == LAST {
        let unfinished = |at: usize| candidates[at].latest().filter(|latest| !latest.complete || latest.round == LAST);
        let mut order: Vec<(usize, f64)> =
            (0..candidates.len()).filter_map(|at| Some((at, unfinished(at)?.value))).collect();
        order.sort_by(|a, b| b.1.total_cmp(&a.1));
        return order.into_iter().map(|(at, _)| at).collect();
    }
    let Some(before) = round.checked_sub(1).filter(|&before| before > 0) else {
        return (0..candidates.len()).collect();
    };
    let value = |at: usize| candidates[at].rounds.iter().find(|tried| tried.round == before).map(|tried| tried.value);
    let mut order: Vec<(usize, f64)> = entrants(candidates, networks, before)
        .into_iter()
        .filter(|&at| candidates[at].fault.is_none())
        .filter_map(|at| Some((at, value(at)?)))
        .collect();
    // Of equal ones the simplest first: the sort is stable.
    order.sort_by(|a, b| b.1.total_cmp(&a.1));
    let families: (Vec<usize>, Vec<usize>) = order.into_iter().map(|(at, _)| at).partition(|&at| networks[at]);
    let better = |family: Vec<usize>| family[..family.len().div_ceil(2)].to_vec();
    let mut kept = [better(families.0), better(families.1)].concat();
    kept.sort_unstable();
    kept
}

/// What a round adds to the share of a candidate; in the last one all count alike.
fn weight(round: usize) -> f64 {
    match round {
        1 => SHARES[0],
        LAST => 1.0,
        _ => SHARES[round - 1] - SHARES[round - 2],
    }
}

/// The sum of the weights of all attempts that are left: `here` in this round, and the halves of its networks and of
/// its trees in the rounds behind it but the last, which has what they leave.
fn weight_left(round: usize, here: usize, mut families: [usize; 2]) -> f64 {
    let mut sum = here as f64 * weight(round);
    for later in round + 1..LAST {
        families = families.map(|count| count.div_ceil(2));
        sum += (families[0] + families[1]) as f64 * weight(later);
    }
    sum
}

#[cfg(test)]
mod tests;
