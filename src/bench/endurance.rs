//! Many short trainings and scorings in one process, which may hold no more at their end than after the first few.
//!
//! Every training is that of `graphsieve train`, with a run directory, checkpoints and an evaluation, and every scoring
//! that of `graphsieve score`, from the files of a finished run to a list in a file. Runs are removed as they are done
//! with.

use std::fmt;
use std::fs;
use std::path::Path;
use std::time::Instant;

use graphsieve_kernels::{GraphBackend, TreeBackend};
use serde::Serialize;

use super::{Note, usage};
use crate::config::RunConfig;
use crate::data::synth::{self, SynthConfig};
use crate::error::{Error, Result};
use crate::graph::atomic_write;
use crate::memory::{of_status, resident_peak};
use crate::run::RunDir;
use crate::run::calibration::read_calibration;
use crate::score::list::{ListColumns, write_csv};
use crate::score::ranking::{RankingFilter, Scored, rank};
use crate::score::{self, ClassView, ScoreOptions, Scores, compare};
use crate::train::{self, RunOptions};

/// Parts of the work after which the process is looked at.
const PARTS: usize = 10;

/// The process may hold so much more at the end than after the first part: allocators keep pieces between what lives.
/// Of 90,000 epochs each, a leak of 373 bytes an epoch is more.
const MOST_GROWTH: u64 = 32 << 20;

/// The trainings of a round: the task, and what its configuration has beside the data and `[train]`.
const TRAININGS: [(&str, &str); 4] = [
    ("stage1", "[model]\nhidden = 8\nout = 8\n[sampling]\nedges = { pu = 40, ps = 20, uu = 40 }\n"),
    ("stage2", "input = \"features\"\n[model]\nhidden = 8\nout = 8\n[loss]\nsamples_per_relation = 40\n"),
    (
        "stage2",
        "input = \"features\"\n[model]\nhidden = 8\nout = 8\n[loss]\nsamples_per_relation = 40\n\
         [loader]\nmode = \"sampled\"\nfanouts = [3, 2]\nbatch_size = 64\n",
    ),
    ("classify", "[model]\nhidden = 8\n[split]\nuse = \"random\"\n"),
];

/// What to do.
#[derive(Clone, Debug)]
pub struct EnduranceOptions {
    /// Epochs of all trainings together.
    pub epochs: usize,
    /// Scorings of all nodes, of the models in turn.
    pub scorings: usize,
    /// Rounds: each is a training of every kind with its scorings. At least 10.
    pub rounds: usize,
    /// Seed of the data; every training has its own.
    pub seed: u64,
    /// Name and model of the device, for the report.
    pub description: String,
}

/// What a process holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Held {
    pub resident_bytes: u64,
    /// The most so far.
    pub peak_bytes: u64,
    /// In living tensors of a device with memory of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_bytes: Option<u64>,
    /// Open files, sockets and the like.
    pub handles: usize,
    pub threads: usize,
}

/// What was done until then, and what the process held.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Sample {
    pub seconds: f64,
    pub epochs: usize,
    pub scorings: usize,
    #[serde(flatten)]
    pub held: Held,
}

/// What was found.
#[derive(Clone, Debug, Serialize)]
pub struct EnduranceReport {
    pub device: String,
    pub nodes: usize,
    pub edges: usize,
    pub trainings: usize,
    /// Before anything was done, and after every tenth of it.
    pub samples: Vec<Sample>,
    /// Bytes in memory at the end beyond those after the first tenth may be so many.
    pub most_growth_bytes: u64,
}

