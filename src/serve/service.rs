//! The engine of the program: the live graph, its log, the model that scores it, and how far all of it has moved.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use graphsieve_kernels::GraphBackend;
use rayon::ThreadPool;
use serde_json::{Value, json};

use super::background::beside;
use super::drift::Drift;
use super::engine::{
    Engine, EngineState, Figure, LabelChange, ScoreAnswer, ScoreRequest, Spent, TableColumns, TargetScore, Write,
    WriteRequest, Written,
};
use super::labels::Labels;
use super::log::{Appended, Batch, Ends, Entry, Key, Log, LogError, Position, Record};
use super::options::Options;
use super::recent::Recent;
use super::refusal::Refusal;
use super::state::State;
use crate::backend::{Device, with_backend};
use crate::data::tables::{IMPORT_BINARY, IMPORT_FILE, UnknownCategories, unknown_categories};
use crate::error::{Error, Result};
use crate::graph::{Dataset, Events};
use crate::live::{self, Change, Columns, Count, Draw, Fault, Live, Makes, NodeKey, Part, Refused, Row, RowReader};
use crate::run::RunDir;
use crate::run::bundle::Bundle;
use crate::run::bundle::drift::Profile;
use crate::run::model::model_of;
use crate::score::explain::Explanation;
use crate::score::explain::drawing::neighbourhood;
use crate::score::{Prepared, Refreshed};
use crate::timing::{alongside, timed};

/// Scores that a rank is among, at most.
const RECENT: usize = 10_000;
/// From this score on a node counts as flagged where the run has chosen no threshold.
const HALF: f32 = 0.5;
/// How long after the last base somebody who was forgotten since may still be in it.
const FORGOTTEN: Duration = Duration::from_secs(600);
/// Records that are replayed together.
const REPLAYED: usize = 1000;

/// Opens what `options` name, up to where the log ends.
///
/// # Errors
/// A model, data or a state directory that cannot be read or do not belong together.
pub fn open(options: &Options, device: Device) -> Result<Arc<dyn Engine>> {
    with_backend!(device, |B, d| {
        let engine: Arc<dyn Engine> = Arc::new(Service::<B>::open(options.clone(), d)?);
        Ok(engine)
    })
}

struct Service<B: GraphBackend> {
    options: Options,
    device: B::Device,
    /// Makes bases and embeddings while others score.
    threads: ThreadPool,
    live: Live,
    reader: RowReader,
    /// What the reader had counted when drift was looked at last.
    counted: Mutex<Vec<UnknownCategories>>,
    log: Log,
    /// Held from the check of a change until the graph has it: log and graph take changes in the same order.
    changing: Mutex<()>,
    /// Held while a base, a model or embeddings are made: one at a time.
    upkeep: Mutex<State>,
    /// Held, to write, for the moment in which another model or other embeddings take over; what is read under one
    /// guard belongs together.
    model: RwLock<Arc<Model<B>>>,
    ends: Ends,
    /// Time of the latest event.
    latest: AtomicI64,
    /// Where the last retention cut.
    cut: AtomicI64,
    /// Whether a node was forgotten that the base may still have.
    forgotten: AtomicBool,
}

/// A model, what it computed of all nodes of the base, and what it said of late.
struct Model<B: GraphBackend> {
    prepared: Arc<Prepared<B>>,
    refreshed: Refreshed,
    since: Instant,
    of: Arc<Said>,
}

/// A record of the log that is done again.
enum Again {
    Rows(Result<Vec<Row>>),
    Label { node: NodeKey, label: u8, known: i64 },
    Forget(NodeKey),
    Before(i64),
}

struct Said {
    drift: Drift,
    recent: Recent,
    labels: Labels,
}

