//! Texts as a few numbers: hashed words, TF-IDF, and its leading directions. What every importer shares.

pub(super) mod hashing;
pub(super) mod ragged;
pub(super) mod terms;
pub(super) mod words;

mod embedding;
mod subspace;

pub(super) use embedding::{Embeddings, TextColumns, TfIdf};
pub(super) use subspace::{LANES, RowSpace};
