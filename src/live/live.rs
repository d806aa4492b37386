//! A graph that many read and one changes.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rayon::ThreadPool;
use serde::Serialize;

use super::append::Fill;
use super::base::Kind;
use super::change::NodeKey;
use super::compact::{REFRESHED_FILE, Whole, snapshot};
use super::delta::Edges;
use super::derived::{Derived, Rebaser};
use super::draw::Draw;
use super::extract::part;
use super::look::{NodeView, node_view};
use super::part::Part;
use super::plan::{Appended, Until, plan};
use super::refused::Refused;
use super::row::Row;
use super::state::{Op, State};
use super::view::{NamedEvent, View};
use crate::error::{Error, Result};
use crate::graph::{Dataset, Events};

/// Seconds that clocks may be ahead of ours.
const SKEW: i64 = 300;
/// Changes that a new base may lack when it takes the place of the old one: making them takes so long that nobody
/// minds.
const FEW: usize = 64;
/// Times that a new base is given the changes that came meanwhile while others go on.
const ROUNDS: usize = 8;

/// Events whose columns are filled in while others wait, and how long these have then.
const AT_ONCE: usize = 16;
const PAUSE: Duration = Duration::from_millis(1);

/// A graph that grows while it is read.
///
/// Readers share it, and hold it while a [`Part`] is taken out; a change is there as a whole or not at all.
pub struct Live {
    state: RwLock<State>,
    /// Held by the one compaction that goes on.
    compacting: Mutex<()>,
    files: Vec<(String, Vec<u8>)>,
}

/// What became of a compaction.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Compacted {
    /// Number of the new base; the first has 0.
    pub generation: u64,
    /// Where the last change that the directory holds stands in the log, see [`Live::mark`].
    pub mark: u64,
    /// What the directory holds.
    pub nodes: usize,
    pub edges: usize,
    pub seconds: f64,
}

/// How large a graph is.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LiveStats {
    /// Number of the base, counted from 0.
    pub generation: u64,
    pub nodes: Vec<Count>,
    pub edges: Vec<Count>,
    /// Bytes of what was appended, in memory.
    pub appended_bytes: u64,
    /// Bytes of the ids of the base, in memory.
    pub id_bytes: u64,
    /// Bytes of what columns that depend on other rows are computed of.
    pub column_bytes: u64,
    /// Events from here on are kept.
    pub kept_from: Option<i64>,
}

/// Nodes of a type or edges of a relation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Count {
    pub name: String,
    pub base: usize,
    /// What left again is counted until the next compaction.
    pub appended: usize,
}

/// A thread that panicked left nothing half-changed that a reader could see as a whole: every change is checked first.
fn ignored<G>(poisoned: PoisonError<G>) -> G {
    poisoned.into_inner()
}

fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64)
}

impl Live {
    /// Begins with a data set, whose columns that depend on other rows `derived` keeps.
    ///
    /// # Errors
    /// [`Error::Data`] for relations that `import` does not make, and those of reading what edges carry.
    pub fn open(base: Dataset, derived: impl Derived + 'static) -> Result<Self> {
        let state = RwLock::new(State::new(base, Box::new(derived), 0)?);
        Ok(Self { state, compacting: Mutex::new(()), files: Vec::new() })
    }

