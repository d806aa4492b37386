//! The candidates of a tournament as trainings of the tasks that there are.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use graphsieve_kernels::{GraphBackend, TreeBackend};

use super::ensemble::Said;
use super::figure::figure;
use super::known::Known;
use super::search::{Attempt, Contest};
use super::selection::{Found, MOST_CANDIDATES, found};
use super::{CANDIDATES, ENSEMBLE, STAGE1};
use crate::config::{AutoConfig, Candidate, RunConfig, Stage1Config, Stage3Config, Training};
use crate::error::Result;
use crate::infer::tree_table::Tables;
use crate::memory::{forget_peak, resident_peak};
use crate::run::bundle::Bundle;
use crate::run::progress::Mode;
use crate::run::stages::Pipeline;
use crate::run::tournament::{Averaged, Entry, Round, Tournament};
use crate::run::{RunDir, interrupt};
use crate::train::fit::{self, Given};
use crate::train::ranks::alone;
use crate::train::session::RunOptions;
use crate::train::stretch::{Judged, Stretch, Validated};
use crate::train::tasks::auto_encoder;
use crate::train::watch::watched;

/// Between two looks at the memory of the device.
const BETWEEN_SAMPLES: Duration = Duration::from_millis(5);

/// Trainings of candidates, in runs of their own within that of the tournament.
pub struct Trainings<'a, B: GraphBackend> {
    known: &'a Known,
    candidates: &'a [&'static Candidate],
    /// Of each candidate.
    trainings: Vec<Vec<Training>>,
    /// What candidates on embeddings read.
    stage1: Stage1Config,
    run: &'a RunDir,
    options: &'a RunOptions,
    device: &'a B::Device,
    /// Of the same graph and features.
    tables: &'a Tables,
    started: Instant,
}

/// How the run of a training is gone on with; without a stretch of its own it trains nothing.
pub fn options_of(name: &str, run: &RunDir, options: &RunOptions) -> Result<RunOptions> {
    let pipeline = Pipeline::candidate(run, &run.path().join(CANDIDATES), name);
    Ok(RunOptions {
        resume: pipeline.begun()?,
        pipeline: Some(pipeline),
        stretch: Some(Stretch::NONE),
        progress: Mode::Quiet,
        ..options.clone()
    })
}

impl<'a, B: GraphBackend> Trainings<'a, B> {
    pub fn new(
        config: &AutoConfig,
        known: &'a Known,
        candidates: &'a [&'static Candidate],
        run: &'a RunDir,
        options: &'a RunOptions,
        device: &'a B::Device,
        tables: &'a Tables,
    ) -> Result<Self> {
        let runs = run.path().join(CANDIDATES);
        let trainings = candidates.iter().map(|candidate| known.trainings(candidate, config, &runs));
        let trainings = trainings.collect::<Result<Vec<_>>>()?;
        let mut stage1 = Candidate::stage1(config)?;
        stage1.output.dir = runs;
        Ok(Self { known, candidates, trainings, stage1, run, options, device, tables, started: Instant::now() })
    }

    /// The trainings of all candidates, with the run of Stage 1 where it was begun.
    ///
    /// # Errors
    /// A record of runs that cannot be read.
    pub fn into_trainings(mut self) -> Result<Vec<Vec<Training>>> {
        if let Some(stage1) = options_of(STAGE1, self.run, self.options)?.resume {
            let all = self.trainings.iter_mut().flatten();
            let places = all.filter_map(|training| training.config.embeddings_mut());
            places.for_each(|place| place.clone_from(&stage1));
        }
        Ok(self.trainings)
    }
}

impl<B: GraphBackend + TreeBackend> Trainings<'_, B> {
    /// The run of the Stage 1 whose embeddings candidates read. It needs no label, and is trained once: to its end, or
    /// for half of the time that the first of these candidates has.
    fn stage1(&self, stretch: Stretch) -> Result<PathBuf> {
        let stretch = Stretch { share: 1.0, ..stretch.divided(2) };
        let options = RunOptions { stretch: Some(stretch), ..options_of(STAGE1, self.run, self.options)? };
        match &options.resume {
            Some(run) if Bundle::is_finished(run)? => Ok(run.clone()),
            _ => Ok(alone(auto_encoder::run::<B>(&self.stage1, &options, None, self.device)?).run),
        }
    }

    /// Trains candidate `at` as far as `stretch` says: of several trainings each, one after the other, in equal parts
    /// of the time. `also` are nodes that are scored beside those of the validation part, of labels that are anomalous
    /// or normal.
    ///
    /// # Errors
    /// What a training runs into.
    pub fn validated(&self, at: usize, stretch: Stretch, also: &[u32]) -> Result<Validated> {
        let trainings = &self.trainings[at];
        let left = (1..=trainings.len() as u32).rev();
        let each = trainings.iter().zip(left).map(|(own, left)| self.trained(own, stretch.divided(left), also));
        Ok(Validated::mean(each.collect::<Result<Vec<_>>>()?))
    }

    fn trained(&self, training: &Training, stretch: Stretch, also: &[u32]) -> Result<Validated> {
        let options = RunOptions { stretch: Some(stretch), ..options_of(&training.name, self.run, self.options)? };
        let mut config = training.config.clone();
        if let Some(place) = config.embeddings_mut() {
            *place = self.stage1(stretch)?;
        }
        let given = Given { known: self.known, also, tables: self.tables };
        fit::model::<B>(&config).validated(&given, &options, self.device)
    }
}

