//! A base and what became of it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::base::{Base, Kind};
use super::change::NodeKey;
use super::delta::Delta;
use super::derived::Derived;
use super::made::Made;
use super::names::Names;
use super::row::Row;
use crate::error::Result;
use crate::graph::Dataset;

/// Everything that readers see, and that one writer changes at a time.
pub(super) struct State {
    pub base: Arc<Base>,
    /// Ids of the nodes of the base, by type.
    pub names: Vec<Arc<Names>>,
    pub delta: Delta,
    pub derived: Box<dyn Derived>,
    /// Appended events whose derived columns are to be filled in, by type and number.
    pub stale: Vec<(usize, u32)>,
    /// Labels of nodes of the base that came later, and when they became known.
    pub labels: HashMap<(usize, u32), (u8, i64)>,
    /// Nodes of the base that were forgotten.
    pub forgotten: HashSet<(usize, u32)>,
    /// By relation and row: the entries of the base that lead from such nodes.
    pub holes: Vec<HashMap<u32, Vec<usize>>>,
    /// What happened before is left out.
    pub cutoff: i64,
    /// The latest time of any edge.
    pub latest: i64,
    /// By global id of the base: the node in the data that were refreshed last; without it all are those.
    pub refreshed: Option<Arc<Vec<u32>>>,
    /// The generation of the base that was refreshed last; `None` of one of an earlier process.
    pub refreshed_at: Option<u64>,
    /// What was made of nodes that were not there then.
    pub made: Made,
    /// Where in a log the last change stands.
    pub mark: u64,
    /// What was changed since a compaction began.
    pub journal: Option<Vec<Op>>,
}

/// A change, to be made once more.
#[derive(Clone, Debug)]
pub(super) enum Op {
    Append(Vec<Row>),
    Forget(NodeKey),
    Label(NodeKey, u8, i64),
    DropBefore(i64),
    /// The base that a compaction began with is what was refreshed last.
    Refreshed,
    Mark(u64),
}

impl State {
    /// # Errors
    /// As [`Base::new`].
    pub fn new(dataset: Dataset, derived: Box<dyn Derived>, generation: u64) -> Result<Self> {
        let (base, names) = Base::new(dataset, &*derived, generation)?;
        let counts: Vec<u32> = (0..base.of_events.len()).map(|t| base.count(t)).collect();
        Ok(Self {
            delta: Delta::behind(&counts, &base.ends),
            names: names.into_iter().map(Arc::new).collect(),
            derived,
            stale: Vec::new(),
            labels: HashMap::new(),
            forgotten: HashSet::new(),
            holes: base.ends.iter().map(|_| HashMap::new()).collect(),
            cutoff: i64::MIN,
            latest: base.latest,
            refreshed: None,
            refreshed_at: Some(generation),
            made: Made::default(),
            mark: 0,
            journal: None,
            base: Arc::new(base),
        })
    }

    /// Writes a change down while there is a compaction.
    pub fn note(&mut self, op: impl FnOnce() -> Op) {
        if let Some(journal) = &mut self.journal {
            journal.push(op());
        }
    }

    /// Lets what happened before `time` go.
    pub fn drop_before(&mut self, time: i64) {
        self.cutoff = self.cutoff.max(time);
        self.made.keep_until(i64::MIN);
        self.derived.drop_before(time);
    }

    /// Gives a node a label and says when it became known.
    pub fn put_label(&mut self, node_type: usize, local: u32, label: u8, known: i64) {
        let nodes = &mut self.delta.nodes[node_type];
        match nodes.at(local) {
            Some(at) => (nodes.label[at], nodes.known[at]) = (label, known),
            None => drop(self.labels.insert((node_type, local), (label, known))),
        }
    }

    /// Says that derived columns of appended events, by type and number, are to be told anew.
    pub fn make_stale(&mut self, events: &[(usize, u32)]) {
        for &(node_type, local) in events {
            let nodes = &mut self.delta.nodes[node_type];
            let Some(at) = nodes.at(local) else { continue };
            if !std::mem::replace(&mut nodes.is_stale[at], true) {
                self.stale.push((node_type, local));
            }
        }
    }

    /// Leaves a node and its edges out: appended events have the derived columns that they would have without it.
    pub fn forget(&mut self, node_type: usize, local: u32) {
        let base = self.base.clone();
        self.made.keep_until(i64::MIN);
        let changed = self.derived.forget(node_type, local);
        self.delta.forget(node_type, local, &base.ends, base.width());
        if base.global(node_type, local).is_some() {
            self.forget_of_base(&base, node_type, local);
        }
        self.make_stale(&changed);
    }

    fn forget_of_base(&mut self, base: &Base, node_type: usize, local: u32) {
        Arc::make_mut(&mut self.names[node_type]).forget(local);
        self.labels.remove(&(node_type, local));
        self.forgotten.insert((node_type, local));
        for (at, kind) in base.kinds.iter().enumerate() {
            let relation = base.relation(at);
            if relation.src != node_type || matches!(kind, Kind::Earlier { .. }) {
                continue;
            }
            let mut rows = relation.reverse.row(local as usize).to_vec();
            rows.dedup();
            for row in rows {
                let entries = relation.forward.entries(row as usize).zip(relation.forward.row(row as usize));
                let holes = entries.filter(|(_, source)| **source == local).map(|(entry, _)| entry);
                self.holes[at].entry(row).or_default().extend(holes);
            }
        }
    }

    /// Bytes in memory beside the base, and of the ids of the base.
    pub fn bytes(&self) -> [u64; 3] {
        let holes = self.holes.iter().flat_map(HashMap::values).map(|holes| 8 * holes.capacity() + 40).sum::<usize>();
        let ids = self.names.iter().map(|names| names.bytes()).sum();
        let stale = 16 * self.stale.capacity();
        let changes = 48 * self.labels.capacity() + 24 * self.forgotten.capacity() + holes + stale;
        [self.delta.bytes() + self.made.bytes() + changes as u64, ids, self.derived.bytes()]
    }
}
