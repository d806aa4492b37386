//! The record of a tournament: what was tried, what the validation labels said of it, and what became the model.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::RunDir;
use crate::config::Prefer;
use crate::error::Result;
use crate::graph::formats::atomic_write;
use crate::graph::json::read_json;
use crate::metrics::write_table;

/// The record in the run of a tournament.
const TOURNAMENT_FILE: &str = "tournament.json";

/// What decides: a figure of the validation labels, the higher the better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Figure {
    /// Of labels that are anomalous or normal.
    AveragePrecision,
    /// Of classes.
    Accuracy,
}

impl Figure {
    /// `average precision`.
    pub fn title(self) -> &'static str {
        match self {
            Figure::AveragePrecision => "average precision",
            Figure::Accuracy => "accuracy",
        }
    }
}

/// A tournament so far.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tournament {
    pub figure: Figure,
    /// Labels of the validation part, by which everything is chosen.
    pub validation_labels: usize,
    /// Time for all trainings together.
    pub minutes: f64,
    /// Time that they took so far.
    pub seconds: f64,
    pub prefer: Prefer,
    /// The simplest first.
    pub candidates: Vec<Entry>,
    /// The ensemble of some of them, where one is of use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ensemble: Option<Averaged>,
    /// Whether nothing is left to try.
    pub complete: bool,
    /// Whether the device has memory of its own and tells of it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub device_memory: bool,
    /// What became the model; of a tournament that was interrupted the best so far.
    pub model: Option<Model>,
}

/// A candidate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    pub name: String,
    pub about: String,
    /// One per round that it took part in.
    pub rounds: Vec<Round>,
    /// Why it was given up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
}

/// Candidates that are averaged.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Averaged {
    /// As if it were a candidate: its figure is nested, time and memory are those of its members.
    pub entry: Entry,
    /// Names of the candidates, the best first.
    pub members: Vec<String>,
}

/// What a candidate reached in a round.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Round {
    /// Counted from 1.
    pub round: usize,
    /// Of its epochs or trees that the round asks for.
    pub share: f64,
    /// Epochs or trees that it came to.
    pub done: usize,
    /// On the validation labels.
    pub value: f64,
    /// Standard error of the value by the bootstrap; `None` where a class has too few labels.
    pub error: Option<f64>,
    /// Time of this round.
    pub seconds: f64,
    /// Largest resident memory while it was trained, in bytes, data included.
    pub memory: Option<u64>,
    /// Largest sample of the bytes in living tensors on the device, where it tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_memory: Option<u64>,
    /// Whether nothing is left to train.
    pub complete: bool,
}

/// The candidate that became the model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Model {
    pub name: String,
    /// Its run, relative to that of the tournament.
    pub run: PathBuf,
}

impl Entry {
    /// What counts: the latest round.
    pub fn latest(&self) -> Option<&Round> {
        self.rounds.last()
    }

    fn value(&self) -> Option<f64> {
        self.latest().map(|round| round.value)
    }
}

impl Tournament {
    /// The record of a run, if it is that of a tournament.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Format`] for a file that is no such record.
    pub fn of_run(run: &Path) -> Result<Option<Self>> {
        let file = run.join(TOURNAMENT_FILE);
        match file.is_file() {
            true => read_json(&file, "the record of a tournament", "the file was changed; start a new run").map(Some),
            false => Ok(None),
        }
    }

