//! A graph that grows while it is read: mapped base data, and what was appended to them since.
//!
//! | file | holds |
//! |---|---|
//! | `change.rs` | what can be appended, as a user writes it |
//! | `row.rs` | the same in numbers: ids, columns, times |
//! | `reader.rs` | a user's row in numbers |
//! | `columns.rs` | columns that depend on other rows, as rows come |
//! | `derived.rs` | what columns that depend on other rows are asked for |
//! | `part.rs` | the neighbourhood of some nodes as data of their own, which a model reads |
//!
//! A [`Change`] names its node type or relation and has the columns of that table, as the description of the import
//! calls them; it is read into [`Row`]s, which are appended. What a model sees of a node is a [`Part`].

mod change;
mod columns;
mod derived;
mod part;
mod reader;
mod row;
#[cfg(test)]
mod tests;

pub use change::{Change, EdgeChange, NodeChange, NodeKey};
pub use columns::Columns;
pub use derived::{Derived, EdgeAt, EventAt, Independent, Rebaser};
pub use part::Part;
pub use reader::{RowReader, TableColumns};
pub use row::{EdgeRow, NodeRow, Row};
