//! Texts as a few numbers: hashed words, TF-IDF, and its leading directions. What every importer shares.

pub(super) mod hashing;
pub(super) mod ragged;
pub(super) mod terms;
pub(super) mod words;

mod directions;
mod embedding;
mod subspace;

pub(super) use directions::TextDirections;
pub(super) use embedding::{Embeddings, TextColumns, TfIdf};
pub(super) use subspace::{Block, LANES, RowSpace};