    /// With files of other content that belong to the data, such as `import.json`: name and bytes. Compaction writes
    /// them beside the data.
    pub fn with_files(self, files: Vec<(String, Vec<u8>)>) -> Self {
        Self { files, ..self }
    }

    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(ignored)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(ignored)
    }

    /// The latest time that something may have: now, as far as clocks agree.
    pub fn latest_time() -> i64 {
        Self::until().time
    }

    fn until() -> Until {
        let now = now();
        Until { time: now.saturating_add(SKEW), now }
    }

    /// Appends all rows or none. Rows that repeat an id and everything else, and edges that repeat each other, count as
    /// known; the same id with another content is refused, but for its label. Ends of edges that are no events need no
    /// row.
    ///
    /// # Errors
    /// [`Refused`] that names the node or edge: an id that is there with another row, a time in the future or older
    /// than what is kept, an event that is not known, columns that do not fit.
    pub fn append(&self, rows: &[Row]) -> Result<Appended, Refused> {
        self.append_and(rows, Fill::Now)
    }

    /// The same, of many rows at once: columns that depend on other rows are looked up when somebody asks for them,
    /// until [`fill`](Self::fill) was there.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub fn append_many(&self, rows: &[Row]) -> Result<Appended, Refused> {
        self.append_and(rows, Fill::Later)
    }

    fn append_and(&self, rows: &[Row], fill: Fill) -> Result<Appended, Refused> {
        let mut state = self.write();
        let appended = state.append(rows, Self::until(), fill)?;
        if appended.nodes + appended.edges > 0 {
            state.note(|| Op::Append(rows.to_vec()));
        }
        Ok(appended)
    }

    /// Fills in columns that depend on other rows, of events that lack them or whose are others since. Others read and
    /// change the graph meanwhile.
    pub fn fill(&self) {
        while self.write().fill(AT_ONCE) {
            std::thread::sleep(PAUSE);
        }
    }

    /// Whether [`append`](Self::append) would take these rows.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub fn check(&self, rows: &[Row]) -> Result<(), Refused> {
        let state = self.read();
        plan(View { state: &state, overlay: None }, rows, Self::until()).map(drop)
    }

    /// What a model sees of some nodes: what was there before them, whole or drawn, as if `overlay` had been appended.
    ///
    /// # Errors
    /// As [`append`](Self::append); [`Refused`] for a target that is not known, and for more nodes than `draw` allows.
    pub fn part(&self, targets: &[NodeKey], overlay: &[Row], draw: &Draw) -> Result<Part, Refused> {
        let state = self.read();
        if overlay.is_empty() {
            return part(View { state: &state, overlay: None }, targets, None, draw);
        }
        let overlay = state.overlay(overlay, Self::until())?;
        part(View { state: &state, overlay: Some(&overlay.delta) }, targets, Some(&overlay), draw)
    }

    /// Lets a node go, with its edges, features and id: out of memory at once, out of the files with the next
    /// compaction. Says whether it was there.
    ///
    /// # Errors
    /// [`Error::Data`] for a type that there is not.
    pub fn forget(&self, node: &NodeKey) -> Result<bool> {
        let mut state = self.write();
        let Some((node_type, local)) = find(&state, node)? else { return Ok(false) };
        state.forget(node_type, local);
        state.note(|| Op::Forget(node.clone()));
        Ok(true)
    }

    /// Gives a node a label, known from a time on. It takes the place of an earlier one.
    ///
    /// # Errors
    /// [`Error::Data`] for a node that there is not, a label beyond 1 and one that was known before its event.
    pub fn set_label(&self, node: &NodeKey, label: u8, known: i64) -> Result<()> {
        let mut state = self.write();
        set_label(&mut state, node, label, known)?;
        state.note(|| Op::Label(node.clone(), label, known));
        Ok(())
    }

    /// Lets events and timed edges of before `time` go, and says how many events these were. Their memory is free after
    /// the next compaction.
    pub fn drop_before(&self, time: i64) -> usize {
        let count = count_before(&self.read(), time);
        let mut state = self.write();
        if time > state.cutoff {
            state.drop_before(time);
            state.note(|| Op::DropBefore(time));
        }
        count
    }

    /// When a node happened, [`Events::NO_TIME`] for what is no event; none of a node that there is not.
    pub fn time(&self, node: &NodeKey) -> Option<i64> {
        let state = self.read();
        let (node_type, local) = find(&state, node).ok()??;
        Some(View { state: &state, overlay: None }.time(node_type, local))
    }

    /// A node with at most so many of its neighbours in each relation.
    pub fn node(&self, key: &NodeKey, neighbours: usize) -> Option<NodeView> {
        let state = self.read();
        node_view(View { state: &state, overlay: None }, key, neighbours)
    }

    /// Says where in a log the last change stands.
    pub fn mark(&self, position: u64) {
        let mut state = self.write();
        state.mark = position;
        state.note(|| Op::Mark(position));
    }

    /// Says that what was refreshed last, such as embeddings, is of the base of that number, row by global id. Until it
    /// is said, that is the first base. Returns whether it still is the base.
    pub fn refreshed(&self, generation: u64) -> bool {
        let mut state = self.write();
        // It may be another model that goes on.
        state.made.keep_until(i64::MIN);
        if state.base.generation != generation {
            return false;
        }
        (state.refreshed, state.refreshed_at) = (None, Some(generation));
        state.note(|| Op::Refreshed);
        true
    }

    /// Whether what was refreshed last is of the base that there is now.
    pub fn is_refreshed(&self) -> bool {
        let state = self.read();
        state.refreshed_at == Some(state.base.generation)
    }

    /// Number of the base, counted from 0.
    pub fn generation(&self) -> u64 {
        self.read().base.generation
    }

    /// Takes from the directory of the base which of its nodes are in what was refreshed last.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Format`] for a file of another length.
    pub fn restore(&self, dir: &Path) -> Result<()> {
        let path = dir.join(REFRESHED_FILE);
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(source) if source.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(source) => return Err(Error::io(&path, "read", source)),
        };
        let mut state = self.write();
        let nodes = state.base.dataset.graph.num_nodes();
        if bytes.len() != 4 * nodes {
            let (expected, found) = (format!("{} bytes, 4 per node", 4 * nodes), format!("{} bytes", bytes.len()));
            let help = "the file belongs to another directory; remove it and refresh the embeddings";
            return Err(Error::format(path, "file length", expected, found, help));
        }
        (state.refreshed, state.refreshed_at) = (Some(Arc::new(bytemuck::pod_collect_to_vec(&bytes))), None);
        Ok(())
    }

    /// Writes the base and what was appended as one data directory, without what left, and goes on with it as the base.
    /// Others read and change the graph meanwhile; what they change is not in the directory, and stays. Rows keep their
    /// order, so that draws and sums are what they were. The new base is made on `threads`, where they are given; what
    /// others wait for is done on the thread of the caller.
    ///
    /// # Errors
    /// Those of [`Dataset::write`] and [`Dataset::open`]. The graph goes on as it was.
    pub fn compact(&self, dir: &Path, threads: Option<&ThreadPool>) -> Result<Compacted> {
        let _one: MutexGuard<()> = self.compacting.lock().unwrap_or_else(ignored);
        let compacted = self.rebase(dir, threads);
        if compacted.is_err() {
            self.write().journal = None;
        }
        compacted
    }

    fn rebase(&self, dir: &Path, threads: Option<&ThreadPool>) -> Result<Compacted> {
        let started = Instant::now();
        self.fill();
        let mut state = self.write();
        // What came since.
        state.fill(usize::MAX);
        state.journal = Some(Vec::new());
        let copy = snapshot(&RwLockWriteGuard::downgrade(state));
        let rebaser = self.read().derived.rebaser();
        let make = || self.next(dir, copy, rebaser);
        let made = match threads {
            Some(threads) => threads.install(make),
            None => make(),
        };
        let (mut next, origins) = made?;
        let (generation, mark) = (next.base.generation, next.mark);
        let graph = &next.base.dataset.graph;
        let (nodes, edges) = (graph.num_nodes(), graph.num_edges());
        for round in 0.. {
            let mut state = self.write();
            let ops = state.journal.replace(Vec::new()).unwrap_or_default();
            if ops.len() <= FEW || round == ROUNDS {
                ops.into_iter().try_for_each(|op| again(&mut next, op, &origins))?;
                next.journal = None;
                std::mem::swap(&mut *state, &mut next);
                break;
            }
            drop(state);
            ops.into_iter().try_for_each(|op| again(&mut next, op, &origins))?;
        }
        // What was, is given back when nobody waits for it any more.
        drop(next);
        Ok(Compacted { generation, mark, nodes, edges, seconds: started.elapsed().as_secs_f64() })
    }

    /// The base that follows on a copy, written to `dir`, and which node of the old base each of its nodes was.
    fn next(&self, dir: &Path, copy: State, rebaser: Rebaser) -> Result<(State, Arc<Vec<u32>>)> {
        let whole = Whole::of(&copy)?;
        whole.write(dir, &self.files)?;
        let Whole { dataset, origins, refreshed } = whole;
        drop(dataset);
        let mut dataset = Dataset::open(dir)?;
        if copy.base.dataset.graph.has_ages() {
            dataset.graph = dataset.with_ages(dataset.graph.clone())?;
        }
        let derived = rebaser(&dataset)?;
        let mut next = State::new(dataset, derived, copy.base.generation + 1)?;
        (next.cutoff, next.mark) = (copy.cutoff, copy.mark);
        (next.refreshed, next.refreshed_at) = (refreshed.map(Arc::new), copy.refreshed_at);
        Ok((next, Arc::new(origins)))
    }

    /// Nodes and edges that were appended, or `records` where those are more, to so many nodes and edges of the base,
    /// without a look at each. Edges that follow from others count on neither side.
    pub fn share_appended(&self, records: u64) -> f64 {
        let state = self.read();
        let base = &state.base;
        let nodes: usize = state.delta.nodes.iter().map(|nodes| nodes.len() as usize).sum();
        let edges: usize = state.delta.edges.iter().map(Edges::len).sum();
        let told = (0..base.kinds.len()).filter(|&at| matches!(base.kinds[at], Kind::Told { reversed: false, .. }));
        let told: usize = told.map(|at| base.relation(at).forward.num_edges()).sum();
        ((nodes + edges) as u64).max(records) as f64 / (base.dataset.graph.num_nodes() + told).max(1) as f64
    }

    /// How large it is.
    pub fn stats(&self) -> LiveStats {
        let state = self.read();
        let (base, graph) = (&state.base, &state.base.dataset.graph);
        let nodes = graph.node_types().iter().zip(&state.delta.nodes);
        let edges = graph.relations().iter().zip(&state.delta.edges);
        let [appended_bytes, id_bytes, column_bytes] = state.bytes();
        LiveStats {
            generation: base.generation,
            nodes: nodes.map(|(of, new)| Count::new(&of.name, of.count, new.len() as usize)).collect(),
            edges: edges.map(|(of, new)| Count::new(&of.name, of.forward.num_edges(), new.len())).collect(),
            appended_bytes,
            id_bytes,
            column_bytes,
            kept_from: Some(state.cutoff).filter(|&cutoff| cutoff != i64::MIN),
        }
    }
}