    /// Keeps the record in the run.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn write(&self, run: &RunDir) -> Result<()> {
        atomic_write(run.output(TOURNAMENT_FILE), |file| Ok(serde_json::to_writer_pretty(file, self)?))
    }

    /// All candidates, the simplest first, and the ensemble.
    pub fn entries(&self) -> impl DoubleEndedIterator<Item = &Entry> {
        self.candidates.iter().chain(self.ensemble.as_ref().map(|averaged| &averaged.entry))
    }

    /// The candidate with the highest figure, the ensemble included; of equal ones the simplest.
    pub fn best(&self) -> Option<&Entry> {
        highest(self.entries())
    }

    /// The simplest candidate whose figure is at most a standard error of the best one below that.
    pub fn simplest(&self) -> Option<&Entry> {
        let best = self.best()?.latest()?;
        let enough = best.value - best.error.unwrap_or(0.0);
        self.entries().find(|entry| entry.value().is_some_and(|value| value >= enough))
    }

    /// The candidate that becomes the model.
    pub fn preferred(&self) -> Option<&Entry> {
        match self.prefer {
            Prefer::Best => self.best(),
            Prefer::Simplest => self.simplest(),
            Prefer::Ensemble => self.ensemble.as_ref().map(|averaged| &averaged.entry).or_else(|| self.best()),
        }
    }

    /// Why the model is what it is, in sentences.
    pub fn why(&self) -> String {
        let alone = highest(self.candidates.iter());
        let (Some(model), Some(alone), Some(simplest)) = (self.preferred(), alone, self.simplest()) else {
            return "No candidate has been trained yet.".into();
        };
        let figure = self.figure.title();
        let of = |entry: &Entry| entry.latest().map(value_in_words).unwrap_or_default();
        let mut text = match (self.prefer, &self.ensemble) {
            (Prefer::Ensemble, Some(_)) => {
                "The model is the ensemble: by default (auto.prefer = \"ensemble\") it is taken wherever there is one."
                    .into()
            }
            (Prefer::Ensemble, None) => {
                format!("The model is {}, with the highest figure, as there is no ensemble.", model.name)
            }
            (Prefer::Best, _) => {
                format!("The model is {}: auto.prefer = \"best\" takes the highest figure.", model.name)
            }
            (Prefer::Simplest, _) => format!("The model is {}: auto.prefer = \"simplest\" takes it.", model.name),
        };
        text += &format!(
            " {} has the highest validation {figure} of {} candidates, {}, on {} labels.",
            alone.name,
            self.candidates.iter().filter(|entry| entry.latest().is_some()).count(),
            of(alone),
            self.validation_labels
        );
        if let Some(Averaged { entry, members }) = &self.ensemble {
            text += &format!(
                " The ensemble is the mean of {} and has {}: its members are chosen on these labels, each part of which \
                 is judged by what the other parts chose.",
                members.join(", "),
                of(entry)
            );
        }
        text += &format!(
            " The simplest within a standard error of the highest figure is {}, {}{}.",
            simplest.name,
            of(simplest),
            if simplest.name == model.name { "" } else { ": auto.prefer = \"simplest\" would take it" }
        );
        text + " The best of many on the same labels is optimistic: the test figures are those to go by."
    }
}

/// The entry with the highest figure, of equal ones the first.
fn highest<'a>(entries: impl DoubleEndedIterator<Item = &'a Entry>) -> Option<&'a Entry> {
    let entries = entries.filter(|entry| entry.value().is_some());
    // Of equals `max_by` takes the last.
    entries.rev().max_by(|a, b| a.value().unwrap_or(f64::MIN).total_cmp(&b.value().unwrap_or(f64::MIN)))
}

/// `0.8312 ± 0.0210`
fn value_in_words(round: &Round) -> String {
    match round.error {
        Some(error) => format!("{:.4} ± {error:.4}", round.value),
        None => format!("{:.4}", round.value),
    }
}

impl Entry {
    /// Name, epochs or trees, figure, time and memory of the latest round, for tables.
    fn cells(&self) -> [String; 7] {
        let dash = || "-".to_owned();
        let latest = self.latest();
        let seconds: f64 = self.rounds.iter().map(|round| round.seconds).sum();
        let largest = |memory: fn(&Round) -> Option<u64>| {
            let bytes = self.rounds.iter().filter_map(memory).max();
            bytes.map_or_else(dash, |bytes| format!("{:.0} MB", bytes as f64 / 1e6))
        };
        [
            self.name.clone(),
            latest.map_or_else(dash, |round| round.round.to_string()),
            latest.map_or_else(dash, |round| round.done.to_string()),
            match (latest, &self.fault) {
                (Some(round), _) => value_in_words(round),
                (None, Some(_)) => "failed".into(),
                (None, None) => dash(),
            },
            if latest.is_some() { format!("{seconds:.1} s") } else { dash() },
            largest(|round| round.memory),
            largest(|round| round.device_memory),
        ]
    }
}

