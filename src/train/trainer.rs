//! The training loop: steps, validation, early stop, log, checkpoints, interruption and resume of any [`Task`].

use std::path::Path;
use std::time::Instant;

use burn::backend::Autodiff;
use burn::module::AutodiffModule;
use burn::tensor::Tensor;
use graphsieve_kernels::{Communicator, GraphBackend};
use serde::{Deserialize, Serialize};

use super::optimiser::{Optimiser, learning_rate};
use super::position::Position;
use super::ranks::{Next, Rank, settled, shard_of, shared, told};
use super::runner::{Epoch, Runner};
use super::session::{Restored, RunOptions, Session, Start, best_file, check_finite, open_or_create, restored};
use super::task::{Judgement, Task};
use crate::error::{Error, Result};
use crate::graph::Filling;
use crate::models::device_graph::check_device;
use crate::models::parameters::{Parameters, to_host};
use crate::models::weights::Weights;
use crate::run::bundle::Origin;
use crate::run::interrupt;
use crate::timing::Total;

/// Epochs whose losses wait on the device to be read, at most: the allocator goes through all tensors there for every
/// new one.
const MAX_UNREAD: usize = 32;

/// A training in progress, without files.
pub struct Trainer<'t, B: GraphBackend, T: Task<B>> {
    task: &'t T,
    /// Taken while a step is in progress.
    model: Option<T::Model>,
    optimiser: Optimiser<B, T::Model>,
    runner: Runner<B, T>,
    pub position: Position,
    /// The best model so far; see [`Position::best_epoch`].
    pub best: Option<T::Inner>,
    /// Losses that nobody has read yet.
    pending: Vec<Pending<B>>,
    /// Figures of the last validation.
    figures: Option<T::Figures>,
    /// The epoch in which a part of a training ends, which is validated in any case.
    ends_at: Option<usize>,
    /// This rank, of several that train the same model.
    rank: Option<&'t Rank<B>>,
    validations: Total,
}

struct Pending<B: GraphBackend> {
    epoch: usize,
    rate: f64,
    values: Vec<Tensor<B, 1>>,
}

/// What an epoch showed.
pub struct EpochEnd<L> {
    /// Of this epoch and of those before that were not shown yet; empty when nobody asked.
    pub lines: Vec<(usize, L)>,
    /// The loss of the last of them.
    pub loss: Option<f32>,
    /// Training is over.
    pub stop: bool,
}

/// What a training leaves.
pub struct Trained<M> {
    /// The best model, or the last one where nothing was chosen.
    pub model: M,
    /// What rank 0 alone has.
    pub led: Option<Led>,
}

/// A training whose run is written.
pub struct Led {
    pub session: Session,
    pub position: Position,
    /// The last loss; NaN where no epoch was left.
    pub loss: f32,
    /// Mean wall time of the epochs after the first.
    pub seconds_per_epoch: Option<f64>,
}

impl<'t, B: GraphBackend, T: Task<B>> Trainer<'t, B, T> {
    /// A training that goes on with `model` behind `position`, as one of several ranks where there are any.
    ///
    /// # Errors
    /// Settings that the sampler refuses.
    pub fn new(
        task: &'t T,
        model: T::Model,
        optimiser: Optimiser<B, T::Model>,
        position: Position,
        seed: u64,
        rank: Option<&'t Rank<B>>,
    ) -> Result<Self> {
        let runner = task.runner_of(shard_of::<B>(rank), seed, position.epoch + 1)?;
        let (model, pending) = (Some(model), Vec::new());
        let (best, figures, ends_at) = (None, None, None);
        let validations = Total::of("validations");
        Ok(Self { task, model, optimiser, runner, position, best, pending, figures, ends_at, rank, validations })
    }

    /// A training that starts from `seed`.
    ///
    /// # Errors
    /// Settings that the sampler refuses.
    pub fn from_seed(task: &'t T, seed: u64, device: &B::Device) -> Result<Self> {
        let model = task.model(&mut Parameters::<Autodiff<B>>::from_seed(seed, device))?;
        Self::new(task, model, task.optimiser(), Position::default(), seed, None)
    }

