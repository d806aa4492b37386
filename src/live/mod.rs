//! A graph that grows while it is read: mapped base data, and what was appended to them since.
//!
//! | file | holds |
//! |---|---|
//! | `change.rs` | what can be appended, as a user writes it |
//! | `row.rs` | the same in numbers: ids, columns, times |
//! | `live.rs` | the graph that many read and one changes |
//! | `state.rs`, `base.rs`, `delta.rs` | what it is made of: a data set, and what became of it |
//! | `names.rs`, `lists.rs` | ids by number and numbers by id; lists by node |
//! | `view.rs` | rows, times and features as they are with all that was appended |
//! | `reader.rs` | a user's row in numbers |
//! | `refused.rs` | errors with their kinds |
//! | `plan.rs`, `same.rs`, `append.rs` | what rows would append, checked, what repeats another, and appending it |
//! | `derived.rs` | what columns that depend on other rows are asked for |
//! | `columns.rs` | such columns of data with a description, as rows come |
//! | `part.rs`, `extract.rs`, `walk.rs`, `draw.rs` | the neighbourhood of some nodes as data of their own, for a model |
//! | `made.rs` | what networks made of nodes, as long as it is good |
//! | `look.rs` | what is known of a node |
//! | `compact.rs` | all of it as one data directory |
//!
//! A [`Change`] names its node type or relation and has the columns of that table, as the description of the import
//! calls them; it is read into [`Row`]s, which are appended. What a model sees of a node is a [`Part`].
//!
//! # Order
//! A row of the graph has the entries of the base first and appended ones behind them, as they came; compaction keeps
//! that order. Earlier events of the same entity are in the order of time, those of one time as they came: one that
//! comes late has its place there, and later ones see it, as if all had been imported at once. So a part depends on
//! what was appended, not on when the base was last made. What an event sees has a smaller time than it.

mod append;
mod base;
pub(crate) mod change;
mod columns;
mod compact;
mod delta;
mod derived;
mod draw;
mod extract;
mod lists;
#[allow(clippy::module_inception)]
mod live;
mod look;
mod made;
mod names;
mod part;
mod plan;
mod reader;
mod refused;
mod row;
mod same;
mod state;
#[cfg(test)]
mod tests;
mod view;
mod walk;

pub use change::{Change, EdgeChange, NodeChange, NodeKey};
pub use columns::Columns;
pub use derived::{Derived, EdgeAt, EventAt, Independent, Rebaser};
pub use draw::{Around, Draw, Makes};
pub use live::{Compacted, Count, Live, LiveStats};
pub use look::{Joined, Neighbour, NodeView};
pub use made::{Layer, MadeRows};
pub use part::Part;
pub use plan::Appended;
pub use reader::{RowReader, TableColumns};
pub use refused::{Fault, Refused};
pub use row::{EdgeRow, NodeRow, Row};
