//! Typed heterogeneous graphs on the host: node types, relations, features, labels, and the data directory that holds
//! them.
//!
//! Node types lie one behind another in one global id space of `u32`; inside an [`Adjacency`] ids are local to their
//! type. A [`Relation`] has both directions at hand: `forward` (rows = destinations) and `reverse` (rows = sources),
//! sharing memory with the opposite relation where there is one.
//!
//! Features and entries of a data directory stay in its files, which are mapped: they can be more than memory holds.
//! Entries are copied where files hold global ids that are not local ones, and the reverse of a relation that has none
//! in the files is made in memory.
//!
//! # A data directory
//! Any typed graph is described by a `graph.toml` (or a `graph.json` of the same shape), see [`Manifest`]:
//!
//! ```toml
//! [[node_types]]
//! name = "review"
//! count = 45954
//!
//! [[relations]]
//! name = "same_user"      # files same_user_row_ptr.bin, same_user_col_idx.bin
//! src = "review"
//! dst = "review"
//! ids = "local"
//!
//! [features]
//! file = "X_combined.memmap"
//! dim = 32
//! ```
//!
//! Features are f16, or f32 with `dtype = "f32"`. Besides them a directory may hold `labels.npy` (integers `[L, 2]`:
//! node, 0 or 1), `classes.npy` (integers `[nodes]`, -1 for none), `masks.npy` (integers `[nodes, splits]`: 0 no part,
//! 1 training, 2 validation, 3 test) and `node_id_mappings.json`.
//!
//! Rows can be spans of the entries, and share them: a relation that names `row_start` and `row_end` has the start and
//! the end of every row in these two files (`earlier_row_start.bin`, `earlier_row_end.bin`) instead of a `row_ptr`.
//! Events of one entity are stored so, once and in the order of time, and each event has a span of what came before it.
//!
//! A relation that is not symmetric and that no other one reverses gets a generated reverse `{name}_T`, unless it says
//! `one_way = true`. Without a manifest, `node_counts.json` stands for the marketplace preset:
//! [`HeteroGraph::marketplace`].
//!
//! Beside these there may be `labels.npy`, `node_id_mappings.json`, `feature_names.json` (a list of the names of the
//! feature columns) and, for relations that say so, weights (`{name}_weight.bin`, f32) and times (`{name}_time.bin`,
//! i64, seconds since 1970) of the edges, one per entry of `col_idx`, and 1 to 16 values for models
//! (`{name}_values.bin`, f32, a row per entry), whose columns `value_names` names. A generated reverse has the same
//! values in its own order.
//!
//! Data with events ([`Events`]) have `event_time.npy` and `label_known.npy` (i64 `[nodes]`, seconds since 1970, the
//! smallest integer for a node without a time, the largest for one without a label), and may have `event_amount.npy`
//! and, where windows sum something else, `event_value.npy` (f32), and `event_alert.npy` (i64, the entity that an alert
//! blocks, -1 for none). `split.json` and `split.npy` (u8 `[windows, nodes]`: 0 no part, 1 training, 2 validation, 3
//! test) are the split of the labels ([`StoredSplit`]); data without them are divided by the configuration of a
//! training.
//!
//! `SHA256SUMS` has the digests of the arrays that were written. They are compared when a directory is read, those of
//! values of edges when these are, and a file that was changed is refused. A directory without it is read as it is.
//!
//! A node type whose nodes are edges of the raw tables, such as payments, says so by `ends = ["paid_by", "paid_to"]`:
//! the relations that lead to it from its source and from its destination ([`Ends`]).
//!
//! Wherever a data directory is accepted, a single `.npz` file with the arrays `node_features`, `node_labels` and
//! `edges` is too: one node type `node`, one relation `edge`.

mod adjacency;
mod array;
mod checksums;
mod classes;
pub mod dataset;
pub mod digest;
mod directory;
mod disk;
mod edge_values;
mod ends;
mod events;
mod features;
mod filling;
pub mod formats;
mod hetero;
mod ids;
pub mod json;
mod labels;
pub mod manifest;
pub(crate) mod npy;
mod npz;
mod self_loops;
mod sizes;
mod spans;
mod spill;
pub mod statistics;
mod stored_split;
mod subset;

pub use adjacency::{Adjacency, AdjacencyError, Rows};
pub use array::Array;
pub use classes::{Classes, Masks};
pub use dataset::Dataset;
pub(crate) use dataset::from_the_first;
pub(crate) use directory::write_directory;
pub use disk::Disk;
pub(crate) use disk::{ArrayWriter, Record, Sorter};
pub use edge_values::{EdgeColumns, EdgeMatrix, EdgeValues, MAX_EDGE_COLUMNS, MAX_EDGE_WEIGHT, Values, missing_flags};
pub use ends::Ends;
pub use events::Events;
pub(crate) use features::first_non_finite;
pub use features::{FeatureValues, Features};
pub use filling::{FILLING_FILE, Filling};
pub use formats::atomic_write;
pub use hetero::{Ages, HeteroGraph, LoopReport, NodeType, Relation, RelationSpec};
pub(crate) use hetero::{Histories, check_name};
pub use ids::IdMaps;
pub use labels::Labels;
pub use manifest::Manifest;
pub(crate) use npy::write_npy_f32_digested;
pub use npy::{matrix_shape, open_embeddings, read_embeddings, write_npy, write_npy_f32};
pub use npz::EdgeReading;
pub use self_loops::SelfLoops;
pub use sizes::{Degrees, ReadLabels, RelationSizes, Sizes};
pub use spill::{MatrixWriter, Spill};
pub use statistics::Statistics;
pub use stored_split::{SplitRule, StoredSplit, TimeWindow, date};
pub use subset::Subset;