    /// The model as it is, without gradients.
    fn current(&self) -> T::Inner {
        self.model.as_ref().unwrap_or_else(|| unreachable!("a step gives the model back")).valid()
    }

    /// Whether an epoch, counted from 1, is validated.
    fn is_due(&self, epoch: usize) -> bool {
        let train = self.task.train();
        epoch == train.epochs || self.ends_at == Some(epoch) || epoch.is_multiple_of(train.validate_every)
    }

    /// Takes the steps of an epoch, counted from 1.
    fn pass(&mut self, epoch: usize) -> Result<T::Detail> {
        let rate = learning_rate(self.task.train(), epoch);
        let model = self.model.take().unwrap_or_else(|| unreachable!("a step gives the model back"));
        let Epoch { model, values, detail } =
            self.runner.epoch(self.task, model, &mut self.optimiser, rate, self.rank)?;
        self.model = Some(model);
        self.position.epoch = epoch;
        self.pending.push(Pending { epoch, rate, values });
        Ok(detail)
    }

    /// Trains one epoch, counted from 1, and validates when that is due; `read` asks for the losses in any case.
    ///
    /// # Errors
    /// A loss that is not finite, a device that failed, or what a thread of the loader ran into.
    pub fn epoch(&mut self, epoch: usize, read: bool) -> Result<EpochEnd<T::Line>> {
        let (task, due) = (self.task, self.is_due(epoch));
        let detail = self.pass(epoch)?;
        let mut end = EpochEnd { lines: Vec::new(), loss: None, stop: false };
        if !due && !read && self.pending.len() < MAX_UNREAD {
            return Ok(end);
        }
        let mut shown = Vec::with_capacity(self.pending.len());
        for Pending { epoch, rate, values } in self.pending.drain(..) {
            let values: Vec<f32> = values.into_iter().map(|value| to_host(value)[0]).collect();
            check_device()?;
            settled::<B>(self.rank)?;
            // The terms before their sum: the message names what diverged.
            for (term, &value) in T::TERMS.iter().zip(&values).rev() {
                check_finite(term, value, epoch)?;
            }
            shown.push((epoch, rate, values));
        }
        if due {
            let model = self.current();
            let figures = self.validations.add(|| task.validate(&model, detail, epoch, self.rank))?;
            let Judgement { keep, stop, metric } = task.judge(&figures, &mut self.position);
            if keep {
                (self.position.best_epoch, self.position.best_metric) = (epoch, metric);
                self.best = Some(model);
            }
            (end.stop, self.figures) = (stop, Some(figures));
        }
        end.loss = shown.last().map(|(_, _, values)| values[0]);
        let line = |(at, rate, values): (usize, f64, Vec<f32>)| {
            (at, task.line(at, rate, &values, self.figures.filter(|_| due && at == epoch)))
        };
        end.lines = shown.into_iter().map(line).collect();
        Ok(end)
    }
}

/// Trains `task` in a run of its own, or goes on with the run that `options` name; as one of several ranks, where there
/// are any. `notes` are told when the run begins. The other ranks read and write no run; what they leave is nothing
/// where rank 0 was asked to stop.
///
/// # Errors
/// A run or a checkpoint that cannot be used, files that cannot be written, a loss that is not finite, another rank
/// that fails, or an interruption (everything is saved then).
pub fn train<B: GraphBackend, T: Task<B>>(
    task: &T,
    place: &Place<'_>,
    options: &RunOptions,
    notes: &[String],
    rank: Option<&Rank<B>>,
    device: &B::Device,
) -> Result<Option<Trained<T::Inner>>> {
    match rank.filter(|rank| rank.rank() > 0) {
        Some(rank) => Ok(follow(task, place.seed, rank, device)?.map(|model| Trained { model, led: None })),
        None => lead(task, place, options, notes, rank, device).map(Some),
    }
}