impl<B: GraphBackend> Model<B> {
    fn open(options: &Options, dir: &Path, base: &Dataset, reader: &RowReader, device: &B::Device) -> Result<Self> {
        let prepared = Prepared::open(&options.model, dir, base, device)?.with_tables_of(reader);
        options.fanouts.iter().try_for_each(|fanouts| prepared.check_fanouts(fanouts))?;
        let refreshed = prepared.refresh(base)?;
        let run = model_of(&options.model)?;
        let profile = Bundle::open(&run)?.map(|bundle| bundle.profile(&run)).transpose()?.flatten();
        let profile = profile.unwrap_or_else(|| Profile { node_types: Vec::new(), relations: Vec::new() });
        let drift = Drift::new(profile, unknown_categories(&run)?, base.feature_names.clone());
        let labels = Labels::new(prepared.threshold().map_or(HALF, |threshold| threshold as f32));
        let of = Said { drift, recent: Recent::new(RECENT), labels };
        Ok(Self { prepared: Arc::new(prepared), refreshed, since: Instant::now(), of: Arc::new(of) })
    }

    /// With what it computed of another base.
    fn with(&self, refreshed: Refreshed) -> Self {
        Self { prepared: self.prepared.clone(), refreshed, since: Instant::now(), of: self.of.clone() }
    }

    /// Seconds since embeddings of Stage 1 were computed, of a model that reads some.
    fn embeddings_age(&self) -> Option<f64> {
        self.refreshed.has_embeddings().then(|| self.since.elapsed().as_secs_f64())
    }

    fn threshold(&self) -> Option<f32> {
        self.prepared.threshold().map(|threshold| threshold as f32)
    }
}

impl<B: GraphBackend> Service<B> {
    fn open(options: Options, device: B::Device) -> Result<Self> {
        // Before a state is begun for it.
        RunDir::open(&model_of(&options.model)?)?;
        let is_new = !State::is_begun(&options.state);
        let (state, log, recovered) = timed("the state", || State::open(&options.state, &options.data))?;
        for damage in &recovered.damage {
            match damage.cut {
                true => log::info!("{damage}"),
                false => log::warn!("{damage}"),
            }
        }
        let begun = options.state.clone();
        Self::start(options, device, state, log).inspect_err(|_| {
            if is_new {
                State::take_back(&begun);
            }
        })
    }

    fn start(options: Options, device: B::Device, state: State, log: Log) -> Result<Self> {
        let dir = state.base();
        let base = Dataset::open(&dir)?;
        let reader = RowReader::open(&model_of(&options.model)?, &dir, &base)?;
        let (model, columns) = alongside(
            "opening the model",
            || Model::open(&options, &dir, &base, &reader, &device),
            || timed("columns that depend on other rows", || Columns::new(&reader, &base)),
        );
        let (model, columns) = (model?, columns?);
        let latest = base.events.iter().flat_map(|events| &events.time).filter(|time| **time != Events::NO_TIME).max();
        let latest = AtomicI64::new(latest.copied().unwrap_or(i64::MIN));
        let ends = Ends { relations: reader.named_ends(&base.graph), columns: reader.named_columns() };
        let live = timed("the live graph", || Live::open(base, columns))?.with_files(import_files(&dir)?);
        let service = Self {
            options,
            device,
            threads: beside()?,
            live,
            reader,
            counted: Mutex::default(),
            log,
            changing: Mutex::default(),
            upkeep: Mutex::new(state),
            model: RwLock::new(Arc::new(model)),
            ends,
            latest,
            cut: AtomicI64::new(i64::MIN),
            forgotten: AtomicBool::new(false),
        };
        timed("replaying the log", || service.replay())?;
        // A disk that is full now does not keep scores from being given.
        if let Err(error) = service.retain() {
            log::warn!("retention: {error}; tried again later");
        }
        Ok(service)
    }

