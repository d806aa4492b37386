//! The models as Burn modules, generic in the backend and in the set of relations.
//!
//! [`TripleStreamGae`] (Stage 1) learns embeddings without labels, [`TripleStreamGat`] (Stage 2) turns embeddings and a
//! few labels into a score for every node, [`NodeClassifier`] finds the class of every node. Training
//! and inference call the same operators of `graphsieve-kernels`.

#[cfg(test)]
mod absent_types;
pub mod attention;
pub mod auto_encoder;
pub mod crossing;
pub mod device_graph;
pub mod graph_part;
pub(crate) mod layer_norm;
pub mod named;
pub mod node_classifier;
pub mod node_input;
pub mod parameters;
pub mod precision;
mod pytorch;
pub mod receptive_field;
pub mod tree_ensemble;
pub mod weights;

pub use attention::{AttentionSpec, EdgeInput, Pass, TimeInput, TripleStreamGat};
pub use auto_encoder::{AutoEncoderSpec, TripleStreamGae};
pub use device_graph::DeviceGraph;
pub use node_classifier::{ClassifierSpec, NodeClassifier};
pub use receptive_field::ReceptiveField;
pub use weights::{ModelSpec, Weights};