/// What rank 0 tells the others before the first epoch, besides parameters and moments.
#[derive(Serialize, Deserialize)]
struct Beginning {
    position: Position,
    steps: u64,
}

/// Gives every rank what rank 0 begins with.
fn begin_together<B: GraphBackend, T: Task<B>>(
    rank: &Rank<B>,
    Restored { model, mut optimiser, mut position }: Restored<B, T>,
    device: &B::Device,
) -> Result<Restored<B, T>> {
    position.loss_scale = optimiser.loss_scale();
    let own = Beginning { position, steps: optimiser.steps() };
    let Beginning { position, steps } = told::<B, _>(rank, &own, device)?;
    optimiser.set_loss_scale(position.loss_scale);
    optimiser.set_steps(steps);
    let model = optimiser.share(model, rank, device)?;
    Ok(Restored { model, optimiser, position })
}

/// Trains as a rank other than 0, for as many epochs as rank 0 says; the model that it has chosen.
fn follow<B: GraphBackend, T: Task<B>>(
    task: &T,
    seed: u64,
    rank: &Rank<B>,
    device: &B::Device,
) -> Result<Option<T::Inner>> {
    // Rank 0 sees the request, too, and saves before it ends all.
    interrupt::install();
    let model = task.model(&mut Parameters::<Autodiff<B>>::from_seed(seed, device))?;
    let own = Restored { model, optimiser: task.optimiser(), position: Position::default() };
    let Restored { model, optimiser, position } = begin_together::<B, T>(rank, own, device)?;
    let mut trainer = Trainer::new(task, model, optimiser, position, seed, Some(rank))?;
    loop {
        match told::<B, _>(rank, &Next::Stop, device)? {
            Next::Epoch { epoch, validated } => {
                trainer.pass(epoch)?;
                // Rank 0 reads the losses.
                trainer.pending.clear();
                if validated {
                    task.assist(&trainer.current(), rank)?;
                }
            }
            Next::End => return shared(trainer.current(), rank).map(Some),
            Next::Stop => return Ok(None),
        }
    }
}