    /// Does again what the log has behind the base.
    fn replay(&self) -> Result<()> {
        let from = self.upkeep().position();
        let (mut rows, mut last) = (Vec::new(), from);
        // One thread applies rows while the others read more.
        let read = |Entry { position, record, .. }: Entry| {
            let again = match record {
                Record::Change(change) => Again::Rows(self.reader.read_again(&change)),
                Record::Label { node, label, known } => Again::Label { node, label, known },
                Record::Forget(node) => Again::Forget(node),
                Record::Before(time) => Again::Before(time),
            };
            (position, again)
        };
        let mut refused = 0;
        self.log.replay(from, read, |(position, again)| {
            // What the graph refused at the time, or what names somebody who was forgotten, is refused again.
            let (before, outcome) = match again {
                Again::Rows(Ok(read)) => {
                    rows.push(read);
                    (0, Ok(()))
                }
                Again::Rows(Err(error)) => (0, Err(error)),
                Again::Label { node, label, known } => {
                    (self.append_again(&mut rows), self.live.set_label(&node, label, known))
                }
                Again::Forget(node) => {
                    self.forgotten.store(true, Ordering::Relaxed);
                    (self.append_again(&mut rows), self.live.forget(&node).map(drop))
                }
                Again::Before(time) => {
                    let before = self.append_again(&mut rows);
                    self.drop_before(time);
                    (before, Ok(()))
                }
            };
            refused += before + usize::from(outcome.is_err());
            if let Err(error) = outcome {
                log::debug!("record {position:?}: {error}");
            }
            if rows.len() >= REPLAYED {
                refused += self.append_again(&mut rows);
            }
            last = position;
            Ok(())
        })?;
        refused += self.append_again(&mut rows);
        if refused > 0 {
            log::info!(
                "{refused} records of the log name nodes that are gone, or did not fit then: --verbose lists them"
            );
        }
        self.live.mark(last.0);
        Ok(())
    }

    /// Appends the rows of several records, one by one where they do not fit together; tells how many were refused.
    fn append_again(&self, records: &mut Vec<Vec<Row>>) -> usize {
        let mut refused = 0;
        let lengths: Vec<usize> = records.iter().map(Vec::len).collect();
        let all: Vec<Row> = records.drain(..).flatten().collect();
        if self.live.append_many(&all).is_err() {
            let mut rest = &all[..];
            for length in lengths {
                let (own, behind) = rest.split_at(length);
                if let Err(error) = self.live.append_many(own) {
                    refused += 1;
                    log::debug!("a record: {error}");
                }
                rest = behind;
            }
        }
        self.note_times(&all);
        // To give so many texts back takes as long as to read them.
        rayon::spawn(move || drop(all));
        refused
    }

    fn note_times(&self, rows: &[Row]) {
        let time = |row: &Row| if let Row::Node(node) = row { node.time } else { None };
        if let Some(latest) = rows.iter().filter_map(time).max() {
            self.latest.fetch_max(latest, Ordering::Relaxed);
        }
    }

    /// Leaves out earlier events, and tells how many.
    fn drop_before(&self, time: i64) -> usize {
        self.cut.store(time, Ordering::Relaxed);
        self.live.drop_before(time)
    }