/// Titles of [`Entry::cells`].
const COLUMNS: [&str; 7] = ["candidate", "round", "epochs or trees", "validation", "time", "memory", "device memory"];

impl Tournament {
    /// The titles of a table of candidates; memory of the device where it tells.
    pub fn titles(&self) -> &'static [&'static str] {
        &COLUMNS[..if self.device_memory { 7 } else { 6 }]
    }

    /// What a table says of a candidate under these titles.
    pub fn cells(&self, entry: &Entry) -> Vec<String> {
        entry.cells().into_iter().take(self.titles().len()).collect()
    }

    /// The titles of [`line`](Self::line).
    pub fn header(&self) -> String {
        self.aligned(self.titles().iter().map(|title| (*title).into()).collect())
    }

    /// A line about a candidate, as a table that grows.
    pub fn line(&self, entry: &Entry) -> String {
        self.aligned(self.cells(entry))
    }

    fn aligned(&self, cells: Vec<String>) -> String {
        let width = self.entries().map(|entry| entry.name.len()).max().unwrap_or(0).max(COLUMNS[0].len());
        let mut line = format!("{:<width$}", cells[0]);
        for (cell, width) in cells[1..].iter().zip([5, 15, 15, 9, 8, 13]) {
            line += &format!("  {cell:>width$}");
        }
        line
    }
}

impl fmt::Display for Tournament {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rows: Vec<Vec<String>> = vec![self.titles().iter().map(|title| (*title).into()).collect()];
        rows.extend(self.entries().map(|entry| self.cells(entry)));
        write_table(f, &rows)?;
        for (entry, fault) in self.candidates.iter().filter_map(|entry| Some((entry, entry.fault.as_ref()?))) {
            writeln!(f, "{}: {fault}", entry.name)?;
        }
        writeln!(f, "\n{}", self.why().replace(". ", ".\n"))?;
        match &self.model {
            Some(model) => writeln!(f, "model: {}", model.name),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, rounds: &[Round], fault: Option<&str>) -> Entry {
        Entry { name: name.into(), about: String::new(), rounds: rounds.to_vec(), fault: fault.map(Into::into) }
    }

    #[test]
    fn a_line_has_the_time_of_all_rounds_and_the_largest_memory_of_any() {
        let first = Round {
            round: 1,
            share: 0.25,
            done: 25,
            value: 0.5,
            error: None,
            seconds: 1.2,
            memory: Some(84_000_000),
            device_memory: Some(7_000_000),
            complete: false,
        };
        let second = Round { round: 2, value: 0.83124, error: Some(0.021), seconds: 2.0, ..first };
        let second = Round { done: 50, memory: Some(1_200_000_000), device_memory: Some(6_000_000), ..second };
        let quiet = Round { memory: None, device_memory: None, ..first };
        let mut tournament = Tournament {
            figure: Figure::AveragePrecision,
            validation_labels: 40,
            minutes: 1.0,
            seconds: 3.25,
            prefer: Prefer::Best,
            candidates: vec![
                entry("forest-means", &[first, second], None),
                entry("gcn", &[quiet], None),
                entry("bwgnn", &[], Some("no memory")),
                entry("gat", &[], None),
            ],
            ensemble: None,
            complete: false,
            device_memory: true,
            model: None,
        };
        let lines = |of: &Tournament| {
            let lines = of.candidates.iter().map(|entry| of.line(entry));
            std::iter::once(of.header()).chain(lines).collect::<Vec<String>>()
        };
        let with_device = [
            "candidate     round  epochs or trees       validation       time    memory  device memory",
            "forest-means      2               50  0.8312 ± 0.0210      3.2 s   1200 MB           7 MB",
            "gcn               1               25           0.5000      1.2 s         -              -",
            "bwgnn             -                -           failed          -         -              -",
            "gat               -                -                -          -         -              -",
        ];
        assert_eq!(lines(&tournament), with_device);
        tournament.device_memory = false;
        let without: Vec<String> = with_device.iter().map(|line| line.chars().take(74).collect()).collect();
        assert_eq!(lines(&tournament), without);
    }
}