impl Count {
    fn new(name: &str, base: usize, appended: usize) -> Self {
        Self { name: name.to_owned(), base, appended }
    }
}

/// The node of a key.
fn find(state: &State, key: &NodeKey) -> Result<Option<(usize, u32)>> {
    let types = state.base.dataset.graph.node_types();
    let node_type = types.iter().position(|of| of.name == key.node_type).ok_or_else(|| Error::Data {
        what: format!("node `{key}`"),
        expected: format!("a node of type {}", types.iter().map(|of| of.name.as_str()).collect::<Vec<_>>().join(", ")),
        found: format!("`{}`", key.node_type),
        help: "write TYPE:ID".into(),
    })?;
    Ok(View { state, overlay: None }.find(node_type, &key.id).map(|local| (node_type, local)))
}

fn set_label(state: &mut State, node: &NodeKey, label: u8, known: i64) -> Result<()> {
    let refused = |expected: &str, found: String, help: &str| Error::Data {
        what: format!("label of `{node}`"),
        expected: expected.into(),
        found,
        help: help.into(),
    };
    let Some((node_type, local)) = find(state, node)? else {
        return Err(refused("a known node", "none of that name".into(), "append the node first"));
    };
    if label > 1 {
        return Err(refused("0 or 1", label.to_string(), "0 says that it is normal, 1 that it is anomalous"));
    }
    let view = View { state, overlay: None };
    let time = view.time(node_type, local);
    if time != Events::NO_TIME && known < time {
        let expected = format!("a time from its event on, {time}");
        return Err(refused(&expected, known.to_string(), "say when the label became known"));
    }
    let event = state.base.of_events[node_type].then(|| NamedEvent::of(view, node_type, local));
    state.put_label(node_type, local, label, known);
    if let Some(event) = event {
        let changed = state.derived.label(&event.at(), label, known);
        let view = View { state, overlay: None };
        if let Some(first) = changed.iter().map(|&(node_type, local)| view.time(node_type, local)).min() {
            // The columns of the first one have changed as well.
            state.made.keep_until(first.saturating_sub(1));
            state.make_stale(&changed);
        }
    }
    Ok(())
}