    fn changing(&self) -> MutexGuard<'_, ()> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn upkeep(&self) -> MutexGuard<'_, State> {
        self.upkeep.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn model(&self) -> Arc<Model<B>> {
        self.model.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What is drawn; `named` where reasons are wanted.
    fn draw(&self, model: &Model<B>, named: bool) -> Draw {
        let Options { fanouts, seed, limits, .. } = &self.options;
        let (hops, makes) = match fanouts {
            // Draws say how far they go.
            Some(fanouts) => (fanouts.len(), Makes::default()),
            // Reasons are looked for in all that is around.
            None if named => (model.prepared.hops(), Makes::default()),
            None => model.prepared.reach(),
        };
        Draw { hops, makes, fanouts: fanouts.clone(), seed: *seed, max_nodes: limits.neighbourhood, named }
    }

    /// The rows of each change.
    fn rows(&self, changes: &[Change]) -> Result<Vec<Vec<Row>>, Refusal> {
        let read = |(at, change): (usize, &Change)| {
            self.reader.read(change).map_err(|error| Refusal::from(error).at(place(changes, at)))
        };
        changes.iter().enumerate().map(read).collect()
    }

    fn parts(&self, model: &Model<B>, requests: &[ScoreRequest]) -> Vec<Result<Part, Refusal>> {
        let part = |request: &ScoreRequest| {
            let draw = self.draw(model, request.explain || request.drawing);
            let overlay: Vec<Row> = self.rows(&request.changes)?.into_iter().flatten().collect();
            self.live.part(&request.targets, &overlay, &draw).map_err(refusal)
        };
        requests.iter().map(part).collect()
    }

    fn answer(
        &self,
        model: &Model<B>,
        request: &ScoreRequest,
        part: &Part,
        scores: &[f32],
        spent: Spent,
    ) -> Result<ScoreAnswer, Refusal> {
        let Said { drift, recent, labels } = &*model.of;
        drift.observe(part, scores);
        let own = |node: &NodeKey| {
            request.changes.iter().any(
                |change| matches!(change, Change::Node(row) if row.id == node.id && row.node_type == node.node_type),
            )
        };
        let target = |(at, (node, &score)): (usize, (&NodeKey, &f32))| {
            labels.scored(node, score);
            let explanation = match request.explain || request.drawing {
                true => Some(model.prepared.explain(part, &model.refreshed, at)?),
                false => None,
            };
            let drawing = explanation.as_ref().filter(|_| request.drawing).map(neighbourhood);
            let reasons = explanation.filter(|_| request.explain).map(|explanation| in_json(&explanation)).transpose();
            let answer = TargetScore {
                target: node.to_string(),
                score,
                probability: model.prepared.probability(score),
                rank: recent.rank(score),
                among: recent.len(),
                decision: model.threshold().map(|threshold| score >= threshold),
                known: !own(node),
                embeddings_age: model.embeddings_age(),
                reasons: reasons.map_err(|fault| Error::io("an explanation", "write", fault.into()))?,
                drawing,
            };
            recent.add(score);
            Ok(answer)
        };
        let scores = request.targets.iter().zip(scores).enumerate().map(target).collect::<Result<_, Error>>()?;
        Ok(ScoreAnswer { model: model.prepared.name().into(), threshold: model.threshold(), scores, spent })
    }

    /// What a write appends to the log, where it fits.
    fn checked(&self, write: &Write) -> Result<(Vec<Record>, Vec<Row>), Refusal> {
        match write {
            Write::Rows(changes) => {
                let (changes, rows) = nodes_first(changes, self.rows(changes)?);
                self.live.check(&rows).map_err(refusal)?;
                Ok((changes.into_iter().cloned().map(Record::Change).collect(), rows))
            }
            Write::Labels(labels) => {
                let latest = Live::latest_time();
                for (at, of) in labels.iter().enumerate() {
                    let time = self.live.time(&of.node).ok_or_else(|| unknown(&of.node))?;
                    let (message, expected) = match of.known {
                        known if time != Events::NO_TIME && known < time => {
                            ("a label that was known before its event", format!("a time from {time} on"))
                        }
                        known if known > latest => ("a label that is not known yet", format!("a time up to {latest}")),
                        _ => continue,
                    };
                    return Err(Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, "unfit", message)
                        .expected(expected, of.known.to_string())
                        .at(format!("labels[{at}]")));
                }
                let record =
                    |of: &LabelChange| Record::Label { node: of.node.clone(), label: of.label, known: of.known };
                Ok((labels.iter().map(record).collect(), Vec::new()))
            }
            Write::Forget(node) => match self.live.time(node) {
                Some(_) => Ok((vec![Record::Forget(node.clone())], Vec::new())),
                None => Err(unknown(node)),
            },
        }
    }

    /// Applies what is in the log.
    fn apply(&self, write: &Write, rows: &[Row], position: Position) -> Result<Written, Refusal> {
        let mut written = Written { position: position.0, ..Written::default() };
        match write {
            Write::Rows(_) => {
                let appended = self.live.append(rows).map_err(refusal)?;
                (written.nodes, written.edges) = (appended.nodes, appended.edges);
                self.note_times(rows);
            }
            Write::Labels(labels) => {
                for of in labels {
                    self.live.set_label(&of.node, of.label, of.known)?;
                    self.model().of.labels.label(&of.node, of.label);
                }
                written.labels = labels.len();
            }
            Write::Forget(node) => {
                written.forgotten = usize::from(self.live.forget(node)?);
                self.forgotten.store(true, Ordering::Relaxed);
                self.model().of.labels.forget(node);
            }
        }
        self.live.mark(position.0);
        Ok(written)
    }

    /// Answers what was kept before under its key as the first time, wherever the graph has gone since, and writes the
    /// others.
    fn write_together(&self, requests: &[WriteRequest]) -> Vec<Result<Written, Refusal>> {
        let key = |request: &WriteRequest| request.key.as_ref().map(|key| Key::new(&key.text, &key.body));
        let keys: Vec<Option<Key>> = requests.iter().map(key).collect();
        let repeated = |key: &Option<Key>| Some(self.log.repeated(key.as_ref()?)?.map(repeat).map_err(log_refusal));
        let known: Vec<Option<Result<Written, Refusal>>> = keys.iter().map(repeated).collect();
        let all = requests.iter().zip(&keys).zip(&known);
        let new: Vec<_> = all.filter_map(|(of, known)| known.is_none().then_some(of)).collect();
        let mut new = self.write_new(&new).into_iter();
        // An answer for each, in their order.
        let answer = |known: Option<_>| known.or_else(|| new.next()).unwrap_or_else(|| Err(Refusal::panicked()));
        known.into_iter().map(answer).collect()
    }

    /// Makes writes, each with its key, durable with one sync, and applies them.
    fn write_new(&self, requests: &[(&WriteRequest, &Option<Key>)]) -> Vec<Result<Written, Refusal>> {
        let checked: Vec<_> = requests.iter().map(|(request, _)| self.checked(&request.write)).collect();
        // Each fits the graph; where they do not fit each other, one has to be applied before the next is checked, so
        // that nothing is in the log that the graph refuses.
        if requests.len() > 1 {
            let rows: Vec<Row> = checked.iter().flatten().flat_map(|(_, rows)| rows).cloned().collect();
            if self.live.check(&rows).is_err() {
                let one = |(request, _): &(&WriteRequest, _)| self.write_together(std::slice::from_ref(*request));
                return requests.iter().flat_map(one).collect();
            }
        }
        let good = checked.iter().zip(requests).filter_map(|(of, (_, key))| Some((&of.as_ref().ok()?.0, key.as_ref())));
        let batches: Vec<Batch> = good.map(|(records, key)| Batch { records, key }).collect();
        let mut appended = self.log.append_all(&batches).into_iter();
        let each = checked.into_iter().zip(requests).map(|(checked, (request, _))| {
            let (_, rows) = checked?;
            // An answer for each batch, in their order.
            let appended = appended.next().ok_or_else(Refusal::panicked)?.map_err(log_refusal)?;
            match appended.repeated {
                true => Ok(repeat(appended)),
                false => self.apply(&request.write, &rows, appended.position),
            }
        });
        each.collect()
    }

    /// Joins what was appended with the base, computes embeddings of it, and goes on with both.
    fn rebase(&self) -> Result<()> {
        let mut state = self.upkeep();
        let forgotten = self.forgotten.swap(false, Ordering::Relaxed);
        // What is forgotten from here on is in the next base still, or not: it counts for the one behind it.
        self.rebase_to(&mut state).inspect_err(|_| {
            self.forgotten.fetch_or(forgotten, Ordering::Relaxed);
        })
    }

    fn rebase_to(&self, state: &mut State) -> Result<()> {
        let dir = state.next_base()?;
        let compacted = self.live.compact(&dir, Some(&self.threads))?;
        state.switch(Position(compacted.mark), &self.log)?;
        self.refresh_from(&dir)
    }

    /// Computes embeddings of the base in `dir`, which the graph has, and goes on with them.
    fn refresh_from(&self, dir: &Path) -> Result<()> {
        let model = self.model();
        let refreshed = self.threads.install(|| model.prepared.refresh(&Dataset::open(dir)?))?;
        self.take_over(model.with(refreshed));
        Ok(())
    }

    /// Goes on with a model that has computed what it computes of the base that the graph has.
    fn take_over(&self, next: Model<B>) {
        let mut model = self.model.write().unwrap_or_else(PoisonError::into_inner);
        self.live.refreshed(self.live.generation());
        *model = Arc::new(next);
    }
}

impl<B: GraphBackend> Engine for Service<B> {
    fn score(&self, requests: &[ScoreRequest]) -> Vec<Result<ScoreAnswer, Refusal>> {
        let started = Instant::now();
        // Rows of nodes are those of the embeddings that are there while parts are taken out.
        let guard = self.model.read().unwrap_or_else(PoisonError::into_inner);
        let model = guard.clone();
        let parts = self.parts(&model, requests);
        drop(guard);
        let extract = started.elapsed();
        let mut good = Vec::with_capacity(parts.len());
        let refused: Vec<Option<Refusal>> =
            parts.into_iter().map(|part| part.map(|part| good.push(part)).err()).collect();
        let together = model.prepared.scores(&good, &model.refreshed);
        let scores: Vec<Result<Vec<f32>, Error>> = match together {
            Ok(scores) => scores.into_iter().map(Ok).collect(),
            // One of them does not fit: the others have their scores alone.
            Err(error) if good.len() == 1 => vec![Err(error)],
            Err(_) => good.chunks(1).map(|part| Ok(model.prepared.scores(part, &model.refreshed)?.concat())).collect(),
        };
        let spent = Spent { extract, forward: started.elapsed() - extract };
        let mut scored = good.iter().zip(scores);
        let each = requests.iter().zip(refused).map(|(request, refused)| match refused {
            Some(refusal) => Err(refusal),
            None => {
                let (part, scores) = scored.next().ok_or_else(Refusal::panicked)?;
                self.answer(&model, request, part, &scores?, spent)
            }
        });
        each.collect()
    }