/// Trains and scores as often as `options` say, in a temporary directory.
///
/// # Errors
/// Settings out of range; a system that does not say what a process holds; what a training or a scoring runs into.
/// Growth is no error here: [`EnduranceReport::verdict`] tells.
pub fn run<B: GraphBackend + TreeBackend>(
    options: &EnduranceOptions,
    device: &B::Device,
    note: Note,
) -> Result<EnduranceReport> {
    let &EnduranceOptions { epochs, scorings, rounds, seed, .. } = options;
    if rounds < PARTS {
        return Err(usage("--rounds", "at least 10", &rounds.to_string(), "memory is compared after every tenth"));
    }
    let trainings = rounds.saturating_mul(TRAININGS.len());
    for (argument, found) in [("--epochs", epochs), ("--scorings", scorings)] {
        if found < trainings {
            let help = format!("a round has {} trainings: give more, or fewer --rounds", TRAININGS.len());
            return Err(usage(
                argument,
                &format!("at least {trainings}, one of each training"),
                &found.to_string(),
                &help,
            ));
        }
    }
    let probe = B::memory_probe(device);
    let held = || held().map(|held| Held { device_bytes: probe.as_ref().map(|probe| probe().in_use), ..held });
    let sandbox = tempfile::tempdir().map_err(|source| Error::io(std::env::temp_dir(), "write", source))?;
    let data = sandbox.path().join("data");
    // The smallest marketplace that there is.
    let small = SynthConfig { users: 200, products: 200, sellers: 8, mean_reviews: 5.0, ..SynthConfig::default() };
    let market = synth::generate(&SynthConfig { co_review_cap: 2, seed, ..small }, &|_, _, _| ())?;
    market.write(&data)?;
    let (nodes, edges) = (market.graph.num_nodes(), market.graph.num_edges());
    drop(market);
    let run_options = RunOptions::quiet(&options.description);

    let started = Instant::now();
    let sample = |epochs: usize, scorings: usize| -> Result<Sample> {
        Ok(Sample { seconds: started.elapsed().as_secs_f64(), epochs, scorings, held: held()? })
    };
    let mut samples = vec![sample(0, 0)?];
    // Of so many in all those before training number `at`.
    let before = |all: usize, at: usize| (all as u128 * at as u128 / trainings as u128) as usize;
    for at in 0..trainings {
        let (round, kind, done) = (at / TRAININGS.len(), at % TRAININGS.len(), at + 1);
        let config = RunConfig::parse(
            &configuration(TRAININGS[kind], sandbox.path(), before(epochs, done) - before(epochs, at)),
            Path::new("endurance.toml"),
            &[format!("seed={}", seed + round as u64)],
        )?;
        let outcome = train::run::<B>(config, &run_options, device)?;
        let of_stage1 = outcome.stage1.as_ref().map(|of| of.run.as_path());
        let run = outcome.last_judged().or(of_stage1).unwrap_or_else(|| unreachable!("every training leaves a run"));
        for _ in before(scorings, at)..before(scorings, done) {
            list::<B>(run, &data, &sandbox.path().join("scores.csv"), device)?;
        }
        fs::remove_dir_all(run).map_err(|source| Error::io(run, "remove", source))?;
        if kind + 1 == TRAININGS.len() && PARTS * (round + 1) / rounds > PARTS * round / rounds {
            let [trained, scored] = [epochs, scorings].map(|all| before(all, done));
            samples.push(sample(trained, scored)?);
            note(&format!("{trained} of {epochs} epochs, {scored} of {scorings} scorings"));
        }
    }
    let device = options.description.clone();
    Ok(EnduranceReport { device, nodes, edges, trainings, samples, most_growth_bytes: MOST_GROWTH })
}

/// The configuration of a training of so many epochs on the data in `place`.
fn configuration((task, settings): (&str, &str), place: &Path, epochs: usize) -> String {
    let [runs, data] = ["runs", "data"].map(|name| toml::Value::String(place.join(name).display().to_string()));
    format!(
        "task = \"{task}\"\n[output]\ndir = {runs}\nplots = false\n[train]\nepochs = {epochs}\n[data]\npath = {data}\n\
         {settings}"
    )
}

/// Scores all nodes of `data` with the model of a run and writes the list to `file`.
fn list<B: GraphBackend>(run: &Path, data: &Path, file: &Path, device: &B::Device) -> Result<()> {
    let mut computed = score::compute::<B>(&ScoreOptions::new(run, data), device)?;
    let run = RunDir::open(run)?;
    let (scores, view) = match computed.scores {
        Scores::Anomaly(scores) => (scores, None),
        Scores::Classes(probabilities) => {
            let view = ClassView::new(probabilities, None)?;
            view.relabel(&mut computed.dataset);
            (view.scores(), Some(view))
        }
    };
    compare(&run, &computed.dataset, &scores, data, None)?;
    let calibration = match &view {
        None => read_calibration(&run)?,
        // Probabilities of classes are scores.
        Some(_) => None,
    };
    let (dataset, calibration, classes) = (&computed.dataset, calibration.as_ref(), view.as_ref());
    let scored = Scored { dataset, scores: &scores, calibration, split: None, classes };
    let ranking = rank(&scored, &RankingFilter::default())?;
    atomic_write(file, |out| write_csv(&ranking, ListColumns { ends: false, classes: classes.is_some() }, out))
}

/// What this process holds.
///
/// # Errors
/// [`Error::Data`] where the system does not say.
fn held() -> Result<Held> {
    let entries = |of: &str| fs::read_dir(Path::new("/proc/self").join(of)).ok().map(Iterator::count);
    let found = || {
        let (resident_bytes, peak_bytes) = (of_status("VmRSS:")?, resident_peak()?);
        // One handle is that of the directory that is read.
        let (handles, threads) = (entries("fd")?.saturating_sub(1), entries("task")?);
        Some(Held { resident_bytes, peak_bytes, device_bytes: None, handles, threads })
    };
    found().ok_or_else(|| Error::Data {
        what: "/proc/self".into(),
        expected: "what this process holds".into(),
        found: "a system that does not say".into(),
        help: "measure on Linux".into(),
    })
}