/// How many events have times from the present limit up to a new one.
fn count_before(state: &State, time: i64) -> usize {
    let is_between = |&of: &i64| of != Events::NO_TIME && of >= state.cutoff && of < time;
    let of_base =
        state.base.dataset.events.iter().flat_map(|events| &events.time).filter(|time| is_between(time)).count();
    let nodes = state.delta.nodes.iter();
    of_base + nodes.flat_map(|nodes| &nodes.time).filter(|time| is_between(time)).count()
}

/// Makes a change once more, on a base that was made meanwhile.
fn again(state: &mut State, op: Op, origins: &Arc<Vec<u32>>) -> Result<()> {
    match op {
        Op::Append(rows) => {
            let until = Until { time: i64::MAX, now: i64::MAX };
            state.append(&rows, until, Fill::Now).map_err(|refused| refused.error)?;
        }
        Op::Forget(node) => {
            if let Some((node_type, local)) = find(state, &node)? {
                state.forget(node_type, local);
            }
        }
        Op::Label(node, label, known) => {
            // What was labelled may have left since.
            if find(state, &node)?.is_some() {
                set_label(state, &node, label, known)?;
            }
        }
        Op::DropBefore(time) => state.drop_before(time),
        Op::Refreshed => {
            let is_same = origins.iter().zip(0..).all(|(&origin, own)| origin == own);
            state.refreshed = (!is_same).then(|| origins.clone());
            state.refreshed_at = state.base.generation.checked_sub(1);
        }
        Op::Mark(position) => state.mark = position,
    }
    Ok(())
}