    fn write(&self, requests: &[WriteRequest]) -> Vec<Result<Written, Refusal>> {
        let _changing = self.changing();
        let is_forget = |request: &WriteRequest| matches!(request.write, Write::Forget(_));
        // What is forgotten leaves the log first: nothing that came with it may be under way.
        let groups = requests.chunk_by(|one, other| !is_forget(one) && !is_forget(other));
        let mut answers = Vec::with_capacity(requests.len());
        for group in groups {
            if let [WriteRequest { write: write @ Write::Forget(node), .. }] = group {
                let forgotten = self.checked(write).and_then(|_| Ok(self.log.forget(node, &self.ends)?));
                if let Err(refusal) = forgotten {
                    answers.push(Err(refusal));
                    continue;
                }
            }
            answers.extend(self.write_together(group));
        }
        answers
    }

    fn node(&self, node: &NodeKey, neighbours: usize) -> Result<Value, Refusal> {
        let view = self.live.node(node, neighbours).ok_or_else(|| unknown(node))?;
        serde_json::to_value(view).map_err(|fault| Error::io("a node", "write", fault.into()).into())
    }

    fn drift(&self) -> Result<Value, Refusal> {
        let model = self.model();
        let (drift, labels) = (model.of.drift.report(), model.of.labels.figures());
        Ok(json!({"drift": &*drift, "labels": labels}))
    }