impl<B: GraphBackend> Trainings<'_, B> {
    /// The ensemble of at most `most` of the candidates so far, by what they said about the validation labels.
    ///
    /// # Errors
    /// Files that were changed.
    pub fn ensemble(&self, tournament: &Tournament, most: usize) -> Result<Option<Averaged>> {
        let mut entries: Vec<(&Entry, &Round)> =
            tournament.candidates.iter().filter_map(|entry| Some((entry, entry.latest()?))).collect();
        entries.sort_by(|a, b| b.1.value.total_cmp(&a.1.value));
        let (mut judged, mut scores, mut labels) = (Vec::new(), Vec::new(), Vec::new());
        for (entry, round) in entries {
            let Some(said) = Said::read(self.run, &entry.name)? else { continue };
            if (scores.is_empty() || labels == said.labels) && scores.len() < MOST_CANDIDATES {
                judged.push((entry, round));
                scores.push(said.scores);
                labels = said.labels;
            }
        }
        let groups = self.known.validation_groups().unwrap_or_else(|| (0..labels.len() as u32).collect());
        let Some(Found { members, scores }) = found(&scores, &labels, &groups, most)? else { return Ok(None) };
        let (value, error) = figure(&Judged::Anomalies { scores, labels })?;
        let members: Vec<(&Entry, &Round)> = members.into_iter().map(|member| judged[member]).collect();
        let names: Vec<String> = members.iter().map(|(entry, _)| entry.name.clone()).collect();
        let rounds = |(entry, _): &(&Entry, &Round)| entry.rounds.iter().map(|round| round.seconds).sum::<f64>();
        let round = Round {
            round: members.iter().map(|(_, round)| round.round).max().unwrap_or(1),
            share: 1.0,
            done: members.len(),
            value,
            error,
            seconds: members.iter().map(rounds).sum(),
            memory: members.iter().filter_map(|(_, round)| round.memory).max(),
            device_memory: members.iter().filter_map(|(_, round)| round.device_memory).max(),
            complete: members.iter().all(|(_, round)| round.complete),
        };
        let about = format!("the mean of {}", names.join(", "));
        let entry = Entry { name: ENSEMBLE.into(), about, rounds: vec![round], fault: None };
        Ok(Some(Averaged { entry, members: names }))
    }
}

impl<B: GraphBackend + TreeBackend> Contest for Trainings<'_, B> {
    fn attempt(&mut self, at: usize, share: f64, time: Option<Duration>) -> Result<Attempt> {
        forget_peak();
        B::memory_cleanup(self.device);
        let deadline = time.and_then(|time| Instant::now().checked_add(time));
        let stretch = Stretch { share, deadline };
        let (validated, on_device) = watched::<B, _>(self.device, BETWEEN_SAMPLES, || self.validated(at, stretch, &[]));
        let Validated { judged, done, complete, .. } = validated?;
        let (value, error) = figure(&judged)?;
        if let Judged::Anomalies { scores, labels } = judged {
            Said { scores, labels }.write(self.run, self.candidates[at].name)?;
        }
        let device_memory = on_device.map(|peak| peak.in_use);
        Ok(Attempt { value, error, done, memory: resident_peak(), device_memory, complete })
    }

    fn stops(&self, at: usize) -> bool {
        // Networks before the trees are most of their time, and stop.
        let alone = |own: &Stage3Config| own.stage2.is_none() && own.data.embeddings.is_none();
        !matches!(&self.trainings[at][0].config, RunConfig::Stage3(own) if alone(own))
    }

    fn is_network(&self, at: usize) -> bool {
        !matches!(&self.trainings[at][0].config, RunConfig::Stage3(_))
    }

    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    fn interrupted(&self) -> bool {
        interrupt::stops()
    }

    fn keep(&mut self, tournament: &Tournament, tried: Option<usize>) -> Result<()> {
        tournament.write(self.run)?;
        let Some(entry) = tried.map(|at| &tournament.candidates[at]) else { return Ok(()) };
        match (entry.latest(), &entry.fault) {
            (_, Some(fault)) => log::warn!("{}: given up: {fault}", entry.name),
            (Some(_), None) => log::info!("{}", tournament.line(entry)),
            (None, None) => {}
        }
        Ok(())
    }
}
