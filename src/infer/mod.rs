//! A model over a graph, without gradients: the whole graph at once, or layer by layer where it does not fit the
//! device. Training validates with it, scoring is made of it.

pub mod attention;
pub mod embed;
pub mod finite;
pub mod label_input;
pub mod layerwise;
pub mod layerwise_classes;
pub mod layerwise_embeddings;
pub mod plan;
pub mod sampled_input;
pub mod stage2;
pub mod tree_table;
pub mod two_layers;
pub mod uploaded;