    fn reload(&self) -> Result<String> {
        let state = self.upkeep();
        let dir = state.base();
        let base = Dataset::open(&dir)?;
        let open = || Model::open(&self.options, &dir, &base, &self.reader, &self.device);
        let model = self.threads.install(open)?;
        // Once through, so that what does not work is known now, and the first request is not slower. Parts count by
        // what was refreshed last, be it an older base; what is made of new nodes is that of the other model still.
        if let Some(node) = some_node(&base).filter(|_| self.live.is_refreshed())
            && let Ok(part) = self.live.part(&[node], &[], &self.draw(&model, true))
        {
            self.threads.install(|| model.prepared.scores(&[part], &model.refreshed))?;
        }
        let name = model.prepared.name().to_owned();
        self.take_over(model);
        Ok(name)
    }

    fn state(&self) -> EngineState {
        let model = self.model();
        let stats = self.live.stats();
        let report = model.of.drift.report();
        let labels = model.of.labels.figures();
        let counts = |of: &[Count], label: &'static str| -> Vec<(Vec<(&'static str, String)>, f64)> {
            let value = |count: &Count, part: &str, value: usize| {
                (vec![(label, count.name.clone()), ("part", part.to_owned())], value as f64)
            };
            of.iter()
                .flat_map(|count| [value(count, "base", count.base), value(count, "appended", count.appended)])
                .collect()
        };
        let shifts = report.compared.iter().map(|shift| {
            let column = shift.column.clone().unwrap_or_else(|| "score".into());
            (vec![("of", shift.of.clone()), ("column", column)], shift.index)
        });
        let mut figures = vec![
            Figure { name: "nodes", help: "Nodes of the live graph", values: counts(&stats.nodes, "type") },
            Figure { name: "edges", help: "Edges of the live graph", values: counts(&stats.edges, "relation") },
            Figure {
                name: "drift_index",
                help: "Population stability index against the training",
                values: shifts.collect(),
            },
            Figure::one("drift_moved", "Columns, scores and categories that have moved", report.moved.len() as f64),
            Figure::one("appended_bytes", "Memory of what was appended", stats.appended_bytes as f64),
            Figure::one("id_bytes", "Memory of ids", stats.id_bytes as f64),
            Figure::one("column_bytes", "Memory of what columns are computed of", stats.column_bytes as f64),
            Figure::one("base_generation", "Bases that were made", stats.generation as f64),
            Figure::one("log_bytes", "Size of the log", self.log.bytes() as f64),
            Figure::one("log_syncs", "Waits of the log for the disk", self.log.syncs() as f64),
            Figure::one("log_position", "Last record of the log", self.log.position().0 as f64),
            Figure::one("labels_waiting", "Scored nodes without a label", labels.waiting as f64),
            Figure::one("labelled", "Scored nodes that got a label", labels.labelled as f64),
        ];
        let age = model.embeddings_age();
        figures.extend(age.map(|age| Figure::one("embeddings_age_seconds", "Since embeddings were computed", age)));
        let running = [("precision", labels.precision), ("recall", labels.recall)];
        figures.extend(running.into_iter().filter_map(|(name, value)| {
            Some(Figure::one(name, "Of the scored nodes that got a label, at the threshold", value?))
        }));
        EngineState { model: model.prepared.name().into(), writable: self.log.is_usable(), figures }
    }

    fn columns(&self) -> Vec<TableColumns> {
        let kind = |kind: &str| match kind {
            "numeric" | "amount" | "weight" | "feature" => "number",
            "boolean" => "boolean",
            _ => "string",
        };
        let table = |table: live::TableColumns| TableColumns {
            is_node: !table.is_edge,
            name: table.name,
            columns: table.columns.into_iter().map(|column| (column.name, kind(column.kind))).collect(),
        };
        self.reader.columns().into_iter().map(table).collect()
    }

    fn refresh(&self) -> Result<()> {
        self.rebase()
    }

    fn compact(&self) -> Result<bool> {
        let records = self.log.position().0.saturating_sub(self.upkeep().position().0);
        let is_large = self.live.share_appended(records) >= self.options.compact_share;
        let is_due = self.forgotten.load(Ordering::Relaxed) && self.model().since.elapsed() >= FORGOTTEN;
        if is_large || is_due {
            self.rebase()?;
            return Ok(true);
        }
        // Those of the last base may have failed.
        let state = self.upkeep();
        if !self.live.is_refreshed() {
            self.refresh_from(&state.base())?;
        }
        Ok(false)
    }

    fn fill(&self) -> Result<()> {
        self.live.fill();
        Ok(())
    }

    fn retain(&self) -> Result<bool> {
        let (latest, cut) = (self.latest.load(Ordering::Relaxed), self.cut.load(Ordering::Relaxed));
        let Some(retention) = self.options.retention.filter(|_| latest != i64::MIN) else { return Ok(false) };
        let seconds = i64::try_from(retention.as_secs()).unwrap_or(i64::MAX);
        let time = latest.saturating_sub(seconds);
        // All events are looked at: not for every second that they age.
        if time < cut.saturating_add(seconds / 100) {
            return Ok(false);
        }
        let _changing = self.changing();
        let appended = self.log.append(&[Record::Before(time)], None);
        let appended = appended.map_err(|error| Error::io("the log", "write", io::Error::other(error)))?;
        let dropped = self.drop_before(time);
        self.live.mark(appended.position.0);
        Ok(dropped > 0)
    }

    fn watch(&self) -> Result<()> {
        let counts = self.reader.unknown_categories();
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        let before: HashMap<&str, &UnknownCategories> =
            counted.iter().map(|counts| (counts.column.as_str(), counts)).collect();
        let new = |now: &UnknownCategories| {
            let (rows, unknown) = before.get(now.column.as_str()).map_or((0, 0), |of| (of.rows, of.unknown));
            UnknownCategories { column: now.column.clone(), rows: now.rows - rows, unknown: now.unknown - unknown }
        };
        let new: Vec<UnknownCategories> = counts.iter().map(new).collect();
        *counted = counts;
        drop(counted);
        let model = self.model();
        model.of.drift.categories(&new);
        model.of.drift.refresh()
    }
}

