//! Columns of the feature matrix that follow from other rows than the node's own.

use half::f16;

use crate::error::Result;
use crate::graph::Dataset;

/// An event with what it names. Nodes are numbered within their types: those of the base as there, appended ones
/// behind them, those of a single call behind these.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EventAt<'a> {
    /// Index of the node type.
    pub node_type: usize,
    pub local: u32,
    /// In seconds since 1970.
    pub time: i64,
    /// What windows add up.
    pub value: Option<f32>,
    /// The label and when it became known.
    pub label: Option<(u8, i64)>,
    /// Relations from entities to the event, by index, and the entity in each.
    pub entities: &'a [(usize, u32)],
}

/// An edge between nodes that are no events, in the direction of its relation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EdgeAt {
    /// Index of the relation.
    pub relation: usize,
    pub src: u32,
    pub dst: u32,
    pub weight: Option<f32>,
    /// In seconds since 1970.
    pub time: Option<i64>,
}

/// Makes what keeps the columns of a base; fails where that cannot be read.
pub type Rebaser = Box<dyn FnOnce(&Dataset) -> Result<Box<dyn Derived>> + Send>;

/// What keeps the columns that depend on other rows: windows of events, figures of the edges of a node.
pub trait Derived: Send + Sync {
    /// Whether a column depends on other rows. Such columns are not compared where a row repeats an id.
    fn is_derived(&self, column: usize) -> bool;

    /// The features of a node that only edges name.
    fn of_unnamed(&self, node_type: usize) -> Vec<f16>;

    /// How many earlier events of the same entity an event is joined to by `earlier_{relation}`.
    fn history(&self, relation: &str) -> usize;

    /// How many nodes at most a value of a shared column joins, whose relation this is.
    fn max_degree(&self, _relation: &str) -> Option<usize> {
        None
    }

    /// Takes in what was appended, which cannot fail. An event may come once more, with an entity that was not known
    /// before. Returns the appended events whose derived columns are others from now on, by type and number: those
    /// behind an event that comes late.
    fn append(&mut self, events: &[EventAt], edges: &[EdgeAt]) -> Vec<(usize, u32)>;

    /// Fills in the derived columns of an event.
    fn of_event(&self, event: &EventAt, features: &mut [f16]);

    /// The same of several, each as if all others had been appended.
    fn of_events(&self, events: &[EventAt], features: &mut [Vec<f16>]);

    /// Fills in the derived columns of a node that is no event; `overlay` are edges at it that count as if they had
    /// been appended.
    fn of_node(&self, node_type: usize, local: u32, overlay: &[EdgeAt], features: &mut [f16]);

    /// Whether the derived columns of a node of the base are others than those that are stored there.
    fn is_changed(&self, node_type: usize, local: u32) -> bool;

    /// Takes in a label that came later than its event. Returns the appended events whose derived columns are others
    /// from now on, by type and number: those that happened when it was known.
    fn label(&mut self, event: &EventAt, label: u8, known: i64) -> Vec<(usize, u32)>;

    /// Leaves a node and its edges out of everything. Returns the appended events whose derived columns are others
    /// from now on, by type and number.
    fn forget(&mut self, node_type: usize, local: u32) -> Vec<(usize, u32)>;

    /// Leaves out what is older than `time`.
    fn drop_before(&mut self, time: i64);

    /// What makes the same of a new base, whose features are filled in, and of nothing that was appended.
    fn rebaser(&self) -> Rebaser;

    /// Bytes that it takes.
    fn bytes(&self) -> u64;
}

/// Columns none of which depends on other rows. A node that only edges name has zeros in all of them.
#[derive(Clone, Copy, Debug)]
pub struct Independent {
    /// Number of columns.
    pub columns: usize,
    /// How many earlier events of the same entity an event is joined to.
    pub history: usize,
}

impl Derived for Independent {
    fn is_derived(&self, _: usize) -> bool {
        false
    }

    fn of_unnamed(&self, _: usize) -> Vec<f16> {
        vec![f16::ZERO; self.columns]
    }

    fn history(&self, _: &str) -> usize {
        self.history
    }

    fn append(&mut self, _: &[EventAt], _: &[EdgeAt]) -> Vec<(usize, u32)> {
        Vec::new()
    }

    fn of_event(&self, _: &EventAt, _: &mut [f16]) {}

    fn of_events(&self, _: &[EventAt], _: &mut [Vec<f16>]) {}

    fn of_node(&self, _: usize, _: u32, _: &[EdgeAt], _: &mut [f16]) {}

    fn is_changed(&self, _: usize, _: u32) -> bool {
        false
    }

    fn label(&mut self, _: &EventAt, _: u8, _: i64) -> Vec<(usize, u32)> {
        Vec::new()
    }

    fn forget(&mut self, _: usize, _: u32) -> Vec<(usize, u32)> {
        Vec::new()
    }

    fn drop_before(&mut self, _: i64) {}

    fn rebaser(&self) -> Rebaser {
        let own = *self;
        Box::new(move |_| Ok(Box::new(own)))
    }

    fn bytes(&self) -> u64 {
        0
    }
}