impl EnduranceReport {
    /// Fails when the process holds more at the end than after the first tenth: handles or threads at all, memory by
    /// more than allocators keep.
    ///
    /// # Errors
    /// [`Error::Data`] that says what has grown.
    pub fn verdict(&self) -> Result<()> {
        let [_, first, .., last] = &self.samples[..] else { return Ok(()) };
        let mega = |bytes: u64| format!("{:.1} MB", bytes as f64 / 1e6);
        let grown = |name: &str, of: &dyn Fn(&Held) -> u64, most: u64, shown: &dyn Fn(u64) -> String| {
            let [before, after] = [of(&first.held), of(&last.held)];
            (after > before + most).then(|| format!("{name} from {} to {}", shown(before), shown(after)))
        };
        let most = self.most_growth_bytes;
        let all = [
            grown("memory", &|held| held.resident_bytes, most, &mega),
            grown("device memory", &|held| held.device_bytes.unwrap_or(0), most, &mega),
            grown("handles", &|held| held.handles as u64, 0, &|count| count.to_string()),
            grown("threads", &|held| held.threads as u64, 0, &|count| count.to_string()),
        ];
        let found: Vec<String> = all.into_iter().flatten().collect();
        if found.is_empty() {
            return Ok(());
        }
        Err(Error::Data {
            what: format!("this process over {} epochs and {} scorings", last.epochs, last.scorings),
            expected: format!(
                "no more handles and threads than after a tenth of them, and at most {} more memory",
                mega(most)
            ),
            found: found.join(", "),
            help: "this program has a leak; please report it with the table above".into(),
        })
    }
}

impl fmt::Display for EnduranceReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { device, nodes, edges, trainings, samples, most_growth_bytes } = self;
        writeln!(f, "{trainings} trainings on {nodes} nodes and {edges} edges in one process on {device}\n")?;
        writeln!(f, "   seconds    epochs  scorings  memory MB    peak MB  device MB  handles  threads")?;
        for Sample { seconds, epochs, scorings, held } in samples {
            let Held { resident_bytes, peak_bytes, device_bytes, handles, threads } = *held;
            let [resident, peak] = [resident_bytes, peak_bytes].map(|bytes| bytes as f64 / 1e6);
            let of_device = device_bytes.map_or("-".into(), |bytes| format!("{:.1}", bytes as f64 / 1e6));
            let done = format!("{seconds:10.1}{epochs:10}{scorings:10}");
            writeln!(f, "{done}{resident:11.1}{peak:11.1}{of_device:>11}{handles:9}{threads:9}")?;
        }
        if let [_, first, .., last] = &samples[..] {
            let grown = last.held.resident_bytes as f64 - first.held.resident_bytes as f64;
            let (epochs, most) = (last.epochs - first.epochs, *most_growth_bytes as f64 / 1e6);
            writeln!(
                f,
                "\nmemory since the first tenth: {:+.1} MB of at most {most:.1} MB more, {:+.0} bytes an epoch",
                grown / 1e6,
                grown / epochs as f64
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(of: [Held; 3]) -> EnduranceReport {
        let sample = |(at, held): (usize, Held)| Sample { seconds: 1.0, epochs: at * 10, scorings: at, held };
        let samples = of.into_iter().enumerate().map(sample).collect();
        EnduranceReport { device: "cpu".into(), nodes: 3, edges: 4, trainings: 4, samples, most_growth_bytes: 1 << 20 }
    }

    #[test]
    fn what_has_grown_since_the_first_tenth_fails_and_is_named() {
        let start = Held { resident_bytes: 5 << 20, peak_bytes: 5 << 20, device_bytes: None, handles: 4, threads: 2 };
        let warm = Held { resident_bytes: 50 << 20, handles: 6, threads: 5, ..start };
        assert!(report([start, warm, Held { resident_bytes: 51 << 20, ..warm }]).verdict().is_ok());
        let grown = [
            (Held { resident_bytes: (51 << 20) + 1, ..warm }, "memory from 52.4 MB to 53.5 MB"),
            (Held { handles: 7, ..warm }, "handles from 6 to 7"),
            (Held { threads: 6, ..warm }, "threads from 5 to 6"),
        ];
        for (end, part) in grown {
            let refused = report([start, warm, end]).verdict().unwrap_err();
            assert!(refused.to_string().contains(part) && refused.exit_code() == 1, "{refused}");
        }
    }

    #[test]
    fn settings_without_an_epoch_for_every_training_are_refused() {
        use burn_flex::{Flex, FlexDevice};
        let options = EnduranceOptions { epochs: 39, scorings: 40, rounds: 10, seed: 1, description: String::new() };
        let refused = |options: &EnduranceOptions| run::<Flex>(options, &FlexDevice, &|_| {}).unwrap_err().to_string();
        assert!(refused(&options).contains("--epochs: expected at least 40"), "{}", refused(&options));
        let few = EnduranceOptions { rounds: 9, ..options };
        assert!(refused(&few).contains("--rounds: expected at least 10"), "{}", refused(&few));
    }
}