/// Where a change stands among those of its kind.
fn place(changes: &[Change], at: usize) -> String {
    let is_node = |change: &&Change| matches!(change, Change::Node(_));
    let nodes = changes[..at].iter().filter(is_node).count();
    if is_node(&&changes[at]) { format!("nodes[{nodes}]") } else { format!("edges[{}]", at - nodes) }
}

/// Changes with their rows, nodes before edges and each in their order: an edge may name what stands behind it.
fn nodes_first(changes: &[Change], rows: Vec<Vec<Row>>) -> (Vec<&Change>, Vec<Row>) {
    let mut both: Vec<(&Change, Vec<Row>)> = changes.iter().zip(rows).collect();
    both.sort_by_key(|(change, _)| matches!(change, Change::Edge(_)));
    let (changes, rows): (Vec<&Change>, Vec<Vec<Row>>) = both.into_iter().unzip();
    (changes, rows.into_iter().flatten().collect())
}

fn unknown(node: &NodeKey) -> Refusal {
    Refusal::new(StatusCode::NOT_FOUND, "unknown_node", "there is no such node")
        .expected("a known node", node.to_string())
}

/// What the live graph refuses, with a status of its own where a client can tell it apart.
fn refusal(Refused { fault, error }: Refused) -> Refusal {
    let (status, code) = match fault {
        Fault::Unfit => return error.into(),
        Fault::Unknown => (StatusCode::NOT_FOUND, "unknown_node"),
        Fault::Duplicate => (StatusCode::CONFLICT, "duplicate"),
        Fault::TooLarge => (StatusCode::UNPROCESSABLE_ENTITY, "neighbourhood"),
    };
    Refusal { status, code, ..error.into() }
}