/// Trains alone, or as rank 0.
fn lead<B: GraphBackend, T: Task<B>>(
    task: &T,
    place: &Place<'_>,
    options: &RunOptions,
    notes: &[String],
    rank: Option<&Rank<B>>,
    device: &B::Device,
) -> Result<Trained<T::Inner>> {
    let Place { runs, name, seed, config, origin, filling } = *place;
    let (spec, settings) = (task.spec(), task.train());
    // What is refused leaves no directory.
    let start = match (&options.from, origin) {
        (Some(from), Some(origin)) if options.resume.is_none() => Some(Start::read(from, &spec, origin, config)?),
        _ => None,
    };
    let (run, checkpoint) = open_or_create(options, runs, name, seed, config)?;
    start.iter().try_for_each(|start| start.keep(&run))?;
    if let Some(origin) = origin.filter(|_| options.resume.is_some()) {
        origin.check_resumed(&run)?;
    }
    filling.map_or(Ok(()), |filling| filling.keep(run.path()))?;
    let mut restored = restored(&run, checkpoint, task, &spec, seed, device)?;
    if let Some(rank) = rank {
        restored = begin_together(rank, restored, device)?;
    }
    let Restored { model, optimiser, position } = restored;
    let mut trainer = Trainer::new(task, model, optimiser, position, seed, rank)?;
    if position.best_epoch > 0 {
        let file = best_file(&run);
        let (best, _) = Weights::read(&file)?;
        trainer.best = Some(task.inner_model(&mut Parameters::from_tensors(&best.tensors, &file, device))?);
    }
    let mut session = Session::new(run, position.epoch, T::NAME, settings, task.edges_per_epoch(), options.progress)?;
    if let Some(origin) = origin {
        origin.begin(&session.run, start.as_ref().map(Start::run))?;
    }
    let begins = start.map(|start| format!("begins with the weights of {}", start.run().display()));
    let slower = rank.and_then(Communicator::note);
    let begins = begins.into_iter().chain(slower).chain(trainer.runner.note());
    notes.iter().cloned().chain(begins).for_each(|note| session.note(&note));

    // A run that had stopped when it was saved has nothing left to do.
    let mut over = task.is_over(&position);
    let say = |next: Next| rank.map_or(Ok(next), |rank| told::<B, _>(rank, &next, device));
    let (mut saved_best, mut epoch, mut loss) = (position.best_epoch, position.epoch, f32::NAN);
    let until = options.stretch.map_or(settings.epochs, |stretch| stretch.of(settings.epochs));
    if options.pipeline.is_none() && (over || epoch == until) {
        session.note(&format!(
            "nothing is left to train: the run ended with epoch {epoch} of {until}, and is evaluated again"
        ));
    }
    let (mut first, mut later, mut checkpoints) =
        (Total::of("first epoch"), Total::of("later epochs"), Total::of("checkpoints"));
    let mut took = None;
    while epoch < until && !over {
        epoch += 1;
        interrupt::step_begins(took);
        let begun = Instant::now();
        // Before the epoch: when the time is over, it is the last one.
        let ends = epoch == until || options.stretch.is_some_and(|stretch| stretch.is_late());
        trainer.ends_at = ends.then_some(epoch);
        say(Next::Epoch { epoch, validated: trainer.is_due(epoch) })?;
        let save = ends || session.checkpoint_due(epoch, settings);
        let of_epoch = if epoch == position.epoch + 1 { &mut first } else { &mut later };
        let end = of_epoch.add(|| {
            let end = trainer.epoch(epoch, save)?;
            session.epoch_done::<B>(device)?;
            Ok::<_, Error>(end)
        })?;
        over = end.stop;
        if over {
            session.end_at(epoch);
        }
        for (at, line) in &end.lines {
            session.log(*at, line)?;
        }
        if let Some(shown) = end.loss {
            loss = shown;
            let progress = task.progress(trainer.figures, &trainer.position);
            session.show(epoch, &format!("loss {loss:.4}{progress}"));
        }
        // A full disk ends the training now, not at the next checkpoint.
        session.check_saved()?;
        if save || over {
            checkpoints.add(|| {
                session.saved()?;
                // The best model first: a checkpoint to go on from refers to it.
                if let Some(best) = trainer.best.as_ref().filter(|_| trainer.position.best_epoch != saved_best) {
                    session.save_best(&spec, task.export(best));
                    saved_best = trainer.position.best_epoch;
                }
                let tensors = task.export(&trainer.current());
                session.save_last(&spec, &mut trainer.position, tensors, &trainer.optimiser)
            })?;
            let asked = session.stop_if_asked(epoch);
            if asked.is_err() {
                say(Next::Stop)?;
            }
            asked?;
        }
        over |= ends;
        took = Some(begun.elapsed());
    }
    say(Next::End)?;
    if let Some(loaded) = trainer.runner.loaded() {
        session.note(&loaded);
    }
    if loss.is_nan() {
        // Nothing was left to train.
        loss = session.run.history()?.series("loss").last().map_or(f32::NAN, |&(_, loss)| loss as f32);
    }
    let seconds_per_epoch = session.seconds_per_epoch(epoch);
    let model = match trainer.best.take() {
        Some(best) => best,
        // A run that an earlier version ended without choosing.
        None => {
            let last = trainer.current();
            session.save_best(&spec, task.export(&last));
            last
        }
    };
    let model = match rank {
        Some(rank) => shared(model, rank)?,
        None => model,
    };
    session.saved()?;
    let led = Led { session, position: trainer.position, loss, seconds_per_epoch };
    Ok(Trained { model, led: Some(led) })
}

/// Where a run is made, and from what.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    /// The directory of all runs.
    pub runs: &'a Path,
    pub name: &'a str,
    pub seed: u64,
    /// The resolved configuration.
    pub config: &'a str,
    /// The data, of a run that is a model of its own and not a part of another.
    pub origin: Option<&'a Origin>,
    /// What stands for missing values, where features are read.
    pub filling: Option<&'a Filling>,
}