/// The answer to a write that was there already under its key.
fn repeat(appended: Appended) -> Written {
    Written { position: appended.position.0, repeated: true, ..Written::default() }
}

fn log_refusal(error: LogError) -> Refusal {
    // A key is the client's, who may have put anything into it.
    if !matches!(error, LogError::KeyReused(_)) {
        log::warn!("{error}");
    }
    match error {
        LogError::Full(_) => Refusal::disk_full(),
        LogError::KeyReused(_) => {
            Refusal::new(StatusCode::CONFLICT, "key_reused", "this Idempotency-Key came with another request before")
                .help("use a new key")
        }
        LogError::Failed { .. } => {
            Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "io", "the server cannot write its log").after(30)
        }
    }
}

fn import_files(dir: &Path) -> Result<Vec<(String, Vec<u8>)>> {
    // They tell how rows were read.
    let there =
        [IMPORT_FILE, IMPORT_BINARY].into_iter().map(|name| (name, dir.join(name))).filter(|(_, path)| path.is_file());
    let read = |(name, path): (&str, PathBuf)| match fs::read(&path) {
        Ok(bytes) => Ok((name.to_owned(), bytes)),
        Err(source) => Err(Error::io(path, "read", source)),
    };
    there.map(read).collect()
}

/// An explanation, and its columns as the tables call them.
fn in_json(explanation: &Explanation) -> serde_json::Result<Value> {
    let mut reasons = serde_json::to_value(explanation)?;
    reasons["lines"] = serde_json::to_value(explanation.lines())?;
    Ok(reasons)
}

/// Any node.
fn some_node(base: &Dataset) -> Option<NodeKey> {
    let (at, node_type) = base.graph.node_types().iter().enumerate().find(|(_, of)| of.count > 0)?;
    let id = base.ids.as_ref().map_or_else(|| "0".to_owned(), |ids| ids.0[at][0].to_string());
    Some(NodeKey { node_type: node_type.name.clone(), id })
}
